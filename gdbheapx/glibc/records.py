"""Records that glibc malloc answers with. Fields are named like the keys of JSON. Includes one reading of glibc's malloc, frozen."""

from typing import Annotated, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.columns import ADD, BYTES, IF_ANY, IF_KNOWN, LARGEST, PERCENT, TEXT, Column, hidden_column
from gdbheapx.common.model import AllocatorInfo, Claim, HistogramRow, TargetAddress

MOST_MERGED = 16
"""A free chunk of more times mmap_threshold, of half of trim_threshold, is merged of many blocks: how large each was is not known."""


class ArenaTotals(NamedTuple):
    """An arena's figures: system = used + tcache + fast + free + top + overhead + unparsed, to the byte."""

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Place in the arena ring, main_arena 0: malloc_info's `heap nr`."""
    address: TargetAddress
    """Of the malloc_state."""
    kind: Annotated[str, Column("kind", TEXT, goes=1)]
    """`main` or `thread`."""
    heaps: Annotated[Optional[int], Column("heaps", sums=ADD, goes=7)]
    """Heaps (heap_info) of a thread arena; pieces without a hole of the main arena."""
    system_bytes: Annotated[Optional[int], Column("system", BYTES, ADD)]
    """system_mem."""
    max_system_bytes: Annotated[Optional[int], hidden_column(ADD)]
    used_chunks: Annotated[Optional[int], hidden_column(ADD)]
    used_bytes: Annotated[Optional[int], Column("used", BYTES, ADD)]
    """With headers; without tcache and fastbin members, fenceposts and tcache structs."""
    tcache_chunks: Annotated[Optional[int], hidden_column(ADD)]
    tcache_bytes: Annotated[Optional[int], Column("tcache", BYTES, ADD, goes=3)]
    """Members of any thread's tcache that lie in this arena."""
    fast_chunks: Annotated[Optional[int], hidden_column(ADD)]
    fast_bytes: Annotated[Optional[int], Column("fast", BYTES, ADD, goes=9)]
    free_chunks: Annotated[Optional[int], hidden_column(ADD)]
    free_bytes: Annotated[Optional[int], Column("free", BYTES, ADD)]
    """Chunks in the unsorted, small and large bins."""
    top_bytes: Annotated[Optional[int], Column("top", BYTES, ADD, goes=5)]
    overhead_bytes: Annotated[Optional[int], Column("overhead", BYTES, ADD, goes=8)]
    """heap_info, malloc_state, fenceposts, alignment, tcache structs, and foreign_bytes."""
    foreign_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """Bytes that a foreign sbrk took inside the main arena; part of overhead."""
    unparsed_bytes: Annotated[Optional[int], Column("unparsed", BYTES, ADD, IF_ANY)]
    """Bytes that could not be attributed; 0 unless the arena is damaged or a part was not located."""
    tcache_struct_chunks: Annotated[Optional[int], hidden_column(ADD)]
    largest_free_bytes: Annotated[Optional[int], hidden_column(LARGEST)]
    free_percent: Annotated[Optional[float], Column("free %", PERCENT, goes=2)]
    """100 x (free + fast + top) / system, one decimal."""
    reclaimable_bytes: Annotated[Optional[int], Column("reclaimable", BYTES, ADD)]
    """What malloc_trim(0) would give back by mtrim's and systrim's rules, in RAM or not."""
    reclaimable_resident_bytes: Annotated[Optional[int], Column("resident", BYTES, ADD, IF_KNOWN)]
    """Those of them that count in this process's RSS now, shared with a forked process or not; never the zero page. None on a core."""
    reclaimable_exclusive_bytes: Annotated[Optional[int], Column("exclusive", BYTES, ADD, unlike="reclaimable_resident_bytes", goes=4)]
    """Those of them that belong to this process alone, which the machine gets back at once; None on a core. Of a huge page only if all of
    it goes."""
    free_returned_resident_bytes: Annotated[Optional[int], Column("returned, resident", BYTES, ADD, IF_ANY)]
    """In RAM although the arena gave it back or never used it: the rest of its heaps up to HEAP_MAX_SIZE, which huge pages fill. None on a
    core."""
    free_returned_huge_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """Those of them that are parts of huge pages; None if the kernel does not say, and on a core."""
    huge_bytes: Annotated[Optional[int], Column("huge pages", BYTES, ADD, IF_ANY, goes=4)]
    """Parts of huge pages in its heaps; None if the kernel does not say, and on a core."""
    threads: Annotated[Optional[int], Column("threads", sums=ADD, goes=6)]
    """Live threads whose thread_arena is this one; None if thread-local storage is unreadable."""
    attached_threads: Annotated[Optional[int], hidden_column(ADD)]
    """The raw field; None where this glibc has none."""
    locked: Annotated[Optional[bool], hidden_column()]
    """The arena's mutex is not 0: a thread is inside malloc."""
    blockless_huge_bytes: Annotated[Optional[int], Column("huge without block", BYTES, ADD, IF_ANY, goes=4)] = None
    """Of huge_bytes the pages in which no block lies: whole pages inside free chunks and tops, and free_returned_huge_bytes. None if the
    kernel does not say, and on a core."""
    unmerged_bytes: Annotated[Optional[int], hidden_column(ADD)] = None
    """Free and fastbin chunks directly below top: they become top once malloc merges fastbins."""
    between_bytes: Annotated[Optional[int], hidden_column(ADD)] = None
    """Free and fastbin chunks between blocks, in runs that do not end in top, without the whole pages inside these runs."""

    @property
    def held_bytes(self) -> int:
        """Return the bytes taken from the kernel; where that is lost, the bytes known to lie in the arena."""
        if self.system_bytes is not None:
            return self.system_bytes
        return sum(
            part or 0
            for part in (self.used_bytes, self.tcache_bytes, self.fast_bytes, self.free_bytes, self.top_bytes, self.overhead_bytes)
        )


class MmappedTotals(NamedTuple):
    """Chunks with a mapping of their own."""

    chunks: Optional[int]
    """mp_.n_mmaps."""
    bytes: Optional[int]
    """mp_.mmapped_mem: whole mappings."""


class BinRow(NamedTuple):
    """A row of `bins`."""

    allocator: str
    arena: Annotated[int, Column("arena", TEXT)]
    kind: Annotated[str, Column("kind", TEXT)]
    """`fast`, `unsorted`, `small` or `large`."""
    index: Annotated[int, Column("bin")]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """fast: 0.. ; others: the bin's number in malloc_state, unsorted is 1."""
    min_size_bytes: Annotated[Optional[int], Column("chunk size", BYTES)]
    """Smallest chunk size that belongs here; None for the unsorted bin, which takes any."""
    max_size_bytes: Optional[int]
    chunks: Annotated[Optional[int], Column("chunks")]
    bytes: Annotated[Optional[int], Column("bytes", BYTES)]


class Top(NamedTuple):
    """Whole pages inside the top of an arena, or in what becomes top once it is merged, which no trim gives back."""

    arena: int
    start: int
    end: int
    is_unmerged: bool = False


class GlibcFacts(NamedTuple):
    """See allocators.records.Facts; what has a default is its own."""

    info: AllocatorInfo
    arenas: Sequence[ArenaTotals]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    trim_threshold_bytes: Optional[int] = None
    """mp_.trim_threshold; None if it cannot be read."""
    asks_for_huge_pages: bool = False
    """It asks the kernel for transparent huge pages: by glibc.malloc.hugetlb=1, or by default."""
    tops: Sequence[Top] = ()
    are_all_arenas: bool = True
    """The ring of arenas was followed to its end, and main_arena is among them."""
    most_cached_bytes: Optional[int] = None
    """What thread caches may hold at most; None if nothing limits it."""
    free_pages: Callable[[], Sequence[Tuple[int, int]]] = tuple
    """Whole pages inside free chunks and at the end of the main top, which a trim gives back. One more walk: if no page table shows which
    of them are in memory (a core)."""
    has_aborted: bool = False
    """A core of a process that malloc itself has ended."""
    asks_by_default: bool = False
    """It asks for huge pages although no tunable of the environment says so (2.43 on some machines: DEFAULT_THP_PAGESIZE)."""
    zero_huge_bytes: Callable[[], Optional[int]] = lambda: None
    """Of blockless_huge_bytes the pages that hold zeros alone: at most they would not be in RAM without huge pages. One more walk, and
    these pages are read: only if it is needed. None if that is not known, or is too much to read."""
    are_thresholds_fixed: bool = False
    """The program or its environment set one: freeing mmapped chunks raises none."""
