"""Damage to plant into a core of a program on glibc malloc, each a row of data: where, what, and which rule must be told.

A place is a word of the core: (kind of thing, arena, number, offset). What is written is a number, or one that is made of what is there.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple, Union

from tests.support.damaged_glibc import Damaged

PREV_INUSE, MMAPPED, NON_MAIN, FLAGS = 1, 2, 4, 7
Value = Union[int, Callable[["Map", int], int]]


class Chunk(NamedTuple):
    """One chunk of the undamaged core."""

    address: int
    size: int
    status: str
    arena: int


class Map:
    """What lies where in the undamaged core."""

    def __init__(self, core: Damaged) -> None:
        self.core, glibc = core, core.glibc
        rows = core.ask("chunks").envelope["data"]["chunks"]
        self.chunks = sorted(Chunk(int(row["chunk"], 16), row["size_bytes"], row["status"], row["arena"]) for row in rows if row["arena"] is not None)
        self.arenas = [int(row["address"], 16) for row in core.ask("arenas").envelope["data"]["arenas"]]
        self.members = {name: struct.members for name, struct in glibc.types.structs.items()}
        self.caches = {row["arena"]: int(row["tcache"], 16) for row in core.ask("tcache").envelope["data"]["threads"] if row["tcache"]}
        self.mapped = sorted(int(row["chunk"], 16) for row in rows if row["status"] == "mmapped")
        self._kinds: Dict[Tuple[str, int], List[int]] = {}

    def state(self, arena: int, field: str) -> int:
        """Address of a field of malloc_state."""
        return self.arenas[arena] + self.members["malloc_state"][field].offset

    def size(self, chunk: int) -> int:
        """Its size, as the core has it."""
        return self.core.get(chunk + 8) & ~FLAGS

    def after(self, chunk: int) -> int:
        """The chunk behind it."""
        return chunk + self.size(chunk)

    def of(self, kind: str, arena: int) -> List[int]:
        """The chunks of a kind, in the order that the kind has."""
        if (kind, arena) not in self._kinds:
            self._kinds[kind, arena] = self._find(kind, arena)
        return self._kinds[kind, arena]

    def _find(self, kind: str, arena: int) -> List[int]:
        own = [one for one in self.chunks if one.arena == arena]
        between = list(zip(own, own[1:], own[2:]))
        if kind == "used":  # with used ones on both sides
            return [b.address for a, b, c in between if a.status == b.status == c.status == "used" and a.address + a.size == b.address][10:]
        if kind == "behind-free":
            return [b.address for a, b, c in between if (a.status, b.status) == ("free", "used")][10:]
        if kind == "before-free":
            return [b.address for a, b, c in between if (b.status, c.status) == ("used", "free")][10:]
        if kind in ("free", "fast", "tcache"):
            return [one.address for one in own if one.status == kind]
        if kind == "top":
            return [self.core.get(self.state(arena, "top"))]
        if kind == "first":
            return [min(one.address for one in own)]
        if kind == "large":  # second of a large bin that has at least three sizes
            return self._large(arena)
        if kind == "unsorted":
            return self.ring(arena, 1)
        if kind == "smallbin":
            return next((chunks for index in range(2, 64) for chunks in [self.ring(arena, index)] if len(chunks) > 1), [])
        raise KeyError(kind)

    def ring(self, arena: int, index: int) -> List[int]:
        """The chunks of a bin along fd."""
        header = self.header(arena, index)
        chunks, chunk = [], self.core.get(header + 16)
        while chunk != header:
            chunks.append(chunk)
            chunk = self.core.get(chunk + 16)
        return chunks

    def header(self, arena: int, index: int) -> int:
        """bin_at."""
        return self.state(arena, "bins") + 16 * (index - 1) - 16

    def _large(self, arena: int) -> List[int]:
        for index in range(64, 127):
            chunks = self.ring(arena, index)
            sizes = [self.size(chunk) for chunk in chunks]
            if len(set(sizes)) == len(sizes) >= 3:
                return chunks
        return []

    def list_of(self, arena: int, kind: str) -> List[int]:
        """The longest list of an arena's thread cache, or fastbin: what malloc returned of each, or chunks."""
        if kind == "fast":
            heads = [self.state(arena, "fastbinsY") + 8 * index for index in range(10)]
        else:
            heads = [self.caches[arena] + self.members["tcache_perthread_struct"]["entries"].offset + 8 * index for index in range(64)]
        return max((self._single(head, 16 if kind == "fast" else 0) for head in heads), key=len)

    def _single(self, head: int, offset: int) -> List[int]:
        entries, entry = [], self.core.get(head)
        while entry:
            entries.append(entry)
            entry = self.core.get(entry + offset) ^ (entry + offset) >> 12
        return entries

    def place(self, kind: str, arena: int, number: int, offset: Any) -> int:
        """The address that is overwritten."""
        if kind == "state":
            return self.state(arena, offset[0]) + offset[1]
        if kind == "heap":
            return (self.of("top", arena)[0] & -(64 << 20)) + self.members["_heap_info"][offset].offset
        if kind == "mp":
            return int(self.core.glibc.mp.address) + self.members["malloc_par"][offset].offset
        if kind == "mapped":
            return self.mapped[number] + int(offset)
        if kind == "bin":
            return self.header(arena, number) + int(offset)
        if kind == "behind-unsorted":
            return self.after(self.of("unsorted", arena)[number]) + int(offset)
        if kind in ("tcache-entry", "fast-entry"):
            return self.list_of(arena, kind.split("-")[0])[number] + int(offset)
        if kind == "tcache-head":
            index = (self.size(self.list_of(arena, "tcache")[0] - 16) - 32) // 16
            return self.caches[arena] + self.members["tcache_perthread_struct"][offset].offset + index * (8 if offset == "entries" else 2)
        return self.of(kind, arena)[number] + int(offset)


class Plant(NamedTuple):
    """One kind of damage."""

    name: str
    kind: str
    arena: int
    number: int
    offset: Any
    value: Value
    rules: Sequence[str]
    """One of them must be told."""
    size: int = 8
    """Bytes that are written."""


def protected(entry: Callable[[Map], int]) -> Value:
    """The link to that entry, as malloc stores it at the place."""
    return lambda there, place: entry(there) ^ place >> 12


def flipped(bits: int) -> Value:
    """What is there with these bits changed."""
    return lambda there, place: there.core.get(place) ^ bits


def plus(number: int) -> Value:
    """What is there and so much more."""
    return lambda there, place: there.core.get(place) + number


ARENAS = (0, 1)
"""The main arena and one of a thread: others are as that one."""

SIZES: Tuple[Tuple[str, int, str], ...] = (
    ("zero", 0, "chunk-size-zero"),
    ("one", 1, "chunk-size-zero"),
    ("sixteen", 0x11, "chunk-size-zero"),
    ("eight", 9, "chunk-size-small"),
    ("twenty-four", 0x19, "chunk-size-small"),
    ("misaligned", 0x29, "chunk-size-misaligned"),
    ("misaligned large", 0x1009, "chunk-size-misaligned"),
    ("mmapped bit", 0x43, "chunk-mmapped-bit"),
    ("text", 0x4141414141414141 & ~6 | 8, "chunk-size-misaligned"),
    ("huge", 0x7FFFFFFFFFFF0 | 1, "chunk-overrun"),
    ("all ones", 0xFFFFFFFFFFFFFFF1, "chunk-overrun"),
    ("a gibibyte", (1 << 30) | 1, "chunk-overrun"),
)
OTHER_NAMES = ("unsorted-size", "unsorted-next-size", "chunk-mmapped-cached")
"""What the same breaks beside a chunk in the unsorted bin, and with the mmapped bit from 2.42 on."""


def _sizes() -> List[Plant]:
    """Size fields of used chunks, and of chunks behind free ones."""
    plants = []
    for number, (name, value, rule) in enumerate(SIZES):
        for arena, kind in ((number % 2, "used"), (1 - number % 2, "behind-free")):
            plants.append(Plant("size of %s: %s, arena %d" % (kind, name, arena), kind, arena, 3 * arena, 8, value, (rule, *OTHER_NAMES)))
    return plants


def _chunks() -> List[Plant]:
    plants = []
    for arena in ARENAS:
        wrong = NON_MAIN
        plants += [
            Plant("NON_MAIN of a used chunk, arena %d" % arena, "used", arena, 5, 8, flipped(wrong), ("arena-bit",)),
            Plant("NON_MAIN of a free chunk, arena %d" % arena, "free", arena, 4, 8, flipped(wrong), ("free-arena-bit",)),
            Plant("prev_size behind a free chunk, arena %d" % arena, "behind-free", arena, 2, 0, plus(16), ("prev-size", "unsorted-prev-size")),
            Plant("prev_size zero, arena %d" % arena, "behind-free", arena, 7, 0, 0, ("prev-size", "unsorted-prev-size")),
            Plant("PREV_INUSE set behind a free chunk, arena %d" % arena, "behind-free", arena, 3, 8, flipped(1), ("bin-entry-in-use", "unsorted-prev-inuse")),
            Plant("PREV_INUSE cleared behind a used chunk, arena %d" % arena, "used", arena, 9, 8, flipped(1), ("free-not-in-bin",)),
            Plant("null byte over a size, arena %d" % arena, "before-free", arena, 4, 8, lambda there, place: there.core.get(place) & ~0xFF, ("chunk-size-zero", "chunk-overrun", "free-not-in-bin", "bin-entry-not-a-chunk", "unsorted-next-size", "chunk-size-misaligned", "chunk-size-small", "chunk-mmapped-bit")),
            Plant("PREV_INUSE of a free chunk cleared, arena %d" % arena, "free", arena, 6, 8, flipped(1), ("free-not-in-bin", "free-neighbours")),
            Plant("first chunk's PREV_INUSE, arena %d" % arena, "first", arena, 0, 8, flipped(1), ("first-chunk",)),
        ]
    return plants


def _links() -> List[Plant]:
    plants = []
    for arena in ARENAS:
        for name, value in (("wild", 0x4242424242424240), ("unaligned", 0x4141414141414141), ("zero", 0), ("itself", lambda there, place: place - 16)):
            plants.append(Plant("fd of a large chunk: %s, arena %d" % (name, arena), "large", arena, 1, 16, value, ("largebin-links",)))
        for name, value in (("wild", 0x4242424242424240), ("zero", 0), ("plus 16", plus(16))):
            plants.append(Plant("bk of a large chunk: %s, arena %d" % (name, arena), "large", arena, 1, 24, value, ("largebin-links",)))
        plants += [
            Plant("fd_nextsize, arena %d" % arena, "large", arena, 1, 32, plus(16), ("largebin-nextsize",)),
            Plant("bk_nextsize, arena %d" % arena, "large", arena, 1, 40, 0x4142, ("largebin-nextsize",)),
            Plant("bk_nextsize of the first, arena %d" % arena, "large", arena, 0, 40, 0x4140, ("largebin-nextsize",)),
            Plant("bk of a bin's header, arena %d" % arena, "bin", arena, 40, 24, 0x5555, ("smallbin-head",)),
            Plant("bk of the unsorted bin's header, arena %d" % arena, "bin", arena, 1, 24, 0x5550, ("unsorted-head",)),
            Plant("fd of the unsorted bin's header, arena %d" % arena, "bin", arena, 1, 16, 0x5550, ("unsorted-head",)),
            Plant("fd of an empty small bin, arena %d" % arena, "bin", arena, 50, 16, 0x5551, ("smallbin-head",)),
            Plant("fd of an empty large bin, arena %d" % arena, "bin", arena, 124, 16, 0x5551, ("largebin-head",)),
            Plant("bk of an empty large bin, arena %d" % arena, "bin", arena, 125, 24, 0x5551, ("largebin-head",)),
            Plant("binmap, arena %d" % arena, "state", arena, 0, ("binmap", 8), 0, ("binmap",)),
        ]
    return plants


def _arenas() -> List[Plant]:
    plants = []
    for arena in ARENAS:
        plants += [
            Plant("top's size huge, arena %d" % arena, "top", arena, 0, 8, 0x4444444444444441, ("top-size",)),
            Plant("top's size doubled, arena %d" % arena, "top", arena, 0, 8, lambda there, place: 1 << 32 | 1, ("top-size",)),
            Plant("top's size zero, arena %d" % arena, "top", arena, 0, 8, 1, ("top-small",)),
            Plant("top's size small, arena %d" % arena, "top", arena, 0, 8, 0x11, ("top-small",)),
            Plant("top's size no page, arena %d" % arena, "top", arena, 0, 8, plus(-16), ("top-page-end",)),
            Plant("top's size a page less, arena %d" % arena, "top", arena, 0, 8, plus(-4096), ("top-short", "break-mismatch")),
            Plant("top's PREV_INUSE, arena %d" % arena, "top", arena, 0, 8, flipped(1), ("top-prev-inuse",)),
            Plant("top's flags, arena %d" % arena, "top", arena, 0, 8, flipped(4), ("top-flags",)),
            Plant("system_mem over its maximum, arena %d" % arena, "state", arena, 0, ("max_system_mem", 0), 4096, ("system-mem-max",)),
            Plant("system_mem too small, arena %d" % arena, "state", arena, 0, ("system_mem", 0), plus(-4096), ("system-mem", "heap-sum", "break-mismatch")),
            Plant("mutex, arena %d" % arena, "state", arena, 0, ("mutex", 0), 0x41, ("arena-mutex",), 4),
            Plant("flags, arena %d" % arena, "state", arena, 0, ("flags", 0), 0x4141, ("arena-flags",), 4),
            Plant("attached_threads, arena %d" % arena, "state", arena, 0, ("attached_threads", 0), 1 << 40, ("attached-threads",)),
        ]
    for arena in (1, 2):
        plants += [
            Plant("heap_info.ar_ptr, arena %d" % arena, "heap", arena, 0, "ar_ptr", 0x4141, ("heap-arena", "arena-ring")),
            Plant("heap_info.size, arena %d" % arena, "heap", arena, 0, "size", plus(1), ("heap-size",)),
            Plant("heap_info.size zero, arena %d" % arena, "heap", arena, 0, "size", 0, ("heap-size",)),
            Plant("heap_info.mprotect_size, arena %d" % arena, "heap", arena, 0, "mprotect_size", 1 << 40, ("heap-size", "heap-info")),
            Plant("heap_info.prev, arena %d" % arena, "heap", arena, 0, "prev", 0x4141000000, ("heap-prev", "heap-info")),
            Plant("heap_info.prev unaligned, arena %d" % arena, "heap", arena, 0, "prev", 0x4141, ("heap-prev", "heap-info")),
        ]
    plants += [
        Plant("next of the ring", "state", 1, 0, ("next", 0), 0x4141414140, ("arena-ring", "arena-ring-open")),
        Plant("next into a heap", "state", 1, 0, ("next", 0), plus(8), ("arena-ring", "arena-ring-open")),
        Plant("main_arena's next", "state", 0, 0, ("next", 0), plus(16), ("arena-ring", "arena-ring-open")),
        Plant("sbrk_base", "mp", 0, 0, "sbrk_base", plus(-4096), ("break-mismatch",)),
        Plant("n_mmaps below zero", "mp", 0, 0, "n_mmaps", -1, ("mmapped-count",), 4),
        Plant("mmapped_mem without mappings", "mp", 0, 0, "n_mmaps", 0, ("mmapped-count",), 4),
    ]
    return plants


def _singles() -> List[Plant]:
    return [
        Plant("tcache link unaligned", "tcache-entry", 0, 1, 0, protected(lambda there: 0x4141414141), ("tcache-unaligned",)),
        Plant("tcache link wild", "tcache-entry", 0, 2, 0, protected(lambda there: 0x434343434340), ("tcache-link",)),
        Plant("tcache link text", "tcache-entry", 0, 3, 0, 0x4141414141414141, ("tcache-unaligned", "tcache-link")),
        Plant("tcache link to itself", "tcache-entry", 0, 1, 0, protected(lambda there: there.list_of(0, "tcache")[1]), ("tcache-double-free",)),
        Plant("tcache link back", "tcache-entry", 0, 4, 0, protected(lambda there: there.list_of(0, "tcache")[1]), ("tcache-double-free",)),
        Plant("tcache link cut", "tcache-entry", 0, 1, 0, protected(lambda there: 0), ("tcache-count",)),
        Plant("tcache link to a used block", "tcache-entry", 0, 5, 0, protected(lambda there: there.of("used", 0)[3] + 16), ("tcache-size", "tcache-link", "tcache-count", "tcache-unaligned")),
        Plant("tcache link into a block", "tcache-entry", 0, 5, 0, protected(lambda there: there.of("used", 0)[3] + 48), ("listed-not-a-chunk", "tcache-unaligned", "tcache-link")),
        Plant("tcache link to a free chunk", "tcache-entry", 0, 6, 0, protected(lambda there: there.of("free", 0)[3] + 16), ("double-free",)),
        Plant("tcache link to the stack", "tcache-entry", 0, 6, 0, protected(lambda there: there.core.target.threads()[0].stack_pointer & -16), ("listed-outside", "tcache-size", "tcache-unaligned", "tcache-link")),
        Plant("tcache key cleared", "tcache-entry", 0, 2, 8, 0, ("tcache-key",)),
        Plant("tcache key text", "tcache-entry", 0, 0, 8, 0x4141414141414141, ("tcache-key",)),
        Plant("size of a cached chunk", "tcache-entry", 0, 3, -8, 0x51, ("tcache-size", "chunk-size-misaligned", "listed-not-a-chunk")),
        Plant("PREV_INUSE behind a cached chunk", "tcache-entry", 0, 3, 40, flipped(1), ("double-free",)),
        Plant("tcache count too large", "tcache-head", 0, 0, "counts", 100, ("tcache-count",), 2),
        Plant("tcache count zero", "tcache-head", 0, 0, "counts", 0, ("tcache-count",), 2),
        Plant("tcache head wild", "tcache-head", 0, 0, "entries", 0x434343434340, ("tcache-link",)),
        Plant("tcache head unaligned", "tcache-head", 0, 0, "entries", plus(8), ("tcache-unaligned",)),
        Plant("tcache head zero", "tcache-head", 0, 0, "entries", 0, ("tcache-count",)),
        Plant("tcache entry also in a fastbin", "tcache-head", 0, 0, "entries", lambda there, place: there.list_of(0, "fast")[2] + 16, ("listed-twice", "tcache-too-many", "tcache-link", "tcache-count")),
        Plant("fastbin link unaligned", "fast-entry", 0, 1, 16, protected(lambda there: 0x4141414141), ("fastbin-unaligned",)),
        Plant("fastbin link wild", "fast-entry", 0, 2, 16, protected(lambda there: 0x434343434340), ("fastbin-link",)),
        Plant("fastbin link to itself", "fast-entry", 0, 3, 16, protected(lambda there: there.list_of(0, "fast")[3]), ("fastbin-double-free",)),
        Plant("fastbin link back", "fast-entry", 0, 5, 16, protected(lambda there: there.list_of(0, "fast")[2]), ("fastbin-double-free",)),
        Plant("fastbin link to a used chunk", "fast-entry", 0, 4, 16, protected(lambda there: there.of("used", 0)[3]), ("fastbin-size", "fastbin-unaligned", "fastbin-link")),
        Plant("fastbin link to a free chunk", "fast-entry", 0, 8, 16, protected(lambda there: there.of("free", 0)[5]), ("double-free",)),
        Plant("size of a fastbin chunk", "fast-entry", 0, 2, 8, 0x61, ("fastbin-size",)),
        Plant("PREV_INUSE behind a fastbin chunk", "fast-entry", 0, 3, 56, flipped(1), ("double-free",)),
    ]


def _rich() -> List[Plant]:
    """What only some arenas have: an unsorted bin, small bins, mapped chunks; and what needs two things to be wrong."""
    return [
        Plant("size of an unsorted chunk", "unsorted", 0, 1, 8, 9, ("unsorted-size",)),
        Plant("size behind an unsorted chunk", "behind-unsorted", 0, 1, 8, 8, ("unsorted-next-size",)),
        Plant("size behind an unsorted chunk huge", "behind-unsorted", 0, 2, 8, 0x7FFFFFFFFF0, ("unsorted-next-size",)),
        Plant("prev_size behind an unsorted chunk", "behind-unsorted", 0, 1, 0, 16, ("unsorted-prev-size",)),
        Plant("PREV_INUSE behind an unsorted chunk", "behind-unsorted", 0, 2, 8, flipped(1), ("unsorted-prev-inuse",)),
        Plant("fd of an unsorted chunk", "unsorted", 0, 1, 16, 0x4242424242424240, ("unsorted-links",)),
        Plant("bk of an unsorted chunk", "unsorted", 0, 1, 24, plus(16), ("unsorted-links",)),
        Plant("fd of a small chunk", "smallbin", 0, 1, 16, 0x4242424242424240, ("smallbin-links",)),
        Plant("bk of a small chunk", "smallbin", 0, 1, 24, 0, ("smallbin-links",)),
        Plant("fd of a small chunk to itself", "smallbin", 0, 2, 16, lambda there, place: place - 16, ("smallbin-links",)),
        Plant("size of a small chunk", "smallbin", 0, 1, 8, plus(16), ("bin-size",)),
        Plant("size of a large chunk", "large", 0, 1, 8, plus(0x10000), ("largebin-order",)),
        Plant("a size that steps over a free chunk", "before-free", 0, 3, 8, lambda there, place: there.core.get(place) + there.size(there.after(place - 8)), ("bin-entry-not-a-chunk",)),
        Plant("tcache_count below what is cached", "mp", 0, 0, "tcache_count", 3, ("tcache-too-many",)),
        Plant("top's size a page more", "top", 0, 0, 8, plus(4096), ("break-below-top",)),
        Plant("main_arena's top zero", "state", 0, 0, ("top", 0), 0, ("bytes-not-located", "listed-outside")),
        Plant("main_arena's top wild", "state", 0, 0, ("top", 0), 0x414141414140, ("top-unmapped",)),
        Plant("a thread arena's top wild", "state", 1, 0, ("top", 0), 0x414141414140, ("heap-unmapped",)),
        Plant("size of a mapped chunk", "mapped", 0, 0, 8, 0x52, ("mmapped-header",)),
        Plant("size of another mapped chunk", "mapped", 0, 1, 8, (1 << 40) | 2, ("mmapped-size",)),
    ]


PLANTS: Tuple[Plant, ...] = (*_rich(), *_sizes(), *_chunks(), *_links(), *_arenas(), *_singles())


def plant(there: Map, one: Plant) -> int:
    """Writes it; gives the address."""
    place = there.place(one.kind, one.arena, one.number, one.offset)
    there.core.put(place, one.value(there, place) if callable(one.value) else one.value, one.size)
    return place
