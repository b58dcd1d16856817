"""How a process ended that was being read: what waitpid, a zombie's stat and the counters of its memory cgroups tell."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator, Optional

import pytest

from gdbheapx.common import problems
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.headroom import Deaths
from tests.support.cgroup_files import V2_MOUNT, Machine, v2

SLEEPS = "import time; print(flush=True); time.sleep(100)"


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    """A process of ours that runs until it is told otherwise."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEPS], stdout=subprocess.PIPE) as made:
        assert made.stdout
        made.stdout.readline()
        yield made
        made.kill()


def exited(code: int) -> int:
    """In the form of wait(2)."""
    return code << 8


@pytest.mark.parametrize(
    "status, code, said",
    [
        (exited(0), problems.PROCESS_EXITED, "exited with code 0"),
        (exited(7), problems.PROCESS_EXITED, "exited with code 7"),
        (signal.SIGSEGV, problems.PROCESS_KILLED, "killed by signal 11 (SIGSEGV)"),
        (signal.SIGKILL, problems.PROCESS_KILLED, "killed by signal 9 (SIGKILL)"),
        (signal.SIGABRT | 0x80, problems.PROCESS_KILLED, "killed by signal 6 (SIGABRT)"),
        (33, problems.PROCESS_KILLED, "killed by signal 33 (unknown)"),
    ],
)
def test_what_its_tracer_was_told(child: "subprocess.Popen[bytes]", status: int, code: problems.ProblemCode, said: str) -> None:
    """An exit and a signal are two things; a core that was written (0x80) changes nothing."""
    deaths = Deaths(child.pid)
    deaths.status = status
    cause = deaths.cause()
    assert cause.code == code and said in cause.what and cause.hint


def test_a_zombie_tells_it(child: "subprocess.Popen[bytes]") -> None:
    """Nobody has asked for its status yet, and no tracer was told."""
    deaths = Deaths(child.pid)
    child.terminate()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    cause = deaths.cause()
    assert cause.code == problems.PROCESS_KILLED and "signal 15 (SIGTERM)" in cause.what


def test_gone_without_a_trace(child: "subprocess.Popen[bytes]") -> None:
    """Its parent has asked: nothing is left that tells how."""
    deaths = Deaths(child.pid)
    child.kill()
    child.wait()
    assert deaths.cause().code == problems.PROCESS_ENDED


@pytest.mark.parametrize("status, is_for_memory", [(None, True), (signal.SIGKILL, True), (signal.SIGSEGV, False)])
@pytest.mark.parametrize("where", ["a", "a/b"])
def test_killed_for_memory(tmp_path: Path, status: Optional[int], is_for_memory: bool, where: str) -> None:
    """Its group, or one above it, counts one kill more; but no other signal is the kernel's."""
    machine = Machine(tmp_path)
    machine.process("0::/a/b\n", V2_MOUNT % ("/", machine.top))
    for path in ("", "a", "a/b"):
        machine.group(path, {**v2(1 << 26, 1 << 25), "memory.events": "low 0\noom 3\noom_kill 2"} if path else {})
    deaths = Deaths(7, machine.files)
    machine.group(where, {"memory.events": "low 0\noom 4\noom_kill 3"})
    deaths.status = status
    cause = deaths.cause()
    assert (cause.code == problems.PROCESS_OUT_OF_MEMORY) == is_for_memory
    assert not is_for_memory or ("memory cgroup /%s " % where in cause.what and "limit" in (cause.hint or ""))


def test_others_were_killed_before(tmp_path: Path) -> None:
    """Kills that were counted before the look are none of this process."""
    machine = Machine(tmp_path)
    machine.process("0::/a\n", V2_MOUNT % ("/", machine.top))
    machine.group("a", {**v2(1 << 26, 1 << 25), "memory.events": "oom_kill 2"})
    deaths = Deaths(7, machine.files)
    deaths.status = signal.SIGKILL
    assert deaths.cause().code == problems.PROCESS_KILLED


def test_names_with_brackets_and_blanks(tmp_path: Path) -> None:
    """Fields are counted from the last bracket: a name may hold any."""
    program = tmp_path / "a) Z (b"
    program.symlink_to(sys.executable)
    with subprocess.Popen([str(program), "-I", "-S", "-c", SLEEPS], stdout=subprocess.PIPE) as made:
        try:
            assert made.stdout and made.stdout.readline() and procfs.read_stat(made.pid)[0] in (b"S", b"R")
        finally:
            made.kill()
