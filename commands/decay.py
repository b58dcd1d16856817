"""heapx decay"""

from typing import Annotated, Any, List

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """How far jemalloc has returned each arena's unused pages.

jemalloc returns dirty pages to the OS over the decay time, in 200 intervals, or makes them muzzy first (the kernel may take muzzy
pages when it needs memory). `late`: how overdue the current interval is, i.e. how long no thread has run decay for this arena.
"""


@command("decay", reads=Reads.STATE, help=HELP, examples=("-p 4711 decay",), snapshot=True)
def decay(session: Session, options: Options) -> Answer:
    """The command `decay`."""
    from gdbheapx.allocators import OfAllocator

    kind = List[Annotated[Any, OfAllocator("decay")]]
    answers = session.kept("decay", kind, lambda: [heap.capabilities["decay"]() for heap in session.heaps.with_capability("decay")])
    rows = [row for answer in answers for row in answer.rows]

    def text(style: Style) -> Any:
        from gdbheapx.report.text import show

        return show(style, answers[0]._replace(rows=rows).page)

    return Answer(lambda: {"arenas": rows}, text, read=True)
