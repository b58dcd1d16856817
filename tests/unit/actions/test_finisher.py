"""gdbheapx/actions/finisher.py: what is done with a thread that gdb has left in a call, by where it stands."""

import os
import signal
from pathlib import Path
from typing import Any, List, Optional, Tuple

import pytest

from gdbheapx.actions import finisher
from gdbheapx.actions.finisher import Before, Standby, kept_alive
from gdbheapx.inferior.base import Mapping
from gdbheapx.inferior.live import tracer

ENTRY, PC, SP, MASK = 0x401000, 0x7F0000001000, 0x7FFF00001000, 5


def finished(
    monkeypatch: pytest.MonkeyPatch, stops: List[Tuple[Optional[int], int, int]], is_called: bool = True, mask: int = 9, waiting: int = 0
) -> Tuple[List[Any], List[str]]:
    """What is asked of ptrace once the thread is seized, and what is set, where it stops like this: (signal, program counter, stack pointer)."""
    asked: List[Any] = []
    made: List[str] = []
    names = {tracer.PTRACE_CONT: "on", tracer.PTRACE_DETACH: "go", tracer.PTRACE_INTERRUPT: "stop", tracer.PTRACE_SEIZE: "seize"}
    one = Standby(os.getpid(), 7, [], [], ENTRY)
    one._before = Before([(1, b"before"), (2, b"vectors")], MASK, ())
    at: List[Tuple[int, int]] = []

    def call(request: int, lwp: int, address: int = 0, data: int = 0) -> int:
        if request in names:
            asked.append((names[request], data))
        return 0

    def stop() -> Optional[int]:
        number, *there = stops.pop(0)
        at.append((there[0], there[1]))
        return number

    monkeypatch.setattr(one, "_call_ptrace", call)
    monkeypatch.setattr(one, "_wait_stop", stop)
    monkeypatch.setattr(one, "_read_mask", lambda: mask)
    monkeypatch.setattr(one, "_set_mask", lambda mask: made.append("mask %d" % mask))
    monkeypatch.setattr(Standby, "_read_position", staticmethod(lambda words: [PC, SP] if words == b"before" else list(at[-1])))
    monkeypatch.setattr(tracer, "register_set", lambda lwp, number: b"now")
    monkeypatch.setattr(tracer, "set_register_set", lambda lwp, number, data: made.append(data.decode()))
    monkeypatch.setattr(tracer, "spare_traced_thread", lambda lwp: False)
    monkeypatch.setattr(finisher.procfs, "read_process_status", lambda lwp: {"SigPnd": "%x" % waiting})
    one.finish(is_called)
    assert asked[:2] == [("seize", 0), ("stop", 0)]
    return asked[2:], made


SET_BACK = ["before", "vectors", "mask %d" % MASK]


@pytest.mark.parametrize(("fault", "pc"), [(signal.SIGTRAP, ENTRY), (signal.SIGTRAP, ENTRY + 1), (signal.SIGSEGV, SP - 300), (signal.SIGTRAP, SP - 299)])
def test_a_call_comes_to_its_end(monkeypatch: pytest.MonkeyPatch, fault: int, pc: int) -> None:
    """It runs on until it returns, whatever signals come; then all is set back, and the fault is not handed on."""
    asked, made = finished(monkeypatch, [(0, PC + 900, SP - 4000), (signal.SIGUSR1, PC + 950, SP - 3000), (int(fault), pc, SP - 400)])
    assert asked == [("on", 0), ("on", signal.SIGUSR1), ("go", 0)] and made == SET_BACK


def test_a_fault_of_the_call_itself_is_the_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is handed on, and the process ends as it would have."""
    asked, made = finished(monkeypatch, [(0, PC + 900, SP - 4000), (signal.SIGSEGV, PC + 950, SP - 3000), (None, 0, 0)])
    assert asked == [("on", 0), ("on", signal.SIGSEGV)] and made == []


def test_no_call_had_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread stands where it was: half of its registers may be the call's already."""
    assert finished(monkeypatch, [(0, PC, SP)]) == ([("go", 0)], SET_BACK)


@pytest.mark.parametrize(("is_called", "sp", "mask"), [(False, SP - 64, 9), (True, SP + 64, 9), (True, SP - 64, MASK)])
def test_the_program_runs_already(monkeypatch: pytest.MonkeyPatch, is_called: bool, sp: int, mask: int) -> None:
    """Its registers are its own; only its mask is set back."""
    assert finished(monkeypatch, [(0, PC + 8, sp)], is_called, mask) == ([("go", 0)], ["mask %d" % MASK])


def test_a_fault_that_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of a call which was over is taken away once the mask lets it in."""
    waiting = 1 << signal.SIGTRAP - 1
    assert finished(monkeypatch, [(0, PC, SP), (signal.SIGTRAP, PC, SP)], False, waiting=waiting) == ([("on", 0), ("go", 0)], SET_BACK)


def test_code_is_as_before() -> None:
    """What gdb has written over it is taken out: in code that nobody writes, and nowhere else."""
    page = os.sysconf("SC_PAGESIZE")
    code = [Mapping(page, 2 * page, True, False, True, False, "code", None), Mapping(4 * page, 5 * page, True, True, True, False, "jit", None)]
    assert Standby(os.getpid(), 7, [page + 5, 4 * page + 5, 9 * page], code, ENTRY)._breakpoints == [page + 5]


def allowed_from(least: int, written: List[int]) -> Any:
    """A stand-in for the kernel, which lets a process go no lower."""

    def write(path: str, data: bytes) -> bool:
        if int(data) < least:
            return False
        written.append(int(data))
        return True

    return write


@pytest.mark.parametrize(("before", "least", "reached"), [(0, -1000, -1000), (1000, 0, 0), (300, -17, -17), (0, 0, 0), (-1000, -1000, -1000)])
def test_the_lowest_that_is_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, least: int, reached: int) -> None:
    """gdb is the last to be taken while it calls, as far as that is permitted, and as before then."""
    file, written = tmp_path / "oom_score_adj", []  # type: Path, List[int]
    file.write_text("%d\n" % before)
    monkeypatch.setattr(finisher, "_try_write", allowed_from(least, written))
    with kept_alive(str(file)):
        assert (written or [before])[-1] == reached and len(written) <= 11
    assert written[-1] == before


def test_without_that_file(tmp_path: Path) -> None:
    """Where it is not there, nothing is done."""
    with kept_alive(str(tmp_path / "none")):
        pass
    assert not list(tmp_path.iterdir())
