"""Stops a process of this machine for a moment with PTRACE_SEIZE and lets it run on. It writes nothing, sends no signal and needs no
debugger; seccomp.py has the one exception.

Why not gdb's attach: that costs 15 to 200 ms of the process's time, this 1 to 4 ms. If this process dies, the kernel lets the other one run
on by itself. As with any debugger a few system calls, epoll_wait among them, return EINTR to a program that is stopped in them (signal(7)).

This runs in the keeper (keeper.py): what it holds is let go on time, whatever the process that reads is busy with.

Keeps a thread that was stopped in a sleep, or in a wait with a time limit, from being killed when it is let go.

The kernel goes on with such a system call by another one, restart_syscall(2), of which the program knows nothing. A seccomp filter is asked
for it like for any: one that does not list it kills the program as soon as anybody stops it, also by SIGSTOP. Such a thread is given the
error EINTR instead, as a signal would give it. That is the only thing that is ever written to a process that is only read.
"""

import ctypes
import errno
import os
import time
from functools import cache
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.arch import native_architecture
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.live import procfs, seccomp
from gdbheapx.problems import ALREADY_TRACED, PROCESS_ENDED

GETREGSET, SETREGSET, NT_PRSTATUS = 0x4204, 0x4205, 1
RESTART_BLOCK, EINTR = -516, -4
"""-ERESTART_RESTARTBLOCK (linux/errno.h), which only a tracer sees."""
WORD = (1 << 64) - 1
PTRACE_CONT, PTRACE_DETACH, PTRACE_GETREGSET, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 17, 0x4204, 0x4206, 0x4207
GETSIGMASK, SETSIGMASK, MASK_BYTES = 0x420A, 0x420B, 8
PTRACE_EVENT_STOP = 128
WALL = 0x40000000
SIGTRAP = 5
PATIENCE = 5.0
"""Seconds to wait for threads to stop: one in an uninterruptible sleep (disk, NFS) does not before that ends. The others stand meanwhile,
so no more than half of what the process may stand still."""
UNSTOPPABLE = "waits in the kernel and cannot be stopped: in vfork, until its child calls exec or exits, or on a device"
REGISTER_BYTES = 16 << 10
"""More than any register set has, those with matrices among them."""


def spare_traced_thread(lwp: int) -> bool:
    """Do so for a thread that this process traces and that stands still; whether it was necessary. Never raises."""
    words = _in_danger(lwp)
    return words is not None and _access_registers(SETREGSET, lwp, words)


def is_in_danger(lwp: int) -> bool:
    """Return True if the thread would be killed, or would get an error that it cannot expect, once it is let go. Only reads."""
    return _in_danger(lwp) is not None


def _in_danger(lwp: int) -> "Optional[ctypes.Array[ctypes.c_int64]]":
    """Its registers as they have to be; None if it is not, is gone, or is of another machine's program."""
    layout, shown = native_architecture().registers, native_architecture().in_system_call
    if layout is None or shown is None:
        return None
    words = (ctypes.c_int64 * len(layout.names))()
    number, result, pc = (layout.names.index(name) for name in (shown.number, shown.result, layout.pc))
    if not _access_registers(GETREGSET, lwp, words):
        return None
    if shown.timed is None:
        is_timed = words[result] == RESTART_BLOCK and words[number] >= 0
    else:
        by_name = {name: word & WORD for name, word in zip(layout.names, words)}
        is_timed = shown.timed(by_name) is not None and _read_memory(lwp, words[pc], len(shown.instruction)) == shown.instruction
    if not is_timed or _may_restart(lwp):
        return None
    words[result] = EINTR
    if shown.is_rewound:
        words[pc] += len(shown.instruction)
    return words


def _read_memory(lwp: int, address: int, size: int) -> bytes:
    try:
        with open("/proc/%d/mem" % lwp, "rb", buffering=0) as memory:
            return os.pread(memory.fileno(), size, address)
    except (OSError, OverflowError):
        return b""


def register_set(lwp: int, number: int) -> bytes:
    """Return one register set of a stopped thread that this process traces; empty if there is none."""
    buffer = ctypes.create_string_buffer(REGISTER_BYTES)
    vector = Vector(ctypes.addressof(buffer), len(buffer))
    return b"" if _load_ptrace()(GETREGSET, lwp, number, ctypes.addressof(vector)) else buffer.raw[: vector.length]


def set_register_set(lwp: int, number: int, data: bytes) -> bool:
    """Write the register set back; return True if that was possible."""
    buffer = ctypes.create_string_buffer(data, len(data))
    vector = Vector(ctypes.addressof(buffer), len(data))
    return not _load_ptrace()(SETREGSET, lwp, number, ctypes.addressof(vector))


def _access_registers(request: int, lwp: int, words: "ctypes.Array[ctypes.c_int64]") -> bool:
    """Get or set all general registers of a thread; return True on success."""
    vector = Vector(ctypes.addressof(words), ctypes.sizeof(words))
    return not _load_ptrace()(request, lwp, NT_PRSTATUS, ctypes.addressof(vector)) and vector.length == ctypes.sizeof(words)


@cache
def _load_ptrace() -> Any:
    call = ctypes.CDLL(None, use_errno=True).ptrace
    call.argtypes, call.restype = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p), ctypes.c_long
    return call


def _may_restart(lwp: int) -> bool:
    rules = seccomp.read_seccomp_rules(lwp)
    if rules.mode != seccomp.FILTER:
        return True
    try:
        answers = seccomp.compute_filter_answers(seccomp.fetch_seccomp_filters(lwp), seccomp.system_calls().numbers[seccomp.RESTART], ())
    except HeapxError:  # they are not given: those of a container, under which this process is as well, allow what a debugger needs
        mine = seccomp.read_seccomp_rules(os.getpid())
        return rules.filters is not None and mine == rules
    return answers <= {seccomp.ALLOW, seccomp.LOG}


class Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Stopped(NamedTuple):
    """Thread that is held."""

    signal: int
    """The signal it was about to get; handed on when it is let go."""


class Tracer:
    """Holds every thread of a process between stop() and let_go(). `limit_s`: how long it may stand still."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self.pid = pid
        self.held: Dict[int, Stopped] = {}
        self.late: List[int] = []
        """Threads that could not be stopped in time."""
        self.began_s = time.monotonic()
        self.until_s = self.began_s + limit_s
        self._patient_until_s = self.began_s + min(PATIENCE, limit_s / 2)
        self.stopped_ms: Optional[float] = None
        self._ptrace = _load_ptrace()
        self._buffer = ctypes.create_string_buffer(REGISTER_BYTES)
        self.ended: Optional[int] = None
        """What waitpid told of the process's end."""

    def _call_ptrace(self, request: int, lwp: int, address: int = 0, data: int = 0) -> int:
        """0, or the errno."""
        ctypes.set_errno(0)
        return ctypes.get_errno() if self._ptrace(request, lwp, address, data) == -1 else 0

    def _wait_for(self, lwp: int) -> Tuple[int, int]:
        """waitpid, which does not wait; how the process ended is noted."""
        got, state = os.waitpid(lwp, WALL | os.WNOHANG)
        if got == self.pid and not os.WIFSTOPPED(state):
            self.ended = state
        return got, state

    def stop(self) -> None:
        """Stop all threads, also those that are being made meanwhile. On failure nothing stays held."""
        seized: Set[int] = set()
        gone: Set[int] = set()
        try:
            while True:
                fresh = [lwp for lwp in procfs.list_thread_ids(self.pid) if lwp not in seized and lwp not in gone]
                if not fresh:
                    break
                for lwp in fresh:
                    failed = self._call_ptrace(PTRACE_SEIZE, lwp)
                    if failed == errno.ESRCH or (failed == errno.EPERM and procfs.is_over(self.pid, lwp)):
                        gone.add(lwp)
                        continue
                    if failed:
                        raise self._make_refusal(lwp)
                    seized.add(lwp)
                    self._call_ptrace(PTRACE_INTERRUPT, lwp)
                    self.held[lwp] = Stopped(-1)
                for lwp in fresh:
                    if lwp in seized:
                        self._wait_for_stop(lwp, self._patient_until_s)
        except BaseException:
            self.let_go()
            raise
        if not self.held:
            raise HeapxError("process %d crashed or exited" % self.pid, "give the pid of a running process", code=PROCESS_ENDED)

    def _make_refusal(self, lwp: int) -> HeapxError:
        """Return why a thread of the process cannot be traced."""
        holder = procfs.find_process_tracer(lwp)
        if holder and holder.pid == os.getpid():  # by an earlier stop: only a thread that stands can be let go
            what = "thread %d of process %d %s" % (lwp, self.pid, UNSTOPPABLE)
            return HeapxError(what, "retry when that is over", code=ALREADY_TRACED)
        if holder:
            return HeapxError(
                "process %d is already traced by %s (pid %d)" % (self.pid, holder.name, holder.pid),
                "detach that debugger first, or use heapx inside it",
                code=ALREADY_TRACED,
            )
        return procfs.why_not_permitted(self.pid)

    def _wait_for_stop(self, lwp: int, deadline: float) -> None:
        """Until the thread stands still, has ended, or patience runs out."""
        pause = 0.00005
        while True:
            try:
                got, state = self._wait_for(lwp)
            except ChildProcessError:
                self.held.pop(lwp, None)
                return
            if got and os.WIFSTOPPED(state):
                # an event stop of ours carries no signal for the program; any other stop is one about to be delivered
                self.held[lwp] = Stopped(0 if state >> 16 == PTRACE_EVENT_STOP else os.WSTOPSIG(state))
                spare_traced_thread(lwp)  # at once: the kernel lets it go by itself if this process is killed
                return
            if got:
                self.held.pop(lwp, None)
                return
            if time.monotonic() > deadline:
                if lwp not in self.late:
                    self.late.append(lwp)
                return
            self._pause_for(pause)
            pause = min(pause * 2, 0.002)

    def _pause_for(self, seconds: float) -> None:
        time.sleep(seconds)

    def register_sets(self, numbers: Sequence[int]) -> Dict[int, List[bytes]]:
        """Return the contents of these register sets for each held thread; empty if there is none."""
        return {lwp: [self._read_set(lwp, number) for number in numbers] for lwp in self.held}

    def _read_set(self, lwp: int, number: int) -> bytes:
        vector = Vector(ctypes.addressof(self._buffer), len(self._buffer))
        if self._call_ptrace(PTRACE_GETREGSET, lwp, number, ctypes.addressof(vector)):
            return b""
        return self._buffer.raw[: vector.length]

    def let_go(self) -> None:
        """Let every thread run on, those that stand first. Harmless when called twice."""
        dying: Set[int] = set()
        standing = {lwp: state for lwp, state in self.held.items() if state.signal >= 0}
        for lwp, state in standing.items():
            self._detach_thread(lwp, state, dying)
        if self.stopped_ms is None:
            self.stopped_ms = round((time.monotonic() - self.began_s) * 1000, 1)
        deadline = time.monotonic() + PATIENCE
        for lwp in list(self.held):  # not seen standing yet: only a standing thread can be let go
            self._wait_for_stop(lwp, deadline)
            if lwp in self.held:
                self._detach_thread(lwp, self.held[lwp], dying)
        self._see_off(dying)

    def _detach_thread(self, lwp: int, state: Stopped, dying: Set[int]) -> None:
        del self.held[lwp]
        if self._call_ptrace(PTRACE_DETACH, lwp, 0, max(state.signal, 0)) == errno.ESRCH:
            dying.add(lwp)

    def _see_off(self, dying: Set[int]) -> None:
        """Threads that could not be let go are being killed. Their end must be waited for: until its tracer knows, each stays as a
        zombie."""
        deadline = time.monotonic() + PATIENCE
        while dying and time.monotonic() < deadline:
            for lwp in list(dying):  # the first thread's end is told only after all others'
                try:
                    got, state = self._wait_for(lwp)
                except ChildProcessError:
                    got, state = lwp, 0
                if got and (not os.WIFSTOPPED(state) or not self._call_ptrace(PTRACE_DETACH, lwp)):
                    dying.discard(lwp)
            if dying:
                time.sleep(0.001)
