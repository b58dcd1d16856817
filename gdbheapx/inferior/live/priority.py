"""The scheduler's priority while a process stands still: it waits for this one, and so may others for it."""

import os
from typing import Optional

HELD, MOST_NICE = -10, -20
"""The niceness that is asked for while a process stands still, and instead of a real-time priority."""


def at_once() -> None:
    """From now on this thread gets a processor as soon as it wakes, where that is allowed: by the lowest real-time priority. Niceness
    counts among the processes of one session alone (CONFIG_SCHED_AUTOGROUP), and who leads its own session shares with every other one."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):  # not allowed, or a C library without it
        Priority().ask(MOST_NICE)


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
