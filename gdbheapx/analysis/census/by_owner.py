"""Every block in use by its owner and its class."""

from array import array
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.find import Census, CensusRow
from gdbheapx.analysis.census.world import EXACT, PLACE, SHAPE
from gdbheapx.analysis.reachability import dominance, heap_graph
from gdbheapx.analysis.reachability.dominance import MOST_CONTAINERS, ContainerRow
from gdbheapx.analysis.reachability.owners import OwnedMemory
from gdbheapx.kernel.blocks.graph import LEAKED, NO_NODE, Graph, NativeClass
from gdbheapx.session import Session

NO_OWNER, CLASS = "[several owners, small ones, or leaked]", "class"
AT_ONCE = 1 << 16
Then = Callable[[Graph], None]
SMALL, SEVERAL = "[small owners]", "[held by several owners]"
"""Of single blocks, what NO_OWNER is beside what is leaked."""


class OwnerRows(NamedTuple):
    """Rows of a census for each owner."""

    owners: List[OwnedMemory]
    """Those that retain most first."""
    rows: Dict[int, List[CensusRow]]
    """By place in `owners`, -1 for all others: what each owns, the largest first."""


class OwnedBlocks(NamedTuple):
    """Every block in use with its owner."""

    told: find.LabelSet
    owners: "array[int]"
    """array('I') by the block's id: a place in `names`."""
    names: Sequence[Optional[str]]
    """None: leaked."""
    containers: "Optional[array[int]]"
    """array('I') by the block's id: 1 + the number of the container whose element it is, 0 of none; None: there are no containers."""


def _read_owners(
    session: Session, is_cut: bool, then: Then = lambda graph: None
) -> "Tuple[find.LabelSet, dominance.OwnerTally, List[Tuple[int, str]]]":
    """Read the blocks, their graph, and the owners that retain most. HeapxError if there is no room for the graph."""
    heap_graph.check_owners_fit(session)
    told = find.label_blocks(session, then, is_cut=is_cut, contents=True)
    tallied = dominance.tally_owners(session, told.reach, told.called, told.paths)
    return told, tallied, tallied.tops(dominance.MOST_OWNERS)


def find_owned_blocks(session: Session, is_cut: bool, then: Then = lambda graph: None) -> OwnedBlocks:
    """Return every block with its owner and class. `is_cut`: pieces that a library cut, not the blocks they are in; `then`: called before
    the process runs on."""
    told, tallied, tops = _read_owners(session, is_cut, then)
    count, above = told.reach.numbers.blocks, tallied.tree.owners
    known = {node for node, _ in tops}
    starts = [] if tallied.paths is None else tallied.paths.starts()
    small = [node for node in (*starts, *range(count, len(above))) if above[node] == NO_NODE and node not in known]
    under = tallied.graph.under(tallied.tree, [*(node for node, _ in tops), *small])
    names = [SEVERAL, *(tallied.name(node) for node, _ in tops), SMALL, None]
    last = len(tops) + 1
    places = array("I", [min(place, last) for place in under[:count]])
    for first in range(0, count, AT_ONCE):  # few of them at once: there may be millions
        for node, _ in tallied.graph.with_evidence((LEAKED,), first, min(first + AT_ONCE, count)):
            places[node] = last + 1
    return OwnedBlocks(told, places, names, tallied.tree.members)


def find_kept_containers(session: Session) -> List[ContainerRow]:
    """Return the containers that keep most."""
    _, tallied, _ = _read_owners(session, True)
    return tallied.contained.rows(MOST_CONTAINERS)


def find_owner_rows(session: Session) -> OwnerRows:
    """Return a census for each owner; HeapxError if there is no room for the graph."""
    told, tallied, tops = _read_owners(session, True)
    under = tallied.graph.under(tallied.tree, [node for node, _ in tops])
    classes = tallied.graph.classes(under, len(tops), told.labels, len(told.names) + 1)
    called = [tallied.owned(node, kind) for node, kind in tops]
    rows: Dict[int, List[CensusRow]] = {}
    for found in classes:
        owner = called[found.top].owner if found.top >= 0 else NO_OWNER
        rows.setdefault(found.top, []).append(_make_row(found, told, owner, tallied.used.bytes))
    for some in rows.values():
        some.sort(key=lambda row: -row.bytes)
    return OwnerRows(called, rows)


def _make_row(found: NativeClass, told: find.LabelSet, owner: str, whole: int) -> CensusRow:
    name = told.names[found.label - 1] if found.label else None
    signed = told.found.get(found.label)
    one_size = signed is not None and name is None and signed.least_bytes == signed.most_bytes
    return CensusRow(
        signature=name.name if name is not None else None,
        module=name.module if name is not None else "",
        sure=name.sure if name is not None else "",
        size_bytes=signed.least_bytes if signed is not None and one_size else None,
        blocks=found.blocks,
        bytes=found.bytes,
        share_percent=round(100.0 * found.bytes / whole, 1) if whole else 0.0,
        sample=None,
        owner=owner,
    )


def by_owner(session: Session) -> Census:
    """Return the census with a row for each owner and class, the largest first."""
    every = [row for some in find_owner_rows(session).rows.values() for row in find.merge_rows(some)]
    named, placed = (sum(row.bytes for row in every if row.sure in sure) for sure in ((EXACT, SHAPE), (PLACE,)))
    return Census(
        rows=sorted(every, key=lambda row: -row.bytes),
        blocks=sum(row.blocks for row in every),
        bytes=sum(row.bytes for row in every),
        named_bytes=named,
        placed_bytes=placed,
        managed=(),
        may_be_stale=_may_be_stale(session),
    )


def _may_be_stale(session: Session) -> bool:
    if not session.target.has_memory:  # a snapshot has it of its census
        return session.kept("census", Census, lambda: find.find_census(session)).may_be_stale
    return any(heap.shape.keeps_freed_content for heap in session.heaps.all())


def by_class(session: Session, limit: int) -> List[OwnedMemory]:
    """Return owners, and as their children the memory of each by class."""
    found = find_owner_rows(session)
    return [
        owner._replace(children=[_make_owned(row) for row in find.merge_rows(found.rows.get(place, []))[:limit]])
        for place, owner in enumerate(found.owners[:limit])
    ]


def _make_owned(row: CensusRow) -> OwnedMemory:
    size = "blocks of %d bytes" % row.size_bytes if row.size_bytes is not None else "not named"
    return OwnedMemory(
        owner=row.signature or size,
        kind=CLASS,
        address=None,
        retained_bytes=row.bytes,
        share_percent=row.share_percent,
        retained_blocks=row.blocks,
        reached_bytes=None,
        reached_blocks=None,
        signature=row.module or None,
    )
