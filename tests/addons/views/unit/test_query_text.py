"""Rows of any SQL: text, CSV, JSON."""

from decimal import Decimal
from typing import Any, List, Tuple

from gdbheapx.addons.views.query import text
from gdbheapx.command import Style

COLUMNS = [("a", "UBIGINT"), ("a", "VARCHAR"), ("c", "DOUBLE"), ("d", "DECIMAL(4,2)"), ("e", "UBIGINT[]")]
ROWS: List[Tuple[Any, ...]] = [(16, "=cmd\n\x1b", float("inf"), Decimal("1.50"), [255]), (None, None, 1.5, Decimal("2.00"), None)]


def test_json_has_what_json_can_have() -> None:
    """Addresses are hex strings, numbers without a form null, names unique."""
    assert [text.record(COLUMNS, row) for row in ROWS] == [
        {"a": "0x10", "a_2": "=cmd\n\x1b", "c": None, "d": 1.5, "e": ["0xff"]},
        {"a": None, "a_2": None, "c": 1.5, "d": 2, "e": None},
    ]


def test_csv_runs_no_formula() -> None:
    """One line each, an apostrophe before what a spreadsheet would run; numbers stay."""
    assert list(text.csv_lines([("n", "BIGINT"), ("=x", "VARCHAR")], iter([(-1, "-1+2"), (None, "a,\"b\"\n")]))) == [
        "n,'=x",
        "-1,'-1+2\n" + ',"a,""b""\\x0a"',
    ]
    typed = [("a", "UBIGINT"), ("b", "BOOLEAN"), ("c", "DOUBLE"), ("d", "UBIGINT[]"), ("e", "DECIMAL(4,2)")]
    assert list(text.csv_lines(typed, iter([(255, True, float("nan"), [255], Decimal("-1.50"))])))[1:] == ["0xff,True,,['0xff'],-1.5"]
    assert "".join(text.csv_lines([("n", "BIGINT")], ((n,) for n in range(2500)))).count("\n") == 2497


def test_text_is_bounded() -> None:
    """So many rows, cells of so many characters, and how many more there are."""
    lines = list(text.lines(Style(False, False), [("n", "BIGINT"), ("t", "VARCHAR")], ((n, "\x1b" + "x" * 1000) for n in range(1000)), 3))
    assert len(lines) == 6 and lines[-1] == "997 rows more: --limit N, or all with --csv or --json"
    assert all(line.isprintable() for line in lines) and max(map(len, lines)) < 300
