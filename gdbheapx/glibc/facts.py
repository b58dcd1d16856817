"""One look at glibc's malloc, frozen."""

from typing import Mapping, NamedTuple, Optional, Sequence

from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.model import AllocatorInfo, Claim, HistogramRow


class GlibcFacts(NamedTuple):
    """See allocators.records.Facts; the last two are its own."""

    info: AllocatorInfo
    arenas: Sequence[ArenaTotals]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    trim_threshold_bytes: Optional[int] = None
    """mp_.trim_threshold; None if it cannot be read."""
    asks_for_huge_pages: bool = False
    """glibc.malloc.hugetlb=1 is in force."""
