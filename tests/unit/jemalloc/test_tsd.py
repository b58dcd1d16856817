"""Every thread's tsd: read by thread-local storage, checked against jemalloc's own list, and found without either."""

from typing import Any

import pytest

from gdbheapx.inferior.base import ThreadLocal
from gdbheapx.jemalloc import threads
from tests.support.builders.jemalloc import OLD, VERSIONS, World

LISTED = [version for version in VERSIONS if version >= (5, 2, 0)]
"""Releases with tsd_nominal_tsds."""


def three(version: Any) -> World:
    """Two threads that use jemalloc and one that does not."""
    world = World(version)
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
