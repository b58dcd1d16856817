"""tcmalloc and another allocator in one process, or two copies of it: each is read, and each byte belongs to one of them."""

import shutil
import signal
import sys
from itertools import combinations
from typing import Any, Dict

import pytest

from tests.support.jemalloc_inside import Inside, inside
from tests.support.processes import Process, Stage, by_turns
from tests.support.tcmallocs import library
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # this system's libtcmalloc

MB = 1 << 20
INSIDE = {"in the program": Inside(prefix="xy_"), "in a loaded library": Inside(prefix="xy_", library=True)}
TWO = """
import ctypes, os, sys
other = ctypes.CDLL(sys.argv[1], mode=os.RTLD_DEEPBIND | os.RTLD_NOW)
other.tc_malloc.restype = ctypes.c_void_p
blocks = [other.tc_malloc(1000) for _ in range(20000)]
for block in blocks:
    ctypes.memset(block, 1, 1000)
print("ready", flush=True)
sys.stdin.read()
"""


def check(process: Process, kind: str, *names: str) -> Dict[str, Any]:
    """Each allocator is read whole, no range is claimed by two, and the report's parts add up to RSS, or to what the core has. The totals of each."""
    target = process.target(kind)
    envelope = heapx(target, "report", "--json").envelope
    assert sorted(info["id"] for info in envelope["allocators"]) == sorted(names) and not envelope["partial"], envelope["problems"]
    rows = {name: heapx(target, "chunks", "--allocator", name, "--json").data["chunks"] for name in names}
    blocks = {name: [(int(row["address"], 0), row["usable_bytes"]) for row in rows[name]] for name in names}
    for one, other in combinations(names, 2):
        ends = sorted((start, start + size, name) for name in (one, other) for start, size in blocks[name])
        assert not [pair for pair in zip(ends, ends[1:]) if pair[0][1] > pair[1][0] and pair[0][2] != pair[1][2]]
    memory = envelope["data"]["memory"]
    parts = ("allocator", "stack", "file", "anonymous", "shared_memory", "device")
    assert sum(memory["allocators"].values()) == memory["allocator_bytes"] and set(names) >= set(memory["allocators"])
    assert sum(memory[part + "_bytes"] for part in parts) == memory["total_bytes"], memory
    totals: Dict[str, Any] = envelope["data"]["totals"]
    return totals


@by_turns("way", INSIDE)
def test_with_a_jemalloc(stage: Stage, kind: str, way: str) -> None:
    """It is preloaded, and the program has a jemalloc under names of its own."""
    process = inside(stage, INSIDE[way], 40, env={"LD_PRELOAD": str(library())})
    totals = check(process, kind, "tcmalloc", "jemalloc", "glibc")
    assert totals["jemalloc"]["allocated_bytes"] >= 15 * MB and totals["tcmalloc"]["system_bytes"] > 0


def test_two_copies(stage: Stage, kind: str) -> None:
    """One owns malloc; the other is loaded by a library for itself. 2.16 and later end with a signal then, whoever looks."""
    path = stage.folder() / "libtcmalloc_minimal.so.4"
    shutil.copy(library(), path)
    process = stage.spawn([sys.executable, "-c", TWO, str(path)], env={"LD_PRELOAD": str(library()), "PYTHONMALLOC": "malloc"})
    try:
        process.wait_ready()
    except AssertionError:
        if process.popen.wait(60) in (-signal.SIGSEGV, -signal.SIGILL, -signal.SIGABRT):
            pytest.skip("this tcmalloc does not live beside a copy of itself")
        raise
    totals = check(process, kind, "tcmalloc", "tcmalloc#2", "glibc")
    assert totals["tcmalloc#2"]["used_bytes"] >= 20000 * 1000 and totals["tcmalloc"]["used_bytes"] > MB
