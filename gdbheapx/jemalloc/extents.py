"""Walk the radix tree, locate addresses, and make the rows of `arenas` and `bins`."""

from bisect import bisect_left
from collections import Counter
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.answers import AddressPart, AllocatorPlace, ArenaKeeps, Keeping, Neighbour, Term
from gdbheapx.common.columns import add_values
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import HistogramRow, TargetAddress
from gdbheapx.common.problems import ProblemCode
from gdbheapx.common.units import count_noun, format_number
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.arenas import EXTENT_STATES, UNUSED_STATES, ArenaHandle, JemallocContext
from gdbheapx.jemalloc.records import JemallocArena, JemallocBin, JemallocHugePages
from gdbheapx.jemalloc.threads import JemallocCaches
from gdbheapx.kernel.blocks.pages import PinShape
from gdbheapx.kernel.common.in_ram import InRam
from gdbheapx.kernel.common.library import Residency, histogram_bounds
from gdbheapx.kernel.jemalloc import records as kernel_api
from gdbheapx.kernel.jemalloc.records import (
    AbsentTotals,
    ArenaExtents,
    BitField,
    BlockSizes,
    ExtentLayout,
    ExtentsResult,
    HeapLayout,
    RtreeLayout,
)
from gdbheapx.kernel.jemalloc.walkers import ExtentWalker
from gdbheapx.layout.view import LayoutView

_SLAB_BITMAPS = ("e_slab_data.bitmap", "e_slab_data")

EXTENT_DAMAGE: Dict[int, Tuple[ProblemCode, str]] = {
    kernel_api.EXTENT_NODE_UNREADABLE: (codes.NODE_UNREADABLE, "an rtree node that cannot be read: the extents below it are missing here"),
    kernel_api.EXTENT_NODE_HOLE: (codes.NODE_HOLE, "an rtree node that cannot be read completely: extents may be missing here"),
    kernel_api.EXTENT_NODE_TWICE: (codes.NODE_TWICE, "an rtree node that is a child in two places: it is read once"),
    kernel_api.EXTENT_NODE_MISALIGNED: (codes.NODE_MISALIGNED, "an rtree element that does not point to a node"),
    kernel_api.EXTENT_TOO_MANY_NODES: (codes.TOO_MANY_NODES, "more rtree nodes than memory could hold: the rest is not read"),
    kernel_api.EXTENT_UNREADABLE: (codes.EXTENT_UNREADABLE, "cannot read its extent structure"),
    kernel_api.EXTENT_SIZE: (codes.EXTENT_SIZE, "its extent has an impossible size"),
    kernel_api.EXTENT_STALE: (codes.EXTENT_STALE, "its extent does not contain it"),
    kernel_api.EXTENT_FIRST_PAGE: (codes.EXTENT_FIRST_PAGE, "the rtree does not map the first page of its extent to that extent"),
    kernel_api.EXTENT_LAST_PAGE: (
        codes.EXTENT_LAST_PAGE,
        "the rtree does not map the last page of its extent to that extent: its size is wrong, or it was being registered",
    ),
    kernel_api.EXTENT_OVERLAP: (codes.EXTENT_OVERLAP, "another extent begins inside its extent"),
    kernel_api.EXTENT_ARENA: (codes.EXTENT_ARENA, "its extent has an arena index beyond narenas_total"),
    kernel_api.EXTENT_STATE: (codes.EXTENT_STATE, "its extent has an invalid state"),
    kernel_api.EXTENT_SZIND: (codes.EXTENT_SZIND, "its extent has a size class that does not exist"),
    kernel_api.EXTENT_SLAB_SIZE: (codes.SLAB_SIZE, "its extent is a slab of another size than the slabs of its bin"),
    kernel_api.EXTENT_BITMAP: (codes.SLAB_BITMAP, "the number of free regions in its slab's bitmap is not nfree"),
}
"""Code and sentence about the page at hand, by EXTENT_ number."""

CACHED_DAMAGE: Dict[int, Tuple[ProblemCode, str]] = {
    kernel_api.CACHED_OUTSIDE: (codes.CACHED_OUTSIDE, "a thread cache contains this address, but it is in no active extent"),
    kernel_api.CACHED_NOT_START: (codes.CACHED_NOT_START, "a thread cache contains this address, but no region starts there"),
    kernel_api.CACHED_FREE: (
        codes.CACHED_FREE,
        "a thread cache contains this region, but it is free in its slab's bitmap: freed twice, or just leaving the cache",
    ),
    kernel_api.CACHED_TWICE: (codes.CACHED_TWICE, "thread caches contain this address twice: freed twice"),
    kernel_api.CACHED_UNKNOWN: (codes.CACHED_UNKNOWN, "a thread cache contains this address, but its extent cannot be read or is damaged"),
}
"""By CACHED_ number."""

NODE_DAMAGE = range(kernel_api.EXTENT_NODE_UNREADABLE, kernel_api.EXTENT_TOO_MANY_NODES + 1)
"""Damage that no step of jemalloc's own looks like: nodes are made before they are linked, and stay."""

_LEFT_OVER = (kernel_api.EXTENT_STALE, kernel_api.EXTENT_SIZE)
"""Contradictions of elements that name memory of another use. EXTENT_UNREADABLE may be an extent that a core lacks, and is reported."""

MOST_SHOWN = 8
"""Problems of one kind that are reported one by one; the rest as a number."""


def make_heap_layout(context: JemallocContext) -> HeapLayout:
    """Places and constants for the kernel's walk."""
    geometry, types = context.geometry, context.types
    shape, struct = geometry.rtree, geometry.extent_struct
    bits = (*shape.levels, 0, 0)
    rtree = RtreeLayout(
        root=geometry.rtree_root,
        height=len(shape.levels),
        level_bits=(bits[0], bits[1], bits[2]),
        lg_page=geometry.lg_page,
        lg_vaddr=shape.lg_vaddr,
        leaf_bytes=geometry.word_bytes * (1 if shape.compact else 2),
        compact=shape.compact,
        extent_low_bits=geometry.leaf_low_bits,
        sign_extend=geometry.sign_extend and geometry.word_bytes == 8,  # a pointer of 32 bits has nothing to be extended to
        leaf_kind=_leaf_kind(context),
    )
    bitmap = types.place(struct, types.first(struct, *_SLAB_BITMAPS) or "e_slab_data")
    places = {name: types.place(struct, name) for name in ("e_bits", "e_addr", "e_size_esn")}
    offsets = {name: place.offset for name, place in places.items() if place is not None}
    fields = geometry.fields
    states = geometry.states
    extent = ExtentLayout(
        size_bytes=types.size_bytes(struct),
        bits_offset=offsets["e_bits"],
        addr_offset=offsets["e_addr"],
        size_offset=offsets["e_size_esn"],
        bitmap_offset=bitmap.offset if bitmap is not None else 0,
        bitmap_bytes=bitmap.size_bytes * bitmap.count if bitmap is not None else 0,
        arena=fields["arena"],
        slab=fields["slab"],
        state=fields["state"],
        szind=fields["szind"],
        nfree=fields["nfree"],
        states=states.highest + 1,
        active=states.active,
        dirty=states.dirty,
        muzzy=states.muzzy,
        retained=states.retained,
        word_bytes=geometry.word_bytes,
        little_endian=geometry.little_endian,
        binshard=fields.get("binshard", BitField(0, 0)),
        pinned=kernel_api.NO_STATE if states.pinned is None else states.pinned,
    )
    sizes, bounds = BlockSizes(geometry.size_from_extent, geometry.large_pad_bytes), (geometry.narenas, context.sum_writable_bytes())
    counts = (geometry.nbins, len(geometry.size_classes))
    return HeapLayout(rtree, extent, sizes, *bounds, *counts, geometry.bins, geometry.size_classes)


def _leaf_kind(context: JemallocContext) -> int:
    compact, types = context.geometry.rtree.compact, context.types
    if context.jemalloc.is_partial:
        return kernel_api.LEAF_UNKNOWN
    if compact:
        return kernel_api.LEAF_COMPACT_STATE if context.geometry.leaf_low_bits > 1 else kernel_api.LEAF_COMPACT
    if types.place("rtree_leaf_elm_s", "le_metadata") is not None:
        return kernel_api.LEAF_METADATA
    return kernel_api.LEAF_FIELDS if types.place("rtree_leaf_elm_s", "le_szind") is not None else kernel_api.LEAF_UNKNOWN


def make_extent_walker(context: JemallocContext) -> ExtentWalker:
    """The kernel's, bound to this heap."""
    return ExtentWalker(context.kernel, context.source, make_heap_layout(context), context.budget)


def walk_extents(context: JemallocContext, cached: Sequence[int]) -> ExtentsResult:
    """Every extent of every arena. `cached`: sorted array('Q') of what thread caches hold. Damage is reported."""
    result = make_extent_walker(context).walk(cached, context.ram.pages)
    if leaves_stale_elements(context):
        counts = tuple(0 if code in _LEFT_OVER else count for code, count in enumerate(result.problem_counts))
        problems = tuple(problem for problem in result.problems if problem.code not in _LEFT_OVER)
        result = result._replace(problems=problems, problem_counts=counts)
    report_damage(context, result)
    return result


def leaves_stale_elements(context: JemallocContext) -> bool:
    """Leaf elements of memory that was given back may stay in the radix tree, and name an extent structure that is used elsewhere by now.

    With opt.san_guard_small slabs are cut from regions of 4 MiB, and the end of one that is too short for the next slab is unmapped without
    being taken out of the tree (san_bump.c: san_bump_alloc, extent.c: extent_destroy_wrapper, from 5.3.0). So stays the region that an
    arena cuts from when it is destroyed, whose extent structure was in the arena's metadata, which is unmapped (arena.c: arena_destroy):
    what lies there by now may be anything, and is no extent.
    """
    geometry = context.geometry
    if not context.symbols.by_structure:
        return bool(context.variable("opt_san_guard_small")) and bool(context.variable("opt_retain", 1))
    guarded = geometry.fields.get("guarded")
    if guarded is None:
        return False
    try:
        for arena in context.jemalloc.read_arena_pointers():
            slabs = context.jemalloc.find_current_slabs(arena) if arena else []
            for _, place in slabs:
                slab = context.target.read_word(place)
                if slab and guarded.of(context.view(geometry.extent_struct, slab)["e_bits"]):
                    return True
    except UnreadableMemory:
        pass
    return False


def report_damage(context: JemallocContext, result: ExtentsResult) -> None:
    """Report what the walk found wrong: the first few of each kind with their addresses, the rest as numbers."""
    if not result.summary.done:
        why = "the walk over the extents ended here: %s" % (context.budget.reason or "time is up")
        context.report(codes.EXTENTS_CUT, result.summary.at, why, "raise --max-seconds")
    # what a call in progress can look like: a slab's bitmap is written after nfree, leaf elements before the extent
    may_pass = any(problem.code not in NODE_DAMAGE for problem in result.problems) or bool(result.cached_problems)
    hint = context.explain_contradiction() if may_pass else None
    extents = [(one.code, one.page, " (extent 0x%x)" % one.extent if one.extent else "") for one in result.problems]
    cached = [(one.reason, one.address, "") for one in result.cached_problems]
    for damage, found, counts, lasting in (
        (EXTENT_DAMAGE, extents, result.problem_counts, NODE_DAMAGE),
        (CACHED_DAMAGE, cached, result.cached_problem_counts, range(0)),
    ):
        told: Counter[int] = Counter()
        for kind, address, where in found:
            if told[kind] < MOST_SHOWN:
                told[kind] += 1
                code, what = damage[kind]
                context.report(code, address, what + where, None if kind in lasting else hint)
        for kind, count in enumerate(counts):
            if count > MOST_SHOWN:
                code, what = damage[kind]
                context.report(code, None, "%s more: %s" % (format_number(count - told[kind]), what), None)


HPA_HEAP_LINKS: Sequence[str] = ("age_link.link.next", "age_link.link.lchild")
HPA_RING_LINKS: Sequence[str] = ("ql_link_empty.qre_next",)
MOST_HUGE_PAGES = 1 << 20
"""Two TiB: only there to end broken lists."""


def read_huge_pages(context: JemallocContext, arena: ArenaHandle) -> JemallocHugePages:
    """The huge pages of an arena; what cannot be read, or contradicts the arena's counter, is reported."""
    dirty: List[Tuple[int, int]] = []
    untouched: List[Tuple[int, int]] = []
    view, page_bytes = arena.read(), context.geometry.page_bytes
    path = view.find_hpa_path() + "psset."
    if not view.get("pa_shard.ever_used_hpa") or not view.has(path + "pageslabs"):
        return JemallocHugePages(dirty, untouched)
    for start, pages, active, touched in _iterate_huge_pages(context, arena, view, path):
        dirty.extend(_find_runs(touched & ~active, start, page_bytes))
        untouched.extend(_find_runs((1 << pages) - 1 & ~touched & ~active, start, page_bytes))
    counted = view.get(path + "merged_stats.ndirty", path + "stats.merged.ndirty")
    unread = (counted or 0) - sum(end - start for start, end in dirty) // page_bytes
    if unread > 0 and context.budget.reason is None:
        what = "arena %d counts %s in huge pages, %s more than could be read"
        what %= arena.index, count_noun(counted or 0, "dirty page"), format_number(unread)
        context.report(codes.HUGE_PAGES_UNREAD, arena.address, what, "other anonymous memory includes them")
    most = view.get(view.find_hpa_path() + "opts.dirty_mult")
    return JemallocHugePages(sorted(dirty), sorted(untouched), -1 if most == (1 << 32) - 1 else most)


def _iterate_huge_pages(context: JemallocContext, arena: ArenaHandle, view: LayoutView, path: str) -> Iterator[Tuple[int, int, int, int]]:
    """(start, number of pages, those that are active, those that were touched) by the hpdata_s of each huge page that has a free page."""
    heaps = view.column(path + "pageslabs", "ph.root") or []
    pending = [(root, HPA_HEAP_LINKS) for root in heaps if root]
    pending += [(first, HPA_RING_LINKS) for first in [view.get(path + "empty.head.qlh_first")] if first]
    seen: Set[int] = set()
    while pending and len(seen) < MOST_HUGE_PAGES:
        address, links = pending.pop()
        if address in seen:
            continue
        if context.budget.expired():
            what = "the walk over the huge pages of arena %d ended here: %s" % (arena.index, context.budget.reason)
            context.report(codes.HUGE_PAGES_CUT, address, what, "other anonymous memory includes the rest")
            return
        seen.add(address)
        is_good = False
        try:
            page = context.view("hpdata_s", address)
            # the bitmaps (flat_bitmap.h) have a bit for each page
            active, touched = (
                sum(group << 64 * place for place, group in enumerate(page.numbers(name))) for name in ("active_pages", "touched_pages")
            )
            start, pages = page["h_address"], 8 * len(page.bytes_of("active_pages"))
            counts = bin(active).count("1"), bin(touched).count("1")
            is_whole = start and not start % (pages * context.geometry.page_bytes)
            is_good = bool(is_whole) and counts == (page["h_nactive"], page["h_ntouched"]) and not active & ~touched
        except UnreadableMemory:
            pass
        if not is_good:
            what = "a list of huge pages of arena %d contains something that is not one" % arena.index
            context.report(codes.HUGE_PAGE_WRONG, address, what, "huge pages behind it are missing here")
            continue
        yield start, pages, active, touched
        pending += [(page[link], links) for link in links if page[link]]


def _find_runs(bits: int, start: int, page_bytes: int) -> Iterator[Tuple[int, int]]:
    """Runs of pages whose bit is set."""
    place = 0
    while bits:
        skipped = (bits & -bits).bit_length() - 1
        bits >>= skipped
        length = (~bits & bits + 1).bit_length() - 1
        yield start + (place + skipped) * page_bytes, start + (place + skipped + length) * page_bytes
        bits >>= length
        place += skipped + length


class ClassBlocks(NamedTuple):
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


def iterate_classes(context: JemallocContext, walked: ArenaExtents) -> Iterator[ClassBlocks]:
    """Every size class that the arena has blocks of, slabs first."""
    for row in walked.bins:
        info = context.geometry.bins[row.szind]
        size, total = info.reg_size_bytes, row.curslabs * info.nregs
        used = row.curregs - row.cached_regions
        free = total - row.curregs
        yield ClassBlocks(
            row.szind, row.curslabs, None, used, used * size, row.cached_regions, row.cached_regions * size, free, free * size
        )
    for large in walked.larges:
        allocated = _allocated_bytes(context, large.szind, large.extents, large.bytes)
        cached = _allocated_bytes(context, large.szind, large.cached_extents, large.cached_bytes)
        used = large.extents - large.cached_extents
        yield ClassBlocks(large.szind, None, large.extents, used, allocated - cached, large.cached_extents, cached, 0, 0)


def _allocated_bytes(context: JemallocContext, szind: int, extents: int, bytes_: int) -> int:
    """Usable bytes of so many large allocations of one class, whose extents have bytes_ in all."""
    geometry = context.geometry
    if geometry.size_from_extent and szind >= geometry.nbins:
        return bytes_ - extents * geometry.large_pad_bytes
    return extents * geometry.size_classes[szind]


def measure_rounding(context: JemallocContext, walked: ArenaExtents) -> Tuple[int, int, int]:
    """Measure the bytes of active extents that belong to no block: past the last region of each slab, of large blocks, and of small blocks
    that the heap profiler sampled."""
    infos, parts = context.geometry.bins, [0, 0]
    for row in walked.larges:
        parts[row.szind < len(infos)] += row.bytes - _allocated_bytes(context, row.szind, row.extents, row.bytes)
    ends = ((row.curslabs, infos[row.szind]) for row in walked.bins)
    return sum(count * (info.slab_size_bytes - info.nregs * info.reg_size_bytes) for count, info in ends), parts[0], parts[1]


def make_arena_rows(
    context: JemallocContext,
    listed: Sequence[ArenaHandle],
    result: ExtentsResult,
    blind: Optional[Dict[int, Optional[int]]],
    is_whole: bool,
    has_stats: Optional[bool],
    huge_pages: Mapping[int, JemallocHugePages],
) -> List[JemallocArena]:
    """Make a row for each arena, also for one whose struct is unreadable but whose extents are not.

    `blind`: threads bound to each arena that are blind, None where that is unknown, or of all if the threads cannot be read. `is_whole`:
    every thread cache was read, so that cached and used blocks are known apart. `has_stats`: config_stats.
    """
    page, tells_dirty, every_state = context.geometry.page_bytes, context.hides_dirty_pages() is False, ("active", *EXTENT_STATES)
    met_by_index, known, rows = {row.arena: row for row in result.arenas}, {arena.index: arena for arena in listed}, []
    for index in sorted({*known, *met_by_index}):
        met, arena, huge = met_by_index.get(index), known.get(index), huge_pages.get(index)
        classes = list(iterate_classes(context, met)) if met is not None else []
        used, used_bytes = sum(row.used for row in classes), sum(row.used_bytes for row in classes)
        cached, cached_bytes = sum(row.cached for row in classes), sum(row.cached_bytes for row in classes)
        more = measure_rounding(context, met) if met is not None else (0, 0, 0)
        pages, counted = _read_counters(context, arena, has_stats) if arena is not None else ({}, {})
        walked = {state: getattr(met, state).bytes if met is not None else 0 for state in ("active", *context.list_unused_states())}
        in_pages = {state: pages[state] * page if state in pages else walked[state] for state in walked}
        unparsed: Optional[int] = 0  # bytes that its own counters have and the walk over a damaged radix tree has not
        if any(result.problem_counts):
            counts_all = pages.keys() >= walked.keys()
            unparsed = sum(max(0, pages[state] * page - size) for state, size in walked.items()) if counts_all else None
        unused, retained, every = (
            _sum_residency(context, met, states, result.ranges) for states in (UNUSED_STATES, ("retained",), every_state)
        )
        row = JemallocArena(
            allocator=context.jemalloc.id,
            index=index,
            address=TargetAddress(arena.address) if arena is not None else None,
            kind=arena.kind if arena is not None else None,
            allocated_bytes=used_bytes + cached_bytes,
            cached_blocks=cached if is_whole else None,
            cached_bytes=cached_bytes if is_whole else None,
            used_blocks=used if is_whole else None,
            used_bytes=used_bytes if is_whole else None,
            active_bytes=in_pages["active"],
            dirty_bytes=in_pages["dirty"] if tells_dirty else None,
            muzzy_bytes=in_pages["muzzy"],
            retained_bytes=in_pages["retained"],
            pinned_bytes=in_pages.get("pinned", None if context.jemalloc.is_partial else 0),
            metadata_bytes=counted.get("metadata"),
            mapped_bytes=counted.get("mapped"),
            resident_bytes=counted.get("resident"),
            unparsed_bytes=unparsed,
            threads=counted.get("threads"),
            blind_threads=blind.get(index, 0) if blind is not None else None,
            dirty_decay_ms=counted.get("dirty_decay"),
            muzzy_decay_ms=counted.get("muzzy_decay"),
            reclaimable_bytes=in_pages["dirty"] + in_pages["muzzy"] if tells_dirty else None,
            reclaimable_resident_bytes=unused.resident_bytes if tells_dirty else None,
            reclaimable_exclusive_bytes=unused.exclusive_bytes if tells_dirty else None,
            retained_resident_bytes=retained.resident_bytes,
            retained_huge_bytes=retained.huge_bytes,
            huge_bytes=every.huge_bytes,
            huge_dirty_bytes=(huge.dirty_bytes if huge is not None else 0) if tells_dirty else None,
            other_bytes=met.other.bytes if met is not None else 0,
            rounding_bytes=sum(more),
            sampled_rounding_bytes=more[2],
        )
        rows.append(row)
    return rows


def _sum_residency(
    context: JemallocContext, met: Optional[ArenaExtents], states: Sequence[str], ranges: Sequence[Tuple[int, int]]
) -> InRam:
    """Sum the resident bytes of the arena's extents in these states; `ranges`: all extents of jemalloc."""
    parts = [getattr(met, state).residency for state in states] if met is not None else []
    if context.ram.pages is None or None in parts:
        return context.ram.settle(None, ranges)
    return context.ram.settle(Residency(*(sum(part[place] for part in parts) for place in range(len(Residency._fields)))), ranges)


def _read_counters(
    context: JemallocContext, arena: ArenaHandle, has_stats: Optional[bool]
) -> Tuple[Dict[str, int], Dict[str, Optional[int]]]:
    """Pages by state, as far as they are counted, and the other counters of one arena_s; nothing if it is unreadable."""
    try:
        view = arena.read()
    except UnreadableMemory:
        return {}, {}
    pages = {state: view.count_pages(state) for state in ("active", *context.list_unused_states())}
    decay = {"%s_decay" % state: view.read_decay_ms(state) for state in UNUSED_STATES}
    counted: Dict[str, Optional[int]] = {"threads": view.get("nthreads[0]"), **decay}
    if has_stats is False:
        own = sum(end - start for start, end in context.list_base_blocks(arena))
        here = add_values(count for state, count in pages.items() if state != "retained")
        counted["mapped"] = None if here is None else own + here * context.geometry.page_bytes
    else:
        memory = context.read_arena_memory(view, context.read_base(view))
        counted["metadata"] = add_values([memory["base"], memory["internal"]])
        counted["mapped"], counted["resident"] = memory["mapped"], memory["resident"]
    return {state: count for state, count in pages.items() if count is not None}, counted


def sum_absent(result: ExtentsResult) -> Optional[AbsentTotals]:
    """Sum the bytes of all extents that are not in memory; None if unknown."""
    parts = [arena.absent for arena in result.arenas if arena.absent is not None]
    return AbsentTotals(*map(sum, zip(*parts))) if parts else None


def make_bin_rows(context: JemallocContext, result: ExtentsResult) -> List[JemallocBin]:
    """Size classes and unused extents of every arena."""
    name, sizes = context.jemalloc.id, context.geometry.size_classes
    rows = []
    for arena in result.arenas:
        for row in iterate_classes(context, arena):
            kind = "large" if row.slabs is None else "small"
            lowest = sizes[row.szind - 1] + 1 if row.szind else 1
            cached = (None, None) if context.jemalloc.is_partial else (row.cached, row.cached_bytes)
            part = (row.slabs, row.extents, row.used, row.used_bytes, *cached, row.free, row.free_bytes)
            rows.append(JemallocBin(name, arena.arena, row.szind, kind, lowest, sizes[row.szind], *part))
        for place, state in enumerate(EXTENT_STATES):
            for counted in arena.histogram:
                extents, bytes_ = counted[1 + 2 * place], counted[2 + 2 * place]
                if extents:
                    low, high = _find_bounds(context, counted[0])
                    rows.append(JemallocBin(name, arena.arena, None, state, low, high, None, extents, 0, 0, 0, 0, extents, bytes_))
    return rows


def _find_bounds(context: JemallocContext, number: int) -> Tuple[int, int]:
    """Sizes (from, to) of a histogram class of extents, which are whole pages."""
    page = context.geometry.page_bytes
    low, high = histogram_bounds(number, page)
    return min(high, (low - page) // page * page + page), high


def make_histogram(context: JemallocContext, result: ExtentsResult) -> List[HistogramRow]:
    """Blocks by size class over all arenas. Dirty, muzzy and pinned extents are free, retained ones count nowhere: they are no memory."""
    geometry = context.geometry
    sums: Dict[
        Tuple[bool, int], List[int]
    ] = {}  # used, used bytes, free, free bytes, cached of each class of blocks, and of unused extents
    for arena in result.arenas:
        parts = [
            ((False, row.szind), (row.used, row.used_bytes, row.free, row.free_bytes, row.cached))
            for row in iterate_classes(context, arena)
        ]
        for counted in arena.histogram:
            if counted[1] or counted[3] or counted[7]:
                extents, bytes_ = counted[1] + counted[3] + counted[7], counted[2] + counted[4] + counted[8]
                parts.append(((True, counted[0]), (0, 0, extents, bytes_, 0)))
        for key, part in parts:
            sums[key] = [one + more for one, more in zip(sums.get(key, [0] * 5), part)]
    rows = []
    for is_unused, number in sorted(sums):
        used, used_bytes, free, free_bytes, cached = sums[is_unused, number]
        if is_unused:
            low, high = _find_bounds(context, number)
        else:
            low = high = geometry.size_classes[number]
            if geometry.size_from_extent and number >= geometry.nbins:
                low = geometry.size_classes[number - 1] + 1
        told = None if context.jemalloc.is_partial else cached  # thread caches cannot be read
        rows.append(HistogramRow(low, high, used, used_bytes, free, free_bytes, told))
    return sorted(rows, key=lambda row: (row.size_bytes, row.max_size_bytes))


def measure_keeping(context: JemallocContext, result: ExtentsResult, rows: Sequence[JemallocArena]) -> Keeping:
    """Measure the free memory that a purge leaves: active = allocated + free regions + rounding of large allocations."""
    rooms = sorted((info.reg_size_bytes, info.slab_size_bytes) for info in context.geometry.bins)
    met = {arena.arena: arena for arena in result.arenas}
    arenas, rounded = [], 0
    for row in rows:
        walked = met.get(row.index)
        more = sum(measure_rounding(context, walked)[1:]) if walked is not None else 0
        rounded += more
        kept = None if row.active_bytes is None or row.allocated_bytes is None else row.active_bytes - row.allocated_bytes - more
        arenas.append(ArenaKeeps(row.index, kept))
    active, allocated = (sum(getattr(row, name) or 0 for row in rows) for name in ("active_bytes", "allocated_bytes"))
    terms = [Term("active", active), Term("allocated", allocated, True), Term("rounding of large blocks", rounded, True)]
    given = add_values([row.reclaimable_bytes for row in rows])
    return Keeping(PinShape(context.geometry.page_bytes, rooms=rooms), arenas, terms, returnable_bytes=given)


MOST_LEAVES = 256
"""Leaf nodes that are searched backwards for the first page of a large extent."""


class LocatedExtent(NamedTuple):
    """An extent_t or edata_t, decoded."""

    struct: int
    begin: int
    end: int
    address: int
    arena: int
    state: int
    szind: int
    is_slab: bool
    free: int
    """A slab's bitmap: a set bit for each free region."""


def find_extent(context: JemallocContext, address: int) -> Optional[LocatedExtent]:
    """The extent that holds the address; None if there is none."""
    geometry = context.geometry
    try:
        struct = context.jemalloc.look_up_extent(address) or _search_backwards(context, address)
        if not struct:
            return None
        view = context.view(geometry.extent_struct, struct)
        of = {name: field.of(view["e_bits"]) for name, field in geometry.fields.items()}
        begin, free = view["e_addr"] & -geometry.page_bytes, 0
        end = begin + (view["e_size_esn"] & -geometry.page_bytes)
        is_slab = bool(of["slab"]) and of["state"] == geometry.states.active and of["szind"] < geometry.nbins
        if is_slab:
            place = context.types.place(geometry.extent_struct, "e_slab_data")
            nregs, word = geometry.bins[of["szind"]].nregs, geometry.word_bytes
            used_bytes = -(-nregs // (8 * word)) * word
            data = context.target.read(struct + (place.offset if place is not None else 0), used_bytes)
            groups = enumerate(context.target.words_in(data))
            free = sum(group << 8 * word * number for number, group in groups) & (1 << nregs) - 1
    except UnreadableMemory:
        return None
    if not begin <= address < end:
        return None
    return LocatedExtent(struct, begin, end, view["e_addr"], of["arena"], of["state"], of["szind"], is_slab, free)


def _search_backwards(context: JemallocContext, address: int) -> Optional[int]:
    """The extent that the last leaf element before this page names: of a large one only the first and the last page have one."""
    geometry, shape = context.geometry, context.geometry.rtree
    bits, width = shape.levels[-1], geometry.word_bytes * (1 if shape.compact else 2)
    page = (address & (1 << shape.lg_vaddr) - 1) >> geometry.lg_page
    for _ in range(MOST_LEAVES):
        node, index = context.jemalloc.find_leaf(page << geometry.lg_page), page & (1 << bits) - 1
        data = context.target.read_prefix(node, (index + 1) * width) if node else b""
        column = context.unpack_pointers(data[: len(data) // width * width])
        last = next((number for number in range(len(column) - 1, -1, -1) if column[number]), None)
        if last is not None:
            element = last // (width // geometry.word_bytes)
            base_page = page - index + element
            return context.jemalloc.look_up_extent(base_page << geometry.lg_page)
        page = page - index - 1
        if page < 0:
            return None
    return None


def locate_jemalloc_address(
    context: JemallocContext, arenas: Sequence[ArenaHandle], caches: JemallocCaches, address: int
) -> Optional[AllocatorPlace]:
    """Locate an address in a block and an extent; None if jemalloc has no memory there."""
    extent = find_extent(context, address)
    if extent is None:
        blocks = [(arena, start, end) for arena in arenas for start, end in context.list_base_blocks(arena)]
        for arena, start, end in blocks:
            if start <= address < end:
                part = AddressPart("base", "metadata of arena %d" % arena.index, TargetAddress(start), TargetAddress(end))
                own = Neighbour(TargetAddress(start), end - start, end - start, "metadata")
                return AllocatorPlace(context.jemalloc.id, arena.index, own, None, address - start, None, None, [part])
        return None
    kind = "slab" if extent.is_slab else "extent"
    name = "%s of %d bytes, structure at 0x%x" % (kind, extent.end - extent.begin, extent.struct)
    parts = [AddressPart(kind, name, TargetAddress(extent.begin), TargetAddress(extent.end))]
    beside: List[Optional[Neighbour]] = []
    if extent.is_slab:
        block, *beside = _find_regions(context, caches, extent, address)
    else:
        block = _make_block(context, caches, extent)
        for other in (find_extent(context, extent.begin - 1), find_extent(context, extent.end)):
            if other is not None and other.is_slab:
                size = other.end - other.begin
                beside.append(Neighbour(TargetAddress(other.begin), size, size, "slab"))
            else:
                beside.append(_make_block(context, caches, other) if other is not None else None)
    if block is not None and block.status == "cached":
        holding = [cache for cache in caches.caches if block.address in cache.pointers]
        owners = ["thread %d" % cache.tsd.lwp if cache.tsd and cache.tsd.lwp else "explicit cache %s" % cache.explicit for cache in holding]
        named = zip(owners, holding)
        parts = [*(AddressPart("cache", "thread cache of %s" % owner, TargetAddress(one.address)) for owner, one in named), *parts]
    offset = address - block.address if block is not None else None
    return AllocatorPlace(context.jemalloc.id, extent.arena, block, None, offset, beside[0], beside[1], parts)


def _find_regions(context: JemallocContext, caches: JemallocCaches, extent: LocatedExtent, address: int) -> List[Optional[Neighbour]]:
    """The region at the address, and those before and after it."""
    info = context.geometry.bins[extent.szind]
    size, number = info.reg_size_bytes, (address - extent.begin) // info.reg_size_bytes
    cached = set(caches.pointers[bisect_left(caches.pointers, extent.begin) : bisect_left(caches.pointers, extent.end)])
    found: List[Optional[Neighbour]] = []
    for index in (number, number - 1, number + 1):
        start = extent.begin + index * size
        status = "free" if extent.free >> max(index, 0) & 1 else "cached" if start in cached else "used"
        found.append(Neighbour(TargetAddress(start), size, size, status) if 0 <= index < info.nregs else None)
    return found if found[0] is not None else [None, None, found[2]]


def _make_block(context: JemallocContext, caches: JemallocCaches, extent: LocatedExtent) -> Neighbour:
    geometry, size = context.geometry, extent.end - extent.begin
    names = {getattr(geometry.states, state): state for state in EXTENT_STATES}
    if extent.state != geometry.states.active or extent.szind >= len(geometry.size_classes):
        return Neighbour(TargetAddress(extent.begin), size, size, names.get(extent.state, "metadata"))
    size = _allocated_bytes(context, extent.szind, 1, size)
    place = bisect_left(caches.pointers, extent.address)
    is_cached = place < len(caches.pointers) and caches.pointers[place] == extent.address
    return Neighbour(TargetAddress(extent.address), size, size, "cached" if is_cached else "used")
