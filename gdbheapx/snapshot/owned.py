"""Which owner has what in a snapshot, made again of its graph: more owners than its list has, and what each of them owns by class."""

from typing import Dict, Mapping, NamedTuple, Optional, Tuple, cast

from gdbheapx.analysis.census.by_owner import NO_OWNER, OwnerRows, find_owner_rows
from gdbheapx.analysis.reachability.dominance import MOST_OWNERS, TALLIED, Tallied
from gdbheapx.analysis.reachability.held import words
from gdbheapx.analysis.reachability.owners import BLOCK, SHARED, Owned, Owners
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Target
from gdbheapx.session import Session
from gdbheapx.snapshot.record import GRAPH, OWNERS_KEPT, Reading, Record
from gdbheapx.snapshot.target import Snapshot

OTHERS = "[several owners, small ones, or leaked]"
"""Blocks that no name owns alone."""
Sums = Dict[Tuple[str, str], Tuple[int, Optional[int]]]


class Listed(NamedTuple):
    """The owners of one snapshot that have names: blocks have addresses, which mean nothing in another process."""

    sums: Sums
    what: Dict[str, str]
    """By owner what it holds, and how many: `dict of 20,000 entries`."""
    least_bytes: int
    """An owner that is not among them retains no more than this."""


class Made(NamedTuple):
    """What the graph of a snapshot gives."""

    held: Optional[OwnerRows]
    why: Optional[str]
    """Why there is none."""
    named: Mapping[str, Tuple[int, int]] = {}
    """Bytes and blocks that is retained by all that has a name, also where the memory is told of what lies above or below it."""


def made(session: Session, record: Record, name: str) -> Made:
    """Of one snapshot."""
    if GRAPH not in record.models:
        return Made(None, "it has no graph of blocks")
    target = Snapshot(name, record)
    own = Session(cast(Target, target), session.budget)  # it is asked for what the graph has, never for memory
    own.store = Reading(record, own, lambda: target.unpacked(own))
    try:
        graph = find_owner_rows(own)
        return Made(graph, None, _named(own.shared(TALLIED)))
    except HeapxError as error:
        return Made(None, error.message)


def _named(tallied: Tallied) -> Dict[str, Tuple[int, int]]:
    named: Dict[str, Tuple[int, int]] = {}
    retained = tallied.tree.retained_bytes, tallied.tree.retained_blocks
    for node in range(tallied.reach.roots_from, tallied.reach.roots_from + len(tallied.parts)):
        before = named.get(name := tallied.name(node), (0, 0))
        named[name] = before[0] + retained[0][node], before[1] + retained[1][node]
    for node in tallied.paths.told() if tallied.paths is not None else ():
        path = tallied.path(node)
        if path is not None:  # an object and its parts may have one name
            named[path.text] = max(named.get(path.text, (0, 0)), (retained[0][node], retained[1][node]))
    return named


def listed(owners: Owners, graph: Optional[OwnerRows]) -> Listed:
    """By the graph, else by the list of the largest that each snapshot has."""
    rows, most = (graph.owners, MOST_OWNERS) if graph is not None else (owners.owners, OWNERS_KEPT)
    sums: Sums = {}
    for row in rows:
        if _has_name(row):
            before = sums.get((row.owner, ""), (0, 0))  # a variable may lie in two mappings
            sums[row.owner, ""] = before[0] + row.retained_bytes, (before[1] or 0) + row.retained_blocks
    what = {row.owner: told for row in [*rows, *owners.owners] if (told := _what(row))}
    return Listed(sums, what, rows[-1].retained_bytes if len(rows) >= most else 0)


def classes(graph: OwnerRows) -> Sums:
    """(class, owner) -> bytes, blocks."""
    sums: Sums = {}
    for place, rows in graph.rows.items():
        owner = graph.owners[place] if place >= 0 else None
        whose = owner.owner if owner is not None and _has_name(owner) else OTHERS
        for row in rows:
            key = row.signature if row.signature is not None else "not named", whose
            before = sums.get(key, (0, 0))
            sums[key] = before[0] + row.bytes, (before[1] or 0) + row.blocks
    return sums


def _what(row: Owned) -> Optional[str]:
    return words(row.containers) or (row.container.words() if row.container is not None else row.signature)


def _has_name(row: Owned) -> bool:
    if row.kind == SHARED and row.container is not None:  # called by all that hold it
        return bool(row.holders and row.has_names)
    return row.path is not None or (row.kind not in (SHARED, BLOCK) and row.owner != NO_OWNER)


def from_to(old: Optional[str], new: Optional[str]) -> Optional[str]:
    """`dict of 20,000 -> 50,000 entries`: what changed in what an owner holds; None where nothing is known of either."""
    if old is None or new is None or old == new:
        return new or old
    before, after = old.split(" "), new.split(" ")
    changed = [place for place, pair in enumerate(zip(before, after)) if pair[0] != pair[1]]
    if len(before) != len(after) or any(not _is_number(one[place]) for place in changed for one in (before, after)):
        return "%s -> %s" % (old, new)
    return " ".join("%s -> %s" % (was.rstrip(","), now) if was != now else now for was, now in zip(before, after))


def _is_number(word: str) -> bool:
    return word[:1].isdigit()
