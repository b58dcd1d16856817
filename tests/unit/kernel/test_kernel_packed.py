"""Graphs as streams of bytes: their numbers are those of the format, and what is read back answers as what was written."""

import random
from array import array
from typing import Any, Dict, List, Sequence

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks import packed
from gdbheapx.kernel.blocks.graph import LEAKED, MASKED, NO_NODE, OWNS_ALL, Graph, Owning
from gdbheapx.kernel.blocks.packed import HIGHEST, Move, PackedGraph
from tests.support.plain_graph import PlainGraph
from tests.support.worlds import GraphMemory, build, make, roots_from

pytestmark = pytest.mark.image  # numbers of a machine's word, and its compiler


def moves(world: GraphMemory, away: int = 1 << 44) -> List[Move]:
    """Every heap goes as far."""
    return [(start, end, start + away) for start, end in world.shape.heaps]


def streams(graph: Graph, world: GraphMemory, slots: bool) -> Dict[int, bytes]:
    """As a file has them."""
    found: Dict[int, bytes] = {}
    for stream, data in graph.pack(moves(world), slots):
        assert data and (not found or stream >= max(found)), "streams come in order"
        found[stream] = found.get(stream, b"") + data
    return found


def kept(graph: Graph, world: GraphMemory, slots: bool = True) -> PackedGraph:
    """The graph of a file."""
    habits = [habit.offset for habit in graph.habits]  # type: ignore[attr-defined]
    has_slots = slots and world.shape.all_slots
    places = [(start + (1 << 45), end + (1 << 45)) for start, end in world.shape.mappings]
    return PackedGraph(world.shape.word_bytes, world.shape.unit_bytes, has_slots, places, habits, streams(graph, world, slots))


def told(graph: Graph, first: int, away: int = 0) -> Dict[str, Any]:
    """What it tells, but for what only slots tell."""
    numbers = graph.numbers()
    blocks = graph.blocks(list(range(numbers.blocks)))
    found: Dict[str, Any] = {
        "numbers": (numbers.blocks, numbers.nodes, numbers.edges, numbers.by_rule),
        "sums": graph.mark(first),
        "evidence": [graph.evidence(node) for node in range(numbers.nodes)],
        "offsets": sorted(graph.inside_offsets()),
        "leaks": (graph.find_leak_roots(), graph.leak_roots()),
        "blocks": [(address - away, size) for address, size in blocks],
        "edges": [[(edge.node, edge.rule) for edge in graph.edges(node)] for node in range(numbers.nodes)],
        "roots": [graph.edges(node) for node in range(numbers.blocks, numbers.nodes)],
        "parents": list(graph.parents(first)),
        "found": [graph.find(address + step) for address, size in blocks for step in (-1, 0, 5, size - 1, size)],
    }
    tree = graph.dominators(first, (first + 1, first + 2))
    found["tree"] = [list(column) for column in tree[:3]]
    found["children"] = [graph.children(tree, node, 3)[1] for node in [*range(graph.nodes), NO_NODE]]
    found["reached"] = [graph.reached(node) for node in range(first, graph.nodes)]
    return found


def check(kernel: CKernel, world: GraphMemory, own: Sequence[int]) -> None:
    """The streams are those of the definition, and answer as the graph; without slots weak pointers are not all known, and so owners."""
    graph, plain = build(kernel, world, own), PlainGraph(world, own)
    first = roots_from(graph, world)
    for slots in (True, False):
        file = kept(graph, world, slots)
        assert file.streams == plain.streams(moves(world), slots)
        again = kernel.unpacked(file, Budget())
        answers = told(again, first, 1 << 44), told(build(kernel, world, own), first)
        for key in set(answers[0]) - (set() if slots else {"tree", "children"}):
            assert answers[0][key] == answers[1][key], (key, slots)
        nodes = range(answers[0]["numbers"][0])
        assert not slots or [again.edges(node) for node in nodes] == [graph.edges(node) for node in nodes]
        assert dict(again.pack([(0, HIGHEST, 0)], slots)) == file.streams


@pytest.mark.parametrize("seed", range(20))
def test_what_is_read_back_answers_as_what_was_written(c_kernel: CKernel, seed: int) -> None:
    """Of any world."""
    world = make(seed, slots=True)
    check(c_kernel, world, [world.rows[0][0]])


@pytest.mark.parametrize("seed", range(8))
def test_what_owns_is_read_back(c_kernel: CKernel, seed: int) -> None:
    """What a runtime told of the words of its blocks, and of its own variables."""
    world = make(seed, slots=True)
    graph = build(c_kernel, world, [])
    first = roots_from(graph, world)
    chance = random.Random(seed)
    blocks = graph.numbers().blocks
    starts = sorted(chance.sample(range(blocks), 3))
    graph.own(Owning(array("I", [chance.randrange(3) for _ in range(blocks)]), [OWNS_ALL, 5, 0xFFFE], [starts[0], first + 1], starts))
    again = c_kernel.unpacked(kept(graph, world), Budget())
    again.own(Owning(array("I", bytes(4 * blocks)), [OWNS_ALL], [], starts))
    assert told(again, first, 1 << 44)["tree"] == told(graph, first)["tree"] != told(build(c_kernel, world, []), first)["tree"]
    assert told(again, first, 1 << 44)["reached"] == told(graph, first)["reached"]
    assert list(again.named_parents(first)) == list(graph.named_parents(first))


@pytest.mark.parametrize("unit,word_bytes,order", [(8, 4, "little"), (16, 8, "big"), (4, 4, "little")])
def test_other_machines(c_kernel: CKernel, unit: int, word_bytes: int, order: str) -> None:
    """Words of 4 bytes, big-endian ones, and blocks at multiples of 4 or 8."""
    check(c_kernel, make(1, unit=unit, word_bytes=word_bytes, order=order, slots=True), [])


def test_evidence_of_an_earlier_look(c_kernel: CKernel) -> None:
    """It counts for leaked blocks alone."""
    world = make(4, slots=True)
    graph = build(c_kernel, world)
    again = c_kernel.unpacked(kept(graph, world), Budget())
    first = roots_from(graph, world)
    sums = again.mark(first)
    lost = again.with_evidence([LEAKED], 0, again.numbers().blocks)
    held = next(node for node in range(again.numbers().blocks) if again.evidence(node) != LEAKED)
    before = again.evidence(held)
    after = again.set_evidence([(lost[0][0], MASKED), (held, MASKED)])
    assert lost and again.evidence(lost[0][0]) == MASKED and again.evidence(held) == before
    assert (after[MASKED].blocks, after[LEAKED].blocks) == (1, sums[LEAKED].blocks - 1)


def damaged(file: PackedGraph, chance: random.Random) -> PackedGraph:
    """Somebody's file."""
    found = {stream: bytearray(data) for stream, data in file.streams.items()}
    for _ in range(chance.randint(1, 4)):
        data = found[chance.choice(sorted(found))]
        how = chance.randint(0, 3)
        at = chance.randrange(len(data)) if data else 0
        if how == 0 and data:
            data[at] ^= 1 << chance.randint(0, 7)
        elif how == 1:
            del data[at : at + chance.randint(1, 9)]
        elif how == 2:
            data[at:at] = bytes(chance.choice((0, 1, 127, 128, 255)) for _ in range(chance.randint(1, 12)))
        else:
            data[at:at] = packed.pack_numbers([chance.randrange(1 << chance.randint(1, 62))])
    made = file._replace(streams={stream: bytes(data) for stream, data in found.items()})
    if chance.random() < 0.1:
        odd: Sequence[Any] = [
            {"mappings": [(5, 4)]},
            {"mappings": [(0, 1 << 60)]},
            {"unit_bytes": 3},
            {"word_bytes": 5},
            {"habits": [1 << 20]},
        ]
        made = made._replace(**chance.choice(odd))
    return made


@pytest.mark.parametrize("seed", range(10))
def test_damaged_streams(c_kernel: CKernel, seed: int) -> None:
    """A damaged file is refused, or is that of another graph: what it tells is told by what is written of it."""
    chance, world = random.Random(seed), make(seed, slots=True)
    file = kept(build(c_kernel, world), world, bool(seed % 2))
    refused = 0
    for _ in range(100):
        one = damaged(file, chance)
        try:
            graph = c_kernel.unpacked(one, Budget())
        except ValueError:
            refused += 1
            continue
        first = min(graph.numbers().nodes, graph.numbers().blocks + len(one.mappings))
        written = dict(graph.pack([(0, HIGHEST, 0)], one.has_slots))
        again = c_kernel.unpacked(one._replace(streams=written), Budget())
        assert told(again, first) == told(graph, first) and dict(again.pack([(0, HIGHEST, 0)], one.has_slots)) == written
    assert 30 < refused < 100


def test_addresses_far_apart(c_kernel: CKernel) -> None:
    """A small file asks for no memory of the size that its addresses tell."""
    every = packed.pack_numbers([(1 << 27) // 16] * 20_000), packed.pack_numbers([4] * 20_000)
    far = packed.pack_numbers([1, (1 << 49) // 16]), packed.pack_numbers([(1 << 48) // 4, 4])
    for addresses, sizes in (every, far):
        count = len(packed.unpack_numbers(addresses))
        file = PackedGraph(8, 16, False, [], [], {0: addresses, 1: sizes, 2: bytes(count)})
        with pytest.raises(ValueError):
            c_kernel.unpacked(file, Budget())
