"""What samples show over time, in a fixed amount of memory. A figure: neighbours are averaged when there are too many.

Steps at which memory was returned to the OS (a trim, a purge), and what of it came back, when. RSS also falls when a program frees memory
that the allocator returns at once, when it unmaps memory of its own, and when pages go to swap. None of these is such a step: in the first
the memory in use falls with it, in the second more address space goes than the allocators gave up, in the third swap rises. Nor can an
allocator return more than it kept. What is gone and fits none of these, because what is in use was not known then, is counted as undecided.

Spikes: RSS rises and falls again. How high they are, how often they come, and whose memory they were, as far as samples show. A spike is
over once half of its height is gone. Growth that stays is none, whatever its size.
"""

from collections import deque
from typing import Deque, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.monitor.watch.samples import Sample, least_step

MOST_POINTS = 240
"""Kept of one figure, however long it is watched."""
HOUR_S = 3600.0
LEAST_SPAN_S, LEAST_SAMPLES = 10.0, 5
"""Below this nothing is said about growth."""
LEAST_BYTES, LEAST_PERCENT = 1 << 20, 1
"""A change below either is noise."""
LEAST_SWING_BYTES, LEAST_SWING_PERCENT = 10 << 20, 20
PART = 5
"""The first and the last of so many parts of the time are compared: a single sample does not decide."""


class SeriesChange(NamedTuple):
    """Change of a figure over the watch."""

    first: int
    """The first sample."""
    last: int
    """The last one."""
    drift: int
    """From the mean of the first fifth of the time to that of the last: one odd sample at either end changes little."""
    lowest: int
    highest: int
    bytes_per_hour: int
    """The slope of the straight line that fits best."""
    span_s: float
    lasting: int = 0
    """The part of the drift that swings do not explain: as far as the low points of both parts rose too, or the high ones fell."""

    @property
    def is_lasting(self) -> bool:
        """Most of the drift is no swing."""
        return 2 * abs(self.lasting) >= abs(self.drift)

    @property
    def sure_bytes_per_hour(self) -> Optional[int]:
        """Return the part of the rate that no swing explains: the lasting part of the drift, whose two ends are means of a part of the
        time each. None: too small to say anything, or mostly a swing.
        """
        if self.is_noise or not self.is_lasting:
            return None
        return round(self.lasting * HOUR_S / (self.span_s * (1 - 1 / PART)))

    @property
    def is_swinging(self) -> bool:
        """Return True if the figure goes up and down by enough to be worth a word."""
        return self.highest - self.lowest >= max(LEAST_SWING_BYTES, self.first * LEAST_SWING_PERCENT // 100)

    @property
    def is_noise(self) -> bool:
        """Too small to say anything."""
        return abs(self.drift) < max(LEAST_BYTES, self.first * LEAST_PERCENT // 100)


class Series:
    """Samples of one figure."""

    def __init__(self) -> None:
        self._points: List[Tuple[float, float]] = []
        self._each = 1
        self._open: Tuple[float, float, int] = (0.0, 0.0, 0)
        """Sums of the samples that are no point yet, and how many they are."""
        self.lowest: Optional[int] = None
        self.highest: Optional[int] = None
        self.count = 0
        self._first = self._last = 0

    def add(self, elapsed_s: float, value: Optional[int]) -> None:
        """Add one more sample; an unknown value leaves a gap."""
        if value is None:
            return
        self.count += 1
        self._first, self._last = value if self.count == 1 else self._first, value
        self.lowest = value if self.lowest is None else min(self.lowest, value)
        self.highest = value if self.highest is None else max(self.highest, value)
        time, sum_, number = self._open
        self._open = (time + elapsed_s, sum_ + value, number + 1)
        if self._open[2] >= self._each:
            self._close_point()

    def _close_point(self) -> None:
        time, sum_, number = self._open
        self._points.append((time / number, sum_ / number))
        self._open = (0.0, 0.0, 0)
        if len(self._points) >= MOST_POINTS:
            pairs = zip(self._points[::2], self._points[1::2])
            self._points = [((a + c) / 2, (b + d) / 2) for (a, b), (c, d) in pairs]
            self._each *= 2

    def points(self) -> Sequence[Tuple[float, float]]:
        """(elapsed seconds, value), at most MOST_POINTS."""
        time, sum_, number = self._open
        return [*self._points, (time / number, sum_ / number)] if number else list(self._points)

    def change(self) -> Optional[SeriesChange]:
        """Return the change so far; None for too few samples or too short a time."""
        points = self.points()
        if self.count < LEAST_SAMPLES or self.lowest is None or self.highest is None:
            return None
        span = points[-1][0] - points[0][0]
        if span < LEAST_SPAN_S:
            return None
        part = span / PART
        first = [value for time, value in points if time <= points[0][0] + part]
        last = [value for time, value in points if time >= points[-1][0] - part]
        slope = _fit_slope(points)
        drift = round(sum(last) / len(last)) - round(sum(first) / len(first))
        ends = self._first, self._last, drift, self.lowest, self.highest
        if drift > 0:  # growth that stays shows at the low points, a fall that stays at the high ones
            lasting = min(drift, max(0, round(min(last) - min(first))))
        else:
            lasting = max(drift, min(0, round(max(last) - max(first))))
        return SeriesChange(*ends, round(slope * HOUR_S), span, lasting)


def _fit_slope(points: Sequence[Tuple[float, float]]) -> float:
    """Least squares."""
    count = len(points)
    mean_time, mean_value = sum(time for time, _ in points) / count, sum(value for _, value in points) / count
    spread = sum((time - mean_time) ** 2 for time, _ in points)
    return sum((time - mean_time) * (value - mean_value) for time, value in points) / spread if spread else 0.0


class Spread(NamedTuple):
    """Sum and range of one figure in neighbouring samples, those in which it is known."""

    sum: int
    samples: int
    lowest: int
    highest: int

    @property
    def mean(self) -> int:
        """Return the mean of the samples."""
        return round(self.sum / self.samples)


class Point(NamedTuple):
    """Neighbouring samples, to be drawn as one."""

    elapsed_s: float
    """Of the first of them."""
    samples: int
    figures: Sequence[Optional[Spread]]
    """None: known in none of them."""


class Curves:
    """Several figures over the same time, for drawing: as `Series`, but what is unknown is a gap, and peaks are kept."""

    def __init__(self) -> None:
        self._points: List[Point] = []
        self._each = 1
        self._open: Optional[Point] = None
        """Samples that are no point yet."""

    def add(self, elapsed_s: float, values: Sequence[Optional[int]]) -> None:
        """Add one more sample, with the same number of values each time."""
        point = Point(elapsed_s, 1, [None if value is None else Spread(value, 1, value, value) for value in values])
        self._open = point if self._open is None else _merge_points(self._open, point)
        if self._open.samples < self._each:
            return
        self._points.append(self._open)
        self._open = None
        if len(self._points) >= MOST_POINTS:
            self._points = [_merge_points(before, other) for before, other in zip(self._points[::2], self._points[1::2])]
            self._each *= 2

    def points(self) -> Sequence[Point]:
        """Return the points in their order, at most MOST_POINTS."""
        return [*self._points, self._open] if self._open is not None else list(self._points)


def _merge_points(point: Point, other: Point) -> Point:
    return Point(point.elapsed_s, point.samples + other.samples, [_merge_spreads(*pair) for pair in zip(point.figures, other.figures)])


def _merge_spreads(spread: Optional[Spread], other: Optional[Spread]) -> Optional[Spread]:
    if spread is None or other is None:
        return spread or other
    return Spread(
        spread.sum + other.sum, spread.samples + other.samples, min(spread.lowest, other.lowest), max(spread.highest, other.highest)
    )


MOST_KEPT = 64
"""Steps and spikes that are kept; of older ones only their number and sums."""
PAYS_PERCENT, NOT_PERCENT = 75, 25
"""A timer pays if so much stays returned; it does not if no more than so much does."""
LEAST_OBSERVED_S = 30.0
"""After a step, before anything is said about it."""


class ReturnedStep:
    """Memory that was returned, and what became of it."""

    def __init__(self, before: Sample, after: Sample, bytes_: int) -> None:
        self.unix_s, self.at_s = after.unix_s, after.elapsed_s
        self.rss_before_bytes = before.counters.resident_bytes
        self.rss_after_bytes = after.counters.resident_bytes
        self.returned_bytes = bytes_
        self.low_bytes = after.counters.anonymous_bytes
        self.used_bytes = after.used_bytes
        """In use just after it."""
        self.back_bytes = 0
        """The most that was back at any time."""
        self.back_used_bytes: Optional[int] = None
        """The part of it by which the memory in use had grown; None where that is not known."""
        self.half_s: Optional[float] = None
        """When half of it was back, in seconds after the step; None: never so far."""
        self.most_s: Optional[float] = None
        """The same for nine tenths."""
        self.observed_s = 0.0

    def grow(self, after: Sample, bytes_: int) -> None:
        """The step went on: one that takes longer than the time between two samples."""
        self.returned_bytes += bytes_
        self.low_bytes, self.used_bytes = after.counters.anonymous_bytes, after.used_bytes
        self.at_s, self.rss_after_bytes = after.elapsed_s, after.counters.resident_bytes

    def follow(self, sample: Sample) -> None:
        """Record how much memory is back by this sample."""
        self.observed_s = sample.elapsed_s - self.at_s
        back = min(max(0, sample.counters.anonymous_bytes - self.low_bytes), self.returned_bytes)
        self.back_bytes = max(self.back_bytes, back)
        if back * 20 >= self.back_bytes * 19 and sample.used_bytes is not None and self.used_bytes is not None:
            self.back_used_bytes = min(max(0, sample.used_bytes - self.used_bytes), back)
        if self.half_s is None and 2 * back >= self.returned_bytes:
            self.half_s = self.observed_s
        if self.most_s is None and 10 * back >= 9 * self.returned_bytes:
            self.most_s = self.observed_s


class Worth(NamedTuple):
    """Verdict on returning memory by a timer, by all steps that were observed for long enough."""

    code: str
    """`pays`, `pays-partly`, `does-not-pay`, `too-early`."""
    steps: int
    returned_bytes: int
    stayed_bytes: int
    half_s: Optional[float]
    """The median time until half was back, of the steps where that happened."""
    observed_s: float
    """The shortest time that a step was followed."""


class Steps:
    """Steps of one watch."""

    def __init__(self) -> None:
        self.kept: Deque[ReturnedStep] = deque(maxlen=MOST_KEPT)
        self.count = 0
        self._before: Optional[Sample] = None
        self._used_bytes: Optional[int] = None
        """In use as it was last known."""
        self._open: Optional[ReturnedStep] = None
        """A step of which it is not known yet whether the program itself freed what is gone: what is in use was not known then."""
        self._open_used_bytes = 0
        """What may have been in use before it."""
        self._held_bytes: Optional[int] = None
        """Held by allocators when it was last known what is in use: what they got since may be in use, too."""
        self._open_held_bytes: Optional[int] = None
        """Held just after the open step."""
        self._kept_bytes: Optional[int] = None
        """Kept by allocators as it was last known, with what was freed since; else all that they held."""
        self._falling: Optional[ReturnedStep] = None
        """The step that the last sample was part of."""
        self._undecided_bytes = 0

    @property
    def undecided_bytes(self) -> int:
        """Return the bytes that went away without it being known whether the program freed them."""
        return self._undecided_bytes + (self._open.returned_bytes if self._open is not None else 0)

    def add(self, sample: Sample) -> Optional[ReturnedStep]:
        """Take one more sample; return a step once it is known to be one."""
        before, self._before = self._before, sample
        settled = self._settle_open_step(sample)
        fell = _count_fallen(before, sample) if before is not None else 0
        if fell and before is not None:
            settled = self._classify_fall(before, sample, fell) or settled
        else:
            self._falling = None
            for step in (self._open, self.kept[-1] if self.kept else None):
                if step is not None:
                    step.follow(sample)
        if sample.used_bytes is not None:
            self._used_bytes, self._held_bytes = sample.used_bytes, sample.held_bytes
        known = sample.kept_bytes if sample.kept_bytes is not None else sample.held_bytes
        self._kept_bytes = known if known is not None else self._kept_bytes
        return settled

    def _settle_open_step(self, sample: Sample) -> Optional[ReturnedStep]:
        """Decides the open step, now that it is known what is in use."""
        step = self._open
        if step is None or sample.used_bytes is None:
            return None
        self._open = None
        used = max(0, sample.used_bytes - _count_rise(self._open_held_bytes, sample.held_bytes))  # the program may have taken more since
        if 2 * (self._open_used_bytes - used) >= step.returned_bytes:
            return None
        step.used_bytes = sample.used_bytes
        return self._keep_step(step)

    def _classify_fall(self, before: Sample, sample: Sample, fell: int) -> Optional[ReturnedStep]:
        """Memory went away: as a step that goes on, a new one, or one that stays open."""
        used, now = self._used_bytes, sample.used_bytes
        if used is not None:
            used += _count_rise(self._held_bytes, before.held_bytes)
        if used is not None and now is not None and 2 * (used - now) >= fell:
            self._falling = None  # the program itself freed it
            return None
        freed = max(0, used - now) if used is not None and now is not None else 0
        was_kept = self._kept_bytes is None or 2 * (self._kept_bytes + freed) >= fell  # so much at least allocators may have had
        if 2 * _count_unmapped(before, sample) >= fell or not was_kept:
            self._falling = None  # it was no allocator's
            return None
        if self._falling is not None:
            self._falling.grow(sample, fell)
            return None
        step = self._falling = ReturnedStep(before, sample, fell)
        if used is not None and now is None:
            if self._open is not None:  # what was in use between the two is not known either
                self._undecided_bytes += self._open.returned_bytes
            self._open, self._open_used_bytes, self._open_held_bytes = step, used, sample.held_bytes
            return None
        if used is None and _count_rise(sample.returnable_bytes, before.returnable_bytes) * 4 < fell:
            self._undecided_bytes += fell
            self._falling = None
            return None
        return self._keep_step(step)

    def _keep_step(self, step: ReturnedStep) -> ReturnedStep:
        self.kept.append(step)
        self.count += 1
        return step

    def worth(self) -> Optional[Worth]:
        """Return the verdict on a timer; None if nothing was returned."""
        if not self.kept:
            return None
        known: List[ReturnedStep] = [step for step in self.kept if step.observed_s >= LEAST_OBSERVED_S or step.most_s is not None]
        returned = sum(step.returned_bytes for step in known or self.kept)
        stayed = sum(step.returned_bytes - step.back_bytes for step in known or self.kept)
        halves = sorted(step.half_s for step in known if step.half_s is not None)
        percent = 100 * stayed / returned if returned else 0.0
        code = "pays" if percent >= PAYS_PERCENT else "does-not-pay" if percent <= NOT_PERCENT else "pays-partly"
        observed = min(step.observed_s for step in known or self.kept)
        half = halves[len(halves) // 2] if halves else None
        return Worth(code if known else "too-early", len(known or self.kept), returned, stayed, half, observed)


def _count_rise(before_bytes: Optional[int], after_bytes: Optional[int]) -> int:
    """Return the increase in bytes; 0 if it is not known."""
    return max(0, after_bytes - before_bytes) if before_bytes is not None and after_bytes is not None else 0


def _count_fallen(before: Sample, after: Sample) -> int:
    """Bytes of anonymous memory that went away between the two, and not to swap; 0 where that is too little."""
    swapped = (after.counters.swapped_bytes or 0) - (before.counters.swapped_bytes or 0)
    fell = before.counters.anonymous_bytes - after.counters.anonymous_bytes - max(0, swapped)
    return fell if fell >= least_step(before.counters.anonymous_bytes) else 0


def _count_unmapped(before: Sample, after: Sample) -> int:
    """Address space that went, beyond what allocators gave up; 0 where that is not known."""
    was, now = before.counters.virtual_bytes, after.counters.virtual_bytes
    if was is None or now is None:
        return 0
    held = (before.held_bytes or 0) - (after.held_bytes or 0) if None not in (before.held_bytes, after.held_bytes) else 0
    return max(0, was - now - max(0, held))


LEAST_HEIGHT_PERCENT = 5
"""Of the RSS below it: less is no spike."""
LEAST_PERIOD_SAMPLES = 3
"""A period is reported where so many samples lie between two spikes: of a faster one, samples see only some."""
LEAST_FOR_PERIOD = 3
ALLOCATORS, MAPPINGS, TOUCHED, FILES, MIXED = "allocators", "mappings", "touched", "files", "mixed"
"""Whose memory most of a spike was. `mappings`: address space that came and went outside the allocators. `touched`: it was mapped
before, and came into RAM. `files`: of files, or shared."""


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
        self._kept: Deque[Tuple[float, int, Optional[str]]] = deque(maxlen=MOST_KEPT)
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
        elif self._top is None and rss - low >= max(LEAST_SWING_BYTES, low * LEAST_HEIGHT_PERCENT // 100):
            if self._over is not None:  # the low point after the last spike is known
                self._kept.append(self._make_spike(*self._over))
            self._over, self._top = None, sample
        elif self._top is not None and rss > self._top.counters.resident_bytes:
            self._top = sample
        elif self._top is not None and 2 * (self._top.counters.resident_bytes - rss) >= self._top.counters.resident_bytes - low:
            self._over = self._low, self._top, sample.elapsed_s
            self.count += 1
            self._low, self._top = sample, None

    def _make_spike(self, low: Sample, top: Sample, end_s: float) -> Tuple[float, int, Optional[str]]:
        """Return when half of it was gone, in seconds since the first sample; its height above the higher of the low points before and
        after it; whose it was, None: the counters do not show it."""
        after = self._low or low
        base = after if low is self._first or after.counters.resident_bytes > low.counters.resident_bytes else low
        height = top.counters.resident_bytes - base.counters.resident_bytes
        # a counter may have risen again already when the sample after the spike was taken: its top is compared with both sides
        sides = [_find_owner(side, top, height) for side in (low, after)]
        return end_s, height, next((whose for whose in (ALLOCATORS, MAPPINGS) if whose in sides), sides[0])

    def kept(self) -> List[Tuple[float, int, Optional[str]]]:
        """The last ones, in their order."""
        return [*self._kept, self._make_spike(*self._over)] if self._over is not None else list(self._kept)

    def spikes(self) -> Optional[Spikes]:
        """Return the summary of the spikes; None if there were none."""
        kept = self.kept()
        if not kept:
            return None
        sizes = sorted(size for _, size, _ in kept)
        whose = [owner for _, _, owner in kept if owner is not None]
        most = max(sorted(set(whose)), key=whose.count) if whose else None
        agreed = most if most is not None and 4 * whose.count(most) >= 3 * len(whose) else MIXED if whose else None
        return Spikes(self.count, sizes[len(sizes) // 2], sizes[-1], self._find_period([at_s for at_s, _, _ in kept]), agreed)

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
