"""Listings of chunks that stream: one line per chunk, made while the heap is read."""

import heapq
from operator import add, getitem
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.columns import BYTES, TEXT, Column
from gdbheapx.command import Answer, JsonLines, Style
from gdbheapx.hints import again
from gdbheapx.kernel.blocks.records import NO_ARENA, BlockFilter, Blocks, BlockShape
from gdbheapx.model import HistogramRow
from gdbheapx.report import fitting, pages, text
from gdbheapx.units import plural, size

COLUMNS = (
    Column("address", TEXT, field="address"),
    Column("chunk", TEXT, field="chunk", goes=3),
    Column("size", BYTES, field="size_bytes"),
    Column("usable", BYTES, field="usable_bytes", goes=2),
    Column("status", TEXT, field="status"),
    Column("arena", TEXT, field="arena", goes=1),
)
WIDTHS = 18, 18, 12, 12, 8, 5
TEMPLATES = "%-18s", "%-18s", "%12s", "%12s", "%-8s", "%s"
"""Of the lines of `chunks`, which are shown while the heap is read: no row knows how wide those to come are."""
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


class ListedChunk(NamedTuple):
    """One chunk or block with everything that is shown of it."""

    chunk: Optional[int]
    """Address of the header before it; None where the allocator has none."""
    size_bytes: int
    status: str
    arena: Optional[int]
    allocator: str
    address: int
    usable_bytes: int


def sizes(session: Any) -> Answer:
    """The answer of `arenas --sizes`, and of `chunks --histogram`."""
    rows = session.kept("chunks", List[HistogramRow], lambda: [row for heap in session.heaps.all() for row in heap.histogram()])
    return Answer(lambda: {"histogram": rows}, lambda style: text.show(style, pages.histogram(rows)), read=True, record=lambda: rows)


def chunk_answer(mallocs: Sequence[Any], selection: Selection) -> Answer:
    """The answer of `chunks`: allocators and what to list of them."""

    def data() -> Any:
        counter = [0]
        return {"chunks": JsonLines(_encoded(mallocs, selection, counter)), "count": lambda: counter[0]}

    return Answer(data, lambda style: _lines(style, mallocs, selection))


def _wanted(shape: BlockShape, selection: Selection) -> BlockFilter:
    kinds = None if selection.statuses is None else {kind for kind, word in enumerate(shape.words) if word in selection.statuses}
    return BlockFilter(kinds, selection.min_size, selection.max_size)


def _streams(mallocs: Sequence[Any], selection: Selection) -> "Iterator[Tuple[Any, Iterator[Blocks]]]":
    """(allocator, its blocks)."""
    for malloc in mallocs:
        yield malloc, malloc.listing(_wanted(malloc.shape, selection), selection.arena)


def _rows(mallocs: Sequence[Any], selection: Selection) -> Iterator[ListedChunk]:
    """The chunks one by one; with --sort size the largest, first."""
    if selection.sort == "size":
        limit = DEFAULT_SORT_LIMIT if selection.limit is None else selection.limit
        yield from heapq.nsmallest(limit, _unsorted_rows(mallocs, selection), key=lambda row: (-row.size_bytes, row.address))
        return
    for number, row in enumerate(_unsorted_rows(mallocs, selection)):
        if selection.limit is not None and number >= selection.limit:
            return
        yield row


def _unsorted_rows(mallocs: Sequence[Any], selection: Selection) -> Iterator[ListedChunk]:
    for malloc, stream in _streams(mallocs, selection):
        words, overheads, header = malloc.shape.words, malloc.shape.overheads, malloc.shape.header_bytes
        name = malloc.info.id
        for blocks in stream:
            for address, usable, kind, arena in _columns(blocks):
                chunk, index = None if header is None else address - header, None if arena == NO_ARENA else arena
                yield ListedChunk(chunk, usable + overheads[kind], words[kind], index, name, address, usable)


def _columns(blocks: Blocks) -> "Iterator[Tuple[int, int, int, int]]":
    return zip(blocks.addresses, blocks.usable_bytes, blocks.kinds, blocks.arenas)


HEAD = '{"address": "0x%x", "chunk": %s, "size_bytes": %d, "usable_bytes": %d, '
TAIL = '"status": "%s", "arena": %s, "allocator": "%s"}'


def _encoded(mallocs: Sequence[Any], selection: Selection, counter: List[int]) -> Iterator[str]:
    """JSON of each chunk. The common case, a plain listing, formats whole batches without a record per chunk."""
    if selection.sort is None and selection.limit is None:
        for malloc, stream in _streams(mallocs, selection):
            yield from _encoded_stream(malloc, stream, counter)
        return
    for row in _rows(mallocs, selection):
        counter[0] += 1
        chunk = "null" if row.chunk is None else '"0x%x"' % row.chunk
        head = HEAD % (row.address, chunk, row.size_bytes, row.usable_bytes)
        yield head + TAIL % (row.status, _index(row.arena), row.allocator)


def _index(arena: Optional[int]) -> str:
    return "null" if arena is None or arena == NO_ARENA else str(arena)


class _Templates(Dict[int, List[str]]):
    """Arena -> for each kind the line of its blocks, in which only numbers are lacking."""

    def __init__(self, shape: BlockShape, allocator: str) -> None:
        super().__init__()
        self._words, self._allocator = shape.words, allocator
        self._head = HEAD.replace("%s", "null" if shape.header_bytes is None else '"0x%x"')

    def __missing__(self, arena: int) -> List[str]:
        self[arena] = [self._head + TAIL % (word, _index(arena), self._allocator) for word in self._words]
        return self[arena]


def _encoded_stream(malloc: Any, stream: Iterator[Blocks], counter: List[int]) -> Iterator[str]:
    """The blocks of one allocator. No statement of Python but one runs for each of them."""
    shape = malloc.shape
    templates, overheads = _Templates(shape, malloc.info.id), shape.overheads
    for blocks in stream:
        usable = blocks.usable_bytes
        numbers: List[Any] = [blocks.addresses]
        if shape.header_bytes is not None:
            numbers.append(map((-shape.header_bytes).__add__, blocks.addresses))
        numbers += [map(add, usable, map(overheads.__getitem__, blocks.kinds)) if any(overheads) else usable, usable]
        for template, row in zip(map(getitem, map(templates.__getitem__, blocks.arenas), blocks.kinds), zip(*numbers)):
            counter[0] += 1
            yield template % row


def _lines(style: Style, mallocs: Sequence[Any], selection: Selection) -> Iterator[str]:
    """Address first, fixed columns, one line per chunk; says how many more there are."""
    limit = DEFAULT_TEXT_LIMIT if selection.limit is None else selection.limit
    places = fitting.staying(COLUMNS, WIDTHS, style.width if style.wraps else None, gap=1)
    row_template = " ".join(TEMPLATES[place] for place in places)
    yield row_template % tuple(COLUMNS[place].heading for place in places)
    for row in _rows(mallocs, selection._replace(limit=limit)):
        cells = (
            "0x%016x" % row.address,
            "-" if row.chunk is None else "0x%016x" % row.chunk,
            size(row.size_bytes, style.plain_bytes),
            size(row.usable_bytes, style.plain_bytes),
            row.status,
            "-" if row.arena is None else str(row.arena),
        )
        yield row_template % tuple(cells[place] for place in places)
    yield from fitting.note([column.heading for place, column in enumerate(COLUMNS) if place not in places], False, style.width)
    more = sum(len(blocks.addresses) for _, stream in _streams(mallocs, selection) for blocks in stream) - limit
    if more > 0:
        yield "... %s: %s" % (plural(more, "more chunk"), again("--limit %d", limit + more))
