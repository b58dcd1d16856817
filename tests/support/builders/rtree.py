"""jemalloc's rtree and extents as bytes, from a list of extents, for any shape of tree and any release; and what a walk must say of them."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.jemalloc import records

FROM_EXTENT = records.BlockSizes(True, 0)
FIELDS = {
    "5.0": (records.BitField(0, 12), records.BitField(12, 1), records.BitField(15, 2), records.BitField(17, 8), records.BitField(25, 10)),
    "5.1": (records.BitField(0, 12), records.BitField(12, 1), records.BitField(16, 2), records.BitField(18, 8), records.BitField(26, 10)),
    "5.3": (records.BitField(0, 12), records.BitField(12, 1), records.BitField(17, 3), records.BitField(20, 8), records.BitField(28, 10)),
}
"""arena, slab, state, szind, nfree in e_bits: 5.0.x, 5.1 and 5.2, 5.3 and later."""

ACTIVE, DIRTY, MUZZY, RETAINED, OTHER = range(5)
NARENAS = 5
UNASSOCIATED = 4095
METADATA = 0x10000
"""Address of the first node: nodes, then extent structures, lie from here on."""
BINS = 5
MAPPED = 1 << 30


class Variant(NamedTuple):
    """One shape of everything."""

    levels: Tuple[int, ...] = (18, 18)
    lg_page: int = 12
    compact: bool = True
    word: int = 8
    little: bool = True
    release: str = "5.3"
    high: bool = False
    """The heap lies in the upper, sign-extended half of the address space."""
    has_pinned: bool = False
    """Number 4 is the state of pinned extents: after 5.3.1."""


VARIANTS = (
    Variant((10,), release="5.0"),
    Variant((10,), 16, compact=False, release="5.1"),
    Variant((5, 8), release="5.1"),
    Variant((6, 7), compact=False),
    Variant((6, 7), compact=False, little=False, release="5.0"),
    Variant((5, 8), 16, high=True),
    Variant((5, 7), compact=False, word=4, release="5.1"),
    Variant((5, 7), compact=False, word=4, little=False),
    Variant((3, 4, 5)),
    Variant((6, 7), has_pinned=True),
    Variant((4, 4, 5), compact=False, release="5.1"),
    Variant((3, 4, 6), 14, little=False),
)


class Spec(NamedTuple):
    """One extent to build."""

    pages: int
    """Ignored for slabs: their bin tells."""
    state: int = ACTIVE
    arena: int = 0
    szind: int = BINS
    free: Optional[int] = None
    """A slab of bin szind with this bitmap (cut to nregs); None: no slab."""
    gap: int = 0
    """Empty pages before it."""
    offset: int = 0
    """How far e_addr lies in the first page."""


class Built(NamedTuple):
    """The bytes, the layouts, and what is to be said."""

    rtree: records.RtreeLayout
    extent: records.ExtentLayout
    bins: Tuple[records.BinLayout, ...]
    size_classes: Tuple[int, ...]
    pieces: Dict[int, bytearray]
    """By address: each node, and all extent structures."""
    structs: int
    """Address of the extent structures."""
    placed: List[Tuple[Spec, int, int]]
    """(spec, begin, end) of each extent, in order."""
    leaf: Dict[int, int]
    """Page -> address of its leaf element."""

    @property
    def source(self) -> BytesSource:
        """As it is now."""
        return BytesSource(tuple((address, bytes(data)) for address, data in sorted(self.pieces.items())))

    def struct_of(self, number: int) -> int:
        """Address of an extent's structure."""
        return self.structs + number * self.extent.size_bytes

    def put(self, address: int, value: int, size: int) -> None:
        """Overwrites a number."""
        for begin, data in self.pieces.items():
            if begin <= address < begin + len(data):
                data[address - begin : address - begin + size] = value.to_bytes(size, "little" if self.extent.little_endian else "big")
                return
        raise AssertionError("nothing at 0x%x" % address)

    def get(self, address: int, size: int) -> int:
        """Reads a number."""
        for begin, data in self.pieces.items():
            if begin <= address < begin + len(data):
                return int.from_bytes(data[address - begin : address - begin + size], "little" if self.extent.little_endian else "big")
        raise AssertionError("nothing at 0x%x" % address)

    def heap(self, sizes: records.BlockSizes = FROM_EXTENT) -> records.HeapLayout:
        """Everything the kernels must know of it."""
        counts = (len(self.bins), len(self.size_classes))
        return records.HeapLayout(self.rtree, self.extent, sizes, NARENAS, MAPPED, *counts, self.bins, self.size_classes)


def extent_layout(variant: Variant) -> records.ExtentLayout:
    """Structures of 144 bytes cross pages; those of 5.3 do not."""
    word, size = variant.word, 128 if variant.release == "5.3" else 144
    states = 6 + variant.has_pinned if variant.release == "5.3" else 4
    made = records.ExtentLayout(size, 0, 8, 8 + word, 64, 64, *FIELDS[variant.release], states, 0, 1, 2, 3, word, variant.little)
    return made._replace(pinned=OTHER) if variant.has_pinned else made


def bin_layouts(page: int) -> Tuple[records.BinLayout, ...]:
    """Bins with bitmaps of one to four groups, with and without unused bytes at the slab's end."""
    shapes = ((page // 256, page, 256), (3 * page // 256, 3 * page, 256), (5 * page // 64, 5 * page, 63), (7 * page // 8, 7 * page, 8), (page, page, 1))
    return tuple(records.BinLayout(*shape) for shape in shapes)


def size_classes(page: int) -> Tuple[int, ...]:
    """The bins' sizes, then those of large allocations."""
    return (*(row.reg_size_bytes for row in bin_layouts(page)), *(page * pages for pages in (4, 5, 6, 7, 8, 10, 12)))


def extended(variant: Variant, address: int) -> int:
    """The address as a pointer has it."""
    lg_vaddr = variant.lg_page + sum(variant.levels)
    upper = variant.high and address >> (lg_vaddr - 1)
    return address | ((1 << 64) - (1 << lg_vaddr)) if upper else address


def pages_of(spec: Spec, page: int) -> int:
    """The extent's length."""
    return spec.pages if spec.free is None else bin_layouts(page)[spec.szind].slab_size_bytes // page


class Nodes:
    """The tree while it is built: nodes are made where elements are set."""

    def __init__(self, variant: Variant) -> None:
        self.variant, self.pieces, self.next = variant, {}, METADATA  # type: ignore[var-annotated]
        self.leaf_bytes = 8 if variant.compact else {8: 16, 4: 12}[variant.word]
        self._known: Dict[Tuple[int, int], int] = {}
        self.root = self._node(0, 0)

    def _node(self, depth: int, prefix: int) -> int:
        if (depth, prefix) not in self._known:
            element = self.leaf_bytes if depth + 1 == len(self.variant.levels) else self.variant.word
            size = element << self.variant.levels[depth]
            self._known[depth, prefix] = self.next
            self.pieces[self.next] = bytearray(size)
            self.next += (size + 63) // 64 * 64 + 64
        return self._known[depth, prefix]

    def element(self, page: int) -> int:
        """Address of the leaf element of a page; makes the nodes above it."""
        variant, node, prefix = self.variant, self.root, 0
        key = page >> variant.lg_page
        for depth, bits in enumerate(variant.levels):
            below = sum(variant.levels[depth + 1 :])
            index = key >> below & (1 << bits) - 1
            prefix = prefix << bits | index
            if depth + 1 == len(variant.levels):
                return node + index * self.leaf_bytes
            child = self._node(depth + 1, prefix)
            place = index * variant.word
            self.pieces[node][place : place + variant.word] = child.to_bytes(variant.word, "little" if variant.little else "big")
            node = child
        raise AssertionError

    def set(self, address: int, pointer: int, slab: bool, state: int, szind: int) -> None:
        """Makes a leaf element name an extent, with size class, slab bit and, from 5.3, is_head and state: compact in the same word."""
        variant, order = self.variant, "little" if self.variant.little else "big"
        value, more, flags = pointer, b"", int(slab) | (2 | state << 2 if variant.release == "5.3" else 0)
        if variant.compact:
            lg_vaddr = variant.lg_page + sum(variant.levels)
            value = (pointer & (1 << lg_vaddr) - 1 | szind << lg_vaddr | flags) & (1 << 64) - 1
        elif variant.release == "5.3":
            more = (flags | szind << 5).to_bytes(4, order)  # type: ignore[arg-type]
        else:
            more = szind.to_bytes(4, order) + bytes((int(slab),))  # type: ignore[arg-type]
        for begin, data in self.pieces.items():
            if begin <= address < begin + len(data):
                whole = value.to_bytes(variant.word, order) + more  # type: ignore[arg-type]
                data[address - begin : address - begin + len(whole)] = whole


def leaf_kind(variant: Variant) -> int:
    """What its leaf elements say beside the pointer."""
    if variant.compact:
        return records.LEAF_COMPACT_STATE if variant.release == "5.3" else records.LEAF_COMPACT
    return records.LEAF_METADATA if variant.release == "5.3" else records.LEAF_FIELDS


def build(specs: Sequence[Spec], variant: Variant) -> Built:
    """The extents one after the other from a quarter (or three quarters) of the address space on; those that find no room are left out."""
    page, lg_vaddr = 1 << variant.lg_page, variant.lg_page + sum(variant.levels)
    nodes, layout, bins = Nodes(variant), extent_layout(variant), bin_layouts(page)
    at, placed, leaf = (3 if variant.high else 1) << (lg_vaddr - 2), [], {}
    for spec in specs:
        begin = at + spec.gap * page
        end = begin + pages_of(spec, page) * page
        if end >= 1 << lg_vaddr:
            break
        placed.append((spec, extended(variant, begin), extended(variant, end)))
        addresses = range(begin, end, page) if spec.free is not None and spec.state == ACTIVE else (begin, end - page)
        for one in addresses:
            leaf[extended(variant, one)] = nodes.element(one)
        at = end
    # a base block is aligned as 5.3 aligns edata_t
    structs = (nodes.next + 127) // 128 * 128
    assert not variant.compact or structs + len(placed) * layout.size_bytes < 1 << lg_vaddr
    data = bytearray(len(placed) * layout.size_bytes)
    pieces: Dict[int, bytearray] = dict(nodes.pieces)
    if data:
        pieces[structs] = data
    bits = (*variant.levels, 0, 0)
    rtree = records.RtreeLayout(
        nodes.root, len(variant.levels), (bits[0], bits[1], bits[2]), variant.lg_page, lg_vaddr, nodes.leaf_bytes, variant.compact, 7 if variant.release == "5.3" else 1, variant.high,
        leaf_kind(variant),
    )
    built = Built(rtree, layout, bins, size_classes(page), pieces, structs, placed, leaf)
    for number, (spec, begin, end) in enumerate(placed):
        pointer = structs + number * layout.size_bytes
        for one in range(begin, end, page):
            if one in leaf:
                is_kept = spec.state == ACTIVE and (one == begin or spec.free is not None)  # of others the size class is an earlier life's
                nodes.set(leaf[one], pointer, spec.free is not None, spec.state, spec.szind if is_kept else 77)
        _write(built, pointer, spec, begin, end)
    return built


def _write(built: Built, pointer: int, spec: Spec, begin: int, end: int) -> None:
    layout, word = built.extent, built.extent.word_bytes
    nregs = built.bins[spec.szind].nregs if spec.free is not None else 0
    free = (spec.free or 0) & (1 << nregs) - 1
    fields = zip(
        (layout.arena, layout.slab, layout.state, layout.szind, layout.nfree),
        (spec.arena, int(spec.free is not None), spec.state, spec.szind, bin(free).count("1")),
    )
    sn = 1 << 60
    built.put(pointer + layout.bits_offset, sn | sum(value << field.shift for field, value in fields), 8)
    built.put(pointer + layout.addr_offset, begin + spec.offset, word)
    # the low bits are the serial number of the structure itself
    built.put(pointer + layout.size_offset, (end - begin) | 5, word)
    if spec.free is not None and spec.state == ACTIVE:
        groups = -(-nregs // (8 * word))
        dirty = free | ((spec.free >> nregs) << nregs)  # what lies beyond nregs is garbage
        for group in range(layout.bitmap_bytes // word):
            value = dirty >> (8 * word * group) & (1 << 8 * word) - 1
            built.put(pointer + layout.bitmap_offset + group * word, value if group < groups else 0x5A, word)
