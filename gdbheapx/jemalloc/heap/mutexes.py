"""What jemalloc counts about its own locks (mutex_prof_data_t): who waited, how often, how long."""

from typing import Dict, Iterable, List, Optional

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc.context import Context
from gdbheapx.layout.view import View

Counters = Dict[str, Optional[int]]

COUNTERS = (
    ("num_ops", "n_lock_ops"),
    ("num_wait", "n_wait_times"),
    ("num_spin_acq", "n_spin_acquired"),
    ("num_owner_switch", "n_owner_switches"),
    ("total_wait_time", "tot_wait_time.ns"),
    ("max_wait_time", "max_wait_time.ns"),
    ("max_num_thds", "max_n_thds"),
)
"""Key of malloc_stats_print -> member. Times are nanoseconds.

jemalloc's own JSON shows other numbers under these keys but the first: stats.c, mutex_stats_emit, walks columns among which the rates
stand too and does not skip them (5.1.0 to 5.3.1), so that num_wait is operations a second, num_spin_acq is num_wait, and so on. Its text is
right.
"""
MAXIMA = ("max_wait_time", "max_num_thds")
"""Of several locks the largest counts, not the sum (mutex.h: malloc_mutex_prof_merge)."""

GLOBAL = (
    ("background_thread", "background_thread_lock"),
    ("max_per_bg_thd", ""),
    ("ctl", "ctl_mtx"),
    ("prof", "bt2gctx_mtx"),
    ("prof_thds_data", "tdatas_mtx"),
    ("prof_dump", "prof_dump_mtx"),
    ("prof_recent_alloc", "prof_recent_alloc_mtx"),
    ("prof_recent_dump", "prof_recent_dump_mtx"),
    ("prof_stats", "prof_stats_mtx"),
)
"""Key -> variable; max_per_bg_thd is the largest over the background threads. mutex_prof.h: MUTEX_PROF_GLOBAL_MUTEXES."""

ARENA = (
    ("large", ("large_mtx",)),
    ("extent_avail", ("pa_shard.edata_cache.mtx", "extent_avail_mtx")),
    ("extents_dirty", ("pa_shard.pac.ecache_dirty.mtx", "extents_dirty.mtx")),
    ("extents_muzzy", ("pa_shard.pac.ecache_muzzy.mtx", "extents_muzzy.mtx")),
    ("extents_retained", ("pa_shard.pac.ecache_retained.mtx", "extents_retained.mtx")),
    ("extents_pinned", ("pa_shard.pac.ecache_pinned.mtx",)),
    ("decay_dirty", ("pa_shard.pac.decay_dirty.mtx", "decay_dirty.mtx")),
    ("decay_muzzy", ("pa_shard.pac.decay_muzzy.mtx", "decay_muzzy.mtx")),
    ("base", ("base",)),
    ("tcache_list", ("tcache_ql_mtx", "cache_bin_array_descriptor_ql_mtx")),
)
"""Key -> path in arena_s, newest first; that of `base` lies in the arena's base_s. MUTEX_PROF_ARENA_MUTEXES."""
AFTER_5_3_1 = ("extents_pinned",)
HPA = (("hpa_shard", "mtx"), ("hpa_shard_grow", "grow_mtx"), ("hpa_sec", ""))
"""From 5.3.0; counted only where an arena ever used huge pages."""


def hpa_path(view: View) -> str:
    """Where arena_s has its hpa_shard_t, with a dot behind it."""
    return "pa_shard.hpa." if view.has("pa_shard.hpa.mtx") else "pa_shard.hpa_shard."


def none(value: Optional[int] = 0) -> Counters:
    """Counters of a lock that nobody ever took; None for one of which nothing is known."""
    return {key: value for key, _ in COUNTERS}


def counters(view: View, path: str) -> Counters:
    """Of the lock at `path`; None for what this build does not count."""
    return copied(view, path + ".prof_data." if path else "prof_data.")


def copied(view: View, start: str) -> Counters:
    """Of the mutex_prof_data_t whose members' paths begin with `start`."""
    return {key: view.get(start + member) for key, member in COUNTERS}


def names(has_hpa: bool, has_pinned: bool) -> List[str]:
    """The keys of an arena's locks, in the order of mutex_prof_arena_ind_t."""
    return [key for key, _ in ARENA if has_pinned or key not in AFTER_5_3_1] + ([key for key, _ in HPA] if has_hpa else [])


def merged(locks: Iterable[Counters]) -> Counters:
    """Of several locks together."""
    rows = list(locks)
    if len(rows) == 1:
        return rows[0]
    sums: Counters = {}
    for key, _ in COUNTERS:
        values = [row[key] for row in rows]
        known = [value for value in values if value is not None]
        sums[key] = None if len(known) < len(values) else max(known, default=0) if key in MAXIMA else sum(known)
    return sums


def largest(locks: Iterable[Counters]) -> Counters:
    """The largest of each counter (malloc_mutex_prof_max_update)."""
    most = none()
    for row in locks:
        for key, value in row.items():
            most[key] = None if value is None else max(most[key] or 0, value)
    return most


def of_arena(view: View, base: Optional[View], sec: Counters) -> Dict[str, Counters]:
    """An arena's locks. `sec`: those of its small extent cache, merged."""
    locks = {}
    for key, paths in ARENA:
        if key == "base":
            locks[key] = counters(base, "mtx") if base is not None else counters(view, "?")
        elif key not in AFTER_5_3_1 or view.has(paths[0]):
            locks[key] = counters(view, view.types.first(view.struct, *paths) or "?")
    start = hpa_path(view)
    if view.has(start + "mtx"):
        used = view.get("pa_shard.ever_used_hpa")
        for key, path in HPA:
            locks[key] = sec if not path else counters(view, start + path) if used else none()
    return locks


def of_process(context: Context, background: Iterable[Counters]) -> Dict[str, Counters]:
    """The locks that are not an arena's. `background`: those of the background threads that run."""
    prof = context.variable("opt_prof", 1)
    locks = {}
    for key, name in GLOBAL:
        if not name:
            if "edata_s" in context.types.structs:
                locks[key] = largest(background)
        elif key == "prof_thds_data" and "edata_s" not in context.types.structs:
            break  # 5.2 and older count no others
        else:
            locks[key] = none() if key.startswith("prof") and prof is not None and not prof else _variable(context, name)
    return locks


def _variable(context: Context, name: str) -> Counters:
    symbol = context.symbols.find(name)
    try:
        if symbol is not None:
            return counters(context.view("malloc_mutex_s", symbol.address), "")
    except (Unreadable, KeyError):
        pass
    return none(None)
