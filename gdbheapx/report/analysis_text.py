"""Format what analyses found: the place of an address, a runtime's books, the effect of a call, garbage, a snapshot."""

from typing import Any, Dict, Iterator, Optional, Sequence

from gdbheapx.allocators.answers import AllocatorPlace
from gdbheapx.allocators.plan import Acted, list_measures, say_resident
from gdbheapx.allocators.records import Page
from gdbheapx.analysis.addon_answers import FROZEN, LATE, OFF, UNNAMED, Books, Garbage, sum_by_name, sum_contexts
from gdbheapx.analysis.census.block import Location
from gdbheapx.command import CommandAnswer, TextStyle
from gdbheapx.common import units
from gdbheapx.common.catalogue import ALIASES
from gdbheapx.common.columns import BYTES, COUNT, IF_ANY, IF_KNOWN, TEXT, Column, ColumnsTable
from gdbheapx.common.hints import hint_about
from gdbheapx.common.problems import NO_ALLOCATOR, NOT_IN_SNAPSHOT
from gdbheapx.common.units import HEADING, Sentence, SentenceSize, count_noun, format_share, make_cells, make_sentence, mark_sentence
from gdbheapx.report import text
from gdbheapx.report.text import format_page
from gdbheapx.snapshot.diff import DUMPED, Diff, DiffChange, DiffSide, GrowthPart, drop_unchanged
from gdbheapx.snapshot.record import GRAPH, SnapshotRecord

LEAKED = "leaked"
"""In the words of a holder: there is none."""


def make_location_page(location: Location) -> Page:
    """A line for each thing that is known."""
    if location.used is not None:
        used = location.used
        where = location.address, used.offset, used.address, SentenceSize(used.usable_bytes)
        yield make_sentence("%s: offset %d in block %s, %s usable, in use", *where)
    for place in location.places:
        yield from _format_place(location.address, place)
    if location.piece is not None:
        piece = location.piece
        if piece.address is None:
            yield "%s: in memory of %s (%s), in no block that it has handed out" % (location.address, piece.module, piece.name)
        else:
            within = piece.offset, piece.address, piece.module, piece.name, SentenceSize(piece.usable_bytes)
            yield make_sentence("%s: offset %d in block %s of %s (%s), %s usable, in use", location.address, *within)
    if location.signature is not None:
        yield "  type      %s" % location.signature
    if location.held_by is not None:
        held = location.held_by
        by, words = ", by %s" % held.by if held.by is not None else "", held.words()
        yield "  held by   %s%s" % ("nothing (leaked)" if words == LEAKED else words, by)
        if held.element is not None:
            yield "  as        %s" % held.element
    if location.thread is not None:
        of = location.thread
        yield "%s: %s of thread %d (%s), offset %+d" % (location.address, of.what, of.lwp, of.name or "unnamed", of.offset)
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
    block = place.block
    if block is None:
        yield "%s: in %s's memory%s, in no block" % (address, place.allocator, arena)
    else:
        offset = place.offset or 0
        where = "offset %d" % offset if offset >= 0 else "in its header, offset %d" % offset
        sizes = SentenceSize(block.size_bytes), SentenceSize(block.usable_bytes)
        sentence = "%s: %s in %s%s: block %s of %s, %s usable"
        yield make_sentence(sentence, address, where, place.allocator, arena, block.address, *sizes)
        yield "  status    %s" % block.status
    for part in place.parts:
        span = "" if part.start is None else " at %s" % part.start if part.end is None else " %s-%s" % (part.start, part.end)
        yield "  %-9s %s%s" % (part.kind, part.name, span)
    for which, near in (("previous", place.previous), ("next", place.next)):
        if near is not None:
            yield make_sentence("  %s %s of %s, %s", which.ljust(9), near.address, SentenceSize(near.size_bytes), near.status)


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
    sizes = SentenceSize(books.sum_bytes), format_share(books.sum_bytes, books.used_bytes), SentenceSize(books.used_bytes)
    yield make_sentence("  together %s: %s of the %s in use; the rest is that of libraries, and rounding", *sizes)
    for row in books.queues[:MOST_QUEUES]:
        noun = "active handle" if row.kind == "loop" else row.kind
        waiting = ", %s waiting" % count_noun(row.waiting, "event") if row.waiting else ""
        yield make_sentence("  %s: %s%s", row.name or UNNAMED, count_noun(row.entries, noun), waiting)
    if len(books.queues) > MOST_QUEUES:
        yield "  %s: report --json" % count_noun(len(books.queues) - MOST_QUEUES, "more name")


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
    resident = say_resident(predicted.resident_bytes, predicted.exclusive_bytes, "")
    yield make_cells("predicted   %s%s", SentenceSize(predicted.bytes), resident)
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
    collector, holds = garbage.collector, make_sentence("")
    top = garbage.classes[0] if garbage.classes else None
    if top is not None and top.behind_bytes is not None:
        holds = make_sentence(" (%s in %d %s)", SentenceSize(top.behind_bytes), top.objects, top.name)
    cure = "gc.unfreeze() and gc.collect()" if garbage.why == FROZEN else "gc.collect()"
    amount = SentenceSize(garbage.bytes), count_noun(garbage.objects, "object")
    yield make_sentence("Garbage: %s in %s that only refer to each other%s; %s would free them", *amount, holds, cure)
    if garbage.why is not None:
        counted = ["%d of %d" % pair for pair in zip(collector.counts, collector.thresholds)]
        yield "  %s; counts of its generations: %s" % (GARBAGE_REASONS[garbage.why], ", ".join(counted))


BY_GRAPH_ALONE = ("export", "query", "refs", "whatis")
"""Commands that are not run when a snapshot is taken."""


def make_snapshot_data(path: str, size_bytes: int, record: SnapshotRecord) -> Dict[str, Any]:
    """The `data` member: what is in the file, and which commands have no answer there."""
    has_graph = GRAPH in record.models
    answered = [name for name, outcome in record.outcomes.items() if outcome.error is None]
    return {
        "file": path,
        "file_bytes": size_bytes,
        "has_names": record.head.has_names,
        "keeps_addresses": record.head.keeps_addresses,
        "has_graph": has_graph,
        "taken": record.head.taken,
        "answers": sorted([*answered, *(BY_GRAPH_ALONE if has_graph else ())]),
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


MOST_CHANGES = 10
COLUMNS = Column("change", field="change"), Column("old -> new", field="sizes")
LEAKS = {"leaked": "leaked", "maybe": "possibly leaked", "held": "reachable"}
"""The classes of `leaks`, the worst first, as its text calls them."""
Row = Dict[str, Any]


def make_diff_data(diff: Diff, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    lists = {name: getattr(diff, name) for name in ("arenas", "classes", "owners", "held", "leaks", "contexts")}
    return {**diff._asdict(), **{name: None if rows is None else list(rows[:limit]) for name, rows in lists.items()}}


def format_diff(style: TextStyle, diff: Diff, limit: Optional[int]) -> Iterator[str]:
    """The text."""
    yield from text.format_page(style, _make_diff_page(diff, MOST_CHANGES if limit is None else limit))


def _make_diff_page(diff: Diff, limit: int) -> Page:
    """Verdict, then leaks, owners and classes, then the parts of memory, and what allocators have."""
    yield "old: %s" % _describe_side(diff.old)
    later = ""
    if diff.between_s is not None:
        later = ", %s %s" % (units.format_duration(abs(diff.between_s)), "later" if diff.between_s >= 0 else "EARLIER")
    yield "new: %s%s" % (_describe_side(diff.new), later)
    if diff.old.executable != diff.new.executable:
        yield "these are two programs"
    yield ""
    yield mark_sentence(diff.verdict.what, HEADING)
    yield from ("  %s" % line for line in diff.verdict.details)
    if diff.leaks is None:
        why = "; ".join("%s: %s" % (lacking.side, lacking.why) for lacking in diff.missing if lacking.what == "leaks")
        yield from ("", "Leaked: unknown (%s)" % why)
    else:
        changes = sorted(diff.leaks, key=lambda row: list(LEAKS).index(row.what))
        yield from _make_changes_page("leaked or reachable", [row._replace(what=LEAKS[row.what]) for row in changes])
    for title, name in (("owner", "owners"), ("class", "classes"), ("class of owner", "held")):
        rows = getattr(diff, name)
        if rows is not None:
            yield from _make_changes_page(title, rows, limit)
            continue
        why = "; ".join("%s: %s" % (lacking.side, lacking.why) for lacking in diff.missing if lacking.what == name)
        yield from ("", "By %s: unknown (%s)" % (title, why))
    measure = ", bytes in the core" if diff.growth.measure == DUMPED else ""
    yield from _make_rows_page("part of memory%s" % measure, [_make_part_row(part) for part in diff.growth.parts], limit)
    yield from ("  %s" % why for why in diff.growth.lacking)
    yield from _make_changes_page("RSS, and parts of allocators", drop_unchanged(diff.states))
    yield from _make_changes_page("arena, in use", diff.arenas, limit)
    yield from _make_changes_page("memory context, in use", diff.contexts or (), limit)
    if diff.next_steps:
        yield ""
        yield "Next steps"
    for step in diff.next_steps:
        yield make_sentence("  %s", step.sentence)


def _describe_side(side: DiffSide) -> str:
    pid = "" if side.pid is None else ", process %d" % side.pid
    if side.kind == "core":
        when = "core written %s" % side.taken if side.taken is not None else "core, unknown when it was written"
    else:
        when = side.taken or "unknown when"
    return "%s (%s%s, %s)" % (side.what, side.executable or side.kind, pid, when)


def _make_part_row(part: GrowthPart) -> Row:
    """A part of the memory, and how much of it is in use."""
    used = make_sentence("")
    if part.used_diff_bytes:
        used = make_sentence("; in use %s%s", "-" if part.used_diff_bytes < 0 else "+", SentenceSize(abs(part.used_diff_bytes)))
    what = make_sentence("%s%s%s", part.what, _describe_only(part.only), used)
    if part.diff_bytes is None:
        return {"change": "?", "sizes": "?", "blocks": "", "what": what}
    return _make_row(part.diff_bytes, SentenceSize(part.old_bytes), SentenceSize(part.new_bytes), None, what)


def _make_change_row(change: DiffChange) -> Row:
    whose = " of %s" % change.whose if change.whose else ""
    old, new = (
        make_cells("at most %s" if change.at_most == side else "%s", SentenceSize(size))
        for side, size in (("old", change.old_bytes), ("new", change.new_bytes))
    )
    contents = ", %s" % change.contents if change.contents else ""
    what = make_sentence("%s%s%s%s", change.what, whose, _describe_only(change.only), contents)
    return _make_row(change.diff_bytes, old, new, change.diff_count, what)


def _make_changes_page(title: str, changes: Sequence[DiffChange], limit: Optional[int] = None) -> Page:
    return _make_rows_page(title, [_make_change_row(row) for row in changes], len(changes) if limit is None else limit)


def _make_row(diff_bytes: int, old: Any, new: Any, count: Optional[int], what: Sentence) -> Row:
    sign = "-" if diff_bytes < 0 else "+" if diff_bytes else ""
    return {
        "change": make_cells("%s%s", sign, SentenceSize(abs(diff_bytes))),
        "sizes": _describe_from_to(make_cells("%s", old), make_cells("%s", new)),
        "blocks": "" if count is None else "{:+,}".format(count),
        "what": what,
    }


def _describe_from_to(old: Sentence, new: Sentence) -> Sentence:
    """`162.8 -> 203.3 MiB`: a unit that both have is written once."""
    number, _, unit = old.rpartition(" ")
    return Sentence("%s -> %s" % (number if unit == new.rpartition(" ")[2] else old, new), "%s -> %s" % (old.plain, new.plain))


def _make_rows_page(title: str, rows: Sequence[Row], limit: int) -> Page:
    """A table whose last column is named by `title`; nothing for no rows."""
    if rows:
        shown = rows[:limit]
        blocks = [Column("blocks", field="blocks", goes=1)] if any(row["blocks"] for row in shown) else []
        yield ""
        yield ColumnsTable([*COLUMNS, *blocks, Column(title, TEXT, field="what")], shown)
    yield from text.note_more("row", rows, limit)


def _describe_only(side: Optional[str]) -> str:
    """A row that one side does not have, which is not the same as 0 there."""
    return ", only in %s" % side if side is not None else ""
