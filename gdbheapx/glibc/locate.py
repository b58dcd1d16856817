"""Search for the chunk that holds an address. Only the heap or piece that contains the address is walked."""

from bisect import bisect_right
from typing import Callable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators import answers
from gdbheapx.allocators.answers import AddressPart, AllocatorPlace, make_collector
from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc import bins, main_arena, mmapped
from gdbheapx.glibc.arenas import Arena, read_heap
from gdbheapx.glibc.bins import FreeLists
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.layouts import bin_index
from gdbheapx.glibc.survey import ArenaLists, Singles, Survey, arena_claims, find_arenas, read_lists
from gdbheapx.kernel.blocks.stream import NO_ARENA, BlockFilter, BlockShape
from gdbheapx.kernel.glibc.lists import BIN
from gdbheapx.kernel.glibc.records import (
    STATUS_FAST,
    STATUS_FREE,
    STATUS_MAPPED,
    STATUS_MAPPED_TCACHE,
    STATUS_TCACHE,
    NativeListed,
    Region,
)
from gdbheapx.model import TargetAddress
from gdbheapx.problems import Diagnostic, Severity

NEAR_BYTES = 1 << 20
"""Chunks are given from so far before the address on; from the begin of the region where none is that near."""
MOST_ENTRIES = 65536


class ChunkRun(NamedTuple):
    """The run of chunks in which an address may lie."""

    arena: Arena
    region: Optional[Region]
    """None for what lies before the first chunk, or behind the last."""
    part: AddressPart


def locate_in_glibc(context: Context, shape: BlockShape, survey: Callable[[], Survey], address: int) -> Optional[AllocatorPlace]:
    """Return where an address lies in this malloc's memory, or None. `survey` returns the walk over everything, asked only where nothing
    cheaper decides.
    """
    told: List[Diagnostic] = []
    own = context._replace(report=make_collector(told))
    ring, heap_max = find_arenas(own)
    try:
        run = _run_of(own, ring, heap_max, address)
        if run is not None and run.region is None:
            return _no_block(context, run)
        lists = read_lists(own, ring, [ArenaWalk(arena, own.report) for arena in ring], heap_max)
        place = _in_region(context, shape, lists, run.region, run.arena, address, [run.part]) if run is not None and run.region else None
        return place or _in_any(context, shape, lists, survey(), address) or _locate_mapped(context, shape, ring, heap_max, lists, address)
    except UnreadableMemory:
        return None
    finally:
        for diagnostic in told:
            if diagnostic.code.nature != Severity.DAMAGE:
                context.report(*diagnostic)


def _no_block(context: Context, run: ChunkRun) -> AllocatorPlace:
    return AllocatorPlace(context.glibc.id, run.arena.index, None, None, None, None, None, [run.part])


def _run_of(context: Context, ring: Sequence[Arena], heap_max: int, address: int) -> Optional[ChunkRun]:
    """Return the run that holds an address, by the address alone: a malloc_state, the heap of a thread arena that begins at its multiple
    of HEAP_MAX_SIZE, or the main arena's run from brk. None if there is none.
    """
    for arena in ring:
        if arena.address <= address < arena.address + arena.state.size_bytes:
            end = TargetAddress(arena.address + arena.state.size_bytes)
            return ChunkRun(arena, None, AddressPart("arena", "malloc_state of %s" % arena.title, TargetAddress(arena.address), end))
    base = address & -heap_max
    by_address = {arena.address: arena for arena in ring}
    try:
        heap = read_heap(context.target, context.glibc, base, heap_max)
    except UnreadableMemory:
        heap = None
    if heap is not None and heap.arena in by_address:
        arena, region = by_address[heap.arena], heap.region(context.glibc, by_address[heap.arena].top)
        if address >= region.end:
            return ChunkRun(
                arena, None, AddressPart("reserve", "reserve of a heap", TargetAddress(region.end), TargetAddress(base + heap_max))
            )
        part = AddressPart("heap", "heap of %s" % arena.title, TargetAddress(base), TargetAddress(region.end))
        return ChunkRun(arena, region if address >= region.begin else None, part)
    for arena in ring:
        for region in main_arena.first_regions(context, ArenaWalk(arena, context.report)) if arena.is_main else ():
            if region.begin <= address < region.end:
                return ChunkRun(arena, region, AddressPart("heap", "main heap", TargetAddress(region.begin), TargetAddress(region.end)))
    return None


def _in_region(
    context: Context, shape: BlockShape, lists: ArenaLists, region: Region, arena: Arena, address: int, parts: Sequence[AddressPart]
) -> Optional[AllocatorPlace]:
    near = max(region.begin, address - NEAR_BYTES)
    for start in (near, 0) if near > region.begin else (0,):
        stream = context.walker.blocks([NativeListed(region, arena.index)], lists.cached_chunks.chunks, BlockFilter(start=start))
        neighbours = answers.find_neighbours(stream, shape, address)
        if neighbours.here is not None and (neighbours.previous is not None or not start):
            more = list(_lists_of(context, lists, arena, neighbours.here))
            return answers.make_heap_place(neighbours, shape, context.glibc.id, address, [*more, *parts])
    return None


def _in_any(context: Context, shape: BlockShape, lists: ArenaLists, survey: Survey, address: int) -> Optional[AllocatorPlace]:
    """Locate an address in all runs of the complete walk: pieces from mmap, and memory after holes or damage. None if no arena holds it."""
    if not any(claim.start <= address < claim.end for claim in arena_claims(survey)):
        return None
    for walk in survey.walks:
        for region, _ in sorted(walk.runs, key=lambda run: run[0].begin, reverse=True):
            if region.begin <= address < region.end:
                place = _in_region(context, shape, lists, region, walk.arena, address, ())
                if place is not None:
                    return place
    starts = sorted((start, end, walk) for walk in survey.walks for start, end in walk.ranges(context.glibc.geometry.page_bytes))
    start, end, walk = starts[max(bisect_right([start for start, _, _ in starts], address) - 1, 0)]
    if start <= address < end:
        part = AddressPart(
            "damaged", "memory of %s where no chunk can be made out" % walk.arena.title, TargetAddress(start), TargetAddress(end)
        )
        return _no_block(context, ChunkRun(walk.arena, None, part))
    return None


def _locate_mapped(
    context: Context, shape: BlockShape, ring: Sequence[Arena], heap_max: int, lists: ArenaLists, address: int
) -> Optional[AllocatorPlace]:
    """A chunk with a mapping of its own."""
    taken = sorted({(arena.top & -heap_max, (arena.top & -heap_max) + heap_max) for arena in ring if not arena.is_main and arena.top})
    for chunk in mmapped.find_mmapped_chunks(context, taken, mmapped.read_mmapped_counters(context)).chunks:
        header, start, end = 2 * context.glibc.geometry.word_bytes, chunk.block_start, chunk.block_start + chunk.total_bytes
        if start <= address < end:
            kind = STATUS_MAPPED_TCACHE if chunk.chunk in lists.cached_chunks.mapped else STATUS_MAPPED
            row = (chunk.chunk + header, chunk.size_bytes - shape.overheads[kind], 0, kind, NO_ARENA)
            part = AddressPart("mapping", "mmapped chunk", TargetAddress(start), TargetAddress(end))
            return answers.make_heap_place(answers.Neighbours(None, row, None), shape, context.glibc.id, address, [part])
    return None


# ---------------------------------------------------------------------------------------------------- lists


def _lists_of(context: Context, lists: ArenaLists, arena: Arena, row: Tuple[int, ...]) -> Iterator[AddressPart]:
    """The bin, fastbin or thread cache that holds a chunk."""
    address, usable, _, kind, _ = row
    size = usable + context.glibc.geometry.overhead_bytes
    if kind == STATUS_FREE:
        chunk = address - 2 * context.glibc.geometry.word_bytes
        yield AddressPart(
            "bin", "the unsorted bin" if _is_unsorted(context, arena, chunk) else "bin %d" % bin_index(size, context.glibc.geometry)
        )
    elif kind == STATUS_FAST:
        yield AddressPart("bin", "fastbin %d" % ((size >> (4 if context.glibc.geometry.word_bytes == 8 else 3)) - 2))
    elif kind == STATUS_TCACHE:
        yield from _cache_of(context, lists.singles, address)


def _is_unsorted(context: Context, arena: Arena, chunk: int) -> bool:
    lists = FreeLists(context)
    lists.add(BIN, [bins.list_bin_headers(arena, context.glibc)[0]], bins.most_chunks(arena, context.glibc))
    members = lists.follow(collect=True).members
    place = bisect_right(members, chunk) - 1
    return place >= 0 and members[place] == chunk


def _cache_of(context: Context, singles: Singles, address: int) -> Iterator[AddressPart]:
    left = MOST_ENTRIES
    for cache in singles.caches.caches:
        for index, number in enumerate(singles.caches.lists(cache)):
            entry = singles.heads[number]
            for _ in range(min(singles.followed.counts[number], left)):
                left -= 1
                if entry == address:
                    yield AddressPart("cache", "tcache bin %d of thread %d" % (index, cache.thread.lwp), TargetAddress(cache.address or 0))
                    return
                link = context.target.read_word(entry)
                entry = link ^ entry >> 12 if context.glibc.traits.safe_linking else link
