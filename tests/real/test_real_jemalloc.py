"""Programs that nobody here wrote, on jemalloc: redis-server, named, python3 with threads, a Java virtual machine. None is harmed by a look."""

import shutil
import time
from typing import Any, Dict, List

import pytest

from tests.support.jemallocs import has_ticker_bug, library, library_version
from tests.support.paths import PROGRAMS
from tests.support.processes import READY_SECONDS, Process, Stage
from tests.support.servers import Named, Redis
from tests.support.tool import answers, heapx

pytestmark = pytest.mark.image  # programs of its own, on its libjemalloc

BUGGY = "preload"
"""The way of support/jemallocs.py that means this system's library."""


def look(process: Process, kind: str, *commands: str) -> List[Dict[str, Any]]:
    """Whole answers of several commands from one attach."""
    envelopes = answers(process.target(kind), process.folder, *commands)
    for envelope in envelopes:
        assert envelope["partial"] is False, envelope["problems"]
        assert [one["version"][:5] for one in envelope["allocators"] if one["name"] == "jemalloc"] == [".".join(map(str, library_version()))]
        assert [one["name"] for one in envelope["allocators"] if one["owns_malloc"]] == ["jemalloc"]
    return envelopes


def check_arenas(data: Dict[str, Any]) -> Dict[str, Any]:
    """The columns agree with each other; returns the totals."""
    rows = [row for row in data["arenas"] if row["allocator"] == "jemalloc"]
    totals = data["totals"]["jemalloc"]
    for column in ("allocated_bytes", "active_bytes", "mapped_bytes", "retained_bytes", "used_bytes", "cached_bytes"):
        assert totals[column] == sum(row[column] for row in rows)
    assert 0 < totals["used_bytes"] <= totals["allocated_bytes"] <= totals["active_bytes"] <= totals["mapped_bytes"]
    assert isinstance(totals, dict)
    return totals


# ---------------------------------------------------------------------------------------------------- redis-server


def test_redis(stage: Stage, kind: str) -> None:
    """redis-server's keys are in jemalloc's arenas as jemalloc told redis; nobody is blind; it answers as before."""
    redis = Redis(stage)
    redis.fill(60000)
    assert redis.ask("GET", "key:1") == b"x" * (1 + 7919 % 3000) + b"\r\n"
    told = redis.memory()
    arenas, tickers, stats, tcache = look(redis.process, kind, "arenas", "tickers", "malloc-stats", "tcache")
    totals = check_arenas(arenas["data"])
    assert totals["allocated_bytes"] > 40 << 20
    for word in ("allocated", "active", "resident"):
        assert abs(totals[word + "_bytes"] - told["allocator_" + word]) < 1 << 20, (word, totals, told)
    assert stats["data"]["jemalloc"]["stats"]["active"] == totals["active_bytes"]
    assert tickers["data"]["counts"].get("blind", 0) == 0
    assert tickers["data"]["affected"] is has_ticker_bug(BUGGY)
    verdicts = {thread["lwp"]: thread["verdict"] for thread in tickers["data"]["threads"]}
    assert verdicts[redis.process.pid] == ("ticking" if has_ticker_bug(BUGGY) else "not-applicable")
    assert any(thread["allocator"] == "jemalloc" and thread["lwp"] == redis.process.pid and thread["chunks"] for thread in tcache["data"]["threads"])
    if kind == "live":
        assert redis.ask("GET", "key:1") == b"x" * (1 + 7919 % 3000) + b"\r\n"
        redis.fill(3000)
        assert redis.process.popen.poll() is None


@pytest.mark.once  # test_je_blocks holds listings on each libjemalloc
def test_redis_listing(stage: Stage, core: str) -> None:
    """Every block of redis-server's is listed once, and the sums are those of the arenas."""
    redis = Redis(stage)
    redis.fill(20000)
    arenas, chunks = look(redis.process, core, "arenas", "chunks")
    entries = [chunk for chunk in chunks["data"]["chunks"] if chunk["allocator"] == "jemalloc"]
    used = [chunk for chunk in entries if chunk["status"] == "used"]
    assert len(used) > 10000 and len({chunk["address"] for chunk in used}) == len(used)
    totals = check_arenas(arenas["data"])
    assert sum(chunk["size_bytes"] for chunk in used) == totals["used_bytes"]
    assert sum(chunk["size_bytes"] for chunk in entries if chunk["status"] == "cached") == totals["cached_bytes"]


# ---------------------------------------------------------------------------------------------------- named

@pytest.mark.once  # another server than redis-server, on the same library
def test_named(stage: Stage, kind: str) -> None:
    """named's threads and arenas are read, none of its threads is accused, and it answers as before."""
    named = Named(stage)
    for number in range(0, 20000, 7):
        assert named.address(number) == (10, 0, number >> 8, number & 255)
    arenas, tickers, chunks = look(named.process, kind, "arenas", "tickers", "chunks --histogram")
    totals = check_arenas(arenas["data"])
    assert totals["allocated_bytes"] > 3 << 20
    assert tickers["data"]["affected"] is has_ticker_bug(BUGGY) and tickers["data"]["counts"].get("blind", 0) == 0
    assert len(tickers["data"]["threads"]) >= 4
    assert sum(row["used_bytes"] for row in chunks["data"]["histogram"]) >= totals["used_bytes"]
    (census,) = look(named.process, kind, "census")
    counts = {row["signature"]: row["blocks"] for row in census["data"]["rows"] if row["module"] == "bind" and row["sure"] == "exact"}
    assert counts["dns_zone ('ZONE')"] >= 1 and counts["isc_nmsocket ('NMSK')"] >= 3 and counts["isc_mem ('MemC')"] >= 3
    if kind == "live":
        assert named.address(19999) == (10, 0, 19999 >> 8, 19999 & 255)
        assert named.process.popen.poll() is None


# ---------------------------------------------------------------------------------------------------- python3

PYTHON = "/usr/bin/python3"

# The first thing that a new thread of CPython's does with malloc is to free what its starter allocated for it.
PYTHON_PROGRAM = r"""
import sys, threading, time

lwps, done, forever = [], threading.Event(), threading.Event()

def worker():
    lwps.append(threading.get_native_id())
    kept = [b"x" * (4000 + number % 100) for number in range(24000)]
    del kept
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for number in range(60):
            bytearray(50000)
        time.sleep(0.001)
    done.set()
    forever.wait()

threading.Thread(target=worker, daemon=True).start()
done.wait()
print(" ".join(map(str, lwps)), "ready", flush=True)
sys.stdin.read()
"""


def test_python_workers(stage: Stage, kind: str) -> None:
    """python3's worker is blind on 5.2.1, and the process keeps the burst's memory; on 5.3 it is not, and the memory goes."""
    folder = stage.folder()
    env = {"LD_PRELOAD": str(library()), "MALLOC_CONF": "dirty_decay_ms:300"}
    process = stage.spawn([PYTHON, "-I", "-c", PYTHON_PROGRAM], folder, env)
    assert process.popen.stdout
    words = process.popen.stdout.readline().split()
    assert words[-1:] == [b"ready"], process.stderr_path.read_text()
    worker = int(words[0])
    bug = has_ticker_bug(BUGGY)
    resident = process.smaps_rollup("Rss")
    assert resident > 90 << 20 if bug else resident < 60 << 20
    tickers, arenas = look(process, kind, "tickers", "arenas")
    verdicts = {thread["lwp"]: thread for thread in tickers["data"]["threads"]}
    assert set(verdicts) == {process.pid, worker}
    assert verdicts[worker]["verdict"] == ("blind" if bug else "not-applicable")
    assert verdicts[process.pid]["verdict"] == ("ticking" if bug else "not-applicable")
    rows = {row["index"]: row for row in arenas["data"]["arenas"] if row["allocator"] == "jemalloc"}
    held = rows[verdicts[worker]["arena"]]
    assert held["blind_threads"] == int(bug)
    assert held["dirty_bytes"] > 60 << 20 if bug else held["dirty_bytes"] < 30 << 20
    assert heapx(process.target(kind), "tickers", "--strict").code == (3 if bug else 0)


WORKS_ON = PYTHON_PROGRAM.replace("    forever.wait()\n", "    while not forever.wait(0.001):\n        for number in range(60):\n            bytearray(50000)\n")


def test_python_worker_is_cured(stage: Stage, live: str) -> None:
    """A blind worker that goes on working keeps its memory; after --cure it gives it back by itself, and the program serves on."""
    if not has_ticker_bug(BUGGY):
        pytest.skip("this system's jemalloc has not the bug")
    assert WORKS_ON != PYTHON_PROGRAM
    env = {"LD_PRELOAD": str(library()), "MALLOC_CONF": "dirty_decay_ms:300"}
    process = stage.spawn([PYTHON, "-I", "-c", WORKS_ON], stage.folder(), env)
    assert process.popen.stdout and process.popen.stdin
    words = process.popen.stdout.readline().split()
    assert words[-1:] == [b"ready"], process.stderr_path.read_text()
    before = process.smaps_rollup("Rss")
    assert before > 90 << 20 and heapx(process.target(live), "tickers").code == 3
    outcome = heapx(process.target(live), "tickers", "--cure", "--yes")
    assert outcome.code == 0, outcome.stderr
    end = time.monotonic() + READY_SECONDS
    while process.smaps_rollup("Rss") > 60 << 20:
        assert time.monotonic() < end, "%d bytes are resident still, %d were" % (process.smaps_rollup("Rss"), before)
        time.sleep(0.05)
    print("RSS %d MB before --cure, %d MB after" % (before >> 20, process.smaps_rollup("Rss") >> 20))
    assert heapx(process.target(live), "tickers").code == 0
    process.popen.stdin.close()
    assert process.popen.wait(READY_SECONDS) == 0


# ---------------------------------------------------------------------------------------------------- java


@pytest.mark.once  # many threads; that they have verdicts depends on no library
def test_java(stage: Stage, kind: str) -> None:
    """A Java virtual machine on jemalloc: all its threads have a verdict, its arenas are read, and it goes on."""
    java = shutil.which("java")
    if not java:
        pytest.skip("no java is installed (default-jdk-headless)")
    folder = stage.folder()
    (folder / "Echo.java").write_text(JAVA_PROGRAM)
    options = ["-Xmx48m", "-XX:CompressedClassSpaceSize=16m", "-XX:ReservedCodeCacheSize=16m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    process = stage.spawn_ready([java, *options, "Echo.java"], folder, {"LD_PRELOAD": str(library())})
    tickers = heapx(process.target(kind), "tickers", "--json")
    assert tickers.code in (0, 3, 4)
    data = tickers.envelope["data"]
    assert data["affected"] is has_ticker_bug(BUGGY)
    assert len(data["threads"]) >= 24 and len({thread["lwp"] for thread in data["threads"]}) == len(data["threads"])
    if not has_ticker_bug(BUGGY):
        assert tickers.code == 0 and {thread["verdict"] for thread in data["threads"]} == {"not-applicable"}
    arenas = heapx(process.target(kind), "arenas", "--json")
    assert arenas.code in (0, 4)  # a machine at work may be stopped inside malloc
    check_arenas(arenas.envelope["data"])
    if kind == "live":
        process.command(b"x")


JAVA_PROGRAM = (PROGRAMS / "Echo.java").read_text()
