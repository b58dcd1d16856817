"""The kernel in Python: every function of the C kernel, with equal results."""

from typing import Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource, PageTable
from gdbheapx.kernel.blocks.csv import CsvRows, CsvWords
from gdbheapx.kernel.blocks.graph import Graph, GraphShape
from gdbheapx.kernel.blocks.heapmap import HeapMap, MapShape
from gdbheapx.kernel.blocks.packed import PackedGraph
from gdbheapx.kernel.blocks.pins import PinLabels, Pins, PinShape
from gdbheapx.kernel.blocks.pools import Pools, PoolShape
from gdbheapx.kernel.blocks.signatures import NumberSet, SignatureRow, Signer
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

    def graph(self, source: BulkSource, shape: GraphShape, budget: Budget, images: Optional[BulkSource] = None) -> Graph:
        """See Kernel."""
        from gdbheapx.kernel.blocks.twin.graph import TwinGraph

        return TwinGraph(self.open(source), shape, budget, None if images is None else self.open(images))

    def unpacked(self, kept: PackedGraph, budget: Budget) -> Graph:
        """See Kernel."""
        from gdbheapx.kernel.blocks.twin.graph import TwinGraph

        return TwinGraph.unpacked(self.open(BytesSource(())), kept, budget)

    def signer(
        self, source: BulkSource, shape: Tuple[int, bool], rows: Sequence[SignatureRow], sets: Sequence[NumberSet], budget: Budget
    ) -> Signer:
        """See Kernel."""
        from gdbheapx.kernel.blocks.twin.signatures import TwinSigner

        return TwinSigner(self.open(source), shape, rows, sets, budget)

    def pools(self, source: BulkSource, shape: PoolShape, budget: Budget) -> Pools:
        """See Kernel."""
        from gdbheapx.kernel.blocks.twin.pools import TwinPools

        return TwinPools(self.open(source), shape, budget)

    def pins(self, source: BulkSource, shape: PinShape, labels: PinLabels, first: int, budget: Budget) -> Pins:
        """See Kernel."""
        from gdbheapx.kernel.blocks.twin.pins import TwinPins

        return TwinPins(shape, labels, first, budget)

    def heap_map(
        self, source: BulkSource, shape: MapShape, ranges: Sequence[Tuple[int, int]], pages: Optional[PageTable], budget: Budget
    ) -> HeapMap:
        """See Kernel."""
        from gdbheapx.kernel.blocks.twin.heapmap import TwinHeapMap

        return TwinHeapMap(shape, ranges, pages, budget)

    def csv(self, words: CsvWords) -> CsvRows:
        """See Kernel."""
        from gdbheapx.kernel.blocks.twin.csv import PythonCsvRows

        return PythonCsvRows(words)

    def glibc(self, source: BulkSource, geometry: Geometry, budget: Budget) -> ChunkWalker:
        """See Kernel."""
        return ChunkTwin(self.open(source), geometry, budget)

    def jemalloc(self, source: BulkSource, heap: HeapLayout, budget: Budget) -> ExtentWalker:
        """See Kernel."""
        return ExtentTwin(self.open(source), heap, budget)
