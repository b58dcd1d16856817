"""Words that own nothing: which pointers are told so, and that they change who owns what, and nothing else.

Files: kernel/blocks/packed.py.
"""

import random
import struct
import time
from typing import Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import LEAKED, RULE_BASE, RULE_INSIDE, RULE_START, UNOWNING, Graph, Others
from gdbheapx.kernel.blocks.packed import STREAMS, PackedGraph
from tests.support.worlds import DATA, HEAP, build, lay_out, pack_words

STACK = DATA + 0x1000
LOAD = struct.unpack("<I", struct.pack("<f", 1.0))[0]


class Memory:
    """Blocks of words, and one root of words."""

    def __init__(self) -> None:
        self._at = HEAP
        self._words: Dict[int, List[int]] = {}
        self.root = [0] * 64
        self.stack: List[int] = []

    def block(self, words: int, *values: int) -> int:
        address, self._at = self._at, self._at + 8 * words + 8 + (8 * words + 8) % 16
        self._words[address] = [*values, *[0] * (words - len(values))]
        return address

    def put(self, address: int, slot: int, *values: int) -> None:
        self._words[address][slot : slot + len(values)] = values

    def graph(self, kernel: CKernel, slots: bool = True) -> Graph:
        blocks = {address: pack_words(words) for address, words in self._words.items()}
        roots = {DATA: pack_words(self.root), **({STACK: pack_words(self.stack)} if self.stack else {})}
        return build(kernel, lay_out(blocks, roots, all_slots=slots), prepare=Graph.note_unowning)


def node(graph: Graph, address: int) -> int:
    found = graph.find(address)
    assert found is not None
    return found[0]


def rule(graph: Graph, source: Optional[int], slot: int, target: int) -> int:
    """Of the edge from the block, or the root, that stands in this slot."""
    start = graph.numbers().blocks if source is None else node(graph, source)
    (edge,) = [edge for edge in graph.edges(start) if edge.slot == slot]
    assert edge.node == node(graph, target)
    return edge.rule


def owner(graph: Graph, address: int) -> int:
    first = graph.numbers().blocks
    return graph.dominators(first, (graph.nodes, graph.nodes)).owners[node(graph, address)]


def string(memory: Memory, length: int, capacity: int, stale: Sequence[int]) -> Tuple[int, int]:
    """(block with a std::string, block of its characters, whose words end with `stale`)."""
    body = memory.block((capacity + 8) // 8, *[0x6161616161616161] * ((capacity + 8) // 8 - len(stale)), *stale)
    return memory.block(6, body, length, capacity, 0, 0, 0), body


def test_behind_a_length(c_kernel: CKernel) -> None:
    """What stands there owns nothing if something else leads to it; alone it holds it, as before."""
    memory = Memory()
    other, lonely = memory.block(4), memory.block(4)
    holder, body = string(memory, 10, 47, [other, lonely])
    keeper = memory.block(4, other)
    memory.root[:3] = [holder, 0, keeper]
    graph = memory.graph(c_kernel)
    assert rule(graph, body, 4, other) == UNOWNING and rule(graph, body, 5, lonely) == RULE_START
    assert owner(graph, other) == node(graph, keeper) and owner(graph, lonely) == node(graph, body)
    assert graph.reached(node(graph, holder)).blocks == 3  # with its characters and what they alone hold
    assert [one.rule for one in graph.referrers(node(graph, other), 5)] == [RULE_START, UNOWNING]
    assert graph.parents(graph.numbers().blocks)[node(graph, other)] == node(graph, keeper)
    assert graph.mark(graph.numbers().blocks)[RULE_START].blocks == graph.numbers().blocks


def test_behind_a_full_list_of_cpython(c_kernel: CKernel) -> None:
    """One element in a block of two words: the second is left over."""
    memory = Memory()
    item, other = memory.block(4), memory.block(4)
    body = memory.block(2, item, other)
    holder = memory.block(6, 1, HEAP, 1, body, 1)
    memory.root[:3] = [holder, 0, other]
    graph = memory.graph(c_kernel)
    assert (rule(graph, body, 0, item), rule(graph, body, 1, other)) == (RULE_START, UNOWNING)


RUBY = {
    "hash": ((8 | 2 << 16 | 2 << 20,), (), 16, 4),
    "object": ((1,), (3,), 3, 3),
    "struct": ((9,), (5,), 5, 5),
    "array": ((7,), (2, 4), 4, 2),
}
"""Words before the class, between it and the pointer; words of the block, and the first one left over."""


@pytest.mark.parametrize("kind", RUBY)
def test_behind_what_an_object_of_ruby_has(c_kernel: CKernel, kind: str) -> None:
    """Pairs of a small Hash that are not in use, and what stands behind variables, members and elements."""
    before, between, words, first = RUBY[kind]
    memory = Memory()
    other = memory.block(4)
    body = memory.block(words + 1 - words % 2, *[other] * (words + 1 - words % 2))
    holder = memory.block(6, *before, HEAP, *between, body)
    memory.root[:3] = [holder, 0, other]
    graph = memory.graph(c_kernel)
    rules = [edge.rule for edge in graph.edges(node(graph, body))]
    assert rules == [RULE_START] * first + [UNOWNING] * (words + 1 - words % 2 - first)


def test_the_longest_of_two_owners(c_kernel: CKernel) -> None:
    """Two words say what the block has: as much as either says is live. What begins with a pointer is no text."""
    memory = Memory()
    other = memory.block(4)
    holder, body = string(memory, 2, 47, [other, 0])
    longer = memory.block(6, body, 40, 47)
    node_, with_pointer = memory.block(6, body), memory.block(6, other, 0, 0, other)
    liar = memory.block(6, with_pointer, 20, 47)
    memory.root[:6] = [holder, 0, longer, other, node_, liar]
    graph = memory.graph(c_kernel)
    assert rule(graph, body, 4, other) == RULE_START and rule(graph, with_pointer, 3, other) == RULE_START


ARRAY, HASH, FLAGS_OF_TABLE = 7, 8, 1 << 15
CLASS = 0x20000000


def test_rest_of_an_array_of_ruby(c_kernel: CKernel) -> None:
    """Behind its length; not where its elements are shared, and only in a block of its capacity."""
    for flags, capacity, expected in ((ARRAY, 8, UNOWNING), (ARRAY | 1 << 14, 8, RULE_START), (ARRAY, 20, RULE_START), (5, 8, RULE_START)):
        memory = Memory()
        other, kept = memory.block(4), memory.block(4)
        elements = memory.block(8, kept, 0, 0, other)
        array = memory.block(5, flags, CLASS, 2, capacity, elements)
        memory.root[:3] = [array, 0, other]
        graph = memory.graph(c_kernel)
        assert rule(graph, elements, 3, other) == expected and rule(graph, elements, 0, kept) == RULE_START


def test_rest_of_a_small_hash_of_ruby(c_kernel: CKernel) -> None:
    """Of eight pairs those behind its bound."""
    for flags, expected in ((HASH | 3 << 20 | 2 << 16, UNOWNING), (HASH | 4 << 20 | 2 << 16, RULE_START), (HASH | FLAGS_OF_TABLE, RULE_START)):
        memory = Memory()
        other = memory.block(4)
        pairs = memory.block(16, 0, 0, 0, 0, 0, other, 0, other)
        hash_ = memory.block(5, flags, CLASS, pairs, 0, 0)
        memory.root[:3] = [hash_, 0, other]
        graph = memory.graph(c_kernel)
        assert rule(graph, pairs, 7, other) == expected and rule(graph, pairs, 5, other) == RULE_START


def test_holes_of_a_table_of_ruby(c_kernel: CKernel) -> None:
    """An entry that was deleted, whose hash says so, and those behind the bound; of no other block with such a word."""
    for count, expected in ((2, UNOWNING), (9, RULE_START)):
        memory = Memory()
        other, kept = memory.block(4), memory.block(4)
        entries = memory.block(24, 1, kept, kept, 2**64 - 1, other, other, 3, kept, kept, 4, other, other)
        table = memory.block(7, 3, CLASS, count, 0, 0, 3, entries)
        memory.root[:5] = [table, 0, other, 0, kept]
        graph = memory.graph(c_kernel)
        assert [rule(graph, entries, slot, other) for slot in (4, 5, 10, 11)] == [expected] * 4
        assert [rule(graph, entries, slot, kept) for slot in (1, 2, 7, 8)] == [RULE_START] * 4


def test_a_large_table_of_ruby_that_is_all_holes(c_kernel: CKernel) -> None:
    """Each word that owns nothing is found among the edges of its block, not by a look at all of them."""
    memory, power = Memory(), 17
    other = memory.block(4)
    entries = memory.block(3 << power, 1, 0, 0, *[2**64 - 1, other, other] * ((1 << power) - 1))
    table = memory.block(7, power, CLASS, 0, 0, 0, 1 << power, entries)
    memory.root[:3] = [table, 0, other]
    before_s = time.process_time()
    edges = memory.graph(c_kernel).edges(1)
    # where a part of the block was read that begins with a hole, nothing tells what stands before it
    assert len(edges) - 100 < sum(edge.rule == UNOWNING for edge in edges) <= len(edges) == (2 << power) - 2
    assert time.process_time() - before_s < 10


def test_a_string_of_a_variable(c_kernel: CKernel) -> None:
    """The same in a root, whose own words are no block's."""
    memory = Memory()
    other = memory.block(4)
    memory.root[:8] = [DATA + 16, 3, other, other, other, 0, 0, 0]
    graph = memory.graph(c_kernel)
    assert [rule(graph, None, slot, other) for slot in (2, 3, 4)] == [UNOWNING, UNOWNING, RULE_START]


def test_a_file_has_them(c_kernel: CKernel) -> None:
    """A graph that is written and read tells the same, and the same owners."""
    memory = Memory()
    other = memory.block(4)
    holder, body = string(memory, 10, 47, [other, 0])
    memory.root[:3] = [holder, 0, other]
    graph = memory.graph(c_kernel)
    parts: Dict[int, bytes] = {}
    for stream, some in graph.pack([(HEAP, HEAP + 0x1000000, HEAP)], True):
        parts[stream] = parts.get(stream, b"") + some
    assert set(parts) <= set(range(len(STREAMS)))
    again = c_kernel.unpacked(PackedGraph(8, 16, True, [], [], parts), Budget())
    assert [again.edges(one) for one in range(again.nodes)] == [graph.edges(one) for one in range(graph.nodes)]
    assert rule(again, body, 4, other) == UNOWNING
    first = graph.numbers().blocks
    trees = [one.dominators(first, (one.nodes, one.nodes)) for one in (graph, again)]
    assert list(trees[0].owners) == list(trees[1].owners)
    assert again.mark(first) == graph.mark(first) and not graph.mark(first)[LEAKED].blocks


@pytest.mark.parametrize("seed", range(30))
def test_random_words(c_kernel: CKernel, seed: int) -> None:
    """Whatever stands there: what is told to own nothing leads where another way does, and no block is lost."""
    chance = random.Random(seed)
    memory = Memory()
    sizes = [chance.choice((3, 5, 7, 13)) for _ in range(40)]
    blocks = [memory.block(size) for size in sizes]
    values = [*blocks, *blocks, 0, 0, 1, 2, 3, 5, 13, 39, 70000, LOAD, DATA + 16, *(one + 16 for one in blocks[:10])]
    bodies = [one for one, size in zip(blocks, sizes) if size == 13]
    for one, size in zip(blocks, sizes):
        memory.put(one, 0, *(chance.choice(values) for _ in range(size)))
        if size == 7:
            memory.put(one, 0, *chance.choice(((one + 16, 3), (chance.choice(bodies), chance.randrange(90), 100))))
    memory.root[:40] = [chance.choice(values) for _ in range(40)]
    graph = memory.graph(c_kernel)
    first = graph.numbers().blocks
    edges = {one: graph.edges(one) for one in range(graph.nodes)}
    seen, todo = {first}, [first]
    while todo:
        todo += [edge.node for edge in edges[todo.pop()] if edge.rule != UNOWNING and edge.node not in seen and not seen.add(edge.node)]  # type: ignore[func-returns-value]
    told = [edge.node for some in edges.values() for edge in some if edge.rule == UNOWNING]
    assert set(told) <= seen and (told or seed % 3)
    marks = graph.mark(first)
    assert sum(one.blocks for one in marks[:LEAKED]) == len(seen) - 1


def swiss(memory: Memory, words: int, places: int = 32, slack: int = 8) -> Tuple[int, int]:
    """(a table of Rust's with elements of 8 bytes, its control bytes)."""
    table = memory.block((8 * places + places + 16 + slack) // 8 + words)
    return table, table + 8 * places


@pytest.mark.parametrize("slots", [True, False])
def test_a_table_of_rust_is_held(c_kernel: CKernel, slots: bool) -> None:
    """By a pointer to its control bytes, in both orders of the words beside it; other pointers to its inside are as weak as they were."""
    memory = Memory()
    (new, new_control), (old, old_control), (other, other_control) = (swiss(memory, 0) for _ in range(3))
    holder = memory.block(8, new_control, 31, 8, 20, other_control, 31, 9, 20)
    older = memory.block(6, 31, old_control, 8, 20)
    memory.root[:4] = [holder, 0, older, 0]
    graph = memory.graph(c_kernel, slots)
    first = graph.numbers().blocks
    assert {edge.node: edge.rule for edge in graph.edges(node(graph, holder))} == {node(graph, new): RULE_BASE, node(graph, other): RULE_INSIDE}
    assert [edge.rule for edge in graph.edges(node(graph, older))] == [RULE_BASE]
    sums = graph.mark(first)
    assert (sums[RULE_BASE].blocks, sums[RULE_INSIDE].blocks) == (2, 1)
    assert graph.numbers().by_rule[RULE_BASE] == 2 and graph.numbers().by_rule[RULE_INSIDE] == 1
    assert graph.evidence(node(graph, old)) == RULE_BASE


@pytest.mark.parametrize("control, mask, growth, items", [(8, 31, 8, 20), (0, 30, 8, 20), (0, 63, 8, 20), (0, 31, 8, 0), (0, 31, 9, 20), (-128, 31, 8, 20)])
def test_what_is_no_table_of_rust(c_kernel: CKernel, control: int, mask: int, growth: int, items: int) -> None:
    """Control bytes elsewhere, places that are no power of two or do not fill the block, more elements than fit: as weak as before."""
    memory = Memory()
    _, at = swiss(memory, 0)
    memory.root[:4] = [at + control, mask, growth, items]
    graph = memory.graph(c_kernel)
    assert graph.edges(graph.numbers().blocks)[0].rule == RULE_INSIDE


def test_what_speaks_against_an_owner(c_kernel: CKernel) -> None:
    """Pointers into what it keeps from stacks, from words that own nothing, and weak ones; not those to itself, nor from what is lost."""
    memory = Memory()
    last = memory.block(4)
    middle = memory.block(4, last)
    large = memory.block(13)
    keeper = memory.block(4, large)
    holder, _ = string(memory, 10, 47, [middle, last])
    stranger = memory.block(6, 0, 0, large + 40)
    lost = memory.block(4, last, large)
    memory.root[0], memory.root[1], memory.root[8], memory.root[20] = holder, stranger, middle, keeper
    memory.stack = [last, keeper, large]
    graph = memory.graph(c_kernel)
    first = graph.numbers().blocks
    graph.split([(first, 8), (first, 20)])
    weak = (first + 3, graph.nodes)
    assert graph.mark(first)[LEAKED].blocks == 1 and graph.evidence(node(graph, lost)) == LEAKED
    tree = graph.dominators(first, weak)
    assert tree.retained_blocks[first + 1] == 2 and tree.retained_blocks[first + 2] == 2
    assert graph.others(tree, [first + 1, node(graph, keeper)], weak) == [Others(1, 2, 0), Others(1, 0, 1)]
    assert graph.others(tree, [], weak) == []
