"""What both kernels are."""

from abc import abstractmethod

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.common.interface import CommonKernel
from gdbheapx.kernel.glibc.interface import ChunkWalker
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.kernel.jemalloc.interface import ExtentWalker
from gdbheapx.kernel.jemalloc.records import HeapLayout


class Kernel(CommonKernel):
    """Makes the walkers of each allocator; what needs none is in CommonKernel. What follows pointers from block to block is CKernel's."""

    @abstractmethod
    def glibc(self, source: BulkSource, geometry: Geometry, budget: Budget) -> ChunkWalker:
        """Walks over a heap of that geometry. ValueError for one that no glibc has."""

    @abstractmethod
    def jemalloc(self, source: BulkSource, heap: HeapLayout, budget: Budget) -> ExtentWalker:
        """Walks over a heap of that layout. ValueError for one that no jemalloc has."""
