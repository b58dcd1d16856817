"""One look at glibc's malloc, frozen."""

from dataclasses import dataclass
from typing import Optional, Sequence

from gdbheapx.allocators.records import Facts
from gdbheapx.glibc.records import ArenaTotals


@dataclass(frozen=True)
class GlibcFacts(Facts):
    """What its verdicts rest on beside the arenas."""

    arenas: Sequence[ArenaTotals]
    trim_threshold_bytes: Optional[int] = None
    """mp_.trim_threshold; None if it cannot be read."""
    asks_for_huge_pages: bool = False
    """glibc.malloc.hugetlb=1 is in force."""
