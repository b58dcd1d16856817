"""Format answers of single commands: chunks, checks, tcache, whatis, a runtime's books, calls, snapshots."""

import heapq
from operator import add, getitem
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.places import AddressPart, AllocatorPlace, Neighbour
from gdbheapx.allocators.records import Page
from gdbheapx.allocators.returning import say_resident
from gdbheapx.allocators.rules import BrokenRule, RuleSuspect
from gdbheapx.analysis.acted import Acted, list_measures
from gdbheapx.analysis.blocks import Location
from gdbheapx.analysis.census.books import UNNAMED, Books, QueueRow, sum_by_name, sum_contexts
from gdbheapx.analysis.reachability.garbage import FROZEN, LATE, OFF, Garbage
from gdbheapx.catalogue import ALIASES
from gdbheapx.columns import BYTES, COUNT, IF_ANY, IF_KNOWN, TEXT, Column, ColumnsTable, columns_of
from gdbheapx.command import CommandAnswer, JsonLines, TextStyle
from gdbheapx.hints import hint_about, hint_again
from gdbheapx.kernel.blocks.records import NO_ARENA, BlockFilter, BlockShape, NativeBlocks
from gdbheapx.model import AllocatorInfo, Check, HistogramRow, ThreadCache
from gdbheapx.problems import NO_ALLOCATOR, NOT_IN_SNAPSHOT
from gdbheapx.report import text
from gdbheapx.report.text import format_page
from gdbheapx.snapshot.record import GRAPH, SnapshotRecord
from gdbheapx.units import (
    DAMAGE,
    Sentence,
    SentenceSize,
    count_noun,
    format_share,
    format_size,
    join_sentences,
    make_cells,
    make_sentence,
    mark_sentence,
    plain_form,
)

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
    yield ColumnsTable(columns_of(HistogramRow), [_make_class_row(row) for row in rows])


def _make_class_row(row: HistogramRow) -> Dict[str, Any]:
    shown = row._asdict()
    if row.size_bytes != row.max_size_bytes:
        shown["size_bytes"] = make_cells("%s-%s", SentenceSize(row.size_bytes), SentenceSize(row.max_size_bytes))
    return shown


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
        yield from format_page(
            style, [make_sentence("%s: %s", NOTHING[:-1], coverage.words()) if coverage is not None and coverage.is_low else NOTHING]
        )
        return
    yield from format_page(style, [ColumnsTable(columns_of(BrokenRule), [_make_broken_row(row) for row in rows])])
    yield ""
    for row in rows:
        yield mark_sentence("%s%s: %s" % ("%s: " % row.address if row.address is not None else "", row.rule, row.what), DAMAGE)


def _make_broken_row(rule: BrokenRule) -> Dict[str, Any]:
    return {
        **rule._asdict(),
        "arena": "-" if rule.arena is None else str(rule.arena),
        "address": str(rule.address) if rule.address is not None else "-",
        "abort": rule.abort or "-",
        "suspect": _describe_suspect(rule.suspect),
    }


def _describe_suspect(suspect: Optional[RuleSuspect]) -> Any:
    if suspect is None:
        return "-"
    what = "%s, %s" % (suspect.signature, suspect.owner or suspect.status) if suspect.signature else suspect.owner or suspect.status
    said: Sentence = make_sentence("%s (%s, %s)", suspect.address, SentenceSize(suspect.size_bytes), what)
    return said


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
    return CommandAnswer(
        lambda: {"histogram": rows}, lambda style: text.format_page(style, make_histogram_page(rows)), read=True, record=lambda: rows
    )


def answer_chunks(mallocs: Sequence[Any], selection: ChunkSelection) -> CommandAnswer:
    """The answer of `chunks`: allocators and what to list of them."""

    def read_data() -> Any:
        counter = [0]
        return {"chunks": JsonLines(_encode_chunks(mallocs, selection, counter)), "count": lambda: counter[0]}

    return CommandAnswer(read_data, lambda style: _format_chunks(style, mallocs, selection))


def _make_filter(shape: BlockShape, selection: ChunkSelection) -> BlockFilter:
    kinds = None if selection.statuses is None else {kind for kind, word in enumerate(shape.words) if word in selection.statuses}
    return BlockFilter(kinds, selection.min_size, selection.max_size)


def _open_streams(mallocs: Sequence[Any], selection: ChunkSelection) -> "Iterator[Tuple[Any, Iterator[NativeBlocks]]]":
    """(allocator, its blocks)."""
    for malloc in mallocs:
        yield malloc, malloc.listing(_make_filter(malloc.shape, selection), selection.arena)


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
            for address, usable, kind, arena in _join_columns(blocks):
                chunk, index = None if header is None else address - header, None if arena == NO_ARENA else arena
                yield ListedChunk(chunk, usable + overheads[kind], words[kind], index, name, address, usable)


def _join_columns(blocks: NativeBlocks) -> "Iterator[Tuple[int, int, int, int]]":
    return zip(blocks.addresses, blocks.usable_bytes, blocks.kinds, blocks.arenas)


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


LEAKED = "leaked"
"""In the words of a holder: there is none."""


def format_location(style: TextStyle, location: Location) -> Iterator[str]:
    """A line for each thing that is known."""
    for line in _format_location_lines(location):
        yield plain_form(line) if style.plain_bytes else str(line)


def _format_location_lines(location: Location) -> Iterator[Any]:
    if location.used is not None:
        used = location.used
        yield make_sentence(
            "%s: offset %d in block %s, %s usable, in use", location.address, used.offset, used.address, SentenceSize(used.usable_bytes)
        )
    for place in location.places:
        yield from _format_place(location.address, place)
    if location.piece is not None:
        piece = location.piece
        if piece.address is None:
            yield "%s: in memory of %s (%s), in no block that it has handed out" % (location.address, piece.module, piece.name)
        else:
            text_ = "%s: offset %d in block %s of %s (%s), %s usable, in use"
            yield make_sentence(
                text_, location.address, piece.offset, piece.address, piece.module, piece.name, SentenceSize(piece.usable_bytes)
            )
    if location.signature is not None:
        yield "  type      %s" % location.signature
    if location.held_by is not None:
        held = location.held_by
        by, words = ", by %s" % held.by if held.by is not None else "", held.words()
        yield "  held by   %s%s" % ("nothing (leaked)" if words == LEAKED else words, by)
        if held.element is not None:
            yield "  as        %s" % held.element
    if location.thread is not None:
        who = location.thread.name or "unnamed"
        yield "%s: %s of thread %d (%s), offset %+d" % (
            location.address,
            location.thread.what,
            location.thread.lwp,
            who,
            location.thread.offset,
        )
    if location.named is not None:
        named = location.named
        symbol = ", symbol %s+0x%x" % (named.symbol, named.symbol_offset or 0) if named.symbol is not None else ""
        yield "%s: in %s at offset 0x%x%s" % (location.address, named.module, named.module_offset, symbol)
    if location.mapping is None and location.used is None:
        yield "%s: nothing is mapped at this address" % location.address
    elif not location.places and location.used is None and location.piece is None and location.thread is None and location.named is None:
        yield "%s: in no heap, stack or object" % location.address
    if location.mapping is not None:
        mapping = location.mapping
        at = ", file offset 0x%x" % mapping.file_offset if mapping.file_offset is not None else ""
        yield "  mapping   %s-%s %s %s%s" % (mapping.start, mapping.end, mapping.permissions, mapping.name or "anonymous", at)


def _format_place(address: object, place: AllocatorPlace) -> Iterator[Any]:
    arena = ", arena %d" % place.arena if place.arena is not None else ""
    if place.block is None:
        yield "%s: in %s's memory%s, in no block" % (address, place.allocator, arena)
    else:
        offset = place.offset or 0
        where = "offset %d" % offset if offset >= 0 else "in its header, offset %d" % offset
        block, usable = place.block, SentenceSize(place.block.usable_bytes)
        yield make_sentence(
            "%s: %s in %s%s: block %s of %s, %s usable",
            address,
            where,
            place.allocator,
            arena,
            block.address,
            SentenceSize(block.size_bytes),
            usable,
        )
        yield "  status    %s" % block.status
    yield from _format_parts(place.parts)
    yield from _format_neighbour("previous", place.previous)
    yield from _format_neighbour("next", place.next)


def _format_parts(parts: Sequence[AddressPart]) -> Iterator[str]:
    for part in parts:
        span = "" if part.start is None else " at %s" % part.start if part.end is None else " %s-%s" % (part.start, part.end)
        yield "  %-9s %s%s" % (part.kind, part.name, span)


def _format_neighbour(which: str, neighbour: Optional[Neighbour]) -> Iterator[Any]:
    if neighbour is not None:
        yield make_sentence("  %s %s of %s, %s", which.ljust(9), neighbour.address, SentenceSize(neighbour.size_bytes), neighbour.status)


MOST_ROWS, MOST_QUEUES = 12, 8
BOOKS_COLUMNS = (
    Column("", TEXT, field="name"),
    Column("contexts", COUNT, field="contexts", goes=3),
    Column("in use", BYTES, field="inuse_bytes"),
    Column("free in pools", BYTES, shown=IF_ANY, field="pooled_bytes"),
    Column("malloced", BYTES, shown=IF_KNOWN, field="malloced_bytes", goes=2),
    Column("most malloced", BYTES, shown=IF_KNOWN, field="most_malloced_bytes", goes=5),
    Column("hi-water", BYTES, shown=IF_ANY, field="hi_water_bytes", goes=4),
    Column("blocks", COUNT, shown=IF_KNOWN, field="blocks", goes=1),
)


def make_books_page(books: Books) -> Page:
    """Contexts, their sum against malloc's, tasks or loops."""
    yield "%s's memory contexts" % books.program
    named = sum_by_name(books.contexts)
    rows = named[:MOST_ROWS] if len(named) > MOST_ROWS + 1 else named
    if len(rows) < len(named):
        names = {row.name for row in rows}
        small = [context for context in books.contexts if (context.name or UNNAMED) not in names]
        rows = [*rows, sum_contexts("%d smaller names" % (len(named) - len(rows)), small)]
    yield ColumnsTable(BOOKS_COLUMNS, rows)
    yield make_sentence(
        "  together %s: %s of the %s in use; the rest is that of libraries, and rounding",
        SentenceSize(books.sum_bytes),
        format_share(books.sum_bytes, books.used_bytes),
        SentenceSize(books.used_bytes),
    )
    if books.queues:
        yield from _make_queues_page(books.queues[:MOST_QUEUES], len(books.queues) - MOST_QUEUES)


def _make_queues_page(rows: Iterable[QueueRow], more: int) -> Page:
    for row in rows:
        noun = "active handle" if row.kind == "loop" else row.kind
        waiting = ", %s waiting" % count_noun(row.waiting, "event") if row.waiting else ""
        yield make_sentence("  %s: %s%s", row.name or UNNAMED, count_noun(row.entries, noun), waiting)
    if more > 0:
        yield "  %s: report --json" % count_noun(more, "more name")


ACTED_NAMES = {"anonymous": "anonymous", "rss": "RSS", "swap": "swap"}


def make_acted_answer(done: Acted) -> CommandAnswer:
    """The answer of a command that has made a call."""
    return CommandAnswer(lambda: done.data, lambda style: format_page(style, make_call_page(done)))


def make_call_page(done: Acted) -> Page:
    """Compare a call's predicted and measured effect."""
    predicted = done.predicted
    caller = "thread %d%s" % (done.caller.lwp, " (%s)" % done.caller.name if done.caller.name else "")
    if done.trouble is None:
        text = "%s returned %s after %.1f ms, called by %s on %s in its %s"
        yield text % (done.call, done.returned, done.elapsed_ms, done.way, caller, done.caller.place)
    else:
        yield "%s by %s on %s: %s" % (done.call, done.way, caller, done.trouble)
    if done.way_reason is not None:
        yield "used general registers only, because gdb cannot write and restore the others here: %s" % done.way_reason
    yield make_cells(
        "predicted   %s%s", SentenceSize(predicted.bytes), say_resident(predicted.resident_bytes, predicted.exclusive_bytes, "")
    )
    for name, before, after in list_measures(done.before, done.after):
        if before is not None and after is not None:
            change = make_cells("unchanged")
            if before != after:
                change = make_cells("%s returned to the OS" if before > after else "%s more", SentenceSize(abs(before - after)))
            yield make_cells("%-11s %s -> %s: %s", ACTED_NAMES[name], SentenceSize(before), SentenceSize(after), change)
    for word, before in (predicted.kept or {}).items():
        yield "%-11s %s -> %s" % (word.replace("_", " "), _format_known(before), _format_known((done.kept_after or {}).get(word)))
    if done.stopped_ms is not None:
        tries = ", %s" % count_noun(done.tries, "time") if done.tries > 1 else ""
        yield "the process was stopped for %.1f ms in total%s, and is running again" % (done.stopped_ms, tries)


def _format_known(number: object) -> str:
    return "unknown" if number is None else str(number)


GARBAGE_REASONS = {
    OFF: "its collector is off: gc.disable(), or a threshold of 0",
    FROZEN: "gc.freeze() keeps it from its collector",
    LATE: "its collector is on",
}


def format_garbage(garbage: Garbage) -> Iterator[str]:
    """Say how much garbage waits for a collector, of which types, and why."""
    collector = garbage.collector
    top = garbage.classes[0] if garbage.classes else None
    holds = (
        make_sentence(" (%s in %d %s)", SentenceSize(top.behind_bytes), top.objects, top.name)
        if top is not None and top.behind_bytes is not None
        else ""
    )
    objects = count_noun(garbage.objects, "object")
    cure = "gc.unfreeze() and gc.collect()" if garbage.why == FROZEN else "gc.collect()"
    yield make_sentence(
        "Garbage: %s in %s that only refer to each other%s; %s would free them", SentenceSize(garbage.bytes), objects, holds, cure
    )
    if garbage.why is not None:
        counted = ["%d of %d" % pair for pair in zip(collector.counts, collector.thresholds)]
        yield "  %s; counts of its generations: %s" % (GARBAGE_REASONS[garbage.why], ", ".join(counted))


BY_GRAPH_ALONE = ("export", "query", "refs", "whatis")
"""Commands that are not run when a snapshot is taken."""


def make_snapshot_data(path: str, size_bytes: int, record: SnapshotRecord) -> Dict[str, Any]:
    """The `data` member: what is in the file, and which commands have no answer there."""
    has_graph = GRAPH in record.models
    answered = sorted(
        [*(name for name, outcome in record.outcomes.items() if outcome.error is None), *(BY_GRAPH_ALONE if has_graph else ())]
    )
    return {
        "file": path,
        "file_bytes": size_bytes,
        "has_names": record.head.has_names,
        "keeps_addresses": record.head.keeps_addresses,
        "has_graph": has_graph,
        "taken": record.head.taken,
        "answers": answered,
        "unanswered": {name: outcome.error for name, outcome in sorted(record.outcomes.items()) if outcome.error is not None},
    }


def format_snapshot(style: TextStyle, told: Dict[str, Any], record: SnapshotRecord) -> Iterator[str]:
    """The text."""
    names = "" if told["has_names"] else ", without names"
    names += ", original addresses" if told["keeps_addresses"] else ""
    yield text.format_sentence(style, make_sentence("Wrote %s (%s%s).", told["file"], SentenceSize(told["file_bytes"]), names))
    yield "Answers: %s" % ", ".join(sorted({ALIASES.get(name, (name,))[0] for name in told["answers"]}))
    if not told["has_graph"]:
        yield "Without the graph of all blocks, so without whatis and leaks --list."
    for name, why in told["unanswered"].items():
        if record.outcomes[name].code not in (NO_ALLOCATOR, NOT_IN_SNAPSHOT):
            yield "%s: %s" % (name, why)
    yield ""
    yield "Next: %s" % hint_about("snapshot", told["file"], "report")


class UncutText(str):
    """A text that is no use if it is cut, such as a line to copy."""


class DrawnPath(str):
    """A path of a picture, made here from numbers."""


def format_coordinate(value: float) -> str:
    """Return a coordinate of a picture, short."""
    return ("%.2f" % value).rstrip("0").rstrip(".")
