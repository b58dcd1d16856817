"""The overview of one target: split, totals, verdict, size classes, findings, next steps. What `report` shows."""

from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from gdbheapx.analysis import (
    codes,
    glibc_findings,
    glibc_verdict,
    huge_pages,
    inner,
    jemalloc_findings,
    jemalloc_verdict,
    memory_verdict,
    runtimes,
    verdict,
)
from gdbheapx.analysis.split import Memory, Split, split
from gdbheapx.analysis.sums import allocator_sums
from gdbheapx.analysis.verdict import Verdict
from gdbheapx.budget import Budget
from gdbheapx.model import AllocatorInfo, Finding, HistogramRow, MemoryPart, NextStep, Step
from gdbheapx.problems import ZEROS_NOT_SOUGHT, Code
from gdbheapx.target.base import Target

TOP_CLASSES = 5


class Looked(Protocol):
    """What the overview asks of a session."""

    @property
    def target(self) -> Target: ...

    @property
    def kernel(self) -> Any: ...

    @property
    def budget(self) -> Budget: ...

    def report(self, code: Code, address: Optional[int], what: str, hint: Optional[str]) -> None: ...

    def mallocs(self) -> Sequence[Any]: ...

    def jemallocs(self) -> Any: ...

    def foreign_owner(self) -> Any: ...

    def inner_allocators(self) -> Any: ...


class Judged(NamedTuple):
    """One jemalloc, or all copies of glibc's malloc together."""

    allocator: str
    """Its id."""
    ids: Sequence[str]
    """Of all copies."""
    held_bytes: int
    verdict: Verdict
    parts: Sequence[jemalloc_verdict.Part]
    """What it holds, largest first; empty for glibc, whose arenas say it."""
    findings: Sequence[Finding]
    next_steps: Sequence[str]


class Overview(NamedTuple):
    """What `report` shows."""

    split: Optional[Sequence[MemoryPart]]
    """The memory by whose it is, largest first; None where the target does not tell (remote)."""
    memory: Optional[Memory]
    """The sums of the split."""
    verdict: Verdict
    """Whether it is malloc at all, and an allocator that is read here; if so that on the allocator that holds most."""
    verdicts: Dict[str, Verdict]
    """By allocator, the one that holds most first; those of glibc together as `glibc`."""
    held: Dict[str, Sequence[jemalloc_verdict.Part]]
    """By id of each jemalloc: the parts of what it holds."""
    totals: Dict[str, Dict[str, Optional[int]]]
    """By allocator id."""
    arenas: Sequence[Any]
    """All, in the allocators' order; text shows the biggest."""
    sizes: Sequence[HistogramRow]
    """The size classes that hold most used bytes, largest first."""
    size_classes: Sequence[HistogramRow]
    """The same, by the name that it had first."""
    findings: Sequence[Finding]
    next: Sequence[NextStep]
    next_steps: Sequence[str]
    """The same as sentences."""
    allocators: Sequence[AllocatorInfo]
    """The owner of malloc first, as in the envelope."""
    shown: Sequence[str]
    """Ids of the allocators that hold enough of the memory to be spoken of, as keys of `verdicts`."""


def overview(session: Looked) -> Overview:
    """Everything at once: each allocator is walked one time. There may be none."""
    target, mallocs, _ = session.target, session.mallocs(), session.inner_allocators()  # files are read in the rehearsal, not while the process stands still
    rows = {malloc.info.id: malloc.arenas() for malloc in mallocs}
    totals = {malloc.info.id: allocator_sums(malloc) for malloc in mallocs}
    found = split(target, session.kernel, {malloc.info.id: malloc.claims() for malloc in mallocs}, session.budget)
    if found is not None and found.zeros_until is not None:
        what = "the search for pages of zeros in the core ended here: %s" % session.budget.reason
        session.report(ZEROS_NOT_SOUGHT, found.zeros_until, what, "the split includes memory that was reserved and never used")
    classes = sorted((row for malloc in mallocs for row in malloc.histogram()), key=lambda row: -row.used_bytes)
    judged = _judged(target, mallocs, totals)
    shown = [one for one in judged if memory_verdict.matters(found, one.ids)]
    main, steps = _verdict(session, found, judged, shown)
    sizes = [row for row in classes[:TOP_CLASSES] if row.used_bytes]
    return Overview(
        split=found.parts if found is not None else None,
        memory=found.memory if found is not None else None,
        verdict=main,
        verdicts={one.allocator: one.verdict for one in judged},
        held={one.allocator: one.parts for one in judged if one.parts},
        totals=totals,
        arenas=[row for of_one in rows.values() for row in of_one],
        sizes=sizes,
        size_classes=sizes,
        findings=[*memory_verdict.findings(found), *(finding for one in judged for finding in one.findings)],
        next=[NextStep(step.command, step.why) if isinstance(step, Step) else NextStep(None, step) for step in steps],
        next_steps=[str(step) for step in steps],
        allocators=[malloc.info for malloc in mallocs],
        shown=[one.allocator for one in shown],
    )


def _verdict(session: Looked, found: Optional[Split], judged: Sequence[Judged], shown: Sequence[Judged]) -> Tuple[Verdict, Sequence[str]]:
    """What is large, or the allocator that holds most of it; and what to do next."""
    target, large = session.target, memory_verdict.judge(found)
    if large is None or large.may_be_mallocs:
        unread, steps = _unread(session, large.verdict.lines[0] if large is not None else None)
        if unread is not None:
            return verdict.of_lines(verdict.UNREAD, [unread]), steps
    if large is not None:
        lines = [*large.verdict.lines, *(line for one in shown for line in _beside(one.verdict))]
        inside = inner.steps(session.inner_allocators()) if large.may_be_mallocs else []
        steps = [*inside, *runtimes.steps(target, large.verdict.code, large.program)]
        return large.verdict._replace(lines=lines), [*steps, *(step for one in shown for step in one.next_steps)]
    if not judged:
        nothing = Finding("no allocator could be read", "cannot determine what is in use and what is free", None, codes.NO_ALLOCATOR)
        return verdict.of_lines(verdict.UNREAD, [nothing]), []
    main = judged[0].verdict
    return main._replace(lines=[*main.lines, *memory_verdict.beside(found)]), _steps(target, shown or judged)


def _judged(target: Target, mallocs: Sequence[Any], totals: Dict[str, Dict[str, Optional[int]]]) -> List[Judged]:
    """Each allocator by itself, the one that holds most first."""
    threads = len(target.threads())
    found = [_of_jemalloc(target, malloc) for malloc in mallocs if malloc.kind == "jemalloc"]
    glibcs = [malloc for malloc in mallocs if malloc.kind == "glibc"]
    if glibcs:
        rows = [row for malloc in glibcs for row in malloc.arenas()]
        figures = glibc_verdict.figures(glibcs, [totals[malloc.info.id] for malloc in glibcs], rows, threads)
        returned = _returned_by_glibc(target, glibcs, figures)
        judged = glibc_verdict.judge(figures, returned)
        steps = [*_against(judged, returned), *glibc_findings.next_steps(judged.kind)]
        ids = [malloc.info.id for malloc in glibcs]
        held = figures.system_bytes + (figures.returned_resident_bytes or 0)
        found.append(Judged(ids[0], ids, held, judged, (), glibc_findings.findings(rows), steps))
    return sorted(found, key=lambda one: -one.held_bytes)


def _of_jemalloc(target: Target, malloc: Any) -> Judged:
    rows, bins, state, tickers = malloc.arenas(), malloc.bins(), malloc.conditions(), malloc.tickers()
    figures = jemalloc_verdict.figures(rows, bins)
    cure = huge_pages.jemalloc_cure(state.names, state.thp)
    kept = huge_pages.Returned("jemalloc", figures.retained_bytes, figures.returned_resident_bytes, figures.returned_huge_bytes, "retained", cure)
    returned = huge_pages.judge(kept, target.huge_pages())
    judged = jemalloc_verdict.judge(figures, bins, state.names, returned)
    steps = jemalloc_findings.next_steps(judged.kind, figures, tickers, state, target.modules())
    lines = jemalloc_findings.findings(malloc.info.version, figures, rows, state, tickers)
    parts, name = jemalloc_verdict.parts(figures), malloc.info.id
    return Judged(name, (name,), figures.held_bytes, judged, parts, lines, [*_against(judged, returned), *steps])


def _against(judged: Verdict, returned: Optional[huge_pages.Judged]) -> Sequence[Step]:
    """What to do against huge pages, where they are the verdict."""
    return returned.steps if returned is not None and judged.kind == verdict.HUGE_PAGES else ()


def _returned_by_glibc(target: Target, mallocs: Sequence[Any], figures: glibc_verdict.Figures) -> Optional[huge_pages.Judged]:
    """On what lies behind the ends of heaps."""
    asks = any(malloc.asks_for_huge_pages() for malloc in mallocs)
    what = "beyond the ends of heaps"
    found = huge_pages.Returned("malloc", None, figures.returned_resident_bytes, figures.returned_huge_bytes, what, huge_pages.glibc_cure(asks))
    return huge_pages.judge(found, target.huge_pages())


def _beside(judged: Verdict) -> Sequence[Finding]:
    """What is said of an allocator that holds the smaller part."""
    return () if judged.kind == verdict.SMALL else judged.lines[:1]


def _unread(session: Looked, outside: Optional[Finding]) -> Tuple[Optional[Finding], Sequence[str]]:
    """What is said where an allocator that is not read here owns malloc, or may have what lies outside those that are; and what to do then."""
    owner = session.foreign_owner()
    if owner is None:
        unread = session.jemallocs().unread
        if outside is None or not unread:
            return None, []
        finding = Finding("no verdict: a jemalloc is present that gdbheapx cannot read, and it may own most of the memory", outside.evidence, unread[0].what, codes.ALLOCATOR_UNREAD)
        return finding, [one.hint for one in unread if one.hint] or ["doctor shows what is missing"]
    what = "no verdict: %s owns malloc, and gdbheapx cannot read it" % (owner.allocator or "another allocator")
    hint = "its memory is not in the arenas below; it counts as other anonymous mappings above" if session.mallocs() else None
    finding = Finding(what, "the process calls malloc in %s" % owner.file, hint, codes.OWNER_UNREAD)
    hints = [one.hint for one in session.jemallocs().unread if one.module.base == owner.module.base and one.hint]
    return finding, hints or [owner.hint or "use the statistics of the allocator that owns malloc"]


def _steps(target: Target, judged: Sequence[Judged]) -> List[str]:
    """Of the allocators that hold enough to be worth it."""
    steps: List[str] = []
    for one in judged:
        steps += [step for step in one.next_steps if step not in steps]
    if not steps:
        return ["if the process is still large, its memory is not in this heap"] if judged else ["doctor shows what was found and what is missing"]
    if target.kind == "core" and judged[0].verdict.kind in (verdict.HOARDING, verdict.MIXED):
        steps.append("on the live process the same commands also show what is in RAM")
    return steps
