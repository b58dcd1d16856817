"""Sums of mimalloc's pages: what arenas, bins, pins and the histogram show."""

from typing import Dict, List, Optional, Sequence

from gdbheapx.addons.allocators.mimalloc.detect import Mimalloc
from gdbheapx.addons.allocators.mimalloc.layouts import Form
from gdbheapx.addons.allocators.mimalloc.native_records import MI_METADATA, MI_RETURNED, MI_SPAN, PAD_BYTES, PADDING
from gdbheapx.addons.allocators.mimalloc.records import ABANDONED, SHARED, THREAD, MimallocArena, MimallocBin
from gdbheapx.addons.allocators.mimalloc.survey import Counted, Survey
from gdbheapx.allocators.keeping import ArenaKeeps, Keeping, Term
from gdbheapx.allocators.records import HeapContext
from gdbheapx.kernel.blocks.pins import PinShape
from gdbheapx.model import HistogramRow
from gdbheapx.ranges import Range, union

UNCOLLECTED = {(ABANDONED, 1), (SHARED, 1), (SHARED, 2), (ABANDONED, 3)}
"""Owner and line of releases whose free memory mi_collect(true) of another thread leaves (heap.c, theap.c: mi_collect)."""
NOTHING = 0, 0


def _resident(around: HeapContext, ranges: Sequence[Range]) -> Optional[int]:
    in_ram = around.ram.of(ranges, False) if ranges else None
    return 0 if not ranges else in_ram.resident_bytes if in_ram is not None else None


def used_bytes(form: Form, counted: Counted) -> int:
    """What the program may use of a page's blocks in use."""
    return counted.used * (counted.page.block_bytes - (PAD_BYTES if form.is_padded else 0))


def arenas(mimalloc: Mimalloc, around: HeapContext, survey: Survey) -> List[MimallocArena]:
    """One row per owner."""
    pages: List[List[Counted]] = [[] for _ in survey.owners]
    pieces: List[List[Range]] = [[] for _ in survey.owners]
    sums = [[0, 0, 0] for _ in survey.owners]
    for counted in survey.pages:
        pages[counted.arena].append(counted)
    places = {MI_SPAN: 0, MI_RETURNED: 1, MI_METADATA: 2}
    for piece, index in survey.pieces:
        sums[index][places[piece.kind]] += piece.end - piece.start
        if piece.kind != MI_RETURNED:
            pieces[index].append((piece.start, piece.end))
    return [_arena(mimalloc, around, survey, index, pages[index], pieces[index], sums[index]) for index in range(len(survey.owners))]


def _arena(
    mimalloc: Mimalloc,
    around: HeapContext,
    survey: Survey,
    index: int,
    pages: Sequence[Counted],
    pieces: Sequence[Range],
    sums: Sequence[int],
) -> MimallocArena:
    owner, (span, returned, own) = survey.owners[index], sums
    good = [counted for counted in pages if counted.is_good]
    everything = sum(counted.page.end - counted.page.memory for counted in pages)
    unparsed = everything - sum(counted.page.end - counted.page.memory for counted in good)
    used = sum(used_bytes(mimalloc.form, counted) for counted in good)
    free = sum(counted.free * counted.page.block_bytes for counted in good)
    remote = sum(counted.remote * counted.page.block_bytes for counted in good)
    reserve = sum((counted.page.reserved - counted.page.capacity) * counted.page.block_bytes for counted in good)
    held = everything + own + span
    unused = [[counted for counted in good if not counted.used and bool(counted.remote) == is_remote] for is_remote in (True, False)]
    whole, empty = (sum(counted.page.end - counted.page.memory for counted in some) for some in unused)
    ranges = union([*((counted.page.memory, counted.page.end) for counted in pages), *pieces])
    os_page = around.target.page_bytes
    in_ram = around.ram.of(union([(start & -os_page, -(-end // os_page) * os_page) for start, end in ranges]), False)
    mine = [piece for piece, whose in survey.pieces if whose == index]
    spans = [(piece.start, piece.end) for piece in mine if piece.kind == MI_SPAN and not piece.is_pinned]
    emptied = [(counted.page.memory, counted.page.end) for some in unused for counted in some] if owner.kind != SHARED else []
    collected = union([*spans, *emptied]) if (owner.kind, mimalloc.form.line) not in UNCOLLECTED else []
    worth = sum(end - start for start, end in collected), _resident(around, collected)
    own_worth, unowned_worth = (worth, NOTHING) if owner.kind == THREAD else (NOTHING, worth)
    given = union([(-(-piece.start // os_page) * os_page, piece.end & -os_page) for piece in mine if piece.kind == MI_RETURNED])
    given_in_ram = around.ram.of(given, False)
    return MimallocArena(
        allocator=mimalloc.id,
        index=index,
        owner=owner.kind,
        lwp=owner.lwp,
        name=owner.name,
        pages=len(pages),
        held_bytes=held,
        used_blocks=sum(counted.used for counted in good),
        used_bytes=used,
        free_blocks=sum(counted.free for counted in good),
        free_bytes=free,
        remote_free_blocks=sum(counted.remote for counted in good),
        remote_free_bytes=remote,
        reserve_bytes=reserve,
        span_bytes=span,
        overhead_bytes=held - used - free - remote - reserve - span - unparsed,
        unparsed_bytes=unparsed,
        uncollected_pages=len(unused[0]),
        uncollected_bytes=whole,
        empty_bytes=empty,
        collectable_bytes=own_worth[0],
        collectable_resident_bytes=own_worth[1],
        unowned_collectable_bytes=unowned_worth[0],
        unowned_collectable_resident_bytes=unowned_worth[1],
        returned_bytes=returned,
        returned_resident_bytes=given_in_ram.resident_bytes if given_in_ram is not None else None if given else 0,
        returned_huge_bytes=given_in_ram.huge_bytes if given_in_ram is not None else None if given else 0,
        resident_bytes=in_ram.resident_bytes if in_ram is not None else None,
    )


def bins(mimalloc: Mimalloc, survey: Survey) -> List[MimallocBin]:
    """One row per block size."""
    by_size: Dict[int, List[Counted]] = {}
    for counted in survey.pages:
        if counted.is_good:
            by_size.setdefault(counted.page.block_bytes, []).append(counted)
    rows = []
    for size in sorted(by_size):
        pages = by_size[size]
        free, remote = sum(one.free for one in pages), sum(one.remote for one in pages)
        rows.append(
            MimallocBin(
                allocator=mimalloc.id,
                size_bytes=size,
                pages=len(pages),
                page_bytes=sum(one.page.end - one.page.memory for one in pages),
                used_blocks=sum(one.used for one in pages),
                used_bytes=sum(used_bytes(mimalloc.form, one) for one in pages),
                free_blocks=free,
                free_bytes=free * size,
                remote_free_blocks=remote,
                remote_free_bytes=remote * size,
                reserve_bytes=sum((one.page.reserved - one.page.capacity) * size for one in pages),
            )
        )
    return rows


def histogram(rows: Sequence[MimallocBin]) -> List[HistogramRow]:
    """The same as every allocator says it; what other threads freed counts as free."""
    return [
        HistogramRow(
            size_bytes=row.size_bytes,
            max_size_bytes=row.size_bytes,
            used_chunks=row.used_blocks,
            used_bytes=row.used_bytes,
            free_chunks=row.free_blocks + row.remote_free_blocks,
            free_bytes=row.free_bytes + row.remote_free_bytes,
            tcache_chunks=0,
        )
        for row in rows
    ]


def keeping(mimalloc: Mimalloc, survey: Survey, os_page_bytes: int) -> Keeping:
    """Free blocks stay while one of their page is in use or waits for its owner; a page wholly free, until its owner comes by."""
    rooms: Dict[int, int] = {}
    kept = [0] * len(survey.owners)
    for counted in survey.pages:
        page, room = counted.page, counted.page.end - counted.page.memory
        if counted.is_good:
            rooms[page.block_bytes] = min(room, rooms.get(page.block_bytes, room))
            kept[counted.arena] += counted.free * page.block_bytes
    padding = PADDING if mimalloc.form.is_padded else ()
    shape = PinShape(os_page_bytes, overheads=padding, listed_kinds={MI_SPAN}, rooms=sorted(rooms.items()))
    return Keeping(shape, [ArenaKeeps(index, free) for index, free in enumerate(kept)], [Term("free", sum(kept))])
