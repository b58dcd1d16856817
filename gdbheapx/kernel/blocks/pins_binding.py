"""The C kernel's pins, by ctypes."""

from array import array
from typing import Any, Iterator, List

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.graph_binding import Listed
from gdbheapx.kernel.blocks.pins import PinGroup, PinLabels, Pins, PinShape
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.common.library import NO_MEMORY, OpenSource, at, run

NUMBERS = len(PinGroup._fields)


class CPins(Pins):
    """See Pins."""

    def __init__(self, library: Any, opened: OpenSource, shape: PinShape, labels: PinLabels, first: int, budget: Budget) -> None:
        self._library, self._opened, self._budget = library, opened, budget
        graph: Any = labels.graph
        rooms, apart = array("Q", [number for room in shape.rooms for number in room]), array("Q", shape.apart)
        own, known, tree = array("Q", labels.own), array("I", labels.labels), labels.tree
        self._kept = (shape.numbers(), rooms, apart, own, known, graph, tree)
        arrays = (at(rooms), len(shape.rooms), at(apart), len(apart), at(own), len(own))
        self._handle = library.heapx_pins_new(at(self._kept[0]), *arrays)
        if not self._handle:
            raise MemoryError()
        library.heapx_pins_label(self._handle, None if graph is None else graph.handle, at(known), len(known), first)
        if tree is not None and not library.heapx_pins_own(
            self._handle, at(tree.owners), at(tree.retained_bytes), len(tree.owners), labels.least_retained_bytes
        ):
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_pins_free(self._handle)
            self._handle = None

    def stream(self, blocks: Iterator[Blocks]) -> None:
        """See Pins."""
        source: Any = blocks if isinstance(blocks, CBlocks) else Listed(self._library, blocks)
        run(lambda seconds: self._library.heapx_pins_slice(self._handle, source.handle, seconds), self._opened, self._budget)

    def found(self) -> List[PinGroup]:
        """See Pins."""
        sums = array("Q", bytes(16))
        count = self._library.heapx_pins_end(self._handle, at(sums))
        if count == NO_MEMORY:
            raise MemoryError()
        self.returned_bytes, self.used_blocks = sums
        out = array("Q", bytes(8 * NUMBERS * count))
        self._library.heapx_pins_groups(self._handle, at(out))
        return [PinGroup(*out[place : place + NUMBERS]) for place in range(0, len(out), NUMBERS)]
