"""Where an allocator's memory can lie: writable anonymous ranges of the address space."""

from typing import List, Optional, Sequence, Tuple

from gdbheapx.target.base import Target

Range = Tuple[int, int]
"""(first address, first address beyond)."""


def anonymous_ranges(target: Target) -> List[Range]:
    """Writable private anonymous memory, sorted; neighbouring mappings are one range, as the kernel merges and splits them at will."""
    joined: List[Range] = []
    for mapping in target.mappings():
        if not (mapping.readable and mapping.writable) or mapping.is_file or mapping.shared or mapping.name.startswith(("[v", "[stack")):
            continue
        if joined and joined[-1][1] == mapping.start:
            joined[-1] = (joined[-1][0], mapping.end)
        else:
            joined.append((mapping.start, mapping.end))
    return joined


def range_around(target: Target, address: int) -> Optional[Range]:
    """The anonymous range that holds `address`."""
    return next(((start, end) for start, end in anonymous_ranges(target) if start <= address < end), None)


def without(ranges: Sequence[Range], taken: Sequence[Range]) -> List[Range]:
    """What is left of the ranges outside the taken ones; both sorted."""
    left = []
    for low, high in ranges:
        for start, end in taken:
            if start >= high:
                break
            if end > low:
                if start > low:
                    left.append((low, start))
                low = max(low, end)
        if low < high:
            left.append((low, high))
    return left
