"""mimalloc's pages: all blocks of one size that lie side by side. segments.py and page_map.py find them.

Everything that is read here may be damaged: what contradicts itself is told and left out, and the rest is whole.
"""

import struct
from functools import cache
from operator import itemgetter
from typing import Callable, List, NamedTuple, Optional, Tuple

from gdbheapx.addons.allocators.mimalloc import codes
from gdbheapx.addons.allocators.mimalloc.layouts import BYTE, HALF, SHORT, WORD, Form, Place, first_block
from gdbheapx.inferior.base import Target
from gdbheapx.problems import Code
from gdbheapx.units import plural

CHUNK_BITS = 512
"""Of a bitmap of release 3."""
LARGEST = 0x80000000
"""A block size of 2 GiB and more in a field of 32 bits: the page's memory tells it."""
OWNER_MASK = ~7
GUARD_BYTES = (4096, 16384, 65536)
"""One page of the kernel, at the end of a page of a secure build of release 3."""
ABANDONED = (0, 4)
"""Thread ids of pages that no thread owns."""
NO_KEYS = 0, 0
LETTERS = {BYTE: "B", SHORT: "H", HALF: "I", WORD: "Q"}
"""Of struct, by bytes."""


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
    is_pinned: bool = False
    """A free span that no call returns: its arena is pinned, or the options forbid it."""


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


def bits_of(data: bytes, offset: int, count: int) -> int:
    """A mask of that many bits, as one number."""
    return int.from_bytes(data[offset : offset + count // 8], "little")


@cache
def _reader(form: Form) -> "Tuple[struct.Struct, Callable[[Tuple[int, ...]], Tuple[int, ...]]]":
    """What reads all members of a page at once, by their places, and puts them into one order for every form: a process may stand still
    meanwhile. What a form lacks is any other member."""
    places, keys = form.page, form.page.keys if form.is_encoded else form.page.free
    start = places.start if places.start is not None else places.start_words
    wanted = [Place(places.capacity, SHORT), Place(places.reserved, SHORT), places.used, Place(places.free), Place(places.local_free)]
    wanted += [Place(places.xthread_free), Place(places.heap), places.block_bytes]
    wanted.append(Place(places.flags, BYTE) if places.owner is None else Place(places.owner))
    wanted.append(Place(places.free) if start is None else Place(start, WORD if places.start is not None else HALF))
    wanted += [Place(keys), Place(keys + 8 if form.is_encoded else keys)]
    ordered, layout, end = sorted(set(wanted)), "<", 0
    for place in ordered:
        layout += "%dx%s" % (place.offset - end, LETTERS[place.bytes])
        end = place.offset + place.bytes
    return struct.Struct(layout), itemgetter(*(ordered.index(place) for place in wanted))


class Collector:
    """What reading one copy gives, as it is found."""

    def __init__(self, target: Target, form: Form) -> None:
        self.target, self.form = target, form
        self._struct, self._members = _reader(form)
        self.pages: List[Page] = []
        self.pieces: List[Piece] = []
        self.segments: List[Segment] = []
        self.broken: List[Broken] = []
        self.reserved: List[Tuple[int, int]] = []

    def tell(self, code: Code, address: int, what: str, thread: Optional[int] = None) -> None:
        self.broken.append(Broken(code, address, what, thread))

    def page(self, data: bytes, at: int, address: int, memory: int, end: int, thread: int, segment: int) -> Optional[Page]:
        """The page whose struct begins at `at`; None, and told, where it contradicts itself."""
        words = self._members(self._struct.unpack_from(data, at))
        capacity, reserved, used, free, local_free, xthread_free, heap, block, flags, start, key, turn = words
        places = self.form.page
        if places.start is None:
            start = address + 8 * start if places.start_words is not None else memory + first_block(self.form, block)
        if block >= LARGEST and places.block_bytes.bytes == HALF:
            block = end - start
        if places.owner is not None:
            thread = flags & OWNER_MASK
        thread = 0 if thread in ABANDONED else thread
        keys = (key, turn) if self.form.is_encoded else NO_KEYS
        thread_free, has_aligned = xthread_free & ~self.form.tag_mask, flags & 2 != 0
        numbers = (start, block, capacity, reserved, used, free, local_free, thread_free)
        page = Page(address, memory, end, *numbers, heap, thread, has_aligned, keys, segment)
        wrong = contradiction(page) or self._unowned(page, xthread_free)
        if wrong is not None:
            self.tell(codes.PAGE_WRONG, address, "a page %s" % wrong, thread)
            return None
        return page

    def _unowned(self, page: Page, thread_free: int) -> Optional[str]:
        """What a page of release 3 says of being owned: the lowest bit of its list of what others free."""
        return "is a thread's, but its list is marked as unowned" if self.form.line == 3 and page.thread and not thread_free & 1 else None

    def found(self) -> Found:
        """By address, without what lies across another."""
        pages: List[Page] = []
        end = 0
        for page in sorted(self.pages, key=lambda page: (page.memory, page.address)):
            if page.memory < end:
                self.tell(codes.PAGES_OVERLAP, page.address, "a page lies across another", page.thread)
                continue
            pages.append(page)
            end = page.end
        return Found(pages, self.pieces, self.segments, self.broken, self.reserved)


def _rooms(page: Page) -> Tuple[int, ...]:
    """For how many blocks there is room: in secure builds of release 3 a guard page may follow the last."""
    room = page.end - page.start
    rooms = (room, *(room - guard for guard in GUARD_BYTES)) if page.keys[0] else (room,)
    return tuple(one // page.block_bytes for one in rooms)


def contradiction(page: Page) -> Optional[str]:
    """What cannot be so of a page; None: it may be one."""
    block = page.block_bytes
    if block < 8 or block % 8 or page.start % 8:
        return "has blocks of %d bytes at 0x%x" % (block, page.start)
    if not page.used <= page.capacity <= page.reserved:
        return "counts %s in use, %s handed out, and room for %s" % tuple(
            plural(count, "block") for count in (page.used, page.capacity, page.reserved)
        )
    if not page.memory <= page.start or page.start + page.reserved * block > page.end:
        return "has blocks outside its memory"
    if page.reserved > 1 and page.reserved not in _rooms(page):
        return "has room for %s, and counts %s" % (plural((page.end - page.start) // block, "block"), plural(page.reserved, "block"))
    for head in (page.free, page.local_free, page.thread_free):
        if head and not page.keys[0] and ((head - page.start) % block or not 0 <= (head - page.start) // block < page.capacity):
            return "has a list that begins outside its blocks"
    return None
