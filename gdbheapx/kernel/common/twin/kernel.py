"""The twin: what knows no allocator, in Python."""

from array import array
from typing import Any, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.common.records import Kernel, Residency, Written
from gdbheapx.kernel.common.twin import pagemap
from gdbheapx.kernel.common.twin.source import Reader

BLOCK_BYTES = 256 << 10
ZEROS = bytes(BLOCK_BYTES)


def written(reader: Reader, ranges: Sequence[Tuple[int, int]], page_bytes: int, budget: Budget) -> Written:
    """See Kernel."""
    bounds, at = array("Q"), 0
    try:
        for begin, end in ranges:
            at = begin
            while at < end:
                if budget.expired():
                    return Written(bounds, at)
                at = _block(reader, bounds, at, end, page_bytes)
    except KeyboardInterrupt:
        budget.interrupt()
        return Written(bounds, at)
    return Written(bounds, None)


def _block(reader: Reader, bounds: Any, at: int, end: int, page_bytes: int) -> int:
    """Looks at the bytes from `at` to the end of a block; up to where."""
    data = reader.read(at, min(BLOCK_BYTES - at % BLOCK_BYTES, end - at))
    if not data:
        until = min((at // page_bytes + 1) * page_bytes, end)
        _add(bounds, at, until)
        return until
    done = len(data) if data == ZEROS[: len(data)] else 0
    while done < len(data):
        here = min(page_bytes - (at + done) % page_bytes, len(data) - done)
        if data[done : done + here] != ZEROS[:here]:
            _add(bounds, at + done, at + done + here)
        done += here
    return at + done


def _add(bounds: Any, begin: int, end: int) -> None:
    """One more run, joined to the last one where they touch."""
    if len(bounds) and bounds[-1] == begin:
        bounds[-1] = end
    else:
        bounds.extend((begin, end))


class PythonKernel(Kernel):
    """See Kernel."""

    name = "python"

    def __init__(self, why: Optional[str] = None) -> None:
        self.why = why
        self._opened: Optional[Reader] = None
        self._swapped_in = [0]

    def open(self, source: BulkSource) -> Reader:
        """The source opened, kept while the same one is asked for."""
        if self._opened is None or self._opened.source is not source:
            self._opened = Reader(source, self._swapped_in)
        return self._opened

    @property
    def swapped_in_bytes(self) -> int:
        """See Kernel."""
        return self._swapped_in[0]

    def written(self, source: BulkSource, ranges: Sequence[Tuple[int, int]], page_bytes: int, budget: Budget) -> Written:
        """See Kernel."""
        return written(self.open(source), ranges, page_bytes, budget)

    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]], with_exclusive: bool = True) -> Optional[Residency]:
        """See Kernel."""
        found = pagemap.residency(pages, ranges)
        return found if found is None or with_exclusive else found._replace(exclusive_bytes=0)
