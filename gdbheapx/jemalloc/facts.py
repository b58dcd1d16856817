"""One look at a jemalloc, frozen."""

from dataclasses import dataclass
from typing import Sequence

from gdbheapx.allocators.records import Facts
from gdbheapx.jemalloc.records import JemallocArena, JemallocBin, JemallocConditions, TickerReport


@dataclass(frozen=True)
class JemallocFacts(Facts):
    """What its verdicts rest on beside the arenas."""

    arenas: Sequence[JemallocArena]
    bins: Sequence[JemallocBin]
    conditions: JemallocConditions
    tickers: TickerReport
