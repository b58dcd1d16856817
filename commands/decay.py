"""heapx decay"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """How far jemalloc has got in returning each arena's unused pages to the OS, and which threads do that.

jemalloc returns dirty pages to the OS over the decay time, in 200 intervals, or makes them muzzy first (the kernel may take muzzy
pages when it needs memory). `late`: how overdue the current interval is, i.e. how long no thread has run decay for this arena.
"""


@command("decay", help=HELP)
def decay(session: Session, options: Any) -> Answer:
    """The command `decay`."""
    mallocs = session.jemallocs_in_question()
    if not mallocs:
        raise session.no_jemalloc("this command requires jemalloc")
    rows = [row for malloc in mallocs for row in malloc.decay()]

    def text(style: Any) -> Any:
        from gdbheapx.report import jemalloc_pages

        return jemalloc_pages.decay(style, rows)

    return Answer(lambda: {"arenas": rows}, text, read=True)
