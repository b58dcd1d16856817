"""`query` and parquet files, in the shell: a child takes the look, DuckDB answers here, outside gdb. And SQL from Python: the look is
taken by who asks, DuckDB answers in this process. Rows of any SQL become a table, CSV or JSON."""

import csv
import io
import itertools
import json
import math
import os
import signal
from decimal import Decimal
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

from gdbheapx.addons.views.query import engine, table_rows
from gdbheapx.addons.views.query.csv_rows import CELL_FORMULA, clean_name
from gdbheapx.addons.views.query.table_rows import Asked, LookRequest, find_table_rows
from gdbheapx.api import Rows
from gdbheapx.app import worker
from gdbheapx.app.invocation import Invocation, Shell, understand_words
from gdbheapx.app.runner import NOBODY, envelope_tail, make_internal_error, out_of_memory, tool_member
from gdbheapx.command import TextStyle, output
from gdbheapx.command.output import CannotWrite, OutputFile, Sink
from gdbheapx.common import problems
from gdbheapx.common.budget import NAMES
from gdbheapx.common.columns import COUNT, TEXT, Column
from gdbheapx.common.errors import HeapxError, Interrupted, UsageError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.units import count_noun
from gdbheapx.report import text
from gdbheapx.report.encodings import encode_json, make_jsonable

__all__ = ("ask", "find_table_rows", "make")
ANSWERED = (0, 3, 4)
"""Exit codes with an answer."""
WHOLE, NO_ANSWER, PARTIAL = 0, 1, 4
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
Cells = Iterator[Tuple[Any, ...]]


def make(invocation: Invocation, shell: Shell) -> int:
    """Answer; the exit code is that of the look."""
    query = Query(invocation, shell)
    failed = shell.failed
    try:
        return query.run() if hasattr(invocation.options, "sql") else _write_parquet(invocation, shell)
    except BrokenPipeError:
        return WHOLE  # the reader has seen enough
    except KeyboardInterrupt as error:
        failed(Interrupted(error.args[0] if error.args else "Ctrl-C"), query.has_written)
        os._exit(NO_ANSWER)  # DuckDB's threads may still run, and the interpreter's end would trip over them
    except HeapxError as error:
        code = failed(error, query.has_written)
        return code if error.code != problems.CUT else os._exit(code)  # a thread of DuckDB's may still run
    except MemoryError:
        return failed(out_of_memory(), query.has_written)
    except Exception as error:
        if invocation.options.traceback:
            raise
        return failed(make_internal_error(error, "gdbheapx %s --traceback" % invocation.command.name), query.has_written)


def ask(sql: str, look: Callable[[LookRequest], Dict[str, Any]], max_seconds: Optional[float] = None) -> Rows:
    """The rows of one SELECT; `look` gives rows by table, as find_table_rows() does, and is not called where SQL names no table. UsageError
    for what is no SELECT, HeapxError where DuckDB is not installed, or has not answered within `max_seconds`."""
    until = engine.compute_deadline(max_seconds)
    asked, to_run = engine.bind_statement(sql, until)
    request = table_rows.open_request(asked)
    try:
        tables = make_jsonable(look(request)) if asked.tables else {}
        with engine.PrivateFolder() as folder:
            path = engine.fill_database(folder, asked, tables, request.rows, request.signed, request.held)
            columns, rows = engine.ask_database(folder, path, to_run, until)
            names = unique_column_names(columns)
            return Rows({name: kind for name, (_, kind) in zip(names, columns)}, [dict(zip(names, row)) for row in rows])
    finally:
        request.close()


def _take_look(asked: Asked, invocation: Invocation, shell: Shell) -> Tuple[int, Dict[str, Any], bytes, LookRequest]:
    """Read the target once, in a child: its exit code, its envelope (empty if there is no answer) and text, and the files of blocks."""
    options, request = invocation.options, table_rows.open_request(asked)
    for descriptor in (request.rows, request.signed, request.held):
        if descriptor is not None:
            os.set_inheritable(descriptor, True)
    words = ["query", "--json"]
    for name in ("max_seconds", "max_stop", "allocator"):
        value = getattr(options, name)
        words += ["--" + name.replace("_", "-"), str(value)] if value is not None else []
    words += ["--traceback"] if options.traceback else []
    words += ["--no-names"] if getattr(options, "no_names", False) else []
    os.environ[table_rows.VARIABLE] = table_rows.encode_request(request)
    try:
        code, said = worker.answer_in_child(understand_words(invocation.asked, words), shell.look)
    finally:
        del os.environ[table_rows.VARIABLE]
    _heed_signals()
    try:
        envelope = json.loads(said.decode("utf-8", "replace")) if code in ANSWERED else {}
    except ValueError as error:
        raise HeapxError("the result is incomplete (%s)" % error, "run it again, or ask a core of the process", code=problems.NO_ANSWER)
    return code, envelope, said, request


def _heed_signals() -> None:
    """Handle signals that end this process from now on: private files are deleted first."""

    def raise_on_signal(number: int, frame: Optional[FrameType]) -> NoReturn:
        raise KeyboardInterrupt(NAMES[number])

    heard = [number for number in NAMES if signal.getsignal(number) != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, raise_on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, *heard))


class Query:
    """Query of one command line."""

    def __init__(self, invocation: Invocation, shell: Shell) -> None:
        self._invocation, self._options, self._shell = invocation, invocation.options, shell
        self.has_written = False
        """A part of a document is out."""

    def run(self) -> int:
        """The exit code."""
        options = self._options
        if options.tables:
            if not options.json:
                return self._write_lines(WHOLE, describe_tables(table_rows.TABLES))
            data = {"tables": [table._replace(columns=list(table.columns)) for table in table_rows.TABLES]}
            head = '{"schema": "gdbheapx/1", "command": "query", "data": %s' % encode_json(data)
            return self._write_lines(WHOLE, [head + _make_tail(NOBODY)])
        if not options.sql:
            example = hint_command("query %s", "SELECT count(*) FROM blocks")
            raise UsageError("query: the SQL is missing", "such as: %s; the tables: %s" % (example, hint_command("query --tables")))
        until = engine.compute_deadline(options.max_seconds)
        asked, to_run = engine.bind_statement(options.sql, until)
        if asked.tables and not self._invocation.asked.has_target:
            raise UsageError(
                "query requires a process, a core or a snapshot", "give --pid N, --core FILE or --snapshot FILE", code=problems.NO_TARGET
            )
        code, envelope, request = WHOLE, {}, LookRequest((), -1, None)  # type: Tuple[int, Dict[str, Any], LookRequest]
        _heed_signals()
        if asked.tables:
            code, envelope, said, request = _take_look(asked, self._invocation, self._shell)
            if code not in ANSWERED:
                if options.json:
                    self._write_lines(code, [said.decode("utf-8", "replace").rstrip("\n")])
                return code
        tables = (envelope.get("data") or {}).get("tables") or {}
        with engine.PrivateFolder() as folder:
            path = engine.fill_database(folder, asked, tables, request.rows, request.signed, request.held)
            if asked.tables:
                request.close()
            columns, rows = engine.ask_database(folder, path, to_run, until)
            if options.json:
                return self._show_json(columns, rows, code, envelope)
            shown = output.screen_of(-1 if options.output else 1, os.environ)
            style = TextStyle(bool(options.bytes), False, None if options.wide else shown.width, shown.shortens, shown.wraps)
            notes = list(_list_notes(envelope, style._replace(wraps=style.wraps and not options.csv)))
            if options.csv:
                self._write_lines(code, query_csv_lines(columns, itertools.islice(rows, options.limit)))
                for line in notes:
                    self._shell.fail(line)
                return code
            lines = query_lines(style, columns, rows, options.limit if options.limit is not None else MOST_ROWS)
            return self._write_lines(code, itertools.chain(lines, notes))

    def _show_json(self, columns: Columns, rows: Cells, code: int, envelope: Dict[str, Any]) -> int:
        """The envelope; rows one a line, while they come."""
        envelope = {**NOBODY, **envelope}

        def json_pieces() -> Any:
            nonlocal code
            dumps = json.dumps
            kinds = [{"name": name, "type": kind} for name, (_, kind) in zip(unique_column_names(columns), columns)]
            yield '{"schema": "gdbheapx/1", "command": "query", "data": {"columns": %s, "rows": [' % encode_json(kinds)
            count, record = 0, make_json_record_maker(columns)
            try:
                for row in itertools.islice(rows, self._options.limit):
                    yield (",\n" if count else "\n") + dumps(record(row), allow_nan=False)
                    count += 1
            except CannotWrite:
                raise
            except HeapxError as error:  # the document still ends as it should
                problem = {"code": error.code, "where": None, "what": error.message, "hint": error.hint}
                envelope.update(partial=True, problems=[*envelope["problems"], problem])
                code = PARTIAL
            yield '], "count": %d}%s' % (count, _make_tail(envelope))

        done = self._write_lines(code, json_pieces(), "")
        return done if done == NO_ANSWER else code

    def _write_lines(self, code: int, lines: Any, end: str = "\n") -> int:
        out = open(1, "w", buffering=1 << 16, encoding="utf-8", errors="surrogateescape", newline="", closefd=False)
        sink = Sink(out.write, out.flush, self._options.output)
        is_answered = False
        try:
            for line in lines:
                self.has_written = True
                sink.write(line + end)
            if not end:
                sink.write("\n")
            is_answered = True
        finally:
            sink.close(is_answered)
        return code


def _make_tail(envelope: Dict[str, Any]) -> str:
    return envelope_tail({name: envelope[name] for name in NOBODY}, envelope.get("tool") or tool_member(None))


def _list_notes(envelope: Dict[str, Any], style: TextStyle) -> Sequence[str]:
    """Return the problems of the reading, as every command prints them."""
    problems = envelope.get("problems") or []
    lines = ["", "Partial answer, because:" if envelope.get("partial") else "Notes:"] if problems else []
    for problem in problems:
        where, hint = problem.get("where"), problem.get("hint")
        line = "  %s%s%s" % ("%s: " % where if where else "", problem.get("what"), "; %s" % hint if hint else "")
        lines += text.format_on_screen(style, line).splitlines()
    return lines


def _write_parquet(invocation: Invocation, shell: Shell) -> int:
    """The file: whole or not at all."""
    options = invocation.options
    if options.json:
        raise HeapxError(
            "--json cannot be used with parquet", "`%s` lists all blocks as JSON" % hint_command("chunks --json"), code=problems.USAGE
        )
    if options.of not in (None, "blocks", "census"):
        raise UsageError("parquet has a row for each block, and none for %s" % options.of, "use --of census, or --format pprof")
    if not options.output:
        raise UsageError("a parquet file is not text", "name the file with -o FILE")
    if invocation.asked.snapshot is not None and options.of != "census":
        hint = "use --of census; or ask the process or its core: --pid N or --core FILE"
        raise HeapxError("snapshots contain only used blocks", hint, code=problems.NOT_IN_SNAPSHOT)
    if not invocation.asked.has_target:
        raise UsageError(
            "export requires a process, a core or a snapshot", "give --pid N, --core FILE or --snapshot FILE", code=problems.NO_TARGET
        )
    engine.import_duckdb()
    of_census = options.of == "census"
    file: Optional[OutputFile] = OutputFile(options.output, is_named=True)
    try:
        columns = [(table_rows.BLOCKS, table_rows.SIGNATURE)] if of_census else []
        code, envelope, _, request = _take_look(table_rows.Asked([table_rows.BLOCKS], columns), invocation, shell)
        if code not in ANSWERED or file is None:
            return code
        with engine.PrivateFolder() as folder:
            engine.write_parquet_file(folder, file.beside, of_census, request.rows, request.signed)
        file.take_place()
        file = None
        for line in _list_notes(envelope, TextStyle(False, False)):
            if line:
                shell.fail(line)
        return code
    finally:
        if file is not None:
            file.drop()


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


def make_json_record_maker(columns: Columns) -> Callable[[Sequence[Any]], Dict[str, Any]]:
    """Return the function that makes a JSON record of a row, for many rows."""
    known = [(name, type_ in ADDRESSES) for name, (_, type_) in zip(unique_column_names(columns), columns)]
    return lambda row: {name: json_value(cell, is_address) for (name, is_address), cell in zip(known, row)}


def query_lines(style: TextStyle, columns: Columns, rows: Cells, limit: int) -> Iterator[str]:
    """A table with the first rows, and how many more there are."""
    are_addresses = [type_ in ADDRESSES for _, type_ in columns]
    shown = [list(map(json_value, row, are_addresses)) for _, row in zip(range(limit), rows)]
    more = sum(1 for _ in rows)
    cells = [[_shorten_cell(cell) for cell in row] for row in shown]
    heads = [Column(text.make_printable(clean_name(name)), COUNT if type_.split("(")[0] in NUMBERS else TEXT) for name, type_ in columns]
    yield from text.format_fitted(style, heads, cells)
    if more:
        yield "%s more: --limit N, or all with --csv or --json" % count_noun(more, "row")


def _shorten_cell(cell: Any) -> str:
    shown = "" if cell is None else clean_name(str(cell))
    return shown if len(shown) <= WIDEST else shown[: WIDEST - 3] + "..."


def query_csv_lines(columns: Columns, rows: Cells) -> Iterator[str]:
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
        return lambda cell: cell
    if type_ in ADDRESSES:
        return (
            (lambda cell: cell if cell is None else "0x%x" % cell)
            if type_ == "UBIGINT"
            else lambda cell: _format_any(json_value(cell, True))
        )
    return _format_any


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
