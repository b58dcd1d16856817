"""Encode answers for programs: JSON, CSV, folded stacks, flat columns, data frames and HTML tables."""

import heapq
import re
from array import array
from bisect import bisect_left
from html import escape
from itertools import compress
from json import dumps
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.command import JsonLines
from gdbheapx.common import hints
from gdbheapx.common.columns import columns_of
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import MISSING_PACKAGE
from gdbheapx.common.units import count_noun, format_figure, format_size
from gdbheapx.kernel.blocks.stream import CLASS_USED, COLUMNS, SIGNATURE, CsvWords, NativeBlocks
from gdbheapx.report.text import DIRECTION

if TYPE_CHECKING:
    from gdbheapx.analysis.census.find import LabelSet
    from gdbheapx.analysis.census.owned import OwnedBlocks, OwnerStack

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


ESCAPED = re.compile("[\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff%s;]" % DIRECTION)
"""What ends a line or a frame, controls a terminal, turns the reading direction, or is no UTF-8."""
LIKE_A_NUMBER = re.compile(r"\s(?=[0-9.]+$)")
"""Two numbers at the end of a line are a difference of two profiles."""
CLASSES = ("used", "cached", "free", "reserve", "overhead", "returned")
"""By CLASS_ of the blocks: the same for every allocator."""
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff%s]" % DIRECTION)
AT_ONCE, HELD_AT_ONCE = 1 << 15, 1 << 12
MOST_PATHS_LETTERS = 16 << 20
"""Of all paths together: lists whose nodes have names of a thousand steps would fill the disk."""
CELL_FORMULA = ("=", "+", "-", "@")


def escape_character(match: "re.Match[str]") -> str:
    """A character as `\\xNN`, beyond those as `\\uNNNN`: a byte that is no UTF-8 has its own number."""
    number = ord(match.group())
    number -= 0xDC00 if 0xDC80 <= number <= 0xDCFF else 0
    return "\\x%02x" % number if number < 256 else "\\u%04x" % number


def format_folded_frame(name: str) -> str:
    """A name that is one frame and no more, whatever is in it."""
    return LIKE_A_NUMBER.sub("\\\\x20", ESCAPED.sub(escape_character, name)) or "[no name]"


def format_folded(stacks: "Sequence[OwnerStack]") -> Iterator[str]:
    """The largest first."""
    for stack in sorted(stacks, key=lambda stack: -stack.bytes):
        if stack.bytes:
            yield "%s %d" % (";".join(format_folded_frame(part.name) for part in stack.frames), stack.bytes)


def clean_name(text: str) -> str:
    """A name in one line of UTF-8: control characters and bytes that are no UTF-8 as `\\xNN`."""
    return UNPRINTABLE.sub(escape_character, text)


def format_cell(text: str, for_engines: bool = False) -> bytes:
    """A name as a cell: no formula to a spreadsheet, unless that is for engines alone; one line, UTF-8."""
    text = clean_name(text)
    if text.startswith(CELL_FORMULA) and not for_engines:
        text = "'" + text
    return ('"%s"' % text.replace('"', '""') if '"' in text or "," in text else text).encode("utf-8")


def make_csv_words(heap: Any, signatures: Sequence[str] = (), for_engines: bool = False) -> CsvWords:
    """Make the words for the numbers of a heap's blocks."""
    classes, words = [class_.encode() for class_ in CLASSES], [format_cell(word) for word in heap.shape.words]
    names = [format_cell(signature, for_engines) for signature in signatures]
    return CsvWords(classes, words, heap.shape.overheads, format_cell(heap.info.id), names)


def format_csv(kernel: Any, heaps: Sequence[Any]) -> Iterator[str]:
    """The file, while the heaps are read: every block with its status."""
    yield ",".join(COLUMNS) + "\n"
    for heap in heaps:
        writer = kernel.csv(make_csv_words(heap))
        for blocks in heap.blocks():
            yield writer.rows(blocks).decode("utf-8")


UsedBlocks = Tuple[Any, List[NativeBlocks]]
"""A heap, and its blocks in use as they were read."""


def read_used_blocks(heaps: Sequence[Any]) -> Iterator[UsedBlocks]:
    """Reads them."""
    for heap in heaps:
        yield heap, [block for block in map(select_in_use, heap.blocks()) if len(block.addresses)]


def select_in_use(blocks: NativeBlocks) -> NativeBlocks:
    """Select the blocks in use of a batch."""
    if blocks.classes.count(CLASS_USED) == len(blocks.classes):
        return blocks
    chosen = [class_ == CLASS_USED for class_ in blocks.classes]
    return NativeBlocks(*(array(column.typecode, compress(column, chosen)) for column in blocks))


class BlockSignatures(NamedTuple):
    """Signatures of blocks by ascending address."""

    addresses: "array[int]"
    labels: "array[int]"
    """array('I') of as many."""
    names: Sequence[str]
    """By label, from 1 on."""

    def of(self, blocks: NativeBlocks, place: int) -> "array[int]":
        """Labels of a batch that begins at this place, if nothing lies between."""
        count = len(blocks.addresses)
        if self.addresses[place : place + count] == blocks.addresses:
            return self.labels[place : place + count]
        labels = array("I")
        for address in blocks.addresses:
            at = bisect_left(self.addresses, address)
            labels.append(self.labels[at] if at < len(self.addresses) and self.addresses[at] == address else 0)
        return labels


def read_block_signatures(told: "LabelSet") -> BlockSignatures:
    """Return the signature of each block in use, by the census."""
    ids = array("I", range(told.reach.numbers.blocks))
    names = [name.name if name is not None else "" for name in told.names]
    return BlockSignatures(told.reach.graph.columns(ids)[0], told.labels[: len(ids)], names)


def format_kept_csv(told: "LabelSet") -> Iterator[str]:
    """The file of a snapshot, which has neither the allocator's own sizes nor arenas: these cells are empty."""
    yield ",".join([*COLUMNS, SIGNATURE]) + "\n"
    yield from format_kept_rows(told, False)


def format_kept_rows(told: "LabelSet", for_engines: bool, with_names: bool = True) -> Iterator[str]:
    """Its rows."""
    names = ["", *(format_cell(name.name, for_engines).decode("utf-8") if name is not None else "" for name in told.names)]
    blocks = told.reach.numbers.blocks
    for place in range(0, blocks, AT_ONCE):
        ids = array("I", range(place, min(place + AT_ONCE, blocks)))
        rows = zip(*told.reach.graph.columns(ids), told.labels[place : place + AT_ONCE])
        if with_names:
            yield "".join(["0x%x,,%d,used,,,,%s\n" % (address, usable, names[label]) for address, usable, label in rows])
        else:
            yield "".join(["0x%x,,%d,used,,,\n" % (address, usable) for address, usable, _ in rows])


def format_held_rows(found: "OwnedBlocks", most_paths: int, check: Callable[[], None]) -> Iterator[str]:
    """Rows of blocks with their signature, their owner and, of so many of the largest, their path. check() may end it."""
    told, paths = found.told, found.told.paths if most_paths else None
    names = ["", *(format_cell(name.name, True).decode("utf-8") if name is not None else "" for name in told.names)]
    owners = ["" if name is None else format_cell(name, True).decode("utf-8") for name in found.names]
    count = told.reach.numbers.blocks
    sizes = told.reach.graph.columns(array("I", range(count)))[1]
    least = heapq.nlargest(most_paths, sizes)[-1] if paths is not None and count > most_paths else 0
    room = most_paths - sum(1 for size in sizes if size > least)
    letters = MOST_PATHS_LETTERS
    for place in range(0, count, HELD_AT_ONCE):
        check()
        end = min(place + HELD_AT_ONCE, count)
        columns = told.reach.graph.columns(array("I", range(place, end)))
        lines = []
        members = found.containers[place:end] if found.containers is not None else array("I", bytes(4 * (end - place)))
        rows = zip(range(place, end), *columns, told.labels[place:end], found.owners[place:end], members)
        for node, address, usable, label, owner, member in rows:
            room -= usable == least
            is_told = paths is not None and (usable > least or (usable == least and room >= 0))
            path = paths.text(node) if paths is not None and is_told and letters > 0 else None
            letters -= len(path or "")
            shown = "" if path is None else format_cell(path, True).decode("utf-8")
            container = str(member - 1) if member else ""
            lines.append("0x%x,%d,%s,%s,%s,%s\n" % (address, usable, names[label], owners[owner], container, shown))
        yield "".join(lines)


def format_signed_csv(kernel: Any, heaps: Sequence[UsedBlocks], signed: BlockSignatures, for_engines: bool = False) -> Iterator[str]:
    """The file with a name for each block in use."""
    yield ",".join([*COLUMNS, SIGNATURE]) + "\n"
    for heap, batches in heaps:
        writer = kernel.csv(make_csv_words(heap, signed.names, for_engines))
        for blocks in batches:
            place = bisect_left(signed.addresses, blocks.addresses[0])
            yield writer.rows(blocks, signed.of(blocks, place)).decode("utf-8")


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
