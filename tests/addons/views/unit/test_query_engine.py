"""SQL of a stranger: what it names is known before the look, and it neither reads nor writes anything else."""

import json
import os
import stat
import subprocess
import sys
from array import array
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from gdbheapx.addons.views.query import engine
from gdbheapx.addons.views.query.csv_rows import COLUMNS
from gdbheapx.addons.views.query.table_rows import NOT_COUNTED, Asked
from gdbheapx.command import TextStyle
from gdbheapx.common.errors import HeapxError, UsageError
from tests.support.paths import ROOT

pytest.importorskip("duckdb", reason="duckdb is not installed")


@pytest.mark.parametrize(
    ("sql", "tables", "columns"),
    [
        ("select 1", [], ""),
        ("select count(*) from blocks", ["blocks"], ""),
        ("select * from blocks", ["blocks"], ""),
        ("select signature, count(*) from blocks group by all", ["blocks"], "blocks.signature"),
        ("with arenas as (select 1 as x) select * from arenas", [], ""),
        ("select 'blocks from arenas' as leaks", [], ""),
        ("from query('select signature from bl' || 'ocks')", ["blocks"], "blocks.signature"),
        ("from OWNERS o join Leaks l on o.address = l.sample", ["leaks", "owners"], ""),
        ("select (select max(bytes) from classes), (select count(*) from threads)", ["classes", "threads"], ""),
        ("pivot mappings on kind in ('stack', 'bss') using sum(bytes)", ["mappings"], ""),
        ("summarize arenas", ["arenas"], ""),
        ("select count(*) from blocks where path like 'a%'", ["blocks"], "blocks.path"),
        ("select owner, sum(size_bytes) from blocks group by all", ["blocks"], "blocks.owner"),
        ("select owner, signature from held_blocks", ["held_blocks"], ""),
        ("select c.owner, count(*) from blocks b join containers c on b.container = c.id group by 1", ["blocks", "containers"], "blocks.container"),
        ("select b.*, h.path from blocks b join held_blocks h using (address)", ["blocks", "held_blocks"], "held_blocks.path"),
        ("select owner from held", ["held"], ""),
    ],
)
def test_what_a_statement_names(sql: str, tables: List[str], columns: str) -> None:
    """By DuckDB's binder: neither names in strings nor those that the statement makes itself count."""
    asked = engine.bind_statement(sql)[0]
    assert (sorted(asked.tables), " ".join(map(".".join, asked.columns))) == (tables, columns)
    assert asked.with_owners == ("held_blocks" in tables or any(word in columns for word in ("owner", "container", "path")))
    assert asked.with_paths == ("path" in columns)


REFUSED = (
    "copy blocks to '%s'",
    "copy (select 1) to '%s' (format csv)",
    "attach '%s'",
    "install httpfs",
    "load httpfs",
    "set enable_external_access = true",
    "reset all",
    "create table x (i int)",
    "create temp table x (i int)",
    "insert into blocks(address) values (1)",
    "update arenas set kind = 'x'",
    "delete from owners",
    "drop table blocks",
    "export database '%s'",
    "call pragma_version()",
    "explain select 1",
    "prepare v as select 1",
    "select * from read_csv('/etc/passwd')",
    "select * from read_text('/etc/passwd')",
    "select * from '/etc/passwd'",
    "select * from glob('/etc/*')",
    "explain analyze copy blocks to '%s'",
    "select * from found",
    "select 1; copy blocks to '%s'",
    "pivot blocks on class using count(*)",
    "selec 1",
    "",
    "select $1",
    "select nothing from blocks",
    "select getenv('HOME')",
)


@pytest.mark.parametrize("sql", REFUSED)
def test_anything_else_is_refused(sql: str, tmp_path: Path) -> None:
    """Before a look, in one line; no file appears."""
    found = [1]  # a variable of Python's is no table
    with pytest.raises(UsageError) as raised:
        engine.bind_statement(sql.replace("%s", str(tmp_path / "made")))
    assert "\n" not in raised.value.line() and "Traceback" not in raised.value.line() and found
    assert not list(tmp_path.iterdir())


def asking(folder: Path, tables: Dict[str, Any], rows: bytes = b"") -> Callable[[str], Any]:
    """The tables with these rows."""
    file = os.memfd_create("rows")
    os.write(file, rows)
    asked = Asked([*tables, *(["blocks"] if rows else [])])
    return partial(engine.ask_database, str(folder), engine.fill_database(str(folder), asked, tables, file, None))


@pytest.mark.parametrize("sql", [one for one in REFUSED if one not in ("select $1", "") and not one.startswith("pivot") and "found" not in one])
def test_the_filled_tables_refuse_it_too(sql: str, tmp_path: Path) -> None:
    """Also what would come past the first test: the database itself is read only and locked."""
    asked = asking(tmp_path, {})
    before = sorted(tmp_path.iterdir())
    if sql.startswith(("create temp", "call", "prepare", "explain select")):
        return  # which do nothing outside this connection
    with pytest.raises(HeapxError) as raised:
        asked(sql.replace("%s", str(tmp_path / "made")))
    assert "\n" not in raised.value.line() and sorted(tmp_path.iterdir()) == before


def test_rows_come_back(tmp_path: Path) -> None:
    """Blocks as the kernel writes them, hostile names as they are, unknown as NULL."""
    header = list(COLUMNS)
    assert header == ["address", "size_bytes", "usable_bytes", "class", "status", "arena", "allocator"]
    text = b'0x7f0000000010,32,24,used,used,0,glibc\n0xffffffffff600000,64,,free,"a ""b"", c",,glibc#2\n'
    classes = [["=cmd", "", "shape", None, 3, 72, 0.5, 1 << 63, None, 70], [None, "mod", "", 24, 1, 24, None, None, "x", None]]
    asked = asking(tmp_path, {"classes": classes}, text)
    assert list(asked("select * from blocks order by address")[1]) == [
        (0x7F0000000010, 32, 24, "used", "used", 0, "glibc"),
        (0xFFFFFFFFFF600000, 64, None, "free", 'a "b", c', None, "glibc#2"),
    ]
    assert [list(row) for row in asked("select * from classes")[1]] == classes
    assert list(asked("select size_bytes from blocks where address = '0x7f0000000010'")[1]) == [(32,)]
    columns, _ = asked("select address, count(*), sum(size_bytes) from blocks group by all")
    assert [kind for _, kind in columns] == ["UBIGINT", "BIGINT", "HUGEINT"]


def test_blocks_get_their_owners(tmp_path: Path) -> None:
    """By address; a block that is not in use has none, and one in use that owners do not count says so. Types that are shown as text
    count no column that is not there."""
    files = os.memfd_create("rows"), os.memfd_create("held")
    os.write(files[0], b"0x10,32,24,used,used,0,glibc\n0x40,32,24,used,used,0,glibc\n0x80,64,,free,free,,glibc\n0xc0,32,24,used,used,0,glibc\n")
    os.write(files[1], b'0x10,24,,"a ""b"", c",7,=x\n0x40,24,str,,,\n')
    sql = "select address, owner, path, container, interval 1 day from blocks order by address"
    wanted, to_run = engine.bind_statement(sql)
    asked = partial(engine.ask_database, str(tmp_path), engine.fill_database(str(tmp_path), wanted, {}, files[0], None, files[1]))
    found = [row[:4] for row in asked(to_run)[1]]
    assert found == [(0x10, 'a "b", c', "=x", 7), (0x40, None, None, None), (0x80, None, None, None), (0xC0, NOT_COUNTED, None, None)]
    assert list(asked("select * from held_blocks order by address")[1])[1] == (0x40, 24, "str", None, None, None)
    assert len(list(asked(engine.bind_statement("select *, interval 1 day from arenas")[1])[1])) == 0


def test_every_type_can_be_shown(tmp_path: Path) -> None:
    """Also times of a zone, for which DuckDB wants a module that is not there."""
    from gdbheapx.addons.views.query import command as text

    asked = asking(tmp_path, {})
    _, to_run = engine.bind_statement("select *, now() as \"a\"\"b\" from test_all_types() -- all;")
    assert "AS \"timestamp_tz\"" in to_run and engine.bind_statement("select 1")[1] == "select 1"
    for show in (text.query_csv_lines, lambda columns, rows: text.query_lines(TextStyle(False, False), columns, rows, 5)):
        assert len(list(show(*asked(to_run)))) >= 2
    columns, rows = asked(to_run)
    for row in rows:
        json.dumps(text.make_json_record_maker(columns)(row), allow_nan=False)


def test_errors_of_rows_have_one_line(tmp_path: Path) -> None:
    """DuckDB's message without its picture of the statement, and the next step."""
    asked = asking(tmp_path, {"threads": [["a", 1, "worker", None, None, 1, 1, None]]})
    with pytest.raises(HeapxError, match="^query: Conversion Error: Could not convert string 'worker' to INT32") as raised:
        asked("select name::int from threads")
    assert "--tables" in raised.value.line()


NESTED = "WITH c0 AS (SELECT 1 AS x)%s SELECT count(*) FROM c40" % "".join(
    ", c%d AS NOT MATERIALIZED (SELECT a.x FROM c%d a, c%d b)" % (number, number - 1, number - 1) for number in range(1, 41)
)
"""Each level doubles what the binder has to do, which heeds no interruption."""
ENDLESS = "SELECT count(*) FROM range(1000000000000) t(i) WHERE hash(i) = 1"


@pytest.mark.parametrize("sql, step", [(NESTED, "needed"), (ENDLESS, "ask"), ("SELECT * FROM range(1000000000000)", "rows")])
def test_sql_ends_at_its_time(sql: str, step: str, tmp_path: Path) -> None:
    """Wherever it is: in the binder, before the first row, and between rows; in a process of its own, as a thread of DuckDB's may be left."""
    program = """if True:
        import os, sys, time
        from gdbheapx.common.errors import HeapxError
        from gdbheapx.addons.views.query import engine
        from gdbheapx.addons.views.query.table_rows import Asked
        sql, step, folder = sys.argv[1:]
        try:
            if step == "needed":
                engine.bind_statement(sql, time.monotonic() + 1)
            path = engine.fill_database(folder, Asked([]), {}, -1, None)
            _, rows = engine.ask_database(folder, path, sql, time.monotonic() + 1)
            if step == "rows":
                sum(1 for _ in rows)
        except HeapxError as error:
            print(error.code, flush=True)
        os._exit(0)
    """
    words, environment = [sys.executable, "-c", program, sql, step, str(tmp_path)], {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=environment)
    assert done.stdout == "stopped-early\n", done.stderr


def test_sql_has_little_room(tmp_path: Path) -> None:
    """On the disk 1 GB; a statement no more bytes than a word of a command line."""
    _, rows = asking(tmp_path, {})("SELECT current_setting('max_temp_directory_size'), current_setting('memory_limit')")
    assert [size.split()[1] for size in next(rows)] == ["MiB", "MiB"]
    longest = "SELECT '%s'" % ("x" * (engine.MOST_SQL_BYTES - len("SELECT ''")))
    assert engine.bind_statement(longest)[1] == longest
    for sql in (longest + " ", "SELECT '%s'" % ("\u20ac" * (engine.MOST_SQL_BYTES // 3))):
        with pytest.raises(UsageError, match="more than 131071 bytes"):
            engine.bind_statement(sql)


def test_without_duckdb(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what to install; SQL that is no UTF-8 is refused, too."""
    with pytest.raises(UsageError, match="no UTF-8"):
        engine.bind_statement("select '\udcff'")
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(HeapxError, match="require DuckDB") as raised:
        engine.bind_statement("select 1")
    assert "gdbheapx[query]" in raised.value.line() and "\n" not in raised.value.line()


def test_the_folder_is_private_and_goes() -> None:
    """Mode 0700 while it is there; gone after an error, too."""
    with pytest.raises(KeyboardInterrupt), engine.PrivateFolder() as path:
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
        Path(path, "inside").write_text("x")
        raise KeyboardInterrupt
    assert not os.path.exists(path)


def test_memory_is_bounded(tmp_path: Path) -> None:
    """A sort of more than fits is done on disk, in the private folder, although SQL may open no file."""
    addresses = array("Q", range(1 << 20, (1 << 20) + 1_000_000))
    lines = "".join("0x%x,48,40,used,used,0,%s\n" % (one, "x" * 60) for one in addresses)
    engine_memory, engine.MEMORY = engine.MEMORY, "80MB"
    try:
        asked = asking(tmp_path, {}, lines.encode())
        _, rows = asked("select max(n) from (select row_number() over (order by hash(address)) as n, address || allocator as text from blocks) where text <> ''")
        found = next(rows)
    finally:
        engine.MEMORY = engine_memory
    assert found == (1_000_000,) and (tmp_path / "spill").is_dir()
