"""heapx tcache"""

from typing import Any, List, Sequence, Tuple

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.model import AllocatorInfo, ThreadCache
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """What each thread's cache holds."""


@command("tcache", reads=Reads.LISTS, help=HELP, examples=("-p 4711 tcache",), snapshot=True)
def tcache(session: Session, options: Options) -> Answer:
    """The command `tcache`."""
    kind = List[Tuple[AllocatorInfo, Sequence[ThreadCache]]]
    heaps = session.kept("tcache", kind, lambda: [(heap.info, heap.caches()) for heap in session.heaps.all()])

    def text(style: Style) -> Any:
        from gdbheapx.allocators import named
        from gdbheapx.report import pages

        none = "%s has no thread caches"
        told = [(info, pages.tcache(rows) if named(info.name).has_caches else [none % info.name]) for info, rows in heaps]
        return pages.of_heaps(style, told)

    found = [row for _, rows in heaps for row in rows]
    return Answer(lambda: {"threads": found}, text, read=True, record=lambda: found)
