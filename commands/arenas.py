"""heapx arenas"""

from typing import Any, Sequence

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """Per-arena totals: used, cached, free, and what a trim or purge would return to the OS.

glibc: for every arena system = used + tcache + fast + free + top + overhead + unparsed, to the byte. `tcache` counts chunks in any
thread's cache, `fast` those in fastbins; both look used in memory, but are not. `reclaimable` is what malloc_trim(0) would return
to the OS by its own rules; `in RAM` is the resident part of it (live processes only). Three columns appear only where they add
something: `exclusive` is the part of `in RAM` that the machine gets back, if a forked process shares the rest; `returned, in RAM`
is memory that was returned to the OS or never used, yet is still in RAM; `huge pages` is the part of the heaps on transparent huge
pages. See docs/in-ram.md.
jemalloc: allocated = used + cached, per arena, in jemalloc's own six terms; `reclaimable` is the sum of dirty and muzzy pages.
"""


@command("arenas", help=HELP)
def arenas(session: Session, options: Any) -> Answer:
    """The command `arenas`."""
    from gdbheapx.analysis.sums import allocator_sums, mapped_sum

    mallocs: Sequence[Any] = session.mallocs()
    rows = {malloc.info.id: malloc.arenas() for malloc in mallocs}
    mapped = {malloc.info.id: malloc.mmapped_totals() for malloc in mallocs if malloc.kind == "glibc"}
    totals = {malloc.info.id: allocator_sums(malloc) for malloc in mallocs}

    def data() -> Any:
        return {"arenas": [row for found in rows.values() for row in found], "mmapped": mapped_sum(mapped.values()), "totals": totals}

    def text(style: Any) -> Any:
        from gdbheapx.report import jemalloc_text, pages

        for number, malloc in enumerate(mallocs):
            name, several = malloc.info.id, len(mallocs) > 1
            if several:
                yield from pages.heading(malloc.info, first=not number)
            show = pages.arenas if malloc.kind == "glibc" else jemalloc_text.arenas
            yield from show(style, rows[name], mapped.get(name), totals[name])

    return Answer(data, text, read=True)
