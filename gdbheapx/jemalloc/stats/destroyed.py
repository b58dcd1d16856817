"""What destroyed arenas had counted: jemalloc adds it to a copy of its own when it destroys one (ctl.c: ctl_arena_refresh,
arenas[MALLCTL_ARENAS_DESTROYED])."""

from typing import Any, Dict, List, Optional

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.jemalloc.heap.columns import column, rows
from gdbheapx.jemalloc.stats import bins as stats_bins
from gdbheapx.jemalloc.stats import hpa as stats_hpa
from gdbheapx.layout.view import View

DESTROYED = 1
"""Its place in ctl_arenas->arenas; 0 is the sum."""
Figures = Dict[str, Any]
EXTENTS = ("ndirty", "nmuzzy", "nretained", "dirty_bytes", "muzzy_bytes", "retained_bytes")
SMALL = ("allocated", "nmalloc", "ndalloc", "nrequests", "nfills", "nflushes")


def read(context: Context) -> Optional[Figures]:
    """The entry `destroyed`; None if no arena was ever destroyed, or its layout is not known. What cannot be read is reported."""
    control = context.variable("ctl_arenas")
    if not control or "ctl_arena_stats_s" not in context.types.structs:
        return None
    place = context.types.place("ctl_arenas_s", "arenas[%d]" % DESTROYED)
    try:
        pointer = context.target.read_word(control + place.offset) if place is not None else 0
        view = context.view("ctl_arena_s", pointer) if pointer else None
        if view is None or not view["initialized"] or not view["astats"]:
            return None
        return _figures(context, view, context.view("ctl_arena_stats_s", view["astats"]))
    except Unreadable as problem:
        context.report(
            codes.STATISTICS_UNREADABLE, problem.address, "cannot read the counters of destroyed arenas", "`destroyed` is missing here"
        )
        return None


def _figures(context: Context, view: View, stats: View) -> Figures:
    order, new = context.geometry.little_endian, stats.has("astats.pa_shard_stats")
    found: Figures = {"nthreads": view["nthreads"], "uptime_ns": stats.get("astats.uptime.ns", "astats.uptime")}
    found["dss"] = context.target.text_at(view["dss"])
    for key in ("dirty_decay_ms", "muzzy_decay_ms", "pactive", "pdirty", "pmuzzy"):
        found[key] = view[key]
    pac = "astats.pa_shard_stats.pac_stats." if new else "astats."
    for state in ("dirty", "muzzy"):
        for counter in ("npurge", "nmadvise", "purged"):
            found["%s_%s" % (state, counter)] = stats.get("%sdecay_%s.%s" % (pac, state, counter))
    found["small"] = {key: stats.get(key + "_small") for key in SMALL}
    found["large"] = {key: stats.get("astats.%s_large" % key) for key in SMALL}
    found["large"]["nfills"] = found["large"]["nmalloc"]
    found.update(_memory(stats, pac, new))
    found["mutexes"] = _mutexes(stats, stats.has("hpastats"))
    found["bins"] = _bins(stats, context.geometry.nbins)
    large = {key: column(stats, "lstats", key, order) for key in ("curlextents", "nmalloc", "ndalloc", "nrequests")}
    found["lextents"] = rows(large, len(context.geometry.size_classes) - context.geometry.nbins)
    if stats.has("estats"):
        found["extents"] = rows({key: column(stats, "estats", key, order) for key in EXTENTS}, len(context.geometry.page_classes))
    if stats.has("hpastats"):
        sec = _sec(stats)
        found["hpa_shard"] = stats_hpa.read(
            context, stats_hpa.CounterPath(stats, "hpastats.psset_stats.", "hpastats.nonderived_stats.", True), sec
        )
        if "sec_bytes" not in found["hpa_shard"]:
            found["sec_bytes"] = sec.bytes
    return found


def _memory(stats: View, pac: str, new: bool) -> Figures:
    found: Figures = {"mapped": stats.get("astats.mapped"), "retained": stats.get(pac + "retained")}
    for key in ("base", "internal", "metadata_edata", "metadata_rtree", "metadata_thp", "tcache_bytes", "tcache_stashed_bytes", "resident"):
        if stats.has("astats." + key):
            found[key] = stats["astats." + key]
    found["abandoned_vm"] = stats.get(pac + "abandoned_vm")
    found["extent_avail"] = stats.get("astats.pa_shard_stats.edata_avail" if new else "astats.extent_avail")
    return found


def _mutexes(stats: View, has_hpa: bool) -> Dict[str, mutexes.Counters]:
    return {name: mutexes.copied(stats.view("astats.mutex_prof_data", at), "") for at, name in enumerate(mutexes.names(has_hpa))}


def _bins(stats: View, nbins: int) -> List[Figures]:
    found = []
    for szind in range(nbins):
        one = stats.view("bstats", szind)
        start = "stats_data." if one.has("stats_data") else ""
        row: Figures = {key: one[start + member] for key, member in stats_bins.COUNTERS if one.has(start + member)}
        row["mutex"] = mutexes.copied(one, "mutex_data.")
        found.append(row)
    return found


def _sec(stats: View) -> stats_hpa.Sec:
    start = "hpastats.secstats." if stats.has("hpastats.secstats") else "secstats."
    totals = {member: stats.get(start + "total." + member) or 0 for _, member in stats_hpa.SEC_KEYS}
    return stats_hpa.Sec(stats.get(start + "bytes") or 0, totals, mutexes.none())
