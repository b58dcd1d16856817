"""The layouts of jemalloc's releases: struct tables, e_bits, enums, size classes, radix tree shapes.

Differences between releases that no type shows have their one home here."""

import functools
import json
import re
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Member, StructType, Target, TypeSet
from gdbheapx.kernel.jemalloc.records import BinLayout, BitField
from gdbheapx.layout import pack
from gdbheapx.layout.view import read_view

Version = Tuple[int, int, int]

NEWEST_KNOWN: Version = (5, 3, 1)
UNRELEASED: Version = (5, 3, 99)
"""A build after 5.3.1, recognised by its fields."""
TRIED_COMMITS = 47
"""Of those the one that was tried: so many commits after 5.3.1 (295e4894 of May 2026)."""

STRUCTS = (
    *("arena_s", "edata_s", "extent_s", "bin_s", "arena_bin_s", "bins_s", "bin_info_s", "arena_bin_info_s", "tsd_s", "tcache_s"),
    *("tcache_slow_s", "tcache_bin_s", "tcaches_s", "cache_bin_s", "cache_bin_info_s", "cache_bin_array_descriptor_s", "base_s"),
    *("base_block_s", "rtree_s", "rtree_node_elm_s", "rtree_leaf_elm_s", "rtree_level_s", "emap_s", "background_thread_info_s"),
    *("arena_tdata_s", "ticker_s", "ticker_geom_s", "pac_stats_s", "arena_stats_s", "decay_s", "arena_decay_s", "ctl_arenas_s"),
    *("ctl_stats_s", "ctl_arena_s", "ctl_arena_stats_s", "malloc_mutex_s", "sec_shard_s", "sec_bin_s", "hpdata_s", "prof_tdata_s"),
    *("prof_tctx_s", "prof_gctx_s", "prof_bt_s", "ckh_t", "ckhc_t"),
)
"""What readers may ask for, over all releases; a build has some of them."""

TYPE_UNITS = {
    "background_thread_create": ("background_thread_info_s",),
    "tcaches_create": ("tcaches_s",),
    "prof_lookup": ("prof_tctx_s", "prof_gctx_s", "prof_bt_s"),
    "ctl_boot": ("ctl_arenas_s", "ctl_stats_s", "ctl_arena_s", "ctl_arena_stats_s"),
}
"""External functions whose units have the structs that jemalloc.c does not use; the last two only after 5.3.1."""
TYPES_ELSEWHERE = tuple(name for names in TYPE_UNITS.values() for name in names)

ENUMERATORS = ("tsd_state_nominal", "extent_state_active", "malloc_init_initialized", "percpu_arena_disabled")
"""One of each enum that readers look values up in."""

_SLAB_DATA = ("e_slab_data.bitmap", "slab_data.bitmap", "e_slab_data")


def find_version(types: TypeSet, has_confirm_conf: bool) -> Optional[Version]:
    """The release that a build's types belong to; the string it was built with may say anything.

    Marks: 5.0.0 has no minimal tsd state; bin_s came with 5.1.0 (before: arena_bin_s), bins_s with 5.2.0, opt.confirm_conf with 5.2.1,
    edata_s with 5.3.0, tsd_s.te_data with 5.3.1; tsd_s.tsd_link went after it.
    """
    tsd = types.structs.get("tsd_s")
    if tsd is None or "arena_s" not in types.structs:
        return None
    if "edata_s" in types.structs:
        if "tsd_link" not in tsd.members:
            return UNRELEASED
        return (5, 3, 1) if "te_data" in tsd.members else (5, 3, 0)
    if "extent_s" not in types.structs:
        return None
    if types.place("arena_s", "bins[0].bin_shards") is not None:
        return (5, 2, 1) if has_confirm_conf else (5, 2, 0)
    if "bin_s" in types.structs:
        return (5, 1, 0)
    states = [values for values in types.enums.values() if "tsd_state_nominal" in values]
    return (5, 0, 0) if states and "tsd_state_minimal_initialized" not in states[0] else (5, 0, 1)


def make_ebits_fields(version: Version, nsizes: int, slab_maxregs: int) -> Dict[str, BitField]:
    """The fields of extent_t's or edata_t's e_bits (extent_structs.h to 5.2, edata.h from 5.3).

    nsizes: SC_NSIZES. slab_maxregs: regions a slab may have at most; the width of nfree follows from it.
    """
    szind, nfree = (nsizes - 1).bit_length(), slab_maxregs.bit_length()
    widths: List[Tuple[str, int]] = [("arena", 12), ("slab", 1), ("committed", 1)]
    if version >= (5, 3, 0):
        widths += [("pai", 1), ("zeroed", 1), ("guarded", 1), ("state", 3)]
    elif version >= (5, 1, 0):
        widths += [("dumpable", 1), ("zeroed", 1), ("state", 2)]
    else:
        widths += [("zeroed", 1), ("state", 2)]
    widths += [("szind", szind), ("nfree", nfree)]
    if version >= (5, 2, 0):
        widths += [("binshard", 6)]
    if version >= (5, 2, 1):
        widths += [("is_head", 1)]
    fields, shift = {}, 0
    for name, width in widths:
        fields[name] = BitField(shift, width)
        shift += width
    return fields


def count_slab_regions(types: TypeSet, struct: str) -> Optional[int]:
    """Regions a slab may have at most, by the size of its bitmap: flat bitmaps have a bit for each."""
    for path in _SLAB_DATA:
        place = types.place(struct, path)
        if place is not None:
            return place.size_bytes * place.count * 8
    return None


class ExtentStates(NamedTuple):
    """extent_state_t."""

    active: int
    dirty: int
    muzzy: int
    retained: int
    highest: int
    """extent_state_max, or the highest value there is."""
    pinned: Optional[int] = None
    """None in builds up to 5.3.1, which have no such state."""


def read_extent_states(types: TypeSet, version: Version) -> ExtentStates:
    """Read extent_state_t from the build's enum, else by release (extent_structs.h, edata.h)."""
    highest = types.enumerator("extent_state_max")
    if highest is None:
        highest = 6 if version > NEWEST_KNOWN else 5 if version >= (5, 3, 0) else 3
    named = [types.enumerator("extent_state_" + name) for name in ("active", "dirty", "muzzy", "retained")]
    numbers = [place if value is None else value for place, value in enumerate(named)]
    pinned = types.enumerator("extent_state_pinned")
    if pinned is None and named[0] is None and version > NEWEST_KNOWN:
        pinned = 4
    return ExtentStates(numbers[0], numbers[1], numbers[2], numbers[3], highest, pinned)


TSD_STATES = ("nominal", "nominal_slow", "nominal_recompute", "minimal_initialized", "purgatory", "reincarnated", "uninitialized")


def read_tsd_states(types: TypeSet, version: Version) -> Dict[int, str]:
    """Value of tsd.state -> its name without `tsd_state_`: by the build's own enum, else by the release (tsd.h).

    nominal_recompute exists from 5.2.0 to 5.3.1.
    """
    named = {types.enumerator("tsd_state_" + name): name for name in TSD_STATES}
    if None not in named and types.enumerator("tsd_state_uninitialized") is not None:
        return {value: name for value, name in named.items() if value is not None}
    known = {value: name for value, name in named.items() if value is not None}
    if "nominal" in known.values() and "uninitialized" in known.values():
        return known
    has_recompute = (5, 2, 0) <= version <= NEWEST_KNOWN
    return dict(enumerate(name for name in TSD_STATES if has_recompute or name != "nominal_recompute"))


def has_extent_sizes(version: Version) -> bool:
    """Large allocations may have any size (opt.disable_large_size_classes, from 5.3.1, on by default): the extent's, less sz_large_pad."""
    return version >= (5, 3, 1)


def changes_bins(version: Version) -> bool:
    """bin_infos[] is written at the start, by opt.slab_sizes and opt.bin_shards (from 5.2.0); before, it is a constant."""
    return version >= (5, 2, 0)


def split_first_release(version: Version, types: TypeSet, image: bytes) -> Tuple[Version, TypeSet]:
    """5.0.0 has the structs of 5.0.1; its threads begin in state 4, those of 5.0.1 in state 5 (tsd.h: tsd_state_uninitialized), as the
    thread-local image says."""
    if version != (5, 0, 1) or 4 not in image or 5 in image:
        return version, types
    names = [name for name in TSD_STATES if name not in ("nominal_recompute", "minimal_initialized")]
    return (5, 0, 0), TypeSet(types.structs, {"": {"tsd_state_" + name: number for number, name in enumerate(names)}})


def has_ticker_bug(types: TypeSet, version: Version) -> bool:
    """Return whether a thread whose first call is free() never gets tickers: releases with arenas_tdata_bypass and a minimal tsd state.

    tsd.c, tsd_data_init_nocleanup sets the bypass, and nothing resets it: 5.0.1 to 5.2.1; gone with 5.3.0's arena_decay_ticker.
    """
    return types.place("tsd_s", "arenas_tdata_bypass") is not None and version >= (5, 0, 1)


VERSION_TEXT = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:-(\d+)-g|$)")
"""JEMALLOC_VERSION: release, commits after it, hash (configure.ac: git describe --long)."""
PROVEN_COMMITS = {(5, 2, 1): 2, (5, 3, 0): 1}
"""Commits after a release whose builds were seen to have its layout: tikv-jemallocator's 5.2.1-2-g172143a and 5.3.0-1-ge13ca993. Others:
none."""


def parse_jemalloc_release(text: Optional[str]) -> Optional[Version]:
    """The release that a version text begins with; None for 0.0.0, which a build without git's data has, and where there is none."""
    match = VERSION_TEXT.match(text or "")
    release = (int(match.group(1)), int(match.group(2)), int(match.group(3))) if match is not None else (0, 0, 0)
    return release if release != (0, 0, 0) else None


def count_commits_after(text: Optional[str]) -> int:
    """Count the commits after its release that a build has; 0 if the text has none."""
    match = VERSION_TEXT.match(text or "")
    return int(match.group(4) or 0) if match is not None else 0


HASH_DIGITS = 12


def shorten_version(text: Optional[str]) -> str:
    """A version text with a hash that people can compare; a release without one."""
    if text is None:
        return ""
    if count_commits_after(text) == 0 and parse_jemalloc_release(text) is not None:
        return text.split("-")[0]
    head, _, digits = text.partition("-g")
    return "%s-g%s" % (head, digits[:HASH_DIGITS]) if digits else text


def may_differ(text: Optional[str]) -> bool:
    """A build with this version text may have another layout than any release: a snapshot between two, or one that does not say what it
    is."""
    release = parse_jemalloc_release(text)
    return release is None or count_commits_after(text) > PROVEN_COMMITS.get(release, 0)


def was_tried(version: Version, text: Optional[str]) -> bool:
    """Builds whose types belong to this release were tried, if they are what the version text says."""
    return version <= NEWEST_KNOWN or (parse_jemalloc_release(text) == NEWEST_KNOWN and count_commits_after(text) == TRIED_COMMITS)


def name_release(version: Version, text: Optional[str]) -> str:
    """Name a release for people, with commits and hash for a snapshot between releases; without a version text that of its types."""
    release = parse_jemalloc_release(text)
    if release is None:
        return "5.3.1 or newer" if version > NEWEST_KNOWN else "%d.%d.%d" % version
    return shorten_version(text) if may_differ(text) else "%d.%d.%d" % release


def is_read(text: Optional[str]) -> bool:
    """Not known to be of a release before 5, whose arenas are made another way."""
    release = parse_jemalloc_release(text)
    return release is None or release >= (5, 0, 0)


def text_has_ticker_bug(text: Optional[str]) -> Optional[bool]:
    """Answer has_ticker_bug by the version text alone, for builds that are not read; None if it does not show that."""
    release = parse_jemalloc_release(text)
    if release is None or release < (5, 0, 0):
        return None
    if release >= (5, 3, 0):
        return False
    return None if may_differ(text) else release >= (5, 0, 1)


def takes_cache_oblivious(version: Version) -> bool:
    """MALLOC_CONF may have cache_oblivious: 5.3.0 has the option and refuses it."""
    return version >= (5, 3, 1)


def resident_counts_muzzy(version: Version) -> bool:
    """arena_stats_merge (arena.c) counts muzzy pages as resident up to 5.2.1; pa_shard_stats_merge does not."""
    return version < (5, 3, 0)


def omits_large_tcache_bins(version: Version) -> bool:
    """tcache_bytes lacks large bins: arena_stats_merge reads them at the wrong index (arena.c, 5.1.0 to 5.2.1)."""
    return (5, 1, 0) <= version < (5, 3, 0)


def omits_sampled_blocks(version: Version) -> bool:
    """curregs lacks small blocks that the heap profiler sampled (arena_large_malloc_stats_update); up to 5.3.0 they count as large."""
    return version >= (5, 3, 1)


def merges_no_large_flushes(version: Version) -> bool:
    """ctl_arena_stats_sdmerge (ctl.c) forgets nflushes of large allocations in the sum over arenas; from 5.3.0 it adds them."""
    return version < (5, 3, 0)


def shards_bins(version: Version) -> bool:
    """malloc_stats_print shows arenas.bin.<i>.nshards."""
    return version >= (5, 2, 0)


def shows_system(version: Version) -> bool:
    """malloc_stats_print shows `system` and arenas.hugepage."""
    return version >= (5, 3, 1)


def choose_print_form(version: Version) -> Tuple[int, int, bool]:
    """Return how a release prints its statistics: the widths of counts of bins (wider from 5.3.1) and of rates of small and large
    allocations (from 5.3.0), and whether it leaves out bins that never had a slab (from 5.3.0)."""
    return 14 if version >= (5, 3, 1) else 13, 10 if version >= (5, 3, 0) else 8, version >= (5, 3, 0)


def list_config_names(version: Version) -> Sequence[str]:
    """The build-time switches that malloc_stats_print shows, in its order (stats.c: stats_general_print)."""
    names = ["cache_oblivious", "debug", "fill", "lazy_lock", "prof", "prof_libgcc", "prof_libunwind", "stats", "utrace", "xmalloc"]
    if version >= (5, 2, 1):
        names.insert(4, "opt_safety_checks")
    if version >= (5, 3, 1):
        names.insert(names.index("prof_libunwind") + 1, "prof_frameptr")
    return names


def keeps_profile_text(version: Version) -> bool:
    """Builds without --enable-prof may have the text of a profile's head too: up to 5.2.1 a variable points to the function (prof.c:
    prof_dump_header)."""
    return version < (5, 3, 0)


def has_short_ncached_max(types: TypeSet) -> bool:
    """tcache_bin_info[] has elements of two bytes (cache_bin_sz_t is uint16_t, from 5.3.0); before, of four."""
    place = types.place("cache_bin_info_s", "ncached_max")
    return place is not None and place.size_bytes == 2


SWITCHES = tuple("config_" + name for name in (*list_config_names(NEWEST_KNOWN), "enable_cxx"))
"""The constants of these switches (jemalloc_preamble.h): no memory holds them, packs do."""


STRUCTS_FILE = "jemalloc.structs"
BASE_PATHS = ("base", "pa_shard.base", "pa_shard.edata_cache.base", "pa_shard.pac.base")
"""Members of arena_s that point to the arena's own base."""
HPA_BASE_PATHS = ("pa_shard.hpa_shard.base", "pa_shard.hpa.base")
"""Others that do where opt.hpa is on."""
PAGE_BYTES = 4096
"""The usual page of jemalloc, from which the figures of other pages are reckoned."""
NBINS_BY_QUANTUM = {16: 36, 8: 39}
"""SC_NBINS by quantum, with pages of that size: small classes end below four pages, and there are four to a doubling (sc.h)."""
NSIZES_BY_QUANTUM = {16: 232, 8: 235}
"""SC_NSIZES by quantum; size classes end below 8 EiB."""


class StructTable(NamedTuple):
    """The structs of one kind of build."""

    name: str
    """Such as `5.3.1 neither`: built with neither profiling nor statistics."""
    version: Version
    nbins: int
    types: TypeSet
    page_bytes: int = PAGE_BYTES
    """PAGE."""
    mutex_bytes: int = 40
    """sizeof(pthread_mutex_t), by the machine and its C library."""

    @property
    def quantum_bytes(self) -> int:
        """QUANTUM."""
        return find_quantum(self.nbins, self.page_bytes) or 0

    @property
    def arena_bytes(self) -> int:
        """sizeof(arena_s)."""
        return self.types.size_bytes("arena_s")

    @property
    def tsd_bytes(self) -> int:
        """sizeof(tsd_s)."""
        return self.types.size_bytes("tsd_s")

    def fits(self, places: Sequence[int]) -> bool:
        """Return whether an arena with base pointers at these offsets has this layout."""
        own = {place for place in places if place < self.arena_bytes}
        needed, allowed = _find_offsets(self.types, BASE_PATHS), _find_offsets(self.types, HPA_BASE_PATHS)
        return needed <= own <= needed | allowed


def _find_offsets(types: TypeSet, paths: Sequence[str]) -> "set[int]":
    return {place.offset for place in (types.place("arena_s", path) for path in paths) if place is not None}


@functools.cache
def read_struct_tables() -> Sequence[StructTable]:
    """Read all tables, in the order of releases."""
    tree = json.loads(pack.shipped_text(STRUCTS_FILE))
    names: List[str] = list(tree["releases"])
    structs: List[Dict[str, StructType]] = [{} for _ in names]
    for struct, variants in tree["structs"].items():
        for users, (size_bytes, members) in variants:
            made = StructType(size_bytes, {name: Member(*place) for name, place in members.items()})
            for number in users:
                structs[number][struct] = made
    rows: List[Dict[str, Any]] = list(tree["releases"].values())
    return [
        StructTable(name, (row["version"][0], row["version"][1], row["version"][2]), row["bins"], TypeSet(own), row["page"], row["mutex"])
        for name, row, own in zip(names, rows, structs)
    ]


def find_struct_tables(page_bytes: int, mutex_bytes: Sequence[int]) -> Sequence[StructTable]:
    """Return the tables of builds with this page and one of these mutexes."""
    return [table for table in read_struct_tables() if table.page_bytes == page_bytes and table.mutex_bytes in mutex_bytes]


def add_pack_variables(table: StructTable) -> TypeSet:
    """The types with the enums and variables of a shipped pack of that release: for builds whose symbol table has the variables."""
    types = TypeSet(dict(table.types.structs))
    release = "%d.%d.%d-" % table.version
    for shipped in pack.shipped_packs():
        if shipped.allocator == "jemalloc" and (shipped.version_text or "").startswith(release):
            types.update(TypeSet({}, shipped.types.enums, shipped.types.variables))
            break
    return types


@functools.cache
def compute_size_classes(quantum_bytes: int) -> Tuple[int, ...]:
    """sz_index2size_tab: 8, multiples of the quantum up to 64 or 128, then four steps per doubling (sc.c)."""
    sizes = [8, *range(quantum_bytes, 4 * quantum_bytes + 1, quantum_bytes)] if quantum_bytes > 8 else [8, 16, 24, 32]
    step = sizes[-1] // 4
    while len(sizes) < NSIZES_BY_QUANTUM[quantum_bytes]:
        sizes += [sizes[-1] + step * number for number in (1, 2, 3, 4)]
        step *= 2
    return tuple(sizes[: NSIZES_BY_QUANTUM[quantum_bytes]])


def find_quantum(nbins: int, page_bytes: int) -> Optional[int]:
    """QUANTUM of a build with that many bins; None where no build has them."""
    more = 4 * (page_bytes.bit_length() - PAGE_BYTES.bit_length())
    return next((quantum for quantum, least in NBINS_BY_QUANTUM.items() if least + more == nbins), None)


def select_page_classes(sizes: Sequence[int], page_bytes: int) -> Tuple[int, ...]:
    """Select the classes that are whole pages: sz_pind2sz_tab without its last entry."""
    return tuple(size for size in sizes if size % page_bytes == 0)


def compute_slab_bytes(size: int, page_bytes: int) -> int:
    """A slab is as many pages as hold a whole number of regions (bin_info.c, before it bin.c and arena.c)."""
    slab = page_bytes
    while slab % size:
        slab += page_bytes
    return slab


LG_VADDRS = (48, 57, 52, 47, 39, 42)
"""Significant address bits that configure finds on 64-bit machines, the usual first; on others all are."""
MAX_ARENAS = 4095
"""MALLOCX_ARENA_LIMIT in every release of 5."""


class RtreeShape(NamedTuple):
    """The split of addresses over the levels of the radix tree (rtree.h)."""

    lg_vaddr: int
    levels: Tuple[int, ...]
    """Key bits per level, root first."""
    compact: bool
    """A leaf element is one word (RTREE_LEAF_COMPACT)."""


def make_rtree_shape(lg_vaddr: int, lg_page: int, nsizes: int, word_bytes: int = 8) -> Optional[RtreeShape]:
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


def list_rtree_shapes(root_elements: int, lg_page: int, nsizes: int, compact: Optional[bool], word_bytes: int) -> Sequence[RtreeShape]:
    """Every shape whose root array has that many elements, the likeliest first; calibration chooses."""
    shapes = [make_rtree_shape(lg_vaddr, lg_page, nsizes, word_bytes) for lg_vaddr in (LG_VADDRS if word_bytes == 8 else (8 * word_bytes,))]
    return [shape for shape in shapes if shape and 1 << shape.levels[0] == root_elements and compact in (None, shape.compact)]


def read_bin_infos(target: Target, types: TypeSet, address: int, count: int, struct: str = "bin_info_s") -> List[BinLayout]:
    """bin_infos[]. Unreadable if it cannot be read."""
    stride = types.size_bytes(struct)
    rows = [read_view(target, types, struct, address + number * stride) for number in range(count)]
    return [BinLayout(row["reg_size"], row["slab_size"], row["nregs"], row.get("n_shards") or 1) for row in rows]


class JemallocGeometry(NamedTuple):
    """The constants of one build, read from the target and not from a version."""

    word_bytes: int
    little_endian: bool
    lg_page: int
    """LG_PAGE, jemalloc's own page, which may be larger than the kernel's."""
    size_classes: Tuple[int, ...]
    """sz_index2size_tab: bytes by szind."""
    page_classes: Tuple[int, ...]
    """sz_pind2sz_tab without its last entry: bytes by pszind."""
    bins: Tuple[BinLayout, ...]
    """By szind."""
    extent_struct: str
    """`edata_s` (from 5.3) or `extent_s`."""
    fields: Dict[str, BitField]
    """e_bits."""
    states: ExtentStates
    rtree_root: int = 0
    """Address of rtree_s.root[]."""
    rtree: RtreeShape = RtreeShape(48, (18, 18), True)
    leaf_low_bits: int = 1
    """Low bits of a compact leaf element that are not the extent's address: 1 (slab) to 5.2, 7 (edata is 128-byte aligned) from 5.3."""
    sign_extend: bool = False
    """Addresses are sign-extended from lg_vaddr bits."""
    narenas: int = MAX_ARENAS
    """narenas_total."""
    manual_arena_base: Optional[int] = None
    """Arenas from here on were made by arenas.create."""
    huge_arena: Optional[int] = None
    """huge_arena_ind; None if there is none."""
    large_pad_bytes: int = 0
    """sz_large_pad."""
    size_from_extent: bool = False
    """A large allocation's usable size is its extent's less large_pad_bytes (opt.disable_large_size_classes), not its size class."""

    @property
    def page_bytes(self) -> int:
        """PAGE."""
        return 1 << self.lg_page

    @property
    def nbins(self) -> int:
        """SC_NBINS."""
        return len(self.bins)


def assemble_geometry(
    target: Target, types: TypeSet, version: Version, sizes: Sequence[int], pages: Sequence[int], bins: Sequence[BinLayout]
) -> Optional[JemallocGeometry]:
    """Make the geometry from tables of sizes and bins, without the radix tree and single variables; None if they cannot be jemalloc's."""
    page = pages[0] if pages else 0
    if page & (page - 1) or not 4096 <= page <= 1 << 24 or sorted(set(sizes)) != list(sizes):
        return None
    extent = "edata_s" if "edata_s" in types.structs else "extent_s"
    regs = count_slab_regions(types, extent)
    if regs is None or not bins:
        return None
    return JemallocGeometry(
        word_bytes=target.word_bytes,
        little_endian=target.little_endian,
        lg_page=page.bit_length() - 1,
        size_classes=tuple(sizes),
        page_classes=tuple(pages),
        bins=tuple(bins),
        extent_struct=extent,
        fields=make_ebits_fields(version, len(sizes), regs),
        states=read_extent_states(types, version),
        leaf_low_bits=7 if extent == "edata_s" else 1,
        sign_extend=target.arch.sign_extends,
    )
