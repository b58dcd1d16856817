"""What free memory a purge leaves: free regions of slabs, as only a whole slab becomes unused pages (arena.c: arena_slab_dalloc)."""

from typing import Sequence

from gdbheapx.allocators.keeping import ArenaKeeps, Keeping, Term
from gdbheapx.columns import add
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap import totals
from gdbheapx.jemalloc.records import JemallocArena
from gdbheapx.kernel.blocks.pins import PinShape
from gdbheapx.kernel.jemalloc.records import ExtentsResult


def keeping(context: Context, result: ExtentsResult, rows: Sequence[JemallocArena]) -> Keeping:
    """Of the same look as the rows of `arenas`. active = allocated + free regions + what large allocations are rounded up by."""
    rooms = sorted((one.reg_size_bytes, one.slab_size_bytes) for one in context.geometry.bins)
    met = {found.arena: found for found in result.arenas}
    arenas, rounding = [], 0
    for row in rows:
        found = met.get(row.index)
        more = 0
        if found is not None:
            large = [one for one in totals.classes(context, found) if one.slabs is None]
            more = sum(one.bytes for one in found.larges) - sum(one.used_bytes + one.cached_bytes for one in large)
        rounding += more
        kept = None if row.active_bytes is None or row.allocated_bytes is None else row.active_bytes - row.allocated_bytes - more
        arenas.append(ArenaKeeps(row.index, kept))
    active, allocated = (sum(getattr(row, name) or 0 for row in rows) for name in ("active_bytes", "allocated_bytes"))
    terms = [Term("active", active), Term("allocated", allocated, True), Term("rounding of large blocks", rounding, True)]
    given = add([row.reclaimable_bytes for row in rows])
    return Keeping(PinShape(context.geometry.page_bytes, rooms=rooms), arenas, terms, returnable_bytes=given, command="purge")
