"""Analysis of the free memory that a malloc_trim(0) leaves, and why (malloc.c: mtrim, systrim; heap_trim for thread arenas)."""

from typing import List

from gdbheapx.allocators.answers import ENDED_ARENA, FAST_LIST, FOREIGN_BREAK, MAIN_TOP, THREAD_TOP, USUAL, ArenaKeeps, Keeping, Term
from gdbheapx.glibc import trim
from gdbheapx.glibc.context import ArenaWalk
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.glibc.survey import Survey
from gdbheapx.kernel.blocks.pages import LISTED, PinShape
from gdbheapx.kernel.blocks.stream import BlockShape
from gdbheapx.kernel.glibc.records import STATUS_FAST

WORDS = {**USUAL, LISTED: FAST_LIST}


def explain_keeping(done: Survey, rows: List[ArenaTotals], blocks: BlockShape) -> Keeping:
    """Return why free memory stays, from the survey that made the rows."""
    geometry = done.context.glibc.geometry
    shape = PinShape(
        page_bytes=geometry.page_bytes,
        head_bytes=geometry.chunk_struct_bytes,
        lead_bytes=blocks.header_bytes or 0,
        overheads=blocks.overheads,
        listed_kinds=frozenset((STATUS_FAST,)),
        apart=[row.index for row in rows if row.kind == "thread" and _has_ended(row)],
    )
    by_index = {row.index: row for row in rows}
    arenas = [_explain_arena(done, walk, by_index[walk.arena.index]) for walk in done.walks]
    if done.remnant is not None:
        arenas.append(ArenaKeeps(0, None, MAIN_TOP))
    sums = [sum(getattr(row, name) or 0 for row in rows) for name in ("free_bytes", "fast_bytes", "top_bytes", "reclaimable_bytes")]
    terms = [Term(name, value) for name, value in zip(("free", "fast", "top"), sums)] + [Term("reclaimable", sums[-1], is_taken_off=True)]
    return Keeping(shape, arenas, terms, WORDS, sums[-1])


def _has_ended(row: ArenaTotals) -> bool:
    """No thread is attached any more."""
    return (row.attached_threads if row.attached_threads is not None else row.threads) == 0


def _explain_arena(done: Survey, walk: ArenaWalk, row: ArenaTotals) -> ArenaKeeps:
    parts = (row.free_bytes, row.fast_bytes, row.top_bytes, row.reclaimable_bytes)
    free, fast, top, given = (part or 0 for part in parts)
    kept = None if None in parts else free + fast + top - given
    if not walk.arena.is_main:  # freeing the block below the end returns nothing, unless a further heap goes with it
        is_ended = _has_ended(row)
        return ArenaKeeps(row.index, kept, ENDED_ARENA if is_ended else THREAD_TOP, not is_ended and (row.heaps or 1) > 1)
    total = walk.total()
    end = trim.predict_systrim(done.context, walk, total) if total is not None else None
    is_foreign = done.context.glibc.break_address(done.context.target) != walk.arena.top + top
    return ArenaKeeps(row.index, kept, FOREIGN_BREAK if is_foreign else MAIN_TOP, False, end.bytes if end is not None else 0)
