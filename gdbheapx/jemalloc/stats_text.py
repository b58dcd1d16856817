"""Write malloc_stats_print's text: its words, order and columns (stats.c, emitter.h).

Unknown values show as `unknown`, in tables as `-`."""

from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.columns import add_values
from gdbheapx.jemalloc.options import OPTIONS
from gdbheapx.jemalloc.records import MallocStats, PrintForm
from gdbheapx.jemalloc.stats import MEMORY_KEYS, drop_single_arenas, make_stats_json

Figures = Dict[str, Any]
Cells = Sequence[Tuple[Any, int]]
"""(value, width); a negative width aligns to the left."""

GAP = " " * 21 + "---"
"""Replaces a run of empty rows."""
RATE_TITLE = "(#/sec)"


def format_line(cells: Cells) -> str:
    """Format a row of cells."""
    parts = []
    for value, width in cells:
        text = "-" if value is None else str(value)
        parts.append(text.ljust(-width) if width < 0 else text.rjust(width))
    return "".join(parts)


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


def _format_columns(columns: Sequence[StatsColumn], figure: Callable[[StatsColumn], Any], rate_of: Callable[[StatsColumn], Any]) -> str:
    cells: List[Tuple[Any, int]] = []
    for column in columns:
        cells += [(figure(column), column.width), *([(rate_of(column), column.rate_width)] if column.rate_width else ())]
    return format_line(cells)


def _format_header(columns: Sequence[StatsColumn]) -> str:
    return _format_columns(columns, lambda column: column.key if column.title is None else column.title, lambda column: RATE_TITLE)


def _format_row(columns: Sequence[StatsColumn], row: Figures, uptime_ns: Optional[int] = None) -> str:
    return _format_columns(columns, lambda column: row[column.key], lambda column: compute_rate(row[column.key], uptime_ns))


def write_mutexes(found: Dict[str, Figures], uptime_ns: Optional[int]) -> Iterator[str]:
    """Locks by name."""
    columns = (NAME_COLUMN, *MUTEX_COLUMNS)
    yield _format_header(columns)
    for name, row in found.items():
        yield _format_row(columns, {**row, "name": name}, uptime_ns)


def write_decaying(arena: Figures) -> Iterator[str]:
    """`decaying:  time  npages  sweeps  madvises  purged`."""
    yield format_line([("decaying:", 9), ("time", 6), ("npages", 13), ("sweeps", 13), ("madvises", 13), ("purged", 13)])
    for state in ("dirty", "muzzy"):
        time = arena["%s_decay_ms" % state]
        shown = "N/A" if time is not None and time < 0 else time
        rest = [(arena["%s_%s" % (state, key)], 13) for key in ("npurge", "nmadvise", "purged")]
        yield format_line([(state + ":", 9), (shown, 6), (arena["p" + state], 13), *rest])


def write_counts(arena: Figures, uptime_ns: Optional[int], rate_width: int) -> Iterator[str]:
    """Small and large allocations and their sum."""
    columns = (
        *(NAME_COLUMN, StatsColumn("allocated", 16), StatsColumn("nmalloc", 16, rate_width), StatsColumn("ndalloc", 16, rate_width)),
        *(StatsColumn("nrequests", 16, 10), StatsColumn("nfills", 16, 10, "nfill"), StatsColumn("nflushes", 16, 10, "nflush")),
    )
    yield _format_header(columns)
    both = {key: add_values(arena[kind][key] for kind in ("small", "large")) for key in arena["small"]}
    for name, row in (("small:", arena["small"]), ("large:", arena["large"]), ("total:", both)):
        yield _format_row(columns, {**row, "name": name}, uptime_ns)


def write_arena_memory(arena: Figures, page: int) -> Iterator[str]:
    """Bytes by kind."""
    active = arena["pactive"]
    yield format_line([("", -21), ("", 16)])
    yield format_line([("active:", -21), (None if active is None else active * page, 16)])
    for key in MEMORY_KEYS:
        if key in arena:
            yield format_line([(key + ":", -21), (arena[key], 16)])


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


def _write_with_gaps(title: str, columns: Sequence[StatsColumn], rows: Iterator[Tuple[bool, str]], skip: bool = True) -> Iterator[str]:
    yield title + _format_header(columns)[len(title) :]
    empty = False
    for is_empty, row in rows:
        if empty and not is_empty:
            yield GAP
        empty = is_empty
        if not (empty and skip):
            yield row
    if empty:
        yield GAP


SIZE_COLUMNS = (StatsColumn("size", 20), StatsColumn("ind", 4))


def write_bins(rows: Sequence[Figures], infos: Sequence[Figures], page: int, uptime_ns: Optional[int], form: PrintForm) -> Iterator[str]:
    """`bins:`: one row per small size class."""
    width = form.bin_width
    columns = (
        *(*SIZE_COLUMNS, StatsColumn("allocated", width), StatsColumn("nmalloc", width, 8), StatsColumn("ndalloc", width, 8)),
        *(StatsColumn("nrequests", width if width == 13 else width + 1, 10), *_list_prof_columns(rows)),
        *(StatsColumn("nshards", 9), StatsColumn("curregs", 13), StatsColumn("curslabs", 13), StatsColumn("nonfull_slabs", 15)),
        *(
            StatsColumn("regs", 5),
            StatsColumn("pgs", 4),
            StatsColumn("util", 7),
            StatsColumn("nfills", 13, 8),
            StatsColumn("nflushes", 13, 8),
        ),
        *(StatsColumn("nslabs", 13), StatsColumn("nreslabs", 13, 8), *MUTEX_COLUMNS),
    )

    def format_cells(szind: int, row: Figures, info: Figures) -> str:
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
        return _format_row(columns, {**row, **more, **row["mutex"]}, uptime_ns)

    classes = enumerate(zip(rows, infos))
    lines = ((row["nslabs"] == 0 and not row.get("prof_accum_count"), format_cells(szind, row, info)) for szind, (row, info) in classes)
    yield from _write_with_gaps("bins:", columns, lines, form.skips_unused_bins)


def write_large(rows: Sequence[Figures], sizes: Sequence[Figures], nbins: int, uptime_ns: Optional[int]) -> Iterator[str]:
    """`large:`: one row per large size class that was ever asked for."""
    counted = (StatsColumn(name, 13, 8) for name in ("nmalloc", "ndalloc", "nrequests"))
    columns = (*SIZE_COLUMNS, StatsColumn("allocated", 13), *counted, *_list_prof_columns(rows), StatsColumn("curlextents", 13))

    def format_cells(place: int, row: Figures, size: int) -> Tuple[bool, str]:
        extents = row["curlextents"]
        more = {"size": size, "ind": nbins + place, "allocated": None if extents is None else extents * size}
        return row["nrequests"] == 0, _format_row(columns, {**row, **more}, uptime_ns)

    yield from _write_with_gaps(
        "large:", columns, (format_cells(place, row, info["size"]) for place, (row, info) in enumerate(zip(rows, sizes)))
    )


def write_extents(rows: Sequence[Figures], sizes: Sequence[int]) -> Iterator[str]:
    """`extents:`: unused extents by page size class."""
    states = [state for state in ("dirty", "muzzy", "retained", "pinned") if rows and "n" + state in rows[0]]
    pairs = ((StatsColumn("n" + state, 13), StatsColumn(state + "_bytes", 13, title=state)) for state in (*states, "total"))
    columns = (*SIZE_COLUMNS, *(one for pair in pairs for one in pair))

    def format_cells(place: int, row: Figures, size: int) -> Tuple[bool, str]:
        sums = {what % "total": add_values(row[what % state] for state in states) for what in ("n%s", "%s_bytes")}
        return sums["ntotal"] == 0, _format_row(columns, {**row, **sums, "size": size, "ind": place})

    yield from _write_with_gaps("extents:", columns, (format_cells(place, row, size) for place, (row, size) in enumerate(zip(rows, sizes))))


SLABS = ("npageslabs", "nactive", "ndirty")


def count_retained(row: Figures, pages_per_slab: Optional[int]) -> Optional[int]:
    """Pages of slabs that are no huge pages and neither active nor dirty."""
    values = [row["npageslabs_nonhuge"], row["nactive_nonhuge"], row["ndirty_nonhuge"]]
    if None in values or (pages_per_slab is None and values[0]):
        return None
    return int(values[0] * (pages_per_slab or 0) - values[1] - values[2])


def write_nonfull_slabs(rows: Sequence[Figures], sizes: Sequence[int], pages_per_slab: Optional[int]) -> Iterator[str]:
    """Page slabs by the size class of their largest free run."""
    kinds = [StatsColumn("%s_%s" % (name, kind), width) for kind, width in (("huge", 16), ("nonhuge", 20)) for name in SLABS]
    columns = (*SIZE_COLUMNS, *kinds, StatsColumn("nretained_nonhuge", 20))

    def format_cells(place: int, row: Figures, size: int) -> Tuple[bool, str]:
        more = {"size": size, "ind": place, "nretained_nonhuge": count_retained(row, pages_per_slab)}
        return row["npageslabs_huge"] == 0 and row["npageslabs_nonhuge"] == 0, _format_row(columns, {**row, **more})

    yield from _write_with_gaps("", columns, (format_cells(place, row, size) for place, (row, size) in enumerate(zip(rows, sizes))))


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
    """The answer of `malloc-stats`."""

    found: MallocStats
    held_bytes: Optional[int]
    """Pages that it holds, by its arenas' own counters."""

    def merged_only(self) -> "JemallocStats":
        """Return the figures without single arenas."""
        return self._replace(found=drop_single_arenas(self.found))

    def data(self) -> Dict[str, Any]:
        """Its JSON's keys."""
        return {"jemalloc": make_stats_json(self.found)}

    def lines(self) -> Iterator[str]:
        """Its text."""
        found, arenas = self.found, self.found.figures.get("stats.arenas") if self.found.counts else None
        yield "___ Begin jemalloc statistics ___"
        yield from _write_general(found)
        if arenas is not None:
            yield from _write_totals(found.figures["stats"], arenas)
            for name, arena in arenas.items():
                if arena is None:
                    yield "%s arenas stats: unknown" % name.capitalize()
                    continue
                yield "%s arenas stats:" % name.capitalize() if name in ("merged", "destroyed") else "arenas[%s]:" % name
                yield from _write_arena(found, arena)
        yield "--- End jemalloc statistics ---"


def _format_value(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    return '"%s"' % value if isinstance(value, str) else str(value)


def _write_general(native: MallocStats) -> Iterator[str]:
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
    def format_total(key: str) -> str:
        return _format_value(stats.get(key))

    metadata = "n_thp " + format_total("metadata_thp")
    if "metadata_edata" in stats:
        metadata += ", edata %s, rtree %s" % (format_total("metadata_edata"), format_total("metadata_rtree"))
    head = "Allocated: %s, active: %s, metadata: %s (%s), resident: %s, mapped: %s, retained: %s"
    known = (
        format_total("allocated"),
        format_total("active"),
        format_total("metadata"),
        metadata,
        format_total("resident"),
        format_total("mapped"),
        format_total("retained"),
    )
    yield head % known + (", pinned: %s" % format_total("pinned") if "pinned" in stats else "")
    if "zero_reallocs" in stats:
        yield "Count of realloc(non-null-ptr, 0) calls: %s" % format_total("zero_reallocs")
    threads = stats["background_thread"]
    text = "Background threads: %s, num_runs: %s, run_interval: %s ns"
    yield text % (_format_value(threads["num_threads"]), _format_value(threads["num_runs"]), _format_value(threads["run_interval"]))
    uptime = next((arena["uptime_ns"] for arena in arenas.values() if arena is not None), None)
    yield from write_mutexes(stats["mutexes"], uptime)


def _write_arena(native: MallocStats, arena: Figures) -> Iterator[str]:
    uptime = arena["uptime_ns"]
    if "name" in arena:
        yield "name: %s" % _format_value(arena["name"])
    yield "assigned threads: %s" % _format_value(arena["nthreads"])
    yield "uptime: %s" % _format_value(uptime)
    yield "dss allocation precedence: %s" % _format_value(arena["dss"])
    page = native.figures["arenas"]["page"]
    yield from write_decaying(arena)
    yield from write_counts(arena, uptime, native.form.rate_width)
    yield from write_arena_memory(arena, page)
    yield from write_mutexes(arena["mutexes"], uptime)
    yield from write_bins(arena["bins"], native.figures["arenas"]["bin"], page, uptime, native.form)
    yield from write_large(arena["lextents"], native.figures["arenas"]["lextent"], len(arena["bins"]), uptime)
    if "extents" in arena:
        yield from write_extents(arena["extents"], native.page_classes)
    if "hpa_shard" in arena:
        yield from _write_hpa(arena, uptime, native)


def _write_hpa(arena: Figures, uptime: Any, native: MallocStats) -> Iterator[str]:
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
    titles = (
        ("Purge passes", "npurge_passes"),
        ("Purges", "npurges"),
        ("Hugeifies", "nhugifies"),
        ("Hugify failures", "nhugify_failures"),
        ("Dehugifies", "ndehugifies"),
    )
    for title, name in titles:
        if name in shard:
            yield "  %s: %s (%s / sec)" % (title, _format_value(shard[name]), compute_rate(shard[name], uptime))
    yield ""
    for title, name in (("full", "full_slabs"), ("empty", "empty_slabs")):
        yield "  In %s slabs:" % title
        yield from _write_slabs(shard[name], native)
    yield "" if slabs is None else "  In nonfull slabs:"
    yield from write_nonfull_slabs(shard["nonfull_slabs"], native.page_classes, native.pages_per_slab)


def _write_slabs(row: Figures, found: MallocStats) -> Iterator[str]:
    for name in SLABS:
        end = "" if name == "npageslabs" else " "
        yield "      %s: %s huge, %s nonhuge%s" % (name, _format_value(row[name + "_huge"]), _format_value(row[name + "_nonhuge"]), end)
    yield "      nretained: 0 huge, %s nonhuge " % _format_value(count_retained(row, found.pages_per_slab))
