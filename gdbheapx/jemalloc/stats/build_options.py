"""What configure fixed in this build (config.*): compile-time constants, which no memory holds; from debug information or a pack, else by
what follows from them.

Whether this build counts (config_stats, configure's --enable-stats): no symbol tells, the slabs do.

What is told about one jemalloc beside its figures: how its build was made (`doctor`), what drives its purging (`report`).
"""

from typing import Any, Dict, List, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate, detect, layouts, unread
from gdbheapx.jemalloc.detection.layouts import has_ticker_bug
from gdbheapx.jemalloc.detection.symbols import PROFILER
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.purging import background
from gdbheapx.jemalloc.records import JemallocBuild, JemallocConditions, RefusedOption
from gdbheapx.jemalloc.stats import options
from gdbheapx.jemalloc.threads.tsd import Tsds
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
    views = (read_view(context.target, context.types, struct, address) for shards in addresses for address in shards)
    return [(view["slabcur"], view.get("stats.curslabs") or 0) for view in views]


def config(context: Context, listed: Sequence[Arena]) -> Config:
    """Every build-time switch that malloc_stats_print of this release shows, in its order, and `enable_cxx`; None where nothing tells.

    Read: the const config_NAME of jemalloc_preamble.h. Without it `debug`, `prof` and `stats` follow from what is in memory.
    """
    follows = {"debug": _debug, "prof": _prof, "cache_oblivious": _cache_oblivious}
    switches: Config = {}
    for name in (*layouts.config_names(context.jemalloc.version), "enable_cxx"):
        constant = context.symbols.constant("config_" + name)
        if constant is not None:
            switches[name] = bool(constant)
        elif name == "stats":
            switches[name] = has_stats(context, listed)
        else:
            switches[name] = follows[name](context) if name in follows else None
    return switches


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


def build(context: Context, listed: Sequence[Arena], tsds: Tsds) -> JemallocBuild:
    """Constants of the build, how they were proven, and the way to each thread's tsd."""
    jemalloc, geometry = context.jemalloc, context.geometry
    local = context.symbols.thread_local("tsd_tls")
    configured = config(context, listed)
    return JemallocBuild(
        allocator=jemalloc.id,
        version_text=jemalloc.version_text,
        prefix=context.symbols.prefix,
        names=context.symbols.public_names,
        calibrated_slabs=jemalloc.calibrated_slabs,
        named_arenas=jemalloc.named_arenas,
        page_bytes=geometry.page_bytes,
        quantum_bytes=geometry.size_classes[2] - geometry.size_classes[1],
        nbins=geometry.nbins,
        nsizes=len(geometry.size_classes),
        lg_vaddr=geometry.rtree.lg_vaddr,
        rtree_levels=geometry.rtree.levels,
        compact_leaves=geometry.rtree.compact,
        narenas=geometry.narenas,
        is_initialized=detect.is_initialized(context.target, jemalloc),
        has_stats=configured["stats"],
        has_prof=configured["prof"],
        threads_with_tsd=None if local is None else sum(1 for record in tsds.records if record.state is not None),
        tsd_way=None if local is None else local.way,
        by_structure=context.symbols.by_structure,
        fitting=jemalloc.fitting,
        debug_hint=unread.next_step(context.target, jemalloc.module, unread.STRIPPED) if context.symbols.by_structure else None,
        unread_variables=options.unread_variables(context),
    )


def conditions(context: Context, listed: Sequence[Arena]) -> JemallocConditions:
    """What decides when its unused pages go back to the kernel."""
    threads = background.read(context)
    started = [thread for thread in threads.threads if thread.state == "started"]
    asked = _is_on(context.variable("opt_background_thread", 1))
    prof = _is_on(context.variable("opt_prof", 1))
    thp = context.variable("opt_thp", 4)
    configured = config(context, listed)
    variable = context.symbols.public_names.conf_variable
    is_set = variable is not None and context.target.environment_variable(variable)
    return JemallocConditions(
        names=context.symbols.public_names,
        has_stats=configured["stats"],
        has_ticker_bug=has_ticker_bug(context.types, context.jemalloc.version),
        thp=None if thp is None else dict(enumerate(options.NAMES["thp"])).get(thp),
        background_enabled=threads.enabled,
        background_asked=asked,
        background_running=threads.named or len(started),
        prof=prof,
        has_prof=configured["prof"],
        dirty_decay_asked_ms=context.variable("opt_dirty_decay_ms", signed=True),
        prof_asked=_is_on(context.variable("opt_prof_active", 1)) if prof else None,
        prof_active=_is_on(options.running(context)["prof.active"]) if prof else None,
        unread_variables=options.unread_variables(context),
        refused=_refused(context) if is_set else (),
        has_oblivious_option=layouts.takes_cache_oblivious(context.jemalloc.version),
    )


def _is_on(value: Any) -> Optional[bool]:
    return None if value is None else bool(value)


def _refused(context: Context) -> Sequence[RefusedOption]:
    from gdbheapx.jemalloc.stats import tunables

    return tunables.refused(context, tunables.sources(context))
