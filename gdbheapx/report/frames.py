"""Rows of an answer as an Arrow table, as a pandas frame, and as HTML for notebooks."""

from array import array
from html import escape
from typing import Any, Dict, List, Sequence

from gdbheapx.columns import columns_of
from gdbheapx.errors import HeapxError
from gdbheapx.model import Address
from gdbheapx.problems import MISSING_PACKAGE
from gdbheapx.report.json import jsonable
from gdbheapx.units import figure, plural, size

MOST_ROWS = 50
"""In a notebook."""
HIGHEST_SIGNED = (1 << 63) - 1


def _missing(package: str, error: BaseException) -> HeapxError:
    cause = "%s cannot be imported (%s)" % (package, " ".join(str(error).split()))
    return HeapxError(cause, "pip install %s" % package, code=MISSING_PACKAGE)


def columns(rows: Sequence[Any]) -> Dict[str, Any]:
    """By name: flat arrays, pairs of places and words, or lists of values. What is a record or a list itself is so in the types of JSON,
    but addresses are numbers."""
    given = getattr(rows, "columns", None)
    if given is not None:
        made: Dict[str, Any] = given()
        return made
    names: List[str] = []
    members = [row if isinstance(row, dict) else row._asdict() if hasattr(row, "_fields") else {"value": row} for row in rows]
    for member in members:
        names += [name for name in member if name not in names]
    return {name: [_cell(member.get(name)) for member in members] for name in names}


def _cell(value: Any) -> Any:
    if value is None or isinstance(value, (bool, float)):
        return value
    return int(value) if isinstance(value, (int, Address)) else jsonable(value)


def arrow(rows: Sequence[Any]) -> Any:
    """A pyarrow.Table; flat arrays are not copied."""
    try:
        import pyarrow
    except ImportError as error:
        raise _missing("pyarrow", error)

    def flat(values: "array[Any]") -> Any:
        kind = {"Q": pyarrow.uint64(), "I": pyarrow.uint32(), "B": pyarrow.uint8()}[values.typecode]
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])

    def column(values: Any) -> Any:
        if isinstance(values, array):
            return flat(values)
        if isinstance(values, tuple):
            return pyarrow.DictionaryArray.from_arrays(flat(values[0]), pyarrow.array(values[1], pyarrow.string()))
        if any(isinstance(value, int) and value > HIGHEST_SIGNED for value in values):
            return pyarrow.array(values, pyarrow.uint64())
        return pyarrow.array(values)

    made = {name: column(values) for name, values in columns(rows).items()}
    return pyarrow.table(made)


def pandas(rows: Sequence[Any]) -> Any:
    """A pandas.DataFrame; flat arrays are not copied."""
    try:
        import numpy
        import pandas as library
    except ImportError as error:
        raise _missing("pandas", error)

    def column(values: Any) -> Any:
        if isinstance(values, array):
            return numpy.frombuffer(values, "u%d" % values.itemsize) if values else numpy.zeros(0, "u%d" % values.itemsize)
        if isinstance(values, tuple):
            return library.Categorical.from_codes(column(values[0]), values[1])
        known = [value for value in values if value is not None]
        if known and len(known) < len(values) and all(type(value) is int and value <= HIGHEST_SIGNED for value in known):
            return library.array(values, "Int64")  # else all of them would be floats, and what is unknown NaN
        return values

    return library.DataFrame({name: column(values) for name, values in columns(rows).items()}, copy=False)


def is_table(rows: Sequence[Any]) -> bool:
    """Their columns have headings, or they are rows of SQL or blocks."""
    first: Any = rows[0] if len(rows) else None
    kind: Any = type(first)
    return isinstance(first, dict) or hasattr(rows, "columns") or bool(hasattr(first, "_fields") and columns_of(kind))


def pre(text: str) -> str:
    """Text as it is."""
    return "<pre>%s</pre>" % escape(text)


def html(rows: Sequence[Any], notes: Sequence[str], is_partial: bool, heads: Sequence[str] = ()) -> str:
    """Sentences, a table of the first rows, and what is to be said of them; all escaped."""
    shown = list(rows[:MOST_ROWS])
    kind: Any = type(shown[0]) if shown else None
    headings = {one.field: one.heading for one in columns_of(kind) if one.heading} if hasattr(kind, "_fields") else {}
    table = columns(shown)
    names = [name for name in table if name in headings] or list(table)
    lines = ["<tr>%s</tr>" % "".join("<th>%s</th>" % escape(headings.get(name, name)) for name in names)]
    for place in range(len(shown)):
        lines.append("<tr>%s</tr>" % "".join(_html_cell(name, table[name][place]) for name in names))
    told = [plural(len(rows) - len(shown), "more row")] if len(rows) > len(shown) else []
    told += ["Partial answer, because:" if is_partial else "Notes:", *notes] if notes else []
    above = "".join("<p>%s</p>" % escape(line) for line in heads)
    return "%s<table>%s</table>%s" % (above, "".join(lines), "".join("<p>%s</p>" % escape(str(line)) for line in told))


def _html_cell(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "<td>%s</td>" % escape("" if value is None else str(value))
    shown = (
        size(value, False) if name.endswith("bytes") else "0x%x" % value if "address" in name or name == "sample" else figure(name, value)
    )
    return '<td style="text-align: right">%s</td>' % escape(str(shown))
