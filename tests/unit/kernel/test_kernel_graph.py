"""The graph of blocks: its answers are those that the definitions give."""

import random
from array import array
from collections import Counter
from typing import Dict, Iterable, List, Optional, Sequence, Set, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import HeapxError
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import (
    FROM_MAPPING,
    LEAKED,
    MOST_POINTERS,
    NO_NODE,
    OWNS_ALL,
    RULE_END,
    RULE_HABIT,
    RULE_INSIDE,
    RULE_START,
    Graph,
    GraphShape,
    Owning,
    Tree,
    check_pointers,
)
from gdbheapx.kernel.blocks.stream import CLASS_FREE, CLASS_USED, make_blocks
from tests.support.plain_graph import PlainGraph
from tests.support.worlds import DATA, HEAP, GraphMemory, build, lay_out, make, pack_words, roots_from


def parents_are_nearest(graph: Graph, plain_: PlainGraph, first: int) -> None:
    """Each way leads to a root; where pointers that hold lead there it is a shortest one of them."""
    parents = graph.parents(first)
    edges = [{edge.node for edge in some} for some in plain_.edges]
    strong = [[edge.node for edge in some if edge.rule <= RULE_HABIT] for some in plain_.edges]
    ring, steps, distance = set(range(first, graph.nodes)), 0, {}  # type: Set[int], int, Dict[int, int]
    while ring:
        distance.update(dict.fromkeys(ring, steps))
        ring, steps = {target for node in ring for target in strong[node] if target not in distance}, steps + 1
    reached = plain_.reachable(range(first, graph.nodes), [list(some) for some in edges])
    for node, parent in enumerate(parents):
        if node >= first or node not in reached:
            assert parent == NO_NODE
            continue
        assert node in edges[parent]
        if node in distance:
            assert distance[parent] == distance[node] - 1 and node in strong[parent]
        way = [node]
        while way[-1] < first:
            way.append(parents[way[-1]])
        assert len(set(way)) == len(way)


def check_evidence(graph: Graph, plain_: PlainGraph, first: int) -> None:
    """A node's evidence is the least rule up to which edges lead there from a root."""

    def reached(starts: Iterable[int], most: int) -> Set[int]:
        return plain_.reachable(list(starts), [[edge.node for edge in some if edge.rule <= most] for some in plain_.edges])

    known: Set[int] = set()
    for rule in range(RULE_END + 1):
        now = reached(range(first, graph.nodes), rule)
        assert all(graph.evidence(node) == rule for node in now - known)
        known = now
    blocks = set(range(len(plain_.blocks)))
    lost = reached([*known, *range(len(blocks), first)], RULE_END)
    assert all(graph.evidence(node) == FROM_MAPPING for node in lost - known)
    assert all(graph.evidence(node) == LEAKED for node in blocks - lost)


def check_tree(graph: Graph, plain_: PlainGraph, weak: Tuple[int, int], told: Optional[Owning] = None) -> None:
    """Owners, what they keep alive, and the children of each."""
    tree = graph.dominators(plain_.first, weak)
    owners = plain_.owners(weak, told)
    check_classes(graph, plain_, tree)
    assert list(tree.owners) == owners
    sums = [[0, 0] for _ in owners]
    roots = [*(told.starts if told is not None else ()), *range(plain_.first, graph.nodes)]
    every = plain_.reachable(roots, [[edge.node for edge in some] for some in plain_.edges])
    for node, (_, size) in enumerate(plain_.blocks):
        at = node
        while node in every and at != NO_NODE:
            sums[at] = [sums[at][0] + size, sums[at][1] + 1]
            at = owners[at]
    assert [list(one) for one in zip(tree.retained_bytes, tree.retained_blocks)] == sums
    for owner in [*range(graph.nodes), NO_NODE]:
        children = [node for node in range(graph.nodes) if owners[node] == owner and sums[node][0]]
        children.sort(key=lambda node: (-sums[node][0], node))
        assert graph.children(tree, owner, 3) == (children[:3], len(children))


def check_classes(graph: Graph, plain_: PlainGraph, tree: Tree) -> None:
    """Of each label what some nodes own."""
    blocks, tops = len(plain_.blocks), [node for node in range(graph.nodes) if node % 7 == 3]
    labels = array("I", [node * 5 % 4 for node in range(blocks)])
    expected: Dict[Tuple[int, int], List[int]] = {}
    for node, (_, size) in enumerate(plain_.blocks):
        top = node
        while top not in tops and tree.owners[top] != NO_NODE:
            top = tree.owners[top]
        row = expected.setdefault((tops.index(top) if top in tops else -1, labels[node]), [0, 0])
        row[0], row[1] = row[0] + 1, row[1] + size
    found = graph.classes(graph.under(tree, tops), len(tops), labels, 4)
    assert {(row.top, row.label): [row.blocks, row.bytes] for row in found} == expected and len(found) == len(expected)


def random_owning(blocks: int, roots: Sequence[int], seed: int) -> Owning:
    """Some labels whose words own or do not, or of which nobody knows; some blocks own nothing, some have a name by themselves."""
    rng = random.Random(seed)
    masks = [OWNS_ALL, 0, *(rng.getrandbits(64) for _ in range(4))]
    some = sorted(rng.sample(range(blocks), 8))
    return Owning(
        array("I", [rng.randrange(len(masks)) for _ in range(blocks)]), masks, [*some[:2], *roots], some[2:5], None, [0, 8, 16, 8, 0, 24]
    )


def check_joint(graph: Graph, plain_: PlainGraph, tree: Tree, told: Owning) -> None:
    """Blocks with most pointers, or whose pointers lead to most that nobody owns alone; what each leads to alone and nothing else does."""
    blocks, most, roots = len(plain_.blocks), 3, (plain_.first, plain_.first + 1)
    owned = [[edge.node for edge in edges if plain_.is_owned(node, edge, told) is not False] for node, edges in enumerate(plain_.edges)]
    inner = [[target for target in targets if target < blocks] for targets in owned]
    many = [node for node in (*range(blocks), *range(*roots)) if len(inner[node]) >= 4]
    alone = [sum(tree.retained_bytes[target] for target in targets if tree.owners[target] == NO_NODE) for targets in inner]
    counted = sorted(many, key=lambda node: (-len(inner[node]), node))[:most]
    large = sorted((node for node in many if alone[node]), key=lambda node: (-alone[node], node))[:most]
    found = graph.joint(tree, roots, most)
    assert found and {row.node for row in found} == {*counted, *large} and len(found) == len({*counted, *large})
    assert [row.bytes for row in found] == sorted((row.bytes for row in found), reverse=True)
    chosen = {*counted, *large}
    ways = [[target for target in targets if target not in chosen] for targets in owned]
    closed = chosen | plain_.reachable([node for node in (*told.starts, *range(*roots)) if node not in chosen], ways)
    for row in found:
        targets = [[target for target in targets if target not in closed] for targets in owned]
        reached = [node for node in plain_.reachable([row.node], targets) if node < blocks]
        assert (row.blocks, row.bytes) == (len(reached), sum(plain_.blocks[node][1] for node in reached))


@pytest.mark.parametrize("seed", range(20))
def test_what_owns_nothing_is_weak(c_kernel: CKernel, seed: int) -> None:
    """As its runtime tells; what has a name by itself belongs to nobody, and ways begin there first."""
    world = make(seed)
    graph, plain_ = build(c_kernel, world, [world.rows[0][0]]), PlainGraph(world, [world.rows[0][0]])
    first = roots_from(graph, world)
    told = random_owning(len(plain_.blocks), [first + 1] if seed % 2 else [], seed)
    graph.mark(first)
    graph.own(told)
    for weak in ((first, first), (first + 1, first + 2)):
        check_tree(graph, plain_, weak, told)
        tree = graph.dominators(first, weak)
        for node in range(graph.nodes):
            reached = graph.reached(node, tree)
            assert reached.bytes >= tree.retained_bytes[node] and reached.blocks >= tree.retained_blocks[node], "it leads to what it keeps"
    check_joint(graph, plain_, graph.dominators(first, (first, first)), told)
    parents, seen = graph.named_parents(first), plain_.named(told)
    ways = [way_up(parents, node, first, told.starts) for node in range(first)]
    for node, way in enumerate(ways):
        assert (way is not None) == (node in seen[-1]), node
        for above, below in zip(way[1:] if way else [], way or []):
            assert any(plain_.is_owned(above, edge, told) is not False and edge.node == below for edge in plain_.edges[above])
        assert way is None or (way[-1] in told.starts) == (node in seen[0])


@pytest.mark.parametrize("seed", range(10))
def test_the_first_starts_give_names_first(c_kernel: CKernel, seed: int) -> None:
    """What the first one leads to is called by it, though another may be nearer; no way leads over a word that is passed by, and owners do
    not depend on which were."""
    world = make(seed)
    graph, plain_ = build(c_kernel, world, []), PlainGraph(world, [])
    first = roots_from(graph, world)
    told = random_owning(len(plain_.blocks), [], seed)._replace(masks=[OWNS_ALL] * 6, nothing=[], first_starts=1)
    graph.mark(first)
    graph.own(told)
    parents = graph.named_parents(first)
    reached = plain_.named(told._replace(starts=told.starts[:1]))[0]
    for node in (node for node in reached if node < first):
        way = way_up(parents, node, first, told.starts[:1])
        assert way is not None and way[-1] == told.starts[0]
    assert seed or len(reached) > 9
    below = next(node for node in range(first) if parents[node] != NO_NODE and parents[node] < first)
    owners = list(graph.dominators(first, (first, first)).owners)
    for edge in [edge for edge in graph.edges(parents[below]) if edge.node == below]:
        assert graph.edge_to(parents[below], below) == edge
        graph.pass_by(parents[below], edge.slot)
    assert list(graph.dominators(first, (first, first)).owners) == owners
    assert graph.edge_to(below, below) == next((edge for edge in graph.edges(below) if edge.node == below), None)
    assert graph.named_parents(first)[below] != parents[below]


@pytest.mark.parametrize("seed", range(10))
def test_data_come_before_other_roots(c_kernel: CKernel, seed: int) -> None:
    """What the first root leads to is called by it, though another may be nearer; all others have the ways that they had."""
    world = make(seed)
    graph, plain_ = build(c_kernel, world, [world.rows[0][0]]), PlainGraph(world, [world.rows[0][0]])
    first = roots_from(graph, world)
    graph.mark(first)
    parents, all_alike = graph.named_parents(first, data=1), graph.named_parents(first)
    strong = [[edge.node for edge in some if edge.rule <= RULE_HABIT] for some in plain_.edges]
    reached = {node for node in plain_.reachable([first], strong) if node < first}
    assert reached or seed == 7
    for node in range(first):
        way = way_up(parents, node, first, [])
        assert (way is None) == (way_up(all_alike, node, first, []) is None)
        assert way is None or node not in reached or way[-1] == first


def way_up(parents: Sequence[int], node: int, first: int, starts: Sequence[int]) -> Optional[List[int]]:
    """From a node to a start or a root."""
    way = [node]
    while way[-1] < first and way[-1] not in starts:
        if parents[way[-1]] == NO_NODE:
            return None
        way.append(parents[way[-1]])
        assert len(way) <= len(parents)
    return way


def check(kernel: CKernel, world: GraphMemory) -> None:
    """All that a graph tells of a world is what the definitions give."""
    more = [world.rows[0][0]]
    graph, plain_ = build(kernel, world, more), PlainGraph(world, more)
    blocks, first = len(plain_.blocks), roots_from(graph, world)
    numbers, sums = graph.numbers(), graph.mark(first)
    every = [edge for some in plain_.edges for edge in some]
    assert (numbers.blocks, numbers.nodes, numbers.edges, first) == (blocks, len(plain_.edges), len(every), plain_.first)
    assert (numbers.unread_bytes, numbers.odd_blocks, graph.habits) == (0, 0, [])  # type: ignore[attr-defined]
    assert numbers.by_rule == tuple(sum(edge.rule == rule for edge in every) for rule in range(RULE_END + 1))
    assert graph.blocks(list(range(blocks))) == plain_.blocks
    for node, edges in enumerate(plain_.edges):
        assert graph.edges(node) == [edge[:3] for edge in edges]
        leading = [(other, edge.rule, edge.slot) for other, some in enumerate(plain_.edges) for edge in some if edge.node == node]
        assert node >= blocks or graph.referrers(node, 3) == leading[:3]
    assert list(graph.each_edges(0, graph.nodes)) == [[(edge.node, edge.slot) for edge in some] or () for some in plain_.edges]
    for address, size in plain_.blocks:
        for step in (-1, 0, 5, size - 1, size):
            assert graph.find(address + step) == plain_.find(address + step)
    check_evidence(graph, plain_, first)
    evidence = [graph.evidence(node) for node in range(numbers.nodes)]
    for kinds, limit in (([LEAKED, RULE_INSIDE], None), ([LEAKED], 2)):
        assert (
            graph.with_evidence(kinds, 0, blocks, limit)
            == [(node, evidence[node]) for node in range(blocks) if evidence[node] in kinds][:limit]
        )
    assert [tuple(one) for one in sums] == [
        (evidence[:blocks].count(one), sum(plain_.blocks[node][1] for node in range(blocks) if evidence[node] == one))
        for one in range(LEAKED + 1)
    ]
    inside = Counter(edge.inside for edge in every if edge.rule == RULE_INSIDE and evidence[edge.node] == RULE_INSIDE)
    assert dict(graph.inside_offsets()) == inside
    parents_are_nearest(graph, plain_, first)
    places = [(first, 2), (first, 5), (first + 1, 1)]
    graph.split(places)
    plain_.split(places)
    assert [graph.edges(node) for node in range(graph.nodes)] == [[edge[:3] for edge in some] for some in plain_.edges]
    assert graph.mark(first) == sums and [graph.evidence(node) for node in range(first)] == evidence[:first]
    for weak in ((first + 4, first + 6), (first, first)):
        check_tree(graph, plain_, weak)
    targets = [[edge.node for edge in some] for some in plain_.edges]
    for node in range(first, graph.nodes):
        behind = [one for one in plain_.reachable([node], targets) if one < blocks]
        assert graph.reached(node) == (len(behind), sum(plain_.blocks[one][1] for one in behind))


@pytest.mark.parametrize("seed", range(40))
def test_a_graph_is_what_memory_says(c_kernel: CKernel, seed: int) -> None:
    """Numbers, edges, evidence, ways and owners of any world are those of the definitions."""
    check(c_kernel, make(seed, slots=seed % 3 != 0))


@pytest.mark.parametrize("unit,word_bytes,order", [(8, 8, "little"), (8, 4, "little"), (16, 4, "big"), (16, 8, "big"), (4, 4, "little")])
def test_other_machines(c_kernel: CKernel, unit: int, word_bytes: int, order: str) -> None:
    """Words of 4 bytes, big-endian ones, and blocks at multiples of 4 or 8."""
    for seed in range(5):
        check(c_kernel, make(seed, unit=unit, word_bytes=word_bytes, order=order))


def test_more_pointers_than_there_are_numbers_for() -> None:
    """One line with what to do instead, and no internal error."""
    check_pointers(MOST_POINTERS)
    with pytest.raises(HeapxError) as error:
        check_pointers(MOST_POINTERS + 1)
    assert "4,294,967,295 words" in error.value.line() and "gdbheapx census" in error.value.line()


@pytest.mark.parametrize("seed", range(20))
def test_leak_roots_lead_to_everything_that_is_lost(c_kernel: CKernel, seed: int) -> None:
    """Every leaked block hangs behind one root, no root behind another, and the sums are those of all leaked blocks."""
    world = make(seed + 100, blocks=120)
    graph = build(c_kernel, world)
    first = roots_from(graph, world)
    sums = graph.mark(first)
    leaked = {node for node in range(graph.numbers().blocks) if graph.evidence(node) == LEAKED}
    assert graph.find_leak_roots() == len(graph.leak_roots())
    roots = graph.leak_roots()
    groups = graph.leak_groups()
    assert sum(one.roots for one in groups) == len(roots)
    assert list(graph.leak_root_ids()) == [one.id for one in roots]
    labelled = graph.leak_groups(array("I", [root.id % 3 for root in roots]))
    for one in labelled:
        assert {id % 3 for id in one.samples} == {one.label}
        alike = [root for root in roots if (*graph.blocks([root.id])[0][1:], root.is_cycle, root.id % 3) == one[:3]]
        assert (len(alike), sum(root.blocks - 1 for root in alike)) == (one.roots, one.blocks_behind)
    assert sum(one.roots * one.size_bytes + one.bytes_behind for one in groups) == sums[LEAKED].bytes
    assert [one for one, sort in enumerate(graph.leak_kinds(range(graph.numbers().blocks))) if sort] == sorted(one.id for one in roots)
    plain_ = PlainGraph(world)
    targets = [[edge.node for edge in some] for some in plain_.edges]
    assert plain_.reachable([root.id for root in roots], targets) & leaked == leaked
    for root in roots:
        assert not any(root.id in plain_.reachable([other.id], targets) for other in roots if other.id != root.id)
        others = {edge.node for node in leaked for edge in graph.edges(node)}
        assert root.is_cycle == (root.id in others)
    assert (sum(root.blocks for root in roots), sum(root.bytes for root in roots)) == sums[LEAKED]


@pytest.mark.once  # the algorithm's own
@pytest.mark.slow
def test_owners_of_ten_thousand_graphs(c_kernel: CKernel) -> None:
    """Dominators are those of the definition, also of small graphs of every form."""
    for seed in range(10_000):
        world = make(seed, blocks=3 + 3 * (seed % 4))
        graph, plain_ = build(c_kernel, world), PlainGraph(world)
        weak = (graph.nodes, graph.nodes)
        assert list(graph.dominators(roots_from(graph, world), weak).owners) == plain_.owners(weak), seed


def classes(graph: Graph, world: GraphMemory) -> List[int]:
    """Each block's evidence."""
    graph.mark(roots_from(graph, world))
    return [graph.evidence(node) for node in range(graph.numbers().blocks)]


def test_a_list_belongs_to_the_variable_that_holds_a_table_of_it(c_kernel: CKernel) -> None:
    """A pointer of a stack to one member takes nothing from a table that holds them all."""
    members = [HEAP + 4096 + 64 * place for place in range(10)]
    blocks = {address: pack_words([members[(place + 1) % 10], members[place - 1], *[0] * 5]) for place, address in enumerate(members)}
    world = lay_out({HEAP: pack_words(members), **blocks}, {DATA: pack_words([HEAP, 0, members[3]])})
    graph = build(c_kernel, world)
    first = roots_from(graph, world)
    graph.split([(first, 2)])
    tree = graph.dominators(first, (first + 1, first + 2))
    assert [tree.owners[node] for node in range(11)] == [first] + [0] * 10


def test_what_cannot_be_read_is_counted(c_kernel: CKernel) -> None:
    """A hole in a block, and where it begins."""
    world = lay_out({HEAP: bytes(8192), HEAP + 0x4000: bytes(64)}, {DATA: pack_words([HEAP])})
    pieces = [(address, data[:4096]) for address, data in world.source.pieces]
    graph = build(c_kernel, world._replace(source=BytesSource(tuple(pieces))))
    assert graph.numbers()[4:6] == (4096, HEAP + 4096)


def test_large_blocks_and_long_gaps(c_kernel: CKernel) -> None:
    """A block of many MiB is found from its end, and what lies far behind it is not."""
    world = lay_out({HEAP: bytes(4096), HEAP + (62 << 20): bytes(16)}, {DATA: pack_words([HEAP + (47 << 20), HEAP + (63 << 20)])})
    world = world._replace(rows=[(HEAP, 48 << 20, CLASS_USED, 0, 0), *world.rows[1:]])
    graph = build(c_kernel, world)
    assert classes(graph, world) == [RULE_INSIDE, LEAKED]
    assert graph.find(HEAP + (48 << 20)) is None


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
    pieces = [(start, bytes(size)) for start in slots] + [(DATA, pack_words(words[:half])), (DATA + 8192, pack_words(words[half:]))]
    shape = GraphShape([(HEAP, HEAP + 0x100000)], [], 8, True, 16, bool(seed % 4))
    rows = [(start, size, CLASS_FREE if kind == "free" else CLASS_USED, 0, 0) for start, kind in zip(slots, kinds)]
    graph = build(c_kernel, GraphMemory(BytesSource(tuple(sorted(pieces))), shape, rows, [span for span in cut if span[0] < span[1]], "little"))
    assert graph.mark(graph.numbers().blocks)[RULE_END].blocks
    assert [graph.evidence(node) for node in range(len(wanted))] == [wanted[place] for place in sorted(wanted)]


def test_addresses_far_apart_are_no_endless_work(c_kernel: CKernel) -> None:
    """The index of blocks goes by what is there; more than any machine has is refused at once."""
    world = make(1, blocks=30)
    shape = world.shape
    for far in ((1 << 62, (1 << 62) + 4096), (1 << 48, 1 << 52)):
        with pytest.raises(MemoryError):
            c_kernel.graph(world.source, shape._replace(mappings=[*shape.mappings, far]), Budget())
    graph = c_kernel.graph(world.source, shape._replace(mappings=[*shape.mappings, (1 << 55, (1 << 55) + 4096)]), Budget())
    graph.gather([iter([make_blocks(world.rows)])])
    graph.settle()
    graph.resolve()
    assert graph.numbers().blocks == sum(row[2] == CLASS_USED for row in world.rows)
