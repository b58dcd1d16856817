"""heapx tunables"""

from typing import Any, Dict

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """Values now in force, with dynamic thresholds and run-time changes; what each means."""


@command("tunables", reads=Reads.STATE, help=HELP)
def tunables(session: Session, options: Options) -> Answer:
    """The command `tunables`."""
    found = [(heap, heap.tunables()) for heap in session.heaps.all()]
    data: Dict[str, Dict[str, Any]] = {}
    for heap, told in found:
        for key, value in told.items():
            data.setdefault(key, {})[heap.info.id] = value

    def text(style: Style) -> Any:
        from gdbheapx.report import pages

        return pages.of_heaps(style, [(heap.info, heap.page("tunables", told)) for heap, told in found])

    return Answer(lambda: data, text, read=True)
