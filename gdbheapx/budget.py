"""How long a walk may take: a bound in seconds, how long a process may stand still, and the user's Ctrl-C, asked for between slices of
work.

What was cut lacks time and is not damaged: `reason` tells the one from the other, and stays None as long as there was time for everything.
"""

import sys
import time
from array import array
from typing import Any, Callable, Optional

from gdbheapx.errors import HeapxError, StopOver
from gdbheapx.problems import CUT, STOP_LIMIT, Code

FIRST_SECONDS = 2.0


class Progress:
    """A line after two seconds, then each time twice as much has passed: few lines in a log, enough for who waits."""

    def __init__(self, write: Optional[Callable[[str], None]] = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write or to_standard_error
        self._clock, self._began, self._next = clock, clock(), FIRST_SECONDS
        self.stage: Optional[str] = None
        """What is being done; None: nothing is said."""

    def tick(self) -> None:
        """Time has passed."""
        if self.stage is None:
            return
        passed = self._clock() - self._began
        if passed >= self._next:
            while self._next <= passed:
                self._next *= 2
            self._write("%s, %.0f s so far" % (self.stage, passed))


def to_standard_error(line: str) -> None:
    """One line, at once."""
    try:
        sys.stderr.write("gdbheapx: %s\n" % line)
        sys.stderr.flush()
    except (OSError, ValueError):  # closed
        pass


NEVER = float("inf")
SHARE, MOST_S = 0.1, 0.2
"""How much of a stop is left for its end: walks end by then, and what was read is brought in order."""


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
        """It stands still from now on, for `limit_s` at most."""
        self.until[0], self.limit_s = until_s, limit_s
        self._walk_until_s = until_s - min(SHARE * limit_s, MOST_S)

    def end(self, is_over: bool = False) -> None:
        """It runs again, `is_over`: because its time was up. Then nothing more is read of it for this look."""
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
        """For walks; less than 0 where they have to end."""
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
        """What is left to do needs no more of the process, which runs on: --max-stop is no limit of it."""
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
    def code(self) -> Code:
        """Of what was cut."""
        return STOP_LIMIT if self.is_stop_over else CUT

    @property
    def next_step(self) -> Optional[str]:
        """How to get the whole answer; None where somebody interrupted."""
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
        """How long to work before asking again: so long, or less where the process has to go on by then."""
        return seconds if self._still is None else max(0.0, min(seconds, self._still.left_s()))
