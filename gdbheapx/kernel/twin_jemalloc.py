"""The Python twin's functions for jemalloc."""

from abc import abstractmethod
from typing import Optional, Sequence, Set

from gdbheapx.budget import Budget
from gdbheapx.kernel import extents_api as api
from gdbheapx.kernel import pagemap, twin_extent_totals
from gdbheapx.kernel.base import ADDRESS_MASK
from gdbheapx.kernel.extents_base import BlockListing, ExtentsKernel, check_layout
from gdbheapx.kernel.twin_extents import Extents
from gdbheapx.kernel.twin_source import Reader
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

    def list_blocks(
        self,
        source: BulkSource,
        heap: api.HeapLayout,
        cached: Sequence[int],
        budget: Budget,
        arena: Optional[int] = None,
        statuses: Optional[Set[int]] = None,
        min_size: int = 0,
        max_size: Optional[int] = None,
    ) -> BlockListing:
        """See ExtentsKernel."""
        check_layout(heap)
        extents = Extents(self._open(source), heap)
        wanted = frozenset(range(api.BLOCK_STATUSES) if statuses is None else statuses)
        most = ADDRESS_MASK if max_size is None else max_size
        return twin_extent_totals.Blocks(extents, heap, cached, budget, arena, wanted, (min_size, most))
