"""Retained bytes and owners of every node of real processes, held against igraph: its dominators (Lengauer and Tarjan) of a graph whose edges are
left out by the rules of docs/explanation/what-holds-memory.md.

Files: kernel/blocks/dominators.c, kernel/blocks/owning.c, analysis/reachability/dominance.py, analysis/reachability/ownership.py.
"""

import shutil
import sys
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

import pytest

from gdbheapx.analysis.census import named
from gdbheapx.analysis.reachability import dominance
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.graph import (
    LAST_OWNING_BIT,
    NO_NODE,
    OWNS_ALL,
    RULE_HABIT,
    UNOWNING,
    Edge,
    Graph,
    Owning,
)
from gdbheapx.session import Session
from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.servers import Redis

pytestmark = pytest.mark.wild  # igraph, and servers that may not be here
igraph = pytest.importorskip("igraph", reason="igraph is not installed")

WORD = 8
PYTHON = """
import sys, types, collections, functools, json, weakref
shop = sys.modules["shop"] = types.ModuleType("shop")
class Order:
    def __init__(self, number):
        self.items, self.note, self.parent = [float(number), str(number) * 3], {"a": "x" * 60}, None
shop._cache = {"u:%d" % number: Order(number) for number in range(4000)}
shop.recent = collections.deque(list(shop._cache.values())[:500])
shop.by_note = collections.OrderedDict((order.items[1], order) for order in shop._cache.values())
shop.weak = weakref.WeakValueDictionary(enumerate(Order(number) for number in range(100)))
shop.pairs = [(number, str(number), (number,)) for number in range(3000)]
for order in shop.recent: order.parent = shop.recent
print("ready", flush=True)
sys.stdin.read()
"""
RUBY = """
class Order; def initialize(n); @items = [n.to_f, n.to_s * 9]; @note = {a: "x" * 60, b: n.to_s * 40}; end; end
CACHE = {}
4000.times { |n| CACHE["u:#{n}"] = Order.new(n) }
$recent = CACHE.values.first(500)
puts "ready"
$stdout.flush
$stdin.read
"""


class Link(NamedTuple):
    """One pointer, as the rules see it."""

    source: int
    target: int
    is_weak: bool
    is_last: bool
    """It counts where nothing stronger leads."""


class Foreign:
    """The graph of one look, whose words are read once more. What they say of themselves (`not-owning`) is taken over."""

    def __init__(self, session: Session, tallied: dominance.Tallied, told: Optional[Owning], stale: Set[Tuple[int, int]]) -> None:
        """`stale`: (node, slot) of words that own nothing, whatever a runtime says."""
        self._target, self._tallied, self._told, self._weak, self._stale = session.target, tallied, told, tallied.weak, stale
        self._graph, self._reach, self.blocks = tallied.graph, tallied.reach, tallied.reach.numbers.blocks
        self.nodes = self._graph.nodes
        self.spans = list(self._graph.blocks(range(self.blocks)))
        self._habits = {habit.offset for habit in self._reach.habits}
        starts = list(told.starts) if told is not None else []
        self.tops = [*starts, *range(self._reach.roots_from, self.nodes)]
        self.strong = [node for node in self.tops if not self._weak[0] <= node < self._weak[1]]
        self._edges = [self._graph.edges(node) for node in range(self.nodes)]
        self._inside = [self._offsets(node) for node in range(self.nodes)]
        self._nothing = {node for one in (told.nothing if told is not None else ()) for node in self._parts(one)}
        self._places = [{edge.slot: edge.node for edge in reversed(edges)} for edges in self._edges]

    def _parts(self, node: int) -> List[int]:
        """A root was split into variables since then."""
        first, parts = self._reach.roots_from, self._tallied.parts
        if node < first:
            return [node]
        return [first + number for number, part in enumerate(parts) if part.root is self._reach.regions.roots[node - first]]

    def _start(self, node: int) -> int:
        mapping = self._reach.mapping(node) if node >= self.blocks else None
        if mapping is not None:
            return mapping.start
        return self.spans[node][0] if node < self.blocks else self._tallied.parts[node - self._reach.roots_from].root.start

    def _offsets(self, node: int) -> Dict[int, int]:
        """By slot how far inside of its block the pointer leads; nothing of registers, which are weak."""
        start = self._start(node)
        slots = [edge for edge in self._edges[node] if start and edge.node < self.blocks]
        words = ((edge, self._target.read_prefix(start + edge.slot * WORD, WORD)) for edge in slots)
        return {edge.slot: int.from_bytes(word, "little") - self.spans[edge.node][0] for edge, word in words}

    def _is_sure(self, node: int, edge: Edge) -> bool:
        """A runtime says that the word owns."""
        if self._told is None or edge.rule == UNOWNING or node in self._nothing or node >= self.blocks:
            return False
        mask, inside = self._told.masks[self._told.labels[node]], self._inside[node].get(edge.slot, 0)
        if mask != OWNS_ALL and mask >> min(edge.slot, LAST_OWNING_BIT) & 1:
            return True
        begin = self._told.begins[self._told.labels[edge.node]] if edge.node < self.blocks else 0
        return bool(inside >= WORD and inside == begin)

    def _is_link(self, node: int, edge: Edge) -> bool:
        """Of a doubly linked list: beside where it leads stands a pointer back to beside where it stands."""
        inside = self._inside[node].get(edge.slot, 0)
        if node >= self.blocks or edge.node >= self.blocks or 0 < inside < WORD:
            return False
        there, back, place = self._places[edge.node], self._inside[edge.node], inside // WORD
        ways = [(place + 1, edge.slot), (place, edge.slot - 1)]
        return any(there.get(slot) == node and back[slot] // WORD == offset for slot, offset in ways if offset >= 0)

    def links(self) -> Iterator[Link]:
        """All pointers, by the rules."""
        for node, edges in enumerate(self._edges):
            is_weak_root = self._weak[0] <= node < self._weak[1]
            for edge in edges:
                is_sure, inside = self._is_sure(node, edge), self._inside[node].get(edge.slot, 0)
                is_odd = edge.rule == RULE_HABIT and inside not in self._habits
                is_weak = not is_sure and (edge.rule > RULE_HABIT or is_weak_root or is_odd or self._is_link(node, edge))
                yield Link(node, edge.node, is_weak, is_sure or edge.rule != UNOWNING or (node, edge.slot) not in self._stale)

    def owners(self) -> Tuple[List[int], List[int]]:
        """By node its owner, and what it retains, as igraph has it."""
        links, top = list(self.links()), self.nodes
        strong = igraph.Graph(top + 1, [(link.source, link.target) for link in links if not link.is_weak], directed=True)
        strong.add_edges([(top, node) for node in self.strong])
        held = set(strong.subcomponent(top, mode="out"))
        kept = [(top, node) for node in self.tops]
        for link in links:
            is_late = link.target in held and (link.is_weak or (self._told is not None and link.source not in held))
            if not is_late and (not link.is_weak or link.is_last):
                kept.append((link.source, link.target))
        found = igraph.Graph(top + 1, kept, directed=True).dominator(top, mode="out")
        above = [int(owner) if owner >= 0 else -1 for owner in found]  # NaN: not reached; the top's own is -1
        tree = igraph.Graph(top + 1, [(owner, node) for node, owner in enumerate(above) if owner >= 0], directed=True)
        order, *_ = tree.bfs(top, mode="out")
        retained = [self.spans[node][1] if node < self.blocks and above[node] >= 0 else 0 for node in range(top + 1)]
        for node in reversed(order[1:]):
            retained[above[node]] += retained[node]
        return [NO_NODE if owner in (top, -1) else owner for owner in above[:top]], retained


def python(stage: Stage) -> Process:
    """A service with caches, lists, and weak references."""
    return _spawned(stage, sys.executable, "-c", PYTHON)


def ruby(stage: Stage) -> Process:
    """One with a cache in a constant."""
    return _spawned(stage, shutil.which("ruby") or pytest.skip("ruby is not installed"), "-e", RUBY)


def redis(stage: Stage) -> Process:
    """On jemalloc, without types."""
    server = Redis(stage)
    server.fill(20000)
    return server.process


def cplusplus(stage: Stage) -> Process:
    """With containers of libstdc++, stripped."""
    process = stage.start("service", "leaky", flags=("-s",))
    process.command(b"w")
    return process


def _spawned(stage: Stage, *words: str) -> Process:
    process = stage.spawn(list(words))
    process.wait_ready()
    return process


def _stale(graph: Graph, nodes: Iterable[int]) -> Iterator[Tuple[int, int]]:
    return ((node, edge.slot) for node in nodes for edge in graph.edges(node) if edge.rule == UNOWNING)


@pytest.mark.parametrize("start", [python, ruby, redis, cplusplus], ids=lambda one: one.__name__)
def test_owners_are_those_of_igraph(stage: Stage, monkeypatch: pytest.MonkeyPatch, start: Callable[[Stage], Process]) -> None:
    """The owner of every node, and to the byte what each retains."""
    heard: List[Owning] = []
    stale: Set[Tuple[int, int]] = set()
    own = Graph.own

    def listen(graph: Graph, told: Owning) -> None:
        stale.update(_stale(graph, range(len(told.labels))))
        heard.append(told)
        own(graph, told)

    monkeypatch.setattr(Graph, "own", listen)
    session = Session(open_elf_target(core=str(gcore(start(stage)))))
    session.prepare()
    made = named.make(session)
    tallied = dominance.tally(session, made.reach, made.names, made.paths)
    tree = tallied.tree
    if not heard:  # no runtime says anything
        stale.update(_stale(tallied.graph, range(tallied.graph.nodes)))
    foreign = Foreign(session, tallied, heard[0] if heard else None, stale)
    assert foreign.blocks > 5000
    above, retained = foreign.owners()
    differing = [node for node in range(foreign.nodes) if above[node] != tree.owners[node]]
    assert [(node, above[node], tree.owners[node]) for node in differing[:20]] == [], len(differing)
    assert [node for node in range(foreign.nodes) if retained[node] != tree.retained_bytes[node]] == []
    assert sum(owner != NO_NODE for owner in tree.owners) > foreign.blocks // 2
