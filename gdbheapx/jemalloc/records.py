"""Records that jemalloc answers with. Fields are named like the keys of JSON. Includes one reading of a jemalloc, frozen, and the names
and formats of one build, which its recognition needs.
"""

from typing import Annotated, Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.columns import ADD, BYTES, DECAY, IF_ANY, IF_KNOWN, INTERVAL, LATE, PLAIN, TEXT, Column, hidden_column
from gdbheapx.common.model import AllocatorInfo, Claim, Finding, HistogramRow, TargetAddress
from gdbheapx.kernel.jemalloc.records import AbsentTotals


class PublicNames(NamedTuple):
    """The names by which a program reaches one jemalloc: prefix of `mallctl`, and the variable with its options."""

    prefix: Optional[str]
    """Of `malloc` and `mallctl`: empty, `je_`, `_rjem_`, `je_arrow_`; None if unknown."""
    conf_variable: Optional[str]
    """The environment variable with its options, such as `JE_ARROW_MALLOC_CONF`; None if unknown."""

    def call(self, arguments: str) -> str:
        """mallctl with these arguments, as it is written in the program."""
        if self.prefix is None:
            return "mallctl(%s), under this build's own prefix, which is unknown" % arguments
        return "%smallctl(%s)" % (self.prefix, arguments)

    def setting(self, options: str) -> str:
        """Return the assignment to put into the environment."""
        if self.conf_variable is None:
            return "%s in this build's own MALLOC_CONF (unknown prefix)" % options
        return "%s=%s" % (self.conf_variable, options)


class JemallocArena(NamedTuple):
    """Row of `arenas`. Counters are None in builds without stats; bytes of extents then come from the walk."""

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Place in `arenas[]`."""
    address: Optional[TargetAddress]
    """Of the arena_t; None if that cannot be read, as the next."""
    kind: Annotated[Optional[str], Column("kind", TEXT, goes=1)]
    """`auto`, `manual` or `huge`."""
    allocated_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """jemalloc's word: usable bytes of blocks in use, those in thread caches included."""
    used_blocks: Annotated[Optional[int], hidden_column(ADD)]
    used_bytes: Annotated[Optional[int], Column("used", BYTES, ADD)]
    """allocated less cached."""
    cached_blocks: Annotated[Optional[int], hidden_column(ADD)]
    cached_bytes: Annotated[Optional[int], Column("cached", BYTES, ADD, goes=5)]
    """Of allocated_bytes, in thread caches."""
    active_bytes: Annotated[Optional[int], Column("active", BYTES, ADD, goes=2)]
    """Whole pages of active extents: slabs and large allocations."""
    dirty_bytes: Annotated[Optional[int], Column("dirty", BYTES, ADD)]
    muzzy_bytes: Annotated[Optional[int], Column("muzzy", BYTES, ADD, goes=3)]
    retained_bytes: Annotated[Optional[int], Column("retained", BYTES, ADD)]
    metadata_bytes: Annotated[Optional[int], Column("metadata", BYTES, ADD, goes=9)]
    """base.allocated plus internal."""
    mapped_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """jemalloc's counter; with guard pages it may be below 0."""
    resident_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """jemalloc's estimate, not RSS."""
    unparsed_bytes: Annotated[Optional[int], Column("unparsed", BYTES, ADD, IF_ANY)]
    """Bytes of extents that its own counters have and the walk over a damaged radix tree has not; 0 on a whole heap."""
    reclaimable_bytes: Annotated[Optional[int], Column("reclaimable", BYTES, ADD)]
    """(ndirty + nmuzzy) pages: what a purge gives back."""
    reclaimable_resident_bytes: Annotated[Optional[int], Column("resident", BYTES, ADD, IF_KNOWN)]
    """Those of them that count in this process's RSS, shared with a forked process or not; never the zero page. None on a core."""
    reclaimable_exclusive_bytes: Annotated[Optional[int], Column("exclusive", BYTES, ADD, unlike="reclaimable_resident_bytes", goes=4)]
    """Those of them that belong to this process alone, which the machine gets back at once; None on a core."""
    retained_resident_bytes: Annotated[Optional[int], Column("returned, resident", BYTES, ADD, IF_ANY)]
    """Retained, and in RAM all the same, which huge pages do; None on a core."""
    retained_huge_bytes: Annotated[Optional[int], hidden_column(ADD)]
    """Those of them that are parts of huge pages; None where the kernel does not show it, and on a core."""
    huge_bytes: Annotated[Optional[int], Column("huge pages", BYTES, ADD, IF_ANY, goes=4)]
    """Parts of huge pages in its extents; None where the kernel does not show it, and on a core."""
    threads: Annotated[Optional[int], Column("threads", sums=ADD, goes=6)]
    """nthreads[0]."""
    blind_threads: Annotated[Optional[int], Column("blind", sums=ADD, shown=IF_ANY)]
    """Threads bound here whose decay ticker never starts (see `tickers`); None if their tsd cannot be read."""
    dirty_decay_ms: Annotated[Optional[int], Column("dirty decay", DECAY, goes=7)]
    """-1: never, 0: at once."""
    muzzy_decay_ms: Annotated[Optional[int], Column("muzzy decay", DECAY, goes=8)]
    pinned_bytes: Annotated[Optional[int], Column("pinned", BYTES, ADD, IF_ANY, goes=4)] = None
    """Unused pages that the program's extent hooks can never return: no purge reaches them, jemalloc reuses them first (after 5.3.1). None
    where no layout is known, or a snapshot is older than it."""
    huge_dirty_bytes: Annotated[Optional[int], Column("dirty, huge pages", BYTES, ADD, IF_ANY, goes=4)] = None
    """Dirty pages of its huge page allocator (opt.hpa, from 5.3.0), which are in no extent: no purge reaches them, hpa_dirty_mult bounds
    them. None where no layout is known, or a snapshot is older than it; so the next three."""
    other_bytes: Annotated[Optional[int], hidden_column(ADD)] = None
    """Extents that no size class and no state has: those in the HPA's small extent cache, or on the way from one state to another."""
    rounding_bytes: Annotated[Optional[int], hidden_column(ADD)] = None
    """Of active_bytes what no block has: the ends of slabs, and of each large block its extent less its usable size."""
    sampled_rounding_bytes: Annotated[Optional[int], hidden_column(ADD)] = None
    """Of rounding_bytes that of small blocks that the heap profiler sampled: each has whole pages."""

    @property
    def held_bytes(self) -> int:
        """Active and unused pages."""
        parts = (self.active_bytes, self.dirty_bytes, self.muzzy_bytes, self.pinned_bytes, self.huge_dirty_bytes, self.other_bytes)
        return sum(part or 0 for part in parts)


class JemallocBin(NamedTuple):
    """Row of `bins`: a size class of an arena that has slabs or extents, or its unused extents of a size range."""

    allocator: str
    arena: Annotated[int, Column("arena", TEXT)]
    index: Annotated[Optional[int], Column("class")]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """szind; None for unused extents, which have none."""
    kind: Annotated[str, Column("kind", TEXT, goes=6)]
    """`small` (slabs of a bin), `large`, or unused extents: `dirty`, `muzzy`, `retained`, `pinned`."""
    min_size_bytes: Annotated[int, hidden_column()]
    max_size_bytes: Annotated[int, Column("size", BYTES)]
    slabs: Annotated[Optional[int], Column("slabs/extents", goes=5)]
    """Slabs of a bin; None elsewhere."""
    extents: Annotated[Optional[int], hidden_column()]
    """Extents of large allocations and unused extents; None for bins, whose extents are slabs."""
    used_blocks: Annotated[int, Column("used", goes=2)]
    used_bytes: Annotated[int, Column("used bytes", BYTES)]
    cached_blocks: Annotated[Optional[int], Column("cached", goes=4)]
    """None where the contents of thread caches are unknown: they count as used then; the next likewise."""
    cached_bytes: Annotated[Optional[int], Column("cached bytes", BYTES, goes=3)]
    chunks: Annotated[int, Column("free", goes=1)]
    """What is free here: free regions of the slabs, unused extents."""
    bytes: Annotated[int, Column("free bytes", BYTES)]
    """Of them."""


class RefusedOption(NamedTuple):
    """An option that was set and is not in force."""

    source: str
    """Where it was set, as `tunables` names it."""
    option: str
    """As it was written, `dirty_decay_ms:5s`."""
    why: str


class JemallocConditions(NamedTuple):
    """The options and states, apart from each arena's decay times, that decide when unused pages go back to the kernel."""

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
    dirty_decay_asked_ms: Optional[int] = None
    """opt.dirty_decay_ms: as it was at the start."""
    prof_asked: Optional[bool] = None
    """opt.prof_active: sampling was on at the start; None without opt.prof, as the next."""
    prof_active: Optional[bool] = None
    """prof.active: sampling is on now."""
    unread_variables: Sequence[str] = ()
    """Variables with options for some jemalloc that are in the environment, and that this build does not read."""
    refused: Sequence[RefusedOption] = ()
    has_oblivious_option: bool = False
    """MALLOC_CONF can turn cache_oblivious off: 5.3.0 refuses it (from 5.3.1)."""


class TickerThread(NamedTuple):
    """Row of `tickers`: the decay ticker of a thread."""

    allocator: str
    lwp: Annotated[Optional[int], Column("thread", TEXT)]
    """None for a tsd on jemalloc's own list that no thread could be matched to."""
    name: Annotated[Optional[str], Column("name", TEXT)]
    tsd: Annotated[Optional[TargetAddress], Column("tsd", TEXT, goes=3)]
    """Its tsd_t; None if it has none, or it could not be located."""
    state: Annotated[Optional[str], Column("state", TEXT, goes=2)]
    """tsd_state_ without its prefix, such as `nominal`."""
    arena: Annotated[Optional[int], Column("arena", TEXT)]
    """Index of the arena that it is bound to."""
    ticks_left: Annotated[Optional[int], Column("ticks left", PLAIN, goes=1)]
    """Of its own arena's ticker; None if it has none."""
    verdict: Annotated[str, Column("verdict", TEXT)]
    """`blind`, `at-risk`, `unknown`, `ticking`, `not-started` or `not-applicable`."""
    row: Optional[int]
    """Row of the decision table that decided (docs/explanation/jemalloc-tickers.md); None in builds without the bug."""
    why: str
    hint: Optional[str]
    allocated_bytes: Optional[int]
    """thread_allocated over its whole life; None in builds without statistics up to 5.2."""
    deallocated_bytes: Optional[int]


class TickerArena(NamedTuple):
    """Row of `tickers`: whether any thread can still purge an arena."""

    allocator: str
    index: Annotated[int, Column("arena", TEXT)]  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Place in `arenas[]`."""
    address: TargetAddress
    kind: Annotated[Optional[str], Column("kind", TEXT, goes=3)]
    """`auto`, `manual` or `huge`."""
    threads: Annotated[Optional[int], Column("threads", goes=1)]
    """Live threads bound to it; None if not every tsd could be read."""
    healthy_threads: Annotated[int, Column("healthy", goes=5)]
    """Those whose ticks count."""
    blind_threads: Annotated[int, Column("blind")]
    unknown_threads: int
    background_thread: Annotated[Optional[str], Column("background", shown=IF_KNOWN, goes=7)]
    """State of the background thread that serves it: `started`, `stopped`, `paused`; `none`; None while background threads are off."""
    dirty_bytes: Annotated[Optional[int], Column("dirty", BYTES)]
    muzzy_bytes: Annotated[Optional[int], Column("muzzy", BYTES, goes=4)]
    dirty_decay_ms: Annotated[Optional[int], Column("dirty decay", DECAY, goes=2)]
    """-1: never, 0: at once."""
    muzzy_decay_ms: Annotated[Optional[int], Column("muzzy decay", DECAY, goes=6)]
    sweeps: Annotated[Optional[int], Column("sweeps", goes=8)]
    """npurge of dirty pages; None in builds without statistics."""
    late_ms: Annotated[Optional[float], Column("late", LATE)]
    """How long ago its decay should have gone on: large also where its threads are idle. On a core a lower bound."""
    verdict: Annotated[str, Column("verdict", TEXT)]
    """`purged`; `idle` (its threads could, and do nothing); `degraded` (by some of its threads, or by others' only); `unpurged`; `at-once`;
    `never`;
    `no-threads`; `unknown`."""
    why: str
    can_purge: Optional[bool]
    """It can be purged by a thread that ticks, a background thread, or the freeing thread itself. Whether that is done: see verdict."""
    evidence: Optional[str]
    """The sign in the arena itself that its decay does not run."""
    costs_memory: bool = False
    """A finding: `unpurged`; or `degraded`, overdue by more than twice its decay time, with more than 1 MiB or 1 % of what jemalloc holds
    in unused pages."""

    @property
    def unused_bytes(self) -> int:
        """Dirty and muzzy, as far as they are known."""
        return (self.dirty_bytes or 0) + (self.muzzy_bytes or 0)


class TickerReport(NamedTuple):
    """The answer of `tickers` for one allocator."""

    affected: bool
    """This build has the bug."""
    threads: Sequence[TickerThread]
    arenas: Sequence[TickerArena]
    advice: Sequence[Finding]
    """The remedies, the likeliest first; empty if no thread is blind or at risk."""


class DecayRow(NamedTuple):
    """The decay of one arena's dirty or muzzy pages. Times are CLOCK_MONOTONIC's."""

    allocator: str
    arena: Annotated[int, Column("arena", TEXT)]
    kind: Annotated[Optional[str], Column("kind", TEXT, goes=2)]
    """`auto`, `manual` or `huge`."""
    state: Annotated[str, Column("state", TEXT)]
    """`dirty` or `muzzy`."""
    decay_ms: Annotated[Optional[int], Column("time", DECAY)]
    """-1: never, 0: at once."""
    pages: Annotated[Optional[int], Column("pages", goes=1)]
    bytes: Annotated[Optional[int], Column("bytes", BYTES)]
    sweeps: Annotated[Optional[int], Column("sweeps", goes=4)]
    """npurge; this and the next two are None in builds without statistics."""
    madvises: Annotated[Optional[int], Column("madvises", goes=7)]
    purged_pages: Annotated[Optional[int], Column("purged", goes=3)]
    limit_pages: Annotated[Optional[int], Column("limit", PLAIN, shown=IF_KNOWN, goes=6)]
    """npages_limit: how many may stay in this interval; None before 5.3."""
    nunpurged_pages: Optional[int]
    """Pages that were left when the interval began."""
    interval_ms: Annotated[Optional[float], Column("interval", INTERVAL, goes=5)]
    """None where pages do not decay gradually, as the next three."""
    epoch_ms: Optional[float]
    """When the current interval began."""
    deadline_ms: Optional[float]
    """When the next one is due."""
    late_ms: Annotated[Optional[float], Column("late", LATE)]
    """How long ago that was; 0 if it is to come. On a core a lower bound."""
    driven: Annotated[str, Column("purged by", TEXT)]
    """Who drives it: the verdict of `tickers` on the arena."""
    why: str


class JemallocHugePages(NamedTuple):
    """The huge pages of one arena that have free pages."""

    dirty: Sequence[Tuple[int, int]]
    """Runs of dirty pages."""
    untouched: Sequence[Tuple[int, int]]
    """Runs of pages that were never touched, or were purged: in RAM only as parts of huge pages."""
    dirty_mult: Optional[int] = None
    """opt.hpa_dirty_mult of the arena in parts of 65,536: how many dirty pages may stay for each active one; -1: any number."""

    @property
    def dirty_bytes(self) -> int:
        """Sum the runs of dirty pages."""
        return sum(end - start for start, end in self.dirty)


class JemallocFacts(NamedTuple):
    """See allocators.records.Facts; those from `bins` on are its own."""

    info: AllocatorInfo
    arenas: Sequence[JemallocArena]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    bins: Sequence[JemallocBin]
    conditions: JemallocConditions
    tickers: TickerReport
    is_whole: bool = True
    """All extents were walked."""
    bases: Sequence[Tuple[int, int]] = ()
    """Blocks of memory that its metadata lies in: more than that it cannot be."""
    most_cached_bytes: Optional[int] = None
    """What thread caches may hold at most, with jemalloc's usual limits; None if nothing limits it."""
    unused_ranges: Callable[[], Sequence[Tuple[int, int]]] = tuple
    """Dirty and muzzy extents: one more walk, for cores, where nothing else shows which of them are in memory."""
    huge: JemallocHugePages = JemallocHugePages((), ())
    """Free pages of the huge page allocator, of all arenas."""
    absent: Optional[AbsentTotals] = None
    """What of all extents is not in memory; None on a core."""
    absent_beside: Callable[[Sequence[int]], Optional[AbsentTotals]] = lambda runs: None
    """The same of a core that has these runs of pages (begin and end of each): one more walk."""
