"""Pointers of an object without symbols that stand side by side: those of one variable, such as first and last of a list."""

from array import array
from typing import List, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.reachability.heap_graph import Reach, find_containers
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
        self._containers: Optional[array[int]] = None

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
            here, near = self._around(edge.node)
            if not (own & near or all_ & here):
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

    def _around(self, node: int) -> Tuple[Set[int], Set[int]]:
        """The node and its container; and those of what it points to, too."""
        here = self._with_container(node)
        near = [self._with_container(edge.node) for edge in self._graph.edges(node, MOST_LOOKED_AT)]
        return here, here.union(*near)

    def _with_container(self, node: int) -> Set[int]:
        """Containers have numbers behind those of all nodes."""
        if self._containers is None:
            self._containers = find_containers(self._reach).of()
        number = self._containers[node] if node < len(self._containers) else 0
        return {node, self._graph.nodes + number} if number else {node}
