"""heapx tunables"""

from typing import Any, Dict

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """Values now in force, including dynamic thresholds and run-time changes, and what each means here.

glibc: mp_. jemalloc: every opt_ variable, where it was set (if that is visible), and its background threads.
"""


@command("tunables", help=HELP)
def tunables(session: Session, options: Any) -> Answer:
    """The command `tunables`."""
    from gdbheapx.glibc.tunables import read

    found: Dict[str, Any] = {}
    jemallocs = {}
    for malloc in session.mallocs():
        if malloc.kind == "jemalloc":
            jemallocs[malloc.info.id] = malloc.tunables()  # type: ignore[union-attr]
            found[malloc.info.id] = jemallocs[malloc.info.id].tunables
        else:
            found[malloc.info.id] = read(malloc.mp())  # type: ignore[union-attr]

    def data() -> Any:
        extra = {
            "sources": {name: one.sources for name, one in jemallocs.items()},
            "background_threads": {name: one.background_threads for name, one in jemallocs.items()},
        }
        return {"tunables": found, **(extra if jemallocs else {})}

    def text(style: Any) -> Any:
        from gdbheapx.report import jemalloc_tunables, pages

        size = pages.sizes(style)
        for name, rows in found.items():
            if len(found) > 1:
                yield "%s:" % name
            if name in jemallocs:
                yield from jemalloc_tunables.page(style, jemallocs[name])
            else:
                yield from pages.pairs((row.name, size(row.value) if row.unit else str(row.value), row.meaning) for row in rows)

    return Answer(data, text, read=True)
