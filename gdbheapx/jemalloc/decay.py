"""Judge who returns unused pages: decay state, background threads, tickers of threads, and the rows of `tickers` and `decay`."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.measured import BACKGROUND
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import Finding, TargetAddress
from gdbheapx.common.units import SentenceSize, count_noun, format_number, list_names, make_sentence
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.arenas import UNUSED_STATES, ArenaHandle, ArenaView, JemallocContext, MutexCounters, read_mutex
from gdbheapx.jemalloc.layouts import has_ticker_bug
from gdbheapx.jemalloc.records import DecayRow, PublicNames, TickerArena, TickerThread
from gdbheapx.jemalloc.threads import Tsd, Tsds
from gdbheapx.jemalloc.traces import BACKGROUND_NAME

BACKGROUND_STATES = ("stopped", "started", "paused")
"""background_thread_state_t, the same in every release of 5."""
MOST_BACKGROUND_THREADS = 4096
"""More than MALLOCX_ARENA_LIMIT (4,095) is damage."""


class BackgroundThread(NamedTuple):
    """A background_thread_info_t."""

    state: Optional[str]
    """`stopped`, `started` or `paused`."""
    pthread: Optional[int]
    """pthread_t, with nptl the thread pointer; None in builds without such threads."""
    runs: int
    """tot_n_runs."""
    sleep_ns: int
    """tot_sleep_time."""
    mutex: MutexCounters


class BackgroundState(NamedTuple):
    """The background threads of one jemalloc."""

    enabled: Optional[bool]
    """background_thread_enabled_state; None if this build has none or it cannot be read."""
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    """n_background_threads."""
    threads: List[BackgroundThread]
    """One for each of max_background_threads, whatever its state; number i serves the arenas whose index is i modulo their number."""
    named: int = 0
    """Living threads with their name, in builds found without variables."""

    @property
    def running(self) -> List[BackgroundThread]:
        """Return the threads that were started."""
        return [thread for thread in self.threads if thread.state != "stopped"]

    def state_for(self, index: int) -> Optional[str]:
        """Return the state of the thread that serves an arena (arena_background_thread_info_get), `none` if there is none; None while
        background threads are off."""
        if not self.enabled:
            return None
        state = self.threads[index % len(self.threads)].state if self.threads else None
        return state or ("started" if self.named else "none")

    @property
    def runs(self) -> Optional[int]:
        """stats.background_thread.num_runs; None in builds found without variables."""
        return None if self.named else sum(thread.runs for thread in self.running)

    @property
    def run_interval_ns(self) -> Optional[int]:
        """stats.background_thread.run_interval: mean sleep (background_thread.c: background_thread_stats_read)."""
        return None if self.runs is None else sum(thread.sleep_ns for thread in self.running) // self.runs if self.runs else 0


def read_background(context: JemallocContext) -> BackgroundState:
    """Read the state of background threads. What cannot be read is reported and missing."""
    if context.symbols.by_structure:
        names = [thread.name for thread in context.target.threads()]
        named = names.count(BACKGROUND_NAME)
        would_show = context.symbols.texts.names_threads and names and None not in names
        return BackgroundState(True if named else False if would_show else None, named, [], named)
    enabled = context.variable("background_thread_enabled_state", 1)
    count = context.variable("n_background_threads") or 0
    pointer, most = context.variable("background_thread_info"), context.variable("max_background_threads")
    if most is None:
        most = context.variable("ncpus", 4)  # 5.0.x: one for each CPU
    threads: List[BackgroundThread] = []
    if pointer and most and "background_thread_info_s" in context.types.structs:
        try:
            views = context.read_array("background_thread_info_s", pointer, min(most, MOST_BACKGROUND_THREADS))
            for view in views:
                state = BACKGROUND_STATES[view["state"]] if view["state"] < len(BACKGROUND_STATES) else None
                numbers = view.get("thread"), view["tot_n_runs"], view["tot_sleep_time.ns"]
                threads.append(BackgroundThread(state, *numbers, read_mutex(view, "mtx")))
        except UnreadableMemory as problem:
            context.report(codes.BACKGROUND_UNREADABLE, problem.address, "cannot read the state of the background threads", None)
    return BackgroundState(None if enabled is None else bool(enabled), count, threads)


class DecayState(NamedTuple):
    """The decay of one arena's dirty or muzzy pages; times as CLOCK_MONOTONIC counts."""

    state: str
    """`dirty` or `muzzy`."""
    time_ms: Optional[int]
    """-1 never, 0 at once."""
    pages: Optional[int]
    sweeps: Optional[int]
    """npurge; this and the next two are None in builds without statistics."""
    madvises: Optional[int]
    purged_pages: Optional[int]
    interval_ns: Optional[int]
    epoch_ns: Optional[int]
    """Start of the current interval."""
    deadline_ns: Optional[int]
    """End of the current interval."""
    nunpurged_pages: Optional[int]
    """Pages that were left at the start of the epoch."""
    limit_pages: Optional[int]
    """npages_limit, from 5.3.0: how many may stay in this epoch."""


class ArenaDecay(NamedTuple):
    """The decay of one arena, with its age."""

    arena: ArenaHandle
    create_ns: Optional[int]
    dirty: DecayState
    muzzy: DecayState


def read_decay(context: JemallocContext, listed: Sequence[ArenaHandle], has_stats: Optional[bool]) -> List[ArenaDecay]:
    """Read the decay state of every arena. Arenas that cannot be read are reported and left out."""
    decays = []
    for arena in listed:
        try:
            view = arena.read()
        except UnreadableMemory as problem:
            arena.report_unreadable(problem)
            continue
        dirty, muzzy = (_read_decay_state(view, state, has_stats) for state in UNUSED_STATES)
        decays.append(ArenaDecay(arena, view.get("create_time.ns"), dirty, muzzy))
    return decays


def _read_decay_state(view: ArenaView, state: str, has_stats: Optional[bool]) -> DecayState:
    path = view.find_decay_path(state)
    stats = ("stats.pa_shard_stats.pac_stats.decay_%s.%%s" % state, "stats.decay_%s.%%s" % state)  # from 5.3.0, and before
    counters = (view.get(*(one % name for one in stats)) if has_stats else None for name in ("npurge", "nmadvise", "purged"))
    times = (view.get("%s.%s" % (path, name)) for name in ("interval.ns", "epoch.ns", "deadline.ns", "nunpurged", "npages_limit"))
    return DecayState(state, view.read_decay_ms(state), view.count_pages(state), *counters, *times)


DecayClock = Tuple[Optional[int], bool]
"""The time to compare deadlines with, as CLOCK_MONOTONIC counts, and whether it is exact: on a core it is the latest time that jemalloc
itself noted, a lower bound."""


def read_decay_clock(context: JemallocContext, decays: Sequence[ArenaDecay]) -> DecayClock:
    """Read a live process's clock; on a core take a lower bound from its arenas' epochs."""
    noted = [time for one in decays for time in (one.create_ns, one.dirty.epoch_ns, one.muzzy.epoch_ns) if time]
    latest, clock = max(noted, default=None), context.target.monotonic_ns()
    return (clock, True) if clock is not None and clock >= (latest or 0) else (latest, False)


def measure_overdue_ns(decay: DecayState, clock: DecayClock) -> Optional[int]:
    """Return how long ago the current interval should have ended; 0 while it runs; None if unknown, or without gradual decay. A core's
    clock may be long past its lower bound: it never shows that an interval still ran.
    """
    now_ns, is_exact = clock
    if now_ns is None or decay.deadline_ns is None or (decay.time_ms or 0) <= 0:
        return None
    if decay.pages == 0:  # nothing is late where there is nothing
        return 0
    late_ns = now_ns - decay.deadline_ns
    return late_ns if late_ns > 0 else 0 if is_exact else None


PURGED, IDLE, DEGRADED, UNPURGED = "purged", "idle", "degraded", "unpurged"
AT_ONCE, NEVER, NO_THREADS, UNKNOWN = "at-once", "never", "no-threads", "unknown"
RETURNED_AT_ONCE = "pages are returned as soon as they become unused"
QUIET_VERDICTS = (PURGED, AT_ONCE, NEVER)
"""Verdicts that mean "decay works as configured", shown without evidence."""
_Decision = Tuple[str, str, Optional[bool]]
"""verdict, why, can_purge of TickerArena."""

LATE_INTERVALS = 20
"""An arena that is driven is looked after at least once an interval (a 200th of the decay time) or two, while its threads work."""


def judge_arena(row: TickerArena, decays: ArenaDecay, clock: DecayClock, others_healthy: int, is_percpu: bool = False) -> TickerArena:
    """Return the row with its verdict, by its counts of threads and by the arena's own decay.

    It never rests on how many pages are dirty: an idle process keeps them too. `unpurged` needs both that none of its threads can
    tick and, as other threads may tick for it, a sign in the arena that none does. `others_healthy`: threads bound elsewhere that tick; a
    free() of theirs into this arena ticks for it too.
    """
    pages = decays.dirty
    if pages.time_ms == 0 and decays.muzzy.pages and (decays.muzzy.time_ms or 0) > 0:
        pages = decays.muzzy  # they were dirty when that time was set to 0, and decay as others do
    late = measure_overdue_ns(pages, clock)
    signs = find_neglect(pages, decays.create_ns, late, clock)
    if pages.time_ms == 0:
        decided: _Decision = AT_ONCE, RETURNED_AT_ONCE, True
    elif pages.time_ms is not None and pages.time_ms < 0:
        decided = NEVER, "dirty_decay_ms is -1: unused pages stay until an explicit purge", False
    elif row.background_thread is not None:
        decided = _decide_by_background(row.background_thread, signs)
    else:
        decided = _decide_by_threads(row, signs, others_healthy, " (percpu_arena: threads change arenas)" if is_percpu else "")
    verdict, why, can_purge = decided
    evidence, late_ms = None if verdict in QUIET_VERDICTS else signs, None if late is None else round(late / 1e6, 3)
    return row._replace(verdict=verdict, why=why, can_purge=can_purge, late_ms=late_ms, evidence=evidence)


def find_neglect(decay: DecayState, create_ns: Optional[int], late: Optional[int], clock: DecayClock) -> Optional[str]:
    """Return the sign that decay of these pages of an arena has not run since it was made at `create_ns`; None if there is none."""
    interval = decay.interval_ns
    if not decay.pages or not interval:
        return None
    never_swept = decay.sweeps == 0
    if late is not None and late > LATE_INTERVALS * interval:
        since = "its decay is overdue by %.0f ms%s" % (late / 1e6, "" if clock[1] else " or more")
        never = create_ns is not None and decay.epoch_ns is not None and decay.epoch_ns - create_ns < interval
        return since + (", and has never run since the arena was made" if never or never_swept else "")
    return "%s, and none was ever purged" % count_noun(decay.pages, decay.state + " page") if never_swept and not clock[1] else None


def _decide_by_background(state: str, signs: Optional[str]) -> _Decision:
    """Decide with background threads on: ticks of other threads do not purge then (arena_decay_epoch_advance, PAC_PURGE_NEVER from 5.3)."""
    if state == "started":
        return PURGED, "a background thread purges it", True
    if state == "paused":
        return UNKNOWN, "its background thread is paused, as during arena.<i>.reset", None
    why = "background threads are on but none runs for this arena%s, and no other thread purges then"
    return (DEGRADED, why % " yet", None) if signs is None else (UNPURGED, "%s; %s" % (why % "", signs), False)


def _decide_by_threads(row: TickerArena, signs: Optional[str], others_healthy: int, hops: str) -> _Decision:
    """Decide by ticks: of its own threads, and of others that free into it."""
    healthy, blind, is_helped = row.healthy_threads, row.blind_threads, bool(others_healthy)
    bound = healthy + blind + row.unknown_threads
    if healthy and blind:
        late = "; %s: the others do too little work" % signs if signs is not None else ""
        some = "%s of its %s are blind" % (format_number(blind), count_noun(bound, "thread"))
        return DEGRADED, "%s: only the work of the others purges it%s%s" % (some, late, hops), True
    if healthy and signs is not None:
        return IDLE, "%s: its threads can purge it, but are idle or do too little to tick%s" % (signs, hops), True
    if healthy:
        return PURGED, "its threads purge it while they work%s" % hops, True
    if row.unknown_threads or (not bound and row.threads is None):
        return UNKNOWN, "cannot determine the state of every thread", None
    if not bound:
        why = "no thread is bound to it: its pages stay until a ticking thread frees into it"
        return NO_THREADS, why if is_helped else "no thread is bound to it, and no other thread ticks", is_helped
    stuck = "all its %s are blind" % count_noun(bound, "thread") if bound > 1 else "its only thread is blind"
    if signs is not None:
        return UNPURGED, "%s; %s" % (stuck, signs), False
    if not is_helped and row.threads is not None:
        return UNPURGED, "%s, and no other thread of the process ticks" % stuck, False
    return DEGRADED, "%s: it is purged only when threads of other arenas free into it" % stuck, True


NOT_STARTED, AT_RISK, NOT_APPLICABLE = "not-started", "at-risk", "not-applicable"
TICKING, BLIND = "ticking", "blind"
THREAD_VERDICTS = (BLIND, AT_RISK, UNKNOWN, TICKING, NOT_STARTED, NOT_APPLICABLE)
"""The most pressing first."""

RETRY = "retry"
GROWTH_FUNCTION = "arena_tdata_get_hard"
UNTOLD_ROW = 9
"""Row 8 except that arena_tdata_get_hard could not be located, so growth in progress cannot be ruled out."""
STACK_BYTES = 64 << 10
"""How much of a stack is searched for return addresses; jemalloc's own frames take a few kilobytes."""
NEAR_WORDS = 64
"""Words next to the stack pointer that show who called into the C library, in builds without symbols of functions."""


class TickerFacts(NamedTuple):
    """Facts besides the tsd that the decision table needs."""

    affected: bool
    """The build has the bug."""
    not_ready: Optional[str]
    """Why no tsd of this process can be judged: jemalloc is still being initialised. None if it is not."""
    counts: Optional[bool]
    """config_stats."""
    is_background: bool
    """One of jemalloc's own threads."""
    grows: Optional[bool]
    """It may be inside arena_tdata_get_hard, which sets the bypass for as long as it allocates; False: it surely is not; None: the code of
    that function is not known."""
    lacking: Optional[str] = None
    """Why it is not known, and the file that would show it."""
    runs: bool = True
    """It runs on, so that another look may show more."""


_Judgement = Tuple[str, Optional[int], str, Optional[str]]
"""verdict, row, why, hint of TickerThread."""


def judge_thread(tsd: Tsd, facts: TickerFacts, allocator: str = "jemalloc") -> TickerThread:
    """Return the row of a thread by the decision table: the first of its rows that matches."""
    verdict, row, why, hint = _decide_thread(tsd, facts)
    counted = bool(tsd.thread_allocated_bytes or tsd.thread_deallocated_bytes) or not facts.affected
    return TickerThread(
        allocator=allocator,
        lwp=tsd.lwp,
        name=tsd.thread.name if tsd.thread is not None else None,
        tsd=TargetAddress(tsd.address) if tsd.address is not None else None,
        state=tsd.state,
        verdict=verdict,
        row=row,
        why=why,
        hint=hint,
        arena=tsd.arena_index,
        ticks_left=tsd.ticker[0] if tsd.ticker is not None else None,
        allocated_bytes=tsd.thread_allocated_bytes if counted else None,
        deallocated_bytes=tsd.thread_deallocated_bytes if counted else None,
    )


def _decide_thread(tsd: Tsd, facts: TickerFacts) -> _Judgement:
    retry = RETRY if facts.runs else None
    if not facts.affected:
        return NOT_APPLICABLE, None, "this build does not have the bug: its ticker is part of the thread's tsd", None
    if tsd.state is None or facts.not_ready is not None:
        return UNKNOWN, 0, tsd.trouble or facts.not_ready or "cannot read its tsd", None
    if tsd.state == "uninitialized":
        return NOT_STARTED, 1, "it has not called jemalloc yet; it becomes blind if its first call is free()", None
    if tsd.state == "minimal_initialized":
        freed = " (%d bytes)" % tsd.thread_deallocated_bytes if tsd.thread_deallocated_bytes else ""
        return AT_RISK, 2, "it has only called free()%s: it has no ticker now, and becomes blind at its first malloc()" % freed, None
    if not tsd.is_nominal:
        what = "it is a background thread of jemalloc's own" if facts.is_background else "it is exiting"
        return NOT_APPLICABLE, 3, "%s (state %s)" % (what, tsd.state), None
    if tsd.arenas_tdata_bypass is None or tsd.arenas_tdata is None:
        return UNKNOWN, 0, "arenas_tdata_bypass is neither 0 nor 1: its tsd is damaged", None
    if not tsd.arenas_tdata_bypass:
        why = "it has tickers, but none for its arena yet"
        if tsd.ticker is not None:
            why = "it has tickers; the one for its arena is at %d of %d" % tsd.ticker
        if not tsd.arenas_tdata:
            return TICKING, 4, "it has not needed a ticker yet; the next slow operation creates one", None
        return TICKING, 5, why, None
    if tsd.arenas_tdata:
        why = "it has tickers although arenas_tdata_bypass is set; jemalloc never does that, so its tsd is damaged"
        return UNKNOWN, 6, why, retry
    doubt = _explain_transition(tsd, facts)
    if doubt is not None:
        return UNKNOWN, 7, doubt, retry
    if facts.grows is None:
        why = "it has no ticker, and it is unknown whether it is creating one (%s)" % GROWTH_FUNCTION
        return UNKNOWN, UNTOLD_ROW, why, facts.lacking
    return BLIND, 8, "its first call was free(), so it never got a decay ticker and never returns pages", None


def _explain_transition(tsd: Tsd, facts: TickerFacts) -> Optional[str]:
    """Explain why a set bypass without tickers may last a moment only; None if it is permanent."""
    if (tsd.reentrancy_level or 0) != 0:
        return "it is inside jemalloc (reentrancy_level %d)" % (tsd.reentrancy_level or 0)
    if not tsd.arena and not tsd.iarena:
        return "it is bound to no arena: it is just starting or exiting"
    if tsd.narenas_tdata:
        return "its tickers (%d) are gone: it is exiting" % tsd.narenas_tdata
    if facts.grows:
        return "it may be creating its tickers at this moment (%s)" % GROWTH_FUNCTION
    if facts.counts and tsd.thread_deallocated_bytes == 0:
        return "it has freed nothing, so its first call was not free(): it is just starting"
    if tsd.tcache_enabled and not tsd.tcache_arena:
        return "its cache is being set up: it is just starting"
    return None


# ---------------------------------------------------------------------------------------------------- facts about each thread


def judge_threads(context: JemallocContext, tsds: Tsds, background: BackgroundState, counts: Optional[bool]) -> List[TickerThread]:
    """Judge every record of `tsds`, in order."""
    affected = has_ticker_bug(context.types, context.jemalloc.version)
    not_ready, lacking = _explain_not_ready(context), _name_lacking_file(context)
    own = [one.pthread for one in background.running if one.pthread]
    scan, rows = _GrowthScan(context), []
    for tsd in tsds.records:
        is_background = tsd.thread is not None and (tsd.thread.name == BACKGROUND_NAME or tsd.thread.thread_pointer in own)
        in_doubt = affected and tsd.is_nominal and bool(tsd.arenas_tdata_bypass) and not tsd.arenas_tdata
        grows = scan.grows(tsd) if in_doubt else False
        facts = TickerFacts(affected, not_ready, counts, is_background, grows, lacking, context.target.kind == "live")
        rows.append(judge_thread(tsd, facts, context.jemalloc.id))
    untold = sum(row.row == UNTOLD_ROW for row in rows)
    if untold:
        what = "%s: nothing tells whether a thread without a ticker is blind or is creating one" % count_noun(untold, "thread")
        context.report(codes.TICKER_UNTOLD, None, what, lacking)
    return rows


def _name_lacking_file(context: JemallocContext) -> str:
    """Name the file that shows where the code of arena_tdata_get_hard is."""
    module = context.jemalloc.module
    option = "--exe FILE" if module.is_executable and context.target.kind == "core" else "--sysroot DIR"
    if context.target.kind == "core" and context.target.module_file(module) is None:
        return "give %s of the machine that wrote the core with %s" % (module.file_name, option)
    build_id = " (build-id %s)" % module.build_id if module.build_id else ""
    return "%s%s is stripped: give its unstripped file or debug file with --debug-dir DIR" % (module.file_name, build_id)


def _explain_not_ready(context: JemallocContext) -> Optional[str]:
    booted, state = context.variable("tsd_booted", 1), context.variable("malloc_init_state", 4)
    if booted == 0:
        return "jemalloc is not initialised yet (tsd_booted)"
    ready = context.types.enumerator("malloc_init_initialized") or 0
    return "jemalloc is not initialised yet (malloc_init_state %d)" % state if state is not None and state != ready else None


class _GrowthScan:
    """A search for threads that may be inside arena_tdata_get_hard, by what is known of their past and by their stacks.

    A thread makes its tickers when it starts, before its first free() is counted and before its cache has an arena; and again when it
    first meets an arena that came later. That only the first thread does, which began when there was one arena, unless the
    program has made arenas of its own.
    """

    def __init__(self, context: JemallocContext) -> None:
        self.context = context
        base = context.geometry.manual_arena_base
        self.later_arenas = base is None or context.geometry.narenas > base
        self._code: Optional[List[Tuple[int, int]]] = None
        self._exact = False

    def grows(self, tsd: Tsd) -> Optional[bool]:
        """Return False if it surely is not, None if that is unknown.

        It shows by a return address into that function on its stack, or by its pc. Without a symbol any code of the object
        counts, which on a core is None: there may be much else, and no other look.
        """
        target, thread = self.context.target, tsd.thread
        is_past_start = bool(tsd.thread_deallocated_bytes) or (tsd.tcache_enabled and bool(tsd.tcache_arena))
        is_first = thread is None or target.pid in (None, thread.lwp)
        if is_past_start and not is_first and not self.later_arenas:
            return False
        if thread is None:
            return True
        code, runs, word = self.code(), target.kind == "live", self.context.geometry.word_bytes
        if thread.pc is None or thread.stack_pointer is None or not code:
            return True if runs else None
        near = [thread.pc]
        if not _lies_inside(code, thread.pc):
            data = target.read_prefix(thread.stack_pointer & -word, STACK_BYTES if self._exact else NEAR_WORDS * word)
            near = [value - 1 for value in target.words_in(data)]
        is_near = any(_lies_inside(code, address) for address in near)
        return is_near if self._exact or runs or not is_near else None

    def code(self) -> Sequence[Tuple[int, int]]:
        """The function's addresses, or all of the object's code where no symbol has it."""
        if self._code is None:
            symbols, own = self.context.symbols, self.context.jemalloc.module.name
            function, size = symbols.find(GROWTH_FUNCTION), symbols.size_bytes(GROWTH_FUNCTION)
            mapped = [(one.start, one.end) for one in self.context.target.mappings() if one.executable and one.name == own]
            self._exact = function is not None and bool(size)
            self._code = [(function.address, function.address + size)] if function is not None and size else mapped
        return self._code


def _lies_inside(spans: Sequence[Tuple[int, int]], address: int) -> bool:
    return any(start <= address < end for start, end in spans)


OVERDUE_TIMES, COSTLY_BYTES, COSTLY_SHARE = 2, 1 << 20, 100
"""From when on an arena that some of its threads could purge is a finding all the same: times of its decay time, and unused bytes, so many
or one in COSTLY_SHARE of what jemalloc holds, whichever is less."""
PERCPU_ENABLED = 3
"""percpu_arena_mode_enabled_base, in every release of 5."""


class TickerReading(NamedTuple):
    """Every thread and every arena, judged."""

    tsds: Tsds
    threads: Sequence[TickerThread]
    """One for each of tsds.records."""
    decays: Sequence[ArenaDecay]
    clock: DecayClock
    arenas: Sequence[TickerArena]
    """One for each of decays."""


def read_tickers(
    context: JemallocContext, tsds: Tsds, decays: Sequence[ArenaDecay], background: BackgroundState, has_stats: Optional[bool]
) -> TickerReading:
    """Judge every thread, then every arena."""
    threads = judge_threads(context, tsds, background, has_stats)
    clock, is_percpu, page = read_decay_clock(context, decays), has_percpu_arenas(context), context.geometry.page_bytes
    using = [row for tsd, row in zip(tsds.records, threads) if tsd.is_nominal]
    costly_bytes, arenas = count_costly_bytes(context, [one.arena for one in decays]), []
    for one in decays:
        dirty, muzzy = one.dirty, one.muzzy
        bound = [row for row in using if is_percpu or row.arena == one.arena.index]
        healthy = sum(map(drives_decay, bound))
        arena = TickerArena(
            allocator=context.jemalloc.id,
            index=one.arena.index,
            address=TargetAddress(one.arena.address),
            kind=one.arena.kind,
            threads=len(bound) if tsds.complete else None,
            healthy_threads=healthy,
            blind_threads=sum(row.verdict == BLIND for row in bound),
            unknown_threads=sum(row.verdict == UNKNOWN for row in bound),
            background_thread=background.state_for(one.arena.index),
            dirty_bytes=None if dirty.pages is None else dirty.pages * page,
            muzzy_bytes=None if muzzy.pages is None else muzzy.pages * page,
            dirty_decay_ms=dirty.time_ms,
            muzzy_decay_ms=muzzy.time_ms,
            sweeps=dirty.sweeps,
            late_ms=None,
            verdict=UNKNOWN,
            why="",
            can_purge=None,
            evidence=None,
        )
        arena = judge_arena(arena, one, clock, sum(map(drives_decay, using)) - healthy, is_percpu)
        arenas.append(arena._replace(costs_memory=costs_memory(arena, costly_bytes)))
    return TickerReading(tsds, threads, decays, clock, arenas)


def count_costly_bytes(context: JemallocContext, arenas: Sequence[ArenaHandle]) -> int:
    """Return from how many unused bytes on an overdue arena is a finding, in whole pages."""
    held, page = context.sum_held_bytes(arenas), context.geometry.page_bytes
    return (COSTLY_BYTES if held is None else min(COSTLY_BYTES, held // COSTLY_SHARE)) // page * page


def has_percpu_arenas(context: JemallocContext) -> bool:
    """Return whether opt.percpu_arena is on: threads change arenas."""
    enabled = context.types.enumerator("percpu_arena_mode_enabled_base") or PERCPU_ENABLED
    return (context.variable("opt_percpu_arena", 4) or 0) >= enabled


def drives_decay(row: TickerThread) -> bool:
    """Return whether a thread in a nominal state drives decay: it ticks, or the build has no such bug."""
    return row.verdict == TICKING or row.row is None


def count_blind_by_arena(rows: Sequence[TickerThread]) -> Dict[int, Optional[int]]:
    """Arena index -> blind threads bound to it; None where it is unknown of one whether it is blind."""
    counts: Dict[int, Optional[int]] = {}
    for row in rows:
        if row.arena is not None and row.verdict in (BLIND, UNKNOWN):
            before = counts.get(row.arena, 0)
            counts[row.arena] = before + 1 if before is not None and row.verdict == BLIND else None
    return counts


def costs_memory(row: TickerArena, costly_bytes: int) -> bool:
    """Return whether no thread purges an arena, or its healthy threads may and did not in twice the time that the program allows."""
    decay_ms = row.dirty_decay_ms or row.muzzy_decay_ms or 0
    is_overdue = (row.late_ms or 0) > OVERDUE_TIMES * decay_ms and row.unused_bytes > costly_bytes
    return row.verdict == UNPURGED or (row.verdict == DEGRADED and is_overdue)


CURE, PURGE = "cure", "purge"
"""Codes of advice to change the process: the capability that does it, which may be refused."""


def list_ticker_advice(threads: Sequence[TickerThread], arenas: Sequence[TickerArena], names: PublicNames) -> List[Finding]:
    """List what helps against blind threads, in the build's own names."""
    blind = [row for row in threads if row.verdict == BLIND]
    at_risk = [row for row in threads if row.verdict == AT_RISK]
    if not blind and not at_risk:
        return []
    made: List[Finding] = []
    theirs = [row for row in arenas if row.blind_threads]
    if all(row.verdict in QUIET_VERDICTS for row in theirs) and not any(row.unknown_threads for row in arenas):
        where = ", ".join(dict.fromkeys(row.why for row in theirs)) or "they are bound to no arena yet"
        of_arenas = " of %s" % list_names("arena", [row.index for row in theirs]) if theirs else ""
        made.append(Finding("no harm now: no pages%s stay because of blind threads" % of_arenas, where, None))
    made.append(Finding("upgrade to jemalloc 5.3.0 or later", "there the ticker is part of each thread's tsd", None))
    count = len(blind) + len(at_risk)
    late = "too late for the %s blind or at risk now" % (count_noun(count, "thread") + (" that is" if count == 1 else " that are"))
    made.append(
        Finding("make each thread allocate before it frees: free(malloc(1)) through a volatile pointer as its first call", late, None)
    )
    if any(row.background_thread is None for row in arenas):
        ways = (names.setting(BACKGROUND.value), names.call('"background_thread"'))
        hint = "%s at the next start, or %s in the running process" % ways
        made.append(Finding("turn background threads on", "they purge whatever the program's threads do", hint))
    if any(row.dirty_decay_ms for row in arenas):
        made.append(
            Finding(names.setting("dirty_decay_ms:0"), "unused pages are returned at once, at the cost of a system call each time", None)
        )
    holding = [row for row in theirs if row.verdict in (UNPURGED, DEGRADED) and row.unused_bytes]
    if holding:
        kept = make_sentence("%s of unused pages are kept there", SentenceSize(sum(row.unused_bytes for row in holding)))
        what = "purge now: %s" % list_names("arena", [row.index for row in holding])
        made.append(Finding(what, kept, "purge --arena %d" % holding[0].index, PURGE))
    if blind:
        made.append(Finding("cure the blind threads", "one byte in each thread's tsd is reset", "tickers --cure", CURE))
    return made


# ---------------------------------------------------------------------------------------------------- decay


def make_decay_rows(seen: TickerReading, page_bytes: int) -> List[DecayRow]:
    """Make two rows for each arena."""
    pairs = zip(seen.decays, seen.arenas)
    return [_make_decay_row(decay, row, seen.clock, page_bytes) for one, row in pairs for decay in (one.dirty, one.muzzy)]


def _make_decay_row(decay: DecayState, row: TickerArena, clock: DecayClock, page_bytes: int) -> DecayRow:
    is_gradual = (decay.time_ms or 0) > 0
    times_ns = (decay.interval_ns, decay.epoch_ns, decay.deadline_ns, measure_overdue_ns(decay, clock))
    interval_ms, epoch_ms, deadline_ms, late_ms = (round(ns / 1e6, 3) if ns is not None and is_gradual else None for ns in times_ns)
    verdict, why = row.verdict, row.why
    if decay.time_ms == 0:
        verdict, why = (
            AT_ONCE,
            RETURNED_AT_ONCE if decay.state == "dirty" else "dirty pages skip this state: they are returned to the OS directly",
        )
    elif decay.state == "muzzy" and (decay.time_ms or 0) < 0:
        verdict, why = NEVER, "muzzy_decay_ms is -1: muzzy pages stay until an explicit purge, or until the kernel takes them"
    return DecayRow(
        allocator=row.allocator,
        arena=row.index,
        kind=row.kind,
        state=decay.state,
        decay_ms=decay.time_ms,
        pages=decay.pages,
        bytes=None if decay.pages is None else decay.pages * page_bytes,
        sweeps=decay.sweeps,
        madvises=decay.madvises,
        purged_pages=decay.purged_pages,
        limit_pages=decay.limit_pages if is_gradual else None,
        nunpurged_pages=decay.nunpurged_pages if is_gradual else None,
        interval_ms=interval_ms,
        epoch_ms=epoch_ms,
        deadline_ms=deadline_ms,
        late_ms=late_ms,
        driven=verdict,
        why=why,
    )
