"""Thread-specific data of jemalloc and its caches.

Files: jemalloc/threads.py.
"""

from typing import Any, Dict, List, Optional, Tuple

import pytest

from gdbheapx.inferior.base import ThreadLocal
from gdbheapx.jemalloc import threads
from gdbheapx.jemalloc.threads import JemallocCaches
from tests.support.builders.jemalloc import NBINS, NHBINS, OLD, VERSIONS, JemallocMemory

LISTED = [version for version in VERSIONS if version >= (5, 2, 0)]
"""Releases with tsd_nominal_tsds."""


def three(version: Any) -> JemallocMemory:
    """Two threads that use jemalloc and one that does not."""
    world = JemallocMemory(version)
    world.thread("one", "nominal", 0, thread_allocated=100, thread_deallocated=50)
    world.thread("two", "nominal_slow", 1, reentrancy_level=2)
    world.thread("three", "uninitialized")
    return world


@pytest.mark.parametrize("version", VERSIONS)
def test_members(version: Any) -> None:
    """State, arena, counters and level are those of the tsd, wherever this release keeps them."""
    world = three(version)
    found = threads.read_tsds(world.context, world.arenas)
    assert found.complete and not world.problems
    assert [record.state for record in found.records] == ["nominal", "nominal_slow", "uninitialized"]
    assert [record.arena_index for record in found.records] == [0, 1, None]
    assert [record.reentrancy_level for record in found.records] == [0, 2, 0]
    assert (found.records[0].thread_allocated_bytes, found.records[0].thread_deallocated_bytes) == (100, 50)
    assert (found.records[0].arenas_tdata_bypass is None) is (version not in OLD)


@pytest.mark.parametrize("version", VERSIONS)
def test_one_unreadable_tsd(version: Any) -> None:
    """A tsd that cannot be read is reported with its address; that thread is unknown and the others are read."""
    world = three(version)
    assert world.symbols.local is not None
    world.symbols.local.addresses[101] = 0x666000
    found = threads.read_tsds(world.context, world.arenas)
    assert not found.complete
    assert [record.state for record in found.records] == ["nominal", None, "uninitialized"]
    assert [one.address for one in world.problems] == [0x666000]


# ---------------------------------------------------------------------------------------------------- jemalloc's own list


@pytest.mark.parametrize("version", LISTED)
def test_a_tsd_that_is_no_threads(version: Any) -> None:
    """A member of tsd_nominal_tsds that no thread has is reported with its address."""
    world = three(version)
    stray = world.struct("tsd_s")
    world.link_nominal(stray)
    assert threads.read_tsds(world.context, world.arenas).complete
    assert [one.address for one in world.problems] == [stray]


@pytest.mark.parametrize("version", LISTED)
@pytest.mark.parametrize("damage", ["cycle", "null", "unreadable"])
def test_a_damaged_list(version: Any, damage: str) -> None:
    """A list that loops, ends or leads out of memory is reported once, and the threads are those of thread-local storage."""
    world = three(version)
    for _ in range(2):
        world.thread("more", "nominal", 0)
    path = world.types.first("tsd_s", *threads.NOMINAL_LINKS) or ""
    bad = {"cycle": world.nominal[1], "null": 0, "unreadable": 0x666000}[damage]
    world.put_path("tsd_s", world.nominal[2], path, bad)
    found = threads.read_tsds(world.context, world.arenas)
    assert found.complete and len(found.records) == 5
    assert len(world.problems) == 1


# ---------------------------------------------------------------------------------------------------- without thread-local storage


@pytest.mark.parametrize("version", VERSIONS)
def test_without_thread_local_storage(version: Any) -> None:
    """Initialised threads are known from jemalloc's own lists: tsd_nominal_tsds, or on 5.0 and 5.1 the caches; the others are unknown."""
    world = three(version)
    records = [thread.thread_pointer or 0 for thread in world.memory.threads_known]
    for number, arena in ((0, 0), (1, 1)):
        world.own_cache(records[number], arena, {})
    world.explicit_cache(0, {})
    world.symbols.local = None
    found = threads.read_tsds(world.context, world.arenas)
    assert not found.complete
    assert {record.address for record in found.records if record.state is not None} == set(records[:2])
    assert {record.lwp for record in found.records if record.state is not None} == {100, 101}
    assert [record.lwp for record in found.records if record.state is None] == [102]
    assert any(one.code == "tsds-from-lists" for one in world.problems)


def test_no_thread_is_matched_by_guess() -> None:
    """Where two threads could own a tsd, none is named."""
    world = three((5, 2, 1))
    first, second = world.memory.threads_known[:2]
    world.memory.threads_known[1] = second._replace(thread_pointer=first.thread_pointer)
    world.symbols.local = ThreadLocal({}, "static-tls")
    world.symbols.local = None
    found = threads.read_tsds(world.context, world.arenas)
    assert [record.lwp for record in found.records if record.state == "nominal"] == [None]


def test_a_thread_whose_storage_cannot_be_found() -> None:
    """Its state is unknown, with the reason: it is not taken for a thread that never used jemalloc."""
    world = three((5, 2, 1))
    assert world.symbols.local is not None
    lost = world.memory.threads_known[1].lwp
    places = {lwp: None if lwp == lost else address for lwp, address in world.symbols.local.addresses.items()}
    world.symbols.local = ThreadLocal(places, "static-tls", {lost: "its thread pointer is 0"})
    found = threads.read_tsds(world.context, world.arenas)
    assert not found.complete and [(record.lwp, record.trouble) for record in found.records if record.state is None] == [(lost, "its thread pointer is 0")]
    assert any("thread %d: its thread pointer is 0" % lost in one.what for one in world.problems)


HELD: Dict[int, List[int]] = {0: [0x7F10, 0x7F08], 5: [0x9000 + 80 * i for i in range(200)], NBINS - 1: [0x20000], NBINS: [0x40000, 0x44000], NHBINS - 1: [0x80000]}
"""By size class; the second is full, the last three are around the end of the small and of all classes."""
BOTH = [version for version in VERSIONS if version >= (5, 3, 0)]


def read(world: JemallocMemory, has_stats: Optional[bool] = True) -> JemallocCaches:
    """All caches."""
    return threads.read_jemalloc_caches(world.context, world.arenas, threads.read_tsds(world.context, world.arenas), has_stats)


def addresses(held: Dict[int, List[int]]) -> List[int]:
    """All of it, sorted."""
    return sorted(one for pointers in held.values() for one in pointers)


def one_thread(version: Any, held: Dict[int, List[int]]) -> Tuple[JemallocMemory, int]:
    """A thread with this cache; the address of that."""
    world = JemallocMemory(version)
    record = world.thread("one", "nominal", 1)
    return world, world.own_cache(record, 1, held)


@pytest.mark.parametrize("version", VERSIONS)
def test_contents(version: Any) -> None:
    """A cache gives back what was put into it, by size class, in every layout."""
    world, cache = one_thread(version, HELD)
    found = read(world)
    assert list(found.pointers) == addresses(HELD)
    assert found.complete and not world.problems
    tsds = threads.read_tsds(world.context, world.arenas)
    (row,) = threads.make_cache_rows(world.context, threads.read_jemalloc_caches(world.context, world.arenas, tsds), tsds)
    assert (row.lwp, row.name, row.tcache, row.arena, row.explicit) == (100, "one", cache, 1, None)
    sizes = world.geometry.size_classes
    assert {one.index: (one.chunks, one.bytes, one.size_bytes) for one in row.bins} == {
        szind: (len(pointers), len(pointers) * sizes[szind], sizes[szind]) for szind, pointers in HELD.items()
    }
    assert (row.chunks, row.bytes) == (206, sum(len(pointers) * sizes[szind] for szind, pointers in HELD.items()))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stack_across_64_kib(version: Any) -> None:
    """From 5.3.0 on a bin keeps 16 bits of the addresses of its ends, and a stack may lie across the point where these begin anew."""
    world = JemallocMemory(version)
    record = world.thread("one", "nominal", 1)
    world.next_room(0x1FFFF000)
    held = {2: [0x5000 + 32 * i for i in range(200)]}
    world.own_cache(record, 1, held)
    found = read(world)
    assert list(found.pointers) == addresses(held)
    assert found.complete and not world.problems


@pytest.mark.parametrize("version", VERSIONS)
def test_threads_without_a_cache(version: Any) -> None:
    """Threads that never allocated, or turned their cache off, hold nothing and are listed so."""
    world, _ = one_thread(version, {0: [0x7F10]})
    world.thread("untouched", "uninitialized")
    world.thread("off", "nominal_slow", 2)
    world.thread("beginning", "nominal", 2, tcache_enabled=1)
    tsds = threads.read_tsds(world.context, world.arenas)
    rows = threads.make_cache_rows(world.context, threads.read_jemalloc_caches(world.context, world.arenas, tsds), tsds)
    assert [(row.lwp, row.tcache is None, row.chunks, row.arena) for row in rows] == [(100, False, 1, 1), (101, True, 0, None), (102, True, 0, 2), (103, True, 0, 2)]


@pytest.mark.parametrize("version", VERSIONS)
def test_explicit_caches(version: Any) -> None:
    """A cache that tcache.create made is found on its arena's list, belongs to no thread, and has its number."""
    world, _ = one_thread(version, {0: [0x7F10]})
    made = world.explicit_cache(2, {3: [0x5000, 0x5030]})
    table = world.bytes(b"".join(one.to_bytes(8, "little") for one in (0, 1, made)))
    world.variable("tcaches", table)
    world.variable("tcaches_past", 3, 4)
    tsds = threads.read_tsds(world.context, world.arenas)
    found = threads.read_jemalloc_caches(world.context, world.arenas, tsds)
    assert list(found.pointers) == [0x5000, 0x5030, 0x7F10]
    assert not world.problems
    rows = threads.make_cache_rows(world.context, found, tsds)
    assert [(row.lwp, row.tcache == made, row.explicit, row.arena) for row in rows] == [(100, False, None, 1), (None, True, 2, 2)]


@pytest.mark.parametrize("version", VERSIONS)
def test_two_ways_to_every_cache(version: Any) -> None:
    """Without the lists the tsds still lead to each thread's cache, and without tsds the lists do."""
    world, cache = one_thread(version, HELD)
    world.symbols.local = None
    assert list(read(world).pointers) == addresses(HELD)
    world, cache = one_thread(version, HELD)
    path = "tcache_ql.qlh_first" if version < (5, 1, 0) else "cache_bin_array_descriptor_ql.qlh_first"
    world.put_path("arena_s", world.arenas[1].address, path, 0)
    found = read(world)
    assert list(found.pointers) == addresses(HELD)
    assert [one.address for one in world.problems] == [cache]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("has_stats", [False, None])
def test_without_statistics(version: Any, has_stats: Optional[bool]) -> None:
    """Builds without statistics keep no lists: the tsds suffice, and that is no damage; without tsds nothing is known."""
    world, _ = one_thread(version, HELD)
    path = "tcache_ql.qlh_first" if version < (5, 1, 0) else "cache_bin_array_descriptor_ql.qlh_first"
    world.put_path("arena_s", world.arenas[1].address, path, 0)
    found = read(world, has_stats)
    assert list(found.pointers) == addresses(HELD)
    assert found.complete and not world.problems
    world.symbols.local = None
    assert not read(world, has_stats).complete


# ---------------------------------------------------------------------------------------------------- as jemalloc counts


@pytest.mark.parametrize("version", VERSIONS)
def test_tcache_bytes(version: Any) -> None:
    """Per arena as jemalloc prints it: from 5.1.0 to 5.2.1 without large size classes, by its own mistake."""
    world, _ = one_thread(version, HELD)
    sizes = world.geometry.size_classes
    small = sum(len(pointers) * sizes[szind] for szind, pointers in HELD.items() if szind < NBINS)
    large = sum(len(pointers) * sizes[szind] for szind, pointers in HELD.items() if szind >= NBINS)
    mistaken = (5, 1, 0) <= version < (5, 3, 0)
    found = threads.count_cached_bytes(world.context, read(world), world.arenas)
    assert found == {0: (0, 0), 1: (small + (0 if mistaken else large), 0), 2: (0, 0)}


@pytest.mark.parametrize("version", [(5, 1, 0), (5, 2, 1)])
def test_tcache_bytes_with_many_large_classes(version: Any) -> None:
    """With a large opt.lg_tcache_max the mistaken loop meets bins again, and takes each for the class NBINS below."""
    world, cache = one_thread(version, {})
    world.variable("nhbins", 80, 4)
    szind = 2 * NBINS + 3
    stack = world.bytes((0x700000).to_bytes(8, "little"))
    for name, value in (("avail", stack + 8), ("ncached", 1)):
        world.put_path("tcache_s", cache, "bins_large[%d].%s" % (szind - NBINS, name), value)
    found = threads.count_cached_bytes(world.context, read(world), world.arenas)
    assert found[1] == (world.geometry.size_classes[szind - NBINS], 0)


def test_what_caches_hold_at_most() -> None:
    """By the options: more and larger classes, and caches that belong to no thread."""
    world, _ = one_thread((5, 3, 0), {})
    usual = threads.limit_cached_bytes(world.context) or 0
    world.variable("tcache_maxclass", 64 << 10)
    large = (40 + 48 + 56 + 64) << 10
    assert threads.limit_cached_bytes(world.context) == usual + 20 * large
    world.variable("opt_tcache_nslots_large", 4, 4)
    world.variable("tcaches_past", 2, 4)
    assert threads.limit_cached_bytes(world.context) == 3 * (usual - 16 * ((16 + 20 + 24 + 28 + 32) << 10) + 4 * large)
    world.memory.threads_known.clear()
    assert threads.limit_cached_bytes(world.context) is None


@pytest.mark.parametrize("version", BOTH)
def test_stashed_blocks(version: Any) -> None:
    """Blocks that a build with UAF detection keeps back are in the cache, and counted apart."""
    world, cache = one_thread(version, {4: [0x6000]})
    head = world.types.place("tcache_s", "bins[4].stack_head")
    full = world.types.place("tcache_s", "bins[4].low_bits_full")
    assert head is not None and full is not None
    end = int.from_bytes(world.memory.read(cache + head.offset, 8), "little") + 8
    low = end - 200 * 8
    world.put_path("tcache_s", cache, "bins[4].low_bits_full", low + 16 & 0xFFFF)
    world.memory.write(low, (0x6100).to_bytes(8, "little") + (0x6200).to_bytes(8, "little"))
    if version >= (5, 3, 1):
        world.variable("disabled_bin", 0x7A7A7A7A7A7A7A7A)
    found = read(world)
    assert list(found.pointers) == [0x6000, 0x6100, 0x6200]
    size = world.geometry.size_classes[4]
    assert threads.count_cached_bytes(world.context, found, world.arenas)[1] == (size, 2 * size)


# ---------------------------------------------------------------------------------------------------- damage


def count_path(version: Any, szind: int) -> str:
    """The member that a bin counts with."""
    return ("tbins_small[%d].ncached" if version < (5, 1, 0) else "bins_small[%d].ncached") % szind


@pytest.mark.parametrize("version", VERSIONS)
def test_a_stack_outside_memory(version: Any) -> None:
    """A stack that leads out of memory is reported by its address, and its blocks are missing."""
    world, cache = one_thread(version, {2: [0x5000], 3: [0x6000]})
    if version < (5, 3, 0):
        world.put_path("tcache_s", cache, count_path(version, 3).replace("ncached", "avail"), 0x666000)
    else:
        world.put_path("tcache_s", cache, "bins[3].stack_head", 0x665FF8)
        world.put_path("tcache_s", cache, "bins[3].low_bits_empty", 0x6000)
        world.put_path("tcache_s", cache, "bins[3].low_bits_full", 0x6000 - 1600 & 0xFFFF)
    found = read(world)
    assert list(found.pointers) == [0x5000] and not found.complete
    assert any(one.address == 0x665FF8 and "size class 3" in one.what for one in world.problems), world.problems
