"""Decay: how far each arena's unused pages are on their way back to the kernel (arena.c up to 5.2, decay.c and pac.c from 5.3)."""

from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap import arenas as arena_list
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.layout.view import View

STATES = ("dirty", "muzzy")
_STATS = ("stats.pa_shard_stats.pac_stats.decay_%s.", "stats.decay_%s.")
"""Counters, from 5.3.0 and before."""


class Decay(NamedTuple):
    """One arena's dirty or muzzy pages."""

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
    """One arena."""

    arena: Arena
    create_ns: Optional[int]
    dirty: Decay
    muzzy: Decay

    @property
    def both(self) -> Sequence[Decay]:
        """Dirty, then muzzy."""
        return (self.dirty, self.muzzy)


def read_decay(context: Context, listed: Sequence[Arena], has_stats: Optional[bool]) -> List[ArenaDecay]:
    """The decay state of every arena. Arenas that cannot be read are reported and left out."""
    decays = []
    for arena in listed:
        try:
            view = arena.read()
        except Unreadable as problem:
            what = "cannot read arena %d at 0x%x" % (arena.index, arena.address)
            context.report(codes.ARENA_UNREADABLE, problem.address, what, "its figures are missing here")
            continue
        dirty, muzzy = (_decay(view, state, has_stats) for state in STATES)
        decays.append(ArenaDecay(arena, view.get("create_time.ns"), dirty, muzzy))
    return decays


def _decay(view: View, state: str, has_stats: Optional[bool]) -> Decay:
    path = arena_list.decay_path(view, state) + "."

    def counter(name: str) -> Optional[int]:
        return view.get(*(stats % state + name for stats in _STATS)) if has_stats else None

    return Decay(
        state=state,
        time_ms=arena_list.decay_ms(view, state),
        pages=arena_list.pages(view, state),
        sweeps=counter("npurge"),
        madvises=counter("nmadvise"),
        purged_pages=counter("purged"),
        interval_ns=view.get(path + "interval.ns"),
        epoch_ns=view.get(path + "epoch.ns"),
        deadline_ns=view.get(path + "deadline.ns"),
        nunpurged_pages=view.get(path + "nunpurged"),
        limit_pages=view.get(path + "npages_limit"),
    )


class Now(NamedTuple):
    """The time to compare deadlines with."""

    ns: Optional[int]
    """CLOCK_MONOTONIC."""
    exact: bool
    """False: a core, where the latest time that jemalloc itself noted stands for it; it was later in truth."""


def now(context: Context, decays: Sequence[ArenaDecay]) -> Now:
    """A live process's clock; on a core a lower bound from its arenas' epochs."""
    noted = [time for one in decays for time in (one.create_ns, one.dirty.epoch_ns, one.muzzy.epoch_ns) if time]
    latest = max(noted) if noted else None
    clock = context.target.monotonic_ns()
    if clock is not None and clock >= (latest or 0):
        return Now(clock, True)
    return Now(latest, False)


def overdue_ns(decay: Decay, time: Now) -> Optional[int]:
    """How long ago the current interval should have ended; 0 if it runs; None if that is not known or there is no gradual decay."""
    if time.ns is None or decay.deadline_ns is None or (decay.time_ms or 0) <= 0:
        return None
    return max(0, time.ns - decay.deadline_ns) if decay.pages != 0 else 0  # nothing is late where there is nothing
