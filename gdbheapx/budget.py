"""How long a walk may take: a bound in seconds and the user's Ctrl-C, asked for between slices of work.

What was cut lacks time and is not damaged: `reason` tells the one from the other, and stays None as long as there was time for everything.
"""

import time
from typing import Optional

from gdbheapx.progress import Progress


class Budget:
    """Says when to stop. After `expired` turned true the answer is partial and `reason` says why."""

    def __init__(self, max_seconds: Optional[float] = None) -> None:
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
        self.reason = self.reason or "stopped by %s" % what
        self.interrupted = True

    def heed(self) -> None:
        """It ended as it was asked to, and lacks nothing for that."""
        self.reason = None

    def expired(self) -> bool:
        """True once the time is up or the user interrupted; stays true."""
        self.progress.tick()
        if self.reason is None and self._deadline is not None and time.monotonic() > self._deadline:
            self.reason = "stopped after --max-seconds %g" % (self._max_seconds or 0)
        return self.reason is not None
