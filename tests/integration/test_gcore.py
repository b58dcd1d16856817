"""Cores that have zeros where nothing was in memory: by gdb's gcore, and copies without holes. They tell what the living process told."""

from typing import Any, Dict, List

import pytest

from tests.support.gcores import differences, gcore, shares, without_holes
from tests.support.jemallocs import library
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # what gdb and the kernel leave in a core, and the tool's own rules

MIB = 1 << 20
SHARE_POINTS = 3.0
THREADS = 8


def start(stage: Stage, allocator: str) -> Process:
    """The program on one allocator or the other; jemalloc keeps the addresses that it gives back."""
    env = {"LD_PRELOAD": str(library()), "MALLOC_CONF": "dirty_decay_ms:0,muzzy_decay_ms:0,retain:true"} if allocator == "jemalloc" else {}
    return stage.start("reserves", str(THREADS), env={**env, "MALLOC_ARENA_MAX": str(THREADS + 1)})


def report(*target: str) -> Dict[str, Any]:
    found: Dict[str, Any] = heapx(target, "report", "--json").data_beside_own_memory
    return found


def held(data: Dict[str, Any], allocator: str) -> int:
    return int(data["memory"]["allocators"][allocator])


@pytest.mark.parametrize("allocator", ["glibc", "jemalloc"])
def test_zeros_are_no_memory(stage: Stage, core: str, allocator: str) -> None:
    """By gdb, by the kernel, and copied without its holes: the shares and the verdict are the living process's, and zeros are told beside them."""
    process = start(stage, allocator)
    live = report("--pid", str(process.pid))
    kept, anonymous, shared = process.words()[:3]
    assert live["verdict"]["code"] == "in-use" and kept <= held(live, allocator) < kept + 8 * MIB
    by_gdb = gcore(process)
    zeros: List[int] = []
    for path in (by_gdb, process.core(), without_holes(process.core())):
        found = report("--core", str(path))
        sums = found["memory"]
        assert found["verdict"]["code"] == live["verdict"]["code"], path.name
        assert not differences(shares(live), shares(found), SHARE_POINTS), (path.name, shares(live), shares(found))
        assert abs(held(found, allocator) - held(live, allocator)) < MIB, path.name
        assert anonymous <= sums["anonymous_bytes"] < anonymous + MIB and shared <= sums["shared_memory_bytes"] < shared + MIB, path.name
        assert sum(part["dumped_bytes"] for part in found["split"]) == sums["total_bytes"]
        zeros.append(sums["zero_bytes"])
        path.unlink()
    assert live["memory"]["zero_bytes"] is None
    assert zeros[0] > 500 * MIB and 59 * MIB < zeros[1] < 62 * MIB and zeros[2] > 250 * MIB, "the kernel writes untouched shared memory as zeros, and nothing else"


def test_out_of_time(stage: Stage, core: str) -> None:
    """Where --max-seconds ends the look for zeros that is said, with the address from which on all counts; a core whose holes tell needs none."""
    process = start(stage, "glibc")
    dense = without_holes(process.core())
    envelope = heapx(["--core", str(dense)], "report", "--json", "--max-seconds", "0.0001").envelope
    assert envelope["partial"] and any(problem["code"] == "zero-pages-not-searched" and problem["where"] for problem in envelope["problems"])
