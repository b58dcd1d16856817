"""The pages `tickers` and `decay`, and what `tickers` answers for all jemallocs of a process together."""

from typing import Any, Container, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.records import Page
from gdbheapx.columns import Table, columns_of
from gdbheapx.hints import ask
from gdbheapx.jemalloc.purging.outlook import AT_ONCE, QUIET
from gdbheapx.jemalloc.purging.tickers import BLIND, VERDICTS
from gdbheapx.jemalloc.records import DecayRow, TickerArena, TickerReport, TickerThread
from gdbheapx.model import AllocatorInfo
from gdbheapx.units import Size, cells, identifier, named, plural

SHOWN_THREADS = 12
"""Threads that are named in one sentence."""
BLIND_ONES = "their first call was free(), so they never got a decay ticker and never return pages"
SMALL_BYTES = 1 << 20
"""An idle arena that holds less needs no sentence of its own, nor do QUIET ones."""


class UnreadRow(NamedTuple):
    """A jemalloc that is there and is not read."""

    object: str
    version_text: Optional[str]
    page_bytes: Optional[int]
    affected: Optional[bool]
    """Its release has the bug."""
    why: str


class TickersAnswer(NamedTuple):
    """The answer of `tickers` for all jemallocs of a process."""

    found: Sequence[Tuple[AllocatorInfo, TickerReport]]
    unread: Sequence[UnreadRow] = ()
    """Those that are there and are not read, of whose threads nothing is known."""
    cured: Optional[Sequence[Any]] = None
    """What became of each blind thread; None where nothing was asked for."""
    stopped_ms: Optional[float] = None
    unsure: bool = False
    """None was found in memory of which parts are missing."""

    def without(self, refused: Container[Tuple[str, Optional[str]]]) -> "TickersAnswer":
        """No advice that would be refused: (id of the heap, code of the advice)."""
        kept = [
            (info, report._replace(advice=[advice for advice in report.advice if (info.id, advice.code) not in refused]))
            for info, report in self.found
        ]
        return self._replace(found=kept)

    @property
    def is_finding(self) -> bool:
        """Pages of an arena go unpurged, or are long overdue."""
        return any(row.costs_memory for _, report in self.found for row in report.arenas)

    @property
    def is_strict_finding(self) -> bool:
        """The same, or a thread is blind, whether or not its arena suffers."""
        return self.is_finding or any(row.verdict == BLIND for _, report in self.found for row in report.threads)

    @property
    def is_done(self) -> bool:
        """The process was changed."""
        return self.cured is not None

    @property
    def data(self) -> Dict[str, Any]:
        """The command's data."""
        reports = [report for _, report in self.found]
        threads = [row for report in reports for row in report.threads]
        return {
            "affected": True if any(report.affected for report in reports) else None if self.unread or self.unsure else False,
            "threads": threads,
            "counts": _counts(threads),
            "arenas": [row for report in reports for row in report.arenas],
            "unread": self.unread,
            "advice": list(dict.fromkeys(one for report in reports for one in report.advice)),
            **({"cured": self.cured, "stopped_ms": self.stopped_ms} if self.is_done else {}),
        }

    @property
    def page(self) -> Page:
        """The verdict in a sentence, the threads, the arenas, what to do."""
        if self.cured is not None:
            yield from cured(self.cured, self.stopped_ms)
        if not self.found and not self.unread:
            missing = ", but memory or files that would show one are missing" if self.unsure else ""
            yield "no jemalloc was found in this process%s" % missing
        for one in self.unread:
            release = {True: ", its release has the bug", False: ", its release does not have the bug", None: ""}[one.affected]
            yield "cannot read the jemalloc in %s: it is unknown whether a thread is blind%s" % (one.object.rsplit("/", 1)[-1], release)
        for place, (info, report) in enumerate(self.found):
            if place or self.unread:
                yield ""
            yield _verdict(info, report)
            yield ""
            yield from _threads(report.threads)
            yield ""
            yield from _arenas(report.arenas)
            yield from ["", "What helps:"] if report.advice else ()
            for line in report.advice:
                yield "  %s (%s)" % (line.what, line.evidence)
                yield from ["    %s" % line.hint] if line.hint else ()


class DecayAnswer(NamedTuple):
    """The answer of `decay`."""

    rows: Sequence[DecayRow]

    @property
    def page(self) -> Page:
        """One line for each arena and state."""
        several = len({row.allocator for row in self.rows}) > 1
        shown = [{**row._asdict(), "arena": "%s %d" % (row.allocator, row.arena)} for row in self.rows]
        yield Table(columns_of(DecayRow), shown if several else self.rows)
        worth = [row for row in self.rows if (row.bytes or 0) >= SMALL_BYTES and row.driven != AT_ONCE]
        yield from dict.fromkeys("arena %d, %s: %s" % (row.arena, row.state, row.why) for row in worth)


def _counts(threads: Sequence[TickerThread]) -> Dict[str, int]:
    return {verdict: sum(row.verdict == verdict for row in threads) for verdict in VERDICTS}


def _verdict(info: AllocatorInfo, report: TickerReport) -> str:
    name = "%s %s (%s)" % (info.id, info.version or "of unknown version", info.object)
    if not report.affected:
        return "%s does not have the bug: a thread's first call may be free()" % name
    told = ["%d %s" % (count, verdict) for verdict, count in _counts(report.threads).items() if count]
    return "%s has the bug: of %s, %s" % (name, plural(len(report.threads), "thread"), ", ".join(told) or "none could be read")


def _threads(rows: Sequence[TickerThread]) -> Page:
    """The most pressing first; then why, once for all threads with one reason."""
    ordered = sorted(rows, key=lambda row: (VERDICTS.index(row.verdict), row.lwp or 0))
    yield Table(columns_of(TickerThread), [_thread(row) for row in ordered])
    reasons: Dict[Tuple[str, str], List[TickerThread]] = {}
    for row in ordered:
        if row.verdict in ("blind", "at-risk", "unknown"):
            reasons.setdefault((row.verdict, row.why + ("; %s" % row.hint if row.hint else "")), []).append(row)
    for (verdict, why), members in reasons.items():
        many = BLIND_ONES if verdict == BLIND and len(members) > 1 else why
        yield "%s: %s: %s" % (verdict, named("thread", [identifier(row.lwp) for row in members], SHOWN_THREADS), many)


def _thread(row: TickerThread) -> Dict[str, Any]:
    return {**row._asdict(), "name": row.name or "", "tsd": str(row.tsd or "none"), "arena": "-" if row.arena is None else row.arena}


def _arenas(rows: Sequence[TickerArena]) -> Page:
    """Who purges each arena; then what it means, for those where that is not plain."""
    background = any(row.background_thread is not None for row in rows)
    shown = [{**row._asdict(), "background_thread": (row.background_thread or "off") if background else None} for row in rows]
    yield Table(columns_of(TickerArena), shown)
    for row in rows:
        if row.verdict not in QUIET and (row.verdict != "idle" or row.unused_bytes >= SMALL_BYTES):
            muzzy = ", %s muzzy" if row.muzzy_bytes != 0 else ""
            sizes = [Size(row.dirty_bytes), Size(row.muzzy_bytes)][: 2 if muzzy else 1]
            yield cells("arena %d is %s: %s; it holds %s dirty" + muzzy, row.index, row.verdict, row.why, *sizes)


def cured(threads: Sequence[Any], stopped_ms: Optional[float]) -> Page:
    """What became of each blind thread."""
    for row in threads:
        yield "%s thread %s%s: %s" % ("cured    " if row.cured else "NOT cured", row.lwp, " (%s)" % row.name if row.name else "", row.why)
    if not threads:
        yield "no thread is blind: nothing was written"
    if any(row.cured for row in threads):
        yield "their unused pages are returned as they work, within the decay time; `%s` returns them now" % ask("purge")
    if stopped_ms is not None:
        yield "the process was stopped for %.1f ms in total, and is running again" % stopped_ms
    yield ""
