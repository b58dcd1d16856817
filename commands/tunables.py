"""heapx tunables"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session


@command("tunables")
def tunables(session: Session, options: Any) -> Answer:
    """Values of mp_ now in force, dynamic thresholds among them, and what each means here."""
    from gdbheapx.glibc.tunables import read

    found = {malloc.glibc.id: read(malloc.mp()) for malloc in session.mallocs()}

    def text(style: Any) -> Any:
        from gdbheapx.report import pages

        size = pages.sizes(style)
        for name, rows in found.items():
            if len(found) > 1:
                yield "%s:" % name
            yield from pages.pairs((row.name, size(row.value) if row.unit else str(row.value), row.meaning) for row in rows)

    return Answer(lambda: {"tunables": found}, text)
