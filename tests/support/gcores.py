"""Cores made in other ways than by the kernel, and what the split of one is held against."""

import subprocess
from pathlib import Path
from typing import Any, Dict

from tests.support.processes import Process
from tests.support.programs import need

OF_FILES = ("page-cache", "private-file", "kernel", "device")
"""Kinds that a core holds or leaves out by its writer's rules, whatever was in RAM."""


def gcore(process: Process) -> Path:
    """A core of the living process by gdb."""
    need("gcore")
    made = process.folder / "gcore"
    subprocess.run(["gcore", "-o", str(made), str(process.pid)], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return Path("%s.%d" % (made, process.pid))


def without_holes(core: Path) -> Path:
    """A copy of a core that has zeros where it has holes."""
    made = core.with_suffix(".dense")
    subprocess.run(["cp", "--sparse=never", str(core), str(made)], check=True)
    return made


def shares(data: Dict[str, Any]) -> Dict[str, float]:
    """Of a `report`: the percentage that each owner has of all that no file holds."""
    sums: Dict[str, int] = {}
    for part in data["split"]:
        if part["kind"] not in OF_FILES:
            name = part["program"] or part["allocator"] or part["kind"].replace("brk", "anonymous")  # no core tells where the break was
            sums[name] = sums.get(name, 0) + (part["resident_bytes"] or part["dumped_bytes"] or 0)
    return {name: 100.0 * value / sum(sums.values()) for name, value in sums.items()}


def differences(one: Dict[str, float], other: Dict[str, float], points: float) -> Dict[str, float]:
    """Shares that differ by more than so many points of a hundred."""
    changed = {name: round(other.get(name, 0.0) - one.get(name, 0.0), 1) for name in {*one, *other}}
    return {name: value for name, value in changed.items() if abs(value) > points}
