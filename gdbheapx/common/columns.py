"""Columns, declared once with the field of the record that they show: heading, unit, how it adds up, when text shows it.

A field is declared as `used_bytes: Annotated[Optional[int], Column("used", BYTES, ADD)]`. JSON's key is the field's name; sums, text tables
and --bytes follow from the column.
"""

from functools import cache
from typing import Any, Dict, Iterable, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common import units

BYTES, COUNT, TEXT, PERCENT, PLAIN = "bytes", "count", "text", "percent", "number that may not exist"
DECAY, LATE, INTERVAL = "decay time in ms", "how late in ms", "interval in ms"
"""Units. TEXT is aligned to the left, all others to the right."""
ADD, LARGEST = "add", "largest"
"""How the values of all rows become one. A sum with an unknown part is unknown."""
ALWAYS, IF_ANY, IF_KNOWN, NEVER = "always", "where any row has some", "where any row knows it", "never"
"""When text has the column. JSON always has the field."""


class Column(NamedTuple):
    """Declaration of a column: heading, unit, sum, and when text shows it."""

    heading: str = ""
    """In text."""
    unit: str = COUNT
    sums: Optional[str] = None
    """ADD or LARGEST; None: there is no sum."""
    shown: str = ALWAYS
    field: str = ""
    """Filled in by columns_of()."""
    goes: int = 0
    """Where the terminal is too narrow the column with the highest number goes first, of equal ones the last; those without a number go
    last, and the first column stays."""
    unlike: str = ""
    """The field of another column, where text has this one only if its sum differs from that one's."""


def hidden_column(sums: Optional[str] = None) -> Column:
    """A figure that only JSON has."""
    return Column("", COUNT, sums, NEVER)


@cache
def columns_of(record: Any) -> Tuple[Column, ...]:
    """The declared columns of a record, in its order."""
    columns = []
    for name, declared in record.__annotations__.items():
        for column in getattr(declared, "__metadata__", ()):
            if isinstance(column, Column):
                columns.append(column._replace(field=name))
    return tuple(columns)


def add_values(values: Iterable[Optional[int]]) -> Optional[int]:
    """The sum; None if any value is None."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def sum_columns(record: Any, rows: Sequence[Any], must_exist: bool = False) -> Dict[str, Optional[int]]:
    """The sums of all columns that add up, by field; `must_exist`: without a row they are unknown, as there is always one."""
    totals: Dict[str, Optional[int]] = {}
    for column in columns_of(record):
        if column.sums is not None:
            values = [getattr(row, column.field) for row in rows]
            known = None not in values and not (must_exist and not rows)
            totals[column.field] = None if not known else sum(values) if column.sums == ADD else max(values, default=0)
    return totals


class ColumnsTable(NamedTuple):
    """A table that describes itself; the rows are records or mappings with the columns' fields."""

    columns: Sequence[Column]
    rows: Sequence[Any]
    total: Optional[Mapping[str, Any]] = None
    """The last line: what it has no entry for stays empty."""

    def shown(self) -> Sequence[Column]:
        """The columns that text has."""
        return [column for column in self.columns if self._is_shown(column)]

    def _is_shown(self, column: Column) -> bool:
        if column.unlike:
            rows = self.rows if self.total is None else [self.total]
            return any(field_value(row, column.field) != field_value(row, column.unlike) for row in rows)
        if column.shown == IF_ANY:
            return any(field_value(row, column.field) for row in self.rows) or bool(self.total and self.total.get(column.field))
        if column.shown == IF_KNOWN:
            return any(field_value(row, column.field) is not None for row in self.rows)
        return column.shown == ALWAYS


def field_value(row: Any, field: str) -> Any:
    """Return one field of a record or mapping."""
    return row.get(field) if isinstance(row, Mapping) else getattr(row, field)


def format_cell(column: Column, content: Any, plain: bool) -> str:
    """Return the text of a cell; text values stay as they are."""
    if isinstance(content, str):
        return units.plain_form(content) if plain else content
    if column.unit == PLAIN:
        return "-" if content is None else str(content)
    if column.unit == BYTES:
        return units.format_size(content, plain)
    if column.unit == DECAY:
        return units.format_milliseconds(content)
    if column.unit == LATE:
        return "-" if content is None else "%.0f ms" % content if content else "no"
    if column.unit == INTERVAL:
        return "-" if content is None else "%g ms" % content
    if column.unit == PERCENT:
        return units.UNKNOWN if content is None else "%.1f" % content
    if column.unit == TEXT:
        return units.format_identifier(content)
    return units.format_number(content, plain)
