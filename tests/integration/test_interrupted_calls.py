"""Calls that do not come back as they should: what is told is true, the registers are as before, and the process goes on.

The checks before a call are left out here, inside gdb, so that it is made where it never would be.

Files: actions/gdb_control.py, actions/finisher.py.
"""

import json
import os
import re
import signal
import threading
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from gdbheapx.glibc import detect
from gdbheapx.inferior.arch import native_architecture
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.target import open_elf_target
from tests.support.paths import GDB, ROOT
from tests.support.processes import Builder, Stage
from tests.support.tool import Outcome, heapx, in_gdb, run
from tests.support.victims import SECONDS, Parked, check_free, start_parked, status, until

pytestmark = pytest.mark.image  # how its gdb ends calls

MACHINE: Any = native_architecture()
REGISTERS = "info registers"
MARK = "echo \\n---\\n"
UNCHECKED = """python
import gdbheapx.actions.calling as calling
from gdbheapx.glibc.plan import Trim
calling.BOUND_S = 1.0
calling.Call.look = lambda self: self.control.threads()
Trim.predict = lambda self: calling.Predicted(0, 0, 0)
%s
end
"""
NOT_INSIDE = "calling.Call.choose = lambda self, threads, system_call_only: (next(one for one in threads if one.lwp == %d), [])"
IN_WAY = {"gdb-call": "", "register-call": "from gdbheapx.actions.gdb_control import GdbControl\nGdbControl.probe = lambda self, lwp: 'Could not write'\n"}
CALLS_FAIL = """python
import gdbheapx.actions.calling as calling
import gdbheapx.inferior.gdb.inferior as inferior
%sclass Refusing:
    def __getattr__(self, name):
        return getattr(gdb, name)
    def parse_and_eval(self, text):
        if "48271" in text or "0xbc8f" in text:
            raise gdb.error("Cannot insert breakpoint 0.")
        return gdb.parse_and_eval(text)
    def execute(self, text, *more):
        if text == "set $FIRST = 48271":
            raise gdb.error("Cannot insert breakpoint 0.")
        return gdb.execute(text, *more)
inferior.gdb = Refusing()
end
""".replace("FIRST", MACHINE.calling.arguments[0] if MACHINE.calling is not None else "no register")


def unchecked(parked: Parked, folder: Path, way: str, *before: str, more: str = "") -> Dict[str, Any]:
    """trim without its checks, after commands of gdb; its data. gdb's registers, settings and signals are as before."""
    script, answer = folder / "unchecked.gdb", folder / "answer"
    script.write_text(UNCHECKED % (IN_WAY[way] + more))
    state = [MARK, REGISTERS, "show scheduler-locking", "show unwindonsignal", "info signals SIGINT", "info signals SIGABRT", "info breakpoints", MARK]
    outcome = in_gdb(parked.process.target("live"), ["source %s" % script, *before, *state, "heapx trim --yes --json -o %s" % answer, *state])
    parts = outcome.stdout.decode().split("\n---\n")
    assert parts[1] == parts[3], outcome.stderr
    envelope = json.loads(answer.read_text())
    assert envelope["partial"] and envelope["problems"][0]["what"] == envelope["data"]["trouble"] and envelope["data"]["way"] == way
    return dict(envelope["data"])


def shell_unchecked(parked: Parked, folder: Path, way: str, more: str = "") -> Outcome:
    """The same from a shell, where the tool attaches and detaches by itself."""
    script, gdb = folder / "unchecked.gdb", folder / "gdb"
    script.write_text(UNCHECKED % (IN_WAY[way] + more))
    gdb.write_text("#!/bin/sh\nPYTHONPATH=%s exec %s -iex 'source %s' \"$@\"\n" % (ROOT, GDB, script))
    gdb.chmod(0o755)
    return heapx(["--pid", str(parked.pid), "--gdb", str(gdb)], "trim", "--yes", "--json")


def mutex_of(parked: Parked) -> int:
    """Address of the main arena's mutex, the first member of malloc_state in every release."""
    return detect.find_glibc_copies(open_elf_target(pid=parked.pid))[0].main_arena.address


def put(parked: Parked, address: int, value: int) -> None:
    """Write a word of the process."""
    with open("/proc/%d/mem" % parked.pid, "r+b", buffering=0) as memory:
        memory.seek(address)
        memory.write(value.to_bytes(4, "little"))


@pytest.fixture(scope="session")
def own_way(builder: Builder, attach_reason: str) -> str:
    """How calls are made here, by what the tool says of one: `register-call` where gdb cannot write this CPU's registers."""
    if attach_reason:
        pytest.skip(attach_reason)
    stage = Stage(builder)
    try:
        return str(heapx(stage.start("trimmer", "main").target("live"), "trim", "--yes", "--json").data["way"])
    finally:
        stage.close()


@pytest.fixture(params=["gdb-call", "register-call"])
def way(request: pytest.FixtureRequest, own_way: str) -> str:
    """Each case runs in both ways; gdb's own is left out where the tool does not take it."""
    if request.param == "gdb-call" and own_way != "gdb-call":
        pytest.skip("every call is a %s here" % own_way)
    return str(request.param)


def has_second_chance(way: str) -> bool:
    """gdb 10 takes its own calls off the stack itself when a signal ends them."""
    return way == "register-call" or python_knows_hardware_breakpoints()


def python_knows_hardware_breakpoints() -> bool:
    """gdb 11 and newer."""
    outcome = run([GDB, "-nx", "-q", "-batch", "-ex", "python print(hasattr(gdb, 'BP_HARDWARE_BREAKPOINT'))"])
    return b"True" in outcome.stdout


def test_lock_that_nobody_leaves(stage: Stage, live: str, folder: Path, way: str) -> None:
    """The call waits for a lock for ever: it is given its time twice, broken off, and the answer names the lock that stays held."""
    parked = Parked(stage.start("victim_parked", "idle"))
    mutex = mutex_of(parked)
    put(parked, mutex, 1)
    data = unchecked(parked, folder, way)
    assert data["returned"] is None and "longer than 1 s" in data["trouble"] and "aborted" in data["trouble"], data["trouble"]
    assert ("did not complete with the other threads running" in data["trouble"]) is has_second_chance(way)
    assert "the lock of main_arena is still locked" in data["trouble"], data["trouble"]
    put(parked, mutex, 0)
    parked.go()


@pytest.mark.parametrize("state", ["idle", "damaged"])
def test_from_the_shell(stage: Stage, live: str, folder: Path, way: str, state: str) -> None:
    """A lock that nobody leaves, and a fault: the process is let go, lives and serves."""
    parked = Parked(stage.start("victim_parked", state))
    if state == "idle":
        mutex = mutex_of(parked)
        put(parked, mutex, 1)
    outcome = shell_unchecked(parked, folder, way)
    assert outcome.code == 4, outcome.stderr
    assert "the lock of main_arena is still locked" in outcome.envelope["data"]["trouble"]
    check_free(parked.process)
    if state == "idle":
        put(parked, mutex, 0)
        parked.go()
    else:
        parked.check_serves()


def test_interrupt_of_the_programs_own(stage: Stage, live: str, folder: Path, way: str) -> None:
    """A SIGINT that somebody sends the process during a call breaks the call off, and reaches the process after it."""
    parked = Parked(stage.start("victim_parked", "idle"))
    put(parked, mutex_of(parked), 1)
    interrupter = threading.Thread(target=interrupt_inside, args=(parked,))
    interrupter.start()
    outcome = shell_unchecked(parked, folder, way, more="calling.BOUND_S = 5.0")
    interrupter.join()
    assert outcome.code == 4 and "interrupted by a SIGINT" in outcome.envelope["data"]["trouble"], outcome.stderr
    assert parked.process.popen.wait(SECONDS) == -signal.SIGINT


def interrupt_inside(parked: Parked) -> None:
    """Send it while the call waits for the lock."""
    inside = "%d " % MACHINE.system_calls.numbers["futex"]
    system_call = Path("/proc/%d/task/%d/syscall" % (parked.pid, parked.pid))
    until(lambda: system_call.read_text().startswith(inside), lambda: "no call is made", parked.process)
    os.kill(parked.pid, signal.SIGINT)


def blocked_of(parked: Parked) -> str:
    """The signals that its main thread holds back."""
    return status(parked.pid, "SigBlk")


def kill_tracer(parked: Parked, killed: List[int], is_there: Callable[[], bool]) -> None:
    """SIGKILL for the gdb that holds it, as the kernel's OOM killer sends it, once this is so."""
    until(is_there, lambda: "no call is made", parked.process)
    killed.append(int(status(parked.pid, "TracerPid")))
    os.kill(killed[0], signal.SIGKILL)


def test_gdb_is_killed_in_the_middle_of_a_call(stage: Stage, live: str, folder: Path, way: str) -> None:
    """The call ends without it, and the process goes on: registers, signal mask and code are as before, and nobody holds it."""
    parked = Parked(stage.start("victim_parked", "idle"))
    before, mutex, killed = blocked_of(parked), mutex_of(parked), []  # type: str, int, List[int]
    put(parked, mutex, 1)
    system_call = Path("/proc/%d/task/%d/syscall" % (parked.pid, parked.pid))

    def inside() -> bool:
        words = system_call.read_text().split()
        if words[0] == "%d" % MACHINE.system_calls.numbers["futex"] and int(words[1], 16) == mutex:
            put(parked, mutex, 0)  # nobody wakes it: it sees that once the helper has stopped it
            return True
        return False

    killer = threading.Thread(target=kill_tracer, args=(parked, killed, inside))
    killer.start()
    outcome = shell_unchecked(parked, folder, way, more="calling.BOUND_S = 600.0")
    killer.join()
    assert killed and outcome.code, outcome.stderr
    until(lambda: status(parked.pid, "TracerPid") == "0", lambda: "it is still held", parked.process)
    assert blocked_of(parked) == before
    parked.go()
    assert not strange_code(parked.pid)


def test_gdb_is_killed_between_two_calls(stage: Stage, live: str, folder: Path, way: str) -> None:
    """The fault by which a call has come back is not handed to the process when gdb is gone."""
    parked, flag, killed = Parked(stage.start("victim_parked", "idle")), folder / "between", []  # type: Parked, Path, List[int]
    before = blocked_of(parked)
    waits = "calling.measure_process = lambda pid: (open(%r, 'w').close(), __import__('time').sleep(600))\n" % str(flag)
    killer = threading.Thread(target=kill_tracer, args=(parked, killed, flag.exists))
    killer.start()
    outcome = shell_unchecked(parked, folder, way, more=waits)
    killer.join()
    assert killed and outcome.code, outcome.stderr
    until(lambda: status(parked.pid, "TracerPid") == "0" and blocked_of(parked) == before, lambda: "it is not as before", parked.process)
    parked.go()
    assert not strange_code(parked.pid)


def strange_code(pid: int) -> List[str]:
    """Of pages of the C library's code that are the process's own, places where it is another code than in the file: breakpoints."""
    found = []
    with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
        for one in procfs.read_process_maps(pid):
            if one.executable and not one.writable and Path(one.name).name.startswith(("libc.", "libc-", "ld-")):
                data = os.pread(memory.fileno(), one.end - one.start, one.start)
                with open(one.name, "rb") as file:
                    there = os.pread(file.fileno(), len(data), one.offset)
                found += ["%s at 0x%x" % (one.name, one.start + at) for at, (now, then) in enumerate(zip(data, there)) if now != then]
    return found


@pytest.mark.parametrize("name", ["TERM", "HUP"])
def test_gdb_is_ended_in_the_middle_of_a_call(stage: Stage, live: str, folder: Path, way: str, name: str) -> None:
    """It ends after the call was taken off the stack; the process goes on."""
    parked = Parked(stage.start("victim_parked", "idle"))
    mutex = mutex_of(parked)
    put(parked, mutex, 1)
    script = folder / "unchecked.gdb"
    script.write_text(UNCHECKED % IN_WAY[way])
    outcome = in_gdb(parked.process.target(live), ["source %s" % script, "shell (sleep 2; kill -%s $PPID) &" % name, "heapx trim --yes", "echo went on\\n"])
    assert name == "HUP" or b"went on" not in outcome.stdout, "gdb never heard it"  # a gdb in batch mode lives on after SIGHUP
    assert b"aborted" in outcome.stdout and "before there was an answer" not in outcome.stderr, outcome.stderr
    check_free(parked.process)
    put(parked, mutex, 0)
    parked.go()


def test_lock_that_another_thread_leaves(stage: Stage, live: str, folder: Path, way: str) -> None:
    """The holder of the lock is let run when the call takes too long: the call ends then, and nothing is left behind."""
    if not has_second_chance(way):
        pytest.skip("this gdb takes a call that takes too long off the stack at once")
    parked = Parked(start_parked(stage, "malloc"))
    go = "python open(%r, 'r+b').write(bytes([1]))" % str(parked.process.record_path)  # while all are stopped
    data = unchecked(parked, folder, way, go, more=NOT_INSIDE % parked.pid)
    assert data["returned"] is None
    assert "completed when the other threads were allowed to run" in data["trouble"] and "as after a normal call" in data["trouble"], data["trouble"]
    parked.check_serves()


def test_breakpoint_of_an_old_gdb(stage: Stage, live: str, folder: Path) -> None:
    """Where gdb's Python has no hardware breakpoints, as gdb 10's, the one that is typed does the same for a call by registers."""
    parked = Parked(stage.start("victim_parked", "idle"))
    mutex = mutex_of(parked)
    put(parked, mutex, 1)
    old = "import gdb\nvars(gdb).pop('BP_HARDWARE_BREAKPOINT', None)\n"
    data = unchecked(parked, folder, "register-call", more=old)
    assert "did not complete with the other threads running" in data["trouble"], data["trouble"]
    put(parked, mutex, 0)
    outcome = in_gdb(parked.process.target(live), ["python import gdb; vars(gdb).pop('BP_HARDWARE_BREAKPOINT', None)", "source %s" % by_registers(folder), "heapx trim --yes --json"])
    assert '"returned": ' in outcome.stdout.decode() and '"trouble": null' in outcome.stdout.decode(), outcome.stderr
    check_free(parked.process)
    parked.go()


def by_registers(folder: Path) -> Path:
    """A script that has gdb unable to write vector registers."""
    script = folder / "registers.gdb"
    script.write_text("python\nimport gdbheapx.actions.calling as calling\n%send\n" % IN_WAY["register-call"])
    return script


def test_call_that_faults(stage: Stage, live: str, folder: Path, way: str) -> None:
    """malloc_trim runs into damage: its fault does not reach the process, which goes on without its heap; the lock is named."""
    parked = Parked(stage.start("victim_parked", "damaged"))
    data = unchecked(parked, folder, way)
    assert data["returned"] is None and re.search("SIG(ABRT|SEGV) in the call", data["trouble"]), data["trouble"]
    assert "the lock of main_arena is still locked" in data["trouble"], data["trouble"]
    parked.check_serves()


def test_calls_do_not_work(stage: Stage, live: str, folder: Path, way: str) -> None:
    """The call before the call, which does nothing, fails: the other is not made."""
    parked = Parked(stage.start("victim_parked", "idle"))
    script = folder / "refusing.gdb"
    script.write_text(CALLS_FAIL % IN_WAY[way])
    outcome: Outcome = in_gdb(parked.process.target(live), ["source %s" % script, "heapx trim --yes"])
    lines: List[str] = [line for line in outcome.stderr.splitlines() if "calls do not work here" in line]
    assert lines and "Cannot insert breakpoint" in lines[0], outcome.stderr
    check_free(parked.process)
    parked.go()
