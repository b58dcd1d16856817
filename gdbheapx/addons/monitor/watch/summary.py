"""The loop of a watch, and what it has shown: growth per hour, whether it is in use or kept, what came back of what was returned."""

import time
from typing import Callable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from gdbheapx.addons.monitor.watch.samples import Sample, Sampler, Watched
from gdbheapx.addons.monitor.watch.trends import ReturnedStep, Series, SeriesChange, SpikeFinder, Spikes, Steps, Worth
from gdbheapx.common import verdict
from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import HeapxError

ENDED, EXECUTED, STOPPED, TIMES, OPEN = "process-ended", "other-program", "stopped", "times", "open"
"""Why it is over: the process ended, or runs another program; Ctrl-C, a signal or --max-seconds; --times. `open`: a file of samples has no
end, so that the watch goes on, or was killed."""

UNKNOWN, STEADY, SWINGS, SHRANK, IN_USE, RETURNED, KEPT, HELD, POOLS, TOUCHED, ELSEWHERE, GREW = (
    "too-short",
    "steady",
    "swings",
    "shrank",
    "grew-in-use",
    "returned-meanwhile",
    "grew-kept",
    "grew-in-allocator",
    "grew-in-runtime",
    "grew-touched",
    "grew-elsewhere",
    "grew",
)
"""What became of RSS. `swings`: it goes up and down by more than it grew or fell.
`returned-meanwhile`: it grew back after memory was returned to the OS. `grew-in-allocator`: it is not known whether
in use or kept. `grew-in-runtime`: in memory that a runtime cuts up itself, like CPython's arenas.
`grew-touched`: what the allocators held before, and was not in RAM then. `grew`: no allocator could be read."""
VERDICT_KINDS = {
    UNKNOWN: verdict.INCONCLUSIVE,
    KEPT: verdict.KEPT,
    **dict.fromkeys((IN_USE, HELD, POOLS, ELSEWHERE, GREW), verdict.GROWING),
    **dict.fromkeys((STEADY, SWINGS, SHRANK, RETURNED, TOUCHED), verdict.IN_USE),
}
"""The kind of verdict, as of `report`, by code."""
MOSTLY_KEPT_PERCENT, LEAST_KEPT_BYTES = 50, 10 << 20
"""Of anonymous memory: from here on what is kept in RAM is worth a word, though it does not grow."""
NAP_S = 0.2
"""How soon Ctrl-C is heeded."""


class PoolGrowth(NamedTuple):
    """Memory of a runtime that grew."""

    name: str
    """As in the split of `report`: `CPython: object arenas (obmalloc)`."""
    bytes: int
    """At least: what allocators grew by meanwhile may lie in the same mappings, and is taken off."""

    @property
    def program(self) -> str:
        """The runtime."""
        return self.name.partition(": ")[0]


class Summary(NamedTuple):
    """Summary of a whole watch."""

    why: str
    samples: int
    missed: int
    """Samples that were not taken in time."""
    first: Sample
    last: Sample
    rss: Optional[SeriesChange]
    used: Optional[SeriesChange]
    kept: Optional[SeriesChange]
    held: Optional[SeriesChange]
    code: str
    kept_resident_bytes: Optional[int]
    """At most so much of what is kept is in RAM: no more than there is anonymous memory. What is in use need not be in RAM."""
    is_mostly_kept: bool
    """Most of the memory in RAM may be kept, not in use."""
    returns_by: Sequence[str]
    """The command that says what would be returned of the allocator that keeps most; empty where it has none."""
    steps: int
    last_steps: Sequence[ReturnedStep]
    worth: Optional[Worth]
    undecided_bytes: int = 0
    """What went out of RAM, and it is not known whether the program freed it."""
    spikes: Optional[Spikes] = None
    peak_bytes: Optional[int] = None
    """The highest RSS that the kernel saw (VmHWM), also between samples and before the watch."""
    seen_peak_bytes: int = 0
    """The highest of the samples."""
    pool: Optional[PoolGrowth] = None
    """The part of a runtime's memory that grew most; None: none did, or it is unknown."""


class History:
    """Everything that is kept of the samples: a fixed amount, however many there are."""

    def __init__(self, watched: Sequence[Watched]) -> None:
        self._watched = watched
        self.rss, self._used, self._kept, self._held = Series(), Series(), Series(), Series()
        self.steps, self.spikes = Steps(), SpikeFinder()
        self._count = 0
        self._first: Optional[Sample] = None
        self._last: Optional[Sample] = None
        self._in_use: Optional[Sample] = None
        """The last of which it is known what is in use."""
        self._first_pools: Optional[Sample] = None
        self._last_pools: Optional[Sample] = None

    def add(self, sample: Sample) -> Optional[ReturnedStep]:
        """Add one more sample; return the step that begins with it, if memory was returned."""
        self._count += 1
        self._first, self._last = self._first or sample, sample
        if sample.used_bytes is not None:
            self._in_use = sample
        if sample.pools is not None:
            self._first_pools, self._last_pools = self._first_pools or sample, sample
        self.rss.add(sample.elapsed_s, sample.counters.resident_bytes)
        self._used.add(sample.elapsed_s, sample.used_bytes)
        self._kept.add(sample.elapsed_s, sample.kept_bytes)
        self._held.add(sample.elapsed_s, sample.held_bytes)
        self.spikes.add(sample)
        return self.steps.add(sample)

    def summary(self, why: str, missed: int) -> Optional[Summary]:
        """Return the summary at the end; None if there was no sample."""
        if self._first is None or self._last is None:
            return None
        rss, used, kept, held = (series.change() for series in (self.rss, self._used, self._kept, self._held))
        known, pool = self._in_use, _pool_growth(self._first_pools, self._last_pools)
        # all anonymous memory may be the allocators': so much at least they hold, and is not in RAM
        untouched = max(0, (self._first.held_bytes or 0) - self._first.counters.anonymous_bytes)
        keepers = sorted(zip(self._watched, known.readings), key=lambda pair: -(pair[1].kept_bytes or 0)) if known is not None else []
        return Summary(
            why=why,
            samples=self._count,
            missed=missed,
            first=self._first,
            last=self._last if known is None or self._last.used_bytes is not None else self._last._replace(readings=known.readings),
            rss=rss,
            used=used,
            kept=kept,
            held=held,
            code=judge_growth(rss, used, kept, held, sum(step.back_bytes for step in self.steps.kept), untouched, pool),
            kept_resident_bytes=min(known.kept_bytes, known.counters.anonymous_bytes) if known and known.kept_bytes is not None else None,
            is_mostly_kept=known is not None and _mostly_kept(known),
            returns_by=[one.returns_by for one, _ in keepers[:1] if one.returns_by is not None],
            steps=self.steps.count,
            last_steps=list(self.steps.kept)[-3:],
            worth=self.steps.worth(),
            undecided_bytes=self.steps.undecided_bytes,
            spikes=self.spikes.spikes(),
            peak_bytes=self._last.counters.peak_bytes,
            seen_peak_bytes=self.rss.highest or 0,
            pool=pool,
        )


def judge_growth(
    rss: Optional[SeriesChange],
    used: Optional[SeriesChange],
    kept: Optional[SeriesChange],
    held: Optional[SeriesChange],
    back_bytes: int,
    untouched_bytes: int = 0,
    pool: Optional[PoolGrowth] = None,
) -> str:
    """Return the code of the verdict on RSS: at least half of its growth must be accounted for, by growth that is no swing. `back_bytes`:
    memory that came back meanwhile after it was returned to the OS; `untouched_bytes`: memory that allocators held at first and that was
    not in RAM.
    """
    if rss is None:
        return UNKNOWN
    if rss.is_noise:
        return SWINGS if rss.is_swinging else STEADY
    if not rss.is_lasting:
        return SWINGS
    if rss.drift < 0:
        return SHRANK
    half = rss.drift / 2
    if used is not None and used.lasting >= half:
        return IN_USE
    if back_bytes >= half:
        return RETURNED
    if kept is not None and kept.lasting >= half:
        return KEPT
    if held is not None and held.lasting >= half:
        return HELD
    beside = max(0, used.lasting) if used is not None else 0
    if pool is not None and pool.bytes + beside >= half:  # neither has half alone: the larger one leads
        return POOLS if pool.bytes >= beside else IN_USE
    if held is None:
        return GREW
    return TOUCHED if untouched_bytes >= half else ELSEWHERE


def _pool_growth(first: Optional[Sample], last: Optional[Sample]) -> Optional[PoolGrowth]:
    if first is None or last is None:
        return None
    held_bytes = max(0, (last.held_bytes or 0) - (first.held_bytes or 0))
    before: Mapping[str, int] = first.pools or {}
    parts = [PoolGrowth(name, size - before.get(name, 0) - held_bytes) for name, size in (last.pools or {}).items()]
    most = max(parts, key=lambda part: part.bytes, default=None)
    return most if most is not None and most.bytes > 0 else None


def _mostly_kept(sample: Sample) -> bool:
    """Even if all that is in use were in RAM, most of the anonymous memory would be something else, and so much is kept."""
    if sample.kept_bytes is None or sample.used_bytes is None:
        return False
    kept = min(sample.kept_bytes, sample.counters.anonymous_bytes - sample.used_bytes)
    return kept >= max(LEAST_KEPT_BYTES, sample.counters.anonymous_bytes * MOSTLY_KEPT_PERCENT // 100)


class Over(NamedTuple):
    """The last event."""

    why: str
    summary: Optional[Summary]


Event = Union[Sample, ReturnedStep, Over]


def watch_events(
    sampler: Sampler, history: History, every_s: float, times: Optional[int], budget: Budget, sleep: Callable[[float], None] = time.sleep
) -> Iterator[Event]:
    """Samples as they are taken, steps at which memory was returned, and one Over. A sample that is late is not made up for."""
    began, turn, taken, missed = time.monotonic(), 0, 0, 0
    why = TIMES
    while times is None or taken < times:
        if budget.expired():
            why = STOPPED
            break
        try:
            sample = sampler.sample()
        except HeapxError:
            if not sampler.session.target.has_ended():
                raise
            sample = None
        if sample is None:
            why = EXECUTED if sampler.runs_another_program else ENDED
            break
        taken += 1
        step = history.add(sample)
        yield sample
        if step is not None:
            yield step
        if taken == times:
            break
        turn += 1
        late = int((time.monotonic() - began) / every_s)
        if late >= turn:
            missed, turn = missed + late + 1 - turn, late + 1
        until = began + turn * every_s
        while not budget.expired() and (left := until - time.monotonic()) > 0:
            sleep(min(NAP_S, left))
    budget.heed()
    yield Over(why, history.summary(why, missed))
