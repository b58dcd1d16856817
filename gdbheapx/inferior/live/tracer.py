"""Stop a process of this machine for a moment with PTRACE_SEIZE, read its registers and seccomp filters, and let it run on.

It writes nothing, sends no signal and needs no debugger. Why not gdb's attach: that costs 15 to 200 ms of the process's time, this 1 to
4 ms. If this process dies, the kernel lets the other one run on by itself. As with any debugger a few system calls, epoll_wait among
them, return EINTR to a program that is stopped in them (signal(7)). `Tracer` runs in the keeper (keeper.py), which lets go on time;
`Stopper` (stopper.py) asks it.

One exception: a thread that was stopped in a sleep, or in a wait with a time limit, a seccomp filter would kill when it is let go.
The kernel goes on with such a system call by another one, restart_syscall(2), of which the program knows nothing; a filter that does
not list it kills the program as soon as anything stops it, also SIGSTOP. Such a thread is given the error EINTR instead, as a signal
would give. seccomp.py computes what a filter answers.
"""

import ctypes
import errno
import os
import signal
import subprocess
import time
from functools import cache
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

from gdbheapx.common.budget import SavedHandlers
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import ALREADY_TRACED, NOT_PERMITTED, PROCESS_ENDED, SECCOMP
from gdbheapx.inferior.arch import native_architecture
from gdbheapx.inferior.elf.file import NT_PRSTATUS
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.seccomp import ALLOW, FILTER, LOG, compute_filter_answers, read_seccomp_rules, system_calls

GET_FILTER = 0x420C
"""PTRACE_SECCOMP_GET_FILTER (Linux 4.4): for a tracer with CAP_SYS_ADMIN that is under no seccomp itself."""
MOST_FILTERS, MOST_INSTRUCTIONS = 256, 4096
"""More than the kernel takes (MAX_INSNS_PER_PATH, BPF_MAXINSNS)."""
ENOENT = 2
RESTART = "restart_syscall"
"""By which the kernel goes on with a sleep or a wait with a time limit that a stop has interrupted; the filter is asked for it."""
GETREGSET, SETREGSET = 0x4204, 0x4205
RESTART_BLOCK, EINTR = -516, -4
"""-ERESTART_RESTARTBLOCK (linux/errno.h), which only a tracer sees."""
WORD = (1 << 64) - 1
PTRACE_CONT, PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 7, 17, 0x4206, 0x4207
GETSIGMASK, SETSIGMASK, MASK_BYTES = 0x420A, 0x420B, 8
PTRACE_EVENT_STOP = 128
WALL = 0x40000000
SIGTRAP = 5
PATIENCE = 5.0
"""Seconds to wait for threads to stop: one in an uninterruptible sleep (disk, NFS) does not before that ends. The others are stopped
meanwhile, so no more than half of the longest stop."""
UNSTOPPABLE = "waits in the kernel and cannot be stopped: in vfork, until its child calls exec or exits, or on a device"
REGISTER_BYTES = 16 << 10
"""More than any register set has, those with matrices among them."""


def spare_traced_thread(lwp: int) -> bool:
    """Do so for a thread that this process traces and that is stopped; whether it was necessary. Never raises."""
    words = find_danger(lwp)
    return words is not None and _access_registers(SETREGSET, lwp, words)


def find_danger(lwp: int) -> "Optional[ctypes.Array[ctypes.c_int64]]":
    """Return a thread's registers as they have to be, if it would be killed, or would get an error that it cannot expect, once it is let
    go; None if not, or if it is gone, or of another machine's program. Only reads."""
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


def fetch_seccomp_filters(lwp: int) -> List[bytes]:
    """The filters of a thread that this process traces and that is stopped, the newest first. HeapxError says why not."""
    ptrace = _load_ptrace()
    filters: List[bytes] = []
    while len(filters) < MOST_FILTERS:
        ctypes.set_errno(0)
        count = ptrace(GET_FILTER, lwp, len(filters), None)
        if count < 0 and ctypes.get_errno() == ENOENT:
            return filters
        if not 0 < count <= MOST_INSTRUCTIONS:
            raise HeapxError("the kernel does not give them: %s" % os.strerror(ctypes.get_errno()), code=SECCOMP)
        data = ctypes.create_string_buffer(8 * count)
        if ptrace(GET_FILTER, lwp, len(filters), ctypes.addressof(data)) != count:
            raise HeapxError("the kernel does not give them: %s" % os.strerror(ctypes.get_errno()), code=SECCOMP)
        filters.append(data.raw)
    raise HeapxError("there are more than %d" % MOST_FILTERS, code=SECCOMP)


def _may_restart(lwp: int) -> bool:
    rules = read_seccomp_rules(lwp)
    if rules.mode != FILTER:
        return True
    try:
        answers = compute_filter_answers(fetch_seccomp_filters(lwp), system_calls().numbers[RESTART], ())
    except HeapxError:  # they are not given: those of a container, under which this process is as well, allow what a debugger needs
        mine = read_seccomp_rules(os.getpid())
        return rules.filters is not None and mine == rules
    return answers <= {ALLOW, LOG}


class Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


class Tracer:
    """Holds every thread of a process between stop() and let_go(). `limit_s`: its longest stop."""

    def __init__(self, pid: int, limit_s: float) -> None:
        self.pid = pid
        self.held: Dict[int, int] = {}
        """Held thread -> the signal it was about to get, handed on when it is let go; -1: it was not seen stopped yet."""
        self.late: List[int] = []
        """Threads that could not be stopped in time."""
        self.began_s = time.monotonic()
        self.until_s = self.began_s + limit_s
        self._patient_until_s = self.began_s + min(PATIENCE, limit_s / 2)
        self.stopped_ms: Optional[float] = None
        self._ptrace = _load_ptrace()
        self._buffer = ctypes.create_string_buffer(REGISTER_BYTES)
        self.ended: Optional[int] = None
        """Status of waitpid at the process's end."""

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
                    self.held[lwp] = -1
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
        if holder and holder[0] == os.getpid():  # by an earlier stop: only a thread that stands can be let go
            what = "thread %d of process %d %s" % (lwp, self.pid, UNSTOPPABLE)
            return HeapxError(what, "retry when that is over", code=ALREADY_TRACED)
        if holder:
            what = "process %d is already traced by %s (pid %d)" % (self.pid, holder[1], holder[0])
            return HeapxError(what, "detach that debugger first, or use heapx inside it", code=ALREADY_TRACED)
        return procfs.why_not_permitted(self.pid)

    def _wait_for_stop(self, lwp: int, deadline: float) -> None:
        """Until the thread is stopped, has ended, or patience runs out."""
        pause = 0.00005
        while True:
            try:
                got, state = self._wait_for(lwp)
            except ChildProcessError:
                self.held.pop(lwp, None)
                return
            if got and os.WIFSTOPPED(state):
                # an event stop of ours carries no signal for the program; any other stop is one about to be delivered
                self.held[lwp] = 0 if state >> 16 == PTRACE_EVENT_STOP else os.WSTOPSIG(state)
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
        return {lwp: [register_set(lwp, number) for number in numbers] for lwp in self.held}

    def let_go(self) -> None:
        """Let every thread run on, those that are stopped first. Harmless when called twice."""
        dying: Set[int] = set()
        for lwp in [lwp for lwp, state in self.held.items() if state >= 0]:
            self._detach_thread(lwp, dying)
        if self.stopped_ms is None:
            self.stopped_ms = round((time.monotonic() - self.began_s) * 1000, 1)
        deadline = time.monotonic() + PATIENCE
        for lwp in list(self.held):  # not seen standing yet: only a standing thread can be let go
            self._wait_for_stop(lwp, deadline)
            if lwp in self.held:
                self._detach_thread(lwp, dying)
        # What could not be let go is being killed. Its end must be waited for: until its tracer knows, each thread stays as a zombie.
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

    def _detach_thread(self, lwp: int, dying: Set[int]) -> None:
        number = self.held.pop(lwp)
        if self._call_ptrace(PTRACE_DETACH, lwp, 0, max(number, 0)) == errno.ESRCH:
            dying.add(lwp)


NEVER_BLOCKED = (2, 4, 5, 6, 7, 8, 9, 11, 19, 31)
"""SIGINT, by which a call is interrupted; what a thread raises itself, which the kernel would make fatal if it were blocked; KILL and
STOP."""
LATER = (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT, signal.SIGTSTP)
"""What ends or stops gdb, SIGINT aside, which ends the call."""
PR_SET_PDEATHSIG = 1


def end_with_parent(number: int) -> None:
    """Have the kernel send this process the signal when the one that started it has ended, however that came (prctl(2))."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)


class SignalMask:
    """Keeps one thread from handling signals while it runs something else: they wait, and come when it is done."""

    def __init__(self, lwp: int) -> None:
        self._lwp = lwp
        self._before = (ctypes.c_uint64 * 1)()

    def __enter__(self) -> None:
        if _load_ptrace()(GETSIGMASK, self._lwp, MASK_BYTES, ctypes.addressof(self._before)):
            what = "cannot hold back the signals of thread %d: %s" % (self._lwp, os.strerror(ctypes.get_errno()))
            raise HeapxError(what, code=NOT_PERMITTED)
        self._set_mask(WORD & ~sum(1 << number - 1 for number in NEVER_BLOCKED))

    def _set_mask(self, mask: int) -> None:
        value = (ctypes.c_uint64 * 1)(mask)
        _load_ptrace()(SETSIGMASK, self._lwp, MASK_BYTES, ctypes.addressof(value))

    def __exit__(self, *error: object) -> None:
        self._set_mask(self._before[0])


class DeferredSignals:
    """Defers signals that end or stop gdb until a call into the process is done."""

    def __init__(self) -> None:
        self._handlers = SavedHandlers()
        self._heard: List[int] = []

    def __enter__(self) -> None:
        try:
            for number in LATER:
                self._handlers.replace(number, lambda number, frame: self._heard.append(number))
        except ValueError:  # not the main thread
            pass

    def __exit__(self, *error: object) -> None:
        self._handlers.restore()
        for number in self._heard:
            os.kill(os.getpid(), number)


class CallWatchdog:
    """Sends the process a SIGINT, which gdb keeps to itself, if something in it takes too long. Older gdbs have no bound of their own."""

    def __init__(self, pid: int, bound_s: float) -> None:
        script = "sleep %g && echo fired && kill -INT %d" % (bound_s + 1, pid)  # told first: whoever is stopped by it cancels at once
        self.fired = False
        try:
            nowhere, pipe = subprocess.DEVNULL, subprocess.PIPE
            command = ["/bin/sh", "-c", script]
            self._child: Any = subprocess.Popen(command, stdin=nowhere, stdout=pipe, stderr=nowhere, start_new_session=True)
        except OSError:
            self._child = None

    def cancel(self) -> None:
        """Not needed any more."""
        if self._child is None:
            return
        try:
            os.killpg(self._child.pid, 9)
        except OSError:
            pass
        self.fired = b"fired" in self._child.stdout.read()
        self._child.stdout.close()
        try:
            self._child.wait()
        except OSError:
            pass
        self._child = None
