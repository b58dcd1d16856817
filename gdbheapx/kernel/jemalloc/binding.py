"""The C kernel's walks over jemalloc's extents, by ctypes: layouts into flat numbers, flat numbers into records."""

from array import array
from typing import Any, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.blocks.binding import CBlocks
from gdbheapx.kernel.blocks.records import EVERYTHING, BlockFilter, Blocks, BlockStream, apart_from
from gdbheapx.kernel.common.binding import CommonBinding
from gdbheapx.kernel.common.library import OpenPages, as_array, at, declared, run
from gdbheapx.kernel.common.records import ADDRESS_MASK, STOP_END, STOP_TIME, Residency
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.interface import ExtentWalker, check_layout
from gdbheapx.kernel.jemalloc.linked_records import Linked, LinkedList

PROTOTYPES = """
struct block_source *heapx_extent_blocks(const struct source *memory, const uint64_t *numbers, const uint64_t *bins,
    const uint64_t *size_classes, const uint64_t *cached, uint64_t cached_count, const uint64_t *wanted, const uint64_t *more);
void heapx_extents_summary(const struct extents_job *job, uint64_t *out);
uint64_t heapx_extents_ranges(const struct extents_job *job, uint64_t room, uint64_t *out);
int heapx_extents_arena(const struct extents_job *job, uint64_t index, uint64_t *out);
uint64_t heapx_extents_numbers(const struct extents_job *job);
void heapx_extents_free(struct extents_job *job);
struct extents_job *heapx_extents_new(const struct source *source, const uint64_t *numbers, const uint64_t *bins, const uint64_t *cached,
    uint64_t cached_count, const struct page_table *pages);
int64_t heapx_extents_slice(struct extents_job *job, double seconds);
void heapx_linked_free(struct linked_job *job);
struct linked_job *heapx_linked_new(const struct source *source, const uint64_t *numbers, const uint64_t *bins, const uint64_t *lists,
    uint64_t count);
int64_t heapx_linked_slice(struct linked_job *job, double seconds);
uint64_t heapx_linked_result(const struct linked_job *job, uint64_t *out);
"""

STATE_NUMBERS = 2 + len(Residency._fields)
"""Of struct state_totals."""
FIXED = 8
"""Numbers of heapx_extents_summary before the counts."""


class CExtentWalker(ExtentWalker):
    """See ExtentWalker."""

    def __init__(self, kernel: CommonBinding, source: BulkSource, heap: api.HeapLayout, budget: Budget) -> None:
        check_layout(heap)
        self._library, self._opened, self._heap, self._budget = declared(kernel.library, PROTOTYPES), kernel.open(source), heap, budget
        self._numbers, self._bins = layout_numbers(heap), bin_numbers(heap.bins)

    def walk(self, cached: Sequence[int], pages: Optional[PageTable] = None) -> api.ExtentsResult:
        """See ExtentWalker."""
        library, listed, table = self._library, as_array(cached), OpenPages(self._library, pages)
        job = library.heapx_extents_new(self._opened.handle, at(self._numbers), at(self._bins), at(listed), len(listed), table.handle)
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_extents_slice(job, seconds), self._opened, self._budget)
            return _result(library, job, self._heap.narenas, table.handle is not None)
        finally:
            library.heapx_extents_free(job)

    def blocks(
        self, cached: Sequence[int], wanted: BlockFilter = EVERYTHING, arena: Optional[int] = None, apart: Optional[Blocks] = None
    ) -> BlockStream:
        """See ExtentWalker."""
        sizes, listed = self._heap.sizes, as_array(cached)
        more = array("Q", [ADDRESS_MASK if arena is None else arena, int(sizes.from_extent), sizes.large_pad_bytes])
        kept = [self._numbers, self._bins, as_array(self._heap.size_classes), listed, wanted.numbers(), more]
        handle = self._library.heapx_extent_blocks(self._opened.handle, *map(at, kept[:4]), len(listed), *map(at, kept[4:]))
        return CBlocks(self._library, self._opened, handle, kept, apart_from(apart, wanted), self._budget)

    def follow(self, lists: Sequence[LinkedList]) -> List[Linked]:
        """See ExtentWalker."""
        library, flat = self._library, array("Q", [int(number) for one in lists for number in one])
        job = library.heapx_linked_new(self._opened.handle, at(self._numbers), at(self._bins), at(flat), len(lists))
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_linked_slice(job, seconds), self._opened, self._budget)
            numbers = len(Linked._fields)
            out = array("Q", bytes(8 * numbers * len(lists)))
            return [Linked(*row) for row in _rows(out, 0, library.heapx_linked_result(job, at(out)), numbers)]
        finally:
            library.heapx_linked_free(job)


def layout_numbers(heap: api.HeapLayout) -> Any:
    """The layouts as extents_open (extents.c) reads them."""
    rtree, extent = heap.rtree, heap.extent
    levels = list(rtree.levels) + [0] * (3 - len(rtree.levels))
    # a pointer of 32 bits has nothing to be extended to
    extended = rtree.sign_extend and extent.word_bytes == 8
    numbers = [rtree.root, len(rtree.levels), *levels, rtree.lg_page, rtree.lg_vaddr, rtree.leaf_bytes, int(rtree.compact)]
    numbers += [rtree.extent_low_bits if rtree.compact else 0, int(extended), min(heap.mapped_bytes, ADDRESS_MASK), rtree.leaf_kind]
    numbers += [extent.size_bytes, extent.bits_offset, extent.addr_offset, extent.size_offset, extent.bitmap_offset]
    for field in (extent.arena, extent.slab, extent.state, extent.szind, extent.nfree, extent.binshard):
        numbers += field
    numbers += [extent.states, extent.active, extent.dirty, extent.muzzy, extent.retained]
    numbers += [extent.word_bytes, int(extent.little_endian != LITTLE_ENDIAN), heap.narenas, len(heap.size_classes), len(heap.bins)]
    return array("Q", numbers)


LITTLE_ENDIAN = array("H", b"\1\0")[0] == 1
"""This machine's byte order."""


def bin_numbers(bins: Sequence[api.BinLayout]) -> Any:
    """The bins as struct bin (extents.h)."""
    return array("Q", [number for row in bins for number in row])


def _result(library: Any, job: int, narenas: int, has_pages: bool) -> api.ExtentsResult:
    out = array("Q", bytes(8 * library.heapx_extents_numbers(job)))
    library.heapx_extents_summary(job, at(out))
    done, place, nodes, leaf_nodes, extents, unassociated, unparsed, unreadable = out[:FIXED]
    first = FIXED + api.EXTENT_CODES
    counts, detail_counts = tuple(out[FIXED:first]), tuple(out[first : first + api.EXTENT_CODES])
    first += api.EXTENT_CODES
    cached_counts = tuple(out[first : first + api.CACHED_REASONS])
    first += api.CACHED_REASONS
    problems, details, cached_problems = out[first : first + 3]
    rows = _rows(out, first + 3, problems, 3)
    detail_rows = _rows(out, first + 3 + 3 * api.MOST_PROBLEMS, details, 3)
    cached_rows = _rows(out, first + 3 + 6 * api.MOST_PROBLEMS, cached_problems, 2)
    arenas = []
    for index in range(narenas):
        if library.heapx_extents_arena(job, index, at(out)):
            arenas.append(_arena(index, out, has_pages))
    count = library.heapx_extents_ranges(job, 0, None)
    ranges = array("Q", bytes(16 * count))
    library.heapx_extents_ranges(job, count, at(ranges))
    return api.ExtentsResult(
        STOP_END if done else STOP_TIME,
        place,
        tuple(arenas),
        tuple(zip(ranges[::2], ranges[1::2])),
        nodes,
        leaf_nodes,
        extents,
        unassociated,
        unparsed,
        unreadable,
        tuple(api.ExtentProblem(*row) for row in rows),
        counts,
        tuple(api.CachedProblem(*row) for row in cached_rows),
        cached_counts,
        tuple(api.ExtentProblem(*row) for row in detail_rows),
        detail_counts,
    )


def _rows(out: Any, first: int, count: int, numbers: int) -> List[Tuple[int, ...]]:
    return [tuple(out[place : place + numbers]) for place in range(first, first + count * numbers, numbers)]


def _arena(index: int, out: Any, has_pages: bool) -> api.ArenaExtents:
    first = STATE_NUMBERS * api.STATES + 3
    bins, larges, classes = out[first - 3 : first]
    bin_rows = _rows(out, first, bins, 5)
    large_rows = _rows(out, first + 5 * bins, larges, 5)
    class_rows: Any = _rows(out, first + 5 * (bins + larges), classes, 7)
    states = _rows(out, 0, api.STATES, STATE_NUMBERS)
    totals = [api.StateTotals(row[0], row[1], Residency(*row[2:]) if has_pages else None) for row in states]
    return api.ArenaExtents(
        index,
        totals[0],
        totals[1],
        totals[2],
        totals[3],
        totals[4],
        tuple(api.BinTotals(*row) for row in bin_rows),
        tuple(api.LargeTotals(*row) for row in large_rows),
        tuple(class_rows),
    )
