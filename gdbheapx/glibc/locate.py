"""Search for the chunk that holds an address. Only the heap or piece that contains the address is walked."""

from typing import Callable, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.allocators import answers
from gdbheapx.allocators.answers import AddressPart, AllocatorPlace, make_collector
from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc.arenas import Arena, ArenaWalk, Context, read_heap
from gdbheapx.glibc.freelists import Singles, collect_unsorted, name_cache_bin, read_singles
from gdbheapx.glibc.layouts import bin_index
from gdbheapx.glibc.main_arena import first_regions
from gdbheapx.glibc.survey import Survey, arena_claims, find_arenas, find_mmapped_chunks, read_mmapped_counters
from gdbheapx.kernel.blocks.stream import NO_ARENA, BlockFilter, BlockShape
from gdbheapx.kernel.glibc import records as api
from gdbheapx.model import TargetAddress
from gdbheapx.problems import Diagnostic, Severity

NEAR_BYTES = 1 << 20
"""Chunks are given from so far before the address on; from the begin of the region where none is that near."""
MOST_ENTRIES = 65536


class Locator:
    """Search for one address. `survey` returns the walk over everything, asked only if nothing cheaper decides."""

    def __init__(self, context: Context, shape: BlockShape, survey: Callable[[], Survey], address: int) -> None:
        self._diagnostics: List[Diagnostic] = []
        self._around, self._context = context, context._replace(report=make_collector(self._diagnostics))
        self._glibc, self._shape, self._survey, self._address = context.glibc, shape, survey, address

    def locate(self) -> Optional[AllocatorPlace]:
        """Return where the address lies in this malloc's memory, or None."""
        try:
            ring, heap_max = find_arenas(self._context)
            arena, region, part = self._find_run(ring, heap_max) or (None, None, None)
            if arena is not None and part is not None and region is None:
                return self._make_empty_place(arena, part)
            walks = [ArenaWalk(arena, self._context.report) for arena in ring]
            singles = read_singles(self._context, ring, walks, heap_max)
            place = self._find_in_region(singles, region, arena, part) if region is not None and arena is not None else None
            return place or self._find_in_survey(singles) or self._find_mapped(singles, ring, heap_max)
        except UnreadableMemory:
            return None
        finally:
            for diagnostic in self._diagnostics:
                if diagnostic.code.nature != Severity.DAMAGE:
                    self._around.report(*diagnostic)

    def _make_empty_place(self, arena: Arena, part: AddressPart) -> AllocatorPlace:
        return AllocatorPlace(self._glibc.id, arena.index, None, None, None, None, None, [part])

    def _find_run(self, ring: Sequence[Arena], heap_max: int) -> Optional[Tuple[Arena, Optional[api.Region], AddressPart]]:
        """Return the run of chunks that holds the address, by the address alone: a malloc_state, the heap of a thread arena that begins at
        its multiple of HEAP_MAX_SIZE, or the main arena's run from brk. The region is None before the first chunk, or after the last.
        """
        context, address, base = self._context, self._address, self._address & -heap_max
        for arena in ring:
            end = arena.address + arena.state.size_bytes
            if arena.address <= address < end:
                return arena, None, _make_part("arena", "malloc_state of %s" % arena.title, arena.address, end)
        by_address = {arena.address: arena for arena in ring}
        try:
            heap = read_heap(context.target, self._glibc, base, heap_max)
        except UnreadableMemory:
            heap = None
        if heap is not None and heap.arena in by_address:
            arena = by_address[heap.arena]
            region = heap.region(self._glibc, arena.top)
            if address >= region.end:
                return arena, None, _make_part("reserve", "reserve of a heap", region.end, base + heap_max)
            part = _make_part("heap", "heap of %s" % arena.title, base, region.end)
            return arena, region if address >= region.begin else None, part
        for arena in ring:
            for region in first_regions(context, ArenaWalk(arena, context.report)) if arena.is_main else ():
                if region.begin <= address < region.end:
                    return arena, region, _make_part("heap", "main heap", region.begin, region.end)
        return None

    def _find_in_region(self, singles: Singles, region: api.Region, arena: Arena, part: Optional[AddressPart]) -> Optional[AllocatorPlace]:
        near = max(region.begin, self._address - NEAR_BYTES)
        for start in (near, 0) if near > region.begin else (0,):
            listed = [api.NativeListed(region, arena.index)]
            stream = self._context.walker.blocks(listed, singles.followed.members, BlockFilter(start=start))
            neighbours = answers.find_neighbours(stream, self._shape, self._address)
            previous, here, _ = neighbours
            if here is not None and (previous is not None or not start):
                parts = [*self._list_holders(singles, arena, here), *([part] if part is not None else ())]
                return answers.make_heap_place(neighbours, self._shape, self._glibc.id, self._address, parts)
        return None

    def _find_in_survey(self, singles: Singles) -> Optional[AllocatorPlace]:
        """Locate the address in all runs of the complete walk: pieces from mmap, and memory after holes or damage. None if no arena holds
        it.
        """
        survey, address = self._survey(), self._address
        if not any(claim.start <= address < claim.end for claim in arena_claims(survey)):
            return None
        for walk in survey.walks:
            for region, _ in sorted(walk.runs, key=lambda run: run[0].begin, reverse=True):
                found = self._find_in_region(singles, region, walk.arena, None) if region.begin <= address < region.end else None
                if found is not None:
                    return found
        page = self._glibc.geometry.page_bytes
        for walk in survey.walks:
            for start, end in walk.ranges(page):
                if start <= address < end:
                    message = "memory of %s where no chunk can be made out" % walk.arena.title
                    return self._make_empty_place(walk.arena, _make_part("damaged", message, start, end))
        return None

    def _find_mapped(self, singles: Singles, ring: Sequence[Arena], heap_max: int) -> Optional[AllocatorPlace]:
        """Locate the address in a chunk with a mapping of its own."""
        heaps = {arena.top & -heap_max for arena in ring if not arena.is_main and arena.top}
        taken = sorted((heap, heap + heap_max) for heap in heaps)
        for chunk in find_mmapped_chunks(self._context, taken, read_mmapped_counters(self._context))[0]:
            start, end = chunk.block_start, chunk.block_start + chunk.total_bytes
            if start <= self._address < end:
                kind = api.STATUS_MAPPED_TCACHE if chunk.chunk in singles.mapped else api.STATUS_MAPPED
                header = 2 * self._glibc.geometry.word_bytes
                row = (chunk.chunk + header, chunk.size_bytes - self._shape.overheads[kind], 0, kind, NO_ARENA)
                parts = [_make_part("mapping", "mmapped chunk", start, end)]
                return answers.make_heap_place((None, row, None), self._shape, self._glibc.id, self._address, parts)
        return None

    # ---- lists

    def _list_holders(self, singles: Singles, arena: Arena, row: Tuple[int, ...]) -> Iterator[AddressPart]:
        """Yield the bin, fastbin or thread cache that holds a chunk."""
        geometry, (address, usable, _, kind, _) = self._glibc.geometry, row
        size = usable + geometry.overhead_bytes
        if kind == api.STATUS_FREE:
            is_unsorted = address - 2 * geometry.word_bytes in collect_unsorted(self._context, [arena])
            yield AddressPart("bin", "the unsorted bin" if is_unsorted else "bin %d" % bin_index(size, geometry))
        elif kind == api.STATUS_FAST:
            yield AddressPart("bin", "fastbin %d" % ((size >> (4 if geometry.word_bytes == 8 else 3)) - 2))
        elif kind == api.STATUS_TCACHE:
            yield from self._find_cache(singles, address)

    def _find_cache(self, singles: Singles, address: int) -> Iterator[AddressPart]:
        left = MOST_ENTRIES
        for cache in singles.caches.caches:
            for index, number in enumerate(singles.caches.lists(cache)):
                entry = singles.heads[number]
                for _ in range(min(singles.followed.counts[number], left)):
                    left -= 1
                    if entry == address:
                        yield AddressPart("cache", name_cache_bin(cache, index), TargetAddress(cache.address or 0))
                        return
                    link = self._context.target.read_word(entry)
                    entry = link ^ entry >> 12 if self._glibc.traits.safe_linking else link


def _make_part(kind: str, message: str, start: int, end: int) -> AddressPart:
    return AddressPart(kind, message, TargetAddress(start), TargetAddress(end))
