"""Judge who returns unused pages: decay state, background threads, tickers of threads, and the rows of `tickers` and `decay`."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.measured import BACKGROUND
from gdbheapx.errors import UnreadableMemory
from gdbheapx.inferior.base import Thread
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.arenas import (
    ArenaHandle,
    JemallocContext,
    MutexCounters,
    count_pages,
    find_decay_path,
    read_decay_ms,
    read_mutex,
    sum_held_bytes,
)
from gdbheapx.jemalloc.layouts import has_ticker_bug
from gdbheapx.jemalloc.records import DecayRow, PublicNames, TickerArena, TickerReport, TickerThread
from gdbheapx.jemalloc.threads import Tsd, Tsds
from gdbheapx.jemalloc.traces import BACKGROUND_NAME
from gdbheapx.layout.view import LayoutView
from gdbheapx.model import Finding, TargetAddress
from gdbheapx.units import SentenceSize, count_noun, format_number, list_names, make_sentence

BACKGROUND_STATES = ("stopped", "started", "paused")
"""background_thread_state_t, the same in every release of 5."""
MOST_BACKGROUND_THREADS = 4096
"""More than MALLOCX_ARENA_LIMIT (4,095) is damage."""


class BackgroundThread(NamedTuple):
    """A background_thread_info_t."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    """Serves the arenas whose index is this modulo max_background_threads."""
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
    """One for each of max_background_threads, whatever its state."""
    named: int = 0
    """Where no variable tells of them: living threads that have their name."""

    @property
    def running(self) -> List[BackgroundThread]:
        """Return the threads that were started."""
        return [thread for thread in self.threads if thread.state != "stopped"]

    def of_arena(self, index: int) -> Optional[BackgroundThread]:
        """The one that serves an arena (arena_background_thread_info_get); None if there are none."""
        return self.threads[index % len(self.threads)] if self.threads else None

    @property
    def runs(self) -> Optional[int]:
        """stats.background_thread.num_runs; None where no variable tells of them."""
        return None if self.named else sum(thread.runs for thread in self.running)

    @property
    def run_interval_ns(self) -> Optional[int]:
        """stats.background_thread.run_interval: mean sleep (background_thread.c: background_thread_stats_read)."""
        return None if self.runs is None else sum(thread.sleep_ns for thread in self.running) // self.runs if self.runs else 0


def read_background(context: JemallocContext) -> BackgroundState:
    """The state of background threads. What cannot be read is reported and missing."""
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
        size = context.types.size_bytes("background_thread_info_s")
        try:
            data = context.target.read(pointer, min(most, MOST_BACKGROUND_THREADS) * size)
        except UnreadableMemory as problem:
            context.report(codes.BACKGROUND_UNREADABLE, problem.address, "cannot read the state of the background threads", None)
            data = b""
        for index in range(len(data) // size):
            part = data[index * size : (index + 1) * size]
            place = pointer + index * size
            threads.append(
                _make_background_thread(
                    index, LayoutView(context.types, "background_thread_info_s", place, part, context.geometry.little_endian)
                )
            )
    return BackgroundState(None if enabled is None else bool(enabled), count, threads)


def _make_background_thread(index: int, view: LayoutView) -> BackgroundThread:
    state = view["state"]
    return BackgroundThread(
        index=index,
        state=BACKGROUND_STATES[state] if state < len(BACKGROUND_STATES) else None,
        pthread=view.get("thread"),
        runs=view["tot_n_runs"],
        sleep_ns=view["tot_sleep_time.ns"],
        mutex=read_mutex(view, "mtx"),
    )


DECAY_STATES = ("dirty", "muzzy")
_DECAY_STATS = ("stats.pa_shard_stats.pac_stats.decay_%s.", "stats.decay_%s.")
"""Counters, from 5.3.0 and before."""


class DecayState(NamedTuple):
    """The decay of one arena's dirty or muzzy pages."""

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
    """Start of the current interval, as CLOCK_MONOTONIC counts."""
    deadline_ns: Optional[int]
    """When the next one is due."""
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

    @property
    def both(self) -> Sequence[DecayState]:
        """Dirty, then muzzy."""
        return (self.dirty, self.muzzy)


def read_decay(context: JemallocContext, listed: Sequence[ArenaHandle], has_stats: Optional[bool]) -> List[ArenaDecay]:
    """The decay state of every arena. Arenas that cannot be read are reported and left out."""
    decays = []
    for arena in listed:
        try:
            view = arena.read()
        except UnreadableMemory as problem:
            what = "cannot read arena %d at 0x%x" % (arena.index, arena.address)
            context.report(codes.ARENA_UNREADABLE, problem.address, what, "its figures are missing here")
            continue
        dirty, muzzy = (_read_decay_state(view, state, has_stats) for state in DECAY_STATES)
        decays.append(ArenaDecay(arena, view.get("create_time.ns"), dirty, muzzy))
    return decays


def _read_decay_state(view: LayoutView, state: str, has_stats: Optional[bool]) -> DecayState:
    path = find_decay_path(view, state) + "."

    def read_counter(name: str) -> Optional[int]:
        return view.get(*(stats % state + name for stats in _DECAY_STATS)) if has_stats else None

    return DecayState(
        state=state,
        time_ms=read_decay_ms(view, state),
        pages=count_pages(view, state),
        sweeps=read_counter("npurge"),
        madvises=read_counter("nmadvise"),
        purged_pages=read_counter("purged"),
        interval_ns=view.get(path + "interval.ns"),
        epoch_ns=view.get(path + "epoch.ns"),
        deadline_ns=view.get(path + "deadline.ns"),
        nunpurged_pages=view.get(path + "nunpurged"),
        limit_pages=view.get(path + "npages_limit"),
    )


class DecayClock(NamedTuple):
    """The time to compare deadlines with."""

    ns: Optional[int]
    """CLOCK_MONOTONIC."""
    exact: bool
    """False: a core, where the latest time that jemalloc itself noted stands for it; it was later in truth."""


def read_decay_clock(context: JemallocContext, decays: Sequence[ArenaDecay]) -> DecayClock:
    """A live process's clock; on a core a lower bound from its arenas' epochs."""
    noted = [time for one in decays for time in (one.create_ns, one.dirty.epoch_ns, one.muzzy.epoch_ns) if time]
    latest = max(noted) if noted else None
    clock = context.target.monotonic_ns()
    if clock is not None and clock >= (latest or 0):
        return DecayClock(clock, True)
    return DecayClock(latest, False)


def measure_overdue_ns(decay: DecayState, time: DecayClock) -> Optional[int]:
    """Return how long ago the current interval should have ended; 0 while it runs; None if unknown, or without gradual decay."""
    if time.ns is None or decay.deadline_ns is None or (decay.time_ms or 0) <= 0:
        return None
    return max(0, time.ns - decay.deadline_ns) if decay.pages != 0 else 0  # nothing is late where there is nothing


PURGED, IDLE, DEGRADED, UNPURGED = "purged", "idle", "degraded", "unpurged"
AT_ONCE, NEVER, NO_THREADS, UNKNOWN = "at-once", "never", "no-threads", "unknown"
QUIET_VERDICTS = (PURGED, AT_ONCE, NEVER)
"""Verdicts that need no evidence: nobody fails to do what he should."""
_Decision = Tuple[str, str, Optional[bool]]
"""verdict, why, can_purge of Outlook."""

LATE_INTERVALS = 20
"""An arena that is driven is looked after at least once an interval (a 200th of the decay time) or two, while its threads work."""


class ArenaDrivers(NamedTuple):
    """Counts of the threads that can drive one arena's decay."""

    threads: int
    """Threads bound to it that use jemalloc (all of the process with percpu_arena, where threads change arenas)."""
    healthy: int
    """Those whose ticks count."""
    blind: int
    unknown: int
    """Those of which it is not known."""
    others_healthy: int
    """Healthy threads bound elsewhere: a free() of theirs into this arena ticks for it too."""
    all_known: bool
    """Every thread's tsd was read."""
    background: Optional[str]
    """Background threads are on: the state of the one that serves this arena, `none` if there is none; None: they are off."""
    percpu: bool


class PurgeOutlook(NamedTuple):
    """The verdict on one arena's unused pages."""

    verdict: str
    why: str
    can_purge: Optional[bool]
    """Somebody can purge it without a call made for that; None if it is not known."""
    late_ms: Optional[float]
    """How long ago the dirty pages' interval should have ended; None if it is not known or they do not decay gradually."""
    evidence: Optional[str]
    """What in the arena itself shows that nobody drives it; None if nothing does."""


def judge_arena(decays: ArenaDecay, drivers: ArenaDrivers, time: DecayClock) -> PurgeOutlook:
    """The verdict on one arena.

    It never rests on how many pages are dirty: an idle process keeps them too. `unpurged` needs both that none of its threads can
    tick and, as other threads may tick for it, a sign in the arena that none does.
    """
    late = measure_overdue_ns(decays.dirty, time)
    signs = find_neglect(decays, late, time)
    verdict, why, can_purge = _decide_arena(decays.dirty.time_ms, drivers, signs)
    return PurgeOutlook(verdict, why, can_purge, None if late is None else late / 1e6, None if verdict in QUIET_VERDICTS else signs)


def _decide_arena(decay_ms: Optional[int], drivers: ArenaDrivers, signs: Optional[str]) -> _Decision:
    if decay_ms == 0:
        return AT_ONCE, "pages are returned as soon as they become unused", True
    if decay_ms is not None and decay_ms < 0:
        return NEVER, "dirty_decay_ms is -1: unused pages stay until an explicit purge", False
    return (_decide_by_threads if drivers.background is None else _decide_by_background)(drivers, signs)


def find_neglect(decays: ArenaDecay, late: Optional[int], time: DecayClock) -> Optional[str]:
    """Return the sign that decay of this arena's pages has not run; None if there is none."""
    dirty, interval = decays.dirty, decays.dirty.interval_ns
    if not dirty.pages or not interval:
        return None
    never_swept = dirty.sweeps == 0
    if late is not None and late > LATE_INTERVALS * interval:
        since = "its decay is overdue by %.0f ms%s" % (late / 1e6, "" if time.exact else " or more")
        never = decays.create_ns is not None and dirty.epoch_ns is not None and dirty.epoch_ns - decays.create_ns < interval
        return since + (", and has never run since the arena was made" if never or never_swept else "")
    if never_swept and not time.exact:
        return "%s, and none was ever purged" % count_noun(dirty.pages, "dirty page")
    return None


def _decide_by_background(drivers: ArenaDrivers, signs: Optional[str]) -> _Decision:
    """Decide with background threads on: ticks of other threads do not purge then (arena_decay_epoch_advance, PAC_PURGE_NEVER from 5.3)."""
    if drivers.background == "started":
        return PURGED, "a background thread purges it", True
    if drivers.background == "paused":
        return UNKNOWN, "its background thread is paused, as during arena.<i>.reset", None
    why = "background threads are on but none runs for this arena%s, and no other thread purges then"
    return (DEGRADED, why % " yet", None) if signs is None else (UNPURGED, "%s; %s" % (why % "", signs), False)


def _decide_by_threads(drivers: ArenaDrivers, signs: Optional[str]) -> _Decision:
    """Ticks drive it: of its own threads, and of others that free into it."""
    helped = bool(drivers.others_healthy)
    if drivers.healthy:
        return _decide_with_healthy(drivers, signs)
    if drivers.unknown or (not drivers.threads and not drivers.all_known):
        return UNKNOWN, "cannot determine the state of every thread", None
    if not drivers.threads:
        why = "no thread is bound to it: its pages stay until a ticking thread frees into it"
        return NO_THREADS, why if helped else "no thread is bound to it, and no other thread ticks", helped
    bound = "all its %s are blind" % count_noun(drivers.threads, "thread") if drivers.threads > 1 else "its only thread is blind"
    if not drivers.blind:
        return UNKNOWN, "none of its threads is known to tick", None
    if signs is not None:
        return UNPURGED, "%s; %s" % (bound, signs), False
    if not helped and drivers.all_known:
        return UNPURGED, "%s, and no other thread of the process ticks" % bound, False
    return DEGRADED, "%s: it is purged only when threads of other arenas free into it" % bound, True


def _decide_with_healthy(drivers: ArenaDrivers, signs: Optional[str]) -> _Decision:
    hops = " (percpu_arena: threads change arenas)" if drivers.percpu else ""
    if drivers.blind:
        late = "; %s: the others do too little work" % signs if signs is not None else ""
        blind = "%s of its %s are blind" % (format_number(drivers.blind), count_noun(drivers.threads, "thread"))
        why = "%s: only the work of the others purges it%s%s" % (blind, late, hops)
        return DEGRADED, why, True
    if signs is not None:
        return IDLE, "%s: its threads can purge it, but are idle or do too little to tick%s" % (signs, hops), True
    return PURGED, "its threads purge it while they work%s" % hops, True


NOT_STARTED, AT_RISK, NOT_APPLICABLE = "not-started", "at-risk", "not-applicable"
TICKING, BLIND = "ticking", "blind"
THREAD_VERDICTS = (BLIND, AT_RISK, UNKNOWN, TICKING, NOT_STARTED, NOT_APPLICABLE)
"""The most pressing first."""

RETRY = "retry"
GROWTH_FUNCTION = "arena_tdata_get_hard"
UNTOLD_ROW = 9
"""Of the table: nothing contradicts row 8, and the code that would is not known."""
STACK_BYTES = 64 << 10
"""How much of a stack is searched for return addresses; jemalloc's own frames take a few kilobytes."""
NEAR_WORDS = 64
"""Where no symbol tells functions apart: words next to the stack pointer that show who called into the C library."""


class TickerFacts(NamedTuple):
    """Facts beside the tsd that the decision table needs."""

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
    that function is not known, so that nothing tells."""
    lacking: Optional[str] = None
    """Why that is so, and the file that would tell."""
    runs: bool = True
    """It runs on, so that another look may tell more."""


class TickerJudgement(NamedTuple):
    """The decision for one thread."""

    verdict: str
    row: int
    """Which row of the table decided; -1 for builds without the bug."""
    why: str
    hint: Optional[str] = None


def judge_thread(tsd: Tsd, facts: TickerFacts) -> TickerJudgement:
    """The decision table: the first row that matches."""
    if not facts.affected:
        return TickerJudgement(NOT_APPLICABLE, -1, "this build does not have the bug: its ticker is part of the thread's tsd")
    if tsd.state is None or facts.not_ready is not None:
        return TickerJudgement(UNKNOWN, 0, tsd.trouble or facts.not_ready or "cannot read its tsd")
    if tsd.state == "uninitialized":
        return TickerJudgement(NOT_STARTED, 1, "it has not called jemalloc yet; it becomes blind if its first call is free()")
    if tsd.state == "minimal_initialized":
        freed = " (%d bytes)" % tsd.thread_deallocated_bytes if tsd.thread_deallocated_bytes else ""
        return TickerJudgement(
            AT_RISK, 2, "it has only called free()%s: it has no ticker now, and becomes blind at its first malloc()" % freed
        )
    if not tsd.is_nominal:
        what = "it is a background thread of jemalloc's own" if facts.is_background else "it is exiting"
        return TickerJudgement(NOT_APPLICABLE, 3, "%s (state %s)" % (what, tsd.state))
    if tsd.arenas_tdata_bypass is None or tsd.arenas_tdata is None:
        return TickerJudgement(UNKNOWN, 0, "arenas_tdata_bypass is neither 0 nor 1: its tsd is damaged")
    if not tsd.arenas_tdata_bypass:
        return _judge_ticking(tsd)
    if tsd.arenas_tdata:
        return TickerJudgement(
            UNKNOWN,
            6,
            "it has tickers although arenas_tdata_bypass is set; jemalloc never does that, so its tsd is damaged",
            RETRY if facts.runs else None,
        )
    doubt = _explain_transition(tsd, facts)
    if doubt is not None:
        return TickerJudgement(UNKNOWN, 7, doubt, RETRY if facts.runs else None)
    if facts.grows is None:
        return TickerJudgement(
            UNKNOWN, UNTOLD_ROW, "it has no ticker, and it is unknown whether it is creating one (%s)" % GROWTH_FUNCTION, facts.lacking
        )
    return TickerJudgement(BLIND, 8, "its first call was free(), so it never got a decay ticker and never returns pages")


def _judge_ticking(tsd: Tsd) -> TickerJudgement:
    if not tsd.arenas_tdata:
        return TickerJudgement(TICKING, 4, "it has not needed a ticker yet; the next slow operation creates one")
    if tsd.ticker is None:
        return TickerJudgement(TICKING, 5, "it has tickers, but none for its arena yet")
    return TickerJudgement(TICKING, 5, "it has tickers; the one for its arena is at %d of %d" % tsd.ticker)


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


def judge_threads(context: JemallocContext, tsds: Tsds, background: BackgroundState, counts: Optional[bool]) -> List[TickerJudgement]:
    """Judge every record of `tsds`, in order."""
    affected = has_ticker_bug(context.types, context.jemalloc.version)
    not_ready = _explain_not_ready(context)
    own = [one.pthread for one in background.running if one.pthread]
    scan = _GrowthScan(context)
    judgements = []
    for tsd in tsds.records:
        is_background = tsd.thread is not None and (tsd.thread.name == BACKGROUND_NAME or tsd.thread.thread_pointer in own)
        in_doubt = affected and tsd.is_nominal and bool(tsd.arenas_tdata_bypass) and not tsd.arenas_tdata
        grows = scan.grows(tsd) if in_doubt else False
        lacking = _name_lacking_file(context) if grows is None else None
        judgements.append(
            judge_thread(tsd, TickerFacts(affected, not_ready, counts, is_background, grows, lacking, context.target.kind == "live"))
        )
    untold = sum(one.row == UNTOLD_ROW for one in judgements)
    if untold:
        what = "%s: nothing tells whether a thread without a ticker is blind or is creating one" % count_noun(untold, "thread")
        context.report(codes.TICKER_UNTOLD, None, what, _name_lacking_file(context))
    return judgements


def _name_lacking_file(context: JemallocContext) -> str:
    """The file that tells where the code of arena_tdata_get_hard is."""
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
    """Tells whether a thread may be inside arena_tdata_get_hard, from what is known of its past and from its stack.

    A thread makes its tickers when it starts, before its first free() is counted and before its cache has an arena; and anew when it
    first meets an arena that came later. That only the first thread does, which began when there was one arena, unless the
    program has made arenas of its own.
    """

    def __init__(self, context: JemallocContext) -> None:
        self.context = context
        base = context.geometry.manual_arena_base
        self.later_arenas = base is None or context.geometry.narenas > base
        self._code: Optional[Sequence[Tuple[int, int]]] = None
        self._exact = False

    def grows(self, tsd: Tsd) -> Optional[bool]:
        """False if it surely is not, None where nothing tells."""
        is_past_start = bool(tsd.thread_deallocated_bytes) or (tsd.tcache_enabled and bool(tsd.tcache_arena))
        is_first = tsd.thread is None or self.context.target.pid in (None, tsd.thread.lwp)
        if is_past_start and not is_first and not self.later_arenas:
            return False
        return True if tsd.thread is None else self._on_stack(tsd.thread)

    def _on_stack(self, thread: Thread) -> Optional[bool]:
        """A return address into that function stands on the stack, or the thread runs in it; where it has no symbol, into any code of the
        object, which on a core is None: there may be much else, and no other look."""
        code, runs = self.code(), self.context.target.kind == "live"
        if thread.pc is None or thread.stack_pointer is None or not code:
            return True if runs else None
        is_near = self._is_near(thread.pc, thread.stack_pointer, code)
        return True if is_near and (self._exact or runs) else None if is_near else False

    def _is_near(self, pc: int, stack_pointer: int, code: Sequence[Tuple[int, int]]) -> bool:
        if _lies_inside(code, pc):
            return True
        word = self.context.geometry.word_bytes
        data = self.context.target.read_prefix(stack_pointer & -word, STACK_BYTES if self._exact else NEAR_WORDS * word)
        return any(_lies_inside(code, value - 1) for value in self.context.target.words_in(data))

    def code(self) -> Sequence[Tuple[int, int]]:
        """The function's addresses, or all of the object's code where no symbol has it."""
        if self._code is None:
            symbols = self.context.symbols
            function, size = symbols.find(GROWTH_FUNCTION), symbols.size_bytes(GROWTH_FUNCTION)
            self._exact = function is not None and bool(size)
            if function is not None and size:
                self._code = [(function.address, function.address + size)]
            else:
                mapped = self.context.target.mappings()
                self._code = [(one.start, one.end) for one in mapped if one.executable and one.name == self.context.jemalloc.module.name]
        return self._code


def _lies_inside(spans: Sequence[Tuple[int, int]], address: int) -> bool:
    return any(start <= address < end for start, end in spans)


OVERDUE_TIMES, COSTLY_BYTES, COSTLY_SHARE = 2, 1 << 20, 100
"""From when on an arena that some of its threads could purge is a finding all the same: times of its decay time, and unused bytes, so many
or one in COSTLY_SHARE of what jemalloc holds, whichever is less."""
PERCPU_ENABLED = 3
"""percpu_arena_mode_enabled_base, in every release of 5."""


class TickerReading(NamedTuple):
    """Everything that was read, once."""

    tsds: Tsds
    judgements: Sequence[TickerJudgement]
    """One for each of tsds.records."""
    decays: Sequence[ArenaDecay]
    time: DecayClock
    outlooks: Sequence[PurgeOutlook]
    """One for each of decays."""
    drivers: Sequence[ArenaDrivers]


def read_tickers(
    context: JemallocContext, tsds: Tsds, decays: Sequence[ArenaDecay], background: BackgroundState, has_stats: Optional[bool]
) -> TickerReading:
    """Judge every thread, then every arena."""
    judgements = judge_threads(context, tsds, background, has_stats)
    time = read_decay_clock(context, decays)
    percpu = has_percpu_arenas(context)
    pairs = list(zip(tsds.records, judgements))
    drivers = [_find_drivers(pairs, one.arena.index, tsds.complete, background, percpu) for one in decays]
    outlooks = [judge_arena(one, who, time) for one, who in zip(decays, drivers)]
    return TickerReading(tsds, judgements, decays, time, outlooks, drivers)


def has_percpu_arenas(context: JemallocContext) -> bool:
    """opt.percpu_arena is on: threads change arenas."""
    enabled = context.types.enumerator("percpu_arena_mode_enabled_base") or PERCPU_ENABLED
    return (context.variable("opt_percpu_arena", 4) or 0) >= enabled


def _find_drivers(
    pairs: Sequence[Tuple[Tsd, TickerJudgement]], index: int, complete: bool, background: BackgroundState, percpu: bool
) -> ArenaDrivers:
    using = [(tsd, judgement) for tsd, judgement in pairs if tsd.is_nominal]
    bound = [judgement for tsd, judgement in using if percpu or tsd.arena_index == index]
    healthy = [judgement for judgement in bound if drives_decay(judgement)]
    others = sum(drives_decay(judgement) for _, judgement in using) - len(healthy)
    state = None
    if background.enabled:
        serving = background.of_arena(index)
        state = serving.state if serving is not None and serving.state is not None else "started" if background.named else "none"
    return ArenaDrivers(
        threads=len(bound),
        healthy=len(healthy),
        blind=sum(judgement.verdict == BLIND for judgement in bound),
        unknown=sum(judgement.verdict == UNKNOWN for judgement in bound),
        others_healthy=others,
        all_known=complete,
        background=state,
        percpu=percpu,
    )


def drives_decay(judgement: TickerJudgement) -> bool:
    """A thread in a nominal state with this judgement drives decay: it ticks, or the build has no such bug."""
    return judgement.verdict == TICKING or judgement.row < 0


def count_blind_by_arena(seen: TickerReading) -> Dict[int, Optional[int]]:
    """Arena index -> blind threads bound to it; None where it is unknown of one whether it is blind."""
    counts: Dict[int, Optional[int]] = {}
    for tsd, judgement in zip(seen.tsds.records, seen.judgements):
        if tsd.arena_index is not None and judgement.verdict in (BLIND, UNKNOWN):
            before = counts.get(tsd.arena_index, 0)
            counts[tsd.arena_index] = before + 1 if before is not None and judgement.verdict == BLIND else None
    return counts


def make_ticker_report(context: JemallocContext, seen: TickerReading) -> TickerReport:
    """The rows of `tickers`."""
    name = context.jemalloc.id
    affected = has_ticker_bug(context.types, context.jemalloc.version)
    threads = [_make_ticker_thread(name, tsd, judgement, affected) for tsd, judgement in zip(seen.tsds.records, seen.judgements)]
    page, complete = context.geometry.page_bytes, seen.tsds.complete
    held = sum_held_bytes(context, [one.arena for one in seen.decays])
    costly = COSTLY_BYTES if held is None else min(COSTLY_BYTES, held // COSTLY_SHARE)
    arenas = [
        _make_ticker_arena(name, one, who, view, page, complete, costly) for one, who, view in zip(seen.decays, seen.drivers, seen.outlooks)
    ]
    return TickerReport(affected, threads, arenas, list_ticker_advice(threads, arenas, context.symbols.public_names))


def _make_ticker_thread(name: str, tsd: Tsd, judgement: TickerJudgement, affected: bool) -> TickerThread:
    counted = bool(tsd.thread_allocated_bytes or tsd.thread_deallocated_bytes) or not affected
    return TickerThread(
        allocator=name,
        lwp=tsd.lwp,
        name=tsd.thread.name if tsd.thread is not None else None,
        tsd=TargetAddress(tsd.address) if tsd.address is not None else None,
        state=tsd.state,
        verdict=judgement.verdict,
        row=judgement.row if judgement.row >= 0 else None,
        why=judgement.why,
        hint=judgement.hint,
        arena=tsd.arena_index,
        ticks_left=tsd.ticker.tick if tsd.ticker is not None else None,
        allocated_bytes=tsd.thread_allocated_bytes if counted else None,
        deallocated_bytes=tsd.thread_deallocated_bytes if counted else None,
    )


def _make_ticker_arena(
    name: str, decays: ArenaDecay, who: ArenaDrivers, view: PurgeOutlook, page: int, complete: bool, costly: int
) -> TickerArena:
    return TickerArena(
        allocator=name,
        index=decays.arena.index,
        address=TargetAddress(decays.arena.address),
        kind=decays.arena.kind,
        verdict=view.verdict,
        why=view.why,
        can_purge=view.can_purge,
        threads=who.threads if complete else None,
        healthy_threads=who.healthy,
        blind_threads=who.blind,
        unknown_threads=who.unknown,
        background_thread=who.background,
        dirty_bytes=_pages_to_bytes(decays.dirty.pages, page),
        muzzy_bytes=_pages_to_bytes(decays.muzzy.pages, page),
        dirty_decay_ms=decays.dirty.time_ms,
        muzzy_decay_ms=decays.muzzy.time_ms,
        sweeps=decays.dirty.sweeps,
        late_ms=None if view.late_ms is None else round(view.late_ms, 3),
        evidence=view.evidence,
        costs_memory=view.verdict == UNPURGED or (view.verdict == DEGRADED and _is_long_overdue(decays, view, costly // page)),
    )


def _is_long_overdue(decays: ArenaDecay, view: PurgeOutlook, costly_pages: int) -> bool:
    """Its healthy threads may still purge it, and did not in twice the time that the program allows: that much memory it costs now."""
    kept, allowed_ms = (decays.dirty.pages or 0) + (decays.muzzy.pages or 0), decays.dirty.time_ms
    return (view.late_ms or 0) > OVERDUE_TIMES * (allowed_ms or 0) and kept > costly_pages


def _pages_to_bytes(pages: Optional[int], page: int) -> Optional[int]:
    return None if pages is None else pages * page


CURE, PURGE = "cure", "purge"
"""Codes of advice to change the process: the capability that does it, which may be refused."""


def list_ticker_advice(threads: Sequence[TickerThread], arenas: Sequence[TickerArena], names: PublicNames) -> List[Finding]:
    """List what helps against blind threads, in the build's own names."""
    blind = [row for row in threads if row.verdict == BLIND]
    at_risk = [row for row in threads if row.verdict == AT_RISK]
    if not blind and not at_risk:
        return []
    made: List[Finding] = []

    def add_finding(what: str, evidence: str, hint: Optional[str] = None, code: Optional[str] = None) -> None:
        made.append(Finding(what, evidence, hint, code))

    theirs = [row for row in arenas if row.blind_threads]
    if all(row.verdict in QUIET_VERDICTS for row in theirs) and not any(row.unknown_threads for row in arenas):
        where = ", ".join(dict.fromkeys(row.why for row in theirs)) or "they are bound to no arena yet"
        of_arenas = " of %s" % list_names("arena", [row.index for row in theirs]) if theirs else ""
        add_finding("no harm now: no pages%s stay because of blind threads" % of_arenas, where)
    add_finding("upgrade to jemalloc 5.3.0 or later", "there the ticker is part of each thread's tsd")
    count = len(blind) + len(at_risk)
    late = "too late for the %s blind or at risk now" % (count_noun(count, "thread") + (" that is" if count == 1 else " that are"))
    add_finding("make each thread allocate before it frees: free(malloc(1)) through a volatile pointer as its first call", late)
    if any(row.background_thread is None for row in arenas):
        ways = (names.setting(BACKGROUND.value), names.call('"background_thread"'))
        hint = "%s at the next start, or %s in the running process" % ways
        add_finding("turn background threads on", "they purge whatever the program's threads do", hint)
    if any(row.dirty_decay_ms for row in arenas):
        add_finding(names.setting("dirty_decay_ms:0"), "unused pages are returned at once, at the cost of a system call each time")
    holding = [row for row in theirs if row.verdict in (UNPURGED, DEGRADED) and row.unused_bytes]
    if holding:
        kept = make_sentence("%s of unused pages are kept there", SentenceSize(sum(row.unused_bytes for row in holding)))
        add_finding(
            "purge now: %s" % list_names("arena", [row.index for row in holding]), kept, "purge --arena %d" % holding[0].index, PURGE
        )
    if blind:
        add_finding("cure the blind threads", "one byte in each thread's tsd is reset", "tickers --cure", CURE)
    return made


# ---------------------------------------------------------------------------------------------------- decay


def make_decay_rows(context: JemallocContext, seen: TickerReading) -> List[DecayRow]:
    """Two rows for each arena."""
    page = context.geometry.page_bytes
    return [
        _make_decay_row(context.jemalloc.id, one, decay, view, seen.time, page)
        for one, view in zip(seen.decays, seen.outlooks)
        for decay in one.both
    ]


def _make_decay_row(name: str, decays: ArenaDecay, decay: DecayState, view: PurgeOutlook, time: DecayClock, page: int) -> DecayRow:
    gradual = (decay.time_ms or 0) > 0

    def in_ms(value: Optional[int]) -> Optional[float]:
        return round(value / 1e6, 3) if value is not None and gradual else None

    own = _judge_state(decay, view)
    return DecayRow(
        allocator=name,
        arena=decays.arena.index,
        kind=decays.arena.kind,
        state=decay.state,
        decay_ms=decay.time_ms,
        pages=decay.pages,
        bytes=_pages_to_bytes(decay.pages, page),
        sweeps=decay.sweeps,
        madvises=decay.madvises,
        purged_pages=decay.purged_pages,
        limit_pages=decay.limit_pages if gradual else None,
        nunpurged_pages=decay.nunpurged_pages if gradual else None,
        interval_ms=in_ms(decay.interval_ns),
        epoch_ms=in_ms(decay.epoch_ns),
        deadline_ms=in_ms(decay.deadline_ns),
        late_ms=in_ms(measure_overdue_ns(decay, time)),
        driven=own.verdict,
        why=own.why,
    )


def _judge_state(decay: DecayState, view: PurgeOutlook) -> PurgeOutlook:
    """The arena's outlook rests on its dirty pages; muzzy ones may have another decay time."""
    if decay.state == "dirty" or decay.time_ms is None:
        return view
    if decay.time_ms == 0:
        return view._replace(verdict=AT_ONCE, why="dirty pages skip this state: they are returned to the OS directly")
    if decay.time_ms < 0:
        why = "muzzy_decay_ms is -1: muzzy pages stay until an explicit purge, or until the kernel takes them"
        return view._replace(verdict=NEVER, why=why)
    return view
