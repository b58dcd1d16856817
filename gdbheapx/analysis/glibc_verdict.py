"""Is it a leak, or is glibc's malloc holding it: one verdict with its evidence. Figures in, sentences out."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from gdbheapx.analysis import codes, huge_pages
from gdbheapx.analysis.sums import add
from gdbheapx.analysis.verdict import HOARDING, LEAK_LIKE, MIXED, SMALL, SMALL_BYTES, Verdict, human, of_lines, percent
from gdbheapx.model import ArenaTotals, Finding

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


def _system_of(row: ArenaTotals) -> int:
    """What an arena took from the kernel; where that is lost, what is known to lie in it."""
    if row.system_bytes is not None:
        return row.system_bytes
    return sum(part or 0 for part in (row.used_bytes, row.tcache_bytes, row.fast_bytes, row.free_bytes, row.top_bytes, row.overhead_bytes))


def figures(mallocs: Sequence[Any], totals: Sequence[Dict[str, Optional[int]]], rows: Sequence[ArenaTotals], threads: int) -> Figures:
    """The sums over all copies of glibc's malloc; mapped chunks are memory in use."""

    def total(*names: str) -> int:
        return sum(sums[name] or 0 for sums in totals for name in names)

    thresholds = [malloc.trim_threshold_bytes() for malloc in mallocs]
    raised = [value for value in thresholds if value is not None and value > DEFAULT_TRIM_THRESHOLD]
    system = total("mmapped_bytes") + sum(_system_of(row) for row in rows)
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


def judge(figures: Figures, returned: Optional[huge_pages.Judged] = None) -> Verdict:
    """The verdict on glibc's malloc, then what else stands out; `returned`: on what it gave back and is in RAM."""
    lines: List[Finding] = []
    kind = _main_line(figures, lines)
    if kind != SMALL:
        lines += _side_lines(figures)
    held = figures.system_bytes + (figures.returned_resident_bytes or 0)
    return huge_pages.verdict(returned, figures.returned_resident_bytes, held, of_lines(kind, lines))


def _main_line(figures: Figures, lines: List[Finding]) -> str:
    system, used, free = figures.system_bytes, figures.used_bytes, figures.free_bytes
    if system < SMALL_BYTES:
        lines.append(Finding("the heap is small", "%s requested from the kernel" % human(system), None, codes.SMALL_HEAP))
        return SMALL
    evidence = "%s of %s (%s) are in use by the program, %s (%s) are free in the allocator" % (
        human(used),
        human(system),
        percent(used, system),
        human(free),
        percent(free, system),
    )
    if used >= 0.8 * system:
        hint = "see what is in use: heapx chunks --histogram; run it twice, some time apart, to see which sizes grow"
        lines.append(Finding("leak-like: the program itself holds the memory", evidence, hint, codes.IN_USE))
        return LEAK_LIKE
    if 2 * free >= system or (free > 64 * SMALL_BYTES and 3 * free >= system):
        lines.append(Finding("hoarding: the allocator holds memory that the program has freed", evidence, _trim_hint(figures), codes.FREED_AND_HELD))
        return HOARDING
    lines.append(Finding("mixed: part is in use, part is held by the allocator", evidence, _trim_hint(figures), codes.PART_HELD))
    return MIXED


def _trim_hint(figures: Figures) -> str:
    back = figures.reclaimable_bytes
    resident = figures.reclaimable_resident_bytes
    in_ram = "" if resident is None else ", %s of it in RAM now" % human(resident)
    return "malloc_trim(0) would return %s to the OS%s" % (human(back), in_ram)


def _side_lines(figures: Figures) -> List[Finding]:
    lines = []
    system, free = figures.system_bytes, figures.free_bytes
    if free > 16 * SMALL_BYTES and 4 * figures.reclaimable_bytes < free:
        lines.append(
            Finding(
                "free memory is in small pieces",
                "only %s of %s free are whole pages that trim can return" % (human(figures.reclaimable_bytes), human(free)),
                "used chunks in between pin it: fewer arenas or another allocator help, trim does not",
                codes.SMALL_PIECES,
            )
        )
    if figures.cached_bytes is not None and 10 * figures.cached_bytes > system:
        lines.append(
            Finding(
                "much memory is in thread caches",
                "%s (%s of the heap)" % (human(figures.cached_bytes), percent(figures.cached_bytes, system)),
                "malloc_trim cannot reach it; to disable thread caches, restart with GLIBC_TUNABLES=glibc.malloc.tcache_count=0",
                codes.THREAD_CACHES,
            )
        )
    main_top = figures.top_bytes - figures.thread_tops_bytes
    if figures.trim_threshold_bytes is not None and main_top > 16 * SMALL_BYTES:
        lines.append(
            Finding(
                "malloc keeps a large top",
                "top holds %s; freeing mapped chunks has raised trim_threshold to %s" % (human(main_top), human(figures.trim_threshold_bytes)),
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
    evidence = "%s in %d tops, %s of all free memory" % (human(tops), figures.thread_tops, percent(tops, figures.free_bytes))
    hint = "malloc_trim never returns these to the OS; free() does, if the arena's top exceeds trim_threshold (%s) at that moment" % human(threshold)
    return [Finding("free memory is in the tops of thread arenas", evidence, hint, codes.THREAD_TOPS)]
