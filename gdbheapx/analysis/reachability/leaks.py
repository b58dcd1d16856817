"""Find leaked blocks by class, group and container, and mappings that nothing points to."""

from array import array
from typing import Annotated, Callable, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.analysis import memory_verdict
from gdbheapx.analysis.addon_answers import Garbage
from gdbheapx.analysis.census.block import Labels
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.analysis.reachability.heap_graph import HeldByField, Reach, measure_fields
from gdbheapx.analysis.reachability.owners import LinkedContainer
from gdbheapx.common.columns import BYTES, TEXT, Column
from gdbheapx.common.model import TargetAddress
from gdbheapx.kernel.blocks.graph import EVIDENCE, FROM_MAPPING, HELD, LEAKED, RULE_INSIDE, Containers, Habit, LeakRoot, NativeSum

LARGE_SHARE = 0.05
"""Of all that is leaked: a container with so much is a row of its own; smaller ones of one sort are one together."""
MOST_ROOTS = 20_000
"""Leak roots that are looked at, those with most bytes."""
LEAST_MAPPING_BYTES = 4096
"""The smallest page. Less is the rest of a page whose other part is known: behind the main thread's storage, for example."""
MOST_BELOW, MOST_POINTERS = 64, 64
"""Blocks between a root and a container, and pointers of each that are followed."""


def label_lost_containers(
    reach: Reach, containers: Containers, known: "Optional[array[int]]", names: int
) -> Tuple["array[int]", Dict[int, Tuple[int, LinkedContainer, bool]]]:
    """Return a label for each leak root; and for those from `names` on the label of the first element, all containers of the row together,
    and True if the root is no element. `known`: labels by what is in the blocks."""
    graph = reach.graph
    labels = array("I", known if known is not None else bytes(4 * len(graph.leak_root_ids())))
    of = containers.of()
    found: Dict[int, Tuple[int, LinkedContainer, bool]] = {}
    together: Dict[Tuple[int, str, int], int] = {}
    roots = graph.leak_roots(MOST_ROOTS)
    least = LARGE_SHARE * sum(root.bytes for root in roots)
    for root in roots:
        is_large, number = root.bytes >= least, of[root.id]
        is_held = not number or containers.elements(number - 1, 0, 1) != [root.id]
        if is_held and is_large:
            number = _find_container_below(reach, containers, of, root)
        one = containers[number - 1] if number and (is_large or not is_held) else None
        if one is None or one.elements > root.blocks:
            continue
        label = labels[root.place]
        key = (label, one.shape, one.element_bytes)
        new = names + len(found) if is_large else together.setdefault(key, names + len(found))
        before = found.get(new)
        linked = LinkedContainer(one.shape, one.elements, one.element_bytes or None, one.own_bytes)
        if before is not None:
            sums = before[1].elements + linked.elements, before[1].own_bytes + linked.own_bytes
            linked = linked._replace(elements=sums[0], own_bytes=sums[1])
        found[new] = label, linked, is_held
        labels[root.place] = new
    return labels, found


def _find_container_below(reach: Reach, containers: Containers, of: "array[int]", root: LeakRoot) -> int:
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


MAYBE_WORD, LEAKED_WORD = "maybe", "leaked"
ROOT, CYCLE, BEHIND = "root", "cycle", "behind"
Naming = Callable[["array[int]", "array[int]"], Optional[Labels]]
"""What blocks are, by their addresses and usable bytes."""


class LeakGroup(NamedTuple):
    """Leaked blocks of one size and sort to which no other group leads, or first elements of containers, and what is reachable from
    them."""

    signature: Annotated[Optional[str], Column("type", TEXT, None, "where any row knows it")]
    kind: Annotated[str, Column("kind", TEXT, goes=2)]
    """`root`: nothing points to them; `cycle`: only blocks that they lead to do."""
    size_bytes: Annotated[int, Column("size", BYTES, goes=3)]
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    behind_blocks: Annotated[int, Column("blocks reachable", goes=4)]
    behind_bytes: Annotated[int, Column("bytes reachable", BYTES)]
    sample: Annotated[Sequence[TargetAddress], Column("example", TEXT, goes=1)]
    container: Optional[LinkedContainer] = None
    """What each block is the first element of, or leads to; of several blocks that of all together."""
    is_holder: bool = False
    """The block is no element: it holds the container."""


class LostMapping(NamedTuple):
    """A mapping that nothing points to."""

    start: Annotated[TargetAddress, Column("start", TEXT)]
    bytes: Annotated[int, Column("bytes", BYTES)]
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES)]
    name: Annotated[str, Column("name", TEXT)]


class LostByName(NamedTuple):
    """Mappings of one file, or of none, that nothing points to."""

    name: str
    lost: int
    mappings: int
    """All of that name that are outside the heaps."""
    bytes: int
    """Of the lost ones, in memory or in the core."""


class LeakedBlock(NamedTuple):
    """Block of the list."""

    address: Annotated[TargetAddress, Column("address", TEXT)]
    size_bytes: Annotated[int, Column("size", BYTES)]
    class_: Annotated[str, Column("class", TEXT)]
    evidence: Annotated[str, Column("evidence", TEXT)]
    kind: Annotated[Optional[str], Column("kind", TEXT, goes=1)]


class LeakClasses(NamedTuple):
    """The sums of an answer, by the names that JSON has."""

    held: NativeSum
    maybe: NativeSum
    leaked: Optional[NativeSum]


class Leaks(NamedTuple):
    """The answer."""

    held: NativeSum
    maybe: NativeSum
    maybe_by: Dict[str, NativeSum]
    leaked: Optional[NativeSum]
    """None where so much of what may hold blocks was not read that it is unknown."""
    roots: Optional[int] = None
    """None where there was no room to find them."""
    groups: Sequence[LeakGroup] = ()
    """Those with most bytes first."""
    habits: Sequence[Habit] = ()
    offsets: Sequence[Tuple[int, int]] = ()
    """(offset, references) by which blocks are reached that count as maybe for that alone."""
    mappings: Sequence[LostMapping] = ()
    low_addresses: bool = False
    """The heap lies where small numbers are addresses."""
    is_upper_bound: bool = False
    """Of `leaked`: something that may hold blocks was not read."""
    unloaded_libraries: Optional[int] = None
    """Libraries that were loaded and are no longer; None where the dynamic linker's state could not be read."""
    garbage: Optional[Garbage] = None
    """None of the other classes has it; None: none was found, or looked for."""
    fields: Sequence[HeldByField] = ()
    """What objects of a runtime with a collector hold, by class and field, the largest first."""
    runtime: Optional[str] = None
    """Its arenas point to all of its objects: none of them is ever leaked."""

    @property
    def classes(self) -> LeakClasses:
        """Held, maybe and leaked, as JSON has them."""
        return LeakClasses(self.held, self.maybe, self.leaked)


def judge_leaks(session: Session, leaks: Leaks) -> Leaks:
    """Add the confidence of the leaks, by the memory that was not read, and the number of unloaded libraries."""
    leaks = leaks._replace(unloaded_libraries=memory_verdict.count_unloaded(session))
    if heap_graph.is_leak_unknown(session):
        return leaks._replace(leaked=None, roots=None, groups=(), mappings=(), is_upper_bound=True)
    if heap_graph.is_leak_unknown(session, leaks.leaked):
        return leaks._replace(leaked=None, is_upper_bound=True)
    return leaks._replace(is_upper_bound=heap_graph.lacks_holders(session))


def find_leaks(reach: Reach, interior_holds: bool, sums: Sequence[NativeSum], naming: Optional[Naming] = None) -> Leaks:
    """Classes, groups and lost mappings. `sums`: of mark() or look_again(). `naming`: where memory may still be read."""
    containers = heap_graph.find_containers(reach) if sums[LEAKED].blocks and reach.graph.shape.all_slots else None
    containers = containers or None  # as if there were no slots: there are none
    roots = reach.graph.find_leak_roots(containers) if sums[LEAKED].blocks else 0
    holding = list_held_rules(interior_holds)
    lost = []  # mappings outside the heaps that no pointer leads to
    for place, node in enumerate(reach.regions.nodes, reach.numbers.blocks):
        if reach.graph.evidence(place) in (FROM_MAPPING, LEAKED) and node.end - node.start >= LEAST_MAPPING_BYTES:
            lost.append(LostMapping(TargetAddress(node.start), node.end - node.start, node.resident_bytes, node.use.mapping.name))
    maybe = {EVIDENCE[rule]: sums[rule] for rule in range(LEAKED) if rule not in holding and sums[rule].blocks}
    held, unsure = (
        NativeSum(sum(part.blocks for part in parts), sum(part.bytes for part in parts))
        for parts in ([sums[rule] for rule in holding], maybe.values())
    )
    return Leaks(
        held=held,
        maybe=unsure,
        maybe_by=maybe,
        leaked=sums[LEAKED],
        roots=roots,
        groups=group_leaks(reach, naming, containers) if roots else [],
        habits=reach.habits,
        offsets=reach.graph.inside_offsets() if sums[RULE_INSIDE].blocks else (),
        mappings=sorted(lost, key=lambda row: -row.bytes),
        low_addresses=any(start < 1 << 32 for start, _ in reach.heaps) and reach.word_bytes == 8,
        fields=measure_fields(reach.graph, reach.numbers.blocks, reach.regions.managed, lambda field: None),
    )


def list_held_rules(interior_holds: bool) -> List[int]:
    """Evidence that counts as held."""
    return sorted(HELD | {RULE_INSIDE} if interior_holds else HELD)


def group_leaks(reach: Reach, naming: Optional[Naming], containers: Optional[Containers] = None) -> List[LeakGroup]:
    """Roots of one size, kind and sort together; large containers each alone."""
    labels = naming(*reach.graph.columns(reach.graph.leak_root_ids())) if naming is not None else None
    of, names = labels if labels is not None else (None, [None])
    found: Dict[int, Tuple[int, LinkedContainer, bool]] = {}
    if containers is not None:
        of, found = label_lost_containers(reach, containers, of, len(names))
    rows = []
    for group in reach.graph.leak_groups(of):
        label, container, is_holder = found.get(group.label, (group.label, None, False))
        name = names[label]
        row = LeakGroup(
            signature=name.name if name is not None else None,
            kind=CYCLE if group.is_cycle else ROOT,
            size_bytes=group.size_bytes,
            blocks=group.roots,
            bytes=group.roots * group.size_bytes,
            behind_blocks=group.blocks_behind,
            behind_bytes=group.bytes_behind,
            sample=[TargetAddress(address) for address, _ in reach.graph.blocks(group.samples)],
            container=container,
            is_holder=is_holder,
        )
        rows.append(row)
    return sorted(rows, key=lambda row: (-(row.bytes + row.behind_bytes), row.size_bytes))


def group_lost_mappings(reach: Reach, least_bytes: int) -> List[LostByName]:
    """Group lost mappings by name, and return the groups with at least that many bytes, the largest first."""
    sums: Dict[str, List[int]] = {}
    for place, node in enumerate(reach.regions.nodes, reach.numbers.blocks):
        row = sums.setdefault(node.use.mapping.name, [0, 0, 0])
        row[1] += 1
        if reach.graph.evidence(place) in (FROM_MAPPING, LEAKED):
            row[0] += 1
            row[2] += min(node.end - node.start, node.use.resident_bytes or 0)
    rows = [LostByName(name, *row) for name, row in sums.items() if row[2] >= least_bytes and row[2]]
    return sorted(rows, key=lambda row: -row.bytes)


def subtract_nodes(reach: Reach, sums: Sequence[NativeSum], nodes: Sequence[int]) -> List[NativeSum]:
    """Sums by evidence without these nodes."""
    blocks, sizes = [part.blocks for part in sums], [part.bytes for part in sums]
    for node, (_, size) in zip(nodes, reach.graph.blocks(nodes)):
        rule = reach.graph.evidence(node)
        blocks[rule] -= 1
        sizes[rule] -= size
    return list(map(NativeSum, blocks, sizes))


def list_leaked_blocks(reach: Reach, leaks: Leaks, interior_holds: bool, garbage: FrozenSet[int] = frozenset()) -> Iterator[LeakedBlock]:
    """Every block that is leaked or may be, by address; `garbage`: nodes that are neither."""
    holding = list_held_rules(interior_holds)
    rules = [rule for rule in range(LEAKED + 1) if rule not in holding]
    step = 1 << 16
    for start in range(0, reach.numbers.blocks, step):
        rows = reach.graph.with_evidence(rules, start, min(start + step, reach.numbers.blocks))
        rows = [row for row in rows if row[0] not in garbage] if garbage else rows
        ids = [node for node, _ in rows]
        sorts = reach.graph.leak_kinds(ids) if leaks.leaked is not None and leaks.leaked.blocks else [0] * len(ids)
        for (_, rule), sort, (address, size) in zip(rows, sorts, reach.graph.blocks(ids)):
            is_leaked = rule == LEAKED
            kind = (BEHIND, ROOT, CYCLE)[sort] if is_leaked else None
            yield LeakedBlock(TargetAddress(address), size, LEAKED_WORD if is_leaked else MAYBE_WORD, EVIDENCE[rule], kind)
