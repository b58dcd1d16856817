"""Memory that an allocator returns to the OS when it is asked to: what part of it, how much, and the answer that only predicts it."""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Protocol, Sequence, TypeVar

from gdbheapx.allocators.records import Page, Returning
from gdbheapx.columns import ColumnsTable
from gdbheapx.errors import UsageError
from gdbheapx.hints import hint_command
from gdbheapx.units import Sentence, SentenceSize, make_cells


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
