"""The C kernel's map of a heap, by ctypes."""

from array import array
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.graph_binding import Listed
from gdbheapx.kernel.blocks.heapmap import Cell, HeapMap, MapShape
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.common.library import OpenPages, OpenSource, at, run

NUMBERS = len(Cell._fields)


class CHeapMap(HeapMap):
    """See HeapMap."""

    def __init__(
        self,
        library: Any,
        opened: OpenSource,
        shape: MapShape,
        ranges: Sequence[Tuple[int, int]],
        pages: Optional[PageTable],
        budget: Budget,
    ) -> None:
        self._library, self._opened, self._budget = library, opened, budget
        self._table, self._count = OpenPages(library, pages), shape.cells(ranges)
        numbers, bounds = shape.numbers(), array("Q", [bound for one in ranges for bound in one])
        self._handle = library.heapx_map_new(at(numbers), at(bounds), len(ranges), self._table.handle)
        if not self._handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_map_free(self._handle)
            self._handle = None

    def stream(self, blocks: Iterator[Blocks]) -> None:
        """See HeapMap."""
        source: Any = blocks if isinstance(blocks, CBlocks) else Listed(self._library, blocks)
        run(lambda seconds: self._library.heapx_map_slice(self._handle, source.handle, seconds), self._opened, self._budget)

    def cells(self) -> List[Cell]:
        """See HeapMap."""
        out = array("Q", bytes(8 * NUMBERS * max(1, self._count)))
        self._library.heapx_map_cells(self._handle, at(out))
        return [Cell(*out[place : place + NUMBERS]) for place in range(0, NUMBERS * self._count, NUMBERS)]
