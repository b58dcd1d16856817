"""Output of `query`: rows of any SQL as a table, CSV or JSON."""

import csv
import io
import math
from decimal import Decimal
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from gdbheapx.columns import COUNT, TEXT, Column
from gdbheapx.command import TextStyle
from gdbheapx.report import text
from gdbheapx.report.encodings import CELL_FORMULA, clean_name
from gdbheapx.units import count_noun

ADDRESSES = ("UBIGINT", "UBIGINT[]")
"""Types of columns that are shown in hex: nothing else has them."""
NUMBERS = ("BIGINT", "HUGEINT", "INTEGER", "DOUBLE", "UBIGINT", "FLOAT", "SMALLINT", "TINYINT", "UINTEGER", "UHUGEINT", "DECIMAL")
MOST_ROWS = 100
"""In text, unless --limit says otherwise."""
WIDEST = 200
"""Characters of a cell in text."""

AT_ONCE = 1000
"""Rows of CSV."""

Columns = Sequence[Tuple[str, str]]
"""(name, type)."""
Rows = Iterator[Tuple[Any, ...]]


def json_value(cell: Any, is_address: bool = False) -> Any:
    """Return the value for JSON: addresses as hex strings; values for which JSON has no form as text, and numbers that are not finite as
    None.
    """
    if cell is None or isinstance(cell, (bool, str)):
        return cell
    if isinstance(cell, int):
        return "0x%x" % cell if is_address else cell
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, Decimal):
        return json_value(int(cell) if cell == cell.to_integral_value() else float(cell))
    if isinstance(cell, (list, tuple)):
        return [json_value(part, is_address) for part in cell]
    if isinstance(cell, dict):
        return {str(name): json_value(part) for name, part in cell.items()}
    return cell.hex() if isinstance(cell, (bytes, bytearray)) else str(cell)


def json_values(columns: Columns, row: Sequence[Any]) -> List[Any]:
    """A row."""
    return [json_value(cell, type_ in ADDRESSES) for cell, (_, type_) in zip(row, columns)]


def unique_column_names(columns: Columns) -> List[str]:
    """Return the names of the columns, each of them unique."""
    unique_names: List[str] = []
    for name, _ in columns:
        number, unique = 1, name
        while unique in unique_names:
            number += 1
            unique = "%s_%d" % (name, number)
        unique_names.append(unique)
    return unique_names


def make_json_record(columns: Columns, row: Sequence[Any]) -> Dict[str, Any]:
    """A row of JSON."""
    return make_json_record_maker(columns)(row)


def make_json_record_maker(columns: Columns) -> Callable[[Sequence[Any]], Dict[str, Any]]:
    """Return the function that makes a JSON record of a row, for many rows."""
    known = [(name, type_ in ADDRESSES) for name, (_, type_) in zip(unique_column_names(columns), columns)]
    return lambda row: {name: json_value(cell, is_address) for (name, is_address), cell in zip(known, row)}


def query_lines(style: TextStyle, columns: Columns, rows: Rows, limit: int) -> Iterator[str]:
    """A table with the first rows, and how many more there are."""
    shown = [json_values(columns, row) for _, row in zip(range(limit), rows)]
    more = sum(1 for _ in rows)
    cells = [[_shorten_cell(cell) for cell in row] for row in shown]
    heads = [Column(text.make_printable(clean_name(name)), COUNT if type_.split("(")[0] in NUMBERS else TEXT) for name, type_ in columns]
    yield from text.format_fitted(style, heads, cells)
    if more:
        yield "%s more: --limit N, or all with --csv or --json" % count_noun(more, "row")


def _shorten_cell(cell: Any) -> str:
    shown = "" if cell is None else clean_name(str(cell))
    return shown if len(shown) <= WIDEST else shown[: WIDEST - 3] + "..."


def query_csv_lines(columns: Columns, rows: Rows) -> Iterator[str]:
    """CSV with a heading; many lines at once."""
    yield _format_csv([[_safe_text(name) for name in unique_column_names(columns)]])
    makers = [_of_type(type_) for _, type_ in columns]
    while True:
        some = [[make(cell) for make, cell in zip(makers, row)] for _, row in zip(range(AT_ONCE), rows)]
        if not some:
            return
        yield _format_csv(some)


def _of_type(type_: str) -> Callable[[Any], Any]:
    """Return the function that makes a cell of a value of this type."""
    if type_ in ("BIGINT", "HUGEINT", "INTEGER"):
        return _keep_cell
    if type_ in ADDRESSES:
        return _format_address if type_ == "UBIGINT" else lambda cell: _format_any(json_value(cell, True))
    return _format_any


def _keep_cell(cell: Any) -> Any:
    return cell


def _format_address(cell: Any) -> Any:
    return cell if cell is None else "0x%x" % cell


def _format_any(cell: Any) -> Any:
    shown = json_value(cell)
    return shown if shown is None or (isinstance(shown, (int, float)) and not isinstance(shown, bool)) else _safe_text(shown)


def _format_csv(rows: Sequence[Sequence[Any]]) -> str:
    """Lines without the last one's end."""
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows(rows)
    return made.getvalue()[:-1]


def _safe_text(cell: Any) -> str:
    shown = str(cell)
    if not (shown.isascii() and shown.isprintable()):
        shown = clean_name(shown)
    return "'" + shown if shown.startswith(CELL_FORMULA) else shown


def describe_tables(tables: Sequence[Any]) -> Iterator[str]:
    """Yield each table with its description, and its columns."""
    for table in tables:
        yield "%s: %s" % (table.name, table.what)
        for column in table.columns:
            yield "  %-30s %s" % (column.name, column.type)
        yield ""
    yield "UBIGINT are addresses: shown in hex, compared as address = '0x55e226c732a0'."
