"""A process is copied while it runs, and what it writes to meanwhile is copied again: it stands still for the last of that alone.

Two system calls are made in it, by one of its threads, in a stop of less than a millisecond (injected.py). On older kernels none: their
marks of what is written to are cleared (marks.py).
"""

import os
from typing import Any, List, Optional, Tuple

from gdbheapx.actions import injected, marks
from gdbheapx.arch import native_architecture
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.stopper import wanted_sets
from gdbheapx.kernel.common.copy import MOST_THREADS
from gdbheapx.kernel.common.follow import NativeFollower
from gdbheapx.kernel.common.hold import Hold, HoldOrder
from gdbheapx.kernel.common.library import usable_cpus
from gdbheapx.problems import NO_SHORT_STOP

LONGEST_S = 10.0
"""How long the stop may be at all; it takes some milliseconds."""
PATIENCE_S = 0.05
"""How long its threads may take to stop: one that waits for a disk does not, and is waited for in the way of other looks."""
ROUNDS, CHEAP_PAGES = 6, 200
"""So many at most, until what is written in the time of one costs less than half a millisecond to read in the stop."""


class ShortStop:
    """Short stop of one process that `copying` (copying.py) is prepared to copy. HeapxError if that is not possible: it is copied in the
    stop.
    """

    def __init__(self, library: Any, target: Any, copying: Any, accepts_split: bool, by_marks: bool = False) -> None:
        assert target.pid is not None
        self._copying, self._target, self._library = copying, target, library
        self.rounds: List[int] = []
        """Pages that were read in each."""
        self._hold: Optional[Hold] = None
        self._follower: Optional[NativeFollower] = None
        self.first_stop_ms: Optional[float] = None
        """None: there was none."""
        if by_marks:
            self._is_filtered = marks.is_filtered(target.pid)
            return
        taken = injected.take_descriptor(target.pid, accepts_split)
        self.first_stop_ms = taken.stopped_ms
        self._is_filtered = taken.is_filtered
        try:
            self._follower = NativeFollower(library, taken.descriptor)
        except OSError as error:
            what = "this kernel does not tell which memory is written to: %s" % error.strerror
            raise HeapxError(what, injected.AS_TODAY, code=NO_SHORT_STOP)

    def begin(self) -> None:
        """Copy what there is while the process runs, and again what it has written to by then: the stop is best taken at once."""
        ranges, page = followed_ranges(self._target), os.sysconf("SC_PAGESIZE")
        if self._follower is not None:
            self._follower.follow(ranges)
        elif not self._copying.is_marked:
            marks.clear_marks(self._target.pid)
            self._copying.is_marked = True
        self._copying.run_along(self._target, ranges)
        self._hold = self._prepared_hold()
        while self._follower is not None and len(self.rounds) < ROUNDS and not is_enough(self.rounds):
            self.rounds.append(self._copying.round(not self.rounds) // page)

    def finish(self) -> Optional[bool]:
        """Take the stop. None: it has to be taken in the way of other looks; else see Target.stop."""
        return None if self._hold is None else self._copying.finish(self._target, self._hold)

    def _prepared_hold(self) -> Optional[Hold]:
        """Return the prepared hold; None where seccomp filters have to be asked about each thread."""
        target, header, machine = self._target, self._target.source.header, native_architecture()
        shown, layout = machine.in_system_call, machine.registers
        if self._is_filtered or shown is None or layout is None:
            return None
        number, result = layout.names.index(shown.number), layout.names.index(shown.result)
        limit_s = LONGEST_S if target.max_stop_s is None else min(target.max_stop_s, LONGEST_S)
        patience_s = min(PATIENCE_S, limit_s / 2)
        count, text_bytes, workers = len(procfs.list_thread_ids(target.pid)), len(target.maps_text()), min(MOST_THREADS, usable_cpus())
        order = HoldOrder(target.pid, int(limit_s * 1e9), int(patience_s * 1e9), number, result, count, text_bytes, workers)
        return Hold(self._library, order, wanted_sets(header))

    def end(self) -> None:
        """The process is as it was: nothing of it is protected. Once it runs on. Harmless when called twice."""
        self._copying.is_followed = False
        if self._follower is not None:
            self._follower.end()


def check_short_stop(target: Target, copying: Any, library: Any, accepts: Tuple[bool, bool]) -> bool:
    """HeapxError where something is in the way; the process is only looked at. Whether it is done by marks. `accepts`: that huge pages are
    split, and that marks are lost."""
    if target.kind == "live" and target.pid and injected.find_lacking_injection() is not None:
        without = marks.find_lacking_marks()
        if without is not None:
            raise injected.make_no_injection_error("%s; %s" % (injected.find_lacking_injection(), without))
        if not copying.is_marked:
            marks.check_marks(target, library, accepts[1])
        return True
    injected.check_injection(target, accepts[0])
    return False


def is_by_marks() -> bool:
    """Return True if this kernel has no userfaultfd that tracks writes, but soft-dirty bits."""
    return injected.find_lacking_injection() is not None and marks.find_lacking_marks() is None


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
