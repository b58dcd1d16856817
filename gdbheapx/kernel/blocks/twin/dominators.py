"""Dominators in Python: what dominators.c does."""

from array import array
from typing import Dict, List, Sequence, Set, Tuple

from gdbheapx.kernel.blocks.graph import NO_NODE, RULE_HABIT, RULE_TAG, Tree
from gdbheapx.kernel.blocks.twin.edge import TwinEdge

Targets = List[List[int]]


def list_links(edges: Sequence[Sequence[TwinEdge]], blocks: int, word: int) -> None:
    """Notes which edges of blocks are links of doubly linked lists: see links.h."""
    at = [{edge.slot: edge for edge in reversed(some)} for some in edges[:blocks]]

    def leads_back(node: int, edge: TwinEdge) -> bool:
        if edge.node >= blocks or edge.rule == RULE_TAG:
            return False
        place, there = edge.inside // word, at[edge.node]
        for slot, offset in ((place + 1, edge.slot), (place, edge.slot - 1)):
            back = there.get(slot)
            if offset >= 0 and back is not None and back.node == node and back.inside // word == offset:
                return True
        return False

    for node, some in enumerate(edges[:blocks]):
        for edge in some:
            edge.is_link = leads_back(node, edge)


def filtered(
    edges: Sequence[Sequence[TwinEdge]], blocks: int, roots_from: int, weak: Tuple[int, int], links: bool, word: int, habits: Set[int]
) -> Targets:
    """By node the targets of those edges that count: see find_weak in dominators.c. `links`: those of lists are weak."""

    def is_weak(node: int, edge: TwinEdge) -> bool:
        if edge.rule > RULE_HABIT or weak[0] <= node < weak[1]:
            return True
        if edge.rule == RULE_HABIT and edge.inside // word not in {offset // word for offset in habits}:
            return True
        return links and node < blocks and edge.is_link

    weakness = [[is_weak(node, edge) for edge in some] for node, some in enumerate(edges)]
    stack = [node for node in range(roots_from, len(edges)) if not weak[0] <= node < weak[1]]
    strong: Set[int] = set(stack)
    while stack:
        node = stack.pop()
        for edge, one in zip(edges[node], weakness[node]):
            if not one and edge.node not in strong:
                strong.add(edge.node)
                stack.append(edge.node)
    return [[edge.node for edge, one in zip(some, weakness[node]) if not (one and edge.node in strong)] for node, some in enumerate(edges)]


def find(targets: Targets, roots_from: int) -> List[int]:
    """By node its immediate dominator: a node, NO_NODE where only the root above all roots is one, -1 where nothing leads there."""
    order, parent, before = _search(targets, roots_from)
    semi, label, ancestor = list(range(len(order))), list(range(len(order))), list(parent)
    for one in range(len(order) - 1, 0, -1):
        semi[one] = min([parent[one], *(semi[_least(semi, label, ancestor, other, one + 1)] for other in before[one])])
    above = list(parent)
    for one in range(1, len(order)):
        while above[one] > semi[one]:
            above[one] = above[above[one]]
    found = [-1] * len(targets)
    for one, node in enumerate(order):
        if one:
            found[node] = order[above[one]] if above[one] else NO_NODE
    return found


def _search(targets: Targets, roots_from: int) -> Tuple[List[int], List[int], List[List[int]]]:
    """Nodes in the order of a search from a root above all roots, the number of the one before each, and numbers of all that lead there."""
    order, parent, number = [-1], [0], {}
    for root in range(roots_from, len(targets)):
        number[root] = len(order)
        order.append(root)
        parent.append(0)
        stack = [(root, iter(targets[root]))]
        while stack:
            node, rest = stack[-1]
            target = next((one for one in rest if one not in number), None)
            if target is None:
                stack.pop()
                continue
            number[target] = len(order)
            order.append(target)
            parent.append(number[node])
            stack.append((target, iter(targets[target])))
    before: List[List[int]] = [[] for _ in order]
    for one, node in enumerate(order):
        for target in targets[node] if one else ():
            before[number[target]].append(one)
    return order, parent, before


def _least(semi: List[int], label: List[int], ancestor: List[int], one: int, linked: int) -> int:
    """As least() in dominators.c."""
    if one < linked:
        return one
    way, at = [], one
    while ancestor[at] >= linked:
        way.append(at)
        at = ancestor[at]
    for at in reversed(way):
        up = ancestor[at]
        if semi[label[up]] < semi[label[at]]:
            label[at] = label[up]
        ancestor[at] = ancestor[up]
    return label[one]


def added_up(owners: Sequence[int], sizes: Sequence[int]) -> Tree:
    """What each node retains."""
    count = len(owners)
    depth: Dict[int, int] = {}
    for node in range(count):
        way = []
        while node not in depth and owners[node] not in (NO_NODE, -1):
            way.append(node)
            node = owners[node]
        base = depth.setdefault(node, 0)
        for step, one in enumerate(reversed(way), 1):
            depth[one] = base + step
    retained, blocks = array("Q", bytes(8 * count)), array("I", bytes(4 * count))
    for node in sorted(range(count), key=lambda one: -depth[one]):
        if owners[node] == -1:
            continue
        if node < len(sizes):
            retained[node] += sizes[node]
            blocks[node] += 1
        if owners[node] != NO_NODE:
            retained[owners[node]] += retained[node]
            blocks[owners[node]] += blocks[node]
    return Tree(array("I", [NO_NODE if one == -1 else one for one in owners]), retained, blocks)
