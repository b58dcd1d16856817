"""Listings of chunks that stream: one line per chunk, made while the heap is read."""

import heapq
from typing import Any, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.command import Answer, JsonLines, Style
from gdbheapx.model import HistogramRow
from gdbheapx.report import pages, text
from gdbheapx.units import size

DEFAULT_TEXT_LIMIT = 100
DEFAULT_SORT_LIMIT = 1000


class Selection(NamedTuple):
    """What to list."""

    arena: Optional[int]
    statuses: Optional[FrozenSet[str]]
    min_size: int
    max_size: Optional[int]
    limit: Optional[int]
    sort: Optional[str]


class Row(NamedTuple):
    """One chunk or block with everything that is shown of it."""

    chunk: Optional[int]
    """Address of the header before it; None where the allocator has none."""
    size_bytes: int
    status: str
    arena: Optional[int]
    allocator: str
    address: int
    usable_bytes: int


def histogram_answer(rows: Sequence[HistogramRow]) -> Answer:
    """The answer of `chunks --histogram`."""
    return Answer(lambda: {"histogram": rows}, lambda style: text.show(style, pages.histogram(rows)), read=True)


def chunk_answer(mallocs: Sequence[Any], selection: Selection) -> Answer:
    """The answer of `chunks`: allocators and what to list of them."""

    def data() -> Any:
        counter = [0]
        return {"chunks": JsonLines(_encoded(mallocs, selection, counter)), "count": lambda: counter[0]}

    return Answer(data, lambda style: _lines(style, mallocs, selection))


def _batches(mallocs: Sequence[Any], selection: Selection) -> "Iterator[Tuple[Any, Any]]":
    for malloc in mallocs:
        statuses = None if selection.statuses is None else set(selection.statuses)
        for batch in malloc.listing(selection.arena, statuses, selection.min_size, selection.max_size):
            yield malloc, batch


def _rows(mallocs: Sequence[Any], selection: Selection) -> Iterator[Row]:
    """The chunks one by one; with --sort size the largest, first."""
    if selection.sort == "size":
        limit = DEFAULT_SORT_LIMIT if selection.limit is None else selection.limit
        yield from heapq.nsmallest(limit, _unsorted_rows(mallocs, selection), key=lambda row: (-row.size_bytes, row.address))
        return
    for number, row in enumerate(_unsorted_rows(mallocs, selection)):
        if selection.limit is not None and number >= selection.limit:
            return
        yield row


def _unsorted_rows(mallocs: Sequence[Any], selection: Selection) -> Iterator[Row]:
    for malloc, batch in _batches(mallocs, selection):
        names = malloc.status_names(batch)
        if malloc.kind == "jemalloc":
            for address, size, status, arena in batch.chunks:
                yield Row(None, size, names[status], arena, malloc.info.id, address, size)
            continue
        for chunk, size, status in batch.chunks:
            usable = malloc.usable_bytes(size, batch.mmapped)
            yield Row(chunk, size, names[status], batch.arena, malloc.info.id, chunk + malloc.header_bytes, usable)


def _encoded(mallocs: Sequence[Any], selection: Selection, counter: List[int]) -> Iterator[str]:
    """JSON of each chunk. The common case, a plain listing, formats whole batches without a record per chunk."""
    shape = '{"address": "0x%x", "chunk": %s, "size_bytes": %d, "usable_bytes": %d, "status": "%s", "arena": %s, "allocator": "%s"}'
    plain = shape.replace('"chunk": %s', '"chunk": "0x%x"')
    block = shape.replace('"chunk": %s', '"chunk": null').replace('"arena": %s', '"arena": %d')
    if selection.sort is None and selection.limit is None:
        for malloc, batch in _batches(mallocs, selection):
            names, name = malloc.status_names(batch), malloc.info.id
            if malloc.kind == "jemalloc":
                for address, size, status, arena_index in batch.chunks:
                    counter[0] += 1
                    yield block % (address, size, size, names[status], arena_index, name)
                continue
            header, short = malloc.header_bytes, malloc.usable_bytes(0, batch.mmapped)
            arena = "null" if batch.arena is None else batch.arena
            for chunk, size, status in batch.chunks:
                counter[0] += 1
                yield plain % (chunk + header, chunk, size, size + short, names[status], arena, name)
        return
    for row in _rows(mallocs, selection):
        counter[0] += 1
        arena = "null" if row.arena is None else row.arena
        chunk_text = "null" if row.chunk is None else '"0x%x"' % row.chunk
        yield shape % (row.address, chunk_text, row.size_bytes, row.usable_bytes, row.status, arena, row.allocator)


def _lines(style: Style, mallocs: Sequence[Any], selection: Selection) -> Iterator[str]:
    """Address first, fixed columns, one line per chunk; says how many more there are."""
    limit = DEFAULT_TEXT_LIMIT if selection.limit is None else selection.limit
    yield "%-18s %-18s %12s %12s %-8s %s" % ("address", "chunk", "size", "usable", "status", "arena")
    for row in _rows(mallocs, selection._replace(limit=limit)):
        arena = "-" if row.arena is None else str(row.arena)
        chunk = "-" if row.chunk is None else "0x%016x" % row.chunk
        yield "0x%016x %-18s %12s %12s %-8s %s" % (row.address, chunk, size(row.size_bytes, style.plain_bytes), size(row.usable_bytes, style.plain_bytes), row.status, arena)
    more = sum(len(batch.chunks) for _, batch in _batches(mallocs, selection)) - limit
    if more > 0:
        yield "... %d more chunks; --limit N shows more, --json shows all" % more

