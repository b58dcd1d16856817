"""What an answer about one allocator leaves out: another that holds more, and allocators inside libraries.

Files: allocators/fingerprints.py, jemalloc/messages/arenas.py.
"""

from types import SimpleNamespace
from typing import Any, Iterator, List, Optional

import pytest

from gdbheapx.allocators import fingerprints
from gdbheapx.analysis import beside
from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc.messages import arenas

MB = 1 << 20
ARROW = Module("/venv/site-packages/pyarrow/libarrow.so.2600", 0x1000, False, None, None)
OTHER = Module("/usr/lib/libservice.so", 0x2000, False, None, None)


def holding(size_bytes: Optional[int]) -> Any:
    """A jemalloc with so many bytes in pages."""
    return SimpleNamespace(info=SimpleNamespace(id="jemalloc", object="libarrow.so.2600"), capabilities={"held-bytes": lambda: size_bytes})


def test_who_holds_more_than_what_is_shown_is_named() -> None:
    """With both figures and the option that shows it."""
    ((what, hint),) = beside.larger(3 * MB, [holding(300 * MB)])
    assert "jemalloc in libarrow.so.2600 holds 300.0 MiB (100 times as much)" in what and "3.0 MiB" in what
    assert hint == "malloc-stats --allocator jemalloc shows it"
    assert beside.larger(0, [holding(MB)])[0][0].endswith("holds 1.0 MiB")


@pytest.mark.parametrize("size_bytes", [None, 0, 3 * MB, 5 * MB])
def test_who_holds_little_or_an_unknown_amount_is_not(size_bytes: Optional[int]) -> None:
    """Half as much again is no reason to look elsewhere."""
    assert beside.larger(3 * MB, [holding(size_bytes)]) == []


class Objects:
    """A process with libraries."""

    def __init__(self, texts: Any) -> None:
        self.texts = texts

    def modules(self) -> List[Module]:
        return list(self.texts)

    def constant_data(self, module: Module) -> Iterator[bytes]:
        return iter(self.texts[module])


def test_mimalloc_inside_a_library_is_named() -> None:
    """All of its texts must be there, in whatever pieces; a library's own interface is the better hint."""
    both = [b"\0mimalloc: error: \0", b"\0mimalloc: warning: \0"]
    target: Any = Objects({ARROW: both, OTHER: both})
    arrow, other = fingerprints.inside_libraries(target)
    assert (arrow.name, arrow.file) == ("mimalloc", "libarrow.so.2600") and "default_memory_pool" in arrow.hint
    assert "mi_stats_print" in other.hint
    assert fingerprints.steps([arrow])[0].startswith("mimalloc in libarrow.so.2600 may hold part of it, and gdbheapx does not read it:")


def test_one_text_is_no_mimalloc() -> None:
    """A program that knows one of its messages, and one that knows nothing."""
    target: Any = Objects({ARROW: [b"\0mimalloc: error: \0"], OTHER: []})
    assert fingerprints.inside_libraries(target) == []


def test_sums_over_no_arena_are_unknown() -> None:
    """A jemalloc always has an arena: where none could be read nothing is 0."""
    found = arenas.totals([])
    assert found["arenas"] == 0 and found["allocated_bytes"] is None and found["active_bytes"] is None
