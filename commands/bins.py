"""heapx bins"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session


@command("bins")
def bins(session: Session, options: Any) -> Answer:
    """Non-empty bins of each arena: fastbins, unsorted, small and large bins, with sizes, chunks and bytes."""
    rows = [row for malloc in session.mallocs() for row in malloc.bins()]

    def text(style: Any) -> Any:
        from gdbheapx.report import pages

        return pages.bins(style, rows)

    return Answer(lambda: {"bins": rows}, text)
