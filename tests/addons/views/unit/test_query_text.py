"""Rows of any SQL: text, CSV, JSON."""

from decimal import Decimal

from gdbheapx.addons.views.query import command as text


def test_csv_runs_no_formula() -> None:
    """One line each, an apostrophe before what a spreadsheet would run; numbers stay."""
    assert list(text.query_csv_lines([("n", "BIGINT"), ("=x", "VARCHAR")], iter([(-1, "-1+2"), (None, "a,\"b\"\n")]))) == [
        "n,'=x",
        "-1,'-1+2\n" + ',"a,""b""\\x0a"',
    ]
    typed = [("a", "UBIGINT"), ("b", "BOOLEAN"), ("c", "DOUBLE"), ("d", "UBIGINT[]"), ("e", "DECIMAL(4,2)")]
    assert list(text.query_csv_lines(typed, iter([(255, True, float("nan"), [255], Decimal("-1.50"))])))[1:] == ["0xff,True,,['0xff'],-1.5"]
    assert "".join(text.query_csv_lines([("n", "BIGINT")], ((n,) for n in range(2500)))).count("\n") == 2497
