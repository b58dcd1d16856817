"""What `table` and `fleet` show: a table, or CSV."""

import csv
import io
from typing import Any, Dict, Iterator, List, Optional, Sequence, Union

from gdbheapx.columns import TEXT, Table, columns_of
from gdbheapx.command import Style
from gdbheapx.extras.fleet.documents import Document, Group
from gdbheapx.report import text

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet takes for the beginning of a formula."""


def data(rows: Sequence[Document], groups: Optional[Sequence[Group]]) -> Dict[str, Any]:
    """The `data` member."""
    return {"rows": list(rows), "groups": None if groups is None else list(groups)}


def lines(style: Style, rows: Union[Sequence[Document], Sequence[Group]]) -> Iterator[str]:
    """A table, or nothing."""
    record: Any = type(rows[0]) if rows else Document
    columns = columns_of(record)
    known = {column.field for column in columns if any(getattr(one, column.field) is not None for one in rows)}
    absent = {column.field: "" for column in columns if column.unit == TEXT and column.field in known}
    shown: List[Any] = [
        {name: absent.get(name) if value is None else _cell(value) for name, value in one._asdict().items()} for one in rows
    ]
    yield from text.show(style, [Table(columns, shown)])


def csv_lines(rows: Union[Sequence[Document], Sequence[Group]]) -> Iterator[str]:
    """CSV with a heading."""
    yield _csv((type(rows[0]) if rows else Document)._fields)
    for one in rows:
        yield _csv(["" if value is None else _safe(value) if isinstance(value, str) else value for value in one])


def _csv(cells: Sequence[Any]) -> str:
    made = io.StringIO()
    csv.writer(made, lineterminator="").writerow(cells)
    return made.getvalue()


def _safe(cell: str) -> str:
    shown = text.printable(cell)
    return "'" + shown if cell.startswith(FORMULA) else shown


def _cell(value: Any) -> Any:
    return "yes" if value is True else "" if value is False else value
