"""What the pages of each heap are, in at most 2,000 cells: in use, pinned, in caches, the allocator's own, free, returned, and in RAM."""

from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.allocators.heap import Heap, plain_shape
from gdbheapx.allocators.records import Facts
from gdbheapx.kernel.blocks.heapmap import Cell, MapShape
from gdbheapx.model import Address
from gdbheapx.ranges import Range, union
from gdbheapx.session import Session

MOST_CELLS = 2000


class MapCell(NamedTuple):
    """One cell: bytes of whole pages by what they are."""

    address: Address
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


class HeapMap(NamedTuple):
    """One heap."""

    allocator: str
    page_bytes: int
    cell_bytes: int
    """Of the heap's ranges, one after the other; the last cell may be smaller."""
    sums: MapCell
    """Of all cells; its address is the first one's."""
    cells: Sequence[MapCell]


def heap_maps(session: Session, facts: Sequence[Facts]) -> List[HeapMap]:
    """Of every heap that holds anything, in the order of `facts`. Of the look at which these were made."""
    found = []
    for heap, one in zip(session.heaps.all(), facts):
        made = _of(session, heap, one)
        if made is not None:
            found.append(made)
    return found


def _of(session: Session, heap: Heap, facts: Facts) -> Optional[HeapMap]:
    keeping = heap.kept()
    rule = plain_shape(heap.shape) if keeping is None else keeping.shape
    page = max(session.target.page_bytes, rule.page_bytes)
    ranges = union((claim.start & -page, (claim.end + page - 1) & -page) for claim in facts.claims if claim.start < claim.end)
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
        free_is_pinned=bool(rule.rooms),
        overheads=rule.overheads,
    )
    made = session.compiled.heap_map(session.target.bulk_source(), shape, ranges, session.ram.pages, session.budget)
    made.stream(iter(heap.blocks()))
    found, knows_ram = made.cells(), session.ram.pages is not None
    cells = [_cell(address, one, knows_ram) for address, one in zip(_addresses(ranges, shape.cell_bytes), found)]
    sums = Cell(*(sum(column) for column in zip(*found)))
    return HeapMap(heap.info.id, page, shape.cell_bytes, _cell(ranges[0][0], sums, knows_ram), cells)


def _cell(address: int, found: Cell, knows_ram: bool) -> MapCell:
    is_known = knows_ram and not found.unsure_bytes
    return MapCell(
        address=Address(address),
        used_bytes=found.used_bytes,
        pinned_bytes=found.pinned_bytes,
        cached_bytes=found.cached_bytes,
        own_bytes=found.own_bytes,
        free_bytes=found.free_bytes,
        returned_bytes=found.returned_bytes,
        free_resident_bytes=found.free_resident_bytes if is_known else None,
        returned_resident_bytes=found.returned_resident_bytes if is_known else None,
    )


def _addresses(ranges: Sequence[Range], cell_bytes: int) -> List[int]:
    """Of the first page of each cell."""
    found, left = [], 0
    for start, end in ranges:
        at = start + left
        while at < end:
            found.append(at)
            at += cell_bytes
        left = at - end
    return found
