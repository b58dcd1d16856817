"""`query` and parquet files: the tables are what the commands say, SQL touches nothing else, and nothing private stays.

Who holds each block, in SQL: the same owners, bytes and paths as `owners`, `census --by owner` and `refs` have.

Files: addons/views/query/command.py, addons/views/query/csv_rows.py, addons/views/query/table_rows.py, analysis/census/owned.py,
app/worker.py.
"""

import csv
import io
import json
import os
import random
import re
import signal
import stat
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.addons.views.query import csv_rows, table_rows
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import block
from gdbheapx.inferior.target import open_elf_target
from tests.support import hostile
from tests.support.jemallocs import contents, preloads
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tool import Outcome, heapx, tool_command
from tests.support.unchanged import unchanged

pytest.importorskip("duckdb", reason="duckdb is not installed")
pytestmark = pytest.mark.image  # what its Python and DuckDB make of it


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
@pytest.mark.parametrize("sql", ["select * from read_csv('/etc/passwd')", "copy blocks to '%s'", "select nothing from blocks"])
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

SEVERAL, SMALL, REST = "[held by several owners]", "[small owners]", "[several owners, small ones, or leaked]"

SHOP = """
import sys, types
shop = sys.modules["shop"] = types.ModuleType("shop")
class Order:
    __slots__ = ("items", "note")
    def __init__(self, number):
        self.items, self.note = [float(number), str(number) * 3], {"=cmd": number, "a,b" + chr(10): "x" * 600}
shop._cache = {"u:%d" % number: Order(number) for number in range(2000)}
print("ready", flush=True)
sys.stdin.read()
"""


def started(stage: Stage, way: str) -> Process:
    """A program of Python, with its own allocator or with malloc alone; one of C++ without symbols, on glibc or on jemalloc."""
    if way in ("python", "python on malloc"):
        return stage.spawn_ready([sys.executable, "-c", SHOP], env={"PYTHONMALLOC": "malloc"} if "malloc" in way else {})
    process = stage.start("service", "leaky", flags=("-s",), env=preloads(way))
    process.command(b"w")
    return process

WAYS = ("python", "python on malloc", "glibc", "jemalloc")
Sums = Dict[Optional[str], Tuple[int, int]]


def owner_rows(target: Sequence[str], sql: str, *words: str) -> List[Dict[str, Any]]:
    """Of a whole answer."""
    found: List[Dict[str, Any]] = heapx(target, "query", sql, "--json", *words).data["rows"]
    return found

BY_OWNER = {
    "held_blocks": "select owner, count(*) as n, sum(usable_bytes) as bytes from held_blocks group by all",
    "held": "select owner, sum(blocks) as n, sum(bytes) as bytes from held group by all",
    "blocks": "select owner, count(*) as n, sum(usable_bytes) as bytes from blocks where class = 'used' group by all",
}


def sums(target: Sequence[str], *tables: str) -> List[Sums]:
    """Blocks and bytes by owner, as each table of one look has them."""
    found = owner_rows(target, " union all ".join("select '%s' as name, * from (%s)" % (table, BY_OWNER[table]) for table in tables))
    return [{row["owner"]: (row["n"], row["bytes"]) for row in found if row["name"] == table} for table in tables]


@by_turns("way", WAYS)
def test_owners_of_blocks_have_the_bytes_of_owners(lasting: Lasting, kind: str, way: str) -> None:
    """To the byte, each owner that `owners` and `census --by owner` show; what is leaked has none. Where malloc alone has blocks, those in use
    have the owners of held_blocks; no row is lost or made for it, and others have none."""
    target = lasting.of(kind, started, way).target(kind)
    by_block, by_class, *of_malloc = sums(target, "held_blocks", "held", *(["blocks"] if way != "python" else []))
    for of_blocks in of_malloc:
        assert (table_rows.NOT_COUNTED in of_blocks) == (way == "jemalloc")  # which has its threads' caches in blocks of its own
        of_blocks.pop(table_rows.NOT_COUNTED, None)
        assert of_blocks == by_block
        whole = "select count(*) as n, count(distinct address) as addresses, count(owner) filter (class <> 'used') as owned%s from blocks"
        found = owner_rows(target, whole % ", count(signature) as named, count(path) as paths")[0]
        assert found["n"] == found["addresses"] == owner_rows(target, "select count(*) as n from blocks")[0]["n"]
        assert found["owned"] == 0 and found["named"] > 0
    rest = [by_block.pop(name, (0, 0)) for name in (None, SMALL, SEVERAL)]
    assert (sum(row[0] for row in rest), sum(row[1] for row in rest)) == by_class.pop(REST, (0, 0))
    assert by_block == by_class and len(by_block) > 1
    answer = heapx(target, "owners", "--limit", "20", "--json").data
    several = {row["owner"] for row in answer["owners"] if [one["owner"] for one in answer["owners"]].count(row["owner"]) > 1}
    for row in answer["owners"]:
        if row["owner"] not in several:
            assert by_block[row["owner"]] == (row["retained_blocks"], row["retained_bytes"])
    assert rest[0] == (answer["leaked"]["blocks"], answer["leaked"]["bytes"])
    assert (rest[0][0] > 1000) == (way in ("glibc", "jemalloc"))


@pytest.mark.parametrize("way", ["python", "jemalloc"])
def test_paths_are_those_of_refs(lasting: Lasting, core: str, way: str) -> None:
    """Of 200 random blocks, and of 200 that have one: the path that the search of `refs` finds; two of them by `refs` itself. Words that are
    left over count for all paths of one look (MOST_STALE), so that who asks for many may get none where who asks for one does."""
    target = lasting.of(core, started, way).target(core)
    found = owner_rows(target, "select address, usable_bytes, path from held_blocks")
    told, sizes = {int(row["address"], 16): row["path"] for row in found}, {int(row["address"], 16): row["usable_bytes"] for row in found}
    least = (sorted(sizes.values(), reverse=True)[table_rows.MOST_PATHS :] or [0])[0]  # the largest blocks have paths
    session = Session(open_elf_target(core=target[-1]))
    session.prepare()
    graph = block.make_named_graph(session)
    chance = random.Random(7)
    with_path = [address for address in told if told[address]]
    chosen = chance.sample(sorted(told), 200) + chance.sample(with_path, min(200, len(with_path)))
    lacking = 0
    for address in chosen:
        place = graph.reach.graph.find(address)
        path = graph.paths.of(place[0]) if graph.paths is not None and place is not None else None
        lacking += told[address] is None and path is not None and sizes[address] > least
        assert told[address] in (None, csv_rows.clean_name(path.text) if path is not None else None)
    assert 20 * lacking <= len(chosen)
    assert with_path
    for address in chosen[:1] + chosen[-1:]:
        shown = heapx(target, "refs", hex(address), "--json").data["path"]
        assert told[address] in (None, csv_rows.clean_name(shown) if shown is not None else None)


def test_paths_only_where_they_are_wanted(lasting: Lasting, live: str) -> None:
    """By name in both tables; `*` and --no-names have none. Keys are one line and no formula."""
    target = lasting.of(live, started, "python on malloc").target(live)
    sql = "select path from blocks where path like '%%_cache[\"u:7\"]%%' and size_bytes > %d order by all"
    owned = ["select owner as path from %s where owner like 'shop%%'" % table for table in ("owners", "held_blocks")]
    every = " union all ".join("(%s)" % one for one in (sql % 100, *owned))
    assert {'shop._cache["u:7"].note', "shop._cache"} <= {row["path"] for row in owner_rows(target, every)}
    assert not owner_rows(target, every, "--no-names")
    assert "path" not in owner_rows(target, "select * from held_blocks limit 1")[0] and "owner" not in owner_rows(target, "select * from blocks limit 1")[0]
    text = heapx(target, "query", sql % 0, "--csv").stdout.decode()
    assert all(line.isprintable() for line in text.splitlines()) and '"shop._cache[""u:7""]' in text


def test_paths_have_limits(lasting: Lasting, core: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest blocks have them; all of them together have no more letters than they may."""
    from gdbheapx.analysis.census import owned

    target = lasting.of(core, started, "python on malloc").target(core)
    session = Session(open_elf_target(core=target[-1]))
    session.prepare()
    found = owned.find_owned_blocks(session, True)

    def told(most_paths: int) -> List[Tuple[int, str]]:
        lines = "".join(csv_rows.format_held_rows(found, most_paths, lambda: None)).splitlines()
        return [(int(line.split(",")[1]), line.rpartition(",")[2]) for line in lines]

    every = told(1 << 40)
    largest = sorted((size for size, _ in every), reverse=True)[:2100]
    some = [size for size, path in told(2100) if path]
    assert 1900 < len(some) <= 2100 and min(some) >= largest[-1]
    assert not [path for _, path in told(0) if path]
    monkeypatch.setattr(csv_rows, "MOST_PATHS_LETTERS", 1000)
    assert 0 < sum(len(path) for _, path in told(1 << 40)) < 2000


def test_a_snapshot_has_owners(lasting: Lasting, core: str, tmp_path: Path) -> None:
    """Which sum to what the core has; keys are data, which it does not have; paths of what its answers have named."""
    target, file = lasting.of(core, started, "python on malloc").target(core), str(tmp_path / "one.snap")
    assert heapx(target, "snapshot", file).code == 0
    snapshot = ["--snapshot", file]
    (found, of_blocks), (known,) = sums(snapshot, "held_blocks", "blocks"), sums(target, "held_blocks")
    assert found == of_blocks
    assert found["shop._cache"] == known["shop._cache"]
    assert sum(size for _, size in found.values()) == sum(size for _, size in known.values())
    assert {"path": "shop._cache"} in owner_rows(snapshot, "select path from held_blocks where path is not null")


def test_what_it_costs_is_said() -> None:
    """In the list of tables: how many blocks have paths, and that a column is there only if it is named."""
    text = heapx([], "query", "--tables").stdout.decode()
    assert "{:,}".format(table_rows.MOST_PATHS) in text and "only if SQL names it" in text
