"""The overview of one target: split, totals, verdict, size classes, findings, next steps. What `report` shows."""

from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence

from gdbheapx.analysis import runtimes, verdict
from gdbheapx.analysis.split import Split, split
from gdbheapx.analysis.sums import add, arena_sums
from gdbheapx.model import AllocatorInfo, ArenaTotals, Claim, Finding, HistogramRow, MmappedTotals
from gdbheapx.target.base import Target

TOP_CLASSES = 5
DEFAULT_TRIM_THRESHOLD = 128 << 10


class Malloc(Protocol):
    """What the overview asks of an allocator."""

    @property
    def info(self) -> AllocatorInfo: ...

    def arenas(self) -> List[ArenaTotals]: ...

    def mmapped_totals(self) -> MmappedTotals: ...

    def claims(self) -> List[Claim]: ...

    def histogram(self) -> List[HistogramRow]: ...

    def trim_threshold_bytes(self) -> Optional[int]: ...


class Looked(Protocol):
    """What the overview asks of a session."""

    @property
    def target(self) -> Target: ...

    @property
    def kernel(self) -> Any: ...

    def mallocs(self) -> Sequence[Malloc]: ...

    def foreign_owner(self) -> Any: ...


class Overview(NamedTuple):
    """What `report` shows."""

    split: Optional[Split]
    verdict: verdict.Verdict
    totals: Dict[str, Dict[str, Optional[int]]]
    """By allocator id."""
    arenas: Sequence[ArenaTotals]
    """All; text shows the biggest."""
    size_classes: Sequence[HistogramRow]
    """Those that hold most used bytes, largest first."""
    findings: Sequence[Finding]
    next_steps: Sequence[str]


def overview(session: Looked) -> Overview:
    """Everything at once: the chunks of every arena are walked one time."""
    target, mallocs = session.target, session.mallocs()
    rows = [row for malloc in mallocs for row in malloc.arenas()]
    mapped = {malloc.info.id: malloc.mmapped_totals() for malloc in mallocs}
    totals = {name: arena_sums([row for row in rows if row.allocator == name], found) for name, found in mapped.items()}
    claims = [claim for malloc in mallocs for claim in malloc.claims()]
    found = split(target, session.kernel, claims)
    classes = sorted((row for malloc in mallocs for row in malloc.histogram()), key=lambda row: -row.used_bytes)
    figures = _figures(mallocs, list(totals.values()), rows, len(target.threads()))
    judged = verdict.judge(figures, found)
    findings = _findings(session, rows)
    steps = _next_steps(judged.kind, target, session.foreign_owner() is not None)
    return Overview(found, judged, totals, rows, [row for row in classes[:TOP_CLASSES] if row.used_bytes], findings, steps)


def _system_of(row: ArenaTotals) -> int:
    """What an arena took from the kernel; where that is lost, what is known to lie in it."""
    if row.system_bytes is not None:
        return row.system_bytes
    return sum(part or 0 for part in (row.used_bytes, row.tcache_bytes, row.fast_bytes, row.free_bytes, row.top_bytes, row.overhead_bytes))


def _figures(mallocs: Sequence[Malloc], totals: Sequence[Dict[str, Optional[int]]], rows: Sequence[ArenaTotals], threads: int) -> verdict.Figures:
    """The sums over all allocators; mapped chunks are memory in use."""

    def total(*names: str) -> int:
        return sum(sums[name] or 0 for sums in totals for name in names)

    thresholds = [malloc.trim_threshold_bytes() for malloc in mallocs]
    raised = [value for value in thresholds if value is not None and value > DEFAULT_TRIM_THRESHOLD]
    system = total("mmapped_bytes") + sum(_system_of(row) for row in rows)
    return verdict.Figures(
        system_bytes=system,
        used_bytes=total("used_bytes", "mmapped_bytes"),
        cached_bytes=add(sums["tcache_bytes"] for sums in totals),
        free_bytes=total("free_bytes", "fast_bytes", "top_bytes"),
        top_bytes=total("top_bytes"),
        reclaimable_bytes=sum(row.reclaimable_bytes or 0 for row in rows),
        reclaimable_resident_bytes=add(sums["reclaimable_resident_bytes"] for sums in totals),
        arenas=total("arenas"),
        threads=threads,
        trim_threshold_bytes=raised[0] if raised else None,
    )


def _findings(session: Looked, rows: Sequence[ArenaTotals]) -> List[Finding]:
    """What a reader must know before trusting or acting."""
    found = []
    owner = session.foreign_owner()
    if owner is not None:
        name = owner.allocator or "another allocator"
        found.append(Finding("malloc is not glibc's here", "the process calls %s in %s" % (name, owner.file), "the arenas below are not where its memory is"))
    locked = [row for row in rows if row.locked]
    if locked:
        what = "a thread is inside malloc: its arena may be in the middle of a change"
        found.append(Finding(what, "arena %s" % ", ".join(str(row.index) for row in locked), "look again if a figure seems odd"))
    damaged = [row for row in rows if row.unparsed_bytes]
    if damaged:
        found.append(Finding("part of the heap could not be read or is damaged", "arena %s" % ", ".join(str(row.index) for row in damaged), "see the problems below"))
    return found


def _next_steps(kind: str, target: Target, foreign: bool) -> List[str]:
    """Commands to type next."""
    if foreign:
        return ["use the statistics of the allocator that owns malloc"]
    steps = {
        verdict.NOT_MALLOC: ["look at the mappings named above; malloc is not where this memory is"],
        verdict.LEAK_LIKE: ["chunks --histogram shows which sizes are in use", "chunks --status used --sort size lists the largest"],
        verdict.HOARDING: ["trim --dry-run shows what malloc_trim would give back, arena by arena", "tunables shows the thresholds in force"],
        verdict.MIXED: ["chunks --histogram shows which sizes are in use", "trim --dry-run shows what malloc_trim would give back"],
        verdict.SMALL: ["if the process is large all the same, its memory is not in this heap"],
    }[kind]
    runtime = runtimes.hint(target.modules()) if kind == verdict.NOT_MALLOC else None
    if runtime is not None:
        return [runtime]
    if target.kind == "core" and kind in (verdict.HOARDING, verdict.MIXED):
        return [*steps, "on the live process the same commands also tell what is in RAM"]
    return steps
