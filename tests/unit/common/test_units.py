"""Units, numbers that agree with their nouns, and ranges.

What is said on standard error while something lasts.

Files: common/columns.py.
"""

import ast
import os
import random
import re
import sys
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Optional

import pytest

from gdbheapx.command import TextStyle
from gdbheapx.common import columns, units
from gdbheapx.common.budget import Budget, Progress, terminal_line
from gdbheapx.common.model import StepSentence
from gdbheapx.common.ranges import RangeIndex, subtract_ranges, unite_ranges
from gdbheapx.common.units import Sentence, SentenceSize, add_article, count_noun, join_sentences, make_cells, make_sentence
from gdbheapx.report.text import format_described, format_sentence

MB = 1 << 20


class Row(NamedTuple):
    """A record with a column of each sort."""

    name: Annotated[str, columns.Column("name", columns.TEXT)]
    held_bytes: Annotated[Optional[int], columns.Column("held", columns.BYTES, columns.ADD)]
    largest_bytes: Annotated[Optional[int], columns.hidden_column(columns.LARGEST)] = 0
    lost_bytes: Annotated[Optional[int], columns.Column("lost", columns.BYTES, columns.ADD, columns.IF_ANY)] = 0
    in_ram_bytes: Annotated[Optional[int], columns.Column("in RAM", columns.BYTES, columns.ADD, columns.IF_KNOWN)] = None
    alone_bytes: Annotated[Optional[int], columns.Column("alone", columns.BYTES, columns.ADD, unlike="in_ram_bytes")] = None
    note: str = ""


def headings(*rows: Row) -> Any:
    """What text shows of these rows with their sums."""
    return [column.heading for column in columns.ColumnsTable(columns.columns_of(Row), rows, columns.sum_columns(Row, rows)).shown()]


def test_a_column_is_declared_with_its_field() -> None:
    """In the record's order; fields without a declaration have none."""
    found = [(column.field, column.heading) for column in columns.columns_of(Row)]
    assert found[:3] == [("name", "name"), ("held_bytes", "held"), ("largest_bytes", "")]


def test_sums_follow_their_rule() -> None:
    """Added, or the largest; unknown where a part is unknown, and where there must be a row and is none."""
    rows = [Row("a", 3, 7), Row("b", 4, 5)]
    unknown = dict.fromkeys(("in_ram_bytes", "alone_bytes"))
    assert columns.sum_columns(Row, rows) == {"held_bytes": 7, "largest_bytes": 7, "lost_bytes": 0, **unknown}
    assert columns.sum_columns(Row, [Row("a", None), Row("b", 4)])["held_bytes"] is None
    assert columns.sum_columns(Row, [])["held_bytes"] == 0 and columns.sum_columns(Row, [], must_exist=True)["held_bytes"] is None


def test_text_has_the_columns_that_say_something() -> None:
    """IF_ANY where any row has some, IF_KNOWN where any row knows, Unlike where the sums differ."""
    assert headings(Row("a", 1)) == ["name", "held"]
    assert headings(Row("a", 1, lost_bytes=2)) == ["name", "held", "lost"]
    assert headings(Row("a", 1, in_ram_bytes=2, alone_bytes=2)) == ["name", "held", "in RAM"]
    assert headings(Row("a", 1, in_ram_bytes=2, alone_bytes=1)) == ["name", "held", "in RAM", "alone"]


def test_bytes_holds_in_tables_and_sentences() -> None:
    """--bytes shows the same figures as integers, wherever they stand."""
    rows = [Row("a", 3 * MB)]
    table = columns.ColumnsTable(columns.columns_of(Row), rows, {"name": "total", **columns.sum_columns(Row, rows)})
    people, plain = (" ".join(format_described(TextStyle(one, False), table)) for one in (False, True))
    assert "3.0 MiB" in people and str(3 * MB) in plain and "MiB" not in plain
    sentence = make_sentence("%s in %s", SentenceSize(3 * MB), make_sentence("(%d of %s)", 2, SentenceSize(512)))
    assert format_sentence(TextStyle(False, False), sentence) == "3.0 MiB in (2 of 512 bytes)"
    assert format_sentence(TextStyle(True, False), sentence) == "3145728 bytes in (2 of 512 bytes)"
    assert StepSentence("purge", make_sentence("returns %s", SentenceSize(MB))).plain == "purge returns 1048576 bytes"
    assert join_sentences(", ", [make_cells("%s", SentenceSize(MB)), "x"]).plain == "1048576, x"


def test_a_sentence_is_a_string() -> None:
    """JSON and everything else see its form for people."""
    sentence = make_sentence("%s free", SentenceSize(MB))
    assert isinstance(sentence, Sentence) and sentence == "1.0 MiB free" and str(sentence) == "1.0 MiB free"


@pytest.mark.parametrize(
    "unit, content, shown",
    [
        (columns.BYTES, None, "?"),
        (columns.BYTES, 12345, "12.1 KiB"),
        (columns.PLAIN, None, "-"),
        (columns.DECAY, -1, "never"),
        (columns.DECAY, 0, "at once"),
        (columns.DECAY, 10000, "10000 ms"),
        (columns.LATE, None, "-"),
        (columns.LATE, 0, "no"),
        (columns.LATE, 12.4, "12 ms"),
        (columns.INTERVAL, 50.5, "50.5 ms"),
        (columns.PERCENT, None, "?"),
        (columns.PERCENT, 12.34, "12.3"),
        (columns.BYTES, 0, "0 B"),
        (columns.BYTES, 616, "616 B"),
        (columns.COUNT, 16033, "16,033"),
        (columns.COUNT, None, "?"),
        (columns.TEXT, 16033, "16033"),
        (columns.TEXT, "main", "main"),
    ],
)
def test_a_cell_reads_by_its_unit(unit: str, content: Any, shown: str) -> None:
    """Unknown is a question mark, what may not exist a dash; neither is 0."""
    assert columns.format_cell(columns.Column("x", unit), content, False) == shown


def test_counts_and_shares() -> None:
    """One thing has no s; a share of nothing is no division by zero."""
    assert (units.count_noun(1, "thread"), units.count_noun(16033, "thread")) == ("1 thread", "16,033 threads")
    assert (units.format_share(1, 3), units.format_share(1, 0), units.exact_share(None, 1), units.exact_share(1, 3)) == ("33 %", "0 %", "?", "33.3")

ROOT = Path(__file__).parents[3]
SPOKEN = ("report", "actions", "analysis", "snapshot")
"""Folders whose texts users read most."""

COUNTED = re.compile(r"(?<!of )(?<!than )(?<!most )(?<!at )%d (?:more |broken |free |smaller )?(rules|chunks|blocks|rows|groups|chains|threads|locks|times|lines|pages|bins)\b")


@pytest.mark.parametrize("count, text", [(0, "0 more rows"), (1, "1 more row"), (2, "2 more rows")])
def test_one_is_not_two(count: int, text: str) -> None:
    """As tables and sentences say it."""
    assert count_noun(count, "more row") == text


def test_counts_are_not_written_by_hand() -> None:
    """A text with `%d rows` would say `1 rows`: units.plural knows. One that is said of several alone, by a condition, is exempt."""
    found = set()
    for folder in SPOKEN:
        for path in (ROOT / "gdbheapx" / folder).rglob("*.py"):
            text = path.read_text()
            if not COUNTED.search(text):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and COUNTED.search(node.value):
                    found.add((path.stem, COUNTED.search(node.value)[1]))  # type: ignore[index]
    assert found <= {("block", "times"), ("objects", "blocks")}, found


def test_ranges_are_joined() -> None:
    """Touching and overlapping ranges become one; a base block inside an extent's range counts once."""
    assert unite_ranges([(5, 7), (0, 3), (3, 4), (6, 9), (6, 8)]) == [(0, 4), (5, 9)]


def test_what_is_left_of_ranges() -> None:
    """By a definition of its own: byte by byte."""
    rng = random.Random(1)
    for _ in range(50):
        edges = sorted(rng.sample(range(60), 12))
        some, others = list(zip(edges[::4], edges[1::4])), list(zip(edges[1::3], edges[2::3]))
        left = subtract_ranges(some, others)
        expected = {one for start, end in some for one in range(start, end)} - {one for start, end in others for one in range(start, end)}
        assert sorted(expected) == [one for start, end in left for one in range(start, end)]


def test_what_lies_within_and_outside() -> None:
    """Cut to the range that is asked about; the two together are that range."""
    ranges = RangeIndex([(10, 20), (30, 40)])
    assert (ranges.within(15, 35), ranges.outside(15, 35)) == ([(15, 20), (30, 35)], [(20, 30)])
    assert ranges.meets(19, 25) and not ranges.meets(20, 30)


def test_articles_agree_with_their_nouns() -> None:
    """An abbreviation is read letter by letter."""
    nouns = "list", "array", "LRU list", "hash table", "unordered map of 3 entries", "LinkedList"
    assert [add_article(noun) for noun in nouns] == [
        "a list",
        "an array",
        "an LRU list",
        "a hash table",
        "an unordered map of 3 entries",
        "a LinkedList",
    ]


class Clock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_said_within_two_seconds_then_less_and_less_often() -> None:
    """A line after 2, 4, 8 seconds, each with what is being done; none without a stage, and one for a long slice."""
    clock, said = Clock(), []  # type: Clock, list[str]
    progress = Progress(said.append, clock)
    for step in range(30):
        clock.now = 100.0 + step
        progress.tick()
    assert said == []
    clock, said = Clock(), []
    progress = Progress(said.append, clock)
    progress.stage = "reading"
    for step in (0.5, 1.9, 2.0, 2.5, 3.9, 4.1, 7.9, 8.0, 40.0, 41.0):
        clock.now = 100.0 + step
        progress.tick()
    assert said == ["reading, 2 s so far", "reading, 4 s so far", "reading, 8 s so far", "reading, 40 s so far"]


def test_a_budget_that_is_asked_says_it() -> None:
    """Whoever asks whether there is time left lets the progress be said."""
    clock, said = Clock(), []  # type: Clock, list[str]
    budget = Budget()
    budget.progress = Progress(said.append, clock)
    budget.progress.stage = "reading"
    clock.now += 3
    assert not budget.expired()
    assert said == ["reading, 3 s so far"]


def test_without_standard_error_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python has none where the descriptor was closed before it began, as in what the kernel starts."""
    clock = Clock()
    progress = Progress(clock=clock)
    progress.stage = "reading"
    monkeypatch.setattr(sys, "stderr", None)
    clock.now += 3
    progress.tick()


def test_a_terminal_has_one_line_that_goes_away() -> None:
    """From two seconds on it is written anew five times a second, and is empty at the end; what was never shown is not wiped."""
    clock, shown = Clock(), []  # type: Clock, list[str]
    progress = Progress(clock=clock, show=shown.append)
    assert progress.is_on_terminal and not Progress(shown.append).is_on_terminal
    progress.stage = "reading"
    progress.end()
    for step in (1.9, 2.0, 2.1, 2.3, 2.4):
        clock.now = 100.0 + step
        progress.tick()
    assert shown == ["reading, 2 s so far", "reading, 2 s so far"]
    progress.end()
    progress.end()
    assert shown[2:] == [""]


def test_per_cent_and_time_left_of_what_is_measured() -> None:
    """By how long the stage itself has lasted; below 2 % nothing is foretold, and what the stage before has measured is forgotten."""
    clock, said, done = Clock(), [], [0]  # type: Clock, list[str], list[int]
    progress = Progress(said.append, clock)
    progress.stage = "preparing"
    clock.now += 10
    progress.stage = "reading"
    progress.measure(lambda: done[0], 200)
    for step, now in ((0, 10), (3, 20), (50, 40), (300, 80)):
        done[0], clock.now = step, 100.0 + now
        progress.tick()
    progress.stage = "following"
    clock.now += 100
    progress.tick()
    assert said == [
        "reading, 10 s so far",
        "reading, 20 s so far",
        "reading, 40 s so far, 25 %, about 90 s left",
        "reading, 80 s so far, 100 %, about 0 s left",
        "following, 180 s so far",
    ]


def test_that_the_process_runs_again_is_said() -> None:
    """Once it does, behind all else."""
    clock, said, stopped = Clock(), [], [True]  # type: Clock, list[str], list[bool]
    progress = Progress(said.append, clock)
    progress.has_let_go = lambda: not stopped[0]
    progress.stage = "finding owners"
    progress.measure(lambda: 1, 4)
    for now in (2, 4):
        clock.now, stopped[0] = 100.0 + now, now == 2
        progress.tick()
    assert said == [
        "finding owners, 2 s so far, 25 %, about 6 s left",
        "finding owners, 4 s so far, 25 %, about 12 s left (the process is running again)",
    ]


def test_what_is_measured_goes_on_by_another_name() -> None:
    """`fleet` counts its cores in the name."""
    clock, said = Clock(), []  # type: Clock, list[str]
    progress = Progress(said.append, clock)
    progress.stage = "0 of 4 cores"
    progress.measure(lambda: 1, 4)
    clock.now += 6
    progress.name("1 of 4 cores")
    progress.tick()
    progress.measure(None, 0)
    clock.now += 6
    progress.tick()
    assert said == ["1 of 4 cores, 6 s so far, 25 %, about 18 s left", "1 of 4 cores, 12 s so far"]


@pytest.mark.parametrize("term", ["dumb", None])
def test_no_line_is_rewritten_where_it_cannot_be(monkeypatch: pytest.MonkeyPatch, term: Optional[str]) -> None:
    """TERM=dumb, or none."""
    if term is None:
        monkeypatch.delenv("TERM", raising=False)
    else:
        monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    assert terminal_line() is None


def test_the_line_is_as_wide_as_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A longer one would not be wiped: it is cut."""
    written = []  # type: list[bytes]
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(os, "isatty", lambda descriptor: True)
    monkeypatch.setattr(os, "get_terminal_size", lambda descriptor: os.terminal_size((20, 50)))
    show = terminal_line()
    assert show is not None
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, data: written.append(data))
        show("reading all blocks")
        show("")
    assert written == [b"\r\x1b[Kgdbheapx: reading a", b"\r\x1b[K"]
