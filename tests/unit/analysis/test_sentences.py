"""Every sentence of the verdicts, once at least, on made-up records: its code, and that it is whole.

`test_no_sentence_is_left_out` looks which calls of Finding and Step the cases reach: a new sentence needs a case.

Files: glibc/text.py.
"""

from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import pytest

from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.records import Surroundings
from gdbheapx.analysis import inside, memory_verdict, pins
from gdbheapx.analysis import split as memory_split
from gdbheapx.analysis.memory import kinds
from gdbheapx.analysis.memory.attribute import EndedThreads, ThreadStacks, ThreadStart
from gdbheapx.common import findings as codes
from gdbheapx.common import verdict
from gdbheapx.common.model import AllocatorInfo, Finding
from gdbheapx.common.problems import CUT_HINT
from gdbheapx.glibc import text as glibc_pages
from gdbheapx.glibc import verdict as glibc_verdict
from gdbheapx.glibc.records import GlibcFacts, MmappedTotals
from gdbheapx.inferior.base import HugePages, ParentPages
from gdbheapx.jemalloc import text as jemalloc_findings
from gdbheapx.jemalloc import verdict as jemalloc_verdict
from gdbheapx.jemalloc.records import PublicNames, RefusedOption
from gdbheapx.kernel.blocks.graph import NativeSum
from tests.support.builders.records import (
    MB,
    UNKNOWN_NAMES,
    UNPREFIXED,
    conditions,
    glibc_arena,
    jemalloc_arena,
    modules,
    part,
    pin_group,
    pins_kept,
    slabs,
    split,
    ticker_arena,
    ticker_thread,
    tickers,
)
from tests.support.said import Case, check_case, unsaid

MODULES = (verdict, glibc_verdict, huge_pages, jemalloc_findings, jemalloc_verdict, memory_verdict, pins, memory_verdict, memory_split)
"""Where the sentences are."""

# ---------------------------------------------------------------------------------------------------- glibc


def glibc(**fields: Any) -> glibc_verdict.GlibcVerdictFigures:
    """100 MiB, half of them free; 40 MiB of it can be given back."""
    made = glibc_verdict.GlibcVerdictFigures(100 * MB, 50 * MB, 0, 50 * MB, 0, 0, 0, 40 * MB, None, 0, 0, 2, 2, None)._replace(**fields)
    ends = made.top_bytes + made.left_bytes + made.unmerged_bytes + made.hugetlb_bytes
    between = None if made.reclaimable_bytes is None else max(0, made.free_bytes - made.reclaimable_bytes - ends)
    return made if "between_bytes" in fields else made._replace(between_bytes=between)


def on_glibc(**fields: Any) -> Callable[[], Iterable[Finding]]:
    def lines() -> Iterable[Finding]:
        figures = glibc(**fields)
        judged = glibc_verdict.verdict_on(figures)
        return [*judged.lines, *glibc_verdict.side_lines(figures, judged.kind)]

    return lines


GLIBC = {
    "small": Case(on_glibc(system_bytes=MB // 2, used_bytes=0, free_bytes=0), [codes.SMALL_HEAP], ["512.0 KiB requested"]),
    "leak": Case(on_glibc(used_bytes=90 * MB, free_bytes=10 * MB), [codes.IN_USE], ["90.0 MiB of 100.0 MiB (90 %) are allocated by the program", "later `gdbheapx diff now.snap`"]),
    "hoarding": Case(on_glibc(), [codes.FREED_AND_HELD], ["50.0 MiB of 100.0 MiB (50 %) are free memory that malloc keeps", "malloc_trim(0) would return 40.0 MiB to the OS"]),
    "fragmented": Case(on_glibc(reclaimable_bytes=15 * MB, top_bytes=5 * MB), [codes.FREE_BETWEEN], ["50.0 MiB of 100.0 MiB (50 %) are free between blocks in use", "would return 15.0 MiB"]),
    "half in RAM": Case(
        on_glibc(reclaimable_resident_bytes=7 * MB), [codes.PART_HELD], ["40.0 MiB to the OS, 7.0 MiB of it in RAM now", "50.0 MiB of 67.0 MiB (75 %)", "33.0 MiB more are free and not in RAM"]
    ),
    "trimmed": Case(
        on_glibc(reclaimable_resident_bytes=MB, reclaimable_bytes=45 * MB), [codes.IN_USE], ["50.0 MiB of 56.0 MiB (89 %)", "6.0 MiB (11 %) are free in malloc; 44.0 MiB more are free and not in RAM"]
    ),
    "trimmed, part of it is used anew": Case(on_glibc(reclaimable_resident_bytes=0, used_bytes=35 * MB, system_bytes=86 * MB), [codes.PART_HELD], ["a trim gains nothing: 40.0 MiB of free pages are back"]),
    "never written": Case(on_glibc(used_bytes=90 * MB, free_bytes=10 * MB, reclaimable_bytes=0, reclaimable_resident_bytes=0, taken_bytes=20 * MB), [codes.FREE_BETWEEN], ["80.0 MiB more are not in RAM: never written to"]),
    "never written, a core": Case(on_glibc(is_core=True, used_bytes=90 * MB, free_bytes=10 * MB, reclaimable_bytes=0, taken_bytes=20 * MB), [codes.FREE_BETWEEN], ["80.0 MiB more are not in the core: never written to, or all zeros"]),
    "zeros of a core that may have been in RAM": Case(
        on_glibc(is_core=True, are_zeros_silent=True, used_bytes=90 * MB, free_bytes=10 * MB, reclaimable_bytes=0, taken_bytes=20 * MB),
        [codes.FREE_BETWEEN],
        ["all zeros; if the pages of zeros in its blocks were in RAM, 90.0 MiB of 100.0 MiB (90 %) are allocated by the program"],
    ),
    "given back, and never written": Case(
        on_glibc(system_bytes=200 * MB, used_bytes=100 * MB, free_bytes=100 * MB, reclaimable_bytes=60 * MB, reclaimable_resident_bytes=0, taken_bytes=120 * MB),
        [codes.PART_HELD],
        ["80.0 MiB more are not in RAM: 60.0 MiB free, 20.0 MiB never written to"],
    ),
    "tops never touched": Case(
        on_glibc(used_bytes=MB, free_bytes=98 * MB, top_bytes=98 * MB, thread_tops_bytes=98 * MB, thread_tops=600, reclaimable_bytes=0, reclaimable_resident_bytes=0, taken_bytes=3 * MB, tops_bytes=97 * MB, tops_taken_bytes=0, arenas=600),
        [codes.SMALL_HEAP],
        ["3.0 MiB of 100.0 MiB requested from the kernel take memory"],
    ),
    "pages of hugetlbfs": Case(
        on_glibc(reclaimable_bytes=0, reclaimable_resident_bytes=0, hugetlb_bytes=100 * MB, taken_bytes=100 * MB),
        [codes.FREED_AND_HELD, codes.HUGETLB],
        ["no trim returns pages of hugetlbfs", "100.0 MiB, which RSS does not include"],
    ),
    "a core that lacks free pages": Case(
        on_glibc(is_core=True, reclaimable_taken_bytes=0, taken_bytes=60 * MB), [codes.IN_USE], ["50.0 MiB of 60.0 MiB (83 %)", "40.0 MiB more are free and not in the core"]
    ),
    "a core that shows its holes": Case(on_glibc(is_core=True, reclaimable_taken_bytes=30 * MB), [codes.FREED_AND_HELD], ["would have returned 40.0 MiB, 30.0 MiB of it in the core"]),
    "a core": Case(on_glibc(is_core=True), [codes.FREED_AND_HELD], ["would have returned 40.0 MiB; how much of that was in RAM"]),
    "arenas left behind": Case(
        on_glibc(system_bytes=204 * MB, used_bytes=MB, free_bytes=203 * MB, fast_bytes=175 * MB, fast_chunks=1600000, reclaimable_bytes=9 * MB, reclaimable_resident_bytes=9 * MB, left_arenas=15, left_bytes=190 * MB, arenas=16),
        [codes.ARENAS_LEFT, codes.FASTBINS, codes.MANY_ARENAS],
        ["190.0 MiB of it at the ends of 15 arenas left by threads that have ended", "it would return 9.0 MiB", "MALLOC_ARENA_MAX=2", "175.0 MiB in 1,600,000 chunks, 86 % of the heap"],
    ),
    "fastbins at the end": Case(
        on_glibc(used_bytes=10 * MB, free_bytes=90 * MB, unmerged_bytes=80 * MB, reclaimable_bytes=MB),
        [codes.UNMERGED],
        ["80.0 MiB of it below the tops of thread arenas: chunks in fastbins keep it from being merged", "would return 1.0 MiB", "glibc.malloc.mxfast=0"],
    ),
    "fastbins or ended threads": Case(on_glibc(used_bytes=10 * MB, free_bytes=90 * MB, unmerged_bytes=80 * MB, left_untold_bytes=80 * MB, reclaimable_bytes=MB), [codes.FREED_AND_HELD], ["at least 90.0 MiB are free"]),
    "no verdict": Case(
        on_glibc(cached_bytes=None, beyond_bytes=80 * MB, missing=["arenas", "thread caches"]),
        [codes.EVIDENCE_MISSING],
        ["cannot read arenas and thread caches, and the verdict depends on it", "at least 50.0 MiB are free"],
    ),
    "not all could be read": Case(
        on_glibc(used_bytes=90 * MB, free_bytes=10 * MB, unparsed_bytes=MB, missing=["parts of heaps"]), [codes.IN_USE], ["at least 90.0 MiB are in use by the program", "unknown, and without weight here: parts of heaps"]
    ),
    "nobody knows what a trim returns": Case(on_glibc(used_bytes=10 * MB, free_bytes=90 * MB, top_bytes=90 * MB, reclaimable_bytes=None, between_bytes=0, missing=["free lists"]), [codes.FREED_AND_HELD]),
    "trimmed, and hoards again": Case(
        on_glibc(system_bytes=300 * MB, free_bytes=250 * MB, reclaimable_resident_bytes=0, reclaimable_bytes=150 * MB, top_bytes=90 * MB), [codes.FREED_AND_HELD], ["50.0 MiB (33 %) are in use", "100.0 MiB of 150.0 MiB (67 %) are free memory that malloc keeps", "150.0 MiB more"]
    ),
    "mixed": Case(on_glibc(used_bytes=70 * MB, free_bytes=30 * MB), [codes.PART_HELD], ["30.0 MiB (30 %)"]),
    "small pieces": Case(on_glibc(reclaimable_bytes=MB), [codes.FREE_BETWEEN, codes.SMALL_PIECES], ["49.0 MiB of 50.0 MiB free lie between used chunks; a trim can return 1.0 MiB"]),
    "thread caches": Case(on_glibc(cached_bytes=20 * MB), [codes.FREED_AND_HELD, codes.THREAD_CACHES], ["20.0 MiB (20 % of the heap)", "tcache_count=0"]),
    "large top": Case(
        on_glibc(top_bytes=41 * MB, trim_threshold_bytes=64 * MB), [codes.FREED_AND_HELD, codes.MAIN_TOP], ["top holds 41.0 MiB", "trim_threshold to 64.0 MiB"]
    ),
    "large chunks": Case(
        on_glibc(used_bytes=10 * MB, free_bytes=90 * MB, reclaimable_bytes=90 * MB, large_free_bytes=85 * MB, trim_threshold_bytes=20 * MB, arenas=9),
        [codes.FREED_AND_HELD, codes.THRESHOLD_RAISED],
        ["85.0 MiB in free chunks of 128 KiB or more", "trim_threshold to 20.0 MiB", "MALLOC_MMAP_THRESHOLD_=131072"],
    ),
    "tops of threads": Case(
        on_glibc(top_bytes=41 * MB, thread_tops_bytes=41 * MB, thread_tops=13),
        [codes.FREED_AND_HELD, codes.THREAD_TOPS],
        ["41.0 MiB in 13 tops, 82 % of all free memory", "(128.0 KiB)"],
    ),
    "many arenas": Case(on_glibc(arenas=14, threads=20), [codes.FREED_AND_HELD, codes.MANY_ARENAS], ["14 arenas for 20 threads", "MALLOC_ARENA_MAX=2"]),
    "inside malloc": Case(lambda: glibc_verdict.list_arena_findings([glibc_arena(3, locked=True), glibc_arena(5, locked=True)]), [codes.INSIDE_MALLOC], ["arena 3, 5"]),
    "damaged": Case(lambda: glibc_verdict.list_arena_findings([glibc_arena(2, unparsed_bytes=64)]), [codes.DAMAGED], ["arena 2"]),
    "aborted, small": Case(lambda: glibc_verdict.with_abort(verdict.usual_verdict(1 << 18, 0, 1 << 18)).lines, [codes.ABORTED_IN_MALLOC], ["the heap is damaged", "256.0 KiB"]),
    "aborted, large": Case(
        lambda: glibc_verdict.with_abort(verdict.usual_verdict(90 * MB, 90 * MB, 90 * MB)).lines, [codes.IN_USE, codes.ABORTED_IN_MALLOC], ["gdbheapx check shows"]
    ),
    "steps, aborted": Case(lambda: glibc_verdict.list_glibc_steps(codes.ABORTED_IN_MALLOC), ["check"]),
    "steps, leak": Case(lambda: glibc_verdict.list_glibc_steps(codes.IN_USE), ["chunks --histogram", "chunks --status used --status mmapped --sort size"]),
    "steps, hoarding": Case(lambda: glibc_verdict.list_glibc_steps(codes.FREED_AND_HELD), ["trim --dry-run", "tunables"]),
    "steps, mixed": Case(lambda: glibc_verdict.list_glibc_steps(codes.PART_HELD), ["chunks --histogram", "trim --dry-run"]),
    "steps, small": Case(lambda: glibc_verdict.list_glibc_steps(codes.SMALL_HEAP), []),
    "steps, arenas left behind": Case(lambda: glibc_verdict.list_glibc_steps(codes.ARENAS_LEFT), ["arenas", "tunables"]),
    "steps, fastbins": Case(lambda: glibc_verdict.list_glibc_steps(codes.UNMERGED), ["bins", "arenas"]),
}

# ---------------------------------------------------------------------------------------------------- any allocator


def on_any(held: int, used: int, taken: Optional[int] = None, beyond: int = 0) -> Callable[[], Iterable[Finding]]:
    return lambda: verdict.usual_verdict(held, used, taken, beyond).lines


ANY = {
    "small": Case(on_any(MB // 2, 0), [codes.SMALL_HEAP]),
    "leak": Case(on_any(100 * MB, 90 * MB), [codes.IN_USE], ["90.0 MiB of 100.0 MiB (90 %)"]),
    "hoarding": Case(on_any(100 * MB, 40 * MB), [codes.FREED_AND_HELD]),
    "mixed": Case(on_any(100 * MB, 60 * MB), [codes.PART_HELD]),
    "no verdict": Case(on_any(100 * MB, 60 * MB, None, 90 * MB), [codes.EVIDENCE_MISSING], ["cannot read which pages are in RAM and the whole heap", "at least 60.0 MiB are in use"]),
    "which part is in RAM": Case(on_any(100 * MB, 60 * MB, 50 * MB), [codes.EVIDENCE_MISSING], ["cannot read which pages are in RAM"]),
    "not all could be read": Case(on_any(100 * MB, 90 * MB, 99 * MB), [codes.IN_USE], ["at least 89.0 MiB are in use by the program, at least 9.0 MiB"]),
}

# ---------------------------------------------------------------------------------------------------- given back, and in RAM


def given_back(**fields: Any) -> huge_pages.Returned:
    return huge_pages.Returned("jemalloc", 80 * MB, 60 * MB, None, "retained", None)._replace(**fields)


def sentence(found: huge_pages.Returned, facts: Any) -> List[Any]:
    """The finding, then its steps."""
    judged = huge_pages.judge_huge_pages(found, facts)
    return [judged.finding, *judged.steps] if judged else []


def with_huge_pages(otherwise: verdict.HeapVerdict, resident: int) -> List[Finding]:
    judged = huge_pages.judge_huge_pages(given_back(huge_bytes=60 * MB), None)
    return list(huge_pages.add_huge_page_verdict(judged, resident, 100 * MB, otherwise).lines)


def blockless(setting: str = "madvise", zero_bytes: Optional[int] = 20 * MB, huge_bytes: Optional[int] = 22 * MB, **more: Any) -> Callable[[], Iterable[Any]]:
    """The finding on huge pages without a block, then its steps."""

    def lines() -> Iterable[Any]:
        known = huge_pages.Blockless("malloc", huge_bytes, zero_bytes, 30 * MB, "", [])._replace(**more)
        judged = huge_pages.judge_blockless(known, HugePages(setting, True, 0))
        return [judged.finding, *judged.steps] if judged else []

    return lines


def judged_glibc(setting: str = "madvise", **known: Any) -> Callable[[], Iterable[Any]]:
    """The verdict on one glibc, and the steps, where huge pages fill 22 of 30 MiB without a block."""

    def lines() -> Iterable[Any]:
        row = glibc_arena(system_bytes=26 * MB, used_bytes=4 * MB, free_bytes=22 * MB, top_bytes=0, blockless_huge_bytes=22 * MB)
        sums = glibc_pages.sum_glibc_arenas([row], MmappedTotals(0, 0))
        info = AllocatorInfo("glibc", "glibc", "2.43", "libc.so.6", None, "table", "symbol", True)
        facts = GlibcFacts(info, [row], sums, [], [], zero_huge_bytes=lambda: 20 * MB, **known)
        (told,) = glibc_verdict.judge_glibc([facts], Surroundings(1, [], HugePages(setting, True, 0), rss_bytes=30 * MB))
        return [*told.verdict.lines[:1], *told.next_steps[: 3 if setting == "always" else 2]]

    return lines


PRCTL, MACHINE, LOOK = "prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)", "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled", "grep AnonHugePages /proc/PID/smaps"
NEVER = "echo never > /sys/kernel/mm/transparent_hugepage/enabled"
GIVEN_BACK = {
    "huge pages": Case(
        lambda: sentence(given_back(huge_bytes=50 * MB), HugePages("always", True, 0)),
        [codes.GIVEN_BACK_IN_RAM, PRCTL, MACHINE],
        ["60.0 MiB that jemalloc returned, or never used, are still in RAM: huge pages", "60.0 MiB of 80.0 MiB retained, 50.0 MiB of that in huge pages; transparent_hugepage/enabled is always"],
    ),
    "likely huge pages": Case(
        lambda: sentence(given_back(address_space_bytes=None), HugePages("always", True, 0)), [codes.GIVEN_BACK_IN_RAM, PRCTL, MACHINE, LOOK], ["60.0 MiB retained"]
    ),
    "huge pages of jemalloc": Case(
        lambda: sentence(given_back(cure=jemalloc_verdict.make_jemalloc_huge_cure(UNPREFIXED, "default")), None), [codes.GIVEN_BACK_IN_RAM, "MALLOC_CONF=thp:never", PRCTL, LOOK]
    ),
    "huge pages of glibc": Case(
        lambda: sentence(given_back(name="glibc", cure=glibc_verdict.make_glibc_huge_cure(True)), None),
        [codes.GIVEN_BACK_IN_RAM, "GLIBC_TUNABLES=glibc.malloc.hugetlb=0", PRCTL, LOOK],
        ["glibc returned, or never used"],
    ),
    "locked": Case(
        lambda: sentence(given_back(), HugePages("always", True, 100 * MB)), [codes.GIVEN_BACK_IN_RAM], ["in RAM: locked memory", "mlockall or mlock keeps"]
    ),
    "not explained": Case(lambda: sentence(given_back(), HugePages("never", True, 0)), [codes.GIVEN_BACK_IN_RAM], ["in RAM: cause unknown", "/proc/PID/smaps"]),
    "huge pages without blocks": Case(
        blockless(), [codes.BLOCKLESS, PRCTL], ["22.0 MiB of 30.0 MiB RSS (73 %) are parts of huge pages where malloc has no block", "at most 20.0 MiB of that, which hold zeros,", "the program asked for them"]
    ),
    "huge pages without blocks, zeros unknown": Case(
        blockless("always", None, rss_bytes=None), [codes.BLOCKLESS, PRCTL, MACHINE], ["22.0 MiB are parts", "not all of that would be in RAM", "enabled is always"]
    ),
    "huge pages without blocks, all written": Case(blockless(zero_bytes=0), []),
    "huge pages without blocks, unknown": Case(blockless(huge_bytes=None), []),
    "huge pages without blocks, small": Case(blockless(huge_bytes=5 * MB, zero_bytes=5 * MB, rss_bytes=12 * MB), [codes.BLOCKLESS, PRCTL], ["5.0 MiB of 12.0 MiB RSS"]),
    "huge pages without blocks, little": Case(blockless(huge_bytes=5 * MB, zero_bytes=5 * MB), []),
    "huge pages by a tunable": Case(
        judged_glibc(asks_for_huge_pages=True), [codes.BLOCKLESS, "GLIBC_TUNABLES=glibc.malloc.hugetlb=0", PRCTL], ["glibc.malloc.hugetlb=1 asks for them"]
    ),
    "huge pages by default": Case(
        judged_glibc(asks_for_huge_pages=True, asks_by_default=True),
        [codes.BLOCKLESS, "GLIBC_TUNABLES=glibc.malloc.hugetlb=0", NEVER],
        ["glibc asks for them by default", "no tunable reaches these"],
    ),
    "huge pages by a kernel that gives them unasked": Case(
        judged_glibc("always", asks_for_huge_pages=True, asks_by_default=True),
        [codes.BLOCKLESS, PRCTL, MACHINE, "GLIBC_TUNABLES=glibc.malloc.hugetlb=0"],
        ["transparent_hugepage/enabled is always", "once the machine's setting is madvise"],
    ),
    "too little": Case(lambda: sentence(given_back(resident_bytes=MB), None), []),
    "much of what is held": Case(lambda: with_huge_pages(glibc_verdict.verdict_on(glibc()), 60 * MB), [codes.GIVEN_BACK_IN_RAM, codes.FREED_AND_HELD]),
    "little of what is held": Case(lambda: with_huge_pages(glibc_verdict.verdict_on(glibc()), 20 * MB), [codes.FREED_AND_HELD, codes.GIVEN_BACK_IN_RAM]),
}

# ---------------------------------------------------------------------------------------------------- jemalloc


def jemalloc(**fields: Any) -> jemalloc_verdict.JemallocVerdictFigures:
    return jemalloc_verdict.JemallocVerdictFigures(0, 0, 0, 0, 0, 0, 0, 0, None)._replace(**fields)


def on_jemalloc(bins: Sequence[Any] = (), names: PublicNames = UNPREFIXED, **fields: Any) -> Callable[[], Iterable[Finding]]:
    return lambda: jemalloc_verdict.judge_jemalloc(jemalloc(**fields), bins, names).lines


def told(
    threads: Sequence[str], arenas: Sequence[Any], state: Any = None, rows: Sequence[Any] = (), affected: bool = True, **fields: Any
) -> Callable[[], Iterable[Finding]]:
    report = tickers([ticker_thread(one) for one in threads], arenas, affected)
    return lambda: jemalloc_findings.list_findings("5.2.1", jemalloc(**fields), rows, state or conditions(), report)


def steps(kind: str, threads: Sequence[str] = (), arenas: Sequence[Any] = (), state: Any = None, programs: Sequence[str] = (), **fields: Any) -> Callable[[], Iterable[Any]]:
    report = tickers([ticker_thread(one) for one in threads], arenas)
    return lambda: jemalloc_findings.list_next_steps(kind, jemalloc(**fields), report, state or conditions(), modules(*programs))


JEMALLOC = {
    "unread": Case(on_jemalloc(is_known=False), [codes.ALLOCATOR_UNREAD], ["Inconclusive", "cannot read any"]),
    "no verdict": Case(
        on_jemalloc(used_bytes=50 * MB, dirty_bytes=None, missing=["dirty pages"]), [codes.EVIDENCE_MISSING], ["cannot read dirty pages, and the verdict depends on it", "at least 50.0 MiB are in use"]
    ),
    "not all could be read": Case(
        on_jemalloc(used_bytes=90 * MB, metadata_bytes=None, most_metadata_bytes=MB, missing=["metadata"]), [codes.IN_USE], ["at least 90.0 MiB are in use", "unknown, and without weight here: metadata"]
    ),
    "purged before": Case(on_jemalloc(used_bytes=50 * MB, dirty_bytes=50 * MB, reclaimable_resident_bytes=0), [codes.IN_USE], ["50.0 MiB of 50.0 MiB (100 %)", "50.0 MiB more are not in RAM"]),
    "sampled blocks": Case(
        on_jemalloc(used_bytes=22 * MB, sampled_bytes=92 * MB), [codes.IN_USE, codes.SAMPLED_BLOCKS], ["92.0 MiB (81 %) is rounding: with opt.prof on, each sampled block takes whole pages"]
    ),
    "large blocks": Case(on_jemalloc(used_bytes=80 * MB, rounding_bytes=20 * MB), [codes.IN_USE, codes.LARGE_ROUNDING], ["20.0 MiB (20 %)", "a build with --disable-cache-oblivious"]),
    "large blocks, with an option": Case(
        on_jemalloc(used_bytes=80 * MB, rounding_bytes=20 * MB, has_oblivious_option=True), [codes.IN_USE, codes.LARGE_ROUNDING], ["MALLOC_CONF=cache_oblivious:false at the next start ends it"]
    ),
    "dirty pages in huge pages": Case(
        on_jemalloc(used_bytes=20 * MB, huge_dirty_bytes=80 * MB, dirty_mult=-1), [codes.UNUSED_PAGES], ["80.0 MiB of 100.0 MiB (80 %) are free memory that jemalloc keeps", "no purge reaches them; any number of them may stay: opt.hpa_dirty_mult is -1"]
    ),
    "dirty pages in huge pages, bounded": Case(
        on_jemalloc(used_bytes=84 * MB, huge_dirty_bytes=20 * MB, dirty_mult=1 << 14), [codes.IN_USE, codes.UNUSED_PAGES], ["for each active page 0.25 of them may stay (opt.hpa_dirty_mult)"]
    ),
    "not all in RAM, by its pages": Case(
        on_jemalloc(used_bytes=90 * MB, rounding_bytes=90 * MB, present={"used_bytes": 89 * MB, "rounding_bytes": MB}), [codes.IN_USE], ["89.0 MiB of 90.0 MiB (99 %)", "90.0 MiB more are not in RAM"]
    ),
    "small beside its metadata": Case(on_jemalloc(used_bytes=MB // 2, metadata_bytes=12 * MB), [codes.SMALL_HEAP], ["jemalloc holds 12.5 MiB, 12.0 MiB of it its own metadata"]),
    "small": Case(on_jemalloc(used_bytes=MB), [codes.SMALL_HEAP], ["jemalloc holds 1.0 MiB"]),
    "small, and not all in RAM": Case(
        on_jemalloc(used_bytes=MB, dirty_bytes=MB, reclaimable_resident_bytes=MB // 2), [codes.SMALL_HEAP], ["jemalloc holds 1.5 MiB; 512.0 KiB more are not in RAM"]
    ),
    "leak": Case(on_jemalloc(used_bytes=90 * MB, dirty_bytes=10 * MB), [codes.IN_USE], ["90.0 MiB of 100.0 MiB (90 %)"]),
    "hoarding": Case(on_jemalloc(used_bytes=40 * MB, dirty_bytes=60 * MB), [codes.UNUSED_PAGES], ["60.0 MiB of 100.0 MiB (60 %) are free memory that jemalloc keeps", "would return 60.0 MiB to the OS"]),
    "hoarding, in RAM": Case(on_jemalloc(used_bytes=40 * MB, dirty_bytes=60 * MB, reclaimable_resident_bytes=50 * MB), [codes.UNUSED_PAGES], ["50.0 MiB of it in RAM now", "10.0 MiB more are not in RAM"]),
    "fragmented": Case(
        on_jemalloc([slabs(224, 29 * MB), slabs(32, MB)], used_bytes=10 * MB, free_regions_bytes=30 * MB), [codes.FREE_REGIONS], ["29.0 MiB in regions of 224 bytes; no purge"]
    ),
    "fragmented everywhere": Case(on_jemalloc(used_bytes=10 * MB, free_regions_bytes=30 * MB), [codes.FREE_REGIONS], ["spread over all sizes; no purge"]),
    "hoarding, muzzy pages": Case(
        on_jemalloc(used_bytes=40 * MB, dirty_bytes=20 * MB, muzzy_bytes=40 * MB), [codes.UNUSED_PAGES], ["free regions in slabs; most of the unused pages are muzzy (MADV_FREE)"]
    ),
    "mixed": Case(on_jemalloc(used_bytes=70 * MB, dirty_bytes=30 * MB), [codes.PART_HELD], ["a purge would return 30.0 MiB"]),
    "mixed, where it may be purged": Case(on_jemalloc(used_bytes=70 * MB, dirty_bytes=30 * MB, can_purge=True), [codes.PART_HELD], ["`gdbheapx purge` would return 30.0 MiB"]),
    "free regions beside": Case(
        on_jemalloc([slabs(64, 30 * MB)], used_bytes=30 * MB, free_regions_bytes=30 * MB, dirty_bytes=40 * MB), [codes.PART_HELD, codes.FREE_REGIONS], ["30.0 MiB (30 %)"]
    ),
    "thread caches": Case(
        on_jemalloc(used_bytes=5 * MB, cached_bytes=15 * MB),
        [codes.PART_HELD, codes.THREAD_CACHES],
        ["free regions in slabs; most of the rest is in thread caches", "15.0 MiB (75 % of what jemalloc holds)", 'mallctl("thread.tcache.flush")'],
    ),
    "thread caches, names unknown": Case(
        on_jemalloc(names=UNKNOWN_NAMES, used_bytes=5 * MB, cached_bytes=15 * MB), [codes.PART_HELD, codes.THREAD_CACHES], ["own prefix, which is unknown"]
    ),
    "pinned pages": Case(
        on_jemalloc(used_bytes=60 * MB, pinned_bytes=40 * MB), [codes.PART_HELD, codes.PINNED_PAGES], ["40.0 MiB (40 %)", "no purge reaches them", "extent hooks"]
    ),
    "metadata": Case(on_jemalloc(used_bytes=60 * MB, metadata_bytes=40 * MB), [codes.PART_HELD, codes.METADATA], ["40.0 MiB (40 %)", "(narenas)"]),
    "no statistics": Case(told([], [], conditions(has_stats=False), metadata_bytes=None), [codes.NO_STATISTICS], ["--disable-stats (Rust: switch on the feature `stats`)"]),
    "metadata unknown": Case(told([], [], metadata_bytes=None), [codes.METADATA_UNKNOWN], ["cannot read the counters"]),
    "profiling": Case(told([], [], conditions(prof=True)), [codes.PROFILING], ["profile -o heap.prof"]),
    "damaged": Case(told([], [], rows=[jemalloc_arena(1, unparsed_bytes=MB)]), [codes.DAMAGED], ["1.0 MiB of extents"]),
    "one not judged": Case(told(["unknown"], []), [codes.THREADS_NOT_JUDGED], ["the state of 1 thread, and jemalloc 5.2.1"]),
    "one not judged, in a build without the fault": Case(told(["unknown"], [], affected=False), []),
    "nobody is blind": Case(told(["ticking", "at-risk", "not-started", "not-applicable"], [ticker_arena(0, "purged", 500 * MB)]), [codes.PURGED_BY_CALLS]),
    "two not judged": Case(told(["unknown"] * 2, []), [codes.THREADS_NOT_JUDGED], ["the state of 2 threads"]),
    "blind, bound to nothing": Case(told(["blind"], []), [codes.BLIND_THREADS], ["1 thread is blind: its first call", "it never returns", "bound to no arena"]),
    "blind, purged by others": Case(told(["blind"], [ticker_arena(3, "purged", MB, blind_threads=1)]), [codes.BLIND_THREADS], ["arena 3 holds 1.0 MiB", "still purged"]),
    "blind, in two arenas": Case(
        told(["blind"] * 2, [ticker_arena(1, "unpurged", 5 * MB, blind_threads=1), ticker_arena(4, "unpurged", 20 * MB, blind_threads=1)]),
        [codes.BLIND_THREADS],
        ["2 threads are blind: their first call", "they never return", "arenas 4, 1 hold 25.0 MiB of unused pages, and no other thread purges them (arena 4: its only"],
    ),
    "blind, one arena of two is kept": Case(
        told(["blind"] * 2, [ticker_arena(1, "purged", 5 * MB, blind_threads=1), ticker_arena(4, "unpurged", 20 * MB, blind_threads=1)]),
        [codes.BLIND_THREADS],
        ["; no other thread purges arena 4 (its only thread is blind)"],
    ),
    "unpurged": Case(told([], [ticker_arena(2, "unpurged", MB, why="background threads are paused")]), [codes.UNPURGED], ["arena 2 holds 1.0 MiB", "are paused"]),
    "never purged": Case(told([], [ticker_arena(index, "never", MB) for index in range(12)]), [codes.PURGING_OFF], ["arenas 0, 1, 2, 3, 4, 5, 6, 7 and 4 more hold 12.0 MiB"]),
    "threads have exited": Case(told([], [ticker_arena(2, "no-threads", 3 * MB)]), [codes.NO_THREADS], ["of threads that have exited", "when other threads free blocks there"]),
    "arenas of the program": Case(told([], [ticker_arena(2, "no-threads", 3 * MB, kind="manual")]), [codes.NO_THREADS], ["that the program made", "a thread that ticks frees"]),
    "arena for large requests": Case(told([], [ticker_arena(2, "no-threads", 3 * MB, kind="huge")]), [codes.NO_THREADS], ["opt.oversize_threshold"]),
    "background threads do not run": Case(told([], [], conditions(background_enabled=True)), [codes.BACKGROUND_NOT_RUNNING], ['mallctl("background_thread") with true']),
    "background threads are lost": Case(told([], [], conditions(background_asked=True)), [codes.BACKGROUND_LOST], ["after fork()"]),
    "idle threads": Case(told([], [ticker_arena(2, "idle", 40 * MB)], dirty_bytes=40 * MB), [codes.PURGED_BY_CALLS], ["arena 2 of idle threads holds 40.0 MiB of unused pages"]),
    "busy threads": Case(told([], [ticker_arena(2, "purged", 40 * MB)], dirty_bytes=40 * MB), [codes.PURGED_BY_CALLS], ["arena 2 holds 40.0 MiB of unused pages"]),
    "many arenas": Case(
        told(["ticking"] * 3, [], rows=[jemalloc_arena(index, active_bytes=MB, dirty_bytes=10 * MB) for index in range(12)], used_bytes=50 * MB, dirty_bytes=120 * MB),
        [codes.MANY_ARENAS],
        ["12 arenas for 3 threads, 120.0 MiB", "MALLOC_CONF=narenas:N"],
    ),
    "many arenas, of the program": Case(
        told(["ticking"], [], rows=[jemalloc_arena(index, kind="manual", active_bytes=MB, dirty_bytes=10 * MB) for index in range(12)], dirty_bytes=120 * MB), []
    ),
    "many arenas, muzzy pages": Case(
        told(["ticking"], [], rows=[jemalloc_arena(index, active_bytes=MB, muzzy_bytes=10 * MB) for index in range(12)], muzzy_bytes=120 * MB), []
    ),
    "sampling is off": Case(told([], [], conditions(prof=True, prof_active=False)), [codes.PROFILING], ["sampling is off", 'mallctl("prof.active") with true starts it']),
    "sampling began late": Case(
        told([], [], conditions(prof=True, prof_asked=False, prof_active=True)), [codes.PROFILING], ["switched on after the start", "how much it covers: gdbheapx profile"]
    ),
    "a variable that this build does not read": Case(
        told([], [], conditions(names=PublicNames("_rjem_", "_RJEM_MALLOC_CONF"), unread_variables=["MALLOC_CONF"])),
        [codes.OPTIONS_UNREAD],
        ["MALLOC_CONF in the environment", "this build reads _RJEM_MALLOC_CONF"],
    ),
    "options that were refused": Case(
        told([], [], conditions(refused=[RefusedOption("the environment, MALLOC_CONF", "dirty_decay_ms:5s", "not a number")])),
        [codes.OPTIONS_REFUSED],
        ["dirty_decay_ms:5s (not a number)"],
    ),
    "muzzy pages stay": Case(
        told([], [ticker_arena(2, "purged", 0, muzzy_bytes=5 * MB, muzzy_decay_ms=-1)], muzzy_bytes=5 * MB), [codes.PURGING_OFF], ["muzzy_decay_ms is -1", "5.0 MiB", "the kernel's to take"]
    ),
    "never purged, by the program": Case(
        told([], [ticker_arena(1, "never", MB)], conditions(dirty_decay_asked_ms=10000)), [codes.PURGING_OFF], ["opt.dirty_decay_ms is 10000: the program changed it"]
    ),
    "idle threads, no switch is known": Case(
        told([], [ticker_arena(2, "idle", 40 * MB)], conditions(background_enabled=None), dirty_bytes=40 * MB), [codes.PURGED_BY_CALLS], ["no background thread purges them"]
    ),
    "idle threads of DuckDB": Case(
        told([], [ticker_arena(2, "idle", 40 * MB)], conditions(names=PublicNames("duckdb_je_", "DUCKDB_JE_MALLOC_CONF")), dirty_bytes=40 * MB),
        [codes.PURGED_BY_CALLS],
        ["background threads are off"],
    ),
    "busy threads, no switch is known": Case(
        told([], [ticker_arena(2, "purged", 40 * MB)], conditions(background_enabled=None), dirty_bytes=40 * MB), []
    ),
    "blind, and long overdue": Case(
        told(["blind"], [ticker_arena(0, "degraded", 80 * MB, blind_threads=1, costs_memory=True, why="its decay is overdue by 3360 ms")]),
        [codes.BLIND_THREADS, codes.PURGED_BY_CALLS],
        ["arena 0 holds 80.0 MiB of unused pages, long overdue (its decay is overdue by 3360 ms)"],
    ),
    "blind, background threads requested": Case(
        told(["blind"], [ticker_arena(1, "unpurged", 5 * MB, blind_threads=1)], conditions(background_asked=True, background_enabled=True, background_running=1)),
        [codes.BLIND_THREADS],
        ['workaround: mallctl("background_thread") with true'],
    ),
    "steps, background threads are lost": Case(
        steps(codes.UNUSED_PAGES, arenas=[ticker_arena(1, "idle", 50 * MB)], state=conditions(background_asked=True), dirty_bytes=50 * MB),
        ["decay", 'mallctl("arena.4096.purge", NULL, NULL, NULL, 0)', 'mallctl("background_thread")'],
    ),
    "steps, DuckDB": Case(
        steps(codes.UNUSED_PAGES, state=conditions(names=PublicNames("duckdb_je_", "DUCKDB_JE_MALLOC_CONF")), dirty_bytes=50 * MB, reclaimable_resident_bytes=20 * MB),
        ["decay", 'duckdb_je_mallctl("arena.4096.purge", NULL, NULL, NULL, 0)', "SET allocator_background_threads=true"],
        ["returns 20.0 MiB to the OS now"],
    ),
    "steps, muzzy pages stay": Case(
        steps(codes.UNUSED_PAGES, arenas=[ticker_arena(1, "purged", 0, muzzy_bytes=50 * MB, muzzy_decay_ms=-1)], muzzy_bytes=50 * MB),
        ["decay", 'mallctl("arena.4096.purge", NULL, NULL, NULL, 0)', "MALLOC_CONF=muzzy_decay_ms:0"],
    ),
    "steps, never purged, by the program": Case(
        steps(codes.UNUSED_PAGES, arenas=[ticker_arena(1, "never", MB)], state=conditions(dirty_decay_asked_ms=10000, background_running=1), dirty_bytes=50 * MB),
        ["decay", 'mallctl("arena.4096.purge", NULL, NULL, NULL, 0)'],
    ),
    "steps, thread caches": Case(steps(codes.PART_HELD, cached_bytes=50 * MB), ["chunks --histogram", "tcache"]),
    "steps, a leak whose sampling is off": Case(
        steps(codes.IN_USE, state=conditions(prof=True, prof_active=False)), ["chunks --histogram", "chunks --status used --sort size", 'mallctl("prof.active")']
    ),
    "steps, blind": Case(steps(codes.SMALL_HEAP, ["blind"]), ["tickers"]),
    "steps, hoarding": Case(
        steps(codes.UNUSED_PAGES, arenas=[ticker_arena(1, "never", MB)], dirty_bytes=50 * MB),
        ["decay", 'mallctl("arena.4096.purge", NULL, NULL, NULL, 0)', "MALLOC_CONF=background_thread:true,dirty_decay_ms:10000"],
        ["returns 50.0 MiB to the OS now"],
    ),
    "steps, dirty pages in huge pages": Case(
        steps(codes.UNUSED_PAGES, used_bytes=20 * MB, huge_dirty_bytes=80 * MB, dirty_mult=-1), ["MALLOC_CONF=hpa_dirty_mult:0.25"], ["bounds the dirty pages"]
    ),
    "steps, redis": Case(
        steps(codes.PART_HELD, programs=["/usr/bin/redis-server"], state=conditions(background_running=1), dirty_bytes=50 * MB, free_regions_bytes=50 * MB),
        ["decay", "redis-cli MEMORY PURGE", "bins", "redis-cli CONFIG SET activedefrag yes", "chunks --histogram"],
    ),
    "steps, redis with a library's jemalloc": Case(
        steps(codes.FREE_REGIONS, programs=["/usr/bin/redis-check-rdb", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"], free_regions_bytes=50 * MB), ["bins"]
    ),
    "steps, valkey": Case(
        steps(codes.FREE_REGIONS, programs=["/usr/bin/valkey-server"], free_regions_bytes=50 * MB), ["bins", "valkey-cli CONFIG SET activedefrag yes"]
    ),
    "steps, fragmented": Case(steps(codes.FREE_REGIONS), ["bins"]),
    "steps, leak": Case(steps(codes.IN_USE), ["chunks --histogram", "chunks --status used --sort size", "MALLOC_CONF=prof:true"]),
    "steps, a leak that is profiled": Case(steps(codes.IN_USE, state=conditions(prof=True)), ["chunks --histogram", "chunks --status used --sort size", "profile -o heap.prof"]),
}

# ---------------------------------------------------------------------------------------------------- memory


def large(kind: str, size: int = 90, **more: Any) -> Callable[[], Iterable[Finding]]:
    """So many MiB of 100 are of that kind."""
    rest = [part(kinds.ALLOCATOR, 10 * MB)] if size == 90 else [part(kinds.ALLOCATOR, 30 * MB), part(kinds.STACK, 30 * MB)]

    def say() -> Iterable[Finding]:
        found = memory_verdict.judge_memory(split([*rest, part(kind, size * MB, **more)]))
        return found[0].lines if found else []

    return say


def mostly(kind: str, words: str, **more: Any) -> Case:
    return Case(large(kind, **more), [codes.MOSTLY + kind], ["90.0 MiB of 100.0 MiB (90 %) are " + words, "malloc holds 10.0 MiB (10 %)"])


def lost(lost_bytes: Any, is_open: bool = False, *parts: Any) -> Callable[[], Iterable[Finding]]:
    """Of a core that lacks so much."""

    def say() -> Iterable[Finding]:
        found = memory_verdict.judge_memory(split(parts or [part(kinds.ALLOCATOR, 60 * MB)]), lost_bytes, is_open)
        return found[0].lines if found else []

    return say


IN_USE = verdict.usual_verdict(100 * MB, 90 * MB, 100 * MB)


def leaked(judged: verdict.HeapVerdict = IN_USE, **fields: Any) -> Callable[[], Iterable[Finding]]:
    """What is said of 90 MiB in use, 28 of them leaked."""
    found = inside.InsideAnswer(NativeSum(9, 90 * MB), NativeSum(3, 28 * MB), None, ())._replace(**fields)
    return lambda: inside.with_leaked(judged, found).lines


def judged(whole: Any) -> Iterable[Finding]:
    found = memory_verdict.judge_memory(whole)
    return found[0].lines if found else []


UNJOINED = EndedThreads(4000, 31 * MB, 5000 * MB, 0, 0, [ThreadStart("work in app", 3000), ThreadStart("app+0x1189", 9)])
MEMORY = {
    "leaked": Case(leaked(absent_bytes=64 * MB), [codes.LEAKED, codes.IN_USE], ["28.0 MiB of 90.0 MiB in use (31 %) that nothing points to", "3 blocks"]),
    "leaked-absent": Case(leaked(absent_bytes=65 * MB), [codes.LEAKED, codes.IN_USE], ["that nothing points to, at least 3.0 MiB of it not in memory"]),
    "leaked at most": Case(leaked(leaked_is_upper_bound=True), [codes.IN_USE], ["at most 28.0 MiB of 90.0 MiB in use (31 %) are leaked", "was not read"]),
    "not looked at": Case(lambda: inside.with_leaked(IN_USE, None).lines, [codes.IN_USE], ["gdbheapx leaks shows whether some are leaked"]),
    "garbage in cycles": Case(leaked(leaked=None, garbage=SimpleNamespace(bytes=20 * MB, runtime="CPython")), [codes.IN_USE, codes.COLLECTOR_CYCLES], ["20.0 MiB of 90.0 MiB in use (22 %) are CPython objects in cycles"]),
    "garbage": Case(leaked(may_be_garbage=True), [codes.IN_USE], ["part of that may be garbage"]),
    "little is leaked": Case(leaked(leaked=NativeSum(3, 4 * MB)), [codes.IN_USE], ["normal unless it keeps growing"]),
    "leaked, and much is free": Case(leaked(verdict.usual_verdict(200 * MB, 90 * MB, 200 * MB)), [codes.LEAKED, codes.FREED_AND_HELD]),
    "a core that is cut": Case(lost(80 * MB), [codes.EVIDENCE_MISSING], ["the core is truncated; 80.0 MiB (57 %) are missing", "60.0 MiB were read", CUT_HINT]),
    "a core that lacks nobody knows how much": Case(lost(None), [codes.EVIDENCE_MISSING], ["it is unknown how much is missing"]),
    "a core that lacks little": Case(lost(8 * MB), []),
    "malloc may have more": Case(lost(0, True, part(kinds.ANONYMOUS, 60 * MB), part(kinds.ALLOCATOR, MB)), [codes.EVIDENCE_MISSING], ["memory of unknown owner may belong to it"]),
    "stacks": mostly(kinds.STACK, "thread stacks"),
    "code": mostly(kinds.JIT, "generated code"),
    "bss": mostly(kinds.BSS, "bss"),
    "break": mostly(kinds.BRK, "program break ([heap]) without blocks of a known allocator"),
    "named": mostly(kinds.NAMED, "memory that the program has named"),
    "anonymous": mostly(kinds.ANONYMOUS, "anonymous memory of unknown owner"),
    "shared": mostly(kinds.SHARED, "shared memory"),
    "shared, of a program": mostly(kinds.SHARED, "shared memory of PostgreSQL", program="PostgreSQL"),
    "copied": mostly(kinds.COPIED, "private copies of file pages"),
    "locked": mostly(kinds.LOCKED, "locked pages of mapped files"),
    "cache": mostly(kinds.CACHE, "page cache of mapped files"),
    "device": mostly(kinds.DEVICE, "memory of a device or a driver"),
    "kernel": mostly(kinds.KERNEL, "pages of the kernel"),
    "hugetlb": mostly(kinds.HUGETLB, "huge pages of hugetlbfs"),
    "runtime": mostly(kinds.RUNTIME, "Java's (the JVM)", program="JVM"),
    "guessed": mostly(kinds.RUNTIME, "GCC's own memory", program="GCC", sure="guess"),
    "less than half": Case(large(kinds.COPIED, 40), [codes.MOSTLY + kinds.COPIED], ["40.0 MiB of 100.0 MiB (40 %) are private copies of file pages"]),
    "beside malloc": Case(
        lambda: memory_verdict.find_beside(split([part(kinds.ALLOCATOR, 60 * MB), part(kinds.RUNTIME, 40 * MB, program="Go", name="Go: heap", mappings=3)])),
        [codes.BESIDE_MALLOC],
        ["40.0 MiB of 100.0 MiB (40 %); 40.0 MiB in Go: heap, 3 mappings"],
    ),
    "stacks that were deeper": Case(
        lambda: memory_verdict.find_memory_findings(split([part(kinds.STACK, 60 * MB)], thread_stacks=ThreadStacks(30, 30, 240 * MB, 60 * MB, MB, 59 * MB, []))),
        [codes.DEEPER_STACKS],
        ["60.0 MiB touched by 30 threads, 1.0 MiB in use now", "until each thread ends"],
    ),
    "threads that nobody joined": Case(
        lambda: memory_verdict.find_memory_findings(split([part(kinds.STACK, 40 * MB)], ended_threads=UNJOINED)),
        [codes.NEVER_JOINED],
        ["4,000 threads ended and were never joined", "their stacks take 31.0 MiB of RAM and 4.9 GiB of address space; 3,000 ran work in app; 9 ran app+0x1189", "pthread_join"],
    ),
    "most of the memory is theirs": Case(
        lambda: judged(split([part(kinds.ALLOCATOR, MB), part(kinds.STACK, 40 * MB, name="stacks of threads that ended")], ended_threads=UNJOINED, stack_bytes=40 * MB)),
        [codes.MOSTLY + kinds.STACK],
        ["are stacks of threads that ended"],
    ),
    "stacks in huge pages": Case(
        lambda: memory_verdict.find_memory_findings(split([part(kinds.STACK, 120 * MB, huge_bytes=120 * MB)])),
        [codes.HUGE_STACKS],
        ["120.0 MiB of 120.0 MiB", "PR_SET_THP_DISABLE"],
    ),
    "stacks of zeros in a core": Case(
        lambda: memory_verdict.find_memory_findings(
            split([part(kinds.STACK, 0, dumped_bytes=120 * MB)], measure="dumped", thread_stacks=ThreadStacks(60, 60, 120 * MB, MB, MB, 0, []))
        ),
        [codes.HUGE_STACKS],
        ["most likely", "119.0 MiB of 120.0 MiB are pages of zeros", "PR_SET_THP_DISABLE"],
    ),
    "given to MADV_FREE": Case(
        lambda: memory_verdict.find_memory_findings(split([part(kinds.ANONYMOUS, 200 * MB, droppable_bytes=150 * MB), part(kinds.CACHE, MB, droppable_bytes=MB)])),
        [codes.LAZY_FREE],
        ["150.0 MiB of 201.0 MiB, most of it in anonymous"],
    ),
    "most of the memory was given to MADV_FREE": Case(
        large(kinds.ANONYMOUS, droppable_bytes=60 * MB), [codes.MOSTLY + kinds.ANONYMOUS], ["60.0 MiB of it freed with MADV_FREE; malloc"]
    ),
    "libraries that are gone": Case(
        lambda: memory_verdict.find_unloaded_findings(SimpleNamespace(kept=lambda *_: 40), NativeSum(90000, 130 * MB), NativeSum(80040, 124 * MB)),  # type: ignore[arg-type]
        [codes.UNLOADED],
        ["40 libraries were loaded and unloaded", "124.0 MiB in 80,040 blocks"],
    ),
    "copies of the parent's pages": Case(
        lambda: memory_split.find_copied_pages(SimpleNamespace(), split([part(kinds.ANONYMOUS, 60 * MB)], parent_pages=ParentPages(4711, 40 * MB, 30 * MB, 128, 90, 6, 4))),  # type: ignore[arg-type]
        [codes.COPIED_ON_WRITE],
        ["process 4711", "about 30.0 MiB of 40.0 MiB", "90 of 128 compared pages equal the parent's, 6 differ in few words", "whichever of the two"],
    ),
    "too few libraries": Case(lambda: memory_verdict.find_unloaded_findings(SimpleNamespace(kept=lambda *_: 1), NativeSum(9, 130 * MB), NativeSum(8, 124 * MB)), []),  # type: ignore[arg-type]
    "shared pages": Case(
        lambda: memory_verdict.find_memory_findings(split([part(kinds.SHARED, 100 * MB, shared_bytes=90 * MB)], pss=30 * MB)),
        [codes.SHARED_PAGES],
        ["90.0 MiB of RSS 100.0 MiB, not counting page cache; PSS 30.0 MiB"],
    ),
}


def pinned(*words: str, **fields: Any) -> Case:
    """1,204 blocks of 80 bytes that keep nearly all."""
    found = pins_kept(pin_group(512 * MB, 1204, 80, alone_bytes=500 * MB, **fields), pin_group(MB))
    return Case(lambda: [one for one in [pins.pins_finding(found)] if one is not None], [codes.PINNED], ["1,204 blocks (94.1 KiB", "500.0 MiB", *words])


PINNED = {
    "named": pinned("Entry, held by g_index in app) keep 512.0 MiB", signature="Entry", sure="exact", owner="g_index in app"),
    "by who points there": pinned("pointed to by Session+0x18, held by several owners", signature="Session+0x18", sure="place", owner="several"),
    "not named": pinned("of 80 bytes each, leaked)", owner="leaked"),
    "cached": pinned("in thread caches)", status="cached"),
}

ALL: Dict[Tuple[str, str], Case] = {
    (about, name): case
    for about, cases in (("any", ANY), ("glibc", GLIBC), ("given back", GIVEN_BACK), ("jemalloc", JEMALLOC), ("memory", MEMORY), ("pinned", PINNED))
    for name, case in cases.items()
}


@pytest.mark.parametrize("about, name", sorted(ALL))
def test_a_sentence_is_whole(about: str, name: str) -> None:
    """These figures give these codes, in this order, and sentences in which every figure has its place."""
    check_case(ALL[about, name])


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.split(".")[-1])
def test_no_sentence_is_left_out(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call of Finding and of Step in the modules of the verdicts is made by a case above."""
    names = ("Finding",) if module is memory_verdict else ("Finding", "StepSentence")  # its steps are no part of a verdict
    assert not unsaid(module, list(ALL.values()), monkeypatch, names)


@pytest.mark.parametrize("kind", sorted(memory_verdict._WHAT))
def test_every_kind_of_memory_has_its_words(kind: str) -> None:
    """A verdict on it is among the cases."""
    assert any(list(case.codes) == [codes.MOSTLY + kind] for case in MEMORY.values())


OUTSIDE = {codes.OWNER_UNREAD, codes.NO_ALLOCATOR, codes.UNCOLLECTED, codes.ABANDONED_PAGES}
"""Said by the overview, which needs a session: test_jemalloc_report.py and test_verdict_kinds.py; of the add-on's allocators by their own tests."""


def test_every_code_is_said() -> None:
    """No code of a verdict or a finding is without a case."""
    known = {value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)} - {codes.MOSTLY} - OUTSIDE
    assert known == {code for case in ALL.values() for code in case.codes if code in known}


def test_what_is_half_or_less_is_not_called_most() -> None:
    """Neither thread caches with less than half of what jemalloc holds, nor muzzy pages that are half of the unused ones."""
    details = [line.details for case in ({"cached_bytes": 9 * MB}, {"dirty_bytes": 10 * MB, "muzzy_bytes": 10 * MB}) for line in on_jemalloc(used_bytes=11 * MB, **case)()[:1]]
    assert len(details) == 2 and not any("most of" in str(one) for one in details)


def test_a_verdict_is_said_by_its_first_line() -> None:
    """Code and evidence are those of that line."""
    judged = glibc_verdict.verdict_on(glibc(cached_bytes=20 * MB))
    assert (judged.code, judged.evidence) == (judged.lines[0].code, judged.lines[0].evidence) and judged.kind == verdict.KEPT
