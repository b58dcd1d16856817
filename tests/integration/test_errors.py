"""Errors are one line with cause and next step, exit code 1; wrong usage is 2."""

import os
import shutil
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.processes import Stage
from tests.support.tool import Outcome, heapx, run

pytestmark = pytest.mark.image  # what its gdb does with wrong targets


def one_line(outcome: Outcome) -> str:
    """The error: exit code 1, one line of our own on standard error."""
    assert outcome.code == 1, (outcome.code, outcome.stdout[:300], outcome.stderr[-500:])
    lines = outcome.stderr.strip().splitlines()
    assert lines
    return lines[-1]


def test_executable_that_does_not_match(stage: Stage, core: str) -> None:
    """--exe with another program than the core's is refused or reported, never silently believed."""
    process = stage.start("recorder", "1", "2000", "3")
    outcome = heapx([*process.target(core), "--exe", "/bin/bash"], "arenas", "--json")
    said = outcome.stderr + " ".join(problem["what"] for problem in outcome.envelope["problems"])
    assert outcome.code in (1, 4)
    assert "match" in said or "build-id" in said, said


def test_not_permitted(stage: Stage) -> None:
    """A process of somebody else is refused with the reason and what to do."""
    if os.getuid() != 0:
        outcome = heapx(["--pid", "1"], "arenas")
    else:
        if not shutil.which("setpriv"):
            pytest.skip("setpriv (util-linux) is not installed, so privileges cannot be dropped")
        process = stage.start("untouched")
        # The checkout may lie where only root can look, so the tool runs from a copy.
        copy = stage.folder()
        copy.chmod(0o755)
        for name in ("gdbheapx", "commands"):
            shutil.copytree(ROOT / name, copy / name)
        environment = {"HOME": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(copy)}
        tool = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-m", "gdbheapx"]
        outcome = run([*tool, "--pid", str(process.pid), "arenas"], env=environment, cwd=Path("/"))
    assert "permi" in one_line(outcome).lower() or "ptrace" in outcome.stderr.lower()


def test_no_gdb(stage: Stage, core: str, folder: Path) -> None:
    """Without gdb the shell's command says so and names the package."""
    process = stage.start("untouched")
    line = one_line(heapx([*process.target(core), "--gdb", str(folder / "no-gdb")], "arenas"))
    assert "gdb" in line


def test_process_that_ended(stage: Stage) -> None:
    """A zombie has no memory: one line, exit code 1."""
    process = stage.start("untouched")
    process.popen.stdin.close()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    one_line(heapx(["--pid", str(process.pid)], "arenas"))


def test_no_debug_info_names_what_is_missing(stage: Stage, core: str) -> None:
    """--no-debug-info: whatever can be answered is; otherwise the error names the build-id and how to get the file."""
    process = stage.start("recorder", "1", "2000", "3")
    outcome = heapx([*process.target(core), "--no-debug-info"], "arenas", "--json")
    if outcome.code == 1:
        assert "debug" in outcome.stderr
    else:
        assert outcome.envelope["allocators"][0]["layout"] != "debug-info"
