"""heapx report"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """Where the memory went: is it malloc at all, is it a leak or is the allocator holding it, and what to do next.

First the memory of the process (RSS), or the bytes of the core, split into malloc, thread stacks, files and other anonymous
mappings. Then a verdict with its evidence, the arenas, the size classes that hold most, and what trim would give back.
"""


@command("report", help=HELP)
def report(session: Session, options: Any) -> Answer:
    """The command `report`."""
    from gdbheapx.analysis.overview import overview

    session.may_be_none = True
    found = overview(session)

    def text(style: Any) -> Any:
        from gdbheapx.report.overview_text import lines

        return lines(style, found)

    return Answer(lambda: found, text)
