"""heapx bins"""

from typing import Any, Sequence

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """The non-empty bins of every arena: glibc's free chunks by bin; jemalloc's size classes with slabs, regions and unused extents."""


@command("bins", help=HELP)
def bins(session: Session, options: Any) -> Answer:
    """The command `bins`."""
    mallocs: Sequence[Any] = session.mallocs()
    rows = {malloc.info.id: malloc.bins() for malloc in mallocs}

    def text(style: Any) -> Any:
        from gdbheapx.report import jemalloc_text, pages

        for number, malloc in enumerate(mallocs):
            if len(mallocs) > 1:
                yield from pages.heading(malloc.info, first=not number)
            yield from (pages.bins if malloc.kind == "glibc" else jemalloc_text.bins)(style, rows[malloc.info.id])

    return Answer(lambda: {"bins": [row for found in rows.values() for row in found]}, text, read=True)
