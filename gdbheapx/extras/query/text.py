"""What `query` shows: rows of any SQL as a table, CSV or JSON."""

import csv
import io
import math
from decimal import Decimal
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from gdbheapx.extras.export.csv_rows import FORMULA, clean
from gdbheapx.report import text
from gdbheapx.units import plural

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


def value(one: Any, is_address: bool = False) -> Any:
    """As JSON has it: addresses as hex strings; what JSON has no form for as text."""
    if one is None or isinstance(one, (bool, str)):
        return one
    if isinstance(one, int):
        return "0x%x" % one if is_address else one
    if isinstance(one, float):
        return one if math.isfinite(one) else None
    if isinstance(one, Decimal):
        return value(int(one) if one == one.to_integral_value() else float(one))
    if isinstance(one, (list, tuple)):
        return [value(part, is_address) for part in one]
    if isinstance(one, dict):
        return {str(name): value(part) for name, part in one.items()}
    return one.hex() if isinstance(one, (bytes, bytearray)) else str(one)


def values(columns: Columns, row: Sequence[Any]) -> List[Any]:
    """A row."""
    return [value(one, type_ in ADDRESSES) for one, (_, type_) in zip(row, columns)]


def names(columns: Columns) -> List[str]:
    """Of the columns, each once."""
    found: List[str] = []
    for name, _ in columns:
        number, unique = 1, name
        while unique in found:
            number += 1
            unique = "%s_%d" % (name, number)
        found.append(unique)
    return found


def record(columns: Columns, row: Sequence[Any]) -> Dict[str, Any]:
    """A row of JSON."""
    return records(columns)(row)


def records(columns: Columns) -> Callable[[Sequence[Any]], Dict[str, Any]]:
    """The same for many."""
    known = [(name, type_ in ADDRESSES) for name, (_, type_) in zip(names(columns), columns)]
    return lambda row: {name: value(one, is_address) for (name, is_address), one in zip(known, row)}


def lines(columns: Columns, rows: Rows, limit: int) -> Iterator[str]:
    """A table with the first rows, and how many more there are."""
    shown = [values(columns, row) for _, row in zip(range(limit), rows)]
    more = sum(1 for _ in rows)
    cells = [[_shown(one) for one in row] for row in shown]
    align = "".join("r" if type_.split("(")[0] in NUMBERS else "l" for _, type_ in columns)
    yield from text.table([text.printable(clean(name)) for name, _ in columns], cells, align)
    if more:
        yield "%s more: --limit N, or all with --csv or --json" % plural(more, "row")


def _shown(one: Any) -> str:
    found = "" if one is None else clean(str(one))
    return found if len(found) <= WIDEST else found[: WIDEST - 3] + "..."


def csv_lines(columns: Columns, rows: Rows) -> Iterator[str]:
    """CSV with a heading; many lines at once."""
    yield _csv([[_safe(name) for name in names(columns)]])
    makers = [_of_type(type_) for _, type_ in columns]
    while True:
        some = [[make(one) for make, one in zip(makers, row)] for _, row in zip(range(AT_ONCE), rows)]
        if not some:
            return
        yield _csv(some)


def _of_type(type_: str) -> Callable[[Any], Any]:
    """What makes a cell of a value."""
    if type_ in ("BIGINT", "HUGEINT", "INTEGER"):
        return _itself
    if type_ in ADDRESSES:
        return _address if type_ == "UBIGINT" else lambda one: _any(value(one, True))
    return _any


def _itself(one: Any) -> Any:
    return one


def _address(one: Any) -> Any:
    return one if one is None else "0x%x" % one


def _any(one: Any) -> Any:
    shown = value(one)
    return shown if shown is None or (isinstance(shown, (int, float)) and not isinstance(shown, bool)) else _safe(shown)


def _csv(rows: Sequence[Sequence[Any]]) -> str:
    """Lines without the last one's end."""
    made = io.StringIO()
    csv.writer(made, lineterminator="\n").writerows(rows)
    return made.getvalue()[:-1]


def _safe(one: Any) -> str:
    shown = str(one)
    if not (shown.isascii() and shown.isprintable()):
        shown = clean(shown)
    return "'" + shown if shown.startswith(FORMULA) else shown


def table_lines(tables: Sequence[Any]) -> Iterator[str]:
    """Each table with what it has, and its columns."""
    for table in tables:
        yield "%s: %s" % (table.name, table.what)
        for column in table.columns:
            yield "  %-30s %s" % (column.name, column.type)
        yield ""
    yield "UBIGINT are addresses: shown in hex, compared as address = '0x55e226c732a0'."
