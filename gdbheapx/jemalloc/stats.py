"""Compute the figures of malloc_stats_print from memory, and write its text: nothing is called, no epoch is advanced.

The text has its words, order and columns (stats.c, emitter.h). Unknown values show as `unknown`, in tables as `-`."""

from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.columns import add_values
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.arenas import (
    EXTENT_STATES,
    PAC,
    UNUSED_STATES,
    ArenaHandle,
    ArenaView,
    JemallocContext,
    MutexCounters,
    add_lists,
    list_arena_mutexes,
    make_mutex_counters,
    make_rows,
    merge_mutexes,
    read_arena_mutexes,
    read_mutex,
    read_mutex_at,
)
from gdbheapx.jemalloc.decay import BackgroundState, read_background
from gdbheapx.jemalloc.layouts import choose_print_form, list_config_names, merges_no_large_flushes, shards_bins, shows_system
from gdbheapx.jemalloc.options import (
    ENUM_NAMES,
    OPTIONS,
    Config,
    OptionValue,
    name_enum_value,
    read_config,
    read_jemalloc_option,
    read_running,
)
from gdbheapx.jemalloc.symbols import read_words
from gdbheapx.jemalloc.threads import CountedCaches
from gdbheapx.layout.view import LayoutView

SLAB_PARTS = ("npageslabs", "nactive", "ndirty")
SLAB_KINDS = (("huge", 1), ("nonhuge", 0))
"""How the second index of each table of slabs is called (psset.h)."""
HPA_PURGES = ("npurge_passes", "npurges", "nhugifies", "nhugify_failures", "ndehugifies")
SEC_KEYS = (
    ("sec_hits", "nhits"),
    ("sec_misses", "nmisses"),
    ("sec_dalloc_noflush", "ndalloc_noflush"),
    ("sec_dalloc_flush", "ndalloc_flush"),
    ("sec_overfills", "noverfills"),
)
"""Of the small extent cache from 5.3.1."""
HPA_ALLOC_KEYS = ("min_extents", "max_extents", "extents", "ps", "pages_per_ps", "extents_per_ps", "total_elapsed_ns_per_ps")
"""What came of requests to the HPA, by number (hpa_shard_nonderived_stats_t after 5.3.1)."""
MAX_SEC_BINS = 1 << 16

Figures = Dict[str, Any]
"""Keys and nesting of malloc_stats_print; besides its keys those that its text alone has: `nslabs` of bins, `nmalloc`, `ndalloc`,
`nrequests` of lextents."""


SecStats = Tuple[int, Dict[str, int], MutexCounters]
"""Bytes, counters by member, and locks of the small extent cache of one arena."""


def count_slab_pages(context: JemallocContext) -> Optional[int]:
    """HUGEPAGE_PAGES, by the bitmap that has one bit for each (hpdata.h)."""
    bitmap = context.types.place("hpdata_s", "active_pages")
    return bitmap.size_bytes * bitmap.count * 8 if bitmap is not None else None


def count_hpa_dirty(view: ArenaView) -> int:
    """psset_ndirty of an arena that ever used huge pages; 5.3.1 and later count them among its dirty pages (pa_extra.c:
    pa_shard_ndirty)."""
    return view.get(view.find_hpa_path() + "psset.stats.merged.ndirty") or 0 if view.get("pa_shard.ever_used_hpa") else 0


def read_hpa_stats(context: JemallocContext, view: LayoutView, slabs: str, purges: str, used: bool, sec: SecStats) -> Figures:
    """`hpa_shard` of malloc_stats_print: of the psset_stats_t at `slabs` and the hpa_shard_nonderived_stats_t at `purges`.

    not `used`: nothing was ever counted there, all is 0 (pa_extra.c: pa_shard_stats_merge).
    """
    row: Figures = {}
    paths = {key: purges + key for key in HPA_PURGES if view.has(purges + key)}
    tables, per_slab = ["full_slabs", "empty_slabs", "nonfull_slabs"], None
    if view.has(slabs + "merged"):
        row = {"sec_bytes": sec[0], **{key: sec[1].get(member, 0) for key, member in SEC_KEYS}}
        paths = {**{part: "%smerged.%s" % (slabs, part) for part in SLAB_PARTS}, **paths}
        tables, per_slab = ["slabs", *tables], count_slab_pages(context)
    row.update({key: view.get(path) if used else 0 for key, path in paths.items()})
    for name in tables:
        columns = {part: view.column(slabs + name, part) or [] for part in SLAB_PARTS}
        rows = []
        for first in range(0, len(columns["ndirty"]), 2):  # pairs of (not huge, huge)
            pair = {"%s_%s" % (part, kind): columns[part][first + at] if used else 0 for kind, at in SLAB_KINDS for part in SLAB_PARTS}
            if per_slab is not None:
                pair["nretained_nonhuge"] = pair["npageslabs_nonhuge"] * per_slab - pair["nactive_nonhuge"] - pair["ndirty_nonhuge"]
            rows.append(pair)
        row[name] = rows if name == "nonfull_slabs" else rows[0]
    if view.has(purges + "hpa_alloc_ps"):
        counts = {key: view.array("%shpa_alloc_%s" % (purges, key)) for key in HPA_ALLOC_KEYS}
        row["extent_allocation_distribution"] = [
            {key: column[at] if used else 0 for key, column in counts.items()} for at in range(len(counts["ps"]))
        ]
    return row


def read_sec(context: JemallocContext, view: ArenaView) -> SecStats:
    """Its bytes, counters and locks over all its shards or bins; empty where it was never used (sec.c: sec_stats_merge)."""
    shard = view.find_hpa_path()
    empty: SecStats = 0, {}, make_mutex_counters()
    if not view.get("pa_shard.ever_used_hpa"):
        return empty
    if view.has("pa_shard.hpa_sec.shards"):
        struct, start, count = "sec_shard_s", view["pa_shard.hpa_sec.shards"], view["pa_shard.hpa_sec.opts.nshards"]
    elif view.has(shard + "sec.bins"):
        struct, start = "sec_bin_s", view[shard + "sec.bins"]
        count = view[shard + "sec.opts.nshards"] * view[shard + "sec.npsizes"]
    else:
        return empty
    if not start or struct not in context.types.structs or not 0 < count <= MAX_SEC_BINS:
        return empty
    try:
        parts = context.read_array(struct, start, count)
    except UnreadableMemory as problem:
        what = "cannot read the small extent cache of the arena at 0x%x" % view.address
        context.report(codes.STATISTICS_UNREADABLE, problem.address, what, None)
        return empty
    totals = {member: sum(part.get("stats." + member) or 0 for part in parts) for _, member in SEC_KEYS}
    return sum(part["bytes_cur"] for part in parts), totals, merge_mutexes(read_mutex(part, "mtx") for part in parts)


BIN_COUNTERS = (
    *((name, name) for name in ("nmalloc", "ndalloc", "curregs", "nrequests", "nfills", "nflushes")),
    ("nreslabs", "reslabs"),
    *((name, name) for name in ("curslabs", "nonfull_slabs", "nslabs")),
)
"""Key of malloc_stats_print -> member of bin_stats_s; `nslabs` is in its text alone."""
GAP_BYTES = 1 << 16
"""Bins closer than this are read at once with what lies between them."""
TOTAL_KEYS = ("nmalloc", "ndalloc", "nrequests", "nfills", "nflushes")
PURGE_COUNTERS = {
    "%s_%s" % (state, counter): "decay_%s.%s" % (state, counter) for state in UNUSED_STATES for counter in ("npurge", "nmadvise", "purged")
}
"""Key of malloc_stats_print -> member of the counters of pages."""
DESTROYED = 1
"""Its place in ctl_arenas->arenas; 0 is the sum."""
EXTENT_COUNTERS = {key % state: (state, member) for key, member in (("n%s", "nextents"), ("%s_bytes", "nbytes")) for state in EXTENT_STATES}
"""Key of malloc_stats_print -> (state of extents, member of their counters)."""
SMALL_KEYS = ("allocated", *TOTAL_KEYS)
MEMORY_KEYS = (
    *("mapped", "retained", "pinned", "base", "internal", "metadata_edata", "metadata_rtree", "metadata_thp", "tcache_bytes"),
    *("tcache_stashed_bytes", "resident", "abandoned_vm", "extent_avail"),
)
"""Bytes by kind, in the order of malloc_stats_print."""


def read_bin_stats(context: JemallocContext, arena: LayoutView) -> List[Figures]:
    """Make a row for each bin, by szind. Unreadable if the bins cannot be found; an unreadable one is reported, its figures None."""
    addresses = context.jemalloc.find_bin_addresses(arena)
    struct = context.jemalloc.bin_struct
    by_address = context.read_views(struct, (address for shards in addresses for address in shards), GAP_BYTES)
    lock = "lock" if context.types.place(struct, "lock") is not None else "mtx"
    bins = []
    for szind, shards in enumerate(addresses):
        missing = next((address for address in shards if address not in by_address), None)
        if missing is not None:
            what = "cannot read bin %d of the arena at 0x%x" % (szind, arena.address)
            context.report(codes.STATISTICS_UNREADABLE, missing, what, "its figures are missing here")
        bins.append(_make_bin_row([by_address[address] for address in shards] if missing is None else [], "stats.", lock + ".prof_data."))
    return bins


def _make_bin_row(shards: Sequence[LayoutView], stats: str, lock: str) -> Figures:
    """Make the row of a bin from its shards; `stats` and `lock`: how the paths of their counters and those of their lock begin."""
    row: Figures = {}
    for key, member in BIN_COUNTERS:
        if shards and not shards[0].has(stats + member):
            continue  # nonfull_slabs came with 5.2.0
        row[key] = sum(shard[stats + member] for shard in shards) if shards else None
    row["mutex"] = merge_mutexes(read_mutex_at(shard, lock) for shard in shards) if shards else make_mutex_counters(None)
    return row


def read_arena_stats(context: JemallocContext, arena: ArenaHandle, cached: CountedCaches, now_ns: Optional[int]) -> Figures:
    """Read an entry of `stats.arenas`. Unreadable if the arena is; None for what this build lacks or memory does not show.

    now_ns: CLOCK_MONOTONIC; None on a core, where uptime_ns is not known then.
    """
    view = arena.read()
    base = context.read_base(view)
    bins = read_bin_stats(context, view)
    figures: Figures = {}
    if view.has("name"):
        figures["name"] = view.bytes_of("name").split(b"\0")[0].decode("ascii", "replace")
    created, dirty = view.get("create_time.ns", "create_time"), view.count_pages("dirty")
    figures["nthreads"] = view.get("nthreads[0]")
    figures["uptime_ns"] = None if now_ns is None or created is None else max(0, now_ns - created)
    figures["dss"] = name_enum_value("dss", view.get("dss_prec"))
    figures.update({"%s_decay_ms" % state: view.read_decay_ms(state) for state in UNUSED_STATES})
    figures["pactive"] = view.count_pages("active")
    figures["pdirty"] = None if dirty is None else dirty + count_hpa_dirty(view)  # from 5.3.1 with the dirty pages of the HPA
    figures["pmuzzy"] = view.count_pages("muzzy")
    figures.update({key: view.get("stats.pa_shard_stats.pac_stats." + path, "stats." + path) for key, path in PURGE_COUNTERS.items()})
    small_bytes = add_values(row["curregs"] and row["curregs"] * info.reg_size_bytes for row, info in zip(bins, context.geometry.bins))
    figures["small"] = {"allocated": small_bytes, **{key: add_values(row.get(key) for row in bins) for key in TOTAL_KEYS}}
    figures["large"], large = _read_large(context, view)
    figures.update(_read_memory(context, view, base, cached))
    sec = read_sec(context, view)
    figures["mutexes"] = read_arena_mutexes(view, base, sec[2])
    figures["bins"] = bins
    figures["lextents"] = large
    extents = _read_extent_stats(context, view)
    if extents is not None:
        figures["extents"] = extents
    shard, used = view.find_hpa_path(), bool(view.get("pa_shard.ever_used_hpa"))
    if view.has(shard + "psset.stats"):
        hpa = read_hpa_stats(context, view, shard + "psset.stats.", shard + "stats.", used, sec)
        if "sec_bytes" not in hpa:
            figures["sec_bytes"] = sec[0]
        figures["hpa_shard"] = hpa
    return figures


def _read_large(context: JemallocContext, view: ArenaView) -> Tuple[Figures, List[Figures]]:
    """`large` and `lextents`: curlextents is what was allocated less what was freed; nrequests leaves out, in memory, what went past the
    thread caches. Allocated is the sum of active_bytes from 5.3.1, before of curlextents times the size class."""
    names = ("nmalloc", "ndalloc", "nrequests", "active_bytes", "nflushes")
    made, freed, cached, active, flushed = (view.column("stats.lstats", name) for name in names)
    rows: List[Figures] = []
    if made is not None and freed is not None and cached is not None:
        current = [(a - b) % (1 << 64) for a, b in zip(made, freed)]
        rows = make_rows({"curlextents": current, "nmalloc": made, "ndalloc": freed, "nrequests": add_lists([made, cached])}, len(made))
    sizes = context.geometry.size_classes[context.geometry.nbins :]
    allocated = sum(active) if active is not None else sum(row["curlextents"] * size for row, size in zip(rows, sizes))
    sums = {key: sum(row[key] for row in rows) for key in ("nmalloc", "ndalloc", "nrequests")}
    return {"allocated": allocated, **sums, "nfills": sums["nmalloc"], "nflushes": sum(flushed) if flushed is not None else None}, rows


def _read_memory(context: JemallocContext, view: ArenaView, base: Optional[LayoutView], cached: CountedCaches) -> Figures:
    page, memory = context.geometry.page_bytes, context.read_arena_memory(view, base)
    figures: Figures = {"mapped": context.add_mapped_bytes([memory["mapped"]])}
    for state in ("retained", "pinned"):
        count = view.count_pages(state)
        if count is not None or state == "retained":
            figures[state] = None if count is None else count * page
    figures.update({"base": memory["base"], "internal": memory["internal"]})
    if base is not None and base.has("edata_allocated"):
        figures["metadata_edata"], figures["metadata_rtree"] = base.get("edata_allocated"), base.get("rtree_allocated")
    figures["metadata_thp"] = base.get("n_thp") if base is not None else None
    figures["tcache_bytes"] = cached[0]
    if "edata_s" in context.types.structs:
        figures["tcache_stashed_bytes"] = cached[1]
    figures["resident"] = add_values([memory["resident"], count_hpa_dirty(view) * page])
    figures["abandoned_vm"] = view.get("stats.pa_shard_stats.pac_stats.abandoned_vm", "stats.abandoned_vm")
    figures["extent_avail"] = view.get("pa_shard.edata_cache.count", "extent_avail_cnt")
    return figures


def _read_extent_stats(context: JemallocContext, view: ArenaView) -> Optional[List[Figures]]:
    """Unused extents by page size class and state; None in builds that do not count them (5.0, 5.1)."""
    columns = {}
    for key, (state, member) in EXTENT_COUNTERS.items():
        path = "extents_%s.%s" % (state, member)
        if view.has(path):
            found: Optional[List[int]] = view.array(path)
        else:
            esets = ["%secache_%s.%s.bin_stats" % (PAC, state, eset) for eset in ("eset", "guarded_eset")]
            found = add_lists([view.column(eset, member) for eset in esets])
        if found is not None or state != "pinned":
            columns[key] = found
    return make_rows(columns, len(context.geometry.page_classes)) if columns["ndirty"] is not None else None


def read_destroyed_stats(context: JemallocContext) -> Optional[Figures]:
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
        return _make_destroyed(context, view, context.view("ctl_arena_stats_s", view["astats"]))
    except UnreadableMemory as problem:
        what = "cannot read the counters of destroyed arenas"
        context.report(codes.STATISTICS_UNREADABLE, problem.address, what, "`destroyed` is missing here")
        return None


def _make_destroyed(context: JemallocContext, view: LayoutView, stats: LayoutView) -> Figures:
    new = stats.has("astats.pa_shard_stats")
    figures: Figures = {"nthreads": view["nthreads"], "uptime_ns": stats.get("astats.uptime.ns", "astats.uptime")}
    figures["dss"] = context.target.text_at(view["dss"])
    for key in ("dirty_decay_ms", "muzzy_decay_ms", "pactive", "pdirty", "pmuzzy"):
        figures[key] = view[key]
    pac = "astats.pa_shard_stats.pac_stats." if new else "astats."
    figures.update((key, stats.get(pac + path)) for key, path in PURGE_COUNTERS.items())
    figures["small"] = {key: stats.get(key + "_small") for key in SMALL_KEYS}
    figures["large"] = {key: stats.get("astats.%s_large" % key) for key in SMALL_KEYS}
    figures["large"]["nfills"] = figures["large"]["nmalloc"]
    paths = {"mapped": "astats.mapped", "retained": pac + "retained", "abandoned_vm": pac + "abandoned_vm"}
    if stats.has(pac + "pinned"):
        paths["pinned"] = pac + "pinned"
    paths["extent_avail"] = "astats.pa_shard_stats.edata_avail" if new else "astats.extent_avail"
    memory = {key: paths.get(key, "astats." + key) for key in MEMORY_KEYS}
    figures.update((key, stats.get(path)) for key, path in memory.items() if key in paths or stats.has(path))
    locks = list_arena_mutexes(stats.has("hpastats"), stats.has("astats.pa_shard_stats.pac_stats.pinned"))
    figures["mutexes"] = {name: read_mutex_at(stats.view("astats.mutex_prof_data", at), "") for at, name in enumerate(locks)}
    shards = [stats.view("bstats", szind) for szind in range(context.geometry.nbins)]
    figures["bins"] = [_make_bin_row([own], "stats_data." if own.has("stats_data") else "", "mutex_data.") for own in shards]
    large = {key: stats.column("lstats", key) for key in ("curlextents", "nmalloc", "ndalloc", "nrequests")}
    figures["lextents"] = make_rows(large, len(context.geometry.size_classes) - context.geometry.nbins)
    if stats.has("estats"):
        extents = {key: stats.column("estats", key) for key in EXTENT_COUNTERS}
        figures["extents"] = make_rows(extents, len(context.geometry.page_classes))
    if stats.has("hpastats"):
        start = "hpastats.secstats." if stats.has("hpastats.secstats") else "secstats."
        totals = {member: stats.get(start + "total." + member) or 0 for _, member in SEC_KEYS}
        sec = stats.get(start + "bytes") or 0, totals, make_mutex_counters()
        figures["hpa_shard"] = read_hpa_stats(context, stats, "hpastats.psset_stats.", "hpastats.nonderived_stats.", True, sec)
        if "sec_bytes" not in figures["hpa_shard"]:
            figures["sec_bytes"] = sec[0]
    return figures


TEXT_ONLY = {"bins": ("nslabs",), "lextents": ("nmalloc", "ndalloc", "nrequests")}
"""Counters that malloc_stats_print shows in its text and not in its JSON."""


def merge_arena_stats(context: JemallocContext, entries: Sequence[Figures]) -> Figures:
    """Sum these arenas, arena 0 first. Names and decay times are dropped; uptime is arena 0's."""
    merged: Figures = _sum_entries([{key: value for key, value in entry.items() if key != "name"} for entry in entries])
    merged["mapped"] = context.add_mapped_bytes([entry.get("mapped") for entry in entries])
    merged["uptime_ns"] = entries[0]["uptime_ns"]
    merged["dss"] = ENUM_NAMES["dss"][-1]
    merged["dirty_decay_ms"] = merged["muzzy_decay_ms"] = -1
    if merges_no_large_flushes(context.jemalloc.version):
        merged["large"]["nflushes"] = 0
    return merged


def _sum_entries(entries: Sequence[Any]) -> Any:
    """Element-wise through dicts and lists; None where one is not known. Locks are merged by their own rule."""
    first = entries[0]
    if isinstance(first, dict):
        if "num_ops" in first:
            return merge_mutexes(entries)
        return {key: _sum_entries([entry.get(key) for entry in entries]) for key in first}
    if isinstance(first, list):
        shortest = min(len(entry) if entry else 0 for entry in entries)
        return [_sum_entries([entry[place] for entry in entries]) for place in range(shortest)]
    return None if isinstance(first, str) else add_values(entries)


def read_malloc_stats(
    context: JemallocContext,
    listed: Sequence[ArenaHandle],
    cached: Mapping[int, CountedCaches],
    now_ns: Optional[int],
    held_bytes: Optional[int],
) -> "JemallocStats":
    """Everything. `cached`: by arena index, what thread caches hold; an arena that it lacks gets None."""
    config, version = read_config(context, listed), context.jemalloc.version
    running = read_running(context)
    figures: Figures = {"version": context.jemalloc.version_text, "config": {}}
    for name in list_config_names(version):
        if name in config:
            figures["config"][name] = config[name]
        if name == "lazy_lock":
            figures["config"]["malloc_conf"] = read_jemalloc_option(context, "pointer", "config_malloc_conf")[1]
    if context.symbols.find("init_system_thp_mode") is not None and shows_system(version):
        mode = context.variable("init_system_thp_mode", 4)
        figures["system"] = {"thp_mode": name_enum_value("system_thp", mode)}
    figures["opt"] = _read_options(context, config) or (None if context.symbols.by_structure else {})
    if config["prof"] is not False:
        names = ("thread_active_init", "active", "gdump", "interval", "lg_sample")
        figures["prof"] = {name: running["prof." + name] for name in names}
    figures["arenas"] = _read_constants(context, running)
    counts = config["stats"] is not False
    if context.jemalloc.is_partial:
        figures["stats"] = dict.fromkeys(("allocated", "active", "metadata", "resident", "mapped", "retained"))
    elif counts:
        background, entries = read_background(context), {}
        for arena in listed:
            if context.budget.expired():
                break
            try:
                entries[str(arena.index)] = read_arena_stats(context, arena, cached.get(arena.index, (None, None)), now_ns)
            except UnreadableMemory as problem:
                arena.report_unreadable(problem)
        figures["stats"] = _add_totals(context, entries, background)
        shown: Dict[str, Optional[Figures]] = {}
        if len(entries) > 1:  # stats.c: stats_print_helper
            shown["merged"] = merged = merge_arena_stats(context, list(entries.values()))
            if context.variable("opt_prof", 1) and context.variable("opt_prof_stats", 1):
                _add_profiled(context, merged["bins"] + merged["lextents"])
        destroyed = read_destroyed_stats(context)
        if destroyed is not None or context.symbols.by_structure:  # only jemalloc's own copy has them, which symbols alone lead to
            shown["destroyed"] = destroyed
        figures["stats.arenas"] = {**shown, **entries}
    form, page_classes = choose_print_form(version), context.geometry.page_classes
    return JemallocStats(figures, running, counts, form, page_classes, count_slab_pages(context), held_bytes)


def _read_options(context: JemallocContext, config: Config) -> Figures:
    figures: Figures = {}
    if context.symbols.find("opt_malloc_conf_env_var") is not None:
        for name, variable in zip(CONF_TITLES, ("malloc_conf", "opt_malloc_conf_symlink", "opt_malloc_conf_env_var")):
            figures[name] = read_jemalloc_option(context, "pointer", variable)[1] or ""
    for option in OPTIONS:
        if option.needs is None or config.get(option.needs) is not False:
            has, value = read_jemalloc_option(context, option.kind, option.variable)
            if has:
                figures[option.name] = value
    return figures


def _read_constants(context: JemallocContext, running: Dict[str, OptionValue]) -> Figures:
    """`arenas` of malloc_stats_print: what configure and the options fixed."""
    geometry = context.geometry
    sizes = geometry.size_classes
    figures: Figures = {
        "narenas": count_arenas(context),
        "dirty_decay_ms": running["arenas.dirty_decay_ms"],
        "muzzy_decay_ms": running["arenas.muzzy_decay_ms"],
        "quantum": next((size for size in sizes if 3 * size in sizes), None),
        "page": geometry.page_bytes,
    }
    if shows_system(context.jemalloc.version):
        pages = count_slab_pages(context)
        figures["hugepage"] = None if pages is None else pages * geometry.page_bytes
    figures["tcache_max"] = _read_first(context, ("global_do_not_change_tcache_maxclass", "tcache_maxclass"), geometry.word_bytes)
    figures["nbins"] = geometry.nbins
    figures["nhbins"] = _read_first(context, ("global_do_not_change_tcache_nbins", "nhbins"), 4)
    figures["bin"] = [{"size": info.reg_size_bytes, "nregs": info.nregs, "slab_size": info.slab_size_bytes} for info in geometry.bins]
    if shards_bins(context.jemalloc.version):
        for row, info in zip(figures["bin"], geometry.bins):
            row["nshards"] = info.shards
    figures["nlextents"] = len(sizes) - geometry.nbins
    figures["lextent"] = [{"size": size} for size in sizes[geometry.nbins :]]
    return figures


def _read_first(context: JemallocContext, names: Sequence[str], size_bytes: int) -> Optional[int]:
    return next((context.variable(name, size_bytes) for name in names if context.symbols.find(name) is not None), None)


def count_arenas(context: JemallocContext) -> Optional[int]:
    """arenas.narenas: the count that mallctl knows (ctl_arenas->narenas), before its first use narenas_total. None where neither has a
    name: arenas that were never made are counted too."""
    pointer = context.variable("ctl_arenas")
    if pointer:
        try:
            return context.view("ctl_arenas_s", pointer)["narenas"]
        except (UnreadableMemory, KeyError):
            pass
    return None if context.symbols.by_structure else context.geometry.narenas


def _add_profiled(context: JemallocContext, rows: List[Figures]) -> None:
    """Add the counts of sampled allocations by szind (opt.prof_stats, prof_stats.c, from 5.3.0)."""
    for kind in ("live", "accum"):
        symbol = context.symbols.find("prof_stats_%s" % kind)
        counted: List[int] = []
        if symbol is not None:
            try:
                counted = read_words(context.target, symbol.address, 2 * len(rows), 8)
            except UnreadableMemory as problem:
                what = "cannot read jemalloc's statistics of sampled allocations"
                context.report(codes.STATISTICS_UNREADABLE, problem.address, what, None)
        for szind, row in enumerate(rows):
            row["prof_%s_requested" % kind], row["prof_%s_count" % kind] = counted[2 * szind : 2 * szind + 2] or (None, None)


def _add_totals(context: JemallocContext, entries: Dict[str, Figures], known: BackgroundState) -> Figures:
    """`stats`: the sums over all arenas."""
    rows: List[Figures] = list(entries.values())
    active = add_values([row["pactive"] for row in rows])
    figures: Figures = {
        "allocated": add_values([row[kind]["allocated"] for row in rows for kind in ("small", "large")]),
        "active": None if active is None else active * context.geometry.page_bytes,
        "metadata": add_values([row[key] for row in rows for key in ("base", "internal")]),
    }
    for key in ("metadata_edata", "metadata_rtree", "metadata_thp", "resident", "mapped", "retained", "pinned"):
        if any(key in row for row in rows):
            figures[key] = add_values([row.get(key) for row in rows])
    figures["mapped"] = context.add_mapped_bytes([row.get("mapped") for row in rows])
    is_unknown = context.symbols.by_structure and "tcache_slow_s" in context.types.structs  # 5.3.0 brought both
    if context.symbols.find("zero_realloc_count") is not None or is_unknown:
        figures["zero_reallocs"] = context.variable("zero_realloc_count")
    on = known.enabled
    threads = {"num_threads": known.count, "num_runs": known.runs, "run_interval": known.run_interval_ns}
    figures["background_thread"] = threads if on else dict.fromkeys(threads, 0 if on is False else None)
    locks = [thread.mutex for thread in known.running] if on else []
    figures["mutexes"] = context.read_global_mutexes([make_mutex_counters(None)] if known.named else locks)
    return figures


# ---------------------------------------------------------------------------------------------------- its text (emitter.h)

Cells = Sequence[Tuple[Any, int]]
"""(value, width); a negative width aligns to the left."""

GAP = " " * 21 + "---"
"""Replaces a run of empty rows."""
RATE_TITLE = "(#/sec)"


def format_line(cells: Cells) -> str:
    """Format a row of cells."""
    texts = [("-" if value is None else str(value), width) for value, width in cells]
    return "".join(text.ljust(-width) if width < 0 else text.rjust(width) for text, width in texts)


def compute_rate(value: Optional[int], uptime_ns: Optional[int]) -> Optional[int]:
    """Per second of uptime, as rate_per_second rounds; None where the uptime is not known."""
    if value is None or uptime_ns is None:
        return None
    if uptime_ns == 0 or value == 0:
        return 0
    return value if uptime_ns < 10**9 else value // (uptime_ns // 10**9)


class StatsColumn(NamedTuple):
    """A column, followed by its rate."""

    key: str
    """Of the figure."""
    width: int
    rate_width: int = 0
    """0: there is no rate."""
    title: Optional[str] = None
    """None: as the key."""


NAME_COLUMN = StatsColumn("name", -21, title="")
MUTEX_COLUMNS = (
    StatsColumn("num_ops", 16, 8, "n_lock_ops"),
    StatsColumn("num_wait", 16, 8, "n_waiting"),
    StatsColumn("num_spin_acq", 16, 8, "n_spin_acq"),
    StatsColumn("num_owner_switch", 16, 8, "n_owner_switch"),
    StatsColumn("total_wait_time", 16, 10, "total_wait_ns"),
    StatsColumn("max_wait_time", 16, title="max_wait_ns"),
    StatsColumn("max_num_thds", 12, title="max_n_thds"),
)


def _format_header(columns: Sequence[StatsColumn]) -> str:
    cells: List[Tuple[Any, int]] = []
    for column in columns:
        cells.append((column.key if column.title is None else column.title, column.width))
        if column.rate_width:
            cells.append((RATE_TITLE, column.rate_width))
    return format_line(cells)


def _format_row(columns: Sequence[StatsColumn], row: Figures, uptime_ns: Optional[int] = None) -> str:
    cells: List[Tuple[Any, int]] = []
    for column in columns:
        cells.append((row[column.key], column.width))
        if column.rate_width:
            cells.append((compute_rate(row[column.key], uptime_ns), column.rate_width))
    return format_line(cells)


def write_mutexes(found: Dict[str, Figures], uptime_ns: Optional[int]) -> Iterator[str]:
    """Locks by name."""
    columns = (NAME_COLUMN, *MUTEX_COLUMNS)
    yield _format_header(columns)
    for name, row in found.items():
        yield _format_row(columns, {**row, "name": name}, uptime_ns)


def format_utilization(used: Optional[int], available: Optional[int]) -> Optional[str]:
    """Share of regions in use: cut, not rounded, to three digits (get_rate_str)."""
    if used is None or available is None:
        return None
    if available == 0:
        return "1"
    if used > available:
        return " race"
    thousandths = used * 1000 // available
    return "1" if thousandths >= 1000 else "0.%03d" % thousandths


PROF_COLUMNS = (
    *(StatsColumn("prof_live_requested", 21), StatsColumn("prof_live_count", 17)),
    *(StatsColumn("prof_accum_requested", 21), StatsColumn("prof_accum_count", 17)),
)


def _list_prof_columns(rows: Sequence[Figures]) -> Sequence[StatsColumn]:
    return PROF_COLUMNS if rows and "prof_live_count" in rows[0] else ()


def _write_table(
    title: str, columns: Sequence[StatsColumn], rows: Iterable[Tuple[bool, Figures]], uptime_ns: Optional[int] = None, skip: bool = True
) -> Iterator[str]:
    """Write a table; `rows` have with each whether it is empty. A gap replaces a run of those."""
    yield title + _format_header(columns)[len(title) :]
    empty = False
    for is_empty, row in rows:
        if empty and not is_empty:
            yield GAP
        empty = is_empty
        if not (empty and skip):
            yield _format_row(columns, row, uptime_ns)
    if empty:
        yield GAP


SIZE_COLUMNS = (StatsColumn("size", 20), StatsColumn("ind", 4))


def write_bins(
    rows: Sequence[Figures], infos: Sequence[Figures], page: int, uptime_ns: Optional[int], width: int, skip: bool
) -> Iterator[str]:
    """`bins:`: one row per small size class."""
    columns = (
        *(*SIZE_COLUMNS, StatsColumn("allocated", width), StatsColumn("nmalloc", width, 8), StatsColumn("ndalloc", width, 8)),
        *(StatsColumn("nrequests", width if width == 13 else width + 1, 10), *_list_prof_columns(rows)),
        *(StatsColumn("nshards", 9), StatsColumn("curregs", 13), StatsColumn("curslabs", 13), StatsColumn("nonfull_slabs", 15)),
        *(StatsColumn("regs", 5), StatsColumn("pgs", 4), StatsColumn("util", 7)),
        *(StatsColumn("nfills", 13, 8), StatsColumn("nflushes", 13, 8), StatsColumn("nslabs", 13), StatsColumn("nreslabs", 13, 8)),
        *MUTEX_COLUMNS,
    )
    lines = []
    for szind, (row, info) in enumerate(zip(rows, infos)):
        regions, slabs, size = row["curregs"], row["curslabs"], info["size"]
        more = {
            "size": size,
            "ind": szind,
            "allocated": None if regions is None else regions * size,
            "nshards": info.get("nshards", 1),
            "nonfull_slabs": row.get("nonfull_slabs"),
            "regs": info["nregs"],
            "pgs": info["slab_size"] // page,
            "util": format_utilization(regions, None if slabs is None else slabs * info["nregs"]),
        }
        lines.append((row["nslabs"] == 0 and not row.get("prof_accum_count"), {**row, **more, **row["mutex"]}))
    yield from _write_table("bins:", columns, lines, uptime_ns, skip)


def write_large(rows: Sequence[Figures], sizes: Sequence[Figures], nbins: int, uptime_ns: Optional[int]) -> Iterator[str]:
    """`large:`: one row per large size class that was ever asked for."""
    counted = (StatsColumn(name, 13, 8) for name in ("nmalloc", "ndalloc", "nrequests"))
    columns = (*SIZE_COLUMNS, StatsColumn("allocated", 13), *counted, *_list_prof_columns(rows), StatsColumn("curlextents", 13))
    lines = []
    for szind, (row, info) in enumerate(zip(rows, sizes), nbins):
        extents, size = row["curlextents"], info["size"]
        more = {"size": size, "ind": szind, "allocated": None if extents is None else extents * size}
        lines.append((row["nrequests"] == 0, {**row, **more}))
    yield from _write_table("large:", columns, lines, uptime_ns)


def write_extents(rows: Sequence[Figures], sizes: Sequence[int]) -> Iterator[str]:
    """`extents:`: unused extents by page size class."""
    states = [state for state in EXTENT_STATES if rows and "n" + state in rows[0]]
    pairs = ((StatsColumn("n" + state, 13), StatsColumn(state + "_bytes", 13, title=state)) for state in (*states, "total"))
    columns = (*SIZE_COLUMNS, *(one for pair in pairs for one in pair))
    lines = []
    for place, (row, size) in enumerate(zip(rows, sizes)):
        sums = {what % "total": add_values(row[what % state] for state in states) for what in ("n%s", "%s_bytes")}
        lines.append((sums["ntotal"] == 0, {**row, **sums, "size": size, "ind": place}))
    yield from _write_table("extents:", columns, lines)


def count_retained(row: Figures, pages_per_slab: Optional[int]) -> Optional[int]:
    """Pages of slabs that are no huge pages and neither active nor dirty."""
    values = [row["npageslabs_nonhuge"], row["nactive_nonhuge"], row["ndirty_nonhuge"]]
    if None in values or (pages_per_slab is None and values[0]):
        return None
    return int(values[0] * (pages_per_slab or 0) - values[1] - values[2])


def write_nonfull_slabs(rows: Sequence[Figures], sizes: Sequence[int], pages_per_slab: Optional[int]) -> Iterator[str]:
    """Page slabs by the size class of their largest free run."""
    kinds = [StatsColumn("%s_%s" % (name, kind), width) for kind, width in (("huge", 16), ("nonhuge", 20)) for name in SLAB_PARTS]
    columns = (*SIZE_COLUMNS, *kinds, StatsColumn("nretained_nonhuge", 20))
    lines = []
    for place, (row, size) in enumerate(zip(rows, sizes)):
        more = {"size": size, "ind": place, "nretained_nonhuge": count_retained(row, pages_per_slab)}
        lines.append((row["npageslabs_huge"] == 0 and row["npageslabs_nonhuge"] == 0, {**row, **more}))
    yield from _write_table("", columns, lines)


OPTION_NOTES = {option.name: option.live for option in OPTIONS if option.live}
"""Option -> the mallctl name whose value is shown after it."""
CONF_TITLES = {
    "global_var": "Global variable malloc_conf",
    "symlink": "Symbolic link malloc.conf",
    "env_var": "Environment variable MALLOC_CONF",
}
ARENA_TITLES = (
    ("narenas", "Arenas"),
    ("quantum", "Quantum size"),
    ("page", "Page size"),
    ("hugepage", "Hugepage size"),
    ("tcache_max", "Maximum thread-cached size class"),
    ("nbins", "Number of bin size classes"),
    ("nhbins", "Number of thread-cache bin size classes"),
    ("nlextents", "Number of large size classes"),
)
HEADINGS = (
    ("config", "Build-time option settings"),
    ("system", "System configuration"),
    ("opt", "Run-time option settings"),
    ("prof", "Profiling settings"),
)
SEC_TITLES = (
    ("sec_bytes", "Bytes in small extent cache"),
    ("sec_hits", "Total hits in small extent cache"),
    ("sec_misses", "Total misses in small extent cache"),
    ("sec_dalloc_noflush", "Dalloc calls without flush in small extent cache"),
    ("sec_dalloc_flush", "Dalloc calls with flush in small extent cache"),
    ("sec_overfills", "sec_fill calls that went over max_bytes"),
)


class JemallocStats(NamedTuple):
    """The figures of malloc_stats_print: the answer of `malloc-stats`."""

    figures: Dict[str, Any]
    """Its JSON's keys and nesting, and the counters that its text alone has."""
    running: Dict[str, Any]
    """The run-time values that its text shows after options, by mallctl name."""
    counts: bool
    """False: a build without statistics, which has neither `stats` nor `stats.arenas`."""
    form: Tuple[int, int, bool]
    """See choose_print_form."""
    page_classes: Sequence[int]
    """Bytes by page size class."""
    pages_per_slab: Optional[int]
    """HUGEPAGE_PAGES."""
    held_bytes: Optional[int]
    """Pages that it holds, by its arenas' own counters."""

    def merged_only(self) -> "JemallocStats":
        """Drop single arenas; a lone one is its own sum."""
        figures = dict(self.figures)
        arenas = figures.get("stats.arenas")
        if arenas:
            merged = arenas.get("merged") or next(entry for name, entry in arenas.items() if name != "destroyed")
            figures["stats.arenas"] = {"merged": merged}
        return self._replace(figures=figures)

    def data(self) -> Dict[str, Any]:
        """The object that malloc_stats_print(..., "J") writes."""
        figures = dict(self.figures)
        if "stats.arenas" in figures:
            figures["stats.arenas"] = {name: entry and _drop_text_only(entry) for name, entry in figures["stats.arenas"].items()}
        return {"jemalloc": figures}

    def lines(self) -> Iterator[str]:
        """Its text."""
        arenas = self.figures.get("stats.arenas") if self.counts else None
        yield "___ Begin jemalloc statistics ___"
        yield from _write_general(self)
        if arenas is not None:
            yield from _write_totals(self.figures["stats"], arenas)
            for name, arena in arenas.items():
                if arena is None:
                    yield "%s arenas stats: unknown" % name.capitalize()
                    continue
                yield "%s arenas stats:" % name.capitalize() if name in ("merged", "destroyed") else "arenas[%s]:" % name
                yield from _write_arena(self, arena)
        yield "--- End jemalloc statistics ---"


def _drop_text_only(entry: Figures) -> Figures:
    public = dict(entry)
    for table, left_out in TEXT_ONLY.items():
        if table in public:
            public[table] = [{key: value for key, value in row.items() if key not in left_out} for row in public[table]]
    if "hpa_shard" in public and "slabs" not in public["hpa_shard"]:
        public["hpa_shard"] = dict(public["hpa_shard"])
        for table in ("full_slabs", "empty_slabs"):  # 5.3.0 gives nactive_huge twice there, and no ndirty_huge
            public["hpa_shard"][table] = {key: value for key, value in public["hpa_shard"][table].items() if key != "ndirty_huge"}
    return public


def _format_value(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    return '"%s"' % value if isinstance(value, str) else str(value)


def _write_general(native: JemallocStats) -> Iterator[str]:
    figures = native.figures
    yield "Version: %s" % _format_value(figures["version"])
    for key, heading in HEADINGS:
        if key in figures:
            yield heading if figures[key] is not None else "%s: unknown" % heading
            for name, value in (figures[key] or {}).items():
                title = CONF_TITLES.get(name) if key == "opt" else None
                note = OPTION_NOTES.get(name) if key == "opt" else None
                beside = " (%s: %s)" % (note, _format_value(native.running[note])) if note else ""
                yield "  %s: %s%s" % (title or "%s.%s" % (key, name), _format_value(value), beside)
    for name, title in ARENA_TITLES:
        if name in figures["arenas"]:
            yield "%s: %s" % (title, _format_value(figures["arenas"][name]))


def _write_totals(stats: Figures, arenas: Dict[str, Optional[Figures]]) -> Iterator[str]:
    shown = {key: _format_value(value) for key, value in stats.items()}
    metadata = "%s (n_thp %s" % (shown["metadata"], shown.get("metadata_thp", "unknown"))
    if "metadata_edata" in stats:
        metadata += ", edata %s, rtree %s" % (shown["metadata_edata"], shown["metadata_rtree"])
    head = "Allocated: %s, active: %s, metadata: %s), resident: %s, mapped: %s, retained: %s"
    numbers = (shown["allocated"], shown["active"], metadata, *(shown.get(key, "unknown") for key in ("resident", "mapped", "retained")))
    yield head % numbers + (", pinned: %s" % shown["pinned"] if "pinned" in stats else "")
    if "zero_reallocs" in stats:
        yield "Count of realloc(non-null-ptr, 0) calls: %s" % shown["zero_reallocs"]
    threads = [_format_value(stats["background_thread"][key]) for key in ("num_threads", "num_runs", "run_interval")]
    yield "Background threads: %s, num_runs: %s, run_interval: %s ns" % tuple(threads)
    uptime = next((arena["uptime_ns"] for arena in arenas.values() if arena is not None), None)
    yield from write_mutexes(stats["mutexes"], uptime)


def _write_arena(native: JemallocStats, arena: Figures) -> Iterator[str]:
    uptime, constants = arena["uptime_ns"], native.figures["arenas"]
    page, (bin_width, rate_width, skips_unused) = constants["page"], native.form
    if "name" in arena:
        yield "name: %s" % _format_value(arena["name"])
    yield "assigned threads: %s" % _format_value(arena["nthreads"])
    yield "uptime: %s" % _format_value(uptime)
    yield "dss allocation precedence: %s" % _format_value(arena["dss"])
    yield format_line([("decaying:", 9), ("time", 6), ("npages", 13), ("sweeps", 13), ("madvises", 13), ("purged", 13)])
    for state in UNUSED_STATES:
        time = arena["%s_decay_ms" % state]
        counters = [(arena["%s_%s" % (state, key)], 13) for key in ("npurge", "nmadvise", "purged")]
        yield format_line([(state + ":", 9), ("N/A" if time is not None and time < 0 else time, 6), (arena["p" + state], 13), *counters])
    columns = (
        *(NAME_COLUMN, StatsColumn("allocated", 16), StatsColumn("nmalloc", 16, rate_width), StatsColumn("ndalloc", 16, rate_width)),
        *(StatsColumn("nrequests", 16, 10), StatsColumn("nfills", 16, 10, "nfill"), StatsColumn("nflushes", 16, 10, "nflush")),
    )
    yield _format_header(columns)
    total = {key: add_values(arena[kind][key] for kind in ("small", "large")) for key in arena["small"]}
    for name, row in (("small:", arena["small"]), ("large:", arena["large"]), ("total:", total)):
        yield _format_row(columns, {**row, "name": name}, uptime)
    yield format_line([("", -21), ("", 16)])
    yield format_line([("active:", -21), (None if arena["pactive"] is None else arena["pactive"] * page, 16)])
    for key in MEMORY_KEYS:
        if key in arena:
            yield format_line([(key + ":", -21), (arena[key], 16)])
    yield from write_mutexes(arena["mutexes"], uptime)
    yield from write_bins(arena["bins"], constants["bin"], page, uptime, bin_width, skips_unused)
    yield from write_large(arena["lextents"], constants["lextent"], len(arena["bins"]), uptime)
    if "extents" in arena:
        yield from write_extents(arena["extents"], native.page_classes)
    if "hpa_shard" in arena:
        yield from _write_hpa(arena, uptime, native)


def _write_hpa(arena: Figures, uptime: Any, native: JemallocStats) -> Iterator[str]:
    shard = arena["hpa_shard"]
    for name, title in SEC_TITLES:
        if name in shard or name in arena:
            yield "%s: %s" % (title, _format_value(shard.get(name, arena.get(name))))
    yield "HPA shard stats:"
    slabs = shard.get("slabs")
    if slabs is not None:
        for title, name in (("Pageslabs", "npageslabs"), ("Active pages", "nactive"), ("Dirty pages", "ndirty")):
            parts = (title, _format_value(shard[name]), _format_value(slabs[name + "_huge"]), _format_value(slabs[name + "_nonhuge"]))
            yield "  %s: %s (%s huge, %s nonhuge)" % parts
        yield "  Retained pages: %s" % _format_value(slabs.get("nretained_nonhuge"))
    for title, name in zip(("Purge passes", "Purges", "Hugeifies", "Hugify failures", "Dehugifies"), HPA_PURGES):
        if name in shard:
            yield "  %s: %s (%s / sec)" % (title, _format_value(shard[name]), compute_rate(shard[name], uptime))
    yield ""
    for title, name in (("full", "full_slabs"), ("empty", "empty_slabs")):
        yield "  In %s slabs:" % title
        row = shard[name]
        for part in SLAB_PARTS:
            end = "" if part == "npageslabs" else " "
            yield "      %s: %s huge, %s nonhuge%s" % (part, _format_value(row[part + "_huge"]), _format_value(row[part + "_nonhuge"]), end)
        yield "      nretained: 0 huge, %s nonhuge " % _format_value(count_retained(row, native.pages_per_slab))
    yield "" if slabs is None else "  In nonfull slabs:"
    yield from write_nonfull_slabs(shard["nonfull_slabs"], native.page_classes, native.pages_per_slab)
