"""What both kernels can do with jemalloc's rtree."""

from abc import ABC, abstractmethod
from typing import Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.batches import Batches
from gdbheapx.kernel.extents_api import BinLayout, BlockSizes, ExtentLayout, ExtentsResult, RtreeLayout
from gdbheapx.target.base import BulkSource

BlockRow = Tuple[int, int, int, int]
"""address, size_bytes, status (a BLOCK_ number), arena index."""

BlockListing = Batches[BlockRow]
"""Lists of BlockRow in address order; `result` (stop, at) says how it ended once they are exhausted: STOP_END or STOP_TIME."""


class ExtentsKernel(ABC):
    """The functions for jemalloc."""

    @abstractmethod
    def walk_extents(
        self,
        source: BulkSource,
        rtree: RtreeLayout,
        extent: ExtentLayout,
        bins: Sequence[BinLayout],
        size_classes: Sequence[int],
        narenas: int,
        mapped_bytes: int,
        cached: Sequence[int],
        budget: Budget,
        pagemap_pid: Optional[int] = None,
    ) -> ExtentsResult:
        """Every extent that the rtree names, counted by arena; one pass in address order.

        `size_classes`: sz_index2size of all nsizes. `mapped_bytes`: the sum of the mappings that can hold rtree nodes; more nodes than
        that are not believed. `cached`: sorted array('Q') of the pointers in thread caches. An extent is believed if the leaf
        elements of its first and its last page name it. When the budget expires, or at Ctrl-C, the walk ends with STOP_TIME.
        ValueError for layouts that no jemalloc has.
        """

    @abstractmethod
    def list_blocks(
        self,
        source: BulkSource,
        rtree: RtreeLayout,
        extent: ExtentLayout,
        bins: Sequence[BinLayout],
        size_classes: Sequence[int],
        narenas: int,
        mapped_bytes: int,
        cached: Sequence[int],
        sizes: BlockSizes,
        budget: Budget,
        arena: Optional[int] = None,
        statuses: Optional[Set[int]] = None,
        min_size: int = 0,
        max_size: Optional[int] = None,
    ) -> BlockListing:
        """The blocks of the extents that walk_extents counts, in batches; both size bounds belong to what is listed.

        Regions of slabs with the size of their bin; large allocations at e_addr (which cache-oblivious builds move within the first
        page) with their size by `sizes`, sampled small ones with that of their size class; all other extents whole.
        """
