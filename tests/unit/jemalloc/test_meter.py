"""The counters that `watch` reads of jemalloc, in every layout: pages of all arenas, and what bins and size classes count as allocated."""

from typing import Any, List

import pytest

from gdbheapx.jemalloc.meter import METER_FIGURES, JemallocMeter
from tests.support.builders.jemalloc import NBINS, VERSIONS, JemallocMemory

PAGE = 4096
KEYS = [figure.key for figure in METER_FIGURES]


def make(version: Any) -> JemallocMemory:
    """Three arenas with 10, 20 and 30 active pages, and a tenth of that dirty and retained."""
    world = JemallocMemory(version)
    behind = world.types.size_bytes(world.context.jemalloc.bin_struct) * NBINS
    world.arenas = [one._replace(address=world.room(world.types.size_bytes("arena_s") + behind)) for one in world.arenas]
    world.variable("narenas_total", 3, 4)
    pointers = b"".join(arena.address.to_bytes(8, "little") for arena in world.arenas)
    world.symbols.places["arenas"] = (world.bytes(pointers), len(pointers))
    for number, arena in enumerate(world.arenas):
        if world.types.place("arena_s", "ind"):
            world.put_path("arena_s", arena.address, "ind", number)
        put_pages(world, arena.address, number + 1)
    return world


def put_pages(world: JemallocMemory, address: int, times: int) -> None:
    """Counters of pages."""
    for paths, value in ((("pa_shard.nactive", "nactive"), 10), (("pa_shard.pac.ecache_dirty.eset.npages", "extents_dirty.npages"), 1)):
        path = world.types.first("arena_s", *paths)
        if path is not None:
            world.put_path("arena_s", address, path, value * times)


def told(world: JemallocMemory, meter: JemallocMeter) -> Any:
    """A reading by key."""
    found = meter.read(0.0)
    return {**dict(zip(KEYS, found.values)), "held": found.held_bytes, "used": found.used_bytes}


@pytest.mark.parametrize("version", VERSIONS)
def test_pages_of_all_arenas(version: Any) -> None:
    """They are added up; a member that this layout has not makes its figure unknown; no counter of allocations that counts: unknown, not 0."""
    world = make(version)
    found = told(world, JemallocMeter(world.context))
    has = {key: world.types.first("arena_s", *paths) is not None for key, paths in PATHS.items()}
    assert found["arenas"] == 3
    assert found["active_bytes"] == (60 * PAGE if has["active"] else None)
    assert found["dirty_bytes"] == (6 * PAGE if has["dirty"] else None)
    assert found["allocated_bytes"] is None and found["used"] is None


PATHS = {"active": ("pa_shard.nactive", "nactive"), "dirty": ("pa_shard.pac.ecache_dirty.eset.npages", "extents_dirty.npages")}


def bins_of(world: JemallocMemory, address: int) -> List[List[int]]:
    """Where the arena's bins are, after room was made for them."""
    context = world.context
    struct = world.context.jemalloc.bin_struct
    size = world.types.size_bytes(struct)
    if world.types.place("arena_s", "bins[0].bin_shards"):
        array = world.room(size * NBINS)
        for number in range(NBINS):
            world.put_path("arena_s", address, "bins[%d].bin_shards" % number, array + number * size)
    view = context.view("arena_s", address)
    return context.jemalloc.find_bin_addresses(view)


@pytest.mark.parametrize("version", [one for one in VERSIONS if one >= (5, 2, 1)])
def test_what_is_allocated(version: Any) -> None:
    """Regions of bins times their size, and large ones by class less what was freed, from 5.3.1 on by their bytes; again where they have changed, and only there."""
    world = make(version)
    if version >= (5, 3, 0):
        size = world.types.size_bytes("bin_s")
        if not world.types.place("arena_s", "all_bins"):
            first = world.types.size_bytes("arena_s")
            offsets = b"".join((first + number * size).to_bytes(4, "little") for number in range(NBINS))
            world.symbols.places["arena_bin_offsets"] = (world.bytes(offsets), len(offsets))
    struct, classes = world.context.jemalloc.bin_struct, world.context.geometry.size_classes
    table = world.types.place("arena_s", "stats.lstats")
    assert table is not None and table.struct is not None
    expected, counter = 0, 0
    for number, arena in enumerate(world.arenas):
        bins = bins_of(world, arena.address)
        for szind in (0, 7, 35):
            world.put_path(struct, bins[szind][0], "stats.curregs", 100 + number)
            expected += (100 + number) * classes[szind]
        counter = bins[7][0]
        for place, made, freed in ((0, 9, 4), (5, 3, 0)):
            base = arena.address + table.offset + place * table.size_bytes
            size = (made - freed) * classes[NBINS + place]
            if world.types.place(table.struct, "active_bytes"):
                size += 4096  # a block's size may be no class
                world.put_path(table.struct, base, "active_bytes", size)
            for member, value in (("nmalloc", made), ("ndalloc", freed)):
                world.put_path(table.struct, base, member, value)
            expected += size
        put_pages(world, arena.address, 100_000)
    meter = JemallocMeter(world.context)
    assert told(world, meter)["allocated_bytes"] == told(world, meter)["used"] == expected
    world.put_path(struct, counter, "stats.curregs", 1102)
    assert told(world, meter)["allocated_bytes"] == expected + 1000 * classes[7]


def test_memory_that_goes_away() -> None:
    """Everything is unknown, and nothing is raised."""
    world = make((5, 3, 0))
    meter = JemallocMeter(world.context)
    meter.read(0.0)
    del world.memory.pieces[world.arenas[1].address]
    assert set(meter.read(0.0).values) == {None}
    world.memory.pieces.clear()
    assert set(meter.read(0.0).values) == {None}
