"""Ctrl-C, SIGTERM and SIGHUP while a command runs: the first asks for a partial answer, the second stops."""

import ctypes
import signal
import time
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, List, Optional, Type

SIGACTION_BYTES = 512
"""More than sizeof(struct sigaction) anywhere."""
SAME_S = 0.3
"""A signal comes more than once where it is sent to a whole group, as a terminal and `timeout` do: whoever started gdb hands its own on,
and on a busy machine the second is not yet there when the first is taken. Nobody presses Ctrl-C again, and means it, within this time."""

NAMES = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGTERM): "SIGTERM", int(signal.SIGHUP): "SIGHUP"}


class Interrupts:
    """Calls `first` with the signal's name at the first of these signals within the block; the second raises KeyboardInterrupt.

    Inside gdb the signals' true handlers are gdb's, which Python's signal module cannot put back: they are saved and restored whole. A
    signal that is ignored stays so, as SIGHUP is under nohup. Not `restores`: the process ends with the command; once a signal has come,
    what comes again while it does is not to take its answer away.
    """

    def __init__(self, first: Callable[[str], None], restores: bool = True) -> None:
        self._first, self._restores = first, restores
        self._came_s: Dict[int, float] = {}
        self.heard: List[int] = []
        """Numbers of the signals that came."""
        self._libc: Any = None
        self._saved: Dict[int, Any] = {}
        self._before: Dict[int, Any] = {}

    @property
    def name(self) -> str:
        """The signal that came last, in words."""
        return NAMES[self.heard[-1]] if self.heard else "Ctrl-C"

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        now_s = time.monotonic()
        is_same = now_s - self._came_s.get(number, -SAME_S) < SAME_S
        self._came_s[number] = now_s
        if is_same:
            return
        self.heard.append(number)
        if len(self.heard) > 1:
            raise KeyboardInterrupt
        self._first(NAMES[number])

    def __enter__(self) -> "Interrupts":
        try:
            self._libc = ctypes.CDLL(None)
            for number in NAMES:
                if signal.getsignal(number) == signal.SIG_IGN:
                    continue
                saved = ctypes.create_string_buffer(SIGACTION_BYTES)
                self._libc.sigaction(number, None, saved)
                self._before[number] = signal.signal(number, self._handle)
                self._saved[number] = saved
        except (OSError, AttributeError, ValueError):  # not the main thread, or no such function
            pass
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if self.heard and not self._restores:
            self._first = lambda name: None  # nothing of the command stays for the handlers' sake
            self._before.clear()
            return
        for number, saved in self._saved.items():
            if self._before[number] is not None:
                signal.signal(number, self._before[number])
            self._libc.sigaction(number, saved, None)
