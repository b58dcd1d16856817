"""One look at a jemalloc, frozen."""

from typing import Mapping, NamedTuple, Optional, Sequence

from gdbheapx.jemalloc.records import JemallocArena, JemallocBin, JemallocConditions, TickerReport
from gdbheapx.model import AllocatorInfo, Claim, HistogramRow


class JemallocFacts(NamedTuple):
    """See allocators.records.Facts; the last three are its own."""

    info: AllocatorInfo
    arenas: Sequence[JemallocArena]
    totals: Mapping[str, Optional[int]]
    sizes: Sequence[HistogramRow]
    claims: Sequence[Claim]
    bins: Sequence[JemallocBin]
    conditions: JemallocConditions
    tickers: TickerReport
