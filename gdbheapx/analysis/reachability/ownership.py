"""Finds who keeps the used memory alive: all owners with the suspects among them, or one."""

import heapq
import re
from typing import Dict, List, Optional, Set, Tuple

from gdbheapx.analysis.reachability.dominance import LEAST_SHARED, MOST_KEEPING, MOST_OWNERS, SUSPECT_SHARE, Tallied
from gdbheapx.analysis.reachability.owners import MAPPING, SHARED, Owned, Owners, Suspect
from gdbheapx.kernel.blocks.graph import NO_NODE, RULE_HABIT

MOST_SUSPECTS = 5
"""There can be no more of a fifth each."""
MOST_VOTES, MOST_VOTED = 1000, 3
"""Blocks that several owners hold, by which those variables are chosen of which it is counted how much they lead to."""
MOST_JOINT, MOST_TOGETHER, LEAST_TOGETHER = 24, 5, 0.05
"""Blocks with most pointers of which it is counted how much they lead to; how many of them are told, and from which part of the heap on."""
MOST_NAMED = 1 << 14
"""Of what owners own that is asked for its name, while one is looked for."""
MOST_HEAD = 50
"""Letters of a name that what lies below begins with: a long one lacks its middle."""
ELEMENT = re.compile(r".+\[(0x[0-9a-f]{3,16})\]")
"""What a block is called that is an element of a table or tree."""
BLOCK_NAME, BELOW = re.compile(r"block (0x[0-9a-f]+)\b(?!.*( -> |\[))"), re.compile(r"(.+)(?:\[(\d+)\]| -> \+0x[0-9a-f]+)")
"""Of a block without a name; of what lies below something: an element of a list, a container that a block holds."""
MOST_REACHED = 20
"""Owners for which the upper bound is counted: each takes a pass over the graph."""


def find(tallied: Tallied, depth: int, limit: int) -> Owners:
    """All owners, and the suspects among them."""
    reach = tallied.reach
    rows: List[Owned] = []
    suspects: List[Tuple[int, Suspect]] = []
    tops = tallied.tops(max(limit, MOST_KEEPING))
    for number, (node, kind) in enumerate(tops[: max(limit, MOST_SUSPECTS)]):
        if kind == SHARED and tallied.tree.retained_bytes[node] < LEAST_SHARED * tallied.used.bytes:
            continue
        is_large = tallied.tree.retained_bytes[node] >= LEAST_SHARED * tallied.used.bytes
        row = tallied.owned(node, kind, reached=number < MOST_REACHED and (is_large or not tallied.has_starts))
        if len(rows) < limit:
            rows.append(row._replace(children=tallied.children(node, depth - 1, limit) if depth > 1 else ()))
        if row.retained_bytes >= SUSPECT_SHARE * tallied.used.bytes and row.retained_bytes:
            suspects.append((node, tallied.suspect(node, kind)))
    roots = range(reach.roots_from, reach.roots_from + len(tallied.parts))
    kept = sum(tallied.tree.retained_bytes[node] for node in roots) + tallied.started_bytes(tops)
    shared = tallied.used.bytes - tallied.leaked.bytes - kept
    is_wanted = 0 < SUSPECT_SHARE * tallied.used.bytes <= shared
    others = tallied.graph.others(tallied.tree, [node for node, _ in suspects], tallied.weak) if suspects else []
    told = [suspect._replace(others=against) for (_, suspect), against in zip(suspects, others)]
    names = {name for suspect in told for name in (suspect.owner, *suspect.holders)}
    together = [row for row in (_together(tallied) if is_wanted else []) if row.owner not in names][:MOST_TOGETHER]
    return Owners(told, rows, tallied.used, tallied.leaked, shared, together=together)


def _together(tallied: Tallied) -> List[Owned]:
    return (_joint if tallied.has_starts else _from_heaps)(tallied) or _voted(tallied)


def _from_heaps(tallied: Tallied) -> List[Owned]:
    """Heaps of runtimes whose objects have no names here, and what their words lead to at once: the program's objects are what holds it,
    and other ways, such as lists of all buffers, pass through the runtime."""
    reach, owners, roots_from = tallied.reach, tallied.tree.owners, tallied.reach.roots_from
    tops: Dict[str, Set[int]] = {}
    for place, heap in enumerate(reach.regions.nodes):
        above: Dict[int, None] = {}  # of millions of words: few lead to others
        for edge in tallied.graph.edges(reach.numbers.blocks + place) if heap.whose is not None else ():
            at = edge.node
            while edge.rule <= RULE_HABIT and owners[at] != NO_NODE:
                at = owners[at]
            if edge.rule <= RULE_HABIT and at < roots_from:
                above[at] = None
        for at in above:
            tops.setdefault(heap.whose or "" if reach.mapping(at) is None else tallied.name(at), set()).add(at)
    found = []
    for whose, nodes in tops.items():
        sizes = [sum(column[node] for node in nodes) for column in (tallied.tree.retained_bytes, tallied.tree.retained_blocks)]
        if sizes[0] >= SUSPECT_SHARE * tallied.used.bytes:
            found.append(Owned(whose, MAPPING, None, 0, 0.0, 0, sizes[0], sizes[1]))
    return sorted(found, key=lambda row: -(row.reached_bytes or 0))


def _joint(tallied: Tallied) -> List[Owned]:
    """Blocks with many pointers, by the paths of the objects that they belong to, and what they lead to without each other. What their
    owners keep is not held by others."""
    found: Dict[str, Owned] = {}
    owners = {node for node, _ in tallied.tops(MOST_KEEPING)}
    for joint in tallied.graph.joint(tallied.tree, tallied.strong, MOST_JOINT):
        at = joint.node
        while at not in owners and tallied.tree.owners[at] != NO_NODE:
            at = tallied.tree.owners[at]
        if joint.bytes - tallied.tree.retained_bytes[at] * (at in owners) < LEAST_TOGETHER * tallied.used.bytes:
            continue
        row = tallied.owned(joint.node)._replace(reached_bytes=joint.bytes, reached_blocks=joint.blocks)
        found.setdefault(row.owner, row._replace(signature=row.signature or tallied.contents_of(row.path_steps)))
    return list(found.values())


def _voted(tallied: Tallied) -> List[Owned]:
    """Variables: those from which the shortest ways lead to most of what several hold. Where runtimes give names, what has one by itself is
    such a variable, but a module."""
    roots_from, votes = tallied.reach.roots_from, {}  # type: int, Dict[int, int]
    parents = (tallied.graph.named_parents if tallied.has_starts else tallied.graph.parents)(roots_from)
    for node in tallied.graph.children(tallied.tree, NO_NODE, MOST_VOTES, roots_from)[0]:
        at, passed = node, []
        while at < roots_from and parents[at] != NO_NODE:
            passed.append(at)
            at = parents[at]
        for one in passed:  # the next node of a long list does not go all the way again
            parents[one] = at
        votes[at] = votes.get(at, 0) + tallied.tree.retained_bytes[node]
    variables = (node for node in votes if node >= roots_from or tallied.is_variable(node))
    chosen = sorted(variables, key=lambda node: -votes[node])[:MOST_VOTED]
    found = (tallied.owned(node, reached=True) for node in chosen)
    return [row for row in found if (row.reached_bytes or 0) >= SUSPECT_SHARE * tallied.used.bytes]


def of(tallied: Tallied, what: str, address: Optional[int], depth: int, limit: int) -> Optional[Owned]:
    """One owner with what it owns: the block or variable that has the address, or what any answer calls so; None where there is none."""
    node = _at(tallied, address) if address is not None else find_named(tallied, what)
    if node is None:  # a runtime's heap is told by name alone
        rows = find(tallied, 1, limit).together if address is None else ()
        return next((row for row in rows if row.owner == what), None)
    return tallied.owned(node, reached=True)._replace(children=tallied.children(node, max(1, depth), limit))


def _at(tallied: Tallied, address: int) -> Optional[int]:
    place = tallied.graph.find(address)
    roots = range(tallied.reach.roots_from, tallied.reach.roots_from + len(tallied.parts))
    return place[0] if place is not None else next((node for node in roots if tallied.address(node) == address), None)


def find_named(tallied: Tallied, what: str) -> Optional[int]:
    """Return the node that answers call `what`, with its ` in MODULE` or without; None where nothing near the top is called so."""
    element, below = ELEMENT.fullmatch(what), BELOW.fullmatch(what)
    found = _search(tallied, what) if element is None else _at(tallied, int(element.group(1), 16))
    above = find_named(tallied, below.group(1)) if found is None and below is not None and tallied.tree.containers else None
    if above is None or below is None:
        return found
    if below.group(2) is not None:
        return tallied.contained.at(above, int(below.group(2)))
    held = tallied.graph.children(tallied.tree, above, MOST_OWNERS)[0]
    named = tallied.name, tallied.contained.way
    return next((node for node in held if named[not tallied.is_container(node)](node) == what), None)


def _search(tallied: Tallied, what: str) -> Optional[int]:
    """From the largest owners down: what is printed is large, or lies below what its name begins with."""
    block = BLOCK_NAME.match(what)
    modules = [part.root.module for part in tallied.parts if part.root.module is not None and part.root.module.link is not None]
    if modules and what.endswith(" in " + modules[0].file_name):  # the program's file, not the link by which it was started
        what = what[: -len(modules[0].file_name)] + modules[0].shown_name
    if block is not None:
        return _at(tallied, int(block.group(1), 16))
    retained, short = tallied.tree.retained_bytes, what.split(" in ")[0].replace(".<key ", "[")  # which lies below `["key"]`
    roots = range(tallied.reach.roots_from, tallied.reach.roots_from + len(tallied.parts))
    tops = [node for node, _ in tallied.tops(MOST_OWNERS)]
    waiting: List[Tuple[int, int, int]] = [(0, -retained[node], node) for node in (*roots, *tops)]
    heapq.heapify(waiting)
    for _ in range(len(waiting) + MOST_NAMED):
        if not waiting:
            break
        away, _, node = heapq.heappop(waiting)
        name = tallied.name(node)
        if what in (name, name.split(" in ")[0]):
            return node
        if BLOCK_NAME.match(name) is None:  # a block without a name is a part of what it lies below
            away = int(not short.startswith(name.split(" in ")[0].strip("*]")[:MOST_HEAD]))
        below = tallied.graph.children(tallied.tree, node, MOST_OWNERS)[0] if retained[node] else ()
        for child in below:
            heapq.heappush(waiting, (away, -retained[child], child))
    return None
