"""mimalloc's pages: all blocks of one size that lie side by side. Found by segments (releases 1 and 2) or by the page map (release 3).

Everything that is read here may be damaged: what contradicts itself is told and left out, and the rest is whole.
"""

from array import array
from bisect import bisect_right
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.inferior.base import Target
from gdbheapx.kernel.mimalloc.records import MI_METADATA, MI_RETURNED, MI_SPAN
from gdbheapx.mimalloc import codes
from gdbheapx.mimalloc.layouts import BYTE, HALF, SEGMENT_BYTES, SHORT, SLICE_BYTES, Form, PagePlaces, Place, SegmentPlaces, first_block
from gdbheapx.problems import Code

MOST_SLICES = 512
"""Of a segment of release 2 that is not one huge page."""
LARGEST = 0x80000000
"""A block size of 2 GiB and more in a field of 32 bits: the page's memory tells it."""
OWNER_MASK = ~7
ABANDONED = (0, 4)
"""Thread ids of pages that no thread owns."""
PART_WORDS = 8192
"""Of a part of the page map."""
FIRST_BYTES = 2 << 20
MEMKIND, ARENA_KIND, OS_KINDS = 16, 7, (4, 5, 6)
"""mi_memid_s of release 3: where the kind stands, an arena's, and those of memory that is the OS's directly."""
MOST_PAGES = 1 << 22
"""Of one copy, 256 GiB of the smallest: more is damage."""
MOST_ARENAS = 160
CHOSEN = 2 << 40, 30 << 40
"""Where mimalloc asks the OS for aligned memory (os.c: MI_HINT_BASE, MI_HINT_MAX)."""
RUN_BYTES, GAP_BYTES = 1 << 20, 4096
"""Longest read of several structs at once; and what lies between two of them at most."""


class Page(NamedTuple):
    """struct mi_page_s, and what follows from it."""

    address: int
    """Of the struct."""
    memory: int
    end: int
    """Of all its memory."""
    start: int
    """Of the first block."""
    block_bytes: int
    capacity: int
    """Blocks that were ever handed out."""
    reserved: int
    """Blocks that there is room for."""
    used: int
    """Blocks in use, those freed by other threads included."""
    free: int
    local_free: int
    thread_free: int
    """Heads of its three lists."""
    heap: int
    thread: int
    """Thread pointer of the owner; 0: it has none."""
    has_aligned: bool
    """A block of it may have been handed out from an address inside."""
    keys: Tuple[int, int]
    segment: int
    """Of releases 1 and 2; of 3 the arena, or 0."""


class Piece(NamedTuple):
    """Memory that is no page's."""

    start: int
    end: int
    kind: int
    """MI_METADATA, MI_SPAN or MI_RETURNED."""
    thread: Optional[int]
    """Whose it is: as Page.thread; None: nobody's, or everybody's."""


class Segment(NamedTuple):
    """What was read of a segment's head, or an arena's."""

    address: int
    end: int
    thread: int
    used: int
    abandoned: int
    pages: int
    """That were found."""


class Broken(NamedTuple):
    """Something that cannot be so."""

    code: Code
    address: int
    what: str
    thread: Optional[int] = None


class Found(NamedTuple):
    """All of one copy."""

    pages: List[Page]
    """By address."""
    pieces: List[Piece]
    segments: List[Segment]
    broken: List[Broken]
    reserved: List[Tuple[int, int]]
    """Address space that it holds: segments, arenas, pages of their own, the page map."""


def number(data: bytes, place: Place, at: int = 0) -> int:
    """A member of the struct that begins at `at`."""
    return int.from_bytes(data[at + place.offset : at + place.offset + place.bytes], "little")


def word(data: bytes, offset: int) -> int:
    """A word."""
    return int.from_bytes(data[offset : offset + 8], "little")


def bits_of(data: bytes, offset: int, count: int = MOST_SLICES) -> int:
    """A mask of that many bits, as one number."""
    return int.from_bytes(data[offset : offset + count // 8], "little")


class _Collector:
    """What reading one copy gives, as it is found."""

    def __init__(self, target: Target, form: Form) -> None:
        self.target, self.form = target, form
        self.pages: List[Page] = []
        self.pieces: List[Piece] = []
        self.segments: List[Segment] = []
        self.broken: List[Broken] = []
        self.reserved: List[Tuple[int, int]] = []

    def tell(self, code: Code, address: int, what: str, thread: Optional[int] = None) -> None:
        self.broken.append(Broken(code, address, what, thread))

    def page(self, data: bytes, at: int, address: int, memory: int, end: int, thread: int, segment: int) -> Optional[Page]:
        """The page whose struct begins at `at`; None, and told, where it contradicts itself."""
        places = self.form.page
        block = number(data, places.block_bytes, at)
        start = self._start(places, data, at, address, memory, block)
        if places.block_bytes.bytes == HALF and block >= LARGEST:
            block = end - start
        if places.owner is not None:
            thread = word(data, at + places.owner) & OWNER_MASK
        thread = 0 if thread in ABANDONED else thread
        keys = (word(data, at + places.keys), word(data, at + places.keys + 8)) if self.form.is_encoded else (0, 0)
        page = Page(
            address=address,
            memory=memory,
            end=end,
            start=start,
            block_bytes=block,
            capacity=number(data, Place(places.capacity, SHORT), at),
            reserved=number(data, Place(places.reserved, SHORT), at),
            used=number(data, places.used, at),
            free=word(data, at + places.free),
            local_free=word(data, at + places.local_free),
            thread_free=word(data, at + places.xthread_free) & ~self.form.tag_mask,
            heap=word(data, at + places.heap),
            thread=thread,
            has_aligned=bool(data[at + places.flags] & 2),
            keys=keys,
            segment=segment,
        )
        wrong = contradiction(page) or self._unowned(page, word(data, at + places.xthread_free))
        if wrong is not None:
            self.tell(codes.PAGE_WRONG, address, "a page %s" % wrong, thread)
            return None
        return page

    def _unowned(self, page: Page, thread_free: int) -> Optional[str]:
        """What a page of release 3 says of being owned: the lowest bit of its list of what others free."""
        return "is a thread's, and its list is marked as nobody's" if self.form.line == 3 and page.thread and not thread_free & 1 else None

    def _start(self, places: PagePlaces, data: bytes, at: int, address: int, memory: int, block: int) -> int:
        if places.start is not None:
            return word(data, at + places.start)
        if places.start_words is not None:
            return address + 8 * number(data, Place(places.start_words, HALF), at)
        return memory + first_block(self.form, block)


def contradiction(page: Page) -> Optional[str]:
    """What cannot be so of a page; None: it may be one."""
    block = page.block_bytes
    if block < 8 or block % 8 or page.start % 8:
        return "has blocks of %d bytes at 0x%x" % (block, page.start)
    if not page.used <= page.capacity <= page.reserved:
        return "counts %d blocks in use, %d handed out, and room for %d" % (page.used, page.capacity, page.reserved)
    if not page.memory <= page.start or page.start + page.reserved * block > page.end:
        return "has blocks outside its memory"
    if page.reserved > 1 and page.reserved != (page.end - page.start) // block:
        return "has room for %d blocks, and counts %d" % ((page.end - page.start) // block, page.reserved)
    for head in (page.free, page.local_free, page.thread_free):
        if head and not page.keys[0] and ((head - page.start) % block or not 0 <= (head - page.start) // block < page.capacity):
            return "has a list that begins outside its blocks"
    return None


def read_segments(target: Target, form: Form, key: int, addresses: Iterable[int], spoilt: Iterable[int] = ()) -> Found:
    """All of a copy of release 1 or 2; `addresses`: where its segments may begin; `spoilt`: where one does whose cookie is another."""
    made, places = _Collector(target, form), form.segment
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
    _reserve(made, places)
    return _found(made)


def _reserve(made: _Collector, places: SegmentPlaces) -> None:
    """The arenas that segments lie in, as whole mappings where mimalloc has chosen the address: nobody else's memory is next to it."""
    starts: Set[int] = set()
    for segment in made.segments if places.memid is not None else ():
        memid, head = places.memid, made.target.read_prefix(segment.address, 24)
        assert memid is not None
        if number(head, Place(memid.kind, HALF)) == memid.in_arena:
            start = segment.address - word(head, memid.block_index) * SEGMENT_BYTES[2]
            starts.update([start] if CHOSEN[0] <= start < CHOSEN[1] else [])
    for mapping in made.target.mappings() if starts else ():
        made.reserved += [(start, mapping.end) for start in starts if mapping.start <= start < mapping.end]


def _stale(made: _Collector, places: SegmentPlaces, stale: "Sequence[Tuple[int, bytes]]") -> None:
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


def _is_inside(made: _Collector, address: int) -> bool:
    return any(segment.address <= address < segment.end for segment in made.segments)


def _sliced(made: _Collector, places: SegmentPlaces, address: int, head: bytes) -> int:
    """A segment of release 2; where it ends."""
    form, thread = made.form, word(head, places.thread_id)
    slices, info, entries = (word(head, offset) for offset in (places.size, places.info, places.entries))
    end = address + slices * SLICE_BYTES
    assert places.kind is not None
    is_huge = word(head, places.kind) & 0xFFFFFFFF == 1
    if not 0 < info <= entries <= MOST_SLICES + 1 or entries > slices or end >= 1 << 47:
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
    committed = bits_of(head, places.commit_mask)
    if places.allow_purge is None:
        return committed
    return committed & bits_of(head, places.purge_mask) if head[places.allow_purge] else committed


def _spans(made: _Collector, mask: int, address: int, place: int, count: int, thread: Optional[int]) -> None:
    """Free slices, as pieces that are alike."""
    while count:
        is_kept = mask >> place & 1
        run = 1
        while run < count and mask >> (place + run) & 1 == is_kept:
            run += 1
        start = address + place * SLICE_BYTES
        made.pieces.append(Piece(start, start + run * SLICE_BYTES, MI_SPAN if is_kept else MI_RETURNED, thread))
        place, count = place + run, count - run


def _of_one_kind(made: _Collector, places: SegmentPlaces, address: int, head: bytes) -> int:
    """A segment of release 1; where it ends."""
    form, thread = made.form, word(head, places.thread_id)
    assert places.page_shift is not None
    size, info, count, shift = (word(head, offset) for offset in (places.size, places.info, places.entries, places.page_shift))
    end = address + size
    if not 0 < info < size or size % 4096 or end >= 1 << 47 or not 0 < count <= 64 or (count > 1 and count << shift > SEGMENT_BYTES[1]):
        made.tell(codes.SEGMENT_WRONG, address, "a segment of %d bytes has %d pages" % (size, count), thread)
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


def read_page_map(target: Target, form: Form, page_map: int) -> Found:
    """All of a copy of release 3."""
    made, size = _Collector(target, form), first_level(target, page_map)
    parts: Set[int] = {part for _, part in words_in(target, page_map, page_map + size) if part % 8 == 0 and part < 1 << 47}
    addresses: Set[int] = set()
    for part in sorted(parts):
        addresses.update(value for _, value in words_in(target, part, part + 8 * PART_WORDS))
        made.reserved.append((part, part + 8 * PART_WORDS))
        if len(addresses) > MOST_PAGES:
            made.tell(codes.MAP_WRONG, part, "the page map has more pages than memory could hold")
            break
    made.reserved.append((page_map, page_map + size))
    read = structs(target, [address for address in addresses if address % 8 == 0 and address < 1 << 47], form.page.bytes)
    for address in addresses - read.keys():
        made.tell(codes.PAGE_UNREADABLE, address, "a page of the page map cannot be read")
    arenas: Dict[int, List[Tuple[int, int]]] = {}
    for address in sorted(read):
        _mapped(made, read[address], address, arenas)
    _arenas(made, arenas)
    return _found(made)


def _mapped(made: _Collector, data: bytes, address: int, arenas: Dict[int, List[Tuple[int, int]]]) -> None:
    """A page of the page map, and the slices that it has of an arena."""
    places = made.form.page
    assert places.memid is not None
    kind, first, second = word(data, places.memid + MEMKIND) & 0xFFFFFFFF, word(data, places.memid), word(data, places.memid + 8)
    if kind == ARENA_KIND:
        index, count = second & 0xFFFFFFFF, second >> 32
        memory, end, arena = first + index * SLICE_BYTES, first + (index + count) * SLICE_BYTES, first
    elif kind in OS_KINDS:
        memory, end, arena = first, first + second, 0
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


def _arenas(made: _Collector, known: Dict[int, List[Tuple[int, int]]]) -> None:
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
        _arena(made, arena, known.get(arena, []))


def arena_slices(target: Target, form: Form, arena: int) -> Tuple[int, int]:
    """How many slices an arena has, and how many of them are its own; (0, 0): it is none."""
    places = form.arena
    assert places is not None
    head = target.read_prefix(arena, 160)
    if len(head) < 160:
        return 0, 0
    slices, info = word(head, places.slice_count), word(head, places.info_slices)
    return (slices, info) if 0 < info < slices <= 1 << 24 else (0, 0)


def _arena(made: _Collector, arena: int, pages: List[Tuple[int, int]]) -> None:
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
    is_pinned = head[20]
    kept = committed & dirty if is_pinned else committed & dirty & purge
    sorts = (whole & ~free & ~taken, MI_METADATA), (free & ~taken & kept, MI_SPAN), (whole & free & ~taken & ~kept, MI_RETURNED)
    for mask, kind in sorts:
        made.pieces += [Piece(arena + low * SLICE_BYTES, arena + high * SLICE_BYTES, kind, None) for low, high in runs_of(mask)]
    if free & taken:
        low = (free & taken & -(free & taken)).bit_length() - 1
        made.tell(codes.ARENA_SLICES, arena + low * SLICE_BYTES, "a slice of a page counts as free in its arena")
    made.segments.append(Segment(arena, arena + slices * SLICE_BYTES, 0, 0, 0, len(pages)))


def _bitmap(target: Target, address: int, bits: int, chunks: int) -> Optional[int]:
    size = (bits + MOST_SLICES - 1) // MOST_SLICES * (MOST_SLICES // 8)
    if not 0 < address < 1 << 47 or word(target.read_prefix(address, 8), 0) * (MOST_SLICES // 8) != size:
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


def _found(made: _Collector) -> Found:
    """By address, without what lies across another."""
    pages: List[Page] = []
    end = 0
    for page in sorted(made.pages, key=lambda page: (page.memory, page.address)):
        if page.memory < end:
            made.tell(codes.PAGES_OVERLAP, page.address, "a page lies across another", page.thread)
            continue
        pages.append(page)
        end = page.end
    return Found(pages, made.pieces, made.segments, made.broken, made.reserved)
