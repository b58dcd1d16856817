"""Which pointers of a small world count for who owns a node, by their definitions: slow, and plain."""

from collections import Counter
from typing import TYPE_CHECKING, Dict, Iterator, List, Optional, Sequence, Set, Tuple

from gdbheapx.kernel.blocks.graph import RULE_BASE, RULE_HABIT, Owning

if TYPE_CHECKING:
    from tests.support.plain_graph import PlainEdge, PlainGraph

FIRM, BY_RULE, WEAK, USE, LOOSE = range(5)
MANY, SAMPLES, SLAB_PLACES, MOST_BELOW, MOST_WAYS = 16, 24, 5, 32, 256
Place = Tuple[int, int]
"""(node, number of its edge)."""
Field = Tuple[bool, int, int, int]
"""(it leads to blocks of the same size, size, word, offset in the target)."""


class PlainHold:
    """Strengths of all pointers, and what counts."""

    def __init__(self, plain: "PlainGraph", weak: Tuple[int, int], told: Optional[Owning], locals_from: int) -> None:
        self._plain, self._weak, self._told, self._locals_from = plain, weak, told, locals_from
        self._count = len(plain.blocks)
        self.strengths: List[List[int]] = [[self._of_one(node, edge) for edge in edges] for node, edges in enumerate(plain.edges)]
        self._every = [((node, at), edge) for node, edges in enumerate(plain.edges) for at, edge in enumerate(edges)]
        self._blocks = [(place, edge) for place, edge in self._every if edge.node < self._count]
        begun = [list(some) for some in self.strengths]
        found = dict.fromkeys([*self._parts(), *self._many()], WEAK)
        for (node, at), one in [*found.items(), *self._rising().items()]:
            begun[node][at] = max(begun[node][at], one)
        self.strengths = begun

    def _of_one(self, node: int, edge: "PlainEdge") -> int:
        is_owned = self._plain.is_owned(node, edge, self._told)
        if is_owned is not None:
            return FIRM if is_owned else LOOSE
        return BY_RULE if edge.rule >= RULE_HABIT else FIRM

    def _is_sure(self, place: Place, edge: "PlainEdge") -> bool:
        return self._plain.is_owned(place[0], edge, self._told) is True

    def _is_less(self, place: Place) -> bool:
        return self.strengths[place[0]][place[1]] > WEAK

    def _inside(self, edge: "PlainEdge") -> int:
        return edge.inside // self._plain.word

    def _field(self, place: Place, edge: "PlainEdge") -> Optional[Field]:
        size = self._plain.blocks[place[0]][1]
        is_alike = edge.node < self._count and self._plain.blocks[edge.node][1] == size
        has_one = size <= 65536 and edge.slot < 512 and not self._is_sure(place, edge) and not self._is_less(place)
        return (is_alike, size, edge.slot, self._inside(edge)) if has_one else None

    def _by_variable(self) -> Set[int]:
        first, end = self._plain.first, self._locals_from
        return {edge.node for place, edge in self._blocks if first <= place[0] < end and self.strengths[place[0]][place[1]] == FIRM}

    def _parts(self) -> Set[Place]:
        firm = [(place, edge) for place, edge in self._blocks if self.strengths[place[0]][place[1]] == FIRM]
        begins = {edge.node for place, edge in firm if not self._inside(edge) and not self._weak[0] <= place[0] < self._weak[1]}
        places: Dict[int, Set[int]] = {}
        for place, edge in self._blocks:
            if self._inside(edge) and not self._is_less(place):
                places.setdefault(edge.node, set()).add(self._inside(edge) * 0x9E37 >> 8 & 7)
        slabs = {node for node, some in places.items() if len(some) >= SLAB_PLACES}
        found: Set[Place] = set()
        for node in range(len(self._plain.edges)):
            mine = [(place, edge) for place, edge in self._blocks if place[0] == node and not self._is_sure(place, edge)]
            found.update(place for place, edge in mine if self._inside(edge) and edge.rule != RULE_BASE and edge.node in begins)
            to_slabs = [(place, edge) for place, edge in mine if edge.node in slabs]
            starts = [place for place, edge in to_slabs if not self._inside(edge)]
            found.update(starts if len(to_slabs) > 2 * len(starts) else [])
        return found

    def _many(self) -> Set[Place]:
        variables, times = self._by_variable(), Counter(
            edge.node for place, edge in self._blocks if place[0] < self._count and not self._is_less(place)
        )
        fields = [(place, edge.node, self._field(place, edge)) for place, edge in self._blocks if place[0] < self._count]
        counts = Counter((node, field) for _, node, field in fields)
        return {
            place
            for place, node, field in fields
            if field and (counts[node, field] >= MANY or (node in variables and (times[node] >= MANY or counts[node, field] >= 2)))
        }

    def _rising(self) -> Dict[Place, int]:
        """Pointers that lead up, and those to children from elsewhere than their parent."""
        ups = set(self._ups())
        above = {place[0]: edge.node for place, edge in self._blocks if place in ups}
        targets = [{edge.node for edge in edges} for edges in self._plain.edges]
        found = {}
        for place, edge in self._blocks:
            node, parent = place[0], above.get(edge.node)
            is_led_to = parent is not None and node in targets[parent]
            is_part = node < self._count and (is_led_to or parent in (node, above.get(node)))
            if parent is not None and not is_part and not self._is_sure(place, edge):
                found[place] = USE
            elif place in ups:
                found[place] = WEAK
        return found

    def _ups(self) -> Iterator[Place]:
        """Pointers from children to their parent: a word of blocks of one kind, of which a parent has several."""
        fields = self._fields()
        rising = self._samples(fields)
        every = [(field, edge) for field in rising for _, edge in fields[field]]
        crowds, children = Counter((field[2:], edge.node) for field, edge in every), Counter(edge.node for _, edge in every)
        for field, sample in rising.items():
            if any(crowds[field[2:], edge.node] > 1 for _, edge in sample):
                yield from (place for place, edge in fields[field] if children[edge.node] > 1)

    def _fields(self) -> Dict[Field, List[Tuple[Place, "PlainEdge"]]]:
        fields: Dict[Field, List[Tuple[Place, PlainEdge]]] = {}
        for place, edge in self._blocks if self._plain.has_slots else ():
            field = self._field(place, edge) if place[0] < self._count else None
            if field:
                fields.setdefault(field, []).append((place, edge))
        return fields

    def _samples(self, fields: Dict[Field, List[Tuple[Place, "PlainEdge"]]]) -> Dict[Field, List[Tuple[Place, "PlainEdge"]]]:
        """Of fields most of whose edges lead up some edges, evenly."""
        found = {}
        for field, edges in fields.items():
            step = 1
            while (len(edges) - 1) // step >= SAMPLES:
                step *= 2
            sample = edges[::step]
            if len(edges) >= 4 and 2 * sum(self._is_below(field, edge.node, place[0]) for place, edge in sample) >= len(sample):
                found[field] = sample
        return found

    def _is_below(self, field: Field, block: int, node: int) -> bool:
        waiting, ways = [block], 0
        for at in waiting:
            for number, edge in enumerate(self._plain.edges[at]):
                if ways >= MOST_WAYS:
                    return False
                ways += 1
                if edge.node >= self._count or self._field((at, number), edge) == field:
                    continue
                if edge.node == node:
                    return True
                if edge.node not in waiting and len(waiting) < MOST_BELOW:
                    waiting.append(edge.node)
        return False

    def targets(self, starts: Sequence[int]) -> List[List[int]]:
        """By node what its pointers that count lead to."""
        edges, strengths = self._plain.edges, self.strengths
        levels: Dict[int, Tuple[int, int]] = {}
        roots = range(self._plain.first, len(edges))
        kinds = [2 if self._weak[0] <= root < self._weak[1] else int(self._locals_from <= root < self._weak[0]) for root in roots]
        turns = [(level, most) for level in range(3) for most in (FIRM, BY_RULE, WEAK, USE)]
        for number, (level, most) in enumerate([*turns, (3, LOOSE)]):
            own = [*(starts if not level else ()), *(root for root, kind in zip(roots, kinds) if kind == level)]
            ways = [[edge.node for edge, one in zip(edges[node], strengths[node]) if one <= most] for node in range(len(edges))]
            for node in self._plain.reachable([*levels, *own], ways) - set(levels):
                levels[node] = (number, most)
        return [
            [
                edge.node
                for edge, one in zip(edges[node], strengths[node])
                if node in levels and levels[node][0] <= levels[edge.node][0] and one <= levels[edge.node][1]
            ]
            for node in range(len(edges))
        ]
