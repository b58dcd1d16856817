"""The C kernel's sweeps, by ctypes: what holds each block, where the graph does not fit."""

from array import array
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.binding import CBlocks, Listed
from gdbheapx.kernel.blocks.graph import EXACT_SLOT, LEAKED, NO_NODE, GraphShape, Referrer, Sum, flat, packed
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.kernel.common.library import OpenSource, at, run


class SweepNumbers(NamedTuple):
    """What the sweeps took."""

    blocks: int
    passes: int
    bytes_read: int
    unread_bytes: int
    unread_at: int
    odd_blocks: int


class Sweep:
    """Nodes are numbered as in Graph. In this order: gather(), mark() or referrers(). Offsets of habit count as inside."""

    def __init__(self, library: Any, opened: OpenSource, shape: GraphShape, budget: Budget) -> None:
        self._library, self._opened, self._budget, self._shape = library, opened, budget, shape
        self._heaps, self._mappings, self._parts = flat(shape.heaps), flat(shape.mappings), array("Q")
        numbers = (shape.word_bytes, int(not shape.little_endian), shape.unit_bytes.bit_length() - 1)
        ranges = (at(self._heaps), len(shape.heaps), at(self._mappings), len(shape.mappings))
        self._handle = library.heapx_sweep_new(opened.handle, *numbers, *ranges)
        if not self._handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_sweep_free(self._handle)
            self._handle = None

    def gather(self, streams: Sequence[Iterator[Blocks]], own: Sequence[int] = ()) -> None:
        """Finds all used blocks; reads no more of them than that takes."""
        library = self._library
        listed = [Listed(library, stream) for stream in streams if not isinstance(stream, CBlocks)]
        opened = [stream.handle for stream in streams if isinstance(stream, CBlocks)] + [one.handle for one in listed]
        handles, places = array("Q", opened), array("Q", sorted(own))
        joined = library.heapx_blocks_join(at(handles), len(handles)) if len(handles) != 1 else handles[0]
        if not joined:
            raise MemoryError()
        try:
            work = (self._handle, joined, at(places), len(places))
            run(lambda seconds: library.heapx_sweep_fill(*work, seconds), self._opened, self._budget)
        finally:
            if len(handles) != 1:
                library.heapx_blocks_free(joined)
        if library.heapx_sweep_settle(self._handle) != 1:
            raise MemoryError()

    def _open(self, outside: Sequence[Sequence[Tuple[int, int, int]]], roots: int, wanted: int, room: int) -> None:
        first = self.numbers().blocks
        parts = [(first + place, *part) for place, ranges in enumerate(outside) for part in ranges or [(0, 0, 0)]]
        self._parts = array("Q", [number for part in parts for number in part])
        nodes = (first + len(self._shape.mappings), first + len(self._shape.mappings) + roots)
        if not self._library.heapx_sweep_open(self._handle, *nodes, at(self._parts), len(parts), wanted, room):
            raise MemoryError()

    def _finish(self, words: Sequence[Tuple[int, Sequence[int]]], exact: Sequence[Tuple[int, Sequence[int]]] = ()) -> None:
        first = self.numbers().blocks + len(self._shape.mappings)
        for slot, some in ((0, words), (EXACT_SLOT, exact)):
            for root, numbers in some:
                data = array("B", packed(numbers, self._shape))
                self._library.heapx_sweep_bytes(self._handle, first + root, at(data), len(data), slot)
        run(lambda seconds: self._library.heapx_sweep_slice(self._handle, seconds), self._opened, self._budget)

    def mark(
        self,
        outside: Sequence[Sequence[Tuple[int, int, int]]],
        words: Sequence[Tuple[int, Sequence[int]]] = (),
        exact: Sequence[Tuple[int, Sequence[int]]] = (),
    ) -> Tuple[Sum, ...]:
        """Finds what leads to each node, as Graph.mark(). `outside`: of each mapping, then of each root, (base, start, end) of what is to
        be read; `words`: (number of the root, its words) of registers; `exact`: as for Graph.scan_words()."""
        self._open(outside, len(outside) - len(self._shape.mappings), NO_NODE, 0)
        self._finish(words, exact)
        out = array("Q", bytes(16 * (LEAKED + 1)))
        self._library.heapx_sweep_sums(self._handle, at(out))
        return tuple(Sum(*out[place : place + 2]) for place in range(0, len(out), 2))

    def referrers(
        self, node: int, outside: Sequence[Sequence[Tuple[int, int, int]]], words: Sequence[Tuple[int, Sequence[int]]], limit: int
    ) -> List[Referrer]:
        """Who points to a block, by one pass over everything; what mark() has found is forgotten."""
        self._open(outside, len(outside) - len(self._shape.mappings), node, limit)
        self._finish(words)
        out = array("Q", bytes(24 * limit))
        count = min(limit, self._library.heapx_sweep_referrers(self._handle, at(out), limit))
        return [Referrer(*out[place : place + 3]) for place in range(0, 3 * count, 3)]

    def evidence(self, node: int) -> int:
        """What leads to a node, after mark()."""
        return int(self._library.heapx_sweep_evidence(self._handle, node))

    def numbers(self) -> SweepNumbers:
        """What it took."""
        out = array("Q", bytes(8 * 6))
        self._library.heapx_sweep_numbers(self._handle, at(out))
        return SweepNumbers(*out)
