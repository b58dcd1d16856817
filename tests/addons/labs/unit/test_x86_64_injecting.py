"""System calls injected on x86-64, and which one of a stopped thread was asked for."""

import ctypes
import struct
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx.addons.labs.short_stop import find_injecting, injector
from gdbheapx.addons.labs.short_stop import x86_64 as injecting
from gdbheapx.inferior.arch import native_architecture
from gdbheapx.inferior.arch.x86_64 import ORDER

CODE, BACK, CLOSE, DESCRIPTOR, MASK = 0x7FFFF7FC1000, 0x7FFFF7C3C050, 3, 17, 0x4002
FEATURES, STATE_BYTES = 0x2E7, 2696
SIGRETURN_POPPED_BYTES = 8
"""The address that `ret` has taken from the stack when sigreturn begins: it finds the frame below the stack pointer by so much."""
PROGRAM = """
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <ucontext.h>
#define SAY(name, field) printf("%%s %%zu\\n", name, offsetof(ucontext_t, field))
int main(void)
{
    %s
    SAY("uc_flags", uc_flags); SAY("ss_flags", uc_stack.ss_flags); SAY("segments", uc_mcontext.gregs[REG_CSGSFS]);
    SAY("state", uc_mcontext.fpregs); SAY("mask", uc_sigmask);
    return 0;
}
"""
REG = {"eflags": "EFL", **{name: name.upper() for name in injecting.CONTEXT if name != "eflags"}}


def words(**given: int) -> List[int]:
    """Registers, each with a value of its own."""
    made = {name: 0x1000 * place + place for place, name in enumerate(ORDER)}
    made.update(cs=0x33, ss=0x2B, gs=0, fs=0, rsp=0x7FFFFFFFE4A8, rip=0x401234, orig_rax=(1 << 64) - 1)
    made.update(given)
    return [made[name] for name in ORDER]


def state(features: int = FEATURES, size_bytes: int = STATE_BYTES) -> bytes:
    """What ptrace gives of xsave's area: bytes that differ, which features it has for software and in its header."""
    data = bytearray(place * 7 % 251 for place in range(size_bytes))
    struct.pack_into("<Q", data, 464, features)
    struct.pack_into("<Q", data, 512, features)
    return bytes(data)


@pytest.fixture(scope="module")
def offsets(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, int]:
    """Where the C library's headers have the fields, from the frame's begin on."""
    folder: Path = tmp_path_factory.mktemp("ucontext")
    said = " ".join('SAY("%s", uc_mcontext.gregs[REG_%s]);' % (name, REG[name]) for name in injecting.CONTEXT)
    (folder / "says.c").write_text(PROGRAM % said)
    try:
        made = subprocess.run(["gcc", "-o", "says", "says.c"], cwd=folder, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("gcc is not installed")
    if "REG_CSGSFS" in made.stderr:
        pytest.skip("this machine is another one")
    assert not made.returncode, made.stderr
    lines = subprocess.run([str(folder / "says")], capture_output=True, text=True, check=True).stdout.split()
    return {name: int(place) + SIGRETURN_POPPED_BYTES for name, place in zip(lines[::2], lines[1::2])}


def made(registers: List[int], data: bytes) -> "tuple[int, bytes]":
    """Where the frames begin, and they."""
    base = injecting.x86_64_frames_base(registers, data)
    return base, injecting.make_x86_64_frames(registers, data, MASK, base, CODE, BACK, CLOSE, DESCRIPTOR)


def word(frames: bytes, at: int) -> int:
    return int.from_bytes(frames[at : at + 8], "little")


def registers_of(frames: bytes, offsets: Dict[str, int]) -> Dict[str, int]:
    return {name: word(frames, offsets[name]) for name in injecting.CONTEXT}


def test_both_frames(offsets: Dict[str, int]) -> None:
    """The first makes the second call with all signals blocked, and no vector state; the second has every register, the mask and the state."""
    before, data = words(), state()
    base, frames = made(before, data)
    first, second = frames[: injecting.FRAME_BYTES], frames[injecting.FRAME_BYTES : injecting.FRAMES_BYTES]
    assert word(first, 0) == word(second, 0) == BACK
    assert word(first, offsets["uc_flags"]) == word(second, offsets["uc_flags"]) == 7
    assert int.from_bytes(first[offsets["ss_flags"] :][:4], "little") == 0x10
    told, resumed = registers_of(first, offsets), registers_of(second, offsets)
    assert (told["rip"], told["rsp"], told["rax"], told["rdi"]) == (CODE, base + injecting.FRAME_BYTES, CLOSE, DESCRIPTOR)
    assert word(first, offsets["mask"]) == (1 << 64) - 1 and word(first, offsets["state"]) == 0
    assert resumed == {name: before[ORDER.index(name)] for name in injecting.CONTEXT}
    assert struct.unpack_from("<4H", second, offsets["segments"]) == (0x33, 0, 0, 0x2B)
    assert word(second, offsets["mask"]) == MASK and word(second, offsets["state"]) == base + injecting.FRAMES_BYTES
    assert injecting.INJECTING.argument_at == offsets["rdi"]


def test_the_first_call_finds_the_first_frame() -> None:
    """`ret` behind a call takes the address that its frame begins with."""
    before, data = words(), state()
    base, frames = made(before, data)
    for registers, at in (
        (injecting.make_x86_64_call(before, base, CODE, BACK, 323, 1), base),
        (injecting.make_x86_64_call(before, base + injecting.FRAME_BYTES, CODE, BACK, CLOSE, DESCRIPTOR), base + injecting.FRAME_BYTES),
    ):
        assert registers[ORDER.index("rsp")] == at and word(frames, at - base) == BACK and registers[ORDER.index("rip")] == CODE
        assert registers[ORDER.index("orig_rax")] == (1 << 64) - 1, "no call that the kernel would make again"


@pytest.mark.parametrize("pointer", range(0x7FFFFFFFE480, 0x7FFFFFFFE4C8, 8))
@pytest.mark.parametrize("size_bytes", [576, 832, STATE_BYTES])
def test_they_are_below_all_that_is_in_use(pointer: int, size_bytes: int) -> None:
    """The red zone stays; the state is at a multiple of 64, as xrstor wants it."""
    base, frames = made(words(rsp=pointer), state(size_bytes=size_bytes))
    assert not (base + injecting.FRAMES_BYTES) % 64 and pointer - 128 - 64 < base + len(frames) <= pointer - 128


def test_the_state(offsets: Dict[str, int]) -> None:
    """As ptrace gave it, but the bytes for software, by which sigreturn knows its size: struct _fpx_sw_bytes."""
    data = state()
    saved = made(words(), data)[1][injecting.FRAMES_BYTES :]
    assert saved[:464] == data[:464] and saved[512:-4] == data[512:] and saved[-4:] == struct.pack("<I", 0x46505845)
    assert struct.unpack_from("<IIQI", saved, 464) == (0x46505853, STATE_BYTES + 4, FEATURES, STATE_BYTES) and not any(saved[484:512])


def test_tiles_are_left_out() -> None:
    """Of AMX sigreturn has no room for the data where the thread has used none."""
    saved = made(words(), state(FEATURES | 1 << 18, 11008))[1][injecting.FRAMES_BYTES :]
    assert struct.unpack_from("<IIQI", saved, 464) == (0x46505853, 2816 + 4, FEATURES, 2816) and len(saved) == 2820


@pytest.mark.parametrize(
    ("call", "result", "rank", "again"),
    [(-1, 5, 3, False), (0, -512, 0, True), (202, -513, 0, True), (7, -514, 0, True), (35, -516, 2, True), (0, -4, 1, False), (0, 1, 1, False)],
)
def test_interrupted_calls(offsets: Dict[str, int], call: int, result: int, rank: int, again: bool) -> None:
    """What the kernel would make again the thread does again; anything else is as it was."""
    registers = words(orig_rax=call % (1 << 64), rax=result % (1 << 64))
    assert injecting.rank_x86_64_thread(registers) == rank
    resumed = registers_of(made(registers, state())[1][injecting.FRAME_BYTES :], offsets)
    assert resumed["rip"] == 0x401234 - 2 * again and resumed["rax"] == (call if again else result % (1 << 64))


@pytest.mark.parametrize(
    ("given", "data", "why"),
    [({}, state(), None), ({"cs": 0x23}, state(), "32-bit"), ({}, b"\0" * 512, "vector"), ({}, state(FEATURES | 1 << 18), "matrices")],
)
def test_against(given: Dict[str, int], data: bytes, why: Optional[str]) -> None:
    """Threads that are left alone."""
    said = injecting.reason_against_injecting(words(**given), data, lambda number: b"")
    assert said is None if why is None else why in (said or "")


CALLS, AUDIT, FLAGS = 0x7F0000001000, 0xC000003E, injector.FLAGS


def asked(found: Any, monkeypatch: pytest.MonkeyPatch, is_told: bool = True) -> Any:
    """(what is said of a thread that stops like this, what was set)."""
    made: List[Any] = []
    one = object.__new__(injector.Injector)
    one._buffer = ctypes.create_string_buffer(256)
    one._prepared = SimpleNamespace(code=CALLS)  # type: ignore[assignment]
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


RIGHT = (injector.ENTRY, AUDIT, CALLS + 2, 0, 323, FLAGS)


def test_the_call_that_was_asked_for_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number, argument, machine and place are as they should be, wherever its stack is."""
    assert asked(RIGHT, monkeypatch) == ("", [])


@pytest.mark.parametrize(("place", "value"), [(1, 0x40000003), (2, CALLS + 4), (4, 83), (5, 0), (5, FLAGS | 1 << 32)])
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
