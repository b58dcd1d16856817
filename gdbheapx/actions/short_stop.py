"""A process is copied while it runs, and what it writes to meanwhile is copied again: it stands still for the last of that alone.

Two system calls are made in it, by one of its threads, in a stop of less than a millisecond (injected.py).
"""

import os
from typing import Any, List, Tuple

from gdbheapx.actions import injected
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Target
from gdbheapx.kernel.common.follow import Follower
from gdbheapx.problems import NO_SHORT_STOP

ROUNDS, CHEAP_PAGES = 3, 2000
"""So many at most, until what is written in the time of one costs less than 5 ms to read in the stop."""


class ShortStop:
    """Of one process that `copying` (copying.py) is prepared to copy. HeapxError where that is not possible: it is copied in the stop."""

    def __init__(self, library: Any, target: Target, copying: Any, accepts_split: bool) -> None:
        assert target.pid is not None
        self._copying, self._target = copying, target
        self.rounds: List[int] = []
        """Pages that were read in each."""
        taken = injected.take(target.pid, accepts_split)
        self.first_stop_ms = taken.stopped_ms
        try:
            self._follower = Follower(library, taken.descriptor)
        except OSError as error:
            what = "this kernel does not tell which memory is written to: %s" % error.strerror
            raise HeapxError(what, injected.AS_TODAY, code=NO_SHORT_STOP)

    def begin(self) -> None:
        """Copy what there is while the process runs, and again what it has written to by then: the stop is best taken at once."""
        ranges, page = followed_ranges(self._target), os.sysconf("SC_PAGESIZE")
        self._follower.follow(ranges)
        self._copying.run_along(self._target, ranges)
        while len(self.rounds) < ROUNDS and not is_enough(self.rounds):
            self.rounds.append(self._copying.round() // page)

    def end(self) -> None:
        """The process is as it was: nothing of it is protected. Once it runs on. Harmless when called twice."""
        self._copying.is_followed = False
        self._follower.end()


def is_enough(rounds: List[int]) -> bool:
    """Another round would not make the stop shorter."""
    return bool(rounds) and (rounds[-1] <= CHEAP_PAGES or (len(rounds) > 1 and rounds[-1] >= rounds[-2]))


def followed_ranges(target: Target) -> List[Tuple[int, int]]:
    """Private memory that nobody but the process writes to, and that it may write to; the other memory is read in the stop."""
    return [
        (mapping.start, mapping.end)
        for mapping in target.mappings()
        if mapping.is_untouched_zero and mapping.readable and mapping.writable and not mapping.is_hugetlb
    ]
