"""What a command that changed a process has to tell: predicted, measured, how it was done."""

from typing import Any, Dict, NamedTuple, Optional, Sequence

from gdbheapx.errors import HeapxError
from gdbheapx.model import JemallocArena


class Measure(NamedTuple):
    """What the kernel counts for the process (/proc/PID/smaps_rollup); None where it does not tell."""

    anonymous_bytes: Optional[int]
    rss_bytes: Optional[int]
    swap_bytes: Optional[int]


class Pages(NamedTuple):
    """Unused pages that jemalloc keeps."""

    dirty_pages: Optional[int]
    muzzy_pages: Optional[int]


class Caller(NamedTuple):
    """The thread that made the call."""

    lwp: int
    name: Optional[str]
    place: str
    """Where it stood: `system call`, `program`, or `entry of malloc`."""


class Acted(NamedTuple):
    """One call into a process, and what came of it."""

    call: str
    """As C: `malloc_trim(0)`."""
    way: str
    """`gdb-call` or `register-call`."""
    returned: Optional[int]
    """None if it did not return in the ordinary way, see `trouble`."""
    trouble: Optional[str]
    """In which state the process is after a call that went wrong."""
    predicted_bytes: int
    predicted_resident_bytes: Optional[int]
    predicted_exclusive_bytes: Optional[int]
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
    pages_before: Optional[Pages] = None
    pages_after: Optional[Pages] = None
    way_reason: Optional[str] = None
    """Why gdb's own call would not do; None for `gdb-call`."""

    @property
    def data(self) -> Dict[str, Any]:
        """The contract's keys of `trim` and `purge`."""
        found: Dict[str, Any] = {
            "call": self.call,
            "way": self.way,
            "way_reason": self.way_reason,
            "returned": self.returned,
            "predicted_bytes": self.predicted_bytes,
            "predicted_resident_bytes": self.predicted_resident_bytes,
            "predicted_exclusive_bytes": self.predicted_exclusive_bytes,
        }
        for name, before, after in figures(self.before, self.after):
            found.update({name + "_before_bytes": before, name + "_after_bytes": after, name + "_diff_bytes": difference(before, after)})
        found.pop("swap_diff_bytes")
        found.update(elapsed_ms=self.elapsed_ms, stopped_ms=self.stopped_ms, thread=self.caller, tries=self.tries, waited_for=self.waited_for, trouble=self.trouble)
        for when, pages in (("before", self.pages_before), ("after", self.pages_after)):
            if pages is not None:
                found.update({"dirty_%s_pages" % when: pages.dirty_pages, "muzzy_%s_pages" % when: pages.muzzy_pages})
        return found


def figures(before: Measure, after: Measure) -> Sequence[Any]:
    """(name, before, after) of each measure."""
    return [(name, getattr(before, name + "_bytes"), getattr(after, name + "_bytes")) for name in ("anonymous", "rss", "swap")]


def difference(before: Optional[int], after: Optional[int]) -> Optional[int]:
    """After minus before: memory given back is negative."""
    return None if before is None or after is None else after - before


def total(values: Sequence[Optional[int]]) -> Optional[int]:
    """Their sum; None if one is not known."""
    return None if any(value is None for value in values) else sum(value or 0 for value in values)


def pages_of(rows: Sequence[JemallocArena], page_bytes: int) -> Pages:
    """The unused pages of these arenas."""
    dirty, muzzy = total([row.dirty_bytes for row in rows]), total([row.muzzy_bytes for row in rows])
    return Pages(None if dirty is None else dirty // page_bytes, None if muzzy is None else muzzy // page_bytes)


class PurgeDryRun(NamedTuple):
    """What a purge would give back."""

    arenas: Sequence[JemallocArena]
    pages: Pages

    @property
    def predicted_bytes(self) -> Optional[int]:
        """Dirty and muzzy pages."""
        return total([row.reclaimable_bytes for row in self.arenas])

    @property
    def predicted_resident_bytes(self) -> Optional[int]:
        """Those that count in RSS."""
        return total([row.reclaimable_resident_bytes for row in self.arenas])

    @property
    def predicted_exclusive_bytes(self) -> Optional[int]:
        """Those of them that the machine gets back at once."""
        return total([row.reclaimable_exclusive_bytes for row in self.arenas])

    @property
    def data(self) -> Dict[str, Any]:
        """The contract's keys of `purge`; what only a real run gives is null."""
        none = Measure(None, None, None)
        found = Acted("", "none", None, None, 0, None, None, none, none, 0.0, None, Caller(0, None, ""), 0, (), self.pages, Pages(None, None)).data
        found.update(dict.fromkeys(("call", "elapsed_ms", "thread")))
        for key in ("tries", "waited_for", "trouble"):
            del found[key]
        found.update({key: getattr(self, key) for key in ("predicted_bytes", "predicted_resident_bytes", "predicted_exclusive_bytes")})
        keys = ("allocator", "index", "dirty_bytes", "muzzy_bytes", "reclaimable_bytes", "reclaimable_resident_bytes", "reclaimable_exclusive_bytes")
        found["arenas"] = [{key: getattr(row, key) for key in keys} for row in self.arenas]
        return found


def purge_dry_run(mallocs: Sequence[Any], arena: Optional[int], page_bytes: int) -> PurgeDryRun:
    """What a purge of one arena, or of all, would give back; HeapxError where there is no such arena."""
    rows = [row for row in mallocs[0].arenas() if arena in (None, row.index)]
    if not rows:
        raise HeapxError("arena %s not found" % arena, "see `gdbheapx arenas`")
    return PurgeDryRun(rows, pages_of(rows, page_bytes))
