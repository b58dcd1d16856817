"""What `report` shows of a program's own books: memory contexts, tasks and loops by name."""

from typing import Iterable

from gdbheapx.allocators.records import Page
from gdbheapx.analysis.census.books import UNNAMED, Books, QueueRow, sum_by_name, sum_contexts
from gdbheapx.columns import BYTES, COUNT, IF_ANY, IF_KNOWN, TEXT, Column, Table
from gdbheapx.units import Size, plural, say, share

MOST_ROWS, MOST_QUEUES = 12, 8
COLUMNS = (
    Column("", TEXT, field="name"),
    Column("contexts", COUNT, field="contexts", goes=3),
    Column("in use", BYTES, field="inuse_bytes"),
    Column("free in pools", BYTES, shown=IF_ANY, field="pooled_bytes"),
    Column("malloced", BYTES, shown=IF_KNOWN, field="malloced_bytes", goes=2),
    Column("most malloced", BYTES, shown=IF_KNOWN, field="most_malloced_bytes", goes=5),
    Column("hi-water", BYTES, shown=IF_ANY, field="hi_water_bytes", goes=4),
    Column("blocks", COUNT, shown=IF_KNOWN, field="blocks", goes=1),
)


def page(books: Books) -> Page:
    """Contexts, their sum against malloc's, tasks or loops."""
    yield "%s's memory contexts" % books.program
    named = sum_by_name(books.contexts)
    rows = named[:MOST_ROWS] if len(named) > MOST_ROWS + 1 else named
    if len(rows) < len(named):
        names = {row.name for row in rows}
        small = [context for context in books.contexts if (context.name or UNNAMED) not in names]
        rows = [*rows, sum_contexts("%d smaller names" % (len(named) - len(rows)), small)]
    yield Table(COLUMNS, rows)
    yield say(
        "  together %s: %s of the %s in use; the rest is that of libraries, and rounding",
        Size(books.sum_bytes),
        share(books.sum_bytes, books.used_bytes),
        Size(books.used_bytes),
    )
    if books.queues:
        yield from _queues(books.queues[:MOST_QUEUES], len(books.queues) - MOST_QUEUES)


def _queues(rows: Iterable[QueueRow], more: int) -> Page:
    for row in rows:
        noun = "active handle" if row.kind == "loop" else row.kind
        waiting = ", %s waiting" % plural(row.waiting, "event") if row.waiting else ""
        yield say("  %s: %s%s", row.name or UNNAMED, plural(row.entries, noun), waiting)
    if more > 0:
        yield "  %s: report --json" % plural(more, "more name")
