"""The shared words: what every allocator's answer is made of. Records only, no behaviour that reads memory."""

from typing import Any, Dict, NamedTuple, Optional, Sequence

from gdbheapx.problems import Code


class Address(int):
    """An address in the target; JSON shows it as a hex string."""

    def __str__(self) -> str:
        return "0x%x" % self


class Problem(NamedTuple):
    """Something that could not be read or does not hold."""

    code: Code
    """What a script asks for instead of the sentence (gdbheapx/problems.py)."""
    where: Optional[str]
    """Hex address, file or allocator id; None if it concerns the whole target."""
    what: str
    """The rule that was broken, or the thing that is missing."""
    hint: Optional[str]
    """What to do about it."""


class AllocatorInfo(NamedTuple):
    """One allocator found in the target, as the envelope shows it."""

    id: str
    """`glibc`, `glibc#2`, ...: what every `allocator` field and --allocator use."""
    name: str
    version: Optional[str]
    object: str
    """File name of the object that holds it."""
    build_id: Optional[str]
    layout: Optional[str]
    """`debug-info`, `pack`, `table` or `probe`; None for an allocator that this version cannot read."""
    address_source: Optional[str]
    """`debug-info`, `symbol`, `pack` or `probe`."""
    owns_malloc: Optional[bool]
    """The process's calls of malloc go here; None if it could not be told."""


class ArenaTotals(NamedTuple):
    """One glibc arena. system = used + tcache + fast + free + top + overhead + unparsed, to the byte."""

    allocator: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Place in the arena ring, main_arena 0: malloc_info's `heap nr`."""
    address: Address
    """Of the malloc_state."""
    kind: str
    """`main` or `thread`."""
    heaps: Optional[int]
    """Heaps (heap_info) of a thread arena; pieces without a hole of the main arena."""
    system_bytes: Optional[int]
    """system_mem."""
    max_system_bytes: Optional[int]
    used_chunks: Optional[int]
    used_bytes: Optional[int]
    """With headers; without tcache and fastbin members, fenceposts and tcache structs."""
    tcache_chunks: Optional[int]
    tcache_bytes: Optional[int]
    """Members of any thread's tcache that lie in this arena."""
    fast_chunks: Optional[int]
    fast_bytes: Optional[int]
    free_chunks: Optional[int]
    free_bytes: Optional[int]
    """Chunks in the unsorted, small and large bins."""
    top_bytes: Optional[int]
    overhead_bytes: Optional[int]
    """heap_info, malloc_state, fenceposts, alignment, tcache structs, and foreign_bytes."""
    foreign_bytes: Optional[int]
    """Bytes that somebody else's sbrk took inside the main arena; part of overhead."""
    unparsed_bytes: Optional[int]
    """Bytes that could not be attributed; 0 unless the arena is damaged or a part was not located."""
    tcache_struct_chunks: Optional[int]
    largest_free_bytes: Optional[int]
    free_percent: Optional[float]
    """100 x (free + fast + top) / system, one decimal."""
    reclaimable_bytes: Optional[int]
    """What malloc_trim(0) would give back by mtrim's and systrim's rules, in RAM or not."""
    reclaimable_resident_bytes: Optional[int]
    """Those of them that count in this process's RSS now, shared with a forked process or not; never the zero page. None on a core."""
    reclaimable_exclusive_bytes: Optional[int]
    """Those of them that belong to this process alone, which the machine gets back at once; None on a core. Of a huge page only if all of it goes."""
    free_returned_resident_bytes: Optional[int]
    """In RAM although the arena gave it back or never used it: the rest of its heaps up to HEAP_MAX_SIZE, which huge pages fill. None on a core."""
    free_returned_huge_bytes: Optional[int]
    """Those of them that are parts of huge pages; None where the kernel does not tell, and on a core."""
    huge_bytes: Optional[int]
    """Parts of huge pages in its heaps; None where the kernel does not tell, and on a core."""
    threads: Optional[int]
    """Live threads whose thread_arena is this one; None if thread-local storage is unreadable."""
    attached_threads: Optional[int]
    """The raw field; None where this glibc has none."""
    locked: Optional[bool]
    """The arena's mutex is not 0: a thread is inside malloc."""


class MmappedTotals(NamedTuple):
    """Chunks with a mapping of their own."""

    chunks: Optional[int]
    """mp_.n_mmaps."""
    bytes: Optional[int]
    """mp_.mmapped_mem: whole mappings."""


class HistogramRow(NamedTuple):
    """Chunks of one size class. Mmapped counts as used, fast as free."""

    size_bytes: int
    max_size_bytes: int
    used_chunks: int
    used_bytes: int
    free_chunks: int
    free_bytes: int
    tcache_chunks: int


class BinRow(NamedTuple):
    """One non-empty bin of an arena."""

    allocator: str
    arena: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """fast: 0.. ; others: the bin's number in malloc_state, unsorted is 1."""
    kind: str
    """`fast`, `unsorted`, `small` or `large`."""
    min_size_bytes: Optional[int]
    """Smallest chunk size that belongs here; None for the unsorted bin, which takes any."""
    max_size_bytes: Optional[int]
    chunks: Optional[int]
    bytes: Optional[int]


class CacheBin(NamedTuple):
    """One non-empty bin of a thread cache."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    size_bytes: Optional[int]
    """Chunk size; None where the bin holds several sizes (tcache's large bins)."""
    chunks: int
    bytes: Optional[int]


class ThreadCache(NamedTuple):
    """What one thread's cache holds."""

    allocator: str
    lwp: Optional[int]
    """None for a cache that tcache.create made, and where its thread could not be told."""
    name: Optional[str]
    tcache: Optional[Address]
    """The thread's tcache struct; None if it has none (yet) or it could not be told."""
    arena: Optional[int]
    """Index of thread_arena, or of the jemalloc arena that it fills from; None if the thread never allocated."""
    chunks: Optional[int]
    bytes: Optional[int]
    bins: Sequence[CacheBin]
    explicit: Optional[int] = None
    """jemalloc: the number that tcache.create gave to it; None for a thread's own."""


class Claim(NamedTuple):
    """A range of memory that an allocator holds."""

    start: int
    end: int
    what: str
    """Such as `main_arena`, `arena 3`, `mmapped chunk`."""


class SplitPart(NamedTuple):
    """A mapping, a file or a part of the memory, where `report` names the largest."""

    kind: str
    """As MemoryPart.kind; `file` for all pages of one file together."""
    name: str
    bytes: int


class MemoryPart(NamedTuple):
    """One line of the split of a process's memory. The `resident_bytes` of all parts add up to RSS, on a core the `dumped_bytes` to its memory."""

    kind: str
    """`allocator`, `runtime`, `stack`, `jit`, `bss`, `brk`, `named`, `anonymous`, `shared-memory`, `private-file`, `page-cache`, `device`, `kernel`,
    `hugetlb`."""
    name: str
    resident_bytes: Optional[int]
    """In RSS; None on a core."""
    dumped_bytes: Optional[int]
    """In the core file, holes left out; None for a live process."""
    swapped_bytes: Optional[int]
    shared_bytes: Optional[int]
    """Of the resident bytes those that are mapped more than once, by other processes or again by this one. Where several parts share one mapping,
    it is divided by their resident bytes, as the next three are."""
    pss_bytes: Optional[int]
    """Proportional set size: each page divided by the number of its mappings."""
    droppable_bytes: Optional[int]
    """Of the resident bytes those that the kernel can take without swap when memory is short: page cache, and what was given to MADV_FREE."""
    huge_bytes: Optional[int]
    """Of the resident bytes those that are mapped as transparent huge pages."""
    hugetlb_bytes: Optional[int]
    """Pages of hugetlbfs, which are in no other figure; None also where the kernel (before 4.4) does not count them."""
    mappings: int
    """How many mappings it has a part of."""
    allocator: Optional[str]
    """Its id; None if it is not an allocator's."""
    program: Optional[str]
    """The runtime or program whose memory it is, such as `JVM`."""
    sure: str
    """`certain` (the kernel or the allocator says so), `likely` (several facts about the mappings fit), `guess` (nobody else is known to be there)."""


class UnclaimedMapping(NamedTuple):
    """A mapping of which nothing tells whose it is."""

    start: Address
    end: Address
    resident_bytes: Optional[int]
    """Without what allocators have of it; None on a core."""
    dumped_bytes: Optional[int]
    swapped_bytes: Optional[int]


class Finding(NamedTuple):
    """One sentence that follows from the figures, with the figures."""

    what: str
    evidence: str
    hint: Optional[str]
    code: Optional[str] = None
    """What a script asks for instead of the sentence (analysis/codes.py)."""


class Step(str):
    """What to do next: a sentence that begins with the command to type."""

    command: str
    why: str

    def __new__(cls, command: str, why: str) -> "Step":
        """The sentence is `COMMAND WHY`."""
        made = super().__new__(cls, "%s %s" % (command, why))
        made.command, made.why = command, why
        return made


class NextStep(NamedTuple):
    """A step as JSON shows it."""

    command: Optional[str]
    """What to type, in this tool unless it says otherwise; None if the step is no command."""
    why: str


Totals = Dict[str, Optional[int]]


class JemallocArena(NamedTuple):
    """One jemalloc arena. Counters are None in builds without stats; bytes of extents then come from the walk."""

    allocator: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Place in `arenas[]`."""
    address: Address
    """Of the arena_t."""
    kind: str
    """`auto`, `manual` or `huge`."""
    allocated_bytes: Optional[int]
    """jemalloc's word: usable bytes of blocks in use, those in thread caches included."""
    cached_blocks: Optional[int]
    cached_bytes: Optional[int]
    """Of them in thread caches."""
    used_blocks: Optional[int]
    used_bytes: Optional[int]
    """allocated less cached."""
    active_bytes: Optional[int]
    """Whole pages of active extents: slabs and large allocations."""
    dirty_bytes: Optional[int]
    muzzy_bytes: Optional[int]
    retained_bytes: Optional[int]
    metadata_bytes: Optional[int]
    """base.allocated plus internal."""
    mapped_bytes: Optional[int]
    resident_bytes: Optional[int]
    """jemalloc's estimate, not RSS."""
    unparsed_bytes: Optional[int]
    """Bytes of extents that its own counters have and the walk over a damaged radix tree has not; 0 on a whole heap."""
    threads: Optional[int]
    """nthreads[0]."""
    blind_threads: Optional[int]
    """Threads bound here whose decay ticker never starts (see `tickers`); None if their tsd cannot be read."""
    dirty_decay_ms: Optional[int]
    """-1: never, 0: at once."""
    muzzy_decay_ms: Optional[int]
    reclaimable_bytes: Optional[int]
    """(ndirty + nmuzzy) pages: what a purge gives back."""
    reclaimable_resident_bytes: Optional[int]
    """Those of them that count in this process's RSS, shared with a forked process or not; never the zero page. None on a core."""
    reclaimable_exclusive_bytes: Optional[int]
    """Those of them that belong to this process alone, which the machine gets back at once; None on a core."""
    retained_resident_bytes: Optional[int]
    """Retained, and in RAM all the same, which huge pages do; None on a core."""
    retained_huge_bytes: Optional[int]
    """Those of them that are parts of huge pages; None where the kernel does not tell, and on a core."""
    huge_bytes: Optional[int]
    """Parts of huge pages in its extents; None where the kernel does not tell, and on a core."""


class JemallocBin(NamedTuple):
    """One size class of a jemalloc arena that has slabs or extents, or its unused extents of one size range."""

    allocator: str
    arena: int
    index: Optional[int]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """szind; None for unused extents, which have none."""
    kind: str
    """`small` (slabs of a bin), `large`, or unused extents: `dirty`, `muzzy`, `retained`."""
    min_size_bytes: int
    max_size_bytes: int
    slabs: Optional[int]
    """Slabs of a bin; None elsewhere."""
    extents: Optional[int]
    """Extents of large allocations and unused extents; None for bins, whose extents are slabs."""
    used_blocks: int
    used_bytes: int
    cached_blocks: int
    cached_bytes: int
    chunks: int
    """What is free here, as in glibc's bins: free regions of the slabs, unused extents."""
    bytes: int
    """Of them."""


class PublicNames(NamedTuple):
    """By which names a program reaches one jemalloc: what its build put before `mallctl`, and where it looks for options."""

    prefix: Optional[str]
    """Of `malloc` and `mallctl`: empty, `je_`, `_rjem_`, `je_arrow_`; None if nothing tells."""
    conf_variable: Optional[str]
    """The environment variable with its options, such as `JE_ARROW_MALLOC_CONF`; None if nothing tells."""

    def call(self, arguments: str) -> str:
        """mallctl with these arguments, as it is written in the program."""
        return "mallctl(%s), under this build's own prefix, which is unknown" % arguments if self.prefix is None else "%smallctl(%s)" % (self.prefix, arguments)

    def setting(self, options: str) -> str:
        """What to put into the environment."""
        return "%s in this build's own MALLOC_CONF, whose prefix is unknown" % options if self.conf_variable is None else "%s=%s" % (self.conf_variable, options)


class JemallocBuild(NamedTuple):
    """How one jemalloc was built, as far as its memory tells."""

    allocator: str
    version_text: Optional[str]
    """The string it was built with."""
    prefix: str
    """Of its private names: `je_`, `_rjem_je_`."""
    names: PublicNames
    calibrated_slabs: int
    """Slabs on which layout and constants were proven."""
    named_arenas: int
    """Arenas that name their own index at the place where this layout has it."""
    page_bytes: int
    """jemalloc's own page."""
    quantum_bytes: int
    nbins: int
    """Size classes that have slabs."""
    nsizes: int
    lg_vaddr: int
    rtree_levels: Sequence[int]
    """Key bits of each level of the radix tree, root first."""
    compact_leaves: bool
    narenas: int
    """narenas_total."""
    is_initialized: Optional[bool]
    has_stats: Optional[bool]
    """It counts (--enable-stats)."""
    has_prof: Optional[bool]
    """It can profile the heap (--enable-prof)."""
    threads_with_tsd: Optional[int]
    """Threads whose tsd could be read; None if thread-local storage cannot be found."""
    tsd_way: Optional[str]
    """`static-tls`, `dtv` or `libthread_db`."""


class JemallocConditions(NamedTuple):
    """What decides when unused pages of one jemalloc go back to the kernel, beside each arena's decay times."""

    names: PublicNames
    has_stats: Optional[bool]
    """This build counts what it does."""
    has_ticker_bug: bool
    """Threads of this release can be blind (see `tickers`)."""
    thp: Optional[str]
    """opt.thp: `default` (as the system has it), `always`, `never` or `not supported`; None where it cannot be read."""
    background_enabled: Optional[bool]
    """background_thread_enabled_state: as it is now."""
    background_asked: Optional[bool]
    """opt.background_thread: as it was at the start."""
    background_running: int
    """Background threads that were started."""
    prof: Optional[bool]
    """The heap is profiled (opt.prof)."""
    has_prof: Optional[bool]
    """This build can."""


class TickerThread(NamedTuple):
    """Whether one thread's decay ticker works."""

    allocator: str
    lwp: Optional[int]
    """None for a tsd on jemalloc's own list that no thread could be matched to."""
    name: Optional[str]
    tsd: Optional[Address]
    """Its tsd_t; None if it has none, or it could not be located."""
    state: Optional[str]
    """tsd_state_ without its prefix, such as `nominal`."""
    verdict: str
    """`blind`, `at-risk`, `unknown`, `ticking`, `not-started` or `not-applicable`."""
    row: Optional[int]
    """Row of the decision table that decided (docs/jemalloc-tickers.md); None in builds without the bug."""
    why: str
    hint: Optional[str]
    arena: Optional[int]
    """Index of the arena that it is bound to."""
    ticks_left: Optional[int]
    """Of its own arena's ticker; None if it has none."""
    allocated_bytes: Optional[int]
    """thread_allocated over its whole life; None in builds without statistics up to 5.2."""
    deallocated_bytes: Optional[int]


class TickerArena(NamedTuple):
    """Whether anybody can still purge one arena."""

    allocator: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Place in `arenas[]`."""
    address: Address
    kind: str
    """`auto`, `manual` or `huge`."""
    verdict: str
    """`purged`; `idle` (its threads could, and do nothing); `degraded` (by some of its threads, or by others' only); `unpurged`; `at-once`; `never`;
    `no-threads`; `unknown`."""
    why: str
    can_purge: Optional[bool]
    """Somebody can: a thread that ticks, a background thread, the freeing thread itself. That it is done is another thing, see verdict."""
    threads: Optional[int]
    """Live threads bound to it; None if not every tsd could be read."""
    healthy_threads: int
    """Those whose ticks count."""
    blind_threads: int
    unknown_threads: int
    background_thread: Optional[str]
    """State of the background thread that serves it: `started`, `stopped`, `paused`; `none`; None while background threads are off."""
    dirty_bytes: Optional[int]
    muzzy_bytes: Optional[int]
    dirty_decay_ms: Optional[int]
    """-1: never, 0: at once."""
    muzzy_decay_ms: Optional[int]
    sweeps: Optional[int]
    """npurge of dirty pages; None in builds without statistics."""
    late_ms: Optional[float]
    """How long ago its decay should have gone on: large also where its threads are idle. On a core a lower bound."""
    evidence: Optional[str]
    """What in the arena itself shows that nobody drives its decay."""


class TickerReport(NamedTuple):
    """The answer of `tickers` for one allocator."""

    affected: bool
    """This build has the bug."""
    threads: Sequence[TickerThread]
    arenas: Sequence[TickerArena]
    advice: Sequence[Finding]
    """What can be done, the likeliest first; empty if nobody is blind or at risk."""


class DecayRow(NamedTuple):
    """The decay of one arena's dirty or muzzy pages. Times are CLOCK_MONOTONIC's."""

    allocator: str
    arena: int
    kind: str
    """`auto`, `manual` or `huge`."""
    state: str
    """`dirty` or `muzzy`."""
    decay_ms: Optional[int]
    """-1: never, 0: at once."""
    pages: Optional[int]
    bytes: Optional[int]
    sweeps: Optional[int]
    """npurge; this and the next two are None in builds without statistics."""
    madvises: Optional[int]
    purged_pages: Optional[int]
    limit_pages: Optional[int]
    """npages_limit: how many may stay in this interval; None before 5.3."""
    nunpurged_pages: Optional[int]
    """Pages that were left when the interval began."""
    interval_ms: Optional[float]
    """None where pages do not decay gradually, as the next three."""
    epoch_ms: Optional[float]
    """When the current interval began."""
    deadline_ms: Optional[float]
    """When the next one is due."""
    late_ms: Optional[float]
    """How long ago that was; 0 if it is to come. On a core a lower bound."""
    driven: str
    """Who drives it: the verdict of `tickers` on the arena."""
    why: str


class PrintForm(NamedTuple):
    """How the tables of malloc_stats_print's text look (stats.c); what no figure tells."""

    bin_width: int
    """Columns `allocated`, `nmalloc` and `ndalloc` of bins."""
    rate_width: int
    """The rates of `small:`, `large:` and `total:` rows behind nmalloc and ndalloc."""
    skips_unused_bins: bool
    """Bins that never had a slab have no row."""


class MallocStats(NamedTuple):
    """All that malloc_stats_print shows."""

    figures: Dict[str, Any]
    """Its JSON's keys and nesting, and the counters that its text alone has."""
    running: Dict[str, Any]
    """The run-time values that its text shows beside options, by mallctl name."""
    counts: bool
    """False: a build without statistics, which has neither `stats` nor `stats.arenas`."""
    form: PrintForm
    page_classes: Sequence[int]
    """Bytes by page size class."""
    pages_per_slab: Optional[int]
    """HUGEPAGE_PAGES."""
