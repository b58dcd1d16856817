"""Blocks that runtimes have cut from memory of their own, for who goes through all blocks without asking what they are."""

from bisect import bisect_right
from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.analysis.census import registry
from gdbheapx.analysis.census.world import Inner, World
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.model import Address
from gdbheapx.session import Session

UNIT_BYTES = 16


class Piece(NamedTuple):
    """What a runtime has at an address."""

    module: str
    name: str
    """What it calls such blocks."""
    address: Optional[Address]
    """Of the block; None where it has handed none out there."""
    offset: Optional[int]
    """Of the address that was asked for."""
    usable_bytes: Optional[int]


def inner(session: Session) -> List[Inner]:
    """Memory that runtimes manage themselves. Memory is read: the process must be held still."""
    world = World(session)
    found: List[Inner] = []
    for one in registry.cutting(world):
        list(one.asks(world))  # which finds its types and its memory
        found += one.inner(world)
    return found


def further(session: Session) -> heap_graph.Further:
    """The same, as the graph takes them; nothing where another command has made the graph already."""
    return heap_graph.NO_FURTHER if session.shared(heap_graph.REACH) is not None else of(inner(session))


def of(found: Sequence[Inner]) -> heap_graph.Further:
    """As the graph takes them: malloc's blocks that a runtime cut up are left out, their pieces come instead."""
    unit = min((one.unit_bytes for one in found), default=UNIT_BYTES)
    gone = sorted(address for one in found for address in one.instead)
    taken = [part for one in found if one.is_told_apart for part in one.taken]
    return heap_graph.Further([one.blocks for one in found], taken, unit, gone)


def at(session: Session, address: int) -> Optional[Piece]:
    """What a runtime has there; None where it is no runtime's own memory."""
    for one in inner(session):
        if not any(start <= address < end for start, end in one.taken):
            continue
        for blocks in one.blocks:
            place = bisect_right(blocks.addresses, address) - 1
            if place >= 0 and address < blocks.addresses[place] + blocks.usable_bytes[place]:
                start = blocks.addresses[place]
                return Piece(one.module, one.name, Address(start), address - start, blocks.usable_bytes[place])
            if len(blocks.addresses) and blocks.addresses[0] > address:
                break
        return Piece(one.module, one.name, None, None, None)
    return None
