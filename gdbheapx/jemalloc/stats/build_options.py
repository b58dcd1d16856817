"""What configure fixed in this build (config.*): compile-time constants, which no memory holds; from debug information or a pack, else by
what follows from them.

Whether this build counts (config_stats, configure's --enable-stats): no symbol tells, the slabs do.
"""

from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate, layouts
from gdbheapx.jemalloc.detection.symbols import PROFILER
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.layout.view import read_view

MAX_ARENAS_TRIED = 64
"""Arenas that are looked at for evidence; the first one used has some."""
Config = Dict[str, Optional[bool]]


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


def config(context: Context, listed: Sequence[Arena]) -> Config:
    """Every build-time switch that malloc_stats_print of this release shows, in its order, and `enable_cxx`; None where nothing tells.

    Read: the const config_NAME of jemalloc_preamble.h. Without it `debug`, `prof` and `stats` follow from what is in memory.
    """
    follows = {"debug": _debug, "prof": _prof, "cache_oblivious": _cache_oblivious}
    found: Config = {}
    for name in (*layouts.config_names(context.jemalloc.version), "enable_cxx"):
        constant = context.symbols.constant("config_" + name)
        if constant is not None:
            found[name] = bool(constant)
        elif name == "stats":
            found[name] = has_stats(context, listed)
        else:
            found[name] = follows[name](context) if name in follows else None
    return found


def has_prof(context: Context) -> Optional[bool]:
    """config.prof alone."""
    constant = context.symbols.constant("config_prof")
    return bool(constant) if constant is not None else _prof(context)


def _debug(context: Context) -> Optional[bool]:
    """Only a debugging build's locks have a witness of their own; elsewhere it shares its place with the counters (mutex.h)."""
    witness = context.types.place("malloc_mutex_s", "witness")
    return None if witness is None else witness.offset > 0


def _prof(context: Context) -> Optional[bool]:
    """Told by what the compiler keeps of the profiler's code: the text of a profile's head, or a function. Its variables are there in other
    builds too."""
    told = context.symbols.texts.profiles
    if not told or not layouts.keeps_profile_text(context.jemalloc.version):
        return told
    size_bytes = context.symbols.size_bytes(PROFILER)
    return None if size_bytes is None else size_bytes > 0


def _cache_oblivious(context: Context) -> Optional[bool]:
    """opt.cache_oblivious (from 5.3.0) is on by default only in builds that have it."""
    return True if context.variable("opt_cache_oblivious", 1) == 1 else None
