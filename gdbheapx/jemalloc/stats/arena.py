"""The figures of one arena as malloc_stats_print has them, computed from the arena itself (arena.c: arena_stats_merge, ctl.c:
ctl_arena_stats_amerge)."""

from typing import Any, Dict, List, NamedTuple, Optional

from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.heap import arenas as arena_list
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.heap.columns import added, column, rows
from gdbheapx.jemalloc.stats import bins as stats_bins
from gdbheapx.jemalloc.stats import hpa as stats_hpa
from gdbheapx.jemalloc.stats import options
from gdbheapx.layout.view import View

Figures = Dict[str, Any]
"""Keys and nesting of malloc_stats_print; besides its keys those that its text alone has: `nslabs` of bins, `nmalloc`, `ndalloc`,
`nrequests` of lextents."""

STATES = ("dirty", "muzzy", "retained")
DECAYS = ("dirty", "muzzy")
TOTALS = ("nmalloc", "ndalloc", "nrequests", "nfills", "nflushes")


class Cached(NamedTuple):
    """What the thread caches bound to one arena hold, as jemalloc itself adds it up."""

    tcache_bytes: Optional[int]
    stashed_bytes: Optional[int]
    """Bytes held back to detect use after free; 0 unless the build does that."""


def read(context: Context, arena: Arena, cached: Cached, now_ns: Optional[int]) -> Figures:
    """One entry of `stats.arenas`. Unreadable if the arena is; None for what this build has not or memory does not tell.

    now_ns: CLOCK_MONOTONIC; None on a core, where uptime_ns is not known then.
    """
    view = arena.read()
    base = arena_list.base_view(context, view)
    bins = stats_bins.read(context, view)
    large = _large(context, view)
    found: Figures = {}
    if view.has("name"):
        found["name"] = view.bytes_of("name").split(b"\0")[0].decode("ascii", "replace")
    created = view.get("create_time.ns", "create_time")
    found["nthreads"] = view.get("nthreads[0]")
    found["uptime_ns"] = None if now_ns is None or created is None else max(0, now_ns - created)
    found["dss"] = options.name_of("dss", view.get("dss_prec"))
    found.update(_pages(view))
    found["small"] = _small(context, bins)
    found["large"] = _large_totals(context, view, large)
    found.update(_memory(context, view, base, cached))
    sec = stats_hpa.sec(context, view)
    found["mutexes"] = mutexes.of_arena(view, base, sec.locks)
    found["bins"] = bins
    found["lextents"] = large
    extents = _extents(context, view)
    if extents is not None:
        found["extents"] = extents
    if stats_hpa.has(view):
        hpa = stats_hpa.read(context, stats_hpa.of_arena(view), sec)
        if "sec_bytes" not in hpa:
            found["sec_bytes"] = sec.bytes
        found["hpa_shard"] = hpa
    return found


def dirty_pages(view: View) -> Optional[int]:
    """pdirty: from 5.3.1 with the dirty pages of the HPA."""
    count = arena_list.pages(view, "dirty")
    return None if count is None else count + stats_hpa.dirty_pages(view)


def _pages(view: View) -> Figures:
    found: Figures = {"%s_decay_ms" % state: arena_list.decay_ms(view, state) for state in DECAYS}
    found["pactive"] = arena_list.active_pages(view)
    found["pdirty"] = dirty_pages(view)
    found["pmuzzy"] = arena_list.pages(view, "muzzy")
    for state in DECAYS:
        for counter in ("npurge", "nmadvise", "purged"):
            path = "decay_%s.%s" % (state, counter)
            found["%s_%s" % (state, counter)] = view.get("stats.pa_shard_stats.pac_stats." + path, "stats." + path)
    return found


def _small(context: Context, bins: List[stats_bins.Row]) -> Figures:
    sizes = [info.reg_size_bytes for info in context.geometry.bins]
    known = all(row["curregs"] is not None for row in bins)
    found: Figures = {"allocated": sum(row["curregs"] * size for row, size in zip(bins, sizes)) if known else None}
    found.update({key: stats_bins.total(bins, key) for key in TOTALS})
    return found


def _large(context: Context, view: View) -> List[Figures]:
    """lextents: curlextents is what was allocated less what was freed; nrequests leaves out, in memory, what went past the thread
    caches."""
    order = context.geometry.little_endian
    made, freed = column(view, "stats.lstats", "nmalloc", order), column(view, "stats.lstats", "ndalloc", order)
    cached = column(view, "stats.lstats", "nrequests", order)
    if made is None or freed is None or cached is None:
        return []
    current = [(a - b) % (1 << 64) for a, b in zip(made, freed)]
    return rows({"curlextents": current, "nmalloc": made, "ndalloc": freed, "nrequests": added([made, cached])}, len(made))


def _large_totals(context: Context, view: View, large: List[Figures]) -> Figures:
    """large.*; allocated is the sum of active_bytes from 5.3.1, before of curlextents times the size class."""
    order = context.geometry.little_endian
    active, flushed = column(view, "stats.lstats", "active_bytes", order), column(view, "stats.lstats", "nflushes", order)
    sizes = context.geometry.size_classes[context.geometry.nbins :]
    allocated = sum(active) if active is not None else sum(row["curlextents"] * size for row, size in zip(large, sizes))
    sums = {key: sum(row[key] for row in large) for key in ("nmalloc", "ndalloc", "nrequests")}
    return {"allocated": allocated, **sums, "nfills": sums["nmalloc"], "nflushes": sum(flushed) if flushed is not None else None}


def _memory(context: Context, view: View, base: Optional[View], cached: Cached) -> Figures:
    page = context.geometry.page_bytes
    own = {
        key: base.get(key) if base is not None else None
        for key in ("allocated", "resident", "mapped", "n_thp", "edata_allocated", "rtree_allocated")
    }
    mapped = view.get("stats.pa_shard_stats.pac_stats.pac_mapped", "stats.mapped")
    retained = arena_list.pages(view, "retained")
    counted = [arena_list.active_pages(view), dirty_pages(view)]
    if layouts.resident_counts_muzzy(context.jemalloc.version):
        counted.append(arena_list.pages(view, "muzzy"))
    found: Figures = {
        "mapped": _sum([own["mapped"], mapped]),
        "retained": None if retained is None else retained * page,
        "base": own["allocated"],
        "internal": view.get("stats.internal"),
    }
    if base is not None and base.has("edata_allocated"):
        found["metadata_edata"], found["metadata_rtree"] = own["edata_allocated"], own["rtree_allocated"]
    found["metadata_thp"] = own["n_thp"]
    found["tcache_bytes"] = cached.tcache_bytes
    if "edata_s" in context.types.structs:
        found["tcache_stashed_bytes"] = cached.stashed_bytes
    pages = _sum(counted)
    found["resident"] = _sum([own["resident"], None if pages is None else pages * page])
    found["abandoned_vm"] = view.get("stats.pa_shard_stats.pac_stats.abandoned_vm", "stats.abandoned_vm")
    found["extent_avail"] = view.get("pa_shard.edata_cache.count", "extent_avail_cnt")
    return found


def _sum(parts: List[Optional[int]]) -> Optional[int]:
    return None if None in parts else sum(parts)  # type: ignore[arg-type]


def _extents(context: Context, view: View) -> Optional[List[Figures]]:
    """Unused extents by page size class and state; None in builds that do not count them (5.0, 5.1)."""
    columns: Dict[str, Optional[List[int]]] = {}
    for key, member in (("n%s", "nextents"), ("%s_bytes", "nbytes")):
        for state in STATES:
            columns[key % state] = _extent_column(context, view, state, member)
    if columns["ndirty"] is None:
        return None
    return rows(columns, len(context.geometry.page_classes))


def _extent_column(context: Context, view: View, state: str, member: str) -> Optional[List[int]]:
    path = "extents_%s.%s" % (state, member)
    if view.has(path):
        return view.array(path)
    start = "%secache_%s." % (arena_list.PAC, state)
    esets = ("eset.bin_stats", "guarded_eset.bin_stats")
    return added([column(view, start + eset, member, context.geometry.little_endian) for eset in esets])
