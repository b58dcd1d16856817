"""The text of `tickers` and `decay`."""

from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.analysis.ticking import VERDICTS
from gdbheapx.command import Style
from gdbheapx.model import AllocatorInfo, DecayRow, Finding, TickerArena, TickerReport, TickerThread
from gdbheapx.report.jemalloc_text import milliseconds
from gdbheapx.report.pages import count, sizes
from gdbheapx.report.text import table

SHOWN_THREADS = 12
"""Threads that are named in one sentence."""
QUIET = ("purged", "at-once", "never")
"""Verdicts on arenas that need no sentence of their own."""
SMALL_BYTES = 1 << 20
"""Nor does an idle arena that holds less."""


def tickers(style: Style, found: Sequence[Tuple[AllocatorInfo, TickerReport]], unread: Sequence[Any]) -> Iterator[str]:
    """The verdict in a sentence, the threads, the arenas, what to do. `unread`: jemallocs that are there and are not read."""
    if not found and not unread:
        yield "no jemalloc in this process"
    for one in unread:
        release = {True: ", its release has the bug", False: ", its release does not have the bug", None: ""}[one.has_ticker_bug]
        yield "cannot read the jemalloc in %s: it is unknown whether a thread is blind%s" % (one.module.name.rsplit("/", 1)[-1], release)
    for number, (info, report) in enumerate(found):
        if number or unread:
            yield ""
        yield _verdict(info, report)
        yield ""
        yield from _threads(report.threads)
        yield ""
        yield from _arenas(style, report.arenas)
        if report.advice:
            yield ""
            yield "What helps:"
            yield from _advice(report.advice)


def _verdict(info: AllocatorInfo, report: TickerReport) -> str:
    name = "%s %s (%s)" % (info.id, info.version or "of unknown version", info.object)
    if not report.affected:
        return "%s does not have the bug: a thread's first call may be free()" % name
    counts = {verdict: sum(row.verdict == verdict for row in report.threads) for verdict in VERDICTS}
    told = ["%d %s" % (number, verdict) for verdict, number in counts.items() if number]
    return "%s has the bug: of %d threads, %s" % (name, len(report.threads), ", ".join(told) or "none could be read")


def _threads(rows: Sequence[TickerThread]) -> Iterator[str]:
    """The most pressing first; then why, once for all threads with one reason."""
    ordered = sorted(rows, key=lambda row: (VERDICTS.index(row.verdict), row.lwp or 0))
    body = [[count(row.lwp), row.name or "", str(row.tsd or "none"), row.state or "?", _plain(row.arena), _plain(row.ticks_left), row.verdict] for row in ordered]
    yield from table(["thread", "name", "tsd", "state", "arena", "ticks left", "verdict"], body, "lllllrl")
    reasons: Dict[Tuple[str, str], List[TickerThread]] = {}
    for row in ordered:
        if row.verdict in ("blind", "at-risk", "unknown"):
            reasons.setdefault((row.verdict, row.why + ("; %s" % row.hint if row.hint else "")), []).append(row)
    for (verdict, why), members in reasons.items():
        names = ", ".join(count(row.lwp) for row in members[:SHOWN_THREADS])
        more = " and %d more" % (len(members) - SHOWN_THREADS) if len(members) > SHOWN_THREADS else ""
        yield "%s: thread%s %s%s: %s" % (verdict, "s" if len(members) > 1 else "", names, more, why)


def _plain(value: Optional[int]) -> str:
    """A number that may not exist."""
    return "-" if value is None else str(value)


def _arenas(style: Style, rows: Sequence[TickerArena]) -> Iterator[str]:
    """Who purges each arena; then what it means, for those where that is not plain."""
    size = sizes(style)
    background = any(row.background_thread is not None for row in rows)
    headers = ["arena", "kind", "threads", "healthy", "blind", *["background"] * background, "dirty", "muzzy", "dirty decay", "muzzy decay", "sweeps", "late", "verdict"]
    body = []
    for row in rows:
        line = [str(row.index), row.kind, count(row.threads), str(row.healthy_threads), str(row.blind_threads)]
        line += [row.background_thread or "off"] * background + [size(row.dirty_bytes), size(row.muzzy_bytes)]
        line += [milliseconds(row.dirty_decay_ms), milliseconds(row.muzzy_decay_ms), count(row.sweeps), _late(row.late_ms), row.verdict]
        body.append(line)
    yield from table(headers, body, "ll" + "r" * (len(headers) - 3) + "l")
    for row in rows:
        held = (row.dirty_bytes or 0) + (row.muzzy_bytes or 0)
        if row.verdict not in QUIET and (row.verdict != "idle" or held >= SMALL_BYTES):
            yield "arena %d is %s: %s; it holds %s" % (row.index, row.verdict, row.why, _held(size(row.dirty_bytes), size(row.muzzy_bytes)))


def _held(dirty: str, muzzy: str) -> str:
    return "%s dirty" % dirty if muzzy == "0" else "%s dirty, %s muzzy" % (dirty, muzzy)


def _late(value: Optional[float]) -> str:
    """How long ago, in milliseconds."""
    return "-" if value is None else "%.0f ms" % value if value else "no"


def _advice(found: Sequence[Finding]) -> Iterator[str]:
    for one in found:
        yield "  %s (%s)" % (one.what, one.evidence)
        if one.hint:
            yield "    %s" % one.hint


def decay(style: Style, rows: Sequence[DecayRow]) -> Iterator[str]:
    """One line for each arena and state."""
    size = sizes(style)
    several = len({row.allocator for row in rows}) > 1
    limited = any(row.limit_pages is not None for row in rows)
    headers = ["arena", "kind", "state", "time", "pages", "bytes", "sweeps", "madvises", "purged", *["limit"] * limited, "interval", "late", "driven by"]
    body = []
    for row in rows:
        name = "%s %d" % (row.allocator, row.arena) if several else str(row.arena)
        line = [name, row.kind, row.state, milliseconds(row.decay_ms), count(row.pages), size(row.bytes)]
        line += [count(row.sweeps), count(row.madvises), count(row.purged_pages)] + [_plain(row.limit_pages)] * limited
        body.append([*line, "-" if row.interval_ms is None else "%g ms" % row.interval_ms, _late(row.late_ms), row.driven])
    yield from table(headers, body, "lll" + "r" * (len(headers) - 4) + "l")
    told = []
    for row in rows:
        sentence = "arena %d, %s: %s" % (row.arena, row.state, row.why)
        if (row.bytes or 0) >= SMALL_BYTES and row.driven != "at-once" and sentence not in told:
            told.append(sentence)
            yield sentence
