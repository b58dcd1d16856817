"""The main heap of a core that lost main_arena: the chunks are there although nothing says any more where they begin and end."""

from array import array
from typing import NamedTuple, Optional, Sequence

from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.geometry import align_chunk
from gdbheapx.glibc.memory import anonymous_ranges
from gdbheapx.kernel.blocks.records import NO_ARENA
from gdbheapx.kernel.common.records import STOP_END, STOP_OVERRUN, STOP_UNREADABLE
from gdbheapx.kernel.glibc.records import STATUS_USED, Listed, Region, WalkResult
from gdbheapx.ranges import subtract

MIN_CHUNKS = 16
"""A range with fewer chunks in an unbroken run may be anything."""


class Remnant(NamedTuple):
    """A run of chunks that fills an anonymous range from its first byte: the heap in brk."""

    region: Region
    result: WalkResult
    """Its last chunk, counted as used by the walk, is taken off: it is top, or the one at which the core was cut."""
    top_bytes: int
    """0 if the run does not reach the end of the range."""


def find_remnant(context: Context, walks: Sequence[ArenaWalk]) -> Optional[Remnant]:
    """The longest such run outside the arenas that were found; None if there is none."""
    taken = sorted((heap.address, heap.address + heap.mprotect_size_bytes) for walk in walks for heap in walk.heaps)
    best: Optional[Remnant] = None
    for low, high in subtract(anonymous_ranges(context.target), taken):
        region = Region(align_chunk(low, context.glibc.geometry), high, 0)
        result = context.walker.walk([region], array("Q"))[0]
        if result.used_chunks < MIN_CHUNKS or result.stop not in (STOP_END, STOP_UNREADABLE, STOP_OVERRUN):
            continue
        found = _without_last(context, region, result)
        if best is None or found.result.used_bytes + found.result.free_bytes > best.result.used_bytes + best.result.free_bytes:
            best = found
    return best


def _without_last(context: Context, region: Region, result: WalkResult) -> Remnant:
    """The run without the chunk at its end."""
    last = None
    for blocks in context.walker.blocks([Listed(region, NO_ARENA)], array("Q")):
        last = blocks
    if last is None or last.kinds[-1] != STATUS_USED or result.stop != STOP_END:
        return Remnant(region, result, 0)
    size = last.usable_bytes[-1] + context.glibc.geometry.word_bytes
    return Remnant(region, result._replace(used_chunks=result.used_chunks - 1, used_bytes=result.used_bytes - size), size)
