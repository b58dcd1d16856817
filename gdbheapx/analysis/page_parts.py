"""What a page shows beyond the overview: a map of each heap, all size classes, how far purging is, what is in use, and who keeps it."""

from typing import Any, List, NamedTuple, Optional, Sequence

from gdbheapx import problems
from gdbheapx.allocators.records import Facts
from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.heap_map import HeapMap, heap_maps
from gdbheapx.analysis.reachability.owners import Owners
from gdbheapx.errors import HeapxError
from gdbheapx.model import HistogramRow
from gdbheapx.session import Session

MOST_ROWS = 100
"""Of the census."""
OWNER_LEVELS, MOST_OWNERS = 3, 8
MOST_DECAYS = 200
"""Arenas in the table of decay."""


class SizeClasses(NamedTuple):
    """The blocks of one heap by size class."""

    allocator: str
    rows: Sequence[HistogramRow]


class PageCensus(NamedTuple):
    """What is in use."""

    blocks: int
    bytes: int
    named_bytes: int
    rows: Sequence[CensusRow]
    """The largest."""
    more_rows: int
    """Those that are left out."""


class PageParts(NamedTuple):
    """The member `page`."""

    map: Sequence[HeapMap]
    histogram: Sequence[SizeClasses]
    decay: Optional[Sequence[Any]]
    """The rows of `decay`; None where no allocator here has any."""
    more_decay: int
    """Rows that are left out."""
    census: Optional[PageCensus] = None
    """None where the blocks were not looked at one by one."""
    owners: Optional[Owners] = None
    """As `owners` has them, some levels deep; None as before."""


def still(session: Session, facts: Sequence[Facts]) -> PageParts:
    """What is asked of the heaps while they stand still."""
    answers = [heap.capabilities["decay"]() for heap in session.heaps.all() if "decay" in heap.capabilities]
    rows: List[Any] = [row for one in answers for row in one.rows]
    return PageParts(
        map=_maps(session, facts),
        histogram=[SizeClasses(one.info.id, one.sizes) for one in facts],
        decay=rows[:MOST_DECAYS] if answers else None,
        more_decay=max(0, len(rows) - MOST_DECAYS),
    )


def _maps(session: Session, facts: Sequence[Facts]) -> Sequence[HeapMap]:
    try:
        return heap_maps(session, facts)
    except HeapxError as error:
        if error.code != problems.KERNEL_MISSING:
            raise
        session.problem(problems.NO_ANSWER, None, "the map of the heap's pages was left out: %s" % error, error.hint, partial=False)
        return []


def census(blocks: int, bytes: int, named_bytes: int, rows: Sequence[CensusRow]) -> PageCensus:
    """The largest rows of a census."""
    return PageCensus(blocks, bytes, named_bytes, rows[:MOST_ROWS], max(0, len(rows) - MOST_ROWS))
