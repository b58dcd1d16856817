"""Every rule of one glibc malloc, in one look: the walk, the lists, each chunk, each arena, mmapped chunks.

What an arena's own fields say: the top chunk, the accounts, the bin map, the chain of heaps.
"""

from typing import AbstractSet, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import BrokenRule, RuleSuspect, make_collector, sorted_out
from gdbheapx.allocators.records import HeapContext
from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc import bins, codes
from gdbheapx.glibc.arenas import Arena
from gdbheapx.glibc.check import lists, mapped
from gdbheapx.glibc.check.findings import Findings, read_moment
from gdbheapx.glibc.check.lists import ChunkContradictions, find_chunk_suspect
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.layouts import HEAP_INFO
from gdbheapx.glibc.survey import Survey
from gdbheapx.layout.view import read_view
from gdbheapx.problems import Diagnostic, ProblemCode

PREV_INUSE, FLAGS = 1, 7
MUTEX_VALUES = (0, 1, 2)
"""Free, locked, locked with waiters (lowlevellock)."""
KNOWN_FLAGS = 7
MOST_THREADS = 1 << 22
"""PID_MAX_LIMIT: no arena has more threads."""
MAP_BITS = 32
BY_CODE: Dict[ProblemCode, str] = {
    codes.CHUNK_SMALL: "chunk-size-small",
    codes.CHUNK_MISALIGNED: "chunk-size-misaligned",
    codes.CHUNK_MMAPPED_BIT: "chunk-mmapped-bit",
    codes.CHUNK_OVERRUN: "chunk-overrun",
    codes.FENCEPOST_INSIDE: "chunk-size-zero",
    codes.NO_TOP: "top-missing",
    codes.TOP_SHORT: "top-short",
    codes.NO_FENCEPOST: "fencepost-missing",
    codes.BREAK_DISAGREES: "break-mismatch",
    codes.RUN_NOT_FOUND: "run-not-found",
    codes.NOT_LOCATED: "bytes-not-located",
    codes.SYSTEM_MEM_SMALL: "system-mem",
    codes.RING_BROKEN: "arena-ring",
    codes.RING_OPEN: "arena-ring-open",
    codes.MAIN_ARENA_LOST: "main-arena-lost",
    codes.HEAP_DAMAGED: "heap-info",
    codes.LISTED_TWICE: "listed-twice",
    codes.BINS_DISAGREE: "bins-mismatch",
    codes.MP_DISAGREES: "mmapped-count",
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
UNMAPPED: Dict[ProblemCode, str] = {
    codes.RING_UNREADABLE: "arena-ring",
    codes.HEAP_UNREADABLE: "heap-unmapped",
    codes.TOP_UNREADABLE: "top-unmapped",
    codes.CHUNK_UNREADABLE: "chunk-unmapped",
}
"""What cannot be read because nothing is mapped there: damage, not a core that lacks it."""
CHAINS = (codes.HEAP_DAMAGED, codes.HEAP_UNREADABLE, codes.RING_BROKEN, codes.RING_OPEN, codes.RING_UNREADABLE, codes.RING_CUT)
"""Arenas or heaps are missing: what lists hold may be in them."""
SIZES = (codes.CHUNK_SMALL, codes.CHUNK_MISALIGNED, codes.CHUNK_OVERRUN, codes.FENCEPOST_INSIDE)


def check_arena_fields(context: Context, findings: Findings, walk: ArenaWalk, rows: ChunkContradictions) -> None:
    """Check the fields of one arena."""
    _check_top(context, findings, walk.arena, find_chunk_suspect(context, rows.stops.get(walk.arena.top)))
    _check_state(findings, walk.arena)
    _bin_map(context, findings, walk.arena)
    _check_heaps(context, findings, walk)


def _check_top(context: Context, findings: Findings, arena: Arena, before: Optional[RuleSuspect]) -> None:
    geometry, top, title = context.glibc.geometry, arena.top, arena.title
    if not top:
        return
    try:
        field = context.target.read_word(top + geometry.word_bytes)
    except UnreadableMemory:
        return
    size = field & ~FLAGS
    if size > arena.state["system_mem"]:
        what = "the top chunk of %s has 0x%x bytes, more than the arena (0x%x)" % (title, size, arena.state["system_mem"])
        findings.add("top-size", top, what, before)
        return
    if size < geometry.min_chunk_bytes:
        findings.add("top-small", top, "the top chunk of %s has 0x%x bytes, less than MINSIZE" % (title, size), before)
    elif (top + size) % geometry.page_bytes:
        findings.add("top-page-end", top, "the top chunk of %s ends at 0x%x, which is no page" % (title, top + size), before)
    if not field & PREV_INUSE:
        findings.add("top-prev-inuse", top, "the top chunk of %s says that the chunk before it is free" % title, before)
    if field & FLAGS & ~PREV_INUSE:
        findings.add("top-flags", top, "the size field 0x%x of the top chunk of %s has flags that top never has" % (field, title), before)


def _check_state(findings: Findings, arena: Arena) -> None:
    state, title = arena.state, arena.title
    if state["system_mem"] > state["max_system_mem"]:
        what = "%s: system_mem 0x%x is larger than max_system_mem 0x%x" % (title, state["system_mem"], state["max_system_mem"])
        findings.add("system-mem-max", state.address_of("system_mem"), what)
    if state["mutex"] not in MUTEX_VALUES:
        what = "%s: the mutex has the value %d, which no lock has" % (title, state["mutex"])
        findings.add("arena-mutex", state.address_of("mutex"), what)
    if state["flags"] & ~KNOWN_FLAGS:
        findings.add(
            "arena-flags", state.address_of("flags"), "%s: flags is 0x%x, which has bits that malloc does not use" % (title, state["flags"])
        )
    attached = state.get("attached_threads")
    if attached is not None and attached > MOST_THREADS:
        findings.add("attached-threads", state.address_of("attached_threads"), "%s counts %d attached threads" % (title, attached))


def _bin_map(context: Context, findings: Findings, arena: Arena) -> None:
    words, own = arena.state.numbers("binmap"), bins.list_bin_headers(arena, context.glibc)
    heads = arena.state.numbers("bins")[0::2]
    if not any(heads):
        return
    for index in range(2, len(own)):
        if heads[index - 1] != own[index - 1] and not words[index // MAP_BITS] >> index % MAP_BITS & 1:
            what = "%s: bin %d is not empty, but its bit in binmap is clear: malloc does not find its chunks" % (arena.title, index)
            findings.add("binmap", arena.state.address_of("binmap") + index // MAP_BITS * 4, what)


def _check_heaps(context: Context, findings: Findings, walk: ArenaWalk) -> None:
    if walk.arena.is_main or not walk.arena.top:
        return
    total = sum(heap.size_bytes for heap in walk.heaps)
    if walk.heaps and total != walk.arena.state["system_mem"]:
        what = "%s: its heaps have 0x%x bytes, but system_mem is 0x%x" % (walk.arena.title, total, walk.arena.state["system_mem"])
        findings.add("heap-sum", walk.arena.state.address_of("system_mem"), what)
    for heap in walk.heaps:
        for name, what in heap_rules(context, walk.arena, heap.address, {heap.address for heap in walk.heaps}):
            findings.add(name, heap.address, "%s: %s" % (walk.arena.title, what))


def heap_rules(context: Context, arena: Arena, address: int, known: AbstractSet[int]) -> List[Tuple[str, str]]:
    """(rule, what) of the heap_info at `address`."""
    page, told = context.glibc.geometry.page_bytes, []
    try:
        info = read_view(context.target, context.glibc.types, HEAP_INFO.name, address)
    except UnreadableMemory:
        return []
    if info["ar_ptr"] != arena.address:
        told.append(("heap-arena", "the heap_info names the arena 0x%x" % info["ar_ptr"]))
    size, writable = info["size"], info["mprotect_size"]
    if not 0 < size <= writable or size % page or writable % page:
        told.append(("heap-size", "the heap_info has size 0x%x and mprotect_size 0x%x" % (size, writable)))
    if info["prev"] and info["prev"] not in known:
        told.append(("heap-prev", "the heap_info points to 0x%x, which is no heap of this arena" % info["prev"]))
    return told


def find_glibc_broken_rules(
    own: Context, survey: Survey, told: Sequence[Diagnostic], around: HeapContext, ranges: Callable[[], List[Tuple[int, int]]]
) -> List[BrokenRule]:
    """Return all broken rules. `own`: a context whose complaints are in `told`, with which the chunks were walked; `around`: the
    command's context; `ranges`: memory of the arenas.
    """
    rest = around.report
    walks = [walk for walk in survey.walks if not walk.timed_out]
    findings = Findings(own, walks, read_moment(own, walks))
    later: List[Diagnostic] = []
    context = own._replace(report=make_collector(later))
    rows, binned = lists.ChunkContradictions((), {}, ()), lists.Binned((), set(), set())
    try:
        if not own.budget.expired():
            rows, binned = _lists_and_chunks(context, findings, survey, any(diagnostic.code in CHAINS for diagnostic in told))
        for walk in walks:
            check_arena_fields(context, findings, walk, rows)
    except UnreadableMemory as problem:
        rest(codes.MP_UNREADABLE, problem.address, "cannot read mp_", "not every rule was checked")
    told = [diagnostic for diagnostic in told if diagnostic.code not in AGAIN and not _is_unmapped(context, findings, diagnostic)]
    seen = CheckedLists(rows, binned, survey)
    sorted_out(told, BY_CODE, rest, lambda diagnostic: _add_complaint(context, findings, seen, diagnostic))
    for diagnostic in later:
        if diagnostic.code not in AGAIN and diagnostic.code not in BY_CODE:
            rest(*diagnostic)
    mapped.check_mmapped_count(own, findings, ranges(), rest)
    return findings.rows


def _lists_and_chunks(
    context: Context, findings: Findings, survey: Survey, are_missing: bool
) -> Tuple[lists.ChunkContradictions, lists.Binned]:
    walks = [walk for walk in survey.walks if not walk.timed_out]
    listed = [walk.arena for walk in walks]
    lists.tell_singles(context, findings, survey.singles)
    binned = lists.Binned((), set(), set())
    if not lists.check_list_members(context, findings, survey.singles, listed, walks):
        doubles = lists.follow_bins(context, listed)
        lists.tell_bins(context, findings, doubles)
        binned = lists.collect_binned(doubles)
    rows = lists.check_single_chunks(context, walks, survey.cached_chunks, binned)
    if rows.rows or any(walk.damages for walk in walks):
        lists.add_unsorted(context, listed, binned)
    lists.add_chunk_findings(context, findings, rows, binned)
    if not are_missing and not any(walk.unparsed_bytes or walk.damages for walk in walks) and len(walks) == len(survey.walks):
        spans = sorted(span for walk in walks for span in walk.ranges(context.glibc.geometry.page_bytes))
        lists.tell_outside(context, findings, walks, survey.cached_chunks.chunks, spans)
    return rows, binned


class CheckedLists(NamedTuple):
    """Results of the passes over lists and chunks, and of the walk."""

    rows: lists.ChunkContradictions
    binned: lists.Binned
    survey: Survey


def _is_unmapped(context: Context, findings: Findings, diagnostic: Diagnostic) -> bool:
    if diagnostic.code not in UNMAPPED or diagnostic.address is None:
        return False
    address = diagnostic.address
    if any(mapping.start <= address < mapping.end for mapping in context.target.mappings()):
        return False
    findings.add(UNMAPPED[diagnostic.code], address, diagnostic.what)
    return True


def _add_complaint(context: Context, findings: Findings, seen: CheckedLists, diagnostic: Diagnostic) -> None:
    """A complaint of the walk: where it stopped is known from the pass over single chunks, and so is the chunk before it."""
    rows, binned, survey = seen
    stop = rows.stops.get(diagnostic.address) if diagnostic.address is not None else None
    walk, rule = findings.arena_of(diagnostic.address), BY_CODE[diagnostic.code]
    if diagnostic.code in (codes.BINS_DISAGREE, codes.NOT_LOCATED, codes.SYSTEM_MEM_SMALL) and findings.rows:
        return  # what these sums only hint at was found
    if diagnostic.code == codes.CHUNK_OVERRUN and walk is not None and diagnostic.address == walk.arena.top:
        rule = "top-size"
    elif diagnostic.code in SIZES and diagnostic.address in binned.unsorted:
        rule = "unsorted-size"
    elif diagnostic.code in SIZES and stop is not None and stop.previous in binned.unsorted:
        rule = "unsorted-next-size"
    elif diagnostic.code == codes.BREAK_DISAGREES and walk is not None:
        top, word = walk.arena.top, context.glibc.geometry.word_bytes
        size = int.from_bytes(context.target.read_prefix(top + word, word), context.target.byte_order) & ~7
        here = context.glibc.break_address(context.target)
        rule = "break-below-top" if here is not None and here < top + size else rule
    if diagnostic.code == codes.HEAP_DAMAGED and diagnostic.address is not None:
        for other in survey.walks:
            if diagnostic.address in (other.arena.top & -survey.heap_max, other.arena.address & -survey.heap_max):
                for name, what in heap_rules(context, other.arena, diagnostic.address, frozenset()):
                    findings.add(name, diagnostic.address, what)
    findings.add(rule, diagnostic.address, diagnostic.what, lists.find_chunk_suspect(context, stop))
