"""Is it a leak, or is glibc's malloc holding it: one verdict with its evidence. Figures in, sentences out."""

from typing import List, NamedTuple, Optional, Sequence

from gdbheapx import findings as codes
from gdbheapx.allocators import huge_pages
from gdbheapx.allocators.records import Judged, Surroundings
from gdbheapx.columns import add
from gdbheapx.glibc.facts import GlibcFacts
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.glibc.words import findings
from gdbheapx.model import Finding, Step
from gdbheapx.units import Said, Size, say, share
from gdbheapx.verdict import FRAGMENTED, HOARDING, SMALL, SMALL_BYTES, Verdict, of_lines, usual

DEFAULT_TRIM_THRESHOLD = 128 << 10


class Figures(NamedTuple):
    """The sums that the verdict rests on."""

    system_bytes: int
    """Taken from the kernel by arenas, and mapped chunks."""
    used_bytes: int
    """In use by the program: used chunks and mapped chunks."""
    cached_bytes: Optional[int]
    """In thread caches."""
    free_bytes: int
    """Bins, fastbins, tops."""
    top_bytes: int
    thread_tops_bytes: int
    """Of them in the tops of arenas that are not the main one."""
    thread_tops: int
    """How many these are."""
    reclaimable_bytes: int
    reclaimable_resident_bytes: Optional[int]
    returned_resident_bytes: Optional[int]
    """In RAM although arenas gave it back or never used it; None where that is not known."""
    returned_huge_bytes: Optional[int]
    """Those of them that are parts of huge pages."""
    arenas: int
    threads: int
    trim_threshold_bytes: Optional[int]
    """mp_.trim_threshold where it is no longer the default."""


def judge(facts: Sequence[GlibcFacts], around: Surroundings) -> List[Judged]:
    """All copies of glibc's malloc together: it is one to whoever asks where the memory is."""
    rows = [row for one in facts for row in one.arenas]
    found = figures(facts, rows, around.threads)
    cure = huge_pages_cure(any(one.asks_for_huge_pages for one in facts))
    what = "beyond the ends of heaps"
    kept = huge_pages.Returned("malloc", None, found.returned_resident_bytes, found.returned_huge_bytes, what, cure)
    returned = huge_pages.judge(kept, around.huge_pages)
    judged = verdict_on(found, returned)
    steps = [*huge_pages.against(judged, returned), *findings.next_steps(judged.kind)]
    ids = [one.info.id for one in facts]
    held = found.system_bytes + (found.returned_resident_bytes or 0)
    return [Judged(ids[0], ids, held, judged, findings.findings(rows), steps)]


def huge_pages_cure(asks_for_them: bool) -> Optional[Step]:
    """It uses huge pages of its own accord only where glibc.malloc.hugetlb says so."""
    return (
        Step("GLIBC_TUNABLES=glibc.malloc.hugetlb=0", "at the next start stops malloc from asking for huge pages, as it does now")
        if asks_for_them
        else None
    )


def figures(facts: Sequence[GlibcFacts], rows: Sequence[ArenaTotals], threads: int) -> Figures:
    """The sums over all copies; mapped chunks are memory in use."""
    totals = [one.totals for one in facts]

    def total(*names: str) -> int:
        return sum(sums[name] or 0 for sums in totals for name in names)

    thresholds = [one.trim_threshold_bytes for one in facts]
    raised = [value for value in thresholds if value is not None and value > DEFAULT_TRIM_THRESHOLD]
    system = total("mmapped_bytes") + sum(row.held_bytes for row in rows)
    return Figures(
        system_bytes=system,
        used_bytes=total("used_bytes", "mmapped_bytes"),
        cached_bytes=add(sums["tcache_bytes"] for sums in totals),
        free_bytes=total("free_bytes", "fast_bytes", "top_bytes"),
        top_bytes=total("top_bytes"),
        thread_tops_bytes=sum(row.top_bytes or 0 for row in rows if row.kind != "main"),
        thread_tops=sum(1 for row in rows if row.kind != "main" and row.top_bytes),
        reclaimable_bytes=sum(row.reclaimable_bytes or 0 for row in rows),
        reclaimable_resident_bytes=add(sums["reclaimable_resident_bytes"] for sums in totals),
        returned_resident_bytes=add(sums["free_returned_resident_bytes"] for sums in totals),
        returned_huge_bytes=add(sums["free_returned_huge_bytes"] for sums in totals),
        arenas=total("arenas"),
        threads=threads,
        trim_threshold_bytes=raised[0] if raised else None,
    )


def verdict_on(figures: Figures, returned: Optional[huge_pages.Judged] = None) -> Verdict:
    """The verdict, then what else stands out; `returned`: on what it gave back and is in RAM."""
    gone = _not_in_ram(figures)
    kind, lines = usual(figures.system_bytes - gone, figures.used_bytes, figures.free_bytes - gone, _trim_hint(figures))
    if gone > SMALL_BYTES:
        lines[0] = lines[0]._replace(evidence=say("%s; %s more are free and not in RAM", lines[0].evidence or "", Size(gone)))
    if kind == HOARDING and 2 * _between(figures) > figures.free_bytes - gone:
        kind = FRAGMENTED
        what = "fragmented: free memory lies between blocks in use, which keep it"
        lines = [lines[0]._replace(what=what, code=codes.FREE_BETWEEN)]
    if kind != SMALL:
        lines += _side_lines(figures)
    held = figures.system_bytes + (figures.returned_resident_bytes or 0)
    return huge_pages.verdict(returned, figures.returned_resident_bytes, held, of_lines(kind, lines))


def _not_in_ram(figures: Figures) -> int:
    """Free pages that are address space only, if nearly all that a trim takes are: after one they are no reason for another."""
    resident = figures.reclaimable_resident_bytes
    if resident is None or 10 * resident > figures.reclaimable_bytes:
        return 0
    return figures.reclaimable_bytes - resident


def _between(figures: Figures) -> int:
    """What is free below the tops and not in whole pages."""
    return max(0, figures.free_bytes - figures.top_bytes - figures.reclaimable_bytes)


def _trim_hint(figures: Figures) -> Said:
    resident = figures.reclaimable_resident_bytes
    in_ram = "" if resident is None else say(", %s of it in RAM now", Size(resident))
    return say("malloc_trim(0) would return %s to the OS%s", Size(figures.reclaimable_bytes), in_ram)


def _side_lines(figures: Figures) -> List[Finding]:
    lines = []
    system, free = figures.system_bytes, figures.free_bytes
    if free > 16 * SMALL_BYTES and 4 * figures.reclaimable_bytes < free:
        lines.append(
            Finding(
                "free memory is in small pieces",
                say("only %s of %s free are whole pages that trim can return", Size(figures.reclaimable_bytes), Size(free)),
                "used chunks in between pin it (`gdbheapx pins` shows which): fewer arenas or another allocator help, trim does not",
                codes.SMALL_PIECES,
            )
        )
    if figures.cached_bytes is not None and 10 * figures.cached_bytes > system:
        lines.append(
            Finding(
                "much memory is in thread caches",
                say("%s (%s of the heap)", Size(figures.cached_bytes), share(figures.cached_bytes, system)),
                "malloc_trim cannot reach it; to disable thread caches, restart with GLIBC_TUNABLES=glibc.malloc.tcache_count=0",
                codes.THREAD_CACHES,
            )
        )
    main_top = figures.top_bytes - figures.thread_tops_bytes
    if figures.trim_threshold_bytes is not None and main_top > 16 * SMALL_BYTES:
        lines.append(
            Finding(
                "malloc keeps a large top",
                say(
                    "top holds %s; freeing mapped chunks has raised trim_threshold to %s",
                    Size(main_top),
                    Size(figures.trim_threshold_bytes),
                ),
                "to keep it small, restart with MALLOC_TRIM_THRESHOLD_=131072",
                codes.MAIN_TOP,
            )
        )
    lines += _thread_tops(figures)
    if figures.arenas > 4 and 2 * free >= system:
        lines.append(
            Finding(
                "free memory is spread over many arenas",
                "%d arenas for %d threads" % (figures.arenas, figures.threads),
                "to keep it in fewer arenas, restart with MALLOC_ARENA_MAX=2",
                codes.MANY_ARENAS,
            )
        )
    return lines


def _thread_tops(figures: Figures) -> List[Finding]:
    """Free memory that no trim reaches: mtrim gives back a thread arena's free chunks and never its top (malloc.c: mtrim, heap_trim)."""
    tops = figures.thread_tops_bytes
    if tops < SMALL_BYTES or (tops <= 16 * SMALL_BYTES and 4 * tops < figures.free_bytes):
        return []
    threshold = figures.trim_threshold_bytes or DEFAULT_TRIM_THRESHOLD
    evidence = say("%s in %d tops, %s of all free memory", Size(tops), figures.thread_tops, share(tops, figures.free_bytes))
    hint = say(
        "malloc_trim never returns these to the OS; free() does, if the arena's top exceeds trim_threshold (%s) at that moment",
        Size(threshold),
    )
    return [Finding("free memory is in the tops of thread arenas", evidence, hint, codes.THREAD_TOPS)]
