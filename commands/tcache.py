"""heapx tcache"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """What each thread's cache holds: freed chunks that neither another thread nor a trim can reach.

jemalloc: includes caches that the program made with tcache.create, which belong to no thread (`explicit`).
"""


@command("tcache", help=HELP)
def tcache(session: Session, options: Any) -> Answer:
    """The command `tcache`."""
    found = [(malloc.info, malloc.caches()) for malloc in session.mallocs()]

    def text(style: Any) -> Any:
        from gdbheapx.report import pages

        for number, (info, rows) in enumerate(found):
            if len(found) > 1:
                yield from pages.heading(info, first=not number)
            yield from pages.tcache(style, rows)

    return Answer(lambda: {"threads": [row for _, rows in found for row in rows]}, text, read=True)
