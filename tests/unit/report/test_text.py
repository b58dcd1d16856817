"""Text for people: sizes, tables with tabulate and without, and what the target's names may not do to a terminal."""


import pytest

from gdbheapx import units
from gdbheapx.report import text


@pytest.mark.parametrize(
    "size, shown",
    [(0, "0 B"), (9999, "9,999 B"), (10000, "9.8 KiB"), (-20480, "-20.0 KiB"), (1 << 20, "1.0 MiB"), (1023 * 1024 + 1000, "1.0 MiB"), (1 << 60, "1024.0 PiB")],
)
def test_sizes_for_people(size: int, shown: str) -> None:
    """Small ones to the byte, others in the largest unit that leaves at most four digits."""
    assert units.table_size(size) == shown


HEADERS, ROWS = ("name", "bytes"), [["one", "1"], ["a longer one", "12,345"]]


def test_a_table_looks_the_same_without_tabulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Header, rule, rows, with the same columns."""
    pytest.importorskip("tabulate")
    with_it = text.format_table(HEADERS, ROWS, "lr")
    monkeypatch.setattr(text, "_tabulate", None)
    monkeypatch.setattr(text, "_looked_for_tabulate", True)
    assert text.format_table(HEADERS, ROWS, "lr") == with_it
    assert with_it[-1].endswith("12,345") and with_it[-2].endswith(" 1") and set(with_it[1]) == {"-", " "}


@pytest.mark.parametrize("told, shown", [("plain", "plain"), ("\x1b[2J", "\\x1b[2J"), ("a\nb", "a\\nb"), ("\u00e9", "\\xe9"), ("\u2028", "\\u2028"), ("\udcff", "\\udcff")])
def test_names_cannot_drive_the_terminal(told: str, shown: str) -> None:
    """Control characters, line ends and letters beyond ASCII are escaped, in a cell as in a line."""
    assert text.make_printable(told) == text.escape_line(told) == shown
    assert shown in text.format_table(["name"], [[told]], "l")[-1]


def test_tabs_stay_and_documents_keep_letters() -> None:
    """A document for another program has its paths as they are, but no line end inside a line."""
    assert text.escape_line("a\tb\x07") == "a\tb\\x07"
    assert text.escape_line("/srv/\u00e9\n/x\t", document=True) == "/srv/\u00e9\\012/x\t"
