"""Is it a leak, or is the allocator holding it: what the verdicts on every allocator share."""

from typing import NamedTuple, Optional, Sequence

from gdbheapx.analysis.memory.kinds import CERTAIN
from gdbheapx.model import Finding

NOT_MALLOC = "not-malloc"
LEAK_LIKE = "leak-like"
HOARDING = "hoarding"
FRAGMENTED = "fragmented"
"""jemalloc alone: of glibc's free chunks nobody can say that they are kept for their neighbours."""
MIXED = "mixed"
HUGE_PAGES = "huge-pages"
"""What the allocator gave back is in RAM all the same, as parts of huge pages that it still uses."""
UNREAD = "unread"
"""Malloc belongs to an allocator that is not read here: nothing can be said."""
SMALL = "small"

SMALL_BYTES = 1 << 20
"""Below this a heap is not worth a verdict."""


class Verdict(NamedTuple):
    """The answer."""

    kind: str
    lines: Sequence[Finding]
    """The verdict itself, then what else stands out."""
    code: Optional[str] = None
    """Of the first line: what exactly it is (analysis/codes.py)."""
    sure: str = CERTAIN
    """`certain` (it follows from what the allocator and the kernel say), `likely`, `guess`: as sure as whose the memory is."""
    evidence: Optional[str] = None
    """Of the first line."""


def of_lines(kind: str, lines: Sequence[Finding], sure: str = CERTAIN) -> Verdict:
    """A verdict that its first line states."""
    return Verdict(kind, lines, lines[0].code, sure, lines[0].evidence)


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
