"""heapx arenas"""

from typing import Annotated, Any, Callable, Dict, List, Sequence, Tuple

from gdbheapx.command import Answer, Options, Style, argument, command
from gdbheapx.model import AllocatorInfo, ThreadCache
from gdbheapx.session import Session
from gdbheapx.stops import Reads

HELP = """What each arena holds: used, cached, free, returnable.

The columns are totals of each arena, and what a trim or purge would return. --bins, --caches and --sizes show what these totals consist of.
"""
READS = {"bins": Reads.LISTS, "caches": Reads.LISTS, "sizes": Reads.BLOCKS}


@command(
    "arenas",
    arguments=[
        argument("--bins", dest="part", action="store_const", const="bins", help="the non-empty bins of every arena"),
        argument(
            "--caches",
            dest="part",
            action="store_const",
            const="caches",
            help="what each thread's cache holds: freed chunks that only this thread can reach",
        ),
        argument("--sizes", dest="part", action="store_const", const="sizes", help="every chunk, counted by size class and status"),
    ],
    reads=lambda options: READS.get(options.part, Reads.TOTALS),
    help=HELP,
    examples=("-p 4711 arenas", "-p 4711 arenas --sizes"),
    snapshot=True,
)
def arenas(session: Session, options: Options) -> Answer:
    """The command `arenas`."""
    parts: Dict[str, Callable[[Session], Answer]] = {"bins": bins, "caches": caches, "sizes": sizes}
    return parts.get(options.part, totals)(session)


def totals(session: Session) -> Answer:
    """A row for each arena."""
    from gdbheapx.allocators.records import HeapArenas
    from gdbheapx.columns import add

    heaps = session.kept(
        "arenas", List[HeapArenas], lambda: [HeapArenas(heap.info, heap.arenas(), heap.totals()) for heap in session.heaps.all()]
    )
    totals = {heap.info.id: heap.totals for heap in heaps}
    mapped = [total for total in totals.values() if "mmapped_bytes" in total]

    def data() -> Any:
        rows = [row for heap in heaps for row in heap.rows]
        return {
            "arenas": rows,
            "mmapped": {what: add(sums["mmapped_" + what] for sums in mapped) for what in ("chunks", "bytes")},
            "totals": totals,
        }

    def text(style: Style) -> Any:
        from gdbheapx import allocators
        from gdbheapx.report import pages

        return pages.join_heap_pages(
            style, [(heap.info, allocators.named(heap.info.name, heap.rows).arenas_page(heap.rows, heap.totals)) for heap in heaps]
        )

    return Answer(data, text, read=True, record=lambda: heaps)


def bins(session: Session) -> Answer:
    """--bins"""
    from gdbheapx import allocators

    kind = List[Tuple[AllocatorInfo, Sequence[Annotated[Any, allocators.OfAllocator("bins")]]]]
    heaps = session.kept("bins", kind, lambda: [(heap.info, heap.bins()) for heap in session.heaps.all()])

    def text(style: Style) -> Any:
        from gdbheapx.report import pages

        return pages.join_heap_pages(style, [(info, allocators.named(info.name, rows).page("bins", rows)) for info, rows in heaps])

    found = [row for _, rows in heaps for row in rows]
    return Answer(lambda: {"bins": found}, text, read=True, record=lambda: found)


def caches(session: Session) -> Answer:
    """--caches"""
    kind = List[Tuple[AllocatorInfo, Sequence[ThreadCache]]]
    heaps = session.kept("tcache", kind, lambda: [(heap.info, heap.caches()) for heap in session.heaps.all()])

    def text(style: Style) -> Any:
        from gdbheapx.allocators import named
        from gdbheapx.report import pages

        none = "%s has no thread caches"
        told = [(info, pages.make_tcache_page(rows) if named(info.name).has_caches else [none % info.name]) for info, rows in heaps]
        return pages.join_heap_pages(style, told)

    found = [row for _, rows in heaps for row in rows]
    return Answer(lambda: {"threads": found}, text, read=True, record=lambda: found)


def sizes(session: Session) -> Answer:
    """--sizes"""
    from gdbheapx.report import pages

    return pages.answer_sizes(session)
