"""Containers: lists, trees and tables of random memory are found as they were made, with who holds each and its elements.

Files: kernel/blocks/container_*.c, kernel/blocks/linked.c.
"""

import random
import time
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import HeapxError
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks import graph as graphs
from gdbheapx.kernel.blocks.graph import ARRAY, HASH_TABLE, LIST, NO_SLOT, TREE, Graph, Tree
from gdbheapx.kernel.blocks.packed import HIGHEST, PackedGraph
from tests.support.worlds import DATA, HEAP, GraphMemory, build, lay_out, pack_words, roots_from

pytestmark = pytest.mark.image  # the kernel's own

WORD, STEP = 8, 512
RING, CHAIN = "ring", "chain"
"""Lists, too: doubly linked ones whose ends meet, at a first without a value, and singly linked ones."""
LINKS = {LIST: (0, 1), RING: (0, 1), CHAIN: (0,), TREE: (0, 1, 2), ARRAY: ()}
VALUE = 3
"""The word that points to what an element alone keeps."""


class Made(NamedTuple):
    """One container: its elements in the order of its links, by their numbers among the blocks."""

    shape: str
    elements: Sequence[int]
    table: int
    """The block that has pointers to all; -1: none."""
    kept: int
    """Blocks that its elements keep."""


class Memory:
    """Blocks at random places."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.sizes: List[int] = []
        self.words: Dict[int, Dict[int, int]] = {}
        """By block and slot: the block to which it points."""
        self.roots: List[int] = []

    def add(self, size: int) -> int:
        """A block of so many bytes."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def point(self, source: int, slot: int, target: int) -> None:
        """A pointer to the target's start."""
        self.words.setdefault(source, {})[slot] = target

    def make(self, shape: str, size: int, count: int) -> Made:
        """A container of which a variable holds the first element, or the table."""
        elements = [self.add(size) for _ in range(count)]
        table = self.add(WORD * count) if shape == ARRAY else -1
        for place, one in enumerate(elements):
            if shape in (LIST, RING, CHAIN):
                for slot, other in zip(LINKS[shape], (place + 1, place - 1)):
                    if shape == RING or 0 <= other < count:
                        self.point(one, slot, elements[other % count])
            elif shape == TREE and place:
                above = elements[(place - 1) // 2]
                self.point(above, (place - 1) % 2, one)
                self.point(one, 2, above)
            elif shape == ARRAY:
                self.point(table, place, one)
        having = elements[1:] if shape == RING else [one for one in elements if self.rng.random() < 0.7]
        for one in having:
            self.point(one, VALUE, self.add(WORD * self.rng.randrange(1, 40)))
        self.roots.append(elements[0] if table < 0 else table)
        return Made(shape, elements, table, len(having))

    def use(self, made: Sequence[Made], count: int) -> None:
        """Objects that know an element each, none an end of a list, of which nothing would tell who holds it; too few for a table."""
        users = self.add(WORD * count)
        for slot in range(count):
            user = self.add(456)
            self.point(users, slot, user)
            self.point(user, 5, self.rng.choice(self.rng.choice(made).elements[1:-1]))
        self.roots.append(users)

    def world(self) -> Tuple[GraphMemory, List[int]]:
        """It, and by block its number in the graph."""
        places = list(range(len(self.sizes)))
        self.rng.shuffle(places)
        starts = [HEAP + STEP * place for place in places]
        blocks = {}
        for number, size in enumerate(self.sizes):
            targets = self.words.get(number, {})
            blocks[starts[number]] = pack_words([starts[targets[slot]] if slot in targets else 0 for slot in range(size // WORD)])
        roots = pack_words([starts[one] for one in self.roots]) or bytes(WORD)
        return lay_out(blocks, {DATA: roots}, unit_bytes=WORD), places


def random_memory(seed: int) -> Tuple[Memory, List[Made]]:
    """A container of each shape, with users."""
    memory = Memory(seed)
    sizes = memory.rng.sample(range(32, 440, WORD), len(LINKS))
    made = [memory.make(shape, size, memory.rng.randrange(20, 60)) for shape, size in zip(LINKS, sizes)]
    memory.use(made, memory.rng.randrange(1, 12))
    return memory, made


def split(graph: Graph, world: GraphMemory) -> Tuple[int, int]:
    """Each word of the root is a variable: the first of them, and what is behind all."""
    first = roots_from(graph, world)
    words = (world.roots[0][1] - world.roots[0][0]) // WORD
    graph.split([(first, slot) for slot in range(1, words)])
    return first, first + words


def owners(graph: Graph, first: int, end: int) -> Tree:
    """With containers; registers are behind the variables."""
    return graph.dominators(first, (end, end + 1), locals_from=end, containers=True)


def solve(kernel: CKernel, memory: Memory) -> Tuple[Graph, Tree, List[int], int]:
    """Its graph, who owns what with containers, by block its number, and the first variable."""
    world, nodes = memory.world()
    graph = build(kernel, world)
    first, end = split(graph, world)
    return graph, owners(graph, first, end), nodes, first


def told(graph: Graph, tree: Tree) -> Any:
    """All that there is of a tree."""
    rows = [(one, graph.members(tree, number)) for number, one in enumerate(tree.containers)]
    return [list(column) for column in tree[:3]], rows, list(tree.members or ())


@pytest.mark.parametrize("seed", range(20))
def test_each_container_is_found(c_kernel: CKernel, seed: int) -> None:
    """One for each that was made and no others: its entry is the only owner, its elements are those, and users take nothing."""
    memory, made = random_memory(seed)
    graph, tree, nodes, first = solve(c_kernel, memory)
    assert len(tree.containers) == len(made)
    for place, one in enumerate(made):
        elements = [nodes[element] for element in one.elements]
        number = tree.container_of(elements[0])
        assert number is not None and {tree.container_of(element) for element in elements} == {number}, one.shape
        found, holder = tree.containers[number], (first + place, place) if one.table < 0 else (nodes[one.table], 0)
        assert (found.shape, found.elements) == (one.shape if one.shape in (TREE, ARRAY) else LIST, len(elements))
        assert (found.element_bytes, found.own_bytes) == (memory.sizes[one.elements[0]], sum(memory.sizes[each] for each in one.elements))
        assert list(found.entries) == [holder] and tree.owners[found.node] == holder[0], one.shape
        assert {tree.owners[element] for element in elements} == {found.node}
        assert tree.retained_blocks[found.node] == len(elements) + one.kept
        members = graph.members(tree, number)
        assert members == elements, one.shape
        assert graph.members(tree, number, 3, 4) == members[3:7] and tree.container(found.node) == found


@pytest.mark.parametrize("seed", range(10))
def test_what_is_lost_is_one_root(c_kernel: CKernel, seed: int) -> None:
    """Of memory that no variable holds each container is one leak root by its first element, or by its table, and what only uses some is
    another, with nothing of theirs."""
    memory, made = random_memory(seed)
    users = memory.roots.pop()
    world, nodes = memory.world()
    world = world._replace(roots=[(DATA + 4096, DATA + 4096 + WORD)], source=BytesSource((*world.source.pieces, (DATA + 4096, bytes(WORD)))))
    graph = build(c_kernel, world)
    first = roots_from(graph, world)
    graph.mark(first)
    containers = graph.containers(first + 1, first + 1)
    count = graph.find_leak_roots(containers)
    roots = {root.id: root for root in graph.leak_roots()}
    assert len(containers) == len(made) and count == len(roots) == len(made) + 1
    for one in made:
        ends = one.elements if one.shape == RING else (one.elements[0], one.elements[-1]) if one.shape == LIST else one.elements[:1]
        (root,) = [roots[nodes[end]] for end in (ends if one.table < 0 else [one.table]) if nodes[end] in roots]
        assert root.is_cycle == (one.shape in (LIST, RING, TREE))
        assert root.blocks == len(one.elements) + one.kept + (one.table >= 0), one.shape
    assert roots[nodes[users]].blocks == 1 + sum(source == users for source in memory.words for _ in memory.words[source])
    assert sum(root.blocks for root in roots.values()) == len(memory.sizes)


@pytest.mark.parametrize("seed", range(4))
def test_the_same_whoever_asks(c_kernel: CKernel, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """By one thread and by two, a second time, and of a graph that a file had."""
    world, _ = random_memory(seed)[0].world()
    answers = []
    for threads in (1, 2):
        monkeypatch.setattr(graphs, "usable_cpus", lambda threads=threads: threads)
        graph = build(c_kernel, world)
        first, end = split(graph, world)
        answers += [told(graph, owners(graph, first, end)) for _ in range(2)]
    habits = [habit.offset for habit in graph.habits]  # type: ignore[attr-defined]
    again = c_kernel.unpacked(PackedGraph(WORD, WORD, True, [], habits, dict(graph.pack([(0, HIGHEST, 0)], True))), Budget())
    answers.append(told(again, owners(again, first, end)))
    assert answers[0][1] and all(one == answers[0] for one in answers)


def test_found_once(c_kernel: CKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links are found once for all who ask, whatever roots are, until it is told what owns; containers once for the same roots."""
    memory, made = random_memory(3)
    world, _ = memory.world()
    graph = build(c_kernel, world)
    calls: List[str] = []

    def counted(name: str) -> None:
        work = getattr(graph.library, name)
        monkeypatch.setattr(graph.library, name, lambda *numbers: calls.append(name) or work(*numbers))

    counted("heapx_groups_new")
    counted("heapx_containers_new")
    first = roots_from(graph, world)
    whole = graph.containers(first + 1, first + 1)
    assert graph.containers(first + 1, first + 1) is whole and {*graph.linked().of()} == {*range(1 + sum(one.shape != ARRAY for one in made))}
    assert calls == ["heapx_groups_new", "heapx_containers_new"]
    first, end = split(graph, world)
    trees = [owners(graph, first, end) for _ in range(3)]
    assert trees[0].containers is trees[2].containers is graph.containers(end, end) and len(trees[0].containers) == len(made)
    assert calls == ["heapx_groups_new", "heapx_containers_new", "heapx_containers_new"]
    graph.loosen(0, 0, 1)
    assert graph.containers(end, end) is not trees[0].containers and calls[3:] == calls[:2]


@pytest.mark.parametrize("shape", (LIST, CHAIN, TREE))
def test_who_holds_from_a_stack_comes_before_users(c_kernel: CKernel, shape: str) -> None:
    """A list in a local variable of main is its own, though a variable leads to one of its elements, such as a stale word."""
    memory = Memory(7)
    made = memory.make(shape, 64, 30)
    memory.use([made], 1)
    memory.roots.reverse()
    world, nodes = memory.world()
    graph = build(c_kernel, world)
    first, end = split(graph, world)
    tree = graph.dominators(first, (end - 1, end + 1), locals_from=end - 1, containers=True)
    assert tree.owners[tree.containers[0].node] == end - 1 and tree.owners[nodes[made.elements[3]]] == tree.containers[0].node
    assert tree.retained_blocks[end - 1] == len(made.elements) + made.kept


def objects(memory: Memory, count: int, is_heap: bool) -> Made:
    """A heap whose links back lead to the parent or the elder sibling, or a tree whose objects all know their parent; a variable has the root."""
    elements = [memory.add(104) for _ in range(count)]
    child, following, back, last, parent = range(5)
    for place, one in enumerate(elements[1:], 1):
        above = elements[memory.rng.randrange(place if is_heap or place < 6 else place // 3)]
        elder = memory.words.get(above, {}).get(child if is_heap else last)
        if is_heap and elder is not None:
            memory.point(one, following, elder)
            memory.point(elder, back, one)
        if is_heap:
            memory.point(above, child, one)
            memory.point(one, back, above)
            continue
        memory.point(one, parent, above)
        memory.point(above, last, one)
        if elder is None:
            memory.point(above, child, one)
        else:
            memory.point(one, back, elder)
            memory.point(elder, following, one)
    memory.roots.append(elements[0])
    return Made(TREE, elements, -1, 0)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("is_heap", (True, False))
def test_users_take_nothing_of_trees(c_kernel: CKernel, seed: int, is_heap: bool) -> None:
    """A heap is one container, however deep; objects are none: each belongs to what leads down to it. The root's variable keeps all."""
    memory = Memory(seed)
    made = objects(memory, 400, is_heap)
    memory.use([made], 12)
    graph, tree, nodes, first = solve(c_kernel, memory)
    assert [one.elements for one in tree.containers] == [400] * is_heap
    assert tree.retained_blocks[first] == 400
    if not is_heap:
        assert all(tree.owners[nodes[one]] in {nodes[other] for other in made.elements} for one in made.elements[1:])


@pytest.mark.parametrize("seed", range(4))
def test_children_in_arrays_belong_to_their_parent(c_kernel: CKernel, seed: int) -> None:
    """Objects know their parent, which has an array of them: users take none."""
    memory = Memory(seed)
    elements = [memory.add(104) for _ in range(300)]
    for place, one in enumerate(elements[1:], 1):
        above = elements[(place - 1) // 5]
        if (place - 1) % 5 == 0:
            memory.point(above, 4, memory.add(40))
        memory.point(memory.words[above][4], (place - 1) % 5, one)
        memory.point(one, 7, above)
    memory.roots.append(elements[0])
    memory.use([Made(TREE, elements, -1, 0)], 12)
    graph, tree, nodes, first = solve(c_kernel, memory)
    assert tree.retained_blocks[first] == 360
    assert all(tree.owners[nodes[one]] == nodes[memory.words[elements[place // 5]][4]] for place, one in enumerate(elements[1:]))


def test_a_head_of_the_elements_size_is_none_of_them(c_kernel: CKernel) -> None:
    """It alone points to the table of the elements, and holds both."""
    memory = Memory(5)
    made = memory.make(CHAIN, 64, 41)
    head, elements = made.elements[0], made.elements[1:]
    table = memory.add(WORD * 64)
    memory.point(head, 5, table)
    for place, one in enumerate(elements):
        memory.point(table, place, one)
    memory.point(table, 63, head)
    memory.use([made], 3)
    graph, tree, nodes, first = solve(c_kernel, memory)
    assert [one.elements for one in tree.containers] == [40] and tree.owners[tree.containers[0].node] == nodes[head]
    assert tree.retained_blocks[first] == 2 + 40 + made.kept


@pytest.mark.parametrize("seed", range(4))
def test_who_points_to_a_ring_most_rarely_holds_it(c_kernel: CKernel, seed: int) -> None:
    """Of a ring without a head, objects of a kind that point to many elements elsewhere are users: that is a guess."""
    memory = Memory(seed)
    ring, other = [memory.make(RING, size, 50) for size in (64, 96)]
    holder = memory.add(200)
    memory.point(holder, 0, ring.elements[17])
    memory.roots[0] = holder
    users = memory.add(WORD * 12)
    memory.roots.append(users)
    for slot in range(12):
        user = memory.add(456)
        memory.point(users, slot, user)
        memory.point(user, 5, (other if slot else ring).elements[slot + 3])
    memory.point(ring.elements[0], VALUE, memory.add(48))
    graph, tree, nodes, first = solve(c_kernel, memory)
    number = tree.container_of(nodes[ring.elements[0]])
    assert number is not None and tree.containers[number].entries == [(nodes[holder], 0)]
    assert tree.containers[number].sure == "guess" and tree.owners[tree.containers[number].node] == nodes[holder]


def test_requests_of_an_elements_size_are_no_elements(c_kernel: CKernel) -> None:
    """They know an element by the word that is its link back, and nothing leads to them."""
    memory = Memory(3)
    elements = [memory.add(456) for _ in range(60)]
    for one, other in zip(elements, elements[1:]):
        memory.point(one, 4, other)
        memory.point(other, 5, one)
    memory.roots.append(elements[0])
    memory.use([Made(LIST, elements, -1, 0)], 6)
    graph, tree, nodes, first = solve(c_kernel, memory)
    assert [one.elements for one in tree.containers] == [60] and list(tree.containers[0].entries) == [(first, 0)]
    assert graph.members(tree, 0) in ([nodes[one] for one in elements], [nodes[one] for one in elements][::-1])


def test_parts_that_know_their_element_hold_no_tree(c_kernel: CKernel) -> None:
    """The head of a map has its first, least and greatest element; each element has a part that leads back to it."""
    memory = Memory(5)
    made = memory.make(TREE, 120, 60)
    head = memory.add(48)
    for slot, one in enumerate((made.elements[0], made.elements[31], made.elements[-1])):
        memory.point(head, slot, one)
    for one in made.elements:
        part = memory.add(72)
        memory.point(one, 9, part)
        memory.point(part, 1, one)
    memory.roots[-1] = head
    graph, tree, nodes, first = solve(c_kernel, memory)
    found = next(one for one in tree.containers if one.elements == 60)
    assert [node for node, _ in found.entries] == [nodes[head]] and tree.owners[found.node] == nodes[head]


@pytest.mark.parametrize(
    "slots, shape",
    [
        (range(34), ARRAY),  # a vector that has room for more
        ([*range(12), *range(52, 64)], ARRAY),  # a ring
        (range(1, 64, 4), ARRAY),  # records with one pointer each
        ([7 * record + field for record in range(9) for field in range(3)], ARRAY),  # with three of seven words
        (sorted(random.Random(1).sample(range(64), 30)), HASH_TABLE),
        (sorted(2 * place + 1 for place in random.Random(2).sample(range(32), 24)), HASH_TABLE),
    ],
)
def test_what_is_an_array(c_kernel: CKernel, slots: Sequence[int], shape: str) -> None:
    """Its pointers stand side by side or at the same words of records, wherever it has room; those of a hash table have gaps everywhere."""
    memory = Memory(7)
    table = memory.add(STEP)
    memory.roots.append(table)
    for slot in slots:
        memory.point(table, slot, memory.add(48))
    (found,) = solve(c_kernel, memory)[1].containers
    assert (found.shape, found.elements) == (shape, len(slots))


@pytest.mark.parametrize("pointers, elements", [(60, 30), (60, 29), (60, 15), (32, 16), (28, 15)])
def test_many_pointers_to_few_blocks_make_no_table(c_kernel: CKernel, pointers: int, elements: int) -> None:
    """As of a hash table whose items stand in slabs: a table has elements enough, and at most two pointers to each on average."""
    memory = Memory(8)
    table, slabs = memory.add(STEP), [memory.add(48) for _ in range(elements)]
    memory.roots.append(table)
    for slot in range(pointers):
        memory.point(table, slot, slabs[slot % elements])
    graph, tree, nodes, first = solve(c_kernel, memory)
    assert [one.elements for one in tree.containers] == ([elements] if elements >= 16 and 2 * elements >= pointers else [])
    assert tree.retained_blocks[first] == 1 + elements and tree.owners[nodes[table]] == first


@pytest.mark.parametrize("few", (0, 1))
def test_a_hash_table_that_has_grown_holds_the_same(c_kernel: CKernel, few: int) -> None:
    """Each entry has a key and a value, but for a few: whichever stand first, it holds the values, as a whole."""
    for seed in range(8):
        memory = Memory(seed)
        table = memory.add(STEP - WORD)
        memory.roots.append(table)
        for number, place in enumerate(memory.rng.sample(range(31), 17)):
            memory.point(table, 2 * place, memory.add(24))
            if number >= few:
                memory.point(table, 2 * place + 1, memory.add(40))
        (one,) = solve(c_kernel, memory)[1].containers
        assert (one.shape, one.elements, one.element_bytes) == (HASH_TABLE, 17 - few, 40)
        assert [slot for _, slot in one.entries] == [NO_SLOT]


@pytest.mark.parametrize("shards, holders", (((2, 3), 0), ((3, 2), 0), ((1, 2), 1), ((2, 1), 1)))
def test_two_maps_in_shards_hold_their_objects_together(c_kernel: CKernel, shards: Tuple[int, int], holders: int) -> None:
    """No shard has what another one has: by size the one map or the other would come first. A table of all comes before any shards."""
    memory = Memory(3)
    elements = [memory.add(48) for _ in range(63)]
    for count in shards:
        tables, slots = [memory.add(STEP) for _ in range(count)], [memory.rng.sample(range(64), 64) for _ in range(count)]
        memory.roots += tables
        for place, element in enumerate(memory.rng.sample(elements, 63)):
            memory.point(tables[place % count], slots[place % count].pop(), element)
    assert [one.elements for one in solve(c_kernel, memory)[1].containers] == [63] * holders


def test_words_of_a_table_to_elements_of_others_take_nothing(c_kernel: CKernel) -> None:
    """The first words of a table lead to elements of a list, which are no more than uses of these."""
    memory = Memory(6)
    listed, made = memory.make(LIST, 200, 50), memory.make(ARRAY, 200, 40)
    for slot in range(12):
        memory.point(made.table, 28 + slot, made.elements[slot])
        memory.point(made.table, slot, listed.elements[slot + 7])
    graph, tree, nodes, first = solve(c_kernel, memory)
    holders = {one.elements: [node for node, _ in one.entries] for one in tree.containers}
    assert holders == {50: [first], 28: [nodes[made.table]]}
    assert [tree.owners[one.node] for one in tree.containers] == [holders[one.elements][0] for one in tree.containers]


def test_other_parts_of_an_entry_are_no_users(c_kernel: CKernel) -> None:
    """As of a HashMap of Rust with `Bytes`: an entry has a buffer, and a block that counts its owners and points to it."""
    memory = Memory(9)
    elements, table = [memory.add(200) for _ in range(30)], memory.add(WORD * 60)
    memory.roots.append(table)
    for place, element in enumerate(elements):
        count = memory.add(48 + WORD * (place % 5))
        memory.point(table, 2 * place, element)
        memory.point(table, 2 * place + 1, count)
        memory.point(count, 1, element)
    world, nodes = memory.world()
    graph = build(c_kernel, world)
    tree = owners(graph, *split(graph, world))
    one = next(graph.with_users(tree, one) for one in tree.containers if one.element_bytes == 200)
    assert one.elements == 30 and one.entries[0][0] == nodes[table] and (one.used_elements, list(one.users)) == (0, [])


def test_lists_of_lists_take_no_more_than_others(c_kernel: CKernel) -> None:
    """The last element of each leads to the next list, of another size: what is reached by the first is all, each list at its turn alone."""
    took = []
    for count in (500, 20000):
        memory, last = Memory(5), -1
        for place in range(count):
            made = memory.make(LIST, 64 + WORD * (place % 2), 3)
            if last >= 0:
                memory.roots.pop()
                memory.point(last, 6, made.elements[0])
            last = made.elements[-1]
        world, _ = memory.world()
        graph = build(c_kernel, world)
        first, end = split(graph, world)
        before = time.process_time()
        tree = owners(graph, first, end)
        took.append(time.process_time() - before)
        assert len(tree.containers) == count and tree.retained_blocks[first] == len(memory.sizes)
    assert took[1] < 1 + 80 * took[0]


def elements_with_many_words(words: int) -> GraphMemory:
    """A list of eight elements of 64,000 bytes, so many words of which lead to a block; an array points to the first 60,000 times."""
    leaf, array_at, first, step = HEAP, HEAP + 4096, HEAP + (1 << 20), 1 << 16
    starts = [first + step * place for place in range(8)]
    blocks = {leaf: bytes(24), array_at: pack_words([first]) * 60000}
    for place, start in enumerate(starts):
        links = [starts[place + 1] if place < 7 else 0, starts[place - 1] if place else 0]
        blocks[start] = pack_words([*links, *[leaf] * words]).ljust(64000, b"\0")
    return lay_out(blocks, {DATA: pack_words([array_at])}, unit_bytes=WORD)


def test_words_of_a_large_element_are_not_searched_for_each_pointer_to_it(c_kernel: CKernel) -> None:
    """Whether an element leads back to who points to it: only words where links may stand are looked at."""
    took = []
    for words in (500, 7900):
        world = elements_with_many_words(words)
        graph = build(c_kernel, world)
        first, _ = split(graph, world)
        times = []
        for _ in range(3):
            before = time.process_time()
            assert graph.containers(first + 1, first + 1)[0].elements == 8
            times.append(time.process_time() - before)
        took.append(min(times))
    assert took[1] < 4 * took[0]


def test_users_are_counted_in_so_many_steps_for_all(c_kernel: CKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers take steps from one budget; those of which users are not counted say so."""
    memory = Memory(3)
    for size in (64, 96, 128):
        memory.use([memory.make(LIST, size, 40)], 8)
    world, _ = memory.world()
    graph = build(c_kernel, world)
    first, end = split(graph, world)
    tree = owners(graph, first, end)
    counted = [graph.with_users(tree, one) for one in tree.containers]
    assert len(counted) == 3 and all(one.users and one.used_elements for one in counted)
    monkeypatch.setattr(graphs, "MOST_USER_STEPS", 40)
    graph = build(c_kernel, world)
    split(graph, world)
    tree = owners(graph, first, end)
    limited = [graph.with_users(tree, one) for one in tree.containers]
    cut = [one for one in limited if one.used_elements is None]
    assert cut[0].used_bytes is None and cut[0].other_users is None and not any(one.users for one in cut)
    assert 0 < len(cut) < 3 and [one for one in limited if one.used_elements is not None] == counted[: 3 - len(cut)]


def test_what_takes_too_long_is_stopped(c_kernel: CKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is asked while containers are searched, and Ctrl-C is heard."""
    memory = Memory(5)
    memory.make(LIST, 64, 60000)
    world, _ = memory.world()
    graph = build(c_kernel, world)
    first, _ = split(graph, world)
    asked: List[int] = []

    class Late(Budget):
        """Its time is up when it is asked the second time; or it is interrupted then."""

        def expired(self) -> bool:
            asked.append(1)
            if len(asked) == 2:
                raise KeyboardInterrupt
            return super().expired()

    budget = Late()
    monkeypatch.setattr(graph, "_budget", budget)
    with pytest.raises(HeapxError, match="before containers were found"):
        graph.containers(first + 1, first + 1)
    assert budget.interrupted
    monkeypatch.setattr(graph, "_budget", Budget())
    assert len(graph.containers(first + 1, first + 1)) == 1
