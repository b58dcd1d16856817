"""Free pages of the huge page allocator, by the structure of each huge page.

Files: jemalloc/extents.py, jemalloc/stats.py.
"""

from typing import Tuple

import pytest

from gdbheapx.jemalloc import arenas, extents
from gdbheapx.jemalloc.arenas import ArenaHandle
from gdbheapx.jemalloc.layouts import Version
from tests.support.builders.jemalloc import World

HUGE, PAGE = 2 << 20, 4096
VERSIONS = [(5, 3, 0), (5, 3, 1)]


class Shard:
    """An arena whose huge page allocator was used."""

    def __init__(self, version: Version) -> None:
        self.world = World(version)
        self.address = self.world.struct("arena_s")
        self.arena = ArenaHandle(0, self.address, "auto", self.world.context)
        self.path = arenas.find_hpa_path(self.arena.read())
        self.put("pa_shard.ever_used_hpa", 1)

    def put(self, path: str, value: int) -> None:
        self.world.put_path("arena_s", self.address, path, value)

    def huge_page(self, start: int, active: int, touched: int) -> int:
        """A hpdata_t; active and touched pages as bits."""
        made = self.world.struct("hpdata_s")
        for name, bits, count in (("active_pages", active, "h_nactive"), ("touched_pages", touched, "h_ntouched")):
            self.world.put("hpdata_s", made, **{count: bin(bits).count("1")})
            for group in range(8):
                self.world.put_path("hpdata_s", made, "%s[%d]" % (name, group), bits >> 64 * group & (1 << 64) - 1)
        self.world.put("hpdata_s", made, h_address=start)
        return made


def pages(start: int, first: int, last: int) -> Tuple[int, int]:
    return start + first * PAGE, start + last * PAGE


@pytest.mark.parametrize("version", VERSIONS)
def test_dirty_pages_are_touched_and_not_active(version: Version) -> None:
    """Of every huge page in a heap, through its siblings and children, and of those in the ring of empty ones."""
    shard = Shard(version)
    one, two, three = (shard.huge_page(place * HUGE, *bits) for place, bits in enumerate([(0b0011, 0b1011), (1 << 511, 1 << 511), (0, 0b111)], 8))
    shard.put(shard.path + "psset.pageslabs[3].ph.root", one)
    shard.world.put_path("hpdata_s", one, "age_link.link.lchild", two)
    shard.put(shard.path + "psset.empty.head.qlh_first", three)
    shard.world.put_path("hpdata_s", three, "ql_link_empty.qre_next", three)
    found = extents.read_huge_pages(shard.world.context, shard.arena)
    assert found.dirty == [pages(8 * HUGE, 3, 4), pages(10 * HUGE, 0, 3)]
    assert found.untouched == [pages(8 * HUGE, 2, 3), pages(8 * HUGE, 4, 512), pages(9 * HUGE, 0, 511), pages(10 * HUGE, 3, 512)]
    assert found.dirty_bytes == 4 * PAGE and not shard.world.problems


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_no_huge_page_is_told(version: Version) -> None:
    """Its pages stay unread: a structure whose counters its bitmaps contradict, and dirty pages that the arena counts beyond those read."""
    shard = Shard(version)
    bad = shard.huge_page(8 * HUGE, 0b1, 0b11)
    shard.world.put("hpdata_s", bad, h_ntouched=3)
    shard.put(shard.path + "psset.pageslabs[0].ph.root", bad)
    shard.put(shard.path + "psset." + ("merged_stats" if version == (5, 3, 0) else "stats.merged") + ".ndirty", 1)
    assert not extents.read_huge_pages(shard.world.context, shard.arena).dirty
    assert [problem.code for problem in shard.world.problems] == ["huge-page-wrong", "huge-pages-unread"]


def test_time_ends_the_walk() -> None:
    """What is left is said with the place, and is nobody's fault: no page is missed beside it."""
    shard = Shard((5, 3, 1))
    one = shard.huge_page(8 * HUGE, 0b1, 0b11)
    shard.put(shard.path + "psset.pageslabs[0].ph.root", one)
    shard.put(shard.path + "psset.stats.merged.ndirty", 1)
    shard.world.context.budget.interrupt()
    assert not extents.read_huge_pages(shard.world.context, shard.arena).dirty
    assert [(problem.code, problem.address) for problem in shard.world.problems] == [("huge-pages-incomplete", one)]
