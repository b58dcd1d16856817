"""heapx arenas"""

from typing import Any, Sequence

from gdbheapx.command import Answer, command
from gdbheapx.session import Session

HELP = """Per-arena totals: used, cached, free and what a trim or purge would give back.

glibc: for every arena system = used + tcache + fast + free + top + overhead + unparsed, to the byte. `tcache` are chunks in any
thread's cache, `fast` those in fastbins; both look used in memory and are not. `reclaimable` is what malloc_trim(0) would
return by its own rules; `in RAM` the part of it that is resident (live processes only). Shown where they say something:
`exclusive`, what of that the machine gets back, where a forked process shares the rest; `given back, in RAM`, what was given
back or never used and is in RAM all the same; `huge pages`, what of the heaps is on transparent huge pages. docs/in-ram.md.
jemalloc: allocated = used + cached, in jemalloc's own six words and per arena; `reclaimable` are its dirty and muzzy pages.
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
