"""Find the pointers to a block, back to the roots. Also finds the holders of a few blocks that another answer names."""

from typing import TYPE_CHECKING, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.reachability.dominance import ContainerElement, ContainerTree
from gdbheapx.analysis.reachability.heap_graph import Reach
from gdbheapx.analysis.reachability.owners import HeldContainer
from gdbheapx.analysis.reachability.paths import NamedGraph, NodeNames, Path, Paths, PathStep
from gdbheapx.common.model import TargetAddress
from gdbheapx.kernel.blocks.graph import EVIDENCE, EXACT_SLOT, MAYBE, NO_NODE, NO_SLOT, RULE_START, UNOWNING, WEAK, Edge, class_of

if TYPE_CHECKING:
    from gdbheapx.analysis.reachability.dominance import OwnerTally

MOST_REFERRERS = 1000
MOST_STEPS = 200
"""Of a chain; the middle of a longer one is left out."""


class RefsStep(NamedTuple):
    """Pointer of a chain."""

    address: Optional[TargetAddress]
    """The block or mapping that it is in; of a root where it is; None for a register."""
    offset: Optional[int]
    """Where in the block."""
    signature: Optional[str]
    """What the block is, such as its class; None where no one looked, or nothing knows it."""
    root: Optional[str]
    """The root's name; None for a block or a mapping."""
    evidence: str
    """What kind of pointer it is."""
    left_out: int = 0
    """Steps that are not shown in front of this one."""
    container: Optional[HeldContainer] = None
    """To which the pointer belongs; None where that is not known."""
    element: Optional[str] = None
    """`element 4,711 of the list g_producer.queue`: what the block is, and the next step holds the list; None of what is no element."""


class RefsChain(NamedTuple):
    """Chain of pointers from the block back to a root."""

    steps: Sequence[RefsStep]
    is_held: bool
    """It begins at a root."""
    is_user: bool = False
    """It leads to an element of a container, and takes nothing from who holds that."""

    @property
    def length(self) -> int:
        """Return the number of steps, including those that are left out."""
        return len(self.steps) + sum(step.left_out for step in self.steps)


class Refs(NamedTuple):
    """The answer."""

    address: TargetAddress
    offset: int
    """Of the address that was asked for, in its block."""
    size_bytes: int
    evidence: str
    """What holds the block at best."""
    chains: Sequence[RefsChain]
    more: bool
    """There are more pointers to it than were followed."""
    path: Optional[Path] = None
    """How the program itself gets there; None where nothing gives it a name."""
    element: Optional[str] = None
    """`element 4,711 of the list g_producer.queue`; None of what is no element of a container, or where that was not looked for."""
    links: int = 0
    """Links of other elements that lead here, too, and have no chain of their own."""

    @property
    def class_(self) -> str:
        """Return the class as in `leaks`."""
        return class_of(self.evidence)


class RefsMarks:
    """Data shared by all blocks of a graph."""

    def __init__(self, reach: Reach, paths: Optional[Paths] = None, tallied: "Optional[OwnerTally]" = None) -> None:
        """`tallied`: of this graph, whose roots are variables; elements are shown by their containers then."""
        self.contained: Optional[ContainerTree] = tallied.contained if tallied is not None and tallied.tree.containers else None
        self.elements: Dict[int, str] = {}
        if tallied is None:  # which has marked it
            reach.graph.mark(reach.roots_from)
        self.starts = frozenset(paths.starts() if paths is not None else ())
        """What has a name by itself: a chain ends there."""
        first, graph = reach.roots_from, reach.graph
        self.parents = graph.named_parents(first, is_any=True) if self.starts else graph.parents(first)
        self.lost: Dict[int, Optional[Edge]] = {}

    def member(self, node: int) -> Optional[ContainerElement]:
        """Return the container of which the node is an element; else None."""
        return self.contained.member(node) if self.contained is not None and node not in self.starts else None

    def element(self, node: int) -> Optional[str]:
        """Return the name of the node as an element of its container; else None."""
        member = self.member(node)
        if member is None or self.contained is None:
            return None
        if node not in self.elements:
            place = self.contained.place(node)
            self.elements[node] = "%s of the %s" % ("an element" if place is None else "element {:,}".format(place), member.name)
        return self.elements[node]


def find_refs(
    reach: Reach, names: NodeNames, address: int, marks: Optional[RefsMarks] = None, paths: Optional[Paths] = None
) -> Optional[Refs]:
    """The chains of one block, those of owners first; None where no used block and no mapping has the address."""
    place = reach.graph.find(address)
    if place is None:
        return None
    node, offset = place
    marks = marks or RefsMarks(reach, paths)
    referrers = reach.graph.referrers(node, MOST_REFERRERS)
    member, links = marks.member(node), 0
    if member is not None:
        inside = [at for at in referrers if _is_link(marks, member, at)]
        is_entered = any(member.is_held_by(at.node) for at in referrers)
        links = max(0, len(inside) - (not is_entered))
        passed = inside if is_entered else inside[1:]
        referrers = [at for at in referrers if at not in passed]
    chains = sorted((_make_chain(reach, names, referrer, node, marks, paths, member) for referrer in referrers), key=_order_chain)
    start, end = _find_span(reach, node)
    evidence, path = EVIDENCE[reach.graph.evidence(node)], paths.of(node) if paths is not None else None
    is_cut = len(referrers) + links >= MOST_REFERRERS
    return Refs(TargetAddress(start), offset, end - start, evidence, chains, is_cut, path, marks.element(node), links)


def _is_link(marks: RefsMarks, member: ContainerElement, pointer: Edge) -> bool:
    """Return True for a pointer from an element of the container to another one."""
    other = marks.member(pointer.node)
    return other is not None and other.number == member.number


def _order_chain(chain: RefsChain) -> Tuple[bool, bool, bool, bool, int]:
    """Return the sort key of a chain: holding chains first, users of an element last; then chains whose pointer to the block owns, chains
    all of whose pointers do, short ones.
    """
    owns = [step.evidence != EVIDENCE[UNOWNING] for step in chain.steps]
    return not chain.is_held, chain.is_user, not owns[0], not all(owns), chain.length


def _make_chain(
    reach: Reach, names: NodeNames, first: Edge, held: int, marks: RefsMarks, paths: Optional[Paths], below: Optional[ContainerElement]
) -> RefsChain:
    """The way from a pointer to a root or to what has a name by itself, or as far up as it goes; a cycle is gone round once. From an
    element it goes on at once to what holds its container. `held`: the block; `below`: of which it is an element."""
    is_entry = below is not None and below.is_held_by(first.node)
    is_user = below is not None and not is_entry and not _is_link(marks, below, first)
    rule = RULE_START if is_entry and first.rule == UNOWNING else first.rule
    path: List[Tuple[int, int, int]] = [(first.node, first.slot, rule)]
    node, parents = first.node, marks.parents
    entered: Set[int] = set()
    while node < reach.roots_from:
        member = marks.member(node)
        if member is not None and member.number not in entered:
            entered.add(member.number)
            node, slot = member.entries[0]
            path.append((node, slot if slot < EXACT_SLOT else NO_SLOT, RULE_START))
            continue
        if parents[node] == NO_NODE:
            break
        node = parents[node]
        path.append((node, NO_SLOT, 0))
    seen = {node_id for node_id, _, _ in path}
    while node < reach.roots_from and parents[node] == NO_NODE and node not in marks.starts:
        if node not in marks.lost and len(marks.lost) < MOST_STEPS:  # each takes a pass over the graph
            marks.lost[node] = next(iter(reach.graph.referrers(node, 1)), None)
        pointer = marks.lost.get(node)
        if pointer is None or pointer.node in seen:
            break
        node = pointer.node
        seen.add(node)
        path.append((node, pointer.slot, pointer.rule))
    left_out = max(0, len(path) - MOST_STEPS)
    shown = path if not left_out else [*path[: MOST_STEPS // 2], *path[-(MOST_STEPS // 2) :]]
    steps = []
    for number, (node_id, slot, rule) in enumerate(shown):
        if number and slot == NO_SLOT:
            edge = reach.graph.edge_to(node_id, shown[number - 1][0])
            slot, rule = (edge.slot, edge.rule) if edge is not None else (NO_SLOT, 0)
        leads_to = shown[number - 1][0] if number else held
        step = _make_step(reach, names, (node_id, slot, rule), leads_to, left_out if left_out and number == MOST_STEPS // 2 else 0)
        steps.append(step._replace(element=marks.element(node_id)))
    known = paths.of(node) if paths is not None and node in marks.starts else None
    if known is not None:
        steps[-1] = steps[-1]._replace(root=known.text)
    return RefsChain(steps, node >= reach.roots_from or node in marks.starts, is_user)


def _make_step(reach: Reach, names: NodeNames, pointer: Tuple[int, int, int], leads_to: int, left_out: int) -> RefsStep:
    node, slot, rule = pointer
    offset = None if slot == NO_SLOT else slot * reach.word_bytes
    root, mapping = reach.root(node), reach.mapping(node)
    if root is not None:
        at = TargetAddress(root.start + (offset or 0)) if root.start else None
        name = names.of_object(root, *_find_span(reach, leads_to)) if root.field is not None else names.of(node, slot)
        return RefsStep(at, None, None, name, EVIDENCE[rule], left_out)
    if mapping is not None:
        return RefsStep(TargetAddress(mapping.start), offset, names.of_mapping(node), None, EVIDENCE[rule], left_out)
    return RefsStep(TargetAddress(reach.graph.blocks([node])[0][0]), offset, None, None, EVIDENCE[rule], left_out)


def _find_span(reach: Reach, node: int) -> Tuple[int, int]:
    """Return the start and the end of a block or mapping."""
    mapping = reach.mapping(node)
    start, size = reach.graph.blocks([node])[0] if mapping is None else (mapping.start, mapping.end - mapping.start)
    return start, start + size


def list_chain_blocks(reach: Reach, refs: Refs) -> List[Tuple[int, int]]:
    """(address, usable bytes) of the blocks in the chains."""
    nodes = [reach.graph.find(step.address) for chain in refs.chains for step in chain.steps if step.address is not None and not step.root]
    ids = sorted({node[0] for node in nodes if node is not None and node[0] < reach.numbers.blocks})
    return reach.graph.blocks(ids)


def add_refs_types(refs: Refs, names: Mapping[int, str]) -> Refs:
    """Add the types of blocks, by their addresses."""
    return _change_steps(refs, lambda step: step._replace(signature=names.get(step.address or 0, step.signature)))


def list_pointers(refs: Refs, chains: int) -> List[Tuple[int, Optional[int]]]:
    """List the addresses of the pointers in the first `chains` chains, and the addresses of their blocks; None for a root's."""
    steps = [step for chain in refs.chains[:chains] for step in chain.steps][:MOST_STEPS]
    return [(_stands_at(step), None if step.root else step.address) for step in steps if step.address]


def _stands_at(step: RefsStep) -> int:
    return (step.address or 0) + (step.offset or 0)


def add_refs_containers(refs: Refs, containers: Mapping[int, HeldContainer]) -> Refs:
    """Add the containers to which pointers belong, by the addresses of the pointers."""
    return _change_steps(refs, lambda step: step._replace(container=containers.get(_stands_at(step))))


def _change_steps(refs: Refs, change: Callable[[RefsStep], RefsStep]) -> Refs:
    return refs._replace(chains=[chain._replace(steps=list(map(change, chain.steps))) for chain in refs.chains])


class Holder(NamedTuple):
    """Holder of a block, on the shortest way from a root."""

    block: TargetAddress
    evidence: str
    """The strongest way that leads there, as in `leaks`; `none`: it is leaked."""
    root: Optional[str]
    """None where no root leads there."""
    steps: Optional[int]
    """Pointers from the root to the block."""
    by: Optional[str]
    """The block or mapping, with the offset, whose pointer is the last of them; None where the root itself points there."""
    path: Optional[str] = None
    """How the program itself gets there, as its language writes it."""
    path_steps: Optional[Sequence[PathStep]] = None
    element: Optional[str] = None
    """As in Refs."""

    def words(self) -> str:
        """Summarize the holder in few words."""
        class_ = class_of(self.evidence)
        if self.root is None or class_ == "leaked":
            return "leaked" if class_ == "leaked" else "possibly leaked: only %s" % MAYBE.get(self.evidence, WEAK)
        way = self.path or (self.root if self.steps == 1 else "%s, %d steps" % (self.root, self.steps or 0))
        return way if class_ == "held" else "%s (maybe: only %s)" % (way, MAYBE.get(self.evidence, WEAK))


def find_block_holders(graph: NamedGraph, addresses: Sequence[int]) -> Dict[int, Holder]:
    """Return the holder of each address that lies in a block in use."""
    holders: Dict[int, Holder] = {}
    marks = RefsMarks(graph.reach, graph.paths)
    for address in addresses:
        told = find_refs(graph.reach, graph.names, address, marks, graph.paths)
        if told is not None:
            holders[address] = choose_holder(told)
    return holders


def choose_holder(told: Refs) -> Holder:
    """The best of the chains, in short."""
    chain = next((way for way in told.chains if way.is_held), None)
    if chain is None:
        return Holder(told.address, told.evidence, None, None, None)
    first, last = chain.steps[0], chain.steps[-1]
    by = None
    if first.root is None:
        by = "%s+%d" % (first.signature or "block %s" % first.address, first.offset or 0)
    path = told.path
    text, steps = (path.text, path.steps) if path is not None else (None, None)
    return Holder(told.address, told.evidence, last.root, chain.length, by, text, steps, told.element)
