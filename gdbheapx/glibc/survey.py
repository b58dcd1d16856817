"""The walk over everything that belongs to one glibc malloc: arenas, heaps, pieces, chunks; damage is met by going on behind it.

The figures of each arena follow from it: system = used + tcache + fast + free + top + overhead + unparsed.
"""

from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.glibc import bins, codes, main_arena, tcache
from gdbheapx.glibc.arenas import Arena, Glibc, HeapInfo, heaps_of, read_ring, scan_heap_infos
from gdbheapx.glibc.bins import FreeLists
from gdbheapx.glibc.context import ArenaReports, ArenaWalk, Context, chunk_bytes
from gdbheapx.glibc.detect import heap_max_bytes
from gdbheapx.glibc.layouts import MALLOC_STATE
from gdbheapx.glibc.main_arena import Damage, Pieces, Remnant, damage_rule, next_start
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.glibc.tcache import threads_by_arena
from gdbheapx.glibc.trim import ArenaTrim, predict_trim
from gdbheapx.kernel.common.in_ram import UNKNOWN, InRam
from gdbheapx.kernel.common.library import STOP_END, STOP_FENCE, STOP_TIME, STOP_TOP
from gdbheapx.kernel.glibc.lists import NativeFollowedList
from gdbheapx.kernel.glibc.records import Region, WalkResult
from gdbheapx.layout.view import read_view
from gdbheapx.model import Claim, TargetAddress
from gdbheapx.problems import PartialSink, ProblemCode
from gdbheapx.units import count_noun

MAX_DAMAGES = 1000
"""Places of damage in one arena after which the rest of the piece is given up."""

MAX_REPORTED = 8
"""Places of damage in one arena that are named; the rest is counted."""


class Survey(NamedTuple):
    """Everything that was walked."""

    context: Context
    walks: Sequence[ArenaWalk]
    cached_chunks: bins.CachedChunks
    singles: "Singles"
    heap_max: int
    remnant: Optional[Remnant]
    """The main heap where main_arena is lost."""
    are_all_arenas: bool = True
    """The ring of arenas comes back to main_arena, which could be read."""


def find_arenas(context: Context) -> Tuple[List[Arena], int]:
    """(every arena, HEAP_MAX_SIZE)."""
    target, glibc = context.target, context.glibc
    arenas = read_ring(target, glibc, context.report, context.budget)
    heap_max = heap_max_bytes(target, glibc, [arena.address for arena in arenas if not arena.is_main])
    if _ring_is_broken(arenas, glibc) and not context.budget.expired():
        arenas += _lost_arenas(context, arenas, heap_max)
    return arenas, heap_max


class Singles(NamedTuple):
    """Thread caches and fastbins as they were followed."""

    caches: tcache.Caches
    fast: Sequence[bins.AskedFast]
    followed: NativeFollowedList
    heads: Sequence[int]
    """The first entry of each list."""


class ArenaLists(NamedTuple):
    """Thread caches, and what stands on their lists and in fastbins."""

    cached_chunks: bins.CachedChunks
    singles: Singles


def read_lists(context: Context, arenas: Sequence[Arena], walks: Sequence[ArenaWalk], heap_max: int) -> ArenaLists:
    """Follow all lists of chunks that look used and are free; of the `others`, which were read before, only those of thread caches."""
    lists = FreeLists(context)
    caches = tcache.read_caches(lists, arenas)
    fast = [(walk, bins.ask_fast(lists, walk.arena)) for walk in walks]
    lists.lists.also.extend(tcache.own_chunks(context, caches))
    followed = lists.follow(collect=True)
    tcache.check_cache_lists(context, caches, followed)
    for walk, asked in fast:
        bins.fast_lists(context.glibc, asked, followed, walk.report)
    singles = Singles(caches, [asked for _, asked in fast], followed, lists.lists.heads)
    return ArenaLists(bins.gather_free_lists(followed, _sink_for(context, walks, heap_max)), singles)


def _sink_for(context: Context, walks: Sequence[ArenaWalk], heap_max: int) -> Callable[[int], Optional[PartialSink]]:
    """Return the error sink for the arena that owns a chunk."""
    known: Dict[int, PartialSink] = {heap.address: walk.report for walk in walks for heap in walk.heaps}
    main = next((walk.report for walk in walks if walk.arena.is_main), context.report)
    return lambda chunk: known.get(chunk & -heap_max, main)


def _ring_is_broken(arenas: Sequence[Arena], glibc: Glibc) -> bool:
    return not arenas or arenas[-1].state["next"] != glibc.main_arena.address


def _lost_arenas(context: Context, arenas: Sequence[Arena], heap_max: int) -> List[Arena]:
    """Arenas that the broken ring does not reach, found by the heap_infos that name them; their order is not known."""
    known = {arena.address for arena in arenas}
    lost = sorted({heap.arena for heap in scan_heap_infos(context.target, context.glibc, heap_max, set(), context.budget)} - known)
    first = max([arena.index for arena in arenas], default=0) + 1
    found_arenas: List[Arena] = []
    for address in lost:
        state = read_view(context.target, context.glibc.types, MALLOC_STATE.name, address)
        found_arenas.append(Arena(first + len(found_arenas), address, False, state))
    return found_arenas


def survey_heaps(context: Context) -> Survey:
    """Walk every chunk of every arena once; a damaged place costs its own bytes, not the arena."""
    arenas, heap_max = find_arenas(context)
    reports = ArenaReports(context)
    walks = [_begin_walk(context, arena, reports.collect_for(arena), heap_max) for arena in arenas]
    lists = read_lists(context, arenas, walks, heap_max)
    pending: List[Tuple[ArenaWalk, Region]] = []
    for walk in walks:
        if walk.arena.is_main:
            pending += [(walk, region) for region in main_arena.first_regions(context, walk)]
        else:
            pending += [(walk, _heap_region(context, walk, heap)) for heap in walk.heaps]
    scattered = [walk for walk in walks if walk.arena.is_main and not walk.arena.is_contiguous and walk.arena.top]
    search: List[Tuple[ArenaWalk, Pieces]] = []
    if scattered:
        taken = [(heap.address, heap.address + heap_max) for walk in walks for heap in walk.heaps] + list(context.others())
        search = [(walk, Pieces(context, walk, lists.cached_chunks, taken)) for walk in scattered]
    pending = pending or _find_pieces(search)
    while pending:
        results = context.walker.walk([region for _, region in pending], lists.cached_chunks.chunks, context.ram.pages)
        following: List[Tuple[ArenaWalk, Region]] = []
        for (walk, region), result in zip(pending, results):
            walk.add(region, result)
            after = _find_next_region(context, walk, region, result, lists.cached_chunks)
            if after is not None:
                following.append((walk, after))
        pending = following or _find_pieces(search)
    lost = main_arena.find_remnant(context, walks) if not any(walk.arena.is_main for walk in walks) else None
    _check_walks(context, walks, lists.cached_chunks)
    for walk in walks:
        reports.tell(walk.arena)
    are_all = not _ring_is_broken(arenas, context.glibc) and any(walk.arena.is_main for walk in walks)
    return Survey(context, walks, lists.cached_chunks, lists.singles, heap_max, lost, are_all)


def _begin_walk(context: Context, arena: Arena, report: PartialSink, heap_max: int) -> ArenaWalk:
    walk = ArenaWalk(arena, report)
    if not arena.is_main:
        walk.heaps = heaps_of(context.target, context.glibc, arena, heap_max, report, context.budget)
        walk.pieces = len(walk.heaps)
    return walk


def _heap_region(context: Context, walk: ArenaWalk, heap: HeapInfo) -> Region:
    region = heap.region(context.glibc, walk.arena.top)
    walk.overhead_bytes += region.begin - heap.address
    return region


def _find_pieces(search: Sequence[Tuple[ArenaWalk, Pieces]]) -> List[Tuple[ArenaWalk, Region]]:
    """Pieces of a main arena that is not contiguous which the walk so far did not meet."""
    return [(walk, region) for walk, pieces in search if not walk.timed_out for region in pieces.following()]


def _find_next_region(
    context: Context, walk: ArenaWalk, region: Region, result: WalkResult, special: bins.CachedChunks
) -> Optional[Region]:
    """Return the region to walk next after a run ended: None, the piece after a hole, or the part after a place of damage."""
    if result.stop == STOP_TOP:
        rest = region.end - (region.top + result.top_bytes)
        if rest and not region.joined:
            walk.report(codes.TOP_SHORT, region.top, "the top chunk of %s does not end where its memory ends" % walk.arena.title, None)
            walk.unparsed_bytes += rest
        return None
    if result.stop == STOP_TIME:
        if not walk.timed_out:
            context.report(
                codes.WALK_CUT, result.at, "%s: the walk was %s" % (walk.arena.title, context.budget.reason), "the rest counts as unparsed"
            )
        walk.timed_out = True
        walk.unparsed_bytes += 0 if region.joined else region.end - result.at
        return None
    if result.stop == STOP_FENCE and walk.arena.is_main:
        fence_end = main_arena.fence_end(context, result.at)
        if fence_end:
            return main_arena.behind_fence(context, walk, region, result.at, fence_end, special)
    last_bytes = context.glibc.geometry.min_chunk_bytes + context.glibc.geometry.alignment_bytes
    if result.stop == STOP_FENCE and not walk.arena.is_main and region.end - result.at <= last_bytes:
        walk.overhead_bytes += region.end - result.at
        return None
    if result.stop == STOP_END and not region.top and not walk.arena.is_main:
        walk.report(codes.NO_FENCEPOST, result.at, "a heap of %s ends without a fencepost" % walk.arena.title, None)
        return None
    return _behind_damage(context, walk, region, result, special)


def _behind_damage(context: Context, walk: ArenaWalk, region: Region, result: WalkResult, special: bins.CachedChunks) -> Optional[Region]:
    walk.damages += 1
    if walk.damages <= MAX_REPORTED:
        code, what = damage_rule(context, walk.arena, result)
        walk.report(code, result.at, what, "the bytes up to the next certain chunk count as unparsed")
    start = None
    if walk.damages <= MAX_DAMAGES:
        start = next_start(context, Damage(result.at, region.end, walk.arena.top), special, bins.collect_bin_members(context, walk))
    if not region.joined:  # else the region may go on beyond the arena: what is not located in the end is unparsed
        walk.unparsed_bytes += (start or region.end) - result.at
    return None if start is None else region._replace(begin=start, top=region.top if region.top >= start else 0)


def _check_walks(context: Context, walks: Sequence[ArenaWalk], listed: bins.CachedChunks) -> None:
    """Check the walk as a whole: every listed chunk was met, links of bins are in order, and each arena's bytes add up."""
    met = 0
    for walk in walks:
        total = walk.total()
        if walk.damages > MAX_REPORTED:
            more = count_noun(walk.damages - MAX_REPORTED, "more place")
            walk.report(codes.MORE_DAMAGE, None, "%s: %s of damage" % (walk.arena.title, more), None)
        _report_unlocated(context, walk, total)
        if total is None:
            continue
        met += total.specials_met
        _check_arena(context, walk, total)
    if met < len(listed.chunks) and not any(walk.damages or walk.timed_out or walk.unparsed_bytes for walk in walks):
        outside = len(listed.chunks) - met - sum(total.missed_specials for total in (walk.total() for walk in walks) if total)
        if outside > 0:
            context.report(codes.LISTED_OUTSIDE, None, "%d free-list entries point outside every heap" % outside, None)


def _report_unlocated(context: Context, walk: ArenaWalk, total: Optional[WalkResult]) -> None:
    """Bytes of system_mem that the walk did not come by, reported; none if it all adds up.

    A hole that somebody else's sbrk made counts in system_mem only while the arena is contiguous (sysmalloc).
    """
    counted = (chunk_bytes(total) if total else 0) + walk.overhead_bytes + walk.foreign_bytes + walk.unparsed_bytes
    missing = walk.system_bytes - counted
    if missing == -walk.foreign_bytes and not walk.arena.is_contiguous:
        walk.foreign_bytes = missing = 0
    address = walk.arena.address
    if missing > 0:
        walk.unlocated_bytes = missing
        if not walk.damages and not walk.timed_out and context.budget.reason is None:
            walk.report(
                codes.NOT_LOCATED, address, "%s: cannot account for %d bytes" % (walk.arena.title, missing), "they count as unparsed"
            )
    elif missing < 0:
        walk.report(
            codes.SYSTEM_MEM_SMALL,
            address,
            "%s: system_mem is %d bytes smaller than the sum of its chunks" % (walk.arena.title, -missing),
            "system_mem may be damaged",
        )


def _check_arena(context: Context, walk: ArenaWalk, total: WalkResult) -> None:
    title = walk.arena.title
    if total.missed_specials:
        what = "%s: %d free-list entries do not point at a chunk" % (title, total.missed_specials)
        walk.report(codes.LISTED_ASTRAY, total.missed_special & ~bins.KIND_BITS, what, None)
    if total.bad_prev_size_chunks:
        what = "%s: corrupted size vs. prev_size (%s)" % (title, count_noun(total.bad_prev_size_chunks, "free chunk"))
        walk.report(codes.PREV_SIZE_WRONG, total.bad_prev_size, what, "malloc would abort here")
    if total.bad_neighbour_chunks:
        walk.report(
            codes.FREE_NEIGHBOURS,
            total.bad_neighbour,
            "%s: two free chunks side by side (%s)" % (title, count_noun(total.bad_neighbour_chunks, "time")),
            None,
        )
    if walk.damages or walk.timed_out or walk.unparsed_bytes:
        return
    if not bins.links_agree(walk.arena, context.glibc, total.free_sum, total.fd_sum, total.bk_sum):
        _name_bad_bin(context, walk)


def _name_bad_bin(context: Context, walk: ArenaWalk) -> None:
    """The sums say that the bins do not hold the free chunks: walk the bins to say where."""
    before: List[int] = []

    def count_report(code: ProblemCode, address: Optional[int], what: str, hint: Optional[str]) -> None:
        before.append(1)
        walk.report(code, address, what, hint)

    bins.walk_bins(context, [walk.arena], count_report)
    if not before and context.budget.reason is None:
        walk.report(codes.BINS_DISAGREE, walk.arena.address, "%s: the bins and the free chunks do not match" % walk.arena.title, None)


def arena_claims(done: Survey) -> List[Claim]:
    """Return the ranges of all arenas: a heap or a piece of the main arena each."""
    page = done.context.glibc.geometry.page_bytes
    claims = [Claim(*span, walk.arena.title) for walk in done.walks for span in walk.ranges(page)]
    lost = done.remnant
    if lost is not None:
        claims.append(Claim(lost.region.begin & -page, -(-(lost.result.at or lost.region.end) // page) * page, "main heap"))
    return claims


def arena_totals(done: Survey) -> List[ArenaTotals]:
    """Return one row for each arena, in ring order."""
    threads = threads_by_arena(done.singles.caches)
    rows = []
    for walk in done.walks:
        row = walk.row = walk.row or _make_row(done, walk)
        rows.append(row._replace(threads=None if threads is None else threads.get(walk.arena.address, 0)))
    return rows if done.remnant is None else [_remnant_row(done, done.remnant), *rows]


def _remnant_row(done: Survey, lost: Remnant) -> ArenaTotals:
    """The main heap without its main_arena: what the chunks alone tell; thread caches and fastbins count as used."""
    unknown: Dict[str, Any] = dict.fromkeys(ArenaTotals._fields)
    result = lost.result
    what = "cannot read main_arena; gdbheapx takes the run of chunks at 0x%x for its heap" % lost.region.begin
    done.context.report(codes.MAIN_ARENA_LOST, done.context.glibc.main_arena.address, what, "its thread caches and fastbins count as used")
    unknown.update(
        allocator=done.context.glibc.id,
        index=0,
        address=TargetAddress(done.context.glibc.main_arena.address),
        kind="main",
        heaps=1,
        used_chunks=result.used_chunks,
        used_bytes=result.used_bytes,
        free_chunks=result.free_chunks,
        free_bytes=result.free_bytes,
        top_bytes=lost.top_bytes or None,
        largest_free_bytes=result.largest_free_bytes,
    )
    return ArenaTotals(**unknown)


def _make_row(done: Survey, walk: ArenaWalk) -> ArenaTotals:
    total = walk.total()
    system = walk.system_bytes
    has_pages = done.context.ram.pages is not None
    nothing = ArenaTrim(walk.arena.index, 0, 0, *((0, 0) if has_pages else (None, None)))
    prediction = predict_trim(done.context, walk, total) if total else nothing
    ranges, reserves = walk.ranges(done.context.glibc.geometry.page_bytes), walk.reserves(done.heap_max)
    kept, own = done.context.ram.of(reserves, False) or UNKNOWN, done.context.ram.of(ranges, False) or UNKNOWN
    free = total.free_bytes if total else 0
    fast = total.fast_bytes if total else 0
    top = total.top_bytes if total else 0
    unmerged = walk.arena.top - total.top_run_start if total and total.top_run_start else 0
    overhead = walk.overhead_bytes + walk.foreign_bytes + (total.tcache_struct_bytes + total.fence_bytes if total else 0)
    cached_known = done.singles.caches.known
    state = walk.arena.state
    return ArenaTotals(
        allocator=done.context.glibc.id,
        index=walk.arena.index,
        address=TargetAddress(walk.arena.address),
        kind="main" if walk.arena.is_main else "thread",
        heaps=walk.pieces,
        system_bytes=system,
        max_system_bytes=state["max_system_mem"],
        used_chunks=total.used_chunks if total else 0,
        used_bytes=total.used_bytes if total else 0,
        tcache_chunks=None if not cached_known else total.tcache_chunks if total else 0,
        tcache_bytes=None if not cached_known else total.tcache_bytes if total else 0,
        fast_chunks=total.fast_chunks if total else 0,
        fast_bytes=fast,
        free_chunks=total.free_chunks if total else 0,
        free_bytes=free,
        top_bytes=top,
        overhead_bytes=overhead,
        foreign_bytes=walk.foreign_bytes,
        unparsed_bytes=walk.unparsed_bytes + walk.unlocated_bytes,
        tcache_struct_chunks=None if not cached_known else total.tcache_struct_chunks if total else 0,
        largest_free_bytes=total.largest_free_bytes if total else 0,
        free_percent=round(100.0 * (free + fast + top) / system, 1) if system else 0.0,
        reclaimable_bytes=prediction.bytes,
        reclaimable_resident_bytes=prediction.resident_bytes,
        reclaimable_exclusive_bytes=prediction.exclusive_bytes,
        free_returned_resident_bytes=kept.resident_bytes,
        free_returned_huge_bytes=kept.huge_bytes,
        huge_bytes=None if kept.huge_bytes is None or own.huge_bytes is None else kept.huge_bytes + own.huge_bytes,
        threads=None,
        attached_threads=state.get("attached_threads"),
        locked=bool(state["mutex"]),
        blockless_huge_bytes=_blockless_huge_bytes(done.context, walk, total, kept),
        unmerged_bytes=unmerged,
        between_bytes=free + fast - unmerged - (total.interior_bytes if total else 0),
    )


def _blockless_huge_bytes(context: Context, walk: ArenaWalk, total: Optional[WalkResult], kept: InRam) -> Optional[int]:
    if context.ram.pages is None:
        return None
    from gdbheapx.glibc import trim

    return trim.count_blockless_huge_bytes(context, walk, total, kept)
