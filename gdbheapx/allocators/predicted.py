"""What a call would give back, and the answer of a command that only predicts it."""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Protocol, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.units import Said, Size, cells


class Predicted(NamedTuple):
    """What a call will give back."""

    bytes: int
    resident_bytes: Optional[int]
    exclusive_bytes: Optional[int]
    kept: Optional[Mapping[str, Optional[int]]] = None
    """What the allocator keeps now, in its own words, such as `dirty_pages`."""


class DryRun(Protocol):
    """The answer of such a command."""

    @property
    def data(self) -> Dict[str, object]: ...

    @property
    def page(self) -> Page: ...


def kept_keys(when: str, kept: Optional[Mapping[str, Optional[int]]]) -> Dict[str, Optional[int]]:
    """`dirty_pages` as `dirty_before_pages`."""
    return {"%s_%s_%s" % (name.rsplit("_", 1)[0], when, name.rsplit("_", 1)[1]): value for name, value in (kept or {}).items()}


def unmade(predicted: Predicted, bytes_: Optional[int], arenas: Sequence[object], also: Sequence[str] = ()) -> Dict[str, Any]:
    """The keys of a call that was only predicted: what only a real run gives is null, and so are those in `also`."""
    names = ["%s_%s_bytes" % (what, when) for what in ("anonymous", "rss") for when in ("before", "after", "diff")]
    found: Dict[str, Any] = dict.fromkeys(
        [*names, "swap_before_bytes", "swap_after_bytes", "returned", "elapsed_ms", "stopped_ms", "call", *also]
    )
    found.update(
        way="none",
        predicted_bytes=bytes_,
        predicted_resident_bytes=predicted.resident_bytes,
        predicted_exclusive_bytes=predicted.exclusive_bytes,
        **kept_keys("before", predicted.kept),
        **kept_keys("after", dict.fromkeys(predicted.kept or ())),
        arenas=arenas,
    )
    return found


def in_ram(resident_bytes: Optional[int], exclusive_bytes: Optional[int], when: str = " now") -> Said:
    """What stands behind the bytes that a call would return: how many are in RAM, and of these what the machine gets, where that is
    less."""
    if resident_bytes is None:
        return cells("")
    text = cells(", %s of it in RAM%s", Size(resident_bytes), when)
    if exclusive_bytes is None or exclusive_bytes >= resident_bytes:
        return text
    more = "%s (the machine gets back %s of that: the rest is shared with forked processes, or is part of a huge page)"
    return cells(more, text, Size(exclusive_bytes))


class Way(NamedTuple):
    """What there is to call."""

    is_live: bool = True
    """A process, no core."""
    is_refused: bool = False
    """The call would be refused there: a note says why."""


def conclusion(found: Predicted, bytes_: Optional[int], what: str, command: str, way: Way) -> Said:
    """The last line of a prediction. `what` is the call, as in `malloc_trim would return`."""
    if found.resident_bytes == 0 and bytes_:
        return cells("%s would gain nothing: the %s that it would return are not in RAM now; nothing was called", what, Size(bytes_))
    worth = found.bytes if found.resident_bytes is None else found.resident_bytes
    end = "nothing was called"
    if way.is_refused:
        end = "nothing was called, and `gdbheapx %s` would be refused here" % command
    elif worth and not way.is_live:
        end = "on the live process, `gdbheapx %s` would do it" % command
    elif worth:
        end = "nothing was called; `gdbheapx %s` does it" % command
    return cells("%s would return %s to the OS%s; %s", what, Size(bytes_), in_ram(found.resident_bytes, found.exclusive_bytes), end)


def total(values: Sequence[Optional[int]]) -> Optional[int]:
    """Their sum; None if one is not known."""
    return None if any(value is None for value in values) else sum(value or 0 for value in values)
