"""The figures of each arena, from the walk: system = used + tcache + fast + free + top + overhead + unparsed."""

from typing import TYPE_CHECKING, Any, Dict, List

from gdbheapx.glibc import codes
from gdbheapx.glibc.context import ArenaWalk
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.glibc.survey import Survey
from gdbheapx.glibc.tcache import threads_by_arena
from gdbheapx.glibc.trim_model import Prediction, predict
from gdbheapx.kernel.common.in_ram import UNKNOWN
from gdbheapx.model import Address

if TYPE_CHECKING:
    from gdbheapx.glibc.pieces import Remnant


def arena_totals(done: Survey) -> List[ArenaTotals]:
    """One row per arena, in ring order."""
    threads = threads_by_arena(done.caches)
    rows = []
    for walk in done.walks:
        row = walk.row = walk.row or _row(done, walk)
        rows.append(row._replace(threads=None if threads is None else threads.get(walk.arena.address, 0)))
    return rows if done.remnant is None else [_remnant_row(done, done.remnant), *rows]


def _remnant_row(done: Survey, lost: "Remnant") -> ArenaTotals:
    """The main heap without its main_arena: what the chunks alone tell; thread caches and fastbins count as used."""
    unknown: Dict[str, Any] = dict.fromkeys(ArenaTotals._fields)
    result = lost.result
    what = "cannot read main_arena; gdbheapx takes the run of chunks at 0x%x for its heap" % lost.region.begin
    done.context.report(codes.MAIN_ARENA_LOST, done.context.glibc.main_arena.address, what, "its thread caches and fastbins count as used")
    unknown.update(
        allocator=done.context.glibc.id,
        index=0,
        address=Address(done.context.glibc.main_arena.address),
        kind="main",
        heaps=1,
        used_chunks=result.used_chunks,
        used_bytes=result.used_bytes,
        free_chunks=result.free_chunks,
        free_bytes=result.free_bytes,
        top_bytes=lost.top_bytes or None,
        largest_free_bytes=result.largest_free_bytes,
    )
    return ArenaTotals(**unknown)


def _row(done: Survey, walk: ArenaWalk) -> ArenaTotals:
    total = walk.total()
    system = walk.system_bytes
    has_pages = done.context.ram.pages is not None
    prediction = predict(done.context, walk, total) if total else Prediction(0, 0, *((0, 0) if has_pages else (None, None)))
    ranges, reserves = walk.ranges(done.context.glibc.geometry.page_bytes), walk.reserves(done.heap_max)
    kept, own = done.context.ram.of(reserves) or UNKNOWN, done.context.ram.of(ranges) or UNKNOWN
    free = total.free_bytes if total else 0
    fast = total.fast_bytes if total else 0
    top = total.top_bytes if total else 0
    overhead = walk.overhead_bytes + walk.foreign_bytes + (total.tcache_struct_bytes + total.fence_bytes if total else 0)
    cached_known = done.caches.known
    state = walk.arena.state
    return ArenaTotals(
        allocator=done.context.glibc.id,
        index=walk.arena.index,
        address=Address(walk.arena.address),
        kind="main" if walk.arena.is_main else "thread",
        heaps=walk.pieces,
        system_bytes=system,
        max_system_bytes=state["max_system_mem"],
        used_chunks=total.used_chunks if total else 0,
        used_bytes=total.used_bytes if total else 0,
        tcache_chunks=None if not cached_known else total.tcache_chunks if total else 0,
        tcache_bytes=None if not cached_known else total.tcache_bytes if total else 0,
        fast_chunks=total.fast_chunks if total else 0,
        fast_bytes=fast,
        free_chunks=total.free_chunks if total else 0,
        free_bytes=free,
        top_bytes=top,
        overhead_bytes=overhead,
        foreign_bytes=walk.foreign_bytes,
        unparsed_bytes=walk.unparsed_bytes + walk.unlocated_bytes,
        tcache_struct_chunks=None if not cached_known else total.tcache_struct_chunks if total else 0,
        largest_free_bytes=total.largest_free_bytes if total else 0,
        free_percent=round(100.0 * (free + fast + top) / system, 1) if system else 0.0,
        reclaimable_bytes=prediction.bytes,
        reclaimable_resident_bytes=prediction.resident_bytes,
        reclaimable_exclusive_bytes=prediction.exclusive_bytes,
        free_returned_resident_bytes=kept.resident_bytes,
        free_returned_huge_bytes=kept.huge_bytes,
        huge_bytes=None if kept.huge_bytes is None or own.huge_bytes is None else kept.huge_bytes + own.huge_bytes,
        threads=None,
        attached_threads=state.get("attached_threads"),
        locked=bool(state["mutex"]),
    )
