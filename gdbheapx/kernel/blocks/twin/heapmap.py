"""The map of a heap in Python: what heapmap.c does."""

from bisect import bisect_right
from typing import Iterator, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.blocks.heapmap import (
    MOST_KINDS,
    PAGE_CACHED,
    PAGE_FREE,
    PAGE_OWN,
    PAGE_PINNED,
    PAGE_RETURNED,
    PAGE_STATES,
    PAGE_USED,
    Cell,
    HeapMap,
    MapShape,
)
from gdbheapx.kernel.blocks.records import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RESERVE, CLASS_RETURNED, CLASS_USED, Blocks
from gdbheapx.kernel.common.twin import pagemap

MOST_BYTES = 1 << 62
"""No address and no size is larger, whatever the target says."""
BUSY = 1 << CLASS_USED | 1 << CLASS_OVERHEAD
FREE_RESIDENT, RETURNED_RESIDENT, UNSURE = PAGE_STATES, PAGE_STATES + 1, PAGE_STATES + 2


class TwinHeapMap(HeapMap):
    """See HeapMap."""

    def __init__(self, shape: MapShape, ranges: Sequence[Tuple[int, int]], pages: Optional[PageTable], budget: Budget) -> None:
        self._shape, self._ranges, self._pages, self._budget = shape, list(ranges), pages, budget
        self._ends = [end for _, end in ranges]
        self._before = [0]
        for start, end in ranges:
            self._before.append(self._before[-1] + end - start)
        self._cells = [[0] * len(Cell._fields) for _ in range(shape.cells(ranges))]
        self._page, self._seen = 0, 0
        self._overheads = [*shape.overheads, *[0] * MOST_KINDS][:MOST_KINDS]

    def stream(self, blocks: Iterator[Blocks]) -> None:
        """See HeapMap."""
        for batch in blocks:
            if self._budget.expired():
                return
            for address, usable, class_, kind, _ in zip(*batch):
                self._row(address, usable, class_, kind)

    def cells(self) -> List[Cell]:
        """See HeapMap."""
        self._close_page()
        return [Cell(*numbers) for numbers in self._cells]

    def _row(self, address: int, usable: int, class_: int, kind: int) -> None:
        begin, page = (address - self._shape.lead_bytes) % (1 << 64), self._shape.page_bytes
        size = (usable + (self._overheads[kind] if kind < MOST_KINDS else 0)) % (1 << 64)
        if not 0 < begin <= MOST_BYTES or not 0 < size <= MOST_BYTES or class_ > CLASS_RETURNED:
            return
        if kind in self._shape.free_kinds:
            class_ = CLASS_RESERVE
        first, last = begin & -page, (begin + size - 1) & -page
        self._on_page(first, 1 << class_)
        if last != first:
            self._close_page()
            if last - first > page:
                self._add_pages(first + page, last, self._state_of(1 << class_))
            self._on_page(last, 1 << class_)

    def _on_page(self, page: int, bit: int) -> None:
        if self._page != page:
            self._close_page()
        self._page = page
        self._seen |= bit

    def _close_page(self) -> None:
        if self._seen:
            self._add_pages(self._page, self._page + self._shape.page_bytes, self._state_of(self._seen))
        self._seen = 0

    def _state_of(self, seen: int) -> int:
        if seen & BUSY and seen & ~BUSY:
            return PAGE_PINNED
        if seen & BUSY:
            return PAGE_USED if seen & 1 << CLASS_USED else PAGE_OWN
        if seen & 1 << CLASS_CACHED:
            return PAGE_CACHED
        if seen & (1 << CLASS_FREE | 1 << CLASS_RESERVE):
            return PAGE_PINNED if self._shape.free_is_pinned and seen & 1 << CLASS_FREE else PAGE_FREE
        return PAGE_RETURNED

    def _add_pages(self, begin: int, end: int, state: int) -> None:
        cell_bytes = self._shape.cell_bytes
        for number in range(bisect_right(self._ends, begin), len(self._ranges)):
            start, stop = self._ranges[number]
            if start >= end:
                return
            here, last = max(begin, start), min(end, stop)
            while here < last:
                place = self._before[number] + here - start
                until = min(last, here + cell_bytes - place % cell_bytes)
                self._add_to(self._cells[place // cell_bytes], here, until, state)
                here = until

    def _add_to(self, cell: List[int], begin: int, end: int, state: int) -> None:
        cell[state] += end - begin
        found = pagemap.residency(self._pages, [(begin, end)]) if self._pages is not None and state in (PAGE_FREE, PAGE_RETURNED) else None
        if found is not None:
            cell[FREE_RESIDENT if state == PAGE_FREE else RETURNED_RESIDENT] += found.resident_bytes
            cell[UNSURE] += found.unsure_bytes
