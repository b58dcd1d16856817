"""What both kernels are."""

from abc import abstractmethod
from typing import Any, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.blocks.csv import CsvRows, CsvWords
from gdbheapx.kernel.blocks.graph import Graph, GraphShape
from gdbheapx.kernel.blocks.heapmap import HeapMap, MapShape
from gdbheapx.kernel.blocks.packed import PackedGraph
from gdbheapx.kernel.blocks.pins import PinLabels, Pins, PinShape
from gdbheapx.kernel.blocks.pools import Pools, PoolShape
from gdbheapx.kernel.blocks.signatures import NumberSet, SignatureRow, Signer
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
    def graph(self, source: BulkSource, shape: GraphShape, budget: Budget, images: Optional[BulkSource] = None) -> Graph:
        """A graph of blocks, to be made. `images`: where vtables are read, a few thousand small reads; None: none are."""

    @abstractmethod
    def unpacked(self, kept: PackedGraph, budget: Budget) -> Graph:
        """The graph of a file, resolved. ValueError where it is none: a file is somebody's."""

    @abstractmethod
    def signer(
        self, source: BulkSource, shape: Tuple[int, bool], rows: Sequence[SignatureRow], sets: Sequence[NumberSet], budget: Budget
    ) -> Signer:
        """What tells blocks apart by rows of conditions. `shape`: (word_bytes, little_endian)."""

    @abstractmethod
    def pools(self, source: BulkSource, shape: PoolShape, budget: Budget) -> Pools:
        """A look at pools of cells."""

    @abstractmethod
    def pins(self, source: BulkSource, shape: PinShape, labels: PinLabels, first: int, budget: Budget) -> Pins:
        """A look at what keeps free memory. `first`: where the labels of this heap begin, if they are by the order of used blocks."""

    @abstractmethod
    def heap_map(
        self, source: BulkSource, shape: MapShape, ranges: Sequence[Tuple[int, int]], pages: Optional[PageTable], budget: Budget
    ) -> HeapMap:
        """A look at what the pages of these ranges are, which are sorted and do not overlap. `pages`: tells what is in RAM."""

    @abstractmethod
    def csv(self, words: CsvWords) -> CsvRows:
        """What writes blocks as rows of comma-separated values."""

    def sweep(self, source: BulkSource, shape: GraphShape, budget: Budget) -> Any:
        """What tells the same as a graph's marks with some bits a block, in many passes: see blocks/sweep_binding.py."""
        raise NotImplementedError

    @abstractmethod
    def glibc(self, source: BulkSource, geometry: Geometry, budget: Budget) -> ChunkWalker:
        """Walks over a heap of that geometry. ValueError for one that no glibc has."""

    @abstractmethod
    def jemalloc(self, source: BulkSource, heap: HeapLayout, budget: Budget) -> ExtentWalker:
        """Walks over a heap of that layout. ValueError for one that no jemalloc has."""
