"""The kernel in Python: totals, lists and listings of blocks, with equal results."""

from typing import Optional

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.common.twin.kernel import CommonTwin
from gdbheapx.kernel.glibc.interface import ChunkWalker
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.kernel.glibc.twin.walker import ChunkTwin
from gdbheapx.kernel.interface import Kernel
from gdbheapx.kernel.jemalloc.interface import ExtentWalker
from gdbheapx.kernel.jemalloc.records import HeapLayout
from gdbheapx.kernel.jemalloc.twin.walker import ExtentTwin


class PythonKernel(CommonTwin, Kernel):
    """See Kernel."""

    def __init__(self, why: Optional[str] = None) -> None:
        super().__init__()
        self.why = why

    def glibc(self, source: BulkSource, geometry: Geometry, budget: Budget) -> ChunkWalker:
        """See Kernel."""
        return ChunkTwin(self.open(source), geometry, budget)

    def jemalloc(self, source: BulkSource, heap: HeapLayout, budget: Budget) -> ExtentWalker:
        """See Kernel."""
        return ExtentTwin(self.open(source), heap, budget)
