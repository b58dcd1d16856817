"""Going on behind damage: the next place that is surely a chunk, and the rule that was broken."""

from array import array
from bisect import bisect_right
from typing import NamedTuple, Optional, Sequence

from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.geometry import align_chunk
from gdbheapx.glibc.specials import Specials
from gdbheapx.kernel.api import (
    STOP_END,
    STOP_FENCE,
    STOP_MISALIGNED,
    STOP_MMAPPED_BIT,
    STOP_OVERRUN,
    STOP_SMALL,
    STOP_UNREADABLE,
    WalkResult,
)

_RULES = {
    STOP_SMALL: "chunk size below MINSIZE",
    STOP_MISALIGNED: "chunk size is no multiple of MALLOC_ALIGNMENT",
    STOP_MMAPPED_BIT: "IS_MMAPPED is set on a chunk inside an arena",
    STOP_OVERRUN: "chunk reaches beyond the end of its heap or over the top chunk",
    STOP_UNREADABLE: "memory of the heap cannot be read",
    STOP_FENCE: "a fencepost inside the heap",
    STOP_END: "the chunks end without a top chunk",
}


class Damage(NamedTuple):
    """Where a run of chunks ended against the rules."""

    at: int
    end: int
    """End of the region."""
    top: int
    """The arena's top chunk, wherever it is."""


def damage_rule(context: Context, arena: Arena, result: WalkResult) -> str:
    """One line: arena, rule, and the size field that was found."""
    geometry = context.glibc.geometry
    rule = _RULES.get(result.stop, "the walk stopped")
    field = context.target.read_prefix(result.at + geometry.word_bytes, geometry.word_bytes)
    if result.stop in (STOP_UNREADABLE, STOP_END) or len(field) < geometry.word_bytes:
        return "%s: %s" % (arena.title, rule)
    size = int.from_bytes(field, "little" if geometry.little_endian else "big")
    return "%s: %s (size field 0x%x)" % (arena.title, rule, size)


def next_start(context: Context, damage: Damage, specials: Specials, members: Sequence[int]) -> Optional[int]:
    """The lowest address behind the damage from which chunk sizes lead exactly onto a chunk known from elsewhere.

    Such chunks are those on free lists and top. None if there is none before the region's end: then the rest is lost.
    """
    geometry = context.glibc.geometry
    anchors = set(specials.between(damage.at + 1, damage.end))
    anchors.update(members[bisect_right(members, damage.at) :])
    if damage.at < damage.top < damage.end:
        anchors.add(damage.top)
    ordered = array("Q", sorted(anchor for anchor in anchors if damage.at < anchor < damage.end and align_chunk(anchor, geometry) == anchor))
    low = align_chunk(damage.at + 1, geometry)
    for number, anchor in enumerate(ordered):
        if len(context.target.read_prefix(anchor, 2 * geometry.word_bytes)) < 2 * geometry.word_bytes:
            continue
        found = context.kernel.find_chain(context.source, geometry, low, anchor, ordered[number:], context.budget)
        return anchor if found is None else found
    return None
