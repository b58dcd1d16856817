"""DuckDB: what SQL needs, known before a process is stopped for it; the tables filled; the answer. Nothing here runs inside gdb.

SQL is a stranger's: one SELECT on a database that is read only, without access to files, extensions, Python's variables or settings.
"""

import os
import re
import shutil
import tempfile
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.addons.views.query import table_rows
from gdbheapx.addons.views.query.csv_rows import COLUMNS
from gdbheapx.addons.views.query.csv_rows import SIGNATURE as SIGNED
from gdbheapx.common.errors import HeapxError, UsageError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.problems import CANNOT_WRITE, CUT, MISSING_PACKAGE, QUERY_FAILED

MEMORY, DISK, THREADS = "512MB", "1GB", 4
"""What DuckDB may take; beyond MEMORY it writes up to DISK to the private folder. Each thread has buffers of its own."""
MOST_SQL_BYTES = (1 << 17) - 1
"""Of a statement, as of a word on a command line (MAX_ARG_STRLEN): DuckDB's parser takes 500 bytes of memory for one of SQL."""
LEAST_S = 0.5
"""SQL gets so long at least where --max-seconds has passed during the look: the rows of a partial look are shown."""
BUFFER_BYTES = 8 << 20
"""Of rows of blocks that are read at once."""
WITH_SIGNATURE = (*COLUMNS, SIGNED)
"""Columns of rows of blocks in use."""
AT_ONCE = 10_000
ROWS_AT_ONCE = 50_000
PLAIN = re.compile(r"(BOOLEAN|U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL\([0-9,]+\)|VARCHAR)(\[\])*|\"NULL\"")
"""Types that are handed on as they are. Others are text: some need a module more to become Python's."""
CLOSED = {"python_enable_replacements": False, "autoinstall_known_extensions": False, "autoload_known_extensions": False}
"""From the start; these are the rest, once the tables are there."""
LOCKED = {"enable_external_access": False, "lock_configuration": True}
MORE = "`%s` lists tables and columns" % hint_command("query --tables")
INSTALL = "pip install 'gdbheapx[query]', or duckdb"


def import_duckdb() -> Any:
    """DuckDB. HeapxError where it is not installed, or too old."""
    try:
        import duckdb
    except Exception as error:  # absent, or made for another Python
        raise HeapxError(
            "query and parquet require DuckDB, which cannot be imported (%s)" % " ".join(str(error).split()), INSTALL, code=MISSING_PACKAGE
        )
    return duckdb


def one_line(error: BaseException) -> str:
    """DuckDB's message without its picture of the statement."""
    return " ".join(str(error).split("\n\nLINE ")[0].split("\n\nPossible solutions")[0].split())


def _create_table(connection: Any, table: table_rows.QueryTable, without: Sequence[str] = ()) -> None:
    columns = ", ".join('"%s" %s' % (column.name, column.type) for column in table.columns if column.name not in without)
    connection.execute('CREATE OR REPLACE TABLE "%s" (%s)' % (table.name, columns))


def compute_deadline(max_seconds: Optional[float]) -> Optional[float]:
    """Return the time.monotonic() at which --max-seconds that begin now are over; None without a limit."""
    return None if max_seconds is None else time.monotonic() + max_seconds


def bind_statement(sql: str, until: Optional[float] = None) -> Tuple[table_rows.Asked, str]:
    """Return the tables and columns that the statement names, by DuckDB's own binder on tables without rows, and the SQL to run: what was
    given, with types that are not PLAIN as text. UsageError for anything but a SELECT, or if the statement is wrong; HeapxError where the
    binder has not ended by `until`, which a statement of nested WITHs can achieve.
    """
    duckdb = import_duckdb()
    if len(sql.encode("utf-8", "surrogatepass")) > MOST_SQL_BYTES:
        raise UsageError("query: the SQL has more than %d bytes" % MOST_SQL_BYTES, "ask a shorter SELECT: a range in place of a list")
    if not sql.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in sql):
        raise UsageError("query: the SQL is no UTF-8", "write the bytes as chr(N), or compare with what `%s` shows" % hint_command("query"))
    connection = duckdb.connect(":memory:", config={**CLOSED})
    return run_interruptibly(connection, lambda: _bind_in_connection(duckdb, connection, sql), until)  # type: ignore[no-any-return]


def _bind_in_connection(duckdb: Any, connection: Any, sql: str) -> Tuple[table_rows.Asked, str]:
    for table in table_rows.TABLES:
        _create_table(connection, table)
    for name, value in LOCKED.items():
        connection.execute("SET %s = %s" % (name, str(value).lower()))
    try:
        statements = connection.extract_statements(sql)
        if len(statements) != 1:
            raise UsageError("query: this is %d statements, and one is answered" % len(statements), "ask one SELECT")
        kind = statements[0].type.name
        if kind != "SELECT":
            what = "PIVOT without the list of values (ON column IN (...))" if kind == "MULTI" else kind
            raise UsageError("query: only SELECT is answered, not %s: nothing is written or set" % what, MORE)
        connection.sql(sql)
        tables = [table.name for table in table_rows.TABLES if not _binds_after(duckdb, connection, sql, 'DROP TABLE "%s"' % table.name)]
        costly = [(name, column) for name in tables for column in table_rows.COSTLY.get(name, ())]
        columns = [pair for pair in costly if not _binds_after(duckdb, connection, sql, 'ALTER TABLE "%s" DROP COLUMN "%s"' % pair)]
        asked = table_rows.Asked(tables, columns)
        for name in table_rows.COSTLY:
            _create_table(connection, table_rows.BY_NAME[name], asked.missing(name))
        to_run = _cast_to_plain(connection, sql)
    except duckdb.Error as error:
        raise UsageError("query: %s" % one_line(error), MORE, code=QUERY_FAILED)
    connection.close()
    return asked, to_run


def _cast_to_plain(connection: Any, sql: str) -> str:
    """The statement with plain types alone."""
    relation = connection.sql(sql)
    kinds = [str(kind) for kind in relation.types] if relation is not None else []
    if all(PLAIN.fullmatch(kind) for kind in kinds):
        return sql
    names = [name.replace('"', '""') for name in relation.columns]
    forms = ["" if PLAIN.fullmatch(kind) else "::VARCHAR" for kind in kinds]
    cells = ('#%d%s AS "%s"' % (place, form, name) for place, (name, form) in enumerate(zip(names, forms), 1))
    wrapped = "SELECT %s FROM (%s\n)" % (", ".join(cells), sql.strip().rstrip(";"))
    connection.sql(wrapped)
    return wrapped


def _binds_after(duckdb: Any, connection: Any, sql: str, change: str) -> bool:
    """The statement is still understood after this change, which is taken back."""
    connection.execute("BEGIN")
    try:
        connection.execute(change)
        connection.sql(sql)
        return True
    except duckdb.Error:
        return False
    finally:
        connection.execute("ROLLBACK")


class PrivateFolder:
    """A private folder for as long as the block lasts, mode 0700."""

    def __enter__(self) -> str:
        try:
            self.path = tempfile.mkdtemp(prefix="gdbheapx-")
        except OSError as error:
            raise HeapxError("cannot make a temporary folder: %s" % error.strerror, "set TMPDIR to another folder", code=CANNOT_WRITE)
        return self.path

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def _make_config(folder: str) -> Dict[str, Any]:
    room = {"temp_directory": os.path.join(folder, "spill"), "max_temp_directory_size": DISK, "memory_limit": MEMORY}
    return {**CLOSED, **room, "threads": min(THREADS, os.cpu_count() or 1)}


def rows_of(descriptor: int, names: Sequence[str]) -> str:
    """SQL for the rows of blocks in a file that perhaps has no name."""
    kinds = {column.name: column.type for column in table_rows.BY_NAME[table_rows.BLOCKS].columns}
    types = [(name, kinds.get(name, table_rows.TEXT)) for name in names]
    read = ", ".join("'%s': '%s'" % (name, "VARCHAR" if kind == table_rows.ADDRESS else kind) for name, kind in types)
    shown = ", ".join('"%s"::%s AS "%s"' % (name, kind, name) for name, kind in types)
    how = "header = false, auto_detect = false, delim = ',', quote = '\"', escape = '\"', new_line = '\\n', buffer_size = %d" % BUFFER_BYTES
    return "SELECT %s FROM read_csv('/proc/self/fd/%d', %s, columns = {%s})" % (shown, descriptor, how, read)


OWNER_SQL = "CASE WHEN class = 'used' AND held.usable_bytes IS NULL THEN '%s' ELSE held.owner END AS owner" % table_rows.NOT_COUNTED


def make_blocks_sql(asked: table_rows.Asked, rows: int, signed: Optional[int]) -> str:
    """SQL for all blocks, those in use with what is asked for: their signature, and what held_blocks has by then."""
    sql = rows_of(rows, COLUMNS)
    if signed is not None and asked.with_signatures:
        sql = "%s UNION ALL BY NAME SELECT *, NULL AS %s FROM (%s) WHERE class <> 'used'" % (
            rows_of(signed, WITH_SIGNATURE),
            table_rows.SIGNATURE,
            sql,
        )
    further = [column for table, column in asked.columns if table == table_rows.BLOCKS and column != table_rows.SIGNATURE]
    if further:
        names = "".join(", %s" % (OWNER_SQL if column == table_rows.OWNER else "held.%s" % column) for column in further)
        sql = "SELECT row.*%s FROM (%s) AS row LEFT JOIN %s AS held USING (address)" % (names, sql, table_rows.HELD_BLOCKS)
    return sql


def fill_database(
    folder: str, asked: table_rows.Asked, tables: Dict[str, List[List[Any]]], rows: int, signed: Optional[int], held: Optional[int] = None
) -> str:
    """The database: its path."""
    path = os.path.join(folder, "look.duckdb")
    duckdb = import_duckdb()
    files = {}
    if held is not None:
        files[table_rows.HELD_BLOCKS] = rows_of(held, [column.name for column in table_rows.BY_NAME[table_rows.HELD_BLOCKS].columns])
    if table_rows.BLOCKS in asked.tables:
        files[table_rows.BLOCKS] = make_blocks_sql(asked, rows, signed)

    def fill_tables() -> None:
        connection = duckdb.connect(path, config=_make_config(folder))
        for name, sql in files.items():
            connection.execute("CREATE TABLE %s AS %s" % (name, sql))
        if table_rows.HELD_BLOCKS in files and not asked.with_paths:
            connection.execute("ALTER TABLE %s DROP COLUMN %s" % (table_rows.HELD_BLOCKS, table_rows.PATH))
        for table in table_rows.TABLES:
            if table.name in files:
                continue
            _create_table(connection, table, asked.missing(table.name))
            rows_ = tables.get(table.name, [])
            marks = ", ".join("unnest(?::%s[])" % column.type for column in table.columns)
            for place in range(0, len(rows_), ROWS_AT_ONCE):
                some = rows_[place : place + ROWS_AT_ONCE]
                connection.execute('INSERT INTO "%s" SELECT %s' % (table.name, marks), [list(column) for column in zip(*some)])
        connection.close()

    try:
        run_interruptibly(None, fill_tables)
    except duckdb.Error as error:
        raise HeapxError("cannot store the rows: %s" % one_line(error), "set TMPDIR to another folder", code=CANNOT_WRITE)
    return path


def ask_database(
    folder: str, path: str, sql: str, until: Optional[float] = None
) -> Tuple[Sequence[Tuple[str, str]], Iterator[Tuple[Any, ...]]]:
    """Return (name, type) of the columns, and the rows as they are asked for, of the filled tables, which nothing can change. HeapxError
    with DuckDB's message. `until`: when what is asked ends, unless it has just begun."""
    duckdb = import_duckdb()
    ends = None if until is None else max(until, time.monotonic() + LEAST_S)
    connection = duckdb.connect(path, read_only=True, config={**_make_config(folder), **LOCKED})

    def wait_for(work: Callable[[], Any]) -> Any:
        try:
            return run_interruptibly(connection, work, ends)
        except duckdb.Error as error:
            raise HeapxError("query: %s" % one_line(error), MORE, code=QUERY_FAILED)

    def each_row() -> Iterator[Tuple[Any, ...]]:
        while True:
            rows = wait_for(lambda: done.fetchmany(AT_ONCE))
            if not rows:
                return
            yield from rows

    done = wait_for(lambda: connection.execute(sql))
    return [(str(column[0]), str(column[1])) for column in done.description or ()], each_row()


def run_interruptibly(connection: Any, work: Callable[[], Any], until: Optional[float] = None) -> Any:
    """Return the result of work in another thread: this one receives Ctrl-C meanwhile, and interrupts the work. HeapxError where it has
    not ended by `until`; a binder that does not heed the interruption is abandoned.
    """
    results: List[Any] = []
    failed: List[BaseException] = []

    def call_and_store() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=call_and_store, daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            if until is not None and time.monotonic() > until:
                raise HeapxError("the SQL was not answered within --max-seconds", "ask for less, or raise --max-seconds", code=CUT)
            thread.join(0.05)
    except (KeyboardInterrupt, HeapxError):
        if connection is not None:
            connection.interrupt()
        thread.join(1.0)
        raise
    if failed:
        raise failed[0]
    return results[0]


def write_parquet_file(folder: str, path: str, of_census: bool, rows: int, signed: Optional[int]) -> None:
    """Write blocks to this path, which is there already: its mode stays."""
    duckdb = import_duckdb()
    connection = duckdb.connect(":memory:", config=_make_config(folder))
    source = rows_of(signed, WITH_SIGNATURE) if of_census and signed is not None else rows_of(rows, COLUMNS)
    how = "FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false"
    try:
        run_interruptibly(connection, lambda: connection.execute("COPY (%s) TO '%s' (%s)" % (source, path.replace("'", "''"), how)))
    except duckdb.Error as error:
        raise HeapxError("cannot write the file: %s" % one_line(error), "choose another with -o", code=CANNOT_WRITE)
    finally:
        connection.close()
