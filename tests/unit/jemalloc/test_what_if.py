"""What is free in arenas of jemalloc is the most that an option can save."""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx.jemalloc import what_if
from gdbheapx.model import HistogramRow

pytestmark = pytest.mark.once  # arithmetic


def arena(used: Any) -> Any:
    return SimpleNamespace(active_bytes=100, dirty_bytes=20, muzzy_bytes=3, used_bytes=used, reclaimable_resident_bytes=None)


def test_free_is_what_is_held_and_not_used() -> None:
    """With dirty and muzzy pages; an unknown part makes it unknown."""
    assert what_if.free_bytes([arena(60), arena(100)]) == 86
    assert what_if.free_bytes([arena(60), arena(None)]) is None


def test_ends_of_large_blocks_may_never_have_been_written() -> None:
    """20 KiB can be a request of 16 KiB and a byte: less than a page; 320 KiB one of 256 KiB and a byte."""
    rows = [HistogramRow(size, size, 2, 2 * size, 0, 0, 0) for size in (16, 20 << 10, 320 << 10)]
    assert what_if.ends(rows, 4096) == 2 * (60 << 10)
