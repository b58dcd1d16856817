"""malloc_stats_print's figures, computed from memory: nothing is called, no epoch is advanced, nothing in the process changes.

Where the process's own output differs from this: jemalloc's JSON puts mutex counters under wrong keys (see mutexes.py), and printing takes
locks and, from 5.3.0, a buffer of its own. Null: `uptime_ns` on a core; build-time options (`config`) that neither debug information nor
a pack tells; `opt` where nothing names an option; what cannot be read.

All arenas as one: the entry `merged` of malloc_stats_print (ctl.c: ctl_arena_stats_sdmerge).
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence

from gdbheapx.columns import add
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import layouts
from gdbheapx.jemalloc.detection.calibrate import words
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.heap.base import mapped_sum
from gdbheapx.jemalloc.purging import background
from gdbheapx.jemalloc.purging.background import Background
from gdbheapx.jemalloc.records import MallocStats
from gdbheapx.jemalloc.stats import arena as stats_arena
from gdbheapx.jemalloc.stats import build_options, options
from gdbheapx.jemalloc.stats import hpa as stats_hpa
from gdbheapx.jemalloc.stats.build_options import Config
from gdbheapx.jemalloc.threads.tcache import Counted

Figures = Dict[str, Any]
TEXT_ONLY = {"bins": ("nslabs",), "lextents": ("nmalloc", "ndalloc", "nrequests")}
"""Counters that malloc_stats_print shows in its text and not in its JSON."""


def merge_arenas(context: Context, entries: Sequence[Figures]) -> Figures:
    """The sum of these arenas, arena 0 first. Names and decay times are nobody's; uptime is arena 0's."""
    merged: Figures = _sum_entries([{key: value for key, value in entry.items() if key != "name"} for entry in entries])
    merged["mapped"] = mapped_sum(context, [entry.get("mapped") for entry in entries])
    merged["uptime_ns"] = entries[0]["uptime_ns"]
    merged["dss"] = options.NAMES["dss"][-1]
    merged["dirty_decay_ms"] = merged["muzzy_decay_ms"] = -1
    if layouts.merges_no_large_flushes(context.jemalloc.version):
        merged["large"]["nflushes"] = 0
    return merged


def _sum_entries(entries: Sequence[Any]) -> Any:
    """Element-wise through dicts and lists; None where one is not known. Locks are merged by their own rule."""
    first = entries[0]
    if isinstance(first, dict):
        if "num_ops" in first:
            return mutexes.merged(entries)
        return {key: _sum_entries([entry.get(key) for entry in entries]) for key in first}
    if isinstance(first, list):
        shortest = min(len(entry) if entry else 0 for entry in entries)
        return [_sum_entries([entry[place] for entry in entries]) for place in range(shortest)]
    return None if isinstance(first, str) else add(entries)


def read(context: Context, listed: Sequence[Arena], cached: Mapping[int, Counted], now_ns: Optional[int]) -> MallocStats:
    """Everything. `cached`: by arena index, what thread caches hold; an arena that it lacks gets None."""
    config = build_options.config(context, listed)
    running = options.running(context)
    figures: Figures = {"version": context.jemalloc.version_text}
    shown: Figures = {name: config[name] for name in layouts.config_names(context.jemalloc.version) if name in config}
    figures["config"] = _with_malloc_conf(context, shown)
    if context.symbols.find("init_system_thp_mode") is not None and layouts.shows_system(context.jemalloc.version):
        mode = context.variable("init_system_thp_mode", 4)
        figures["system"] = {"thp_mode": options.name_of("system_thp", mode)}
    figures["opt"] = _options(context, config) or (None if context.symbols.by_structure else {})
    if config["prof"] is not False:
        names = ("thread_active_init", "active", "gdump", "interval", "lg_sample")
        figures["prof"] = {name: running["prof." + name] for name in names}
    figures["arenas"] = _constants(context, running)
    counts = config["stats"] is not False
    if context.jemalloc.is_partial:
        figures["stats"] = dict.fromkeys(("allocated", "active", "metadata", "resident", "mapped", "retained"))
    elif counts:
        known = background.read(context)
        entries = _arenas(context, listed, cached, now_ns)
        figures["stats"] = _totals(context, entries, known)
        figures["stats.arenas"] = {**_merged(context, entries), **_destroyed(context), **entries}
    return MallocStats(
        figures,
        running,
        counts,
        layouts.print_form(context.jemalloc.version),
        context.geometry.page_classes,
        stats_hpa.pages_per_slab(context),
    )


def _with_malloc_conf(context: Context, config: Figures) -> Figures:
    """config.malloc_conf stands behind lazy_lock."""
    figures: Figures = {}
    for name, value in config.items():
        figures[name] = value
        if name == "lazy_lock":
            place = options.place_of(context, "config_malloc_conf")
            figures["malloc_conf"] = options.value_at(context, "pointer", place) if place is not None else None
    return figures


def _options(context: Context, config: Config) -> Figures:
    figures: Figures = {}
    if context.symbols.find("opt_malloc_conf_env_var") is not None:
        for name, variable in (
            ("global_var", "malloc_conf"),
            ("symlink", "opt_malloc_conf_symlink"),
            ("env_var", "opt_malloc_conf_env_var"),
        ):
            place = options.place_of(context, variable)
            figures[name] = (options.value_at(context, "pointer", place) if place is not None else None) or ""
    for option in options.OPTIONS:
        if option.needs is None or config.get(option.needs) is not False:
            has, value = options.read(context, option)
            if has:
                figures[option.name] = value
    return figures


def _constants(context: Context, running: Dict[str, options.Value]) -> Figures:
    """`arenas` of malloc_stats_print: what configure and the options fixed."""
    geometry = context.geometry
    sizes = geometry.size_classes
    figures: Figures = {
        "narenas": narenas(context),
        "dirty_decay_ms": running["arenas.dirty_decay_ms"],
        "muzzy_decay_ms": running["arenas.muzzy_decay_ms"],
        "quantum": next((size for size in sizes if 3 * size in sizes), None),
        "page": geometry.page_bytes,
    }
    if layouts.shows_system(context.jemalloc.version):
        figures["hugepage"] = _pages(context, stats_hpa.pages_per_slab(context))
    figures["tcache_max"] = _first(context, ("global_do_not_change_tcache_maxclass", "tcache_maxclass"), geometry.word_bytes)
    figures["nbins"] = geometry.nbins
    figures["nhbins"] = _first(context, ("global_do_not_change_tcache_nbins", "nhbins"), 4)
    rows = []
    for info in geometry.bins:
        row = {"size": info.reg_size_bytes, "nregs": info.nregs, "slab_size": info.slab_size_bytes}
        rows.append({**row, "nshards": info.n_shards} if layouts.shards_bins(context.jemalloc.version) else row)
    figures["bin"] = rows
    figures["nlextents"] = len(sizes) - geometry.nbins
    figures["lextent"] = [{"size": size} for size in sizes[geometry.nbins :]]
    return figures


def _first(context: Context, names: Sequence[str], size_bytes: int) -> Optional[int]:
    return next((context.variable(name, size_bytes) for name in names if context.symbols.find(name) is not None), None)


def narenas(context: Context) -> Optional[int]:
    """arenas.narenas: the count that mallctl knows (ctl_arenas->narenas), before its first use narenas_total. None where neither has a
    name: arenas that were never made are counted too."""
    pointer = context.variable("ctl_arenas")
    if pointer:
        try:
            return context.view("ctl_arenas_s", pointer)["narenas"]
        except (Unreadable, KeyError):
            pass
    return None if context.symbols.by_structure else context.geometry.narenas


def _arenas(context: Context, listed: Sequence[Arena], cached: Mapping[int, Counted], now_ns: Optional[int]) -> Dict[str, Figures]:
    by_name: Dict[str, Figures] = {}
    unknown = Counted(None, None)
    for arena in listed:
        if context.budget.expired():
            break
        try:
            by_name[str(arena.index)] = stats_arena.read(context, arena, cached.get(arena.index, unknown), now_ns)
        except Unreadable as problem:
            context.report(
                codes.ARENA_UNREADABLE,
                problem.address,
                "cannot read arena %d at 0x%x" % (arena.index, arena.address),
                "its figures are missing here",
            )
    return by_name


def _destroyed(context: Context) -> Dict[str, Optional[Figures]]:
    """What arenas had counted that were destroyed: only jemalloc's own copy has it, which names alone lead to."""
    figures = stats_arena.read_destroyed(context)
    return {} if figures is None and not context.symbols.by_structure else {"destroyed": figures}


def _merged(context: Context, entries: Dict[str, Figures]) -> Dict[str, Figures]:
    """Only several arenas have a sum (stats.c: stats_print_helper)."""
    if len(entries) < 2:
        return {}
    merged = merge_arenas(context, list(entries.values()))
    if context.variable("opt_prof", 1) and context.variable("opt_prof_stats", 1):
        _add_profiled(context, merged["bins"] + merged["lextents"])
    return {"merged": merged}


def _add_profiled(context: Context, rows: List[Figures]) -> None:
    """What opt.prof_stats counts of sampled allocations, by szind (prof_stats.c, from 5.3.0)."""
    for kind in ("live", "accum"):
        symbol = context.symbols.find("prof_stats_%s" % kind)
        counted: List[int] = []
        if symbol is not None:
            try:
                counted = words(context.target, symbol.address, 2 * len(rows), 8)
            except Unreadable as problem:
                context.report(
                    codes.STATISTICS_UNREADABLE, problem.address, "cannot read jemalloc's statistics of sampled allocations", None
                )
        for szind, row in enumerate(rows):
            row["prof_%s_requested" % kind], row["prof_%s_count" % kind] = counted[2 * szind : 2 * szind + 2] or (None, None)


def _totals(context: Context, entries: Dict[str, Figures], known: Background) -> Figures:
    """`stats`: the sums over all arenas."""
    rows: List[Figures] = list(entries.values())
    figures: Figures = {
        "allocated": add([row[kind]["allocated"] for row in rows for kind in ("small", "large")]),
        "active": _pages(context, add([row["pactive"] for row in rows])),
        "metadata": add([row[key] for row in rows for key in ("base", "internal")]),
    }
    for key in ("metadata_edata", "metadata_rtree", "metadata_thp", "resident", "mapped", "retained", "pinned"):
        if any(key in row for row in rows):
            figures[key] = add([row.get(key) for row in rows])
    figures["mapped"] = mapped_sum(context, [row.get("mapped") for row in rows])
    is_unknown = context.symbols.by_structure and "tcache_slow_s" in context.types.structs  # 5.3.0 brought both
    if context.symbols.find("zero_realloc_count") is not None or is_unknown:
        figures["zero_reallocs"] = context.variable("zero_realloc_count")
    on = known.enabled
    threads = {"num_threads": known.count, "num_runs": known.runs, "run_interval": known.run_interval_ns}
    figures["background_thread"] = threads if on else dict.fromkeys(threads, 0 if on is False else None)
    locks = [thread.mutex for thread in known.running] if on else []
    figures["mutexes"] = mutexes.of_process(context, [mutexes.none(None)] if known.named else locks)
    return figures


def _pages(context: Context, pages: Optional[int]) -> Optional[int]:
    return None if pages is None else pages * context.geometry.page_bytes


def merged_only(stats: MallocStats) -> MallocStats:
    """Without single arenas; where there is only one, it is its own sum."""
    figures = dict(stats.figures)
    arenas = figures.get("stats.arenas")
    if arenas:
        figures["stats.arenas"] = {"merged": arenas.get("merged") or next(entry for name, entry in arenas.items() if name != "destroyed")}
    return stats._replace(figures=figures)


def as_json(stats: MallocStats) -> Figures:
    """As malloc_stats_print(..., "J") gives it, below `jemalloc`."""
    figures = dict(stats.figures)
    if "stats.arenas" in figures:
        figures["stats.arenas"] = {name: entry and _public(entry) for name, entry in figures["stats.arenas"].items()}
    return figures


def _public(entry: Figures) -> Figures:
    public = dict(entry)
    for table, left_out in TEXT_ONLY.items():
        if table in public:
            public[table] = [{key: value for key, value in row.items() if key not in left_out} for row in public[table]]
    if "hpa_shard" in public and "slabs" not in public["hpa_shard"]:
        public["hpa_shard"] = dict(public["hpa_shard"])
        for table in ("full_slabs", "empty_slabs"):  # 5.3.0 gives nactive_huge twice there, and no ndirty_huge
            public["hpa_shard"][table] = {key: value for key, value in public["hpa_shard"][table].items() if key != "ndirty_huge"}
    return public
