"""heapx bins"""

from typing import Any

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session

HELP = """The non-empty bins of every arena."""


@command("bins", help=HELP)
def bins(session: Session, options: Options) -> Answer:
    """The command `bins`."""
    heaps = session.heaps.all()
    rows = [row for heap in heaps for row in heap.bins()]

    def text(style: Style) -> Any:
        from gdbheapx.report import pages

        return pages.of_heaps(style, [(heap.info, heap.page("bins")) for heap in heaps])

    return Answer(lambda: {"bins": rows}, text, read=True)
