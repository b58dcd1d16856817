"""gdbheapx/stops.py"""

import pytest

from gdbheapx import command, stops
from gdbheapx.stops import GIB, Process, Reads

pytestmark = pytest.mark.once  # numbers alone


@pytest.fixture(autouse=True)
def as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine like the one where the figures were measured."""
    monkeypatch.setattr(stops, "slowness", lambda: 1.0)


def test_more_is_longer() -> None:
    """What reads more stops a process longer; so do more memory and more threads. Lists of free blocks may be longer than a walk over all."""
    small, large, many = Process(GIB >> 4, 1), Process(GIB, 1), Process(GIB >> 4, 2000)
    took = [stops.predict_ms(reads, large) for reads in Reads]
    assert took[0] < took[2] <= took[3] < took[5] and took[0] < took[1]
    ascending = (Reads.REPORT, Reads.GRAPH, Reads.CENSUS, Reads.PINS, Reads.SNAPSHOT)
    took = [stops.predict_ms(reads, large) for reads in ascending]
    assert took == sorted(set(took))
    for reads in list(Reads)[1:]:
        assert stops.predict_ms(reads, small) < stops.predict_ms(reads, large)
        assert stops.predict_ms(reads, small) < stops.predict_ms(reads, many)


def test_by_what_the_memory_is() -> None:
    """Of large blocks only the headers are looked at by what asks for headers; small ones cost most; mappings cost, too."""
    small, large = Process(GIB, 1, 100, GIB), Process(GIB, 1, 100, 0, GIB)
    for reads in [reads for reads in list(Reads)[1:] if reads != Reads.COPY]:
        assert stops.predict_ms(reads, large) < stops.predict_ms(reads, small) / 2 or reads == Reads.PINS
        assert stops.predict_ms(reads, Process(GIB, 1, 100_000, 0, GIB)) > 1.2 * stops.predict_ms(reads, large)
    assert stops.predict_ms(Reads.TOTALS, large) < 4
    assert stops.predict_ms(Reads.TOTALS, Process(GIB, 1)) > 150, "what is not known may be small blocks"


def test_of_blocks_that_were_counted_the_headers_are_read() -> None:
    """Few large ones side by side take little; many small ones no longer than their bytes."""
    few, many = Process(8 * GIB, 1, 100, 8 * GIB, small_blocks=131_072), Process(8 * GIB, 1, 100, 8 * GIB, small_blocks=90_000_000)
    for reads in (Reads.TOTALS, Reads.REPORT, Reads.BLOCKS):
        whole = stops.predict_ms(reads, many._replace(small_blocks=None))
        assert stops.predict_ms(reads, few) < whole / 3 and stops.predict_ms(reads, many) == whole
    assert 150 < stops.predict_ms(Reads.TOTALS, few) < 250


def test_what_the_size_does_not_tell() -> None:
    """What the answer took while the process ran, objects and threads count; of a copy the answer does not."""
    plain = Process(10 << 20, 1, 100, 10 << 20)
    for reads in (Reads.STATE, Reads.TOTALS, Reads.REPORT, Reads.BLOCKS, Reads.COPY):
        took = stops.predict_ms(reads, plain)
        rehearsed = stops.predict_ms(reads, plain._replace(rehearsed_ms=100.0)) - took
        assert rehearsed == pytest.approx(0 if reads == Reads.COPY else 100, abs=6)
        assert stops.predict_ms(reads, plain._replace(modules=100)) > took + 8
        assert stops.predict_ms(reads, plain._replace(threads=301)) > took + 30


def test_busy_machine() -> None:
    """Where others have the CPUs a stop is foreseen to be longer, and at most so long, without a leap; never shorter."""
    waits = [1.0, 1.01, 1.2, 1.3, 2.0, 2.1, 4.0, 15.0]
    for reads in Reads:
        took = [stops.predict_ms(reads, Process(1 << 30, 1, 100, crowding=crowding)) for crowding in waits]
        assert took == sorted(took) and took[1] < 1.1 * took[0] + 1 and took[6] > 7.9 * took[0]
    assert stops.predict_short_ms(Process(GIB, 1, crowding=4.0)) > 7.9 * stops.predict_short_ms(Process(GIB, 1))


def test_crowding_is_what_this_thread_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its time since then; more of it where that is short; nothing where the kernel tells nothing."""
    monkeypatch.setattr(stops, "scheduled", lambda: (300_000_000, 500_000_000))
    assert stops.crowding((200_000_000, 300_000_000)) == 3.0
    told = iter([(301_000_000, 500_000_000), (305_000_000, 520_000_000), (320_000_000, 540_000_000), (900_000_000, 0)])
    monkeypatch.setattr(stops, "scheduled", lambda: next(told))
    assert stops.crowding((300_000_000, 500_000_000)) == 3.0
    monkeypatch.setattr(stops, "scheduled", lambda: (0, 0))
    assert stops.crowding((0, 0)) == 1.0


def test_scheduled() -> None:
    """Time of a CPU grows as this thread works."""
    ran, waited = stops.scheduled()
    if (ran, waited) == (0, 0):
        pytest.skip("this kernel tells nothing of that")
    stops.slowness()
    assert stops.scheduled()[0] >= ran and stops.scheduled()[1] >= waited


def test_two_digits() -> None:
    """As many as are known."""
    for bytes_ in (1 << 20, 123 << 20, 4567 << 20):
        took = stops.predict_ms(Reads.CENSUS, Process(bytes_, 7, 77))
        assert took == float("%.2g" % took)


def test_hopeless() -> None:
    """Only what is of no use by halves is refused."""
    idle = Process(GIB, 1)
    assert not stops.is_hopeless(Reads.CENSUS, idle, 3900, 2)
    assert stops.is_hopeless(Reads.CENSUS, idle, 4100, 2)
    assert not stops.is_hopeless(Reads.BLOCKS, idle, 9000, 2)
    busy = idle._replace(crowding=3.0)  # what its stop may last at most is no reason to refuse it
    assert stops.is_hopeless(Reads.CENSUS, busy, 8100, 2) and not stops.is_hopeless(Reads.CENSUS, busy, 7900, 2)


def test_words() -> None:
    """Durations as precise as they are; the next step is one that is enough."""
    assert [stops.lasting(ms) for ms in (0.2, 42, 940, 2900, 40_400, 600_000)] == ["1 ms", "42 ms", "0.9 s", "2.9 s", "40 s", "10 minutes"]
    idle, busy = Process(GIB, 1, crowding=1.1), Process(GIB, 1, crowding=3.0)
    assert stops.about(40_000, idle) == "about 40 s" and stops.about(900, idle) == "about 0.9 s"
    assert stops.about(900, busy) == "at most 0.9 s (the CPUs are busy)"
    assert stops.pauses(12, idle, 2.0) == "(pauses the process for about 12 ms, at most 2 s)"
    assert stops.pauses(12, busy, 2.0) == "(pauses the process for at most 12 ms: the CPUs are busy)"
    assert (stops.paused(11.8, 1), stops.paused(250, 3)) == ("paused 12 ms", "paused 0.2 s (the longest of 3 pauses)")
    assert "--max-stop 8" in stops.next_step(5000, 2) and "--max-stop" not in stops.next_step(600_000, 2)


def test_each_command_that_reads_a_process_says_what() -> None:
    """All but those that take no process, read it as it runs, or look at files."""
    command.load_commands()
    others = {"bill", "capture", "explore", "fleet", "mcp", "serve", "table", "watch"}
    lacking = {name for name, found in command.COMMANDS.items() if found.reads is None}
    assert lacking == others


def test_what_is_copied() -> None:
    """What looks into blocks does so in a copy, where there is room for it and for tables of small blocks; all of these stops are alike then."""
    small, large = Process(GIB, 1, 100, GIB, 0, 2 * GIB), Process(GIB, 1, 100, 0, GIB, 2 * GIB)
    looks = (Reads.CHECK, Reads.GRAPH, Reads.OWNERS, Reads.WEAK, Reads.CENSUS, Reads.PINS, Reads.SNAPSHOT)
    assert {reads for reads in Reads if stops.in_stop(reads, large) == Reads.COPY} == {*looks, Reads.COPY}
    assert [stops.in_stop(reads, small) for reads in (Reads.GRAPH, Reads.CENSUS, Reads.TOTALS)] == [Reads.COPY, Reads.CENSUS, Reads.TOTALS]
    assert stops.in_stop(Reads.CHECK, large._replace(room_bytes=GIB // 2)) == Reads.CHECK
    assert stops.predict_ms(Reads.COPY, large) < stops.predict_ms(Reads.CHECK, small) / 5


def test_where_lists_are_long_what_walks_is_copied() -> None:
    """The walk would have to follow them; where there is no room it does, and that is foreseen."""
    process = Process(GIB, 1, 100, GIB, 0, 2 * GIB, has_long_lists=True)
    for reads in (Reads.TOTALS, Reads.REPORT, Reads.BLOCKS):
        assert stops.in_stop(reads, process) == Reads.COPY
        assert stops.in_stop(reads, process._replace(has_long_lists=False)) == reads
        assert stops.in_stop(reads, process._replace(room_bytes=GIB)) == reads
        assert stops.predict_ms(reads, process) > 2 * stops.predict_ms(Reads.COPY, process)
    assert stops.in_stop(Reads.LISTS, process) == Reads.LISTS


def test_where_lists_lead_far_totals_are_read_in_place() -> None:
    """Blocks are looked at in a copy; totals need no list, and neither does what shows free blocks by size."""
    process = Process(GIB, 1, 100, GIB, 0, 2 * GIB, lists_lead_far=True)
    assert stops.in_stop(Reads.BLOCKS, process) == Reads.COPY
    for reads in (Reads.TOTALS, Reads.REPORT, Reads.LISTS):
        assert stops.in_stop(reads, process) == reads
    assert stops.predict_ms(Reads.LISTS, process) == stops.predict_ms(Reads.TOTALS, process)


def test_room_for_tables_where_blocks_and_pointers_were_counted() -> None:
    """Of few blocks they are small; not where the blocks are full of pointers, and never more than where nothing was counted."""
    unknown = Process(8 * GIB, 1, 100, 8 * GIB, 0, 10 * GIB)
    few = unknown._replace(small_blocks=131_072, pointers=10_000_000)
    assert [stops.in_stop(Reads.CENSUS, process) for process in (unknown, few)] == [Reads.CENSUS, Reads.COPY]
    assert stops.in_stop(Reads.CENSUS, few._replace(pointers=GIB)) == Reads.CENSUS
    for blocks, pointers in ((131_072, GIB), (90_000_000, 0), (500_000_000, GIB)):
        counted = unknown._replace(small_blocks=blocks, pointers=pointers)
        assert 8 * GIB < stops.copy_bytes(Reads.CENSUS, counted) <= stops.copy_bytes(Reads.CENSUS, unknown)
    assert stops.in_stop(Reads.CENSUS, few._replace(room_bytes=8 * GIB)) == Reads.CENSUS
