"""`query` and parquet files: the tables are what the commands say, SQL touches nothing else, and nothing private stays.

Files: addons/views/query/command.py, app/worker.py.
"""

import csv
import io
import json
import os
import re
import signal
import stat
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from tests.support import hostile
from tests.support.jemallocs import contents
from tests.support.processes import Lasting, Stage, by_turns
from tests.support.tool import Outcome, heapx, tool_command
from tests.support.unchanged import unchanged

pytestmark = pytest.mark.image  # what its Python and DuckDB make of it
pytest.importorskip("duckdb", reason="duckdb is not installed")


def rows(target: Sequence[str], sql: str) -> List[List[Any]]:
    """Of a whole answer."""
    return [list(one.values()) for one in heapx(target, "query", sql, "--json").data["rows"]]


@by_turns("way", ["glibc", "jemalloc"])
def test_tables_are_what_the_commands_say(lasting: Lasting, kind: str, way: str) -> None:
    """Each table has the sums of its command, and all of them come from one stop."""
    target = lasting.of(kind, contents, way).target(kind)
    listed = heapx(target, "chunks", "--json").data["chunks"]
    census = heapx(target, "census", "--json").data
    arenas = heapx(target, "arenas", "--json").data["arenas"]
    caches = heapx(target, "tcache", "--json").data["threads"]
    owners = heapx(target, "owners", "--depth", "3", "--limit", "40", "--json").data["owners"]
    leaks = heapx(target, "leaks", "--json").data["groups"]
    memory = heapx(target, "report", "--json").data["memory"]["total_bytes"]
    sql = """select (select count(*) from blocks), (select sum(size_bytes) from blocks), (select sum(bytes) from classes),
        (select sum(used_bytes) from arenas), (select sum(bytes) from threads), (select count(*) from threads),
        (select sum(retained_bytes) from owners where level = 1), (select max(level) <= 3 from owners),
        (select coalesce(sum(bytes), 0) from leaks), (select sum(resident_bytes) from mappings)"""
    outcome = heapx(target, "query", sql, "--json")
    found = list(outcome.data["rows"][0].values())
    assert found[:9] == [
        *(len(listed), sum(one["size_bytes"] for one in listed), census["used"]["bytes"]),
        *(sum(one["used_bytes"] or 0 for one in arenas), sum(one["bytes"] or 0 for one in caches), len(caches)),
        *(sum(one["retained_bytes"] for one in owners), True, sum(one["bytes"] for one in leaks)),
    ]
    assert abs(found[9] - memory) <= (0 if kind == "core" else 1 << 20)
    assert outcome.envelope["target"]["stops"] in ((None,) if kind == "core" else range(1, 10))


@by_turns("way", ["glibc", "jemalloc"], "core")
def test_signatures_of_blocks_are_the_census(lasting: Lasting, kind: str, way: str) -> None:
    """Joined by signature: the same blocks and bytes as `census` has. Blocks not in use have none, and no row is lost for it."""
    target = lasting.of(kind, contents, way).target(kind)
    named: Dict[str, int] = Counter()
    for one in heapx(target, "census", "--json").data["rows"]:
        if one["signature"]:
            named[one["signature"]] += one["bytes"]
    found = rows(target, "select signature, sum(usable_bytes) from blocks where signature is not null group by all")
    assert dict(found) == named and len(named) >= 5
    counts = rows(target, "select count(*), count(*) filter (class <> 'used' and signature is not null), count(distinct address) from blocks")
    assert counts == [[counts[0][0], 0, counts[0][0]]] and [counts[0][0]] == rows(target, "select count(*) from blocks")[0]


SAME = {
    "arenas": ("allocator, index, used_bytes", "arenas"),
    "classes": ("signature, module, blocks, bytes", "classes"),
    "threads": ("lwp, chunks, bytes", "threads"),
    "leaks": ("kind, blocks, bytes, behind_bytes", "leaks"),
    "owners": ("row, level, parent, kind, retained_bytes", "owners"),
    "blocks": ("signature, count(*), sum(usable_bytes), min(usable_bytes)", "blocks where class = 'used' group by signature"),
}
"""Columns of tables that a snapshot has as its target."""


def test_a_snapshot_answers_what_it_has(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Arenas, classes, threads, leaks and owners as from the core; of blocks those in use; mappings are refused in one line."""
    target, file = lasting.of(core, contents, "glibc").target(core), str(tmp_path / "one.snap")
    assert heapx(target, "snapshot", file).code == 0
    sql = " union all ".join("select '%s' as name, cast(row(%s) as varchar) as text from %s" % (name, *alike) for name, alike in SAME.items())
    assert rows(["--snapshot", file], sql + " order by all") == rows(target, sql + " order by all")
    assert rows(["--snapshot", file], "select count(size_bytes), count(status), count(arena), count(allocator) from blocks") == [[0, 0, 0, 0]]
    refused(heapx(["--snapshot", file], "query", "select * from mappings"), 1)
    made = []
    for one in (target, ["--snapshot", file]):
        path = tmp_path / "made.parquet"
        assert heapx(one, "export", "--format", "parquet", "--of", "census", "-o", str(path)).code == 0
        made.append(sorted(zip(*(map(str, parquet(path)[name]) for name in ("signature", "usable_bytes")))))
    assert made[0] == made[1] and made[0]
    refused(heapx(["--snapshot", file], "export", "--format", "parquet", "-o", str(path)), 1)


def refused(outcome: Outcome, code: int) -> None:
    """One line, and nothing else."""
    assert outcome.code == code and not outcome.stdout, outcome
    assert len(outcome.stderr.strip().splitlines()) == 1 and "Traceback" not in outcome.stderr, outcome.stderr


@pytest.mark.once
@pytest.mark.parametrize(
    "sql",
    [
        "select * from read_csv('/etc/passwd')",
        "select content from read_text('/etc/passwd'), blocks",
        "copy blocks to '%s'",
        "attach '%s'",
        "install httpfs",
        "set enable_external_access = true",
        "create table mine as select * from blocks",
        "select nothing from blocks",
        "select",
    ],
)
def test_sql_touches_nothing_else(lasting: Lasting, core: str, tmp_path: Path, sql: str) -> None:
    """Refused in one line before the target is read; no file appears, neither where it was to be nor beside temporary ones."""
    target = [*lasting.of(core, contents, "glibc").target(core)]
    private = tmp_path / "private"
    private.mkdir()
    outcome = heapx(target, "query", sql.replace("%s", str(private / "made")), env={"TMPDIR": str(private)})
    refused(outcome, 2)
    assert not list(private.iterdir()) and "root:" not in outcome.stderr


@by_turns("way", ["glibc", "jemalloc"])
def test_parquet_has_the_same_sums(lasting: Lasting, kind: str, way: str, tmp_path: Path) -> None:
    """Read by pyarrow, or by DuckDB where that is not installed: every block, with the sums of `chunks`; of the census those in use."""
    target, file = lasting.of(kind, contents, way).target(kind), tmp_path / "made.parquet"
    listed = heapx(target, "chunks", "--json").data["chunks"]
    file.write_bytes(b"older")
    os.chmod(file, 0o644)
    for of, expected in (("blocks", listed), ("census", None)):
        outcome = heapx(target, "export", "--format", "parquet", "--of", of, "-o", str(file))
        assert outcome.code == 0 and not outcome.stdout and stat.S_IMODE(file.stat().st_mode) == 0o600, outcome.stderr
        columns = parquet(file)
        if expected is not None:
            assert sorted(columns["address"]) == sorted(int(one["address"], 16) for one in expected)
            assert sum(columns["size_bytes"]) == sum(one["size_bytes"] for one in expected)
    named = [one for one in heapx(target, "census", "--json").data["rows"] if one["signature"]]
    sums = {name: 0 for name in columns["signature"] if name}
    for name, size in zip(columns["signature"], columns["usable_bytes"]):
        if name:
            sums[name] += size
    assert len(sums) >= 5 and sums == {name: sum(one["bytes"] for one in named if one["signature"] == name) for name in sums}
    assert list(tmp_path.iterdir()) == [file]


def parquet(file: Path) -> Any:
    """Lists by column."""
    try:
        from pyarrow.parquet import read_table
    except ImportError:
        import duckdb

        found = duckdb.sql("select * from read_parquet('%s')" % file)
        return dict(zip(found.columns, map(list, zip(*found.fetchall()))))
    return read_table(file).to_pydict()


def test_parquet_is_whole_or_not_there(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """What cannot be made leaves what was there; wrong words are refused in one line."""
    target, file = lasting.of(core, contents, "glibc").target(core), tmp_path / "made.parquet"
    file.write_bytes(b"older")
    words = ("export", "--format", "parquet", "-o", str(file))
    refused(heapx(["--core", str(tmp_path / "none")], *words), 1)
    refused(heapx(target, *words, "--of", "owners"), 2)
    refused(heapx(target, "export", "--format", "parquet"), 2)
    refused(heapx(target, "export", "--format", "parquet", "-o", "/dev/null"), 1)
    refused(heapx([], *words), 2)
    assert file.read_bytes() == b"older" and list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_nothing_private_stays(lasting: Lasting, core: str, tmp_path: Path, number: signal.Signals) -> None:
    """A statement that would last for ever: Ctrl-C ends it with one line, and the private folder, of mode 0700, is gone."""
    target = lasting.of(core, contents, "glibc").target(core)
    sql = "select count(*) from blocks a, blocks b, blocks c, blocks d where hash(a.address, b.address, c.address, d.address) = 1"
    words = [*tool_command(), *target, "query", sql]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)})
    until = time.monotonic() + 60
    while not list(tmp_path.glob("*/look.duckdb")):
        assert running.poll() is None and time.monotonic() < until
        time.sleep(0.02)
    folder = next(tmp_path.iterdir())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    running.send_signal(number)
    out, told = running.communicate(timeout=60)
    assert running.returncode == 1 and not out and len(told.strip().splitlines()) == 1 and b"interrupted by" in told, told
    assert not list(tmp_path.iterdir())


def test_a_look_changes_nothing(stage: Stage, live: str) -> None:
    """With every table of one look: memory and page faults of a sleeping process, and of the child it forked, stay."""
    process = stage.start("asleep")
    process.command(b"w")
    sql = "select count(signature) from blocks union all select count(*) from arenas, classes, threads, mappings, leaks, owners"
    with unchanged(process.pid, process.words()[0]):
        assert heapx(process.target(live), "query", sql, "--json").code in (0, 4)


@pytest.mark.once
@pytest.mark.parametrize("kind, name", list(zip(("live", "core", "live"), hostile.OF_THREADS)), indirect=["kind"])
def test_hostile_names_stay_names(stage: Stage, kind: str, name: str, tmp_path: Path) -> None:
    """Of a thread, and of the program's file: one line each and no control character in text, CSV and parquet."""
    process = hostile.start(stage, tmp_path / "record", name)
    target, file = process.target(kind), tmp_path / "made.parquet"
    tables = ("* from owners", "* from threads", "distinct name from mappings", "distinct module, signature from classes")
    sql = " union all by name ".join("select " + table for table in tables)
    text = heapx(target, "query", sql)
    assert text.code == 0 and all(line.isprintable() for line in text.stdout.decode("ascii").splitlines()), text
    comma = heapx(target, "query", sql, "--csv").stdout.decode()
    cells = [cell for row in csv.reader(io.StringIO(comma, newline=""), strict=True) for cell in row]
    assert all(cell.isprintable() and (not cell.startswith(("=", "+", "-", "@")) or re.fullmatch("-?[0-9.]+", cell)) for cell in cells), cells
    for row in json.loads(heapx(target, "query", sql, "--json").stdout)["data"]["rows"]:
        assert all(cell.isprintable() for cell in row.values() if isinstance(cell, str))
    assert heapx(target, "export", "--format", "parquet", "--of", "census", "-o", str(file)).code == 0
    assert all(one is None or one.isprintable() for one in parquet(file)["signature"])
