"""What is free in arenas of jemalloc is the most that an option can save."""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx.common.model import HistogramRow
from gdbheapx.jemalloc import options
from gdbheapx.jemalloc.records import PublicNames

pytestmark = pytest.mark.once  # arithmetic


def arena(used: Any, active: Any = 100, resident: Any = None, rounding: Any = 0) -> Any:
    own = SimpleNamespace(active_bytes=active, dirty_bytes=20, muzzy_bytes=3, used_bytes=used, reclaimable_resident_bytes=resident, rounding_bytes=rounding)
    own.kind, own.cached_bytes, own.dirty_decay_ms, own.muzzy_decay_ms = "auto", 5, 10000, 0
    return own


def told(*arenas: Any, is_set: bool = False, asked: bool = False) -> Any:
    conditions: Any = SimpleNamespace(names=PublicNames("_rjem_", "_RJEM_MALLOC_CONF"), background_enabled=False, background_asked=asked)
    return {one.code: one for one in options.list_jemalloc_effects(arenas, conditions, 7, 2, is_set)}


def test_ends_of_what_options_save() -> None:
    """Decay returns unused pages and no free region; one arena keeps what the largest has; with caches off, RSS of one thread
    is at worst what it ever was."""
    found = told(arena(60, resident=20), arena(10, active=40, resident=20))
    assert [(one.least_bytes, one.most_bytes) for one in (found["decay"], found["background-threads"])] == [(40, 47), (0, 47)]
    assert found["arenas"].most_bytes == 40 + 20 + 3 and told(arena(60), arena(10, active=None))["arenas"].most_bytes is None
    alone = told(arena(60))["thread-caches"]
    assert (alone.least_bytes, alone.may_peak, found["thread-caches"].least_bytes, found["thread-caches"].most_bytes) == (0, True, None, 40 + 7 + 2 + 10)
    assert told(arena(60))["decay"].most_bytes == 23 + 7 and told(arena(60))["decay"].least_bytes is None


@pytest.mark.parametrize("resident, expected", [(15, 15), (None, 20 + 3)])
def test_unused_pages_are_acted_on_where_it_is_not_known_which_are_in_ram(resident: Any, expected: int) -> None:
    """A core has them all, and its answer is that of the process: the low end alone is unknown there."""
    found = told(arena(60, resident=resident))
    assert [found[code].acts_on_bytes for code in ("decay", "background-threads")] == [expected, expected]
    assert found["decay"].least_bytes == resident


def test_what_the_variable_has_is_kept() -> None:
    """Under the build's own name."""
    assert told(arena(60))["thread-caches"].setting == "_RJEM_MALLOC_CONF=tcache:false"
    assert told(arena(60), is_set=True)["thread-caches"].setting == "_RJEM_MALLOC_CONF=tcache:false (added to its present value)"


def test_free_is_what_is_held_and_not_used() -> None:
    """With dirty and muzzy pages, without what blocks are rounded up by; an unknown part makes it unknown."""
    assert options.sum_jemalloc_free([arena(60, rounding=30), arena(100)]) == 56
    assert options.sum_jemalloc_free([arena(60), arena(100)]) == 86
    assert options.sum_jemalloc_free([arena(60), arena(None)]) is None


def test_ends_of_large_blocks_may_never_have_been_written() -> None:
    """20 KiB can be a request of 16 KiB and a byte: less than a page; 320 KiB one of 256 KiB and a byte."""
    rows = [HistogramRow(size, size, 2, 2 * size, 0, 0, 0) for size in (16, 20 << 10, 320 << 10)]
    assert options.sum_unwritten_ends(rows, 4096) == 2 * (60 << 10)
