"""The Python twin's functions for jemalloc."""

from abc import abstractmethod
from typing import Optional, Sequence

from gdbheapx.budget import Budget
from gdbheapx.kernel import extents_api as api
from gdbheapx.kernel import pagemap, twin_extent_totals
from gdbheapx.kernel.block_records import EVERYTHING, Blocks, BlockStream, Wanted, apart_from
from gdbheapx.kernel.extents_base import ExtentsKernel, check_layout
from gdbheapx.kernel.twin_blocks import ExtentBlocks
from gdbheapx.kernel.twin_extents import Extents
from gdbheapx.kernel.twin_source import Reader
from gdbheapx.kernel.twin_stream import TwinBlocks
from gdbheapx.target.base import BulkSource, PageTable


class ExtentsTwin(ExtentsKernel):
    """What ExtentsKernel promises."""

    @abstractmethod
    def _open(self, source: BulkSource) -> Reader:
        """The source opened."""

    def walk_extents(
        self,
        source: BulkSource,
        heap: api.HeapLayout,
        cached: Sequence[int],
        budget: Budget,
        pages: Optional[PageTable] = None,
    ) -> api.ExtentsResult:
        """See ExtentsKernel."""
        check_layout(heap)
        extents = Extents(self._open(source), heap)
        return twin_extent_totals.Totals(extents, 1 << heap.rtree.lg_page, cached, pagemap.open_pages(pages)).walk(budget)

    def jemalloc_blocks(
        self,
        source: BulkSource,
        heap: api.HeapLayout,
        cached: Sequence[int],
        budget: Budget,
        wanted: Wanted = EVERYTHING,
        arena: Optional[int] = None,
        apart: Optional[Blocks] = None,
    ) -> BlockStream:
        """See ExtentsKernel."""
        check_layout(heap)
        blocks = ExtentBlocks(Extents(self._open(source), heap), heap, cached, arena, wanted)
        return TwinBlocks(blocks, apart_from(apart, wanted), budget)
