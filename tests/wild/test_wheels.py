"""jemalloc and mimalloc inside wheels of PyPI: pyarrow with a prefix of its own, duckdb with a snapshot between releases, polars without layouts."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from tests.support import gcores
from tests.support.addons import require_addon
from tests.support.processes import Process, Stage
from tests.support.tool import heapx
from tests.support.wheels import wheel

pytestmark = pytest.mark.wild  # wheels of PyPI

PYARROW = ("14.0.2", "26.0.1")
DUCKDB = ("1.1.3", "2.0.0")

ARROW_PROGRAM = """
import ctypes, sys, pyarrow
pool = pyarrow.%s_memory_pool()
kept = [pyarrow.allocate_buffer(size, memory_pool=pool) for size in range(100, 60000, 37)]
large = [pyarrow.allocate_buffer(1 << 20, memory_pool=pool) for _ in range(100)]
for buffer in kept + large:
    ctypes.memset(buffer.address, 1, buffer.size)
print("ready", flush=True)
sys.stdin.read()
"""
DUCKDB_PROGRAM = """
import sys, duckdb
connection = duckdb.connect()
connection.execute("create table t as select i, i::varchar || 'x' s from range(1000000) x(i)")
connection.execute("select s, count(*) from t group by s order by 2 desc limit 5").fetchall()
connection.execute("drop table t")
print("ready", flush=True)
sys.stdin.read()
"""
POLARS_PROGRAM = """
import sys, polars
frame = polars.DataFrame({"a": range(300000), "b": [str(i) for i in range(300000)]})
frame.group_by(polars.col("a") % 1000).agg(polars.col("b").count())
print("ready", flush=True)
sys.stdin.read()
"""


def run(stage: Stage, folder: Path, program: str, **env: str) -> Process:
    """This Python with the wheel, at rest."""
    return stage.spawn_ready([sys.executable, "-c", program], None, {"PYTHONPATH": str(folder), **env})


def ask(process: Process, kind: str, *words: str) -> Tuple[int, Dict[str, Any]]:
    """Exit code and envelope."""
    outcome = heapx(process.target(kind), *words, "--json")
    return outcome.code, outcome.envelope


@pytest.mark.parametrize("version", PYARROW)
def test_pyarrows_own_names(stage: Stage, kind: str, version: str) -> None:
    """je_arrow_ is found: in doctor, in the source of its options, in who holds more than glibc; its build cannot profile."""
    process = run(stage, wheel("pyarrow", version), ARROW_PROGRAM % "jemalloc", JE_ARROW_MALLOC_CONF="narenas:3")
    rows = ask(process, kind, "doctor")[1]["data"]["checks"]
    told = "\n".join(row["found"] for row in rows)
    assert "public names with `je_arrow_`" in told and "it reads options from JE_ARROW_MALLOC_CONF" in told
    assert "with heap profiling: no" in told and "mimalloc in libarrow.so" in told
    code, tunables = ask(process, kind, "tunables")
    sources = {one["name"]: one["text"] for one in tunables["data"]["sources"]["jemalloc"]}
    assert code == 0 and "oversize_threshold:0" in sources["the variable je_arrow_malloc_conf"]
    assert sources.get("the environment, JE_ARROW_MALLOC_CONF") == ("narenas:3" if kind == "live" else None)
    code, stats = ask(process, kind, "malloc-stats")
    assert code == 0 and any("jemalloc in libarrow.so" in one["what"] and "times as much" in one["what"] for one in stats["problems"])


@pytest.mark.parametrize("version", PYARROW)
def test_purge_of_pyarrow(stage: Stage, live: str, version: str) -> None:
    """mallctl is found under pyarrow's name, which is in no table of exported ones."""
    process = run(stage, wheel("pyarrow", version), ARROW_PROGRAM % "jemalloc")
    code, envelope = ask(process, live, "purge", "--yes")
    assert code == 0 and envelope["data"]["returned"] == 0 and envelope["data"]["call"].startswith('je_arrow_mallctl("arena.4096.purge"')


@pytest.mark.parametrize("version", PYARROW)
def test_mimalloc_of_pyarrow_is_read(stage: Stage, kind: str, version: str) -> None:
    """Hidden in libarrow, without a symbol: what the pool has allocated is in use."""
    require_addon("allocators")
    process = run(stage, wheel("pyarrow", version), ARROW_PROGRAM % "mimalloc")
    code, envelope = ask(process, kind, "arenas")
    rows = [row for row in envelope["data"]["arenas"] if row["allocator"] == "mimalloc"]
    assert code == 0 and sum(row["used_bytes"] for row in rows) > 1 << 20
    assert [one["object"] for one in envelope["allocators"] if one["name"] == "mimalloc"][0].startswith("libarrow.so")


@pytest.mark.parametrize("version", DUCKDB)
def test_duckdbs_snapshot_is_not_read_as_a_release(stage: Stage, kind: str, version: str) -> None:
    """5.3.0-196 is not 5.3.0: it is read with a layout of its own."""
    process = run(stage, wheel("duckdb", version), DUCKDB_PROGRAM)
    code, arenas = ask(process, kind, "arenas")
    (info,) = [one for one in arenas["allocators"] if one["name"] == "jemalloc"]
    assert code == 0 and info["version"].startswith("5.3.0-196-ga25b9b8b") and info["layout"] == "table"
    rows = ask(process, kind, "doctor")[1]["data"]["checks"]
    assert any("the layout of 5.3.0-196-ga25b9b8b fits" in row["found"] for row in rows), rows
    code, tickers = ask(process, kind, "tickers")
    assert code == 0 and tickers["data"]["affected"] is False and tickers["data"]["unread"] == []


@pytest.mark.parametrize("version", ["0.9.2", "1.0.0"])
def test_duckdb_in_a_core_of_gdbs_alone(stage: Stage, live: str, folder: Path, version: str) -> None:
    """The core has its first segment whole, and no text of jemalloc's: its arenas are those that the file helps to find."""
    target = ["--core", str(gcores.gcore(run(stage, wheel("duckdb", version), DUCKDB_PROGRAM)))]
    known, found = (heapx([*target, *more], "arenas", "--json") for more in ((), ("--sysroot", str(folder))))
    owned = [[row for row in one.envelope["data"]["arenas"] if row["allocator"] == "jemalloc"] for one in (known, found)]
    assert owned[1] and [row["dirty_bytes"] for row in owned[0]] == [row["dirty_bytes"] for row in owned[1]]


def test_polars_is_read(stage: Stage, kind: str) -> None:
    """5.3.1 with neither profiling nor statistics, and symbols without types."""
    process = run(stage, wheel("polars", "2.1.0"), POLARS_PROGRAM)
    code, tickers = ask(process, kind, "tickers")
    assert code == 0 and tickers["data"]["affected"] is False and tickers["data"]["unread"] == [] and tickers["data"]["threads"]
    code, arenas = ask(process, kind, "arenas")
    assert code == 0 and arenas["data"]["totals"]["jemalloc"]["cached_bytes"] > 0


STRIPPABLE = [
    ("pyarrow", "26.0.1", "libarrow.so.*", ARROW_PROGRAM % "jemalloc"),
    ("polars", "2.1.0", "*.abi3.so", POLARS_PROGRAM),
    ("duckdb", "2.0.0", "_duckdb*.so", DUCKDB_PROGRAM),
]


@pytest.mark.parametrize("name, version, pattern, program", STRIPPABLE, ids=[one[0] for one in STRIPPABLE])
def test_a_stripped_library_of_a_wheel(stage: Stage, kind: str, name: str, version: str, pattern: str, program: str) -> None:
    """Loaded at run time, without symbols (duckdb's exports stay): read by its structure, thread caches by each thread's vector of blocks."""
    folder = stage.folder()
    copy = folder / "wheel"
    subprocess.run(["cp", "-a", str(wheel(name, version).resolve()), str(copy)], check=True)
    libraries: List[Path] = [path for path in copy.rglob(pattern) if path.is_file()]
    for path in libraries:
        whole = path.with_name(path.name + ".whole")
        os.rename(path, whole)
        subprocess.run(["strip", "-s", "-o", str(path), str(whole)], check=True)
        whole.unlink()
    assert libraries
    process = run(stage, copy, program)
    code, arenas = ask(process, kind, "arenas")
    (info,) = [one for one in arenas["allocators"] if one["name"] == "jemalloc"]
    assert code == 0 and info["layout"] == "table" and info["address_source"] == ("symbol" if name == "duckdb" else "probe")
    assert arenas["data"]["totals"]["jemalloc"]["used_bytes"] > 0 and info["object"] == libraries[0].name
    code, caches = ask(process, kind, "tcache")
    assert code == 0 and [one for one in caches["data"]["threads"] if one["allocator"] == "jemalloc" and one["tcache"]]
