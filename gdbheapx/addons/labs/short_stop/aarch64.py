"""Two system calls of a thread of aarch64 that then goes on by itself: struct rt_sigframe of the kernel, which sigreturn(2) takes.

What sigreturn does is in arch/arm64/kernel/signal.c: restore_sigframe, parse_user_sigframe. It wants the record of the 128-bit vector
registers in every frame; without one for SVE it clears what these registers have above, and leaves SME's as they are.
"""

import struct
from typing import Callable, List, Optional, Sequence

from gdbheapx.addons.labs.short_stop.machine import ALL_SIGNALS, NO_STACK_FLAGS, Injecting
from gdbheapx.inferior.arch.aarch64 import NAMES, NT_ARM_SVE, SET_HEADER, SVE_REGISTERS, reason_against_call

AT = {name: place for place, name in enumerate(NAMES)}
SVC, RET = b"\x01\0\0\xd4", b"\xc0\x03\x5f\xd6"
SIGRETURN = b"\x68\x11\x80\xd2" + SVC
"""mov x8, #139, in the kernel's [vdso] (__kernel_rt_sigreturn)."""
SIGNAL_BYTES, CONTEXT_AT = 128, 176
"""struct siginfo, which nobody reads; where the ucontext behind it has its struct sigcontext, behind a signal mask of 1,024 bits."""
REGISTERS_AT = SIGNAL_BYTES + CONTEXT_AT + 8
"""Behind the address of a fault."""
RECORDS_AT = SIGNAL_BYTES + CONTEXT_AT + 288
FPSIMD_MAGIC, FPSIMD_BYTES, VECTORS_BYTES = 0x46508001, 528, 512
FRAME_BYTES = 1152
"""Up to the record that ends the others. The kernel asks for the address of a longer frame, and reads no more than there are records."""
NT_ARM_SYSTEM_CALL = 0x404
"""The number of the call that a thread is about to make: no system call has the number -1."""
TRACED = 3 << 10 | 1 << 21
"""PSTATE.BTYPE and .SS: the code that is entered is no landing pad, and nobody steps."""
SIGSUSPEND, PSELECT, PPOLL, RESTART = 133, 72, 73, 128


def upper_bits(state: bytes) -> bool:
    """Return True if NT_ARM_SVE has bits set in vector registers above 128 bits, in predicates or in the first-fault register."""
    if len(state) < SET_HEADER.size:
        return False
    size, _, vector_bytes, _, flags, _ = SET_HEADER.unpack_from(state)
    if not flags & SVE_REGISTERS:
        return False
    data = state[16 : min(size, len(state))]
    vectors, others = data[: 32 * vector_bytes], data[32 * vector_bytes : 32 * vector_bytes + 17 * (vector_bytes // 8)]
    upper = (vectors[at + 16 : at + vector_bytes] for at in range(0, len(vectors), vector_bytes or 1))
    return any(others) or any(map(any, upper))


def waits_for_signals(words: Sequence[int]) -> bool:
    """Return True if the thread may be in a call that a signal ends and that waits for nothing else, or that admits signals only while it
    lasts. The kernel prepares to make an interrupted call again before a tracer sees it, without a sign of that: a signal that comes
    while the thread is elsewhere would be over when it is back.
    """
    number = words[AT["x8"]]
    return (
        number == SIGSUSPEND
        or (number == PPOLL and (not words[AT["x1"]] or bool(words[AT["x3"]])))
        or (number == PSELECT and (not words[AT["x0"]] or bool(words[AT["x5"]])))
    )


def against_this(words: Sequence[int], state: bytes, register_set: Callable[[int], bytes]) -> Optional[str]:
    """Return the reason against using this thread, or None."""
    if len(state) < FPSIMD_BYTES - 8:
        return "does not show its vector registers"
    if upper_bits(register_set(NT_ARM_SVE)):
        return "has vectors of SVE in its registers"
    if waits_for_signals(words):
        return "waits for a signal"
    return reason_against_call(dict(zip((*NAMES[:-1], "cpsr"), words)), register_set)


def rank_aarch64_thread(words: Sequence[int]) -> int:
    """Rank a thread, the lowest first. A thread that waits for the rest of a time ranks last, since sigreturn takes away the state that
    the kernel needs for that.
    """
    return 2 if words[AT["x8"]] == RESTART else 0


def aarch64_frames_base(words: Sequence[int], state: bytes) -> int:
    """Return the address where the frames begin: nothing below the stack pointer belongs to the program (AAPCS64)."""
    return (words[AT["sp"]] - 2 * FRAME_BYTES) & ~15


def _make_frame(words: Sequence[int], state: bytes, mask: int) -> bytes:
    ucontext = struct.pack("<QQQiIQQ", 0, 0, 0, NO_STACK_FLAGS, 0, 0, mask)
    head = (bytes(SIGNAL_BYTES) + ucontext).ljust(REGISTERS_AT, b"\0") + struct.pack("<34Q", *words)
    status, control = struct.unpack_from("<II", state, VECTORS_BYTES)
    vectors = struct.pack("<IIII", FPSIMD_MAGIC, FPSIMD_BYTES, status, control) + state[:VECTORS_BYTES]
    return (head.ljust(RECORDS_AT, b"\0") + vectors).ljust(FRAME_BYTES, b"\0")


def make_aarch64_call(words: Sequence[int], at: int, code: int, back: int, number: int, argument: int) -> List[int]:
    """Registers for a call, after which the frame at `at` is taken."""
    result, status = list(words), words[AT["pstate"]] & ~TRACED
    for name, value in (("pc", code), ("sp", at), ("x8", number), ("x0", argument), ("x30", back), ("pstate", status)):
        result[AT[name]] = value
    return result


def make_aarch64_frames(
    words: Sequence[int], state: bytes, mask: int, base: int, code: int, back: int, number: int, argument: int
) -> bytes:
    """The first call returns into the first frame, which makes the second; that returns into the second frame, with all as it was."""
    makes_second = _make_frame(make_aarch64_call(words, base + FRAME_BYTES, code, back, number, argument), state, ALL_SIGNALS)
    return makes_second + _make_frame(words, state, mask)


INJECTING = Injecting(
    call_and_return=SVC + RET,
    come_back=(SIGRETURN,),
    against=against_this,
    rank=rank_aarch64_thread,
    base=aarch64_frames_base,
    frames=make_aarch64_frames,
    call=make_aarch64_call,
    frame_bytes=FRAME_BYTES,
    argument_at=REGISTERS_AT + 8 * AT["x0"],
    cancelled=lambda words: (NT_ARM_SYSTEM_CALL, b"\xff\xff\xff\xff"),
)
