"""The settings of glibc's malloc, by its parameters and arenas."""

from types import SimpleNamespace
from typing import Any, Dict

import pytest

from gdbheapx.allocators.effects import four_to_a_doubling
from gdbheapx.glibc import what_if
from gdbheapx.model import HistogramRow

pytestmark = pytest.mark.once  # arithmetic

ARENA: Any = SimpleNamespace(free_bytes=5 << 20, fast_bytes=0, tcache_bytes=1 << 20, top_bytes=2 << 20)
MP = {"arena_max": 0, "no_dyn_threshold": 0, "trim_threshold": 1 << 17, "mmap_threshold": 1 << 17, "tcache_count": 7}


def told(mp: Dict[str, int], *arenas: Any) -> Dict[str, Any]:
    has = what_if.Figures(len(arenas), what_if.free_bytes(arenas), 0, 0, 2 << 20, 0, 3)
    return {one.code: one for one in what_if.effects(mp, has, 4096)}  # type: ignore[arg-type]


def test_no_setting_saves_more_than_is_free() -> None:
    """Of two arenas; the thresholds at least what is above them at the main top, less a page for each large block."""
    found = told(MP, ARENA, ARENA)
    assert {found[code].most_bytes for code in ("arenas", "trim-threshold", "mmap-threshold", "thread-caches", "restart")} == {16 << 20}
    assert found["trim-threshold"].least_bytes == (2 << 20) - what_if.LEFT_AT_TOP_BYTES - 3 * 4096


def test_what_is_in_force_is_told() -> None:
    """One arena, fixed thresholds, no thread caches."""
    found = told({**MP, "no_dyn_threshold": 1, "tcache_count": 0}, ARENA)
    assert {code for code, one in found.items() if not one.is_in_force} == {"restart"} and len(found) == 5


def test_blocks_of_another_allocator() -> None:
    """A chunk of 32 bytes is a request of 9 to 24; of a class of chunks the sum of all requests is known to 24 bytes a block."""
    assert [four_to_a_doubling(size) for size in (1, 8, 9, 24, 128, 129, 160, 161, 4097)] == [8, 8, 16, 32, 128, 160, 160, 192, 5120]
    rows = [HistogramRow(32, 32, 10, 320, 0, 0, 0), HistogramRow(1040, 1280, 2, 2400, 0, 0, 0)]
    assert what_if.requests(rows, 8, 4096) == [(10, 320, 80, 9, 24), (2, 2400, 2352, 1017, 1272)]


def test_a_release_without_thread_caches_has_no_setting_for_them() -> None:
    """And what is not known of an arena is not known of the sum."""
    mp = {name: value for name, value in MP.items() if name != "tcache_count"}
    found = told(mp, ARENA, SimpleNamespace(**{**vars(ARENA), "free_bytes": None}))
    assert "thread-caches" not in found and found["arenas"].most_bytes is None
