"""Whether this build counts (config_stats, configure's --enable-stats): no symbol tells, the slabs do."""

from typing import List, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.layout.view import read_view

MAX_ARENAS_TRIED = 64
"""Arenas that are looked at for evidence; the first one used has some."""


def has_stats(context: Context, listed: Sequence[Arena]) -> Optional[bool]:
    """True if a bin has a current slab and counts slabs, False if bins have slabs and none counts them, None if no bin has one.

    arena.c counts curslabs before a slab becomes slabcur, under `if (config_stats)`: 5.0 to 5.3.1.
    """
    if context.types.place(calibrate.bin_struct(context.types), "stats.curslabs") is None:
        return None
    uncounted = False
    for arena in listed[:MAX_ARENAS_TRIED]:
        try:
            for slabs, counted in _bins(context, arena):
                if counted:
                    return True
                uncounted = uncounted or bool(slabs)
        except (Unreadable, KeyError):
            continue
    return False if uncounted else None


def _bins(context: Context, arena: Arena) -> List[Tuple[int, int]]:
    """(slabcur, curslabs) of the arena's bins."""
    struct = calibrate.bin_struct(context.types)
    addresses = calibrate.bin_addresses(context.target, context.symbols, context.types, context.geometry.bins, arena.read())
    views = (read_view(context.target, context.types, struct, one) for shards in addresses for one in shards)
    return [(view["slabcur"], view.get("stats.curslabs") or 0) for view in views]
