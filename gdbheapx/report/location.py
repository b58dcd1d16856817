"""What `whatis` shows."""

from typing import Any, Iterator, Optional, Sequence

from gdbheapx.allocators.places import Neighbour, Part, Place
from gdbheapx.analysis.locate import Location
from gdbheapx.command import Style
from gdbheapx.units import Size, plain_form, say

LEAKED = "leaked"
"""In the words of a holder: there is none."""


def text(style: Style, location: Location) -> Iterator[str]:
    """A line for each thing that is known."""
    for line in _lines(location):
        yield plain_form(line) if style.plain_bytes else str(line)


def _lines(location: Location) -> Iterator[Any]:
    if location.used is not None:
        used = location.used
        yield say("%s: offset %d in block %s, %s usable, in use", location.address, used.offset, used.address, Size(used.usable_bytes))
    for place in location.places:
        yield from _place(location.address, place)
    if location.piece is not None:
        piece = location.piece
        if piece.address is None:
            yield "%s: in memory of %s (%s), in no block that it has handed out" % (location.address, piece.module, piece.name)
        else:
            text_ = "%s: offset %d in block %s of %s (%s), %s usable, in use"
            yield say(text_, location.address, piece.offset, piece.address, piece.module, piece.name, Size(piece.usable_bytes))
    if location.signature is not None:
        yield "  type      %s" % location.signature
    if location.held_by is not None:
        held = location.held_by
        by, words = ", by %s" % held.by if held.by is not None else "", held.words()
        yield "  held by   %s%s" % ("nothing (leaked)" if words == LEAKED else words, by)
        if held.element is not None:
            yield "  as        %s" % held.element
    if location.thread is not None:
        who = location.thread.name or "unnamed"
        yield "%s: %s of thread %d (%s), offset %+d" % (
            location.address,
            location.thread.what,
            location.thread.lwp,
            who,
            location.thread.offset,
        )
    if location.named is not None:
        named = location.named
        symbol = ", symbol %s+0x%x" % (named.symbol, named.symbol_offset or 0) if named.symbol is not None else ""
        yield "%s: in %s at offset 0x%x%s" % (location.address, named.module, named.module_offset, symbol)
    if location.mapping is None and location.used is None:
        yield "%s: nothing is mapped at this address" % location.address
    elif not location.places and location.used is None and location.piece is None and location.thread is None and location.named is None:
        yield "%s: in no heap, stack or object" % location.address
    if location.mapping is not None:
        mapping = location.mapping
        at = ", file offset 0x%x" % mapping.file_offset if mapping.file_offset is not None else ""
        yield "  mapping   %s-%s %s %s%s" % (mapping.start, mapping.end, mapping.permissions, mapping.name or "anonymous", at)


def _place(address: object, place: Place) -> Iterator[Any]:
    arena = ", arena %d" % place.arena if place.arena is not None else ""
    if place.block is None:
        yield "%s: in %s's memory%s, in no block" % (address, place.allocator, arena)
    else:
        offset = place.offset or 0
        where = "offset %d" % offset if offset >= 0 else "in its header, offset %d" % offset
        block, usable = place.block, Size(place.block.usable_bytes)
        yield say(
            "%s: %s in %s%s: block %s of %s, %s usable",
            address,
            where,
            place.allocator,
            arena,
            block.address,
            Size(block.size_bytes),
            usable,
        )
        yield "  status    %s" % block.status
    yield from _parts(place.parts)
    yield from _neighbour("previous", place.previous)
    yield from _neighbour("next", place.next)


def _parts(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        span = "" if part.start is None else " at %s" % part.start if part.end is None else " %s-%s" % (part.start, part.end)
        yield "  %-9s %s%s" % (part.kind, part.name, span)


def _neighbour(which: str, neighbour: Optional[Neighbour]) -> Iterator[Any]:
    if neighbour is not None:
        yield say("  %s %s of %s, %s", which.ljust(9), neighbour.address, Size(neighbour.size_bytes), neighbour.status)
