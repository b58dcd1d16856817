"""The page map of mimalloc's release 3, its pages and their arenas (page-map.c, arena.c, bitmap.h)."""

import struct
from array import array
from bisect import bisect_right
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.mimalloc import codes
from gdbheapx.addons.allocators.mimalloc.layouts import SLICE_BYTES, Form
from gdbheapx.addons.allocators.mimalloc.native_records import MI_METADATA, MI_RETURNED, MI_SPAN
from gdbheapx.addons.allocators.mimalloc.pages import CHUNK_BITS, Collector, Found, Piece, Segment, word
from gdbheapx.inferior.base import Target

PART_WORDS = 8192
"""Of a part of the page map."""
FIRST_BYTES = 2 << 20
MEMID = struct.Struct("<QIII")
"""mi_memid_s of release 3: an arena, the first slice there, and how many (of memory that is the OS's directly: its begin, and its bytes in
the next two); then the kind."""
ARENA_KIND, OS_KINDS = 7, (4, 5, 6)
MOST_PAGES = 1 << 22
"""Of one copy, 256 GiB of the smallest: more is damage."""
MOST_ARENAS = 160
RUN_BYTES, GAP_BYTES = 1 << 20, 4096
"""Longest read of several structs at once; and what lies between two of them at most."""


def structs(target: Target, addresses: Sequence[int], size: int) -> Dict[int, bytes]:
    """The bytes of structs, by address; those close to each other are read together. What cannot be read is missing."""
    found: Dict[int, bytes] = {}
    run: List[int] = []
    for address in [*sorted(addresses), 1 << 64]:
        if run and (address - run[-1] - size > GAP_BYTES or address + size - run[0] > RUN_BYTES):
            data = target.read_prefix(run[0], run[-1] + size - run[0])
            for one in run:
                part = data[one - run[0] : one - run[0] + size]
                part = part if len(part) == size else target.read_prefix(one, size)
                if len(part) == size:
                    found[one] = part
            run = []
        run.append(address)
    return found


def first_level(target: Target, page_map: int) -> int:
    """How long the first level of the page map is: the part for the lowest addresses follows; 0: it is none."""
    data = target.read_prefix(page_map, 8)
    size = word(data, 0) - page_map if len(data) == 8 else 0
    return size if 4096 <= size <= FIRST_BYTES and not size & (size - 1) else 0


def words_in(target: Target, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Place and value of words that are not 0, of what was ever touched."""
    ranges = target.touched_ranges(start, end) if target.kind != "remote" else [(start, end)]
    for low, high in ranges:
        data = target.read_prefix(low, high - low)
        for place, value in enumerate(array("Q", data[: len(data) & -8])):
            if value:
                yield low + 8 * place, value


def read(target: Target, form: Form, page_map: int, never_purges: bool = False) -> Found:
    """All of a copy of release 3. `never_purges`: its options forbid that free slices are returned."""
    made, size = Collector(target, form), first_level(target, page_map)
    parts: Set[int] = {part for _, part in words_in(target, page_map, page_map + size) if part % 8 == 0 and part < 1 << 47}
    addresses: Set[int] = set()
    for part in sorted(parts):
        words = words_in(target, part, part + 8 * PART_WORDS)
        addresses.update(value for place, value in words if place != page_map + size)  # that of address 0: in 3.0 it leads to an empty page
        made.reserved.append((part, part + 8 * PART_WORDS))
        if len(addresses) > MOST_PAGES:
            made.tell(codes.MAP_WRONG, part, "the page map has more pages than memory could hold")
            break
    made.reserved.append((page_map, page_map + size))
    read = structs(target, [address for address in addresses if address % 8 == 0 and address < 1 << 47], form.page.bytes)
    if form.arena is not None and form.arena.pages is not None:
        read = _standing(made, read)
        addresses = set(read)
    for address in addresses - read.keys():
        made.tell(codes.PAGE_UNREADABLE, address, "a page of the page map cannot be read")
    arenas: Dict[int, List[Tuple[int, int]]] = {}
    for address in sorted(read):
        _mapped(made, read[address], address, arenas)
    _arenas(made, arenas, never_purges)
    return made.found()


def _standing(made: Collector, read: Dict[int, bytes]) -> Dict[int, bytes]:
    """Those that are pages yet: release 3.0.1 leaves words of freed pages in its page map. An arena's bitmap tells which
    pages it has. What lies outside of all arenas and does not look like a page was one, and its memory was returned."""
    places, target, memids = made.form.arena, made.target, {}
    assert places is not None and places.pages is not None and made.form.page.memid is not None
    for address, data in read.items():
        memids[address] = MEMID.unpack_from(data, made.form.page.memid)
    here = {first for address, (first, index, _, kind) in memids.items() if kind == ARENA_KIND and address == first + index * SLICE_BYTES}
    arenas: List[Tuple[int, int, int]] = []
    for arena in sorted(here):
        slices, _ = arena_slices(target, made.form, arena)
        begun = _bitmap(target, word(target.read_prefix(arena + places.pages, 8), 0), slices, 128) if slices else None
        if begun is not None:
            arenas.append((arena, arena + slices * SLICE_BYTES, begun))
    starts, kept = [start for start, _, _ in arenas], {}
    for address, (_, _, _, kind) in memids.items():
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < arenas[at][1]:
            start, _, begun = arenas[at]
            is_one = bool(begun >> (address - start) // SLICE_BYTES & 1)
        else:
            is_one = kind == ARENA_KIND or kind in OS_KINDS
        if is_one:
            kept[address] = read[address]
    return kept


def _mapped(made: Collector, data: bytes, address: int, arenas: Dict[int, List[Tuple[int, int]]]) -> None:
    """A page of the page map, and the slices that it has of an arena."""
    places = made.form.page
    assert places.memid is not None
    first, index, count, kind = MEMID.unpack_from(data, places.memid)
    if kind == ARENA_KIND:
        memory, end, arena = first + index * SLICE_BYTES, first + (index + count) * SLICE_BYTES, first
    elif kind in OS_KINDS:
        memory, end, arena = first, first + index + (count << 32), 0
    else:
        made.tell(codes.PAGE_WRONG, address, "a page has memory of no known kind")
        return
    if not memory < end < 1 << 47 or memory % 4096:
        made.tell(codes.PAGE_WRONG, address, "a page has memory that cannot be")
        return
    page = made.page(data, 0, address, memory, end, 0, arena)
    if page is None:
        return
    made.pages.append(page)
    if arena:
        arenas.setdefault(arena, []).append(((memory - arena) // SLICE_BYTES, (end - arena) // SLICE_BYTES))
    else:
        made.reserved.append((memory, end))


def _arenas(made: Collector, known: Dict[int, List[Tuple[int, int]]], never_purges: bool) -> None:
    """All arenas of the subprocess that those which have pages belong to."""
    places, target = made.form.arena, made.target
    assert places is not None
    addresses = set(known)
    subprocesses = {word(target.read_prefix(arena + places.subproc, 8), 0) for arena in known}
    for subprocess in subprocesses:
        data = target.read_prefix(subprocess + places.subproc_arenas, 8 * MOST_ARENAS)
        listed = set(array("Q", data[: len(data) & -8])) - {0}
        if listed & known.keys():
            addresses |= {arena for arena in listed if arena % SLICE_BYTES == 0}
    for arena in sorted(addresses):
        _arena(made, arena, known.get(arena, []), never_purges)


def arena_slices(target: Target, form: Form, arena: int) -> Tuple[int, int]:
    """How many slices an arena has, and how many of them are its own; (0, 0): it is none."""
    places = form.arena
    assert places is not None
    head = target.read_prefix(arena, 160)
    if len(head) < 160:
        return 0, 0
    slices, info = word(head, places.slice_count), word(head, places.info_slices)
    return (slices, info) if 0 < info < slices <= 1 << 24 else (0, 0)


def _arena(made: Collector, arena: int, pages: List[Tuple[int, int]], never_purges: bool) -> None:
    places, target = made.form.arena, made.target
    assert places is not None
    slices, info = arena_slices(target, made.form, arena)
    if not slices or arena + slices * SLICE_BYTES >= 1 << 47:
        made.tell(codes.ARENA_WRONG, arena, "an arena does not tell how long it is")
        return
    head = target.read_prefix(arena, 160)
    offsets = (places.slices_free, places.slices_committed, places.slices_dirty, places.slices_purge)
    maps = [_bitmap(target, word(head, offset), slices, places.free_chunks if offset == places.slices_free else 128) for offset in offsets]
    made.reserved.append((arena, arena + slices * SLICE_BYTES))
    if None in maps:
        made.tell(codes.ARENA_WRONG, arena, "an arena's bitmaps cannot be read")
    free, committed, dirty, purge = (one or 0 for one in maps)
    whole = (1 << slices) - 1
    taken = 0
    for low, high in pages:
        taken |= ((1 << (high - low)) - 1) << low
    is_pinned = bool(head[20]) or never_purges
    kept = committed & dirty if is_pinned else committed & dirty & purge
    sorts = (whole & ~free & ~taken, MI_METADATA), (free & ~taken & kept, MI_SPAN), (whole & free & ~taken & ~kept, MI_RETURNED)
    for mask, kind in sorts:
        made.pieces += [
            Piece(arena + low * SLICE_BYTES, arena + high * SLICE_BYTES, kind, None, is_pinned and kind == MI_SPAN)
            for low, high in runs_of(mask)
        ]
    if free & taken:
        low = (free & taken & -(free & taken)).bit_length() - 1
        made.tell(codes.ARENA_SLICES, arena + low * SLICE_BYTES, "a slice of a page counts as free in its arena")
    made.segments.append(Segment(arena, arena + slices * SLICE_BYTES, 0, 0, 0, len(pages)))


def _bitmap(target: Target, address: int, bits: int, chunks: int) -> Optional[int]:
    size = (bits + CHUNK_BITS - 1) // CHUNK_BITS * (CHUNK_BITS // 8)
    if not 0 < address < 1 << 47 or word(target.read_prefix(address, 8), 0) * (CHUNK_BITS // 8) != size:
        return None
    data = target.read_prefix(address + chunks, size)
    return int.from_bytes(data, "little") & ((1 << bits) - 1) if len(data) == size else None


def runs_of(mask: int) -> Iterator[Tuple[int, int]]:
    """Where bits are set: first and end of each run."""
    at = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        at += skip
        length = (~mask & (mask + 1)).bit_length() - 1
        yield at, at + length
        mask >>= length
        at += length
