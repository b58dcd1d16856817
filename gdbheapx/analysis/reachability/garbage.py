"""Garbage that waits for a collector of cycles: objects that count references, and have none but from each other."""

from typing import NamedTuple, Optional, Sequence

from gdbheapx.model import TargetAddress

OFF, FROZEN, LATE = "off", "frozen", "late"


class Collector(NamedTuple):
    """Collector of objects that only refer to each other, as described by its own variables."""

    is_on: Optional[bool]
    """None: it was not found."""
    thresholds: Sequence[int] = ()
    """Of each generation, the youngest first."""
    counts: Sequence[int] = ()


class CollectorState(NamedTuple):
    """Values of the collector's own variables."""

    collector: Collector
    permanent: int
    """Address of the list of what it leaves out (gc.freeze())."""
    full_collections: int
    """Address of the number of collections of all generations."""
    survivors: int
    """Objects that the last of these has visited and left: each was written to. What is frozen is none of them."""


class GarbageClass(NamedTuple):
    """Garbage of one class."""

    name: str
    objects: int
    bytes: int
    """Of the objects alone."""
    sample: TargetAddress
    behind_bytes: Optional[int] = None
    """Garbage that they lead to, themselves included; None: it was not counted."""


class Garbage(NamedTuple):
    """The answer."""

    runtime: str
    blocks: int
    bytes: int
    """All that a collection would free, memory beside the objects included."""
    objects: int
    """Those that the collector counts."""
    frozen_objects: int
    """Of them those that it leaves out (gc.freeze())."""
    classes: Sequence[GarbageClass]
    """The program's own that lead to most first, then those with most bytes."""
    collector: Collector
    why: Optional[str]
    """Why it is still there: `off`, `frozen` or `late`; None: unknown."""


def explain_garbage(collector: Collector, objects: int, frozen_objects: int) -> Optional[str]:
    """Return the reason why garbage is still there; None if the collector was not found."""
    if collector.is_on is None:
        return None
    if 2 * frozen_objects > objects:
        return FROZEN
    return LATE if collector.is_on and any(collector.thresholds[:1]) else OFF
