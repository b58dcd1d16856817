"""heapx arenas"""

from typing import Any

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """Per-arena totals: used, cached, free, and what a trim or purge would return."""


@command("arenas", reads=Reads.TOTALS, help=HELP)
def arenas(session: Session, options: Options) -> Answer:
    """The command `arenas`."""
    from gdbheapx.columns import add

    found = [(heap, heap.arenas()) for heap in session.heaps.all()]
    totals = {heap.info.id: heap.totals() for heap, _ in found}
    mapped = [one for one in totals.values() if "mmapped_bytes" in one]

    def data() -> Any:
        rows = [row for _, own in found for row in own]
        return {
            "arenas": rows,
            "mmapped": {what: add(one["mmapped_" + what] for one in mapped) for what in ("chunks", "bytes")},
            "totals": totals,
        }

    def text(style: Style) -> Any:
        from gdbheapx.report import pages

        return pages.of_heaps(style, [(heap.info, heap.page("arenas", rows)) for heap, rows in found])

    return Answer(data, text, read=True)
