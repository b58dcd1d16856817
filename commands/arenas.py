"""heapx arenas"""

from typing import Any

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session

HELP = """Per-arena totals: used, cached, free, and what a trim or purge would return to the OS."""


@command("arenas", help=HELP)
def arenas(session: Session, options: Options) -> Answer:
    """The command `arenas`."""
    from gdbheapx.columns import add

    heaps = session.heaps.all()
    rows = [row for heap in heaps for row in heap.arenas()]
    totals = {heap.info.id: heap.totals() for heap in heaps}
    mapped = [one for one in totals.values() if "mmapped_bytes" in one]

    def data() -> Any:
        return {
            "arenas": rows,
            "mmapped": {what: add(one["mmapped_" + what] for one in mapped) for what in ("chunks", "bytes")},
            "totals": totals,
        }

    def text(style: Style) -> Any:
        from gdbheapx.report import pages

        return pages.of_heaps(style, [(heap.info, heap.page("arenas")) for heap in heaps])

    return Answer(data, text, read=True)
