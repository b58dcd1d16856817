"""Pointers of an object without symbols that stand side by side: those of one variable, such as first and last of a list."""

from array import array
from typing import List, Optional, Sequence, Set

from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.kernel.blocks.graph import Edge

LEAST_ARRAY = 16
"""So many pointers in a row to blocks of one size are one variable: a table."""
MOST_APART = 256
"""More pointers side by side than these, without such tables, are one variable, whatever they lead to."""
MOST_LOOKED_AT = 64
"""Pointers of a block that a variable may begin with."""


class Kin:
    """What pointers of the roots lead to, while these are not split."""

    def __init__(self, reach: Reach) -> None:
        self._reach, self._graph = reach, reach.graph
        self._groups: Optional[array[int]] = None

    def starts(self, edges: Sequence[Edge]) -> List[int]:
        """Slots of the first pointer of each variable, of pointers that stand side by side."""
        in_array = self._in_array(edges)
        if len(edges) < 2 or in_array.count(False) > MOST_APART or not self._graph.shape.all_slots:
            return [edge.slot for edge in edges[:1]]
        slots: List[int] = []
        own: Set[int] = set()
        all_: Set[int] = set()
        for place, edge in enumerate(edges):
            if in_array[place]:
                continue
            here, near = {edge.node}, {edge.node, *(other.node for other in self._graph.edges(edge.node, MOST_LOOKED_AT))}
            if not (self._meet(own, near) or self._meet(all_, here)):
                slots.append(edge.slot)
                own, all_ = set(), set()
            own |= here
            all_ |= near
        return slots

    def _in_array(self, edges: Sequence[Edge]) -> List[bool]:
        """By place: whether it goes on with a table."""
        blocks = self._reach.numbers.blocks
        sizes = [self._graph.blocks([edge.node])[0][1] if edge.node < blocks else 0 for edge in edges]
        found, first = [False] * len(sizes), 0
        for place in range(1, len(sizes) + 1):
            if place < len(sizes) and sizes[place] == sizes[first]:
                continue
            if place - first >= LEAST_ARRAY:
                found[first + 1 : place] = [True] * (place - first - 1)
            first = place
        return found

    def _meet(self, some: Set[int], others: Set[int]) -> bool:
        """The same node is in both, or blocks that are linked with each other are. What no block is never is one: links are looked for only
        if blocks stand side by side."""
        blocks = self._reach.numbers.blocks
        if not some or some & others or min(some) >= blocks or min(others) >= blocks:
            return bool(some & others)
        if self._groups is None:
            self._groups = self._graph.linked().of()
        of = self._groups
        one, other = ({of[node] for node in nodes if node < len(of)} - {0} for nodes in (some, others))
        return bool(one & other)
