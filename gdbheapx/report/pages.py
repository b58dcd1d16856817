"""Format answers about the blocks of allocators: chunks, checks, histograms, thread caches."""

import heapq
from operator import add, getitem
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import BrokenRule
from gdbheapx.allocators.records import Page
from gdbheapx.command import CommandAnswer, JsonLines, TextStyle
from gdbheapx.common.columns import BYTES, TEXT, Column, ColumnsTable, columns_of
from gdbheapx.common.hints import hint_again
from gdbheapx.common.model import AllocatorInfo, Check, HistogramRow, ThreadCache
from gdbheapx.common.units import DAMAGE, SentenceSize, count_noun, format_size, join_sentences, make_cells, make_sentence, mark_sentence
from gdbheapx.kernel.blocks.stream import NO_ARENA, BlockFilter, BlockShape, NativeBlocks
from gdbheapx.report import text
from gdbheapx.report.text import format_page

if TYPE_CHECKING:
    from gdbheapx.analysis.memory_verdict import Coverage


NOTHING = "No corruption found."


def make_heading(info: AllocatorInfo, first: bool) -> Iterator[str]:
    """A line above the table of one allocator, where there are several."""
    if not first:
        yield ""
    owns = {True: ", owns malloc", False: "", None: ", cannot determine whether it owns malloc"}[info.owns_malloc]
    yield "%s: %s %s in %s%s" % (info.id, info.name, info.version or "of unknown version", info.object, owns)


def join_heap_pages(style: TextStyle, heap_pages: Sequence[Tuple[AllocatorInfo, Page]]) -> Iterator[str]:
    """The page of each heap, with a heading where there are several."""
    for place, (info, page) in enumerate(heap_pages):
        if len(heap_pages) > 1:
            yield from make_heading(info, first=not place)
        yield from format_page(style, page)


def make_histogram_page(rows: Sequence[HistogramRow]) -> Page:
    """Chunks by size class."""
    shown = [row._asdict() for row in rows]
    for row, made in zip(rows, shown):
        if row.size_bytes != row.max_size_bytes:
            made["size_bytes"] = make_cells("%s-%s", SentenceSize(row.size_bytes), SentenceSize(row.max_size_bytes))
    yield ColumnsTable(columns_of(HistogramRow), shown)


def make_tcache_page(rows: Sequence[ThreadCache]) -> Page:
    """List the thread caches, each with its fullest bins."""
    yield ColumnsTable(columns_of(ThreadCache), [_make_cache_row(row) for row in rows])


def _make_cache_row(row: ThreadCache) -> Dict[str, Any]:
    largest = sorted(row.bins, key=lambda cached: -(cached.bytes or 0))[:3]
    return {
        **row._asdict(),
        "lwp": "explicit %d" % row.explicit if row.explicit is not None else row.lwp,
        "name": row.name or "",
        "arena": "none" if row.arena is None else row.arena,
        "tcache": str(row.tcache or "none"),
        "bins": join_sentences(", ", [make_cells("%d x %s", cached.chunks, SentenceSize(cached.size_bytes)) for cached in largest]),
    }


def format_checks(rows: Sequence[Check]) -> Iterator[str]:
    """Format a line for each check: status, subject, remedy."""
    marks = {True: "ok", False: "FAIL", None: "info"}
    for row in rows:
        line = "%-4s %-22s %s" % (marks[row.ok], row.what, row.found)
        yield mark_sentence(line, DAMAGE) if row.ok is False else line
        if row.hint:
            yield "     %-22s %s" % ("", row.hint)


def format_broken_rules(style: TextStyle, rows: Sequence[BrokenRule], coverage: Optional["Coverage"] = None) -> Iterator[str]:
    """A table, and a sentence for each row below it."""
    if not rows:
        is_low = coverage is not None and coverage.is_low
        yield from format_page(style, [make_sentence("%s: %s", NOTHING[:-1], coverage.words()) if coverage and is_low else NOTHING])
        return
    yield from format_page(style, [ColumnsTable(columns_of(BrokenRule), [_make_broken_row(row) for row in rows])])
    yield ""
    for row in rows:
        yield mark_sentence("%s%s: %s" % ("%s: " % row.address if row.address is not None else "", row.rule, row.what), DAMAGE)


def _make_broken_row(rule: BrokenRule) -> Dict[str, Any]:
    suspect, told = rule.suspect, "-"
    if suspect is not None:
        words = ", ".join(filter(None, (suspect.signature, suspect.owner or suspect.status)))
        told = make_sentence("%s (%s, %s)", suspect.address, SentenceSize(suspect.size_bytes), words)
    return {
        **rule._asdict(),
        "arena": "-" if rule.arena is None else str(rule.arena),
        "address": str(rule.address) if rule.address is not None else "-",
        "abort": rule.abort or "-",
        "suspect": told,
    }


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


class ChunkSelection(NamedTuple):
    """Selection of chunks to list."""

    arena: Optional[int]
    statuses: Optional[FrozenSet[str]]
    min_size: int
    max_size: Optional[int]
    limit: Optional[int]
    sort: Optional[str]


class ListedChunk(NamedTuple):
    """A chunk or block with all columns."""

    chunk: Optional[int]
    """Address of the header before it; None where the allocator has none."""
    size_bytes: int
    status: str
    arena: Optional[int]
    allocator: str
    address: int
    usable_bytes: int


def answer_sizes(session: Any) -> CommandAnswer:
    """The answer of `arenas --sizes`, and of `chunks --histogram`."""
    rows = session.kept("chunks", List[HistogramRow], lambda: [row for heap in session.heaps.all() for row in heap.histogram()])
    show = make_histogram_page
    return CommandAnswer(lambda: {"histogram": rows}, lambda style: format_page(style, show(rows)), read=True, record=lambda: rows)


def answer_chunks(mallocs: Sequence[Any], selection: ChunkSelection) -> CommandAnswer:
    """The answer of `chunks`: allocators and what to list of them."""

    def read_data() -> Any:
        counter = [0]
        return {"chunks": JsonLines(_encode_chunks(mallocs, selection, counter)), "count": lambda: counter[0]}

    return CommandAnswer(read_data, lambda style: _format_chunks(style, mallocs, selection))


def _open_streams(mallocs: Sequence[Any], selection: ChunkSelection) -> "Iterator[Tuple[Any, Iterator[NativeBlocks]]]":
    """(allocator, its blocks)."""
    for malloc in mallocs:
        words, statuses = malloc.shape.words, selection.statuses
        kinds = None if statuses is None else {kind for kind, word in enumerate(words) if word in statuses}
        yield malloc, malloc.listing(BlockFilter(kinds, selection.min_size, selection.max_size), selection.arena)


def _list_rows(mallocs: Sequence[Any], selection: ChunkSelection) -> Iterator[ListedChunk]:
    """The chunks one by one; with --sort size the largest, first."""
    if selection.sort == "size":
        limit = DEFAULT_SORT_LIMIT if selection.limit is None else selection.limit
        yield from heapq.nsmallest(limit, _list_unsorted_rows(mallocs, selection), key=lambda row: (-row.size_bytes, row.address))
        return
    for number, row in enumerate(_list_unsorted_rows(mallocs, selection)):
        if selection.limit is not None and number >= selection.limit:
            return
        yield row


def _list_unsorted_rows(mallocs: Sequence[Any], selection: ChunkSelection) -> Iterator[ListedChunk]:
    for malloc, stream in _open_streams(mallocs, selection):
        words, overheads, header = malloc.shape.words, malloc.shape.overheads, malloc.shape.header_bytes
        name = malloc.info.id
        for blocks in stream:
            for address, usable, kind, arena in zip(blocks.addresses, blocks.usable_bytes, blocks.kinds, blocks.arenas):
                chunk, index = None if header is None else address - header, None if arena == NO_ARENA else arena
                yield ListedChunk(chunk, usable + overheads[kind], words[kind], index, name, address, usable)


HEAD = '{"address": "0x%x", "chunk": %s, "size_bytes": %d, "usable_bytes": %d, '
TAIL = '"status": "%s", "arena": %s, "allocator": "%s"}'


def _encode_chunks(mallocs: Sequence[Any], selection: ChunkSelection, counter: List[int]) -> Iterator[str]:
    """JSON of each chunk. The common case, a plain listing, formats whole batches without a record per chunk."""
    if selection.sort is None and selection.limit is None:
        for malloc, stream in _open_streams(mallocs, selection):
            yield from _encode_stream(malloc, stream, counter)
        return
    for row in _list_rows(mallocs, selection):
        counter[0] += 1
        chunk = "null" if row.chunk is None else '"0x%x"' % row.chunk
        head = HEAD % (row.address, chunk, row.size_bytes, row.usable_bytes)
        yield head + TAIL % (row.status, _encode_index(row.arena), row.allocator)


def _encode_index(arena: Optional[int]) -> str:
    return "null" if arena is None or arena == NO_ARENA else str(arena)


class _ChunkTemplates(Dict[int, List[str]]):
    """Arena -> for each kind the line of its blocks, in which only numbers are lacking."""

    def __init__(self, shape: BlockShape, allocator: str) -> None:
        super().__init__()
        self._words, self._allocator = shape.words, allocator
        self._head = HEAD.replace("%s", "null" if shape.header_bytes is None else '"0x%x"')

    def __missing__(self, arena: int) -> List[str]:
        self[arena] = [self._head + TAIL % (word, _encode_index(arena), self._allocator) for word in self._words]
        return self[arena]


def _encode_stream(malloc: Any, stream: Iterator[NativeBlocks], counter: List[int]) -> Iterator[str]:
    """The blocks of one allocator. No statement of Python but one runs for each of them."""
    shape = malloc.shape
    templates, overheads = _ChunkTemplates(shape, malloc.info.id), shape.overheads
    for blocks in stream:
        usable = blocks.usable_bytes
        numbers: List[Any] = [blocks.addresses]
        if shape.header_bytes is not None:
            numbers.append(map((-shape.header_bytes).__add__, blocks.addresses))
        numbers += [map(add, usable, map(overheads.__getitem__, blocks.kinds)) if any(overheads) else usable, usable]
        for template, row in zip(map(getitem, map(templates.__getitem__, blocks.arenas), blocks.kinds), zip(*numbers)):
            counter[0] += 1
            yield template % row


def _format_chunks(style: TextStyle, mallocs: Sequence[Any], selection: ChunkSelection) -> Iterator[str]:
    """Address first, fixed columns, one line per chunk; says how many more there are."""
    limit = DEFAULT_TEXT_LIMIT if selection.limit is None else selection.limit
    places = text.choose_staying(COLUMNS, WIDTHS, style.width if style.wraps else None, gap=1)
    row_template = " ".join(TEMPLATES[place] for place in places)
    yield row_template % tuple(COLUMNS[place].heading for place in places)
    for row in _list_rows(mallocs, selection._replace(limit=limit)):
        cells = (
            "0x%016x" % row.address,
            "-" if row.chunk is None else "0x%016x" % row.chunk,
            format_size(row.size_bytes, style.plain_bytes),
            format_size(row.usable_bytes, style.plain_bytes),
            row.status,
            "-" if row.arena is None else str(row.arena),
        )
        yield row_template % tuple(cells[place] for place in places)
    yield from text.note_hidden([column.heading for place, column in enumerate(COLUMNS) if place not in places], False, style.width)
    more = sum(len(blocks.addresses) for _, stream in _open_streams(mallocs, selection) for blocks in stream) - limit
    if more > 0:
        yield "... %s: %s" % (count_noun(more, "more chunk"), hint_again("--limit %d", limit + more))
