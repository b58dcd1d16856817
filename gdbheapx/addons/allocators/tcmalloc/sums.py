"""Sums of a tcmalloc: what `arenas`, `bins`, `tcache`, the histogram and `pins` show of one look."""

from operator import mul
from re import finditer
from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.addons.allocators.tcmalloc import native_records as api
from gdbheapx.addons.allocators.tcmalloc.counts import Counts
from gdbheapx.addons.allocators.tcmalloc.detect import Tcmalloc
from gdbheapx.addons.allocators.tcmalloc.records import TcArena, TcBin
from gdbheapx.allocators.keeping import SPAN, ArenaKeeps, Keeping, Term
from gdbheapx.allocators.records import HeapContext
from gdbheapx.kernel.blocks.pins import ROOM, PinShape
from gdbheapx.kernel.common.in_ram import UNKNOWN
from gdbheapx.model import Address, CacheBin, HistogramRow, ThreadCache

EXACT_BYTES = 1024


def free_spans(counts: Counts) -> List[Tuple[int, int]]:
    """(start, end) of unused pages that the system has not got back."""
    starts, sizes, locations = (counts.spans.column(name) for name in ("start", "bytes", "location"))
    places = [match.start() for match in finditer(bytes((api.SPAN_ON_NORMAL,)), bytes(locations.tolist()))]
    return [(starts[place], starts[place] + sizes[place]) for place in places]


def arena(tcmalloc: Tcmalloc, around: HeapContext, counts: Counts, metadata_bytes: int) -> TcArena:
    """system = used + central + transfer + cached + tails + free + returned."""
    sizes, tallies = tcmalloc.structure.sizes.object_bytes, counts.spans.tallies
    listed = {
        kind: sum(count * sizes[size_class] for (of, size_class), count in counts.objects.items() if of == kind)
        for kind in (api.TC_CENTRAL, api.TC_TRANSFER, api.TC_CACHED)
    }
    free = free_spans(counts)
    in_ram = around.ram.of(free) or UNKNOWN
    is_whole, large, classes = counts.spans.is_whole, tallies[api.TC_LARGE], range(1, api.SIZE_CLASSES)
    used = [counts.used_objects(number) for number in classes]
    return TcArena(
        allocator=tcmalloc.id,
        index=0,
        address=Address(tcmalloc.structure.page_map.root),
        spans=sum(tally.spans for tally in tallies),
        system_bytes=sum(tally.bytes for tally in tallies),
        used_blocks=sum(used) + large.objects if is_whole else None,
        used_bytes=sum(map(mul, used, sizes[1:])) + large.bytes if is_whole else None,
        central_bytes=listed[api.TC_CENTRAL],
        transfer_bytes=listed[api.TC_TRANSFER],
        cached_bytes=listed[api.TC_CACHED] if counts.caches.is_whole else None,
        tail_bytes=sum(tallies[number].bytes - tallies[number].objects * sizes[number] for number in classes),
        free_bytes=sum(end - start for start, end in free),
        free_resident_bytes=in_ram.resident_bytes,
        free_exclusive_bytes=in_ram.exclusive_bytes,
        returned_bytes=tallies[api.TC_RETURNED_LABEL].bytes,
        metadata_bytes=metadata_bytes,
    )


def bins(tcmalloc: Tcmalloc, counts: Counts) -> List[TcBin]:
    """The size classes that have spans."""
    sizes, rows = tcmalloc.structure.sizes.object_bytes, []
    for number, tally in enumerate(counts.spans.tallies[: api.SIZE_CLASSES]):
        if not tally.spans:
            continue
        size, used = sizes[number], counts.used_objects(number)
        central, transfer, cached = (counts.objects[kind, number] for kind in (api.TC_CENTRAL, api.TC_TRANSFER, api.TC_CACHED))
        is_known = counts.caches.is_whole
        rows.append(
            TcBin(
                allocator=tcmalloc.id,
                size_class=number,
                size_bytes=size or None,
                spans=tally.spans,
                objects=tally.objects,
                used_objects=used,
                used_bytes=used * size if number else tally.bytes,
                central_objects=central,
                central_bytes=central * size,
                transfer_objects=transfer,
                transfer_bytes=transfer * size,
                cached_objects=cached if is_known else None,
                cached_bytes=cached * size if is_known else None,
            )
        )
    return rows


def histogram(counts: Counts, rows: Sequence[TcBin]) -> List[HistogramRow]:
    """All blocks by size class; those with a span of their own by steps of a quarter of a power of two."""
    found = []
    for row in rows:
        if row.size_bytes is not None:
            free, cached, size = row.central_objects, row.transfer_objects + (row.cached_objects or 0), row.size_bytes
            known = None if row.cached_objects is None else cached
            found.append(HistogramRow(size, size, row.used_objects or 0, row.used_bytes or 0, free, free * size, known))
    large: Dict[Tuple[int, int], List[int]] = {}
    columns = (counts.spans.column(name) for name in ("bytes", "size_class", "location"))
    for size, size_class, location in zip(*columns):
        if not size_class and location == api.SPAN_IN_USE:
            step = 1 << max(0, (size - 1).bit_length() - 3)
            top = -(-size // step) * step
            large.setdefault((top - step + 1, top), [0, 0])
            large[top - step + 1, top][0] += 1
            large[top - step + 1, top][1] += size
    found += [HistogramRow(low, top, count, size, 0, 0, 0) for (low, top), (count, size) in large.items()]
    return sorted(found)


def caches(tcmalloc: Tcmalloc, around: HeapContext, counts: Counts) -> List[ThreadCache]:
    """One row per thread cache."""
    sizes, names = tcmalloc.structure.sizes.object_bytes, {thread.lwp: thread.name for thread in around.target.threads()}
    lists = [
        [
            CacheBin(own.size_class, sizes[own.size_class], own.length, own.length * sizes[own.size_class])
            for own in cache.lists
            if own.length
        ]
        for cache in counts.caches.rows
    ]
    return [
        ThreadCache(
            allocator=tcmalloc.id,
            lwp=cache.lwp,
            name=names.get(cache.lwp) if cache.lwp is not None else None,
            arena=0,
            tcache=Address(cache.address),
            chunks=sum(row.chunks for row in rows),
            bytes=sum(row.bytes or 0 for row in rows),
            bins=rows,
        )
        for cache, rows in zip(counts.caches.rows, lists)
    ]


def keeping(tcmalloc: Tcmalloc, row: TcArena) -> Keeping:
    """A span of objects is free when its last object is back in it: what is free beside others stays."""
    sizes = tcmalloc.structure.sizes
    page = tcmalloc.structure.page_map.page_bytes
    rooms = sorted((size, pages * page) for size, pages in zip(sizes.object_bytes, sizes.pages) if size)
    kept: Optional[int] = row.central_bytes
    terms = [Term("central", row.central_bytes or 0)]
    return Keeping(PinShape(page, rooms=rooms), [ArenaKeeps(0, kept)], terms, words={ROOM: SPAN}, returnable_bytes=row.free_bytes)
