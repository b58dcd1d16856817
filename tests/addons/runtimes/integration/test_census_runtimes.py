"""`census` of runtimes whose blocks are told by one row each, and which JavaScript holds node's ArrayBuffers.

Files: addons/runtimes/v8/__init__.py, addons/runtimes/v8/buffer_holders.py.
"""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.gcores import gcore
from tests.support.javas import JAVA
from tests.support.processes import Process, Stage
from tests.support.tool import alone, heapx

pytestmark = pytest.mark.once  # programs that nobody here wrote; the rows are the tool's own

STILL = ("Symbol", "Module", "Other", "Metaspace")
"""Kinds of memory that neither the JIT nor jcmd itself takes between two looks."""


def rows(process: Process) -> Dict[str, Any]:
    """By signature."""
    return {row["signature"]: row for row in alone(process.target("live"), "census", "--json").envelope["data"]["rows"]}


def test_java(stage: Stage) -> None:
    """Blocks by the tag in their headers are as many as jcmd says."""
    if not shutil.which("java") or not shutil.which("jcmd"):
        pytest.skip("java and jcmd are not installed")
    folder = stage.folder()
    (folder / "Big.java").write_text(JAVA)
    command = ["java", "-Xmx256m", "-XX:NativeMemoryTracking=summary", "Big.java"]
    process = stage.spawn_ready(command, folder)
    found = rows(process)
    told = subprocess.run(["jcmd", str(process.pid), "VM.native_memory", "summary", "scale=b"], capture_output=True, text=True).stdout
    counts = dict(re.findall(r"- +([A-Z][A-Za-z ]+?) \(reserved.*\n(?:(?! *-).*\n)*? +\(malloc=\d+ #(\d+)\)", told))
    for name in STILL:
        assert found["NMT " + name]["blocks"] == int(counts[name]), (name, told)
    named = sum(row["bytes"] for row in found.values() if row["module"] == "jvm")
    assert named >= sum(row["bytes"] for row in found.values()) * 0.9


def test_perl(stage: Stage) -> None:
    """Arenas of heads hold the program's scalars."""
    if not shutil.which("perl"):
        pytest.skip("perl is not installed")
    process = stage.spawn_ready(["perl", "-e", '$| = 1; @kept = map { [$_] } 1 .. 50000; print "ready\\n"; sleep 1000'])
    arenas = rows(process)["arena of 170 SV heads"]["blocks"]
    assert 150_000 <= 170 * arenas <= 250_000  # an array, a reference to it and a number each


PROGRAM = (Path(__file__).parents[1] / "programs" / "rows.js").read_text()
HELD = {
    "ArrayBuffer of cache.get() (Map) in shop.js": (1000, 40000),
    "ArrayBuffer of store.items[] (Store) in shop.js": (300, 30000),
    "ArrayBuffer of globalThis.shared[] (Array)": (100, 24000),
}


@pytest.mark.parametrize("kind", ["live", "core"])
def test_holders_of_buffers(stage: Stage, kind: str) -> None:
    """Each group has its buffers, and what malloc has for them; a block of one is held by its Map's name and key."""
    program, folder = shutil.which("node") or pytest.skip("node is not installed"), stage.folder()
    (folder / "shop.js").write_text(PROGRAM)
    process = stage.spawn_ready([str(program), "--expose-gc", "shop.js"], folder)
    target: List[str] = (
        process.target("live") if kind == "live" else ["--core", str(gcore(process)), "--exe", str(Path(str(program)).resolve())]
    )
    data = heapx(target, "owners", "--json").data
    fields = {row["field"]: row for row in data["fields"]}
    if not fields:
        pytest.skip("this node exports no v8dbg_ constants that are known")
    for name, (count, size) in HELD.items():
        assert fields[name]["blocks"] == fields[name]["objects"] == count
        assert count * size <= fields[name]["bytes"] <= count * (size + 64)
        assert fields[name]["runtime"] == "JavaScript" and fields[name]["garbage_objects"] is None
    assert fields["ArrayBuffer of cache.get() (Map) in shop.js"]["retained_bytes"] >= 0.9 * 40000 * 1000
    blocks = heapx(target, "chunks", "--min-size", "40000", "--max-size", "40064", "--limit", "3", "--json").data["chunks"]
    texts = [heapx(target, "refs", "0x%x" % (int(block["address"], 16) + 16)).stdout.decode() for block in blocks]
    assert any('<- ArrayBuffer of cache.get("key' in text for text in texts)
