"""Pages of a core that hold anything but zeros, where its file does not tell what was never in memory.

The kernel leaves holes for private pages that the process has not touched. gdb's gcore (before release 15) reads them and writes zeros,
those of reserved addresses without any right too, and calls these readable; a copy of a core may have its holes filled. There a page of
zeros counts as never touched.
"""

from array import array
from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple, Optional, Sequence

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import MappingUse, MemoryUse, Target
from gdbheapx.kernel.common.interface import Kernel
from gdbheapx.ranges import Range


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


class WrittenUse(NamedTuple):
    """What a core tells of its memory once pages of zeros that say nothing are left out."""

    use: MemoryUse
    pages: Optional[WrittenPages]
    """None: this is no core."""
    zero_bytes: Optional[int]
    """Pages of zeros that were left out; None for what is no core."""
    until: Optional[int]
    """From this address on there was no time to look for them: all counts."""


def tell(target: Target, kernel: Kernel, use: MemoryUse, budget: Budget) -> WrittenUse:
    """Leaves pages of zeros out of what each mapping takes in a core, where they say nothing."""
    if use.measure != "dumped":
        return WrittenUse(use, None, None, None)
    silent, telling = (
        _data(target, [one for one in use.mappings if one.resident_bytes and _is_silent(use, one) is wanted]) for wanted in (True, False)
    )
    written = kernel.written(target.bulk_source(), silent, target.page_bytes, budget)
    runs = [*zip(written.bounds[::2], written.bounds[1::2]), *telling]
    if written.until is not None:
        runs += [(max(start, written.until), end) for start, end in silent if end > written.until]
    pages = WrittenPages([bound for pair in sorted(runs) for bound in pair])
    mappings = [_told(one, pages) for one in use.mappings]
    left_out = sum(one.resident_bytes for one in use.mappings) - sum(one.resident_bytes for one in mappings)
    return WrittenUse(use._replace(mappings=mappings), pages, left_out, written.until)


def _data(target: Target, uses: Sequence[MappingUse]) -> Sequence[Range]:
    """What of these mappings is in the file and no hole."""
    return target.data_ranges([(one.mapping.start, one.mapping.end) for one in uses]) or ()


def _is_silent(use: MemoryUse, one: MappingUse) -> bool:
    """Its zeros say nothing. The kernel dumps pages of shared memory and of files that nobody has touched as well (mm/gup.c:
    no_page_table)."""
    return not use.tells_untouched or bool(one.mapping.name)


def _told(use: MappingUse, pages: WrittenPages) -> MappingUse:
    """The mapping without its pages of zeros. Private addresses that nobody may write and that hold nothing are reserved ones: gcore calls
    all readable."""
    mapping = use.mapping
    taken = min(use.resident_bytes, pages.bytes_in([(mapping.start, mapping.end)]))
    is_reserve = not (taken or mapping.writable or mapping.executable or mapping.name) and use.resident_bytes == mapping.size_bytes
    return use._replace(resident_bytes=taken, mapping=mapping._replace(readable=mapping.readable and not is_reserve))
