"""All jemallocs of a process together, as `tickers` answers."""

from typing import Any, Dict, Sequence

from gdbheapx.model import TickerReport

VERDICTS = ("blind", "at-risk", "unknown", "ticking", "not-started", "not-applicable")
"""The most pressing first."""


def summary(reports: Sequence[TickerReport], unread: int) -> Dict[str, Any]:
    """The command's data. unread: jemallocs that are there and cannot be read, of which nothing is known."""
    threads = [row for report in reports for row in report.threads]
    affected = True if any(report.affected for report in reports) else None if unread else False
    return {
        "affected": affected,
        "threads": threads,
        "counts": {verdict: sum(row.verdict == verdict for row in threads) for verdict in VERDICTS},
        "arenas": [row for report in reports for row in report.arenas],
        "advice": list(dict.fromkeys(one for report in reports for one in report.advice)),
    }
