"""Keeps a thread that was stopped in a sleep, or in a wait with a time limit, from being killed when it is let go.

The kernel goes on with such a system call by another one, restart_syscall(2), of which the program knows nothing. A seccomp filter is asked
for it like for any: one that does not list it kills the program as soon as anybody stops it, also by SIGSTOP. Such a thread is given the
error EINTR instead, as a signal would give it. That is the only thing that is ever written to a process that is only read.
"""

import ctypes
import os
from typing import Optional, Tuple

from gdbheapx.arch import native
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.live import seccomp

GETREGSET, SETREGSET, NT_PRSTATUS = 0x4204, 0x4205, 1
RESTART_BLOCK, EINTR = -516, -4
"""-ERESTART_RESTARTBLOCK (linux/errno.h), which only a tracer sees."""


class Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def spare(lwp: int) -> bool:
    """Do so for a thread that this process traces and that stands still; whether it was necessary. Never raises."""
    danger = _in_danger(lwp)
    if danger is None:
        return False
    words, result = danger
    words[result] = EINTR
    return _ask(SETREGSET, lwp, words)


def is_in_danger(lwp: int) -> bool:
    """The same thread would be killed, or would get an error that it cannot expect, once it is let go. Only reads."""
    return _in_danger(lwp) is not None


def _in_danger(lwp: int) -> "Optional[Tuple[ctypes.Array[ctypes.c_int64], int]]":
    """Its registers then, and where its system call's result stands; None if it is not, is gone, or is of another machine's program."""
    layout, shown = native().registers, native().in_system_call
    if layout is None or shown is None:
        return None
    words = (ctypes.c_int64 * len(layout.names))()
    number, result = layout.names.index(shown.number), layout.names.index(shown.result)
    if not _ask(GETREGSET, lwp, words) or words[result] != RESTART_BLOCK or words[number] < 0 or _may_restart(lwp):
        return None
    return words, result


def _ask(request: int, lwp: int, words: "ctypes.Array[ctypes.c_int64]") -> bool:
    """All general registers of a thread, got or set."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes, libc.ptrace.restype = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p), ctypes.c_long
    vector = Vector(ctypes.addressof(words), ctypes.sizeof(words))
    return not libc.ptrace(request, lwp, NT_PRSTATUS, ctypes.addressof(vector)) and vector.length == ctypes.sizeof(words)


def _may_restart(lwp: int) -> bool:
    found = seccomp.rules(lwp)
    if found.mode != seccomp.FILTER:
        return True
    try:
        answers = seccomp.answers(seccomp.fetch(lwp), seccomp.system_calls().numbers[seccomp.RESTART], ())
    except HeapxError:  # they are not given: those of a container, under which this process is as well, allow what a debugger needs
        mine = seccomp.rules(os.getpid())
        return found.filters is not None and mine == found
    return answers <= {seccomp.ALLOW, seccomp.LOG}
