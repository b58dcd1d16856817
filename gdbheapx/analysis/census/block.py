"""What a few blocks are."""

from typing import Dict, Optional, Sequence, Tuple

from gdbheapx.analysis.census import find, registry
from gdbheapx.analysis.census.signature import Signature
from gdbheapx.analysis.census.world import World, together
from gdbheapx.errors import HeapxError
from gdbheapx.kernel.blocks.records import CLASS_USED, NO_ARENA, make_blocks
from gdbheapx.session import Session


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


def words(signature: Signature) -> str:
    """`Session of cx (exact)`."""
    whose = " of %s" % signature.module if signature.module else ""
    return "%s%s (%s)" % (signature.name, whose, signature.sure)
