"""Map of a heap's pages by cells of equal size: request to the native library, and its result."""

from array import array
from typing import AbstractSet, Any, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.blocks.binding import CBlocks, NativeListedBlocks
from gdbheapx.kernel.blocks.pins import by_kind
from gdbheapx.kernel.blocks.records import NativeBlocks
from gdbheapx.kernel.common.library import OpenPages, OpenSource, address_of, declare_functions, run_resumable

PROTOTYPES = """
struct heap_map *heapx_map_new(const struct map_numbers *shape, const uint64_t *overheads, const uint64_t *ranges, uint64_t count,
    const struct page_table *table);
void heapx_map_free(struct heap_map *map);
int64_t heapx_map_slice(struct heap_map *map, struct block_source *blocks, double seconds);
void heapx_map_cells(struct heap_map *map, struct cell *out);
"""


class MapNumbers(NamedTuple):
    """A MapShape as the kernel takes it, beside the overheads; one bit for each kind that counts as free."""

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

    def cells(self, ranges: Sequence[Tuple[int, int]]) -> int:
        """Count the cells of these ranges."""
        return -(-sum(end - start for start, end in ranges) // self.cell_bytes)


class Cell(NamedTuple):
    """Bytes of whole pages by what they are. Pinned: blocks in use, or the allocator's own,
    beside free ones; cached: nothing in use, blocks in caches; own: the allocator's alone; returned: it keeps the addresses alone."""

    used_bytes: int
    pinned_bytes: int
    cached_bytes: int
    own_bytes: int
    free_bytes: int
    returned_bytes: int
    free_resident_bytes: int
    """Of the free ones. This and the next two are 0 where nothing tells what is in RAM."""
    returned_resident_bytes: int
    unsure_bytes: int
    """Of both: present, and either shared with a forked process or the zero page."""


NUMBERS = len(Cell._fields)


class NativeHeapMap:
    """Single reading of a heap."""

    def __init__(
        self,
        library: Any,
        opened: OpenSource,
        shape: MapShape,
        ranges: Sequence[Tuple[int, int]],
        pages: Optional[PageTable],
        budget: Budget,
    ) -> None:
        self._library, self._opened, self._budget = declare_functions(library, PROTOTYPES), opened, budget
        self._table, self._count = OpenPages(library, pages), shape.cells(ranges)
        kinds = sum(1 << kind for kind in shape.free_kinds)
        numbers = array("Q", MapNumbers(shape.page_bytes, shape.lead_bytes, shape.cell_bytes, kinds, shape.free_is_pinned))
        overheads, bounds = by_kind(shape.overheads), array("Q", [bound for one in ranges for bound in one])
        self._handle = library.heapx_map_new(
            address_of(numbers), address_of(overheads), address_of(bounds), len(ranges), self._table.handle
        )
        if not self._handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_map_free(self._handle)
            self._handle = None

    def stream(self, blocks: Iterator[NativeBlocks]) -> None:
        """Takes the blocks of the heap, all sorts of them."""
        source: Any = blocks if isinstance(blocks, CBlocks) else NativeListedBlocks(self._library, blocks)
        run_resumable(lambda seconds: self._library.heapx_map_slice(self._handle, source.handle, seconds), self._opened, self._budget)

    def cells(self) -> List[Cell]:
        """Return the cells; nothing more may be streamed afterwards."""
        out = array("Q", bytes(8 * NUMBERS * max(1, self._count)))
        self._library.heapx_map_cells(self._handle, address_of(out))
        return [Cell(*out[place : place + NUMBERS]) for place in range(0, NUMBERS * self._count, NUMBERS)]
