"""Ends this process where it does not end by itself: a second after a signal or the deadline, whatever the main thread is in.

The C library has the thread for that: it needs no lock of Python's. Without the library nothing is read that could last. Nothing here
knows gdb: in the user's own gdb no one calls start(), and the other functions do nothing.
"""

import os
import signal
import time
from array import array
from contextlib import contextmanager
from typing import Any, Callable, Iterator, Optional

from gdbheapx.common.budget import LEAST_S, NAMES
from gdbheapx.common.errors import HeapxError, Interrupted
from gdbheapx.common.problems import CUT
from gdbheapx.kernel.common.library import address_of

WATCH_STATE, WATCH_BEGUN, WATCH_ANSWERED = 0, 1, 2
"""Cells: one of the states; a part of the answer was written; all is read, and only signals count."""
WATCH_CELLS = 3
WATCH_ON, WATCH_HELD, WATCH_ENDS = 0, 1, 2
"""States: the process may be ended; it must not be; it is being ended."""
WATCH_PATHS, WATCH_PATH_BYTES = 8, 4096
"""How many files can be removed at the end, and how long a path may be."""

_cells: Any = [0] * WATCH_CELLS
_paths: Any = bytearray(WATCH_PATHS * WATCH_PATH_BYTES)
_library: Optional[Any] = None
"""What the thread reads, and the library that has the thread; with it both are the library's, which never frees them."""


def start_watching(
    library: Optional[Any],
    max_seconds: Optional[float],
    document: Callable[[HeapxError], str],
    out: int = 1,
    told: int = -1,
    wake: Optional[int] = None,
) -> None:
    """Watch this process from now on. `document`: what goes to `out` for an error where nothing was written; `told`: where the exit code is
    shown; `wake`: gives the numbers of signals, where Python's handlers are not the ones that hear them."""
    global _cells, _paths, _library
    if library is None:
        return
    until = float("inf") if max_seconds is None else time.monotonic() + max(max_seconds, LEAST_S)
    late = HeapxError("stopped after --max-seconds %g before there was an answer" % (max_seconds or 0), "raise --max-seconds", code=CUT)
    errors = [late, *(Interrupted(NAMES[number]) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM))]
    texts = [part.encode("utf-8", "replace") for error in errors for part in ("gdbheapx: %s\n" % error.line(), document(error))]
    if wake is None:
        wake, writing = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        except ValueError:  # not the main thread: the deadline alone counts
            pass
    import ctypes

    numbers = array("B", b"\0".join(texts) + b"\0")
    place = library.heapx_watchdog_start(address_of(numbers), len(numbers), until, wake, out, told)
    if place:
        _library, _cells = library, (ctypes.c_uint64 * WATCH_CELLS).from_address(place)
        _paths = (ctypes.c_ubyte * (WATCH_PATHS * WATCH_PATH_BYTES)).from_address(place + ctypes.sizeof(_cells))


def hold_off() -> None:
    """Keep this process from being ended from now on: a process is being changed."""
    _set_state(WATCH_HELD)


def end_hold_off() -> None:
    """Allow this process to be ended again: nothing is being changed any more. Harmless when called twice."""
    _set_state(WATCH_ON)


def _set_state(state: int) -> None:
    if _library is None:
        _cells[WATCH_STATE] = state
    else:
        import ctypes

        _library.heapx_watchdog_hold(ctypes.addressof(_cells), int(state == WATCH_HELD))


@contextmanager
def held_off() -> Iterator[None]:
    """Do so for a block."""
    hold_off()
    try:
        yield
    finally:
        end_hold_off()


def mark_begun() -> None:
    """A part of the answer is written: no document follows it."""
    _cells[WATCH_BEGUN] = 1


def mark_answered() -> None:
    """Everything is read: how long the reader of the answer takes is not for --max-seconds."""
    _cells[WATCH_ANSWERED] = 1


def remove_at_end(path: str) -> int:
    """Have this file removed where the process is ended; the number by which keep() undoes that, -1 where there is no room."""
    name = os.fsencode(os.path.abspath(path)) + b"\0"
    for place in range(0, len(_paths), WATCH_PATH_BYTES):
        if not _paths[place] and len(name) <= WATCH_PATH_BYTES:
            _paths[place + 1 : place + len(name)] = name[1:]
            _paths[place] = name[0]
            return place
    return -1


def forget_written_file(number: int) -> None:
    """The file of that number is whole, or gone."""
    if number >= 0:
        _paths[number] = 0
