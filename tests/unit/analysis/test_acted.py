"""What commands that act have to tell: the same keys for a real run and a dry one, sums in which unknown stays unknown, and their text.

Files: glibc/text.py, glibc/plan.py, jemalloc/plan.py.
"""


from typing import Any

from gdbheapx.allocators import plan as returning
from gdbheapx.allocators.plan import Predicted
from gdbheapx.common.columns import add_values
from gdbheapx.glibc import text as glibc_arenas
from gdbheapx.glibc.records import MmappedTotals
from gdbheapx.jemalloc import text as jemalloc_arenas
from gdbheapx.jemalloc.text import TickersAnswer
from tests.support.builders.records import MB, glibc_arena, jemalloc_arena, ticker_arena, ticker_thread, tickers

DONE = returning.Acted(
    "malloc_trim(0)", "gdb-call", 1, None, Predicted(5000, 4096, 4096), returning.Measure(9000, 10000, 0), returning.Measure(4904, 5904, 0), 1.26, 40.0, returning.Caller(7, "main", "system call"), 1, ()
)


def test_what_the_kernel_does_not_tell_has_no_difference() -> None:
    """Neither is it zero."""
    data = DONE._replace(after=returning.Measure(None, None, None)).data
    assert data["anonymous_diff_bytes"] is None and data["anonymous_before_bytes"] == 9000


def test_tickers_of_several_jemallocs() -> None:
    """Affected if any is, unknown if one is not read; each verdict is counted, also where nobody has it."""
    first, unaffected = tickers([ticker_thread("blind"), ticker_thread("ticking")], [ticker_arena(0, "unpurged", MB)]), tickers([], [], affected=False)
    info: Any = None
    found = TickersAnswer([(info, first), (info, tickers([ticker_thread("blind")], [], affected=False))]).data
    assert found["affected"] is True and found["counts"] == {"blind": 2, "at-risk": 0, "unknown": 0, "ticking": 1, "not-started": 0, "not-applicable": 0}
    assert TickersAnswer([(info, unaffected)]).data["affected"] is False
    assert TickersAnswer([], unsure=True).data["affected"] is None and TickersAnswer([]).data["affected"] is False


def test_sums_with_an_unknown_part_are_unknown() -> None:
    """The largest free chunk is the largest of all arenas; mapped chunks stand beside."""
    rows = [glibc_arena(0, used_bytes=5, largest_free_bytes=7), glibc_arena(1, used_bytes=6, largest_free_bytes=9, tcache_bytes=None)]
    found = glibc_arenas.sum_glibc_arenas(rows, MmappedTotals(2, 8192))
    assert (found["used_bytes"], found["tcache_bytes"], found["largest_free_bytes"], found["arenas"], found["mmapped_bytes"]) == (11, None, 9, 2, 8192)
    assert jemalloc_arenas.sum_arena_rows([])["used_bytes"] is None and jemalloc_arenas.sum_arena_rows([jemalloc_arena(0, used_bytes=3)])["used_bytes"] == 3
    assert add_values([1, None]) is None and add_values([2, 3]) == 5
