"""Address ranges: united, subtracted, looked up."""

from array import array
from bisect import bisect_left, bisect_right
from itertools import accumulate, islice
from typing import Iterable, Iterator, List, Sequence, Tuple

Range = Tuple[int, int]
"""First address and end."""


def unite_ranges(ranges: Iterable[Range]) -> List[Range]:
    """Sorted, those made one that touch or overlap."""
    joined: List[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def subtract_ranges(ranges: Iterable[Range], others: Sequence[Range]) -> List[Range]:
    """Return the parts of each range that the others do not cover; both sorted by start."""
    left: List[Range] = []
    first = 0
    for low, high in ranges:
        while first < len(others) and others[first][1] <= low:
            first += 1
        for start, end in islice(others, first, None):
            if start >= high:
                break
            if end > low:
                if start > low:
                    left.append((low, start))
                low = max(low, end)
        if low < high:
            left.append((low, high))
    return left


class RangeIndex:
    """Many ranges, of which those in one mapping are wanted: an allocator may have a hundred thousand, a process as many mappings."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges: Sequence[Range] = unite_ranges(ranges)
        self._starts = [start for start, _ in self._ranges]

    def __iter__(self) -> Iterator[Range]:
        """Yield the ranges by address."""
        return iter(self._ranges)

    def meets(self, start: int, end: int) -> bool:
        """Return True if some range has a byte from `start` to `end`."""
        place = bisect_left(self._starts, end) - 1
        return place >= 0 and self._ranges[place][1] > start

    def within(self, start: int, end: int) -> List[Range]:
        """The parts that lie from `start` to `end`."""
        place = max(0, bisect_right(self._starts, start) - 1)
        inside = []
        while place < len(self._ranges) and self._ranges[place][0] < end:
            low, high = max(self._ranges[place][0], start), min(self._ranges[place][1], end)
            if low < high:
                inside.append((low, high))
            place += 1
        return inside

    def outside(self, start: int, end: int) -> List[Range]:
        """The parts from `start` to `end` that lie in none."""
        return subtract_ranges([(start, end)], self.within(start, end))


class RangeSums:
    """Sorted ranges without overlap, of which those before an address are summed at once; there may be millions."""

    def __init__(self, bounds: Sequence[int]) -> None:
        """Take `bounds`: begin and end of each range."""
        self.starts: array[int] = array("Q", bounds[::2])
        self.ends: array[int] = array("Q", bounds[1::2])
        self._before: array[int] = array("Q", accumulate((end - start for start, end in zip(self.starts, self.ends)), initial=0))
        """Bytes before each range, and of all."""

    def bounds(self) -> Sequence[int]:
        """Return begin and end of each range, sorted."""
        return array("Q", [bound for run in zip(self.starts, self.ends) for bound in run])

    def bytes_in(self, ranges: Iterable[Range]) -> int:
        """Return the bytes of other ranges that lie in these."""
        return sum(self._bytes_before(end) - self._bytes_before(start) for start, end in ranges)

    def _bytes_before(self, address: int) -> int:
        place = bisect_right(self.starts, address) - 1
        return 0 if place < 0 else self._before[place] + min(address, self.ends[place]) - self.starts[place]
