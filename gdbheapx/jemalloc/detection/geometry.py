"""The constants of one jemalloc build as it runs: pages, size classes, bins, the radix tree, the fields of e_bits.

How addresses are split over the levels of the radix tree, by the constants of a build (rtree.h).
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Target, TypeSet
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.detection.layouts import Field, States, Version
from gdbheapx.layout.view import read_view

LG_VADDRS = (48, 57, 52, 47, 39, 42)
"""Significant address bits that configure finds on 64-bit machines, the usual first; on others all are."""
MAX_ARENAS = 4095
"""MALLOCX_ARENA_LIMIT in every release of 5."""


class RtreeShape(NamedTuple):
    """How addresses are split over the levels of the radix tree (rtree.h)."""

    lg_vaddr: int
    levels: Tuple[int, ...]
    """Key bits per level, root first."""
    compact: bool
    """A leaf element is one word (RTREE_LEAF_COMPACT)."""


def rtree_shape(lg_vaddr: int, lg_page: int, nsizes: int, word_bytes: int = 8) -> Optional[RtreeShape]:
    """RTREE_HEIGHT and rtree_levels for these constants; None if no height fits."""
    bits = lg_vaddr - lg_page
    compact = 8 * word_bytes - lg_vaddr >= (nsizes - 1).bit_length()
    if bits <= 0 or bits > 52:
        return None
    if bits <= 10:
        return RtreeShape(lg_vaddr, (bits,), compact)
    if bits <= 36:
        return RtreeShape(lg_vaddr, (bits // 2, bits - bits // 2), compact)
    third, rest = bits // 3, bits % 3
    return RtreeShape(lg_vaddr, (third, third + rest // 2, third + rest - rest // 2), compact)


def rtree_shapes(root_elements: int, lg_page: int, nsizes: int, compact: Optional[bool], word_bytes: int) -> Sequence[RtreeShape]:
    """Every shape whose root array has that many elements, the likeliest first; calibration chooses."""
    shapes = [rtree_shape(lg_vaddr, lg_page, nsizes, word_bytes) for lg_vaddr in (LG_VADDRS if word_bytes == 8 else (8 * word_bytes,))]
    return [shape for shape in shapes if shape and 1 << shape.levels[0] == root_elements and compact in (None, shape.compact)]


class TypeSources(NamedTuple):
    """Types with their provenance."""

    types: TypeSet
    source: str
    """`debug-info`, `pack` (of this very build) or `table` (of another build with the same structs)."""
    version: Optional[Version] = None
    """The release of a table; None where the types tell it."""
    name: Optional[str] = None
    """Of the table."""


class BinInfo(NamedTuple):
    """bin_infos[szind], 5.0.x arena_bin_info[szind]."""

    reg_size_bytes: int
    slab_size_bytes: int
    nregs: int
    n_shards: int
    """1 up to 5.1."""


def read_bin_infos(target: Target, types: TypeSet, address: int, count: int, struct: str = "bin_info_s") -> List[BinInfo]:
    """bin_infos[]. Unreadable if it cannot be read."""
    stride = types.size_bytes(struct)
    rows = [read_view(target, types, struct, address + number * stride) for number in range(count)]
    return [BinInfo(row["reg_size"], row["slab_size"], row["nregs"], row.get("n_shards") or 1) for row in rows]


class Geometry(NamedTuple):
    """What arithmetic needs; read from the target, not from a version."""

    word_bytes: int
    little_endian: bool
    lg_page: int
    """LG_PAGE, jemalloc's own page, which may be larger than the kernel's."""
    size_classes: Tuple[int, ...]
    """sz_index2size_tab: bytes by szind."""
    page_classes: Tuple[int, ...]
    """sz_pind2sz_tab without the entry behind its end: bytes by pszind."""
    bins: Tuple[BinInfo, ...]
    """By szind."""
    extent_struct: str
    """`edata_s` (from 5.3) or `extent_s`."""
    fields: Dict[str, Field]
    """e_bits."""
    states: States
    rtree_root: int
    """Address of rtree_s.root[]."""
    rtree: RtreeShape
    leaf_low_bits: int
    """Low bits of a compact leaf element that are not the extent's address: 1 (slab) to 5.2, 7 (edata is 128-byte aligned) from 5.3."""
    sign_extend: bool
    """Addresses are sign-extended from lg_vaddr bits."""
    narenas: int
    """narenas_total."""
    manual_arena_base: Optional[int]
    """Arenas from here on were made by arenas.create."""
    huge_arena: Optional[int]
    """huge_arena_ind; None if there is none."""
    large_pad_bytes: int
    """sz_large_pad."""
    size_from_extent: bool
    """A large allocation's usable size is its extent's less large_pad_bytes (opt.disable_large_size_classes), not its size class."""

    @property
    def page_bytes(self) -> int:
        """PAGE."""
        return 1 << self.lg_page

    @property
    def nbins(self) -> int:
        """SC_NBINS."""
        return len(self.bins)


def assemble(
    target: Target, types: TypeSet, version: Version, sizes: Sequence[int], pages: Sequence[int], bins: Sequence[BinInfo]
) -> Optional[Geometry]:
    """What tables of sizes and bins make, without the radix tree and what single variables tell; None if they cannot be jemalloc's."""
    page = pages[0] if pages else 0
    if page & (page - 1) or not 4096 <= page <= 1 << 24 or sorted(set(sizes)) != list(sizes):
        return None
    extent = "edata_s" if "edata_s" in types.structs else "extent_s"
    regs = layouts.slab_maxregs(types, extent)
    if regs is None or not bins:
        return None
    return Geometry(
        word_bytes=target.word_bytes,
        little_endian=target.little_endian,
        lg_page=page.bit_length() - 1,
        size_classes=tuple(sizes),
        page_classes=tuple(pages),
        bins=tuple(bins),
        extent_struct=extent,
        fields=layouts.e_bits(version, len(sizes), regs),
        states=layouts.states(types, version),
        rtree_root=0,
        rtree=RtreeShape(48, (18, 18), True),
        leaf_low_bits=7 if extent == "edata_s" else 1,
        sign_extend=target.arch.sign_extends,
        narenas=MAX_ARENAS,
        manual_arena_base=None,
        huge_arena=None,
        large_pad_bytes=0,
        size_from_extent=False,
    )
