"""Encode answers for programs: JSON, flat columns, data frames and HTML tables."""

from array import array
from html import escape
from json import dumps
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

from gdbheapx.command import JsonLines
from gdbheapx.common import hints
from gdbheapx.common.columns import columns_of
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import MISSING_PACKAGE
from gdbheapx.common.units import count_noun, format_figure, format_size

if TYPE_CHECKING:
    pass

Write = Callable[[str], Any]


def make_jsonable(value: Any, line: Optional[hints.Write] = None) -> Any:
    """The value in the types that json knows. `line` writes the commands that its texts name; None: they stay as they are."""
    kind = type(value)
    if kind is str:
        return hints.write_commands(value, line) if line is not None and hints.BEGIN in value else value
    if kind is int or kind is float or kind is bool or value is None:
        return value
    if isinstance(value, (TargetAddress, str)):
        return make_jsonable(str(value), line)
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)
        if names is not None:
            return {name: make_jsonable(member, line) for name, member in zip(names, value)}
        return [make_jsonable(member, line) for member in value]
    if isinstance(value, dict):
        return {str(name): make_jsonable(member, line) for name, member in value.items()}
    if isinstance(value, (list, set, frozenset)) or hasattr(value, "__iter__"):
        return [make_jsonable(member, line) for member in value]
    if isinstance(value, int):
        return int(value)
    return str(value)


def encode_json(value: Any, line: Optional[hints.Write] = None) -> str:
    """Encode a value as JSON; bytes of a file name that are no UTF-8 stay readable as escapes."""
    return dumps(make_jsonable(value, line), allow_nan=False)


def format_json(value: Any) -> str:
    """A command's data as one text."""
    pieces: List[str] = []

    def walk_step(step: Callable[[], None]) -> bool:
        step()
        return True

    write_json(value, pieces.append, walk_step)
    return "".join(pieces)


def write_json(value: Any, out: Write, guard: Callable[[Callable[[], None]], bool], line: Optional[hints.Write] = None) -> None:
    """Write a command's data. Streams are written while they are made, callables are called when their turn comes.

    `guard` runs a step that reads the target; it gives False if that was cut short, and what follows is closed properly.
    """
    if isinstance(value, JsonLines):
        _write_stream(value, out, guard)
    elif isinstance(value, dict) and any(callable(member) or isinstance(member, JsonLines) for member in value.values()):
        out("{")
        for place, (name, member) in enumerate(value.items()):
            out("%s%s: " % (", " if place else "", dumps(name)))
            write_json(_call_guarded(member, guard) if callable(member) else member, out, guard, line)
        out("}")
    else:
        out(encode_json(value, line))


def _call_guarded(make: Callable[[], Any], guard: Callable[[Callable[[], None]], bool]) -> Any:
    results = []
    return results[0] if guard(lambda: results.append(make())) else None


def _write_stream(lines: JsonLines, out: Write, guard: Callable[[Callable[[], None]], bool]) -> None:
    out("[")

    def pump_data() -> None:
        first = True
        for entry in lines.entries:
            out("\n" + entry if first else ",\n" + entry)
            first = False

    guard(pump_data)
    out("\n]")


MOST_HTML_ROWS = 50
"""In a notebook."""
HIGHEST_SIGNED = (1 << 63) - 1


def _explain_missing(package: str, error: BaseException) -> HeapxError:
    cause = "%s cannot be imported (%s)" % (package, " ".join(str(error).split()))
    return HeapxError(cause, "pip install %s" % package, code=MISSING_PACKAGE)


def make_columns(rows: Sequence[Any]) -> Dict[str, Any]:
    """Return columns by name: flat arrays, (indexes, words), or lists. Nested records become JSON types, but addresses stay numbers."""
    given = getattr(rows, "columns", None)
    if given is not None:
        made: Dict[str, Any] = given()
        return made
    names: List[str] = []
    members = [row if isinstance(row, dict) else row._asdict() if hasattr(row, "_fields") else {"value": row} for row in rows]
    for member in members:
        names += [name for name in member if name not in names]
    return {name: [_make_cell(member.get(name)) for member in members] for name in names}


def _make_cell(value: Any) -> Any:
    if value is None or isinstance(value, (bool, float)):
        return value
    return int(value) if isinstance(value, (int, TargetAddress)) else make_jsonable(value)


def make_arrow(rows: Sequence[Any]) -> Any:
    """A pyarrow.Table; flat arrays are not copied."""
    try:
        import pyarrow
    except ImportError as error:
        raise _explain_missing("pyarrow", error)

    def flatten_values(values: "array[Any]") -> Any:
        kind = {"Q": pyarrow.uint64(), "I": pyarrow.uint32(), "B": pyarrow.uint8()}[values.typecode]
        return pyarrow.Array.from_buffers(kind, len(values), [None, pyarrow.py_buffer(values)])

    def make_arrow_column(values: Any) -> Any:
        if isinstance(values, array):
            return flatten_values(values)
        if isinstance(values, tuple):
            return pyarrow.DictionaryArray.from_arrays(flatten_values(values[0]), pyarrow.array(values[1], pyarrow.string()))
        if any(isinstance(value, int) and value > HIGHEST_SIGNED for value in values):
            return pyarrow.array(values, pyarrow.uint64())
        return pyarrow.array(values)

    made = {name: make_arrow_column(values) for name, values in make_columns(rows).items()}
    return pyarrow.table(made)


def make_pandas(rows: Sequence[Any]) -> Any:
    """A pandas.DataFrame; flat arrays are not copied."""
    try:
        import numpy
        import pandas as library
    except ImportError as error:
        raise _explain_missing("pandas", error)

    def make_pandas_column(values: Any) -> Any:
        if isinstance(values, array):
            return numpy.frombuffer(values, "u%d" % values.itemsize) if values else numpy.zeros(0, "u%d" % values.itemsize)
        if isinstance(values, tuple):
            return library.Categorical.from_codes(make_pandas_column(values[0]), values[1])
        known = [value for value in values if value is not None]
        if known and len(known) < len(values) and all(type(value) is int and value <= HIGHEST_SIGNED for value in known):
            return library.array(values, "Int64")  # else all of them would be floats, and what is unknown NaN
        return values

    return library.DataFrame({name: make_pandas_column(values) for name, values in make_columns(rows).items()}, copy=False)


def is_table(rows: Sequence[Any]) -> bool:
    """Their columns have headings, or they are rows of SQL or blocks."""
    first: Any = rows[0] if len(rows) else None
    kind: Any = type(first)
    return isinstance(first, dict) or hasattr(rows, "columns") or bool(hasattr(first, "_fields") and columns_of(kind))


def wrap_pre(text: str) -> str:
    """Text as it is."""
    return "<pre>%s</pre>" % escape(text)


def make_html_table(rows: Sequence[Any], notes: Sequence[str], is_partial: bool, heads: Sequence[str] = ()) -> str:
    """Sentences, a table of the first rows, and what is to be said of them; all escaped."""
    shown = list(rows[:MOST_HTML_ROWS])
    kind: Any = type(shown[0]) if shown else None
    headings = {one.field: one.heading for one in columns_of(kind) if one.heading} if hasattr(kind, "_fields") else {}
    table = make_columns(shown)
    names = [name for name in table if name in headings] or list(table)
    lines = ["<tr>%s</tr>" % "".join("<th>%s</th>" % escape(headings.get(name, name)) for name in names)]
    for place in range(len(shown)):
        lines.append("<tr>%s</tr>" % "".join(_html_cell(name, table[name][place]) for name in names))
    told = [count_noun(len(rows) - len(shown), "more row")] if len(rows) > len(shown) else []
    told += ["Partial answer, because:" if is_partial else "Notes:", *notes] if notes else []
    above = "".join("<p>%s</p>" % escape(line) for line in heads)
    return "%s<table>%s</table>%s" % (above, "".join(lines), "".join("<p>%s</p>" % escape(str(line)) for line in told))


def _html_cell(name: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "<td>%s</td>" % escape("" if value is None else str(value))
    shown = "0x%x" % value if "address" in name or name == "sample" else format_figure(name, value)
    shown = format_size(value, False) if name.endswith("bytes") else shown
    return '<td style="text-align: right">%s</td>' % escape(shown)
