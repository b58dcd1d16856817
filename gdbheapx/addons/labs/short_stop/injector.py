"""Has one thread of a process make a userfaultfd and close it again, and takes it over in between. All other threads are stopped.

Before anything runs, frames are written below the part of the thread's stack that is in use, such as the kernel makes for a signal handler.
By them the thread gets from the first call to the second, and from there to where it was, with every register and its signal mask, if this
process ends: at whatever instant it is killed, the other one closes the descriptor itself and goes on. Where nothing is cut off, the
registers are set back as any debugger does, and interrupted system calls are made again by the kernel.

The code that the thread runs is the process's own, and may be another one by then: so each system call is looked at where it begins, and is
made only if it is the one that was asked for.
"""

import ctypes
import errno
import fcntl
import os
import signal
import struct
import time
from functools import cache, partial
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.labs.short_stop import find_injecting
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NO_SHORT_STOP
from gdbheapx.inferior.arch import native_architecture
from gdbheapx.inferior.base import Mapping
from gdbheapx.inferior.elf.file import NT_PRSTATUS
from gdbheapx.inferior.live import procfs, seccomp, tracer

FLAGS = os.O_CLOEXEC | os.O_NONBLOCK | 1
"""UFFD_USER_MODE_ONLY: what this needs is permitted to everybody with it."""
PTRACE_SYSCALL, PTRACE_SETOPTIONS, GET_RSEQ = 24, 0x4200, 0x420F
GET_SYSCALL_INFO, INFO, ENTRY = 0x420E, struct.Struct("<B3xIQQQQ"), 1
"""struct ptrace_syscall_info up to the first argument: what stop it is, machine, instruction pointer, stack pointer, number, argument."""
TRACESYSGOOD, SUSPEND_SECCOMP = 1, 1 << 21
PROCMAP_QUERY, QUERY_BYTES = 0xC0686611, 104
"""For one mapping by an address in it (linux/fs.h, Linux 6.11)."""
KCMP_VM, KCMP_FILES = 1, 2
USERFAULTFD = "anon_inode:[userfaultfd]"
"""What the link of such a descriptor says."""
MOST_FILTER_BYTES = 16 << 10
"""Of seccomp filters that are asked while the process is stopped: 2,048 instructions."""
CALL_STOP = tracer.SIGTRAP | 0x80
RSEQ_BYTES = 24
LIMIT_S = 0.05
"""How long the process may be stopped in one attempt; half of it for threads that do not stop. Then it goes on, by the frames if so."""
KILLED_S = 2 * LIMIT_S
"""After which the kernel ends this process, if it waits in a call that has no limit, for memory of the other one for example."""
FILTERED_S = 5.0
"""The limit where filters are set aside: without this process they are in force for the call that is under way."""
POLL_S = 0.001
"""Between two checks for what a signal should have reported."""
LOOKS, PAUSE_S = 10, 0.005
"""How often a thread is looked for that suits."""
ROOM_BYTES = 16 << 10
"""What must be left of its stack."""
EVENTS = 20
"""Stops for other reasons than the awaited one, in one step."""


class Prepared(NamedTuple):
    """Facts collected while the process runs."""

    pid: int
    code: int
    """Where there is code that makes a system call and returns."""
    back: int
    """Where there is code that goes on by a frame."""
    mappings: Sequence[Mapping]
    is_filtered: bool
    """Threads are under seccomp filters: those of the one that makes the calls are set aside if they would refuse them."""


class NotNow(Exception):
    """No thread suits at this moment, or the one that did was not quick enough: the reason."""


def system_call(name: str, *arguments: int) -> int:
    """A system call of this process by its name here; OSError as elsewhere."""
    calls = native_architecture().system_calls
    if calls is None or name not in calls.numbers:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    ctypes.set_errno(0)
    returned = int(_load_syscall()(calls.numbers[name], *arguments, *[0] * (5 - len(arguments))))
    if returned == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


def is_same_resource(pid: int, other: int, kind: int) -> Optional[bool]:
    """Two threads have one table of descriptors (KCMP_FILES, CLONE_FILES) or one memory (KCMP_VM, CLONE_VM); None if unknown."""
    try:
        return not system_call("kcmp", pid, other, kind)
    except OSError:
        return None


@cache
def _load_syscall() -> Any:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.argtypes, call.restype = (ctypes.c_long,) * 6, ctypes.c_long
    return call


def inject_calls(prepared: Prepared) -> Tuple[int, float]:
    """The descriptor, and how many milliseconds the process stood; HeapxError says why not. For a process of its own: its alarm ends it."""
    why = ""
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    for look in range(LOOKS):
        if look:
            time.sleep(PAUSE_S)
        injector = Injector(prepared)
        try:
            if not prepared.is_filtered:
                signal.setitimer(signal.ITIMER_REAL, KILLED_S)
            injector.stop()
            descriptor = injector.take()
        except NotNow as reason:
            why = str(reason)
            continue
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            injector.let_go()
            injector.close()
        return descriptor, injector.stopped_ms or 0.0
    raise HeapxError(
        "no thread of process %d can make the call: %s" % (prepared.pid, why), "retry, or omit --short-stop", code=NO_SHORT_STOP
    )


class Injector(tracer.Tracer):
    """Single attempt at an injection."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared = prepared
        self._memory = self._process = -1
        injecting, calls = find_injecting(), native_architecture().system_calls
        layout = native_architecture().registers
        assert injecting is not None and calls is not None and layout is not None
        shown = native_architecture().in_system_call
        assert shown is not None
        self._machine, self._numbers, self._audit, self._layout = injecting, calls.numbers, calls.audit, layout
        self._call_bytes = len(shown.instruction)
        self._result = layout.names.index(native_architecture().to_call().result)
        self._words = (ctypes.c_uint64 * len(layout.names))()
        self._mask = ctypes.c_uint64()
        self._system_call = system_call
        self._memory = os.open("/proc/%d/mem" % prepared.pid, os.O_RDWR | os.O_CLOEXEC)
        self._maps = os.open("/proc/%d/maps" % prepared.pid, os.O_RDONLY | os.O_CLOEXEC)
        self._process = os.pidfd_open(prepared.pid, 0)
        self._owed: List[int] = []
        """Signals that came meanwhile and that cannot be blocked."""
        super().__init__(prepared.pid, LIMIT_S)
        self._step_until_s = self.began_s + (FILTERED_S if prepared.is_filtered else LIMIT_S)

    def close(self) -> None:
        """Give back what was opened."""
        for descriptor in (self._memory, self._maps, self._process):
            os.close(descriptor)

    def let_go(self) -> None:
        """Let the threads go as every tracer does; then deliver the signals that were kept back."""
        super().let_go()
        while self._owed:
            try:
                os.kill(self.pid, self._owed.pop())
            except OSError:
                pass

    # ------------------------------------------------------------------------------------------------ which thread

    def take(self) -> int:
        """Return the descriptor; all threads are stopped. After NotNow another attempt may be made, also while this one's frames bring it
        back."""
        if self.late:
            raise NotNow("thread %d waits in the kernel and cannot be stopped" % self.late[0])
        for place, patterns in ((self._prepared.code, [self._machine.call_and_return]), (self._prepared.back, self._machine.come_back)):
            if not any(self._read_memory(place, len(pattern)) == pattern for pattern in patterns):
                raise NotNow("its code has changed")
        lwp, words, state = self._choose_thread()
        used = {int(name) for name in os.listdir("/proc/%d/fd" % self.pid)}
        predicted = next(number for number in range(len(used) + 1) if number not in used)  # of the next descriptor: all threads are stopped
        is_refused = self._prepared.is_filtered and self._is_refused(lwp, predicted)
        options = TRACESYSGOOD | (SUSPEND_SECCOMP if is_refused else 0)
        if self._call_ptrace(PTRACE_SETOPTIONS, lwp, 0, options):
            raise NotNow("the kernel does not set its seccomp filters aside")
        return self._make_calls(lwp, words, state, predicted)

    def _is_refused(self, lwp: int, predicted: int) -> bool:
        """The thread's seccomp filters may refuse one of the calls, or are not understood."""
        try:
            filters = tracer.fetch_seccomp_filters(lwp)
            if sum(map(len, filters)) > MOST_FILTER_BYTES:
                return True
            made = (("userfaultfd", FLAGS), ("close", predicted), ("rt_sigreturn", None))
            return any(
                seccomp.compute_filter_answers(filters, self._numbers[name], [first]) - {seccomp.ALLOW, seccomp.LOG} for name, first in made
            )
        except HeapxError:
            return True

    def _choose_thread(self) -> Tuple[int, List[int], bytes]:
        """The thread that suits best, its registers and its state."""
        best: Optional[Tuple[int, Tuple[int, List[int], bytes]]] = None
        why = "all are about to get a signal"
        for lwp in sorted(self.held, key=lambda one: one != self.pid):
            if self.held[lwp] or not self._get_registers(lwp):
                continue
            words = list(self._words)
            state = tracer.register_set(lwp, native_architecture().to_call().state_set)
            against = self._machine.against(words, state, partial(tracer.register_set, lwp)) or self._find_objection(lwp, words)
            if against is not None:
                why = "thread %d %s" % (lwp, against)
                continue
            rank = self._machine.rank(words)
            if best is None or rank < best[0]:
                best = rank, (lwp, words, state)
            if not rank:
                break
        if best is None:
            raise NotNow(why)
        return best[1]

    def _read_register(self, words: Sequence[int], name: Optional[str]) -> int:
        assert name is not None
        return words[self._layout.names.index(name)]

    def _find_own_stack(self, lwp: int, words: Sequence[int]) -> Optional[Mapping]:
        """The thread's own stack: what is below its stack pointer is unused."""
        at, pointer = self._read_register(words, self._layout.sp), self._thread_pointer(lwp, words)
        span = next((one for one in self._prepared.mappings if one.start <= at < one.end), None)
        if span is None or not span.writable or span.shared:
            return None
        if lwp == self.pid:
            return span if span.name == "[stack]" else None
        return span if pointer is not None and at < pointer < span.end else None

    def _thread_pointer(self, lwp: int, words: Sequence[int]) -> Optional[int]:
        layout = self._layout
        if layout.read_pointer is None or layout.pointer_set is None:
            return self._read_register(words, layout.thread_pointer)
        return layout.read_pointer(dict(zip(layout.names, words)), tracer.register_set(lwp, layout.pointer_set), "<")

    def _is_there(self, span: Mapping) -> bool:
        """The mapping is as it was: asked of the kernel for this one, where it answers that; it may have ten thousand."""
        query = bytearray(struct.pack("<3Q", QUERY_BYTES, 0, span.start).ljust(QUERY_BYTES, b"\0"))
        try:
            fcntl.ioctl(self._maps, PROCMAP_QUERY, query)
        except OSError as error:
            if error.errno not in (errno.ENOTTY, errno.EINVAL):
                return False
            return b"%x-%x rw" % (span.start, span.end) in (procfs.slurp_file("/proc/%d/maps" % self.pid) or b"")
        start, end, flags = struct.unpack_from("<3Q", query, 24)
        return (start, end, flags & 3) == (span.start, span.end, 3)

    def _find_objection(self, lwp: int, words: Sequence[int]) -> Optional[str]:
        span, at = self._find_own_stack(lwp, words), self._read_register(words, self._layout.sp)
        if span is None or not self._is_there(span):
            return "runs on a stack that is not its own"
        if at - span.start < ROOM_BYTES:
            return "has only %d bytes of its stack left" % (at - span.start)
        if not self._prepared.is_filtered and b"\nSeccomp:\t%d\n" % seccomp.DISABLED not in (
            procfs.slurp_file("/proc/%d/status" % lwp) or b""
        ):
            return "has come under a seccomp filter"
        if lwp != self.pid and not is_same_resource(self.pid, lwp, KCMP_FILES):
            return "has descriptors of its own"
        pc, shown = self._read_register(words, self._layout.pc), native_architecture().in_system_call
        if self._is_in_rseq(lwp, pc):
            return "is in code that must not be interrupted (rseq)"
        if pc == self._prepared.code:  # the kernel would take the call for the thread's own
            return "waits where the call is to be made"
        return None if shown is None else shown.against(dict(zip(self._layout.names, words)), pc, self._read_memory)

    def _is_in_rseq(self, lwp: int, pc: int) -> bool:
        """Return True in a restartable sequence (rseq(2)), which the kernel aborts: it would not once the thread has been elsewhere."""
        if self._call_ptrace(GET_RSEQ, lwp, RSEQ_BYTES, ctypes.addressof(self._buffer)):
            return False
        area = int.from_bytes(self._buffer.raw[:8], "little")
        section = int.from_bytes(self._read_memory(area + 8, 8), "little") if area else 0
        if not section:
            return False
        told = self._read_memory(section, 32)
        if len(told) < 32:
            return True
        start, length = struct.unpack_from("<QQ", told, 8)
        return bool(start <= pc < start + length)

    # ------------------------------------------------------------------------------------------------ what it does

    def _make_calls(self, lwp: int, words: Sequence[int], state: bytes, predicted: int) -> int:
        machine, code, back = self._machine, self._prepared.code, self._prepared.back
        if self._call_ptrace(tracer.GETSIGMASK, lwp, tracer.MASK_BYTES, ctypes.addressof(self._mask)):
            raise NotNow("the kernel does not tell its signal mask")
        mask = self._mask.value
        base = machine.base(words, state)
        frames = machine.frames(words, state, mask, base, code, back, self._numbers["close"], predicted)
        before = self._read_memory(base, len(frames))
        if len(before) != len(frames):
            raise NotNow("thread %d has a stack that cannot be read" % lwp)
        os.pwrite(self._memory, frames, base)
        self._put_registers(lwp, machine.call(words, base, code, back, self._numbers["userfaultfd"], FLAGS))
        self._set_mask(lwp, (1 << 64) - 1)  # behind the registers: now the frames give the mask back
        descriptor, refusal = -1, ""
        try:
            refusal = self._enter_syscall(lwp, "userfaultfd", FLAGS)
            if not refusal:
                self._step_thread(lwp, PTRACE_SYSCALL, CALL_STOP)
                made = self._read_result(lwp)
                if made < 0:
                    refusal = "userfaultfd fails in it: %s" % os.strerror(-made)
                else:
                    if made != predicted:
                        os.pwrite(self._memory, made.to_bytes(8, "little"), base + machine.argument_at)
                    try:
                        descriptor = self._system_call("pidfd_getfd", self._process, made, 0)
                        if os.readlink("/proc/self/fd/%d" % descriptor) != USERFAULTFD:
                            refusal = "its descriptor %d is not the userfaultfd that was made" % made
                    except OSError as error:
                        refusal = "its userfaultfd cannot be taken over: %s" % os.strerror(error.errno or 0)
                    self._put_registers(lwp, machine.call(words, base + machine.frame_bytes, code, back, self._numbers["close"], made))
                    refusal = self._enter_syscall(lwp, "close", made) or refusal
            # the stop in which the kernel goes on with an interrupted call is this one, and not that at a call's end
            self._call_ptrace(tracer.PTRACE_INTERRUPT, lwp)
            self._step_thread(lwp, tracer.PTRACE_CONT, 0)
            self._call_ptrace(PTRACE_SETOPTIONS, lwp, 0, TRACESYSGOOD)
            self._set_mask(lwp, mask)
            self._put_registers(lwp, words)
            os.pwrite(self._memory, before, base)
            if refusal:
                raise HeapxError("process %d: %s" % (self.pid, refusal), "omit --short-stop", code=NO_SHORT_STOP)
        except BaseException:  # the frames bring it back, where it is not back
            if descriptor >= 0:
                os.close(descriptor)
            raise
        return descriptor

    def _enter_syscall(self, lwp: int, name: str, argument: int) -> str:
        """Let the thread run to the entry of its next system call. If that is not this one, none is made, and this says what was found."""
        self._step_thread(lwp, PTRACE_SYSCALL, CALL_STOP)
        if self._call_ptrace(GET_SYSCALL_INFO, lwp, INFO.size, ctypes.addressof(self._buffer)):
            raise NotNow("the kernel does not tell which system call thread %d makes" % lwp)
        stop, audit, pc, _, number, first = INFO.unpack_from(self._buffer)
        if (stop, audit, pc, number, first) == (ENTRY, self._audit, self._prepared.code + self._call_bytes, self._numbers[name], argument):
            return ""
        self._get_registers(lwp)
        if stop != ENTRY or not tracer.set_register_set(lwp, *self._machine.cancelled(list(self._words))):
            raise NotNow("a system call of thread %d cannot be cancelled" % lwp)
        return "instead of %s its thread %d was about to make system call %d at 0x%x: it was cancelled" % (name, lwp, number, pc)

    def _step_thread(self, lwp: int, request: int, awaited: int) -> None:
        """Let the thread run to its next stop: at a system call, or 0: the one that was asked for. NotNow where there is none."""
        for _ in range(EVENTS):
            if self._call_ptrace(request, lwp):
                break
            while True:
                got, state = self._wait_for(lwp)
                if got or time.monotonic() > self._step_until_s:
                    break
                self._pause_for(POLL_S)
            if not got or not os.WIFSTOPPED(state):
                break
            number = os.WSTOPSIG(state)
            if state >> 16 == tracer.PTRACE_EVENT_STOP:
                if not awaited:
                    return
            elif number == awaited:
                return
            elif number != CALL_STOP:
                self._owed.append(number)
        raise NotNow("thread %d did not stop where it should" % lwp)

    # ------------------------------------------------------------------------------------------------ the least

    def _pause_for(self, seconds: float) -> None:
        signal.sigtimedwait([signal.SIGCHLD], max(seconds, POLL_S))

    def _read_memory(self, address: int, count: int) -> bytes:
        try:
            return os.pread(self._memory, count, address)
        except (OSError, OverflowError):
            return b""

    def _get_registers(self, lwp: int) -> bool:
        vector = tracer.Vector(ctypes.addressof(self._words), ctypes.sizeof(self._words))
        return not self._call_ptrace(tracer.GETREGSET, lwp, NT_PRSTATUS, ctypes.addressof(vector)) and vector.length == ctypes.sizeof(
            self._words
        )

    def _put_registers(self, lwp: int, words: Sequence[int]) -> None:
        self._words[:] = list(words)
        vector = tracer.Vector(ctypes.addressof(self._words), ctypes.sizeof(self._words))
        if self._call_ptrace(tracer.SETREGSET, lwp, NT_PRSTATUS, ctypes.addressof(vector)):
            raise NotNow("registers of thread %d cannot be set" % lwp)

    def _set_mask(self, lwp: int, mask: int) -> None:
        self._mask.value = mask
        if self._call_ptrace(tracer.SETSIGMASK, lwp, tracer.MASK_BYTES, ctypes.addressof(self._mask)):
            raise NotNow("the signal mask of thread %d cannot be set" % lwp)

    def _read_result(self, lwp: int) -> int:
        if not self._get_registers(lwp):
            raise NotNow("registers of thread %d cannot be read" % lwp)
        return ctypes.c_int64(self._words[self._result]).value
