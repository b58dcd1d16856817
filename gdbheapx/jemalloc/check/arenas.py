"""What an arena counts, against what the walk over its extents adds up to; its bins' slabs; its base.

What threads remember of the radix tree: rtree_ctx of each tsd.
"""

from typing import Dict, List, Optional

from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.check.findings import Findings
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate
from gdbheapx.jemalloc.detection.calibrate import words
from gdbheapx.jemalloc.heap import arenas as arena_list
from gdbheapx.jemalloc.heap import base, locate
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.stats import bins as stats_bins
from gdbheapx.jemalloc.threads.tsd import Tsds
from gdbheapx.kernel.jemalloc.records import ArenaExtents
from gdbheapx.layout.view import View
from gdbheapx.problems import Code

STATES: Dict[str, Code] = {"dirty": codes.DIRTY_PAGES, "muzzy": codes.MUZZY_PAGES, "retained": codes.RETAINED_PAGES}
INVALID_KEY = 1
"""RTREE_LEAFKEY_INVALID."""
CACHES = ("cache", "l2_cache")


def uses_hpa(view: View) -> bool:
    """The huge page allocator has served this arena: its pages are in no list of extents."""
    return bool(view.get("pa_shard.ever_used_hpa") or view.get("pa_shard.use_hpa"))


def tell_pages(context: Context, found: Findings, arena: Arena, view: View, seen: Optional[ArenaExtents]) -> None:
    """Pages by state."""
    if uses_hpa(view) or (seen is not None and seen.other.extents):
        return
    page = context.geometry.page_bytes
    for state, code in STATES.items():
        counted = arena_list.pages(view, state)
        _compare(found, code, arena, "%s pages" % state, counted, getattr(seen, state).bytes // page if seen is not None else 0)
    active = seen.active.bytes // page if seen is not None else 0
    _compare(found, codes.ACTIVE_PAGES, arena, "active pages", arena_list.active_pages(view), active)


def tell_mapped(context: Context, found: Findings, arena: Arena, view: View, seen: Optional[ArenaExtents]) -> None:
    """Bytes mapped: active, dirty and muzzy extents (arena_stats.mapped, from 5.3 pac_stats.pac_mapped)."""
    if uses_hpa(view) or (seen is not None and seen.other.extents):
        return
    counted = view.get("stats.pa_shard_stats.pac_stats.pac_mapped", "stats.mapped")
    there = seen.active.bytes + seen.dirty.bytes + seen.muzzy.bytes if seen is not None else 0
    if counted is not None and counted != there:
        what = "arena %d counts 0x%x bytes as mapped, its extents have 0x%x" % (arena.index, counted, there)
        found.add(codes.MAPPED_BYTES, arena.address, what, arena.index)


def _compare(found: Findings, code: Code, arena: Arena, name: str, counted: Optional[int], there: int) -> None:
    if counted is not None and counted != there:
        what = "arena %d counts %d %s, its extents have %d" % (arena.index, counted, name, there)
        found.add(code, arena.address, what, arena.index)


def tell_bins(context: Context, found: Findings, arena: Arena, view: View, seen: Optional[ArenaExtents], is_sampling: bool) -> None:
    """Slabs and regions of each bin. Sampled allocations are counted in the bin, and lie elsewhere (5.3.1)."""
    own = {row.szind: row for row in seen.bins} if seen is not None else {}
    for szind, row in enumerate(stats_bins.read(context, view)):
        slabs, regions = (own[szind].curslabs, own[szind].curregs) if szind in own else (0, 0)
        if row["curslabs"] is not None and row["curslabs"] != slabs:
            what = "bin %d of arena %d counts %d slabs, there are %d" % (szind, arena.index, row["curslabs"], slabs)
            found.add(codes.BIN_SLABS, _place(arena, szind), what, arena.index)
        if is_sampling or row["curregs"] is None:
            continue
        if row["curregs"] != regions:
            what = "bin %d of arena %d counts %d regions in use, its slabs have %d" % (szind, arena.index, row["curregs"], regions)
            found.add(codes.BIN_REGIONS, _place(arena, szind), what, arena.index)
        elif row["nmalloc"] is not None and (row["nmalloc"] - row["ndalloc"]) % (1 << 64) != row["curregs"]:
            what = "bin %d of arena %d: nmalloc %d less ndalloc %d is not curregs %d"
            numbers = (szind, arena.index, row["nmalloc"], row["ndalloc"], row["curregs"])
            found.add(codes.BIN_REQUESTS, _place(arena, szind), what % numbers, arena.index)


def _place(arena: Arena, szind: int) -> int:
    """Of the bin where it is told by its number alone: apart for each bin, inside the arena."""
    return arena.address + szind


def tell_slabs(context: Context, found: Findings, arena: Arena) -> None:
    """What bins point to."""
    target, types, geometry = context.target, context.types, context.geometry
    for szind, place in calibrate.current_slabs(target, context.symbols, types, geometry, arena.address):
        slab = target.read_word(place)
        try:
            is_good = bool(calibrate.slab_begin(target, types, geometry, arena.index, szind, slab))
        except Unreadable:
            is_good = False
        if not is_good:
            what = "bin %d of arena %d leads to 0x%x, which is no slab of its" % (szind, arena.index, slab)
            found.add(codes.BIN_SLAB_WRONG, place, what, arena.index)


def tell_base(context: Context, found: Findings, arena: Arena) -> None:
    """The blocks of metadata."""
    mapped = base.totals(context, arena).mapped_bytes
    blocks: List[base.BaseBlock] = base.blocks(context, arena)
    there = sum(block.size_bytes for block in blocks)
    if mapped is not None and mapped != there:
        what = "the base of arena %d counts 0x%x bytes, its blocks have 0x%x" % (arena.index, mapped, there)
        found.add(codes.BASE_MAPPED, arena.address, what, arena.index)


def tell_rtree_caches(context: Context, found: Findings, tsds: Tsds) -> None:
    """Each leaf node that a thread remembers is the one to which the tree leads for its key (rtree.h: rtree_leaf_elm_lookup)."""
    types, target, word = context.types, context.target, context.geometry.word_bytes
    if len(context.geometry.rtree.levels) < 2:
        return
    leaves: Dict[int, int] = {}
    for record in tsds.records:
        for name in CACHES:
            path = types.first("tsd_s", "rtree_ctx." + name)
            place = types.place("tsd_s", path) if path is not None else None
            if record.address is None or place is None or place.size_bytes != 2 * word or context.budget.expired():
                continue
            try:
                column = words(target, record.address + place.offset, 2 * place.count)
                for number, (key, leaf) in enumerate(zip(column[::2], column[1::2])):
                    if key == INVALID_KEY or not leaf:
                        continue
                    if key not in leaves:
                        leaves[key] = locate.leaf_of(context, key)
                    if leaves[key] != leaf:
                        where = record.address + place.offset + 2 * word * number
                        what = "a thread remembers the rtree node 0x%x for 0x%x, the tree has 0x%x" % (leaf, key, leaves[key])
                        found.add(codes.RTREE_CACHE, where, what)
            except Unreadable:
                continue
