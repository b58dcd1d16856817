"""The door to the C kernel, by ctypes."""

import os
from array import array
from typing import Any, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel import base
from gdbheapx.kernel.api import (
    PAGE_COUNTERS,
    Geometry,
    Region,
    Residency,
    WalkResult,
    Written,
)
from gdbheapx.kernel.block_records import EVERYTHING, Blocks, BlockStream, Wanted, apart_from
from gdbheapx.kernel.blocks_door import CBlocks
from gdbheapx.kernel.extents_door import ExtentsDoor
from gdbheapx.kernel.library import LIBRARY, OpenPages, OpenSource, Unusable, as_array, at, geometry_numbers, open_library, run
from gdbheapx.kernel.lists_door import ListsDoor
from gdbheapx.kernel.mmapped_records import MmappedChunks, MmappedFound, MmappedSearch
from gdbheapx.target.base import BulkSource, PageTable

__all__ = ["CKernel", "Unusable", "open_kernel"]

REGION_NUMBERS = len(Region._fields)
REGIONS_AT_ONCE = 64
"""Each piece of a walk needs 14 KB for its histogram; more regions are walked in turns."""
MAX_THREADS = 8


def open_kernel(path: str = LIBRARY) -> "CKernel":
    """The C kernel from the library at `path`; Unusable says what is in the way."""
    return CKernel(open_library(path))


class CKernel(ListsDoor, ExtentsDoor, base.Kernel):
    """The C kernel."""

    name = "c"

    def __init__(self, library: Any) -> None:
        self._library = library
        self._opened: Optional[OpenSource] = None
        self._swapped_in = array("Q", [0])
        self._pages: Tuple[Optional[PageTable], OpenPages] = (None, OpenPages(library, None))

    def _open(self, source: BulkSource) -> OpenSource:
        """The source opened, kept while the same one is asked for: lists are collected by thousands of calls."""
        if self._opened is None or self._opened.source is not source:
            self._opened = OpenSource(self._library, source, self._swapped_in)
        return self._opened

    @property
    def swapped_in_bytes(self) -> int:
        """See base.Kernel."""
        return int(self._swapped_in[0])

    def _open_pages(self, pages: Optional[PageTable]) -> OpenPages:
        """A page table opened, kept while the same one is asked of: each of hundreds of arenas asks."""
        if self._pages[0] is not pages:
            self._pages = (pages, OpenPages(self._library, pages))
        return self._pages[1]

    def in_order(self, numbers: "array[int]") -> "array[int]":
        """See Kernel.in_order."""
        if not self._library.heapx_sort(at(numbers), len(numbers)):
            raise MemoryError()
        return numbers

    def walk(
        self,
        source: BulkSource,
        geometry: Geometry,
        regions: Sequence[Region],
        specials: Sequence[int],
        budget: Budget,
        pages: Optional[PageTable] = None,
        threads: Optional[int] = None,
    ) -> List[WalkResult]:
        """See base.Kernel."""
        opened, numbers, listed = self._open(source), geometry_numbers(geometry), as_array(specials)
        count = min(threads or os.cpu_count() or 1, MAX_THREADS)
        table = self._open_pages(pages)
        results: List[WalkResult] = []
        for start in range(0, len(regions), REGIONS_AT_ONCE):
            count = 1 if budget.expired() else count    # no search for pieces that will not be walked
            part = array("Q", [number for region in regions[start : start + REGIONS_AT_ONCE] for number in region])
            job = self._library.heapx_walk_new(opened.handle, at(numbers), at(part), len(part) // REGION_NUMBERS, at(listed), len(listed), table.handle, count)
            if not job:
                raise MemoryError()
            try:
                run(lambda seconds, job=job: self._library.heapx_walk_slice(job, seconds), opened, budget)
                results += [self._walk_result(job, index, table.handle is not None) for index in range(len(part) // REGION_NUMBERS)]
            finally:
                self._library.heapx_walk_free(job)
        return results

    def _walk_result(self, job: int, index: int, has_pages: bool) -> WalkResult:
        out = array("Q", bytes(8 * self._library.heapx_walk_numbers()))
        rows = self._library.heapx_walk_result(job, index, at(out))
        fixed: List[Any] = list(out[: len(WalkResult._fields) - 1])
        for name in () if has_pages else PAGE_COUNTERS:
            fixed[WalkResult._fields.index(name)] = None
        first = len(fixed)
        histogram = [tuple(out[place : place + 6]) for place in range(first, first + 6 * rows, 6)]
        return WalkResult._make(fixed + [tuple(histogram)])

    def glibc_blocks(
        self,
        source: BulkSource,
        geometry: Geometry,
        regions: Sequence[base.Listed],
        specials: Sequence[int],
        budget: Budget,
        wanted: Wanted = EVERYTHING,
        apart: Optional[Blocks] = None,
    ) -> BlockStream:
        """See base.Kernel."""
        library, opened, listed = self._library, self._open(source), as_array(specials)
        flat = array("Q", [number for one in sorted(regions) for number in (*one.region, one.arena)])
        kept = [geometry_numbers(geometry), flat, listed, wanted.numbers()]
        handle = library.heapx_glibc_blocks(opened.handle, at(kept[0]), at(flat), len(regions), at(listed), len(listed), at(kept[3]))
        return CBlocks(library, opened, handle, kept, apart_from(apart, wanted), budget)

    def scan_mmapped(
        self,
        source: BulkSource,
        geometry: Geometry,
        ranges: Sequence[Tuple[int, int]],
        search: MmappedSearch,
        budget: Budget,
    ) -> MmappedFound:
        """See base.Kernel."""
        library, opened, numbers, pages = self._library, self._open(source), geometry_numbers(geometry), OpenPages(self._library, search.pages)
        flat, data = (array("Q", [number for pair in pairs for number in pair]) for pairs in (ranges, search.data))
        known = as_array(search.known)
        most = base.ADDRESS_MASK if search.most_pages is None else search.most_pages
        wanted = array("Q", [int(search.has_trailer), search.wanted_chunks, search.wanted_bytes, most])
        job = library.heapx_mmapped_new(opened.handle, at(numbers), at(flat), len(ranges), at(known), len(known), at(data), len(data) // 2, at(wanted), pages.handle)
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_mmapped_slice(job, seconds), opened, budget)
            count = library.heapx_mmapped_result(job, 0, None)
            out = array("Q", bytes(32 * count))
            library.heapx_mmapped_result(job, count, at(out))
            cut = bool(library.heapx_mmapped_cut(job))
        finally:
            library.heapx_mmapped_free(job)
        found = MmappedChunks(out)
        return MmappedFound(found, base.adds_up(len(found), found.bytes, search, geometry.word_bytes), cut)

    def find_chain(
        self,
        source: BulkSource,
        geometry: Geometry,
        low: int,
        high: int,
        anchors: Sequence[int],
        budget: Budget,
        strict: bool = False,
        fences: bool = False,
        step: Optional[int] = None,
    ) -> Optional[int]:
        """See base.Kernel."""
        library, opened, numbers, listed = self._library, self._open(source), geometry_numbers(geometry), as_array(anchors)
        if not len(listed) or low >= high:
            return None
        options = (int(strict), int(fences), step or geometry.alignment_bytes)
        job = library.heapx_chain_new(opened.handle, at(numbers), low, high, at(listed), len(listed), *options)
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_chain_slice(job, seconds), opened, budget)
            start = array("Q", [0])
            return start[0] if library.heapx_chain_found(job, at(start)) else None
        finally:
            library.heapx_chain_free(job)

    def written(self, source: BulkSource, ranges: Sequence[Tuple[int, int]], page_bytes: int, budget: Budget) -> Written:
        """See base.Kernel."""
        library, opened = self._library, self._open(source)
        flat, until = array("Q", [bound for pair in ranges for bound in pair]), array("Q", [0])
        job = library.heapx_written_new(opened.handle, at(flat), len(ranges), page_bytes)
        if not job:
            raise MemoryError()
        try:
            run(lambda seconds: library.heapx_written_slice(job, seconds), opened, budget)
            out = array("Q", bytes(16 * library.heapx_written_result(job, 0, None, at(until))))
            library.heapx_written_result(job, len(out) // 2, at(out), at(until))
        finally:
            library.heapx_written_free(job)
        return Written(out, None if until[0] == base.ADDRESS_MASK else until[0])

    def residency(self, pages: PageTable, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
        """See base.Kernel."""
        table = self._open_pages(pages)
        if table.handle is None:
            return None
        flat, out = array("Q", [number for pair in ranges for number in pair]), array("Q", bytes(8 * len(Residency._fields)))
        self._library.heapx_residency(table.handle, at(flat), len(ranges), at(out))
        return Residency(*out)
