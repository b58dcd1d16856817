"""Find every tcmalloc in a target by its structure, and read its central lists and thread caches."""

import re
import struct
from array import array
from bisect import bisect_right
from itertools import islice
from typing import Container, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.addons.allocators.gates import GOOGLE, GOOGLE_HINT, OF_GOOGLE
from gdbheapx.addons.allocators.tcmalloc import codes
from gdbheapx.addons.allocators.tcmalloc.records import SIZE_CLASSES, SPAN_BYTES
from gdbheapx.allocators.fingerprints import TextFingerprint, match_fingerprints
from gdbheapx.allocators.records import Instances, NotRead
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import PartialSink
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.inferior.base import Module, Target

WORD = 8
VersionNumbers = Optional[Tuple[int, ...]]
MOST_DATA_BYTES = 64 << 20
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
CACHE_TID = 32
"""Offset of ThreadCache's tid_ from size_, which follows its lists."""
THREAD_LINKS = (32, 48)
"""Offsets of next_, which prev_ follows: since 2.16, and up to 2.15, which have tid_ before."""
CACHE_REST = 64
WITHOUT_TID = (2, 16)
THREAD_HEAPS = "_ZN8tcmalloc11ThreadCache13thread_heaps_E"


class CentralPlaces:
    """Offsets of the members of a CentralFreeList (src/central_freelist.h)."""

    lock, size_class, empty, nonempty, spans, counter, slots, used_slots = 0, 8, 16, 64, 112, 120, 128, 1152
    most_slots = 64


class SizeMap(NamedTuple):
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
        """Bytes to read of a thread cache."""
        return self.lists_bytes + CACHE_REST

    @property
    def classes(self) -> int:
        """Number of classes, 0 included."""
        return 1 + sum(1 for size in self.object_bytes if size)


class PageMap(NamedTuple):
    """pagemap_: two levels (src/pagemap.h)."""

    root: int
    page_shift: int

    @property
    def page_bytes(self) -> int:
        """Size of tcmalloc's pages: two of the system's or more."""
        return 1 << self.page_shift

    @property
    def page_bits(self) -> int:
        """Bits of a page's number."""
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
        """PageHeap::stats_: after the root, two sets of large spans and lists of free ones by pages."""
        lists = 1 << max(0, 20 - self.page_shift)
        return self.root + WORD * self.root_words + 8 + 96 + 96 * lists


class ThreadCachePlaces(NamedTuple):
    """thread_heaps_: the list of all thread caches."""

    head: int
    """Address of the variable."""
    next: int
    """Offset of a cache's link, after its lists."""
    has_tid: bool
    """It says which thread's it is."""


class TcmallocStructure(NamedTuple):
    """Addresses and layout of one tcmalloc, constant once it was initialised."""

    sizes: SizeMap
    central: int
    """Of central_cache_."""
    stride: int
    page_map: PageMap
    threads: Optional[ThreadCachePlaces]
    """None: not found, so what thread caches hold counts as used."""


class DataImage:
    """An object's writable data, as far as it was ever touched."""

    def __init__(self, target: Target, module: Module) -> None:
        self.target = target
        self.pieces: List[Tuple[int, bytes]] = []
        left = MOST_DATA_BYTES
        self._data = unite_ranges([(start, end) for start, _, end in target.writable_segments(module)])
        for start, end in self._data:
            touched = target.touched_ranges(start, end) if target.kind != "remote" else [(start, end)]
            for first, last in touched:
                data = target.read_prefix(first, min(last - first, left))
                left -= len(data)
                if data:
                    self.pieces.append((first, data))
        self._memory = unite_ranges([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable])
        self._starts = [start for start, _ in self._memory]

    def is_memory(self, address: int, size: int) -> bool:
        """Writable memory of the process."""
        at = bisect_right(self._starts, address) - 1
        return at >= 0 and address + size <= self._memory[at][1]

    def is_own(self, address: int, size: int) -> bool:
        """True if the range lies in the object's data."""
        return any(start <= address and address + size <= end for start, end in self._data)

    def find(self, wanted: bytes, align: int) -> Iterator[int]:
        """Return the addresses of these bytes."""
        for start, data in self.pieces:
            at = data.find(wanted)
            while at >= 0:
                if (start + at) % align == 0:
                    yield start + at
                at = data.find(wanted, at + 1)

    def pointers(self) -> Iterator[Tuple[int, int]]:
        """Yield (address, value) of each word that leads to writable memory."""
        low, high = (self._starts[0], self._memory[-1][1]) if self._memory else (0, 0)
        for start, data in self.pieces:
            lead = -start % WORD
            words = array("Q", data[lead : lead + (len(data) - lead) // WORD * WORD])
            for place, value in enumerate(words):
                if low <= value < high and value % WORD == 0 and self.is_memory(value, WORD):
                    yield start + lead + WORD * place, value

    def words(self, address: int, count: int) -> Tuple[int, ...]:
        """Return words of memory; empty if not all can be read."""
        data = self.target.read_prefix(address, WORD * count)
        return struct.unpack("<%dQ" % count, data) if len(data) == WORD * count else ()


def find_size_maps(image: DataImage) -> Iterator[SizeMap]:
    """Tables that can be class_to_size_: num_objects_to_move_ precedes it, class_to_pages_ follows (src/common.h, SizeMap)."""
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
                yield SizeMap(address, sizes + rest, batch + rest, pages + rest, room)


def _are_classes(batch: Sequence[int], sizes: Sequence[int], pages: Sequence[int]) -> bool:
    """Sizes ascend in units of 8 and then there is none; batches and spans of each are as tcmalloc makes them."""
    room = len(sizes)
    count = next((place for place in range(1, room) if sizes[place] <= sizes[place - 1]), room)
    if count < FEWEST_CLASSES or sizes[count - 1] < LARGEST_CLASS_BYTES or any(sizes[count:]) or any(size % 8 for size in sizes):
        return False
    return all(1 < number <= 1 << 16 for number in batch[1:count]) and all(0 < number < 1 << 12 for number in pages[1:count])


def find_central_lists(image: DataImage) -> Iterator[Tuple[int, int]]:
    """(address, stride) of what can be central_cache_: each element has its own class."""
    for stride in STRIDES:
        for at in image.find(struct.pack("<Q", 1), WORD):
            first = at - CentralPlaces.size_class - stride
            places = (first + CentralPlaces.size_class + number * stride for number in (0, *range(2, CLASSES_SEEN)))
            if all(image.words(place, 1) == (number,) for place, number in zip(places, (0, *range(2, CLASSES_SEEN)))):
                yield first, stride


def find_spans(image: DataImage, central: int, stride: int, count: int) -> Iterator[Tuple[int, int]]:
    """(struct Span, its first page) that central lists lead to."""
    for number in range(1, count):
        head = central + number * stride
        for member in (CentralPlaces.nonempty, CentralPlaces.empty):
            (span,) = image.words(head + member + 16, 1) or (0,)
            if span and span != head + member and image.is_memory(span, SPAN_BYTES):
                words = image.words(span, 6)
                if words and words[5] >> 16 & 255 == number:
                    yield span, words[0]


def find_page_map(image: DataImage, spans: Sequence[Tuple[int, int]]) -> Optional[PageMap]:
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
                if is_own and all(look_up_page(image, found, other) == known for known, other in spans[:PROOFS]):
                    return found
    return None


def look_up_page(image: DataImage, found: PageMap, page: int) -> Optional[int]:
    """The span that a page leads to."""
    leaf = image.words(found.root + WORD * (page >> found.leaf_bits), 1)
    word = image.words(leaf[0] + WORD * (page & (1 << found.leaf_bits) - 1), 1) if leaf and leaf[0] else ()
    return word[0] if word else None


def is_thread_cache(image: DataImage, address: int, sizes: SizeMap) -> bool:
    """A ThreadCache has the size of each class in its lists."""
    seen = range(1, CLASSES_SEEN)
    if not image.is_memory(address, sizes.cache_bytes):
        return False
    data = image.target.read_prefix(address, FREE_LIST_BYTES * CLASSES_SEEN)
    if len(data) < FREE_LIST_BYTES * CLASSES_SEEN:
        return False
    told = [struct.unpack_from("<i", data, FREE_LIST_BYTES * number + FREE_LIST_SIZE)[0] for number in seen]
    return told == [sizes.object_bytes[number] for number in seen]


def find_link(image: DataImage, cache: int, sizes: SizeMap, version: VersionNumbers) -> Optional[int]:
    """Return the offset of the link in a first thread cache: the next cache leads back by the following word. Without a next cache the
    release decides.
    """
    known = THREAD_LINKS if version is None else THREAD_LINKS[version < WITHOUT_TID :][:1]
    for place in known:
        link = image.words(cache + sizes.lists_bytes + place, 2)
        if not link or link[1]:
            continue
        if not link[0]:
            return place
        if is_thread_cache(image, link[0], sizes) and image.words(link[0] + sizes.lists_bytes + place + WORD, 1) == (cache,):
            return place
    return None


def find_thread_list(image: DataImage, module: Module, sizes: SizeMap, version: VersionNumbers) -> Optional[ThreadCachePlaces]:
    """thread_heaps_, by its name where the object exports it."""
    named = image.target.module_symbol(module, THREAD_HEAPS)
    for at, cache in [(named.address, (image.words(named.address, 1) or (0,))[0])] if named is not None else image.pointers():
        if is_thread_cache(image, cache, sizes):
            place = find_link(image, cache, sizes, version)
            if place is not None:
                return ThreadCachePlaces(at, sizes.lists_bytes + place, place == THREAD_LINKS[1])
    return None


def locate_tcmalloc(target: Target, module: Module, version: VersionNumbers) -> Optional[TcmallocStructure]:
    """Return the structure of the tcmalloc in an object; None if there is none, or nothing was allocated by it yet."""
    image = DataImage(target, module)
    for sizes in find_size_maps(image):
        for central, stride in find_central_lists(image):
            spans = list(find_spans(image, central, stride, sizes.classes))
            found = find_page_map(image, spans)
            if found is not None:
                return TcmallocStructure(sizes, central, stride, found, find_thread_list(image, module, sizes, version))
    return None


VERSION_SYMBOL = re.compile(rb"gperftools (\d+\.\d+(?:\.\d+)?)").pattern
DEBUG_FILE = TextFingerprint("tcmalloc", (b"25DebugMallocImplementation",), True, "")
"""The debugging malloc around it: the name of its class (src/debugallocation.cc)."""
RELEASE_TEXT = TextFingerprint("tcmalloc", (), True, "", VERSION_SYMBOL)
NEWEST_TRIED = (2, 18)
USE_HINT = "look again once the program has allocated memory"
DEBUG_HINT = "start the program with the ordinary libtcmalloc, or use the debugging malloc's own checks"


class Tcmalloc(NamedTuple):
    """A tcmalloc in the target; its fields are constant."""

    id: str
    module: Module
    structure: TcmallocStructure
    version: Optional[str]
    owns_malloc: Optional[bool]

    @property
    def unlisted(self) -> Optional[str]:
        """Warning for a release newer than any tried, or None."""
        numbers = split_version(self.version)
        if numbers is None or numbers <= NEWEST_TRIED:
            return None
        return "gperftools %s is newer than %d.%d, the newest tested: gdbheapx reads it by its structure" % (self.version, *NEWEST_TRIED)

    def info(self) -> AllocatorInfo:
        """Its entry in the envelope."""
        name, build_id = self.module.file_name, self.module.build_id
        return AllocatorInfo(self.id, "tcmalloc", self.version, name, build_id, "table", "probe", self.owns_malloc)


def find_tcmallocs(target: Target, objects: Sequence[Module]) -> Instances:
    """Every copy in these objects, and those that cannot be read."""
    located: List[Tcmalloc] = []
    unread: List[NotRead] = []
    unused: List[NotRead] = []
    for module in objects:
        name = module.file_name
        texts = [match.known for match in match_fingerprints(target, module, (GOOGLE, DEBUG_FILE))]
        if target.exported(module, OF_GOOGLE) is not None or GOOGLE in texts:
            what = "google's tcmalloc in %s is not read: it has no releases, and each build has its own layout" % name
            unread.append(NotRead(module, what, GOOGLE_HINT))
            continue
        if target.word_bytes != 8 or not target.little_endian:
            unread.append(NotRead(module, "tcmalloc in %s is read on 64-bit little-endian machines only" % name, None))
            continue
        if "debug" in name or DEBUG_FILE in texts:
            what = "tcmalloc in %s is the debugging malloc: its blocks have headers and guard words" % name
            unread.append(NotRead(module, what, DEBUG_HINT))
            continue
        match = next(iter(match_fingerprints(target, module, (RELEASE_TEXT,))), None)  # none where constants cannot be read
        version = match.version if match is not None else None
        found = locate_tcmalloc(target, module, split_version(version))
        if found is None:
            unused.append(NotRead(module, "tcmalloc in %s was never used, or is of a build that gdbheapx does not know" % name, USE_HINT))
            continue
        ident = "tcmalloc" if not located else "tcmalloc#%d" % (len(located) + 1)
        owner = target.dynamic_symbol("malloc")
        owns_malloc = owner.module.base == module.base if owner is not None else None
        if owner is None and module.is_executable and target.knows_objects():
            owns_malloc = True
        located.append(Tcmalloc(ident, module, found, version, owns_malloc))
    return Instances(located, unread, unused=unused)


def split_version(version: Optional[str]) -> Optional[Tuple[int, ...]]:
    """`2.10` as (2, 10)."""
    return tuple(int(part) for part in version.split(".")[:2]) if version is not None else None


MOST_CACHES = 1 << 16
MOST_LACKING = 64
"""Threads without a cache that are looked at."""
LENGTH_FIELD = 8
THREAD_LOCAL_BYTES = 4096
"""On either side of the thread pointer lies the thread-local storage of objects that the program starts with."""


class CentralList(NamedTuple):
    """A central list with its counters."""

    size_class: int
    address: int
    lock: int
    """0: not held."""
    spans: int
    """num_spans_."""
    counter: int
    """Free objects in its spans, as it counts them."""
    batches: Sequence[int]
    """First objects of the linked ones in its transfer cache, without the newest while the lock is held: it may be on its way in or out."""


class TcThreadCache(NamedTuple):
    """A thread cache with its lists."""

    address: int
    lwp: Optional[int]
    """None: not known whose it is."""
    size_bytes: int
    lists: Sequence[Tuple[int, int, int]]
    """(size class, first object, length)."""


def read_central_lists(target: Target, known: TcmallocStructure, report: PartialSink) -> List[CentralList]:
    """Read the central lists; an impossible one is reported and left out."""
    sizes, found = known.sizes, []
    count = sizes.classes
    data = target.read_prefix(known.central, count * known.stride)
    if len(data) < count * known.stride:
        what = "cannot read all central lists at 0x%x" % known.central
        report(codes.CENTRAL_UNREADABLE, known.central + len(data), what, "what transfer caches hold counts as used")
    for number in range(1, len(data) // known.stride):
        base = number * known.stride
        lock, own = struct.unpack_from("<I", data, base)[0], struct.unpack_from("<Q", data, base + CentralPlaces.size_class)[0]
        spans, counter = struct.unpack_from("<QQ", data, base + CentralPlaces.spans)
        used = struct.unpack_from("<i", data, base + CentralPlaces.used_slots)[0]
        address = known.central + base
        if own != number or not 0 <= used <= CentralPlaces.most_slots:
            what = "the central list of class %d says class %d and %d batches" % (number, own, used)
            report(codes.CENTRAL_WRONG, address, what, "objects in its transfer cache count as used")
            used = 0
        used -= bool(lock and used)
        pairs = struct.unpack_from("<%dQ" % (2 * used), data, base + CentralPlaces.slots)
        batches = pairs[::2]
        found.append(CentralList(number, address, lock, spans, counter, batches))
    return found


def read_thread_caches(target: Target, known: TcmallocStructure, report: PartialSink) -> Tuple[Sequence[TcThreadCache], bool]:
    """Read the thread caches, and whether these are all."""
    threads, behind = known.threads, known.sizes.lists_bytes
    if threads is None:
        what = "the list of thread caches was not found"
        report(codes.CACHES_UNKNOWN, None, what, "objects in them count as used")
        return (), False
    head, size = target.read_prefix(threads.head, 8), known.sizes.cache_bytes
    address, met = int.from_bytes(head, "little"), []  # type: ignore[var-annotated]
    seen: Set[int] = set()
    is_whole, last = len(head) == 8, 0
    while address and is_whole:
        data = target.read_prefix(address, size)
        if len(data) < size:
            report(codes.TC_CACHE_UNREADABLE, address, "cannot read a thread cache", "objects in it and those behind it count as used")
            is_whole = False
        elif address in seen or len(met) >= MOST_CACHES or not _is_cache(data, known) or _unpack_word(data, threads.next + 8) != last:
            what = "the list of thread caches points to something that is not a thread cache, or back"
            report(codes.TC_CACHE_BROKEN, address, what, "objects in those behind it count as used")
            is_whole = False
        else:
            seen.add(address)
            met.append((address, data))
            last = address
            address = _unpack_word(data, threads.next)
    whose = _find_thread(target, known, [(address, _unpack_word(data, behind + CACHE_TID)) for address, data in met])
    unlisted = _find_unlisted_cache(target, known, seen, set(whose.values())) if is_whole else None
    if unlisted is not None:
        what = "this thread cache is not on the list of all"
        report(codes.TC_CACHE_BROKEN, unlisted, what, "objects in it count as used")
        is_whole = False
    rows = []
    for address, data in met:
        heads, lengths = array("Q", data[:behind])[:: FREE_LIST_BYTES // 8], _read_column(data, known, LENGTH_FIELD)
        lists = [(number, heads[number], length) for number, length in enumerate(lengths) if number and (heads[number] or length)]
        rows.append(TcThreadCache(address, whose.get(address), struct.unpack_from("<i", data, behind)[0], lists))
    return rows, is_whole


def _unpack_word(data: bytes, offset: int) -> int:
    return int(struct.unpack_from("<Q", data, offset)[0])


def _read_column(data: bytes, known: TcmallocStructure, place: int) -> "array[int]":
    """Return one u32 member of all lists of a cache, by class."""
    return array("I", data[: known.sizes.lists_bytes])[place // 4 :: FREE_LIST_BYTES // 4][: known.sizes.classes]


def _is_cache(data: bytes, known: TcmallocStructure) -> bool:
    return _read_column(data, known, FREE_LIST_SIZE)[1:].tolist() == list(known.sizes.object_bytes[1 : known.sizes.classes])


def _find_thread(target: Target, known: TcmallocStructure, caches: Sequence[Tuple[int, int]]) -> Dict[int, int]:
    """lwp by cache: by tid_, else by the thread-local pointer to it, anywhere near the thread pointer."""
    threads = {thread.thread_pointer: thread.lwp for thread in target.threads() if thread.thread_pointer}
    has_tid = known.threads is not None and known.threads.has_tid
    whose = {address: threads[tid] for address, tid in caches if has_tid and tid in threads}
    left, told = {address for address, _ in caches}.difference(whose), set(whose.values())
    for pointer, lwp in threads.items():
        own = left.intersection(_read_thread_words(target, pointer)) if left and lwp not in told else set()
        if len(own) == 1:
            whose[own.pop()] = lwp
    return whose


def _read_thread_words(target: Target, thread_pointer: int) -> List[int]:
    """Words of a thread's local storage, as far as it was ever touched."""
    words: List[int] = []
    start = thread_pointer // 8 * 8 - THREAD_LOCAL_BYTES
    end = start + 2 * THREAD_LOCAL_BYTES
    for first, last in target.touched_ranges(start, end) if target.kind != "remote" else [(start, end)]:
        words += target.words_in(target.read_prefix(max(first, start), min(last, end) - max(first, start)))
    return words


def _find_unlisted_cache(target: Target, known: TcmallocStructure, caches: Container[int], lwps: Container[int]) -> Optional[int]:
    """A thread cache that a thread without one on the list points to; None: there is none. A wrong link ends the list early."""
    memory = unite_ranges([(mapping.start, mapping.end) for mapping in target.mappings() if mapping.writable and not mapping.is_file])
    starts, size = [start for start, _ in memory], known.sizes.cache_bytes
    lacking = (thread for thread in target.threads() if thread.thread_pointer and thread.lwp not in lwps)
    for thread in islice(lacking, MOST_LACKING):
        for word in _read_thread_words(target, thread.thread_pointer or 0):
            place = bisect_right(starts, word) - 1
            if word % 8 or word in caches or place < 0 or word + size > memory[place][1]:
                continue
            data = target.read_prefix(word, size)
            if len(data) == size and _is_cache(data, known):
                return word
    return None
