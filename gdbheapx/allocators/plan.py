"""What an allocator plans for a change of a process: which function, whose code, which locks, what it will give back. Plans only read."""

from abc import ABC, abstractmethod
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.allocators.predicted import Predicted
from gdbheapx.allocators.records import Answered
from gdbheapx.budget import Budget
from gdbheapx.errors import Busy, OutOfTime, Refusal
from gdbheapx.inferior.base import Module, Target
from gdbheapx.inferior.standing import Standing
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import Code, Diagnostic, Severity


class Span(NamedTuple):
    """A run of code."""

    start: int
    end: int
    what: str
    """For messages: the allocator's name, `malloc`, `fork`."""


class Held(NamedTuple):
    """A lock that somebody holds."""

    name: str
    """`arena 3: bins[4].lock`."""
    owner: Optional[int]
    """lwp; None where the lock does not tell."""

    def sentence(self, threads: Sequence[Standing]) -> str:
        """For a refusal."""
        holder = next((one for one in threads if one.lwp == self.owner), None)
        who = holder.who if holder is not None else "thread %d" % self.owner if self.owner else "an unknown thread"
        return "%s holds %s" % (who, self.name)


class SystemCall(NamedTuple):
    """One that the allocator's function may make."""

    name: str
    arguments: Sequence[Optional[int]] = ()
    """As far as they are known; None and those that are left out are not."""
    may_fail: bool = False
    """The allocator bears it: what it then does not do was no part of what is promised."""


FUTEX = (SystemCall("futex", (None, 128)), SystemCall("futex", (None, 129)))
"""FUTEX_WAIT_PRIVATE and FUTEX_WAKE_PRIVATE, of a mutex that another thread wants too."""


class Plan(ABC):
    """A call of one allocator's function."""

    target: Any
    """The live target, which only what acts may hold stopped."""
    budget: Budget
    shown: str
    """The call as C."""
    address: int
    arguments: Sequence[int]
    text: Optional[bytes] = None
    """A string, the first argument."""
    warming: Optional[bytes] = None
    """A string for a first call that only reads, so that what the function sets up once is not counted against the second."""
    system_calls: Sequence[SystemCall]
    """All that it may make, by the allocator's source."""
    entries: Sequence[int]
    """Functions whose caller holds none of the allocator's locks when it has just entered them."""

    @abstractmethod
    def spans(self) -> List[Span]:
        """The allocator's code; Refusal if it is not known."""

    def check(self) -> None:
        """Refusal where the call is not possible at any moment, for what is known of the allocator or what the program put into it."""
        self.spans()

    @abstractmethod
    def locks(self) -> List[Held]:
        """The locks that are held now."""

    @abstractmethod
    def predict(self) -> Predicted:
        """What it will give back; Refusal if the heap is damaged, OutOfTime if it was not read to its end."""

    def kept(self) -> Optional[Mapping[str, Optional[int]]]:
        """What the allocator keeps now, as in Predicted; None where it counts nothing of the sort."""
        return None

    def waits_inside(self, thread: Standing) -> bool:
        """It stands inside for good, at a place that hurts nobody: its locks tell the rest."""
        return False

    def suits(self, thread: Standing) -> Optional[str]:
        """What speaks against calling on this thread; None if nothing does."""
        return None


class Suspect(NamedTuple):
    """A thread with one byte that is wrong."""

    lwp: Optional[int]
    address: Optional[int]
    """Of the byte; None if it is not known."""


class CurePlan(ABC):
    """One byte of each thread that it is wrong in."""

    byte: str
    """Its name."""
    before: bytes = b"\x01"
    after: bytes = b"\x00"
    done: str
    """What is to be said of a thread that was cured."""
    system_calls: Sequence[SystemCall]
    """All that a cured thread may make by itself, later, because it was cured."""

    @abstractmethod
    def spans(self) -> List[Span]:
        """The allocator's code; Refusal if it is not known."""

    def check(self) -> None:
        """Refusal where it is not possible at any moment."""
        self.spans()

    @abstractmethod
    def look(self, only: Optional[int]) -> List[Suspect]:
        """Who is to be cured now, of all threads or of the one with this lwp; Refusal where that one is not to be."""

    @abstractmethod
    def report(self) -> Any:
        """How it stands now."""

    @abstractmethod
    def answer(self, info: AllocatorInfo, report: Any, cured: Sequence[object], stopped_ms: Optional[float]) -> Answered:
        """The command's answer, from what report() gave and what became of each thread."""


class Troubles:
    """Collects what forbids to call a function of the allocator: damage, and what was not read, or not to its end."""

    def __init__(self) -> None:
        self.found: List[str] = []
        self._natures: List[Severity] = []

    def report(self, code: Code, address: Optional[int], what: str, hint: Optional[str], is_passing: bool = False) -> None:
        """As problems.Report."""
        if code.forbids_calls:
            self.found.append(Diagnostic(code, address, what, hint, is_passing).line())
            self._natures.append(code.nature)

    def refuse(self, what: str, risk: str, hint: str) -> None:
        """Raises if there is any: damage is called so, what was not read is not, and what will have passed is Busy. `what`: the heap;
        `risk`: what a call would do to it."""
        for nature, line in sorted(zip(self._natures, self.found), key=lambda one: one[0] is not Severity.DAMAGE):
            if nature is Severity.DAMAGE:
                raise Refusal("%s is damaged, and %s (%s)" % (what, risk, line), hint)
            if nature is Severity.MOMENT and all(one is Severity.MOMENT for one in self._natures):
                raise Busy("%s is in the middle of a change (%s)" % (what, line))
            if nature is not Severity.MOMENT:
                raise Refusal("%s could not be read in full, so it is unknown whether %s (%s)" % (what, risk, line), hint)


def in_time(budget: Budget) -> None:
    """There is time left: what was read up to here was read to its end. What is said of a walk that was broken off is no damage."""
    if budget.expired():
        raise OutOfTime("%s before everything was checked: nothing was done" % budget.reason, budget.next_step, code=budget.code)


def whole(target: Target, module: Module, what: str) -> List[Span]:
    """All code of an object."""
    return [Span(start, end, what) for start, end in target.code_ranges(module)]
