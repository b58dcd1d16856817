"""Verdict on glibc's malloc: memory in use, or kept by malloc, with its evidence, computed from figures alone. Every figure is weighed by
the memory that it takes: address space that was never touched, or was given back, is neither in use nor held. A value that could not be
read is an interval; a verdict must hold for every value in it (docs/reference/verdicts.md). Also: warnings to read before trusting or
acting, and the next commands. And the effects of other
settings: the number of arenas, thresholds, thread caches.
"""

from itertools import product
from typing import Collection, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.answers import BOUNDED, Effect, Requests, effect_of_restart, in_force
from gdbheapx.allocators.measured import (
    ARENA_ONE,
    ARENA_TWO,
    HUGETLB_OFF,
    HUGETLB_ON,
    MMAP_THRESHOLD,
    MXFAST,
    TCACHE_COUNT,
    TRIM_THRESHOLD,
    Setting,
)
from gdbheapx.allocators.records import AllocatorJudgement, Surroundings
from gdbheapx.common import findings as codes
from gdbheapx.common import verdict
from gdbheapx.common.columns import add_values
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import Finding, HistogramRow, StepSentence
from gdbheapx.common.units import Sentence, SentenceSize, count_noun, format_share, make_sentence
from gdbheapx.glibc import layouts
from gdbheapx.glibc.records import MOST_MERGED, ArenaTotals, GlibcFacts
from gdbheapx.layout.view import LayoutView

ABORTED = "the process aborted in malloc: the heap is damaged"
FIXED_BYTES = 128 << 10
"""DEFAULT_MMAP_THRESHOLD_MIN, DEFAULT_TRIM_THRESHOLD, DEFAULT_TOP_PAD."""
NOT_ASKING = HUGETLB_OFF.text
NO_ENVIRONMENT = "on the whole machine, for programs that get no environment, as runc's own process: no tunable reaches these"


def list_arena_findings(rows: Sequence[ArenaTotals]) -> Iterator[Finding]:
    """Yield damage and locks that the arenas show."""
    locked = [str(row.index) for row in rows if row.locked]
    if locked:
        what = "a thread is inside malloc: its arena may be in the middle of a change"
        yield Finding(what, "arena %s" % ", ".join(locked), "run it again if a number looks wrong", codes.INSIDE_MALLOC)
    damaged = [str(row.index) for row in rows if row.unparsed_bytes]
    if damaged:
        what = "part of the heap could not be read or is damaged"
        yield Finding(what, "arena %s" % ", ".join(damaged), "see the problems below", codes.DAMAGED)


def with_abort(judged: verdict.HeapVerdict) -> verdict.HeapVerdict:
    """Add that malloc aborted the process; in a small heap that is the verdict."""
    evidence = judged.evidence if judged.kind == verdict.SMALL else None
    hint = "%s shows the damage" % hint_command("check")
    return verdict.with_end(judged, Finding(ABORTED, evidence or "it stands in abort(), called by malloc", hint, codes.ABORTED_IN_MALLOC))


def list_glibc_steps(code: Optional[str], reclaimable_bytes: Optional[int] = None) -> List[StepSentence]:
    """Commands to type, by the code of the verdict. `reclaimable_bytes`: in RAM, of a process."""
    trim = StepSentence(hint_command("trim --dry-run"), "shows what malloc_trim would return to the OS, arena by arena", reclaimable_bytes)
    tunables = StepSentence(hint_command("tunables"), "shows the thresholds in force")
    free = StepSentence(hint_command("arenas"), "shows what is free in each arena")
    between = StepSentence(hint_command("arenas"), "shows the free memory of each arena, and how much of it a trim would return")
    steps = {
        codes.ABORTED_IN_MALLOC: [StepSentence(hint_command("check"), "shows which rules of malloc are broken, and where")],
        codes.ARENAS_LEFT: [StepSentence(hint_command("arenas"), "shows what is free in each arena, and which have no thread"), tunables],
        codes.UNMERGED: [StepSentence(hint_command("bins"), "shows what is in fastbins, by arena"), free],
        codes.FREED_AND_HELD: [trim, tunables],
        codes.FREE_BETWEEN: [between],
        codes.PART_HELD: [trim],
    }
    return [*verdict.what_is_in_use(code, ("used", "mmapped")), *steps.get(code or "", ())]


class GlibcVerdictFigures(NamedTuple):
    """The sums that the verdict rests on. None: not known, and then counted in no other figure but where that is said."""

    system_bytes: int
    """Taken from the kernel by arenas, and mmapped chunks: as far as that is known."""
    used_bytes: int
    """In use by the program: used chunks and mmapped chunks."""
    cached_bytes: Optional[int]
    """In thread caches; where it is not known they count as used."""
    free_bytes: int
    """Bins, fastbins, tops."""
    top_bytes: int
    thread_tops_bytes: int
    """Of them in the tops of arenas that are not the main one."""
    thread_tops: int
    """How many these are."""
    reclaimable_bytes: Optional[int]
    reclaimable_resident_bytes: Optional[int]
    returned_resident_bytes: Optional[int]
    """In RAM although arenas gave it back or never used it; None where that is not known."""
    returned_huge_bytes: Optional[int]
    """Those of them that are parts of huge pages."""
    arenas: int
    threads: int
    trim_threshold_bytes: Optional[int]
    """mp_.trim_threshold where it is no longer the default."""
    taken_bytes: Optional[int] = None
    """What of system_bytes takes memory: RAM, swap, pages of hugetlbfs; of a core its pages."""
    hugetlb_bytes: int = 0
    """Of that in pages of hugetlbfs, which no trim returns."""
    tops_bytes: int = 0
    """Whole pages in tops that no trim returns."""
    tops_taken_bytes: Optional[int] = None
    """What of them takes memory."""
    fast_chunks: int = 0
    fast_bytes: int = 0
    """Of free_bytes in fastbins."""
    reclaimable_taken_bytes: Optional[int] = None
    """What of reclaimable_bytes a core has, where that decides."""
    left_arenas: int = 0
    """Arenas whose threads have ended."""
    left_bytes: int = 0
    """Of free_bytes at their ends, which no trim returns, and in memory."""
    left_untold_bytes: int = 0
    """The same of arenas whose threads may have ended: nothing tells."""
    unmerged_bytes: int = 0
    """Of free_bytes below the tops of thread arenas, with fastbin chunks in it that were not merged, and in memory."""
    between_bytes: Optional[int] = None
    """Of free_bytes beside blocks: without the ends of arenas, and without whole pages."""
    most_cached_bytes: Optional[int] = None
    """The limit of thread caches, where they are not known; None: no limit."""
    maybe_free_bytes: int = 0
    """Of used_bytes, in arenas whose fastbins are not known: they may be free."""
    unparsed_bytes: int = 0
    """Of system_bytes: in use or free, nobody knows."""
    beyond_bytes: int = 0
    """The most that there may be beyond system_bytes: arenas and mmapped chunks that could not be read."""
    reserve_bytes: int = 0
    """Claimed, and in no arena: given back or never used."""
    is_core: bool = False
    is_cut: bool = False
    are_zeros_silent: bool = False
    are_thresholds_fixed: bool = False
    large_free_bytes: int = 0
    """Of free_bytes in chunks that would have been mappings, had freeing mmapped chunks not raised the thresholds."""
    no_fastbins: str = layouts.no_fastbins(None)
    """What keeps none at the next start."""
    missing: Sequence[str] = ()
    """What could not be read."""
    blockless_huge_bytes: Optional[int] = None
    """Parts of huge pages in RAM in which no block lies, beyond the ends of heaps too; None where that is not known."""


def judge_glibc(facts: Sequence[GlibcFacts], around: Surroundings) -> List[AllocatorJudgement]:
    """Judge all glibc mallocs of a process together: to a user they are one."""
    rows = [row for heap in facts for row in heap.arenas]
    sums = make_glibc_figures(facts, rows, around)
    asks = any(heap.asks_for_huge_pages for heap in facts)
    is_always = around.huge_pages is not None and around.huge_pages.setting == "always"
    cure = make_glibc_huge_cure(asks, is_always)
    seen = sums.returned_resident_bytes, sums.returned_huge_bytes, "beyond the ends of heaps", cure
    returned = huge_pages.judge_huge_pages(huge_pages.Returned("malloc", None, *seen), around.huge_pages)
    blockless = _find_blockless(facts, sums, around, returned, cure)
    told_more = huge_pages.judge_blockless(blockless, around.huge_pages) if blockless is not None else None
    returned = told_more or returned
    if returned is not None and returned.steps and asks and is_always:  # then setting the kernel to `madvise` alone changes nothing
        why = "at the next start, once the machine's setting is madvise: malloc asks for huge pages now"
        returned = returned._replace(steps=[*returned.steps, StepSentence(NOT_ASKING, why)])
    judged = verdict_on(sums, returned, blockless if told_more else None)
    if any(heap.has_aborted for heap in facts):
        judged = with_abort(judged)
    steps = [*huge_pages.huge_page_steps(judged, returned), *list_glibc_steps(judged.code, sums.reclaimable_resident_bytes)]
    ids = [heap.info.id for heap in facts]
    taken = sums.system_bytes if sums.taken_bytes is None else min(sums.taken_bytes, sums.system_bytes)
    held = taken + (sums.returned_resident_bytes or 0)
    return [AllocatorJudgement(ids[0], ids, held, judged, [*side_lines(sums, judged.kind), *list_arena_findings(rows)], steps)]


def _find_blockless(
    facts: Sequence[GlibcFacts],
    sums: GlibcVerdictFigures,
    around: Surroundings,
    returned: Optional[huge_pages.Judged],
    cure: Optional[StepSentence],
) -> Optional[huge_pages.Blockless]:
    """Return the record of huge pages without a block, or None where `returned` already covers nearly all of them, or they are too few to
    report.
    """
    huge, seen = sums.blockless_huge_bytes, sums.returned_huge_bytes or 0
    if (returned is not None and 4 * seen >= 3 * (huge or 0)) or not huge_pages.is_worth_telling(huge, around.rss_bytes):
        return None
    by_default = any(heap.asks_by_default for heap in facts)
    asks = any(heap.asks_for_huge_pages for heap in facts)
    asked = "glibc asks for them by default" if by_default else "glibc.malloc.hugetlb=1 asks for them" if asks else ""
    cures = [cure] if cure is not None else []
    if by_default and cures:
        cures.append(StepSentence("echo never > /sys/kernel/mm/transparent_hugepage/enabled", NO_ENVIRONMENT))
    zeros = add_values(heap.zero_huge_bytes() for heap in facts)
    return huge_pages.Blockless("malloc", huge, zeros, around.rss_bytes, asked, cures)


def make_glibc_huge_cure(asks_for_them: bool, is_always: bool = False) -> Optional[StepSentence]:
    """Return the step that stops malloc from asking for huge pages, or None where it does not ask, or where the kernel `is_always` giving
    them.
    """
    if not asks_for_them or is_always:
        return None
    return StepSentence(NOT_ASKING, "at the next start stops malloc from asking for huge pages, as it does now")


def make_glibc_figures(facts: Sequence[GlibcFacts], rows: Sequence[ArenaTotals], around: Surroundings) -> GlibcVerdictFigures:
    """The sums over all copies; mmapped chunks are memory in use."""
    totals = [heap.totals for heap in facts]

    def sum_fields(*names: str) -> int:
        return sum(sums[name] or 0 for sums in totals for name in names)

    thresholds = [heap.trim_threshold_bytes for heap in facts]
    raised = [value for value in thresholds if value is not None and value > FIXED_BYTES]
    returned = add_values(sums["free_returned_resident_bytes"] for sums in totals)
    threads = [(row, heap) for heap in facts for row in heap.arenas if row.kind != "main"]
    left = [(row, _end_bytes(row, heap, around)) for row, heap in threads if not _count_threads(row)]
    tops = sorted((top.start, top.end) for heap in facts for top in heap.tops)
    claimed = sum(claim.end - claim.start for heap in facts for claim in heap.claims)
    missing, is_open = _list_missing(facts, rows)
    taken = add_values(around.taken_bytes.get(heap.info.id) for heap in facts)
    free_sizes = [
        (row, MOST_MERGED * (heap.trim_threshold_bytes or 0) // 2) for heap in facts if not heap.are_thresholds_fixed for row in heap.sizes
    ]
    # a chunk much larger than any block that was not mmapped was merged from many, of any size
    large_free = sum(row.free_bytes for row, most in free_sizes if FIXED_BYTES <= row.size_bytes <= most)
    known = GlibcVerdictFigures(
        system_bytes=sum_fields("mmapped_bytes") + sum(row.held_bytes for row in rows),
        used_bytes=sum_fields("used_bytes", "mmapped_bytes"),
        cached_bytes=add_values(sums["tcache_bytes"] for sums in totals),
        free_bytes=sum_fields("free_bytes", "fast_bytes", "top_bytes"),
        top_bytes=sum_fields("top_bytes"),
        thread_tops_bytes=sum(row.top_bytes or 0 for row in rows if row.kind != "main"),
        thread_tops=sum(1 for row in rows if row.kind != "main" and row.top_bytes),
        reclaimable_bytes=add_values(row.reclaimable_bytes for row in rows),
        reclaimable_resident_bytes=add_values(sums["reclaimable_resident_bytes"] for sums in totals),
        returned_resident_bytes=returned,
        returned_huge_bytes=add_values(sums["free_returned_huge_bytes"] for sums in totals),
        arenas=sum_fields("arenas"),
        threads=around.threads,
        trim_threshold_bytes=raised[0] if raised else None,
        taken_bytes=None if taken is None else max(0, taken - (returned or 0)),
        hugetlb_bytes=sum(around.hugetlb_bytes.get(heap.info.id, 0) for heap in facts),
        tops_bytes=sum(end - start for start, end in tops),
        tops_taken_bytes=around.taken(tops),
        fast_chunks=sum_fields("fast_chunks"),
        fast_bytes=sum_fields("fast_bytes"),
        left_arenas=sum(1 for row, size in left if size and _count_threads(row) is not None),
        left_bytes=sum(size for row, size in left if _count_threads(row) is not None),
        left_untold_bytes=sum(size for row, size in left if _count_threads(row) is None),
        unmerged_bytes=sum(_end_bytes(row, heap, around, is_unmerged=True) for row, heap in threads),
        between_bytes=add_values(row.between_bytes for row in rows),
        most_cached_bytes=add_values(heap.most_cached_bytes for heap in facts),
        maybe_free_bytes=sum(row.used_bytes or 0 for row in rows if row.fast_bytes is None or row.free_bytes is None),
        unparsed_bytes=sum_fields("unparsed_bytes"),
        beyond_bytes=around.beyond_bytes if is_open else 0,
        reserve_bytes=claimed - sum_fields("system_bytes", "mmapped_bytes"),
        is_core=around.is_core,
        is_cut=around.is_cut,
        are_zeros_silent=around.are_zeros_silent,
        are_thresholds_fixed=any(heap.are_thresholds_fixed for heap in facts),
        large_free_bytes=large_free if raised else 0,
        no_fastbins=layouts.no_fastbins(layouts.parse_version(facts[0].info.version)),
        missing=missing,
        blockless_huge_bytes=add_values(sums["blockless_huge_bytes"] for sums in totals),
    )
    is_known = known.reclaimable_resident_bytes is not None or known.taken_bytes is None or not known.reclaimable_bytes
    if is_known or known.system_bytes - (known.taken_bytes or 0) <= verdict.SMALL_BYTES:
        return known
    return known._replace(reclaimable_taken_bytes=add_values(around.taken(heap.free_pages()) for heap in facts))


def _list_missing(facts: Sequence[GlibcFacts], rows: Sequence[ArenaTotals]) -> Tuple[List[str], bool]:
    """(what could not be read, there may be memory of malloc beyond what was)."""
    closed = [heap.are_all_arenas and bool(heap.arenas) and all(row.system_bytes is not None for row in heap.arenas) for heap in facts]
    mapped = [heap.totals["mmapped_bytes"] is not None for heap in facts]
    told = [
        (not all(closed), "arenas"),
        (not all(mapped), "mmapped chunks"),
        (any(row.tcache_bytes is None for row in rows), "thread caches"),
        (any(row.fast_bytes is None or row.free_bytes is None for row in rows), "free lists"),
        (any(row.unparsed_bytes for row in rows), "parts of heaps"),
    ]
    return [what for is_missing, what in told if is_missing], not (all(closed) and all(mapped))


def _count_threads(row: ArenaTotals) -> Optional[int]:
    return row.attached_threads if row.threads is None else row.threads


def _end_bytes(row: ArenaTotals, facts: GlibcFacts, around: Surroundings, is_unmerged: bool = False) -> int:
    """Return the free bytes at the end of a thread arena that are in memory. `is_unmerged`: only those below its top."""
    spans = [(top.start, top.end) for top in facts.tops if top.arena == row.index and (top.is_unmerged or not is_unmerged)]
    taken = around.taken(spans) if spans else 0
    gone = sum(end - start for start, end in spans) - taken if taken is not None else 0
    return max(0, (row.unmerged_bytes or 0) + (0 if is_unmerged else row.top_bytes or 0) - gone)


def list_glibc_cases(sums: GlibcVerdictFigures) -> List[verdict.HeapCase]:
    """Return the corners of what is possible: each unknown as small and as large as it can be, in use or free."""
    most_cached = sums.used_bytes if sums.most_cached_bytes is None else min(sums.used_bytes, sums.most_cached_bytes)
    ranges = [verdict.list_ends(None, most) for most in (sums.maybe_free_bytes, sums.unparsed_bytes, sums.beyond_bytes, sums.beyond_bytes)]
    made = []
    for in_caches, loose, unparsed, used, free in product(verdict.list_ends(sums.cached_bytes, most_cached), *ranges):
        moved = 0 if sums.cached_bytes is not None else min(in_caches, max(0, sums.used_bytes - loose))
        corner = sums._replace(
            used_bytes=sums.used_bytes - moved - loose + sums.unparsed_bytes - unparsed,
            free_bytes=sums.free_bytes + loose + unparsed,
            cached_bytes=in_caches if sums.cached_bytes is not None else moved,
        )
        unknown = [verdict.list_ends(known, corner.free_bytes) for known in (sums.reclaimable_bytes, sums.between_bytes)]
        for reclaimable, between in product(*unknown):
            for case in _weigh_cases(corner, reclaimable, between):
                made += _add_unread(case, used, free, loose + unparsed)
    return list(dict.fromkeys(made))


def _add_unread(case: verdict.HeapCase, used: int, free: int, loose: int) -> List[verdict.HeapCase]:
    """Add memory that was not read to a case. Its free part lies between blocks, at the ends of arenas, or neither: one case for each
    possibility. So does `loose`.
    """
    more = case._replace(held=case.held + used + free, used=case.used + used, free=case.free + free)
    if not free and not loose:
        return [more]
    return [more, *(more._replace(**{name: getattr(more, name) + free + loose}) for name in ("between", "left", "unmerged"))]


def _weigh_cases(sums: GlibcVerdictFigures, reclaimable: int, between: int) -> List[verdict.HeapCase]:
    """Return the cases weighed by the memory that they take: one case where the pages are known, two where a core does not show which
    free pages it lacks.
    """
    gone = max(0, sums.system_bytes - sums.taken_bytes) if sums.taken_bytes is not None else None
    tops = sums.tops_bytes - sums.tops_taken_bytes if sums.tops_taken_bytes is not None else 0
    here = sums.reclaimable_resident_bytes if sums.reclaimable_resident_bytes is not None else sums.reclaimable_taken_bytes
    limit = verdict.UNBOUNDED if gone is None else gone
    if gone is None and sums.reclaimable_resident_bytes is None:
        free_ends = [0]
    elif here is not None:
        free_ends = [min(max(0, reclaimable - here) + tops, limit)]
    elif limit <= verdict.SMALL_BYTES:
        free_ends = [min(tops + reclaimable, limit)]  # whose this is weighs nothing
    else:
        least = max(tops, limit - sums.used_bytes)
        free_ends = verdict.list_ends(None, max(least, min(tops + reclaimable, limit)), least)
    made = []
    for gone_free in free_ends:
        gone_free = max(0, min(gone_free, sums.free_bytes))
        lost = gone_free if gone is None else gone
        used = max(0, sums.used_bytes - max(0, lost - gone_free))
        free = sums.free_bytes - gone_free
        held = max(0, sums.system_bytes - lost)
        for untold in verdict.list_ends(None, sums.left_untold_bytes):
            left, unmerged = min(free, sums.left_bytes + untold), min(free, sums.unmerged_bytes)
            case = verdict.HeapCase(held, used, free, sums.cached_bytes or 0, gone=lost, gone_free=gone_free)
            made.append(case._replace(between=min(free, between), left=left, unmerged=unmerged))
    return made


_LEFT = verdict.VerdictRule(
    codes.ARENAS_LEFT, lambda ask: ask(lambda case: verdict.MOST_PARTS * case.left > case.free), "Kept", verdict.KEPT_BY_MALLOC, "free"
)
_UNMERGED = verdict.VerdictRule(
    codes.UNMERGED, lambda ask: ask(lambda case: verdict.MOST_PARTS * case.unmerged > case.free), "Kept", verdict.KEPT_BY_MALLOC, "free"
)
_HELD = verdict.VerdictRule(codes.FREED_AND_HELD, verdict.is_rest, "Kept", verdict.KEPT_BY_MALLOC, "free")
GLIBC_RULES = (
    verdict.VerdictRule(
        codes.SMALL_HEAP,
        lambda ask: (
            verdict.is_small(ask) or (ask(lambda case: case.held < verdict.LITTLE_BYTES) and ask(lambda case: case.gone >= case.held))
        ),
        "Small",
    ),
    verdict.VerdictRule(codes.IN_USE, verdict.is_mostly_used, "In use", verdict.ALLOCATED),
    verdict.VerdictRule(codes.PART_HELD, lambda ask: not verdict.is_much_kept(ask), "In use", verdict.ALLOCATED),
    verdict.VerdictRule(codes.FREE_BETWEEN, verdict.is_fragmented, "Fragmented", "free between blocks in use", "free"),
    verdict.VerdictRule(codes.FREED_AND_HELD, verdict.is_rest, "Kept", verdict.KEPT_BY_MALLOC, "free", (_LEFT, _UNMERGED, _HELD)),
)


def verdict_on(
    sums: GlibcVerdictFigures, returned: Optional[huge_pages.Judged] = None, blockless: Optional[huge_pages.Blockless] = None
) -> verdict.HeapVerdict:
    """The verdict, or that there is none for what could not be read; `returned`: on what it gave back and is in RAM, or on the `blockless`
    parts of huge pages, whose zeros alone count."""
    cases = list_glibc_cases(sums)
    case, most_held = cases[0], SentenceSize(max(corner.held for corner in cases))
    small = make_sentence("%s requested from the kernel", most_held)
    if case.gone > case.held:
        small = make_sentence("%s of %s requested from the kernel take memory", most_held, SentenceSize(sums.system_bytes))
    held, zeros = case.held + (sums.returned_resident_bytes or 0), sums.returned_resident_bytes
    unsure = [
        (sums.taken_bytes is None and sums.reclaimable_resident_bytes is None, "which pages are in RAM"),
        (not sums.missing and len({corner.gone_free for corner in cases}) > 1, "which free pages are in memory"),
        (huge_pages.may_decide(sums.returned_resident_bytes, sums.reserve_bytes, sums.is_core), "how much returned memory is in RAM"),
    ]
    if blockless is not None:
        zeros = blockless.zero_bytes
        is_open = zeros is None and huge_pages.decides_verdict(blockless.huge_bytes, held)
        unsure.append((is_open, "which parts of huge pages hold zeros"))
    why = ["the problems below say why"] * bool(sums.missing) + ["the core was cut: take a whole one"] * sums.is_cut
    evidence = verdict.HeapEvidence(
        cases,
        {"used": "in use by the program", "free": "free in malloc"},
        small,
        sums.missing,
        [what for is_unknown, what in unsure if is_unknown],
        _say_gone(sums, case),
        "; ".join(why) or None,
        sums.are_zeros_silent,
    )
    judged = verdict.judge_heap(evidence, GLIBC_RULES, lambda code: _make_hint(code, sums, case))
    if judged.kind == verdict.INCONCLUSIVE:
        return judged
    if judged.code in (codes.ARENAS_LEFT, codes.UNMERGED):  # which free memory no trim returns
        size, what = min(case.unmerged for case in cases), "below the tops of thread arenas: chunks in fastbins keep it from being merged"
        if judged.code == codes.ARENAS_LEFT:
            arenas = count_noun(sums.left_arenas, "arena")
            size, what = min(case.left for case in cases), "at the ends of %s left by threads that have ended" % arenas
        line = judged.lines[0]
        details = make_sentence("%s of it %s; %s", SentenceSize(size), what, line.details) if len(cases) == 1 else line.details
        judged = judged._replace(lines=[line._replace(details=details, size_bytes=size)])
    return huge_pages.add_huge_page_verdict(returned, zeros, held, judged)


def _say_gone(sums: GlibcVerdictFigures, case: verdict.HeapCase) -> Sentence:
    if case.gone <= verdict.SMALL_BYTES:
        return make_sentence("")
    where = "not in the core" if sums.is_core else "not in RAM"
    untouched = case.gone - case.gone_free
    if untouched <= verdict.SMALL_BYTES:
        return make_sentence("; %s more are free and %s", SentenceSize(case.gone), where)
    why = "never written to, or all zeros" if sums.is_core else "never written to"  # gdb leaves pages of zeros out
    if case.gone_free <= verdict.SMALL_BYTES:
        return make_sentence("; %s more are %s: %s", SentenceSize(case.gone), where, why)
    sizes = SentenceSize(case.gone), where, SentenceSize(case.gone_free), SentenceSize(untouched), why
    return make_sentence("; %s more are %s: %s free, %s %s", *sizes)


def _make_hint(code: str, sums: GlibcVerdictFigures, case: verdict.HeapCase) -> Optional[str]:
    """Return what is said of a code of the verdict: what a trim would return, and what keeps memory from staying."""
    if code == codes.IN_USE:
        return verdict.GROWING_HINT
    total, resident = sums.reclaimable_bytes, sums.reclaimable_resident_bytes
    if code in (codes.ARENAS_LEFT, codes.UNMERGED):
        trim = make_sentence("malloc_trim never returns the end of a thread arena")
        if total is not None:
            trim = make_sentence("%s: it would return %s", trim, SentenceSize(total))
        if code == codes.UNMERGED or 2 * case.unmerged > case.left:
            return make_sentence("%s; %s at the next start: free() then merges at once, and returns the top", trim, sums.no_fastbins)
        cure = "a new thread takes such an arena over, and its free() of 64 KiB or more returns the top"
        return make_sentence("%s; %s; %s at the next start makes fewer of them, at the cost of lock contention", trim, cure, ARENA_TWO.text)
    if total is None:
        return None
    if 2 * sums.hugetlb_bytes > (sums.taken_bytes or 0):
        return make_sentence("no trim returns pages of hugetlbfs; malloc_trim(0) would return %s of other pages", SentenceSize(total))
    if sums.is_core:
        if total and sums.reclaimable_taken_bytes is not None:
            what = "malloc_trim(0) would have returned %s, %s of it in the core"
            return make_sentence(what, SentenceSize(total), SentenceSize(sums.reclaimable_taken_bytes))
        unknown = "; how much of that was in RAM is not in the core" if total else ""
        return make_sentence("malloc_trim(0) would have returned %s%s", SentenceSize(total), unknown)
    if resident is not None and 20 * resident < total:
        return make_sentence("a trim gains nothing: %s of free pages are back with the OS already", SentenceSize(total - resident))
    in_ram = "" if resident is None else make_sentence(", %s of it in RAM now", SentenceSize(resident))
    return make_sentence("malloc_trim(0) would return %s to the OS%s", SentenceSize(total), in_ram)


def side_lines(sums: GlibcVerdictFigures, kind: str) -> Iterator[Finding]:
    """Yield further findings beside the verdict; none where the heap is small or unknown."""
    if kind in (verdict.SMALL, verdict.INCONCLUSIVE):
        return
    case = list_glibc_cases(sums)[0]
    cached, reclaimable = sums.cached_bytes or 0, sums.reclaimable_bytes
    if reclaimable is not None and case.between > verdict.WORTH_BYTES and 4 * reclaimable < case.free:
        sizes = SentenceSize(case.between), SentenceSize(case.free), SentenceSize(reclaimable)
        evidence = make_sentence("%s of %s free lie between used chunks; a trim can return %s", *sizes)
        hint = "`%s` shows which used chunks keep it; a trim does not return it" % hint_command("pins")
        yield Finding("free memory is in small pieces", evidence, hint, codes.SMALL_PIECES, size_bytes=case.between)
    if cached > verdict.SMALL_BYTES and 10 * cached > case.held:
        evidence = make_sentence("%s (%s of the heap)", SentenceSize(cached), format_share(cached, case.held))
        hint = "malloc_trim cannot reach it; to disable thread caches, restart with %s" % TCACHE_COUNT.text
        yield Finding("much memory is in thread caches", evidence, hint, codes.THREAD_CACHES, size_bytes=cached)
    if sums.hugetlb_bytes >= verdict.SMALL_BYTES:  # reserved for the machine, and given back as a whole or not at all (madvise: EINVAL)
        evidence = make_sentence("%s, which RSS does not include", SentenceSize(sums.hugetlb_bytes))
        hint = "no trim returns them: madvise takes whole ones alone; %s at the next start uses none" % NOT_ASKING
        yield Finding("malloc's memory is in pages of hugetlbfs", evidence, hint, codes.HUGETLB, size_bytes=sums.hugetlb_bytes)
    if sums.fast_bytes > verdict.WORTH_BYTES and 10 * sums.fast_bytes >= case.held:
        chunks, share = count_noun(sums.fast_chunks, "chunk"), format_share(sums.fast_bytes, case.held)
        evidence = make_sentence("%s in %s, %s of the heap", SentenceSize(sums.fast_bytes), chunks, share)
        why = "malloc merges them only when it frees 64 KiB or more at once there, or is asked for a large block"
        hint = "%s; %s at the next start keeps none" % (why, sums.no_fastbins)
        yield Finding("much free memory is in fastbins", evidence, hint, codes.FASTBINS, size_bytes=sums.fast_bytes)
    threshold = SentenceSize(sums.trim_threshold_bytes or FIXED_BYTES)
    main_top = min(sums.top_bytes - sums.thread_tops_bytes, case.free)
    if sums.trim_threshold_bytes is not None and not sums.are_thresholds_fixed and main_top > verdict.WORTH_BYTES:
        what = "top holds %s; freeing mmapped chunks has raised trim_threshold to %s"
        evidence = make_sentence(what, SentenceSize(main_top), threshold)
        hint = "to keep it small, restart with %s" % TRIM_THRESHOLD.text
        yield Finding("malloc keeps a large top", evidence, hint, codes.MAIN_TOP, size_bytes=main_top)
    # mtrim gives back a thread arena's free chunks and never its top (malloc.c: mtrim, heap_trim)
    untouched = sums.tops_bytes - sums.tops_taken_bytes if sums.tops_taken_bytes is not None else 0
    tops = min(max(0, sums.thread_tops_bytes - untouched), case.free)
    if tops > verdict.WORTH_BYTES or (tops >= verdict.SMALL_BYTES and 4 * tops >= case.free):
        counted = count_noun(sums.thread_tops, "top")
        evidence = make_sentence("%s in %s, %s of all free memory", SentenceSize(tops), counted, format_share(tops, case.free))
        what = "malloc_trim never returns these to the OS; free() does, if the arena's top exceeds trim_threshold (%s) at that moment"
        hint = make_sentence(what, threshold)
        yield Finding("free memory is in the tops of thread arenas", evidence, hint, codes.THREAD_TOPS, size_bytes=tops)
    large = min(sums.large_free_bytes, case.free)
    if large > verdict.WORTH_BYTES and 2 * large > case.free and large > main_top:
        what = "%s in free chunks of 128 KiB or more; freeing mmapped chunks has raised trim_threshold to %s"
        evidence = make_sentence(what, SentenceSize(large), threshold)
        why = "blocks of that size are mapped, and unmapped when they are freed, after a restart with %s; merged small blocks are not"
        yield Finding("much is free in large chunks", evidence, why % MMAP_THRESHOLD.text, codes.THRESHOLD_RAISED, size_bytes=large)
    spread = case.free - large - case.unmerged  # of the rest fewer arenas would keep as much
    if sums.arenas > 4 and spread > verdict.WORTH_BYTES and 2 * spread >= case.held:
        evidence = make_sentence("%s for %s", count_noun(sums.arenas, "arena"), count_noun(sums.threads, "thread"))
        hint = "to keep it in fewer arenas, at the cost of lock contention, restart with %s" % ARENA_TWO.text
        yield Finding("free memory is spread over many arenas", evidence, hint, codes.MANY_ARENAS, size_bytes=spread)


# ---------------------------------------------------------------------------------------------------- effects of other settings

LEFT_AT_TOP_BYTES = 3 * FIXED_BYTES
"""A free() leaves less than the trim threshold at the top, and top_pad; small blocks freed since may add to it, as merging is asked for in
steps of FASTBIN_CONSOLIDATION_THRESHOLD (64 KiB)."""
MOST_CHUNKS = 1 << 18
"""Of more free chunks it is not asked which of their pages are in RAM: all of them count as if they were."""
TUNABLES, ARENA_MAX = MXFAST.variable, ARENA_ONE.variable
FIXING = (TRIM_THRESHOLD.variable, MMAP_THRESHOLD.variable, "MALLOC_TOP_PAD_", "MALLOC_MMAP_MAX_")
"""Each of them keeps both thresholds where they are."""
VARIABLES = (TUNABLES, ARENA_MAX, *FIXING)
BY_CALL = "; the program calls mallopt() itself, which no variable changes"
FREE = ("free_bytes", "fast_bytes", "tcache_bytes", "top_bytes")
"""What no program uses in an arena."""


def sum_glibc_free(arenas: Sequence[ArenaTotals]) -> Optional[int]:
    """Return all free bytes in these arenas, in RAM or not. None where a part is unknown."""
    total = 0
    for arena in arenas:
        for name in FREE:
            value = getattr(arena, name)
            if value is None:
                return None
            total += value
    return total


def beside_largest_bytes(arenas: Sequence[ArenaTotals]) -> int:
    """Return the bytes that all arenas but the largest hold."""
    held = [arena.held_bytes for arena in arenas]
    return sum(held) - max(held, default=0)


def kept_apart_bytes(arenas: Sequence[ArenaTotals]) -> Optional[int]:
    """Return the bytes of chunks in thread caches and of the free memory on both sides of them, if that is as much as elsewhere. None if
    unknown, also where the caches of threads that ended filled an arena.
    """
    if not all(arena.attached_threads for arena in arenas):
        return None
    totals = [
        add_values(getattr(arena, name) for arena in arenas) for name in ("tcache_bytes", "tcache_chunks", "free_bytes", "free_chunks")
    ]
    cached_bytes, cached, free, chunks = totals
    if cached_bytes is None or cached is None or free is None or chunks is None:
        return None
    return cached_bytes + 2 * cached * free // max(1, chunks)


class GlibcSettingFigures(NamedTuple):
    """Figures that the effects of settings are computed from."""

    arenas: int
    free_bytes: Optional[int]
    """What is free, without whole pages that are known not to be in RAM: no setting can save more."""
    beside_largest_bytes: int
    kept_apart_bytes: Optional[int]
    others_bytes: Optional[int]
    """What of free memory lies in thread arenas, in RAM or not."""
    cached_bytes: Optional[int]
    """In thread caches."""
    top_bytes: Optional[int]
    """What of the main top is in RAM."""
    huge_page_bytes: Optional[int]
    """What the arenas would have more where huge pages come whole."""
    large_chunks: int
    """Of FIXED_BYTES or more."""
    large_free_bytes: int = 0
    """In free chunks and tops of FIXED_BYTES or more, and in RAM as far as is known."""
    unmerged_bytes: int = 0
    """Below the tops of thread arenas, not merged with them for chunks in fastbins."""
    fast_bytes: int = 0
    no_fastbins: str = ""
    """What keeps none."""


def list_glibc_effects(mp: LayoutView, has: GlibcSettingFigures, page_bytes: int, variables: Optional[Collection[str]]) -> List[Effect]:
    """Return the effect of each setting once. `variables`: the names in VARIABLES that the process was started with; None if unknown."""
    more = " (added to its present value)" if variables is not None and TUNABLES in variables else ""

    def by_call(*names: str) -> str:
        return "" if variables is None or {TUNABLES, *names}.intersection(variables) else BY_CALL

    return [
        _predict_arenas(mp, has, by_call(ARENA_MAX)),
        *_predict_thresholds(mp, has, page_bytes, by_call(*FIXING)),
        *_predict_fastbins(has, more),
        *_predict_caches(mp, has, more),
        *_huge_pages(mp, has, more),
        effect_of_restart(has.free_bytes),
    ]


def _has_moved(mp: LayoutView) -> bool:
    """A mapped block was freed, which raised the thresholds. All threads share them: in another run their order may be another."""
    return not mp["no_dyn_threshold"] and (mp["mmap_threshold"], mp["trim_threshold"]) != (FIXED_BYTES, FIXED_BYTES)


def _in_order(mp: LayoutView, has: GlibcSettingFigures, bytes_: Optional[int]) -> Optional[int]:
    """The most that a setting saves, if threads do the same in another run; where they may not, all that is free."""
    if bytes_ is None or has.free_bytes is None or (has.arenas > 1 and _has_moved(mp)):
        return has.free_bytes
    return min(bytes_, has.free_bytes)


def _predict_arenas(mp: LayoutView, has: GlibcSettingFigures, by_call: str) -> Effect:
    setting, limit = ARENA_ONE.text, mp["arena_max"]
    if limit == 1 or has.arenas == 1:
        return in_force("arenas", setting, "arena_max is 1" if limit == 1 else "no thread made an arena of its own")
    why = "at most the free memory of %s, and all memory of all but the largest; at worst one keeps all that was ever in RAM"
    why %= count_noun(has.arenas, "arena")
    if limit and by_call:
        setting, why = "mallopt(M_ARENA_MAX, 1)", why + by_call
    cost, most = "threads wait for one lock: how long is not known", _in_order(mp, has, has.beside_largest_bytes)
    least, acts_on = -(mp.get("thp_pagesize") or 0), has.others_bytes
    if acts_on is not None and most is not None:  # the rest is kept in one arena as in several
        kept = has.unmerged_bytes + (has.cached_bytes or 0) + (has.large_free_bytes if _has_moved(mp) else 0)
        acts_on = min(most, max(0, acts_on - kept))
    causes = (codes.MANY_ARENAS, codes.ARENAS_LEFT)
    return Effect("arenas", setting, BOUNDED, least, most, why, cost, may_peak=True, acts_on_bytes=acts_on, by=ARENA_ONE, causes=causes)


def _predict_thresholds(mp: LayoutView, has: GlibcSettingFigures, page_bytes: int, by_call: str) -> List[Effect]:
    rows: Sequence[Tuple[str, str, Setting, str]] = (
        ("trim-threshold", "trim_threshold", TRIM_THRESHOLD, "more calls of brk, and page faults when the top grows again"),
        ("mmap-threshold", "mmap_threshold", MMAP_THRESHOLD, "a system call and page faults for each block of 128 KiB or more"),
    )
    slack = page_bytes * has.large_chunks
    beyond = None if has.top_bytes is None else max(0, has.top_bytes - LEFT_AT_TOP_BYTES)
    made = []
    for code, name, by, cost in rows:
        setting = by.text
        if mp["no_dyn_threshold"] and mp[name] == FIXED_BYTES:
            made.append(in_force(code, setting, "%s is fixed at 128 KiB" % name))
            continue
        if not mp["no_dyn_threshold"] and not _has_moved(mp):
            made.append(in_force(code, setting, "%s never moved from 128 KiB: no mapped block was freed" % name))
            continue
        least = None if beyond is None else beyond - slack
        why = "what of the main top is in RAM beyond the threshold, unless a block comes to lie above it; at most all that is free"
        if mp["no_dyn_threshold"] and by_call:
            setting, why = "mallopt(M_%s, %d)" % (name.upper(), FIXED_BYTES), why + by_call
        else:
            why += "; one of the two fixes both"
        acts_on = has.large_free_bytes if beyond is None else max(beyond, has.large_free_bytes)
        causes = (codes.MAIN_TOP if acts_on == beyond else codes.THREAD_TOPS,)
        one = Effect(code, setting, BOUNDED, least, has.free_bytes, why, cost, may_peak=True, acts_on_bytes=acts_on)
        made.append(one._replace(by=by, causes=causes))
    return made


def _predict_fastbins(has: GlibcSettingFigures, more: str) -> List[Effect]:
    if not has.fast_bytes:
        return []
    setting = has.no_fastbins + (more if has.no_fastbins.startswith(TUNABLES) else "")
    why = "what free() would merge into tops at once, unless a block comes to lie above it; at most all that is free"
    cost, by, causes = "each free() of a small block merges it with its neighbours", MXFAST, (codes.UNMERGED,)
    acts_on = has.unmerged_bytes
    return [Effect("fastbins", setting, BOUNDED, 0, has.free_bytes, why, cost, may_peak=True, acts_on_bytes=acts_on, by=by, causes=causes)]


def _predict_caches(mp: LayoutView, has: GlibcSettingFigures, more: str) -> List[Effect]:
    count = mp.get("tcache_count")
    if count is None:  # as releases before 2.26, which have no tunables either
        return []
    setting = TCACHE_COUNT.text + more
    if count == 0:
        return [in_force("thread-caches", setting, "tcache_count is 0")]
    most = _in_order(mp, has, has.kept_apart_bytes)
    why = "at most the chunks in caches and the free chunks next to them" if most != has.free_bytes else "at most all that is free"
    why += "; a lower tcache_max saves no more"
    cost = "each malloc and free takes the lock of its arena"
    one = Effect("thread-caches", setting, BOUNDED, 0, most, why, cost, may_peak=True, acts_on_bytes=has.cached_bytes)
    return [one._replace(by=TCACHE_COUNT, causes=(codes.THREAD_CACHES,))]


def _huge_pages(mp: LayoutView, has: GlibcSettingFigures, more: str) -> List[Effect]:
    size = mp.get("thp_pagesize")
    if size is None:  # before 2.35
        return []
    setting = HUGETLB_ON.text + more
    if size:  # 2.43 may have one without asking: where it is set by default, the machine decides (malloc.c: thp_init, madvise_thp)
        asks = mp.get("thp_mode") in (None, layouts.THP_MADVISE)
        return [in_force("malloc-huge-pages", setting, "malloc asks for huge pages" if asks else "the machine's setting decides alone")]
    least = None if has.huge_page_bytes is None else -has.huge_page_bytes
    why = "it costs at most the missing parts of the huge pages where arenas lie now; nothing where the kernel has no huge page at hand"
    most = _in_order(mp, has, 0)
    if most != 0:
        why += "; threads in several arenas come in another order, which alone can save free memory"
    return [Effect("malloc-huge-pages", setting, BOUNDED, least, most, why, "RAM, for fewer misses of the TLB", may_peak=True)]


def make_glibc_requests(sizes: Sequence[HistogramRow], word_bytes: int, page_bytes: int) -> List[Requests]:
    """Return the possible sizes of the requests for chunks in use. A request is known from its chunk to two words less a byte; a large
    chunk may be mmapped, in whole pages.
    """
    return [
        Requests(
            row.used_chunks,
            row.used_bytes,
            row.used_bytes - row.used_chunks * (3 * word_bytes if row.max_size_bytes < FIXED_BYTES else page_bytes),
            max(1, row.size_bytes - 3 * word_bytes + 1),
            row.max_size_bytes - word_bytes,
        )
        for row in sizes
        if row.used_chunks
    ]
