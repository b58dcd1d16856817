"""Says on standard error what takes long, while it lasts."""

import sys
import time
from typing import Callable, Optional

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
