"""Result of a command that changed a process: predicted and measured memory, and the kind of call."""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from gdbheapx.allocators.returning import Predicted, kept_keys


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
    """Where it stood: `system call`, `program`, or `entry of malloc`."""


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
            data.update(
                {name + "_before_bytes": before, name + "_after_bytes": after, name + "_diff_bytes": subtract_measures(before, after)}
            )
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


def subtract_measures(before: Optional[int], after: Optional[int]) -> Optional[int]:
    """After minus before: memory given back is negative."""
    return None if before is None or after is None else after - before
