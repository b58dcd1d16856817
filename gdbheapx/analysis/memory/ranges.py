"""Sorted address ranges without overlap."""

from bisect import bisect_left, bisect_right
from typing import Iterable, Iterator, List, Sequence, Tuple

Range = Tuple[int, int]
"""First address and end."""


def joined(ranges: Iterable[Range]) -> List[Range]:
    """Sorted, and without overlap."""
    found: List[Range] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def without(ranges: Sequence[Range], others: Sequence[Range]) -> List[Range]:
    """What of them is not in the others. Both sorted, without overlap."""
    found: List[Range] = []
    away = Ranges(others)
    for start, end in ranges:
        edges = [start, *(edge for part in away.within(start, end) for edge in part), end]
        found += [(low, high) for low, high in zip(edges[::2], edges[1::2]) if low < high]
    return found


class Ranges:
    """Many ranges, of which those in one mapping are wanted: an allocator may have a hundred thousand, a process as many mappings."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        self._ranges: Sequence[Range] = joined(ranges)
        self._starts = [start for start, _ in self._ranges]

    def __iter__(self) -> Iterator[Range]:
        """By address."""
        return iter(self._ranges)

    def meets(self, start: int, end: int) -> bool:
        """Some range has a byte from `start` to `end`."""
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
