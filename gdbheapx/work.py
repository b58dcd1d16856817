"""Work that parsing costs: of what a target or a file says, every loop that it can lengthen counts its steps here.

A file's bound is far above what the largest real ones need. What is beyond it is left unread, and the answer says so; other files have
bounds of their own. A step is 0.1 to 1 us: an entry, a KiB that is read.
"""

from functools import wraps
from typing import Any, Callable, Dict, Iterator, TypeVar

from gdbheapx.errors import HeapxError
from gdbheapx.problems import CUT, WORK_LIMIT, ProblemCode

MOST_STEPS = 1 << 26
"""Of one file, or one table in memory, in one look."""
MOST_IN_ALL = 1 << 28
"""Of everything that is parsed in one look."""
ASK_STEPS = 1 << 18
"""How many steps pass between two questions whether the command's time is up."""
READ_SHIFT = 10
"""Bytes that are read cost a step for each KiB."""
IN_ALL = "files of the target"
"""What is named where it is all of them together."""
Item = TypeVar("Item")


class TooMuchWork(HeapxError, ValueError):
    """Parsing ends here. It is a ValueError because what is too much to be read is damaged, or made to be."""


def never_expires() -> bool:
    """Return False: a command without a limit."""
    return False


class WorkOfLook:
    """Steps of everything that is parsed in one look, and the command's time."""

    def __init__(self) -> None:
        self.is_over: Callable[[], bool] = never_expires
        """Asks whether the command's time is up, or somebody interrupted it."""
        self.exceeded: Dict[str, None] = {}
        """What was left unread, by name, in order."""
        self.look = 0
        self.begin()

    def begin(self) -> None:
        """Count from zero: another command, or a process that has run since."""
        self.look += 1
        self.steps, self.asks_at = 0, ASK_STEPS

    def judge(self, name: str, is_exceeded: bool) -> None:
        """Raise TooMuchWork where `name` has cost too much, all parsing has, or the time is up."""
        code: ProblemCode = WORK_LIMIT
        if is_exceeded or self.steps > MOST_IN_ALL:
            self.exceeded[name if is_exceeded else IN_ALL] = None
        else:
            self.asks_at = self.steps + ASK_STEPS
            if not self.is_over():
                return
            code = CUT
        raise TooMuchWork("%s is not read to its end: it costs too much work" % name, code=code)


WORK = WorkOfLook()


class WorkCounter:
    """Counter of one file or table. `most`: its bound. `lasts`: what was too much once is not tried again at the next look."""

    def __init__(self, name: str, most: int = MOST_STEPS, lasts: bool = True) -> None:
        self.name, self._lasts = name, lasts
        self._most = self._left = most
        self._look = WORK.look

    def spend(self, steps: int = 1) -> None:
        """Count steps before they are taken; TooMuchWork where there are none left."""
        if self._look != WORK.look and (self._left >= 0 or not self._lasts):
            self._look, self._left = WORK.look, self._most
        self._left -= steps
        WORK.steps += steps
        if self._left < 0 or WORK.steps >= WORK.asks_at:
            WORK.judge(self.name, self._left < 0)


def ends_with_work(read: Callable[..., Iterator[Item]]) -> Callable[..., Iterator[Item]]:
    """Wrap a generator function: what came before the work was too much is its answer."""

    @wraps(read)
    def until_too_much(*arguments: Any, **options: Any) -> Iterator[Item]:
        try:
            yield from read(*arguments, **options)
        except TooMuchWork:
            return

    return until_too_much
