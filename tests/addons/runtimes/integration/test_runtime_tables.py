"""The tables that `report` has of a runtime's process: every byte once, and the lines are those that the runtime itself counts."""

import re
import subprocess
import sys
from typing import Any, Dict, List

import pytest

from tests.support.javas import JAVA
from tests.support.jemallocs import preloads
from tests.support.processes import Process, Stage
from tests.support.programs import need
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # programs that nobody here wrote; the sums are the tool's own

PYTHON = """
import sys
rows = [{"id": number, "name": "user%d" % number} for number in range(20000)]
texts = [bytes([65]) * 3000 for _ in range(1000)]
untouched = bytes(8 << 20)
del rows[::2]
sys._debugmallocstats()
sys.stderr.flush()
print("ready", flush=True)
sys.stdin.read()
"""
MARGIN_BYTES = 4096
"""What sys._debugmallocstats has meanwhile."""


def table(process: Process, kind: str, name: str, *more: str) -> Dict[str, Any]:
    """By line; what must hold of all tables does."""
    data = heapx(process.target(kind), "report", "--json", *more).envelope["data"]  # partial, where a thread of a JVM was inside malloc
    found = next(one for one in data["runtimes"] if one["name"] == name)
    assert found["sum_bytes"] == sum(row["bytes"] for row in found["rows"]) == data["memory"]["total_bytes"]
    assert found["remainder_bytes"] == sum(row["bytes"] for row in found["rows"] if row["kind"] == "remainder") <= found["sum_bytes"] // 5
    assert all(row["bytes"] >= 0 for row in found["rows"] if row["kind"] != "not-in-ram")
    assert len({row["name"] for row in found["rows"]}) == len(found["rows"])
    files = sum(row["bytes"] for row in found["rows"] if row["kind"] in ("page-cache", "private-file"))
    stacks = sum(row["bytes"] for row in found["rows"] if row["kind"] == "stack")
    assert (files, stacks) == (data["memory"]["file_bytes"], data["memory"]["stack_bytes"])
    malloc = sum(row["bytes"] for row in found["rows"] if row["kind"].startswith("malloc") or row["name"].startswith("malloc"))
    assert malloc == data["memory"]["allocator_bytes"]
    return {row["name"]: row["bytes"] for row in found["rows"]}


def stated(process: Process, line: str) -> int:
    """A number of sys._debugmallocstats()."""
    text = process.stderr_path.read_text(encoding="utf-8")
    return int(re.search(r"^.*%s.*= +([0-9,]+)$" % re.escape(line), text, re.M)[1].replace(",", ""))  # type: ignore[index]


@pytest.mark.parametrize("kind, way", [("live", "glibc"), ("core", "glibc"), ("live", "jemalloc")])
def test_python(stage: Stage, kind: str, way: str) -> None:
    """Pools are what the interpreter says; blocks of objects in malloc are there, and what of them was never touched is taken off."""
    process = stage.spawn_text("program.py", PYTHON, [sys.executable, "-S", "program.py"], preloads(way))
    found = table(process, kind, "CPython", *(("--deep",) if kind == "live" else ()))
    absent = "not in RAM" if kind == "live" else "not in the core (never touched, or zeros)"
    pools = {name.partition(": ")[2]: size for name, size in found.items() if name.startswith("obmalloc")}
    used, free = pools["blocks in use"], pools["free blocks and pools"]
    assert abs(stated(process, "bytes in allocated blocks") - used) <= MARGIN_BYTES
    arenas = re.search(r"^(\d+) arenas \* (\d+) bytes/arena", process.stderr_path.read_text(encoding="utf-8"), re.M)
    assert arenas and used + free + pools["headers, and rest of pools"] == int(arenas[1]) * int(arenas[2])
    owned = found["malloc: blocks that Python objects are or own"]
    assert 11 << 20 <= owned <= 14 << 20
    assert -(12 << 20) <= found["malloc: of the blocks above, %s" % absent] <= -(8 << 20)  # jemalloc's class is 10 MiB


def test_java(stage: Stage) -> None:
    """Each tag has the bytes that jcmd says, and a header, a footer and the rounding of malloc for each block."""
    need("jcmd")
    process = stage.spawn_text("Big.java", JAVA, ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:NativeMemoryTracking=summary", "Big.java"])
    found = table(process, "live", "JVM", "--deep")
    told = subprocess.run(["jcmd", str(process.pid), "VM.native_memory", "summary", "scale=b"], capture_output=True, text=True).stdout
    counted = re.findall(r"- +([A-Z][A-Za-z ]+?) \(reserved.*\n(?:(?! *-).*\n)*? +\(malloc=(\d+) #(\d+)\)", told)
    tags = {name: (int(size), int(blocks)) for name, size, blocks in counted}
    for name in ("Symbol", "Module", "Other", "Metaspace"):  # neither the JIT nor jcmd takes such
        size, blocks = tags[name]
        assert size + 18 * blocks <= found["malloc: NMT %s" % name] <= size + (18 + 24) * blocks, (name, told)
    assert found["JVM: Java heap: objects"] and found["thread stacks"]
    # The JIT's arenas are chunks, which come and go between the two looks.
    named = sum(size for name, size in found.items() if name.startswith("malloc: NMT") and name != "malloc: NMT Arena Chunk")
    assert named <= sum(size + (18 + 24) * blocks for size, blocks in tags.values()) + (1 << 20)
    of_core = table(process, "core", "JVM")
    assert of_core["malloc: NMT Other"] == found["malloc: NMT Other"]
    assert abs(of_core["JVM: Java heap: objects"] - found["JVM: Java heap: objects"]) < 1 << 20  # jcmd was there between


def test_perl(stage: Stage) -> None:
    """A scalar's head is 24 bytes, and 200,000 scalars are kept: so much is its own, and its few others beside."""
    need("perl")
    process = stage.spawn_ready(["perl", "-e", '$| = 1; my @kept; push @kept, $_ for 1 .. 200000; print "ready\\n"; <STDIN>;'])
    for kind in ("live", "core"):
        found = table(process, kind, "Perl", *(("--deep",) if kind == "live" else ()))
        assert 24 * 200000 <= found["malloc: heads of scalars, and blocks that they alone reference"] <= 27 * 200000


def steps(process: Process, kind: str) -> List[str]:
    """What it tells to type."""
    return [one["command"] for one in heapx(process.target(kind), "report", "--json").data["next"]]


def test_where_it_is_not_looked_at(stage: Stage) -> None:
    """A living process is not looked at with --no-deep, nor a large one unasked; a program without a runtime has no table."""
    python = stage.spawn([sys.executable, "-S", "-c", "print('ready', flush=True); input()"])
    shell = stage.spawn(["bash", "-c", "echo ready; read x"])
    for process in (python, shell):
        process.wait_ready()
    assert "report --deep" not in steps(shell, "live")
    assert heapx(python.target("live"), "report", "--no-deep", "--json").data["runtimes"] is None
    assert [table["name"] for table in heapx(python.target("live"), "report", "--json").data["runtimes"]] == ["CPython"]
    assert heapx(shell.target("live"), "report", "--json", "--deep").data["runtimes"] == []
    assert " by use" not in heapx(shell.target("live"), "report", "--deep").stdout.decode()
    assert "CPython: memory in the core by use" in heapx(python.target("core"), "report").stdout.decode()
