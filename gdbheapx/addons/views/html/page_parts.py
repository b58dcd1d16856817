"""Read what only the page of a report shows: maps of the heaps' pages, size classes, purging, owners some levels deep."""

from array import array
from typing import AbstractSet, Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.heap import AllocatorInstance, plain_shape
from gdbheapx.allocators.records import Facts
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.addon_answers import Joined
from gdbheapx.analysis.census import find, owned
from gdbheapx.analysis.census.find import Census, CensusRow
from gdbheapx.analysis.census.owned import FlameFrame
from gdbheapx.analysis.census.world import CensusTarget
from gdbheapx.analysis.reachability.owners import Owners
from gdbheapx.common import addon_loader
from gdbheapx.common.budget import Budget
from gdbheapx.common.model import HistogramRow, TargetAddress
from gdbheapx.common.ranges import unite_ranges
from gdbheapx.kernel.blocks.pages import by_kind
from gdbheapx.kernel.blocks.stream import NativeBlocks, open_stream
from gdbheapx.kernel.common.library import NativeObject, OpenPages, OpenSource, address_of, flatten_pairs, run_resumable

MOST_CELLS = 2000
MOST_PAGE_ROWS = 100
"""Of the census."""
OWNER_LEVELS, MOST_OWNERS = 3, 8
MOST_DECAYS = 200
"""Arenas in the table of decay."""


class MapNumbers(NamedTuple):
    """A MapShape as the kernel takes it, next to the overheads; one bit for each kind that counts as free."""

    page_bytes: int
    lead_bytes: int
    cell_bytes: int
    free_kinds: int
    free_is_pinned: bool


class MapShape(NamedTuple):
    """Classification of pages, and the size of a cell."""

    page_bytes: int
    lead_bytes: int
    """From the begin of the allocator's unit to the block's address."""
    cell_bytes: int
    """A multiple of page_bytes. A cell is so much of the ranges, one after the other; it may have the end of one and the begin of the
    next."""
    free_kinds: AbstractSet[int] = frozenset()
    """Kinds that count as free whatever their class: unused pages that are not returned yet, lists of blocks that are merged with their
    neighbours before memory is returned."""
    free_is_pinned: bool = False
    """Memory goes back by rooms such as slabs: a free block means that its room has others in use."""
    overheads: Sequence[int] = ()
    """By kind: bytes of the unit beyond the usable ones."""

    def count_cells(self, ranges: Sequence[Tuple[int, int]]) -> int:
        """Count the cells of these ranges."""
        return -(-sum(end - start for start, end in ranges) // self.cell_bytes)


class Cell(NamedTuple):
    """Bytes of whole pages by what they are. Pinned: blocks in use, or the allocator's own,
    next to free ones; cached: nothing in use, blocks in caches; own: the allocator's alone; returned: it keeps the addresses alone."""

    used_bytes: int
    pinned_bytes: int
    cached_bytes: int
    own_bytes: int
    free_bytes: int
    returned_bytes: int
    free_resident_bytes: int
    """Of the free ones. This and the next two are 0 where nothing shows what is in RAM."""
    returned_resident_bytes: int
    unsure_bytes: int
    """Of both: present, and either shared with a forked process or the zero page."""


CELL_NUMBERS = len(Cell._fields)


class NativeHeapMap(NativeObject):
    """Single reading of a heap."""

    def __init__(
        self,
        library: Any,
        opened: OpenSource,
        shape: MapShape,
        ranges: Sequence[Tuple[int, int]],
        pages: OpenPages,
        budget: Budget,
    ) -> None:
        self._library, self._opened, self._budget = library, opened, budget
        self._table, self._count = pages, shape.count_cells(ranges)
        kinds = sum(1 << kind for kind in shape.free_kinds)
        numbers = array("Q", MapNumbers(shape.page_bytes, shape.lead_bytes, shape.cell_bytes, kinds, shape.free_is_pinned))
        overheads, bounds = by_kind(shape.overheads), flatten_pairs(ranges)
        arrays = (address_of(numbers), address_of(overheads), address_of(bounds), len(ranges))
        super().__init__(library.heapx_map_new(*arrays, self._table.handle), library.heapx_map_free)

    def stream(self, blocks: Iterator[NativeBlocks]) -> None:
        """Takes the blocks of the heap, all sorts of them."""
        source = open_stream(self._library, blocks)
        run_resumable(lambda seconds: self._library.heapx_map_slice(self.handle, source.handle, seconds), self._opened, self._budget)

    def cells(self) -> List[Cell]:
        """Return the cells; nothing more may be streamed afterwards."""
        out = array("Q", bytes(8 * CELL_NUMBERS * max(1, self._count)))
        self._library.heapx_map_cells(self.handle, address_of(out))
        return [Cell(*out[place : place + CELL_NUMBERS]) for place in range(0, CELL_NUMBERS * self._count, CELL_NUMBERS)]


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
    """Of the free ones, in RAM; None on a core, and where it cannot be found."""
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
    count = sum(end - start for start, end in ranges) // page
    if not count:
        return None
    session.budget.progress.stage = "mapping the pages of the heap"
    cell_bytes = page * -(-count // MOST_CELLS)
    shape = MapShape(
        page_bytes=page,
        lead_bytes=rule.lead_bytes,
        cell_bytes=cell_bytes,
        free_kinds=heap.shape.unreturned_kinds | rule.listed_kinds,
        free_is_pinned=rule.by_rooms,
        overheads=rule.overheads,
    )
    kernel = session.kernel
    pages = OpenPages(kernel.library, session.ram.pages)
    made = NativeHeapMap(kernel.library, kernel.open(session.target.bulk_source()), shape, ranges, pages, session.budget)
    made.stream(iter(heap.blocks()))
    counted, knows_ram = made.cells(), session.ram.pages is not None
    addresses, left = [], 0  # the first page of each cell: the last cell of a range goes on in the next
    for start, end in ranges:
        at = start + left
        while at < end:
            addresses.append(at)
            at += cell_bytes
        left = at - end
    cells = [_make_cell(address, cell, knows_ram) for address, cell in zip(addresses, counted)]
    sums = Cell(*(sum(column) for column in zip(*counted)))
    return PageHeapMap(heap.info.id, page, cell_bytes, _make_cell(ranges[0][0], sums, knows_ram), cells)


def _make_cell(address: int, cell: Cell, knows_ram: bool) -> MapCell:
    figures: Dict[str, Optional[int]] = cell._asdict()
    unsure_bytes = figures.pop("unsure_bytes")
    if unsure_bytes or not knows_ram:
        figures.update(free_resident_bytes=None, returned_resident_bytes=None)
    return MapCell(TargetAddress(address), **figures)  # type: ignore[arg-type]


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


class ReportPageReader:
    """Collector of what only a page shows, while a report is made (PageReader of analysis/inside.py)."""

    owner_levels, most_owners = OWNER_LEVELS, MOST_OWNERS

    def __init__(self) -> None:
        self.parts: Optional[PageParts] = None
        """None: nothing was read yet."""

    def read_heaps(self, session: Session, facts: Sequence[Facts]) -> None:
        """Collect the parts that are read from the heaps while the process is stopped: maps of those that hold anything among them."""
        answers = [heap.capabilities["decay"]() for heap in session.heaps.all() if "decay" in heap.capabilities]
        rows: List[Any] = [row for answer in answers for row in answer.rows]
        maps = [_make_heap_map(session, heap, fact) for heap, fact in zip(session.heaps.all(), facts)]
        self.parts = PageParts(
            map=[heap_map for heap_map in maps if heap_map is not None],
            histogram=[SizeClasses(fact.info.id, fact.sizes) for fact in facts],
            decay=rows[:MOST_DECAYS] if answers else None,
            more_decay=max(0, len(rows) - MOST_DECAYS),
        )

    def add_blocks(self, census: Census, owners: Optional[Owners], flame: Optional[Sequence[FlameFrame]]) -> None:
        """Add what the blocks are and who keeps them; None: that was not found."""
        assert self.parts is not None
        more = max(0, len(census.rows) - MOST_PAGE_ROWS)
        made = PageCensus(census.blocks, census.bytes, census.named_bytes, census.rows[:MOST_PAGE_ROWS], more)
        self.parts = self.parts._replace(census=made, owners=owners, flame=flame)


def complete_parts(session: Session, parts: Optional[PageParts], with_sites: bool) -> Optional[PageParts]:
    """Add what a snapshot's own graph has, and with `with_sites` the functions that may have allocated the blocks of each row."""
    if parts is not None and parts.flame is None and not session.target.has_memory and session.shared(find.TOLD) is not None:
        parts = parts._replace(flame=owned.find_paths(session).flame())
    if parts is None or parts.census is None or not with_sites:
        return parts
    sites = addon_loader.load_capability("sites", "report --sites")
    rows = parts.census.rows
    joined = sites.find_sites(session, rows, session.shared(find.TOLD), CensusTarget.of(session))
    return parts._replace(census=parts.census._replace(sites=joined))
