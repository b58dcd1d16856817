"""Figure over time in a fixed amount of memory: neighbours are averaged when there are too many."""

from typing import List, NamedTuple, Optional, Sequence, Tuple

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
