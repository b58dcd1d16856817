"""Limits of a walk: a bound in seconds, the longest pause of a process, and the user's Ctrl-C, checked between slices of work. A walk
that was cut short lacks time and is not damaged: `reason` distinguishes the two, and stays None as long as there was time for everything.
Ctrl-C, SIGTERM and SIGHUP while a command runs: the first asks for a partial answer, the second stops.
"""

import ctypes
import os
import signal
import sys
import time
from array import array
from types import FrameType, TracebackType
from typing import Any, Callable, Dict, List, Optional, Type

from gdbheapx.errors import HeapxError, StopOver
from gdbheapx.problems import CUT, STOP_LIMIT, ProblemCode

FIRST_SECONDS = 2.0
LEAST_S = 2.0
"""A shorter --max-seconds bounds walks alone: unpacking a core, and starting, take a part of it."""
NEVER = float("inf")
REDRAW_S = 0.2
RUNS_AGAIN = " (the process is running again)"
LEAST_SHARE = 0.02
"""Below it what is left cannot be told from what is done."""
SHARE, MOST_S = 0.1, 0.2
"""How much of a stop is left for its end: walks end by then, and what was read is brought in order."""
SIGACTION_BYTES = 512
"""More than sizeof(struct sigaction) anywhere."""
SAME_S = 0.3
"""A signal comes more than once where it is sent to a whole group, as a terminal and `timeout` do: whoever started gdb hands its own on,
and on a busy machine the second is not yet there when the first is taken. Nobody presses Ctrl-C again, and means it, within this time."""
NAMES = {int(signal.SIGINT): "Ctrl-C", int(signal.SIGTERM): "SIGTERM", int(signal.SIGHUP): "SIGHUP"}


class Progress:
    """Progress display of a long answer: in a log a line after two seconds, then each time twice as much has passed; on a terminal a
    single line that is rewritten, and erased at the end.
    """

    def __init__(
        self,
        write: Optional[Callable[[str], None]] = None,
        clock: Callable[[], float] = time.monotonic,
        show: Optional[Callable[[str], None]] = None,
    ) -> None:
        """`write` gets a line of a log; `show` that of a terminal, at the end an empty one. Without either it is what standard error is."""
        self._write = write or to_standard_error
        self._show = show if show is not None or write is not None else terminal_line()
        self._clock, self._began, self._next = clock, clock(), FIRST_SECONDS
        self._shown: Optional[float] = None
        self._stage: Optional[str] = None
        self._stage_began = 0.0
        self._done: Optional[Callable[[], int]] = None
        self._total = 0
        self.has_let_go: Callable[[], bool] = lambda: False
        """The process that was paused runs again, which whoever waits wants to know first."""

    @property
    def stage(self) -> Optional[str]:
        """Return the name of the current stage, or None if nothing is shown."""
        return self._stage

    @stage.setter
    def stage(self, stage: Optional[str]) -> None:
        self._stage, self._done, self._stage_began = stage, None, self._clock()

    def name(self, stage: str) -> None:
        """Rename the current stage without restarting it."""
        self._stage = stage

    @property
    def is_on_terminal(self) -> bool:
        """Somebody looks at it."""
        return self._show is not None

    def measure(self, done: Optional[Callable[[], int]], total: int) -> None:
        """Set the source and the total of the stage's completed work; None: it is not known any more."""
        self._done, self._total = done, total

    def tick(self) -> None:
        """Time has passed."""
        if self._stage is None:
            return
        passed = self._clock() - self._began
        if passed < (self._next if self._show is None else FIRST_SECONDS):
            return
        if self._show is None:
            while self._next <= passed:
                self._next *= 2
            self._write(self._format_line(passed))
        elif self._shown is None or passed - self._shown >= REDRAW_S:
            self._shown = passed
            self._show(self._format_line(passed))

    def _format_line(self, passed: float) -> str:
        line, runs = "%s, %.0f s so far" % (self._stage, passed), RUNS_AGAIN if self.has_let_go() else ""
        share = min(self._done() / self._total, 1.0) if self._done is not None and self._total > 0 else 0.0
        if share < LEAST_SHARE:
            return line + runs
        left = (self._clock() - self._stage_began) * (1 - share) / share
        return "%s, %.0f %%, about %.0f s left%s" % (line, 100 * share, left, runs)

    def end(self) -> None:
        """End the display: the next output begins on an empty line."""
        if self._show is not None and self._shown is not None:
            self._shown = None
            self._show("")


def terminal_line() -> Optional[Callable[[str], None]]:
    """Return a function that rewrites the last line of the terminal on standard error, or None if that is no terminal."""
    if os.environ.get("TERM", "dumb") == "dumb" or not os.isatty(2):
        return None

    def show_line(text: str) -> None:
        try:
            width = os.get_terminal_size(2).columns or len(text) + 12
            line = ("gdbheapx: " + text if text else "")[: width - 1]
            os.write(2, ("\r\x1b[K" + line).encode("ascii", "replace"))
        except OSError:  # closed
            pass

    return show_line


def to_standard_error(line: str) -> None:
    """Write one line to standard error at once."""
    if sys.stderr is None:  # closed before this Python began
        return
    try:
        sys.stderr.write("gdbheapx: %s\n" % line)
        sys.stderr.flush()
    except (OSError, ValueError):  # closed
        pass


class Still:
    """Until when a process stands still that was stopped for this look. What reads it asks this; so does what walks."""

    def __init__(self) -> None:
        self.until: Any = array("d", [NEVER])
        """By the monotonic clock; the C kernel reads it where it is. What was read later is of a process that runs."""
        self._walk_until_s = NEVER
        self.next_step: Optional[str] = None
        """What to do where that is too short for an answer."""
        self.limit_s: Optional[float] = None
        """How long it may stand still; None: as long as it takes."""

    def begin(self, until_s: float, limit_s: float) -> None:
        """Mark the process as stopped from now on, for `limit_s` at most."""
        self.until[0], self.limit_s = until_s, limit_s
        self._walk_until_s = until_s - min(SHARE * limit_s, MOST_S)

    def end(self, is_over: bool = False) -> None:
        """Mark the process as running again. `is_over`: because its time was up; then nothing more is read of it in this reading."""
        self._walk_until_s = NEVER
        if not is_over:
            self.until[0] = NEVER

    def check(self) -> None:
        """Raises StopOver where it runs again since its time was up."""
        if time.monotonic() > self.until[0]:
            raise StopOver()

    @property
    def is_over(self) -> bool:
        """Its time is up, and not by our own doing."""
        return bool(time.monotonic() > self.until[0])

    def left_s(self) -> float:
        """Return the seconds left for walks; less than 0 if they have to end."""
        return float(min(self._walk_until_s, self.until[0])) - time.monotonic()


class Budget:
    """Says when to stop. After `expired` turned true the answer is partial and `reason` says why."""

    def __init__(self, max_seconds: Optional[float] = None, still: Optional[Still] = None) -> None:
        self._still = still
        self.is_stop_over = False
        """The process had to run on: what was cut was cut for its sake."""
        self._deadline = None if max_seconds is None else time.monotonic() + max_seconds
        self._max_seconds = max_seconds
        self.reason: Optional[str] = None
        """Why walks were cut, in words; None: they were not."""
        self.progress = Progress()
        """What is said while it lasts."""
        self.interrupted = False
        """By a signal, not by the clock."""

    def interrupt(self, what: str = "Ctrl-C") -> None:
        """The user pressed Ctrl-C, or the signal of that name came."""
        if not self.expired():
            self.reason = "stopped by %s" % what
            self.interrupted = True

    def heed(self) -> None:
        """The stop reason is handled: the answer is whole."""
        self.reason = None

    def go_on(self) -> None:
        """Lift the limit of --max-stop: the rest of the work needs no more of the process, which runs on."""
        self.reason, self.is_stop_over, self._still = None, False, None

    def expired(self) -> bool:
        """True once the time is up or the user interrupted; stays true."""
        self.progress.tick()
        if self.reason is None and self._deadline is not None and time.monotonic() > self._deadline:
            self.reason = "stopped after --max-seconds %g" % (self._max_seconds or 0)
        if self.reason is None and self._still is not None and self._still.left_s() < 0:
            self.reason = "stopped after --max-stop %g, for the process to go on" % (self._still.limit_s or 0)
            self.is_stop_over = True
        return self.reason is not None

    @property
    def code(self) -> ProblemCode:
        """Return the problem code of a cut."""
        return STOP_LIMIT if self.is_stop_over else CUT

    @property
    def next_step(self) -> Optional[str]:
        """Return the advice for getting the whole answer, or None if the user interrupted."""
        if self.is_stop_over:
            return self._still.next_step if self._still is not None else None
        return None if self.interrupted else "raise --max-seconds"

    def cut(self, what: str) -> HeapxError:
        """The error where nothing can be said for lack of time: what was not known yet."""
        return HeapxError("%s before %s" % (self.reason, what), self.next_step, code=self.code)

    @property
    def is_past_stop(self) -> bool:
        """The process runs again since its time was up, and walks were cut for that."""
        return self.is_stop_over and self._still is not None and self._still.is_over

    def slice_s(self, seconds: float) -> float:
        """Return the seconds to work before checking again: the given ones, or less if the process has to run on by then."""
        return seconds if self._still is None else max(0.0, min(seconds, self._still.left_s()))


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

    def _handle_signal(self, number: int, frame: Optional[FrameType]) -> None:
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
                self._before[number] = signal.signal(number, self._handle_signal)
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
