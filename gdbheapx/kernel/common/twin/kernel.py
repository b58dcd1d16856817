"""The kernel in Python: totals, lists and listings of blocks, with equal results."""

from typing import Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.common.interface import Kernel
from gdbheapx.kernel.common.records import Residency, Written
from gdbheapx.kernel.common.twin import pagemap
from gdbheapx.kernel.common.twin import written as pages
from gdbheapx.kernel.common.twin.source import Reader


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
        return pages.written(self.open(source), ranges, page_bytes, budget)

    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
        """See Kernel."""
        return pagemap.residency(pages, ranges)
