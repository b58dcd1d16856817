"""The C kernel's sweeps, by ctypes: what holds each block, where the graph does not fit."""

from array import array
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.blocks.binding import join_streams
from gdbheapx.kernel.blocks.graph import EXACT_SLOT, LEAKED, NO_NODE, GraphShape, NativeSum, Referrer, flatten_pairs, pack_target_words
from gdbheapx.kernel.blocks.records import NativeBlocks
from gdbheapx.kernel.common.library import OpenSource, address_of, declare_functions, run_resumable

PROTOTYPES = """
void heapx_sweep_free(struct sweep *sweep);
struct sweep *heapx_sweep_new(const struct source *memory, unsigned word, int little_endian, unsigned shift, const uint64_t *heaps,
    uint64_t heap_count, const uint64_t *mappings, uint64_t mapping_count, uint64_t ignored);
int heapx_sweep_open(struct sweep *sweep, uint32_t roots_from, uint32_t nodes, const struct part *parts, uint64_t part_count,
    uint32_t wanted, uint64_t room);
void heapx_sweep_bytes(struct sweep *sweep, uint32_t node, const uint8_t *bytes, uint64_t size, uint64_t first_slot);
int64_t heapx_sweep_slice(struct sweep *sweep, double seconds);
int64_t heapx_sweep_fill(struct sweep *sweep, struct block_source *blocks, const uint64_t *own, uint64_t own_count, double seconds);
int64_t heapx_sweep_settle(struct sweep *sweep);
unsigned heapx_sweep_evidence(const struct sweep *sweep, uint32_t node);
void heapx_sweep_sums(const struct sweep *sweep, struct sum *out);
void heapx_sweep_numbers(const struct sweep *sweep, struct sweep_numbers *out);
uint64_t heapx_sweep_referrers(const struct sweep *sweep, struct referrer *out, uint64_t room);
"""


class NativePart(NamedTuple):
    """A part of a mapping or root, which begins at `base`."""

    node: int
    base: int
    begin: int
    end: int


class SweepNumbers(NamedTuple):
    """Cost of the sweeps."""

    blocks: int
    passes: int
    bytes_read: int
    unread_bytes: int
    unread_at: int
    odd_blocks: int


class Sweep:
    """Nodes are numbered as in Graph. In this order: gather(), mark() or referrers(). Offsets of habit count as inside."""

    def __init__(self, library: Any, opened: OpenSource, shape: GraphShape, budget: Budget) -> None:
        self._library, self._opened, self._budget, self._shape = declare_functions(library, PROTOTYPES), opened, budget, shape
        self._heaps, self._mappings, self._parts = flatten_pairs(shape.heaps), flatten_pairs(shape.mappings), array("Q")
        numbers = (shape.word_bytes, int(shape.little_endian), shape.unit_bytes.bit_length() - 1)
        ranges = (address_of(self._heaps), len(shape.heaps), address_of(self._mappings), len(shape.mappings))
        self._handle = library.heapx_sweep_new(opened.handle, *numbers, *ranges, shape.ignored_bits)
        if not self._handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_sweep_free(self._handle)
            self._handle = None

    def gather(self, streams: Sequence[Iterator[NativeBlocks]], own: Sequence[int] = ()) -> None:
        """Finds all used blocks; reads no more of them than that takes."""
        library, places = self._library, array("Q", sorted(own))
        with join_streams(library, streams) as blocks:
            work = (self._handle, blocks, address_of(places), len(places))
            run_resumable(lambda seconds: library.heapx_sweep_fill(*work, seconds), self._opened, self._budget)
        if library.heapx_sweep_settle(self._handle) != 1:
            raise MemoryError()

    def _open_pass(self, outside: Sequence[Sequence[Tuple[int, int, int]]], roots: int, wanted: int, room: int) -> None:
        first = self.numbers().blocks
        parts = [NativePart(first + place, *part) for place, ranges in enumerate(outside) for part in ranges or [(0, 0, 0)]]
        self._parts = array("Q", [number for part in parts for number in part])
        nodes = (first + len(self._shape.mappings), first + len(self._shape.mappings) + roots)
        if not self._library.heapx_sweep_open(self._handle, *nodes, address_of(self._parts), len(parts), wanted, room):
            raise MemoryError()

    def _finish_pass(self, words: Sequence[Tuple[int, Sequence[int]]], exact: Sequence[Tuple[int, Sequence[int]]] = ()) -> None:
        first = self.numbers().blocks + len(self._shape.mappings)
        for slot, some in ((0, words), (EXACT_SLOT, exact)):
            for root, numbers in some:
                data = array("B", pack_target_words(numbers, self._shape))
                self._library.heapx_sweep_bytes(self._handle, first + root, address_of(data), len(data), slot)
        run_resumable(lambda seconds: self._library.heapx_sweep_slice(self._handle, seconds), self._opened, self._budget)

    def mark(
        self,
        outside: Sequence[Sequence[Tuple[int, int, int]]],
        words: Sequence[Tuple[int, Sequence[int]]] = (),
        exact: Sequence[Tuple[int, Sequence[int]]] = (),
    ) -> Tuple[NativeSum, ...]:
        """Finds what leads to each node, as Graph.mark(). `outside`: of each mapping, then of each root, (base, start, end) of what is to
        be read; `words`: (number of the root, its words) of registers; `exact`: as for Graph.scan_words()."""
        self._open_pass(outside, len(outside) - len(self._shape.mappings), NO_NODE, 0)
        self._finish_pass(words, exact)
        out = array("Q", bytes(16 * (LEAKED + 1)))
        self._library.heapx_sweep_sums(self._handle, address_of(out))
        return tuple(NativeSum(*out[place : place + 2]) for place in range(0, len(out), 2))

    def referrers(
        self, node: int, outside: Sequence[Sequence[Tuple[int, int, int]]], words: Sequence[Tuple[int, Sequence[int]]], limit: int
    ) -> List[Referrer]:
        """Return the pointers to a block, found by one pass over everything; the result of mark() is forgotten."""
        self._open_pass(outside, len(outside) - len(self._shape.mappings), node, limit)
        self._finish_pass(words)
        out = array("Q", bytes(24 * limit))
        count = min(limit, self._library.heapx_sweep_referrers(self._handle, address_of(out), limit))
        return [Referrer(*out[place : place + 3]) for place in range(0, 3 * count, 3)]

    def evidence(self, node: int) -> int:
        """Return the evidence for a node, RULE_START to LEAKED, after mark()."""
        return int(self._library.heapx_sweep_evidence(self._handle, node))

    def numbers(self) -> SweepNumbers:
        """Return the cost of the sweeps."""
        out = array("Q", bytes(8 * len(SweepNumbers._fields)))
        self._library.heapx_sweep_numbers(self._handle, address_of(out))
        return SweepNumbers(*out)
