"""A table fits the terminal, whichever command it is of: columns go in the declared order, and the last line says which.

Files: report/text.py, common/columns.py.
"""

import importlib
import os
import pkgutil
from functools import cache
from typing import Any, Dict, List, Optional, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gdbheapx
from gdbheapx.command import COMMANDS, TextStyle, load_commands
from gdbheapx.command.help_pages import of_command, render_everything
from gdbheapx.command.output import Screen, screen_of
from gdbheapx.common.columns import COUNT, NEVER, TEXT, Column, ColumnsTable, columns_of
from gdbheapx.common.units import DAMAGE, mark_sentence
from gdbheapx.report import text as report_text
from gdbheapx.report.text import format_described, format_fitted, format_on_screen, paint_line

WIDTHS = 80, 120, 200
WIDE = TextStyle(False, False)


@cache
def declared() -> List[Sequence[Column]]:
    """The columns of every record that declares some, and every table whose columns stand by themselves."""
    found: List[Sequence[Column]] = []
    for module in pkgutil.walk_packages(gdbheapx.__path__, "gdbheapx.", onerror=lambda name: None):
        if module.name.startswith(("gdbheapx.gdb", "gdbheapx.inferior.gdb", "gdbheapx.packs")) or ".explore" in module.name:
            continue
        try:
            held = vars(importlib.import_module(module.name)).values()
        except ImportError:  # of a library that is not installed, or inside gdb alone
            continue
        for value in held:
            if isinstance(value, type) and getattr(value, "__annotations__", None) and columns_of(value):
                found.append(columns_of(value))
            elif isinstance(value, tuple) and value and all(isinstance(part, Column) for part in value):
                found.append(value)
    return found


NUMBERS = st.one_of(st.none(), st.integers(-(1 << 62), 1 << 62))
TEXTS = st.text("abc.:_0", max_size=150)


def shown(columns: Sequence[Column]) -> List[Column]:
    return [column for column in columns if column.shown != NEVER]


@pytest.mark.parametrize("width", WIDTHS)
@settings(deadline=None)  # the first of them imports tabulate
@given(data=st.data())
def test_no_line_is_longer_than_the_terminal(width: int, data: Any) -> None:
    """Every table of every command, with any texts and numbers: all lines fit, the first column stays, and nothing goes unsaid."""
    columns = shown(data.draw(st.sampled_from([columns for columns in declared() if shown(columns)])))
    rows = [
        {column.field: data.draw(TEXTS if column.unit == TEXT else NUMBERS) for column in columns}
        for _ in range(data.draw(st.integers(1, 3)))
    ]
    first = ColumnsTable(columns, rows).shown()[:1]
    lines = format_described(TextStyle(False, False, width, shortens=True), ColumnsTable(columns, rows))
    assert max(map(len, lines)) <= width, lines
    assert all(lines[0].lstrip().startswith(column.heading) for column in first)
    head = next(iter(format_described(WIDE, ColumnsTable(columns, rows))))
    said = " ".join(" ".join(line.split()) for line in lines[2 + len(rows) :])
    assert len(lines[0].split()) == len(head.split()) or said.startswith("Hidden: ")
    assert bool(said) == said.endswith(("; --wide shows them", "; --wide shows all"))


def test_wide_tables_are_declared() -> None:
    """Every table with more than seven columns says which of them go first."""
    assert len(declared()) > 20
    for columns in declared():
        assert len(shown(columns)) < 8 or any(column.goes for column in columns), [column.heading for column in columns]


def test_a_help_text_is_filled_anew() -> None:
    """A paragraph gets lines of the terminal's width, a list stays one; a line that ends early, or names an allocator, begins anew below."""
    text = "usage: x\n       y\n\n%s\n%s\nshort.\nglibc: more\n\n  -x   what it does\n" % ("one two three four " * 2 + "end", "five six seven eight " * 2)
    assert report_text.reflow_help(text, None) == text
    shown = report_text.reflow_help(text, 30).split("\n\n")
    assert shown[0] == "usage: x\n       y" and shown[2] == "  -x   what it does\n"
    assert shown[1].split("\n") == ["one two three four one two", "three four end five six seven", "eight five six seven eight", "short.", "glibc: more"]


def test_every_help_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """In 80 columns no line of the help of any command is longer, but for what cannot be broken."""
    monkeypatch.setenv("COLUMNS", "80")
    load_commands()
    texts = [render_everything("gdbheapx"), *(of_command(one, "gdbheapx", True) for one in COMMANDS.values())]
    longer = [line for text in texts for line in report_text.reflow_help(text, 80).split("\n") if len(line) > 80 and len(line.split()) > 2]
    assert [line for line in longer if "`" not in line] == []


def test_only_a_terminal_wraps() -> None:
    """A pipe has each sentence in one line, whatever COLUMNS says; --wide, too; the colour is that of each line."""
    line = mark_sentence("twelve " * 20, DAMAGE)
    narrow = TextStyle(False, True, 80, True)
    assert format_on_screen(narrow, line) == paint_line(line, DAMAGE) + "\n" == format_on_screen(narrow._replace(width=None, wraps=True), line)
    lines = format_on_screen(narrow._replace(wraps=True), line).splitlines()
    assert len(lines) == 2 and all(one.startswith("\x1b[31m") and one.endswith("\x1b[0m") and len(one) <= 89 for one in lines)
    assert not screen_of(-1, {"COLUMNS": "80"}).wraps


COLUMNS = (
    Column("name", TEXT, field="name"),
    Column("first to go", COUNT, field="a", goes=2),
    Column("second", COUNT, field="b", goes=1),
    Column("last", COUNT, field="c"),
)


def headings(width: Optional[int], name: str = "x") -> List[str]:
    return [COLUMNS[place].heading for place in report_text.fit_table(COLUMNS, [[name, "1", "2", "3"]], width)[0]]


def test_order_is_the_declared_one() -> None:
    """The highest number goes first, what has none last, the first column never."""
    assert headings(None) == headings(40) == ["name", "first to go", "second", "last"]
    assert headings(26) == ["name", "second", "last"]
    assert headings(16) == ["name", "last"]
    assert headings(8) == headings(1) == ["name"]


def test_long_texts_drive_nothing_away() -> None:
    """A text counts as 40 characters; without a terminal it stays whole."""
    name, cut = "n" * 300, TextStyle(False, False, 80, shortens=True)
    assert headings(80, name) == ["name", "first to go", "second", "last"]
    assert "n" * 20 + "..." in format_fitted(cut, COLUMNS, [[name, "1", "2", "3"]])[2]
    assert name in format_fitted(cut._replace(shortens=False), COLUMNS, [[name, "1", "2", "3"]])[2]
    assert format_fitted(cut, COLUMNS, [[name, "1", "2", "3"]])[-1] == "texts with ... are shortened; --wide shows all"


@pytest.mark.parametrize(
    "text, longest, shown",
    [
        ("    block 0x7f9e7001cf40 (520 bytes)", 36, "    block 0x7f9e7001cf40 (520 bytes)"),
        ("    block 0x7f9e7001cf40 (520 bytes)", 35, "    block 0x7f9e7001cf40 ..."),
        ("    block 0x7f9e7001cf40 (520 bytes)", 28, "    block 0x7f9e7001cf40 ..."),
        ("    block 0x7f9e7001cf40 (520 bytes)", 27, "    block 0x... (520 bytes)"),
        ("f (what is behind it is most of all this)", 20, "f (what i...ll this)"),
        ("call(of (several))", 17, "call(of...veral))"),
    ],
)
def test_an_address_stays_whole_as_long_as_it_can(text: str, longest: int, shown: str) -> None:
    """What stands in parentheses behind it goes before."""
    assert report_text.shorten_text(text, longest) == shown


@pytest.mark.parametrize("given_columns", ["", "0", "wide", "-3", "\u0663"])
def test_screen_without_a_terminal(given_columns: str) -> None:
    """120 characters, and texts whole."""
    assert screen_of(-1, {"COLUMNS": given_columns}) == Screen(120, False)


@pytest.mark.parametrize(
    ("environment", "has_colors"),
    [({"TERM": "xterm"}, True), ({"TERM": "dumb"}, False), ({}, False), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "xterm", "NO_COLOR": ""}, True)],
)
def test_colors_of_a_terminal(environment: Dict[str, str], has_colors: bool) -> None:
    """NO_COLOR and TERM=dumb have none; a file never has."""
    ours, theirs = os.openpty()
    try:
        shown = screen_of(theirs, environment)
        assert shown.has_colors is has_colors and not shown.of_file().has_colors and not screen_of(-1, environment).has_colors
    finally:
        os.close(ours)
        os.close(theirs)
