"""Plan of an allocator for a change of a process: the function, the code, the locks, and the memory that it will give back, with the answer
that only predicts it. Plans only read.
"""

from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Protocol, Sequence, TypeVar

from gdbheapx.allocators.records import Answered, HeapContext, Page, Returning
from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import ColumnsTable
from gdbheapx.common.errors import Busy, OutOfTime, Refusal, UsageError
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.common.problems import Diagnostic, PartialSink, ProblemCode, Severity
from gdbheapx.common.units import Sentence, SentenceSize, make_cells
from gdbheapx.inferior.base import Module, StoppedThread, Symbol, Target


class Portion(NamedTuple):
    """The part of free memory to return; by default all."""

    pad_bytes: int = 0
    """So much stays at the end of the main heap."""
    arena: Optional[int] = None
    """Only this arena's."""
    is_decayed: bool = False
    """Only what has decayed by now."""


ALL = Portion()
OPTIONS = {"pad_bytes": "--pad", "arena": "--arena", "is_decayed": "--decay"}


class Predicted(NamedTuple):
    """A prediction of what a call returns."""

    bytes: Optional[int]
    """None where it is unknown of a part."""
    resident_bytes: Optional[int]
    exclusive_bytes: Optional[int]
    kept: Optional[Mapping[str, Optional[int]]] = None
    """What the allocator keeps now, in its own words, such as `dirty_pages`; None where it counts nothing of the sort."""

    @property
    def data(self) -> Dict[str, Optional[int]]:
        """The contract's keys."""
        sizes = {"": self.bytes, "resident_": self.resident_bytes, "exclusive_": self.exclusive_bytes}
        return {"predicted_%sbytes" % which: size for which, size in sizes.items()}


def kept_keys(when: str, kept: Optional[Mapping[str, Optional[int]]]) -> Dict[str, Optional[int]]:
    """`dirty_pages` as `dirty_before_pages`."""
    return {"%s_%s_%s" % (name.rsplit("_", 1)[0], when, name.rsplit("_", 1)[1]): value for name, value in (kept or {}).items()}


def say_resident(resident_bytes: Optional[int], exclusive_bytes: Optional[int], when: str = " now") -> Sentence:
    """Say how much of the bytes that a call would return is resident, and what the machine gets where that is less."""
    if resident_bytes is None:
        return make_cells("")
    text = make_cells(", %s of it in RAM%s", SentenceSize(resident_bytes), when)
    if exclusive_bytes is None or exclusive_bytes >= resident_bytes:
        return text
    more = "%s (the machine gets back %s of that: the rest is shared with forked processes, or is part of a huge page)"
    return make_cells(more, text, SentenceSize(exclusive_bytes))


class DryRun(NamedTuple):
    """A prediction as an answer; nothing was called."""

    returning: Returning
    predicted: Predicted
    arenas: Sequence[object]
    """The share of each."""
    table: Optional[ColumnsTable]
    """The same for people, where there is something to show."""
    is_live: bool
    """A process, no core."""
    also: Sequence[str] = ("way_reason", "thread")
    """What a real run shows besides."""
    is_refused: bool = False
    """The call would be refused: a note says why."""
    unreached: Optional[Sentence] = None
    """What is unused and no call reaches, and why."""
    dumped_bytes: Optional[int] = None
    """Of a core: how much of it is in the file, as no more was in memory; None where the file does not show that."""

    @property
    def data(self) -> Dict[str, Any]:
        """The keys of a real run: what only that gives is null."""
        predicted = self.predicted
        names = ["%s_%s_bytes" % (what, when) for what in ("anonymous", "rss") for when in ("before", "after", "diff")]
        names += ["swap_before_bytes", "swap_after_bytes", "returned", "elapsed_ms", "stopped_ms", "call", *self.also]
        return {
            **dict.fromkeys(names),
            "way": "none",
            **predicted.data,
            **kept_keys("before", predicted.kept),
            **kept_keys("after", dict.fromkeys(predicted.kept or ())),
            "arenas": self.arenas,
        }

    @property
    def page(self) -> Page:
        """Arena by arena, what a call would gain, and what it would not."""
        if self.table is not None:
            yield self.table
        predicted, what = self.predicted, self.returning.call
        if predicted.resident_bytes == 0 and predicted.bytes:
            gained = "%s would gain nothing: the %s that it would return are not in RAM now; nothing was called"
            yield make_cells(gained, what, SentenceSize(predicted.bytes))
        else:
            own, end = hint_command(self.returning.command), "nothing was called"
            if self.is_refused:
                end = "nothing was called, and `%s` would be refused here" % own
            elif (predicted.bytes if predicted.resident_bytes is None else predicted.resident_bytes) != 0:
                end = "nothing was called; to do it: %s" % own if self.is_live else "only the live process can return it (%s)" % what
            more = say_resident(predicted.resident_bytes, predicted.exclusive_bytes)
            if self.dumped_bytes is not None:
                more = make_cells(", %s of it in the core", SentenceSize(self.dumped_bytes))
            elif not self.is_live and predicted.bytes:
                more = make_cells(", in RAM or not")
            yield make_cells("%s would return %s to the OS%s; %s", what, SentenceSize(predicted.bytes), more, end)
        if self.unreached is not None:
            yield self.unreached


class Returns(Protocol):
    """A heap, as far as it returns memory: heap.py says more of these."""

    @property
    def kind(self) -> str:
        """The allocator's name."""

    @property
    def returning(self) -> Optional[Returning]:
        """Describe how it returns memory."""

    def would_return(self, portion: Portion) -> DryRun:
        """Predict what it would return."""


OneThatReturns = TypeVar("OneThatReturns", bound=Returns)


def require_returning(heap: OneThatReturns, portion: Portion) -> OneThatReturns:
    """The heap, which can return this portion; UsageError otherwise."""
    assert heap.returning is not None
    for name, option in OPTIONS.items():
        if getattr(portion, name) != getattr(ALL, name) and name not in heap.returning.takes:
            raise UsageError("%s: %s is not for %s" % (heap.returning.command, option, heap.kind), "omit it: all free memory is returned")
    return heap


class Measure(NamedTuple):
    """Memory of the process as the kernel counts it (/proc/PID/smaps_rollup); None where it does not show it."""

    anonymous_bytes: Optional[int]
    rss_bytes: Optional[int]
    swap_bytes: Optional[int]


class Caller(NamedTuple):
    """The thread that made the call."""

    lwp: int
    name: Optional[str]
    place: str
    """Where it stood: `system call` or `program`."""


class Acted(NamedTuple):
    """Result of one call into a process."""

    call: str
    """As C: `malloc_trim(0)`."""
    way: str
    """`gdb-call` or `register-call`."""
    returned: Optional[int]
    """None if it did not return in the ordinary way, see `trouble`."""
    trouble: Optional[str]
    """In which state the process is after a call that went wrong."""
    predicted: Predicted
    """With what the allocator kept before."""
    before: Measure
    after: Measure
    elapsed_ms: float
    """The call alone."""
    stopped_ms: Optional[float]
    """How long the process was kept stopped in all; None where the user holds it stopped."""
    caller: Caller
    tries: int
    """How often the process was stopped until it could be done."""
    waited_for: Sequence[str]
    """Why it could not be done at first, one sentence for each try."""
    kept_after: Optional[Mapping[str, Optional[int]]] = None
    """What it keeps then."""
    way_reason: Optional[str] = None
    """Why gdb's own call would not do; None for `gdb-call`."""

    @property
    def data(self) -> Dict[str, Any]:
        """The contract's keys of `trim` and `purge`."""
        data: Dict[str, Any] = {
            "call": self.call,
            "way": self.way,
            "way_reason": self.way_reason,
            "returned": self.returned,
            **self.predicted.data,
        }
        for name, before, after in list_measures(self.before, self.after):
            # memory given back is negative
            apart = None if before is None or after is None else after - before
            data.update({name + "_before_bytes": before, name + "_after_bytes": after, name + "_diff_bytes": apart})
        data.pop("swap_diff_bytes")
        data.update(
            elapsed_ms=self.elapsed_ms,
            stopped_ms=self.stopped_ms,
            thread=self.caller,
            tries=self.tries,
            waited_for=self.waited_for,
            trouble=self.trouble,
        )
        for when, kept in (("before", self.predicted.kept), ("after", self.kept_after)):
            data.update(kept_keys(when, kept))
        return data


def list_measures(before: Measure, after: Measure) -> Sequence[Any]:
    """(name, before, after) of each measure."""
    return [(name, getattr(before, name + "_bytes"), getattr(after, name + "_bytes")) for name in ("anonymous", "rss", "swap")]


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
