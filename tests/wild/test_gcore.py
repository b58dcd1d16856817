"""Programs nobody here wrote in a core by gdb's gcore and in one by the kernel: what is told of them is what is told of the living process."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from harness import Process, Stage, heapx
from test_whose_memory import PROGRAMS, start

pytestmark = pytest.mark.wild  # Java, node, PHP, Erlang; cores of some GB

SHARE_POINTS = 4.0
"""Shares of the whole may differ by so many points: pages of files are in RAM and not in a core."""


def gcore(process: Process) -> Path:
    """A core of the living process by gdb."""
    if not shutil.which("gcore"):
        pytest.skip("gcore is not installed")
    made = process.folder / "gcore"
    subprocess.run(["gcore", "-o", str(made), str(process.pid)], check=True, capture_output=True)
    return Path("%s.%d" % (made, process.pid))


def own(data: Dict[str, Any]) -> Dict[str, float]:
    """The shares of each kind in what no file holds: read-only file pages are in few cores."""
    sums: Dict[str, int] = {}
    for part in data["split"]:
        if part["kind"] not in ("page-cache", "private-file", "kernel", "device"):
            name = part["program"] or part["allocator"] or part["kind"]
            sums[name] = sums.get(name, 0) + (part["resident_bytes"] or part["dumped_bytes"] or 0)
    return {name: 100.0 * value / sum(sums.values()) for name, value in sums.items()}


def differences(one: Dict[str, float], other: Dict[str, float]) -> Dict[str, float]:
    return {name: round(other.get(name, 0.0) - one.get(name, 0.0), 1) for name in {*one, *other} if abs(other.get(name, 0.0) - one.get(name, 0.0)) > SHARE_POINTS}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_a_core_tells_what_the_process_told(stage: Stage, core: str, name: str) -> None:
    """The same verdict, and the same shares but for a few points, by gcore, by the kernel, and in a copy of the kernel's core without holes."""
    process = start(stage, PROGRAMS[name])
    told: List[Optional[str]] = []
    live = heapx(["--pid", str(process.pid)], "report", "--json").envelope["data"]
    by_gdb = gcore(process)
    by_kernel = process.core()
    dense = process.folder / "dense"
    subprocess.run(["cp", "--sparse=never", str(by_kernel), str(dense)], check=True)
    for path in (by_gdb, by_kernel, dense):
        data = heapx(["--core", str(path)], "report", "--json").envelope["data"]
        print(path.name, {key: round(value, 1) for key, value in own(data).items()}, data["memory"]["zero_bytes"], data["verdict"]["code"])
        told.append(data["verdict"]["code"])
        assert not differences(own(live), own(data)), (path.name, own(live), own(data))
        path.unlink()
    assert told == [live["verdict"]["code"]] * 3
