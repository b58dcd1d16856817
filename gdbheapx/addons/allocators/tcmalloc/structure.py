"""tcmalloc found by its structure, without a symbol: its tables of size classes, its central lists, its page map, its thread caches.

Each find proves the one before: central lists lead to spans, spans to the words of the page map that lead back to them, thread caches have
the sizes of the classes. Everything lies in the data of one object.
"""

import struct
from array import array
from bisect import bisect_right
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc.native_records import SIZE_CLASSES, SPAN_BYTES
from gdbheapx.inferior.base import Module, Target
from gdbheapx.ranges import union

WORD = 8
Version = Optional[Tuple[int, ...]]
MOST_BYTES = 64 << 20
"""Of an object's data that is searched: tcmalloc has 2 MiB of its own."""
FEWEST_CLASSES = 40
LARGEST_CLASS_BYTES = 32 << 10
"""At least so large is the largest class."""
ROOMS = (SIZE_CLASSES, 96)
"""kClassSizesMax, kNumClasses: elements of each array by size class; 96 up to 2.7."""
STRIDES = (1216, 1168, 1280)
"""Of central_cache_: CentralFreeListPadded, to 64 bytes."""
CLASSES_SEEN = 8
PAGE_SHIFTS = (13, 12, 15, 16, 14, 18)
"""kPageShift: 13 unless it was built for another."""
ADDRESS_BITS = 48
PROOFS = 10
FREE_LIST_BYTES, FREE_LIST_SIZE = 32, 24
"""Of ThreadCache::FreeList, and where it has its size of object (size_)."""
CACHE_MAX, CACHE_TID = 4, 32
"""Where ThreadCache has max_size_ and tid_, from size_ on, which stands behind its lists."""
THREAD_LINKS = (32, 48)
"""The same of next_, with prev_ behind it: since 2.16, and up to 2.15, which have tid_ before."""
CACHE_REST = 64
WITHOUT_TID = (2, 16)
THREAD_HEAPS = "_ZN8tcmalloc11ThreadCache13thread_heaps_E"


class Central:
    """Where a CentralFreeList has its members (src/central_freelist.h)."""

    lock, size_class, empty, nonempty, spans, counter, slots, used_slots = 0, 8, 16, 64, 112, 120, 128, 1152
    most_slots = 64


class Sizes(NamedTuple):
    """SizeMap, as far as it is read: all by class, 0 is no class."""

    address: int
    """Of class_to_size_."""
    object_bytes: Sequence[int]
    """SIZE_CLASSES of them, 0 where there is no class."""
    batch: Sequence[int]
    """Objects that a transfer moves."""
    pages: Sequence[int]
    """Of a span."""
    room: int
    """Elements that the object's arrays have."""

    @property
    def lists_bytes(self) -> int:
        """The lists of a thread cache, one for each class that there is room for."""
        return FREE_LIST_BYTES * self.room

    @property
    def cache_bytes(self) -> int:
        """What is read of a thread cache."""
        return self.lists_bytes + CACHE_REST

    @property
    def classes(self) -> int:
        """How many there are, 0 included."""
        return 1 + sum(1 for size in self.object_bytes if size)


class PageMap(NamedTuple):
    """pagemap_: two levels (src/pagemap.h)."""

    root: int
    page_shift: int

    @property
    def page_bytes(self) -> int:
        """Of tcmalloc's pages, which are two of the system's or more."""
        return 1 << self.page_shift

    @property
    def page_bits(self) -> int:
        """Of a page's number."""
        return ADDRESS_BITS - self.page_shift

    @property
    def leaf_bits(self) -> int:
        """The lower ones, by which a leaf is indexed."""
        return (self.page_bits + 1) // 2

    @property
    def root_words(self) -> int:
        """Leaves that there may be."""
        return 1 << (self.page_bits - self.leaf_bits)

    @property
    def stats(self) -> int:
        """PageHeap::stats_: behind the root, two sets of large spans and lists of free ones by pages."""
        lists = 1 << max(0, 20 - self.page_shift)
        return self.root + WORD * self.root_words + 8 + 96 + 96 * lists


class Threads(NamedTuple):
    """thread_heaps_: the list of all thread caches."""

    head: int
    """Address of the variable."""
    next: int
    """Where a cache has its link, behind its lists."""
    has_tid: bool
    """It says which thread's it is."""


class Structure(NamedTuple):
    """All of one copy. Constant once tcmalloc has begun."""

    sizes: Sizes
    central: int
    """Of central_cache_."""
    stride: int
    page_map: PageMap
    threads: Optional[Threads]
    """None: not found, so what thread caches hold counts as used."""


class Image:
    """An object's writable data, as far as it was ever touched."""

    def __init__(self, target: Target, module: Optional[Module]) -> None:
        """Without a module it has none of an object's data."""
        self.target = target
        self.pieces: List[Tuple[int, bytes]] = []
        left = MOST_BYTES
        self._data = union([(start, end) for start, _, end in target.writable_segments(module)]) if module is not None else []
        for start, end in self._data:
            touched = target.touched_ranges(start, end) if target.kind != "remote" else [(start, end)]
            for first, last in touched:
                data = target.read_prefix(first, min(last - first, left))
                left -= len(data)
                if data:
                    self.pieces.append((first, data))
        self._memory = union([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable])
        self._starts = [start for start, _ in self._memory]

    def is_memory(self, address: int, size: int) -> bool:
        """Writable memory of the process."""
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and address + size <= self._memory[at][1]

    def is_own(self, address: int, size: int) -> bool:
        """All of it lies in the object's data."""
        return any(start <= address and address + size <= end for start, end in self._data)

    def find(self, wanted: bytes, align: int) -> Iterator[int]:
        """Addresses at which these bytes stand."""
        for start, data in self.pieces:
            at = data.find(wanted)
            while at >= 0:
                if (start + at) % align == 0:
                    yield start + at
                at = data.find(wanted, at + 1)

    def pointers(self) -> Iterator[Tuple[int, int]]:
        """(where it stands, what) of each word that leads to writable memory."""
        low, high = (self._starts[0], self._memory[-1][1]) if self._memory else (0, 0)
        for start, data in self.pieces:
            lead = -start % WORD
            words = array("Q", data[lead : lead + (len(data) - lead) // WORD * WORD])
            for place, value in enumerate(words):
                if low <= value < high and value % WORD == 0 and self.is_memory(value, WORD):
                    yield start + lead + WORD * place, value

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        """Of memory; empty if not all can be read."""
        data = self.target.read_prefix(address, WORD * count)
        return struct.unpack("<%dQ" % count, data) if len(data) == WORD * count else ()


def size_maps(image: Image) -> Iterator[Sizes]:
    """Tables that can be class_to_size_: num_objects_to_move_ stands before it, class_to_pages_ behind (src/common.h, SizeMap)."""
    for address in image.find(struct.pack("<3I", 0, 8, 16), 4):
        for room in ROOMS:
            data = image.target.read_prefix(address - 4 * room, 8 * room)
            behind = image.target.read_prefix((address + 4 * room + WORD - 1) // WORD * WORD, WORD * room)
            if len(data) < 8 * room or len(behind) < WORD * room:
                continue
            batch, sizes = struct.unpack("<%di" % room, data[: 4 * room]), struct.unpack("<%di" % room, data[4 * room :])
            pages = struct.unpack("<%dQ" % room, behind)
            if _are_classes(batch, sizes, pages):
                rest = (0,) * (SIZE_CLASSES - room)
                yield Sizes(address, sizes + rest, batch + rest, pages + rest, room)


def _are_classes(batch: Sequence[int], sizes: Sequence[int], pages: Sequence[int]) -> bool:
    """Sizes ascend in units of 8 and then there is none; batches and spans of each are as tcmalloc makes them."""
    room = len(sizes)
    count = next((place for place in range(1, room) if sizes[place] <= sizes[place - 1]), room)
    if count < FEWEST_CLASSES or sizes[count - 1] < LARGEST_CLASS_BYTES or any(sizes[count:]) or any(size % 8 for size in sizes):
        return False
    return all(1 < number <= 1 << 16 for number in batch[1:count]) and all(0 < number < 1 << 12 for number in pages[1:count])


def central_lists(image: Image) -> Iterator[Tuple[int, int]]:
    """(address, stride) of what can be central_cache_: each element has its own class."""
    for stride in STRIDES:
        for at in image.find(struct.pack("<Q", 1), WORD):
            first = at - Central.size_class - stride
            places = (first + Central.size_class + number * stride for number in (0, *range(2, CLASSES_SEEN)))
            if all(image.words(place, 1) == (number,) for place, number in zip(places, (0, *range(2, CLASSES_SEEN)))):
                yield first, stride


def spans_of(image: Image, central: int, stride: int, count: int) -> Iterator[Tuple[int, int]]:
    """(struct Span, its first page) that central lists lead to."""
    for number in range(1, count):
        head = central + number * stride
        for member in (Central.nonempty, Central.empty):
            (span,) = image.words(head + member + 16, 1) or (0,)
            if span and span != head + member and image.is_memory(span, SPAN_BYTES):
                words = image.words(span, 6)
                if words and words[5] >> 16 & 255 == number:
                    yield span, words[0]


def page_map(image: Image, spans: Sequence[Tuple[int, int]]) -> Optional[PageMap]:
    """The root by which all these spans are found; None: there is none."""
    if not spans:
        return None
    leads = list(image.pointers())
    span, page = spans[0]
    for shift in PAGE_SHIFTS:
        made = PageMap(0, shift)
        if not image.is_memory(page << shift, 1):
            continue
        offset = WORD * (page & (1 << made.leaf_bits) - 1)
        for at, leaf in leads:
            if image.is_memory(leaf + offset, WORD) and image.words(leaf + offset, 1) == (span,):
                found = made._replace(root=at - WORD * (page >> made.leaf_bits))
                is_own = image.is_own(found.root, WORD * found.root_words)
                if is_own and all(look_up(image, found, other) == known for known, other in spans[:PROOFS]):
                    return found
    return None


def look_up(image: Image, found: PageMap, page: int) -> Optional[int]:
    """The span that a page leads to."""
    leaf = image.words(found.root + WORD * (page >> found.leaf_bits), 1)
    word = image.words(leaf[0] + WORD * (page & (1 << found.leaf_bits) - 1), 1) if leaf and leaf[0] else ()
    return word[0] if word else None


def is_cache(image: Image, address: int, sizes: Sizes) -> bool:
    """A ThreadCache has the size of each class in its lists."""
    seen = range(1, CLASSES_SEEN)
    if not image.is_memory(address, sizes.cache_bytes):
        return False
    data = image.target.read_prefix(address, FREE_LIST_BYTES * CLASSES_SEEN)
    if len(data) < FREE_LIST_BYTES * CLASSES_SEEN:
        return False
    told = [struct.unpack_from("<i", data, FREE_LIST_BYTES * number + FREE_LIST_SIZE)[0] for number in seen]
    return told == [sizes.object_bytes[number] for number in seen]


def link_of(image: Image, cache: int, sizes: Sizes, version: Version) -> Optional[int]:
    """Where a cache that is the first of the list has its link: the next one leads back by the word behind. Where there is no next one yet,
    the release tells."""
    known = THREAD_LINKS if version is None else THREAD_LINKS[version < WITHOUT_TID :][:1]
    for place in known:
        link = image.words(cache + sizes.lists_bytes + place, 2)
        if not link or link[1]:
            continue
        if not link[0]:
            return place
        if is_cache(image, link[0], sizes) and image.words(link[0] + sizes.lists_bytes + place + WORD, 1) == (cache,):
            return place
    return None


def thread_list(image: Image, module: Module, sizes: Sizes, version: Version) -> Optional[Threads]:
    """thread_heaps_, by its name where the object exports it."""
    named = image.target.module_symbol(module, THREAD_HEAPS)
    for at, cache in [(named.address, (image.words(named.address, 1) or (0,))[0])] if named is not None else image.pointers():
        if is_cache(image, cache, sizes):
            place = link_of(image, cache, sizes, version)
            if place is not None:
                return Threads(at, sizes.lists_bytes + place, place == THREAD_LINKS[1])
    return None


def locate(target: Target, module: Module, version: Version) -> Optional[Structure]:
    """All of the copy in one object; None: there is none, or nothing was allocated by it yet."""
    image = Image(target, module)
    for sizes in size_maps(image):
        for central, stride in central_lists(image):
            spans = list(spans_of(image, central, stride, sizes.classes))
            found = page_map(image, spans)
            if found is not None:
                return Structure(sizes, central, stride, found, thread_list(image, module, sizes, version))
    return None


def holds(target: Target, known: Structure) -> bool:
    """The same, proved again: spans of its central lists are still those that their pages lead to."""
    image = Image(target, None)
    spans = list(spans_of(image, known.central, known.stride, known.sizes.classes))[:PROOFS]
    return bool(spans) and all(look_up(image, known.page_map, page) == span for span, page in spans)
