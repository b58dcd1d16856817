"""The overview of one target: split, totals, verdict, size classes, findings, next steps. What `report` shows."""

from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence, Tuple

from gdbheapx.analysis import glibc_findings, glibc_verdict, jemalloc_findings, jemalloc_verdict, runtimes, verdict
from gdbheapx.analysis.split import Split, split
from gdbheapx.analysis.sums import allocator_sums
from gdbheapx.analysis.verdict import Verdict
from gdbheapx.model import AllocatorInfo, Finding, HistogramRow
from gdbheapx.target.base import Target

TOP_CLASSES = 5


class Looked(Protocol):
    """What the overview asks of a session."""

    @property
    def target(self) -> Target: ...

    @property
    def kernel(self) -> Any: ...

    def mallocs(self) -> Sequence[Any]: ...

    def jemallocs(self) -> Any: ...

    def foreign_owner(self) -> Any: ...


class Judged(NamedTuple):
    """One jemalloc, or all copies of glibc's malloc together."""

    allocator: str
    """Its id."""
    held_bytes: int
    verdict: Verdict
    parts: Sequence[jemalloc_verdict.Part]
    """What it holds, largest first; empty for glibc, whose arenas say it."""
    retained_bytes: Optional[int]
    """Address space that jemalloc keeps without memory behind it; None for glibc, which has none."""
    findings: Sequence[Finding]
    next_steps: Sequence[str]


class Overview(NamedTuple):
    """What `report` shows."""

    split: Optional[Split]
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
    size_classes: Sequence[HistogramRow]
    """Those that hold most used bytes, largest first."""
    findings: Sequence[Finding]
    next_steps: Sequence[str]
    allocators: Sequence[AllocatorInfo]
    """The owner of malloc first, as in the envelope."""


def overview(session: Looked) -> Overview:
    """Everything at once: each allocator is walked one time."""
    target, mallocs = session.target, session.mallocs()
    rows = {malloc.info.id: malloc.arenas() for malloc in mallocs}
    totals = {malloc.info.id: allocator_sums(malloc) for malloc in mallocs}
    found = split(target, session.kernel, {malloc.info.id: malloc.claims() for malloc in mallocs})
    classes = sorted((row for malloc in mallocs for row in malloc.histogram()), key=lambda row: -row.used_bytes)
    judged = _judged(target, mallocs, totals)
    outside = verdict.outside(found)
    unread, steps = _unread(session, outside)
    if unread is not None:
        outside = None
    if unread is not None:
        shown = Verdict(verdict.UNREAD, [unread])
    elif outside is not None:
        shown = Verdict(verdict.NOT_MALLOC, [outside, *(line for one in judged[:1] for line in _beside(one.verdict))])
    elif judged:
        shown = judged[0].verdict
    else:
        shown = Verdict(verdict.UNREAD, [Finding("no allocator is read here", "nothing can be said of what is in use and what is free", None)])
    steps = steps or (_outside_steps(target) if outside is not None else _steps(target, judged))
    return Overview(
        split=found,
        verdict=shown,
        verdicts={one.allocator: one.verdict for one in judged},
        held={one.allocator: one.parts for one in judged if one.parts},
        totals=totals,
        arenas=[row for of_one in rows.values() for row in of_one],
        size_classes=[row for row in classes[:TOP_CLASSES] if row.used_bytes],
        findings=[finding for one in judged for finding in one.findings],
        next_steps=steps,
        allocators=[malloc.info for malloc in mallocs],
    )


def _judged(target: Target, mallocs: Sequence[Any], totals: Dict[str, Dict[str, Optional[int]]]) -> List[Judged]:
    """Each allocator by itself, the one that holds most first."""
    threads = len(target.threads())
    found = [_of_jemalloc(target, malloc) for malloc in mallocs if malloc.kind == "jemalloc"]
    glibcs = [malloc for malloc in mallocs if malloc.kind == "glibc"]
    if glibcs:
        rows = [row for malloc in glibcs for row in malloc.arenas()]
        figures = glibc_verdict.figures(glibcs, [totals[malloc.info.id] for malloc in glibcs], rows, threads)
        judged = glibc_verdict.judge(figures)
        steps = glibc_findings.next_steps(judged.kind)
        found.append(Judged(glibcs[0].info.id, figures.system_bytes, judged, (), None, glibc_findings.findings(rows), steps))
    return sorted(found, key=lambda one: -one.held_bytes)


def _of_jemalloc(target: Target, malloc: Any) -> Judged:
    rows, bins, state, tickers = malloc.arenas(), malloc.bins(), malloc.conditions(), malloc.tickers()
    figures = jemalloc_verdict.figures(rows, bins)
    judged = jemalloc_verdict.judge(figures, bins)
    steps = jemalloc_findings.next_steps(judged.kind, figures, tickers, state, target.modules())
    lines = jemalloc_findings.findings(malloc.info.version, figures, rows, state, tickers)
    return Judged(malloc.info.id, figures.held_bytes, judged, jemalloc_verdict.parts(figures), figures.retained_bytes, lines, steps)


def _beside(judged: Verdict) -> Sequence[Finding]:
    """What is said of an allocator that holds the smaller part."""
    return () if judged.kind == verdict.SMALL else judged.lines[:1]


def _unread(session: Looked, outside: Optional[Finding]) -> Tuple[Optional[Finding], List[str]]:
    """What is said where an allocator that is not read here owns malloc, or may have what lies outside those that are; and what to do then."""
    owner = session.foreign_owner()
    if owner is None:
        unread = session.jemallocs().unread
        if outside is None or not unread:
            return None, []
        finding = Finding("no verdict: there is a jemalloc that is not read here, and most of the memory may be its", outside.evidence, unread[0].what)
        return finding, [one.hint for one in unread if one.hint] or ["doctor says what is missing"]
    what = "no verdict: malloc belongs to %s, which is not read here" % (owner.allocator or "another allocator")
    hint = "the arenas below are not where its memory is; that counts as other anonymous mappings above"
    finding = Finding(what, "the process calls malloc in %s" % owner.file, hint)
    hints = [one.hint for one in session.jemallocs().unread if one.module.base == owner.module.base and one.hint]
    return finding, hints or ["use the statistics of the allocator that owns malloc"]


def _outside_steps(target: Target) -> List[str]:
    return [runtimes.hint(target.modules()) or "look at the mappings named above; malloc is not where this memory is"]


def _steps(target: Target, judged: Sequence[Judged]) -> List[str]:
    """Of the allocators that hold enough to be worth it."""
    steps: List[str] = []
    for one in judged:
        steps += [step for step in one.next_steps if step not in steps]
    if not steps:
        return ["if the process is large all the same, its memory is not in this heap"] if judged else ["doctor says what is there and what is missing"]
    if target.kind == "core" and judged[0].verdict.kind in (verdict.HOARDING, verdict.MIXED):
        steps.append("on the live process the same commands also tell what is in RAM")
    return steps
