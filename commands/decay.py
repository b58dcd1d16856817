"""heapx decay"""

from typing import Annotated, Any, List

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, TextStyle, declare_command
from gdbheapx.common.stops import Reads

HELP = """Unused pages of jemalloc's arenas, threads that keep them.

jemalloc returns dirty pages to the OS over the decay time, in 200 intervals, or makes them muzzy first (the kernel may take muzzy
pages when it needs memory). `late`: how overdue the current interval is, i.e. how long no thread has run decay for this arena.
Where jemalloc has the bug that makes threads blind (they never return pages), they stand below, as in `tickers`, which can cure them.
"""


@declare_command("decay", reads=Reads.STATE, help=HELP, examples=("-p 4711 decay",), snapshot=True)
def answer_decay(session: Session, options: Options) -> CommandAnswer:
    """The command `decay`."""
    from gdbheapx.actions import call
    from gdbheapx.allocators.records import OfAllocator

    kind = List[Annotated[Any, OfAllocator("decay")]]
    answers = session.kept("decay", kind, lambda: [heap.capabilities["decay"]() for heap in session.heaps.with_capability("decay")])
    blind = session.kept("tickers", Annotated[Any, OfAllocator("tickers")], lambda: call.find_blind_tickers(session))
    told = {name: blind.data[name] for name in ("affected", "threads", "counts")}
    rows = [row for answer in answers for row in answer.rows]

    def text(style: TextStyle) -> Any:
        from gdbheapx.report.text import format_page

        yield from format_page(style, answers[0]._replace(rows=rows).page)
        if told["affected"] is not False:
            yield ""
            yield from format_page(style, blind.page)

    return CommandAnswer(lambda: {"arenas": rows, **told}, text, read=True)
