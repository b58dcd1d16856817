"""What a few blocks are."""

from array import array
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census import find, registry
from gdbheapx.analysis.census.signature import Signature
from gdbheapx.analysis.census.world import World, together
from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks.records import CLASS_USED, NO_ARENA, Blocks, make_blocks
from gdbheapx.session import Session

AT_ONCE = 65536


def look(session: Session, address: int, usable_bytes: int) -> Optional[Signature]:
    """By what stands in the block; None where nothing knows it."""
    return signatures(session, [(address, usable_bytes)]).get(address)


def signatures(session: Session, blocks: Sequence[Tuple[int, int]]) -> Dict[int, Signature]:
    """By address, of those that something knows; `blocks`: (address, usable bytes). Memory is read: the process must be held still. What
    cannot be looked at is left out: the answer it was for stands without it."""
    rows = sorted(set(blocks))
    try:
        world = World(session)
        asked = together(ask for one in registry.here(world) for ask in one.asks(world))
        signer = world.signer(asked.rows, asked.sets)
        signer.stream(iter([make_blocks([(address, size, CLASS_USED, 0, NO_ARENA) for address, size in rows])]))
    except HeapxError:
        return {}
    found = signer.found()
    asked.settle(found)
    names = [None, *(find.named(asked, one) for one in found)]
    told = ((address, names[label]) for (address, _), label in zip(rows, signer.labels()))
    return {address: name for address, name in told if name is not None}


class Labels(NamedTuple):
    """What many blocks are."""

    of: "array[int]"
    """array('I'): for each block the place of what it is in `names`."""
    names: Sequence[Optional[Signature]]
    """None first: nothing knows such a block."""


def labels(session: Session, addresses: "array[int]", usable_bytes: "array[int]") -> Optional[Labels]:
    """By what stands in the blocks. Memory is read, as above; None where that was not possible."""

    def rows() -> Iterator[Blocks]:
        for place in range(0, len(addresses), AT_ONCE):
            count = min(AT_ONCE, len(addresses) - place)
            some = slice(place, place + count)
            alike = array("B", [CLASS_USED]) * count, array("B", [0]) * count, array("I", [NO_ARENA]) * count
            yield Blocks(addresses[some], usable_bytes[some], *alike)

    try:
        world = World(session)
        asked = together(ask for one in registry.here(world) for ask in one.asks(world))
        signer = world.signer(asked.rows, asked.sets)
        signer.stream(rows())
    except HeapxError:
        return None
    found = signer.found()
    asked.settle(found)
    names: List[Optional[Signature]] = [None]
    places = {None: 0}  # type: Dict[Optional[Signature], int]
    moved = [0]
    for one in found:
        name = find.named(asked, one)
        if name not in places:
            places[name] = len(names)
            names.append(name)
        moved.append(places[name])
    return Labels(array("I", map(moved.__getitem__, signer.labels())), names)


def words(signature: Signature) -> str:
    """`Session of cx (exact)`."""
    whose = " of %s" % signature.module if signature.module else ""
    return "%s%s (%s)" % (signature.name, whose, signature.sure)
