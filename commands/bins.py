"""heapx bins"""

from typing import Any

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """The non-empty bins of every arena."""


@command("bins", reads=Reads.LISTS, help=HELP)
def bins(session: Session, options: Options) -> Answer:
    """The command `bins`."""
    found = [(heap, heap.bins()) for heap in session.heaps.all()]

    def text(style: Style) -> Any:
        from gdbheapx.report import pages

        return pages.of_heaps(style, [(heap.info, heap.page("bins", rows)) for heap, rows in found])

    return Answer(lambda: {"bins": [row for _, rows in found for row in rows]}, text, read=True)
