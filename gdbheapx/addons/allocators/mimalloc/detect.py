"""Find every mimalloc in a target by its texts and structures, and read its pages and options.

Releases 1 and 2: a segment's cookie is its address mixed with a random number in the main heap, in the object's data. Release
3: a word of the data leads to the page map, whose first word leads to its own end. Nothing else looks so, and an object that holds no text
of mimalloc's is never searched."""

import struct
from array import array
from bisect import bisect_right
from functools import cache
from itertools import islice
from operator import itemgetter
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.gates import MI_HINT
from gdbheapx.addons.allocators.mimalloc import codes
from gdbheapx.addons.allocators.mimalloc.layouts import (
    BYTE,
    HALF,
    IN_ARENA,
    MEMID_BLOCK_INDEX,
    MEMID_KIND,
    SEGMENT_BYTES,
    SHORT,
    SLICE_BYTES,
    WORD,
    FieldPlace,
    MimallocForm,
    SegmentPlaces,
    find_first_block,
    list_forms,
)
from gdbheapx.addons.allocators.mimalloc.records import MI_METADATA, MI_RETURNED, MI_SPAN
from gdbheapx.allocators.records import Instances, NotRead, Page
from gdbheapx.common.columns import TEXT, Column, ColumnsTable
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import ProblemCode
from gdbheapx.common.ranges import Range, subtract_ranges, unite_ranges
from gdbheapx.common.units import SentenceSize, count_noun, make_sentence
from gdbheapx.inferior.base import Module, Target

OPTION_STRUCT = struct.Struct("<qIIQQ")
"""value, init, option (its own index), name, legacy_name."""
OPTION_WORDS = OPTION_STRUCT.size // 8
STATES, IS_SET = 3, 2
"""mi_init_t: not read yet, default, set."""
PROVEN, MOST = 16, 128
"""So many elements in a row count up; more options than any release has."""
FIRST_OPTION = b"show_errors\0"
OPTION_NAME_BYTES = 64
DELAYS = ("purge_delay", "decommit_delay", "reset_delay")
"""In ms, as the releases call it, the newest first; -1: never."""
RESETS = ("purge_decommits", "allow_decommit")
"""0: free pages are given to MADV_FREE."""


class MimallocOption(NamedTuple):
    """An option as mimalloc uses it."""

    name: str
    value: int
    is_set: bool
    """By the environment or mi_option_set(); else this is the release's default."""


class MimallocTunables(NamedTuple):
    """The options of one mimalloc."""

    tunables: Optional[List[MimallocOption]]
    """None where their array was not found, or cannot be read."""


def find_options(target: Target, words: "Iterable[Tuple[int, array[int]]]") -> Optional[int]:
    """Return the address of the array of options in an object's data, or None."""
    keys = {(PROVEN - 1) << 32 | state for state in range(STATES)}
    for base, data in words:
        if not keys.isdisjoint(data):
            for at in [at for at, word in enumerate(data) if word in keys]:
                first = at - 1 - (PROVEN - 1) * OPTION_WORDS
                seconds = data[first + 1 : at + 1 : OPTION_WORDS] if first >= 0 else ()
                is_one = seconds and all(word >> 32 == place and word & 0xFFFFFFFF < STATES for place, word in enumerate(seconds))
                if is_one and target.read_prefix(data[first + 2], len(FIRST_OPTION)) == FIRST_OPTION:
                    return base + 8 * first
    return None


def read_mimalloc_options(target: Target, place: Optional[int]) -> Optional[List[MimallocOption]]:
    """Return the options of the array at `place`; none without one, or where a name cannot be read."""
    data, found = target.read_prefix(place, MOST * OPTION_STRUCT.size) if place is not None else b"", []
    for index in range(len(data) // OPTION_STRUCT.size):
        value, state, option, name, _ = OPTION_STRUCT.unpack_from(data, index * OPTION_STRUCT.size)
        if option != index or state >= STATES:
            break
        text, end, _ = target.read_prefix(name, OPTION_NAME_BYTES).partition(b"\0")
        if not end or not text.isascii():
            return None
        found.append(MimallocOption(text.decode(), value, state == IS_SET))
    return found or None


def map_options(options: Optional[Iterable[MimallocOption]]) -> Mapping[str, int]:
    """Values by name; empty where they are not known."""
    return {option.name: option.value for option in options or ()}


_OPTION_COLUMNS = (Column("name", TEXT, field="name"), Column("value", field="value"), Column("", TEXT, field="set"))


def make_options_page(found: MimallocTunables) -> Page:
    """Yield a table with a row for each option."""
    if found.tunables is None:
        yield "mimalloc's options cannot be read here: MIMALLOC_VERBOSE=1 prints them when the program starts"
        return
    yield "MIMALLOC_NAME=VALUE in the environment sets one at the next start; delays are in ms"
    rows = [{**option._asdict(), "set": "set" if option.is_set else ""} for option in found.tunables]
    yield ColumnsTable(_OPTION_COLUMNS, rows)


CHUNK_BITS = 512
"""Of a bitmap of release 3."""
LARGEST = 0x80000000
"""A block size of 2 GiB and more in a field of 32 bits: the page's memory gives it."""
OWNER_MASK = ~7
GUARD_BYTES = (4096, 16384, 65536)
"""One page of the kernel, at the end of a page of a secure build of release 3."""
ABANDONED_IDS = (0, 4)
"""Thread ids of pages that no thread owns."""
LETTERS = {BYTE: "B", SHORT: "H", HALF: "I", WORD: "Q"}
"""Of struct, by bytes."""


class MimallocPage(NamedTuple):
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


class MimallocPiece(NamedTuple):
    """Memory that is no page's."""

    start: int
    end: int
    kind: int
    """MI_METADATA, MI_SPAN or MI_RETURNED."""
    thread: Optional[int]
    """Owner as in MimallocPage.thread; None: none, or shared."""
    is_pinned: bool = False
    """A free span that no call returns: its arena is pinned, or the options forbid it."""


class MimallocSegment(NamedTuple):
    """The head of a segment, or an arena of release 3."""

    address: int
    end: int
    thread: int
    used: int
    abandoned: int
    pages: int
    """That were found."""


class BrokenPlace(NamedTuple):
    """Something that cannot be so."""

    code: ProblemCode
    address: int
    what: str
    thread: Optional[int] = None


def read_member(data: bytes, place: FieldPlace, at: int = 0) -> int:
    """A member of the struct that begins at `at`."""
    return int.from_bytes(data[at + place.offset : at + place.offset + place.bytes], "little")


def read_word(data: bytes, offset: int) -> int:
    """A word."""
    return int.from_bytes(data[offset : offset + 8], "little")


@cache
def _make_page_reader(form: MimallocForm) -> "Tuple[struct.Struct, Callable[[Tuple[int, ...]], Tuple[int, ...]]]":
    """Return a struct that reads all members of a page at once, since a process may be stopped meanwhile, and a function that puts them
    into one order for every form. A member that the form lacks is replaced by any other.
    """
    places, keys = form.page, form.page.keys if form.is_encoded else form.page.free
    start = places.start if places.start is not None else places.start_words
    wanted = [FieldPlace(places.capacity, SHORT), FieldPlace(places.reserved, SHORT), places.used, FieldPlace(places.free)]
    wanted += [FieldPlace(places.local_free), FieldPlace(places.xthread_free), FieldPlace(places.heap), places.block_bytes]
    wanted.append(FieldPlace(places.flags, BYTE) if places.owner is None else FieldPlace(places.owner))
    wanted.append(FieldPlace(places.free) if start is None else FieldPlace(start, WORD if places.start is not None else HALF))
    wanted += [FieldPlace(keys), FieldPlace(keys + 8 if form.is_encoded else keys)]
    ordered, layout, end = sorted(set(wanted)), "<", 0
    for place in ordered:
        layout += "%dx%s" % (place.offset - end, LETTERS[place.bytes])
        end = place.offset + place.bytes
    return struct.Struct(layout), itemgetter(*(ordered.index(place) for place in wanted))


class MimallocPages:
    """Pages, segments and pieces of one mimalloc, and what is broken in them, collected as they are read."""

    def __init__(self, target: Target, form: MimallocForm) -> None:
        self.target, self.form = target, form
        self._struct, self._members = _make_page_reader(form)
        self.pages: List[MimallocPage] = []
        """By address, after drop_overlaps()."""
        self.pieces: List[MimallocPiece] = []
        self.segments: List[MimallocSegment] = []
        self.broken: List[BrokenPlace] = []
        self.reserved: List[Tuple[int, int]] = []
        """Address space that it holds: segments, arenas, pages of their own, the page map."""

    def tell(self, code: ProblemCode, address: int, what: str, thread: Optional[int] = None) -> None:
        self.broken.append(BrokenPlace(code, address, what, thread))

    def add_page(self, data: bytes, at: int, address: int, memory: int, end: int, thread: int, segment: int) -> Optional[MimallocPage]:
        """Add the page whose struct begins at `at`, and return it; None, with a problem, if it contradicts itself."""
        words = self._members(self._struct.unpack_from(data, at))
        capacity, reserved, used, free, local_free, xthread_free, heap, block, flags, start, key, turn = words
        places = self.form.page
        if places.start is None:
            start = address + 8 * start if places.start_words is not None else memory + find_first_block(self.form, block)
        if block >= LARGEST and places.block_bytes.bytes == HALF:
            block = end - start
        if places.owner is not None:
            thread = flags & OWNER_MASK
        thread = 0 if thread in ABANDONED_IDS else thread
        keys = (key, turn) if self.form.is_encoded else (0, 0)
        thread_free, has_aligned = xthread_free & ~(1 if self.form.line == 3 else 3), flags & 2 != 0
        numbers = (start, block, capacity, reserved, used, free, local_free, thread_free)
        page = MimallocPage(address, memory, end, *numbers, heap, thread, has_aligned, keys, segment)
        wrong = find_contradiction(page)
        if wrong is None and self.form.line == 3 and thread and not xthread_free & 1:  # the list of an unowned page has its lowest bit set
            wrong = "is a thread's, but its list is marked as unowned"
        if wrong is not None:
            self.tell(codes.PAGE_WRONG, address, "a page %s" % wrong, thread)
            return None
        self.pages.append(page)
        return page

    def drop_overlaps(self) -> "MimallocPages":
        """Sort the pages by address, without those that overlap another."""
        pages, self.pages, end = sorted(self.pages, key=lambda page: (page.memory, page.address)), [], 0
        for page in pages:
            if page.memory < end:
                self.tell(codes.PAGES_OVERLAP, page.address, "a page lies across another", page.thread)
                continue
            self.pages.append(page)
            end = page.end
        return self


def find_contradiction(page: MimallocPage) -> Optional[str]:
    """Return the reason why this cannot be a page, or None."""
    block = page.block_bytes
    if block < 8 or block % 8 or page.start % 8:
        return "has blocks of %d bytes at 0x%x" % (block, page.start)
    if not page.used <= page.capacity <= page.reserved:
        return "counts %s in use, %s handed out, and room for %s" % tuple(
            count_noun(count, "block") for count in (page.used, page.capacity, page.reserved)
        )
    if not page.memory <= page.start or page.start + page.reserved * block > page.end:
        return "has blocks outside its memory"
    room = page.end - page.start
    guards = (0, *GUARD_BYTES) if page.keys[0] else (0,)  # in secure builds of release 3 a guard page may follow the last block
    if page.reserved > 1 and page.reserved not in [(room - guard) // block for guard in guards]:
        return "has room for %s, and counts %s" % (count_noun(room // block, "block"), count_noun(page.reserved, "block"))
    for head in (page.free, page.local_free, page.thread_free):
        if head and not page.keys[0] and ((head - page.start) % block or not 0 <= (head - page.start) // block < page.capacity):
            return "has a list that begins outside its blocks"
    return None


CHOSEN_ADDRESSES = 2 << 40, 30 << 40
"""Where mimalloc asks the OS for aligned memory (os.c: MI_HINT_BASE, MI_HINT_MAX)."""


def read_segments(target: Target, form: MimallocForm, key: int, addresses: Iterable[int], spoilt: Sequence[int] = ()) -> MimallocPages:
    """Read releases 1 and 2. `addresses`: possible begins of segments; `spoilt`: begins of segments with another cookie."""
    made, places = MimallocPages(target, form), form.segment
    assert places is not None
    end, stale = 0, []
    for address in sorted(addresses):
        head = target.read_prefix(address, places.pages)
        if len(head) < places.pages or read_word(head, places.cookie) ^ address != key:
            continue
        if not read_word(head, places.used):
            stale.append((address, head))
        elif address < end:
            made.tell(codes.SEGMENT_WRONG, address, "a segment begins inside another")
        else:
            end = (_add_sliced_segment if places.page_shift is None else _of_one_kind)(made, places, address, head)
    for address in spoilt:
        made.tell(codes.SEGMENT_WRONG, address, "what looks like a segment has another cookie")
    _add_stale_segments(made, places, stale)
    _reserve_arenas(made, places, [(address, address + SEGMENT_BYTES[form.line]) for address in spoilt])
    return made.drop_overlaps()


def _reserve_arenas(made: MimallocPages, places: SegmentPlaces, spoilt: Sequence[Range]) -> None:
    """The arenas that segments lie in, as whole mappings where mimalloc has chosen the address: no other memory is next to it. What no
    segment has of them was returned, or never used."""
    starts: Set[int] = set()
    for segment in made.segments if places.has_memid else ():
        head = made.target.read_prefix(segment.address, 24)
        if read_member(head, FieldPlace(MEMID_KIND, HALF)) == IN_ARENA:
            start = segment.address - read_word(head, MEMID_BLOCK_INDEX) * SEGMENT_BYTES[2]
            starts.update([start] if CHOSEN_ADDRESSES[0] <= start < CHOSEN_ADDRESSES[1] else [])
    taken = unite_ranges([*made.reserved, *spoilt])
    for mapping in made.target.mappings() if starts else ():
        arenas = [(start, mapping.end) for start in sorted(starts) if mapping.start <= start < mapping.end]
        made.reserved += arenas
        made.pieces += [MimallocPiece(low, high, MI_RETURNED, None) for low, high in subtract_ranges(unite_ranges(arenas), taken)]


def _add_stale_segments(made: MimallocPages, places: SegmentPlaces, stale: "Sequence[Tuple[int, bytes]]") -> None:
    """Segments without a page, which were given up and are kept for the next that is needed: what lies below one that is in use."""
    starts, end = sorted(segment.address for segment in made.segments), 0
    for address, head in stale:
        size = read_word(head, places.size) * (1 if places.page_shift is not None else SLICE_BYTES)
        at = bisect_right(starts, address)
        last = min(address + size, starts[at] if at < len(starts) else 1 << 47)
        is_inside = any(segment.address <= address < segment.end for segment in made.segments)
        if address < end or not address < last < 1 << 47 or is_inside:
            continue
        made.reserved.append((address, last))
        made.pieces.append(MimallocPiece(address, last, MI_SPAN, None))
        end = last


def _add_sliced_segment(made: MimallocPages, places: SegmentPlaces, address: int, head: bytes) -> int:
    """A segment of release 2; where it ends."""
    form, thread = made.form, read_word(head, places.thread_id)
    slices, info, entries = (read_word(head, offset) for offset in (places.size, places.info, places.entries))
    end = address + slices * SLICE_BYTES
    assert places.kind is not None
    is_huge = read_word(head, places.kind) & 0xFFFFFFFF == 1
    if not 0 < info <= entries <= places.slices + 1 or entries > slices or end >= 1 << 47:
        what = "a segment has %d slices, %d of them its own and %d listed" % (slices, info, entries)
        made.tell(codes.SEGMENT_WRONG, address, what, thread)
        return address + SLICE_BYTES
    size = form.page.bytes
    data = made.target.read_prefix(address + places.pages, entries * size)
    made.reserved.append((address, end))
    made.pieces.append(MimallocPiece(address, address + info * SLICE_BYTES, MI_METADATA, thread))
    assert places.commit_mask is not None and places.purge_mask is not None
    mask_bytes = places.slices // 8
    mask = int.from_bytes(head[places.commit_mask : places.commit_mask + mask_bytes], "little")
    if places.allow_purge is not None and head[places.allow_purge]:  # of what is the process's what waits to be returned
        mask &= int.from_bytes(head[places.purge_mask : places.purge_mask + mask_bytes], "little")
    place, pages = info, 0
    while place < entries:
        at = place * size
        if len(data) < at + size:
            made.tell(codes.SEGMENT_UNREADABLE, address + places.pages + at, "the pages of a segment cannot be read", thread)
            break
        count, block = read_member(data, FieldPlace(0, HALF), at), read_member(data, form.page.block_bytes, at)
        memory = address + place * SLICE_BYTES
        last = end if is_huge and pages == 0 and block else min(memory + count * SLICE_BYTES, end)
        if not count or place + count > max(entries, slices):
            made.tell(codes.SLICES_WRONG, address + places.pages + at, "the slices of a segment do not add up", thread)
            break
        if block:
            pages += 1
            if made.add_page(data, at, address + places.pages + at, memory, last, thread, address) is None:
                made.pieces.append(MimallocPiece(memory, last, MI_METADATA, thread))
        else:
            _add_free_spans(made, mask, address, place, count, thread)
        place += entries if is_huge and block else count
    made.segments.append(MimallocSegment(address, end, thread, read_word(head, places.used), read_word(head, places.abandoned), pages))
    return end


def _add_free_spans(made: MimallocPages, mask: int, address: int, place: int, count: int, thread: Optional[int]) -> None:
    """Free slices, as pieces that are alike."""
    while count:
        is_kept = mask >> place & 1
        run = 1
        while run < count and mask >> (place + run) & 1 == is_kept:
            run += 1
        start = address + place * SLICE_BYTES
        made.pieces.append(MimallocPiece(start, start + run * SLICE_BYTES, MI_SPAN if is_kept else MI_RETURNED, thread))
        place, count = place + run, count - run


def _of_one_kind(made: MimallocPages, places: SegmentPlaces, address: int, head: bytes) -> int:
    """A segment of release 1; where it ends."""
    form, thread = made.form, read_word(head, places.thread_id)
    assert places.page_shift is not None
    size, info, count, shift = (read_word(head, offset) for offset in (places.size, places.info, places.entries, places.page_shift))
    end = address + size
    if not 0 < info < size or size % 4096 or end >= 1 << 47 or not 0 < count <= 64 or (count > 1 and count << shift > SEGMENT_BYTES[1]):
        made.tell(codes.SEGMENT_WRONG, address, "a segment of %d bytes has %s" % (size, count_noun(count, "page")), thread)
        return address + SLICE_BYTES
    data = made.target.read_prefix(address + places.pages, count * form.page.bytes)
    made.reserved.append((address, end))
    made.pieces.append(MimallocPiece(address, address + info, MI_METADATA, thread))
    pages = 0
    for place in range(count):
        at = place * form.page.bytes
        if len(data) < at + form.page.bytes:
            made.tell(codes.SEGMENT_UNREADABLE, address + places.pages + at, "the pages of a segment cannot be read", thread)
            break
        memory = address + info if place == 0 else address + (place << shift)
        last = end if count == 1 else address + ((place + 1) << shift)
        flags = read_member(data, FieldPlace(1, BYTE), at)
        if not flags & 1:
            made.pieces.append(MimallocPiece(memory, last, MI_SPAN if flags & 2 else MI_RETURNED, thread))
            continue
        pages += 1
        shifted = memory
        if form.aligns_first and place == 0 and count > 1:
            block = read_member(data, form.page.block_bytes, at)
            more = block - memory % block if 0 < block < LARGEST else 0
            shifted = memory + (more if more < block and last - memory - more >= block else 0)
        if made.add_page(data, at, address + places.pages + at, shifted, last, thread, address) is None:
            made.pieces.append(MimallocPiece(memory, last, MI_METADATA, thread))
        else:
            made.pages[-1] = made.pages[-1]._replace(memory=memory)
    made.segments.append(MimallocSegment(address, end, thread, read_word(head, places.used), read_word(head, places.abandoned), pages))
    return end


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


def read_page_structs(target: Target, addresses: Sequence[int], size: int) -> Dict[int, bytes]:
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


def read_first_level(target: Target, page_map: int) -> int:
    """Return the length of the page map's first level, which the part for the lowest addresses follows; 0 if this is no page map."""
    data = target.read_prefix(page_map, 8)
    size = read_word(data, 0) - page_map if len(data) == 8 else 0
    return size if 4096 <= size <= FIRST_BYTES and not size & (size - 1) else 0


def _list_touched(target: Target, start: int, end: int) -> Sequence[Range]:
    return target.touched_ranges(start, end) if target.kind != "remote" else [(start, end)]


def find_set_words(target: Target, start: int, end: int) -> Iterator[Tuple[int, int]]:
    """Place and value of words that are not 0, of what was ever touched."""
    for low, high in _list_touched(target, start, end):
        data = target.read_prefix(low, high - low)
        for place, value in enumerate(array("Q", data[: len(data) & -8])):
            if value:
                yield low + 8 * place, value


def read_page_map(target: Target, form: MimallocForm, page_map: int, never_purges: bool = False) -> MimallocPages:
    """Read release 3. `never_purges`: the options forbid to return free slices."""
    made, size = MimallocPages(target, form), read_first_level(target, page_map)
    parts: Set[int] = {part for _, part in find_set_words(target, page_map, page_map + size) if part % 8 == 0 and part < 1 << 47}
    addresses: Set[int] = set()
    for part in sorted(parts):
        words = find_set_words(target, part, part + 8 * PART_WORDS)
        addresses.update(value for place, value in words if place != page_map + size)  # that of address 0: in 3.0 it leads to an empty page
        made.reserved.append((part, part + 8 * PART_WORDS))
        if len(addresses) > MOST_PAGES:
            made.tell(codes.MAP_WRONG, part, "the page map has more pages than memory could hold")
            break
    made.reserved.append((page_map, page_map + size))
    read = read_page_structs(target, [address for address in addresses if address % 8 == 0 and address < 1 << 47], form.page.bytes)
    if form.arena is not None and form.arena.pages is not None:
        read = _drop_freed_pages(made, read)
        addresses = set(read)
    for address in addresses - read.keys():
        made.tell(codes.PAGE_UNREADABLE, address, "a page of the page map cannot be read")
    known: Dict[int, List[Tuple[int, int]]] = {}
    for address in sorted(read):
        _read_mapped(made, read[address], address, known)
    places = form.arena
    assert places is not None
    arenas = set(known)  # with all others of their subprocesses
    for subprocess in {read_word(target.read_prefix(arena + places.subproc, 8), 0) for arena in known}:
        data = target.read_prefix(subprocess + places.subproc_arenas, 8 * MOST_ARENAS)
        listed = set(array("Q", data[: len(data) & -8])) - {0}
        if listed & known.keys():
            arenas |= {arena for arena in listed if arena % SLICE_BYTES == 0}
    for arena in sorted(arenas):
        _read_arena(made, arena, known.get(arena, []), never_purges)
    return made.drop_overlaps()


def _drop_freed_pages(made: MimallocPages, read: Dict[int, bytes]) -> Dict[int, bytes]:
    """Drop pages that were freed: release 3.0.1 leaves their words in the page map. Inside arenas a bitmap decides; outside of them the
    memory of a page that does not look like one was returned.
    """
    places, target, memids = made.form.arena, made.target, {}
    assert places is not None and places.pages is not None and made.form.page.memid is not None
    for address, data in read.items():
        memids[address] = MEMID.unpack_from(data, made.form.page.memid)
    here = {first for address, (first, index, _, kind) in memids.items() if kind == ARENA_KIND and address == first + index * SLICE_BYTES}
    arenas: List[Tuple[int, int, int]] = []
    for arena in sorted(here):
        slices, _ = check_arena_slices(target, made.form, arena)
        begun = _read_bitmap(target, read_word(target.read_prefix(arena + places.pages, 8), 0), slices, 128) if slices else None
        if begun is not None:
            arenas.append((arena, arena + slices * SLICE_BYTES, begun))
    starts, kept = [start for start, _, _ in arenas], {}
    for address, (_, _, _, kind) in memids.items():
        at = bisect_right(starts, address) - 1
        if at >= 0 and address < arenas[at][1]:
            is_one = bool(arenas[at][2] >> (address - starts[at]) // SLICE_BYTES & 1)
        else:
            is_one = kind == ARENA_KIND or kind in OS_KINDS
        if is_one:
            kept[address] = read[address]
    return kept


def _read_mapped(made: MimallocPages, data: bytes, address: int, arenas: Dict[int, List[Tuple[int, int]]]) -> None:
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
    is_page = made.add_page(data, 0, address, memory, end, 0, arena) is not None
    if is_page and arena:
        arenas.setdefault(arena, []).append(((memory - arena) // SLICE_BYTES, (end - arena) // SLICE_BYTES))
    elif is_page:
        made.reserved.append((memory, end))


def check_arena_slices(target: Target, form: MimallocForm, arena: int) -> Tuple[int, int]:
    """Return the number of slices of an arena and how many of them are its own; (0, 0) if it is no arena."""
    places = form.arena
    assert places is not None
    head = target.read_prefix(arena, 160)
    if len(head) < 160:
        return 0, 0
    slices, info = read_word(head, places.slice_count), read_word(head, places.info_slices)
    return (slices, info) if 0 < info < slices <= 1 << 24 else (0, 0)


def _read_arena(made: MimallocPages, arena: int, pages: List[Tuple[int, int]], never_purges: bool) -> None:
    places, target = made.form.arena, made.target
    assert places is not None
    slices, info = check_arena_slices(target, made.form, arena)
    if not slices or arena + slices * SLICE_BYTES >= 1 << 47:
        made.tell(codes.ARENA_WRONG, arena, "an arena does not tell how long it is")
        return
    head = target.read_prefix(arena, 160)
    offsets = (places.slices_free, places.slices_committed, places.slices_dirty, places.slices_purge)
    maps = [
        _read_bitmap(target, read_word(head, offset), slices, places.free_chunks if offset == places.slices_free else 128)
        for offset in offsets
    ]
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
        for low, high in find_runs(mask):
            start, end = arena + low * SLICE_BYTES, arena + high * SLICE_BYTES
            made.pieces.append(MimallocPiece(start, end, kind, None, is_pinned and kind == MI_SPAN))
    if free & taken:
        low = (free & taken & -(free & taken)).bit_length() - 1
        made.tell(codes.ARENA_SLICES, arena + low * SLICE_BYTES, "a slice of a page counts as free in its arena")
    made.segments.append(MimallocSegment(arena, arena + slices * SLICE_BYTES, 0, 0, 0, len(pages)))


def _read_bitmap(target: Target, address: int, bits: int, chunks: int) -> Optional[int]:
    size = (bits + CHUNK_BITS - 1) // CHUNK_BITS * (CHUNK_BITS // 8)
    if not 0 < address < 1 << 47 or read_word(target.read_prefix(address, 8), 0) * (CHUNK_BITS // 8) != size:
        return None
    data = target.read_prefix(address + chunks, size)
    return int.from_bytes(data, "little") & ((1 << bits) - 1) if len(data) == size else None


def find_runs(mask: int) -> Iterator[Tuple[int, int]]:
    """Yield first and end of each run of set bits."""
    at = 0
    while mask:
        skip = (mask & -mask).bit_length() - 1
        mask >>= skip
        at += skip
        length = (~mask & (mask + 1)).bit_length() - 1
        yield at, at + length
        mask >>= length
        at += length


MOST_SEARCHED_BYTES = 64 << 20
"""Of one object's data."""
MOST_CANDIDATES = 1 << 20
"""Places where a segment may begin: 32 TiB of memory."""
HEAD_BYTES = 384
"""Of a segment, up to its pages: the longest of all forms."""
JUDGED_SEGMENTS = 16
"""Pages that decide which form fits."""
LEAST_LIKELY_BYTES = 1 << 20
"""Memory that is probably an instance's, below which nothing is reported as missing."""
VERSION_FUNCTION = "mi_version"
"""A function that returns the release as a number."""
CODE_BYTES = 16


class Mimalloc(NamedTuple):
    """A mimalloc in the target; its fields are constant."""

    id: str
    module: Module
    form: MimallocForm
    version: Optional[str]
    owns_malloc: Optional[bool]
    place: int
    """Address of the word of the object's data that proves it: the main heap's cookie, or the pointer to the page map."""
    key: int
    """That word."""
    other_keys: Sequence[int] = ()
    """Of further copies."""
    unlisted: Optional[str] = None
    options: Optional[int] = None
    """Address of its array of options; None where it was not found."""

    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        version, name, build_id = self.version or self.form.releases, self.module.file_name, self.module.build_id
        return AllocatorInfo(self.id, "mimalloc", version, name, build_id, "table", "probe", self.owns_malloc)

    def read(self, target: Target) -> MimallocPages:
        """Read its pages as they are now."""
        if self.form.line == 3:
            delay = map_options(read_mimalloc_options(target, self.options)).get("purge_delay", 0)
            return read_page_map(target, self.form, self.key, never_purges=delay < 0)
        heads = _SegmentHeads(target)
        return read_segments(target, self.form, self.key, heads.with_key(self.form, self.key), heads.spoilt(self))


class _SegmentHeads:
    """The bytes where a segment may begin, read once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._read: Dict[int, Dict[int, bytes]] = {}

    def of_line(self, line: int) -> Dict[int, bytes]:
        """Return the bytes at each possible begin of a segment of one line of releases."""
        if line in self._read:
            return self._read[line]
        step, heads = SEGMENT_BYTES[line], self._read.setdefault(line, {})
        mappings = [mapping for mapping in self._target.mappings() if mapping.writable and (mapping.shared or not mapping.is_file)]
        places = (address for mapping in mappings for address in range(-(-mapping.start // step) * step, mapping.end, step))
        for address in islice(places, MOST_CANDIDATES):
            if self._target.kind != "live" or self._target.touched_ranges(address, address + 4096):
                data = self._target.read_prefix(address, HEAD_BYTES)
                if len(data) == HEAD_BYTES:
                    heads[address] = data
        return heads

    def spoilt(self, located: Mimalloc) -> List[int]:
        """Return segments of a mimalloc that differ from others only in their cookie: they belong to a thread and have the usual number
        of slices.
        """
        places = located.form.segment
        assert places is not None
        if places.kind is None:
            return []
        threads, found = {thread.thread_pointer for thread in self._target.threads()}, []
        for address, data in self.of_line(located.form.line).items():
            numbers = [read_word(data, offset) for offset in (places.size, places.entries, places.thread_id)]
            is_like = numbers[:1] == [places.slices] and 0 <= places.slices - numbers[1] <= 1 and numbers[2] in threads
            if is_like and read_word(data, places.cookie) ^ address not in (located.key, *located.other_keys):
                found.append(address)
        return found

    def with_key(self, form: MimallocForm, key: int) -> List[int]:
        """Return the addresses of a mimalloc's segments."""
        assert form.segment is not None
        cookie = form.segment.cookie
        return [address for address, data in self.of_line(form.line).items() if read_word(data, cookie) ^ address == key]


def find_mimallocs(target: Target, modules: Sequence[Module]) -> Instances:
    """The copies in these objects, and those that are there and cannot be read."""
    located: List[Mimalloc] = []
    unread: List[NotRead] = []
    unused: List[NotRead] = []
    heads, owner = _SegmentHeads(target), target.dynamic_symbol("malloc")
    for module in modules:
        if target.word_bytes != 8 or not target.little_endian:
            is_owner = owner is not None and owner.module == module
            what = "mimalloc in %s is read on 64-bit little-endian machines only" % module.file_name
            (unread if is_owner else unused).append(NotRead(module, what, MI_HINT))
            continue
        found = _find_page_map(target, module) or _find_segments(target, module, heads)
        if found is not None:
            ident = "mimalloc" if not located else "mimalloc#%d" % (len(located) + 1)
            owns = owner.module == module if owner is not None else None
            form, place, key = found
            table = find_options(target, _read_words(target, module))
            located.append(Mimalloc(ident, module, form, read_release(target, module), owns, place, key, options=table))
        elif owner is not None and owner.module == module:
            name = "mimalloc %s" % (read_release(target, module) or "")
            what = "%s in %s cannot be read: it fits no release from 1.8 to 3.4" % (name.strip(), module.file_name)
            unread.append(NotRead(module, what, "check for a newer gdbheapx; " + MI_HINT))
        else:
            what = "mimalloc in %s was never used, or is of a release that is not known" % module.file_name
            unused.append(NotRead(module, what, MI_HINT))
    uses = target.memory_use() if unused and not located and not unread else None
    # mappings that begin at whole MiB in the range where only mimalloc asks for its arenas
    mine = [use for use in (uses.mappings if uses is not None else ()) if CHOSEN_ADDRESSES[0] <= use.mapping.start < CHOSEN_ADDRESSES[1]]
    likely = sum(use.resident_bytes for use in mine if not use.mapping.is_file and use.mapping.start % LEAST_LIKELY_BYTES == 0)
    if likely >= LEAST_LIKELY_BYTES:
        module = unused.pop().module
        # a core may have pages of zeros that were never in RAM
        size = make_sentence("%s of ", SentenceSize(likely)) if target.kind == "live" else ""
        what = "mimalloc in %s is of a release that is not read: %sanonymous memory in this process is probably its"
        unread.append(NotRead(module, make_sentence(what, module.file_name, size), MI_HINT))
    keys = [copy.key for copy in located]
    copies = [copy._replace(other_keys=tuple(key for key in keys if key != copy.key)) for copy in located]
    return Instances(copies, unread, unused=unused)


def read_release(target: Target, module: Module) -> Optional[str]:
    """Return the release by the code of mi_version, which every shared build exports: 3.4.3."""
    symbol = target.exported(module, VERSION_FUNCTION)
    if symbol is None or (target.kind == "live" and not target.present_ranges(symbol.address & -4096, (symbol.address & -4096) + 4096)):
        return None
    code, told = target.read_prefix(symbol.address, CODE_BYTES), target.arch.returned_number
    version = told(code) if told is not None else None
    return None if version is None else spell_release(version)


def spell_release(version: int) -> Optional[str]:
    """209 is 2.0.9, 3208 is 3.2.8, 30403 is 3.4.3."""
    if version < 1000:
        parts = version // 100, version // 10 % 10, version % 10
    else:
        big = 10000 if version >= 10000 else 1000
        parts = version // big, version // 100 % (big // 100), version % 100
    return "%d.%d.%d" % parts if 1 <= parts[0] <= 9 else None


def _read_words(target: Target, module: Module) -> Iterator[Tuple[int, "array[int]"]]:
    """The words of an object's data: where they begin, and what they are."""
    left = MOST_SEARCHED_BYTES
    for start, _, end in target.writable_segments(module):
        for low, high in _list_touched(target, start, end):
            low = -(-low // 8) * 8
            data = target.read_prefix(low, min(high - low, left))
            left -= len(data)
            yield low, array("Q", data[: len(data) & -8])


def _find_page_map(target: Target, module: Module) -> Optional[Tuple[MimallocForm, int, int]]:
    """Return the form of release 3 and the word that leads to the page map."""
    tried: Set[int] = set()
    memory = [(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable and not mapping.is_file]
    for base, words in _read_words(target, module):
        for place, value in enumerate(words):
            if value & 4095 or not value or value in tried or value >= 1 << 47:
                continue
            tried.add(value)
            if any(start <= value < end for start, end in memory) and read_first_level(target, value):
                form = _find_mapped_form(target, value)
                if form is not None:
                    return form, base + 8 * place, value
    return None


def _find_mapped_form(target: Target, place: int) -> Optional[MimallocForm]:
    """The one whose arenas, and then whose pages, contradict nothing. The arenas come first: of 3.0.1 a wrong page may be taken for one
    that was freed, while its arenas lie as no others do."""
    best: List[Tuple[int, int, int, MimallocForm]] = []
    for order, form in enumerate(list_forms(3)):
        found = read_page_map(target, form, place)
        if found.pages and len(found.broken) <= len(found.pages) // 8:
            best.append((sum(one.code is codes.ARENA_WRONG for one in found.broken), len(found.broken), order, form))
    return min(best, key=lambda row: row[:3])[3] if best else None


def _find_segments(target: Target, module: Module, heads: _SegmentHeads) -> Optional[Tuple[MimallocForm, int, int]]:
    """Return the form of release 1 or 2 and the address of the main heap's cookie."""
    data = list(_read_words(target, module))
    inside = [(start, end) for start, _, end in target.writable_segments(module)]
    for line in (2, 1):
        best: List[Tuple[int, int, MimallocForm, int, int]] = []
        for order, form in enumerate(list_forms(line)):
            for place, key in _find_keys(form, data, heads, inside):
                known, delayed = heads.with_key(form, key), form.heap
                addresses = known[:JUDGED_SEGMENTS]
                found = read_segments(target, form, key, addresses)
                wrong = len(found.broken)
                if delayed is not None and delayed.thread_delayed_free is not None:
                    # empty, or it begins in a segment: only this distinguishes a debug build of 2.0.6 from a secure one of 2.0.7
                    first = read_word(target.read_prefix(place - delayed.cookie + delayed.thread_delayed_free, 8), 0)
                    wrong += first != 0 and not any(address <= first < address + SEGMENT_BYTES[line] for address in known)
                if len(found.pages) > wrong or (addresses and not wrong):
                    best.append((wrong, order, form, place, key))
        if best:
            chosen = min(best, key=lambda row: row[:2])
            return chosen[2:]
    return None


def _find_keys(
    form: MimallocForm, data: "List[Tuple[int, array[int]]]", heads: _SegmentHeads, inside: Sequence[Tuple[int, int]]
) -> Iterator[Tuple[int, int]]:
    """Place and value of each word of the data that is the key of some segment, and has a pointer into the data where the heap's is."""
    assert form.segment is not None and form.heap is not None
    cookie = form.segment.cookie
    keys = {read_word(head, cookie) ^ address for address, head in heads.of_line(form.line).items()}
    keys = {key for key in keys if key >> 32}
    seen: Set[int] = set()
    for base, words in data:
        for key in keys.intersection(words) - seen:
            place = words.index(key)
            beside = place + (form.heap.tld - form.heap.cookie) // 8
            if 0 <= beside < len(words) and any(start <= words[beside] < end for start, end in inside):
                seen.add(key)
                yield base + 8 * place, key
