"""malloc_stats_print's text: its words, order and columns (stats.c, emitter.h), from the figures that were read.

What is not known shows as `unknown`, in tables as `-`.
"""

from typing import Any, Dict, Iterator, NamedTuple, Optional

from gdbheapx.jemalloc.messages import stats_tables as tables
from gdbheapx.jemalloc.records import MallocStats
from gdbheapx.jemalloc.stats import figures as stats
from gdbheapx.jemalloc.stats import options

Figures = Dict[str, Any]

NOTES = {option.name: option.live for option in options.OPTIONS if option.live}
"""Option -> the mallctl name whose value is shown beside it."""
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


class NativeStats(NamedTuple):
    """What malloc_stats_print tells."""

    found: MallocStats
    held_bytes: Optional[int]
    """Pages that it holds, by its arenas' own counters."""

    def merged_only(self) -> "NativeStats":
        """Without single arenas."""
        return self._replace(found=stats.merged_only(self.found))

    def data(self) -> Dict[str, Any]:
        """Its JSON's keys."""
        return {"jemalloc": stats.as_json(self.found)}

    def lines(self) -> Iterator[str]:
        """Its text."""
        found, arenas = self.found, self.found.figures.get("stats.arenas") if self.found.counts else None
        yield "___ Begin jemalloc statistics ___"
        yield from _general(found)
        if arenas is not None:
            yield from _totals(found.figures["stats"], arenas)
            for name, arena in arenas.items():
                if arena is None:
                    yield "%s arenas stats: unknown" % name.capitalize()
                    continue
                yield "%s arenas stats:" % name.capitalize() if name in ("merged", "destroyed") else "arenas[%s]:" % name
                yield from _arena(found, arena)
        yield "--- End jemalloc statistics ---"


def _value(value: Any) -> str:
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "true" if value else "false"
    return '"%s"' % value if isinstance(value, str) else str(value)


def _general(native: MallocStats) -> Iterator[str]:
    figures = native.figures
    yield "Version: %s" % _value(figures["version"])
    for key, heading in HEADINGS:
        if key in figures:
            yield heading if figures[key] is not None else "%s: unknown" % heading
            for name, value in (figures[key] or {}).items():
                title = CONF_TITLES.get(name) if key == "opt" else None
                note = NOTES.get(name) if key == "opt" else None
                beside = " (%s: %s)" % (note, _value(native.running[note])) if note else ""
                yield "  %s: %s%s" % (title or "%s.%s" % (key, name), _value(value), beside)
    for name, title in ARENA_TITLES:
        if name in figures["arenas"]:
            yield "%s: %s" % (title, _value(figures["arenas"][name]))


def _totals(stats: Figures, arenas: Dict[str, Optional[Figures]]) -> Iterator[str]:
    def shown(key: str) -> str:
        return _value(stats.get(key))

    metadata = "n_thp " + shown("metadata_thp")
    if "metadata_edata" in stats:
        metadata += ", edata %s, rtree %s" % (shown("metadata_edata"), shown("metadata_rtree"))
    head = "Allocated: %s, active: %s, metadata: %s (%s), resident: %s, mapped: %s, retained: %s"
    known = (shown("allocated"), shown("active"), shown("metadata"), metadata, shown("resident"), shown("mapped"), shown("retained"))
    yield head % known + (", pinned: %s" % shown("pinned") if "pinned" in stats else "")
    if "zero_reallocs" in stats:
        yield "Count of realloc(non-null-ptr, 0) calls: %s" % shown("zero_reallocs")
    threads = stats["background_thread"]
    text = "Background threads: %s, num_runs: %s, run_interval: %s ns"
    yield text % (_value(threads["num_threads"]), _value(threads["num_runs"]), _value(threads["run_interval"]))
    uptime = next((arena["uptime_ns"] for arena in arenas.values() if arena is not None), None)
    yield from tables.mutexes(stats["mutexes"], uptime)


def _arena(native: MallocStats, arena: Figures) -> Iterator[str]:
    uptime = arena["uptime_ns"]
    if "name" in arena:
        yield "name: %s" % _value(arena["name"])
    yield "assigned threads: %s" % _value(arena["nthreads"])
    yield "uptime: %s" % _value(uptime)
    yield "dss allocation precedence: %s" % _value(arena["dss"])
    page = native.figures["arenas"]["page"]
    yield from tables.decaying(arena)
    yield from tables.counts(arena, uptime, native.form.rate_width)
    yield from tables.memory(arena, page)
    yield from tables.mutexes(arena["mutexes"], uptime)
    yield from tables.bins(arena["bins"], native.figures["arenas"]["bin"], page, uptime, native.form)
    yield from tables.large(arena["lextents"], native.figures["arenas"]["lextent"], len(arena["bins"]), uptime)
    if "extents" in arena:
        yield from tables.extents(arena["extents"], native.page_classes)
    if "hpa_shard" in arena:
        yield from _hpa(arena, uptime, native)


def _hpa(arena: Figures, uptime: Any, native: MallocStats) -> Iterator[str]:
    shard = arena["hpa_shard"]
    for name, title in SEC_TITLES:
        if name in shard or name in arena:
            yield "%s: %s" % (title, _value(shard.get(name, arena.get(name))))
    yield "HPA shard stats:"
    slabs = shard.get("slabs")
    if slabs is not None:
        for title, name in (("Pageslabs", "npageslabs"), ("Active pages", "nactive"), ("Dirty pages", "ndirty")):
            parts = (title, _value(shard[name]), _value(slabs[name + "_huge"]), _value(slabs[name + "_nonhuge"]))
            yield "  %s: %s (%s huge, %s nonhuge)" % parts
        yield "  Retained pages: %s" % _value(slabs.get("nretained_nonhuge"))
    titles = (
        ("Purge passes", "npurge_passes"),
        ("Purges", "npurges"),
        ("Hugeifies", "nhugifies"),
        ("Hugify failures", "nhugify_failures"),
        ("Dehugifies", "ndehugifies"),
    )
    for title, name in titles:
        if name in shard:
            yield "  %s: %s (%s / sec)" % (title, _value(shard[name]), tables.rate(shard[name], uptime))
    yield ""
    for title, name in (("full", "full_slabs"), ("empty", "empty_slabs")):
        yield "  In %s slabs:" % title
        yield from _slabs(shard[name], native)
    yield "" if slabs is None else "  In nonfull slabs:"
    yield from tables.nonfull_slabs(shard["nonfull_slabs"], native.page_classes, native.pages_per_slab)


def _slabs(row: Figures, found: MallocStats) -> Iterator[str]:
    for name in tables.SLABS:
        end = "" if name == "npageslabs" else " "
        yield "      %s: %s huge, %s nonhuge%s" % (name, _value(row[name + "_huge"]), _value(row[name + "_nonhuge"]), end)
    yield "      nretained: 0 huge, %s nonhuge " % _value(tables.retained(row, found.pages_per_slab))
