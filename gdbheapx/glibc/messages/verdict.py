"""Verdict on glibc's malloc: memory in use, or kept by malloc, with its evidence, computed from figures alone. Every figure is weighed by
the memory that it takes: address space that was never touched, or was given back, is neither in use nor held. A value that could not be
read is an interval; a verdict must hold for every value in it (docs/reference/verdicts.md). Also: warnings to read before trusting or
acting, and the next commands.
"""

from itertools import product
from typing import List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import findings as codes
from gdbheapx import verdict
from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.measured import ARENA_TWO, HUGETLB_OFF, MMAP_THRESHOLD, TCACHE_COUNT, TRIM_THRESHOLD
from gdbheapx.allocators.records import AllocatorJudgement, Surroundings
from gdbheapx.columns import add_values
from gdbheapx.glibc import layouts
from gdbheapx.glibc.records import MOST_MERGED, ArenaTotals, GlibcFacts
from gdbheapx.hints import hint_command
from gdbheapx.model import Finding, StepSentence
from gdbheapx.units import Sentence, SentenceSize, count_noun, format_share, make_sentence
from gdbheapx.verdict import SMALL_BYTES, Ask, HeapVerdict, is_much, less_sure, of_lines, possible_verdicts

ABORTED = "the process aborted in malloc: the heap is damaged"
DEFAULT_THRESHOLD = 128 << 10
LITTLE_BYTES = 8 * SMALL_BYTES
"""What takes less memory than this, and mostly is address space alone, is small."""
NOT_ASKING = HUGETLB_OFF.text
NO_ENVIRONMENT = "on the whole machine, for programs that get no environment, as runc's own process: no tunable reaches these"


def list_arena_findings(rows: Sequence[ArenaTotals]) -> List[Finding]:
    """Return damage and locks that the arenas show."""
    told = []
    locked = [row for row in rows if row.locked]
    if locked:
        what = "a thread is inside malloc: its arena may be in the middle of a change"
        told.append(
            Finding(
                what, "arena %s" % ", ".join(str(row.index) for row in locked), "run it again if a number looks wrong", codes.INSIDE_MALLOC
            )
        )
    damaged = [row for row in rows if row.unparsed_bytes]
    if damaged:
        evidence = "arena %s" % ", ".join(str(row.index) for row in damaged)
        told.append(Finding("part of the heap could not be read or is damaged", evidence, "see the problems below", codes.DAMAGED))
    return told


def with_abort(judged: HeapVerdict) -> HeapVerdict:
    """Add that malloc aborted the process; in a small heap that is the verdict."""
    line = Finding(
        ABORTED, "it stands in abort(), called by malloc", "%s shows the damage" % hint_command("check"), codes.ABORTED_IN_MALLOC
    )
    if judged.kind == verdict.SMALL:
        return of_lines([line._replace(evidence=judged.evidence or line.evidence)], judged.sure)
    return judged._replace(lines=[*judged.lines, line])


def list_glibc_steps(code: Optional[str], reclaimable_bytes: Optional[int] = None) -> List[StepSentence]:
    """Commands to type, by the code of the verdict. `reclaimable_bytes`: in RAM, of a process."""
    trim = StepSentence(hint_command("trim --dry-run"), "shows what malloc_trim would return to the OS, arena by arena", reclaimable_bytes)
    tunables = StepSentence(hint_command("tunables"), "shows the thresholds in force")
    steps = {
        codes.ABORTED_IN_MALLOC: [StepSentence(hint_command("check"), "shows which rules of malloc are broken, and where")],
        codes.ARENAS_LEFT: [StepSentence(hint_command("arenas"), "shows what is free in each arena, and which have no thread"), tunables],
        codes.UNMERGED: [
            StepSentence(hint_command("bins"), "shows what is in fastbins, by arena"),
            StepSentence(hint_command("arenas"), "shows what is free in each arena"),
        ],
        codes.FREED_AND_HELD: [trim, tunables],
        codes.FREE_BETWEEN: [
            StepSentence(hint_command("arenas"), "shows the free memory of each arena, and how much of it a trim would return")
        ],
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
    are_thresholds_fixed: bool = False
    large_free_bytes: int = 0
    """Of free_bytes in chunks that would have been mappings, had freeing mmapped chunks not raised the thresholds."""
    no_fastbins: str = layouts.no_fastbins(None)
    """What keeps none at the next start."""
    missing: Sequence[str] = ()
    """What could not be read."""
    blockless_huge_bytes: Optional[int] = None
    """Parts of huge pages in RAM in which no block lies, beyond the ends of heaps too; None where that is not known."""


class GlibcCase(NamedTuple):
    """The figures where everything is known, weighed by what takes memory."""

    held: int
    used: int
    cached: int
    free: int
    between: int
    """Free memory in pieces between blocks in use."""
    left: int
    """Free memory at the ends of arenas whose threads have ended."""
    unmerged: int
    """Free memory below the tops of thread arenas."""
    gone: int
    """What takes no memory."""
    gone_free: int
    """Of it in free memory; the rest is in blocks that were never written to."""
    system: int


def judge_glibc(facts: Sequence[GlibcFacts], around: Surroundings) -> List[AllocatorJudgement]:
    """Judge all glibc mallocs of a process together: to a user they are one."""
    rows = [row for heap in facts for row in heap.arenas]
    sums = make_glibc_figures(facts, rows, around)
    asks, what = any(heap.asks_for_huge_pages for heap in facts), "beyond the ends of heaps"
    cure = make_glibc_huge_cure(asks, _is_always(around))
    kept = huge_pages.Returned("malloc", None, sums.returned_resident_bytes, sums.returned_huge_bytes, what, cure)
    returned = _with_last_step(huge_pages.judge_huge_pages(kept, around.huge_pages), asks, around)
    blockless = _find_blockless(facts, sums, around, returned)
    told_more = blockless and _with_last_step(huge_pages.judge_blockless(blockless, around.huge_pages), asks, around)
    returned = told_more or returned
    judged = verdict_on(sums, returned, blockless if told_more else None)
    if any(heap.has_aborted for heap in facts):
        judged = with_abort(judged)
    steps = [*huge_pages.huge_page_steps(judged, returned), *list_glibc_steps(judged.code, sums.reclaimable_resident_bytes)]
    ids = [heap.info.id for heap in facts]
    taken = sums.system_bytes if sums.taken_bytes is None else min(sums.taken_bytes, sums.system_bytes)
    held = taken + (sums.returned_resident_bytes or 0)
    told = [*side_lines(sums, judged.kind), *list_arena_findings(rows)]
    return [AllocatorJudgement(ids[0], ids, held, judged, told, steps)]


def _find_blockless(
    facts: Sequence[GlibcFacts], sums: GlibcVerdictFigures, around: Surroundings, returned: Optional[huge_pages.Judged]
) -> Optional[huge_pages.Blockless]:
    """Return the record of huge pages without a block, or None where `returned` already covers nearly all of them, or they are too few to
    report.
    """
    huge, seen = sums.blockless_huge_bytes, sums.returned_huge_bytes or 0
    if (returned is not None and 4 * seen >= 3 * (huge or 0)) or not huge_pages.is_worth_telling(huge, around.rss_bytes):
        return None
    zeros = add_values(heap.zero_huge_bytes() for heap in facts)
    asks, by_default = any(heap.asks_for_huge_pages for heap in facts), any(heap.asks_by_default for heap in facts)
    asked = "glibc asks for them by default" if by_default else "glibc.malloc.hugetlb=1 asks for them" if asks else ""
    cure = make_glibc_huge_cure(asks, _is_always(around))
    cures = [cure] if cure is not None else []
    if by_default and cures:
        cures.append(StepSentence("echo never > /sys/kernel/mm/transparent_hugepage/enabled", NO_ENVIRONMENT))
    return huge_pages.Blockless("malloc", huge, zeros, around.rss_bytes, asked, cures)


def make_glibc_huge_cure(asks_for_them: bool, is_always: bool = False) -> Optional[StepSentence]:
    """Return the step that stops malloc from asking for huge pages, or None where it does not ask, or where the kernel `is_always` giving
    them.
    """
    if not asks_for_them or is_always:
        return None
    return StepSentence(NOT_ASKING, "at the next start stops malloc from asking for huge pages, as it does now")


def _is_always(around: Surroundings) -> bool:
    return around.huge_pages is not None and around.huge_pages.setting == "always"


def _with_last_step(judged: Optional[huge_pages.Judged], asks: bool, around: Surroundings) -> Optional[huge_pages.Judged]:
    """Add the step that stops malloc from asking for huge pages, where malloc asks and the kernel gives them unasked: then setting the
    kernel to `madvise` alone changes nothing.
    """
    if judged is None or not judged.steps or not asks or not _is_always(around):
        return judged
    step = StepSentence(NOT_ASKING, "at the next start, once the machine's setting is madvise: malloc asks for huge pages now")
    return judged._replace(steps=[*judged.steps, step])


def make_glibc_figures(facts: Sequence[GlibcFacts], rows: Sequence[ArenaTotals], around: Surroundings) -> GlibcVerdictFigures:
    """The sums over all copies; mmapped chunks are memory in use."""
    totals = [heap.totals for heap in facts]

    def sum_fields(*names: str) -> int:
        return sum(sums[name] or 0 for sums in totals for name in names)

    thresholds = [heap.trim_threshold_bytes for heap in facts]
    raised = [value for value in thresholds if value is not None and value > DEFAULT_THRESHOLD]
    returned = add_values(sums["free_returned_resident_bytes"] for sums in totals)
    threads = [(row, heap) for heap in facts for row in heap.arenas if row.kind != "main"]
    left = [(row, _end_bytes(row, heap, around)) for row, heap in threads if not _count_threads(row)]
    tops = sorted((top.start, top.end) for heap in facts for top in heap.tops)
    claimed = sum(claim.end - claim.start for heap in facts for claim in heap.claims)
    missing, is_open = _list_missing(facts, rows)
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
        taken_bytes=_sum_taken(facts, around, returned),
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
        are_thresholds_fixed=any(heap.are_thresholds_fixed for heap in facts),
        large_free_bytes=_large_free_bytes(facts) if raised else 0,
        no_fastbins=layouts.no_fastbins(layouts.parse_version(facts[0].info.version)),
        missing=missing,
        blockless_huge_bytes=add_values(sums["blockless_huge_bytes"] for sums in totals),
    )
    is_known = known.reclaimable_resident_bytes is not None or known.taken_bytes is None or not known.reclaimable_bytes
    if is_known or known.system_bytes - (known.taken_bytes or 0) <= SMALL_BYTES:
        return known
    return known._replace(reclaimable_taken_bytes=add_values(around.taken(heap.free_pages()) for heap in facts))


def _large_free_bytes(facts: Sequence[GlibcFacts]) -> int:
    """Return the bytes of large free chunks that may consist of one or a few blocks. A chunk much larger than any block that was not
    mmapped was merged from many, of any size.
    """
    sizes = [
        (row, MOST_MERGED * (heap.trim_threshold_bytes or 0) // 2) for heap in facts if not heap.are_thresholds_fixed for row in heap.sizes
    ]
    return sum(row.free_bytes for row, most in sizes if DEFAULT_THRESHOLD <= row.size_bytes <= most)


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


def _sum_taken(facts: Sequence[GlibcFacts], around: Surroundings, returned: Optional[int]) -> Optional[int]:
    """Return the memory that arenas and mmapped chunks take: that of all claims less `returned`, the rest of the heaps; or None."""
    taken = add_values(around.taken_bytes.get(heap.info.id) for heap in facts)
    return None if taken is None else max(0, taken - (returned or 0))


def _count_threads(row: ArenaTotals) -> Optional[int]:
    return row.attached_threads if row.threads is None else row.threads


def _end_bytes(row: ArenaTotals, facts: GlibcFacts, around: Surroundings, is_unmerged: bool = False) -> int:
    """Return the free bytes at the end of a thread arena that are in memory. `is_unmerged`: only those below its top."""
    spans = [(top.start, top.end) for top in facts.tops if top.arena == row.index and (top.is_unmerged or not is_unmerged)]
    taken = around.taken(spans) if spans else 0
    gone = sum(end - start for start, end in spans) - taken if taken is not None else 0
    return max(0, (row.unmerged_bytes or 0) + (0 if is_unmerged else row.top_bytes or 0) - gone)


def list_glibc_cases(sums: GlibcVerdictFigures) -> List[GlibcCase]:
    """The corners of what is possible: each unknown as small and as large as it can be, in use or free."""
    cached = [sums.cached_bytes] if sums.cached_bytes is not None else _list_ends(0, _limit_value(sums.used_bytes, sums.most_cached_bytes))
    unread_used, unread_free = (_list_ends(0, sums.beyond_bytes) for _ in range(2))
    made = []
    for in_caches, loose, unparsed, used, free in product(
        cached, _list_ends(0, sums.maybe_free_bytes), _list_ends(0, sums.unparsed_bytes), unread_used, unread_free
    ):
        moved = 0 if sums.cached_bytes is not None else min(in_caches, max(0, sums.used_bytes - loose))
        corner = sums._replace(
            used_bytes=sums.used_bytes - moved - loose + sums.unparsed_bytes - unparsed,
            free_bytes=sums.free_bytes + loose + unparsed,
            cached_bytes=in_caches if sums.cached_bytes is not None else moved,
        )
        reclaimable = _list_ends(0, corner.free_bytes) if sums.reclaimable_bytes is None else [sums.reclaimable_bytes]
        between = _list_ends(0, corner.free_bytes) if sums.between_bytes is None else [sums.between_bytes]
        for case in [case for parts in product(reclaimable, between) for case in _weigh_cases(corner, *parts)]:
            made += _add_unread(case, used, free, loose + unparsed)
    return list(dict.fromkeys(made))


def _limit_value(value: int, limit: Optional[int]) -> int:
    return value if limit is None else min(value, limit)


def _list_ends(low: int, high: int) -> List[int]:
    return [low] if low >= high else [low, high]


def _add_unread(case: GlibcCase, used: int, free: int, loose: int) -> List[GlibcCase]:
    """Add memory that was not read to a case. Its free part lies between blocks, at the ends of arenas, or neither: one case for each
    possibility. So does `loose`.
    """
    more = case._replace(held=case.held + used + free, used=case.used + used, free=case.free + free)
    if not free and not loose:
        return [more]
    return [more, *(more._replace(**{name: getattr(more, name) + free + loose}) for name in ("between", "left", "unmerged"))]


def _weigh_cases(sums: GlibcVerdictFigures, reclaimable: int, between: int) -> List[GlibcCase]:
    """Return the cases weighed by the memory that they take: one case where the pages are known, two where a core does not show which
    free pages it lacks.
    """
    gone = max(0, sums.system_bytes - sums.taken_bytes) if sums.taken_bytes is not None else None
    tops = sums.tops_bytes - sums.tops_taken_bytes if sums.tops_taken_bytes is not None else 0
    if sums.reclaimable_resident_bytes is not None:
        told = max(0, reclaimable - sums.reclaimable_resident_bytes) + tops
        free_ends = [told if gone is None else min(told, gone)]
    elif gone is None:
        free_ends = [0]
    elif sums.reclaimable_taken_bytes is not None:
        free_ends = [min(max(0, reclaimable - sums.reclaimable_taken_bytes) + tops, gone)]
    elif gone <= SMALL_BYTES:
        free_ends = [min(gone, tops + reclaimable)]  # whose this is weighs nothing
    else:
        free_ends = _list_ends(max(tops, gone - sums.used_bytes), min(tops + reclaimable, gone))
    made = []
    for gone_free in free_ends:
        gone_free = max(0, min(gone_free, sums.free_bytes))
        lost = gone_free if gone is None else gone
        used = max(0, sums.used_bytes - max(0, lost - gone_free))
        free = sums.free_bytes - gone_free
        held = max(0, sums.system_bytes - lost)
        for untold in _list_ends(0, sums.left_untold_bytes):
            left, unmerged = min(free, sums.left_bytes + untold), min(free, sums.unmerged_bytes)
            parts = free, min(free, between), left, unmerged
            made.append(GlibcCase(held, used, sums.cached_bytes or 0, *parts, lost, gone_free, sums.system_bytes))
    return made


def _decide_code(ask: Ask[GlibcCase]) -> str:
    """The decision; each condition is linear in the figures."""
    if ask(lambda case: case.held < SMALL_BYTES):
        return codes.SMALL_HEAP
    if ask(lambda case: case.held < LITTLE_BYTES) and ask(lambda case: case.gone >= case.held):
        return codes.SMALL_HEAP
    if ask(lambda case: case.used >= 0.8 * case.held):
        return codes.IN_USE
    if not is_much(ask, lambda case: case.free, lambda case: case.held):
        return codes.PART_HELD
    return codes.FREE_BETWEEN if ask(lambda case: 2 * case.between > case.free) else codes.FREED_AND_HELD


def _decide_cause(ask: Ask[GlibcCase]) -> str:
    if ask(lambda case: 2 * case.left > case.free):
        return codes.ARENAS_LEFT
    return codes.UNMERGED if ask(lambda case: 2 * case.unmerged > case.free) else codes.FREED_AND_HELD


def verdict_on(
    sums: GlibcVerdictFigures, returned: Optional[huge_pages.Judged] = None, blockless: Optional[huge_pages.Blockless] = None
) -> HeapVerdict:
    """The verdict, or that there is none for what could not be read; `returned`: on what it gave back and is in RAM, or on the `blockless`
    parts of huge pages, whose zeros alone count."""
    possible = list_glibc_cases(sums)
    told = possible_verdicts(_decide_code, possible)
    if len(told) > 1:
        return _make_unread_verdict(sums, possible)
    case = possible[0]
    (code,) = told
    missing = list(sums.missing)
    if sums.taken_bytes is None and sums.reclaimable_resident_bytes is None:
        missing.append("which pages are in RAM")
    elif not sums.missing and len({corner.gone_free for corner in possible}) > 1:
        missing.append("which free pages are in memory")
    if huge_pages.may_decide(sums.returned_resident_bytes, sums.reserve_bytes, sums.is_core):
        missing.append("how much returned memory is in RAM")
    held = case.held + (sums.returned_resident_bytes or 0)
    if blockless is not None and blockless.zero_bytes is None and huge_pages.decides_verdict(blockless.huge_bytes, held):
        missing.append("which parts of huge pages hold zeros")
    causes = possible_verdicts(_decide_cause, possible) if code == codes.FREED_AND_HELD else [code]
    first = _make_verdict_line(causes[0] if len(causes) == 1 else code, sums, possible)
    judged = of_lines([first], less_sure(missing))
    return huge_pages.add_huge_page_verdict(
        returned, sums.returned_resident_bytes if blockless is None else blockless.zero_bytes, held, judged
    )


def _make_unread_verdict(sums: GlibcVerdictFigures, possible: Sequence[GlibcCase]) -> HeapVerdict:
    """Return the inconclusive verdict: the parts that could not be read, and lower bounds of use and free memory. No percentage of an
    unknown sum is given.
    """
    missing = sums.missing or ["which pages are in RAM"]
    what = "cannot read %s, and the verdict depends on it" % _join_names(missing)
    known = min(case.used for case in possible), min(case.free for case in possible)
    evidence = make_sentence(
        "at least %s are in use by the program, at least %s are free in the allocator", SentenceSize(known[0]), SentenceSize(known[1])
    )
    why = ["the problems below say why"] * bool(sums.missing) + ["the core was cut: take a whole one"] * sums.is_cut
    hint = "; ".join(why) or None
    return of_lines([verdict.inconclusive_finding(what, evidence, hint)])


def _join_names(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else "%s and %s" % (", ".join(names[:-1]), names[-1])


def _make_verdict_line(code: str, sums: GlibcVerdictFigures, possible: Sequence[GlibcCase]) -> Finding:
    """The verdict in a sentence, with the figures that it rests on."""
    case, is_exact = possible[0], len(possible) == 1
    held = case.held if is_exact else None
    if code == codes.SMALL_HEAP:
        of = (
            make_sentence("of %s requested from the kernel take memory", SentenceSize(case.system))
            if case.gone > case.held
            else "requested from the kernel"
        )
        return Finding("Small", make_sentence("%s %s", SentenceSize(max(corner.held for corner in possible)), of), None, code)
    used, free = min(corner.used for corner in possible), min(corner.free for corner in possible)
    if code in verdict.HELD_BY_PROGRAM:
        line = verdict.in_use(used, held, verdict.GROWING_HINT if code == codes.IN_USE else _trim_hint(sums), code)
        beside = make_sentence("%s (%s) are free in malloc", SentenceSize(free), format_share(free, case.held))
    else:
        line = verdict.kept_finding(free, held, _trim_hint(sums), code)
        beside = make_sentence("%s (%s) are in use by the program", SentenceSize(used), format_share(used, case.held))
    if code == codes.FREE_BETWEEN:
        line = line._replace(what="Fragmented", evidence=make_sentence("%s are free between blocks in use", verdict.part_of(free, held)))
    elif code == codes.ARENAS_LEFT:
        what = make_sentence(
            "%s of it at the ends of %s left by threads that have ended", SentenceSize(case.left), count_noun(sums.left_arenas, "arena")
        )
        beside = make_sentence("%s; %s", what, beside)
        line = line._replace(hint=_end_hint(sums, 2 * case.unmerged > case.left), size_bytes=case.left)
    elif code == codes.UNMERGED:
        beside = make_sentence(
            "%s of it below the tops of thread arenas: chunks in fastbins keep it from being merged; %s",
            SentenceSize(case.unmerged),
            beside,
        )
        line = line._replace(hint=_end_hint(sums, True), size_bytes=case.unmerged)
    if not is_exact:
        known = make_sentence(
            "at least %s are in use by the program, at least %s are free in malloc", SentenceSize(used), SentenceSize(free)
        )
        return line._replace(details=make_sentence("%s; not all could be read, and that changes nothing", known))
    return line._replace(details=make_sentence("%s%s", beside, _say_gone(sums, case)))


def _say_gone(sums: GlibcVerdictFigures, case: GlibcCase) -> Sentence:
    if case.gone <= SMALL_BYTES:
        return make_sentence("")
    where = "not in the core" if sums.is_core else "not in RAM"
    untouched = case.gone - case.gone_free
    if untouched <= SMALL_BYTES:
        return make_sentence("; %s more are free and %s", SentenceSize(case.gone), where)
    why = "never written to, or all zeros" if sums.is_core else "never written to"  # gdb leaves pages of zeros out
    if case.gone_free <= SMALL_BYTES:
        return make_sentence("; %s more are %s: %s", SentenceSize(case.gone), where, why)
    return make_sentence(
        "; %s more are %s: %s free, %s %s", SentenceSize(case.gone), where, SentenceSize(case.gone_free), SentenceSize(untouched), why
    )


def _trim_hint(sums: GlibcVerdictFigures) -> Optional[Sentence]:
    total, resident = sums.reclaimable_bytes, sums.reclaimable_resident_bytes
    if total is None:
        return None
    if 2 * sums.hugetlb_bytes > (sums.taken_bytes or 0):
        return make_sentence("no trim returns pages of hugetlbfs; malloc_trim(0) would return %s of other pages", SentenceSize(total))
    if sums.is_core:
        unknown = "; how much of that was in RAM is not in the core" if total else ""
        return make_sentence("malloc_trim(0) would have returned %s%s", SentenceSize(total), unknown)
    if resident is not None and 20 * resident < total:
        return make_sentence("a trim gains nothing: %s of free pages are back with the OS already", SentenceSize(total - resident))
    in_ram = "" if resident is None else make_sentence(", %s of it in RAM now", SentenceSize(resident))
    return make_sentence("malloc_trim(0) would return %s to the OS%s", SentenceSize(total), in_ram)


def _end_hint(sums: GlibcVerdictFigures, is_unmerged: bool) -> Sentence:
    why = "malloc_trim never returns the end of a thread arena"
    trim = (
        make_sentence("%s: it would return %s", why, SentenceSize(sums.reclaimable_bytes))
        if sums.reclaimable_bytes is not None
        else make_sentence("%s", why)
    )
    if is_unmerged:
        return make_sentence("%s; %s at the next start: free() then merges at once, and returns the top", trim, sums.no_fastbins)
    cure = "a new thread takes such an arena over, and its free() of 64 KiB or more returns the top"
    return make_sentence("%s; %s; %s at the next start makes fewer of them, at the cost of lock contention", trim, cure, ARENA_TWO.text)


def side_lines(sums: GlibcVerdictFigures, kind: str) -> List[Finding]:
    """Return further findings beside the verdict; none where the heap is small or unknown."""
    if kind in (verdict.SMALL, verdict.INCONCLUSIVE):
        return []
    case = list_glibc_cases(sums)[0]
    lines = []
    if sums.reclaimable_bytes is not None and case.between > 16 * SMALL_BYTES and 4 * sums.reclaimable_bytes < case.free:
        lines.append(
            Finding(
                "free memory is in small pieces",
                make_sentence(
                    "%s of %s free lie between used chunks; a trim can return %s",
                    SentenceSize(case.between),
                    SentenceSize(case.free),
                    SentenceSize(sums.reclaimable_bytes),
                ),
                "`%s` shows which used chunks keep it; a trim does not return it" % hint_command("pins"),
                codes.SMALL_PIECES,
                size_bytes=case.between,
            )
        )
    if sums.cached_bytes is not None and sums.cached_bytes > SMALL_BYTES and 10 * sums.cached_bytes > case.held:
        lines.append(
            Finding(
                "much memory is in thread caches",
                make_sentence("%s (%s of the heap)", SentenceSize(sums.cached_bytes), format_share(sums.cached_bytes, case.held)),
                "malloc_trim cannot reach it; to disable thread caches, restart with %s" % TCACHE_COUNT.text,
                codes.THREAD_CACHES,
                size_bytes=sums.cached_bytes,
            )
        )
    lines += _find_hugetlb(sums)
    lines += _find_fastbins(sums, case)
    main_top = min(sums.top_bytes - sums.thread_tops_bytes, case.free)
    if sums.trim_threshold_bytes is not None and not sums.are_thresholds_fixed and main_top > 16 * SMALL_BYTES:
        lines.append(
            Finding(
                "malloc keeps a large top",
                make_sentence(
                    "top holds %s; freeing mmapped chunks has raised trim_threshold to %s",
                    SentenceSize(main_top),
                    SentenceSize(sums.trim_threshold_bytes),
                ),
                "to keep it small, restart with %s" % TRIM_THRESHOLD.text,
                codes.MAIN_TOP,
                size_bytes=main_top,
            )
        )
    lines += _thread_tops(sums, case)
    large = min(sums.large_free_bytes, case.free)
    if large > 16 * SMALL_BYTES and 2 * large > case.free and large > main_top:
        lines.append(
            Finding(
                "much is free in large chunks",
                make_sentence(
                    "%s in free chunks of 128 KiB or more; freeing mmapped chunks has raised trim_threshold to %s",
                    SentenceSize(large),
                    SentenceSize(sums.trim_threshold_bytes or 0),
                ),
                "blocks of that size are mapped, and unmapped when they are freed, after a restart with %s; merged small blocks are not"
                % MMAP_THRESHOLD.text,
                codes.THRESHOLD_RAISED,
                size_bytes=large,
            )
        )
    spread = case.free - large - case.unmerged  # of the rest fewer arenas would keep as much
    if sums.arenas > 4 and spread > 16 * SMALL_BYTES and 2 * spread >= case.held:
        lines.append(
            Finding(
                "free memory is spread over many arenas",
                make_sentence("%s for %s", count_noun(sums.arenas, "arena"), count_noun(sums.threads, "thread")),
                "to keep it in fewer arenas, at the cost of lock contention, restart with %s" % ARENA_TWO.text,
                codes.MANY_ARENAS,
                size_bytes=spread,
            )
        )
    return lines


def _find_hugetlb(sums: GlibcVerdictFigures) -> List[Finding]:
    """Return the finding about pages of hugetlbfs. These are reserved for the machine, counted in no RSS, and given back as a whole or
    not at all (madvise: EINVAL).
    """
    if sums.hugetlb_bytes < SMALL_BYTES:
        return []
    evidence = make_sentence("%s, which RSS does not include", SentenceSize(sums.hugetlb_bytes))
    hint = "no trim returns them: madvise takes whole ones alone; %s at the next start uses none" % NOT_ASKING
    return [Finding("malloc's memory is in pages of hugetlbfs", evidence, hint, codes.HUGETLB, size_bytes=sums.hugetlb_bytes)]


def _find_fastbins(sums: GlibcVerdictFigures, case: GlibcCase) -> List[Finding]:
    """Freed chunks that are merged with nothing until a large block is freed, or a trim runs."""
    if sums.fast_bytes <= 16 * SMALL_BYTES or 10 * sums.fast_bytes < case.held:
        return []
    evidence = make_sentence(
        "%s in %s, %s of the heap",
        SentenceSize(sums.fast_bytes),
        count_noun(sums.fast_chunks, "chunk"),
        format_share(sums.fast_bytes, case.held),
    )
    why = "malloc merges them only when it frees 64 KiB or more at once there, or is asked for a large block"
    hint = "%s; %s at the next start keeps none" % (why, sums.no_fastbins)
    return [Finding("much free memory is in fastbins", evidence, hint, codes.FASTBINS, size_bytes=sums.fast_bytes)]


def _thread_tops(sums: GlibcVerdictFigures, case: GlibcCase) -> List[Finding]:
    """Free memory that no trim reaches: mtrim gives back a thread arena's free chunks and never its top (malloc.c: mtrim, heap_trim)."""
    untouched = sums.tops_bytes - sums.tops_taken_bytes if sums.tops_taken_bytes is not None else 0
    tops = min(max(0, sums.thread_tops_bytes - untouched), case.free)
    if tops < SMALL_BYTES or (tops <= 16 * SMALL_BYTES and 4 * tops < case.free):
        return []
    threshold = sums.trim_threshold_bytes or DEFAULT_THRESHOLD
    evidence = make_sentence(
        "%s in %s, %s of all free memory", SentenceSize(tops), count_noun(sums.thread_tops, "top"), format_share(tops, case.free)
    )
    hint = make_sentence(
        "malloc_trim never returns these to the OS; free() does, if the arena's top exceeds trim_threshold (%s) at that moment",
        SentenceSize(threshold),
    )
    return [Finding("free memory is in the tops of thread arenas", evidence, hint, codes.THREAD_TOPS, size_bytes=tops)]
