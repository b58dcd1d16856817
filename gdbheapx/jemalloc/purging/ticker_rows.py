"""From tsds, tickers and decay to the rows of `tickers` and `decay`."""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.measured import BACKGROUND
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.heap.arenas import held_bytes
from gdbheapx.jemalloc.purging import tickers
from gdbheapx.jemalloc.purging.background import Background
from gdbheapx.jemalloc.purging.decay import ArenaDecay, Decay, Now, now, overdue_ns
from gdbheapx.jemalloc.purging.outlook import AT_ONCE, DEGRADED, NEVER, QUIET, UNPURGED, Drivers, Outlook, outlook
from gdbheapx.jemalloc.purging.tickers import AT_RISK, BLIND, UNKNOWN, Judgement
from gdbheapx.jemalloc.records import DecayRow, PublicNames, TickerArena, TickerReport, TickerThread
from gdbheapx.jemalloc.threads.tsd import Tsd, Tsds
from gdbheapx.model import Address, Finding
from gdbheapx.units import Size, named, plural, say

OVERDUE_TIMES, COSTLY_BYTES, COSTLY_SHARE = 2, 1 << 20, 100
"""From when on an arena that some of its threads could purge is a finding all the same: times of its decay time, and unused bytes, so many
or one in COSTLY_SHARE of what jemalloc holds, whichever is less."""
PERCPU_ENABLED = 3
"""percpu_arena_mode_enabled_base, in every release of 5."""


class TickerReading(NamedTuple):
    """Everything that was read, once."""

    tsds: Tsds
    judgements: Sequence[Judgement]
    """One for each of tsds.records."""
    decays: Sequence[ArenaDecay]
    time: Now
    outlooks: Sequence[Outlook]
    """One for each of decays."""
    drivers: Sequence[Drivers]


def look(context: Context, tsds: Tsds, decays: Sequence[ArenaDecay], background: Background, has_stats: Optional[bool]) -> TickerReading:
    """Judge every thread, then every arena."""
    judgements = tickers.judge_all(context, tsds, background, has_stats)
    time = now(context, decays)
    percpu = arenas_are_of_processors(context)
    pairs = list(zip(tsds.records, judgements))
    drivers = [_drivers(pairs, one.arena.index, tsds.complete, background, percpu) for one in decays]
    outlooks = [outlook(one, who, time) for one, who in zip(decays, drivers)]
    return TickerReading(tsds, judgements, decays, time, outlooks, drivers)


def arenas_are_of_processors(context: Context) -> bool:
    """opt.percpu_arena is on: threads change arenas."""
    enabled = context.types.enumerator("percpu_arena_mode_enabled_base") or PERCPU_ENABLED
    return (context.variable("opt_percpu_arena", 4) or 0) >= enabled


def _drivers(pairs: Sequence[Tuple[Tsd, Judgement]], index: int, complete: bool, background: Background, percpu: bool) -> Drivers:
    using = [(tsd, judgement) for tsd, judgement in pairs if tsd.is_nominal]
    bound = [judgement for tsd, judgement in using if percpu or tsd.arena_index == index]
    healthy = [judgement for judgement in bound if ticks(judgement)]
    others = sum(ticks(judgement) for _, judgement in using) - len(healthy)
    state = None
    if background.enabled:
        serving = background.of_arena(index)
        state = serving.state if serving is not None and serving.state is not None else "started" if background.named else "none"
    return Drivers(
        threads=len(bound),
        healthy=len(healthy),
        blind=sum(judgement.verdict == BLIND for judgement in bound),
        unknown=sum(judgement.verdict == UNKNOWN for judgement in bound),
        others_healthy=others,
        all_known=complete,
        background=state,
        percpu=percpu,
    )


def ticks(judgement: Judgement) -> bool:
    """A thread in a nominal state with this judgement drives decay: it ticks, or the build has no such bug."""
    return judgement.verdict == tickers.TICKING or judgement.row < 0


def blind_by_arena(seen: TickerReading) -> Dict[int, Optional[int]]:
    """Arena index -> blind threads bound to it; None where it is unknown of one whether it is blind."""
    counts: Dict[int, Optional[int]] = {}
    for tsd, judgement in zip(seen.tsds.records, seen.judgements):
        if tsd.arena_index is not None and judgement.verdict in (BLIND, UNKNOWN):
            before = counts.get(tsd.arena_index, 0)
            counts[tsd.arena_index] = before + 1 if before is not None and judgement.verdict == BLIND else None
    return counts


def ticker_report(context: Context, seen: TickerReading) -> TickerReport:
    """The rows of `tickers`."""
    name = context.jemalloc.id
    affected = layouts.has_ticker_bug(context.types, context.jemalloc.version)
    threads = [_thread(name, tsd, judgement, affected) for tsd, judgement in zip(seen.tsds.records, seen.judgements)]
    page, complete = context.geometry.page_bytes, seen.tsds.complete
    held = held_bytes(context, [one.arena for one in seen.decays])
    costly = COSTLY_BYTES if held is None else min(COSTLY_BYTES, held // COSTLY_SHARE)
    arenas = [_arena(name, one, who, view, page, complete, costly) for one, who, view in zip(seen.decays, seen.drivers, seen.outlooks)]
    return TickerReport(affected, threads, arenas, advice(threads, arenas, context.symbols.public_names))


def _thread(name: str, tsd: Tsd, judgement: Judgement, affected: bool) -> TickerThread:
    counted = bool(tsd.thread_allocated_bytes or tsd.thread_deallocated_bytes) or not affected
    return TickerThread(
        allocator=name,
        lwp=tsd.lwp,
        name=tsd.thread.name if tsd.thread is not None else None,
        tsd=Address(tsd.address) if tsd.address is not None else None,
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


def _arena(name: str, decays: ArenaDecay, who: Drivers, view: Outlook, page: int, complete: bool, costly: int) -> TickerArena:
    return TickerArena(
        allocator=name,
        index=decays.arena.index,
        address=Address(decays.arena.address),
        kind=decays.arena.kind,
        verdict=view.verdict,
        why=view.why,
        can_purge=view.can_purge,
        threads=who.threads if complete else None,
        healthy_threads=who.healthy,
        blind_threads=who.blind,
        unknown_threads=who.unknown,
        background_thread=who.background,
        dirty_bytes=_times(decays.dirty.pages, page),
        muzzy_bytes=_times(decays.muzzy.pages, page),
        dirty_decay_ms=decays.dirty.time_ms,
        muzzy_decay_ms=decays.muzzy.time_ms,
        sweeps=decays.dirty.sweeps,
        late_ms=None if view.late_ms is None else round(view.late_ms, 3),
        evidence=view.evidence,
        costs_memory=view.verdict == UNPURGED or (view.verdict == DEGRADED and _is_long_overdue(decays, view, costly // page)),
    )


def _is_long_overdue(decays: ArenaDecay, view: Outlook, costly_pages: int) -> bool:
    """Its healthy threads may still purge it, and did not in twice the time that the program allows: that much memory it costs now."""
    kept, allowed_ms = (decays.dirty.pages or 0) + (decays.muzzy.pages or 0), decays.dirty.time_ms
    return (view.late_ms or 0) > OVERDUE_TIMES * (allowed_ms or 0) and kept > costly_pages


def _times(pages: Optional[int], page: int) -> Optional[int]:
    return None if pages is None else pages * page


CURE, PURGE = "cure", "purge"
"""Codes of advice to change the process: the capability that does it, which may be refused."""


def advice(threads: Sequence[TickerThread], arenas: Sequence[TickerArena], names: PublicNames) -> List[Finding]:
    """What helps where threads are blind or will be, in the build's own names."""
    blind = [row for row in threads if row.verdict == BLIND]
    at_risk = [row for row in threads if row.verdict == AT_RISK]
    if not blind and not at_risk:
        return []
    made: List[Finding] = []

    def add(what: str, evidence: str, hint: Optional[str] = None, code: Optional[str] = None) -> None:
        made.append(Finding(what, evidence, hint, code))

    theirs = [row for row in arenas if row.blind_threads]
    if all(row.verdict in QUIET for row in theirs) and not any(row.unknown_threads for row in arenas):
        where = ", ".join(dict.fromkeys(row.why for row in theirs)) or "they are bound to no arena yet"
        of_arenas = " of %s" % named("arena", [row.index for row in theirs]) if theirs else ""
        add("no harm now: no pages%s stay because of blind threads" % of_arenas, where)
    add("upgrade to jemalloc 5.3.0 or later", "there the ticker is part of each thread's tsd")
    count = len(blind) + len(at_risk)
    late = "too late for the %s blind or at risk now" % (plural(count, "thread") + (" that is" if count == 1 else " that are"))
    add("make each thread allocate before it frees: free(malloc(1)) through a volatile pointer as its first call", late)
    if any(row.background_thread is None for row in arenas):
        ways = (names.setting(BACKGROUND.value), names.call('"background_thread"'))
        hint = "%s at the next start, or %s in the running process" % ways
        add("turn background threads on", "they purge whatever the program's threads do", hint)
    if any(row.dirty_decay_ms for row in arenas):
        add(names.setting("dirty_decay_ms:0"), "unused pages are returned at once, at the cost of a system call each time")
    holding = [row for row in theirs if row.verdict in (UNPURGED, DEGRADED) and row.unused_bytes]
    if holding:
        kept = say("%s of unused pages are kept there", Size(sum(row.unused_bytes for row in holding)))
        add("purge now: %s" % named("arena", [row.index for row in holding]), kept, "purge --arena %d" % holding[0].index, PURGE)
    if blind:
        add("cure the blind threads", "one byte in each thread's tsd is reset", "tickers --cure", CURE)
    return made


# ---------------------------------------------------------------------------------------------------- decay


def decay_rows(context: Context, seen: TickerReading) -> List[DecayRow]:
    """Two rows for each arena."""
    page = context.geometry.page_bytes
    return [
        _decay(context.jemalloc.id, one, decay, view, seen.time, page)
        for one, view in zip(seen.decays, seen.outlooks)
        for decay in one.both
    ]


def _decay(name: str, decays: ArenaDecay, decay: Decay, view: Outlook, time: Now, page: int) -> DecayRow:
    gradual = (decay.time_ms or 0) > 0

    def in_ms(value: Optional[int]) -> Optional[float]:
        return round(value / 1e6, 3) if value is not None and gradual else None

    own = _of_state(decay, view)
    return DecayRow(
        allocator=name,
        arena=decays.arena.index,
        kind=decays.arena.kind,
        state=decay.state,
        decay_ms=decay.time_ms,
        pages=decay.pages,
        bytes=_times(decay.pages, page),
        sweeps=decay.sweeps,
        madvises=decay.madvises,
        purged_pages=decay.purged_pages,
        limit_pages=decay.limit_pages if gradual else None,
        nunpurged_pages=decay.nunpurged_pages if gradual else None,
        interval_ms=in_ms(decay.interval_ns),
        epoch_ms=in_ms(decay.epoch_ns),
        deadline_ms=in_ms(decay.deadline_ns),
        late_ms=in_ms(overdue_ns(decay, time)),
        driven=own.verdict,
        why=own.why,
    )


def _of_state(decay: Decay, view: Outlook) -> Outlook:
    """The arena's outlook rests on its dirty pages; muzzy ones may have another decay time."""
    if decay.state == "dirty" or decay.time_ms is None:
        return view
    if decay.time_ms == 0:
        return view._replace(verdict=AT_ONCE, why="dirty pages skip this state: they are returned to the OS directly")
    if decay.time_ms < 0:
        why = "muzzy_decay_ms is -1: muzzy pages stay until an explicit purge, or until the kernel takes them"
        return view._replace(verdict=NEVER, why=why)
    return view
