"""Damage to plant into a core of a program on jemalloc, each a row of data: what is hurt, how, and which rule must be told."""

from typing import Any, Callable, List, NamedTuple, Sequence, Tuple

from tests.support.damaged_jemalloc import PAGE, Extent, Patient

ARENA = 2
"""Damage is done in it, or by its thread."""


class Plant(NamedTuple):
    """One kind of damage."""

    name: str
    do: Callable[[Patient], Any]
    rules: Sequence[str]
    """One of them must be told."""


def slab(there: Patient, number: int = 3) -> Extent:
    """One with used and free regions, and no region in a cache."""
    return there.slabs(ARENA)[number]


def large(there: Patient, number: int = 0) -> Extent:
    """One of several pages, with another extent right behind it."""
    begins = {one.begin for one in there.extents}
    return [one for one in there.larges(ARENA, 6) if one.end in begins][number]


def _field(choose: Callable[[Patient], Extent], name: str, value: Callable[[Patient], int]) -> Callable[[Patient], None]:
    return lambda there: there.put_field(choose(there), name, value(there))


def _word(choose: Callable[[Patient], Extent], member: str, value: Callable[[Patient, int], int]) -> Callable[[Patient], None]:
    def do(there: Patient) -> None:
        place = choose(there).struct + there.place(there.geometry.extent_struct, member)
        there.put(place, value(there, there.get(place)))

    return do


def _member(path: str, change: Callable[[int], int], size: int = 8) -> Callable[[Patient], None]:
    """A counter of the arena."""

    def do(there: Patient) -> None:
        first = there.types.first("arena_s", *path.split("|"))
        assert first is not None, path
        place = there.arenas[ARENA] + there.place("arena_s", first)
        there.put(place, change(there.get(place, size)), size)

    return do


def _base(member: str, change: Callable[[int], int]) -> Callable[[Patient], None]:
    def do(there: Patient) -> None:
        place = there.get(there.arenas[ARENA] + there.place("arena_s", "base")) + there.place("base_s", member)
        there.put(place, change(there.get(place)))

    return do


def _bin(member: str, change: Callable[[int], int]) -> Callable[[Patient], None]:
    """A word of the first bin of the arena that has a slab."""

    def do(there: Patient) -> None:
        context = there.malloc.context
        view = there.view("arena_s", there.arenas[ARENA])
        struct = context.jemalloc.bin_struct
        for shards in context.jemalloc.find_bin_addresses(view)[2:]:
            if there.get(shards[0] + there.place(struct, "slabcur")):
                place = shards[0] + there.place(struct, member)
                there.put(place, change(there.get(place)))
                return

    return do


def stack_of(there: Patient, number: int = 0) -> Tuple[Any, Any]:
    """A small bin of a thread's cache with several blocks: (cache, stack)."""
    stacks = [
        (cache, stack)
        for cache in there.malloc.tcaches().caches
        for stack in cache.counted
        if cache.tsd is not None and cache.tsd.arena_index == ARENA and stack.count >= 3 and 3 < stack.szind < 20
    ]
    return stacks[number]


def _cached(value: Callable[[Patient, int], int], number: int = 0, place: int = 0) -> Callable[[Patient], None]:
    """Another pointer in the place of a cached one."""

    def do(there: Patient) -> None:
        at = stack_of(there, number)[1].start + 8 * place
        there.put(at, value(there, there.get(at)))

    return do


def _of_status(status: str) -> Callable[[Patient, int], int]:
    return lambda there, before: next(row[0] for row in there.blocks if row[2] == status and row[3] == ARENA)


def _of_other_class(there: Patient, before: int) -> int:
    size = next(row[1] for row in there.blocks if row[0] == before)
    return next(row[0] for row in there.blocks if row[2] == "used" and row[3] == ARENA and row[1] != size and row[1] < 2048)


def _limit(there: Patient) -> None:
    cache, stack = stack_of(there)
    if there.types.place("tcache_s", "bins_small") is not None:
        there.put(cache.address + there.place("tcache_s", "bins_small[%d].ncached" % stack.szind), 5000, 4)
        return
    place = cache.address + there.place("tcache_s", "bins[%d].low_bits_empty" % stack.szind)
    there.put(place, there.get(place, 2) + 8 * 5000, 2)


def _element(choose: Callable[[Patient], Extent], last: bool, value: Callable[[Patient, int], int]) -> Callable[[Patient], None]:
    def do(there: Patient) -> None:
        hurt = choose(there)
        place = there.element(hurt.end - PAGE if last else hurt.begin)
        there.put(place, value(there, there.get(place)))

    return do


def _root(value: int) -> Callable[[Patient], None]:
    def do(there: Patient) -> None:
        levels = there.geometry.rtree.levels
        used = there.leaves()[0][0] >> sum(levels[1:-1])
        there.put(there.geometry.rtree_root + 8 * (used ^ 5), value)

    return do


def _root_twice(there: Patient) -> None:
    levels = there.geometry.rtree.levels
    used = there.leaves()[0][0] >> sum(levels[1:-1])
    there.put(there.geometry.rtree_root + 8 * (used ^ 5), there.get(there.geometry.rtree_root + 8 * used))


def _arenas(value: Callable[[Patient], int]) -> Callable[[Patient], None]:
    return lambda there: there.put(there.symbol("arenas") + 8 * ARENA, value(there))


EXTENTS: Tuple[Plant, ...] = tuple(
    Plant("%s of %s %d" % (name, kind, number), make(lambda there, choose=choose, number=number: choose(there, number)), rules)  # type: ignore[misc]
    for kind, choose, number in (("slab", slab, 1), ("large", large, 2))
    for name, make, rules in (
        ("arena index", lambda of: _field(of, "arena", lambda there: there.geometry.narenas), ("extent-arena",)),
        ("arena index 4094", lambda of: _field(of, "arena", lambda there: 4094), ("extent-arena",)),
        ("size zero", lambda of: _word(of, "e_size_esn", lambda there, before: 0), ("extent-size",)),
        ("size beyond memory", lambda of: _word(of, "e_size_esn", lambda there, before: (1 << 64) - PAGE), ("extent-size",)),
        ("size a GiB more", lambda of: _word(of, "e_size_esn", lambda there, before: before + (1 << 30)), ("extent-overlap", "slab-size")),
        ("address elsewhere", lambda of: _word(of, "e_addr", lambda there, before: 0x700000000000), ("extent-stale",)),
        ("address text", lambda of: _word(of, "e_addr", lambda there, before: 0x4141414141414141), ("extent-stale",)),
        ("first leaf element cleared", lambda of: _element(of, False, lambda there, before: 0), ("extent-first-page", "active-pages-mismatch")),
        ("state dirty", lambda of: _field(of, "state", lambda there: there.geometry.states.dirty), ("dirty-pages-mismatch", "active-pages-mismatch")),
        ("state muzzy", lambda of: _field(of, "state", lambda there: there.geometry.states.muzzy), ("muzzy-pages-mismatch",)),
        ("state retained", lambda of: _field(of, "state", lambda there: there.geometry.states.retained), ("retained-pages-mismatch",)),
        ("another arena's", lambda of: _field(of, "arena", lambda there: 1), ("active-pages-mismatch",)),
    )
)
SLABS: Tuple[Plant, ...] = (
    *(
        Plant("nfree %d of slab %d" % (value, number), _field(lambda there, n=number: slab(there, n), "nfree", lambda there, v=value: v), ("slab-bitmap",))  # type: ignore[misc]
        for number in (0, 2)
        for value in (0, 1023)
    ),
    *(
        Plant("bitmap bit %d" % bit, _word(slab, "e_slab_data", lambda there, before, bit=bit: before ^ 1 << bit), ("slab-bitmap",))  # type: ignore[misc]
        for bit in (0, 1, 2)
    ),
    Plant("slab szind", _field(slab, "szind", lambda there: there.geometry.nbins), ("extent-szind",)),
    Plant("slab of another class", _field(slab, "szind", lambda there: slab(there).szind + 1), ("slab-size", "slab-bitmap", "bin-slabs-mismatch")),
    Plant("large szind", _field(large, "szind", lambda there: len(there.geometry.size_classes) + 1), ("extent-szind",)),
    Plant("slab bit set", _field(large, "slab", lambda there: 1), ("extent-szind", "slab-size")),
    Plant("a page less", _word(large, "e_size_esn", lambda there, before: before - PAGE), ("extent-last-page",)),
    Plant("last leaf element cleared", _element(large, True, lambda there, before: 0), ("extent-last-page",)),
)
ARENAS: Tuple[Plant, ...] = (
    Plant("root element wild", _root(0x123456789000), ("rtree-node-unreadable",)),
    Plant("root element misaligned", _root(0x123456789001), ("rtree-node-misaligned", "rtree-node-unreadable")),
    Plant("root element twice", _root_twice, ("rtree-node-twice", "extent-stale")),
    Plant("nactive", _member("pa_shard.nactive|nactive", lambda before: before + 1), ("active-pages-mismatch",)),
    Plant("ndirty", _member("pa_shard.pac.ecache_dirty.eset.npages|extents_dirty.npages", lambda before: before + 3), ("dirty-pages-mismatch",)),
    Plant("nmuzzy", _member("pa_shard.pac.ecache_muzzy.eset.npages|extents_muzzy.npages", lambda before: before + 3), ("muzzy-pages-mismatch",)),
    Plant("nretained", _member("pa_shard.pac.ecache_retained.eset.npages|extents_retained.npages", lambda before: before + 3), ("retained-pages-mismatch",)),
    Plant("nthreads", _member("nthreads", lambda before: before + 1, 4), ("nthreads-mismatch",)),
    Plant("arena index", _member("ind", lambda before: 77, 4), ("arena-wrong",)),
    Plant("arenas[2] elsewhere", _arenas(lambda there: there.arenas[1]), ("arena-wrong",)),
    Plant("arenas[2] wild", _arenas(lambda there: 0x123456789000), ("arena-unreadable",)),
    Plant("narenas_total", lambda there: there.put(there.symbol("narenas_total"), 60000, 4), ("narenas-wrong",)),
    Plant("base mapped", _base("mapped", lambda before: before + PAGE), ("base-mapped-mismatch",)),
    Plant("base blocks wild", _base("blocks", lambda before: 0x123456789000), ("base-unreadable", "base-mapped-mismatch")),
    Plant("base blocks misaligned", _base("blocks", lambda before: before + 8), ("base-broken",)),
    Plant("bin curregs", _bin("stats.curregs", lambda before: before + 1), ("bin-regions-mismatch",)),
    Plant("bin curslabs", _bin("stats.curslabs", lambda before: before + 1), ("bin-slabs-mismatch",)),
    Plant("bin nmalloc", _bin("stats.nmalloc", lambda before: before + 1), ("bin-requests-mismatch",)),
    Plant("bin ndalloc", _bin("stats.ndalloc", lambda before: before + 1), ("bin-requests-mismatch",)),
    Plant("bin slabcur wild", _bin("slabcur", lambda before: 0x123456789000), ("bin-slab-wrong",)),
    Plant("bin slabcur of another", _bin("slabcur", lambda before: before + 128), ("bin-slab-wrong",)),
)
CACHES: Tuple[Plant, ...] = (
    Plant("cached: nowhere", _cached(lambda there, before: 0x1230, 1), ("cached-outside",)),
    Plant("cached: null", _cached(lambda there, before: 0, 1), ("cached-outside",)),
    Plant("cached: text", _cached(lambda there, before: 0x4141414141414141, 1), ("cached-outside",)),
    Plant("cached: unused pages", _cached(_of_status("dirty"), 1), ("cached-outside",)),
    Plant("cached: inside a region", _cached(lambda there, before: before + 8, 1), ("cached-not-start",)),
    Plant("cached: inside a large one", _cached(lambda there, before: large(there).begin + PAGE, 1), ("cached-not-start",)),
    Plant("cached: a free region", _cached(_of_status("free"), 1), ("cached-free",)),
    Plant("cached: twice", _cached(lambda there, before: there.get(stack_of(there)[1].start + 8), 0, 2), ("cached-twice",)),
    Plant("cached: of another class", _cached(_of_other_class, 1), ("cached-wrong-class",)),
)
COUNTS: Tuple[Plant, ...] = (Plant("cache count", _limit, ("thread-cache-bin-wrong",)),)


def _leaf(choose: Callable[[Patient], Extent], page: int, name: str) -> Callable[[Patient], None]:
    """Another size class, slab bit or state in the leaf element of a page."""

    def do(there: Patient) -> None:
        place, compact, lg_vaddr = there.element(choose(there).begin + page * PAGE), there.geometry.rtree.compact, there.geometry.rtree.lg_vaddr
        has_state = there.types.place("rtree_leaf_elm_s", "le_metadata") is not None
        bit = {"szind": lg_vaddr if compact else 5 if has_state else 0, "slab": 0 if compact or has_state else 32, "state": 2}[name]
        at = place if compact else place + 8
        there.put(at, there.get(at) ^ 1 << bit)

    return do


def long_slab(there: Patient) -> Extent:
    """A slab of three pages at least."""
    return next(one for one in there.slabs(ARENA) if one.end - one.begin >= 3 * PAGE)


def _rest(there: Patient) -> None:
    hurt = next(one for one in there.slabs(ARENA) if there.geometry.bins[one.szind].nregs % 64)
    nregs = there.geometry.bins[hurt.szind].nregs
    place = hurt.struct + there.place(there.geometry.extent_struct, "e_slab_data") + nregs // 64 * 8
    there.put(place, there.get(place) | 1 << nregs % 64)


def heaped(there: Patient) -> Extent:
    """A slab that is in the heap of its bin."""
    first = {there.get(at) for _, at in there.malloc.jemalloc.find_current_slabs(there.arenas[ARENA])}
    return next(one for one in there.slabs(ARENA) if one.struct not in first)


def dirty(there: Patient) -> Extent:
    """An unused extent of the arena."""
    state = there.geometry.fields["state"]

    def is_dirty(one: Extent) -> bool:
        return state.of(there.view(there.geometry.extent_struct, one.struct)["e_bits"]) == there.geometry.states.dirty

    return next(one for one in there.extents if one.arena == ARENA and not one.is_active and is_dirty(one))


def _link(choose: Callable[[Patient], Extent], *paths: str) -> Callable[[Patient], None]:
    """A link of the extent leads nowhere."""

    def do(there: Patient) -> None:
        path = there.types.first(there.geometry.extent_struct, *paths)
        assert path is not None
        there.put(choose(there).struct + there.place(there.geometry.extent_struct, path), 0x123456789000)

    return do


def _remembered(there: Patient) -> None:
    """A leaf node that a thread remembers becomes another."""
    path, word = there.place("tsd_s", "rtree_ctx.cache"), 8
    for record in there.malloc.tsds().records:
        for place in range((record.address or 0) + path, (record.address or 0) + path + 256, 16) if record.address else ():
            if there.get(place) != 1 and there.get(place + word):
                there.put(place + word, there.get(place + word) + 64)
                return


ESET = "pa_shard.pac.ecache_dirty.eset|extents_dirty"


def _eset(member: str, change: Callable[[int], int]) -> Callable[[Patient], None]:
    return _member("|".join(path + "." + member for path in ESET.split("|")), change)


HEAP_NEXT = ("heap_link.link.next", "ph_link.phn_next")
LINKS: Tuple[Plant, ...] = (
    *(
        Plant("leaf %s of page %d of %s" % (name, page, kind), _leaf(choose, page, name), ("leaf-mismatch",))  # type: ignore[arg-type]
        for kind, choose, page, names in (
            ("slab", slab, 0, ("szind", "slab", "state")),
            ("long slab", long_slab, 1, ("szind", "slab", "state")),
            ("large", large, 0, ("szind", "slab", "state")),
        )
        for name in names
    ),
    Plant("leaf of a page inside a slab cleared", lambda there: there.put(there.element(long_slab(there).begin + PAGE), 0), ("slab-pages",)),
    Plant("binshard", _field(slab, "binshard", lambda there: 63), ("slab-shard",)),
    Plant("bitmap beyond the last region", _rest, ("slab-bitmap-rest",)),
    Plant("link of a slab", _link(heaped, *HEAP_NEXT), ("extent-heap-links",)),
    Plant("link of an unused extent", _link(dirty, *HEAP_NEXT), ("extent-heap-links",)),
    Plant("a used extent among the unused", _field(dirty, "state", lambda there: there.geometry.states.muzzy), ("extent-heap-member",)),
    Plant("a used extent in the ring", _field(dirty, "state", lambda there: there.geometry.states.muzzy), ("extent-list-member",)),
    Plant("another bin's slab", _field(heaped, "szind", lambda there: heaped(there).szind + 1), ("extent-heap-member",)),
    Plant("pages of heaps", _eset("npages", lambda before: before + 3), ("extent-heap-pages",)),
    Plant("bitmap of heaps", _eset("bitmap", lambda before: before ^ 1 << 9), ("extent-heap-bitmap",)),
    Plant("ring link", _link(dirty, "ql_link_inactive.qre_next", "ql_link.qre_next"), ("extent-list-links",)),
    Plant("ring lost", _eset("lru.head.qlh_first", lambda before: 0), ("extent-list-count",)),
    Plant("nonfull_slabs", _bin("stats.nonfull_slabs", lambda before: before + 1), ("bin-nonfull-mismatch",)),
    Plant("mapped", _member("stats.pa_shard_stats.pac_stats.pac_mapped|stats.mapped", lambda before: before + PAGE), ("mapped-mismatch",)),
    Plant("remembered rtree node", _remembered, ("thread-rtree-cache",)),
)
PLANTS: List[Plant] = [*EXTENTS, *SLABS, *ARENAS, *CACHES, *COUNTS, *LINKS]
