"""Ctrl-C while a command runs: the first asks for a partial answer, the second stops."""

import ctypes
import signal
from types import FrameType, TracebackType
from typing import Any, Callable, Optional, Type

KERNEL_SIGACTION_BYTES = 512
"""More than sizeof(struct sigaction) anywhere."""


class CtrlC:
    """Calls `first` at the first Ctrl-C within the block; the second raises KeyboardInterrupt.

    Inside gdb the signal's true handler is gdb's, which Python's signal module cannot put back: it is saved and restored whole.
    """

    def __init__(self, first: Callable[[], None]) -> None:
        self._first = first
        self._seen = False
        self._libc: Any = None
        self._saved = ctypes.create_string_buffer(KERNEL_SIGACTION_BYTES)
        self._before: Any = None

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        if self._seen:
            raise KeyboardInterrupt
        self._seen = True
        self._first()

    def __enter__(self) -> "CtrlC":
        try:
            self._libc = ctypes.CDLL(None)
            self._libc.sigaction(int(signal.SIGINT), None, self._saved)
            self._before = signal.signal(signal.SIGINT, self._handle)
        except (OSError, AttributeError, ValueError):  # not the main thread, or no such function
            self._libc = None
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        if self._libc is not None:
            signal.signal(signal.SIGINT, self._before)
            self._libc.sigaction(int(signal.SIGINT), self._saved, None)
