"""The native library's passes over a glibc heap, by ctypes."""

import ctypes
import os
from array import array
from typing import Any, ContextManager, List, Optional, Sequence, Tuple

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BulkSource, PageTable
from gdbheapx.kernel.blocks.stream import EVERYTHING, BlockFilter, BlockStream, CBlocks, NativeBlocks, apart_from
from gdbheapx.kernel.common.library import ADDRESS_MASK, Kernel, OpenPages, address_of, as_array, finish_job, take_rows
from gdbheapx.kernel.glibc import records

REGIONS_AT_ONCE = 64
"""Each piece of a walk needs 14 KB for its histogram; more regions are walked in turns."""
MAX_THREADS = 8
LIST_COLUMNS = 8
"""Of NativeFollowedList, from counts to raw_maxs."""


class ChunkWalker:
    """Passes over one heap: bound to where its bytes come from, its geometry, and a budget."""

    def __init__(self, kernel: Kernel, source: BulkSource, geometry: records.Geometry, budget: Budget) -> None:
        word, alignment, page = geometry.word_bytes, geometry.alignment_bytes, geometry.page_bytes
        good = word in (4, 8) and alignment in (2 * word, 16) and geometry.min_chunk_bytes == max(4 * word, alignment)
        good = good and geometry.chunk_struct_bytes == 6 * word and 1024 <= page <= 1 << 24 and not page & (page - 1)
        if not good:  # numbers that no glibc has: the C code relies on these
            raise ValueError("no geometry of glibc malloc: %r" % (geometry,))
        self._kernel, self._library, self._opened = kernel, kernel.library, kernel.open(source)
        self._geometry, self._budget = geometry, budget
        self._numbers = array("Q", map(int, geometry))

    def _run(self, name: str, *arguments: Any) -> ContextManager[Any]:
        numbers = address_of(self._numbers)
        return finish_job(self._library, name, self._opened, self._budget, self._opened.handle, numbers, *arguments)

    def walk(
        self,
        regions: Sequence[records.Region],
        cached_chunks: Sequence[int],
        pages: Optional[PageTable] = None,
        threads: Optional[int] = None,
    ) -> List[records.WalkResult]:
        """Walk the regions and return one result per region, in order. `cached_chunks`: sorted array('Q') of `chunk | SPECIAL_x` for all
        regions. `pages`: fill the residency of the interior from that process's page table. `threads`: None for as many as there are
        processors, up to 8; results do not depend on it. When the budget expires, or at Ctrl-C, unfinished regions end with STOP_TIME. A
        special whose successor's PREV_INUSE is clear is counted as free. fd and bk that cannot be read count as 0 in the sums.
        """
        listed, table = as_array(cached_chunks), self._kernel.open_pages(pages)
        count = min(threads or os.cpu_count() or 1, MAX_THREADS)
        results: List[records.WalkResult] = []
        for start in range(0, len(regions), REGIONS_AT_ONCE):
            count = 1 if self._budget.expired() else count  # no search for pieces that will not be walked
            part = flatten(regions[start : start + REGIONS_AT_ONCE])
            rows = len(part) // len(records.Region._fields)
            with self._run("walk", address_of(part), rows, address_of(listed), len(listed), table.handle, count) as job:
                results += [self._walk_result(job, index, table.handle is not None) for index in range(rows)]
        return results

    def _walk_result(self, job: int, index: int, has_pages: bool) -> records.WalkResult:
        out = array("Q", bytes(8 * (len(records.WalkResult._fields) - 1)))
        classes = array("Q", bytes(8 * 6 * records.WALK_CLASSES))
        rows = self._library.heapx_walk_result(job, index, address_of(out), address_of(classes))
        fixed: List[Any] = list(out)
        for name in () if has_pages else records.PAGE_COUNTERS:
            fixed[records.WalkResult._fields.index(name)] = None
        histogram = [tuple(classes[place : place + 6]) for place in range(0, 6 * rows, 6)]
        return records.WalkResult._make(fixed + [tuple(histogram)])

    def blocks(
        self,
        regions: Sequence[records.NativeListed],
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

    def follow(self, lists: records.NativeFreeLists, rules: records.NativeRules) -> records.NativeFollowedList:
        """Follow lists, each from its first entry to a null link, or a bin until it comes back to its header.

        An entry with a problem is not counted. When the budget expires, or at Ctrl-C, lists that have not ended have the problem CUT.
        """
        columns, also, numbers, count = lists.heads + lists.kinds + lists.limits, lists.also, array("Q", map(int, rules)), len(lists)
        with self._run("lists", address_of(columns), count, address_of(also), len(also), address_of(numbers)) as job:
            out = array("Q", bytes(8 * LIST_COLUMNS * count))
            self._library.heapx_lists_result(job, address_of(out))
            figures: List[Any] = [out[column * count : (column + 1) * count] for column in range(LIST_COLUMNS)]
            for which in (records.LISTS_MEMBERS, records.LISTS_TWICE, records.LISTS_MAPPED):
                values, chunks = ctypes.c_void_p(), array("Q")
                size = self._library.heapx_lists_numbers(job, which, ctypes.byref(values))
                if size:
                    chunks.frombytes((ctypes.c_char * (8 * size)).from_address(values.value or 0))
                figures.append(chunks if which != records.LISTS_MAPPED else array("Q", sorted(set(chunks))))
            return records.NativeFollowedList._make(figures)

    def check(self, regions: Sequence[records.Checked], cached_chunks: Sequence[int], members: Sequence[int]) -> records.BrokenRows:
        """Check every chunk of the regions. `cached_chunks`: as for walk(). `members`: sorted chunks in bins."""
        flat = array("Q", [number for one in regions for number in (*one.region, one.flags)])
        listed, binned = as_array(cached_chunks), as_array(members)
        places = (address_of(flat), len(regions), address_of(listed), len(listed), address_of(binned), len(binned))
        with self._run("check", *places) as job:
            return _read_broken(self._library.heapx_check_result, job, records.BROKEN_RULES)

    def check_members(self, lists: Sequence[records.MemberList], mangled: bool) -> records.BrokenRows:
        """Check the members of lists that end."""
        flat = flatten(lists)
        with self._run("members", address_of(flat), len(lists), int(mangled)) as job:
            return _read_broken(self._library.heapx_members_result, job, records.MEMBER_RULES + 2)

    def scan_mmapped(
        self,
        ranges: Sequence[Tuple[int, int]],
        has_trailer: bool,
        wanted_chunks: int,
        wanted_bytes: int,
        pages: Optional[PageTable] = None,
        data: Sequence[Tuple[int, int]] = (),
        most_pages: int = ADDRESS_MASK,
        limits: Sequence[int] = (),
    ) -> Tuple[records.MmappedChunks, bool]:
        """Find chunks with a mapping of their own, and whether their number and bytes are the wanted ones (mp_.n_mmaps, mp_.mmapped_mem).

        `ranges`: page-aligned (begin, end) in which to look, the likeliest first. `has_trailer`: the layout of glibc 2.43 (malloc.c:
        mmap_size). `pages`: pages that are not in RAM are not looked at, a swapped one only where a block is likely to begin. `data`:
        sorted ranges outside which nothing but zeros lies, as a core has them in its file; empty: anywhere something may lie.
        `most_pages`: pages to look at one by one after the likely places. `limits`: how far a block may reach that begins in a range, one
        for each, as a program may protect a part of it; empty: to the range's end.
        """
        table, limits = OpenPages(self._library, pages), limits or [end for _, end in ranges]
        flat = flatten([(*span, limit) for span, limit in zip(ranges, limits)])
        known = flatten(data)
        goal = (int(has_trailer), wanted_chunks, wanted_bytes, most_pages)
        with self._run("mmapped", address_of(flat), len(ranges), address_of(known), len(data), *goal, table.handle) as job:
            out = take_rows(lambda where, room: self._library.heapx_mmapped_result(job, room, where), 4)
            return records.MmappedChunks(out), bool(self._library.heapx_mmapped_complete(job))

    def find_chain(
        self, low: int, high: int, anchors: Sequence[int], strict: bool = False, fences: bool = False, step: Optional[int] = None
    ) -> Optional[int]:
        """Return the lowest chunk-aligned address in [low, high) from which plausible sizes lead exactly onto an anchor, or None.

        `anchors`: sorted array('Q') of chunk addresses above `low`. `strict`: the first chunk has PREV_INUSE set, and each
        free chunk on the way has its size repeated after it, as in an undamaged region. `fences`: two fenceposts, which end a
        piece of the main arena, are as good as an anchor. `step`: bytes from one address that is tried to the next, the alignment by
        default.
        """
        listed, start = as_array(anchors), array("Q", [0])
        if not len(listed) or low >= high:
            return None
        options = (int(strict), int(fences), step or self._geometry.alignment_bytes)
        with self._run("chain", low, high, address_of(listed), len(listed), *options) as job:
            return start[0] if self._library.heapx_chain_found(job, address_of(start)) else None


def flatten(rows: Sequence[Sequence[int]]) -> "array[int]":
    """Return rows of numbers as C reads them: one after the other."""
    return array("Q", [int(number) for row in rows for number in row])


def _read_broken(result: Any, job: int, numbers: int) -> records.BrokenRows:
    counts, width = array("Q", bytes(8 * numbers)), len(records.NativeBroken._fields)
    out = take_rows(lambda where, room: result(job, room, address_of(counts), where), width)
    return [records.NativeBroken._make(out[place : place + width]) for place in range(0, len(out), width)], counts
