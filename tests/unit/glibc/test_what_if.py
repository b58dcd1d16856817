"""The settings of glibc's malloc, by its parameters and arenas."""

from types import SimpleNamespace
from typing import Any, Dict

import pytest

from gdbheapx.glibc import what_if

pytestmark = pytest.mark.once  # arithmetic

ARENA: Any = SimpleNamespace(free_bytes=5 << 20, fast_bytes=0, tcache_bytes=1 << 20, top_bytes=2 << 20)
MP = {"arena_max": 0, "no_dyn_threshold": 0, "trim_threshold": 1 << 17, "mmap_threshold": 1 << 17, "tcache_count": 7}


def told(mp: Dict[str, int], *arenas: Any) -> Dict[str, Any]:
    return {one.code: one for one in what_if.effects(mp, arenas, 2 << 20, 3, 4096)}  # type: ignore[arg-type]


def test_no_setting_saves_more_than_is_free() -> None:
    """Of two arenas; the thresholds at least what is above them at the main top, less a page for each large block."""
    found = told(MP, ARENA, ARENA)
    assert {one.most_bytes for one in found.values()} == {16 << 20}
    assert found["trim-threshold"].least_bytes == (2 << 20) - what_if.LEFT_AT_TOP_BYTES - 3 * 4096


def test_what_is_in_force_is_told() -> None:
    """One arena, fixed thresholds, no thread caches."""
    found = told({**MP, "no_dyn_threshold": 1, "tcache_count": 0}, ARENA)
    assert all(one.is_in_force for one in found.values()) and len(found) == 4


def test_a_release_without_thread_caches_has_no_setting_for_them() -> None:
    """And what is not known of an arena is not known of the sum."""
    mp = {name: value for name, value in MP.items() if name != "tcache_count"}
    found = told(mp, ARENA, SimpleNamespace(**{**vars(ARENA), "free_bytes": None}))
    assert "thread-caches" not in found and found["arenas"].most_bytes is None
