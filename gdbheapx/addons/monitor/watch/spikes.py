"""Spikes: RSS rises and falls again. How high they are, how often they come, and whose memory they were, as far as samples show.

A spike is over once half of its height is gone. Growth that stays is none, whatever its size.
"""

from collections import deque
from typing import Deque, List, NamedTuple, Optional, Tuple

from gdbheapx.addons.monitor.watch.samples import Sample
from gdbheapx.addons.monitor.watch.series import LEAST_SWING_BYTES

LEAST_HEIGHT_PERCENT = 5
"""Of the RSS below it: less is no spike."""
MOST_KEPT = 64
"""Spikes that are kept; of older ones only their number."""
LEAST_PERIOD_SAMPLES = 3
"""A period is reported where so many samples lie between two spikes: of a faster one, samples see only some."""
LEAST_FOR_PERIOD = 3
ALLOCATORS, MAPPINGS, TOUCHED, FILES, MIXED = "allocators", "mappings", "touched", "files", "mixed"
"""Whose memory most of a spike was. `mappings`: address space that came and went outside the allocators. `touched`: it was mapped
before, and came into RAM. `files`: of files, or shared."""


class Spike(NamedTuple):
    """Rise of RSS that fell again."""

    at_s: float
    """When half of it was gone, in seconds since the first sample."""
    bytes: int
    """Above the higher of the low points before and after it."""
    whose: Optional[str]
    """None: the counters do not show it."""


class Spikes(NamedTuple):
    """Summary of all spikes of a watch."""

    number: int
    bytes: int
    """The median height of those that are kept."""
    largest_bytes: int
    period_s: Optional[float]
    """Between two of them; None where they come at no regular time, or faster than samples can show."""
    whose: Optional[str]
    """None: the counters do not show it."""


class SpikeFinder:
    """Takes samples, and keeps a fixed amount of them."""

    def __init__(self) -> None:
        self._kept: Deque[Spike] = deque(maxlen=MOST_KEPT)
        self.count = 0
        self._first: Optional[Sample] = None
        """It may lie anywhere on a slope: no low point."""
        self._low: Optional[Sample] = None
        self._top: Optional[Sample] = None
        """None: it is not far enough above the low point."""
        self._over: Optional[Tuple[Sample, Sample, float]] = None
        """Low point, top and end of the last spike: how far it falls is not known before it rises again."""
        self._last_s: Optional[float] = None
        self._spaces: Deque[float] = deque(maxlen=MOST_KEPT)
        """Between samples."""

    def add(self, sample: Sample) -> None:
        """Take one more sample."""
        rss = sample.counters.resident_bytes
        if self._last_s is not None:
            self._spaces.append(sample.elapsed_s - self._last_s)
        self._last_s = sample.elapsed_s
        if self._low is None:
            self._first = self._low = sample
            return
        low = self._low.counters.resident_bytes
        if self._top is None and rss <= low:
            self._low = sample
        elif self._top is None and rss - low >= _least_height(low):
            self._settle_last_spike()
            self._top = sample
        elif self._top is not None and rss > self._top.counters.resident_bytes:
            self._top = sample
        elif self._top is not None and 2 * (self._top.counters.resident_bytes - rss) >= self._top.counters.resident_bytes - low:
            self._over = self._low, self._top, sample.elapsed_s
            self.count += 1
            self._low, self._top = sample, None

    def _settle_last_spike(self) -> None:
        """The last spike: the low point after it is known."""
        if self._over is not None:
            self._kept.append(self._make_spike(*self._over))
            self._over = None

    def _make_spike(self, low: Sample, top: Sample, end_s: float) -> Spike:
        after = self._low or low
        base = after if low is self._first or after.counters.resident_bytes > low.counters.resident_bytes else low
        height = top.counters.resident_bytes - base.counters.resident_bytes
        return Spike(end_s, height, _whose_of(low, top, after, height))

    def kept(self) -> List[Spike]:
        """The last ones, in their order."""
        return [*self._kept, self._make_spike(*self._over)] if self._over is not None else list(self._kept)

    def spikes(self) -> Optional[Spikes]:
        """Return the summary of the spikes; None if there were none."""
        kept = self.kept()
        if not kept:
            return None
        sizes = sorted(spike.bytes for spike in kept)
        whose = [spike.whose for spike in kept if spike.whose is not None]
        most = max(sorted(set(whose)), key=whose.count) if whose else None
        agreed = most if most is not None and 4 * whose.count(most) >= 3 * len(whose) else MIXED if whose else None
        return Spikes(self.count, sizes[len(sizes) // 2], sizes[-1], self._find_period([spike.at_s for spike in kept]), agreed)

    def _find_period(self, times: List[float]) -> Optional[float]:
        """Return the seconds between two spikes, if they are nearly constant and long enough for samples to see every spike; None
        otherwise.
        """
        between = sorted(after - before for before, after in zip(times, times[1:]))
        if len(between) < LEAST_FOR_PERIOD - 1:
            return None
        space = sorted(self._spaces)[len(self._spaces) // 2]
        middle = between[len(between) // 2]
        slack = max(0.25 * middle, 2 * space)
        is_regular = sum(abs(one - middle) <= slack for one in between) * 4 >= 3 * len(between)
        mean = (times[-1] - times[0]) / len(between)
        return round(mean, 1) if is_regular and middle >= LEAST_PERIOD_SAMPLES * space and abs(mean - middle) <= slack else None


def _least_height(low_bytes: int) -> int:
    return max(LEAST_SWING_BYTES, low_bytes * LEAST_HEIGHT_PERCENT // 100)


def _whose_of(low: Sample, top: Sample, after: Sample, height: int) -> Optional[str]:
    """Return the owner of a spike by comparing its top with both sides: a counter may have risen again already when the sample after the
    spike was taken.
    """
    sides = [_find_owner(base, top, height) for base in (low, after)]
    return next((whose for whose in (ALLOCATORS, MAPPINGS) if whose in sides), sides[0])


def _find_owner(base: Sample, top: Sample, height: int) -> Optional[str]:
    """Return which counters show at least half of the height; None if they do not decide it."""
    if 2 * (top.counters.anonymous_bytes - base.counters.anonymous_bytes) < height:
        return FILES
    held = _count_more(base.held_bytes, top.held_bytes)
    if 2 * max(held or 0, _count_more(base.used_bytes, top.used_bytes) or 0) >= height:
        return ALLOCATORS
    mapped = _count_more(base.counters.virtual_bytes, top.counters.virtual_bytes)
    if held is None or mapped is None:
        return None
    return MAPPINGS if 2 * (mapped - max(0, held)) >= height else TOUCHED


def _count_more(before: Optional[int], after: Optional[int]) -> Optional[int]:
    return after - before if before is not None and after is not None else None
