"""What configure fixed in this build (config.*): compile-time constants, which no memory holds; from debug information or a pack, else by
what follows from them."""

from typing import Dict, Optional, Sequence

from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.detection.symbols import PROFILER
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.stats import config as stats_config

Config = Dict[str, Optional[bool]]


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
            found[name] = stats_config.has_stats(context, listed)
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
