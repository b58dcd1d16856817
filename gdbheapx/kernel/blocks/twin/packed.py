"""Writing and reading graphs in Python: what pack.c and unpack.c do."""

from bisect import bisect_right
from typing import Iterator, List, Sequence, Tuple

from gdbheapx.kernel.blocks.graph import NO_SLOT, RULE_BASE, RULE_HABIT, RULE_INSIDE
from gdbheapx.kernel.blocks.packed import (
    ADDRESSES,
    DEGREES,
    EDGES,
    HIGHEST,
    INSIDE,
    KINDS,
    LINK,
    MOST_LINED,
    MOST_SLOTS,
    SIZES,
    SLOT_SHIFT,
    SLOTS,
    Move,
    PackedGraph,
    Pieces,
    numbers,
    packed,
)
from gdbheapx.kernel.blocks.twin.edge import TwinEdge

RULES = 6
OFFSET_RULES = (RULE_BASE, RULE_HABIT, RULE_INSIDE)
MOST_OFFSET, MOST_SLOT = 65535, 0xFFFFFFFF


def pieces(
    blocks: Sequence[Tuple[int, int]], edges: Sequence[Sequence[TwinEdge]], moves: Sequence[Move], unit_bytes: int, slots: bool
) -> Pieces:
    """One piece of each stream. ValueError where a block lies in none of the mappings."""
    moved = [0, *(_moved(address, moves) for address, _ in blocks)]
    if any(after <= before for before, after in zip(moved, moved[1:])):
        raise ValueError("a block lies in no mapping")
    every = [edge for some in edges for edge in some]
    streams = {
        ADDRESSES: packed([(after - before) // unit_bytes for before, after in zip(moved, moved[1:])]),
        SIZES: packed([size // 4 for _, size in blocks]),
        DEGREES: packed([len(some) for some in edges]),
        EDGES: packed([number for node, some in enumerate(edges) for number in _away(node, some)]),
        KINDS: bytes(edge.rule | (LINK if edge.is_link else 0) for edge in every),
        INSIDE: packed([edge.inside for edge in every if edge.rule in OFFSET_RULES]),
        SLOTS: packed([number for some in (edges if slots else edges[len(blocks) :]) for number in _steps(some)]),
    }
    return iter([(stream, data) for stream, data in streams.items() if data])


def _moved(address: int, moves: Sequence[Move]) -> int:
    place = bisect_right(moves, (address, 1 << 65, 0)) - 1
    return address - moves[place][0] + moves[place][2] if place >= 0 and address < moves[place][1] else 0


def _away(node: int, some: Sequence[TwinEdge]) -> Iterator[int]:
    before = node
    for edge in some:
        away = edge.node - before
        yield away << 1 if away >= 0 else (-away << 1) - 1
        before = edge.node


def _steps(some: Sequence[TwinEdge]) -> Iterator[int]:
    before = 0
    for edge in some:
        yield edge.slot - before
        before = edge.slot


def unpacked(kept: PackedGraph) -> Tuple[List[Tuple[int, int]], List[List[TwinEdge]]]:
    """Blocks, and edges by node. ValueError where the streams are none of a graph."""
    if not kept.is_possible():
        raise ValueError("numbers of its graph are none")
    blocks = _blocks(kept)
    return blocks, _Edges(kept, len(blocks)).all()


def _blocks(kept: PackedGraph) -> List[Tuple[int, int]]:
    found: List[Tuple[int, int]] = []
    address = end = 0
    steps, sizes = numbers(kept.streams.get(ADDRESSES, b"")), numbers(kept.streams.get(SIZES, b""))
    if len(steps) != len(sizes):
        raise ValueError("not every block has a size")
    lined, touched, last = set(), 0, -1
    for step, size in zip(steps, sizes):
        address += step * kept.unit_bytes
        if not step or not size or address < end or address + 4 * size > HIGHEST:
            raise ValueError("blocks overlap")
        lined.add(address >> SLOT_SHIFT)
        first, before, last = address >> SLOT_SHIFT, last, address + 4 * size - 1 >> SLOT_SHIFT
        touched += last - max(first - 1, before)
        end = address + 4 * size
        found.append((address, 4 * size))
    if len(lined) > MOST_LINED or touched > MOST_SLOTS:
        raise ValueError("blocks are too far apart")
    return found


class _Edges:
    """The streams of the edges, as they are read."""

    def __init__(self, kept: PackedGraph, blocks: int) -> None:
        self._kept, self._blocks = kept, blocks
        self._degrees = numbers(kept.streams.get(DEGREES, b""))
        self._away = iter(numbers(kept.streams.get(EDGES, b"")))
        self._kinds = iter(kept.streams.get(KINDS, b""))
        self._inside = iter(numbers(kept.streams.get(INSIDE, b"")))
        self._slots = iter(numbers(kept.streams.get(SLOTS, b"")))

    def all(self) -> List[List[TwinEdge]]:
        """By node."""
        roots_from = self._blocks + len(self._kept.mappings)
        count = len(self._kept.streams.get(KINDS, b""))
        if len(self._degrees) < roots_from or sum(self._degrees) != count:
            raise ValueError("not every node has its edges")
        try:
            found = [self._of(node, degree, roots_from) for node, degree in enumerate(self._degrees)]
        except StopIteration:
            raise ValueError("there is less of some edges")
        if any(next(rest, None) is not None for rest in (self._away, self._inside, self._slots)):
            raise ValueError("there is more than edges have")
        return found

    def _of(self, node: int, degree: int, roots_from: int) -> List[TwinEdge]:
        found = []
        target, slot = node, 0
        has_slot = self._kept.has_slots or node >= self._blocks
        for _ in range(degree):
            away, kind = next(self._away), next(self._kinds)
            target += -(away + 1 >> 1) if away & 1 else away >> 1
            rule = kind & 7
            if not 0 <= target < roots_from or target == node or rule >= RULES or kind > (RULES - 1 | LINK):
                raise ValueError("an edge leads nowhere")
            inside = next(self._inside) if rule in OFFSET_RULES else 0
            slot += next(self._slots) if has_slot else 0
            if inside > MOST_OFFSET or slot > MOST_SLOT:
                raise ValueError("an edge stands nowhere")
            found.append(TwinEdge(target, rule, slot if has_slot else NO_SLOT, inside, bool(kind & LINK)))
        return found
