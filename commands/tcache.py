"""heapx tcache"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session


@command("tcache")
def tcache(session: Session, options: Any) -> Answer:
    """What each thread's cache holds: chunks that were freed and that no other thread, and no trim, can reach."""
    rows = [row for malloc in session.mallocs() for row in malloc.caches()]

    def text(style: Any) -> Any:
        from gdbheapx.report import pages

        return pages.tcache(style, rows)

    return Answer(lambda: {"threads": rows}, text)
