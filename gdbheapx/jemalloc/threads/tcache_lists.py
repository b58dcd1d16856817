"""Which thread caches there are besides those that tsds show: on the arenas' lists, and those that tcache.create made.

jemalloc's circular lists (ql.h): a head that points to the first element, each element to the next one.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context, strided
from gdbheapx.jemalloc.detection.calibrate import words
from gdbheapx.jemalloc.detection.tsd_place import knows_itself
from gdbheapx.jemalloc.heap.arenas import Arena

MAX_ELEMENTS = 1 << 20
"""More elements than any process has threads: only there to end a broken list."""
MAX_EXPLICIT = 4096
"""MALLOCX_TCACHE_MAX is 4,093 in every release of 5."""
NEEDS_REINIT = 1
"""TCACHES_ELM_NEED_REINIT: an explicit cache that tcache.flush emptied."""


class Ring(NamedTuple):
    """What one list holds."""

    elements: List[int]
    """Addresses, the first first; those before the damage if there is some."""
    where: Optional[int]
    """Address of the link that does not hold; None if the list is whole."""
    what: Optional[str]


def read_ring(context: Context, first: int, next_offset: int) -> Ring:
    """Every element of the list that begins at `first` (0: empty); next_offset is qre_next's place in an element."""
    elements: List[int] = []
    seen = set()
    element = first
    while element and len(elements) < MAX_ELEMENTS and not context.budget.expired():
        if element in seen:
            return Ring(elements, elements[-1] + next_offset, "points back into the middle of its list")
        elements.append(element)
        seen.add(element)
        try:
            element = context.target.read_word(element + next_offset)
        except Unreadable as problem:
            return Ring(elements[:-1], problem.address, "cannot be read")
        if not element:
            return Ring(elements, elements[-1] + next_offset, "is null in a circular list")
        if element == first:
            return Ring(elements, None, None)
    return Ring(elements, None, None) if not first else Ring(elements, element, "is where the walk ended")


class ListedCache(NamedTuple):
    """A tcache_t that hangs on an arena's list."""

    address: int
    arena_index: int
    arena_address: int


class ListedCaches(NamedTuple):
    """All of them."""

    caches: List[ListedCache]
    complete: bool
    """Every list was followed to its end."""


def listed_caches(context: Context, listed: Sequence[Arena]) -> ListedCaches:
    """The caches on the lists of these arenas. Damage is reported.

    5.0.x links tcache_t itself (arena_s.tcache_ql); from 5.1.0 on cache_bin_array_descriptor_ql links a descriptor in each.
    """
    types = context.types
    is_old = types.place("arena_s", "cache_bin_array_descriptor_ql") is None
    head = types.place("arena_s", "tcache_ql.qlh_first" if is_old else "cache_bin_array_descriptor_ql.qlh_first")
    link = types.place("tcache_s" if is_old else "cache_bin_array_descriptor_s", "link.qre_next")
    caches: List[ListedCache] = []
    if head is None or link is None:
        return ListedCaches(caches, False)
    complete = True
    for arena in listed:
        try:
            first = context.target.read_word(arena.address + head.offset)
        except Unreadable as problem:
            context.report(
                codes.CACHE_LIST_UNREADABLE,
                problem.address,
                "cannot read arena %d's list of thread caches" % arena.index,
                "their blocks may count as used",
            )
            complete = False
            continue
        ring = read_ring(context, first, link.offset)
        if ring.what is not None:
            context.report(
                codes.CACHE_LIST_BROKEN,
                ring.where,
                "a link of arena %d's list of thread caches %s" % (arena.index, ring.what),
                "blocks of the others may count as used",
            )
            complete = False
        for element in ring.elements:
            address = element if is_old else _behind_descriptor(context, element, arena)
            complete = complete and bool(address)
            if address:
                caches.append(ListedCache(address, arena.index, arena.address))
    return ListedCaches(caches, complete and context.budget.reason is None)


def _behind_descriptor(context: Context, descriptor: int, arena: Arena) -> int:
    """The tcache_s that a cache_bin_array_descriptor_s belongs to; 0, and a report, if they do not agree about where the bins are."""
    types = context.types
    inner = types.place("tcache_s", "cache_bin_array_descriptor")
    bins = types.place("tcache_s", "bins_small" if inner is not None else "bins")
    try:
        view = context.view("cache_bin_array_descriptor_s", descriptor)
        if bins is None:
            return 0
        address = (view.get("bins", "bins_small") or 0) - bins.offset
        if inner is not None:
            agrees = address == descriptor - inner.offset
        else:
            slow, back = types.place("tcache_slow_s", "cache_bin_array_descriptor"), types.place("tcache_s", "tcache_slow")
            agrees = slow is not None and back is not None and context.target.read_word(address + back.offset) == descriptor - slow.offset
    except Unreadable as problem:
        context.report(
            codes.CACHE_UNREADABLE,
            problem.address,
            "cannot read a thread cache on arena %d's list" % arena.index,
            "its blocks count as used",
        )
        return 0
    if not agrees:
        text = "an element of arena %d's list of thread caches does not belong to the cache that it names"
        context.report(codes.CACHE_LIST_BROKEN, descriptor, text % arena.index, "its blocks count as used")
        return 0
    return address


def explicit_caches(context: Context) -> Dict[int, int]:
    """Address of each tcache_t that tcache.create made -> its number there (tcaches[], tcache.c); empty where that cannot be read."""
    array, count = context.variable("tcaches"), context.variable("tcaches_past", 4)
    if context.symbols.by_structure:
        return _known_by_themselves(context, array or 0)
    if not array or not count or "tcaches_s" not in context.types.structs:
        return {}
    size = context.types.size_bytes("tcaches_s")
    try:
        entries = words(context.target, array, min(count, MAX_EXPLICIT), size)
    except Unreadable as problem:
        context.report(codes.CACHE_LIST_UNREADABLE, problem.address, "cannot read jemalloc's table of explicit thread caches", None)
        return {}
    end = array + (MAX_EXPLICIT + 1) * size  # a free entry points to the next free one
    return {entry: number for number, entry in enumerate(entries) if entry not in (0, NEEDS_REINIT) and not array <= entry < end}


def _known_by_themselves(context: Context, array: int) -> Dict[int, int]:
    """The same where nobody says how many entries are in use: those that lead to a cache."""

    def read(address: int, size_bytes: int) -> int:
        return int.from_bytes(context.target.read_prefix(address, size_bytes).ljust(size_bytes, b"\xff"), "little")

    data = context.target.read_prefix(array, MAX_EXPLICIT * context.geometry.word_bytes) if array else b""
    entries = strided(data, 0, context.geometry.word_bytes, context.geometry.word_bytes, context.geometry.little_endian, False)
    return {entry: number for number, entry in enumerate(entries) if entry and knows_itself(context.types, read, entry)}
