"""gdbheapx/addons/labs/short_stop/injector.py: which system call of a stopped thread is the one that was asked for."""

import ctypes
from types import SimpleNamespace
from typing import Any, List

import pytest

from gdbheapx.addons.labs.short_stop import find_injecting, injector
from gdbheapx.arch import native_architecture

CODE, AUDIT, FLAGS = 0x7F0000001000, 0xC000003E, injector.FLAGS


def asked(found: Any, monkeypatch: pytest.MonkeyPatch, is_told: bool = True) -> Any:
    """(what is said of a thread that stops like this, what was set)."""
    made: List[Any] = []
    one = object.__new__(injector.Injector)
    one._buffer = ctypes.create_string_buffer(256)
    one._prepared = SimpleNamespace(code=CODE)  # type: ignore[assignment]
    one._audit, one._call_bytes, one._numbers = AUDIT, 2, {"userfaultfd": 323}
    one._words = (ctypes.c_uint64 * 27)()
    one._machine = SimpleNamespace(cancelled=lambda words: (1, b"none"))  # type: ignore[assignment]
    monkeypatch.setattr(one, "_step_thread", lambda *words: None)
    monkeypatch.setattr(one, "_get_registers", lambda lwp: True)

    def call(request: int, lwp: int, address: int = 0, data: int = 0) -> int:
        assert request == injector.GET_SYSCALL_INFO
        ctypes.memmove(data, injector.INFO.pack(*found), injector.INFO.size)
        return 0 if is_told else 5

    monkeypatch.setattr(one, "_call_ptrace", call)
    monkeypatch.setattr(injector.tracer, "set_register_set", lambda lwp, number, data: made.append((number, data)) or True)
    return one._enter_syscall(7, "userfaultfd", FLAGS), made


RIGHT = (injector.ENTRY, AUDIT, CODE + 2, 0, 323, FLAGS)


def test_the_call_that_was_asked_for_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number, argument, machine and place are as they should be, wherever its stack is."""
    assert asked(RIGHT, monkeypatch) == ("", [])


@pytest.mark.parametrize(("place", "value"), [(1, 0x40000003), (2, CODE + 4), (4, 83), (5, 0), (5, FLAGS | 1 << 32)])
def test_any_other_is_cancelled(monkeypatch: pytest.MonkeyPatch, place: int, value: int) -> None:
    """Of another machine, at another place, with another number or argument."""
    found = list(RIGHT)
    found[place] = value
    said, made = asked(found, monkeypatch)
    assert "it was cancelled" in said and made == [(1, b"none")]


@pytest.mark.parametrize(("stop", "is_told"), [(2, True), (1, False)])
def test_what_is_no_entry_is_given_up(monkeypatch: pytest.MonkeyPatch, stop: int, is_told: bool) -> None:
    """Nothing can be cancelled at the end of a call, and nothing is known where the kernel does not say."""
    with pytest.raises(injector.NotNow):
        asked((stop, *RIGHT[1:]), monkeypatch, is_told)


def test_cancelled_is_the_number_alone() -> None:
    """The registers in which a machine keeps the number of a call have -1 there, and are the same otherwise."""
    machine = find_injecting()
    if machine is None:
        pytest.skip("this machine has no injections")
    layout = native_architecture().registers
    assert layout is not None
    words = list(range(1, len(layout.names) + 1))
    number, data = machine.cancelled(words)
    changed = [word for word in memoryview(data).cast("Q" if len(data) > 4 else "I") if word not in words]
    assert number and changed == [(1 << 8 * (8 if len(data) > 4 else 4)) - 1]


def test_filters_that_are_too_long_are_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the filters of a process that stands still no more is run than so many instructions."""
    one = object.__new__(injector.Injector)
    monkeypatch.setattr(injector.tracer, "fetch_seccomp_filters", lambda lwp: [bytes(injector.MOST_FILTER_BYTES + 8)])
    monkeypatch.setattr(injector.seccomp, "compute_filter_answers", lambda *words: pytest.fail("a filter was run"))
    assert one._is_refused(1, 3)
