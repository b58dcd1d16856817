"""jemalloc's extents in Python: heaps and rings, blocks, and the walker that has all."""

from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.blocks.records import (
    CLASS_CACHED,
    CLASS_FREE,
    CLASS_OVERHEAD,
    CLASS_RETURNED,
    CLASS_USED,
    EVERYTHING,
    BlockFilter,
    Blocks,
    BlockStream,
    apart_from,
)
from gdbheapx.kernel.blocks.twin import Rows, Source, TwinBlocks
from gdbheapx.kernel.common.records import STOP_END
from gdbheapx.kernel.common.twin.pagemap import open_pages
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.interface import ExtentWalker, check_layout
from gdbheapx.kernel.jemalloc.records import ExtentsResult, HeapLayout, Linked, LinkedList
from gdbheapx.kernel.jemalloc.twin.extent_totals import ACTIVE, DIRTY, Totals, large_size, place_of
from gdbheapx.kernel.jemalloc.twin.extents import Extent, Extents
from gdbheapx.kernel.jemalloc.twin.rtree import ADDRESSES, PAGE_BYTES

MEMBERS_BETWEEN_CLOCKS = 1024
MOST_PAGES = 512


class Follower:
    """Follows lists one after the other."""

    def __init__(self, reader: Reader, heap: HeapLayout) -> None:
        self._read, self._layout, self._heap = reader.read, heap.extent, heap
        self._order = "little" if heap.extent.little_endian else "big"
        self._pages: Dict[int, bytes] = {}

    def follow(self, lists: Sequence[api.LinkedList], budget: Budget) -> List[api.Linked]:
        """What was found, of as many lists as there was time for."""
        found: List[api.Linked] = []
        visited = 0
        try:
            for one in lists:
                steps = [(one.head, 0)] if one.head else []
                answer = api.Linked(0, 0, api.LINKED_GOOD, 0, 0)
                while steps and not answer.problem:
                    visited += 1
                    if visited % MEMBERS_BETWEEN_CLOCKS == 1 and budget.expired():
                        return found
                    answer = self._visit(one, answer, steps)
                found.append(answer)
        except KeyboardInterrupt:
            budget.interrupt()
        return found

    def _visit(self, one: api.LinkedList, answer: api.Linked, steps: List[Tuple[int, int]]) -> api.Linked:
        (at, before), is_ring = steps.pop(), one.child_offset == api.NO_LINK
        answer = answer._replace(at=at, before=before)
        data = self._bytes(at)
        if data is None:
            return answer._replace(problem=api.LINKED_UNREADABLE)
        layout = self._layout
        if before and self._word(data, one.prev_offset) != before:
            return answer._replace(problem=api.LINKED_BACK)
        if is_ring and before and at == one.head:
            return answer
        problem = self._judge(one, int.from_bytes(data[layout.bits_offset : layout.bits_offset + 8], self._order))  # type: ignore[arg-type]
        if problem or answer.members >= one.most:
            return answer._replace(problem=problem or api.LINKED_CYCLE)
        for offset in (one.next_offset,) if is_ring else (one.next_offset, one.child_offset):
            link = self._word(data, offset)
            if link or is_ring:
                steps.append((link, at))
        size = self._word(data, layout.size_offset) & -(1 << self._heap.rtree.lg_page)
        return answer._replace(members=answer.members + 1, bytes=answer.bytes + size)

    def _judge(self, one: api.LinkedList, bits: int) -> int:
        layout, bins = self._layout, self._heap.bins
        arena, state, szind, nfree = (
            bits >> field.shift & (1 << field.width) - 1 for field in (layout.arena, layout.state, layout.szind, layout.nfree)
        )
        if arena != one.arena or state != one.state or one.szind not in (api.ANY, szind):
            return api.LINKED_ALIEN
        if one.is_nonfull and (szind >= len(bins) or not 0 < nfree < bins[szind].nregs):
            return api.LINKED_FULL
        return api.LINKED_GOOD

    def _word(self, data: bytes, offset: int) -> int:
        return int.from_bytes(data[offset : offset + self._layout.word_bytes], self._order)  # type: ignore[arg-type]

    def _bytes(self, address: int) -> Optional[bytes]:
        size, page = self._layout.size_bytes, address & -PAGE_BYTES
        if address % self._layout.word_bytes or address + size >= ADDRESSES:
            return None
        offset = address - page
        if offset + size <= PAGE_BYTES:
            if page not in self._pages:
                if len(self._pages) >= MOST_PAGES:
                    self._pages.clear()
                self._pages[page] = self._read(page, PAGE_BYTES)
            data = self._pages[page][offset : offset + size]
            if len(data) == size:
                return data
        data = self._read(address, size)
        return data if len(data) == size else None


CLASS_OF = {
    api.BLOCK_USED: CLASS_USED,
    api.BLOCK_CACHED: CLASS_CACHED,
    api.BLOCK_FREE: CLASS_FREE,
    api.BLOCK_DIRTY: CLASS_RETURNED,
    api.BLOCK_MUZZY: CLASS_RETURNED,
    api.BLOCK_RETAINED: CLASS_RETURNED,
    api.BLOCK_OTHER: CLASS_OVERHEAD,
    api.BLOCK_PINNED: CLASS_RETURNED,
}
REGIONS = frozenset((api.BLOCK_USED, api.BLOCK_CACHED, api.BLOCK_FREE))


class ExtentBlocks(Source):
    """The blocks of one extent after the other, an extent at once."""

    stop = STOP_END

    def __init__(self, extents: Extents, heap: api.HeapLayout, cached: Sequence[int], arena: Optional[int], wanted: BlockFilter) -> None:
        self._extents, self._heap, self._cached = extents, heap, frozenset(cached)
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
            kind = (api.BLOCK_DIRTY, api.BLOCK_MUZZY, api.BLOCK_RETAINED, api.BLOCK_PINNED, api.BLOCK_OTHER)[place - DIRTY]
            self._add(rows, extent, extent.begin, extent.end - extent.begin, kind)
        elif extent.slab:
            self._add_regions(rows, extent)
        else:
            kind = api.BLOCK_CACHED if extent.address in self._cached else api.BLOCK_USED
            self._add(rows, extent, extent.address, large_size(self._heap, extent), kind)

    def _add(self, rows: Rows, extent: Extent, address: int, size: int, kind: int) -> None:
        if self._wanted.has(kind, size) and address >= self._wanted.start:
            rows.add(address, size, CLASS_OF[kind], kind, extent.arena)

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


class ExtentTwin(ExtentWalker):
    """See ExtentWalker."""

    def __init__(self, reader: Reader, heap: HeapLayout, budget: Budget) -> None:
        check_layout(heap)
        self._reader, self._heap, self._budget = reader, heap, budget

    def walk(self, cached: Sequence[int], pages: Optional[PageTable] = None, runs: Optional[Sequence[int]] = None) -> ExtentsResult:
        """See ExtentWalker."""
        extents = Extents(self._reader, self._heap)
        return Totals(extents, self._heap, cached, open_pages(pages), runs).walk(self._budget)

    def blocks(
        self, cached: Sequence[int], wanted: BlockFilter = EVERYTHING, arena: Optional[int] = None, apart: Optional[Blocks] = None
    ) -> BlockStream:
        """See ExtentWalker."""
        blocks = ExtentBlocks(Extents(self._reader, self._heap), self._heap, cached, arena, wanted)
        return TwinBlocks(blocks, apart_from(apart, wanted), self._budget)

    def follow(self, lists: Sequence[LinkedList]) -> List[Linked]:
        """See ExtentWalker."""
        return Follower(self._reader, self._heap).follow(lists, self._budget)
