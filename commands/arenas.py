"""heapx arenas"""

from typing import Any, List

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """What each arena holds: used, cached, free, returnable."""


@command("arenas", reads=Reads.TOTALS, help=HELP, examples=("-p 4711 arenas",), snapshot=True)
def arenas(session: Session, options: Options) -> Answer:
    """The command `arenas`."""
    from gdbheapx.allocators.records import HeapArenas
    from gdbheapx.columns import add

    heaps = session.kept(
        "arenas", List[HeapArenas], lambda: [HeapArenas(heap.info, heap.arenas(), heap.totals()) for heap in session.heaps.all()]
    )
    totals = {heap.info.id: heap.totals for heap in heaps}
    mapped = [total for total in totals.values() if "mmapped_bytes" in total]

    def data() -> Any:
        rows = [row for heap in heaps for row in heap.rows]
        return {
            "arenas": rows,
            "mmapped": {what: add(sums["mmapped_" + what] for sums in mapped) for what in ("chunks", "bytes")},
            "totals": totals,
        }

    def text(style: Style) -> Any:
        from gdbheapx import allocators
        from gdbheapx.report import pages

        return pages.of_heaps(
            style, [(heap.info, allocators.named(heap.info.name, heap.rows).arenas_page(heap.rows, heap.totals)) for heap in heaps]
        )

    return Answer(data, text, read=True, record=lambda: heaps)
