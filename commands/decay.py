"""heapx decay"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """How far each jemalloc arena's unused pages are on their way back to the kernel, and who drives that.

Dirty pages are given back over the decay time, in 200 intervals, or become muzzy first (the kernel may take those when it needs
memory). `late` is how long ago the current interval should have ended: nobody has looked after the arena since.
"""


@command("decay", help=HELP)
def decay(session: Session, options: Any) -> Answer:
    """The command `decay`."""
    mallocs = session.jemallocs_in_question()
    if not mallocs:
        raise session.no_jemalloc("this command is about its arenas")
    rows = [row for malloc in mallocs for row in malloc.decay()]

    def text(style: Any) -> Any:
        from gdbheapx.report import jemalloc_pages

        return jemalloc_pages.decay(style, rows)

    return Answer(lambda: {"arenas": rows}, text, read=True)
