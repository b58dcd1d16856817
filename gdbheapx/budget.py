"""How long a walk may take: a bound in seconds and the user's Ctrl-C, asked for between slices of work."""

import time
from typing import Optional


class Budget:
    """Says when to stop. After `expired` turned true the answer is partial and `reason` says why."""

    def __init__(self, max_seconds: Optional[float] = None) -> None:
        self._deadline = None if max_seconds is None else time.monotonic() + max_seconds
        self._max_seconds = max_seconds
        self.reason: Optional[str] = None
        self.interrupted = False
        """By Ctrl-C, not by the clock."""

    def interrupt(self) -> None:
        """The user pressed Ctrl-C."""
        self.reason = "stopped by Ctrl-C"
        self.interrupted = True

    def expired(self) -> bool:
        """True once the time is up or the user interrupted; stays true."""
        if self.reason is None and self._deadline is not None and time.monotonic() > self._deadline:
            self.reason = "stopped after --max-seconds %g" % (self._max_seconds or 0)
        return self.reason is not None
