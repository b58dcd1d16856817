"""What `query` shows: rows of any SQL as a table, CSV or JSON."""

import csv
import io
import math
from decimal import Decimal
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from gdbheapx.report import text
from gdbheapx.report.csv_rows import FORMULA, clean
from gdbheapx.units import plural

ADDRESSES = ("UBIGINT", "UBIGINT[]")
"""Types of columns that are shown in hex: nothing else has them."""
NUMBERS = ("BIGINT", "HUGEINT", "INTEGER", "DOUBLE", "UBIGINT", "FLOAT", "SMALLINT", "TINYINT", "UINTEGER", "UHUGEINT", "DECIMAL")
MOST_ROWS = 100
"""In text, unless --limit says otherwise."""
WIDEST = 200
"""Characters of a cell in text."""

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
    return dict(zip(names(columns), values(columns, row)))


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
    """CSV with a heading."""
    yield _csv(names(columns))
    for row in rows:
        yield _csv(values(columns, row))


def _csv(cells: Sequence[Any]) -> str:
    made = io.StringIO()
    csv.writer(made, lineterminator="").writerow(["" if one is None else _safe(one) if not _is_number(one) else one for one in cells])
    return made.getvalue()


def _is_number(one: Any) -> bool:
    return isinstance(one, (int, float)) and not isinstance(one, bool)


def _safe(one: Any) -> str:
    shown = clean(str(one))
    return "'" + shown if shown.startswith(FORMULA) else shown


def table_lines(tables: Sequence[Any]) -> Iterator[str]:
    """Each table with what it has, and its columns."""
    for table in tables:
        yield "%s: %s" % (table.name, table.what)
        for column in table.columns:
            yield "  %-30s %s" % (column.name, column.type)
        yield ""
    yield "UBIGINT are addresses: shown in hex, compared as address = '0x55e226c732a0'."
