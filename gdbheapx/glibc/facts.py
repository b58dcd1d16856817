"""One look at glibc's malloc, frozen."""

from typing import Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.model import AllocatorInfo, Claim, HistogramRow


class Top(NamedTuple):
    """Whole pages inside the top of an arena, which no trim gives back."""

    arena: int
    start: int
    end: int


class GlibcFacts(NamedTuple):
    """See allocators.records.Facts; what has a default is its own."""

    info: AllocatorInfo
    arenas: Sequence[ArenaTotals]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    trim_threshold_bytes: Optional[int] = None
    """mp_.trim_threshold; None if it cannot be read."""
    asks_for_huge_pages: bool = False
    """glibc.malloc.hugetlb=1 is in force."""
    tops: Sequence[Top] = ()
    are_all_arenas: bool = True
    """The ring of arenas was followed to its end, and main_arena is among them."""
    most_cached_bytes: Optional[int] = None
    """What thread caches may hold at most; None if nothing limits it."""
    free_pages: Callable[[], Sequence[Tuple[int, int]]] = tuple
    """Whole pages inside free chunks and at the end of the main top, which a trim gives back. One more walk: where nothing else tells which
    of them are in memory (a core)."""
    has_aborted: bool = False
    """A core of a process that malloc itself has ended."""
