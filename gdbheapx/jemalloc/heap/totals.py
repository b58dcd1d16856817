"""From the walk and the arenas' counters to rows: per arena, per size class, as a histogram.

What free memory a purge leaves: free regions of slabs, as only a whole slab becomes unused pages (arena.c: arena_slab_dalloc).
"""

from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.keeping import ArenaKeeps, Keeping, Term
from gdbheapx.columns import add
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection.layouts import resident_counts_muzzy
from gdbheapx.jemalloc.heap import arenas as arena_list
from gdbheapx.jemalloc.heap import base
from gdbheapx.jemalloc.heap.arenas import EXTENT_STATES, UNUSED_STATES, Arena
from gdbheapx.jemalloc.records import HugePages, JemallocArena, JemallocBin
from gdbheapx.kernel.blocks.pins import PinShape
from gdbheapx.kernel.common.in_ram import InRam
from gdbheapx.kernel.common.records import Residency, histogram_bounds
from gdbheapx.kernel.jemalloc.records import AbsentTotals, ArenaExtents, ExtentsResult
from gdbheapx.layout.view import View
from gdbheapx.model import Address, HistogramRow


class Blocks(NamedTuple):
    """Blocks of one size class in one arena."""

    szind: int
    slabs: Optional[int]
    extents: Optional[int]
    used: int
    used_bytes: int
    cached: int
    cached_bytes: int
    free: int
    free_bytes: int


def classes(context: Context, walked: ArenaExtents) -> Iterator[Blocks]:
    """Every size class that the arena has blocks of, slabs first."""
    for row in walked.bins:
        info = context.geometry.bins[row.szind]
        size, total = info.reg_size_bytes, row.curslabs * info.nregs
        used = row.curregs - row.cached_regions
        free = total - row.curregs
        yield Blocks(row.szind, row.curslabs, None, used, used * size, row.cached_regions, row.cached_regions * size, free, free * size)
    for large in walked.larges:
        allocated = _allocated_bytes(context, large.szind, large.extents, large.bytes)
        cached = _allocated_bytes(context, large.szind, large.cached_extents, large.cached_bytes)
        used = large.extents - large.cached_extents
        yield Blocks(large.szind, None, large.extents, used, allocated - cached, large.cached_extents, cached, 0, 0)


def _allocated_bytes(context: Context, szind: int, extents: int, bytes_: int) -> int:
    """Usable bytes of so many large allocations of one class, whose extents have bytes_ in all."""
    geometry = context.geometry
    if geometry.size_from_extent and szind >= geometry.nbins:
        return bytes_ - extents * geometry.large_pad_bytes
    return extents * geometry.size_classes[szind]


class Sums(NamedTuple):
    """Blocks of one arena in all."""

    used: int
    used_bytes: int
    cached: int
    cached_bytes: int


def sums(context: Context, walked: ArenaExtents) -> Sums:
    """All size classes together."""
    rows = list(classes(context, walked))
    return Sums(sum(r.used for r in rows), sum(r.used_bytes for r in rows), sum(r.cached for r in rows), sum(r.cached_bytes for r in rows))


class Extra(NamedTuple):
    """What other readers know of the arenas."""

    blind: Optional[Dict[int, Optional[int]]]
    """Arena index -> threads bound to it that are blind, None where that is unknown; None for all if the threads cannot be read."""
    caches_complete: bool
    """Every thread cache was read: what they hold is told from what is used."""
    has_stats: Optional[bool]
    """config_stats."""
    huge: Mapping[int, HugePages] = {}
    """By arena index."""


class Rounding(NamedTuple):
    """Bytes of active extents that no block has."""

    slabs: int
    """Behind the last region of each slab."""
    large: int
    """Sizes of extents less usable sizes."""
    sampled: int
    """The same of small blocks that the heap profiler sampled."""


def rounding(context: Context, walked: ArenaExtents) -> Rounding:
    """Each extent by itself."""
    infos, parts = context.geometry.bins, [0, 0]
    for row in walked.larges:
        parts[row.szind < len(infos)] += row.bytes - _allocated_bytes(context, row.szind, row.extents, row.bytes)
    ends = ((row.curslabs, infos[row.szind]) for row in walked.bins)
    return Rounding(sum(count * (info.slab_size_bytes - info.nregs * info.reg_size_bytes) for count, info in ends), *parts)


def arena_rows(context: Context, listed: Sequence[Arena], result: ExtentsResult, extra: Extra) -> List[JemallocArena]:
    """One row per arena, also for those whose struct cannot be read but whose extents can."""
    met = {row.arena: row for row in result.arenas}
    known = {arena.index: arena for arena in listed}
    is_damaged = any(result.problem_counts)
    return [_row(context, index, known.get(index), met.get(index), extra, is_damaged, result.ranges) for index in sorted({*known, *met})]


def _row(
    context: Context,
    index: int,
    arena: Optional[Arena],
    met: Optional[ArenaExtents],
    extra: Extra,
    is_damaged: bool,
    ranges: Sequence[Tuple[int, int]],
) -> JemallocArena:
    page = context.geometry.page_bytes
    blocks = sums(context, met) if met is not None else Sums(0, 0, 0, 0)
    more = rounding(context, met) if met is not None else Rounding(0, 0, 0)
    huge, whole = extra.huge.get(index), extra.caches_complete
    counted = _counters(context, arena, extra) if arena is not None else _Counters()
    walked = {state: getattr(met, state).bytes if met is not None else 0 for state in ("active", *arena_list.states_of(context))}
    in_pages = {state: counted.pages[state] * page if state in counted.pages else walked[state] for state in walked}
    in_ram = {states: _in_ram(context, met, states, ranges) for states in (UNUSED_STATES, ("retained",), ("active", *EXTENT_STATES))}
    tells_dirty = arena_list.hides_dirty_pages(context) is False
    return JemallocArena(
        allocator=context.jemalloc.id,
        index=index,
        address=Address(arena.address if arena is not None else 0),
        kind=arena.kind if arena is not None else "auto",
        allocated_bytes=blocks.used_bytes + blocks.cached_bytes,
        cached_blocks=blocks.cached if whole else None,
        cached_bytes=blocks.cached_bytes if whole else None,
        used_blocks=blocks.used if whole else None,
        used_bytes=blocks.used_bytes if whole else None,
        active_bytes=in_pages["active"],
        dirty_bytes=in_pages["dirty"] if tells_dirty else None,
        muzzy_bytes=in_pages["muzzy"],
        retained_bytes=in_pages["retained"],
        pinned_bytes=in_pages.get("pinned", None if context.jemalloc.is_partial else 0),
        metadata_bytes=counted.metadata_bytes,
        mapped_bytes=counted.mapped_bytes,
        resident_bytes=counted.resident_bytes,
        unparsed_bytes=_unparsed_bytes(counted.pages, walked, page) if is_damaged else 0,
        threads=counted.threads,
        blind_threads=extra.blind.get(index, 0) if extra.blind is not None else None,
        dirty_decay_ms=counted.dirty_decay_ms,
        muzzy_decay_ms=counted.muzzy_decay_ms,
        reclaimable_bytes=in_pages["dirty"] + in_pages["muzzy"] if tells_dirty else None,
        reclaimable_resident_bytes=in_ram[UNUSED_STATES].resident_bytes if tells_dirty else None,
        reclaimable_exclusive_bytes=in_ram[UNUSED_STATES].exclusive_bytes if tells_dirty else None,
        retained_resident_bytes=in_ram[("retained",)].resident_bytes,
        retained_huge_bytes=in_ram[("retained",)].huge_bytes,
        huge_bytes=in_ram[("active", *EXTENT_STATES)].huge_bytes,
        huge_dirty_bytes=(huge.dirty_bytes if huge is not None else 0) if tells_dirty else None,
        other_bytes=met.other.bytes if met is not None else 0,
        rounding_bytes=sum(more),
        sampled_rounding_bytes=more.sampled,
    )


def _in_ram(context: Context, met: Optional[ArenaExtents], states: Sequence[str], ranges: Sequence[Tuple[int, int]]) -> InRam:
    """What of the arena's extents in these states is in RAM; `ranges`: where jemalloc's extents lie."""
    parts = [getattr(met, state).residency for state in states] if met is not None else []
    if context.ram.pages is None or None in parts:
        return context.ram.settle(None, ranges)
    return context.ram.settle(Residency(*(sum(part[place] for part in parts) for place in range(len(Residency._fields)))), ranges)


def _unparsed_bytes(pages: Mapping[str, int], walked: Dict[str, int], page: int) -> Optional[int]:
    """What the arena's own counters have and the walk over a damaged radix tree has not; None without those counters."""
    if not pages.keys() >= walked.keys():
        return None
    return sum(max(0, pages[state] * page - size) for state, size in walked.items())


class _Counters(NamedTuple):
    """What arena_s itself says; all None for an arena that cannot be read."""

    pages: Mapping[str, int] = {}
    threads: Optional[int] = None
    dirty_decay_ms: Optional[int] = None
    muzzy_decay_ms: Optional[int] = None
    metadata_bytes: Optional[int] = None
    mapped_bytes: Optional[int] = None
    resident_bytes: Optional[int] = None


def _counters(context: Context, arena: Arena, extra: Extra) -> _Counters:
    try:
        view = arena.read()
    except Unreadable:
        return _Counters()
    pages = {state: arena_list.pages(view, state) for state in arena_list.states_of(context)}
    pages["active"] = arena_list.active_pages(view)

    def in_states(*states: str) -> Optional[int]:
        count = add(pages[state] for state in (*states, "pinned") if state in pages)
        return None if count is None else count * context.geometry.page_bytes

    if extra.has_stats is False:
        own = sum(block.size_bytes for block in base.blocks(context, arena))
        metadata, mapped, resident = None, add([own, in_states("active", *UNUSED_STATES)]), None
    else:
        totals = base.totals(context, arena)
        counted = ("active", *UNUSED_STATES) if resident_counts_muzzy(context.jemalloc.version) else ("active", "dirty")
        metadata = add([totals.allocated_bytes, view.get("stats.internal")])
        mapped = base.mapped_sum(context, [totals.mapped_bytes, _mapped_by_extents(context, view)], True)
        resident = add([totals.resident_bytes, in_states(*counted)])
    return _Counters(
        pages={state: count for state, count in pages.items() if count is not None},
        threads=view.get("nthreads[0]"),
        dirty_decay_ms=arena_list.decay_ms(view, "dirty"),
        muzzy_decay_ms=arena_list.decay_ms(view, "muzzy"),
        metadata_bytes=metadata,
        mapped_bytes=mapped,
        resident_bytes=resident,
    )


def _mapped_by_extents(context: Context, view: View) -> Optional[int]:
    """arena_stats.mapped up to 5.2; from 5.3 pac_stats.pac_mapped, behind a pointer."""
    pointer = view.get("pa_shard.pac.stats")
    if pointer is None:
        return view.get("stats.mapped")
    try:
        return context.view("pac_stats_s", pointer).get("pac_mapped")
    except (Unreadable, KeyError):
        return view.get("stats.pa_shard_stats.pac_stats.pac_mapped")


def absent(result: ExtentsResult) -> Optional[AbsentTotals]:
    """What of all extents is not in memory; None where that cannot be told."""
    parts = [arena.absent for arena in result.arenas if arena.absent is not None]
    return AbsentTotals(*map(sum, zip(*parts))) if parts else None


def bin_rows(context: Context, result: ExtentsResult) -> List[JemallocBin]:
    """Size classes and unused extents of every arena."""
    name, sizes = context.jemalloc.id, context.geometry.size_classes
    rows = []
    for arena in result.arenas:
        for row in classes(context, arena):
            kind = "large" if row.slabs is None else "small"
            lowest = sizes[row.szind - 1] + 1 if row.szind else 1
            cached = (None, None) if context.jemalloc.is_partial else (row.cached, row.cached_bytes)
            part = (row.slabs, row.extents, row.used, row.used_bytes, *cached, row.free, row.free_bytes)
            rows.append(JemallocBin(name, arena.arena, row.szind, kind, lowest, sizes[row.szind], *part))
        for place, state in enumerate(EXTENT_STATES):
            for counted in arena.histogram:
                extents, bytes_ = counted[1 + 2 * place], counted[2 + 2 * place]
                if extents:
                    low, high = _bounds(context, counted[0])
                    rows.append(JemallocBin(name, arena.arena, None, state, low, high, None, extents, 0, 0, 0, 0, extents, bytes_))
    return rows


def _bounds(context: Context, number: int) -> Tuple[int, int]:
    """Sizes (from, to) of a histogram class of extents, which are whole pages."""
    page = context.geometry.page_bytes
    low, high = histogram_bounds(number, page)
    return min(high, (low - page) // page * page + page), high


def histogram(context: Context, result: ExtentsResult) -> List[HistogramRow]:
    """Blocks by size class over all arenas. Dirty, muzzy and pinned extents are free, retained ones count nowhere: they are no memory."""
    blocks: Dict[int, List[int]] = {}
    unused: Dict[int, List[int]] = {}
    for arena in result.arenas:
        for row in classes(context, arena):
            _add(blocks.setdefault(row.szind, [0] * 5), (row.used, row.used_bytes, row.free, row.free_bytes, row.cached))
        for counted in arena.histogram:
            if counted[1] or counted[3] or counted[7]:
                _add(unused.setdefault(counted[0], [0] * 2), (counted[1] + counted[3] + counted[7], counted[2] + counted[4] + counted[8]))
    sizes = context.geometry.size_classes
    rows = []
    for szind, (used, used_bytes, free, free_bytes, cached) in blocks.items():
        low = sizes[szind - 1] + 1 if context.geometry.size_from_extent and szind >= context.geometry.nbins else sizes[szind]
        rows.append(_without_caches(context, HistogramRow(low, sizes[szind], used, used_bytes, free, free_bytes, cached)))
    for number, (extents, bytes_) in unused.items():
        low, high = _bounds(context, number)
        rows.append(_without_caches(context, HistogramRow(low, high, 0, 0, extents, bytes_, 0)))
    return sorted(rows, key=lambda row: (row.size_bytes, row.max_size_bytes))


def _without_caches(context: Context, row: HistogramRow) -> HistogramRow:
    """What caches hold is null where they cannot be read."""
    return row._replace(tcache_chunks=None) if context.jemalloc.is_partial else row


def _add(sums_: List[int], parts: Sequence[int]) -> None:
    for place, part in enumerate(parts):
        sums_[place] += part


def keeping(context: Context, result: ExtentsResult, rows: Sequence[JemallocArena]) -> Keeping:
    """Of the same look as the rows of `arenas`. active = allocated + free regions + what large allocations are rounded up by."""
    rooms = sorted((info.reg_size_bytes, info.slab_size_bytes) for info in context.geometry.bins)
    met = {arena.arena: arena for arena in result.arenas}
    arenas, rounded = [], 0
    for row in rows:
        walked = met.get(row.index)
        more = sum(rounding(context, walked)[1:]) if walked is not None else 0
        rounded += more
        kept = None if row.active_bytes is None or row.allocated_bytes is None else row.active_bytes - row.allocated_bytes - more
        arenas.append(ArenaKeeps(row.index, kept))
    active, allocated = (sum(getattr(row, name) or 0 for row in rows) for name in ("active_bytes", "allocated_bytes"))
    terms = [Term("active", active), Term("allocated", allocated, True), Term("rounding of large blocks", rounded, True)]
    given = add([row.reclaimable_bytes for row in rows])
    return Keeping(PinShape(context.geometry.page_bytes, rooms=rooms), arenas, terms, returnable_bytes=given)
