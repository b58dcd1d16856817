"""Containers and what they contain; what symbol tables and cores with zeros tell.

Files: analysis/reachability/dominance.py, analysis/reachability/owners.py, analysis/reachability/refs.py, report/reach_text.py, analysis/reachability/paths.py, kernel/common/sift.c.
"""

from array import array
from types import SimpleNamespace
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, cast

import pytest

from gdbheapx.analysis.memory.attribute import drop_untouched
from gdbheapx.analysis.reachability import dominance, heap_graph, refs
from gdbheapx.analysis.reachability.dominance import ContainerElement, OwnerTally
from gdbheapx.analysis.reachability.heap_graph import GraphRoot, TargetSymbols
from gdbheapx.analysis.reachability.owners import CONTAINER, ELEMENTS, SHARED, HeldContainer, OwnedMemory, add_owner_types
from gdbheapx.command import TextStyle
from gdbheapx.common.budget import Budget
from gdbheapx.common.model import TargetAddress
from gdbheapx.inferior.base import (
    BytesSource,
    Function,
    Mapping,
    MappingUse,
    MemoryUse,
    Module,
    StackCall,
    StackCopy,
    StaticBlock,
    Target,
    Thread,
)
from gdbheapx.kernel import load_native_library
from gdbheapx.kernel.blocks.graph import CERTAIN, HASH_TABLE, LIKELY, LIST, NO_NODE, NO_SLOT, Container, Edge, NativeSum, Tree
from gdbheapx.report import reach_text

BLOCKS, ROOTS = 40, 3
QUEUE, STACK, WORK = BLOCKS, BLOCKS + 1, BLOCKS + 2
"""Nodes of two variables, and between them a thread's stack."""
FIRST = BLOCKS + ROOTS
"""The first container."""
PLAIN = TextStyle(plain_bytes=False, color=False)


class FakeGraph:
    """What Tallied asks of one."""

    def __init__(self, sizes: Sequence[int], members: Dict[int, List[int]]) -> None:
        self._sizes, self._members = sizes, members

    def members(self, tree: Tree, number: int, first: int = 0, limit: int = 1 << 16) -> List[int]:
        return self._members[number][first : first + limit]

    def with_users(self, tree: Tree, one: Container) -> Container:
        return one

    def columns(self, ids: "array[int]") -> Tuple[List[int], List[int]]:
        return [0x1000 * (node + 1) for node in ids], [self._sizes[node] for node in ids]

    def blocks(self, ids: Sequence[int]) -> List[Tuple[int, int]]:
        assert all(node < BLOCKS for node in ids), "no block has the number of a container"
        return [(0x1000 * (node + 1), self._sizes[node]) for node in ids]

    def children(self, tree: Tree, owner: int, limit: int, until: Optional[int] = None) -> Tuple[List[int], int]:
        nodes = [node for node, above in enumerate(tree.owners) if above == owner and tree.retained_bytes[node] and node < (until or len(tree.owners))]
        return sorted(nodes, key=lambda node: -tree.retained_bytes[node])[:limit], len(nodes)

    def find(self, address: int) -> Optional[Tuple[int, int]]:
        return address // 0x1000 - 1, address % 0x1000

    def edge_to(self, node: int, target: int) -> Optional[Edge]:
        return Edge(target, 0, 2)

    def others(self, tree: Tree, owners: Sequence[int], weak: Tuple[int, int]) -> List[None]:
        return [None for _ in owners]

    def parents(self, roots_from: int) -> List[int]:
        return [NO_NODE] * FIRST

    def reached(self, node: int, tree: Optional[Tree] = None) -> NativeSum:
        assert node < FIRST or tree is not None, "a container is no node of the graph"
        return NativeSum(0, 0)


class FakeNames:
    """Symbols, as Names has them."""

    def variable(self, module: Any, address: int) -> None:
        return None

    def at(self, module: Any, address: int, is_short: bool = False) -> str:
        return "%s%s" % ({0: "g_queue", 16: "g_queue+0x10", 64: "g_work"}[address], "" if is_short else " in app")

    def of_root(self, root: GraphRoot, slot: int) -> str:
        return "stack of thread 7" + (", frame 2" if slot != NO_SLOT else "")


def tallied(owners: Dict[int, int], sizes: Sequence[int], containers: Sequence[Container], members: Dict[int, List[int]]) -> OwnerTally:
    """`owners`: of each node that has one."""
    above = array("I", [owners.get(node, NO_NODE) for node in range(FIRST + len(containers))])
    retained = array("Q", [*sizes, *[0] * (ROOTS + len(containers))])
    blocks = array("I", [int(size > 0) for size in sizes] + [0] * (ROOTS + len(containers)))
    for node in range(BLOCKS):
        at = above[node]
        while at != NO_NODE:
            retained[at], blocks[at] = retained[at] + sizes[node], blocks[at] + int(sizes[node] > 0)
            at = above[at]
    of = array("I", bytes(4 * BLOCKS))
    for number, nodes in members.items():
        for node in nodes:
            of[node] = number + 1
    made: Any = object.__new__(OwnerTally)
    made.tree, made.graph, made.names, made.paths = Tree(above, retained, blocks, containers, of), FakeGraph(sizes, members), FakeNames(), None
    module: Any = type("M", (), {"link": None})()
    data = GraphRoot(heap_graph.DATA, 0, 128, module, None)
    made.parts = [data._replace(slot=0), GraphRoot(heap_graph.STACK, 0x9000, 0xA000, None, None), data._replace(slot=8)]
    numbers = type("N", (), {"blocks": BLOCKS})()
    regions_ = type("R", (), {"nodes": (), "roots": made.parts, "managed": ()})()
    made.reach = type("Reach", (), {"roots_from": BLOCKS, "word_bytes": 8, "numbers": numbers, "mapping": lambda self, node: None, "regions": regions_, "kept": None})()
    made.has_starts, made.named, made.weak, made.strong = False, frozenset(), (STACK, STACK + 1), (BLOCKS, STACK)
    made.used, made.leaked = NativeSum(BLOCKS, sum(sizes)), NativeSum(0, 0)
    result: OwnerTally = made
    return result


def queue(users: Sequence[Tuple[int, int]] = (), sure: str = LIKELY, shape: str = LIST, entries: Sequence[Tuple[int, int]] = ((QUEUE, 0),), more: int = 5000) -> OwnerTally:
    """A list of 20 elements of 100 bytes, of which the fourth keeps 5,000 more, and some other blocks."""
    sizes = [100] * 20 + [more] + [0] * 18 + [400]
    one = Container(FIRST, shape, 20, 100, 2000, entries, sure, users, 3 if users else 0, 300 if users else 0)
    owners = {**dict.fromkeys(range(20), FIRST), 20: 3, 39: WORK, **({FIRST: QUEUE} if len(entries) == 1 else {})}
    return tallied(owners, sizes, [one], {0: list(range(20))})


def text(rows: Sequence[OwnedMemory]) -> str:
    return "\n".join(reach_text.format_owner_rows(PLAIN, rows))


def test_a_variable_that_keeps_one_container_is_its_row() -> None:
    """Elements that are alike are one row, those that keep far more have their number; the parts add up to the whole."""
    made = queue([(STACK, 1), (WORK, 40)])
    row = dominance.find_owners(made, 3, 20).owners[0]
    assert (row.owner, row.kind, row.confidence, row.retained_bytes) == ("g_queue in app", "global", LIKELY, 7000)
    assert row.container is not None and row.container[:4] == (LIST, 20, 100, 2000) and not row.holders
    assert [(one.owner, one.kind, one.retained_bytes) for one in row.children] == [("19 other elements of 100 bytes", ELEMENTS, 1900), ("g_queue[3]", "block", 5100)]
    assert sum(one.retained_bytes for one in row.children) == row.retained_bytes and sum(one.retained_blocks for one in row.children) == row.retained_blocks
    assert [(user.owner, user.kind, user.pointers) for user in row.users] == [("stack of thread 7", "thread", 1), ("g_work in app", "global", 40)]
    shown = text([row])
    assert "list of 20 elements (owner likely)" in shown
    assert "3 elements (300 bytes) are in use elsewhere: 1 stack, 40 words of g_work" in shown


def test_suspects_are_containers() -> None:
    """One sentence: who, what, how much, how large an element is, who else uses some; two that hold the same are told side by side."""
    suspect = dominance.find_owners(queue([(STACK, 1)], CERTAIN, HASH_TABLE), 1, 20).suspects[0]
    assert reach_text.describe_suspicion(suspect) == "Suspect: g_queue in app keeps 6.8 KiB (95 %); most of it is 4.9 KiB at g_queue[0x4000] -> +0x10"
    for name, node in (("g_queue[0x4000]", 3), ("g_queue[0x4000] -> +0x10", 20)):
        assert dominance.find_named_node(queue(shape=HASH_TABLE), name) == node
    suspect = dominance.find_owners(queue([(STACK, 1)], CERTAIN, HASH_TABLE, more=2900), 1, 20).suspects[0]
    wanted = "Suspect: g_queue in app, hash table of 20 elements of 100 bytes, keeps 4.8 KiB (92 %); 3 elements (300 bytes) are in use elsewhere: 1 stack"
    assert reach_text.describe_suspicion(suspect) == wanted + "; largest parts: element 0x4000 (100 bytes) (57 %)"
    suspect = dominance.find_owners(queue([(STACK, 1)], CERTAIN, HASH_TABLE, more=100), 1, 20).suspects[0]
    assert reach_text.describe_suspicion(suspect).startswith("Suspect: g_queue in app, hash table of 20 elements of 100 bytes, keeps 2.1 KiB (84 %), ~105 bytes each; 3 elements")
    assert reach_text.name_suspect(suspect) == "g_queue in app, hash table of 20 elements of 100 bytes"
    buffer = suspect._replace(containers=[HeldContainer("string", TargetAddress(0x40), 32, None, 100000)])
    assert reach_text.name_suspect(buffer) == reach_text.name_suspect(suspect), "a string says nothing of the elements"
    table = suspect._replace(containers=[HeldContainer("map or set", TargetAddress(0x40), 48, 20, None)])
    assert reach_text.name_suspect(table) == "g_queue in app, map or set of 20 entries"
    made = queue(entries=[(QUEUE, 0), (WORK, 8)], sure="shared")
    found = dominance.find_owners(made, 2, 20)
    assert found.owners[0].kind == SHARED and list(found.owners[0].holders) == ["g_queue in app", "g_work in app"]
    assert reach_text.describe_suspicion(found.suspects[0]) == "Suspect: g_queue in app and g_work in app hold the same list of 20 elements of 100 bytes: 6.8 KiB (95 %), neither alone; largest parts: element 0x4000 (100 bytes) (69 %)"
    assert dominance.find_named_node(made, "g_queue in app and g_work in app") == FIRST
    member = made.contained.member(3)
    assert member is not None and member.name == "list g_queue and g_work"
    assert found.owners[0].children[1].owner == "block 0x4000 (100 bytes)", "it is not one holder's element more than the other's"


def test_a_container_that_a_block_holds() -> None:
    """Its name goes up to the variable; a part of what that keeps is told as such."""
    sizes = [100] * 8 + [80] + [0] * 30 + [20]
    one = Container(FIRST, LIST, 8, 100, 800, [(8, 12)], CERTAIN)
    made = tallied({**dict.fromkeys(range(8), FIRST), FIRST: 8, 8: QUEUE, 39: QUEUE}, sizes, [one], {0: list(range(8))})
    found = dominance.find_owners(made, 3, 20)
    assert found.owners[0].container is None and found.owners[0].children[0].owner == "block 0x9000 (80 bytes)"
    point = found.suspects[0].accumulation
    for name, said in (("g_queue+0x10 -> +0x60", "g_queue+0x10 -> +0x60"), ("block 0x9000 (80 bytes) -> +0x60", "g_queue in app")):
        suspect = found.suspects[0]._replace(retained_bytes=805, accumulation=point._replace(name=name, is_below=name in point.name))
        assert reach_text.name_suspect(suspect) == said + ", list of 8 elements of 100 bytes", "a way that begins anywhere does not tell whose it is"
    inner = found.owners[0].children[0].children[0]
    assert (inner.owner, inner.kind) == ("g_queue+0x10 -> +0x60", CONTAINER) and inner.address == 0x1000
    assert reach_text.describe_suspicion(found.suspects[0]).startswith("Suspect: g_queue in app keeps 900 bytes (100 %); most of it is g_queue+0x10 -> +0x60, list of 8 elements")
    assert dominance.find_named_node(made, "g_queue+0x10 -> +0x60") == FIRST
    assert made.contained.step(one) == "[list at +0x60]"
    assert made.contained.rows(9)[0][:9] == (0, "g_queue+0x10 -> +0x60", LIST, "+0x60", 8, 100, 800, 800, 8)


def test_parts_that_are_containers_are_told_as_such() -> None:
    """Of a block that two tables and a list divide, each by what it is, and not as the block of the table, or as its first element."""
    tables = [Container(FIRST + number, HASH_TABLE, 8, 100, 800, [(8 + number, 0)], CERTAIN) for number in (0, 1)]
    listed = Container(FIRST + 2, LIST, 8, 100, 800, [(10, 4)], CERTAIN)
    owners = {8: 10, 9: 10, 10: QUEUE, FIRST: 8, FIRST + 1: 9, FIRST + 2: 10}
    members = {0: list(range(8)), 1: list(range(11, 19)), 2: list(range(19, 27))}
    owners.update((node, FIRST + number) for number, nodes in members.items() for node in nodes)
    sizes = [100] * 8 + [64, 64, 40] + [100] * 16 + [0] * 13
    made = tallied(owners, sizes, [*tables, listed], members)
    found = add_owner_types(dominance.find_owners(made, 1, 20), {0x1000 * (node + 1): "Session" for node in range(BLOCKS)})
    suspect = found.suspects[0]
    table = "the hash table g_queue+0x10 -> +0x10 -> +0x0 of 8 elements (34 %)"  # the graph here has one word for every edge
    assert reach_text.describe_suspicion(suspect).endswith("; largest parts: %s, %s, the list g_queue+0x10 -> +0x20 of 8 elements (31 %%)" % (table, table))
    assert [part.container.kind for part in suspect.accumulation.parts if part.container] == [HASH_TABLE, HASH_TABLE, LIST]


def test_a_user_is_a_container_that_two_hold() -> None:
    """It is called as it is itself: no block has its number."""
    one = Container(FIRST, LIST, 8, 100, 800, [(QUEUE, 0)], CERTAIN, [(FIRST + 1, 5)], 5, 500)
    other = Container(FIRST + 1, LIST, 8, 50, 400, [(QUEUE, 2), (WORK, 8)], "shared")
    owners = {FIRST: QUEUE, **dict.fromkeys(range(8), FIRST), **dict.fromkeys(range(8, 16), FIRST + 1)}
    made = tallied(owners, [100] * 8 + [50] * 8 + [0] * 24, [one, other], {0: list(range(8)), 1: list(range(8, 16))})
    row = dominance.find_owners(made, 2, 20).owners[0]
    assert [(user.owner, user.kind, user.pointers) for user in row.users] == [("g_queue+0x10 in app and g_work in app", SHARED, 5)]
    assert made.contained.has_names(FIRST + 1) and made.contained.has_names(0) is None
    assert made.contained.is_below(other, WORK) and not made.contained.is_below(one, WORK)


@pytest.mark.parametrize("count", [4, 7])
def test_elements_of_several_sizes(count: int) -> None:
    """A row for each of the most, one for the others, and no byte is lost."""
    sizes = [16 * (1 + node % count) for node in range(30)] + [0] * 10
    made = tallied({**dict.fromkeys(range(30), FIRST), FIRST: QUEUE}, sizes, [Container(FIRST, LIST, 30, 0, sum(sizes), [(QUEUE, 0)], CERTAIN)], {0: list(range(30))})
    row = dominance.find_owners(made, 2, 20).owners[0]
    assert row.container is not None and row.container.element_bytes is None and len(row.children) == 4
    assert sum(one.retained_bytes for one in row.children) == row.retained_bytes == sum(sizes)
    assert sum(one.retained_blocks for one in row.children) == 30


def test_a_container_that_several_blocks_of_one_variable_hold() -> None:
    """The variable keeps it alone, whatever leads there below it: it is called by that, and not by each of the blocks."""
    one = Container(FIRST, HASH_TABLE, 8, 100, 800, [(8, 1), (9, 2)], "shared")
    made = tallied({**dict.fromkeys(range(8), FIRST), FIRST: QUEUE, 8: QUEUE, 9: QUEUE}, [100] * 8 + [16] * 2 + [0] * 30, [one], {0: list(range(8))})
    told = reach_text.describe_suspicion(dominance.find_owners(made, 2, 20).suspects[0])
    assert told.startswith("Suspect: g_queue in app, hash table of 8 elements of 100 bytes, keeps 832 bytes (100 %)"), told


class HashTableMarks(refs.RefsMarks):
    """Block 0 is an element of a hash table, block 1 another one that leads there, block 2 the table with its first pointer at word 5,
    block 3 has to do with an element; variables hold both."""

    def __init__(self) -> None:
        self.starts, self.lost, self.elements, self.parents = frozenset(), {}, {}, [NO_NODE, NO_NODE, QUEUE, WORK]  # type: ignore[assignment]
        member = ContainerElement(0, [(2, 5)], "hash table g_table")
        self.contained: Any = SimpleNamespace(member=lambda node: member if node < 2 else None, place=lambda node: None)


def test_what_holds_a_table_is_no_user_of_its_elements() -> None:
    """Whichever of its words leads to an element; links of others are counted."""
    pointers = [Edge(3, 0, 1), Edge(2, 0, 7), Edge(1, 0, 0)]
    graph = SimpleNamespace(
        find=lambda address: (0, 0), referrers=lambda node, most: pointers, blocks=lambda ids: [(0x1000 * (node + 1), 48) for node in ids]
    )
    graph.evidence, graph.edge_to = lambda node: 0, lambda node, target: Edge(target, 0, 2)
    reach: Any = SimpleNamespace(graph=graph, roots_from=BLOCKS, word_bytes=8, mapping=lambda node: None)
    reach.root = lambda node: GraphRoot(0x9000, 8, heap_graph.DATA, None, None) if node >= BLOCKS else None
    names: Any = SimpleNamespace(of=lambda node, slot: {QUEUE: "g_table", WORK: "g_work"}[node])
    found = refs.find_refs(reach, names, 0x1000, HashTableMarks())
    assert found is not None and found.links == 1
    assert [(chain.is_user, chain.steps[0].address, chain.steps[-1].root) for chain in found.chains] == [
        (False, 0x3000, "g_table"),
        (True, 0x4000, "g_work"),
    ]
    assert "It is an element of the hash table g_table; 1 link from its neighbours" in list(reach_text.format_refs(PLAIN, found, 9, 9))


def test_a_user_below_a_variable_has_its_way() -> None:
    """The variable itself has no word of an element."""
    names = ("g_work in app", "g_work in app -> +0x8", 'shop["in a" in app]', "block 0x5000")
    assert [dominance.strip_module(name) for name in names] == ["g_work", "g_work -> +0x8", 'shop["in a" in app]', "block 0x5000"]


MODULE = Module("/usr/bin/app", 0x1000, True, None, None)


def test_names_are_looked_up_once() -> None:
    """A thousand words of one call and of one variable ask for no more than the first one did."""
    asked: List[str] = []
    target = SimpleNamespace(
        calls=lambda stack: [StackCall(0x7000, 0x9000, 0x1234, False)],
        image_ranges=lambda: asked.append("images") or [(0x1000, 0x2000, MODULE)],
        functions=lambda module, exported: asked.append("functions") or [Function(0x1200, 0x1300, "_Z4workv", False)],
        variables=lambda module: asked.append("variables") or [("t_cache", 16, 8, True), ("g_all", 16, 8, False)],
        source_name={"_Z4workv": "work()"}.get,
    )
    thread = Thread(7, "app", 0x5000, 0x7000, 0x1234)
    symbols = TargetSymbols(cast(Target, target), {7: StackCopy(0x7000, 0x1234, (), b"")}, [StaticBlock(-64, 64, MODULE)])
    for word in range(1000):
        assert symbols.in_stack(thread, 0x7000 + 8 * word) == "frame 0, work()+0x34 in app"
        assert symbols.thread_local(thread, 0x5000 - 64 + 20) == "t_cache+0x4 in app"
    assert asked == ["images", "functions", "variables"]


PAGE = 4096
BASE = 0x7F0000000000


class Core(NamedTuple):
    """A core that is all zeros but for some pages."""

    memory: bytes
    page_bytes: int = PAGE

    def bulk_source(self) -> BytesSource:
        return BytesSource(((BASE, self.memory),))

    def data_ranges(self, ranges: Sequence[Tuple[int, int]]) -> List[Tuple[int, int]]:
        return list(ranges)


def use(first: int, pages: int, rights: str, name: str = "") -> MappingUse:
    start, end = BASE + first * PAGE, BASE + (first + pages) * PAGE
    return MappingUse(Mapping(start, end, "r" in rights, "w" in rights, "x" in rights, False, name, pages * PAGE), pages * PAGE)


MAPPINGS = [use(0, 4, "rw"), use(4, 8, "r"), use(12, 2, "r"), use(14, 2, "rw", "/memfd:frames (deleted)")]
MEMORY = bytearray(16 * PAGE)
for _page in (1, 13, 15):
    MEMORY[_page * PAGE + 7] = 1


def test_a_core_by_gdb() -> None:
    """Only pages that hold something count; addresses that gdb calls readable, and that hold nothing, are reserved."""
    core = MemoryUse("dumped", MAPPINGS, None, False)
    left, pages, zero_bytes, until = drop_untouched(Core(bytes(MEMORY)), load_native_library(), core, Budget())  # type: ignore[arg-type]
    assert [one.resident_bytes // PAGE for one in left.mappings] == [1, 0, 1, 1]
    assert [one.mapping.readable for one in left.mappings] == [True, False, True, True]
    assert zero_bytes == 13 * PAGE and until is None
    assert pages is not None and pages.bytes_in([(BASE, BASE + PAGE + 5), (BASE + 13 * PAGE - 3, BASE + 14 * PAGE - 9)]) == 5 + PAGE - 9


def test_a_core_by_the_kernel() -> None:
    """Its holes tell of private memory, whatever the pages hold; of shared memory they do not."""
    core = MemoryUse("dumped", MAPPINGS, None, True)
    left, _, zero_bytes, _ = drop_untouched(Core(bytes(MEMORY)), load_native_library(), core, Budget())  # type: ignore[arg-type]
    assert [one.resident_bytes // PAGE for one in left.mappings] == [4, 8, 2, 1] and zero_bytes == PAGE
    assert [one.mapping.readable for one in left.mappings] == [True] * 4


def test_a_process_is_left_as_it_is() -> None:
    """Its page table tells."""
    live = MemoryUse("resident", MAPPINGS, 0)
    assert drop_untouched(Core(b""), load_native_library(), live, Budget()) == (live, None, None, None)  # type: ignore[arg-type]


def test_an_object_that_leads_to_other_owners_is_not_one_of_several_that_hold_something() -> None:
    """As a method does by sys.modules: it reaches more than it keeps and all that several hold."""
    row = OwnedMemory("", "global", None, 100, 10.0, 1, 0, 1)
    rows = {7: row._replace(owner="Generator.__dict__", reached_bytes=900), 8: row._replace(owner="app.index", reached_bytes=400)}
    graph = SimpleNamespace(named_parents=lambda roots_from: {1: 7, 2: 8, 7: NO_NODE, 8: NO_NODE}, children=lambda *asked: ([1, 2], 2))
    made: Any = SimpleNamespace(
        reach=SimpleNamespace(roots_from=9), tree=SimpleNamespace(retained_bytes={1: 200, 2: 100}), graph=graph, named={7, 8}, has_starts=True,
        path=lambda node: SimpleNamespace(is_module=False), is_plumbing=lambda node: False, owned=lambda node, reached: rows[node], used=NativeSum(9, 1000),
    )  # fmt: skip
    assert [one.owner for one in dominance._find_voted_owners(made, 300)] == ["app.index"]
