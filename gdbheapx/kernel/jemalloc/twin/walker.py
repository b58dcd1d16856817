"""Walks over jemalloc's extents in Python."""

from typing import List, Optional, Sequence

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.blocks.records import EVERYTHING, BlockFilter, Blocks, BlockStream, apart_from
from gdbheapx.kernel.blocks.twin import TwinBlocks
from gdbheapx.kernel.common.twin.pagemap import open_pages
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.jemalloc.interface import ExtentWalker, check_layout
from gdbheapx.kernel.jemalloc.linked_records import Linked, LinkedList
from gdbheapx.kernel.jemalloc.records import ExtentsResult, HeapLayout
from gdbheapx.kernel.jemalloc.twin.blocks import ExtentBlocks
from gdbheapx.kernel.jemalloc.twin.extent_totals import Totals
from gdbheapx.kernel.jemalloc.twin.extents import Extents
from gdbheapx.kernel.jemalloc.twin.linked import Follower


class ExtentTwin(ExtentWalker):
    """See ExtentWalker."""

    def __init__(self, reader: Reader, heap: HeapLayout, budget: Budget) -> None:
        check_layout(heap)
        self._reader, self._heap, self._budget = reader, heap, budget

    def walk(self, cached: Sequence[int], pages: Optional[PageTable] = None) -> ExtentsResult:
        """See ExtentWalker."""
        extents = Extents(self._reader, self._heap)
        return Totals(extents, 1 << self._heap.rtree.lg_page, cached, open_pages(pages)).walk(self._budget)

    def blocks(
        self, cached: Sequence[int], wanted: BlockFilter = EVERYTHING, arena: Optional[int] = None, apart: Optional[Blocks] = None
    ) -> BlockStream:
        """See ExtentWalker."""
        blocks = ExtentBlocks(Extents(self._reader, self._heap), self._heap, cached, arena, wanted)
        return TwinBlocks(blocks, apart_from(apart, wanted), self._budget)

    def follow(self, lists: Sequence[LinkedList]) -> List[Linked]:
        """See ExtentWalker."""
        return Follower(self._reader, self._heap).follow(lists, self._budget)
