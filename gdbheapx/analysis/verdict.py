"""Is it a leak, or is the allocator holding it: one verdict with its evidence, and what to do next. Figures in, sentences out."""

from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.analysis.split import Split
from gdbheapx.model import Finding

NOT_MALLOC = "not-malloc"
LEAK_LIKE = "leak-like"
HOARDING = "hoarding"
MIXED = "mixed"
SMALL = "small"

SMALL_BYTES = 1 << 20
"""Below this a heap is not worth a verdict."""


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
    reclaimable_bytes: int
    reclaimable_resident_bytes: Optional[int]
    arenas: int
    threads: int
    trim_threshold_bytes: Optional[int]
    """mp_.trim_threshold where it is no longer the default."""


class Verdict(NamedTuple):
    """The answer."""

    kind: str
    lines: Sequence[Finding]


def human(size_bytes: Optional[int]) -> str:
    """A size for a sentence."""
    if size_bytes is None:
        return "an unknown amount"
    value = float(size_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return "%d bytes" % size_bytes if unit == "bytes" else "%.1f %s" % (value, unit)
        value /= 1024
    return str(size_bytes)


def percent(part: int, whole: int) -> str:
    """A share for a sentence."""
    return "%.0f %%" % (100.0 * part / whole) if whole else "0 %"


def judge(figures: Figures, split: Optional[Split]) -> Verdict:
    """The verdict, then what else stands out."""
    lines: List[Finding] = []
    kind = _main_line(figures, split, lines)
    if kind != SMALL:
        lines += _side_lines(figures)
    return Verdict(kind, lines)


def _main_line(figures: Figures, split: Optional[Split], lines: List[Finding]) -> str:
    system, used, free = figures.system_bytes, figures.used_bytes, figures.free_bytes
    if split is not None and split.total_bytes > 16 * SMALL_BYTES and 2 * split.allocator_bytes < split.total_bytes:
        evidence = "%s of %s %s (%s) lie outside malloc" % (
            human(split.total_bytes - split.allocator_bytes),
            human(split.total_bytes),
            split.measure,
            percent(split.total_bytes - split.allocator_bytes, split.total_bytes),
        )
        where = "largest: %s, %s" % (split.largest[0].name, human(split.largest[0].bytes)) if split.largest else ""
        lines.append(Finding("most of the memory is not malloc's", evidence, where or None))
        return NOT_MALLOC
    if system < SMALL_BYTES:
        lines.append(Finding("the heap is small", "%s taken from the kernel" % human(system), None))
        return SMALL
    evidence = "%s of %s (%s) are in use by the program, %s (%s) are free in the allocator" % (
        human(used),
        human(system),
        percent(used, system),
        human(free),
        percent(free, system),
    )
    if used >= 0.8 * system:
        hint = "look at what is in use: heapx chunks --histogram; compare two moments to see which sizes grow"
        lines.append(Finding("leak-like: the program itself holds the memory", evidence, hint))
        return LEAK_LIKE
    if 2 * free >= system or (free > 64 * SMALL_BYTES and 3 * free >= system):
        lines.append(Finding("hoarding: the allocator holds memory that the program has freed", evidence, _trim_hint(figures)))
        return HOARDING
    lines.append(Finding("mixed: part is in use, part is held by the allocator", evidence, _trim_hint(figures)))
    return MIXED


def _trim_hint(figures: Figures) -> str:
    back = figures.reclaimable_bytes
    resident = figures.reclaimable_resident_bytes
    in_ram = "" if resident is None else ", %s of it in RAM now" % human(resident)
    return "malloc_trim(0) would give back %s%s" % (human(back), in_ram)


def _side_lines(figures: Figures) -> List[Finding]:
    lines = []
    system, free = figures.system_bytes, figures.free_bytes
    if free > 16 * SMALL_BYTES and 4 * figures.reclaimable_bytes < free:
        lines.append(
            Finding(
                "free memory is in small pieces",
                "only %s of %s free are whole pages that trim can return" % (human(figures.reclaimable_bytes), human(free)),
                "the used chunks between them pin it: fewer arenas or another allocator help, trim does not",
            )
        )
    if figures.cached_bytes is not None and 10 * figures.cached_bytes > system:
        lines.append(
            Finding(
                "much memory sits in thread caches",
                "%s (%s of the heap)" % (human(figures.cached_bytes), percent(figures.cached_bytes, system)),
                "malloc_trim cannot reach it; start with GLIBC_TUNABLES=glibc.malloc.tcache_count=0 to do without",
            )
        )
    if figures.trim_threshold_bytes is not None and figures.top_bytes > 16 * SMALL_BYTES:
        lines.append(
            Finding(
                "a large top is kept",
                "top holds %s; freeing mapped chunks has raised trim_threshold to %s" % (human(figures.top_bytes), human(figures.trim_threshold_bytes)),
                "MALLOC_TRIM_THRESHOLD_=131072 at the next start keeps it small",
            )
        )
    if figures.arenas > 4 and 2 * free >= system:
        lines.append(
            Finding(
                "free memory is spread over many arenas",
                "%d arenas for %d threads" % (figures.arenas, figures.threads),
                "MALLOC_ARENA_MAX=2 at the next start keeps it in fewer places",
            )
        )
    return lines
