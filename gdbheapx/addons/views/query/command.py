"""`query` and parquet files, in the shell: a child takes the look, DuckDB answers here, outside gdb."""

import json
import os
import signal
from types import FrameType
from typing import Any, Dict, List, NamedTuple, NoReturn, Optional, Sequence

from gdbheapx import output, problems, worker
from gdbheapx.addons.views.query.tables import VARIABLE, Asked
from gdbheapx.budget import NAMES
from gdbheapx.command import TextStyle
from gdbheapx.errors import HeapxError, Interrupted, UsageError
from gdbheapx.hints import hint_command
from gdbheapx.invocation import Invocation, Shell, understand_words
from gdbheapx.output import CannotWrite, OutputFile, Sink
from gdbheapx.runner import NOBODY, envelope_tail, make_internal_error, out_of_memory, tool_member

ANSWERED = (0, 3, 4)
"""Exit codes with an answer."""
WHOLE, NO_ANSWER, PARTIAL = 0, 1, 4


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


class QueryReading(NamedTuple):
    """Data that the child has read."""

    code: int
    envelope: Dict[str, Any]
    text: bytes
    rows: int
    """Descriptors, as in addons/views/query/table_rows.py."""
    signed: Optional[int]
    held: Optional[int]

    @property
    def tables(self) -> Dict[str, List[List[Any]]]:
        """Return the rows by name of the table; empty if there is no answer."""
        return (self.envelope.get("data") or {}).get("tables") or {}


def _take_look(asked: Asked, invocation: Invocation, shell: Shell) -> QueryReading:
    """Read the target once, in a child."""
    from gdbheapx.addons.views.query import table_rows

    options = invocation.options
    rows = worker.open_temporary()
    signed, held = (worker.open_temporary() if is_asked else None for is_asked in (asked.with_signatures, asked.with_owners))
    for descriptor in (rows, signed, held):
        if descriptor is not None:
            os.set_inheritable(descriptor, True)
    words = ["query", "--json"]
    words += ["--max-seconds", str(options.max_seconds)] if options.max_seconds is not None else []
    words += ["--max-stop", str(options.max_stop)] if options.max_stop is not None else []
    words += ["--allocator", options.allocator] if options.allocator is not None else []
    words += ["--traceback"] if options.traceback else []
    words += ["--no-names"] if getattr(options, "no_names", False) else []
    os.environ[VARIABLE] = table_rows.encode_request(table_rows.LookRequest(asked.tables, rows, signed, held, asked.with_paths))
    try:
        code, text = worker.answer_in_child(understand_words(invocation.asked, words), shell.look)
    finally:
        del os.environ[VARIABLE]
    _heed_signals()
    try:
        envelope = json.loads(text.decode("utf-8", "replace")) if code in ANSWERED else {}
    except ValueError as error:
        raise HeapxError("the result is incomplete (%s)" % error, "run it again, or ask a core of the process", code=problems.NO_ANSWER)
    return QueryReading(code, envelope, text, rows, signed, held)


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
        from gdbheapx.addons.views.query import engine, tables, text

        options = self._options
        if options.tables:
            document = {"tables": [table._replace(columns=list(table.columns)) for table in tables.TABLES]}
            return self._write_lines(WHOLE, [self._make_document(document)] if options.json else text.describe_tables(tables.TABLES))
        if not options.sql:
            example = hint_command("query %s", "SELECT count(*) FROM blocks")
            raise UsageError("query: the SQL is missing", "such as: %s; the tables: %s" % (example, hint_command("query --tables")))
        until = engine.compute_deadline(options.max_seconds)
        needed = engine.bind_statement(options.sql, until)
        if needed.asked.tables and not self._invocation.asked.has_target:
            raise UsageError(
                "query requires a process, a core or a snapshot", "give --pid N, --core FILE or --snapshot FILE", code=problems.NO_TARGET
            )
        look = QueryReading(WHOLE, {}, b"", -1, None, None)
        _heed_signals()
        if needed.asked.tables:
            look = _take_look(needed.asked, self._invocation, self._shell)
            if look.code not in ANSWERED:
                if options.json:
                    self._write_lines(look.code, [look.text.decode("utf-8", "replace").rstrip("\n")])
                return look.code
        with engine.PrivateFolder() as folder:
            path = engine.fill_database(folder, needed.asked, look.tables, look.rows, look.signed, look.held)
            for descriptor in (look.rows, look.signed, look.held):
                if descriptor is not None and descriptor >= 0:
                    os.close(descriptor)
            result = engine.Asking(folder, path, until).ask(needed.sql)
            return self._show_result(result, look)

    def _show_result(self, result: Any, look: QueryReading) -> int:
        from gdbheapx.addons.views.query import text

        options, columns, rows, style = self._options, result.columns, result.rows, self._make_style()
        if options.json:
            return self._show_json(result, look)
        notes = list(_list_notes(look.envelope, style._replace(wraps=style.wraps and not options.csv)))
        if options.csv:
            shown = text.query_csv_lines(columns, _limit_rows(rows, options.limit))
        else:
            shown = text.query_lines(style, columns, rows, options.limit if options.limit is not None else text.MOST_ROWS)
        if options.csv:
            code = self._write_lines(look.code, shown)
            for line in notes:
                self._shell.fail(line)
            return code
        return self._write_lines(look.code, _chain_lines(shown, notes))

    def _make_style(self) -> TextStyle:
        shown = output.screen_of(-1 if self._options.output else 1, os.environ)
        return TextStyle(bool(self._options.bytes), False, None if self._options.wide else shown.width, shown.shortens, shown.wraps)

    def _show_json(self, result: Any, look: QueryReading) -> int:
        """The envelope; rows one a line, while they come."""
        from gdbheapx.addons.views.query import text
        from gdbheapx.report.encodings import encode_json

        envelope, code = {**NOBODY, **look.envelope}, look.code

        def json_pieces() -> Any:
            nonlocal code
            dumps = json.dumps
            kinds = [{"name": name, "type": kind} for name, (_, kind) in zip(text.unique_column_names(result.columns), result.columns)]
            yield '{"schema": "gdbheapx/1", "command": "query", "data": {"columns": %s, "rows": [' % encode_json(kinds)
            count, record = 0, text.make_json_record_maker(result.columns)
            try:
                for row in _limit_rows(result.rows, self._options.limit):
                    yield (",\n" if count else "\n") + dumps(record(row), allow_nan=False)
                    count += 1
            except CannotWrite:
                raise
            except HeapxError as error:  # the document still ends as it should
                problem = {"code": error.code, "where": None, "what": error.message, "hint": error.hint}
                envelope.update(partial=True, problems=[*envelope["problems"], problem])
                code = PARTIAL
            yield '], "count": %d}%s' % (count, self._make_tail(envelope))

        done = self._write_lines(code, json_pieces(), "")
        return done if done == NO_ANSWER else code

    def _make_document(self, data: Any) -> str:
        from gdbheapx.report.encodings import encode_json

        return '{"schema": "gdbheapx/1", "command": "query", "data": %s%s' % (encode_json(data), self._make_tail(NOBODY))

    def _make_tail(self, envelope: Dict[str, Any]) -> str:
        return envelope_tail({name: envelope[name] for name in NOBODY}, envelope.get("tool") or tool_member(None))

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


def _limit_rows(rows: Any, limit: Optional[int]) -> Any:
    return rows if limit is None else (row for _, row in zip(range(limit), rows))


def _chain_lines(first: Any, then: Sequence[str]) -> Any:
    yield from first
    yield from then


def _list_notes(envelope: Dict[str, Any], style: TextStyle) -> Sequence[str]:
    """Return the problems of the reading, as every command prints them."""
    from gdbheapx.report.text import format_on_screen

    problems = envelope.get("problems") or []
    lines = ["", "Partial answer, because:" if envelope.get("partial") else "Notes:"] if problems else []
    for problem in problems:
        where, hint = problem.get("where"), problem.get("hint")
        line = "  %s%s%s" % ("%s: " % where if where else "", problem.get("what"), "; %s" % hint if hint else "")
        lines += format_on_screen(style, line).splitlines()
    return lines


def _write_parquet(invocation: Invocation, shell: Shell) -> int:
    """The file: whole or not at all."""
    from gdbheapx.addons.views.query import engine, tables

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
        columns = [(tables.BLOCKS, tables.SIGNATURE)] if of_census else []
        look = _take_look(tables.Asked([tables.BLOCKS], columns), invocation, shell)
        if look.code not in ANSWERED or file is None:
            return look.code
        with engine.PrivateFolder() as folder:
            engine.write_parquet_file(folder, file.beside, of_census, look.rows, look.signed)
        file.take_place()
        file = None
        for line in _list_notes(look.envelope, TextStyle(False, False)):
            if line:
                shell.fail(line)
        return look.code
    finally:
        if file is not None:
            file.drop()
