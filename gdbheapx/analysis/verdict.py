"""Is it a leak, or is the allocator holding it: what verdicts on every allocator share, and whether it is malloc at all."""

from typing import NamedTuple, Optional, Sequence

from gdbheapx.analysis.split import Split
from gdbheapx.model import Finding

NOT_MALLOC = "not-malloc"
LEAK_LIKE = "leak-like"
HOARDING = "hoarding"
FRAGMENTED = "fragmented"
"""jemalloc alone: of glibc's free chunks nobody can say that they are kept for their neighbours."""
MIXED = "mixed"
UNREAD = "unread"
"""Malloc belongs to an allocator that is not read here: nothing can be said."""
SMALL = "small"

SMALL_BYTES = 1 << 20
"""Below this a heap is not worth a verdict."""


class Verdict(NamedTuple):
    """The answer."""

    kind: str
    lines: Sequence[Finding]


def human(size_bytes: Optional[int]) -> str:
    """A size for a sentence."""
    if size_bytes is None:
        return "an unknown amount"
    value = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return "%d bytes" % size_bytes if unit == "bytes" else "%.1f %s" % (value, unit)
        value /= 1024
    return str(size_bytes)


def percent(part: int, whole: int) -> str:
    """A share for a sentence."""
    return "%.0f %%" % (100.0 * part / whole) if whole else "0 %"


def outside(split: Optional[Split]) -> Optional[Finding]:
    """Says so where most of the memory is not malloc's."""
    if split is None or split.total_bytes <= 16 * SMALL_BYTES or 2 * split.allocator_bytes >= split.total_bytes:
        return None
    evidence = "%s of %s %s (%s) lie outside malloc" % (
        human(split.total_bytes - split.allocator_bytes),
        human(split.total_bytes),
        split.measure,
        percent(split.total_bytes - split.allocator_bytes, split.total_bytes),
    )
    where = "largest: %s, %s" % (split.largest[0].name, human(split.largest[0].bytes)) if split.largest else ""
    return Finding("most of the memory is not malloc's", evidence, where or None)
