"""Segments of mimalloc's releases 1 and 2, and the pages in them (segment.c)."""

from bisect import bisect_right
from typing import Iterable, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.mimalloc import codes
from gdbheapx.addons.allocators.mimalloc.layouts import BYTE, HALF, SEGMENT_BYTES, SLICE_BYTES, Form, Place, SegmentPlaces
from gdbheapx.addons.allocators.mimalloc.native_records import MI_METADATA, MI_RETURNED, MI_SPAN
from gdbheapx.addons.allocators.mimalloc.pages import LARGEST, Collector, Found, Piece, Segment, bits_of, number, word
from gdbheapx.inferior.base import Target
from gdbheapx.ranges import Range, subtract, union
from gdbheapx.units import plural

CHOSEN = 2 << 40, 30 << 40
"""Where mimalloc asks the OS for aligned memory (os.c: MI_HINT_BASE, MI_HINT_MAX)."""


def read(target: Target, form: Form, key: int, addresses: Iterable[int], spoilt: Sequence[int] = ()) -> Found:
    """All of a copy of release 1 or 2; `addresses`: where its segments may begin; `spoilt`: where one does whose cookie is another."""
    made, places = Collector(target, form), form.segment
    assert places is not None
    end, stale = 0, []
    for address in sorted(addresses):
        head = target.read_prefix(address, places.pages)
        if len(head) < places.pages or word(head, places.cookie) ^ address != key:
            continue
        if not word(head, places.used):
            stale.append((address, head))
        elif address < end:
            made.tell(codes.SEGMENT_WRONG, address, "a segment begins inside another")
        else:
            end = (_sliced if places.page_shift is None else _of_one_kind)(made, places, address, head)
    for address in spoilt:
        made.tell(codes.SEGMENT_WRONG, address, "what looks like a segment has another cookie")
    _stale(made, places, stale)
    _reserve(made, places, [(address, address + SEGMENT_BYTES[form.line]) for address in spoilt])
    return made.found()


def _reserve(made: Collector, places: SegmentPlaces, spoilt: Sequence[Range]) -> None:
    """The arenas that segments lie in, as whole mappings where mimalloc has chosen the address: nobody else's memory is next to it. What no
    segment has of them was returned, or never used."""
    starts: Set[int] = set()
    for segment in made.segments if places.memid is not None else ():
        memid, head = places.memid, made.target.read_prefix(segment.address, 24)
        assert memid is not None
        if number(head, Place(memid.kind, HALF)) == memid.in_arena:
            start = segment.address - word(head, memid.block_index) * SEGMENT_BYTES[2]
            starts.update([start] if CHOSEN[0] <= start < CHOSEN[1] else [])
    taken = union([*made.reserved, *spoilt])
    for mapping in made.target.mappings() if starts else ():
        arenas = [(start, mapping.end) for start in sorted(starts) if mapping.start <= start < mapping.end]
        made.reserved += arenas
        made.pieces += [Piece(low, high, MI_RETURNED, None) for low, high in subtract(union(arenas), taken)]


def _stale(made: Collector, places: SegmentPlaces, stale: "Sequence[Tuple[int, bytes]]") -> None:
    """Segments without a page, which were given up and are kept for the next that is needed: what lies below one that is in use."""
    starts, end = sorted(segment.address for segment in made.segments), 0
    for address, head in stale:
        size = word(head, places.size) * (1 if places.page_shift is not None else SLICE_BYTES)
        at = bisect_right(starts, address)
        last = min(address + size, starts[at] if at < len(starts) else 1 << 47)
        if address < end or not address < last < 1 << 47 or _is_inside(made, address):
            continue
        made.reserved.append((address, last))
        made.pieces.append(Piece(address, last, MI_SPAN, None))
        end = last


def _is_inside(made: Collector, address: int) -> bool:
    return any(segment.address <= address < segment.end for segment in made.segments)


def _sliced(made: Collector, places: SegmentPlaces, address: int, head: bytes) -> int:
    """A segment of release 2; where it ends."""
    form, thread = made.form, word(head, places.thread_id)
    slices, info, entries = (word(head, offset) for offset in (places.size, places.info, places.entries))
    end = address + slices * SLICE_BYTES
    assert places.kind is not None
    is_huge = word(head, places.kind) & 0xFFFFFFFF == 1
    if not 0 < info <= entries <= places.slices + 1 or entries > slices or end >= 1 << 47:
        what = "a segment has %d slices, %d of them its own and %d listed" % (slices, info, entries)
        made.tell(codes.SEGMENT_WRONG, address, what, thread)
        return address + SLICE_BYTES
    size = form.page.bytes
    data = made.target.read_prefix(address + places.pages, entries * size)
    made.reserved.append((address, end))
    made.pieces.append(Piece(address, address + info * SLICE_BYTES, MI_METADATA, thread))
    masks = _masks(places, head)
    place, pages = info, 0
    while place < entries:
        at = place * size
        if len(data) < at + size:
            made.tell(codes.SEGMENT_UNREADABLE, address + places.pages + at, "the pages of a segment cannot be read", thread)
            break
        count, block = number(data, Place(0, HALF), at), number(data, form.page.block_bytes, at)
        memory = address + place * SLICE_BYTES
        last = end if is_huge and pages == 0 and block else min(memory + count * SLICE_BYTES, end)
        if not count or place + count > max(entries, slices):
            made.tell(codes.SLICES_WRONG, address + places.pages + at, "the slices of a segment do not add up", thread)
            break
        if block:
            page = made.page(data, at, address + places.pages + at, memory, last, thread, address)
            pages += 1
            if page is not None:
                made.pages.append(page)
            else:
                made.pieces.append(Piece(memory, last, MI_METADATA, thread))
        else:
            _spans(made, masks, address, place, count, thread)
        place += entries if is_huge and block else count
    made.segments.append(Segment(address, end, thread, word(head, places.used), word(head, places.abandoned), pages))
    return end


def _masks(places: SegmentPlaces, head: bytes) -> int:
    """Bit by slice: it is the process's, and waits to be returned."""
    assert places.commit_mask is not None and places.purge_mask is not None
    committed = bits_of(head, places.commit_mask, places.slices)
    if places.allow_purge is None:
        return committed
    return committed & bits_of(head, places.purge_mask, places.slices) if head[places.allow_purge] else committed


def _spans(made: Collector, mask: int, address: int, place: int, count: int, thread: Optional[int]) -> None:
    """Free slices, as pieces that are alike."""
    while count:
        is_kept = mask >> place & 1
        run = 1
        while run < count and mask >> (place + run) & 1 == is_kept:
            run += 1
        start = address + place * SLICE_BYTES
        made.pieces.append(Piece(start, start + run * SLICE_BYTES, MI_SPAN if is_kept else MI_RETURNED, thread))
        place, count = place + run, count - run


def _of_one_kind(made: Collector, places: SegmentPlaces, address: int, head: bytes) -> int:
    """A segment of release 1; where it ends."""
    form, thread = made.form, word(head, places.thread_id)
    assert places.page_shift is not None
    size, info, count, shift = (word(head, offset) for offset in (places.size, places.info, places.entries, places.page_shift))
    end = address + size
    if not 0 < info < size or size % 4096 or end >= 1 << 47 or not 0 < count <= 64 or (count > 1 and count << shift > SEGMENT_BYTES[1]):
        made.tell(codes.SEGMENT_WRONG, address, "a segment of %d bytes has %s" % (size, plural(count, "page")), thread)
        return address + SLICE_BYTES
    data = made.target.read_prefix(address + places.pages, count * form.page.bytes)
    made.reserved.append((address, end))
    made.pieces.append(Piece(address, address + info, MI_METADATA, thread))
    pages = 0
    for place in range(count):
        at = place * form.page.bytes
        if len(data) < at + form.page.bytes:
            made.tell(codes.SEGMENT_UNREADABLE, address + places.pages + at, "the pages of a segment cannot be read", thread)
            break
        memory = address + info if place == 0 else address + (place << shift)
        last = end if count == 1 else address + ((place + 1) << shift)
        flags = number(data, Place(1, BYTE), at)
        if not flags & 1:
            made.pieces.append(Piece(memory, last, MI_SPAN if flags & 2 else MI_RETURNED, thread))
            continue
        pages += 1
        shifted = memory
        if form.aligns_first and place == 0 and count > 1:
            block = number(data, form.page.block_bytes, at)
            more = block - memory % block if 0 < block < LARGEST else 0
            shifted = memory + (more if more < block and last - memory - more >= block else 0)
        page = made.page(data, at, address + places.pages + at, shifted, last, thread, address)
        if page is not None:
            made.pages.append(page._replace(memory=memory))
        else:
            made.pieces.append(Piece(memory, last, MI_METADATA, thread))
    made.segments.append(Segment(address, end, thread, word(head, places.used), word(head, places.abandoned), pages))
    return end
