"""Pages of a core that hold anything but zeros, where its file does not tell what was never in memory.

The kernel leaves holes for pages that no process has touched. gdb's gcore (before release 15) reads them and writes zeros, those of reserved
addresses without any right too, and calls these readable; so does a copy that fills holes. There a page of zeros counts as never touched.
"""

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.memory.ranges import Range
from gdbheapx.budget import Budget
from gdbheapx.kernel.base import Kernel
from gdbheapx.target.base import MappingUse, MemoryUse, Target


class WrittenPages:
    """Runs of such pages, of which those in some ranges are wanted."""

    def __init__(self, bounds: Sequence[int]) -> None:
        self._starts: Any = array("Q", bounds[::2])
        self._ends: Any = array("Q", bounds[1::2])
        lengths = (end - start for start, end in zip(self._starts, self._ends))
        self._before: Any = array("Q", accumulate(lengths, initial=0))
        """Bytes before each run, and of all."""

    def bytes_in(self, ranges: Sequence[Range]) -> int:
        """Bytes of the ranges that lie in such pages."""
        return sum(self._bytes_before(end) - self._bytes_before(start) for start, end in ranges)

    def _bytes_before(self, address: int) -> int:
        place = bisect_right(self._starts, address) - 1
        return 0 if place < 0 else int(self._before[place] + min(address, self._ends[place]) - self._starts[place])


class Told(NamedTuple):
    """What a core tells of its memory once pages of zeros are left out."""

    use: MemoryUse
    pages: Optional[WrittenPages]
    """None: the file itself tells, by its holes, or this is no core."""
    zero_bytes: Optional[int]
    """Pages of zeros that were left out; None for what is no core."""
    until: Optional[int]
    """From this address on there was no time to look for them: all counts."""


def tell(target: Target, kernel: Kernel, use: MemoryUse, budget: Budget) -> Told:
    """Leaves pages of zeros out of what each mapping takes in a core, where they say nothing."""
    if use.measure != "dumped" or use.tells_untouched:
        return Told(use, None, 0 if use.measure == "dumped" else None, None)
    ranges = target.data_ranges([(one.mapping.start, one.mapping.end) for one in use.mappings if one.resident_bytes]) or ()
    found = kernel.written(target.bulk_source(), ranges, target.page_bytes, budget)
    bounds: List[int] = list(found.bounds)
    if found.until is not None:
        bounds += [bound for pair in _behind(ranges, found.until) for bound in pair]
    pages = WrittenPages(bounds)
    mappings = [_told(one, pages) for one in use.mappings]
    left_out = sum(one.resident_bytes for one in use.mappings) - sum(one.resident_bytes for one in mappings)
    return Told(use._replace(mappings=mappings), pages, left_out, found.until)


def _behind(ranges: Sequence[Range], until: int) -> List[Tuple[int, int]]:
    return [(max(start, until), end) for start, end in ranges if end > until]


def _told(use: MappingUse, pages: WrittenPages) -> MappingUse:
    """The mapping without its pages of zeros. Private addresses that nobody may write and that hold nothing are reserved ones: gcore calls all readable."""
    mapping = use.mapping
    taken = min(use.resident_bytes, pages.bytes_in([(mapping.start, mapping.end)]))
    is_reserve = not (taken or mapping.writable or mapping.executable or mapping.name) and use.resident_bytes == mapping.size_bytes
    return use._replace(resident_bytes=taken, mapping=mapping._replace(readable=mapping.readable and not is_reserve))
