"""heapx arenas"""

from typing import Annotated, Any, Callable, Dict, List, Sequence, Tuple

from gdbheapx.allocators.session import Session
from gdbheapx.command import CommandAnswer, Options, TextStyle, declare_argument, declare_command
from gdbheapx.common.model import AllocatorInfo, ThreadCache
from gdbheapx.common.stops import Reads

HELP = """What each arena holds: used, cached, free, returnable.

The columns are totals of each arena, and what a trim or purge would return. --bins, --caches and --sizes show what these totals consist of.
"""
PART: Dict[str, Any] = {"dest": "part", "action": "store_const"}
READS = {"bins": Reads.LISTS, "caches": Reads.LISTS, "sizes": Reads.BLOCKS}


@declare_command(
    "arenas",
    arguments=[
        declare_argument("--bins", **PART, const="bins", help="the non-empty bins of every arena"),
        declare_argument(
            "--caches", **PART, const="caches", help="what each thread's cache holds: freed chunks that only this thread can reach"
        ),
        declare_argument("--sizes", **PART, const="sizes", help="every chunk, counted by size class and status"),
    ],
    reads=lambda options: READS.get(options.part, Reads.TOTALS),
    help=HELP,
    examples=("-p 4711 arenas", "-p 4711 arenas --sizes"),
    snapshot=True,
)
def answer_arenas(session: Session, options: Options) -> CommandAnswer:
    """The command `arenas`."""
    parts: Dict[str, Callable[[Session], CommandAnswer]] = {"bins": answer_bins, "caches": answer_caches, "sizes": answer_sizes}
    return parts.get(options.part, answer_totals)(session)


def answer_totals(session: Session) -> CommandAnswer:
    """A row for each arena."""
    from gdbheapx.allocators.records import HeapArenas
    from gdbheapx.common.columns import add_values

    heaps = session.kept(
        "arenas", List[HeapArenas], lambda: [HeapArenas(heap.info, heap.arenas(), heap.totals()) for heap in session.heaps.all()]
    )
    totals = {heap.info.id: heap.totals for heap in heaps}
    mapped = [total for total in totals.values() if "mmapped_bytes" in total]

    def data() -> Any:
        rows = [row for heap in heaps for row in heap.rows]
        return {
            "arenas": rows,
            "mmapped": {what: add_values(sums["mmapped_" + what] for sums in mapped) for what in ("chunks", "bytes")},
            "totals": totals,
        }

    def text(style: TextStyle) -> Any:
        from gdbheapx import allocators
        from gdbheapx.report import pages

        return pages.join_heap_pages(
            style, [(heap.info, allocators.find_allocator(heap.info.name, heap.rows).arenas_page(heap.rows, heap.totals)) for heap in heaps]
        )

    return CommandAnswer(data, text, read=True, record=lambda: heaps)


def answer_bins(session: Session) -> CommandAnswer:
    """--bins"""
    from gdbheapx import allocators
    from gdbheapx.allocators.records import OfAllocator

    kind = List[Tuple[AllocatorInfo, Sequence[Annotated[Any, OfAllocator("bins")]]]]
    heaps = session.kept("bins", kind, lambda: [(heap.info, heap.bins()) for heap in session.heaps.all()])

    def text(style: TextStyle) -> Any:
        from gdbheapx.report import pages

        return pages.join_heap_pages(style, [(info, allocators.find_allocator(info.name, rows).page("bins", rows)) for info, rows in heaps])

    found = [row for _, rows in heaps for row in rows]
    return CommandAnswer(lambda: {"bins": found}, text, read=True, record=lambda: found)


def answer_caches(session: Session) -> CommandAnswer:
    """--caches"""
    kind = List[Tuple[AllocatorInfo, Sequence[ThreadCache]]]
    heaps = session.kept("tcache", kind, lambda: [(heap.info, heap.caches()) for heap in session.heaps.all()])

    def text(style: TextStyle) -> Any:
        from gdbheapx.allocators import find_allocator
        from gdbheapx.report import pages

        def make_page(info: AllocatorInfo, rows: Sequence[ThreadCache]) -> Any:
            return pages.make_tcache_page(rows) if find_allocator(info.name).has_caches else ["%s has no thread caches" % info.name]

        return pages.join_heap_pages(style, [(info, make_page(info, rows)) for info, rows in heaps])

    found = [row for _, rows in heaps for row in rows]
    return CommandAnswer(lambda: {"threads": found}, text, read=True, record=lambda: found)


def answer_sizes(session: Session) -> CommandAnswer:
    """--sizes"""
    from gdbheapx.report import pages

    return pages.answer_sizes(session)
