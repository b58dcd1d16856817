"""heapx tickers"""

from typing import Any

from gdbheapx.command import Answer, command, find
from gdbheapx.session import Session


@command("tickers")
def tickers(session: Session, options: Any) -> Answer:
    """jemalloc threads whose decay ticker was never made and which therefore never purge; and what that means for each arena.

    From 5.0.1 to 5.2.1 a thread whose first call is free() never gives unused pages back: `blind`. One that has only freed so far goes
    blind at its first malloc: `at-risk`. Exit code 3 if a thread is blind. Nothing in the process is changed.
    """
    from gdbheapx.analysis.ticking import summary

    can_purge = find("purge") is not None
    reports = [(malloc.info, malloc.tickers(can_purge)) for malloc in session.jemallocs_in_question()]
    unread = len(session.jemallocs().unread)
    found = summary([report for _, report in reports], unread)

    def text(style: Any) -> Any:
        from gdbheapx.report import jemalloc_pages

        return jemalloc_pages.tickers(style, reports, unread)

    return Answer(lambda: found, text, finding=bool(found["counts"]["blind"]))
