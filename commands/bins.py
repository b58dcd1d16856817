"""heapx bins"""

from typing import Annotated, Any, List, Sequence, Tuple

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.model import AllocatorInfo
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """The non-empty bins of every arena."""


@command("bins", reads=Reads.LISTS, help=HELP, examples=("-p 4711 bins",), snapshot=True)
def bins(session: Session, options: Options) -> Answer:
    """The command `bins`."""
    from gdbheapx import allocators

    kind = List[Tuple[AllocatorInfo, Sequence[Annotated[Any, allocators.OfAllocator("bins")]]]]
    heaps = session.kept("bins", kind, lambda: [(heap.info, heap.bins()) for heap in session.heaps.all()])

    def text(style: Style) -> Any:
        from gdbheapx.report import pages

        return pages.of_heaps(style, [(info, allocators.named(info.name, rows).page("bins", rows)) for info, rows in heaps])

    found = [row for _, rows in heaps for row in rows]
    return Answer(lambda: {"bins": found}, text, read=True, record=lambda: found)
