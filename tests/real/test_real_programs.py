"""Programs that nobody here wrote: python3, a Java virtual machine, bash.

Programs that nobody here wrote, on jemalloc: redis-server, named, python3 with threads, a Java virtual machine. None is harmed by a look.
"""

import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from tests.support.glibc import FIELDS, check_identity, found_fields
from tests.support.jemallocs import has_ticker_bug, library, library_version
from tests.support.paths import PROGRAMS
from tests.support.processes import READY_SECONDS, Process, Stage
from tests.support.programs import need
from tests.support.servers import Named, Redis
from tests.support.tool import answers, heapx

pytestmark = pytest.mark.image  # programs of its own, on its libc

PYTHON = "/usr/bin/python3"

# Lists, dicts, strings and bytes of many sizes, half of them dropped; then libc's own accounts through ctypes, taken into
# memory that is there already, twice, until two in a row agree.
PYTHON_PROGRAM = r"""
import ctypes, os, sys
folder = sys.argv[1]
libc = ctypes.CDLL(None)
kind = ctypes.c_size_t
try:
    mallinfo = libc.mallinfo2
except AttributeError:  # before glibc 2.33: the same in int
    mallinfo, kind = libc.mallinfo, ctypes.c_int
class Info(ctypes.Structure):
    _fields_ = [(name, kind) for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
mallinfo.restype = Info
libc.fdopen.restype = ctypes.c_void_p
libc.fdopen.argtypes = [ctypes.c_int, ctypes.c_char_p]
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fflush.argtypes = libc.rewind.argtypes = [ctypes.c_void_p]
libc.setvbuf.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
keep = []
for i in range(int(sys.argv[2])):
    keep.append({"key %d" % i: [b"x" * (i % 3000), str(i) * (i % 40), [i] * (i % 70)]})
keep = [item for number, item in enumerate(keep) if number % 3]
buffer = ctypes.create_string_buffer(1 << 20)
fd = os.open(os.path.join(folder, "xml"), os.O_RDWR | os.O_CREAT, 0o600)
out = libc.fdopen(fd, b"r+")
libc.setvbuf(out, buffer, 0, 1 << 20)
info_fd = os.open(os.path.join(folder, "info"), os.O_RDWR | os.O_CREAT, 0o600)
os.write(1, b"ready\n")
info = Info()
for command in iter(lambda: os.read(0, 1), b""):
    libc.rewind(out)
    os.ftruncate(fd, 0)
    libc.malloc_info(0, out)
    libc.fflush(out)
    info = mallinfo()
    os.pwrite(info_fd, bytes(info), 0)
    os.write(1, b"ready\n")
"""

JAVA_PROGRAM = (PROGRAMS / "Hoard.java").read_text()


def python3(stage: Stage, objects: int) -> Process:
    """The system's python3, which has filled its heap."""
    if not Path(PYTHON).exists():
        pytest.skip("%s is not installed" % PYTHON)
    folder = stage.folder()
    return stage.spawn_ready([PYTHON, "-I", "-c", PYTHON_PROGRAM, str(folder), str(objects)], folder, {"PYTHONMALLOC": "malloc"})


@pytest.mark.parametrize("objects", [25000, pytest.param(200000, marks=pytest.mark.wild)])
def test_python3(stage: Stage, kind: str, objects: int, record_property: Callable[[str, object], None]) -> None:
    """python3 with 30 or 300 MB of objects in malloc: the identity holds, and the figures are those that libc gives inside it."""
    process = python3(stage, objects)
    # The first account warms everything up; accounts are then taken until two agree.
    accounts = []
    while len(accounts) < 2 or accounts[-1] != accounts[-2]:
        process.command(b"a")
        accounts.append(((process.folder / "xml").read_text(), (process.folder / "info").read_bytes()))
        assert len(accounts) < 20, "python3's heap does not come to rest"
    xml = accounts[-1][0]
    arenas, stats, info = answers(process.target(kind), process.folder, "arenas", "malloc-stats", "malloc-info")
    for envelope in (arenas, stats, info):
        assert envelope["partial"] is False, envelope["problems"]
    check_identity(arenas["data"])
    system = arenas["data"]["totals"]["glibc"]["system_bytes"]
    record_property("system_bytes", system)
    assert system > objects << 10
    assert info["data"]["xml"] == xml
    assert {key: found_fields(stats["data"])[key] for key in FIELDS} == dict(zip(FIELDS, struct.unpack("<10%s" % ("Q" if len(accounts[-1][1]) == 80 else "I"), accounts[-1][1])))


@pytest.mark.once  # what lies beside malloc depends on no libc
def test_python3_with_its_own_allocator(stage: Stage, kind: str) -> None:
    """python3 as it comes, with its small-object arenas in mmap beside the heap."""
    folder = stage.folder()
    process = stage.spawn_ready([PYTHON, "-I", "-c", PYTHON_PROGRAM, str(folder), "60000"], folder)
    outcome = heapx(process.target(kind), "arenas", "--json")
    check_identity(outcome.data)
    assert heapx(process.target(kind), "report").code == 0


@pytest.mark.once  # many arenas; test_accounts holds arenas on each libc
def test_java(stage: Stage, kind: str) -> None:
    """A Java virtual machine with 24 busy threads: many arenas, the identity holds in each."""
    options = [
        "-Xmx48m", "-XX:CompressedClassSpaceSize=16m", "-XX:ReservedCodeCacheSize=16m", "-Xshare:auto", "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
    ]
    process = stage.spawn_text("Hoard.java", JAVA_PROGRAM, ["java", *options, "Hoard.java"])
    outcome = heapx(process.target(kind), "arenas", "--json")
    if outcome.code == 4:  # a running machine may be stopped inside malloc: then an arena is locked, and that is said
        arenas = outcome.envelope["data"]["arenas"]
        assert any(arena["locked"] for arena in arenas), outcome.envelope["problems"]
        check_identity({"arenas": [arena for arena in arenas if not arena["locked"]], "totals": {}})
    else:
        check_identity(outcome.data)
        assert len(outcome.data["arenas"]) >= 5
        assert sum(arena["threads"] for arena in outcome.data["arenas"]) >= 20
    assert heapx(process.target(kind), "report", "--json").code in (0, 4)


@pytest.mark.once  # another program than python3, on the same libc
def test_bash(stage: Stage, kind: str) -> None:
    """bash, which has its own malloc on some systems and libc's here."""
    need("bash")
    process = stage.spawn_ready(
        [
            "bash",
            "-c",
            'for i in {1..20000}; do a[$i]="value $i $RANDOM"; done; unset "a[500]"; for i in {1000..9000}; do unset "a[$i]"; done; echo ready; read -r line',
        ]
    )
    outcome = heapx(process.target(kind), "arenas", "--json")
    check_identity(outcome.data)
    assert outcome.data["totals"]["glibc"]["system_bytes"] > 1 << 20
    assert outcome.data["totals"]["glibc"]["used_chunks"] > 10000


def test_jemalloc_owns_malloc(stage: Stage, kind: str) -> None:
    """With libjemalloc preloaded the tool names it as the owner of malloc, and reads it."""
    library = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin")
    known = subprocess.run([library or "ldconfig", "-p"], capture_output=True, text=True).stdout
    if "libjemalloc.so.2" not in known:
        pytest.skip("libjemalloc2 is not installed")
    folder = stage.folder()
    process = stage.spawn_ready([PYTHON, "-I", "-c", PYTHON_PROGRAM, str(folder), "2000"], folder, {"LD_PRELOAD": "libjemalloc.so.2"})
    outcome = heapx(process.target(kind), "report", "--json")
    envelope = outcome.envelope
    owners = [allocator["name"] for allocator in envelope["allocators"] if allocator["owns_malloc"]]
    assert owners == ["jemalloc"]
    assert "jemalloc" in heapx(process.target(kind), "report").stdout.decode()
    arenas = heapx(process.target(kind), "arenas", "--json")
    assert arenas.code == 0 and arenas.data["totals"]["jemalloc"]["allocated_bytes"] > 1 << 20

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

# The first thing that a new thread of CPython's does with malloc is to free what its starter allocated for it.
PYTHON_ON_JEMALLOC = r"""
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
    process = stage.spawn([PYTHON, "-I", "-c", PYTHON_ON_JEMALLOC], folder, env)
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

WORKS_ON = PYTHON_ON_JEMALLOC.replace("    forever.wait()\n", "    while not forever.wait(0.001):\n        for number in range(60):\n            bytearray(50000)\n")


def test_python_worker_is_cured(stage: Stage, live: str) -> None:
    """A blind worker that goes on working keeps its memory; after --cure it gives it back by itself, and the program serves on."""
    if not has_ticker_bug(BUGGY):
        pytest.skip("this system's jemalloc has not the bug")
    assert WORKS_ON != PYTHON_ON_JEMALLOC
    env = {"LD_PRELOAD": str(library()), "MALLOC_CONF": "dirty_decay_ms:300"}
    process = stage.spawn([PYTHON, "-I", "-c", WORKS_ON], stage.folder(), env)
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
def test_java_on_jemalloc(stage: Stage, kind: str) -> None:
    """A Java virtual machine on jemalloc: all its threads have a verdict, its arenas are read, and it goes on."""
    options = ["-Xmx48m", "-XX:CompressedClassSpaceSize=16m", "-XX:ReservedCodeCacheSize=16m", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
    process = stage.spawn_text("Echo.java", JAVA_ON_JEMALLOC, ["java", *options, "Echo.java"], {"LD_PRELOAD": str(library())})
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

JAVA_ON_JEMALLOC = (PROGRAMS / "Echo.java").read_text()
