"""Memory made by hand for the kernel: blocks that point to each other in every way there is."""

import random
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import Graph, GraphShape
from gdbheapx.kernel.blocks.stream import CLASS_FREE, CLASS_USED, make_blocks

HEAP, MAPPING, DATA = 0x10000000, 0x7F0000000000, 0x60000000
ROOMS = (HEAP, HEAP + 0x5000000, 0x7E0000000000)
"""Heaps: two in neighbouring slots of the index, one far away."""


class GraphMemory(NamedTuple):
    """Memory with blocks in it, mappings, and roots."""

    source: BytesSource
    shape: GraphShape
    rows: Sequence[Tuple[int, int, int, int, int]]
    roots: Sequence[Tuple[int, int]]
    order: str


def word(value: int, size: int, order: str) -> bytes:
    """A word of the target."""
    return (value & (1 << 8 * size) - 1).to_bytes(size, "little" if order == "little" else "big")


def pack_words(words: Sequence[int], size: int = 8, order: str = "little") -> bytes:
    """Words of the target, one behind the other."""
    return b"".join(word(one, size, order) for one in words)


def lay_out(blocks: Dict[int, bytes], roots: Dict[int, bytes], order: str = "little", **shape: Any) -> GraphMemory:
    """Blocks in use and roots with these bytes, by their addresses; `shape`: what of it is not usual."""
    usual = GraphShape([(HEAP, HEAP + (64 << 20))], [], 8, order == "little", 16, True)
    rows = [(address, len(data), CLASS_USED, 0, 0) for address, data in sorted(blocks.items())]
    spans = [(address, address + len(data)) for address, data in roots.items()]
    return GraphMemory(BytesSource(tuple(sorted({**blocks, **roots}.items()))), usual._replace(**shape), rows, spans, order)


def make(seed: int, blocks: int = 60, unit: int = 16, word_bytes: int = 8, order: str = "little", slots: bool = True) -> GraphMemory:
    """Random blocks that point to each other in every way there is."""
    rng = random.Random(seed)
    starts: List[Tuple[int, int]] = []
    rooms = ROOMS if word_bytes == 8 else (HEAP, HEAP + 0x5000000, 0x7E000000)
    for room in rooms:
        at = room + rng.randrange(4) * unit
        for _ in range(blocks // 3):
            size = rng.choice((unit - word_bytes or unit, 2 * unit, 3 * unit - 4, 5 * unit, 9 * unit)) & ~3 or unit
            starts.append((at, size))
            at += -(-size // unit) * unit + rng.randrange(3) * unit * (rng.random() < 0.5)
    mapping = MAPPING if word_bytes == 8 else 0x7F000000
    spans = [(mapping, mapping + 256), (mapping + 4096, mapping + 4096 + 128)]

    def value() -> int:
        address, size = rng.choice(starts)
        kind = rng.random()
        if kind < 0.5:
            return address
        if kind < 0.6:
            return address + rng.randrange(1, 4)
        if kind < 0.75:
            return address + rng.randrange(size)
        if kind < 0.8:
            return address + size
        if kind < 0.85:
            return rng.choice(spans)[0] + rng.randrange(100)
        return rng.getrandbits(8 * word_bytes)

    def fill(size: int, share: float) -> bytes:
        return b"".join(word(value() if rng.random() < share else 0, word_bytes, order) for _ in range(size // word_bytes)) + bytes(size % word_bytes)

    pieces = {address: fill(size, 0.4) for address, size in starts}
    pieces.update({start: fill(end - start, 0.2) for start, end in spans})
    roots = [(DATA, DATA + 64), (DATA + 256, DATA + 256 + 32), (DATA + 4096, DATA + 4096 + 16)]
    pieces.update({start: fill(end - start, 0.3) for start, end in roots})
    heaps = [(room, room + 0x100000) for room in rooms]
    shape = GraphShape(heaps, spans, word_bytes, order == "little", unit if unit in (4, 8, 16) else 8, slots)
    rows = [(address, size, CLASS_USED if rng.random() < 0.9 else CLASS_FREE, 0, 0) for address, size in starts]
    return GraphMemory(BytesSource(tuple(sorted(pieces.items()))), shape, rows, roots, order)


def roots_from(graph: Graph, world: GraphMemory) -> int:
    """The first root."""
    return graph.numbers().blocks + len(world.shape.mappings)


def build(
    kernel: CKernel, world: GraphMemory, more: Sequence[int] = (), prepare: Optional[Callable[[Graph], None]] = None, image: Any = None
) -> Graph:
    """The graph of a world; its registers hold `more`. `prepare`: what it is told before blocks are read; `image`: where vtables are."""
    graph = kernel.graph(world.source, world.shape, Budget(), image)
    if prepare is not None:
        prepare(graph)
    half = len(world.rows) // 2
    graph.gather([iter([make_blocks(world.rows[:half])]), iter([make_blocks(world.rows[half:])])])
    for start, end in [*world.shape.mappings, *world.roots]:
        graph.scan(start, start, end)
        graph.end_node()
    graph.scan_words(more, [one + 9 for one in more])
    graph.end_node()
    graph.settle()
    graph.habits = graph.resolve()  # type: ignore[attr-defined]
    return graph
