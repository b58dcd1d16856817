"""What commands that act have to tell: the same keys for a real run and a dry one, sums in which unknown stays unknown, and their text.

Files: glibc/messages/arenas.py, glibc/plan.py, jemalloc/plan/plans.py.
"""


from typing import Any

import pytest

from gdbheapx.allocators.returning import Predicted
from gdbheapx.analysis import acted
from gdbheapx.columns import add
from gdbheapx.command import Style
from gdbheapx.errors import HeapxError
from gdbheapx.glibc import plan as trim
from gdbheapx.glibc.messages import arenas as glibc_arenas
from gdbheapx.glibc.records import MmappedTotals
from gdbheapx.glibc.trim_model import Prediction
from gdbheapx.jemalloc.messages import arenas as jemalloc_arenas
from gdbheapx.jemalloc.messages.tickers import TickersAnswer
from gdbheapx.jemalloc.plan import plans
from gdbheapx.report import acted as acted_text
from gdbheapx.report.text import show
from tests.support.builders.records import MB, glibc_arena, jemalloc_arena, ticker_arena, ticker_thread, tickers

PLAIN = Style(True, False)
DONE = acted.Acted(
    "malloc_trim(0)", "gdb-call", 1, None, Predicted(5000, 4096, 4096), acted.Measure(9000, 10000, 0), acted.Measure(4904, 5904, 0), 1.26, 40.0, acted.Caller(7, "main", "system call"), 1, ()
)


def test_a_real_run_has_differences() -> None:
    """After minus before: what was given back is negative. Swap has no difference."""
    data = DONE.data
    assert (data["anonymous_diff_bytes"], data["rss_diff_bytes"]) == (-4096, -4096) and "swap_diff_bytes" not in data
    assert data["swap_after_bytes"] == 0 and data["thread"].lwp == 7 and data["trouble"] is None


def test_what_the_kernel_does_not_tell_has_no_difference() -> None:
    """Neither is it zero."""
    data = DONE._replace(after=acted.Measure(None, None, None)).data
    assert data["anonymous_diff_bytes"] is None and data["anonymous_before_bytes"] == 9000


def test_a_dry_purge_has_the_keys_of_a_real_one() -> None:
    """What only a real run gives is null, but for what is about tries; and each arena is listed."""
    rows = [jemalloc_arena(index, dirty_bytes=8192, muzzy_bytes=4096, reclaimable_bytes=12288, reclaimable_resident_bytes=None) for index in range(2)]
    dry = plans.dry_run(rows, None, 4096, True)
    real = DONE._replace(predicted=Predicted(5000, 4096, 4096, {"dirty_pages": 4, "muzzy_pages": 2}), kept_after={"dirty_pages": 0, "muzzy_pages": 0}).data
    assert set(real) - set(dry.data) == {"tries", "waited_for", "trouble"} and set(dry.data) - set(real) == {"arenas"}
    assert (dry.data["dirty_before_pages"], dry.data["predicted_bytes"], dry.data["predicted_resident_bytes"]) == (4, 24576, None)
    assert dry.data["returned"] is None and [row["index"] for row in dry.data["arenas"]] == [0, 1]
    assert [row["index"] for row in plans.dry_run(rows, 1, 4096, True).data["arenas"]] == [1]
    with pytest.raises(HeapxError, match="arena 7 not found"):
        plans.dry_run(rows, 7, 4096, True)


def test_a_dry_trim_adds_up_its_arenas() -> None:
    """One arena whose pages nobody can tell makes the sum unknown."""
    found = trim.dry_run([Prediction(0, 8192, 4096, 4096, 4096), Prediction(2, 100, 0, None, 0)], True)
    assert tuple(found.predicted)[:3] == (12388, None, 4096)
    assert found.data["way"] == "none" and found.data["rss_diff_bytes"] is None and [row.arena for row in found.data["arenas"]] == [0, 2]


def test_the_text_of_a_call() -> None:
    """Who called, what was predicted, what the kernel measured, how long the process stood still."""
    lines = list(show(PLAIN, acted_text.call(DONE)))
    assert lines[0] == "malloc_trim(0) returned 1 after 1.3 ms, called by gdb-call on thread 7 (main) in its system call"
    assert lines[1].startswith("predicted   5000") and "anonymous   9000 -> 4904: 4096 returned to the OS" in lines and "swap        0 -> 0: unchanged" in lines
    assert lines[-1] == "the process was stopped for 40.0 ms in total, and is running again"


def test_the_text_of_a_call_that_went_wrong() -> None:
    """The trouble instead of a result; tries are counted; by which way, and why not by gdb's own."""
    gone = DONE._replace(trouble="it ended", returned=None, tries=3, way="register-call", way_reason="no registers", predicted=Predicted(5000, 4096, 4096, {"dirty_pages": 4, "muzzy_pages": None}), kept_after={"dirty_pages": 0, "muzzy_pages": 0})
    lines = list(show(PLAIN, acted_text.call(gone._replace(after=acted.Measure(9100, 10000, 0)))))
    assert lines[0] == "malloc_trim(0) by register-call on thread 7 (main): it ended" and "no registers" in lines[1]
    assert "anonymous   9000 -> 9100: 100 more" in lines and "dirty pages 4 -> 0" in lines and "muzzy pages unknown -> 0" in lines and lines[-1].endswith("in total, 3 times, and is running again")


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
    found = glibc_arenas.totals(rows, MmappedTotals(2, 8192))
    assert (found["used_bytes"], found["tcache_bytes"], found["largest_free_bytes"], found["arenas"], found["mmapped_bytes"]) == (11, None, 9, 2, 8192)
    assert jemalloc_arenas.totals([])["used_bytes"] is None and jemalloc_arenas.totals([jemalloc_arena(0, used_bytes=3)])["used_bytes"] == 3
    assert add([1, None]) is None and add([2, 3]) == 5
