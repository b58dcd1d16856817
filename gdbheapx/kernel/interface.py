"""What both kernels are."""

from abc import abstractmethod
from typing import Any

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource
from gdbheapx.kernel.blocks.graph import Graph, GraphShape
from gdbheapx.kernel.common.interface import CommonKernel
from gdbheapx.kernel.glibc.interface import ChunkWalker
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.kernel.jemalloc.interface import ExtentWalker
from gdbheapx.kernel.jemalloc.records import HeapLayout


class Kernel(CommonKernel):
    """Makes the walkers of each allocator; what needs none is in CommonKernel."""

    sweeps = False
    """It has sweep()."""

    @abstractmethod
    def graph(self, source: BulkSource, shape: GraphShape, budget: Budget) -> Graph:
        """A graph of blocks, to be made."""

    def sweep(self, source: BulkSource, shape: GraphShape, budget: Budget) -> Any:
        """What tells the same as a graph's marks with some bits a block, in many passes: see blocks/sweep_binding.py."""
        raise NotImplementedError

    @abstractmethod
    def glibc(self, source: BulkSource, geometry: Geometry, budget: Budget) -> ChunkWalker:
        """Walks over a heap of that geometry. ValueError for one that no glibc has."""

    @abstractmethod
    def jemalloc(self, source: BulkSource, heap: HeapLayout, budget: Budget) -> ExtentWalker:
        """Walks over a heap of that layout. ValueError for one that no jemalloc has."""
