"""A verdict is a function of evidence with nulls: what cannot be read never turns it into another one, only into none.

Each case is a whole heap; then every subset of what can be missing is taken away, as the readers would, and the verdict must be the one on the
whole heap, or that there is none.

Files: glibc/records.py, jemalloc/records.py.
"""

from itertools import combinations, product
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.records import AllocatorJudgement, Surroundings
from gdbheapx.analysis import memory_verdict, overview
from gdbheapx.analysis.memory import kinds
from gdbheapx.common import findings as codes
from gdbheapx.common import units, verdict
from gdbheapx.common.model import SURENESS, AllocatorInfo, Claim, HistogramRow
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.glibc import text as glibc_pages
from gdbheapx.glibc import verdict as glibc_verdict
from gdbheapx.glibc.records import ArenaTotals, GlibcFacts, MmappedTotals, Top
from gdbheapx.inferior.base import HugePages
from gdbheapx.jemalloc import verdict as jemalloc_verdict
from gdbheapx.jemalloc.records import JemallocFacts
from tests.support.builders.records import MB, UNPREFIXED, conditions, glibc_arena, jemalloc_arena, part, slabs, split, tickers
from tests.support.searches import search

INFO = AllocatorInfo("glibc", "glibc", "2.36", "libc.so.6", None, None, None, True)
SIZES = (0, MB // 2, 4 * MB, 20 * MB, 70 * MB, 200 * MB)
sizes = st.sampled_from(SIZES)

# ---------------------------------------------------------------------------------------------------- glibc


class Heap(NamedTuple):
    """One whole glibc heap: the rows of its arenas, mmapped chunks, and what of its memory is in RAM."""

    rows: Tuple[ArenaTotals, ...]
    mapped: int
    untouched: Tuple[int, ...]
    """Of each arena: bytes of its top that were never touched, and of its used chunks."""
    cores: bool = False


def arena(index: int, used: int, cached: int, fast: int, free: int, top: int, resident_share: int, threads: int, at_end: bool = False) -> ArenaTotals:
    """Free chunks are whole pages, of which so many parts of 4 are in RAM; those in fastbins lie between blocks, or below top."""
    row = glibc_arena(index, used_bytes=used, tcache_bytes=cached, fast_bytes=fast, free_bytes=free, top_bytes=top, overhead_bytes=4096, threads=threads)
    resident = free * resident_share // 4
    row = row._replace(system_bytes=used + cached + fast + free + top + 4096, reclaimable_bytes=free, reclaimable_resident_bytes=resident)
    return row._replace(between_bytes=0 if at_end else fast, unmerged_bytes=fast if at_end else 0)


arenas = st.builds(arena, st.just(0), sizes, st.sampled_from((0, MB // 4)), sizes, sizes, sizes, st.integers(0, 4), st.integers(0, 1), st.booleans())
heaps = st.builds(
    lambda rows, mapped, tops: Heap(tuple(row._replace(index=place, kind="thread" if place else "main") for place, row in enumerate(rows)), mapped, tuple(tops[: len(rows)])),
    st.lists(arenas, min_size=1, max_size=3),
    sizes,
    st.lists(st.integers(0, 4), min_size=3, max_size=3),
)


def answer_of(judged: verdict.HeapVerdict) -> Optional[str]:
    """The code; the causes of memory that malloc keeps are one answer."""
    return codes.FREED_AND_HELD if judged.code in (codes.ARENAS_LEFT, codes.UNMERGED) else judged.code


GLIBC_MISSING = ("caches", "main arena", "mmapped chunks", "other arenas", "parts of heaps", "page table")


def glibc_facts(heap: Heap, missing: Sequence[str] = ()) -> Tuple[List[GlibcFacts], Surroundings]:
    """What is read of the heap where these are missing."""
    rows, mapped, held = list(heap.rows), MmappedTotals(0, heap.mapped), heap.mapped
    where: Dict[int, int] = {}
    """Start of each arena's top: how many bytes of it are in RAM."""
    tops = []
    taken = 0
    for row, share in zip(rows, heap.untouched):
        start, size = (row.index + 1) << 40, row.top_bytes or 0
        there = size * share // 4 & -4096
        tops.append(Top(row.index, start, start + size))
        where[start] = there
        held += row.held_bytes
        taken += row.held_bytes - (size - there) - (row.reclaimable_bytes or 0) + (row.reclaimable_resident_bytes or 0)
    known_taken = taken + heap.mapped
    if "other arenas" in missing:
        for row in rows[1:]:
            known_taken -= row.held_bytes - ((row.top_bytes or 0) - where[(row.index + 1) << 40])
            known_taken += (row.reclaimable_bytes or 0) - (row.reclaimable_resident_bytes or 0)
        rows, tops = rows[:1], tops[:1]
    if "main arena" in missing:
        row = rows[0]
        used = sum(part or 0 for part in (row.used_bytes, row.tcache_bytes, row.fast_bytes))
        lost = dict.fromkeys(("system_bytes", "tcache_bytes", "fast_bytes", "top_bytes", "overhead_bytes", "reclaimable_bytes", "reclaimable_resident_bytes", "between_bytes", "unmerged_bytes"))
        rows[0] = row._replace(used_bytes=used, **lost)
        known_taken -= where[tops[0].start] + 4096
        tops = tops[1:]
    if "caches" in missing or "main arena" in missing:
        rows = [row._replace(used_bytes=(row.used_bytes or 0) + (row.tcache_bytes or 0), tcache_bytes=None) for row in rows]
    if "parts of heaps" in missing:
        last = rows[-1]
        used, free = (last.used_bytes or 0) // 2, (last.free_bytes or 0) // 2 & -4096
        gone = (last.free_bytes or 0) - (last.reclaimable_resident_bytes or 0) if last.reclaimable_resident_bytes is not None else 0
        there = max(0, (last.free_bytes or 0) - free - gone)
        if last.system_bytes is not None:
            change: Dict[str, Any] = {"reclaimable_bytes": (last.free_bytes or 0) - free}
            if last.reclaimable_resident_bytes is not None:
                change["reclaimable_resident_bytes"] = there
            rows[-1] = last._replace(used_bytes=(last.used_bytes or 0) - used, free_bytes=(last.free_bytes or 0) - free, unparsed_bytes=used + free, **change)
    if "page table" in missing:
        rows = [row._replace(reclaimable_resident_bytes=None) for row in rows]
    if "mmapped chunks" in missing or "main arena" in missing:
        mapped = MmappedTotals(None, None)
        known_taken -= heap.mapped
    is_whole = not {"main arena", "other arenas"} & set(missing)

    def told(ranges: Sequence[Tuple[int, int]]) -> int:
        return sum(where[start] for start, _ in ranges)

    one = GlibcFacts(INFO, rows, glibc_pages.sum_glibc_arenas(rows, mapped), [], [], tops=tops, are_all_arenas=is_whole, most_cached_bytes=MB)
    around = Surroundings(1, [], None, taken_bytes={"glibc": max(0, known_taken)}, taken=told, beyond_bytes=held)
    return [one], around


def on_glibc(heap: Heap, missing: Sequence[str] = ()) -> verdict.HeapVerdict:
    facts, around = glibc_facts(heap, missing)
    return glibc_verdict.judge_glibc(facts, around)[0].verdict


@pytest.mark.parametrize("size_bytes, is_large", [(1 << 20, True), (6 << 20, True), (58 << 20, False)])
def test_a_chunk_merged_of_many_says_nothing_of_large_blocks(size_bytes: int, is_large: bool) -> None:
    """With a mmap_threshold of 512 KiB no block in an arena was larger, and the free memory of a thousand small ones looks the same."""
    rows = [glibc_arena(0, used_bytes=MB, free_bytes=size_bytes)]
    sizes = [HistogramRow(size_bytes, size_bytes, 0, 0, 1, size_bytes, 0)]
    facts = GlibcFacts(INFO, rows, glibc_pages.sum_glibc_arenas(rows, MmappedTotals(0, 0)), sizes, [], trim_threshold_bytes=1 << 20)
    assert glibc_verdict.make_glibc_figures([facts], rows, Surroundings(1, [], None)).large_free_bytes == size_bytes * is_large


def subsets(names: Sequence[str]) -> List[Tuple[str, ...]]:
    """All of them, the empty one first."""
    return [chosen for count in range(len(names) + 1) for chosen in combinations(names, count)]


def check(whole: verdict.HeapVerdict, partial: Callable[[Sequence[str]], verdict.HeapVerdict], names: Sequence[str]) -> None:
    """The same verdict, less sure; or none, with what is missing."""
    for missing in subsets(names)[1:]:
        found = partial(missing)
        if found.kind == verdict.INCONCLUSIVE:
            assert (found.code, found.sure) == (codes.EVIDENCE_MISSING, "guess") and "%" not in str(found.evidence)
        else:
            codes_of_kind = (whole.code, codes.FREED_AND_HELD) if whole.kind == verdict.KEPT else (whole.code,)
            assert found.kind == whole.kind and found.code in codes_of_kind, (missing, found, whole)
            assert found.sure != "certain" or set(missing) <= {"other arenas", "page table", "parts of heaps", "parts of extents"}, (missing, found)


@given(heaps)
@search(24)
def test_no_missing_part_of_glibc_changes_the_verdict(heap: Heap) -> None:
    """Every subset of nulls: a verdict stands, or is withdrawn."""
    check(on_glibc(heap), lambda missing: on_glibc(heap, missing), GLIBC_MISSING)


def one_arena(**fields: int) -> Heap:
    given = {"used": 0, "cached": 0, "fast": 0, "free": 0, "top": 0, "resident_share": 4, "threads": 1, **fields}
    return Heap((arena(0, **given),), 0, (4,))


@pytest.mark.parametrize("missing", subsets(GLIBC_MISSING)[1:], ids="+".join)
@pytest.mark.parametrize("used, free", [(100 * MB, 0), (10 * MB, 90 * MB), (60 * MB, 40 * MB)])
def test_each_subset_on_plain_heaps(used: int, free: int, missing: Sequence[str]) -> None:
    """Where a core was cut the verdict is gone; a cache that is not known, or the page table of a heap all in RAM, does not take it away."""
    heap = one_arena(used=used, free=free)
    whole, found = on_glibc(heap), on_glibc(heap, missing)
    assert whole.sure == "certain" and found.kind in (whole.kind, verdict.INCONCLUSIVE)
    if "main arena" in missing:
        assert found.kind == verdict.INCONCLUSIVE
    if set(missing) == {"caches"}:
        assert (found.kind, found.sure) == (whole.kind, "likely")


@given(heaps, sizes, st.one_of(st.none(), sizes))
@search(100)
def test_zeros_that_nobody_counted_are_not_none(heap: Heap, huge: int, zeros: Optional[int]) -> None:
    """Of huge pages without a block: where the zeros in them are not known and could be the verdict, no verdict is certain."""
    facts, around = glibc_facts(heap)
    rows = [facts[0].arenas[0]._replace(blockless_huge_bytes=huge), *facts[0].arenas[1:]]
    counted = min(huge, zeros) if zeros is not None else None

    def judged(zero_bytes: Optional[int]) -> verdict.HeapVerdict:
        told = facts[0]._replace(arenas=rows, totals={**facts[0].totals, "blockless_huge_bytes": huge}, zero_huge_bytes=lambda: zero_bytes)
        return glibc_verdict.judge_glibc([told], around._replace(rss_bytes=400 * MB))[0].verdict

    found = judged(counted)
    answers = {answer_of(judged(one)) for one in ((0, huge) if counted is None else (counted,))}
    assert answer_of(found) in answers and (len(answers) == 1 or found.sure != "certain")


ENDS = ("left_untold_bytes", "unparsed_bytes", "maybe_free_bytes", "beyond_bytes")
figures = st.builds(
    lambda used, free, share, left, unmerged: glibc_verdict.GlibcVerdictFigures(
        used + free, used, 0, free, 0, 0, 0, None, None, 0, 0, 2, 2, None, between_bytes=free * share // 4,
        left_bytes=free * (4 - share) // 4 * left // 4, unmerged_bytes=free * (4 - share) // 4 * unmerged // 4,
    ),
    *[st.sampled_from(SIZES[3:])] * 2,
    *[st.integers(0, 4)] * 3,
)


def resolved(sums: glibc_verdict.GlibcVerdictFigures, name: str, most: int, part: float) -> Iterator[verdict.HeapVerdict]:
    """Verdicts where it is known how much of it is in use, and which causes the free rest has."""
    used = int(most * part)
    plain = sums._replace(reclaimable_bytes=0)
    if name == "left_untold_bytes":
        yield glibc_verdict.verdict_on(plain._replace(left_bytes=sums.left_bytes + used))
        return
    if name == "maybe_free_bytes":
        plain = plain._replace(used_bytes=sums.used_bytes - (most - used), free_bytes=sums.free_bytes + most - used)
    else:
        plain = plain._replace(used_bytes=sums.used_bytes + used, free_bytes=sums.free_bytes + most - used)
    if name == "beyond_bytes":
        plain = plain._replace(system_bytes=sums.system_bytes + most)
    for cause in ("between_bytes", "left_bytes", "unmerged_bytes", "top_bytes"):
        yield glibc_verdict.verdict_on(plain._replace(**{cause: getattr(plain, cause) + most - used}))


@given(figures, st.sampled_from(ENDS), st.integers(0, 40))
@search(150)
def test_what_is_one_verdict_outside_is_never_open(sums: glibc_verdict.GlibcVerdictFigures, name: str, most: int) -> None:
    """However the unknown turns out: a verdict that is given holds, and where all are the same kind one is given, whatever the causes."""
    size = min(most * MB, sums.used_bytes) if name == "maybe_free_bytes" else most * MB
    given_bytes = sums.system_bytes + size if name == "unparsed_bytes" else sums.system_bytes
    sums = sums._replace(system_bytes=given_bytes)
    found = glibc_verdict.verdict_on(sums._replace(reclaimable_bytes=0, **{name: size}))
    possible = [one for step in range(17) for one in resolved(sums, name, size, step / 16)]
    seen = {answer_of(one) for one in possible}
    if found.kind == verdict.INCONCLUSIVE:
        assert len(seen) > 1
    else:
        assert seen == {answer_of(found)} and found.code in {one.code for one in possible} | {codes.FREED_AND_HELD}


def test_every_missing_part_makes_it_less_sure() -> None:
    """Certain, likely, guess."""
    heap = one_arena(used=100 * MB)
    assert [on_glibc(heap, missing).sure for missing in ((), ("caches",))] == ["certain", "likely"]
    assert [verdict.less_sure(["x"] * count) for count in range(4)] == ["certain", "likely", "guess", "guess"]


# ---------------------------------------------------------------------------------------------------- any allocator

parts_of_4 = st.integers(0, 4)


@given(sizes, sizes, parts_of_4, parts_of_4, sizes, st.booleans())
@search(100)
def test_no_missing_part_changes_the_usual_verdict(used: int, free: int, used_here: int, free_here: int, lost: int, is_used: bool) -> None:
    """Of an allocator without words of its own: which blocks are in RAM, and what a core lacks; of address space alone it is less sure."""
    here = used * used_here // 4, free * free_here // 4
    whole = verdict.usual_verdict(sum(here) + lost, here[0] + lost * is_used, sum(here) + lost)
    for beyond in sorted({lost, 2 * lost}):
        found = verdict.usual_verdict(used + free, used, sum(here), beyond)
        if found.kind == verdict.INCONCLUSIVE:
            assert (found.code, found.sure) == (codes.EVIDENCE_MISSING, "guess") and "%" not in str(found.evidence)
        else:
            assert (found.kind, found.code) == (whole.kind, whole.code) and (found.sure == "certain") == (not beyond)
        assert verdict.usual_verdict(used + free, used, None, beyond).sure != "certain"


@given(sizes, sizes, sizes)
@search(100)
def test_only_what_is_free_is_called_free(used: int, free: int, overhead: int) -> None:
    """Headers and tables are neither in use nor free: the figure is that of the free parts in the table below."""
    held = used + free + overhead
    found = verdict.usual_verdict(held, used, held, 0, overhead)
    if found.kind != verdict.SMALL:
        told = make_sentence("%s of %s (%s) are free", SentenceSize(free), SentenceSize(held), units.format_share(free, held)), make_sentence("%s (%s) are free", SentenceSize(free), units.format_share(free, held))
        assert any(one in "%s; %s" % (found.evidence, found.lines[0].details) for one in told)


# ---------------------------------------------------------------------------------------------------- given back, and in RAM

GIVEN_BACK_MISSING = ("huge pages", "the machine's setting", "page table")


def with_given_back(missing: Sequence[str], allocator: str, used: int, resident: int, huge: int, facts: Optional[HugePages]) -> verdict.HeapVerdict:
    """A heap in use, with what it gave back and is in RAM."""
    told = None if "page table" in missing else resident
    of_it = None if {"page table", "huge pages"} & set(missing) else huge
    around = Surroundings(1, [], None if "the machine's setting" in missing else facts, taken_bytes={allocator: used + resident})
    if allocator == "glibc":
        row = glibc_arena(0, used_bytes=used)._replace(free_returned_resident_bytes=told, free_returned_huge_bytes=of_it)
        if "page table" in missing:
            row = row._replace(reclaimable_resident_bytes=None)
        claims = [Claim(1 << 40, (1 << 40) + used + resident, "heap")]
        one = GlibcFacts(INFO, [row], glibc_pages.sum_glibc_arenas([row], MmappedTotals(0, 0)), [], claims)
        return glibc_verdict.judge_glibc([one], around)[0].verdict
    rows = jemalloc_arena(allocated_bytes=used, used_bytes=used)._replace(active_bytes=used, retained_bytes=resident, retained_resident_bytes=told, retained_huge_bytes=of_it)
    info = INFO._replace(id="jemalloc", name="jemalloc")
    other = JemallocFacts(info, [rows], {}, [], [], [], conditions(), tickers([], []), True, [], 0)
    found = jemalloc_verdict.make_jemalloc_figures(other, around)
    kept = huge_pages.Returned("jemalloc", None, told, of_it, "retained", None)
    return jemalloc_verdict.judge_jemalloc(found, [], UNPREFIXED, huge_pages.judge_huge_pages(kept, around.huge_pages))


@pytest.mark.parametrize("allocator", ["glibc", "jemalloc"])
@given(sizes, sizes, parts_of_4, st.sampled_from((None, HugePages("always", True, 0), HugePages("never", True, 0), HugePages("madvise", True, 300 * MB), HugePages(None, False, 0))))
@search(100)
def test_no_missing_part_makes_what_was_given_back_surer(allocator: str, used: int, resident: int, share: int, facts: Optional[HugePages]) -> None:
    """What is in RAM as part of huge pages: where that is not known, no verdict is certain that hangs on it."""
    def judged(missing: Sequence[str]) -> verdict.HeapVerdict:
        return with_given_back(missing, allocator, used, resident, resident * share // 4, facts)

    whole = judged(())
    for missing in subsets(GIVEN_BACK_MISSING)[1:]:
        found = judged(missing)
        if (found.code, found.lines[0].hint) == (whole.code, whole.lines[0].hint):
            assert SURENESS.index(found.sure) >= SURENESS.index(whole.sure), (missing, found, whole)
        else:
            assert found.sure != "certain", (missing, found, whole)


# ---------------------------------------------------------------------------------------------------- jemalloc

JEMALLOC_MISSING = ("caches", "dirty pages", "metadata", "extents", "parts of extents", "page table")


class Extents(NamedTuple):
    """One whole jemalloc heap."""

    used: int
    cached: int
    regions: int
    dirty: int
    metadata: int
    here: int
    """So many parts of 4 of the dirty pages are in RAM."""


def jemalloc_facts(heap: Extents, missing: Sequence[str] = ()) -> Tuple[JemallocFacts, Surroundings]:
    used, cached, dirty, metadata, here = heap.used, heap.cached, heap.dirty, heap.metadata, heap.dirty * heap.here // 4
    row = jemalloc_arena(allocated_bytes=used + cached, used_bytes=used, cached_bytes=cached, dirty_bytes=dirty, metadata_bytes=metadata)
    row = row._replace(active_bytes=used + cached + heap.regions, reclaimable_resident_bytes=here)
    taken = used + cached + heap.regions + here + metadata
    if "extents" in missing:  # half of all used blocks is in extents that cannot be read
        row = row._replace(allocated_bytes=used // 2 + cached, used_bytes=used // 2, active_bytes=(row.active_bytes or 0) - (used - used // 2))
        taken -= used - used // 2
    if "parts of extents" in missing:  # the walk lacks them, the arena's counter has them
        lost = (row.used_bytes or 0) // 4
        row = row._replace(allocated_bytes=(row.allocated_bytes or 0) - lost, used_bytes=(row.used_bytes or 0) - lost, unparsed_bytes=lost)
    if "caches" in missing:
        row = row._replace(used_bytes=None, cached_bytes=None)
    if "dirty pages" in missing:
        row = row._replace(dirty_bytes=None, reclaimable_bytes=None, reclaimable_resident_bytes=None)
    if "metadata" in missing:
        row = row._replace(metadata_bytes=None)
    if "page table" in missing:
        row = row._replace(reclaimable_resident_bytes=None)
    info = INFO._replace(id="jemalloc", name="jemalloc")
    facts = JemallocFacts(info, [row], {}, [], [], [slabs(64, heap.regions)], conditions(), tickers([], []), "extents" not in missing, [(1 << 40, (1 << 40) + 2 * metadata)], 2 * MB)
    facts = facts._replace(unused_ranges=lambda: [(0, dirty)])
    return facts, Surroundings(1, [], None, taken_bytes={"jemalloc": taken}, taken=lambda ranges: metadata if ranges[0][0] else here, beyond_bytes=used)


def on_jemalloc(heap: Extents, missing: Sequence[str] = ()) -> verdict.HeapVerdict:
    facts, around = jemalloc_facts(heap, missing)
    return jemalloc_verdict.judge_jemalloc(jemalloc_verdict.make_jemalloc_figures(facts, around), facts.bins, UNPREFIXED)


@given(st.builds(Extents, sizes, st.sampled_from((0, MB)), sizes, sizes, st.sampled_from((MB, 3 * MB, 30 * MB)), st.integers(0, 4)))
@search(24)
def test_no_missing_part_of_jemalloc_changes_the_verdict(heap: Extents) -> None:
    """Every subset of nulls: a verdict stands, or is withdrawn."""
    check(on_jemalloc(heap), lambda missing: on_jemalloc(heap, missing), JEMALLOC_MISSING)


def test_pages_of_zeros_make_a_cores_verdict_less_sure() -> None:
    """Where blocks in use are zeros that the process had in RAM, its own verdict is another one; with those that no one can have touched
    it is the same."""
    words = {"used": "in use", "free": "free"}
    for gone, gone_free, sure in ((17, 0, "likely"), (17, 17, "certain"), (0, 0, "certain"), (1, 0, "certain")):
        case = verdict.HeapCase(held=100 * MB, used=49 * MB, free=51 * MB, gone=gone * MB, gone_free=gone_free * MB)
        for are_silent in (True, False):
            evidence = verdict.HeapEvidence([case], words, "", are_zeros_silent=are_silent)
            judged = verdict.judge_heap(evidence, verdict.USUAL_RULES, verdict.usual_hint)
            assert (judged.code, judged.sure) == (codes.FREED_AND_HELD, sure if are_silent else "certain")
            says = "66.0 MiB of 117.0 MiB (56 %) are allocated by the program" in str(judged.lines[0].details)
            assert says is (judged.sure == "likely")


def test_jemalloc_tells_free_memory_that_a_core_lacks_from_blocks() -> None:
    """What is gone of blocks in use may have been zeros; what is gone of unused pages was returned."""
    nothing = jemalloc_verdict.JemallocVerdictFigures(0, 0, 0, 0, 0, 0, 0, 0, None)
    figures = nothing._replace(used_bytes=50 * MB, dirty_bytes=60 * MB, present={"used_bytes": 40 * MB, "dirty_bytes": 45 * MB})
    case = jemalloc_verdict.list_jemalloc_cases(figures)[0]
    assert (case.gone, case.gone_free) == (25 * MB, 15 * MB)


def test_jemalloc_without_statistics_keeps_its_verdict() -> None:
    """Metadata that nobody counted is bounded by its blocks."""
    found = on_jemalloc(Extents(90 * MB, MB, 0, 5 * MB, 2 * MB, 4), ["metadata"])
    assert (found.kind, found.sure) == (verdict.IN_USE, "likely")


# ---------------------------------------------------------------------------------------------------- the memory as a whole

KINDS = (kinds.ALLOCATOR, kinds.ANONYMOUS, kinds.STACK, kinds.RUNTIME)


@given(st.lists(sizes, min_size=4, max_size=4), st.lists(st.sampled_from((0, 4 * MB, 70 * MB)), min_size=4, max_size=4), st.booleans())
@example([0, 0, 0, 70 * MB], [0, 0, 70 * MB, 0], True)  # as much as what is left
@search(150)
def test_what_a_core_lost_changes_no_verdict_on_the_memory(read: List[int], lost: List[int], is_told: bool) -> None:
    """Whoever had what was cut off: the verdict on what is left is the one on the whole, or there is none."""
    def judged(sizes: Sequence[int], lost_bytes: Optional[int]) -> Optional[str]:
        parts = [part(kind, size, program="JVM" if kind == kinds.RUNTIME else None) for kind, size in zip(KINDS, sizes) if size]
        found = memory_verdict.judge_memory(split(parts), lost_bytes)
        return found[0].code if found is not None else None

    whole, cut = judged([one + more for one, more in zip(read, lost)], 0), judged(read, sum(lost) if is_told or not any(lost) else None)
    if cut not in (whole, codes.EVIDENCE_MISSING):
        assert not any(read), "nothing was read, nothing was lost"
    if not is_told and any(lost):
        assert cut == codes.EVIDENCE_MISSING


@given(st.lists(sizes, min_size=4, max_size=4), st.integers(0, 4))
@search(60)
def test_an_open_allocator_may_have_what_nobody_else_has(sizes: List[int], share: int) -> None:
    """Where its state could not be read, anonymous memory counts for neither side."""
    def judged(held: int, other: int, is_open: bool) -> Optional[str]:
        own = [part(kinds.ALLOCATOR, held), part(kinds.ANONYMOUS, other), part(kinds.STACK, sizes[2]), part(kinds.RUNTIME, sizes[3], program="JVM")]
        found = memory_verdict.judge_memory(split([one for one in own if one.resident_bytes]), 0, is_open)
        return found[0].code if found is not None else None

    mine = sizes[1] * share // 4
    assert judged(*sizes[:2], True) in (judged(sizes[0] + mine, sizes[1] - mine, False), codes.EVIDENCE_MISSING)


# ---------------------------------------------------------------------------------------------------- whose malloc it is

OWNERS = (None, SimpleNamespace(allocator="other", is_anywhere=False), SimpleNamespace(allocator="other", is_anywhere=True))


def whose(parts: Sequence[int], owner: Any, is_hidden: bool, own: verdict.HeapVerdict) -> verdict.HeapVerdict:
    """The verdict on a process of an allocator that is read, other memory and stacks."""
    made = [part(kind, size) for kind, size in zip((kinds.ALLOCATOR, kinds.ANONYMOUS, kinds.STACK), parts) if size]
    if owner is not None:
        owner = SimpleNamespace(file="libother.so", hint=None, module=SimpleNamespace(base=0), **vars(owner))
    discovery = SimpleNamespace(may_be_hidden=lambda: is_hidden, foreign_owner=lambda: owner, unread=list, inner=list)
    target = SimpleNamespace(lost_bytes=lambda: 0, kind="live", link_map=None)
    session: Any = SimpleNamespace(target=target, discovery=discovery, heaps=SimpleNamespace(all=list))
    judged = [AllocatorJudgement("glibc", ["glibc"], parts[0], own, [], [])]
    return overview._make_verdict(session, split(made), judged, judged)[0]


def test_an_owner_that_is_not_known_makes_no_verdict_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing tells who owns malloc, the verdict is the one of either answer, less sure, or none; what is no malloc's stays as it is."""
    for module, name in ((overview.memory_verdict, "make_memory_steps"), (overview.inside, "make_inside_steps")):
        monkeypatch.setattr(module, name, lambda *_: [])
    monkeypatch.setattr(overview.memory_verdict, "in_malloc", lambda *_: [])
    for parts in product(SIZES, repeat=3):
        own = on_glibc(one_arena(used=parts[0]))
        unknown = whose(parts, None, True, own)
        known = [whose(parts, owner, False, own) for owner in OWNERS]
        if unknown.kind == verdict.INCONCLUSIVE:
            continue
        assert unknown.kind in {one.kind for one in known}, (parts, unknown)
        if unknown.sure == "certain":
            assert unknown.code == codes.MOSTLY + kinds.STACK, (parts, unknown)
