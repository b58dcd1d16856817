"""Containers that nothing holds any more: which leaks begin with one, or with what holds it."""

from array import array
from typing import Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.analysis.reachability.owners import Linked
from gdbheapx.kernel.blocks.graph import Containers, LeakRoot

LARGE_SHARE = 0.05
"""Of all that is leaked: a container with so much is a row of its own; smaller ones of one sort are one together."""
MOST_ROOTS = 20_000
"""Leak roots that are looked at, those with most bytes."""
MOST_BELOW, MOST_POINTERS = 64, 64
"""Blocks between a root and a container, and pointers of each that are followed."""


class Lost(NamedTuple):
    """One container, or several of one sort."""

    label: int
    """What its first element is."""
    linked: Linked
    """All of them together."""
    is_held: bool
    """The root is no element: it leads to the container."""


def find_containers(reach: Reach) -> Optional[Containers]:
    """Of the graph as it is; None where slots of blocks were not kept."""
    if not reach.graph.shape.all_slots:
        return None
    found = heap_graph.find_containers(reach)
    return found if len(found) else None


def find(reach: Reach, containers: Containers, known: "Optional[array[int]]", names: int) -> Tuple["array[int]", Dict[int, Lost]]:
    """A label for each leak root, and what those from `names` on are. `known`: labels by what stands in the blocks."""
    graph = reach.graph
    labels = array("I", known if known is not None else bytes(4 * len(graph.leak_root_ids())))
    of = containers.of()
    found: Dict[int, Lost] = {}
    together: Dict[Tuple[int, str, int], int] = {}
    roots = graph.leak_roots(MOST_ROOTS)
    least = LARGE_SHARE * sum(root.bytes for root in roots)
    for root in roots:
        is_large, number = root.bytes >= least, of[root.id]
        is_held = not number or containers.elements(number - 1, 0, 1) != [root.id]
        if is_held and is_large:
            number = _below(reach, containers, of, root)
        one = containers[number - 1] if number and (is_large or not is_held) else None
        if one is None or one.elements > root.blocks:
            continue
        label = labels[root.place]
        key = (label, one.shape, one.element_bytes)
        new = names + len(found) if is_large else together.setdefault(key, names + len(found))
        before = found.get(new)
        linked = Linked(one.shape, one.elements, one.element_bytes or None, one.own_bytes)
        if before is not None:
            sums = before.linked.elements + linked.elements, before.linked.own_bytes + linked.own_bytes
            linked = linked._replace(elements=sums[0], own_bytes=sums[1])
        found[new] = Lost(label, linked, is_held)
        labels[root.place] = new
    return labels, found


def _below(reach: Reach, containers: Containers, of: "array[int]", root: LeakRoot) -> int:
    """The number + 1 of the largest container to which the root leads in a few steps; 0: of none."""
    met: List[int] = [root.id]
    best, most = 0, 0
    for node in met:
        for edge in reach.graph.edges(node, MOST_POINTERS):
            number = of[edge.node] if edge.node < len(of) else 0
            if number and number != best:
                elements = containers[number - 1].elements
                if most < elements <= root.blocks:
                    best, most = number, elements
            elif not number and len(met) < MOST_BELOW and edge.node < len(of) and edge.node not in met:
                met.append(edge.node)
    return best
