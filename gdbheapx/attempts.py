"""What one look at a living process learns for the next: short stops, and the long work between them while the process runs."""

import time
from typing import Any, Callable, Dict, FrozenSet, Hashable, List, Optional, Sequence, Set, Tuple

from gdbheapx.problems import Code, Diagnostic

Same = FrozenSet[Tuple[Code, Optional[int], str]]
"""Complaints without their hints, which depend on who stood where."""

SURE_ATTEMPTS = 3
"""A contradiction that nothing explains and that so many looks have shown alike is no change that is under way."""
PAUSE_S = 0.02
"""Between two looks: a thread that was interrupted inside the allocator gets on."""


class Contradictions:
    """What contradicted itself in one part of an allocator, look by look."""

    def __init__(self) -> None:
        self.attempts: Dict[int, Same] = {}
        """By the look's number: a command may read the same part twice in one."""

    def add(self, look: int, found: Sequence[Diagnostic]) -> Same:
        """All that was seen at this look."""
        self.attempts[look] = self.attempts.get(look, frozenset()).union((one.code, one.address, one.what) for one in found)
        return self.attempts[look]

    def stays(self, count: int) -> Same:
        """What was there, exactly so, at each of `count` looks."""
        return frozenset.intersection(*self.attempts.values()) if len(self.attempts) == count else frozenset()


class Attempts:
    """Outlives the session of one look. `can_wait`: the process was stopped for this look alone and may be let go and stopped again."""

    def __init__(self) -> None:
        self.can_wait = False
        self.count = 1
        """This look's number."""
        self.has_rehearsed = False
        """The answer was made once before the first stop, so that everything it needs is at hand."""
        self.constants: Dict[Any, Any] = {}
        """What was made of the constants of loaded objects, and other files, before the stop; by what made it."""
        self.mapped: Dict[str, Sequence[int]] = {}
        """Chunks with a mapping of their own that were found before, by allocator id: to be looked at first."""
        self.kept: Dict[Hashable, Any] = {}
        """Parts that an earlier look has read without a contradiction: they are not read again."""
        self._stops: Set[int] = set()
        self._contradicted = False
        """Something did at this look."""
        self._later: List[Callable[[], None]] = []
        self._seen: Dict[Hashable, Contradictions] = {}
        self._untold: List[Callable[[], None]] = []
        self._tells_at_once = False

    def apart(self) -> "Attempts":
        """This look for somebody who judges by itself what stays: contradictions are told at once and nothing is kept from look to look.
        Work that is put off, and chunks that were found, are everybody's.

        One that nobody asks would swallow what it is told: whoever needs another one takes it from here.
        """
        own = Attempts()
        own.can_wait, own.mapped, own._later, own._tells_at_once = self.can_wait, self.mapped, self._later, True
        return own

    def begin(self, number: int, can_wait: bool) -> None:
        """The process stands still for look `number`, the first being 1."""
        self.count, self.can_wait = number, can_wait
        self._untold, self._contradicted = [], False

    def forget_objects(self) -> None:
        """Other objects are loaded now: what was made of them is made again before the next stop."""
        self.constants.clear()
        self.has_rehearsed = False

    def keep(self, part: Hashable, made: Any) -> None:
        """A part was read without a contradiction."""
        self.kept[part] = made
        self._stops.add(self.count)

    @property
    def stops(self) -> int:
        """How many stops the parts are from; 0 where nothing is kept."""
        return len(self._stops.union([self.count] if self._contradicted else [])) if self._stops else 0

    def later(self, work: Callable[[], None]) -> None:
        """Do this while the process runs, and look again."""
        self._later.append(work)

    def take_work(self) -> List[Callable[[], None]]:
        """What was put off, for somebody else to do."""
        work = list(self._later)
        self._later.clear()
        return work

    @property
    def has_work(self) -> bool:
        """There is work for the time between two looks."""
        return bool(self._later)

    @property
    def is_unsettled(self) -> bool:
        """Something contradicts itself that may be gone at another look."""
        return bool(self._untold)

    def contradicts(
        self, part: Hashable, found: Sequence[Diagnostic], tell: Callable[[Contradictions], None], is_explained: bool = False
    ) -> None:
        """A part contradicts itself. `tell` records that as a problem: now, or once it is known that there is no further look.

        `is_explained`: a thread is known to be changing it.
        """
        self._contradicted = True
        seen = self._seen.setdefault(part, Contradictions())
        here = seen.add(self.count, found)
        is_sure = self.count >= SURE_ATTEMPTS and not is_explained and seen.stays(self.count) == here
        if self.can_wait and not is_sure and not self._tells_at_once:
            self._untold.append(lambda: tell(seen))
        else:
            tell(seen)

    def tell(self) -> None:
        """There is no further look."""
        untold, self._untold = self._untold, []
        for one in untold:
            one()

    def between(self) -> None:
        """The process runs: do what was put off. What it gives is looked at again while the process stands still."""
        work = self.take_work()
        if not work:
            time.sleep(PAUSE_S)
        for one in work:
            one()
