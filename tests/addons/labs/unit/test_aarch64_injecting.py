"""The frames by which a thread of aarch64 goes from one system call to the next and back: each field where sigreturn looks for it."""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Dict, List, Optional

import pytest

from gdbheapx.addons.labs.short_stop import aarch64 as injecting

CODE, BACK, CLOSE, DESCRIPTOR, MASK = 0xFFFF80001000, 0xFFFF90000050, 57, 17, 0x4002
PROGRAM = (Path(__file__).parents[1] / "programs" / "aarch64_calls.c").read_text()
KERNELS = {
    "flags": 128,
    "stack_flags": 152,
    "mask": 168,
    "x0": 312,
    "sp": 560,
    "pc": 568,
    "pstate": 576,
    "records": 592,
    "magic": 0x46508001,
    "bytes": 528,
    "status": 8,
    "vectors": 16,
}
"""asm/ucontext.h and asm/sigcontext.h."""


def words(**given: int) -> List[int]:
    """Registers, each with a value of its own."""
    made = {name: 0x1000 * place + place for place, name in enumerate(injecting.NAMES)}
    made.update(sp=0xFFFFC0004AB0, pc=0x401234, pstate=0x60000000, x8=63)
    made.update(given)
    return [made[name] for name in injecting.NAMES]


def state() -> bytes:
    """struct user_fpsimd_state: bytes that differ."""
    return bytes(place * 7 % 251 for place in range(512)) + struct.pack("<II8x", 0x10, 0x3000000)


def no_set(number: int) -> bytes:
    """A processor that has nothing more."""
    return b""


def word(frames: bytes, at: int) -> int:
    return int.from_bytes(frames[at : at + 8], "little")


def registers_of(frame: bytes) -> List[int]:
    return [word(frame, KERNELS["x0"] + 8 * place) for place in range(len(injecting.NAMES))]


def both(before: List[int]) -> "tuple[int, bytes, bytes]":
    """Where the frames begin, and they."""
    base = injecting.aarch64_frames_base(before, state())
    made = injecting.make_aarch64_frames(before, state(), MASK, base, CODE, BACK, CLOSE, DESCRIPTOR)
    return base, made[: injecting.FRAME_BYTES], made[injecting.FRAME_BYTES :]


def test_the_kernels_headers_say_so(tmp_path: Path) -> None:
    """The places above are those of the headers that a compiler for aarch64 has."""
    compiler = next((name for name in ("aarch64-linux-gnu-gcc", "aarch64-linux-gnu-gcc-12") if shutil.which(name)), None)
    if compiler is None or shutil.which("qemu-aarch64-static") is None:
        pytest.skip("no compiler for aarch64 here, or nothing that runs its programs")
    (tmp_path / "says.c").write_text(PROGRAM)
    made = subprocess.run([compiler, "-static", "-o", "says", "says.c"], cwd=tmp_path, capture_output=True, text=True)
    assert not made.returncode, made.stderr
    lines = subprocess.run(["qemu-aarch64-static", str(tmp_path / "says")], capture_output=True, text=True, check=True).stdout.split()
    assert dict(zip(lines[::2], map(int, lines[1::2]))) == KERNELS


def test_the_first_frame_makes_the_second_call() -> None:
    """Registers of the second call, behind which the second frame stands; no signal comes meanwhile."""
    base, first, _ = both(words())
    expected = words(pc=CODE, sp=base + injecting.FRAME_BYTES, x8=CLOSE, x0=DESCRIPTOR, x30=BACK)
    assert registers_of(first) == expected == list(injecting.make_aarch64_call(words(), base + injecting.FRAME_BYTES, CODE, BACK, CLOSE, DESCRIPTOR))
    assert word(first, KERNELS["mask"]) == (1 << 64) - 1
    assert word(first, injecting.INJECTING.argument_at) == DESCRIPTOR


def test_the_second_frame_brings_it_back() -> None:
    """All registers, and the mask; the other stack stays as it is, for no one has such flags."""
    _, _, second = both(words())
    assert registers_of(second) == words()
    assert word(second, KERNELS["mask"]) == MASK and word(second, KERNELS["flags"]) == 0
    assert int.from_bytes(second[KERNELS["stack_flags"] :][:4], "little") == injecting.NO_STACK_FLAGS


def test_vector_registers() -> None:
    """Both frames have them, with status and control, and a record that ends the others."""
    for frame in both(words())[1:]:
        record = frame[KERNELS["records"] :]
        assert struct.unpack_from("<IIII", record) == (KERNELS["magic"], KERNELS["bytes"], 0x10, 0x3000000)
        assert record[KERNELS["vectors"] : KERNELS["bytes"]] == state()[:512]
        assert not any(record[KERNELS["bytes"] :]) and len(record) - KERNELS["bytes"] >= 16


def test_entering() -> None:
    """The call's code is entered as if nobody had jumped there or stepped; the stack pointer is aligned as sigreturn demands it."""
    before = words(pstate=0x60000000 | injecting.TRACED, sp=0xFFFFC0004AB8)
    base = injecting.aarch64_frames_base(before, state())
    after = dict(zip(injecting.NAMES, injecting.make_aarch64_call(before, base, CODE, BACK, 282, 1)))
    assert (after["pc"], after["sp"], after["x8"], after["x0"], after["x30"], after["pstate"]) == (CODE, base, 282, 1, BACK, 0x60000000)
    assert not base % 16 and base + 2 * injecting.FRAME_BYTES <= before[injecting.AT["sp"]]


def sve(upper: bool, flags: int = 1, vector_bytes: int = 32) -> bytes:
    """NT_ARM_SVE, with something above the lower 128 bits of one vector or not."""
    vectors = bytearray(b"\x11" * 16 + bytes(vector_bytes - 16)) * 32
    if upper:
        vectors[5 * vector_bytes + 20] = 1
    data = bytes(vectors) + bytes(17 * (vector_bytes // 8)) + struct.pack("<II", 0, 0)
    return injecting.SET_HEADER.pack(16 + len(data), 16 + len(data), vector_bytes, vector_bytes, flags, 0) + data


@pytest.mark.parametrize(
    "given, sets, why",
    [
        ({}, {}, None),
        ({}, {injecting.NT_ARM_SVE: sve(False)}, None),
        ({}, {injecting.NT_ARM_SVE: sve(True)}, "has vectors of SVE in its registers"),
        ({}, {injecting.NT_ARM_SVE: sve(True, flags=0)}, None),
        ({}, {injecting.NT_ARM_SVE: sve(True)[:16]}, None),
        ({"x8": 133}, {}, "waits for a signal"),  # rt_sigsuspend
        ({"x8": 73, "x1": 0, "x3": 0}, {}, "waits for a signal"),  # ppoll of nothing: pause
        ({"x8": 73, "x1": 3, "x3": 0x7000}, {}, "waits for a signal"),  # with a mask of its own
        ({"x8": 73, "x1": 3, "x3": 0}, {}, None),
        ({"x8": 72, "x0": 0, "x5": 0}, {}, "waits for a signal"),  # pselect6
        ({"x8": 72, "x0": 4, "x5": 0}, {}, None),
        ({"pstate": 3 << 10}, {}, "stands between an indirect branch and its landing pad (BTI)"),
    ],
)
def test_against(given: Dict[str, int], sets: Dict[int, bytes], why: Optional[str]) -> None:
    """Threads that would lose something are left alone."""
    assert injecting.against_this(words(**given), state(), lambda number: sets.get(number, b"")) == why


def test_without_vector_registers() -> None:
    """A processor that does not show them."""
    assert injecting.against_this(words(), b"", no_set) == "does not show its vector registers"


def test_rank() -> None:
    """Who waits for what is left of a time comes last."""
    assert injecting.rank_aarch64_thread(words(x8=128)) > injecting.rank_aarch64_thread(words(x8=63))
