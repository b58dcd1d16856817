"""Two system calls of a thread of x86-64 that then goes on by itself: struct rt_sigframe of the kernel, which sigreturn(2) takes."""

import struct
from typing import Callable, List, Optional, Sequence, Tuple

from gdbheapx.addons.labs.short_stop.machine import ALL_SIGNALS, NO_STACK_FLAGS, Injecting
from gdbheapx.inferior.arch import NT_PRSTATUS
from gdbheapx.inferior.arch.x86_64 import ORDER

AT = {name: place for place, name in enumerate(ORDER)}
CODE_64 = 0x33
RED_ZONE_BYTES = 128
RESTARTED = (-512, -513, -514, -516)
"""-ERESTARTSYS, -ERESTARTNOINTR, -ERESTARTNOHAND and -ERESTART_RESTARTBLOCK (linux/errno.h): the kernel makes the call again."""
BY_BLOCK = -516
"""It makes another one, restart_syscall(2), of which sigreturn takes away what it needs: the call is made again with its whole time."""
SYSCALL_BYTES = 2
FRAME_BYTES, FRAMES_BYTES = 448, 896
"""Of one frame with its siginfo, which nobody reads; of both. A multiple of 64, for the state behind them."""
CONTEXT = ("r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx", "rax", "rcx", "rsp", "rip", "eflags")
"""struct sigcontext, whose segments follow."""
FLAGS = 7
"""UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS."""
CONTEXT_AT = 8 + 8 + 8 + 24
LEGACY_BYTES, SOFTWARE_AT, HEADER_AT = 576, 464, 512
"""The part of xsave's area that is always there, with its header; what its bytes for software, and that header, begin at."""
MAGIC_1, MAGIC_2 = 0x46505853, 0x46505845
TILES, TILES_AT = 1 << 18, 2816
"""AMX's data, for which sigreturn has room only if the thread has used it; where they stand in the area."""


def _as_signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def reason_against_injecting(words: Sequence[int], state: bytes, register_set: Callable[[int], bytes]) -> Optional[str]:
    """Return the reason against using this thread, or None."""
    if words[AT["cs"]] != CODE_64:
        return "runs 32-bit code"
    if len(state) < LEGACY_BYTES:
        return "does not show its vector registers"
    if int.from_bytes(state[HEADER_AT : HEADER_AT + 8], "little") & TILES:
        return "has matrices in its registers"
    return None


def rank_x86_64_thread(words: Sequence[int]) -> int:
    """Rank a thread, the lowest first: in a system call that is made again unchanged, in one that has ended, in one whose time would
    begin again, in the program's code.
    """
    if _as_signed(words[AT["orig_rax"]]) < 0:
        return 3
    result = _as_signed(words[AT["rax"]])
    return 2 if result == BY_BLOCK else 0 if result in RESTARTED else 1


def _make_saved_state(state: bytes) -> bytes:
    """The state as sigreturn takes it."""
    features = int.from_bytes(state[SOFTWARE_AT : SOFTWARE_AT + 8], "little")
    if features & TILES:
        features, state = features & ~TILES, state[:TILES_AT]
    told = struct.pack("<IIQI28x", MAGIC_1, len(state) + 4, features, len(state))
    return state[:SOFTWARE_AT] + told + state[HEADER_AT:] + struct.pack("<I", MAGIC_2)


def x86_64_frames_base(words: Sequence[int], state: bytes) -> int:
    """Return the address where the frames begin."""
    return (words[AT["rsp"]] - RED_ZONE_BYTES - FRAMES_BYTES - len(state) - 4) & ~63


def _make_frame(words: Sequence[int], back: int, mask: int, state_at: int) -> bytes:
    segments = [words[AT[name]] & 0xFFFF for name in ("cs", "gs", "fs", "ss")]
    head = struct.pack("<QQQQiIQ", back, FLAGS, 0, 0, NO_STACK_FLAGS, 0, 0)
    context = struct.pack("<18Q4H4QQ64xQ", *(words[AT[name]] for name in CONTEXT), *segments, 0, 0, 0, 0, state_at, mask)
    return (head + context).ljust(FRAME_BYTES, b"\0")


def _resuming_registers(words: Sequence[int]) -> List[int]:
    """Registers with which the thread goes on where it was; the kernel would set them so itself."""
    result = list(words)
    if _as_signed(words[AT["orig_rax"]]) >= 0 and _as_signed(words[AT["rax"]]) in RESTARTED:
        result[AT["rax"]] = words[AT["orig_rax"]]
        result[AT["rip"]] -= SYSCALL_BYTES
    return result


def make_x86_64_call(words: Sequence[int], at: int, code: int, back: int, number: int, argument: int) -> List[int]:
    """Registers for a call, behind which the frame at `at` stands."""
    result = list(words)
    for name, value in (("rip", code), ("rsp", at), ("rax", number), ("rdi", argument), ("orig_rax", ALL_SIGNALS)):
        result[AT[name]] = value
    return result


def make_x86_64_frames(words: Sequence[int], state: bytes, mask: int, base: int, code: int, back: int, number: int, argument: int) -> bytes:
    """The first call returns into the first frame, which makes the second; that returns into the second frame, with all as it was."""
    state_at = base + FRAMES_BYTES
    makes_second = _make_frame(make_x86_64_call(words, base + FRAME_BYTES, code, back, number, argument), back, ALL_SIGNALS, 0)
    return makes_second + _make_frame(_resuming_registers(words), back, mask, state_at) + _make_saved_state(state)


def cancel_system_call(words: Sequence[int]) -> Tuple[int, bytes]:
    """No system call has the number -1."""
    result = list(words)
    result[AT["orig_rax"]] = (1 << 64) - 1
    return NT_PRSTATUS, struct.pack("<%dQ" % len(result), *result)


INJECTING = Injecting(
    call_and_return=b"\x0f\x05\xc3",
    come_back=(b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05", b"\xb8\x0f\0\0\0\x0f\x05"),
    against=reason_against_injecting,
    rank=rank_x86_64_thread,
    base=x86_64_frames_base,
    frames=make_x86_64_frames,
    call=make_x86_64_call,
    frame_bytes=FRAME_BYTES,
    argument_at=CONTEXT_AT + 8 * CONTEXT.index("rdi"),
    cancelled=cancel_system_call,
)
