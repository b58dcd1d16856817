"""What an arena counts about huge pages (the HPA, from 5.3.0): page slabs by fullness, purges, its small extent cache."""

from typing import Any, Dict, List, NamedTuple, Optional

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.context import Context, column
from gdbheapx.jemalloc.heap import mutexes
from gdbheapx.layout.view import View

PARTS = ("npageslabs", "nactive", "ndirty")
NHUGE = (("huge", 1), ("nonhuge", 0))
"""How the second index of each table of slabs is called (psset.h)."""
PURGES = ("npurge_passes", "npurges", "nhugifies", "nhugify_failures", "ndehugifies")
SEC_KEYS = (
    ("sec_hits", "nhits"),
    ("sec_misses", "nmisses"),
    ("sec_dalloc_noflush", "ndalloc_noflush"),
    ("sec_dalloc_flush", "ndalloc_flush"),
    ("sec_overfills", "noverfills"),
)
"""Of the small extent cache from 5.3.1."""
ALLOC = ("min_extents", "max_extents", "extents", "ps", "pages_per_ps", "extents_per_ps", "total_elapsed_ns_per_ps")
"""What came of requests to the HPA, by number (hpa_shard_nonderived_stats_t after 5.3.1)."""
MAX_SEC_BINS = 1 << 16

Row = Dict[str, Any]


def has(view: View) -> bool:
    """This build has an HPA."""
    return view.has(mutexes.hpa_path(view) + "psset.stats")


def pages_per_slab(context: Context) -> Optional[int]:
    """HUGEPAGE_PAGES, by the bitmap that has one bit for each (hpdata.h)."""
    bitmap = context.types.place("hpdata_s", "active_pages")
    return bitmap.size_bytes * bitmap.count * 8 if bitmap is not None else None


def dirty_pages(view: View) -> int:
    """psset_ndirty of an arena that ever used huge pages; 5.3.1 and later count them among its dirty pages (pa_extra.c:
    pa_shard_ndirty)."""
    return view.get(mutexes.hpa_path(view) + "psset.stats.merged.ndirty") or 0 if view.get("pa_shard.ever_used_hpa") else 0


class CounterPath(NamedTuple):
    """Where the counters lie."""

    view: View
    slabs: str
    """Path of a psset_stats_t."""
    purges: str
    """Path of a hpa_shard_nonderived_stats_t."""
    used: bool
    """False: nothing was ever counted there (pa_extra.c: pa_shard_stats_merge)."""


def of_arena(view: View) -> CounterPath:
    """The counters of an arena."""
    shard = mutexes.hpa_path(view)
    return CounterPath(view, shard + "psset.stats.", shard + "stats.", bool(view.get("pa_shard.ever_used_hpa")))


def read(context: Context, place: CounterPath, sec: "Sec") -> Row:
    """`hpa_shard` of malloc_stats_print; all 0 in an arena that never used huge pages."""
    new = place.view.has(place.slabs + "merged")
    per_slab = pages_per_slab(context) if new else None
    row: Row = {"sec_bytes": sec.bytes} if new else {}
    if new:
        row.update({key: sec.totals.get(member, 0) for key, member in SEC_KEYS})
        row.update({part: _number(place, place.slabs + "merged." + part) for part in PARTS})
    row.update({key: _number(place, place.purges + key) for key in PURGES if place.view.has(place.purges + key)})
    if new:
        row["slabs"] = _slabs(context, place, "slabs", per_slab)[0]
    for name in ("full_slabs", "empty_slabs"):
        row[name] = _slabs(context, place, name, per_slab)[0]
    row["nonfull_slabs"] = _slabs(context, place, "nonfull_slabs", per_slab)
    if place.view.has(place.purges + "hpa_alloc_ps"):
        counts = {key: place.view.array("%shpa_alloc_%s" % (place.purges, key)) for key in ALLOC}
        row["extent_allocation_distribution"] = [
            {key: column_[at] if place.used else 0 for key, column_ in counts.items()} for at in range(len(counts["ps"]))
        ]
    return row


def _number(place: CounterPath, path: str) -> Optional[int]:
    return place.view.get(path) if place.used else 0


def _slabs(context: Context, place: CounterPath, name: str, per_slab: Optional[int]) -> List[Row]:
    """Rows of a table of slabs: pairs of (not huge, huge)."""
    columns = {part: column(place.view, place.slabs + name, part, context.geometry.little_endian) or [] for part in PARTS}
    rows = []
    for first in range(0, len(columns["ndirty"]), 2):
        row = {"%s_%s" % (part, kind): columns[part][first + at] if place.used else 0 for kind, at in NHUGE for part in PARTS}
        if per_slab is not None:
            row["nretained_nonhuge"] = row["npageslabs_nonhuge"] * per_slab - row["nactive_nonhuge"] - row["ndirty_nonhuge"]
        rows.append(row)
    return rows


class Sec:
    """The small extent cache of one arena."""

    def __init__(self, bytes_: int, totals: Dict[str, int], locks: mutexes.Counters) -> None:
        self.bytes = bytes_
        self.totals = totals
        self.locks = locks


def sec(context: Context, view: View) -> Sec:
    """Its bytes, counters and locks over all its shards or bins; empty where it was never used (sec.c: sec_stats_merge)."""
    empty, shard = Sec(0, {}, mutexes.none()), mutexes.hpa_path(view)
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
    size = context.types.size_bytes(struct)
    try:
        data = context.target.read(start, size * count)
    except Unreadable as problem:
        context.report(
            codes.STATISTICS_UNREADABLE, problem.address, "cannot read the small extent cache of the arena at 0x%x" % view.address, None
        )
        return empty
    parts = [
        View(context.types, struct, start + at, data[at : at + size], context.geometry.little_endian) for at in range(0, len(data), size)
    ]
    totals = {member: sum(part.get("stats." + member) or 0 for part in parts) for _, member in SEC_KEYS}
    return Sec(sum(part["bytes_cur"] for part in parts), totals, mutexes.merged(mutexes.counters(part, "mtx") for part in parts))
