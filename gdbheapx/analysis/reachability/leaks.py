"""Which used blocks nothing holds."""

from array import array
from typing import Annotated, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.block import Labels
from gdbheapx.analysis.reachability.look import Reach
from gdbheapx.analysis.reachability.regions import Node
from gdbheapx.columns import BYTES, TEXT, Column
from gdbheapx.kernel.blocks.graph import EVIDENCE, FROM_MAPPING, HELD, LEAKED, RULE_INSIDE, Habit, Sum
from gdbheapx.model import Address

HELD_WORD, MAYBE_WORD, LEAKED_WORD = "held", "maybe", "leaked"
ROOT, CYCLE, BEHIND = "root", "cycle", "behind"


class Group(NamedTuple):
    """Leaked blocks of one size and sort to which no other group leads, and what hangs behind them."""

    signature: Annotated[Optional[str], Column("what", TEXT, None, "where any row knows it")]
    kind: Annotated[str, Column("kind", TEXT)]
    """`root`: nothing points to them; `cycle`: only blocks behind them do."""
    size_bytes: Annotated[int, Column("size", BYTES)]
    blocks: Annotated[int, Column("blocks")]
    bytes: Annotated[int, Column("bytes", BYTES)]
    behind_blocks: Annotated[int, Column("blocks reachable")]
    behind_bytes: Annotated[int, Column("bytes reachable", BYTES)]
    sample: Annotated[Sequence[Address], Column("for example", TEXT)]


class LostMapping(NamedTuple):
    """A mapping that nothing points to."""

    start: Annotated[Address, Column("start", TEXT)]
    bytes: Annotated[int, Column("bytes", BYTES)]
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES)]
    name: Annotated[str, Column("name", TEXT)]


class LeakedBlock(NamedTuple):
    """One block of the list."""

    address: Annotated[Address, Column("address", TEXT)]
    size_bytes: Annotated[int, Column("size", BYTES)]
    class_: Annotated[str, Column("class", TEXT)]
    evidence: Annotated[str, Column("evidence", TEXT)]
    kind: Annotated[Optional[str], Column("kind", TEXT)]


class Leaks(NamedTuple):
    """The answer."""

    held: Sum
    maybe: Sum
    maybe_by: Dict[str, Sum]
    leaked: Sum
    roots: Optional[int]
    """None where there was no room to find them."""
    groups: Sequence[Group]
    """Those with most bytes first."""
    habits: Sequence[Habit]
    offsets: Sequence[Tuple[int, int]]
    """(offset, references) by which blocks are reached that are told as maybe for that alone."""
    mappings: Sequence[LostMapping]
    low_addresses: bool
    """The heap lies where small numbers are addresses."""
    is_upper_bound: bool = False
    """Of `leaked`: something that may hold blocks was not read."""


def add(sums: Sequence[Sum]) -> Sum:
    """All of them."""
    return Sum(sum(one.blocks for one in sums), sum(one.bytes for one in sums))


Naming = Callable[["array[int]", "array[int]"], Optional[Labels]]
"""What blocks are, by their addresses and usable bytes."""


def find(reach: Reach, interior_holds: bool, sums: Sequence[Sum], naming: Optional[Naming] = None) -> Leaks:
    """Classes, groups and lost mappings. `sums`: of mark() or look_again(). `naming`: where memory may still be read."""
    holding = held_rules(interior_holds)
    maybe = {EVIDENCE[rule]: sums[rule] for rule in range(LEAKED) if rule not in holding and sums[rule].blocks}
    roots = reach.graph.find_leak_roots() if sums[LEAKED].blocks else 0
    return Leaks(
        held=add([sums[rule] for rule in holding]),
        maybe=add(list(maybe.values())),
        maybe_by=maybe,
        leaked=sums[LEAKED],
        roots=roots,
        groups=groups(reach, naming) if roots else [],
        habits=reach.habits,
        offsets=reach.graph.inside_offsets() if sums[RULE_INSIDE].blocks else (),
        mappings=lost_mappings(reach),
        low_addresses=any(start < 1 << 32 for start, _ in reach.heaps) and reach.word_bytes == 8,
    )


def held_rules(interior_holds: bool) -> List[int]:
    """Evidence that counts as held."""
    return sorted(HELD | {RULE_INSIDE} if interior_holds else HELD)


def groups(reach: Reach, naming: Optional[Naming]) -> List[Group]:
    """Roots of one size, kind and sort together."""
    labels = None
    if naming is not None:
        blocks = reach.graph.columns(reach.graph.leak_root_ids())
        labels = naming(*blocks)
    rows = []
    for one in reach.graph.leak_groups(labels.of if labels is not None else None):
        name = labels.names[one.label] if labels is not None else None
        row = Group(
            signature=name.name if name is not None else None,
            kind=CYCLE if one.is_cycle else ROOT,
            size_bytes=one.size_bytes,
            blocks=one.roots,
            bytes=one.roots * one.size_bytes,
            behind_blocks=one.blocks_behind,
            behind_bytes=one.bytes_behind,
            sample=[Address(address) for address, _ in reach.graph.blocks(one.samples)],
        )
        rows.append(row)
    return sorted(rows, key=lambda row: (-(row.bytes + row.behind_bytes), row.size_bytes))


def lost_mappings(reach: Reach) -> List[LostMapping]:
    """Mappings outside the heaps that no pointer leads to."""
    first = reach.numbers.blocks
    lost = [node for place, node in enumerate(reach.regions.nodes) if reach.graph.evidence(first + place) in (FROM_MAPPING, LEAKED)]
    return mapping_rows(lost)


def mapping_rows(nodes: Sequence[Node]) -> List[LostMapping]:
    """One row for each, the largest first."""
    found = []
    for node in nodes:
        use = node.use
        is_whole = (node.start, node.end) == (use.mapping.start, use.mapping.end)
        resident = use.resident_bytes if is_whole and use.pss_bytes is not None else None
        found.append(LostMapping(Address(node.start), node.end - node.start, resident, use.mapping.name))
    return sorted(found, key=lambda one: -one.bytes)


def listed(reach: Reach, found: Leaks, interior_holds: bool) -> Iterator[LeakedBlock]:
    """Every block that is leaked or may be, by address."""
    holding = held_rules(interior_holds)
    wanted = [rule for rule in range(LEAKED + 1) if rule not in holding]
    step = 1 << 16
    for start in range(0, reach.numbers.blocks, step):
        rows = reach.graph.with_evidence(wanted, start, min(start + step, reach.numbers.blocks))
        ids = [node for node, _ in rows]
        sorts = reach.graph.leak_kinds(ids) if found.leaked.blocks else [0] * len(ids)
        for (_, rule), sort, (address, size) in zip(rows, sorts, reach.graph.blocks(ids)):
            is_leaked = rule == LEAKED
            kind = (BEHIND, ROOT, CYCLE)[sort] if is_leaked else None
            yield LeakedBlock(Address(address), size, LEAKED_WORD if is_leaked else MAYBE_WORD, EVIDENCE[rule], kind)
