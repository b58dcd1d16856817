"""Extents, huge pages and rings of jemalloc, whole and damaged: what is counted, and what is not said where elements were left behind.

Files: jemalloc/extents.py, jemalloc/stats.py.
"""

from typing import Any, Dict, List, Optional, Tuple

import pytest

from gdbheapx.jemalloc import extents, threads
from gdbheapx.jemalloc.arenas import ArenaHandle
from gdbheapx.jemalloc.layouts import Version
from gdbheapx.kernel.jemalloc import records as api
from tests.support.builders.jemalloc import JemallocMemory


def result(*codes: int) -> api.ExtentsResult:
    """A walk that met these contradictions."""
    problems = tuple(api.ExtentProblem(code, 0x7F0000000000 + 4096 * place, 0x7E0000000000) for place, code in enumerate(codes))
    counts = tuple(codes.count(code) for code in range(api.EXTENT_CODES))
    return api.ExtentsResult(api.ExtentsSummary(1, 0, 1, 1, 0, 0, 0, 0, len(problems), 0, 0), (), (), problems, counts, (), (0,) * api.CACHED_REASONS)


class Walking:
    """A walker whose walk is known."""

    def __init__(self, walked: api.ExtentsResult) -> None:
        self.walked = walked

    def walk(self, *arguments: Any) -> api.ExtentsResult:
        return self.walked


def told(options: Dict[str, Tuple[int, int]], monkeypatch: pytest.MonkeyPatch, *codes: int) -> Tuple[List[Tuple[Optional[int], str]], api.ExtentsResult]:
    """What is reported with these options, and the result that others see."""
    world = JemallocMemory((5, 3, 0))
    for name, (value, size) in options.items():
        world.variable(name, value, size)
    monkeypatch.setattr(extents, "make_extent_walker", lambda context: Walking(result(*codes)))
    walked = extents.walk_extents(world.context, ())
    return world.problems, walked


GUARDED = {"opt_san_guard_small": (1, 8), "opt_retain": (1, 1)}


def test_guarded_slabs_leave_elements_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """With opt.san_guard_small an element that names an extent elsewhere is none of its heap's damage; any other contradiction is."""
    problems, walked = told(GUARDED, monkeypatch, *[api.EXTENT_STALE] * 40)
    assert not problems and not any(walked.problem_counts) and not walked.problems
    problems, walked = told(GUARDED, monkeypatch, api.EXTENT_STALE, api.EXTENT_BITMAP)
    assert len(problems) == 1 and "bitmap" in problems[0].what and [one.code for one in walked.problems] == [api.EXTENT_BITMAP]


@pytest.mark.parametrize("options", [{}, {"opt_san_guard_small": (0, 8), "opt_retain": (1, 1)}, {"opt_san_guard_small": (1, 8), "opt_retain": (0, 1)}], ids=str)
def test_without_guarded_slabs_such_an_element_is_damage(options: Dict[str, Tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the option, or where memory is not retained, jemalloc leaves none."""
    problems, walked = told(options, monkeypatch, api.EXTENT_STALE)
    assert len(problems) == 1 and "does not contain it" in problems[0].what and walked.problem_counts[api.EXTENT_STALE] == 1


def test_a_destroyed_arena_leaves_elements_to_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its metadata is unmapped: zeros there are no damage. What cannot be read may be an extent that a core lacks, and is told."""
    problems, _ = told(GUARDED, monkeypatch, api.EXTENT_SIZE, api.EXTENT_STALE)
    assert not problems
    problems, walked = told(GUARDED, monkeypatch, api.EXTENT_SIZE, api.EXTENT_UNREADABLE)
    assert len(problems) == 1 and walked.problem_counts[api.EXTENT_UNREADABLE] == 1
    assert told({}, monkeypatch, api.EXTENT_SIZE)[0]


HUGE, PAGE = 2 << 20, 4096
VERSIONS = [(5, 3, 0), (5, 3, 1)]


class Shard:
    """An arena whose huge page allocator was used."""

    def __init__(self, version: Version) -> None:
        self.world = JemallocMemory(version)
        self.address = self.world.struct("arena_s")
        self.arena = ArenaHandle(0, self.address, "auto", self.world.context)
        self.path = self.arena.read().find_hpa_path()
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


PLACES = [0x1000 * i for i in range(1, 6)]


def ring(links: Dict[int, int]) -> Tuple[List[int], Optional[int], Optional[str]]:
    """The list that begins at the first place, with these links at offset 8."""
    world = JemallocMemory((5, 2, 1))
    base = world.room(0x6000)
    for place, following in links.items():
        world.memory.write(base + place + 8, (base + following if 0 < following < 0x6000 else following).to_bytes(8, "little"))
    elements, where, wrong = threads.read_ql_ring(world.context, base + PLACES[0], 8)
    return [one - base for one in elements], where - base if where is not None else None, wrong


def whole() -> Dict[int, int]:
    """Every element leads to the next, the last to the first."""
    return dict(zip(PLACES, PLACES[1:] + PLACES[:1]))


def test_a_whole_list() -> None:
    """All elements, the first first."""
    assert ring(whole()) == (PLACES, None, None)
    assert ring({PLACES[0]: PLACES[0]}) == (PLACES[:1], None, None)
    assert threads.read_ql_ring(JemallocMemory((5, 2, 1)).context, 0, 8) == ([], None, None)


@pytest.mark.parametrize(
    "bad, elements, where",
    [(PLACES[1], PLACES[:3], PLACES[2] + 8), (0, PLACES[:3], PLACES[2] + 8), (0x666000, PLACES[:3], None)],
    ids=["loop", "null", "unreadable"],
)
def test_a_damaged_list(bad: int, elements: List[int], where: int) -> None:
    """The elements before the damage, each once, and the address of the link that does not hold."""
    found, place, wrong = ring({**whole(), PLACES[2]: bad})
    assert found == elements and wrong
    if where is not None:
        assert place == where
