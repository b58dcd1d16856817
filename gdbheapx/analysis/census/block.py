"""What a few blocks are."""

from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census import find
from gdbheapx.analysis.census.containers import Containers
from gdbheapx.analysis.census.world import Signature, World, used_blocks
from gdbheapx.analysis.reachability import dominance, heap_graph, owners
from gdbheapx.analysis.reachability.held import Container, Held
from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks.records import Blocks
from gdbheapx.model import Address
from gdbheapx.session import Session

AT_ONCE = 65536
CONTAINERS = "containers"
"""What a snapshot keeps of its owners' containers."""


def can_tell(session: Session) -> bool:
    """It can be told what blocks are when all of them were read: memory is as it was then, or a snapshot has that."""
    return not session.target.has_memory or session.target.can_read_on


def signature(session: Session, address: int, usable_bytes: int) -> Optional[Signature]:
    """By what stands in the block; None where nothing knows it."""
    return signatures(session, [(address, usable_bytes)]).get(address)


def signatures(session: Session, blocks: Sequence[Tuple[int, int]]) -> Dict[int, Signature]:
    """By address, of those that something knows; `blocks`: (address, usable bytes). Memory is read: the process must be held still. What
    cannot be looked at is left out: the answer it was for stands without it."""
    rows = sorted(set(blocks))
    told = labels(session, array("Q", (address for address, _ in rows)), array("Q", (size for _, size in rows)))
    return {} if told is None else _by_address(rows, told)


def _by_address(rows: Sequence[Tuple[int, int]], told_labels: "Labels") -> Dict[int, Signature]:
    told = ((address, told_labels.names[place]) for (address, _), place in zip(rows, told_labels.of))
    return {address: name for address, name in told if name is not None}


def with_names(session: Session, tallied: dominance.Tallied, answer: owners.Owners) -> owners.Owners:
    """Owners with what their blocks are, and which containers they have, where that can be told."""
    answer = owners.with_containers(answer, _containers(session, tallied, answer))
    if not can_tell(session):
        return answer
    rows = dominance.blocks(tallied, answer)
    if not session.target.has_memory:
        kept = _kept(session, array("Q", (address for address, _ in rows)), by_row=False)
        told = {} if kept is None else _by_address(rows, kept)
    else:
        told = signatures(session, rows)
    return owners.named(answer, {address: one.name for address, one in told.items()})


def _containers(session: Session, tallied: dominance.Tallied, answer: owners.Owners) -> Dict[int, Sequence[Container]]:
    """By the addresses in the answer. A snapshot has those of the answers that were made when it was taken."""
    try:
        kept: List[Held] = session.kept(CONTAINERS, Sequence[Held], list)
    except HeapxError:  # of an older release
        return {}
    known: Dict[int, Sequence[Container]] = {one.address: one.containers for one in kept}
    if session.target.has_memory and session.target.can_read_on:
        finder = Containers(World.of(session), tallied.reach)
        for address, place in dominance.places(tallied, answer).items():
            if address not in known:
                known[address] = finder.within(*place)
                kept += [Held(Address(address), known[address])] if known[address] else []
    return known


def pointers(session: Session, reach: heap_graph.Reach, places: Sequence[Tuple[int, Optional[int]]]) -> Dict[int, Container]:
    """By address, of those of these words that belong to a container. `places`: where a word stands, and where its block begins."""
    if not session.target.has_memory or not session.target.can_read_on:
        return {}
    finder = Containers(World.of(session), reach)
    found = ((address, finder.around(address, start or 0)) for address, start in sorted(set(places)))
    return {address: container for address, container in found if container is not None}


class Labels(NamedTuple):
    """What many blocks are."""

    of: "array[int]"
    """array('I'): for each block the place of what it is in `names`."""
    names: Sequence[Optional[Signature]]
    """None first: nothing knows such a block. Each stands there once."""


def labels(session: Session, addresses: "array[int]", usable_bytes: "array[int]") -> Optional[Labels]:
    """By what stands in the blocks. Memory is read, as above, but of a snapshot, which has what its census found; None where that was not
    possible."""
    if not session.target.has_memory:
        return _kept(session, addresses)

    def rows() -> Iterator[Blocks]:
        for place in range(0, len(addresses), AT_ONCE):
            some = slice(place, place + AT_ONCE)
            yield used_blocks(addresses[some], usable_bytes[some])

    try:
        label_row, called = find.signed(session, [rows()])
    except HeapxError:
        return None
    return _together(label_row, called)


def _kept(session: Session, addresses: "array[int]", by_row: bool = True) -> Optional[Labels]:
    """What a snapshot's census has found; `by_row`: by what stands in the blocks alone, as `labels` tells of a core."""
    told: Optional[find.LabelSet] = session.shared(find.TOLD)
    if told is None:
        return None
    places = (told.reach.graph.find(address) for address in addresses)
    blocks, last = told.reach.numbers.blocks, told.by_row if by_row else len(told.names)
    labels_ = (told.labels[place[0]] if place is not None and place[0] < blocks else 0 for place in places)
    return _together(array("I", (label if label <= last else 0 for label in labels_)), told.names[:last])


def _together(label_row: "array[int]", called: Sequence[Optional[Signature]]) -> Labels:
    """With each name once."""
    places: Dict[Optional[Signature], int] = {None: 0}
    moved = [0, *(places.setdefault(name, len(places)) for name in called)]
    return Labels(array("I", map(moved.__getitem__, label_row)), list(places))


def words(signature: Signature) -> str:
    """`Session of cx (exact)`."""
    whose = " of %s" % signature.module if signature.module else ""
    return "%s%s (%s)" % (signature.name, whose, signature.sure)
