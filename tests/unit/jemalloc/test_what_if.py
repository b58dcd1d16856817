"""What is free in arenas of jemalloc is the most that an option can save."""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx.jemalloc import what_if

pytestmark = pytest.mark.once  # arithmetic


def arena(used: Any) -> Any:
    return SimpleNamespace(active_bytes=100, dirty_bytes=20, muzzy_bytes=3, used_bytes=used)


def test_free_is_what_is_held_and_not_used() -> None:
    """With dirty and muzzy pages; an unknown part makes it unknown."""
    assert what_if.free_bytes([arena(60), arena(100)]) == 86
    assert what_if.free_bytes([arena(60), arena(None)]) is None
