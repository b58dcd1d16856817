"""The scheduler's priority while a process stands still: it waits for this one, and so may others for it."""

import os
from typing import Optional

HELD = -10
"""The niceness that is asked for."""


class Priority:
    """Of the thread that asks, raised and given back."""

    def __init__(self) -> None:
        self._before: Optional[int] = None

    def ask(self, nice: int = HELD) -> None:
        """Ask the scheduler for this niceness, where it is allowed."""
        try:
            before = os.getpriority(os.PRIO_PROCESS, 0)
            if before > nice:
                os.setpriority(os.PRIO_PROCESS, 0, nice)
                self._before = before if self._before is None else self._before
        except OSError:
            pass

    def give_back(self) -> None:
        """As it was before. Harmless when called twice."""
        if self._before is not None:
            os.setpriority(os.PRIO_PROCESS, 0, self._before)
            self._before = None
