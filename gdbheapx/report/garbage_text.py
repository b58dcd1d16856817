"""What is shown of garbage that waits for a collector of cycles."""

from typing import Iterator

from gdbheapx.analysis.reachability.garbage import FROZEN, LATE, OFF, Garbage
from gdbheapx.units import Size, plural, say

WHY = {
    OFF: "its collector is off: gc.disable(), or a threshold of 0",
    FROZEN: "gc.freeze() keeps it from its collector",
    LATE: "its collector is on",
}


def lines(garbage: Garbage) -> Iterator[str]:
    """How much, what of, and why it is still there."""
    collector = garbage.collector
    top = garbage.classes[0] if garbage.classes else None
    holds = say(" (%s in %d %s)", Size(top.behind_bytes), top.objects, top.name) if top is not None and top.behind_bytes is not None else ""
    objects = plural(garbage.objects, "object")
    cure = "gc.unfreeze() and gc.collect()" if garbage.why == FROZEN else "gc.collect()"
    yield say("Garbage: %s in %s that only refer to each other%s; %s would free them", Size(garbage.bytes), objects, holds, cure)
    if garbage.why is not None:
        counted = ["%d of %d" % pair for pair in zip(collector.counts, collector.thresholds)]
        yield "  %s; counts of its generations: %s" % (WHY[garbage.why], ", ".join(counted))
