"""Sweeps with some bits a block tell what the graph tells.

Files: kernel/blocks/sweep.py.
"""

import random
from typing import Any, List, Sequence, Tuple

import pytest

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import EXACT_SLOT, LEAKED, RULE_END, RULE_START, GraphShape
from gdbheapx.kernel.blocks.records import CLASS_FREE, CLASS_USED, make_blocks

HEAP, MAPPING, DATA = 0x10000000, 0x7F0000000000, 0x60000000
ROOMS = (HEAP, HEAP + 0x5000000, 0x7E0000000000)


def packed(words: Sequence[int]) -> bytes:
    """As the target has them."""
    return b"".join(one.to_bytes(8, "little") for one in words)


def world(seed: int, blocks: int) -> Tuple[BytesSource, GraphShape, List[Any], List[Tuple[int, int]]]:
    """Random blocks, mappings and roots with pointers of every kind."""
    rng = random.Random(seed)
    starts: List[Tuple[int, int]] = []
    for room in ROOMS:
        at = room
        for _ in range(blocks // 3):
            size = rng.choice((8, 16, 24, 56, 136))
            starts.append((at, size))
            at += -(-size // 16) * 16 + 16 * rng.randrange(2)
    spans = [(MAPPING, MAPPING + 256), (MAPPING + 4096, MAPPING + 4224)]

    def value() -> int:
        address, size = rng.choice(starts)
        near = (address, address, address, address + 3, address + rng.randrange(size), address + size, rng.choice(spans)[0] + 8)
        return rng.choice(near)

    def fill(size: int, share: float) -> bytes:
        return packed([value() if rng.random() < share else 0 for _ in range(size // 8)])

    pieces = {address: fill(size, 0.35) for address, size in starts}
    roots = [(DATA, DATA + 32), (DATA + 4096, DATA + 4096 + 16)]
    pieces.update({start: fill(end - start, 0.3) for start, end in [*spans, *roots]})
    rows = [(address, size, CLASS_USED if rng.random() < 0.9 else CLASS_FREE, 0, 0) for address, size in starts]
    shape = GraphShape([(room, room + 0x100000) for room in ROOMS], spans, 8, True, 16, True)
    return BytesSource(tuple(sorted(pieces.items()))), shape, rows, roots


def both(kernel: CKernel, made: Any, words: Sequence[int] = (), exact: Sequence[int] = ()) -> Tuple[Any, Any, Any]:
    """The graph and the sweeps over one world, and what lies outside its heaps."""
    source, shape, rows, roots = made
    graph = kernel.graph(source, shape, Budget())
    graph.gather([iter([make_blocks(rows)])])
    cuts = [(start, start + (end - start) // 16 * 8, end) for start, end in [*shape.mappings, *roots]]
    outside = [[(start, start, cut), (start, cut, end)] if start < cut else [(start, start, end)] for start, cut, end in cuts]
    for parts in outside:
        for one in parts:
            graph.scan(*one)
        graph.end_node()
    graph.scan_words(words, exact)
    graph.end_node()
    graph.settle()
    graph.resolve()
    sweep = kernel.sweep(source, shape, Budget())
    sweep.gather([iter([make_blocks(rows)])])
    return graph, sweep, [*outside, []]


@pytest.mark.parametrize("seed", range(60))
def test_evidence_is_that_of_the_graph(c_kernel: CKernel, seed: int) -> None:
    """Of every node, in small worlds and larger ones; so are the pointers to a block."""
    made = world(seed, 30 + 40 * (seed % 8))
    words, exact = [made[2][0][0], made[2][-1][0] + 8], [made[2][-2][0] + 7, made[2][3][0] + 20]
    graph, sweep, outside = both(c_kernel, made, words, exact)
    first = graph.numbers().blocks + len(made[1].mappings)
    assert sweep.mark(outside, [(len(made[3]), words)], [(len(made[3]), exact)]) == graph.mark(first)
    assert [sweep.evidence(node) for node in range(graph.nodes)] == [graph.evidence(node) for node in range(graph.nodes)]
    for node in range(0, graph.numbers().blocks, 7):
        found = [(one.node, one.rule, one.slot) for one in sweep.referrers(node, outside, [(len(made[3]), words)], 100)]
        wanted = [(one.node, one.rule, one.slot) for one in graph.referrers(node, 100) if one.slot < EXACT_SLOT]
        assert sorted(found) == sorted(wanted)


@pytest.mark.parametrize("seed", range(60))
def test_ends_of_vectors_among_slots_without_headers(c_kernel: CKernel, seed: int) -> None:
    """Of a slab some slots are vectors' and some are lost. What only vectors end at is told by that, what has a pointer of its own is held, in
    whatever order the vectors and pointers stand side by side."""
    rng, far = random.Random(seed), HEAP + 0x80000
    size, count = rng.choice(((16, 60), (64, 100), (48, 80)))
    slots = [HEAP + size * place for place in range(count)]
    kinds = [rng.choice(("full", "part", "emptied", "plain", "plain", "lost", "lost", "lost", "free")) for _ in slots]
    holders: List[List[int]] = []
    slots, kinds = [*slots, far], [*kinds, "plain"]
    wanted = {place: RULE_START if kind in ("full", "part", "emptied", "plain") else LEAKED for place, kind in enumerate(kinds) if kind != "free"}
    for place, (start, kind) in enumerate(zip(slots, kinds)):
        end, nothing = start + size, [0] * rng.randrange(2)
        if kind in ("full", "part", "emptied"):
            filled = end if kind == "full" else start + rng.randrange(1, size) if kind == "part" else start
            before = [far] if kind == "emptied" else []  # two pointers to a block behind one to its neighbour are a full vector
            holders.append([*before, start, *nothing, filled, *nothing, end])
            if wanted.get(place + 1) in (LEAKED, RULE_END):
                wanted[place + 1] = RULE_START if kind == "emptied" else RULE_END
        elif kind == "plain":
            holders.append([start])
    rng.shuffle(holders)
    if seed % 3 == 0:
        holders.sort(key=lambda words: words[0])
    words = [one for some in holders for one in some]
    half = len(words) if seed % 2 else sum(len(some) for some in holders[: len(holders) // 2])
    cut = [(DATA, DATA + 8 * half), (DATA + 8192, DATA + 8192 + 8 * (len(words) - half))]
    pieces = [(start, bytes(size)) for start in slots] + [(DATA, packed(words[:half])), (DATA + 8192, packed(words[half:]))]
    shape = GraphShape([(HEAP, HEAP + 0x100000)], [], 8, True, 16, bool(seed % 4))
    rows = [(start, size, CLASS_FREE if kind == "free" else CLASS_USED, 0, 0) for start, kind in zip(slots, kinds)]
    graph, sweep, outside = both(c_kernel, (BytesSource(tuple(sorted(pieces))), shape, rows, [span for span in cut if span[0] < span[1]]))
    sums = graph.mark(graph.numbers().blocks)
    assert [graph.evidence(node) for node in range(len(wanted))] == [wanted[place] for place in sorted(wanted)]
    assert sweep.mark(outside) == sums and sums[RULE_END].blocks
    assert [sweep.evidence(node) for node in range(len(wanted))] == [wanted[place] for place in sorted(wanted)]


def test_a_chain_that_leads_back_and_far_takes_few_passes(c_kernel: CKernel) -> None:
    """Each pass in ascending order would find one block of it: a stack goes on, and what it leaves is found by the next pass."""
    count = 30_000
    places = [HEAP + 512 * (one * 7919 % count) for one in range(count)]
    pieces = [(place, packed([after])) for place, after in zip(places, [*places[1:], 0])]
    shape = GraphShape([(HEAP, HEAP + 512 * count)], [], 8, True, 16, False)
    rows = [(place, 8, CLASS_USED, 0, 0) for place in sorted(places)]
    source = BytesSource(tuple(sorted([*pieces, (DATA, packed([places[10]]))])))
    _, sweep, outside = both(c_kernel, (source, shape, rows, [(DATA, DATA + 8)]))
    sums = sweep.mark(outside[:1])
    assert (sums[RULE_START].blocks, sums[LEAKED].blocks) == (count - 10, 10)
    assert sweep.numbers().passes < 100


def test_addresses_far_apart_are_no_endless_work(c_kernel: CKernel) -> None:
    """The index of blocks goes by what is there; more than any machine has is refused at once."""
    source, shape, rows, _ = world(1, 30)
    for far in ((1 << 62, (1 << 62) + 4096), (1 << 48, 1 << 52)):
        for make in (c_kernel.graph, c_kernel.sweep):
            with pytest.raises(MemoryError):
                make(source, shape._replace(mappings=[*shape.mappings, far]), Budget())
    graph = c_kernel.graph(source, shape._replace(mappings=[*shape.mappings, (1 << 55, (1 << 55) + 4096)]), Budget())
    graph.gather([iter([make_blocks(rows)])])
    graph.settle()
    graph.resolve()
    assert graph.numbers().blocks == sum(row[2] == CLASS_USED for row in rows)
