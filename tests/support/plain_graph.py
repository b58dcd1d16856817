"""The graph of a small world by its definitions: every word looked up among all blocks, owners by leaving nodes out. Slow, and plain."""

from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.kernel.blocks import graph
from gdbheapx.kernel.blocks.packed import STREAMS, Move, pack_numbers
from gdbheapx.kernel.blocks.stream import CLASS_USED
from tests.support.plain_hold import PlainHold
from tests.support.worlds import GraphMemory


class PlainEdge(NamedTuple):
    """One pointer; `inside`: its offset in the block, where the rule is of those that lead inside."""

    node: int
    rule: int
    slot: int
    inside: int


class PlainGraph:
    """Nodes and edges of a world whose blocks say nothing of pointers to their inside, and of which no offset is a habit."""

    def __init__(self, world: GraphMemory, more: Sequence[int] = ()) -> None:
        self.word, self._order, self.has_slots = world.shape.word_bytes, world.order, world.shape.all_slots
        self._unit, pieces = world.shape.unit_bytes, dict(world.source.pieces)
        self.blocks = sorted((address, size & ~3) for address, size, class_, *_ in world.rows if class_ == CLASS_USED)
        self.mappings = list(world.shape.mappings)
        self.first = len(self.blocks) + len(self.mappings)
        spans = [(start, start + size) for start, size in self.blocks] + [*self.mappings, *world.roots]
        memory = [(start, self._words(pieces[start][: end - start])) for start, end in spans]
        self.edges = [self._edges(node, start, list(enumerate(words))) for node, (start, words) in enumerate(memory)]
        registers = [*enumerate(more), *((graph.EXACT_SLOT + place, one + 9) for place, one in enumerate(more))]
        self.edges.append(self._edges(len(spans), 0, registers))

    def _words(self, data: bytes) -> List[int]:
        return [int.from_bytes(data[at : at + self.word], self._order) for at in range(0, len(data) - self.word + 1, self.word)]  # type: ignore[arg-type]

    def find(self, address: int) -> Optional[Tuple[int, int]]:
        """(node, offset) of the block or mapping there."""
        spans = [(start, start + size) for start, size in self.blocks] + self.mappings
        return next(((node, address - start) for node, (start, end) in enumerate(spans) if start <= address < end), None)

    def _edges(self, node: int, start: int, words: Sequence[Tuple[int, int]]) -> List[PlainEdge]:
        places = [(slot, place) for slot, place in ((slot, self.find(value)) for slot, value in words) if place and place[0] != node]
        plain = [place[0] >= len(self.blocks) or (slot >= graph.EXACT_SLOT and node >= self.first) for slot, place in places]
        ends = self._ends([None if is_plain else place for is_plain, (_, place) in zip(plain, places)])
        edges = []
        for at, (slot, (target, inside)) in enumerate(places):
            if plain[at]:
                inside, rule = 0, graph.RULE_START
            elif inside:
                rule = graph.RULE_TAG if inside < self.word else graph.RULE_INSIDE
            else:
                rule = graph.RULE_END if at in ends else graph.RULE_START
            has_slot = self.has_slots or node >= len(self.blocks)
            edges.append(PlainEdge(target, rule, slot if has_slot else graph.NO_SLOT, inside if rule == graph.RULE_INSIDE else 0))
        return edges

    def _ends(self, places: Sequence[Optional[Tuple[int, int]]]) -> Set[int]:
        """Which of these (node, offset) lead to the end of an array: those that follow its begin and pointers into it, or its begin, twice. Each
        pointer is of one array."""
        found: Set[int] = set()
        first = 0
        while first < len(places):
            begin, behind = places[first], first + 1
            if begin and not begin[1]:
                while behind < len(places) and (places[behind] or (graph.NO_NODE,))[0] == begin[0]:
                    behind += 1
                end, is_twice = (begin[0] + 1, 0), (places[behind - 1] or begin) == begin and behind > first + 1
                wanted = [end] if behind > first + 1 else [end, end]
                is_beside = end[0] < len(self.blocks) and sum(self.blocks[begin[0]]) == self.blocks[end[0]][0]
                if is_beside and list(places[behind : behind + len(wanted)]) == wanted:
                    found.update(() if is_twice else range(behind, behind + len(wanted)))
                    behind += len(wanted)
            first = behind
        return found

    def split(self, places: Sequence[Tuple[int, int]]) -> None:
        """Cuts nodes at slots."""
        made = []
        for node, edges in enumerate(self.edges):
            bounds = [0, *(slot for at, slot in places if at == node), graph.NO_SLOT + 1]
            made += [[edge for edge in edges if low <= edge.slot < high] for low, high in zip(bounds, bounds[1:])]
        self.edges = made

    def reachable(self, starts: Sequence[int], targets: Sequence[Sequence[int]], without: int = -1) -> Set[int]:
        """What these lead to, if one node is left out."""
        seen: Set[int] = set()
        stack = [node for node in starts if node != without]
        while stack:
            node = stack.pop()
            if node not in seen:
                seen.add(node)
                stack += [target for target in targets[node] if target != without]
        return seen

    def is_owned(self, node: int, edge: PlainEdge, told: Optional[graph.Owning]) -> Optional[bool]:
        """Whether the word that it stands in owns it; None where nobody says."""
        if told is None:
            return None
        if node in told.nothing:
            return False
        if node >= len(self.blocks):
            return None
        mask = told.masks[told.labels[node]]
        is_owned = None if mask == graph.OWNS_ALL else bool(mask >> min(edge.slot, graph.LAST_OWNING_BIT) & 1)
        begin = told.begins[told.labels[edge.node]] if edge.node < len(self.blocks) else 0
        return True if is_owned is None and edge.rule == graph.RULE_INSIDE and edge.inside == begin else is_owned

    def named(self, told: graph.Owning) -> List[Set[int]]:
        """What is reached from starts, then from roots by pointers that hold, then by any: by words that own."""
        kept = [[(edge, self.is_owned(node, edge, told)) for edge in edges] for node, edges in enumerate(self.edges)]
        habit = graph.RULE_HABIT
        strong = [[edge.node for edge, is_owned in some if is_owned or (is_owned is None and edge.rule <= habit)] for some in kept]
        every = [[edge.node for edge, is_owned in some if is_owned is not False] for some in kept]
        started = self.reachable(told.starts, every)
        roots = [*started, *range(self.first, len(self.edges))]
        return [started, self.reachable(roots, strong), self.reachable(roots, every)]

    def owners(self, weak: Tuple[int, int], told: Optional[graph.Owning] = None, locals_from: Optional[int] = None) -> List[int]:
        """By node the nearest one without which nothing leads there. Weak pointers count for what no other reaches."""
        starts = list(told.starts) if told is not None else []
        roots = [*starts, *range(self.first, len(self.edges))]
        hold = PlainHold(self, weak, told, weak[0] if locals_from is None else locals_from)
        targets = hold.targets(starts)
        reached = self.reachable(roots, targets)
        above: Dict[int, Set[int]] = {node: set() for node in reached}
        for one in reached:
            for node in reached - self.reachable(roots, targets, one) - {one}:
                above[node].add(one)
        nearest = {node: [one for one in owners if len(above[one]) == len(owners) - 1] for node, owners in above.items()}
        return [(nearest.get(node) or [graph.NO_NODE])[0] for node in range(len(self.edges))]

    def streams(self, moves: Sequence[Move], slots: bool) -> Dict[int, bytes]:
        """As a file has it: packed.c says what each stream is."""
        moved = [0, *(next(address - start + to for start, end, to in moves if start <= address < end) for address, _ in self.blocks)]
        every = [(node, edge) for node, edges in enumerate(self.edges) for edge in edges]
        steps = [
            (edge.node - (before.node if at else node), edge.slot - (before.slot if at else 0), node)
            for at, before, edge, node in self._pairs()
        ]
        found = [
            pack_numbers([(after - before) // self._unit for before, after in zip(moved, moved[1:])]),
            pack_numbers([size // 4 for _, size in self.blocks]),
            pack_numbers([len(edges) for edges in self.edges]),
            pack_numbers([away << 1 if away >= 0 else (-away << 1) - 1 for away, _, _ in steps]),
            bytes(edge.rule for _, edge in every),
            pack_numbers([edge.inside for _, edge in every if edge.rule in (graph.RULE_BASE, graph.RULE_HABIT, graph.RULE_INSIDE)]),
            pack_numbers([step for _, step, node in steps if slots or node >= len(self.blocks)]),
        ]
        assert len(found) == len(STREAMS)
        return {number: data for number, data in enumerate(found) if data}

    def _pairs(self) -> Iterator[Tuple[int, PlainEdge, PlainEdge, int]]:
        """(place, edge before, edge, node) of every edge."""
        for node, edges in enumerate(self.edges):
            for at, edge in enumerate(edges):
                yield at, edges[at - 1], edge, node
