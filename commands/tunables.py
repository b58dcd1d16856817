"""heapx tunables"""

from typing import Any, Dict

from gdbheapx.command import Answer, Options, Style, command
from gdbheapx.session import Session

HELP = """Values now in force, including dynamic thresholds and run-time changes, and what each means here."""


@command("tunables", help=HELP)
def tunables(session: Session, options: Options) -> Answer:
    """The command `tunables`."""
    heaps = session.heaps.all()
    found: Dict[str, Dict[str, Any]] = {}
    for heap in heaps:
        for key, value in heap.tunables().items():
            found.setdefault(key, {})[heap.info.id] = value

    def text(style: Style) -> Any:
        from gdbheapx.report import pages

        return pages.of_heaps(style, [(heap.info, heap.page("tunables")) for heap in heaps])

    return Answer(lambda: found, text, read=True)
