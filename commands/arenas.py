"""heapx arenas"""

from typing import Any, List

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """Per-arena totals: used, cached, free, and what a trim or purge would return."""


@command("arenas", reads=Reads.TOTALS, help=HELP, snapshot=True)
def arenas(session: Session, options: Options) -> Answer:
    """The command `arenas`."""
    from gdbheapx.allocators.records import HeapArenas
    from gdbheapx.columns import add

    found = session.kept(
        "arenas", List[HeapArenas], lambda: [HeapArenas(heap.info, heap.arenas(), heap.totals()) for heap in session.heaps.all()]
    )
    totals = {one.info.id: one.totals for one in found}
    mapped = [one for one in totals.values() if "mmapped_bytes" in one]

    def data() -> Any:
        rows = [row for one in found for row in one.rows]
        return {
            "arenas": rows,
            "mmapped": {what: add(one["mmapped_" + what] for one in mapped) for what in ("chunks", "bytes")},
            "totals": totals,
        }

    def text(style: Style) -> Any:
        from gdbheapx import allocators
        from gdbheapx.report import pages

        return pages.of_heaps(
            style, [(one.info, allocators.named(one.info.name, one.rows).arenas_page(one.rows, one.totals)) for one in found]
        )

    return Answer(data, text, read=True)
