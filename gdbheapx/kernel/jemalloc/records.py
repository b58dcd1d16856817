"""Input and results of the two kernels' walks of jemalloc's rtree and of the links of extents; both fill exactly these records."""

from typing import NamedTuple, Optional, Tuple

from gdbheapx.kernel.common.library import Residency

BLOCK_USED = 0
"""A region of a slab, or a large extent, that the program holds."""
BLOCK_CACHED = 1
"""The same, in a thread cache: jemalloc's bitmaps call it allocated, the program has freed it."""
BLOCK_FREE = 2
"""A free region of an active slab."""
BLOCK_DIRTY = 3
BLOCK_MUZZY = 4
BLOCK_RETAINED = 5
BLOCK_OTHER = 6
"""A whole extent in a state that is none of those: see ArenaExtents.other."""
BLOCK_METADATA = 7
"""A block of an arena's base, which the rtree does not name."""
BLOCK_PINNED = 8
"""A whole unused extent of memory that the program's extent hooks can never return (after 5.3.1)."""

CACHED_OUTSIDE = 0
"""The cached pointer lies in no active extent."""
CACHED_NOT_START = 1
"""It is neither the start of a region nor that of a large allocation."""
CACHED_FREE = 2
"""Its region is free in the slab's bitmap."""
CACHED_TWICE = 3
"""It was given twice: once for each time beyond the first."""
CACHED_UNKNOWN = 4
"""It lies where leaf elements cannot be read, or in a damaged extent: nothing can be said."""
CACHED_REASONS = 5

EXTENT_NODE_UNREADABLE = 0
"""Nothing of the rtree node at `page` can be read."""
EXTENT_NODE_HOLE = 1
"""Some of the rtree node cannot be read; `page` is the first such address. In a core: pages that were not dumped."""
EXTENT_NODE_TWICE = 2
"""The rtree node at `page` is a child in two places: not read again."""
EXTENT_NODE_MISALIGNED = 3
"""`page` is no address of an rtree node."""
EXTENT_TOO_MANY_NODES = 4
"""The nodes met are larger than all memory that could hold them; the one at `page` and all that follow are not read."""
EXTENT_UNREADABLE = 5
"""The extent structure that the leaf element of `page` names cannot be read."""
EXTENT_SIZE = 6
"""Its size is zero or reaches beyond the address space. (A size cannot be no multiple of a page: the low bits of e_size_esn are another
field.)"""
EXTENT_STALE = 7
"""Its address range does not contain the page whose leaf element names it."""
EXTENT_FIRST_PAGE = 8
"""Its range contains the page, but the leaf element of its first page names it not."""
EXTENT_LAST_PAGE = 9
"""The leaf element of its last page names it not: its size is wrong, or it was stopped while it was registered."""
EXTENT_OVERLAP = 10
"""Another extent begins inside it, and the leaf element of its last page was not met before."""
EXTENT_ARENA = 11
"""Its arena index is beyond narenas, and not the one of extents without arena."""
EXTENT_STATE = 12
"""Its state is none of the enumeration's."""
EXTENT_SZIND = 13
"""Active: its size class is beyond nbins (slabs) or nsizes (large)."""
EXTENT_SLAB_SIZE = 14
"""A slab whose size is not that of its bin's slabs."""
EXTENT_BITMAP = 15
"""A slab whose bitmap has another number of free regions than nfree."""
EXTENT_LEAF = 16
"""Of what takes no extent out of the totals the first: the leaf element of `page` says another size class, slab bit or state than the
extent itself, by which free() finds both. Active extents alone; of large ones the last page's says the state only."""
EXTENT_INTERIOR = 17
"""Not every page of a slab has a leaf element that names it."""
EXTENT_SHARD = 18
"""A slab of a shard of its bin that the bin does not have."""
EXTENT_BITMAP_REST = 19
"""Beyond its last region a slab's bitmap has free ones."""
EXTENT_CODES = 20
EXTENT_GOOD = -1

EXTENT_CLASSES = 2 + 54 * 4
"""Of histogram_class, for pages of at least 1,024 bytes."""
STATE_ACTIVE, STATE_DIRTY, STATE_MUZZY, STATE_RETAINED, STATE_PINNED, STATE_OTHER, STATES = range(7)
"""As ArenaExtents has them."""
UNUSED_NUMBERS = 8
"""Extents and bytes of each state from dirty to pinned."""
NO_STATE = 1 << 16
"""More than e_bits can hold: a state that this build has not."""

LEAF_UNKNOWN = 0
LEAF_COMPACT = 1
"""The slab bit is bit 0 of the word, the size class lies above the address."""
LEAF_COMPACT_STATE = 2
"""The same with the state in bits 2 to 4 (from 5.3)."""
LEAF_METADATA = 3
"""le_metadata: slab bit, is_head, three bits of state, size class (from 5.3)."""
LEAF_FIELDS = 4
"""le_szind and le_slab (to 5.2)."""

MOST_PROBLEMS = 64
"""Problems, and cached pointers outside, that are listed one by one; all are counted."""

MOST_REGIONS = 32768
"""Of one slab."""
MOST_EXTENT_BYTES = 8192
MOST_RANGES = 1 << 17
"""More than a process may have mappings (vm.max_map_count is 65,530)."""


class BitField(NamedTuple):
    """Position of a field in e_bits."""

    shift: int
    width: int

    def of(self, word: int) -> int:
        """Return its value in `word`."""
        return word >> self.shift & (1 << self.width) - 1


class RtreeLayout(NamedTuple):
    """Layout of one build's rtree in memory (include/jemalloc/internal/rtree.h)."""

    root: int
    """Address of the array `root`."""
    height: int
    level_bits: Tuple[int, int, int]
    """Key bits of each of `height` levels, the root's first: (18, 18, 0), (15, 15, 15) or (16, 0, 0)."""
    lg_page: int
    lg_vaddr: int
    leaf_bytes: int
    """Size of a leaf element."""
    compact: bool
    """RTREE_LEAF_COMPACT: the pointer shares its word with szind above and flags below."""
    extent_low_bits: int
    """Low bits of a compact word that are no part of the pointer: 1 up to 5.2, 7 from 5.3 on."""
    sign_extend: bool
    """Pointers and keys are sign-extended from lg_vaddr: not so on aarch64, nor where a word has no more bits."""
    leaf_kind: int = LEAF_UNKNOWN
    """A LEAF_ number: the fields of leaf elements apart from the pointer."""

    @property
    def levels(self) -> Tuple[int, ...]:
        """Return the key bits of the levels that there are."""
        return self.level_bits[: self.height]


class ExtentLayout(NamedTuple):
    """Layout of one build's extent_t (5.0 to 5.2) or edata_t in memory; e_bits is a uint64_t."""

    size_bytes: int
    bits_offset: int
    addr_offset: int
    size_offset: int
    """Of e_size_esn."""
    bitmap_offset: int
    """Of e_slab_data.bitmap."""
    bitmap_bytes: int
    arena: BitField
    slab: BitField
    state: BitField
    szind: BitField
    nfree: BitField
    states: int
    """Number of values that extent_state_t has."""
    active: int
    dirty: int
    muzzy: int
    retained: int
    word_bytes: int
    little_endian: bool
    binshard: BitField = BitField(0, 0)
    """Of no width where slabs name no shard (to 5.1)."""
    pinned: int = NO_STATE


class BinLayout(NamedTuple):
    """Small size class (bin_info_t; arena_bin_info_t in 5.0)."""

    reg_size_bytes: int
    slab_size_bytes: int
    nregs: int
    shards: int = 1
    """1 up to 5.1."""


class BlockSizes(NamedTuple):
    """Rule by which the size of a large allocation follows from its extent."""

    from_extent: bool
    """5.3.1 and later with opt.disable_large_size_classes: extent size less large_pad; else the size class."""
    large_pad_bytes: int
    """sz_large_pad: one page in cache-oblivious builds, else 0."""


class HeapLayout(NamedTuple):
    """Layout of one jemalloc, complete for the native library, which takes its numbers in this order."""

    rtree: RtreeLayout
    extent: ExtentLayout
    sizes: BlockSizes
    narenas: int
    """Arena indexes are below it."""
    mapped_bytes: int
    """The sum of the mappings that can hold rtree nodes: more nodes than that are not believed."""
    nbins: int
    nsizes: int
    bins: Tuple[BinLayout, ...]
    """By szind."""
    size_classes: Tuple[int, ...]
    """sz_index2size of all nsizes."""


class StateTotals(NamedTuple):
    """The extents of one arena in one state."""

    extents: int
    bytes: int
    residency: Optional[Residency]
    """None without a page table."""


class BinTotals(NamedTuple):
    """The slabs of one arena with one size class, all shards together."""

    szind: int
    curslabs: int
    curregs: int
    """Regions allocated, as jemalloc counts: those in thread caches are among them."""
    cached_regions: int
    nonfull_slabs: int
    """Slabs with a free region. jemalloc's own figure leaves each shard's slabcur out."""


class LargeTotals(NamedTuple):
    """The active extents of one arena with one size class that are no slabs.

    With szind < nbins they are small allocations that the heap profiler sampled.
    """

    szind: int
    extents: int
    bytes: int
    """Sizes of the extents, with sz_large_pad."""
    cached_extents: int
    """Those of them in thread caches."""
    cached_bytes: int


class AbsentTotals(NamedTuple):
    """Bytes of one arena that are not in memory, by what they belong to: neither in RAM nor in swap, or not in the core."""

    used: int
    """Of blocks that the program holds, to the byte: other parts of their pages may lie in another one."""
    cached: int
    free: int
    """Of free regions of slabs."""
    rounding: int
    """Pages of active extents that no block has, without the next."""
    sampled: int
    """The same of extents with one small block, which the heap profiler sampled."""
    dirty: int
    muzzy: int
    retained: int
    pinned: int
    other: int


ExtentRow = Tuple[int, ...]
"""(class, dirty extents, dirty bytes, muzzy extents, muzzy bytes, retained extents, retained bytes, pinned extents, pinned bytes), class by
api.histogram_class of size and page."""


class ArenaExtents(NamedTuple):
    """Extents of one arena, as the rtree has them."""

    arena: int
    active: StateTotals
    dirty: StateTotals
    muzzy: StateTotals
    retained: StateTotals
    pinned: StateTotals
    other: StateTotals
    """Transition, merging; and active without a size class (szind is SC_NSIZES): on the way from one state to another when the
    process was stopped. (extent.c: extent_recycle_extract, 5.2: extents_evict)"""
    bins: Tuple[BinTotals, ...]
    """By szind, those with a slab."""
    larges: Tuple[LargeTotals, ...]
    """By szind, those with an extent."""
    histogram: Tuple[ExtentRow, ...]
    absent: Optional[AbsentTotals] = None
    """None if it is unknown which pages are in memory."""


class ExtentProblem(NamedTuple):
    """Contradiction in the rtree or an extent."""

    code: int
    """An EXTENT_ number."""
    page: int
    """The page whose leaf element led here; for nodes what the code says."""
    extent: int
    """Address of the extent structure; 0 for nodes."""


class CachedProblem(NamedTuple):
    """A cached pointer that is no allocated block."""

    address: int
    reason: int
    """A CACHED_ number."""


class ExtentsSummary(NamedTuple):
    """Summary of a walk over extents."""

    done: int
    """1: whole. 0: up to `at`; cached pointers beyond are not judged."""
    at: int
    """The page that is next."""
    nodes: int
    """rtree nodes read, the root and the leaf nodes among them."""
    leaf_nodes: int
    extents: int
    """Extents counted."""
    unassociated_extents: int
    """Extents of no arena (all bits of the index set): in no total, and no problem."""
    unparsed_bytes: int
    """Address ranges of damaged extents, as far as they are known."""
    unreadable_bytes: int
    """Bytes of rtree nodes that cannot be read: of those nothing is known."""
    problems: int
    """How many are listed one by one; so the next two."""
    details: int
    cached_problems: int


class ExtentsResult(NamedTuple):
    """The walk of one rtree. Damaged extents are in no total."""

    summary: ExtentsSummary
    arenas: Tuple[ArenaExtents, ...]
    """By index, those with an extent."""
    ranges: Tuple[Tuple[int, int], ...]
    """(begin, end) of the extents in `arenas`, whatever their state, joined where they touch. Past MOST_RANGES the last one goes on to the
    end."""
    problems: Tuple[ExtentProblem, ...]
    """The first MOST_PROBLEMS, in the order met."""
    problem_counts: Tuple[int, ...]
    """How many by code, EXTENT_CODES of them."""
    cached_problems: Tuple[CachedProblem, ...]
    """The first MOST_PROBLEMS, by address."""
    cached_problem_counts: Tuple[int, ...]
    """How many by reason, CACHED_REASONS of them."""
    details: Tuple[ExtentProblem, ...] = ()
    """The first MOST_PROBLEMS contradictions that take no extent out of the totals: codes from EXTENT_LEAF on."""
    detail_counts: Tuple[int, ...] = (0,) * EXTENT_CODES
    """How many by code."""


NO_LINK = 0xFFFFFFFFFFFFFFFF
ANY = NO_LINK

LINKED_GOOD = 0
LINKED_UNREADABLE = 1
"""A link leads to what cannot be read, or is no address of an extent structure."""
LINKED_BACK = 2
"""A member's `prev` does not lead to the member that leads to it."""
LINKED_ALIEN = 3
"""A member says that it has another arena, state or size class."""
LINKED_FULL = 4
"""A slab without a free region, or without a used one."""
LINKED_CYCLE = 5
"""More members than there are extents."""


class LinkedList(NamedTuple):
    """Pairing heap (ph.h) or ring (ql.h) of extents."""

    head: int
    """The root or first member; 0 if there is none."""
    next_offset: int
    prev_offset: int
    child_offset: int
    """Of `lchild`; NO_LINK: it is a ring."""
    arena: int
    """What its members must say, and so the next two."""
    state: int
    szind: int
    """ANY: they may have any."""
    is_nonfull: bool
    """They are slabs with a free and a used region."""
    most: int
    """No more members than there can be."""


class NativeLinked(NamedTuple):
    """Extents found along one list, up to the first contradiction."""

    members: int
    bytes: int
    """The sizes of its extents."""
    problem: int
    """A LINKED_ number."""
    at: int
    """The member at which it contradicts, or the last one."""
    before: int
    """The member that leads to `at`; 0 for the first."""
