"""Where an allocator's memory can lie: writable anonymous ranges of the address space."""

from itertools import islice
from typing import Iterable, List, Optional, Sequence, Tuple

from gdbheapx.target.base import Mapping, Target

Range = Tuple[int, int]
"""(first address, first address beyond)."""


def anonymous_mappings(target: Target) -> List[Mapping]:
    """Writable private anonymous memory, sorted."""
    return [
        mapping
        for mapping in target.mappings()
        if mapping.readable and mapping.writable and not mapping.is_file and not mapping.shared and not mapping.name.startswith(("[v", "[stack"))
    ]


def joined_ranges(mappings: Iterable[Mapping]) -> List[Range]:
    """Neighbouring mappings as one range: the kernel merges and splits them at will."""
    joined: List[Range] = []
    for mapping in mappings:
        if joined and joined[-1][1] == mapping.start:
            joined[-1] = (joined[-1][0], mapping.end)
        else:
            joined.append((mapping.start, mapping.end))
    return joined


def anonymous_ranges(target: Target) -> List[Range]:
    """Where an arena can have memory."""
    return joined_ranges(anonymous_mappings(target))


def range_around(target: Target, address: int) -> Optional[Range]:
    """The anonymous range that holds `address`."""
    return next(((start, end) for start, end in anonymous_ranges(target) if start <= address < end), None)


def without(ranges: Sequence[Range], taken: Sequence[Range]) -> List[Range]:
    """What is left of the ranges outside the taken ones; both sorted by their starts."""
    left: List[Range] = []
    first = 0
    for low, high in ranges:
        while first < len(taken) and taken[first][1] <= low:
            first += 1
        for start, end in islice(taken, first, None):
            if start >= high:
                break
            if end > low:
                if start > low:
                    left.append((low, start))
                low = max(low, end)
        if low < high:
            left.append((low, high))
    return left
