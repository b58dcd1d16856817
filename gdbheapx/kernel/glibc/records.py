"""Input and results of the native library's passes over a glibc heap: walks over chunks, searches for mmapped ones, free lists that are
followed together (as columns: a process can have more than 100,000), and checks of single chunks and of members of lists.
"""

from array import array
from operator import add
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.common.library import ADDRESS_MASK, HISTOGRAM_EXACT_BYTES, Residency

SPECIAL_FAST, SPECIAL_TCACHE, SPECIAL_TCACHE_STRUCT = range(1, 4)
"""A special chunk is written as `chunk address | SPECIAL_x`: the low three bits of a chunk address are always 0."""

STATUS_USED, STATUS_FAST, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_FREE, STATUS_TOP, STATUS_FENCE = range(7)
"""Statuses of chunks; the first four equal the SPECIAL_ numbers so that one table serves both."""
STATUS_MAPPED, STATUS_MAPPED_TCACHE = 7, 8
"""Of chunks with a mapping of their own, which no walk meets: used, or in a thread cache."""


TCACHE = 0
"""A thread cache's list: entries are what malloc returned, the link is the first word there."""
FAST = 1
"""A fastbin: entries are chunks, the link is fd."""
BIN = 2
"""A doubly linked bin, followed along fd from its header, which acts as a chunk, until it comes back."""
TCACHE_SIZED = 3
"""As TCACHE, with the chunks' size fields: lists whose chunks differ in size, or may have a mapping of their own."""

UNALIGNED, UNREADABLE, TOO_LONG, BACK_LINK, CYCLE, CUT, UNREAD = range(1, 8)
"""What can be wrong with a list; 0 is nothing. UNREAD: memory is there and was not read, which is no damage; kernels say UNREADABLE."""

LISTS_MEMBERS, LISTS_TWICE, LISTS_MAPPED = range(3)
"""Numbers that heapx_lists_numbers gives: NativeFollowedList.members, twice and mapped."""

PROBLEMS = (
    "",
    "unaligned",
    "unreadable",
    "too long",
    "bk of the next chunk points elsewhere",
    "already in the list",
    "not reached in time",
    "in memory that was not read",
)
"""The problems in words, by number."""

BROKEN_PREV_SIZE = 0
"""A free chunk whose size is not repeated after it; `value`: the word there."""
BROKEN_FREE_NEIGHBOURS = 1
"""A free chunk directly after another one, at `value`."""
BROKEN_NOT_BINNED = 2
"""Free by its successor, and in no bin; `value`: its size."""
BROKEN_BINNED_USED = 3
"""In a bin, and in use by its successor; `value`: the size field."""
BROKEN_BINNED_ASTRAY = 4
"""A member of a bin on no chunk boundary."""
BROKEN_LISTED_FREE = 5
"""In a thread cache or fastbin, and free by its successor as well; `value`: its size."""
BROKEN_LISTED_ASTRAY = 6
"""A member of a thread cache or fastbin on no chunk boundary."""
BROKEN_NON_MAIN = 7
"""A chunk that was handed out with NON_MAIN_ARENA in the main arena, or without it elsewhere."""
BROKEN_FREE_FLAGS = 8
"""A free chunk with NON_MAIN_ARENA."""
BROKEN_FIRST = 9
"""The first chunk of a heap says that the chunk before it is free."""
BROKEN_STOP = 10
"""Where a region ends: `value` is the STOP_. No contradiction by itself; one for each region, in order."""
BROKEN_RULES = 11

MEMBER_SIZE = 0
"""The member's size, `value`, is none of its list."""
MEMBER_KEY = 1
"""Its second word, `value`, is not the key that thread caches write there."""
MEMBER_ORDER = 2
"""It is larger than the member before it, of `value` bytes, in a bin that has the largest first."""
MEMBER_NEXTSIZE = 3
"""fd_nextsize and bk_nextsize of it and of `value` do not lead to each other."""
MEMBER_LINK = 4
"""A bin whose bk here is not the chunk before it, `value`; which cannot be read, or does not come back to its header. It ends here."""
MEMBER_RULES = 5

REGION_MAIN, REGION_FIRST, REGION_BINS_KNOWN = 1, 2, 4
"""Of the main arena; its first chunk has none before it; a free chunk that is in no bin is wrong."""

MOST_ROWS = 64
"""Of each rule that are given one by one; all are counted."""
WALK_CLASSES = HISTOGRAM_EXACT_BYTES // 8 + 1 + 54 * 4
"""Of a histogram, at most: histogram_class."""


class Geometry(NamedTuple):
    """Arithmetic of one glibc malloc build, taken from the target."""

    word_bytes: int
    """SIZE_SZ: 8 or 4."""
    alignment_bytes: int
    """MALLOC_ALIGNMENT: 16, or 8 on some ILP32 builds."""
    min_chunk_bytes: int
    """MINSIZE."""
    chunk_struct_bytes: int
    """sizeof(struct malloc_chunk): 6 words; mtrim keeps that much at the start of a free chunk."""
    page_bytes: int
    little_endian: bool
    is_tagged: bool = False
    """glibc.mem.tagging has malloc tag its blocks, in granules of 16 bytes: none shares one with the header after it."""

    @property
    def overhead_bytes(self) -> int:
        """Return the bytes of a chunk that the program may not use: its size field, and with tags the next one's prev_size (malloc.c:
        memsize).
        """
        return (2 if self.is_tagged else 1) * self.word_bytes


class Region(NamedTuple):
    """A run of chunks without a hole: a heap of an arena, or a piece of the main arena."""

    begin: int
    """Address of the first chunk (its header)."""
    end: int
    """First address that no chunk of the region may reach beyond."""
    top: int
    """Address of the top chunk if it lies in this region, else 0."""
    joined: bool = False
    """Pieces of a main arena that is not contiguous may follow each other: the walk goes on after fenceposts, and after top, that end
    with a page, if chunks of the main arena follow (N clear) that prove themselves: 16 without contradiction, or up to top, a special or
    such fenceposts."""


class NativeListed(NamedTuple):
    """A region whose chunks are listed."""

    region: Region
    arena: int
    """Index, or NO_ARENA."""


class WalkResult(NamedTuple):
    """Totals of the chunks met from region.begin up to `at`. Sizes include headers."""

    stop: int
    """A STOP_ number."""
    at: int
    """Where the walk ended: the first chunk that is not counted (for STOP_TOP the top chunk, which is counted)."""
    used_chunks: int
    used_bytes: int
    tcache_chunks: int
    tcache_bytes: int
    fast_chunks: int
    fast_bytes: int
    free_chunks: int
    """Chunks whose successor's PREV_INUSE is clear: those in bins."""
    free_bytes: int
    tcache_struct_chunks: int
    tcache_struct_bytes: int
    top_bytes: int
    fence_bytes: int
    """Bytes of a MINSIZE chunk that turned out to be a fencepost (it lies directly before a terminator); counted here, not as used. In
    joined regions also all fenceposts between two pieces."""
    largest_free_bytes: int
    interior_bytes: int
    """Whole pages inside maximal runs of adjacent free and fast chunks, by mtrim's rule; runs that border top are left out."""
    interior_resident_bytes: Optional[int]
    """Those of them that are in RAM, as in Residency; this and the next three are None without a page table."""
    interior_exclusive_bytes: Optional[int]
    interior_unsure_bytes: Optional[int]
    interior_huge_bytes: Optional[int]
    interior_ranges: int
    """Number of such runs with at least one whole page."""
    top_run_start: int
    """Start of the run of free and fast chunks that borders top (malloc_consolidate merges it into top); 0 if none."""
    free_sum: int
    """Sum modulo 2**64 of the addresses of the free chunks met."""
    fd_sum: int
    """Sum modulo 2**64 of their fd words."""
    bk_sum: int
    """Sum modulo 2**64 of their bk words."""
    bad_prev_size: int
    """Address of the first free chunk whose successor's prev_size differs from its size; 0 if none."""
    bad_prev_size_chunks: int
    bad_neighbour: int
    """Address of the first free chunk that directly follows another free chunk; 0 if none."""
    bad_neighbour_chunks: int
    further_pieces: int
    """Pieces met beyond the first: joined regions."""
    specials_met: int
    """Cached chunks within [begin, at] that were met exactly on a chunk boundary."""
    missed_special: int
    """Lowest special (address | kind) within [begin, at) that was on no chunk boundary; 0 if none."""
    missed_specials: int
    histogram: Tuple[Tuple[int, int, int, int, int, int], ...]
    """Non-empty classes: (class, used_chunks, used_bytes, free_chunks, free_bytes, tcache_chunks). Class by `histogram_class`. Fast counts
    as free; top, tcache structs and fences are left out."""

    @property
    def interior_residency(self) -> Optional[Residency]:
        """Return the resident part of the interior, without swap; None without a page table."""
        resident, exclusive, unsure = self.interior_resident_bytes, self.interior_exclusive_bytes, self.interior_unsure_bytes
        if resident is None or exclusive is None or unsure is None or self.interior_huge_bytes is None:
            return None
        return Residency(resident, exclusive, 0, self.interior_huge_bytes, unsure)


PAGE_COUNTERS = ("interior_resident_bytes", "interior_exclusive_bytes", "interior_unsure_bytes", "interior_huge_bytes")
"""Members of WalkResult that need a page table."""


def add_results(parts: Sequence[WalkResult]) -> Optional[WalkResult]:
    """The parts as one: counters added, first damage kept, `stop` and `at` of the last; None for no parts.

    The residency of the interior is None if it is None in any part.
    """
    if len(parts) < 2:
        return parts[0] if parts else None
    added: Dict[str, object] = {}
    for name in WalkResult._fields:
        values = [getattr(part, name) for part in parts]
        if name in ("stop", "at"):
            added[name] = values[-1]
        elif name == "largest_free_bytes":
            added[name] = max(values)
        elif name in ("top_run_start", "bad_prev_size", "bad_neighbour", "missed_special"):
            added[name] = next((value for value in values if value), 0)
        elif name in PAGE_COUNTERS:
            added[name] = None if None in values else sum(values)
        elif name in ("free_sum", "fd_sum", "bk_sum"):
            added[name] = sum(values) & 0xFFFFFFFFFFFFFFFF
        elif name == "histogram":
            added[name] = add_histograms(values)
        else:
            added[name] = sum(values)
    return WalkResult(**added)  # type: ignore[arg-type]


def add_histograms(parts: Sequence[Sequence[Tuple[int, int, int, int, int, int]]]) -> Tuple[Tuple[int, int, int, int, int, int], ...]:
    """Histograms added class by class, sorted by class."""
    rows: Dict[int, List[int]] = {}
    for part in parts:
        for row in part:
            mine = rows.setdefault(row[0], [0, 0, 0, 0, 0])
            for place, value in enumerate(row[1:]):
                mine[place] += value
    return tuple((index, row[0], row[1], row[2], row[3], row[4]) for index, row in sorted(rows.items()))


class MmappedChunk(NamedTuple):
    """A chunk that has a mapping of its own."""

    chunk: int
    """Header address."""
    size_bytes: int
    """Chunk size as its size field says."""
    block_start: int
    """First address of the mapping (chunk - prev_size)."""
    total_bytes: int
    """Length of the whole mapping: what mp_.mmapped_mem counts."""


class MmappedChunks(Sequence[MmappedChunk]):
    """Mapped chunks by address, held as columns: a process can have 200,000, and most of who asks wants a sum."""

    def __init__(self, flat: "array[int]") -> None:
        """`flat`: array('Q'), the members of one MmappedChunk after the other."""
        self.chunks, self.sizes, self.blocks, self.totals = (flat[place::4] for place in range(4))

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[MmappedChunk]:
        return map(MmappedChunk, self.chunks, self.sizes, self.blocks, self.totals)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return list(self)[place]
        return MmappedChunk(self.chunks[place], self.sizes[place], self.blocks[place], self.totals[place])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    @property
    def bytes(self) -> int:
        """Their whole mappings."""
        return sum(self.totals)

    def spans(self) -> List[Tuple[int, int]]:
        """(first address, end) of their mappings, those side by side as one."""
        ends = array("Q", map(add, self.blocks, self.totals))
        starts = [place for place, (end, block) in enumerate(zip(ends, self.blocks[1:]), 1) if end != block]
        first = [0, *starts] if len(self) else []
        return [(self.blocks[low], ends[high - 1]) for low, high in zip(first, [*starts, len(self)])]


class NativeFreeLists:
    """Lists to follow."""

    def __init__(self) -> None:
        self.heads = array("Q")
        """The first entry of each; of a bin the address of its header. 0: an empty list."""
        self.kinds = array("Q")
        self.limits = array("Q")
        """No list has more entries."""
        self.also = array("Q")
        """`chunk | SPECIAL_x` of chunks that are on no list and shall be among the members."""

    def __len__(self) -> int:
        return len(self.heads)

    def add(self, kind: int, heads: Sequence[int], limit: int) -> int:
        """Add lists of one kind, and return the number of the first one."""
        first = len(self.heads)
        self.heads.extend(heads)
        self.kinds.extend(array("Q", [kind]) * len(heads))
        self.limits.extend(array("Q", [limit]) * len(heads))
        return first


class NativeRules(NamedTuple):
    """Rules that all lists of one call share."""

    mangled: bool
    """Links of fastbins and thread caches are protected (malloc.c: PROTECT_PTR)."""
    collect: bool = False
    """The members are wanted, not only what they add up to."""
    most_entries: int = ADDRESS_MASK
    """All lists together have no more: as many chunks as memory can hold. What comes beyond is on several lists, and its list too long."""


class NativeFollowedList(NamedTuple):
    """Lists that were followed: a column for each figure, in the order in which the lists were given."""

    counts: Sequence[int]
    """Entries before the end or the problem; of a list that comes back to itself each entry once."""
    problems: Sequence[int]
    """0, or what is wrong."""
    ats: Sequence[int]
    """The address that caused the problem: the bad link's value, the entry that cannot be read, the chunk whose bk is wrong; else 0."""
    lasts: Sequence[int]
    """The last entry counted, which holds the bad link; 0 if there is none."""
    bytes: Sequence[int]
    """Sum of the masked sizes; this and the next three are 0 for lists whose sizes were not read."""
    raw_bytes: Sequence[int]
    """Sum of the size fields with their flag bits: malloc_info prints these."""
    raw_mins: Sequence[int]
    raw_maxs: Sequence[int]
    members: Sequence[int]
    """array('Q'), sorted: `chunk | SPECIAL_x` of thread caches and fastbins, chunks of bins, each once. Empty unless asked for, or if time
    ran out."""
    twice: Sequence[int]
    """Chunks on two lists, or twice on one; sorted."""
    mapped: Sequence[int]
    """Chunks on sized lists that have a mapping of their own: in no arena, and not among the members; sorted."""


def describe_damage(found: NativeFollowedList, index: int) -> Optional[str]:
    """Return the damage of a list in words, or None if there is none or time ran out."""
    problem, at = found.problems[index], found.ats[index]
    if not problem or problem == CUT:
        return None
    if problem == CYCLE:
        return "the list does not end: a link points back to 0x%x" % at
    if problem == TOO_LONG:
        return "the list is longer than possible"
    if problem == BACK_LINK:
        return "corrupted double-linked list: %s" % PROBLEMS[problem]
    return "the link points to 0x%x, which is %s" % (at, PROBLEMS[problem])


class Checked(NamedTuple):
    """A region whose chunks are checked."""

    region: Region
    flags: int
    """REGION_ bits."""


class MemberList(NamedTuple):
    """A list whose members are checked."""

    kind: int
    """TCACHE, FAST, BIN or TCACHE_SIZED."""
    head: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """So many members; of a bin at most so many before its header comes again."""
    min_size: int
    """Of its chunks."""
    max_size: int
    key: int
    """The second word of each member; 0: not to be looked at."""
    is_sorted: bool
    """A large bin."""


class NativeBroken(NamedTuple):
    """A contradiction."""

    rule: int
    """A BROKEN_ or MEMBER_ number."""
    address: int
    """The chunk."""
    value: int
    """As the rule says; else 0."""
    previous: int
    """The chunk before it; 0 if there is none. Of a member the number of its list."""
    previous_status: int
    """Its STATUS_."""


BrokenRows = Tuple[Sequence[NativeBroken], Sequence[int]]
"""Contradictions that a pass over chunks or over members of lists found, in the order met, at most MOST_ROWS of a rule; and how many there
are by rule: of a pass over members then how many bins have, and the sum of their addresses modulo 2**64."""
