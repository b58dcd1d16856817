"""The C kernel."""

from typing import Any, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource, PageTable
from gdbheapx.kernel.blocks.csv import CsvRows, CsvWords
from gdbheapx.kernel.blocks.graph import Graph, GraphShape
from gdbheapx.kernel.blocks.heapmap import HeapMap, MapShape
from gdbheapx.kernel.blocks.packed import PackedGraph
from gdbheapx.kernel.blocks.pins import PinLabels, Pins, PinShape
from gdbheapx.kernel.blocks.pools import Pools, PoolShape
from gdbheapx.kernel.blocks.signatures import NumberSet, SignatureRow, Signer
from gdbheapx.kernel.common.binding import CommonBinding
from gdbheapx.kernel.common.library import LIBRARY, Unusable, open_library
from gdbheapx.kernel.glibc.binding import CChunkWalker
from gdbheapx.kernel.glibc.interface import ChunkWalker
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.kernel.interface import Kernel
from gdbheapx.kernel.jemalloc.binding import CExtentWalker
from gdbheapx.kernel.jemalloc.interface import ExtentWalker
from gdbheapx.kernel.jemalloc.records import HeapLayout

__all__ = ["CKernel", "Unusable", "open_kernel"]


def open_kernel(path: str = LIBRARY) -> "CKernel":
    """The C kernel from the library at `path`; Unusable says what is in the way."""
    return CKernel(open_library(path))


class CKernel(CommonBinding, Kernel):
    """See Kernel."""

    sweeps = True

    def graph(self, source: BulkSource, shape: GraphShape, budget: Budget, images: Optional[BulkSource] = None) -> Graph:
        """See Kernel."""
        from gdbheapx.kernel.blocks.graph_binding import CGraph  # few commands ask for it

        return CGraph(self.library, self.open(source), shape, budget, None if images is None else self.open_apart(images))

    def sweep(self, source: BulkSource, shape: GraphShape, budget: Budget) -> Any:
        """See Kernel."""
        from gdbheapx.kernel.blocks.sweep_binding import CSweep

        return CSweep(self.library, self.open(source), shape, budget)

    def unpacked(self, kept: PackedGraph, budget: Budget) -> Graph:
        """See Kernel."""
        from gdbheapx.kernel.blocks.graph_binding import CGraph

        return CGraph.unpacked(self.library, self.open(BytesSource(())), kept, budget)

    def signer(
        self, source: BulkSource, shape: Tuple[int, bool], rows: Sequence[SignatureRow], sets: Sequence[NumberSet], budget: Budget
    ) -> Signer:
        """See Kernel."""
        from gdbheapx.kernel.blocks.signatures_binding import CSigner

        return CSigner(self.library, self.open(source), shape, rows, sets, budget)

    def pools(self, source: BulkSource, shape: PoolShape, budget: Budget) -> Pools:
        """See Kernel."""
        from gdbheapx.kernel.blocks.pools_binding import CPools

        return CPools(self.library, self.open(source), shape, budget)

    def pins(self, source: BulkSource, shape: PinShape, labels: PinLabels, first: int, budget: Budget) -> Pins:
        """See Kernel."""
        from gdbheapx.kernel.blocks.pins_binding import CPins

        return CPins(self.library, self.open(source), shape, labels, first, budget)

    def heap_map(
        self, source: BulkSource, shape: MapShape, ranges: Sequence[Tuple[int, int]], pages: Optional[PageTable], budget: Budget
    ) -> HeapMap:
        """See Kernel."""
        from gdbheapx.kernel.blocks.heapmap_binding import CHeapMap

        return CHeapMap(self.library, self.open(source), shape, ranges, pages, budget)

    def csv(self, words: CsvWords) -> CsvRows:
        """See Kernel."""
        from gdbheapx.kernel.blocks.csv_binding import CCsvRows

        return CCsvRows(self.library, words)

    def glibc(self, source: BulkSource, geometry: Geometry, budget: Budget) -> ChunkWalker:
        """See Kernel."""
        return CChunkWalker(self, source, geometry, budget)

    def jemalloc(self, source: BulkSource, heap: HeapLayout, budget: Budget) -> ExtentWalker:
        """See Kernel."""
        return CExtentWalker(self, source, heap, budget)
