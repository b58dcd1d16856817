"""malloc_stats(3)'s text, the list of packs, and what became of threads that were cured.

Files: glibc/malloc_info.py, report/pages.py.
"""

from typing import Any, NamedTuple, Optional

from gdbheapx.analysis.packs import PackRow
from gdbheapx.glibc.malloc_info import Mallinfo2, NativeStats, StatsArena
from gdbheapx.hints import ask
from gdbheapx.jemalloc.messages.tickers import cured
from gdbheapx.report import pages


def test_malloc_stats_has_glibcs_words_and_more_digits() -> None:
    """Ten columns as malloc.c prints them; a figure over 4 GiB is not cut."""
    lines = list(NativeStats(Mallinfo2(*range(10)), [StatsArena(0, 135168, 1024), StatsArena(1, 5 << 32, 7)], StatsArena(0, 21 << 30, 9), 3, 4096).lines())
    assert lines[:3] == ["Arena 0:", "system bytes     =     135168", "in use bytes     =       1024"]
    assert "system bytes     = 21474836480" in lines and lines[6] == "Total (incl. mmap):"
    assert lines[-2:] == ["max mmap regions =          3", "max mmap bytes   =       4096"]


def pack(**fields: Any) -> PackRow:
    return PackRow("/srv/x.json", "ab" * 20, "jemalloc", "5.3.0-0-g5", "i386:x86-64", "", True, None)._replace(**fields)


def test_packs_in_use_are_marked_and_broken_ones_told() -> None:
    """The release without its commit; a file that is none comes last, with the reason."""
    lines = list(pages.packs([pack(), pack(file="/srv/y.json", problem="/srv/y.json: it is no pack")]))
    assert "jemalloc 5.3.0" in lines[2] and "in use" in lines[2] and "-g5" not in lines[2]
    assert lines[-1] == "/srv/y.json: it is no pack"
    assert list(pages.packs([])) == ["No packs."]
    assert "vtables" not in lines[0]
    lines = list(pages.packs([pack(), pack(allocator=None, version=None, vtables=284)]))
    assert "vtables" in lines[0] and " 284 " in lines[-1] and "None" not in lines[-1]


class Thread(NamedTuple):
    """A row of tickers --cure."""

    cured: bool
    lwp: int
    name: Optional[str]
    why: str


def test_cured_threads_are_named() -> None:
    """And those that could not be; how long the process stood still, where it did."""
    lines = list(cured([Thread(True, 7, "worker", "its ticker was set"), Thread(False, 8, None, "it ended")], 3.21))
    assert lines == [
        "cured     thread 7 (worker): its ticker was set",
        "NOT cured thread 8: it ended",
        "their unused pages are returned as they work, within the decay time; `%s` returns them now" % ask("purge"),
        "the process was stopped for 3.2 ms in total, and is running again",
        "",
    ]
    assert list(cured([], None)) == ["no thread is blind: nothing was written", ""]
