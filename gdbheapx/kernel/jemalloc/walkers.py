"""The walks over jemalloc's extents, by ctypes: layouts into numbers, numbers into records."""

from array import array
from typing import Any, Iterator, List, Optional, Sequence

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.blocks.stream import EVERYTHING, BlockFilter, BlockStream, CBlocks, NativeBlocks, apart_from
from gdbheapx.kernel.common.library import (
    ADDRESS_MASK,
    Kernel,
    NativeRows,
    OpenPages,
    address_of,
    as_array,
    finish_job,
    flatten_record,
    take_rows,
)
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import LinkedList, NativeLinked


class ExtentWalker:
    """Walks over the extents of one jemalloc. Raises ValueError for a layout that no jemalloc has."""

    def __init__(self, kernel: Kernel, source: BulkSource, heap: api.HeapLayout, budget: Budget) -> None:
        check_layout(heap)
        self._library, self._opened, self._heap, self._budget = kernel.library, kernel.open(source), heap, budget
        self._layout = flatten_record(heap)

    def walk(self, cached: Sequence[int], pages: Optional[PageTable] = None, runs: Optional[Sequence[int]] = None) -> api.ExtentsResult:
        """Every extent that the rtree names, counted by arena; one pass in address order.

        `cached`: sorted array('Q') of the pointers in thread caches. An extent is believed if the leaf elements of its first and its
        last page name it. When the budget expires, or at Ctrl-C, the walk ends before it is done.
        `runs`: begin and end of each run of pages that a core has, sorted: for `absent`, which `pages` is for in a process.
        """
        library, listed, table = self._library, as_array(cached), OpenPages(self._library, pages)
        present = as_array((0, 0) if runs is None else (*runs, 0, 0))  # not empty: its address says that there is one
        known = (table.handle, address_of(present) if runs is not None else None, len(present) // 2 - 1)
        numbers = (self._opened.handle, address_of(self._layout), address_of(listed), len(listed), *known)
        with finish_job(library, "extents", self._opened, self._budget, *numbers) as job:
            return _make_result(library, job, self._heap, table.handle is not None, runs is not None)

    def blocks(
        self, cached: Sequence[int], wanted: BlockFilter = EVERYTHING, arena: Optional[int] = None, apart: Optional[NativeBlocks] = None
    ) -> BlockStream:
        """The blocks of the extents that `walk` counts; kinds are BLOCK_ numbers, sizes are usable bytes.

        Regions of slabs with the size of their bin; large allocations at e_addr (which cache-oblivious builds move within the first
        page) with their size by `heap.sizes`, sampled small ones with that of their size class; all other extents whole.
        `apart`: further blocks, by address, to be merged in as they are.
        """
        listed, numbers = as_array(cached), wanted.numbers()
        given = (address_of(self._layout), address_of(listed), len(listed), address_of(numbers), ADDRESS_MASK if arena is None else arena)
        handle, kept = self._library.heapx_extent_blocks(self._opened.handle, *given), [self._layout, listed, numbers]
        return CBlocks(self._library, self._opened, handle, kept, apart_from(apart, wanted), self._budget)

    def follow(self, lists: Sequence[LinkedList]) -> List[NativeLinked]:
        """Return the extents along heaps and rings, up to the first contradiction of each. When the budget expires, only the lists before
        that are returned.
        """
        asked, out = flatten_record(lists), NativeRows(NativeLinked, len(lists))
        numbers = (self._opened.handle, address_of(self._layout), address_of(asked), len(lists))
        with finish_job(self._library, "linked", self._opened, self._budget, *numbers) as job:
            return out.records(self._library.heapx_linked_result(job, address_of(out.numbers)))


def check_layout(heap: api.HeapLayout) -> None:
    """Raises ValueError for numbers that no jemalloc has: the C code relies on these."""
    rtree, extent = heap.rtree, heap.extent
    for what, good in (("rtree", _good_rtree(rtree, extent.word_bytes)), ("extent", _good_extent(extent))):
        if not good:
            raise ValueError("no %s of jemalloc: %r" % (what, (rtree, extent)))
    most_regions = min(8 * extent.bitmap_bytes, api.MOST_REGIONS)
    good_bins = all(row.reg_size_bytes > 0 and 0 < row.nregs <= most_regions and row.slab_size_bytes > 0 for row in heap.bins)
    good_bins = good_bins and (len(heap.bins), len(heap.size_classes)) == (heap.nbins, heap.nsizes)
    if heap.nbins > heap.nsizes or not good_bins:
        raise ValueError("no bins of jemalloc: %r" % (heap.bins,))
    if not 0 <= heap.narenas <= 1 << extent.arena.width or not 0 <= heap.mapped_bytes <= ADDRESS_MASK:
        raise ValueError("no bounds: %r" % ((heap.narenas, heap.mapped_bytes),))


def _good_rtree(rtree: api.RtreeLayout, word_bytes: int) -> bool:
    word_bits = 8 * word_bytes
    return (
        1 <= rtree.height <= len(rtree.level_bits) == 3
        and all(1 <= bits <= 30 for bits in rtree.levels)
        and sum(rtree.levels) == rtree.lg_vaddr - rtree.lg_page
        and 10 <= rtree.lg_page <= 24
        and rtree.lg_vaddr <= word_bits
        and word_bytes <= rtree.leaf_bytes <= 64
        and (not rtree.compact or rtree.leaf_bytes == word_bytes == 8)
        and 0 <= rtree.extent_low_bits <= 12
        and (not rtree.sign_extend or word_bytes == 8)
        and 0 < rtree.root < 1 << word_bits
        and rtree.leaf_kind in _leaf_kinds(rtree, word_bytes)
        and rtree.root % word_bytes == 0
    )


def _leaf_kinds(rtree: api.RtreeLayout, word_bytes: int) -> Sequence[int]:
    if rtree.compact:
        return api.LEAF_UNKNOWN, api.LEAF_COMPACT, api.LEAF_COMPACT_STATE
    room = rtree.leaf_bytes - word_bytes
    return [api.LEAF_UNKNOWN] + [api.LEAF_METADATA] * (room >= 4) + [api.LEAF_FIELDS] * (room >= 5)


def _good_extent(extent: api.ExtentLayout) -> bool:
    word = extent.word_bytes
    fields = (extent.arena, extent.slab, extent.state, extent.szind, extent.nfree)
    shard = extent.binshard
    places = (
        (extent.bits_offset, 8),
        (extent.addr_offset, word),
        (extent.size_offset, word),
        (extent.bitmap_offset, extent.bitmap_bytes),
    )
    return (
        word in (4, 8)
        and 0 < extent.size_bytes <= api.MOST_EXTENT_BYTES
        and all(offset >= 0 and size > 0 and offset + size <= extent.size_bytes for offset, size in places)
        and extent.bitmap_bytes % word == 0
        and all(field.shift >= 0 and 1 <= field.width <= 16 and field.shift + field.width <= 64 for field in fields)
        and 0 < extent.states <= 1 << extent.state.width
        and (shard.shift >= 0 and 0 <= shard.width <= 16 and shard.shift + shard.width <= 64)
    )


def _make_result(library: Any, job: int, heap: api.HeapLayout, has_pages: bool, has_runs: bool) -> api.ExtentsResult:
    summaries = NativeRows(api.ExtentsSummary, 1)
    library.heapx_extents_summary(job, address_of(summaries.numbers))
    (summary,) = summaries.records(1)
    counts = [array("Q", bytes(8 * count)) for count in (api.EXTENT_CODES, api.EXTENT_CODES, api.CACHED_REASONS)]
    rows = [NativeRows(kind, api.MOST_PROBLEMS) for kind in (api.ExtentProblem, api.ExtentProblem, api.CachedProblem)]
    library.heapx_extents_problems(job, *map(address_of, counts), *(address_of(row.numbers) for row in rows))
    ranges = take_rows(lambda where, room: library.heapx_extents_ranges(job, room, where), 2)
    return api.ExtentsResult(
        summary=summary,
        arenas=tuple(_iterate_arenas(library, job, heap, has_pages, has_runs)),
        ranges=tuple(zip(ranges[::2], ranges[1::2])),
        problems=tuple(rows[0].records(summary.problems)),
        problem_counts=tuple(counts[0]),
        details=tuple(rows[1].records(summary.details)),
        detail_counts=tuple(counts[1]),
        cached_problems=tuple(rows[2].records(summary.cached_problems)),
        cached_problem_counts=tuple(counts[2]),
    )


def _iterate_arenas(library: Any, job: int, heap: api.HeapLayout, has_pages: bool, has_runs: bool) -> Iterator[api.ArenaExtents]:
    states, absent = NativeRows(api.StateTotals, api.STATES), NativeRows(api.AbsentTotals, 1)
    bins, larges = NativeRows(api.BinTotals, heap.nbins), NativeRows(api.LargeTotals, heap.nsizes)
    numbers = 1 + api.UNUSED_NUMBERS
    classes, counts = array("Q", bytes(8 * numbers * api.EXTENT_CLASSES)), array("Q", bytes(8 * 3))
    places = [address_of(room) for room in (states.numbers, bins.numbers, larges.numbers, classes, counts, absent.numbers)]
    for index in range(heap.narenas):
        if library.heapx_extents_arena(job, index, *places):
            totals: Any = [one if has_pages else one._replace(residency=None) for one in states.records(api.STATES)]
            histogram = [tuple(classes[place : place + numbers]) for place in range(0, numbers * counts[2], numbers)]
            rows = (tuple(bins.records(counts[0])), tuple(larges.records(counts[1])), tuple(histogram))
            yield api.ArenaExtents._make([index, *totals, *rows, absent.records(1)[0] if has_pages or has_runs else None])
