"""Limits of time and stops: gdbheapx/common/budget.py, gdbheapx/common/stops.py."""

import time

import pytest

from gdbheapx import command
from gdbheapx.common import stops
from gdbheapx.common.budget import Budget, Still
from gdbheapx.common.errors import StopOver
from gdbheapx.common.problems import CUT, STOP_LIMIT
from gdbheapx.common.stops import GIB, Reads, StoppedProcess

pytestmark = pytest.mark.once  # numbers alone

def test_walks_end_before_the_stop_does() -> None:
    """A tenth of a stop is left for its end; what is cut for that has a code of its own."""
    still = Still()
    budget = Budget(None, still)
    assert not budget.expired() and budget.slice_s(5) == 5
    still.begin(time.monotonic() + 1.0, 1.0)
    assert not budget.expired() and budget.slice_s(5) < 0.9
    still.begin(time.monotonic() + 0.05, 1.0)
    assert budget.expired() and budget.is_stop_over and budget.code == STOP_LIMIT and "--max-stop 1" in (budget.reason or "")
    assert budget.slice_s(5) == 0
    still.check()  # it stands still for another moment


def test_nothing_is_read_behind_it() -> None:
    """A process that ran on for its time is not read any more, until it is stopped again; one that was let go in time is."""
    still = Still()
    still.begin(time.monotonic() - 0.01, 1.0)
    for _ in range(2):
        with pytest.raises(StopOver):
            still.check()
        still.end(is_over=True)
    still.end()
    still.check()
    assert not Budget(None, still).expired()


def test_a_process_that_runs_limits_nothing() -> None:
    """Before and after its stop the work has all the time there is."""
    still = Still()
    budget = Budget(None, still)
    still.begin(time.monotonic() + 100, 100)
    still.end()
    assert budget.slice_s(1e6) == 1e6 and not budget.expired() and budget.code == CUT


def test_who_interrupts_a_stop_that_is_over() -> None:
    """What ends reading then is the limit, and no Ctrl-C."""
    still = Still()
    budget = Budget(None, still)
    still.begin(time.monotonic() - 1, 1)
    budget.interrupt()
    assert budget.is_stop_over and not budget.interrupted


@pytest.fixture(autouse=True)
def as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine like the one where the figures were measured."""
    monkeypatch.setattr(stops, "measure_slowness", lambda: 1.0)


def test_more_is_longer() -> None:
    """What reads more stops a process longer; so do more memory and more threads."""
    small, large, many = StoppedProcess(GIB >> 4, 1), StoppedProcess(GIB, 1), StoppedProcess(GIB >> 4, 2000)
    ascending = (Reads.REPORT, Reads.GRAPH, Reads.CENSUS, Reads.PINS, Reads.SNAPSHOT)
    took = [stops.predict_ms(reads, large) for reads in ascending]
    assert took == sorted(set(took))
    for reads in list(Reads)[1:]:
        assert stops.predict_ms(reads, small) < stops.predict_ms(reads, large)
        assert stops.predict_ms(reads, small) < stops.predict_ms(reads, many)


def test_by_what_the_memory_is() -> None:
    """Of large blocks only the headers are looked at by what asks for headers; small ones cost most; mappings cost, too."""
    small, large = StoppedProcess(GIB, 1, 100, GIB), StoppedProcess(GIB, 1, 100, 0, GIB)
    for reads in [reads for reads in list(Reads)[1:] if reads != Reads.COPY]:
        assert stops.predict_ms(reads, large) < stops.predict_ms(reads, small)
        assert stops.predict_ms(reads, StoppedProcess(GIB, 1, 100_000, 0, GIB)) > stops.predict_ms(reads, large) + 800
    assert stops.predict_ms(Reads.TOTALS, large) < 50
    assert stops.predict_ms(Reads.TOTALS, StoppedProcess(GIB, 1)) > 150, "what is not known may be small blocks"


def test_of_blocks_that_were_counted_the_headers_are_read() -> None:
    """Few large ones side by side take little; many small ones no longer than their bytes."""
    few, many = StoppedProcess(8 * GIB, 1, 100, 8 * GIB, small_blocks=131_072), StoppedProcess(8 * GIB, 1, 100, 8 * GIB, small_blocks=90_000_000)
    for reads in (Reads.TOTALS, Reads.REPORT, Reads.BLOCKS):
        whole = stops.predict_ms(reads, many._replace(small_blocks=None))
        assert stops.predict_ms(reads, few) < whole / 3 and stops.predict_ms(reads, many) == whole
    assert 150 < stops.predict_ms(Reads.TOTALS, few) < 300


def test_threads_count() -> None:
    """Each of them is stopped and let go."""
    plain = StoppedProcess(10 << 20, 1, 100, 10 << 20)
    for reads in Reads:
        assert stops.predict_ms(reads, plain._replace(threads=301)) > stops.predict_ms(reads, plain) + 30


def test_two_digits() -> None:
    """As many as are known."""
    for bytes_ in (1 << 20, 123 << 20, 4567 << 20):
        took = stops.predict_ms(Reads.CENSUS, StoppedProcess(bytes_, 7, 77))
        assert took == float("%.2g" % took)


def test_hopeless() -> None:
    """Only what is of no use by halves is refused."""
    assert not stops.is_hopeless(Reads.CENSUS, 3900, 2)
    assert stops.is_hopeless(Reads.CENSUS, 4100, 2)
    assert not stops.is_hopeless(Reads.BLOCKS, 9000, 2)


def test_words() -> None:
    """Durations as precise as they are; the next step is one that is enough."""
    assert [stops.format_lasting(ms) for ms in (0.2, 42, 940, 2900, 40_400, 600_000)] == ["1 ms", "42 ms", "0.9 s", "2.9 s", "40 s", "10 minutes"]
    assert stops.format_about(40_000) == "about 40 s" and stops.format_about(900) == "about 0.9 s"
    assert stops.format_prediction(12, 2.0) == "(pauses the process for about 12 ms, at most 2 s)"
    assert (stops.format_paused(11.8, 1), stops.format_paused(250, 3)) == ("paused 12 ms", "paused 0.2 s (the longest of 3 pauses)")
    assert "--max-stop 8" in stops.next_step(5000, 2) and "--max-stop" not in stops.next_step(600_000, 2)


def test_each_command_that_reads_a_process_says_what() -> None:
    """All but those that take no process, read it as it runs, or look at files."""
    command.load_commands()
    others = {"bill", "capture", "explore", "fleet", "mcp", "serve", "table", "watch"}
    lacking = {name for name, found in command.COMMANDS.items() if found.reads is None}
    assert lacking == others


def test_what_is_copied() -> None:
    """What looks into blocks does so in a copy, where there is room for it and for tables of small blocks; totals do where that is as short."""
    small, large = StoppedProcess(GIB, 1, 100, GIB, 0, 2 * GIB), StoppedProcess(GIB, 1, 100, 0, GIB, 2 * GIB)
    looks = (Reads.GRAPH, Reads.OWNERS, Reads.WEAK, Reads.CENSUS, Reads.PINS, Reads.SNAPSHOT)
    assert {reads for reads in Reads if stops.in_stop(reads, large) == Reads.COPY} == {*looks, Reads.COPY}
    assert [stops.in_stop(reads, small) for reads in (Reads.GRAPH, Reads.CENSUS, Reads.TOTALS)] == [Reads.COPY, Reads.CENSUS, Reads.TOTALS]
    assert stops.in_stop(Reads.TOTALS, small._replace(small_blocks=11_000_000)) == Reads.COPY
    assert stops.in_stop(Reads.TOTALS, small._replace(small_blocks=16_384)) == Reads.TOTALS, "headers of large blocks are few"
    assert stops.in_stop(Reads.CHECK, small._replace(room_bytes=GIB // 2)) == Reads.CHECK
    assert {stops.in_stop(reads, StoppedProcess(10 << 20, 1, 100, 10 << 20, 0, GIB)) for reads in Reads} == {Reads.COPY}, "a small process"
    swapped = StoppedProcess(10 << 20, 1, 100, 10 << 20, 0, GIB, has_swapped=True)
    copied = {reads for reads in Reads if stops.in_stop(reads, swapped) == Reads.COPY}
    assert copied == {*stops.NO_HALVES, Reads.CHECK, Reads.COPY}, "only who reads every block brings in what is in swap"


def test_room_for_tables_where_blocks_and_pointers_were_counted() -> None:
    """Of few blocks they are small; not where the blocks are full of pointers, and never more than where nothing was counted."""
    unknown = StoppedProcess(8 * GIB, 1, 100, 8 * GIB, 0, 10 * GIB)
    few = unknown._replace(small_blocks=131_072, pointers=10_000_000)
    assert [stops.in_stop(Reads.CENSUS, process) for process in (unknown, few)] == [Reads.CENSUS, Reads.COPY]
    assert stops.in_stop(Reads.CENSUS, few._replace(pointers=GIB)) == Reads.CENSUS
    for blocks, pointers in ((131_072, GIB), (90_000_000, 0), (500_000_000, GIB)):
        counted = unknown._replace(small_blocks=blocks, pointers=pointers)
        assert 8 * GIB < stops.copy_bytes(Reads.CENSUS, counted) <= stops.copy_bytes(Reads.CENSUS, unknown)
    assert stops.in_stop(Reads.CENSUS, few._replace(room_bytes=8 * GIB)) == Reads.CENSUS
