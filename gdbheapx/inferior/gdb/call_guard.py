"""Protect a call into a process: signals are deferred meanwhile, and a watchdog bounds its time."""

import ctypes
import os
import signal
import subprocess
from typing import Any, Dict, List

from gdbheapx.errors import HeapxError
from gdbheapx.problems import NOT_PERMITTED

GET_MASK, SET_MASK = 0x420A, 0x420B
NEVER_BLOCKED = (2, 4, 5, 6, 7, 8, 9, 11, 19, 31)
"""SIGINT, by which a call is interrupted; what a thread raises itself, which the kernel would make fatal if it were blocked; KILL and
STOP."""
SIGACTION_BYTES = 512
"""More than sizeof(struct sigaction) anywhere."""
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
        self._ptrace: Any = None

    def __enter__(self) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes, libc.ptrace.restype = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p), ctypes.c_long
        if libc.ptrace(GET_MASK, self._lwp, 8, ctypes.addressof(self._before)):
            what = "cannot hold back the signals of thread %d: %s" % (self._lwp, os.strerror(ctypes.get_errno()))
            raise HeapxError(what, code=NOT_PERMITTED)
        self._ptrace = libc.ptrace
        mask = 0xFFFFFFFFFFFFFFFF
        for number in NEVER_BLOCKED:
            mask &= ~(1 << number - 1)
        self._set_mask(mask)

    def _set_mask(self, mask: int) -> None:
        value = (ctypes.c_uint64 * 1)(mask)
        if self._ptrace is not None:
            self._ptrace(SET_MASK, self._lwp, 8, ctypes.addressof(value))

    def __exit__(self, *error: object) -> None:
        self._set_mask(self._before[0])


class DeferredSignals:
    """Defers signals that end or stop gdb until a call into the process is done.

    Inside gdb the true handlers are gdb's, which Python's signal module cannot put back: they are saved and restored whole. A handler in
    Python that was there before is put back too: it would be called by the true one again.
    """

    def __init__(self) -> None:
        self._libc: Any = ctypes.CDLL(None)
        self._saved: Dict[int, Any] = {}
        self._before: Dict[int, Any] = {}
        self._heard: List[int] = []

    def __enter__(self) -> None:
        for number in LATER:
            saved = ctypes.create_string_buffer(SIGACTION_BYTES)
            self._libc.sigaction(int(number), None, saved)
            try:
                self._before[int(number)] = signal.signal(number, lambda number, frame: self._heard.append(number))
            except ValueError:  # not the main thread
                return
            self._saved[int(number)] = saved

    def __exit__(self, *error: object) -> None:
        for number, saved in self._saved.items():
            if self._before[number] is not None:
                signal.signal(number, self._before[number])
            self._libc.sigaction(number, saved, None)
        for number in self._heard:
            os.kill(os.getpid(), number)


class CallWatchdog:
    """Sends the process a SIGINT, which gdb keeps to itself, if something in it takes too long. Older gdbs have no bound of their own."""

    def __init__(self, pid: int, bound_s: float) -> None:
        script = "sleep %g && echo fired && kill -INT %d" % (bound_s + 1, pid)  # told first: whoever is stopped by it cancels at once
        self.fired = False
        try:
            self._child: Any = subprocess.Popen(
                ["/bin/sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
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
