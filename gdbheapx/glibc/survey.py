"""Walk everything that belongs to one glibc malloc: arenas, heaps, pieces, chunks, mmapped chunks; the walk goes on after damage.

The figures of each arena follow from it: system = used + tcache + fast + free + top + overhead + unparsed. So does what a malloc_trim(0)
would return (malloc.c: mtrim and systrim, after malloc_consolidate)."""

from array import array
from bisect import bisect_right
from collections import Counter
from typing import Annotated, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators import answers
from gdbheapx.allocators.answers import AddressPart, AllocatorPlace, make_collector
from gdbheapx.common.columns import BYTES, IF_KNOWN, TEXT, Column, add_values
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Claim, TargetAddress
from gdbheapx.common.problems import Diagnostic, ProblemCode, Severity
from gdbheapx.common.ranges import Range, subtract_ranges
from gdbheapx.common.units import count_noun
from gdbheapx.glibc import arenas, codes, freelists, main_arena
from gdbheapx.glibc.detect import heap_max_bytes
from gdbheapx.glibc.layouts import MALLOC_STATE, bin_index
from gdbheapx.glibc.main_arena import Pieces, Remnant, next_start
from gdbheapx.glibc.records import ArenaTotals, MmappedTotals
from gdbheapx.kernel.blocks.stream import NO_ARENA, BlockFilter, BlockShape
from gdbheapx.kernel.common import library
from gdbheapx.kernel.common.in_ram import NOTHING, UNKNOWN, InRam
from gdbheapx.kernel.glibc import records as api
from gdbheapx.kernel.glibc.records import BIN, PAGE_COUNTERS, STATUS_FREE, MmappedChunk, MmappedChunks, NativeListed, Region, WalkResult
from gdbheapx.layout.view import read_view

MOST_LEFT_BYTES = 1 << 20
"""65,536 times that a block was remapped."""

MOST_SUMS = 4096
"""Numbers and bytes of chunks that may be left out."""
MOST_GUARD_BYTES = 64 << 10
"""Memory that cannot be read is a reserve where it is larger, and no chunk begins there."""


def read_mmapped_counters(context: arenas.Context) -> Optional[MmappedTotals]:
    """mp_.n_mmaps and mp_.mmapped_mem; None, and a report, if mp_ cannot be read or one of the two contradicts the other: both are 0, or
    both are positive with at least a page for each chunk. With 2.43 some bytes stay counted after blocks were remapped: two words for
    each time (is_ahead).
    """
    glibc = context.glibc
    try:
        mp = glibc.read_mp(context.target)
    except UnreadableMemory as problem:
        context.report(codes.MP_UNREADABLE, problem.address, "cannot read mp_", "mmapped chunks are not counted")
        return None
    chunks, bytes_ = mp["n_mmaps"], mp["mmapped_mem"]
    is_consistent = chunks >= 0 and bytes_ >= chunks * glibc.geometry.page_bytes
    if not chunks and bytes_:
        is_consistent = glibc.traits.mmapped_trailer and bytes_ < MOST_LEFT_BYTES
    if is_consistent:
        return MmappedTotals(chunks, bytes_)
    message = "mp_ counts %d mmapped chunks of %d bytes" % (chunks, bytes_)
    hint = "one of these counts is wrong, so mmapped chunks are unknown"
    changing = "mmapped chunks are being made or freed: mp_ is in the middle of a change"
    complaint = Diagnostic(codes.MP_DISAGREES, glibc.mp.address, message, hint)
    arenas.tell_unless_changing(context, [complaint], codes.MAPPED_CHANGING, changing)
    return None


def is_ahead(context: arenas.Context, counted: MmappedTotals) -> bool:
    """Return True if mp_.mmapped_mem is no number of whole pages: glibc 2.43 counts mremapped blocks too large, and only the blocks
    themselves show by how much.
    """
    return context.glibc.traits.mmapped_trailer and bool((counted.bytes or 0) % context.glibc.geometry.page_bytes)


def find_mmapped_chunks(context: arenas.Context, heaps: Sequence[Range], counted: Optional[MmappedTotals]) -> Tuple[MmappedChunks, bool]:
    """Find every mmapped chunk outside the arenas' own ranges `heaps` and what other allocators hold. Return the chunks, and whether their
    number and bytes are those that mp_ counts; if they are not, that is reported.
    """
    if counted is None or not counted.chunks or counted.bytes is None:
        return MmappedChunks(array("Q")), counted is not None
    ranges = find_mmapped_ranges(context, heaps)
    data = context.target.data_ranges(sorted(ranges))
    ranges = ranges if data is None or data else []
    limits = arenas.find_reaches(context.target, ranges, sorted([*heaps, *context.others()]))
    trailer, pages = context.glibc.traits.mmapped_trailer, context.ram.pages
    search = (trailer, counted.chunks, counted.bytes, pages, data or ())
    chunks, is_complete = context.walker.scan_mmapped(ranges, *search, 0 if _is_blind(context) else library.ADDRESS_MASK, limits)
    if not is_complete and len(chunks) > (counted.chunks or 0):
        chunks, is_complete = _leave_out_ranges(chunks, ranges, counted)
    if not is_complete and not context.budget.expired():
        _report_missing(context, chunks, counted)
    return chunks, is_complete


def _leave_out_ranges(chunks: MmappedChunks, ranges: Sequence[Range], counted: MmappedTotals) -> Tuple[MmappedChunks, bool]:
    """Return the chunks without those of the ranges that make them as many as mp_ counts, to the byte, and True; all chunks and False if no
    ranges do, or others would do as well. Words of other memory, such as a JVM's metaspace, look like headers by chance.
    """
    starts = sorted(start for start, _ in ranges)
    by_range: Dict[int, List[MmappedChunk]] = {}
    for chunk in chunks:
        by_range.setdefault(bisect_right(starts, chunk.chunk), []).append(chunk)
    surplus = len(chunks) - (counted.chunks or 0), chunks.bytes - (counted.bytes or 0)
    sums: Dict[Tuple[int, int], List[Tuple[int, ...]]] = {(0, 0): [()]}
    for number, part in by_range.items():
        for (count, bytes_), choices in list(sums.items()):
            more = count + len(part), bytes_ + sum(chunk.total_bytes for chunk in part)
            if more[0] <= surplus[0] and more[1] <= surplus[1]:
                sums[more] = [*sums.get(more, ()), *((*choice, number) for choice in choices)][:2]
        if len(sums) > MOST_SUMS:
            return chunks, False
    fitting = sums.get(surplus, [])
    if len(fitting) != 1:
        return chunks, False
    left_out = {chunk.chunk for number in fitting[0] for chunk in by_range[number]}
    rest = [chunk for chunk in chunks if chunk.chunk not in left_out]
    return MmappedChunks(array("Q", (number for chunk in rest for number in chunk))), True


def has_searched_mmapped(context: arenas.Context, counted: MmappedTotals) -> bool:
    """Return whether find_mmapped_chunks() looks everywhere, if it must."""
    return not counted.chunks or counted.bytes is None or not _is_blind(context)


def _is_blind(context: arenas.Context) -> bool:
    """Return True if it is unknown which pages of the process were ever touched. Then only likely places of headers are read, because
    reading others changes the process.
    """
    return context.ram.pages is None and context.target.kind != "core"


def find_mmapped_ranges(context: arenas.Context, heaps: Sequence[Range]) -> List[Range]:
    """Return ranges where mmapped chunks can begin, smallest first, as a runtime's own are large. The first page of one may be protected
    by now, as a whole block may be, or as a guard is. Not memory of which the program has said what it is for (prctl PR_SET_VMA_ANON_NAME;
    glibc.mem.decorate_maps names malloc's, 2.39).
    """
    taken = sorted([*heaps, *context.others()])
    plain, others = [], []
    for mapping in arenas.private_mappings(context.target):
        if mapping.name.startswith("[anon:") and "glibc: malloc" not in mapping.name:
            continue
        if mapping.readable and mapping.writable:
            plain.append(mapping)
        elif mapping.readable or mapping.size_bytes <= MOST_GUARD_BYTES:
            others.append(mapping)
    left = subtract_ranges(sorted([*arenas.unite_mappings(plain), *arenas.unite_mappings(others)]), taken)
    return sorted(left, key=lambda pair: (pair[1] - pair[0], pair))


def _report_missing(context: arenas.Context, chunks: MmappedChunks, counted: MmappedTotals) -> None:
    text = "found %d mmapped chunks of %d bytes, mp_ counts %s of %s"
    message = text % (len(chunks), chunks.bytes, counted.chunks, counted.bytes)
    if _is_blind(context):
        why = "without /proc/PID/pagemap gdbheapx does not search for the others, because that would touch all memory"
        hint = why + ": run gdbheapx as root on the machine of the process"
        context.report(codes.MAPPED_NOT_SOUGHT, context.glibc.mp.address, message, hint)
        return
    where = "memory that was not dumped" if context.target.kind == "core" else "swap, or one was just being made or freed: then retry"
    hint = "a header is damaged (`%s` shows where), or in %s" % (hint_command("check"), where)
    changing = "mmapped chunks are being made or freed: their number does not match mp_"
    complaint = Diagnostic(codes.MAPPED_MISSING, context.glibc.mp.address, message, hint)
    arenas.tell_unless_changing(context, [complaint], codes.MAPPED_CHANGING, changing)


def count_blockless_huge_bytes(context: arenas.Context, walk: arenas.ArenaWalk, total: Optional[WalkResult], kept: InRam) -> Optional[int]:
    """Return the parts of huge pages in which no block lies; None without a page table. `kept`: what of the rest of its heaps is in RAM."""
    if context.ram.pages is None:
        return None
    page = context.glibc.geometry.page_bytes
    inside = context.ram.settle(total.interior_residency, walk.ranges(page)) if total is not None else NOTHING
    spans = list_top_pages(context, walk)
    top = context.ram.of(spans, False) or UNKNOWN if spans else NOTHING
    return add_values(part.huge_bytes for part in (inside, top, kept))


def list_top_pages(context: arenas.Context, walk: arenas.ArenaWalk) -> List[Range]:
    """Whole pages inside tops, with the free chunks that border them."""
    geometry = context.glibc.geometry
    page, spans = geometry.page_bytes, []
    for region, result in walk.runs:
        start = -(-((result.top_run_start or region.top) + geometry.chunk_struct_bytes) // page) * page
        end = (region.top + result.top_bytes) & -page
        if result.top_bytes and start < end:
            spans.append((start, end))
    return sorted(spans)


def list_free_pages(context: arenas.Context, walks: Sequence[arenas.ArenaWalk]) -> List[Range]:
    """Whole pages inside free chunks (malloc.c: mtrim), in the order of the walks."""
    geometry, spans = context.glibc.geometry, []
    page = geometry.page_bytes
    regions = [NativeListed(region, walk.arena.index) for walk in walks for region, _ in walk.runs]
    for batch in context.walker.blocks(regions, array("Q"), BlockFilter(kinds=frozenset((STATUS_FREE,)), min_size=page)):
        for address, usable in zip(batch.addresses, batch.usable_bytes):
            start = -(-(address - 2 * geometry.word_bytes + geometry.chunk_struct_bytes) // page) * page
            end = (address + usable) & -page
            if start < end:
                spans.append((start, end))
    return spans


def count_zero_huge_bytes(context: arenas.Context, walks: Sequence[arenas.ArenaWalk], heap_max: int) -> Optional[int]:
    """Return how much of count_blockless_huge_bytes() holds only zeros; None as Ram.zero_huge_bytes()."""
    spans = list_free_pages(context, walks)
    for walk in walks:
        spans += [*list_top_pages(context, walk), *walk.reserves(heap_max)]
    return context.ram.zero_huge_bytes(spans, context.source, context.budget)


class ArenaTrim(NamedTuple):
    """Memory of an arena that malloc_trim would give back."""

    arena: Annotated[int, Column("arena", TEXT)]
    interior_bytes: Annotated[int, Column("inside free chunks", BYTES)]
    """Whole pages inside free chunks (madvise)."""
    top_bytes: Annotated[int, Column("top", BYTES)]
    """The end of top (brk); 0 for thread arenas, ever."""
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES, shown=IF_KNOWN)]
    """Those of both that count in RSS; None if there is no page table, or it does not say."""
    exclusive_bytes: Optional[int]
    """Those of them that the machine gets back at once, see kernel.common.in_ram.InRam."""

    @property
    def bytes(self) -> int:
        """Both."""
        return self.interior_bytes + self.top_bytes


def predict_trim(context: arenas.Context, walk: arenas.ArenaWalk, total: WalkResult, pad: int = 0) -> ArenaTrim:
    """The prediction for one walked arena."""
    top = predict_systrim(context, walk, pad)
    ranges = walk.ranges(context.glibc.geometry.page_bytes)
    apart = [(mapping.start, mapping.end) for mapping in context.target.mappings() if mapping.is_hugetlb]
    if apart and any(low < end and start < high for start, end in ranges for low, high in apart):
        # of pages of hugetlbfs madvise takes whole ones alone, and gives them to their pool
        free = list_free_pages(context, [walk])
        interior = sorted((start, end) for start, end in free if not any(low < end and start < high for low, high in apart))
        known = NOTHING if not interior and context.ram.pages is not None else context.ram.of(interior) or UNKNOWN
        size = sum(end - start for start, end in interior)
        return ArenaTrim(walk.arena.index, size, 0, known.resident_bytes, known.exclusive_bytes)
    parts = [context.ram.settle(total.interior_residency, ranges)]
    if top is not None:
        parts.append(context.ram.of([top]) or UNKNOWN)
    resident, exclusive = (add_values(part[place] for part in parts) for place in range(2))
    return ArenaTrim(walk.arena.index, total.interior_bytes, top[1] - top[0] if top else 0, resident, exclusive)


def predict_systrim(context: arenas.Context, walk: arenas.ArenaWalk, pad: int = 0) -> Optional[Range]:
    """Return the range that systrim(pad) would give back; None if nothing: a thread arena, too small, or top does not end at the break.

    Free and fast chunks that border top are merged into it first (malloc_consolidate).
    """
    glibc, total = context.glibc, walk.total()
    end = walk.arena.top + (total.top_bytes if total is not None else 0)
    if total is None or not walk.arena.is_main or not total.top_bytes or glibc.break_address(context.target) != end:
        return None
    area = end - (total.top_run_start or walk.arena.top) - glibc.geometry.min_chunk_bytes - 1
    try:
        unit = glibc.read_mp(context.target).get("thp_pagesize") or glibc.geometry.page_bytes
    except UnreadableMemory:
        return None
    extra = (area - pad) // unit * unit if area > pad else 0
    return (end - extra, end) if extra else None


DAMAGES: Dict[int, Tuple[ProblemCode, str]] = {
    library.STOP_SMALL: (codes.CHUNK_SMALL, "chunk size below MINSIZE"),
    library.STOP_MISALIGNED: (codes.CHUNK_MISALIGNED, "chunk size is not a multiple of MALLOC_ALIGNMENT"),
    library.STOP_MMAPPED_BIT: (codes.CHUNK_MMAPPED_BIT, "IS_MMAPPED is set on a chunk inside an arena"),
    library.STOP_OVERRUN: (codes.CHUNK_OVERRUN, "chunk reaches beyond the end of its heap or over the top chunk"),
    library.STOP_UNREADABLE: (codes.CHUNK_UNREADABLE, "cannot read memory of the heap"),
    library.STOP_FENCE: (codes.FENCEPOST_INSIDE, "a fencepost inside the heap"),
    library.STOP_END: (codes.NO_TOP, "the chunks end without a top chunk"),
}
MAX_DAMAGES = 1000
"""Places of damage in one arena after which the rest of the piece is given up."""
MAX_REPORTED = 8
"""Places of damage in one arena that are named; the rest is counted."""
NO_CHUNKS = WalkResult._make([*[0] * (len(WalkResult._fields) - 1), ()])
NO_CHUNKS_NO_PAGES = WalkResult._make([None if name in PAGE_COUNTERS else value for name, value in NO_CHUNKS._asdict().items()])
"""Of an arena without chunks."""


class Survey(NamedTuple):
    """Everything that was walked."""

    context: arenas.Context
    walks: Sequence[arenas.ArenaWalk]
    singles: freelists.Singles
    heap_max: int
    remnant: Optional[Remnant]
    """The main heap where main_arena is lost."""
    are_all_arenas: bool = True
    """The ring of arenas comes back to main_arena, which could be read."""


def find_arenas(context: arenas.Context) -> Tuple[List[arenas.Arena], int]:
    """(every arena, HEAP_MAX_SIZE). Those that a broken ring does not reach are found by the heap_infos that name them; their order is not
    known."""
    target, glibc = context.target, context.glibc
    ring = arenas.read_ring(target, glibc, context.report, context.budget)
    heap_max = heap_max_bytes(target, glibc, [arena.address for arena in ring if not arena.is_main])
    if _ring_is_broken(ring, glibc) and not context.budget.expired():
        named = {heap.arena for heap in arenas.scan_heap_infos(target, glibc, heap_max, set(), context.budget)}
        first = max([arena.index for arena in ring], default=0) + 1
        for index, address in enumerate(sorted(named - {arena.address for arena in ring}), first):
            ring.append(arenas.Arena(index, address, False, read_view(target, glibc.types, MALLOC_STATE.name, address)))
    return ring, heap_max


def _ring_is_broken(ring: Sequence[arenas.Arena], glibc: arenas.Glibc) -> bool:
    return not ring or ring[-1].state["next"] != glibc.main_arena.address


def survey_heaps(context: arenas.Context) -> Survey:
    """Walk every chunk of every arena once; a damaged place costs its own bytes, not the arena."""
    ring, heap_max = find_arenas(context)
    complaints: List[List[Diagnostic]] = [[] for _ in ring]
    walks = [arenas.ArenaWalk(arena, make_collector(own)) for arena, own in zip(ring, complaints)]
    for walk in walks:
        if not walk.arena.is_main:
            walk.heaps = arenas.heaps_of(context.target, context.glibc, walk.arena, heap_max, walk.report, context.budget)
            walk.pieces = len(walk.heaps)
    singles = freelists.read_singles(context, ring, walks, heap_max)
    listed = singles.followed.members
    pending: List[Tuple[arenas.ArenaWalk, Region]] = []
    for walk in walks:
        if walk.arena.is_main:
            pending += [(walk, region) for region in main_arena.first_regions(context, walk)]
        for heap in walk.heaps:
            region = heap.region(context.glibc, walk.arena.top)
            walk.overhead_bytes += region.begin - heap.address
            pending.append((walk, region))
    taken = [(heap.address, heap.address + heap_max) for walk in walks for heap in walk.heaps]
    search = [
        (walk, Pieces(context, walk, listed, [*taken, *context.others()]))
        for walk in walks
        if walk.arena.is_main and not walk.arena.is_contiguous and walk.arena.top
    ]
    while True:
        if not pending:  # pieces of a main arena that is not contiguous which the walk so far did not meet
            pending = [(walk, region) for walk, pieces in search if not walk.timed_out for region in pieces.following()]
        if not pending:
            break
        results = context.walker.walk([region for _, region in pending], listed, context.ram.pages)
        walked, pending = pending, []
        for (walk, region), result in zip(walked, results):
            walk.runs.append((region, result))
            walk.walked_bytes += arenas.chunk_bytes(result)
            after = _find_next_region(context, walk, region, result, listed)
            if after is not None:
                pending.append((walk, after))
    lost = main_arena.find_remnant(context, walks) if not any(walk.arena.is_main for walk in walks) else None
    _check_walks(context, walks, listed)
    for arena, own in zip(ring, complaints):
        arenas.report_arena(context, arena, own)
    are_all = not _ring_is_broken(ring, context.glibc) and any(walk.arena.is_main for walk in walks)
    return Survey(context, walks, singles, heap_max, lost, are_all)


def _find_next_region(
    context: arenas.Context, walk: arenas.ArenaWalk, region: Region, result: WalkResult, special: Sequence[int]
) -> Optional[Region]:
    """Return the region to walk next after a run ended: None, the piece after a hole, or the part after a place of damage."""
    if result.stop == library.STOP_TOP:
        rest = region.end - (region.top + result.top_bytes)
        if rest and not region.joined:
            walk.report(codes.TOP_SHORT, region.top, "the top chunk of %s does not end where its memory ends" % walk.arena.title, None)
            walk.unparsed_bytes += rest
        return None
    if result.stop == library.STOP_TIME:
        if not walk.timed_out:
            message = "%s: the walk was %s" % (walk.arena.title, context.budget.reason)
            context.report(codes.WALK_CUT, result.at, message, "the rest counts as unparsed")
        walk.timed_out = True
        walk.unparsed_bytes += 0 if region.joined else region.end - result.at
        return None
    if result.stop == library.STOP_FENCE and walk.arena.is_main:
        fence_end = main_arena.fence_end(context, result.at)
        if fence_end:
            walk.overhead_bytes += fence_end - result.at
            if walk.arena.is_contiguous:
                after = main_arena.run_behind(context, walk, region, fence_end, special)
                walk.pieces += after is not None
                return after
            if main_arena.break_above(context, region.begin):
                walk.behind_fences.append((region, fence_end))  # Pieces asks for it once it knows that something lacks
            return None
    last_bytes = context.glibc.geometry.min_chunk_bytes + context.glibc.geometry.alignment_bytes
    if result.stop == library.STOP_FENCE and not walk.arena.is_main and region.end - result.at <= last_bytes:
        walk.overhead_bytes += region.end - result.at
        return None
    if result.stop == library.STOP_END and not region.top and not walk.arena.is_main:
        walk.report(codes.NO_FENCEPOST, result.at, "a heap of %s ends without a fencepost" % walk.arena.title, None)
        return None
    return _behind_damage(context, walk, region, result, special)


def _behind_damage(
    context: arenas.Context, walk: arenas.ArenaWalk, region: Region, result: WalkResult, special: Sequence[int]
) -> Optional[Region]:
    walk.damages += 1
    if walk.damages <= MAX_REPORTED:
        word, (code, rule) = context.glibc.geometry.word_bytes, DAMAGES[result.stop]
        message, field = "%s: %s" % (walk.arena.title, rule), context.target.read_prefix(result.at + word, word)
        if result.stop not in (library.STOP_UNREADABLE, library.STOP_END) and len(field) == word:
            message += " (size field 0x%x)" % int.from_bytes(field, context.target.byte_order)
        walk.report(code, result.at, message, "the bytes up to the next certain chunk count as unparsed")
    start = None
    if walk.damages <= MAX_DAMAGES:
        start = next_start(context, walk.arena, (result.at, region.end), special, freelists.collect_bin_members(context, walk))
    if not region.joined:  # else the region may go on beyond the arena: what is not located in the end is unparsed
        walk.unparsed_bytes += (start or region.end) - result.at
    return None if start is None else region._replace(begin=start, top=region.top if region.top >= start else 0)


def _check_walks(context: arenas.Context, walks: Sequence[arenas.ArenaWalk], listed: Sequence[int]) -> None:
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
    if met < len(listed) and not any(walk.damages or walk.timed_out or walk.unparsed_bytes for walk in walks):
        outside = len(listed) - met - sum(total.missed_specials for total in (walk.total() for walk in walks) if total)
        if outside > 0:
            context.report(codes.LISTED_OUTSIDE, None, "%d free-list entries point outside every heap" % outside, None)


def _report_unlocated(context: arenas.Context, walk: arenas.ArenaWalk, total: Optional[WalkResult]) -> None:
    """Report bytes of system_mem that the walk did not meet, if there are any.

    A hole that a foreign sbrk made counts in system_mem only while the arena is contiguous (sysmalloc).
    """
    counted = (arenas.chunk_bytes(total) if total else 0) + walk.overhead_bytes + walk.foreign_bytes + walk.unparsed_bytes
    missing = walk.system_bytes - counted
    if missing == -walk.foreign_bytes and not walk.arena.is_contiguous:
        walk.foreign_bytes = missing = 0
    address = walk.arena.address
    if missing > 0:
        walk.unlocated_bytes = missing
        if not walk.damages and not walk.timed_out and context.budget.reason is None:
            message = "%s: cannot account for %d bytes" % (walk.arena.title, missing)
            walk.report(codes.NOT_LOCATED, address, message, "they count as unparsed")
    elif missing < 0:
        message = "%s: system_mem is %d bytes smaller than the sum of its chunks" % (walk.arena.title, -missing)
        walk.report(codes.SYSTEM_MEM_SMALL, address, message, "system_mem may be damaged")


def _check_arena(context: arenas.Context, walk: arenas.ArenaWalk, total: WalkResult) -> None:
    title = walk.arena.title
    if total.missed_specials:
        message = "%s: %d free-list entries do not point at a chunk" % (title, total.missed_specials)
        walk.report(codes.LISTED_ASTRAY, total.missed_special & ~freelists.KIND_BITS, message, None)
    if total.bad_prev_size_chunks:
        message = "%s: corrupted size vs. prev_size (%s)" % (title, count_noun(total.bad_prev_size_chunks, "free chunk"))
        walk.report(codes.PREV_SIZE_WRONG, total.bad_prev_size, message, "malloc would abort here")
    if total.bad_neighbour_chunks:
        message = "%s: two free chunks side by side (%s)" % (title, count_noun(total.bad_neighbour_chunks, "time"))
        walk.report(codes.FREE_NEIGHBOURS, total.bad_neighbour, message, None)
    if walk.damages or walk.timed_out or walk.unparsed_bytes:
        return
    # each node of a bin is the fd of one node and the bk of one: sums over free chunks and headers show any single wrong link
    words, headers = walk.arena.state.numbers("bins"), freelists.list_bin_headers(walk.arena, context.glibc)
    nodes = (total.free_sum + sum(headers)) & library.ADDRESS_MASK
    ahead, behind = total.fd_sum + sum(words[0::2]), total.bk_sum + sum(words[1::2])
    if not walk.arena.top or nodes == ahead & library.ADDRESS_MASK == behind & library.ADDRESS_MASK:
        return
    complaints: List[Diagnostic] = []  # the bins are followed to say where
    lists = freelists.FreeLists(context)
    group = freelists.ask_lists(lists, walk.arena, BIN)
    freelists.collect_bins(context.glibc, group, lists.follow(), make_collector(complaints))
    for complaint in complaints:
        walk.report(*complaint)
    if not complaints and context.budget.reason is None:
        walk.report(codes.BINS_DISAGREE, walk.arena.address, "%s: the bins and the free chunks do not match" % title, None)


def arena_claims(done: Survey) -> List[Claim]:
    """Return the ranges of all arenas: a heap or a piece of the main arena each."""
    page = done.context.glibc.geometry.page_bytes
    claims = [Claim(*span, walk.arena.title) for walk in done.walks for span in walk.ranges(page)]
    lost = done.remnant
    if lost is not None:
        claims.append(Claim(lost.region.begin & -page, -(-(lost.result.at or lost.region.end) // page) * page, "main heap"))
    return claims


def arena_totals(done: Survey) -> List[ArenaTotals]:
    """Return one row for each arena, in ring order; the threads of each if every thread's thread_arena is known."""
    threads = Counter(cache.arena for cache in done.singles.caches.caches)
    rows = [_make_row(done, walk, None if None in threads else threads[walk.arena.address]) for walk in done.walks]
    return rows if done.remnant is None else [_remnant_row(done, done.remnant), *rows]


def _remnant_row(done: Survey, lost: Remnant) -> ArenaTotals:
    """Make the row of the main heap without its main_arena, by the chunks alone; thread caches and fastbins count as used."""
    unknown: Dict[str, Any] = dict.fromkeys(ArenaTotals._fields)
    result = lost.result
    address = done.context.glibc.main_arena.address
    message = "cannot read main_arena; gdbheapx takes the run of chunks at 0x%x for its heap" % lost.region.begin
    done.context.report(codes.MAIN_ARENA_LOST, address, message, "its thread caches and fastbins count as used")
    unknown.update(
        allocator=done.context.glibc.id,
        index=0,
        address=TargetAddress(address),
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


def _make_row(done: Survey, walk: arenas.ArenaWalk, threads: Optional[int]) -> ArenaTotals:
    context, state, system, known = done.context, walk.arena.state, walk.system_bytes, done.singles.caches.known
    total = walk.total() or (NO_CHUNKS_NO_PAGES if context.ram.pages is None else NO_CHUNKS)
    trim = predict_trim(context, walk, total)
    kept = context.ram.of(walk.reserves(done.heap_max), False) or UNKNOWN
    own = context.ram.of(walk.ranges(context.glibc.geometry.page_bytes), False) or UNKNOWN
    unmerged = walk.arena.top - total.top_run_start if total.top_run_start else 0
    free = total.free_bytes + total.fast_bytes
    return ArenaTotals(
        allocator=context.glibc.id,
        index=walk.arena.index,
        address=TargetAddress(walk.arena.address),
        kind="main" if walk.arena.is_main else "thread",
        heaps=walk.pieces,
        system_bytes=system,
        max_system_bytes=state["max_system_mem"],
        used_chunks=total.used_chunks,
        used_bytes=total.used_bytes,
        tcache_chunks=total.tcache_chunks if known else None,
        tcache_bytes=total.tcache_bytes if known else None,
        fast_chunks=total.fast_chunks,
        fast_bytes=total.fast_bytes,
        free_chunks=total.free_chunks,
        free_bytes=total.free_bytes,
        top_bytes=total.top_bytes,
        overhead_bytes=walk.overhead_bytes + walk.foreign_bytes + total.tcache_struct_bytes + total.fence_bytes,
        foreign_bytes=walk.foreign_bytes,
        unparsed_bytes=walk.unparsed_bytes + walk.unlocated_bytes,
        tcache_struct_chunks=total.tcache_struct_chunks if known else None,
        largest_free_bytes=total.largest_free_bytes,
        free_percent=round(100.0 * (free + total.top_bytes) / system, 1) if system else 0.0,
        reclaimable_bytes=trim.bytes,
        reclaimable_resident_bytes=trim.resident_bytes,
        reclaimable_exclusive_bytes=trim.exclusive_bytes,
        free_returned_resident_bytes=kept.resident_bytes,
        free_returned_huge_bytes=kept.huge_bytes,
        huge_bytes=None if kept.huge_bytes is None or own.huge_bytes is None else kept.huge_bytes + own.huge_bytes,
        threads=threads,
        attached_threads=state.get("attached_threads"),
        locked=bool(state["mutex"]),
        blockless_huge_bytes=count_blockless_huge_bytes(context, walk, total, kept),
        unmerged_bytes=unmerged,
        between_bytes=free - unmerged - total.interior_bytes,
    )


# ---------------------------------------------------------------------------------------------------- the chunk that holds an address

NEAR_BYTES = 1 << 20
"""Chunks are given from so far before the address on; from the begin of the region where none is that near."""
MOST_ENTRIES = 65536


class Locator:
    """Search for one address. `survey` returns the walk over everything, `mapped` all mmapped chunks, asked if nothing cheaper decides."""

    def __init__(
        self, context: arenas.Context, shape: BlockShape, survey: Callable[[], Survey], mapped: Callable[[], MmappedChunks], address: int
    ) -> None:
        self._diagnostics: List[Diagnostic] = []
        self._around, self._context = context, context._replace(report=make_collector(self._diagnostics))
        self._glibc, self._shape, self._survey, self._mapped, self._address = context.glibc, shape, survey, mapped, address

    def locate(self) -> Optional[AllocatorPlace]:
        """Return where the address lies in this malloc's memory, or None."""
        try:
            ring, heap_max = find_arenas(self._context)
            run = self._find_run(ring, heap_max)
            if run is not None and run[1] is None:
                return self._make_empty_place(run[0], run[2])
            walks = [arenas.ArenaWalk(arena, self._context.report) for arena in ring]
            singles = freelists.read_singles(self._context, ring, walks, heap_max)
            place = self._find_in_region(singles, *run) if run is not None else None
            return place or self._find_in_survey(singles) or self._find_mapped(singles)
        except UnreadableMemory:
            return None
        finally:
            for diagnostic in self._diagnostics:
                if diagnostic.code.nature != Severity.DAMAGE:
                    self._around.report(*diagnostic)

    def _make_empty_place(self, arena: arenas.Arena, part: AddressPart) -> AllocatorPlace:
        return AllocatorPlace(self._glibc.id, arena.index, None, None, None, None, None, [part])

    def _find_run(self, ring: Sequence[arenas.Arena], heap_max: int) -> Optional[Tuple[arenas.Arena, Optional[Region], AddressPart]]:
        """Return the run of chunks that holds the address, by the address alone: a malloc_state, the heap of a thread arena that begins at
        its multiple of HEAP_MAX_SIZE, or the main arena's run from brk. The region is None before the first chunk, or after the last.
        """
        context, address, base = self._context, self._address, self._address & -heap_max
        for arena in ring:
            end = arena.address + arena.state.size_bytes
            if arena.address <= address < end:
                return arena, None, _make_part("arena", "malloc_state of %s" % arena.title, arena.address, end)
        by_address = {arena.address: arena for arena in ring}
        try:
            heap = arenas.read_heap(context.target, self._glibc, base, heap_max)
        except UnreadableMemory:
            heap = None
        if heap is not None and heap.arena in by_address:
            arena = by_address[heap.arena]
            region = heap.region(self._glibc, arena.top)
            if address >= region.end:
                return arena, None, _make_part("reserve", "reserve of a heap", region.end, base + heap_max)
            part = _make_part("heap", "heap of %s" % arena.title, base, region.end)
            return arena, region if address >= region.begin else None, part
        for arena in ring:
            for region in main_arena.first_regions(context, arenas.ArenaWalk(arena, context.report)) if arena.is_main else ():
                if region.begin <= address < region.end:
                    return arena, region, _make_part("heap", "main heap", region.begin, region.end)
        return None

    def _find_in_region(
        self, singles: freelists.Singles, arena: arenas.Arena, region: Optional[Region], part: Optional[AddressPart] = None
    ) -> Optional[AllocatorPlace]:
        if region is None:
            return None
        near = max(region.begin, self._address - NEAR_BYTES)
        for start in (near, 0) if near > region.begin else (0,):
            listed = [api.NativeListed(region, arena.index)]
            stream = self._context.walker.blocks(listed, singles.followed.members, BlockFilter(start=start))
            neighbours = answers.find_neighbours(stream, self._shape, self._address)
            previous, here, _ = neighbours
            if here is not None and (previous is not None or not start):
                parts = [*self._list_holders(singles, arena, here), *([part] if part is not None else ())]
                return answers.make_heap_place(neighbours, self._shape, self._glibc.id, self._address, parts)
        return None

    def _find_in_survey(self, singles: freelists.Singles) -> Optional[AllocatorPlace]:
        """Locate the address in all runs of the complete walk: pieces from mmap, and memory after holes or damage. None if no arena holds
        it.
        """
        survey, address = self._survey(), self._address
        if not any(claim.start <= address < claim.end for claim in arena_claims(survey)):
            return None
        for walk in survey.walks:
            for region, _ in sorted(walk.runs, key=lambda run: run[0].begin, reverse=True):
                found = self._find_in_region(singles, walk.arena, region) if region.begin <= address < region.end else None
                if found is not None:
                    return found
        page = self._glibc.geometry.page_bytes
        for walk in survey.walks:
            for start, end in walk.ranges(page):
                if start <= address < end:
                    message = "memory of %s where no chunk can be made out" % walk.arena.title
                    return self._make_empty_place(walk.arena, _make_part("damaged", message, start, end))
        return None

    def _find_mapped(self, singles: freelists.Singles) -> Optional[AllocatorPlace]:
        """Locate the address in a chunk with a mapping of its own."""
        for chunk in self._mapped():
            start, end = chunk.block_start, chunk.block_start + chunk.total_bytes
            if start <= self._address < end:
                kind = api.STATUS_MAPPED_TCACHE if chunk.chunk in singles.mapped else api.STATUS_MAPPED
                header = 2 * self._glibc.geometry.word_bytes
                row = (chunk.chunk + header, chunk.size_bytes - self._shape.overheads[kind], 0, kind, NO_ARENA)
                parts = [_make_part("mapping", "mmapped chunk", start, end)]
                return answers.make_heap_place((None, row, None), self._shape, self._glibc.id, self._address, parts)
        return None

    # ---- lists

    def _list_holders(self, singles: freelists.Singles, arena: arenas.Arena, row: Tuple[int, ...]) -> Iterator[AddressPart]:
        """Yield the bin, fastbin or thread cache that holds a chunk."""
        geometry, (address, usable, _, kind, _) = self._glibc.geometry, row
        size = usable + geometry.overhead_bytes
        if kind == api.STATUS_FREE:
            is_unsorted = address - 2 * geometry.word_bytes in freelists.collect_unsorted(self._context, [arena])
            yield AddressPart("bin", "the unsorted bin" if is_unsorted else "bin %d" % bin_index(size, geometry))
        elif kind == api.STATUS_FAST:
            yield AddressPart("bin", "fastbin %d" % ((size >> (4 if geometry.word_bytes == 8 else 3)) - 2))
        elif kind == api.STATUS_TCACHE:
            yield from self._find_cache(singles, address)

    def _find_cache(self, singles: freelists.Singles, address: int) -> Iterator[AddressPart]:
        left = MOST_ENTRIES
        for cache in singles.caches.caches:
            for index, number in enumerate(singles.caches.lists(cache)):
                entry = singles.heads[number]
                for _ in range(min(singles.followed.counts[number], left)):
                    left -= 1
                    if entry == address:
                        yield AddressPart("cache", freelists.name_cache_bin(cache, index), TargetAddress(cache.address or 0))
                        return
                    link = self._context.target.read_word(entry)
                    entry = link ^ entry >> 12 if self._glibc.traits.safe_linking else link


def _make_part(kind: str, message: str, start: int, end: int) -> AddressPart:
    return AddressPart(kind, message, TargetAddress(start), TargetAddress(end))
