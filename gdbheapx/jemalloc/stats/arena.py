"""The figures of one arena as malloc_stats_print has them, computed from the arena itself (arena.c: arena_stats_merge, ctl.c:
ctl_arena_stats_amerge).

What each bin of an arena counts: bin_s.stats, over the shards of a bin together.

What destroyed arenas had counted: jemalloc adds it to a copy of its own when it destroys one (ctl.c: ctl_arena_refresh,
arenas[MALLCTL_ARENAS_DESTROYED]).
"""

from typing import Any, Dict, List, Optional, Sequence

from gdbheapx.columns import add
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context, added, column, rows, views
from gdbheapx.jemalloc.detection import calibrate, layouts
from gdbheapx.jemalloc.heap import arenas as arena_list
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.jemalloc.heap.arenas import EXTENT_STATES, UNUSED_STATES, Arena
from gdbheapx.jemalloc.heap.base import mapped_sum
from gdbheapx.jemalloc.stats import hpa as stats_hpa
from gdbheapx.jemalloc.stats import options
from gdbheapx.jemalloc.threads.tcache import Counted
from gdbheapx.layout.view import View

COUNTERS = (
    ("nmalloc", "nmalloc"),
    ("ndalloc", "ndalloc"),
    ("curregs", "curregs"),
    ("nrequests", "nrequests"),
    ("nfills", "nfills"),
    ("nflushes", "nflushes"),
    ("nreslabs", "reslabs"),
    ("curslabs", "curslabs"),
    ("nonfull_slabs", "nonfull_slabs"),
    ("nslabs", "nslabs"),
)
"""Key of malloc_stats_print -> member of bin_stats_s; `nslabs` stands in its text alone."""
GAP_BYTES = 1 << 16
"""Bins closer than this are read at once with what lies between them."""
Figures = Dict[str, Any]
"""Keys and nesting of malloc_stats_print; besides its keys those that its text alone has: `nslabs` of bins, `nmalloc`, `ndalloc`,
`nrequests` of lextents."""
TOTALS = ("nmalloc", "ndalloc", "nrequests", "nfills", "nflushes")
PURGES = {
    "%s_%s" % (state, counter): "decay_%s.%s" % (state, counter) for state in UNUSED_STATES for counter in ("npurge", "nmadvise", "purged")
}
"""Key of malloc_stats_print -> member of the counters of pages."""
DESTROYED = 1
"""Its place in ctl_arenas->arenas; 0 is the sum."""
EXTENTS = {key % state: (state, member) for key, member in (("n%s", "nextents"), ("%s_bytes", "nbytes")) for state in EXTENT_STATES}
"""Key of malloc_stats_print -> (state of extents, member of their counters)."""
SMALL = ("allocated", *TOTALS)
MEMORY = (
    *("mapped", "retained", "pinned", "base", "internal", "metadata_edata", "metadata_rtree", "metadata_thp", "tcache_bytes"),
    *("tcache_stashed_bytes", "resident", "abandoned_vm", "extent_avail"),
)
"""Bytes by kind, in the order of malloc_stats_print."""


def read_bins(context: Context, arena: View) -> List[Figures]:
    """One row per bin, by szind. Unreadable if the bins cannot be found; one that cannot be read is reported, its figures None."""
    addresses = calibrate.bin_addresses(context.target, context.symbols, context.types, context.geometry.bins, arena)
    struct = calibrate.bin_struct(context.types)
    by_address = views(context, struct, (address for shards in addresses for address in shards), GAP_BYTES)
    lock = "lock" if context.types.place(struct, "lock") is not None else "mtx"
    bins = []
    for szind, shards in enumerate(addresses):
        missing = next((address for address in shards if address not in by_address), None)
        if missing is not None:
            what = "cannot read bin %d of the arena at 0x%x" % (szind, arena.address)
            context.report(codes.STATISTICS_UNREADABLE, missing, what, "its figures are missing here")
        bins.append(_bin_row([by_address[address] for address in shards] if missing is None else [], lock))
    return bins


def _bin_row(shards: Sequence[View], lock: str) -> Figures:
    row: Figures = {}
    for key, member in COUNTERS:
        if shards and not shards[0].has("stats." + member):
            continue  # nonfull_slabs came with 5.2.0
        row[key] = sum(shard["stats." + member] for shard in shards) if shards else None
    row["mutex"] = mutexes.merged(mutexes.counters(shard, lock) for shard in shards) if shards else mutexes.none(None)
    return row


def read(context: Context, arena: Arena, cached: Counted, now_ns: Optional[int]) -> Figures:
    """One entry of `stats.arenas`. Unreadable if the arena is; None for what this build has not or memory does not tell.

    now_ns: CLOCK_MONOTONIC; None on a core, where uptime_ns is not known then.
    """
    view = arena.read()
    base = arena_list.base_view(context, view)
    bins = read_bins(context, view)
    large = _large(context, view)
    figures: Figures = {}
    if view.has("name"):
        figures["name"] = view.bytes_of("name").split(b"\0")[0].decode("ascii", "replace")
    created = view.get("create_time.ns", "create_time")
    figures["nthreads"] = view.get("nthreads[0]")
    figures["uptime_ns"] = None if now_ns is None or created is None else max(0, now_ns - created)
    figures["dss"] = options.name_of("dss", view.get("dss_prec"))
    figures.update(_pages(view))
    figures["small"] = _small(context, bins)
    figures["large"] = _large_totals(context, view, large)
    figures.update(_memory(context, view, base, cached))
    sec = stats_hpa.sec(context, view)
    figures["mutexes"] = mutexes.of_arena(view, base, sec.locks)
    figures["bins"] = bins
    figures["lextents"] = large
    extents = _extents(context, view)
    if extents is not None:
        figures["extents"] = extents
    if stats_hpa.has(view):
        hpa = stats_hpa.read(context, stats_hpa.of_arena(view), sec)
        if "sec_bytes" not in hpa:
            figures["sec_bytes"] = sec.bytes
        figures["hpa_shard"] = hpa
    return figures


def dirty_pages(view: View) -> Optional[int]:
    """pdirty: from 5.3.1 with the dirty pages of the HPA."""
    count = arena_list.pages(view, "dirty")
    return None if count is None else count + stats_hpa.dirty_pages(view)


def _pages(view: View) -> Figures:
    return {
        **{"%s_decay_ms" % state: arena_list.decay_ms(view, state) for state in UNUSED_STATES},
        "pactive": arena_list.active_pages(view),
        "pdirty": dirty_pages(view),
        "pmuzzy": arena_list.pages(view, "muzzy"),
        **{key: view.get("stats.pa_shard_stats.pac_stats." + path, "stats." + path) for key, path in PURGES.items()},
    }


def _small(context: Context, bins: List[Figures]) -> Figures:
    sizes = [info.reg_size_bytes for info in context.geometry.bins]
    allocated = add(row["curregs"] and row["curregs"] * size for row, size in zip(bins, sizes))
    return {"allocated": allocated, **{key: add(row.get(key) for row in bins) for key in TOTALS}}


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


def _memory(context: Context, view: View, base: Optional[View], cached: Counted) -> Figures:
    page = context.geometry.page_bytes
    own = {
        key: base.get(key) if base is not None else None
        for key in ("allocated", "resident", "mapped", "n_thp", "edata_allocated", "rtree_allocated")
    }
    mapped = view.get("stats.pa_shard_stats.pac_stats.pac_mapped", "stats.mapped")
    retained = arena_list.pages(view, "retained")
    pinned = arena_list.pages(view, "pinned")
    counted = [arena_list.active_pages(view), dirty_pages(view), *([pinned] if pinned is not None else [])]
    if layouts.resident_counts_muzzy(context.jemalloc.version):
        counted.append(arena_list.pages(view, "muzzy"))
    figures: Figures = {
        "mapped": mapped_sum(context, [own["mapped"], mapped]),
        "retained": None if retained is None else retained * page,
        **({"pinned": pinned * page} if pinned is not None else {}),
        "base": own["allocated"],
        "internal": view.get("stats.internal"),
    }
    if base is not None and base.has("edata_allocated"):
        figures["metadata_edata"], figures["metadata_rtree"] = own["edata_allocated"], own["rtree_allocated"]
    figures["metadata_thp"] = own["n_thp"]
    figures["tcache_bytes"] = cached.tcache_bytes
    if "edata_s" in context.types.structs:
        figures["tcache_stashed_bytes"] = cached.stashed_bytes
    pages = add(counted)
    figures["resident"] = add([own["resident"], None if pages is None else pages * page])
    figures["abandoned_vm"] = view.get("stats.pa_shard_stats.pac_stats.abandoned_vm", "stats.abandoned_vm")
    figures["extent_avail"] = view.get("pa_shard.edata_cache.count", "extent_avail_cnt")
    return figures


def _extents(context: Context, view: View) -> Optional[List[Figures]]:
    """Unused extents by page size class and state; None in builds that do not count them (5.0, 5.1)."""
    columns = {key: _extent_column(context, view, *place) for key, place in EXTENTS.items()}
    columns = {key: found for key, found in columns.items() if found is not None or EXTENTS[key][0] != "pinned"}
    return rows(columns, len(context.geometry.page_classes)) if columns["ndirty"] is not None else None


def _extent_column(context: Context, view: View, state: str, member: str) -> Optional[List[int]]:
    path = "extents_%s.%s" % (state, member)
    if view.has(path):
        return view.array(path)
    start = "%secache_%s." % (arena_list.PAC, state)
    esets = ("eset.bin_stats", "guarded_eset.bin_stats")
    return added([column(view, start + eset, member, context.geometry.little_endian) for eset in esets])


def read_destroyed(context: Context) -> Optional[Figures]:
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
    figures: Figures = {"nthreads": view["nthreads"], "uptime_ns": stats.get("astats.uptime.ns", "astats.uptime")}
    figures["dss"] = context.target.text_at(view["dss"])
    for key in ("dirty_decay_ms", "muzzy_decay_ms", "pactive", "pdirty", "pmuzzy"):
        figures[key] = view[key]
    pac = "astats.pa_shard_stats.pac_stats." if new else "astats."
    figures.update((key, stats.get(pac + path)) for key, path in PURGES.items())
    figures["small"] = {key: stats.get(key + "_small") for key in SMALL}
    figures["large"] = {key: stats.get("astats.%s_large" % key) for key in SMALL}
    figures["large"]["nfills"] = figures["large"]["nmalloc"]
    figures.update(_destroyed_memory(stats, pac, new))
    figures["mutexes"] = _destroyed_mutexes(stats, stats.has("hpastats"))
    figures["bins"] = _destroyed_bins(stats, context.geometry.nbins)
    large = {key: column(stats, "lstats", key, order) for key in ("curlextents", "nmalloc", "ndalloc", "nrequests")}
    figures["lextents"] = rows(large, len(context.geometry.size_classes) - context.geometry.nbins)
    if stats.has("estats"):
        figures["extents"] = rows({key: column(stats, "estats", key, order) for key in EXTENTS}, len(context.geometry.page_classes))
    if stats.has("hpastats"):
        sec = _destroyed_sec(stats)
        figures["hpa_shard"] = stats_hpa.read(
            context, stats_hpa.CounterPath(stats, "hpastats.psset_stats.", "hpastats.nonderived_stats.", True), sec
        )
        if "sec_bytes" not in figures["hpa_shard"]:
            figures["sec_bytes"] = sec.bytes
    return figures


def _destroyed_memory(stats: View, pac: str, new: bool) -> Figures:
    paths = {"mapped": "astats.mapped", "retained": pac + "retained", "abandoned_vm": pac + "abandoned_vm"}
    if stats.has(pac + "pinned"):
        paths["pinned"] = pac + "pinned"
    paths["extent_avail"] = "astats.pa_shard_stats.edata_avail" if new else "astats.extent_avail"
    return {key: stats.get(paths.get(key, "astats." + key)) for key in MEMORY if key in paths or stats.has("astats." + key)}


def _destroyed_mutexes(stats: View, has_hpa: bool) -> Dict[str, mutexes.Counters]:
    keys = mutexes.names(has_hpa, stats.has("astats.pa_shard_stats.pac_stats.pinned"))
    return {name: mutexes.copied(stats.view("astats.mutex_prof_data", at), "") for at, name in enumerate(keys)}


def _destroyed_bins(stats: View, nbins: int) -> List[Figures]:
    bins = []
    for szind in range(nbins):
        view = stats.view("bstats", szind)
        start = "stats_data." if view.has("stats_data") else ""
        row: Figures = {key: view[start + member] for key, member in COUNTERS if view.has(start + member)}
        row["mutex"] = mutexes.copied(view, "mutex_data.")
        bins.append(row)
    return bins


def _destroyed_sec(stats: View) -> stats_hpa.Sec:
    start = "hpastats.secstats." if stats.has("hpastats.secstats") else "secstats."
    totals = {member: stats.get(start + "total." + member) or 0 for _, member in stats_hpa.SEC_KEYS}
    return stats_hpa.Sec(stats.get(start + "bytes") or 0, totals, mutexes.none())
