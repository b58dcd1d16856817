"""What `whatis` shows."""

from typing import Any, Iterator, Optional, Sequence

from gdbheapx.allocators.places import Neighbour, Part, Place
from gdbheapx.analysis.locate import Location
from gdbheapx.command import Style
from gdbheapx.units import Size, plain_form, say


def text(style: Style, found: Location) -> Iterator[str]:
    """A line for each thing that is known."""
    for line in _lines(found):
        yield plain_form(line) if style.plain_bytes else str(line)


def _lines(found: Location) -> Iterator[Any]:
    if found.used is not None:
        used = found.used
        yield say("%s: offset %d in block %s, %s usable, in use", found.address, used.offset, used.address, Size(used.usable_bytes))
    for place in found.places:
        yield from _place(found.address, place)
    if found.piece is not None:
        piece = found.piece
        if piece.address is None:
            yield "%s: in memory of %s (%s), in no block that it has handed out" % (found.address, piece.module, piece.name)
        else:
            text_ = "%s: offset %d in block %s of %s (%s), %s usable, in use"
            yield say(text_, found.address, piece.offset, piece.address, piece.module, piece.name, Size(piece.usable_bytes))
    if found.signature is not None:
        yield "  what      %s" % found.signature
    if found.held_by is not None:
        held = found.held_by
        by = ", by %s" % held.by if held.by is not None else ""
        yield "  held by   %s%s" % (held.words(), by)
    if found.thread is not None:
        who = found.thread.name or "unnamed"
        yield "%s: %s of thread %d (%s), offset %+d" % (found.address, found.thread.what, found.thread.lwp, who, found.thread.offset)
    if found.named is not None:
        named = found.named
        symbol = ", symbol %s+0x%x" % (named.symbol, named.symbol_offset or 0) if named.symbol is not None else ""
        yield "%s: in %s at offset 0x%x%s" % (found.address, named.module, named.module_offset, symbol)
    if found.mapping is None and found.used is None:
        yield "%s: nothing is mapped at this address" % found.address
    elif not found.places and found.used is None and found.piece is None and found.thread is None and found.named is None:
        yield "%s: in no heap, stack or object" % found.address
    if found.mapping is not None:
        mapping = found.mapping
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


def _neighbour(which: str, one: Optional[Neighbour]) -> Iterator[Any]:
    if one is not None:
        yield say("  %s %s of %s, %s", which.ljust(9), one.address, Size(one.size_bytes), one.status)
