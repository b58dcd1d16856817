"""Rows of any SQL: records of commands, and text, CSV, JSON.

Files: addons/views/query/table_rows.py.
"""

from decimal import Decimal

from gdbheapx.addons.views.query import command as text
from gdbheapx.addons.views.query import table_rows
from gdbheapx.addons.views.query.table_rows import BY_NAME
from gdbheapx.common.model import TargetAddress


def test_cells_have_the_columns_types() -> None:
    """Addresses are numbers, the first sample stands for all, names are one line of UTF-8, and what a record lacks is None."""
    row = {"signature": "=a\n\x1b[1m\udcff", "kind": "root", "size_bytes": 24, "blocks": 3, "bytes": 72, "sample": [TargetAddress(0x10), TargetAddress(0x20)], "more": 1}
    assert table_rows.make_table_cells(BY_NAME["leaks"], row) == ["=a\\x0a\\x1b[1m\\xff", "root", 24, 3, 72, None, None, 16, None]
    assert table_rows.make_table_cells(BY_NAME["leaks"], {"sample": []})[-2] is None


def test_the_look_is_told_by_one_word() -> None:
    """What stands in the environment is read back."""
    import os
    from unittest import mock

    for further in ((None,), (8,), (None, 9, True), (8, 9, False)):
        asked = table_rows.LookRequest(["blocks", "arenas"], 7, *further)
        with mock.patch.dict(os.environ, {table_rows.VARIABLE: table_rows.encode_request(asked)}):
            assert table_rows.read_request() == asked
    assert table_rows.read_request() is None


def test_csv_runs_no_formula() -> None:
    """One line each, an apostrophe before what a spreadsheet would run; numbers stay."""
    assert list(text.query_csv_lines([("n", "BIGINT"), ("=x", "VARCHAR")], iter([(-1, "-1+2"), (None, "a,\"b\"\n")]))) == [
        "n,'=x",
        "-1,'-1+2\n" + ',"a,""b""\\x0a"',
    ]
    typed = [("a", "UBIGINT"), ("b", "BOOLEAN"), ("c", "DOUBLE"), ("d", "UBIGINT[]"), ("e", "DECIMAL(4,2)")]
    assert list(text.query_csv_lines(typed, iter([(255, True, float("nan"), [255], Decimal("-1.50"))])))[1:] == ["0xff,True,,['0xff'],-1.5"]
    assert "".join(text.query_csv_lines([("n", "BIGINT")], ((n,) for n in range(2500)))).count("\n") == 2497
