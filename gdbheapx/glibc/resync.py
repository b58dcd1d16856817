"""Going on behind damage: the next place that is surely a chunk, and the rule that was broken."""

from array import array
from bisect import bisect_left
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.glibc import codes
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.free_lists import KIND_BITS, CachedChunks
from gdbheapx.glibc.geometry import align_chunk
from gdbheapx.kernel.common.records import (
    STOP_END,
    STOP_FENCE,
    STOP_MISALIGNED,
    STOP_MMAPPED_BIT,
    STOP_OVERRUN,
    STOP_SMALL,
    STOP_UNREADABLE,
)
from gdbheapx.kernel.glibc.records import WalkResult
from gdbheapx.problems import Code

KNOWN_AT_ONCE = 4096

_RULES: Dict[int, Tuple[Code, str]] = {
    STOP_SMALL: (codes.CHUNK_SMALL, "chunk size below MINSIZE"),
    STOP_MISALIGNED: (codes.CHUNK_MISALIGNED, "chunk size is not a multiple of MALLOC_ALIGNMENT"),
    STOP_MMAPPED_BIT: (codes.CHUNK_MMAPPED_BIT, "IS_MMAPPED is set on a chunk inside an arena"),
    STOP_OVERRUN: (codes.CHUNK_OVERRUN, "chunk reaches beyond the end of its heap or over the top chunk"),
    STOP_UNREADABLE: (codes.CHUNK_UNREADABLE, "cannot read memory of the heap"),
    STOP_FENCE: (codes.FENCEPOST_INSIDE, "a fencepost inside the heap"),
    STOP_END: (codes.NO_TOP, "the chunks end without a top chunk"),
}


class Damage(NamedTuple):
    """Where a run of chunks ended against the rules."""

    at: int
    end: int
    """End of the region."""
    top: int
    """The arena's top chunk, wherever it is."""


def damage_rule(context: Context, arena: Arena, result: WalkResult) -> Tuple[Code, str]:
    """The code, and one line: arena, rule, and the size field that was found."""
    geometry = context.glibc.geometry
    code, rule = _RULES[result.stop]
    field = context.target.read_prefix(result.at + geometry.word_bytes, geometry.word_bytes)
    if result.stop in (STOP_UNREADABLE, STOP_END) or len(field) < geometry.word_bytes:
        return code, "%s: %s" % (arena.title, rule)
    size = int.from_bytes(field, context.target.byte_order)
    return code, "%s: %s (size field 0x%x)" % (arena.title, rule, size)


def next_start(context: Context, damage: Damage, cached_chunks: CachedChunks, members: Sequence[int]) -> Optional[int]:
    """The lowest address behind the damage from which chunk sizes lead exactly onto a chunk known from elsewhere.

    Such chunks are those on free lists and top. None if there is none before the region's end: then the rest is lost.
    """
    geometry, word = context.glibc.geometry, context.glibc.geometry.word_bytes
    low = align_chunk(damage.at + 1, geometry)
    for known in _known_behind(damage, cached_chunks.chunks, members):
        ordered = array("Q", [chunk for chunk in known if align_chunk(chunk, geometry) == chunk])
        for number, anchor in enumerate(ordered):
            if len(context.target.read_prefix(anchor, 2 * word)) < 2 * word:
                continue
            found = context.walker.find_chain(low, anchor, ordered[number:])
            return anchor if found is None else found
        if context.budget.expired():
            break
    return None


def _known_behind(damage: Damage, cached_chunks: Sequence[int], members: Sequence[int]) -> Iterator[List[int]]:
    """Known chunks behind the damage in ascending lots: the next ones are nearly always enough, and there may be millions."""
    at = damage.at
    while at < damage.end:
        lots = [known[place : place + KNOWN_AT_ONCE] for known in (cached_chunks, members) for place in [bisect_left(known, at + 8)]]
        full = [int(lot[-1]) & ~KIND_BITS for lot in lots if len(lot) == KNOWN_AT_ONCE]
        until = min([*full, damage.end - 1])
        found = {int(chunk) & ~KIND_BITS for lot in lots for chunk in lot}
        found.update([damage.top] if damage.top else ())
        yield sorted(chunk for chunk in found if at < chunk <= until)
        at = until if full else damage.end
