"""Blocks that runtimes have cut from memory of their own, for who goes through all blocks without asking what they are."""

from bisect import bisect_right
from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.analysis.census import registry
from gdbheapx.analysis.census.world import Inner, World
from gdbheapx.analysis.reachability import heap_graph
from gdbheapx.model import TargetAddress
from gdbheapx.session import Session

UNIT_BYTES = 16


class RuntimePiece(NamedTuple):
    """Block of a runtime's own memory."""

    module: str
    name: str
    """What it calls such blocks."""
    address: Optional[TargetAddress]
    """Of the block; None where it has handed none out there."""
    offset: Optional[int]
    """Of the address that was asked for."""
    usable_bytes: Optional[int]


def find_runtime_memory(session: Session) -> List[Inner]:
    """Return memory that runtimes manage themselves. Memory is read: the process must be stopped."""
    world = World.of(session)
    memories: List[Inner] = []
    for recogniser in registry.find_cutting(world):
        list(recogniser.asks(world))  # which finds its types and its memory
        memories += recogniser.inner(world)
    return memories


def find_further(session: Session, garbage: bool = True) -> heap_graph.RuntimePools:
    """Return memory of runtimes for a graph, or nothing if the graph exists. `garbage`: with memory of collectors, whose unreached blocks
    are no leak."""
    if session.shared(heap_graph.REACH) is not None:
        return heap_graph.NO_POOLS
    return combine_memory([memory for memory in find_runtime_memory(session) if garbage or not memory.is_collected])


def combine_memory(memories: Sequence[Inner]) -> heap_graph.RuntimePools:
    """Return memory of runtimes for a graph: malloc's blocks that a runtime cut are left out, their pieces come instead."""
    unit = min((memory.unit_bytes for memory in memories), default=UNIT_BYTES)
    gone = sorted(address for memory in memories for address in memory.instead)
    taken = [part for memory in memories if memory.is_told_apart for part in memory.taken]
    return heap_graph.RuntimePools([memory.blocks for memory in memories], taken, unit, gone)


def find_piece_at(session: Session, address: int) -> Optional[RuntimePiece]:
    """Return the runtime's block at an address, or None outside of such memory."""
    for memory in find_runtime_memory(session):
        if not any(start <= address < end for start, end in memory.taken):
            continue
        for blocks in memory.blocks:
            place = bisect_right(blocks.addresses, address) - 1
            if place >= 0 and address < blocks.addresses[place] + blocks.usable_bytes[place]:
                start = blocks.addresses[place]
                return RuntimePiece(memory.module, memory.name, TargetAddress(start), address - start, blocks.usable_bytes[place])
            if len(blocks.addresses) and blocks.addresses[0] > address:
                break
        return RuntimePiece(memory.module, memory.name, None, None, None)
    return None
