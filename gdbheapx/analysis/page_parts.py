"""Collect the parts of a page beyond the overview: a map of each heap, all size classes, the progress of purging, the memory in use, and
its owners. The map shows the pages of each heap in at most 2,000 cells: in use, pinned, in caches, the allocator's own, free, returned,
and in RAM.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.allocators.heap import AllocatorInstance, plain_shape
from gdbheapx.allocators.records import Facts
from gdbheapx.analysis.census.find import CensusRow
from gdbheapx.analysis.census.owned import FlameFrame
from gdbheapx.analysis.reachability.owners import Owners
from gdbheapx.analysis.sites.records import Joined
from gdbheapx.kernel.blocks.heapmap import Cell, MapShape
from gdbheapx.model import HistogramRow, TargetAddress
from gdbheapx.ranges import Range, unite_ranges
from gdbheapx.session import Session

MOST_CELLS = 2000
MOST_ROWS = 100
"""Of the census."""
OWNER_LEVELS, MOST_OWNERS = 3, 8
MOST_DECAYS = 200
"""Arenas in the table of decay."""


class MapCell(NamedTuple):
    """Cell of the map: bytes of whole pages by their use."""

    address: TargetAddress
    """Of its first page."""
    used_bytes: int
    pinned_bytes: int
    """On pages that have both: something in use, or the allocator's own, and something free."""
    cached_bytes: int
    """Nothing in use, and blocks that wait in caches."""
    own_bytes: int
    free_bytes: int
    """Nothing but free memory that the allocator has not returned."""
    returned_bytes: int
    """Addresses that the allocator keeps, and has returned the memory."""
    free_resident_bytes: Optional[int]
    """Of the free ones, in RAM; None on a core, and where it cannot be told."""
    returned_resident_bytes: Optional[int]


class PageHeapMap(NamedTuple):
    """Map of one heap."""

    allocator: str
    page_bytes: int
    cell_bytes: int
    """Of the heap's ranges, one after the other; the last cell may be smaller."""
    sums: MapCell
    """Of all cells; its address is the first one's."""
    cells: Sequence[MapCell]


def _make_heap_map(session: Session, heap: AllocatorInstance, facts: Facts) -> Optional[PageHeapMap]:
    keeping = heap.kept()
    rule = plain_shape(heap.shape) if keeping is None else keeping.shape
    page = max(session.target.page_bytes, rule.page_bytes)
    ranges = unite_ranges((claim.start & -page, (claim.end + page - 1) & -page) for claim in facts.claims if claim.start < claim.end)
    pages = sum(end - start for start, end in ranges) // page
    if not pages:
        return None
    session.budget.progress.stage = "mapping the pages of the heap"
    cell_pages = -(-pages // MOST_CELLS)
    shape = MapShape(
        page_bytes=page,
        lead_bytes=rule.lead_bytes,
        cell_bytes=page * cell_pages,
        free_kinds=heap.shape.unreturned_kinds | rule.listed_kinds,
        free_is_pinned=rule.by_rooms,
        overheads=rule.overheads,
    )
    made = session.kernel.heap_map(session.target.bulk_source(), shape, ranges, session.ram.pages, session.budget)
    made.stream(iter(heap.blocks()))
    counted, knows_ram = made.cells(), session.ram.pages is not None
    cells = [_make_cell(address, cell, knows_ram) for address, cell in zip(_list_cell_addresses(ranges, shape.cell_bytes), counted)]
    sums = Cell(*(sum(column) for column in zip(*counted)))
    return PageHeapMap(heap.info.id, page, shape.cell_bytes, _make_cell(ranges[0][0], sums, knows_ram), cells)


def _make_cell(address: int, cell: Cell, knows_ram: bool) -> MapCell:
    figures: Dict[str, Optional[int]] = cell._asdict()
    unsure_bytes = figures.pop("unsure_bytes")
    if unsure_bytes or not knows_ram:
        figures.update(free_resident_bytes=None, returned_resident_bytes=None)
    return MapCell(TargetAddress(address), **figures)  # type: ignore[arg-type]


def _list_cell_addresses(ranges: Sequence[Range], cell_bytes: int) -> List[int]:
    """Return the address of the first page of each cell."""
    addresses, left = [], 0
    for start, end in ranges:
        at = start + left
        while at < end:
            addresses.append(at)
            at += cell_bytes
        left = at - end
    return addresses


class SizeClasses(NamedTuple):
    """The blocks of one heap by size class."""

    allocator: str
    rows: Sequence[HistogramRow]


class PageCensus(NamedTuple):
    """Census of the memory in use."""

    blocks: int
    bytes: int
    named_bytes: int
    rows: Sequence[CensusRow]
    """The largest."""
    more_rows: int
    """Those that are left out."""
    sites: Optional[Joined] = None
    """Functions that may have allocated the blocks of each row; None where that was not asked for."""


class PageParts(NamedTuple):
    """The member `page`."""

    map: Sequence[PageHeapMap]
    histogram: Sequence[SizeClasses]
    decay: Optional[Sequence[Any]]
    """The rows of `decay`; None where no allocator here has any."""
    more_decay: int
    """Rows that are left out."""
    census: Optional[PageCensus] = None
    """None where the blocks were not looked at one by one."""
    owners: Optional[Owners] = None
    """As `owners` has them, some levels deep; None as before."""
    flame: Optional[Sequence[FlameFrame]] = None
    """The same blocks by the stacks of their owners, as `export --format folded` has them; None as before."""


def read_page_parts(session: Session, facts: Sequence[Facts]) -> PageParts:
    """Collect the parts that are read from the heaps while the process is stopped."""
    answers = [heap.capabilities["decay"]() for heap in session.heaps.all() if "decay" in heap.capabilities]
    rows: List[Any] = [row for answer in answers for row in answer.rows]
    return PageParts(
        map=_make_maps(session, facts),
        histogram=[SizeClasses(fact.info.id, fact.sizes) for fact in facts],
        decay=rows[:MOST_DECAYS] if answers else None,
        more_decay=max(0, len(rows) - MOST_DECAYS),
    )


def _make_maps(session: Session, facts: Sequence[Facts]) -> Sequence[PageHeapMap]:
    """Make the map of every heap that holds anything, in the order of `facts`, from the same look as these."""
    made = (_make_heap_map(session, heap, fact) for heap, fact in zip(session.heaps.all(), facts))
    return [heap_map for heap_map in made if heap_map is not None]
