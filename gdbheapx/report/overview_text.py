"""The page that `report` prints."""

from typing import Any, Dict, Iterator, List, Sequence, Tuple

from gdbheapx import allocators
from gdbheapx.allocators.records import Page
from gdbheapx.analysis.inside import Inside
from gdbheapx.analysis.memory.kinds import ALLOCATOR, FILE
from gdbheapx.analysis.memory_verdict import weight, were_deeper
from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.runtime_tables import OWNED, RuntimeTable
from gdbheapx.analysis.split import Memory, taken
from gdbheapx.columns import BYTES, TEXT, Column, Table, add
from gdbheapx.command import Style
from gdbheapx.findings import MOSTLY
from gdbheapx.hints import ask, whole
from gdbheapx.model import CERTAIN, GUESS, Advice, Finding, MemoryPart
from gdbheapx.report import books_text, brief_text, census_text, garbage_text, pages, reach_text
from gdbheapx.report.fitting import wrapped
from gdbheapx.report.text import printable
from gdbheapx.units import DAMAGE, HEADING, WARNING, Said, Size, cells, exact_share, join_sentences, mark, plural, say, share, size
from gdbheapx.verdict import INCONCLUSIVE, SMALL, Verdict

BIGGEST_ARENAS = 8
SMALL_PART = 2000
"""Times a smaller part is less than the whole: it would show as 0.0 %."""
MANY_MAPPINGS = 10
"""From here on a part says over how many mappings it is spread."""
ALWAYS = (Column("", TEXT, field="name"), Column("bytes", BYTES, field="bytes"), Column("%", field="share"))
MORE = tuple(
    Column(heading, BYTES, field=field, goes=goes)
    for heading, field, goes in (
        ("shared", "shared_bytes", 1),
        ("PSS", "pss_bytes", 2),
        ("swapped", "swapped_bytes", 0),
        ("huge pages", "huge_bytes", 3),
        ("hugetlb", "hugetlb_bytes", 0),
    )
)
"""Shown where any part has some."""
THREAD_STACK = (
    Column("thread", TEXT, field="lwp"),
    Column("name", TEXT, field="name"),
    *(
        Column(heading, BYTES, field="%s_bytes" % field)
        for heading, field in (("touched", "touched"), ("depth now", "depth"), ("size", "size"))
    ),
)


FAR = 24
"""Lines between the head and the end from which on the verdict is out of sight: it is said again."""
LAST_LINES = 21
"""Of a terminal of 24 lines: two are the shell's, one is empty."""


def lines(overview: Overview) -> Page:
    """Split, what else there is to say of the verdict, findings, what allocators hold, arenas, size classes."""
    if overview.split is not None and overview.memory is not None:
        yield from _split(overview.split, overview.memory)
        yield ""
    yield from _verdicts(overview)
    verdicts = [line for verdict in (overview.verdict, *overview.verdicts.values()) for line in verdict.lines]
    for finding in overview.findings:
        if finding not in verdicts:
            yield from _line("Note: ", finding)
    if overview.inside is not None:
        yield ""
        yield from _inside(overview.inside)
    for table in overview.runtimes or ():
        yield ""
        yield from _runtime(table, overview.memory is not None and overview.memory.measure == "resident")
    if overview.books is not None:
        yield ""
        yield from books_text.page(overview.books)
    for heap, parts in overview.held.items():
        yield ""
        yield from allocators.named(heap.split("#")[0]).parts_page(heap, parts, overview.totals.get(heap, {}))
    yield ""
    yield from _arenas(overview)
    if overview.sizes:
        yield ""
        yield mark("Size classes that hold the most memory", HEADING)
        yield from pages.histogram(overview.sizes)


def last_lines(style: Style, overview: Overview, lines_between: int) -> Page:
    """What a terminal shows in the end: the verdict, if that many lines are between this and the head, and the next steps."""
    verdict = [mark("Verdict", HEADING), *list(_verdict(overview.verdict))[:1], ""] if lines_between > FAR else []
    advice = overview.next_steps or [Advice(*step) for step in overview.next]
    steps: List[str] = [mark("Next steps", HEADING), *(say("  %s", step.sentence) for step in advice)]

    def count() -> int:
        return sum(len(wrapped(whole(str(line), style.command_line), style.width)) for line in [*verdict, *steps])

    while style.wraps and style.width is not None and len(steps) > 2 and count() > LAST_LINES:
        steps.pop()
    yield ""
    yield from verdict
    yield from steps


def _split(parts: Sequence[MemoryPart], memory: Memory) -> Page:
    live = memory.measure == "resident"
    beside = [
        (memory.swapped_bytes, ", plus %s in swap"),
        (memory.hugetlb_bytes, ", plus %s in huge pages of hugetlbfs"),
        (memory.pss_bytes if memory.shared_bytes else None, ", PSS %s"),
        (memory.droppable_bytes, "; %s reclaimable by the kernel"),
        (memory.zero_bytes, " (plus %s of zero pages)"),
    ]
    more = join_sentences("", [cells(text, Size(value)) for value, text in beside if value])
    yield cells("%s %s%s", "RSS" if live else "Memory in the core:", Size(memory.total_bytes), more)
    yield from _space(memory)
    columns = [column for column in MORE if any(getattr(part, column.field) for part in parts)]
    body = []
    for name, members in _rows(parts, memory.total_bytes):
        bytes_ = sum(map(taken, members))
        row: Dict[str, Any] = {"name": name, "bytes": bytes_, "share": exact_share(bytes_, memory.total_bytes)}
        body.append({**row, **{column.field: add(getattr(part, column.field) for part in members) for column in columns}})
    yield Table([*ALWAYS, *columns], body)
    if any(part.sure == GUESS for part in parts):
        yield "?  a guess: no other owner of such memory is known in a program like this"
    if memory.largest:
        yield "Largest parts outside malloc:"
        for part in memory.largest:
            yield Said(*(printable("  %10s  %-13s %s" % (size(part.bytes, plain), part.kind, part.name)) for plain in (False, True)))
    if memory.thread_stacks is not None and were_deeper(memory):
        yield "Thread stacks, most touched first:"
        yield Table(THREAD_STACK, [stack._asdict() for stack in memory.thread_stacks.largest])


def _space(memory: Memory) -> Iterator[str]:
    """Peaks and address space, as far as they are known: RSS alone does not say that it was higher an hour ago."""
    parts = [cells("Peak RSS: %s", Size(memory.peak_bytes))] if memory.peak_bytes is not None else []
    if memory.virtual_bytes is not None:
        peak = cells(", peak %s", Size(memory.peak_virtual_bytes)) if memory.peak_virtual_bytes is not None else ""
        parts.append(cells("%s (VSZ): %s%s", "address space" if parts else "Address space", Size(memory.virtual_bytes), peak))
    if parts:
        yield join_sentences("; ", parts)


def _rows(parts: Sequence[MemoryPart], total: int) -> Iterator[Tuple[str, Sequence[MemoryPart]]]:
    """The parts, those that would show as 0.0 % together."""
    small = [part for part in parts if SMALL_PART * weight(part) < total and part.kind != ALLOCATOR]
    for part in parts:
        if len(small) < 2 or part not in small:
            yield _part_name(part), (part,)
    if len(small) >= 2:
        yield "%d smaller parts" % len(small), small


def _part_name(part: MemoryPart) -> str:
    """With how many mappings it is spread over, where that is much, and a mark where it is guessed."""
    spread = ", %s" % plural(part.mappings, "mapping") if part.mappings >= MANY_MAPPINGS and part.kind not in FILE else ""
    return "%s%s%s" % (part.name, spread, " ?" if part.sure == GUESS else "")


def _verdicts(overview: Overview) -> Page:
    """What there is to the verdict beyond its sentence, which the head says, then each further allocator that holds enough to be judged."""
    first = overview.verdict.lines[0]
    beyond: List[Any] = [say("  %s", more) for more in (first.details, first.hint) if more]
    beyond += [line for more in overview.verdict.lines[1:] for line in _line("", more)]
    if beyond:
        yield mark("Verdict, in detail", HEADING)
        yield from beyond
    for name, judged in list(overview.verdicts.items())[1:]:
        if judged.kind != SMALL and name in overview.shown and not (overview.verdict.code or "").startswith(MOSTLY):
            yield "Also in this target: %s" % name
            yield from _verdict(judged)


def _verdict(judged: Verdict) -> Page:
    for line in judged.lines:
        is_sure = judged.sure == CERTAIN or judged.kind == INCONCLUSIVE or line is not judged.lines[0]
        first: Any
        first, *more = _line("", line if is_sure else line._replace(what="%s (%s)" % (line.what, judged.sure)))
        yield mark(first, brief_text.meaning(judged)) if line is judged.lines[0] else first
        yield from more


def _inside(inside: Inside) -> Page:
    """What is in use."""
    yield say("In use: %s in %s", Size(inside.used.bytes), plural(inside.used.blocks, "block"))
    if inside.leaked is not None and SMALL_PART * inside.leaked.bytes > inside.used.bytes:
        sentence = say(
            "  %s%s of it (%s) in %s leaked%s: nothing %spoints to %s",
            "at most " if inside.leaked_is_upper_bound else "",
            Size(inside.leaked.bytes),
            share(inside.leaked.bytes, inside.used.bytes),
            plural(inside.leaked.blocks, "block") + (" is" if inside.leaked.blocks == 1 else " are"),
            ", or garbage that is not collected yet" if inside.may_be_garbage else "",
            "that was read " if inside.leaked_is_upper_bound else "",
            "it" if inside.leaked.blocks == 1 else "them",
        )
        yield sentence if inside.may_be_garbage else mark(sentence, DAMAGE)
    elif inside.leaked is None and inside.leaked_is_upper_bound:
        yield "  how much of it is leaked is unknown"
    if inside.garbage is not None:
        yield from (say("  %s", line) for line in garbage_text.lines(inside.garbage))
    if inside.suspect is not None:
        yield mark(say("  %s", reach_text.suspicion(inside.suspect)), WARNING)
    elif inside.leaked is not None:
        yield say("  %s", reach_text.NOBODY)
    yield from (say("  %s", reach_text.together(row)) for row in inside.together)
    for gone in inside.lost_mappings:
        whose = "mappings of %s" % gone.name if gone.name else "anonymous mappings"
        read = " that was read" if inside.leaked_is_upper_bound else ""
        what = "  nothing%s points to %d of %d %s (%s). To list them: %s"
        yield say(what, read, gone.lost, gone.mappings, whose, Size(gone.bytes), ask("leaks"))
    if inside.own_allocator is not None:
        yield say("  %s", census_text.of_slabs(inside.own_allocator))
    for row in inside.classes:
        whose = " of %s" % row.module if row.module and row.signature else ""
        what = row.signature or (say("unnamed blocks of %s", Size(row.size_bytes)) if row.size_bytes is not None else "unnamed blocks")
        yield say("  %5.1f %%  %s%s: %s in %s", row.share_percent, what, whose, Size(row.bytes), plural(row.blocks, "block"))


def _runtime(table: RuntimeTable, live: bool) -> Page:
    """What one runtime's process has; tags that would show as 0.0 % together."""
    yield "%s: %s by use" % (table.name, "RSS" if live else "memory in the core")
    small = [row for row in table.rows if row.kind == OWNED and SMALL_PART * row.bytes < table.sum_bytes]
    rows: List[Tuple[str, int]] = []
    for row in table.rows:
        if len(small) < 2 or row not in small:
            rows.append((row.name, row.bytes))
        elif row == small[0]:
            rows.append(("malloc: %d smaller ones of %s" % (len(small), table.name), sum(row.bytes for row in small)))
    body = [{"name": name, "bytes": size, "share": exact_share(size, table.sum_bytes)} for name, size in rows]
    yield Table(ALWAYS, body, {"name": "sum", "bytes": table.sum_bytes, "share": exact_share(table.sum_bytes, table.sum_bytes)})


def _line(prefix: str, finding: Finding) -> Page:
    """One sentence with its figures, and what follows from it below."""
    line = say("  %s%s: %s", prefix, finding.what, finding.evidence)
    yield mark(line, WARNING) if prefix else line
    for more in (finding.details, finding.hint):
        if more:
            yield say("    %s", more)


def _arenas(overview: Overview) -> Page:
    several = len(overview.allocators) > 1
    for place, info in enumerate(overview.allocators):
        rows, totals = [row for row in overview.arenas if row.allocator == info.id], overview.totals.get(info.id, {})
        if several:
            yield from pages.heading(info, first=not place)
        if several and not sum(row.held_bytes for row in rows) and not totals.get("mmapped_bytes"):
            yield "unused"
            continue
        biggest = sorted(rows, key=lambda row: -row.held_bytes)[:BIGGEST_ARENAS]
        more = len(rows) > len(biggest)
        yield mark("Arenas (the %d largest of %d)" % (len(biggest), len(rows)) if more else "Arenas", HEADING)
        yield from allocators.named(info.name, rows).arenas_page(biggest, totals)
