"""One look at glibc's malloc, frozen."""

from dataclasses import dataclass
from typing import Optional

from gdbheapx.allocators.heap import Facts


@dataclass(frozen=True)
class GlibcFacts(Facts):
    """What its verdicts rest on beside the arenas."""

    trim_threshold_bytes: Optional[int] = None
    """mp_.trim_threshold; None if it cannot be read."""
    asks_for_huge_pages: bool = False
    """glibc.malloc.hugetlb=1 is in force."""
