"""Plan of an allocator for a change of a process: the function, the code, the locks, and the memory that it will give back. Plans only
read.
"""

from abc import ABC, abstractmethod
from typing import Any, Callable, List, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.allocators.records import Answered, HeapContext
from gdbheapx.allocators.returning import Portion, Predicted, Returns
from gdbheapx.budget import Budget
from gdbheapx.errors import Busy, OutOfTime, Refusal
from gdbheapx.hints import hint_command
from gdbheapx.inferior.base import Module, StoppedThread, Symbol, Target
from gdbheapx.model import AllocatorInfo
from gdbheapx.problems import Diagnostic, PartialSink, ProblemCode, Severity


class Span(NamedTuple):
    """A run of code."""

    start: int
    end: int
    what: str
    """For messages: the allocator's name, `malloc`, `fork`."""


class Held(NamedTuple):
    """A lock that someone holds."""

    name: str
    """`arena 3: bins[4].lock`."""
    owner: Optional[int]
    """lwp; None where the lock has no owner in it."""

    def sentence(self, threads: Sequence[StoppedThread]) -> str:
        """Name the holder, for a refusal."""
        holder = next((thread for thread in threads if thread.lwp == self.owner), None)
        who = holder.who if holder is not None else "thread %d" % self.owner if self.owner else "an unknown thread"
        return "%s holds %s" % (who, self.name)


class SystemCall(NamedTuple):
    """A system call that the allocator's function may make."""

    name: str
    arguments: Sequence[Optional[int]] = ()
    """As far as they are known; None and those that are left out are not."""
    may_fail: bool = False
    """The allocator bears it: what it then does not do was no part of what is promised."""


FUTEX = (SystemCall("futex", (None, 128)), SystemCall("futex", (None, 129)))
"""FUTEX_WAIT_PRIVATE and FUTEX_WAKE_PRIVATE, of a mutex that another thread wants too."""


class Change(ABC):
    """A change of a process."""

    target: Any
    """The live target, which only what acts may hold stopped."""
    module: Module
    """Where the allocator's code is."""
    shown: str
    """What makes the system calls, for sentences: the call as C."""
    system_calls: Sequence[SystemCall]
    """All that it may lead to, by the allocator's source."""
    is_call: bool
    """A function is called for it."""

    def spans(self) -> List[Span]:
        """The allocator's code, if nothing else is known all of its object; Refusal if it is not known."""
        return whole_code(self.target, self.module, self.module.file_name)

    def known(self, spans: Optional[List[Span]], whose: str, hint: Optional[str] = None) -> List[Span]:
        """Return these spans; Refusal if there are none."""
        if spans is not None:
            return spans
        what = "%s's functions in %s were not found, so gdbheapx cannot determine whether a thread is inside one"
        raise Refusal(what % (whose, self.module.name), hint)

    def check(self) -> None:
        """Refusal where it is not possible at any moment, for what is known of the allocator or what the program put into it."""
        self.spans()

    @abstractmethod
    def read(self) -> object:
        """Look at all that it touches."""


class Plan(Change):
    """A call of one allocator's function, which returns free memory to the OS."""

    is_call = True
    budget: Budget
    address: int
    arguments: Sequence[int] = ()
    text: Optional[bytes] = None
    """A string, the first argument."""
    warming: Optional[bytes] = None
    """A string for a first call that only reads, so that what the function sets up once is not counted against the second."""
    damaged = ("the heap", "a call could crash the process", "see " + hint_command("arenas"))
    """What is damaged where something is; what a call would do then; the next step."""

    def __init__(
        self,
        around: HeapContext,
        anew: Callable[[PartialSink], Returns],
        portion: Portion,
        module: Module,
        name: str,
        find: Optional[Callable[[str], Optional[Symbol]]] = None,
    ) -> None:
        """The second argument opens the heap as one that has read nothing yet: the process ran meanwhile. `name`: the function to call;
        `find` has it where it is called otherwise in the module."""
        self.target, self.budget, self.anew, self.portion, self.module = around.target, around.budget, anew, portion, module
        function = find(name) if find is not None else self.target.module_symbol(module, name)
        if function is None:
            raise Refusal("%s not found in %s" % (name, module.name), "see " + hint_command("doctor"))
        self.shown, self.address = "%s()" % function.name, function.address

    @abstractmethod
    def locks(self) -> List[Held]:
        """The locks that are held now."""

    def predict(self) -> Predicted:
        """Predict what it returns; Refusal if the heap is damaged, OutOfTime if it was not read to its end."""
        troubles = Troubles()
        predicted = self.look(self.anew(troubles.report))
        in_time(self.budget)
        troubles.refuse(*self.damaged)
        return predicted

    def look(self, heap: Returns) -> Predicted:
        """Predict what this heap returns, reading all that the call relies on."""
        return heap.would_return(self.portion).predicted

    def read(self) -> Predicted:
        return self.predict()

    def kept(self) -> Optional[Mapping[str, Optional[int]]]:
        """Return what the allocator keeps now, as in Predicted; None if it counts nothing of the sort."""
        return None

    def waits_inside(self, thread: StoppedThread) -> bool:
        """True for a thread parked in the allocator, such as a background thread waiting on a condition: it does not block the call."""
        return False

    def suits(self, thread: StoppedThread) -> Optional[str]:
        """Return the reason against calling on this thread, or None."""
        return None


class Suspect(NamedTuple):
    """A thread with one byte that is wrong."""

    lwp: Optional[int]
    address: Optional[int]
    """Of the byte; None if it is not known."""


class CurePlan(Change):
    """A change of one byte in each thread where it is wrong."""

    is_call = False
    byte: str
    """Its name."""
    before: bytes = b"\x01"
    after: bytes = b"\x00"
    done: str
    """What is to be said of a thread that was cured."""
    shown = "a thread that ticks again"

    @abstractmethod
    def look(self, only: Optional[int]) -> List[Suspect]:
        """Return the threads to cure now, all or the one with this lwp; Refusal where that one needs none."""

    @abstractmethod
    def answer(self, info: AllocatorInfo, report: Any, cured: Sequence[object], stopped_ms: Optional[float]) -> Answered:
        """The command's answer, from what read() gave and what became of each thread."""


class Troubles:
    """Collects what forbids to call a function of the allocator: damage, and what was not read, or not to its end."""

    def __init__(self) -> None:
        self.found: List[str] = []
        self._natures: List[Severity] = []

    def report(self, code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        """Collect a problem; the arguments are those of problems.Report."""
        if code.forbids_calls:
            self.found.append(Diagnostic(code, address, what, hint).line())
            self._natures.append(code.nature)

    def refuse(self, what: str, risk: str, hint: str) -> None:
        """Raises if there is any: damage is called so, what was not read is not, and what will have passed is Busy. `what`: the heap;
        `risk`: what a call would do to it."""
        for nature, line in sorted(zip(self._natures, self.found), key=lambda each: each[0] is not Severity.DAMAGE):
            if nature is Severity.DAMAGE:
                raise Refusal("%s is damaged, and %s (%s)" % (what, risk, line), hint)
            if nature is Severity.MOMENT and all(each is Severity.MOMENT for each in self._natures):
                raise Busy("%s is in the middle of a change (%s)" % (what, line))
            if nature is not Severity.MOMENT:
                raise Refusal("%s could not be read in full, so it is unknown whether %s (%s)" % (what, risk, line), hint)


def in_time(budget: Budget) -> None:
    """Raise OutOfTime if the budget has expired: what an unfinished walk reports is no damage."""
    if budget.expired():
        raise OutOfTime("%s before everything was checked: nothing was done" % budget.reason, budget.next_step, code=budget.code)


def whole_code(target: Target, module: Module, what: str) -> List[Span]:
    """Return all code of an object."""
    return [Span(start, end, what) for start, end in target.code_ranges(module)]
