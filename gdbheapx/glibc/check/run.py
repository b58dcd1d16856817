"""Every rule of one glibc malloc, in one look: the walk, the lists, each chunk, each arena, mapped chunks."""

from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from gdbheapx.allocators.records import HeapContext
from gdbheapx.allocators.rules import BrokenRule, Known, collector, sorted_out
from gdbheapx.errors import Unreadable
from gdbheapx.glibc import codes
from gdbheapx.glibc.check import arenas, chunks, lists, mapped
from gdbheapx.glibc.check.findings import Findings, moment
from gdbheapx.glibc.context import Context
from gdbheapx.glibc.survey import Survey
from gdbheapx.problems import Code, Diagnostic

BY_CODE: Dict[Code, Known] = {
    codes.CHUNK_SMALL: Known("chunk-size-small"),
    codes.CHUNK_MISALIGNED: Known("chunk-size-misaligned"),
    codes.CHUNK_MMAPPED_BIT: Known("chunk-mmapped-bit"),
    codes.CHUNK_OVERRUN: Known("chunk-overrun"),
    codes.FENCEPOST_INSIDE: Known("chunk-size-zero"),
    codes.NO_TOP: Known("top-missing"),
    codes.TOP_SHORT: Known("top-short"),
    codes.NO_FENCEPOST: Known("fencepost-missing"),
    codes.BREAK_DISAGREES: Known("break-mismatch"),
    codes.RUN_NOT_FOUND: Known("run-not-found"),
    codes.NOT_LOCATED: Known("bytes-not-located"),
    codes.SYSTEM_MEM_SMALL: Known("system-mem"),
    codes.RING_BROKEN: Known("arena-ring"),
    codes.RING_OPEN: Known("arena-ring-open"),
    codes.MAIN_ARENA_LOST: Known("main-arena-lost"),
    codes.HEAP_DAMAGED: Known("heap-info"),
    codes.LISTED_TWICE: Known("listed-twice"),
    codes.BINS_DISAGREE: Known("bins-mismatch"),
    codes.MP_DISAGREES: Known("mmapped-count"),
}
"""Damage that the walk tells. What it tells of lists and neighbours is found again here, place by place, with finer names."""
AGAIN = (
    codes.PREV_SIZE_WRONG,
    codes.FREE_NEIGHBOURS,
    codes.FASTBIN_BROKEN,
    codes.BIN_BROKEN,
    codes.CACHE_BROKEN,
    codes.CACHE_MISCOUNTS,
    codes.LISTED_ASTRAY,
    codes.LISTED_OUTSIDE,
    codes.MORE_DAMAGE,
)
UNMAPPED: Dict[Code, str] = {
    codes.RING_UNREADABLE: "arena-ring",
    codes.HEAP_UNREADABLE: "heap-unmapped",
    codes.TOP_UNREADABLE: "top-unmapped",
    codes.CHUNK_UNREADABLE: "chunk-unmapped",
}
"""What cannot be read because nothing is mapped there: damage, not a core that lacks it."""
CHAINS = (codes.HEAP_DAMAGED, codes.HEAP_UNREADABLE, codes.RING_BROKEN, codes.RING_OPEN, codes.RING_UNREADABLE, codes.RING_CUT)
"""Arenas or heaps are missing: what lists hold may be in them."""
SIZES = (codes.CHUNK_SMALL, codes.CHUNK_MISALIGNED, codes.CHUNK_OVERRUN, codes.FENCEPOST_INSIDE)


def rules(
    own: Context, survey: Survey, told: Sequence[Diagnostic], around: HeapContext, ranges: Callable[[], List[Tuple[int, int]]]
) -> List[BrokenRule]:
    """What is broken. `own`: a context whose complaints are in `told`, with which the chunks were walked; `around`: what all looks share;
    `ranges`: what the arenas occupy."""
    rest = around.report
    walks = [walk for walk in survey.walks if not walk.timed_out]
    found = Findings(own, walks, moment(own, walks))
    later: List[Diagnostic] = []
    context = own._replace(report=collector(later))
    rows, binned = chunks.Rows((), {}, ()), chunks.Binned((), set(), set())
    try:
        if not own.budget.expired():
            rows, binned = _lists_and_chunks(context, found, survey, any(one.code in CHAINS for one in told))
        for walk in walks:
            arenas.tell(context, found, walk, rows)
    except Unreadable as problem:
        rest(codes.MP_UNREADABLE, problem.address, "cannot read mp_", "not every rule was checked")
    told = [one for one in told if one.code not in AGAIN and not _is_unmapped(context, found, one)]
    seen = CheckedLists(rows, binned, survey)
    sorted_out(told, BY_CODE, rest, lambda one, known: _add(context, found, seen, one, known))
    for one in later:
        if one.code not in AGAIN and one.code not in BY_CODE:
            rest(*one)
    mapped.tell(own, found, ranges(), rest)
    return found.rows


def _lists_and_chunks(context: Context, found: Findings, survey: Survey, are_missing: bool) -> Tuple[chunks.Rows, chunks.Binned]:
    walks = [walk for walk in survey.walks if not walk.timed_out]
    listed = [walk.arena for walk in walks]
    singles = lists.singles_of(survey)
    lists.tell_singles(context, found, singles)
    binned = chunks.Binned((), set(), set())
    if not lists.check_members(context, found, singles, listed, walks):
        doubles = lists.follow_bins(context, listed)
        lists.tell_bins(context, found, doubles)
        binned = lists.binned(doubles)
    rows = chunks.look(context, walks, survey.cached_chunks, binned)
    if rows.rows or any(walk.damages for walk in walks):
        lists.add_unsorted(context, listed, binned)
    chunks.tell(context, found, rows, binned)
    if not are_missing and not any(walk.unparsed_bytes or walk.damages for walk in walks) and len(walks) == len(survey.walks):
        spans = sorted(span for walk in walks for span in walk.ranges(context.glibc.geometry.page_bytes))
        lists.tell_outside(context, found, walks, survey.cached_chunks.chunks, spans)
    return rows, binned


class CheckedLists(NamedTuple):
    """What was found beside the walk."""

    rows: chunks.Rows
    binned: chunks.Binned
    survey: Survey


def _is_unmapped(context: Context, found: Findings, one: Diagnostic) -> bool:
    """It cannot be read because it is nowhere: told as a broken rule."""
    if one.code not in UNMAPPED or one.address is None:
        return False
    address = one.address
    if any(mapping.start <= address < mapping.end for mapping in context.target.mappings()):
        return False
    found.add(UNMAPPED[one.code], address, one.what)
    return True


def _add(context: Context, found: Findings, seen: CheckedLists, one: Diagnostic, known: Known) -> None:
    """A complaint of the walk: where it stopped is known from the pass over single chunks, and so is the chunk before it."""
    rows, binned, survey = seen
    stop = rows.stops.get(one.address) if one.address is not None else None
    walk, rule = found.arena_of(one.address), known.rule
    if one.code in (codes.BINS_DISAGREE, codes.NOT_LOCATED, codes.SYSTEM_MEM_SMALL) and found.rows:
        return  # what these sums only hint at was found
    if one.code == codes.CHUNK_OVERRUN and walk is not None and one.address == walk.arena.top:
        rule = "top-size"
    elif one.code in SIZES and one.address in binned.unsorted:
        rule = "unsorted-size"
    elif one.code in SIZES and stop is not None and stop.previous in binned.unsorted:
        rule = "unsorted-next-size"
    elif one.code == codes.BREAK_DISAGREES and walk is not None:
        top, word = walk.arena.top, context.glibc.geometry.word_bytes
        size = int.from_bytes(context.target.read_prefix(top + word, word), context.target.byte_order) & ~7
        here = context.glibc.break_address(context.target)
        rule = "break-below-top" if here is not None and here < top + size else rule
    if one.code == codes.HEAP_DAMAGED and one.address is not None:
        for other in survey.walks:
            if one.address in (other.arena.top & -survey.heap_max, other.arena.address & -survey.heap_max):
                for name, what in arenas.heap_rules(context, other.arena, one.address, frozenset()):
                    found.add(name, one.address, what)
    found.add(rule, one.address, one.what, chunks.suspect(context, stop))
