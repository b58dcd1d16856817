"""All jemallocs of a process together, as `tickers` answers."""

from typing import Any, Dict, Sequence

from gdbheapx.model import TickerReport

VERDICTS = ("blind", "at-risk", "unknown", "ticking", "not-started", "not-applicable")
"""The most pressing first."""


def summary(reports: Sequence[TickerReport], unread: Sequence[Any]) -> Dict[str, Any]:
    """The command's data. unread: jemallocs that are there and are not read, of whose threads nothing is known."""
    threads = [row for report in reports for row in report.threads]
    affected = True if any(report.affected for report in reports) else None if unread else False
    return {
        "affected": affected,
        "threads": threads,
        "counts": {verdict: sum(row.verdict == verdict for row in threads) for verdict in VERDICTS},
        "arenas": [row for report in reports for row in report.arenas],
        "unread": [
            {"object": one.module.name, "version_text": one.version_text, "page_bytes": one.page_bytes, "affected": one.has_ticker_bug, "why": one.why}
            for one in unread
        ],
        "advice": list(dict.fromkeys(one for report in reports for one in report.advice)),
    }
