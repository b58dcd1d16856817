"""One look at a jemalloc, frozen."""

from typing import Callable, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.jemalloc.records import JemallocArena, JemallocBin, JemallocConditions, TickerReport
from gdbheapx.model import AllocatorInfo, Claim, HistogramRow


class JemallocFacts(NamedTuple):
    """See allocators.records.Facts; those from `bins` on are its own."""

    info: AllocatorInfo
    arenas: Sequence[JemallocArena]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    bins: Sequence[JemallocBin]
    conditions: JemallocConditions
    tickers: TickerReport
    is_whole: bool = True
    """All extents were walked."""
    bases: Sequence[Tuple[int, int]] = ()
    """Blocks of memory that its metadata lies in: more than that it cannot be."""
    most_cached_bytes: Optional[int] = None
    """What thread caches may hold at most, with jemalloc's usual limits; None if nothing limits it."""
    unused_ranges: Callable[[], Sequence[Tuple[int, int]]] = tuple
    """Dirty and muzzy extents: one more walk, where nothing else tells which of them are in memory (a core)."""
