"""What a process may still get: by its memory cgroup of either version, by those above it, by the machine; unknown where one cannot be seen.

How a process ended that was being read: what waitpid, a zombie's stat and the counters of its memory cgroups tell.

Files: inferior/live/headroom.py.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Dict, Iterator, Optional

import pytest

from gdbheapx.common import problems
from gdbheapx.inferior.live import headroom, procfs
from gdbheapx.inferior.live.headroom import Deaths, find_headroom
from tests.support.cgroup_files import PID, V1_MOUNT, V2_MOUNT, Machine, v2

MIB = 1 << 20


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """One without groups so far."""
    return Machine(tmp_path)


def v1(memory: int, used: int, **more: int) -> Dict[str, object]:
    """A group of version 1."""
    swap = {"memory.memsw.%s_in_bytes" % name: value for name, value in more.items()}
    return {"memory.limit_in_bytes": memory, "memory.usage_in_bytes": used, **swap}

NEVER = 0x7FFFFFFFFFFFF000


@pytest.mark.parametrize(
    "above, own, left",
    [
        (v2("max", 900 * MIB), v2("max", 900 * MIB), None),
        (v2("max", 900 * MIB), v2(100 * MIB, 60 * MIB), 40),
        (v2(200 * MIB, 190 * MIB), v2(100 * MIB, 60 * MIB), 10),
        (v2("max", 1), v2(100 * MIB, 60 * MIB, 70 * MIB), 10),
        (v2(50 * MIB, 90 * MIB), v2("max", 60 * MIB), 0),
        (v2(50 * MIB, 20 * MIB), {"cgroup.events": "populated 1"}, 30),
    ],
    ids=["no limit", "own", "above is nearer", "high", "above its limit", "controller only above"],
)
def test_of_version_2(machine: Machine, above: Dict[str, object], own: Dict[str, object], left: Optional[int]) -> None:
    """memory.max and memory.high of the group and of all above it: the nearest counts; none means what the machine has left."""
    machine.process("0::/kube/pod/box\n", V2_MOUNT % ("/", machine.top))
    machine.group("/", {"cgroup.controllers": "memory"})
    machine.group("/kube", above)
    machine.group("/kube/pod/box", own)
    found = find_headroom(PID, machine.files)
    assert found.is_known and found.left_bytes == (16 << 30 if left is None else left * MIB)


def test_clean_pages_of_files_are_no_use(machine: Machine) -> None:
    """The kernel drops clean pages of files that nobody uses at once; those that must be written first it cannot."""
    machine.process("0::/box\n", V2_MOUNT % ("/", machine.top))
    machine.group("/box", v2(100 * MIB, 100 * MIB), {"inactive_file": 50 * MIB, "file_dirty": 20 * MIB, "file_writeback": 5 * MIB})
    assert find_headroom(PID, machine.files).left_bytes == 25 * MIB
    machine.group("/box", {}, {"inactive_file": 5 * MIB, "file_dirty": 20 * MIB})
    assert find_headroom(PID, machine.files).left_bytes == 0


@pytest.mark.parametrize(
    "own, left",
    [
        (v1(100 * MIB, 60 * MIB), 40),
        (v1(100 * MIB, 60 * MIB, limit=130 * MIB, usage=125 * MIB), 5),
        (v1(100 * MIB, 60 * MIB, limit=NEVER, usage=125 * MIB), 40),
        (v1(NEVER, 60 * MIB), None),
    ],
    ids=["memory", "memory and swap", "no limit of both", "none"],
)
def test_of_version_1(machine: Machine, own: Dict[str, object], left: Optional[int]) -> None:
    """On a machine that mounts both, the memory controller is the one of version 1."""
    machine.process("4:cpu,memory:/job/box\n0::/\n", V2_MOUNT % ("/", machine.top / "unified"), V1_MOUNT % ("/", machine.top / "memory"))
    machine.group("/memory", {"cgroup.sane_behavior": 0, **v1(NEVER, 5)})
    machine.group("/memory/job", v1(NEVER, 5))
    machine.group("/memory/job/box", own)
    found = find_headroom(PID, machine.files)
    assert found.is_known and found.left_bytes == (16 << 30 if left is None else left * MIB)


def test_the_machine_counts(machine: Machine) -> None:
    """What the machine has left is a bound as well."""
    machine.write(machine.proc / "meminfo", "MemAvailable: 1024 kB\n")
    machine.process("0::/box\n", V2_MOUNT % ("/", machine.top))
    machine.group("/box", v2(100 * MIB, 60 * MIB))
    assert find_headroom(PID, machine.files).left_bytes == MIB


@pytest.mark.parametrize(
    "lines, mounts",
    [
        ("0::/\n", [V2_MOUNT % ("/", "%s")]),
        ("0::/box\n", []),
        ("4:memory:/docker/ab\n0::/\n", [V2_MOUNT % ("/", "%s")]),
        ("4:memory:/docker/ab\n", [V1_MOUNT % ("/docker/ab", "%s")]),
        ("0::/../other\n", [V2_MOUNT % ("/", "%s")]),
        ("4:memory:/docker/abc\n", [V1_MOUNT % ("/docker/ab", "%s")]),
    ],
    ids=["its own namespace", "nothing mounted", "v1 not mounted", "only its own subtree", "a neighbour's", "a name that only begins so"],
)
def test_what_a_container_does_not_show_is_unknown(machine: Machine, lines: str, mounts: "list[str]") -> None:
    """Groups that cannot be seen from here may have any limit: nothing is left, and it is said to be unknown."""
    machine.process(lines, *[one % machine.top for one in mounts])
    machine.group("/", {**v2(100 * MIB, 60 * MIB), **v1(100 * MIB, 60 * MIB)}, {"hierarchical_memory_limit": 100 * MIB})
    found = find_headroom(PID, machine.files)
    assert not found.is_known and not found.left_bytes


def test_a_limit_without_its_use_is_unknown(machine: Machine) -> None:
    """A limit whose use cannot be read is none that has room."""
    machine.process("0::/box\n", V2_MOUNT % ("/", machine.top))
    machine.group("/box", {"memory.max": 100 * MIB, "cgroup.events": ""})
    assert not find_headroom(PID, machine.files).is_known


def test_blanks_in_a_mount(machine: Machine) -> None:
    """mountinfo writes blanks as octal."""
    top = machine.top / "a b"
    machine.process("0::/box\n", V2_MOUNT % ("/", str(top).replace(" ", "\\040")))
    machine.group("/a b/box", v2(100 * MIB, 60 * MIB))
    assert find_headroom(PID, machine.files).left_bytes == 40 * MIB


def test_no_groups_at_all(machine: Machine) -> None:
    """A kernel without cgroups has the machine's memory as the only bound."""
    assert find_headroom(PID, machine.files) == headroom.Headroom(16 << 30, find_headroom(PID, machine.files).by)


# ------------------------------------------------------------------------------------------------ what of it may be taken


@pytest.fixture
def room(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> headroom.LiveSwapRoom:
    """Of a process in a group of 100 MiB that has 60 of them, and 200 in swap."""
    machine.process("0::/box\n", V2_MOUNT % ("/", machine.top))
    machine.group("/box", v2(100 * MIB, 60 * MIB))
    machine.swapped(200 * MIB)
    found, swapped = headroom.find_headroom, headroom.swapped_bytes
    monkeypatch.setattr(headroom, "find_headroom", lambda pid: found(pid, machine.files))
    monkeypatch.setattr(headroom, "swapped_bytes", lambda pid: swapped(pid, machine.files))
    monkeypatch.setattr(headroom, "machine_swap_bytes", lambda: MIB)
    monkeypatch.setattr(headroom, "FRESH_S", 0.0)
    return headroom.LiveSwapRoom(PID)


def test_half_of_it_is_left(room: headroom.LiveSwapRoom) -> None:
    """No more than half of what is left is taken; the rest is refused, and told with the bytes and the limit."""
    assert not room.problems()
    taken = [room.take(4 * MIB, 4096) for _ in range(10)]
    assert sum(taken) == 20 * MIB and room.refused
    (problem,) = room.problems()
    assert problem.code == "in-swap" and "200.0 MiB" in problem.what and "/box" in problem.what and "--read-swap" in (problem.hint or "")


def test_what_others_take_is_gone(room: headroom.LiveSwapRoom, machine: Machine) -> None:
    """It is measured again while pages come in: less where others have grown, never more within one look."""
    assert room.take(4096, 4096) == 4096
    machine.group("/box", {"memory.current": 79 * MIB})
    assert room.take(5 * MIB, 4096) == MIB
    machine.group("/box", {"memory.current": 0})
    assert room.take(5 * MIB, 4096) == 0


def test_nothing_in_swap_costs_nothing(room: headroom.LiveSwapRoom, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """With VmSwap 0 no limit is looked up; a few pages that go to swap meanwhile may be read."""
    machine.swapped(0)
    monkeypatch.setattr(headroom, "find_headroom", lambda pid: pytest.fail("limits were looked up"))
    assert room.lacking() is None and room.has_room_for_all() and room.take(4096, 4096) == 4096
    assert room.take(MIB, 4096) < MIB and room.refused and not room.is_without_swap


def test_without_any_swap_nothing_is_refused(room: headroom.LiveSwapRoom, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page table calls swapped there is being moved within RAM (mm/migrate.c), hundreds of pages at a time."""
    machine.swapped(0)
    monkeypatch.setattr(headroom, "machine_swap_bytes", lambda: 0)
    room = headroom.LiveSwapRoom(PID)
    assert room.take(20 * MIB, 4096) == 20 * MIB and room.is_without_swap and not room.problems()


def test_all_of_it_where_the_user_says_so(room: headroom.LiveSwapRoom) -> None:
    """--read-swap."""
    assert room.lacking() is not None and not room.has_room_for_all()
    room.accept()
    assert room.take(200 * MIB, 4096) == 200 * MIB and room.lacking() is None and room.has_room_for_all()


def test_all_of_it_where_it_fits(room: headroom.LiveSwapRoom, machine: Machine) -> None:
    """What fits into half of what is left is read."""
    machine.swapped(19 * MIB)
    assert room.lacking() is None and room.take(19 * MIB, 4096) == 19 * MIB and not room.problems()

SLEEPS = "import time; print(flush=True); time.sleep(100)"


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    """A process of ours that runs until it is told otherwise."""
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", SLEEPS], stdout=subprocess.PIPE) as made:
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
