"""heapx arenas"""

from typing import Any

from gdbheapx.command import Answer, command
from gdbheapx.session import Session


@command("arenas")
def arenas(session: Session, options: Any) -> Answer:
    """Per-arena totals: used, cached, free, top, overhead, and what trim would give back.

    For every arena system = used + tcache + fast + free + top + overhead + unparsed, to the byte. `tcache` are chunks in any
    thread's cache, `fast` those in fastbins; both look used in memory and are not. `reclaimable` is what malloc_trim(0) would
    return by its own rules; `in RAM` the part of it that is resident (live processes only).
    """
    from gdbheapx.analysis.sums import arena_sums, mapped_sum

    rows = [row for malloc in session.mallocs() for row in malloc.arenas()]
    mapped = {malloc.glibc.id: malloc.mmapped_totals() for malloc in session.mallocs()}
    totals = {name: arena_sums([row for row in rows if row.allocator == name], mapped[name]) for name in mapped}

    def data() -> Any:
        return {"arenas": rows, "mmapped": mapped_sum(mapped.values()), "totals": totals}

    def text(style: Any) -> Any:
        from gdbheapx.report import pages

        return pages.arenas(style, rows, mapped, totals)

    return Answer(data, text)
