"""The walks over a glibc heap, by ctypes."""

import os
from array import array
from typing import TYPE_CHECKING, Any, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.blocks.stream import EVERYTHING, BlockFilter, BlockStream, CBlocks, NativeBlocks, apart_from
from gdbheapx.kernel.common.library import ADDRESS_MASK, Kernel, OpenPages, address_of, as_array, declare_functions, run_resumable
from gdbheapx.kernel.glibc.lists import PROTOTYPES as LIST_PROTOTYPES
from gdbheapx.kernel.glibc.lists import NativeFollowedList, NativeFreeLists, NativeRules, read_followed
from gdbheapx.kernel.glibc.records import (
    PAGE_COUNTERS,
    Geometry,
    MmappedChunks,
    MmappedFound,
    MmappedSearch,
    NativeListed,
    Region,
    WalkResult,
    adds_up,
)

if TYPE_CHECKING:
    from gdbheapx.kernel.glibc.check import BrokenChunks, BrokenMembers, Checked, MemberList

PROTOTYPES = """
struct block_source *heapx_chunk_blocks(const struct source *memory, const struct geometry *geometry, const struct listed *regions,
    uint64_t region_count, const uint64_t *specials, uint64_t special_count, const struct block_wanted *wanted);
void heapx_chain_free(struct chain *chain);
struct chain *heapx_chain_new(const struct source *source, const struct geometry *geometry, uint64_t low, uint64_t high,
    const uint64_t *anchors, uint64_t anchor_count, int strict, int fences, uint64_t step);
int64_t heapx_chain_slice(struct chain *chain, double seconds);
int heapx_chain_found(const struct chain *chain, uint64_t *start);
void heapx_mmapped_free(struct mmapped *scan);
struct mmapped *heapx_mmapped_new(const struct source *source, const struct geometry *geometry, const uint64_t *ranges,
    uint64_t range_count, const uint64_t *known, uint64_t known_count, const uint64_t *data, uint64_t data_count, int has_trailer,
    uint64_t wanted_chunks, uint64_t wanted_bytes, uint64_t most_pages, const struct page_table *pages);
int64_t heapx_mmapped_slice(struct mmapped *scan, double seconds);
uint64_t heapx_mmapped_result(const struct mmapped *scan, uint64_t room, uint64_t *out);
int heapx_mmapped_cut(const struct mmapped *scan);
int64_t heapx_walk_slice(struct job *job, double seconds);
void heapx_walk_free(struct job *job);
struct job *heapx_walk_new(const struct source *source, const struct geometry *geometry, const struct region *regions,
    uint64_t region_count, const uint64_t *specials, uint64_t special_count, const struct page_table *pages, unsigned threads);
uint64_t heapx_walk_result(struct job *job, uint64_t region, struct walk_result *out, uint64_t *classes);
uint64_t heapx_walk_classes(void);
"""

REGION_NUMBERS = len(Region._fields)
REGIONS_AT_ONCE = 64
"""Each piece of a walk needs 14 KB for its histogram; more regions are walked in turns."""
MAX_THREADS = 8


class ChunkWalker:
    """Walks over the chunks of one heap: bound to where its bytes come from, its geometry, and the budget of whoever asks."""

    def __init__(self, kernel: Kernel, source: BulkSource, geometry: Geometry, budget: Budget) -> None:
        check_geometry(geometry)
        self._kernel, self._library, self._opened = (
            kernel,
            declare_functions(kernel.library, PROTOTYPES + LIST_PROTOTYPES),
            kernel.open(source),
        )
        self._geometry, self._budget = geometry, budget
        self._numbers = array("Q", map(int, geometry))

    def walk(
        self, regions: Sequence[Region], cached_chunks: Sequence[int], pages: Optional[PageTable] = None, threads: Optional[int] = None
    ) -> List[WalkResult]:
        """Walk the regions and return one result per region, in order. `cached_chunks`: sorted array('Q') of `chunk | SPECIAL_x` for all
        regions. `pages`: fill the residency of the interior from that process's page table. `threads`: None for as many as there are
        processors, up to 8; results do not depend on it. When the budget expires, or at Ctrl-C, unfinished regions end with STOP_TIME. A
        special whose successor's PREV_INUSE is clear is counted as free. fd and bk that cannot be read count as 0 in the sums.
        """
        library, listed, table = self._library, as_array(cached_chunks), self._kernel.open_pages(pages)
        count = min(threads or os.cpu_count() or 1, MAX_THREADS)
        results: List[WalkResult] = []
        for start in range(0, len(regions), REGIONS_AT_ONCE):
            count = 1 if self._budget.expired() else count  # no search for pieces that will not be walked
            part = array("Q", [number for region in regions[start : start + REGIONS_AT_ONCE] for number in region])
            rows = len(part) // REGION_NUMBERS
            job = library.heapx_walk_new(
                self._opened.handle, address_of(self._numbers), address_of(part), rows, address_of(listed), len(listed), table.handle, count
            )
            if not job:
                raise MemoryError()
            try:
                run_resumable(lambda seconds, job=job: library.heapx_walk_slice(job, seconds), self._opened, self._budget)
                results += [self._walk_result(job, index, table.handle is not None) for index in range(rows)]
            finally:
                library.heapx_walk_free(job)
        return results

    def _walk_result(self, job: int, index: int, has_pages: bool) -> WalkResult:
        out = array("Q", bytes(8 * (len(WalkResult._fields) - 1)))
        classes = array("Q", bytes(8 * 6 * self._library.heapx_walk_classes()))
        rows = self._library.heapx_walk_result(job, index, address_of(out), address_of(classes))
        fixed: List[Any] = list(out)
        for name in () if has_pages else PAGE_COUNTERS:
            fixed[WalkResult._fields.index(name)] = None
        histogram = [tuple(classes[place : place + 6]) for place in range(0, 6 * rows, 6)]
        return WalkResult._make(fixed + [tuple(histogram)])

    def blocks(
        self,
        regions: Sequence[NativeListed],
        cached_chunks: Sequence[int],
        wanted: BlockFilter = EVERYTHING,
        apart: Optional[NativeBlocks] = None,
    ) -> BlockStream:
        """The chunks of all regions; kinds are STATUS_ numbers, Wanted's sizes are chunk sizes.

        The chunks are those that `walk` counts, top included; a first fencepost or terminator is where a region ends and is not listed.
        `regions` in any order; `result` is of the one that ended last. `apart`: further blocks, by address, to be merged in as they are.
        """
        flat = array("Q", [number for one in sorted(regions) for number in (*one.region, one.arena)])
        kept = [self._numbers, flat, as_array(cached_chunks), wanted.numbers()]
        numbers = (address_of(flat), len(regions), address_of(kept[2]), len(cached_chunks))
        handle = self._library.heapx_chunk_blocks(self._opened.handle, address_of(self._numbers), *numbers, address_of(kept[3]))
        return CBlocks(self._library, self._opened, handle, kept, apart_from(apart, wanted), self._budget)

    def follow(self, lists: NativeFreeLists, rules: NativeRules) -> NativeFollowedList:
        """Follow lists, each from its first entry to a null link, or a bin until it comes back to its header.

        An entry with a problem is not counted. When the budget expires, or at Ctrl-C, lists that have not ended have the problem CUT.
        """
        library, columns, also, numbers = self._library, lists.heads + lists.kinds + lists.limits, lists.also, array("Q", map(int, rules))
        job = library.heapx_lists_new(
            self._opened.handle,
            address_of(self._numbers),
            address_of(columns),
            len(lists),
            address_of(also),
            len(also),
            address_of(numbers),
        )
        if not job:
            raise MemoryError()
        try:
            run_resumable(lambda seconds: library.heapx_lists_slice(job, seconds), self._opened, self._budget)
            return read_followed(library, job, len(lists))
        finally:
            library.heapx_lists_free(job)

    def check(self, regions: "Sequence[Checked]", cached_chunks: Sequence[int], members: Sequence[int]) -> "BrokenChunks":
        """See ChunkWalker."""
        from gdbheapx.kernel.glibc.check import check_chunks_in_c

        return check_chunks_in_c(self._library, self._opened, address_of(self._numbers), regions, (cached_chunks, members), self._budget)

    def check_members(self, lists: "Sequence[MemberList]", mangled: bool) -> "BrokenMembers":
        """See ChunkWalker."""
        from gdbheapx.kernel.glibc.check import check_members_in_c

        return check_members_in_c(self._library, self._opened, address_of(self._numbers), lists, mangled, self._budget)

    def scan_mmapped(self, ranges: Sequence[Tuple[int, int]], search: MmappedSearch) -> MmappedFound:
        """Chunks with a mapping of their own. `ranges`: page-aligned (begin, end) in which to look, the likeliest first."""
        library, pages, known = self._library, OpenPages(self._library, search.pages), as_array(search.known)
        flat = array("Q", [number for (begin, end), limit in zip(ranges, search.limits_of(ranges)) for number in (begin, end, limit)])
        data = array("Q", [number for pair in search.data for number in pair])
        most = ADDRESS_MASK if search.most_pages is None else search.most_pages
        wanted = (int(search.has_trailer), search.wanted_chunks, search.wanted_bytes, most)
        places = (address_of(flat), len(ranges), address_of(known), len(known), address_of(data), len(data) // 2)
        job = library.heapx_mmapped_new(self._opened.handle, address_of(self._numbers), *places, *wanted, pages.handle)
        if not job:
            raise MemoryError()
        try:
            run_resumable(lambda seconds: library.heapx_mmapped_slice(job, seconds), self._opened, self._budget)
            count = library.heapx_mmapped_result(job, 0, None)
            out = array("Q", bytes(32 * count))
            library.heapx_mmapped_result(job, count, address_of(out))
            cut = bool(library.heapx_mmapped_cut(job))
        finally:
            library.heapx_mmapped_free(job)
        found = MmappedChunks(out)
        return MmappedFound(found, adds_up(len(found), found.bytes, search, self._geometry.word_bytes), cut)

    def find_chain(
        self, low: int, high: int, anchors: Sequence[int], strict: bool = False, fences: bool = False, step: Optional[int] = None
    ) -> Optional[int]:
        """The lowest chunk-aligned address in [low, high) from which plausible sizes lead exactly onto an anchor, or None.

        `anchors`: sorted array('Q') of chunk addresses above `low`. `strict`: the first chunk has PREV_INUSE set, and each
        free chunk on the way has its size repeated behind it, as in an undamaged region. `fences`: two fenceposts, which end a
        piece of the main arena, are as good as an anchor. `step`: bytes from one address that is tried to the next, the alignment unless
        told.
        """
        library, listed = self._library, as_array(anchors)
        if not len(listed) or low >= high:
            return None
        options = (int(strict), int(fences), step or self._geometry.alignment_bytes)
        job = library.heapx_chain_new(self._opened.handle, address_of(self._numbers), low, high, address_of(listed), len(listed), *options)
        if not job:
            raise MemoryError()
        try:
            run_resumable(lambda seconds: library.heapx_chain_slice(job, seconds), self._opened, self._budget)
            start = array("Q", [0])
            return start[0] if library.heapx_chain_found(job, address_of(start)) else None
        finally:
            library.heapx_chain_free(job)


def chunk_walker(kernel: Kernel, source: BulkSource, geometry: Geometry, budget: Budget) -> ChunkWalker:
    """Walks over a heap of that geometry. ValueError for one that no glibc has."""
    return ChunkWalker(kernel, source, geometry, budget)


def check_geometry(geometry: Geometry) -> None:
    """Raises ValueError for numbers that no glibc has: the C code relies on these."""
    word, alignment = geometry.word_bytes, geometry.alignment_bytes
    good = (
        word in (4, 8)
        and alignment in (2 * word, 16)
        and geometry.min_chunk_bytes == max(4 * word, alignment)
        and geometry.chunk_struct_bytes == 6 * word
        and 1024 <= geometry.page_bytes <= 1 << 24
        and not geometry.page_bytes & (geometry.page_bytes - 1)
    )
    if not good:
        raise ValueError("no geometry of glibc malloc: %r" % (geometry,))
