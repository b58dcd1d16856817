"""If gdb is killed in the middle of a call, the call ends all the same, and the process goes on as it was.

A call that gdb makes returns to a place where nothing is but a breakpoint: without gdb the process would die there. So a helper waits
next to gdb. When gdb ends, it takes gdb's breakpoints out of the code, becomes the tracer of the thread that makes the call, lets the call
come to that place, and sets the registers and the signal mask back.

What it cannot catch is a thread that comes to that place between gdb's death and the moment when gdb has given it free. Where the thread
is there while gdb lives, all its signals are blocked: the kernel then keeps the fault for later, and the helper takes it away.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import signal
import time
import warnings
from typing import Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.arch import native_architecture
from gdbheapx.inferior.base import Mapping
from gdbheapx.inferior.elf.file import NT_PRSTATUS
from gdbheapx.inferior.live import keeper, procfs, tracer
from gdbheapx.inferior.live.tracer import GETSIGMASK, SETSIGMASK, Tracer

CALLING, BETWEEN, OVER = b"c", b"b", b"o"
"""What gdb shows the helper: a call is made, none is at the moment, there will be none any more."""
FAULTS = (signal.SIGILL, signal.SIGTRAP, signal.SIGBUS, signal.SIGSEGV)
"""By one of them a thread stops at the place that a call returns to."""
POLL_S = 0.00005
FREED_S = 10.0
"""How long gdb may take to give the thread free once it has ended."""
DUMMY_BYTES = 64 << 10
"""So far below the stack pointer gdb may have put the place that a call returns to, if it is on the stack."""
BREAKPOINT_BYTES = 4
"""The longest one."""
LEAST, HALF = -1000, 1024
"""The lowest oom_score_adj (proc(5)): such a process is never taken. Steps on the way to what is allowed."""


class Before(NamedTuple):
    """The thread that makes calls, as it is before the first."""

    sets: Sequence[Tuple[int, bytes]]
    """(number, contents) of register sets, the general one first."""
    mask: int
    code: Sequence[Tuple[int, bytes]]
    """(address, what is there) where gdb may put a breakpoint."""


@contextlib.contextmanager
def kept_alive(path: str = "/proc/self/oom_score_adj") -> Iterator[None]:
    """The kernel takes another process where memory is short, as far as this one may ask for that."""
    before = procfs.slurp_file(path)
    try:
        value, step = int(before or b""), HALF
        while step and value > LEAST:
            wanted, step = max(LEAST, value - step), step // 2
            if _try_write(path, b"%d" % wanted):
                value = wanted
    except ValueError:
        before = None
    try:
        yield
    finally:
        if before is not None:
            _try_write(path, before)


def _try_write(path: str, data: bytes) -> bool:
    try:
        with open(path, "wb", buffering=0) as file:
            file.write(data)
    except OSError:
        return False
    return True


class Standby(Tracer):
    """Next to gdb, which holds the process: the helper is there for the length of a block. Without it where there can be none."""

    def __init__(self, pid: int, lwp: int, breakpoints: Sequence[int], mappings: Sequence[Mapping], entry: Optional[int]) -> None:
        super().__init__(pid, FREED_S)
        self._lwp, self._entry, self._telling, self._child = lwp, entry, -1, 0
        self._word, self._before, self._state = ctypes.c_uint64(), Before((), 0, ()), mmap.mmap(-1, mmap.PAGESIZE)
        code = [one for one in mappings if one.executable and not one.writable]
        self._breakpoints = [at for at in breakpoints if any(one.start <= at < one.end - BREAKPOINT_BYTES for one in code)]

    def __enter__(self) -> "Standby":
        machine = native_architecture().calling
        numbers = [NT_PRSTATUS] + ([machine.state_set] if machine is not None else [])
        code = [(at, self._read_code(at)) for at in self._breakpoints if at != self._entry]
        self._before = Before([(number, tracer.register_set(self._lwp, number)) for number in numbers], self._read_mask(), code)
        self._state[:1] = BETWEEN
        try:
            heard, self._telling = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that other threads hold locks: it takes none of theirs
                self._child = os.fork()
        except OSError:
            return self
        if not self._child:
            try:
                keeper.detach_keeper(heard)
                os.read(heard, 1)  # until gdb has closed the other end, or has ended
                if self._state[:1] != OVER:
                    self.finish(self._state[:1] == CALLING)
            finally:
                os._exit(0)
        os.close(heard)
        return self

    def __exit__(self, *error: object) -> None:
        if self._child:
            self._set_mask(self._before.mask)
            self._state[:1] = OVER
        if self._telling >= 0:
            os.close(self._telling)
        if self._child:
            try:
                os.waitpid(self._child, 0)
            except ChildProcessError:
                pass  # gdb waits for every child of its own, and was quicker

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """A call is made. After it the thread is where its return has made it stop, for which it would be killed if gdb were."""
        self._state[:1] = CALLING
        try:
            yield
        finally:
            if self._child:
                self._set_mask((1 << 64) - 1)
            self._state[:1] = BETWEEN

    def _read_code(self, at: int) -> bytes:
        try:
            with open("/proc/%d/mem" % self.pid, "rb", buffering=0) as memory:
                return os.pread(memory.fileno(), BREAKPOINT_BYTES, at)
        except OSError:
            return b""

    def _read_mask(self) -> int:
        self._call_ptrace(GETSIGMASK, self._lwp, tracer.MASK_BYTES, ctypes.addressof(self._word))
        return self._word.value

    def _set_mask(self, mask: int) -> None:
        self._word.value = mask
        self._call_ptrace(SETSIGMASK, self._lwp, tracer.MASK_BYTES, ctypes.addressof(self._word))

    # ------------------------------------------------------------------------------------------------ in the helper

    def finish(self, is_called: bool) -> None:
        """Wait for the end of gdb, then remove its traces and let the thread go on as it was. `is_called`: a call had begun."""
        self._restore_code()
        if not self._is_seized():
            return
        self._call_ptrace(tracer.PTRACE_INTERRUPT, self._lwp)
        there, is_first = self._read_position(self._before.sets[0][1]), True
        while True:
            number = self._wait_stop()
            if number is None:
                return
            here = self._read_position(tracer.register_set(self._lwp, NT_PRSTATUS))
            is_back = number in FAULTS and self._returns_to(here[0], there[1])
            if is_back or here == there:
                for one in self._before.sets:
                    tracer.set_register_set(self._lwp, *one)
                return self._let_run(0 if is_back else number)
            if is_first and (not is_called or here[1] > there[1] or self._read_mask() == self._before.mask):
                return self._let_run(number)  # it runs the program
            self._call_ptrace(tracer.PTRACE_CONT, self._lwp, 0, number)
            is_first = False

    def _restore_code(self) -> None:
        """Take gdb's breakpoints out, except the one that a call returns to."""
        try:
            with open("/proc/%d/mem" % self.pid, "r+b", buffering=0) as memory:
                for at, code in self._before.code:
                    if os.pread(memory.fileno(), len(code), at) != code:
                        os.pwrite(memory.fileno(), code, at)
        except OSError:
            pass  # it has ended

    def _is_seized(self) -> bool:
        """Seize the thread as soon as gdb has released it; False if that fails."""
        self.until_s = time.monotonic() + FREED_S
        while True:
            failed = self._call_ptrace(tracer.PTRACE_SEIZE, self._lwp)
            if failed != errno.EPERM or time.monotonic() > self.until_s:
                return not failed
            time.sleep(POLL_S)

    def _wait_stop(self) -> Optional[int]:
        """The signal that its next stop is about, 0 if none; None where it has ended."""
        state = os.waitpid(self._lwp, tracer.WALL)[1]
        if not os.WIFSTOPPED(state):
            return None
        return 0 if state >> 16 == tracer.PTRACE_EVENT_STOP else os.WSTOPSIG(state)

    def _returns_to(self, pc: int, sp: int) -> bool:
        """A call comes back to this place; after a breakpoint that the processor has run, or at it. `sp`: the thread's before."""
        return sp - DUMMY_BYTES < pc <= sp or (self._entry is not None and pc in (self._entry, self._entry + 1))

    @staticmethod
    def _read_position(words: bytes) -> List[int]:
        """The program counter and the stack pointer."""
        layout = native_architecture().registers
        assert layout is not None
        places = (layout.names.index(str(name)) for name in (layout.pc, layout.sp))
        return [int.from_bytes(words[8 * place : 8 * place + 8], "little") for place in places]

    def _let_run(self, number: Optional[int]) -> None:
        """Detach the thread with its own signal mask and this signal. A fault that is pending under the mask is the one of a call's end,
        and is dropped.
        """
        waiting = int(procfs.read_process_status(self._lwp).get("SigPnd", "0"), 16)
        self._set_mask(self._before.mask)
        if any(waiting >> fault - 1 & 1 for fault in FAULTS):
            self._call_ptrace(tracer.PTRACE_CONT, self._lwp, 0, number or 0)
            number = self._wait_stop()
            number = 0 if number in FAULTS else number
        if number is not None:
            tracer.spare_traced_thread(self._lwp)
            self._call_ptrace(tracer.PTRACE_DETACH, self._lwp, 0, number)
