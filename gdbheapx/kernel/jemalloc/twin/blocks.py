"""jemalloc's blocks as a stream, in Python: what blocks.c does."""

from typing import Optional, Sequence

from gdbheapx.kernel.blocks.records import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RETURNED, CLASS_USED, BlockFilter
from gdbheapx.kernel.blocks.twin import Rows, Source
from gdbheapx.kernel.common.records import STOP_END
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.twin.extent_totals import ACTIVE, DIRTY, place_of
from gdbheapx.kernel.jemalloc.twin.extents import Extent, Extents

CLASS_OF = {
    api.BLOCK_USED: CLASS_USED,
    api.BLOCK_CACHED: CLASS_CACHED,
    api.BLOCK_FREE: CLASS_FREE,
    api.BLOCK_DIRTY: CLASS_RETURNED,
    api.BLOCK_MUZZY: CLASS_RETURNED,
    api.BLOCK_RETAINED: CLASS_RETURNED,
    api.BLOCK_OTHER: CLASS_OVERHEAD,
}
REGIONS = frozenset((api.BLOCK_USED, api.BLOCK_CACHED, api.BLOCK_FREE))


class ExtentBlocks(Source):
    """The blocks of one extent after the other, an extent at once."""

    stop = STOP_END

    def __init__(self, extents: Extents, heap: api.HeapLayout, cached: Sequence[int], arena: Optional[int], wanted: BlockFilter) -> None:
        self._extents, self._size_classes, self._cached, self._sizes = extents, heap.size_classes, frozenset(cached), heap.sizes
        self._arena, self._wanted = arena, wanted

    @property
    def ended(self) -> bool:
        """See Source."""
        return self._extents.ended

    @property
    def at(self) -> int:
        """See Source."""
        return self._extents.at if self.ended else max(self._extents.at, self._wanted.start)

    def fill(self, rows: Rows) -> None:
        """See Source."""
        while rows.left > 0:
            extent = self._extents.next()
            if extent is None:
                return
            if self._arena in (None, extent.arena) and extent.end > self._wanted.start:
                self._add_blocks(rows, extent)

    def _add_blocks(self, rows: Rows, extent: Extent) -> None:
        place = place_of(self._extents, extent.state)
        if place != ACTIVE:
            kind = (api.BLOCK_DIRTY, api.BLOCK_MUZZY, api.BLOCK_RETAINED, api.BLOCK_OTHER)[place - DIRTY]
            self._add(rows, extent, extent.begin, extent.end - extent.begin, kind)
        elif extent.slab:
            self._add_regions(rows, extent)
        else:
            kind = api.BLOCK_CACHED if extent.address in self._cached else api.BLOCK_USED
            self._add(rows, extent, extent.address, self._large_size(extent), kind)

    def _add(self, rows: Rows, extent: Extent, address: int, size: int, kind: int) -> None:
        if self._wanted.has(kind, size) and address >= self._wanted.start:
            rows.add(address, size, CLASS_OF[kind], kind, extent.arena)

    def _large_size(self, extent: Extent) -> int:
        size = extent.end - extent.begin
        if not self._sizes.from_extent or extent.szind < len(self._extents.bins):
            return self._size_classes[extent.szind]
        return size - self._sizes.large_pad_bytes if size > self._sizes.large_pad_bytes else size

    def _add_regions(self, rows: Rows, extent: Extent) -> None:
        shape = self._extents.bins[extent.szind]
        size, kinds = shape.reg_size_bytes, self._wanted.kinds
        if not any(self._wanted.has(kind, size) for kind in REGIONS):
            return
        for region in range(shape.nregs):
            address = extent.begin + region * size
            if extent.free >> region & 1:
                kind = api.BLOCK_FREE
            else:
                kind = api.BLOCK_CACHED if address in self._cached else api.BLOCK_USED
            if (kinds is None or kind in kinds) and address >= self._wanted.start:
                rows.add(address, size, CLASS_OF[kind], kind, extent.arena)
