"""Who can still purge each arena: its threads' tickers, a background thread, or nobody."""

from typing import NamedTuple, Optional, Tuple

from gdbheapx.jemalloc.purging.decay import ArenaDecay, Now, overdue_ns
from gdbheapx.units import number, plural

PURGED, IDLE, DEGRADED, UNPURGED = "purged", "idle", "degraded", "unpurged"
AT_ONCE, NEVER, NO_THREADS, UNKNOWN = "at-once", "never", "no-threads", "unknown"
QUIET = (PURGED, AT_ONCE, NEVER)
"""Verdicts that need no evidence: nobody fails to do what he should."""
Told = Tuple[str, str, Optional[bool]]
"""verdict, why, can_purge of Outlook."""

LATE_INTERVALS = 20
"""An arena that is driven is looked after at least once an interval (a 200th of the decay time) or two, while its threads work."""


class Drivers(NamedTuple):
    """Who is there to drive one arena's decay."""

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


class Outlook(NamedTuple):
    """What will become of the arena's unused pages."""

    verdict: str
    why: str
    can_purge: Optional[bool]
    """Somebody can purge it without a call made for that; None if it is not known."""
    late_ms: Optional[float]
    """How long ago the dirty pages' interval should have ended; None if it is not known or they do not decay gradually."""
    evidence: Optional[str]
    """What in the arena itself shows that nobody drives it; None if nothing does."""


def outlook(decays: ArenaDecay, drivers: Drivers, time: Now) -> Outlook:
    """The verdict on one arena.

    It never rests on how many pages are dirty: an idle process keeps them too. `unpurged` needs both that none of its threads can
    tick and, as other threads may tick for it, a sign in the arena that none does.
    """
    late = overdue_ns(decays.dirty, time)
    signs = evidence(decays, late, time)
    verdict, why, can_purge = _verdict(decays.dirty.time_ms, drivers, signs)
    return Outlook(verdict, why, can_purge, None if late is None else late / 1e6, None if verdict in QUIET else signs)


def _verdict(decay_ms: Optional[int], drivers: Drivers, signs: Optional[str]) -> Told:
    if decay_ms == 0:
        return AT_ONCE, "pages are returned as soon as they become unused", True
    if decay_ms is not None and decay_ms < 0:
        return NEVER, "dirty_decay_ms is -1: unused pages stay until an explicit purge", False
    return (_by_threads if drivers.background is None else _by_background)(drivers, signs)


def evidence(decays: ArenaDecay, late: Optional[int], time: Now) -> Optional[str]:
    """What shows that nobody has driven the decay of this arena's pages; None if nothing does, or it has none."""
    dirty, interval = decays.dirty, decays.dirty.interval_ns
    if not dirty.pages or not interval:
        return None
    never_swept = dirty.sweeps == 0
    if late is not None and late > LATE_INTERVALS * interval:
        since = "its decay is overdue by %.0f ms%s" % (late / 1e6, "" if time.exact else " or more")
        never = decays.create_ns is not None and dirty.epoch_ns is not None and dirty.epoch_ns - decays.create_ns < interval
        return since + (", and has never run since the arena was made" if never or never_swept else "")
    if never_swept and not time.exact:
        return "%s, and none was ever purged" % plural(dirty.pages, "dirty page")
    return None


def _by_background(drivers: Drivers, signs: Optional[str]) -> Told:
    """With background threads on, ticks of other threads do not purge (arena_decay_epoch_advance, PAC_PURGE_NEVER from 5.3)."""
    if drivers.background == "started":
        return PURGED, "a background thread purges it", True
    if drivers.background == "paused":
        return UNKNOWN, "its background thread is paused, as during arena.<i>.reset", None
    why = "background threads are on but none runs for this arena%s, and no other thread purges then"
    return (DEGRADED, why % " yet", None) if signs is None else (UNPURGED, "%s; %s" % (why % "", signs), False)


def _by_threads(drivers: Drivers, signs: Optional[str]) -> Told:
    """Ticks drive it: of its own threads, and of others that free into it."""
    helped = bool(drivers.others_healthy)
    if drivers.healthy:
        return _with_healthy(drivers, signs)
    if drivers.unknown or (not drivers.threads and not drivers.all_known):
        return UNKNOWN, "cannot determine the state of every thread", None
    if not drivers.threads:
        why = "no thread is bound to it: its pages stay until a ticking thread frees into it"
        return NO_THREADS, why if helped else "no thread is bound to it, and no other thread ticks", helped
    bound = "all its %s are blind" % plural(drivers.threads, "thread") if drivers.threads > 1 else "its only thread is blind"
    if not drivers.blind:
        return UNKNOWN, "none of its threads is known to tick", None
    if signs is not None:
        return UNPURGED, "%s; %s" % (bound, signs), False
    if not helped and drivers.all_known:
        return UNPURGED, "%s, and no other thread of the process ticks" % bound, False
    return DEGRADED, "%s: it is purged only when threads of other arenas free into it" % bound, True


def _with_healthy(drivers: Drivers, signs: Optional[str]) -> Told:
    """At least one of its threads ticks."""
    hops = " (percpu_arena: threads change arenas)" if drivers.percpu else ""
    if drivers.blind:
        late = "; %s: the others do too little work" % signs if signs is not None else ""
        blind = "%s of its %s are blind" % (number(drivers.blind), plural(drivers.threads, "thread"))
        why = "%s: only the work of the others purges it%s%s" % (blind, late, hops)
        return DEGRADED, why, True
    if signs is not None:
        return IDLE, "%s: its threads can purge it, but are idle or do too little to tick%s" % (signs, hops), True
    return PURGED, "its threads purge it while they work%s" % hops, True
