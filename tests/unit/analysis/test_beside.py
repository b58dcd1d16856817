"""What an answer about one allocator leaves out: another that holds more.

Files: jemalloc/text.py.
"""

from types import SimpleNamespace
from typing import Any, Optional

import pytest

from gdbheapx.analysis import blocks
from gdbheapx.jemalloc import text

MB = 1 << 20


def holding(size_bytes: Optional[int]) -> Any:
    """A jemalloc with so many bytes in pages."""
    return SimpleNamespace(info=SimpleNamespace(id="jemalloc", object="libarrow.so.2600"), capabilities={"held-bytes": lambda: size_bytes})


def test_who_holds_more_than_what_is_shown_is_named() -> None:
    """With both figures and the option that shows it."""
    ((what, hint),) = blocks.find_larger(3 * MB, [holding(300 * MB)])
    assert "jemalloc in libarrow.so.2600 holds 300.0 MiB (100 times as much)" in what and "3.0 MiB" in what
    assert hint == "malloc-stats --allocator jemalloc shows it"
    assert blocks.find_larger(0, [holding(MB)])[0][0].endswith("holds 1.0 MiB")


@pytest.mark.parametrize("size_bytes", [None, 0, 3 * MB, 5 * MB])
def test_who_holds_little_or_an_unknown_amount_is_not(size_bytes: Optional[int]) -> None:
    """Half as much again is no reason to look elsewhere."""
    assert blocks.find_larger(3 * MB, [holding(size_bytes)]) == []


def test_sums_over_no_arena_are_unknown() -> None:
    """A jemalloc always has an arena: where none could be read nothing is 0."""
    found = text.sum_arena_rows([])
    assert found["arenas"] == 0 and found["allocated_bytes"] is None and found["active_bytes"] is None
