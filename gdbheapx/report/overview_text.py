"""Format `report`: its head, and the page below."""

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx import allocators
from gdbheapx.allocators.records import Page
from gdbheapx.analysis.inside import OWNED, InsideAnswer, RuntimeTable
from gdbheapx.analysis.memory.kinds import ALLOCATOR, FILE
from gdbheapx.analysis.memory_verdict import had_deeper_stacks, weigh_part
from gdbheapx.analysis.overview import Brief, Overview, is_large, may_have_suspect
from gdbheapx.analysis.split import SplitMemory, count_taken
from gdbheapx.command import TextStyle
from gdbheapx.common import hints, units
from gdbheapx.common.columns import BYTES, TEXT, Column, ColumnsTable, add_values
from gdbheapx.common.findings import MOSTLY
from gdbheapx.common.hints import hint_command, write_commands
from gdbheapx.common.model import CERTAIN, GUESS, AllocatorInfo, Finding, MemoryPart, StepAdvice
from gdbheapx.common.stops import format_paused
from gdbheapx.common.units import (
    DAMAGE,
    HEADING,
    WARNING,
    Sentence,
    SentenceSize,
    count_noun,
    format_share,
    make_cells,
    make_sentence,
    mark_sentence,
)
from gdbheapx.common.verdict import FRAGMENTED, GROWING, INCONCLUSIVE, KEPT, LEAKED, MATTERS, SMALL, HeapVerdict
from gdbheapx.report import analysis_text, census_text, pages, reach_text, text
from gdbheapx.report.text import make_printable, wrap_sentence

BIGGEST_ARENAS = 8
SMALL_PART = 2000
"""Times a smaller part is less than the whole: it would show as 0.0 %."""
MANY_MAPPINGS = 10
"""From here on a part says over how many mappings it is spread."""
ALWAYS = (Column("", TEXT, field="name"), Column("bytes", BYTES, field="bytes"), Column("%", field="share"))
MORE = (
    Column("shared", BYTES, field="shared_bytes", goes=1),
    Column("PSS", BYTES, field="pss_bytes", goes=2),
    Column("swapped", BYTES, field="swapped_bytes"),
    Column("huge pages", BYTES, field="huge_bytes", goes=3),
    Column("hugetlb", BYTES, field="hugetlb_bytes"),
)
"""Shown where any part has some."""
THREAD_STACK = (
    Column("thread", TEXT, field="lwp"),
    Column("name", TEXT, field="name"),
    Column("touched", BYTES, field="touched_bytes"),
    Column("depth now", BYTES, field="depth_bytes"),
    Column("size", BYTES, field="size_bytes"),
)


FAR = 24
"""Lines between the head and the end from which on the verdict is out of sight: it is said again."""
LAST_LINES = 21
"""Of a terminal of 24 lines: two are the shell's, one is empty."""


def format_overview(overview: Overview) -> Page:
    """Split, what else there is to say of the verdict, findings, what allocators hold, arenas, size classes."""
    if overview.split is not None and overview.memory is not None:
        yield from _make_split_page(overview.split, overview.memory)
        yield ""
    yield from _make_verdicts_page(overview)
    verdicts = [line for verdict in (overview.verdict, *overview.verdicts.values()) for line in verdict.lines]
    for finding in overview.findings:
        if finding not in verdicts:
            yield from _make_finding_page("Note: ", finding)
    if overview.inside is not None:
        yield ""
        yield from _make_inside_page(overview.inside, overview.memory is not None and overview.memory.measure == "resident")
    for table in overview.runtimes or ():
        yield ""
        yield from _make_runtime_page(table, overview.memory is not None and overview.memory.measure == "resident")
    if overview.books is not None:
        yield ""
        yield from analysis_text.make_books_page(overview.books)
    for heap, parts in overview.held.items():
        yield ""
        yield from allocators.find_allocator(heap.split("#")[0]).parts_page(heap, parts, overview.totals.get(heap, {}))
    yield ""
    yield from _make_arenas_page(overview)
    if overview.sizes:
        yield ""
        yield mark_sentence("Size classes that hold the most memory", HEADING)
        yield from pages.make_histogram_page(overview.sizes)


def format_last_lines(style: TextStyle, overview: Overview, lines_between: int) -> Page:
    """Return the last lines for a terminal: the next steps, and the verdict again if `lines_between` separate it from the head."""
    verdict = [mark_sentence("Verdict", HEADING), *list(_make_verdict_page(overview.verdict))[:1], ""] if lines_between > FAR else []
    advice = overview.next_steps or [StepAdvice(*step) for step in overview.next]
    steps: List[str] = [mark_sentence("Next steps", HEADING), *(make_sentence("  %s", step.sentence) for step in advice)]

    def count_lines() -> int:
        return sum(len(wrap_sentence(write_commands(str(line), style.command_line), style.width)) for line in [*verdict, *steps])

    while style.wraps and style.width is not None and len(steps) > 2 and count_lines() > LAST_LINES:
        steps.pop()
    yield ""
    yield from verdict
    yield from steps


def _make_split_page(parts: Sequence[MemoryPart], memory: SplitMemory) -> Page:
    live = memory.measure == "resident"
    beside = [
        (memory.swapped_bytes, ", plus %s in swap"),
        (memory.hugetlb_bytes, ", plus %s in huge pages of hugetlbfs"),
        (memory.pss_bytes if memory.shared_bytes else None, ", PSS %s"),
        (memory.droppable_bytes, "; %s reclaimable by the kernel"),
        (memory.zero_bytes, " (plus %s of zero pages)"),
    ]
    more = units.join_sentences("", [make_cells(text, SentenceSize(value)) for value, text in beside if value])
    yield make_cells("%s %s%s", "RSS" if live else "Memory in the core:", SentenceSize(memory.total_bytes), more)
    yield from _format_space(memory)
    columns = [column for column in MORE if any(getattr(part, column.field) for part in parts)]
    body = []
    for name, members in _group_parts(parts, memory.total_bytes):
        bytes_ = sum(map(count_taken, members))
        row: Dict[str, Any] = {"name": name, "bytes": bytes_, "share": units.exact_share(bytes_, memory.total_bytes)}
        body.append({**row, **{column.field: add_values(getattr(part, column.field) for part in members) for column in columns}})
    yield ColumnsTable([*ALWAYS, *columns], body)
    if any(part.sure == GUESS for part in parts):
        yield "?  a guess: no other owner of such memory is known in a program like this"
    if memory.largest:
        yield "Largest parts outside malloc:"
        for part in memory.largest:
            forms = ("  %10s  %-13s %s" % (units.format_size(part.bytes, plain), part.kind, part.name) for plain in (False, True))
            yield Sentence(*map(make_printable, forms))
    if memory.thread_stacks is not None and had_deeper_stacks(memory):
        yield "Thread stacks, most touched first:"
        yield ColumnsTable(THREAD_STACK, [stack._asdict() for stack in memory.thread_stacks.largest])


def _format_space(memory: SplitMemory) -> Iterator[str]:
    """Peaks and address space, as far as they are known: RSS alone does not say that it was higher an hour ago."""
    parts = [make_cells("Peak RSS: %s", SentenceSize(memory.peak_bytes))] if memory.peak_bytes is not None else []
    if memory.virtual_bytes is not None:
        peak = make_cells(", peak %s", SentenceSize(memory.peak_virtual_bytes)) if memory.peak_virtual_bytes is not None else ""
        parts.append(make_cells("%s (VSZ): %s%s", "address space" if parts else "Address space", SentenceSize(memory.virtual_bytes), peak))
    if parts:
        yield units.join_sentences("; ", parts)


def _group_parts(parts: Sequence[MemoryPart], total: int) -> Iterator[Tuple[str, Sequence[MemoryPart]]]:
    """The parts, those that would show as 0.0 % together."""
    small = [part for part in parts if SMALL_PART * weigh_part(part) < total and part.kind != ALLOCATOR]
    for part in parts:
        if len(small) < 2 or part not in small:
            yield _name_part(part), (part,)
    if len(small) >= 2:
        yield "%d smaller parts" % len(small), small


def _name_part(part: MemoryPart) -> str:
    """Add the number of mappings, if large, and a mark if the owner is guessed."""
    spread = ", %s" % count_noun(part.mappings, "mapping") if part.mappings >= MANY_MAPPINGS and part.kind not in FILE else ""
    return "%s%s%s" % (part.name, spread, " ?" if part.sure == GUESS else "")


def _make_verdicts_page(overview: Overview) -> Page:
    """Explain the verdict beyond the head's sentence, and judge each further allocator that holds enough."""
    first = overview.verdict.lines[0]
    beyond: List[Any] = [make_sentence("  %s", more) for more in (first.details, first.hint) if more]
    beyond += [line for more in overview.verdict.lines[1:] for line in _make_finding_page("", more)]
    if beyond:
        yield mark_sentence("Verdict, in detail", HEADING)
        yield from beyond
    for name, judged in list(overview.verdicts.items())[1:]:
        if judged.kind != SMALL and name in overview.shown and not (overview.verdict.code or "").startswith(MOSTLY):
            yield "Also in this target: %s" % name
            yield from _make_verdict_page(judged)


def _make_verdict_page(judged: HeapVerdict) -> Page:
    for line in judged.lines:
        is_sure = judged.sure == CERTAIN or judged.kind == INCONCLUSIVE or line is not judged.lines[0]
        first: Any
        first, *more = _make_finding_page("", line if is_sure else line._replace(what="%s (%s)" % (line.what, judged.sure)))
        yield mark_sentence(first, explain_verdict(judged)) if line is judged.lines[0] else first
        yield from more


def _make_inside_page(inside: InsideAnswer, live: bool) -> Page:
    yield make_sentence("In use: %s in %s", SentenceSize(inside.used.bytes), count_noun(inside.used.blocks, "block"))
    if MATTERS * inside.used.bytes < inside.absent_bytes:
        where = "in RAM" if live else "in the core (never touched, or zeros)"
        yield make_sentence("  %s of it are not %s; owners and types below count them", SentenceSize(inside.absent_bytes), where)
    if inside.leaked is not None and SMALL_PART * inside.leaked.bytes > inside.used.bytes:
        most, read = ("at most ", "that was read ") if inside.leaked_is_upper_bound else ("", "")
        blocks, is_one = count_noun(inside.leaked.blocks, "block"), inside.leaked.blocks == 1
        sum_of = SentenceSize(inside.leaked.bytes), format_share(inside.leaked.bytes, inside.used.bytes)
        garbage = ", or garbage that is not collected yet" if inside.may_be_garbage else ""
        ends = blocks + (" is" if is_one else " are"), garbage, read, "it" if is_one else "them"
        sentence = make_sentence("  %s%s of it (%s) in %s leaked%s: nothing %spoints to %s", most, *sum_of, *ends)
        yield sentence if inside.may_be_garbage else mark_sentence(sentence, DAMAGE)
    elif inside.leaked is None and inside.leaked_is_upper_bound:
        yield "  how much of it is leaked is unknown"
    if inside.garbage is not None:
        yield from (make_sentence("  %s", line) for line in analysis_text.format_garbage(inside.garbage))
    yield from (make_sentence("  %s", line) for line in reach_text.describe_fields(inside.fields))
    if inside.suspect is not None:
        yield mark_sentence(make_sentence("  %s", reach_text.describe_suspicion(inside.suspect)), WARNING)
    elif inside.leaked is not None:
        yield make_sentence("  %s", reach_text.NOBODY)
    yield from (make_sentence("  %s", reach_text.describe_joint(row)) for row in inside.together)
    for gone in inside.lost_mappings:
        whose = "mappings of %s" % gone.name if gone.name else "anonymous mappings"
        read = " that was read" if inside.leaked_is_upper_bound else ""
        what = "  nothing%s points to %d of %d %s (%s). To list them: %s"
        yield make_sentence(what, read, gone.lost, gone.mappings, whose, SentenceSize(gone.bytes), hint_command("leaks"))
    if inside.own_allocator is not None:
        yield make_sentence("  %s", census_text.describe_slabs(inside.own_allocator))
    for row in inside.classes:
        whose = " of %s" % row.module if row.module and row.signature else ""
        unnamed = make_sentence(" of %s", SentenceSize(row.size_bytes)) if row.size_bytes is not None else ""
        what = row.signature or make_sentence("unnamed blocks%s", unnamed)
        amount = SentenceSize(row.bytes), count_noun(row.blocks, "block")
        yield make_sentence("  %5.1f %%  %s%s: %s in %s", row.share_percent, what, whose, *amount)
    yield from reach_text.make_fields_page(inside.fields, reach_text.MOST_FIELDS)


def _make_runtime_page(table: RuntimeTable, live: bool) -> Page:
    """List a runtime's memory; tags that would show as 0.0 % are joined."""
    yield "%s: %s by use" % (table.name, "RSS" if live else "memory in the core")
    small = [row for row in table.rows if row.kind == OWNED and SMALL_PART * row.bytes < table.sum_bytes]
    rows: List[Tuple[str, int]] = []
    for row in table.rows:
        if len(small) < 2 or row not in small:
            rows.append((row.name, row.bytes))
        elif row == small[0]:
            rows.append(("malloc: %d smaller ones of %s" % (len(small), table.name), sum(row.bytes for row in small)))
    body = [{"name": name, "bytes": size, "share": units.exact_share(size, table.sum_bytes)} for name, size in rows]
    yield ColumnsTable(
        ALWAYS, body, {"name": "sum", "bytes": table.sum_bytes, "share": units.exact_share(table.sum_bytes, table.sum_bytes)}
    )


def _make_finding_page(prefix: str, finding: Finding) -> Page:
    line = make_sentence("  %s%s: %s", prefix, finding.what, finding.evidence)
    yield mark_sentence(line, WARNING) if prefix else line
    for more in (finding.details, finding.hint):
        if more:
            yield make_sentence("    %s", more)


def _make_arenas_page(overview: Overview) -> Page:
    several = len(overview.allocators) > 1
    for place, info in enumerate(overview.allocators):
        rows, totals = [row for row in overview.arenas if row.allocator == info.id], overview.totals.get(info.id, {})
        if several:
            yield from pages.make_heading(info, first=not place)
        if several and not sum(row.held_bytes for row in rows) and not totals.get("mmapped_bytes"):
            yield "unused"
            continue
        biggest = sorted(rows, key=lambda row: -row.held_bytes)[:BIGGEST_ARENAS]
        more = len(rows) > len(biggest)
        yield mark_sentence("Arenas (the %d largest of %d)" % (len(biggest), len(rows)) if more else "Arenas", HEADING)
        yield from allocators.find_allocator(info.name, rows).arenas_page(biggest, totals)


MOST_LINES, COLUMNS = 12, 80
BRIEF_LABEL = "%-11s%s"
BRIEF_DOTS = " ..."
MEANINGS = {LEAKED: DAMAGE, GROWING: DAMAGE, KEPT: WARNING, FRAGMENTED: WARNING, INCONCLUSIVE: WARNING}
"""Of a verdict, by its kind; the others are no cause for concern."""
DAY_S, HOUR_S, MINUTE_S = 86_400, 3600, 60


class BriefRow(NamedTuple):
    """A fact of the head."""

    label: str
    text: str
    most: int
    """In how many lines it must fit; 0: it is not cut."""
    figures: str = ""
    """What follows the text and is not cut."""

    def line(self) -> Sentence:
        """The line with its label."""
        return _mark_verdict(make_sentence(BRIEF_LABEL, self.label, make_sentence("%s%s", self.text, self.figures)), self.text)

    def count(self, width: int) -> int:
        """Lines that it takes."""
        return len(text.wrap_sentence(str(self.line()), width))


def format_brief(style: TextStyle, brief: Brief, target: Mapping[str, Any]) -> Iterator[str]:
    """The head. `target`: that of the envelope."""
    rows = list(_make_brief_rows(brief, target, lambda text: hints.write_commands(text, style.command_line)))
    if style.wraps and style.width is not None:
        width = max(style.width, COLUMNS)
        rows = [_cut_row(row, width) for row in rows]
        while sum(row.count(width) for row in rows) > MOST_LINES:
            longest = max(rows, key=lambda row: row.count(width) if row.most else 0)
            if longest.count(width) == 1:
                break
            rows[rows.index(longest)] = _cut_row(longest._replace(most=longest.count(width) - 1), width)
    yield from (row.line() for row in rows)


def explain_verdict(judged: HeapVerdict) -> str:
    """Return the meaning of the line with the verdict."""
    return MEANINGS.get(judged.kind, HEADING)


def _make_brief_rows(brief: Brief, target: Mapping[str, Any], whole: Callable[[str], str]) -> Iterator[BriefRow]:
    host = " on %s" % target["host"] if target["host"] else ""
    if target["kind"] == "snapshot":
        of = " of a core" if target["taken_of"] == "core" else host
        yield BriefRow("Snapshot", str(target["snapshot"]), 1, ", taken %s%s" % (format_moment(target["taken"]), of))
    elif target["kind"] == "core":
        yield BriefRow("Core", str(target["core"]), 1, ", written %s" % format_moment(target["time"]))
    numbers = ["pid %d" % target["pid"]] if target["pid"] is not None else []
    numbers += ["up %s" % format_duration(target["uptime_s"])] if target["uptime_s"] is not None else []
    yield BriefRow("Process", target["program"] or "?", 1, " (%s)" % ", ".join(numbers) if numbers else "")
    if target["command_line"]:
        yield BriefRow("Command", target["command_line"], 1)
    if target["kind"] not in ("core", "snapshot"):
        pause = "; %s" % format_paused(target["pause_ms"], target["pauses"]) if target["pause_ms"] is not None else ""
        yield BriefRow("Read", format_moment(target["time"]) + host, 1, pause)
    yield BriefRow("Allocator", ", ".join(map(_describe_allocator, brief.allocators)) or "none that gdbheapx can read", 1)
    yield _make_memory_row(brief)
    first, sure = brief.verdict.lines[0], brief.verdict.sure
    said = make_sentence("%s%s: %s", first.what, "" if sure == CERTAIN else " (%s)" % sure, first.evidence)
    yield BriefRow("Verdict", mark_sentence(said, explain_verdict(brief.verdict)), MOST_LINES)
    if brief.suspect is not None and is_large(brief):
        figures = make_sentence(", %s (%.0f %%)", SentenceSize(brief.suspect.retained_bytes), brief.suspect.share_percent)
        yield BriefRow("Suspect", mark_sentence(reach_text.name_suspect(brief.suspect), WARNING), 2, figures)
    elif brief.was_looked and brief.suspect is None:
        yield BriefRow("Suspect", reach_text.NOBODY, 1)
    elif may_have_suspect(brief):
        yield BriefRow("Suspect", "not looked for: %s" % whole(hints.hint_command("report --deep")), 0)
    if brief.next is not None:
        yield BriefRow("Next", whole(brief.next.command or str(brief.next.sentence)), 0)


def _make_memory_row(brief: Brief) -> BriefRow:
    """Name the largest parts of all memory in RAM, or in the core."""
    memory = brief.memory
    if memory is None:
        return BriefRow("Memory", "? (this target does not tell)", 1)
    large = [part for part in brief.largest if 100 * count_taken(part) >= memory.total_bytes] or brief.largest[:1]
    parts = []
    for name, taken in ((part.name.split(" (")[0], count_taken(part)) for part in large):
        parts.append(make_sentence("%s %s (%s)", name, SentenceSize(taken), format_share(taken, memory.total_bytes)))
    more = make_cells(", plus %s in swap", SentenceSize(memory.swapped_bytes)) if memory.swapped_bytes else ""
    label = "RSS" if memory.measure == "resident" else "Memory"
    return BriefRow(label, make_sentence("%s%s: %s", SentenceSize(memory.total_bytes), more, units.join_sentences(", ", parts)), 2)


def _describe_allocator(info: AllocatorInfo) -> str:
    version = info.version or "of an unknown release"
    return "%s %s%s" % (info.name, version, "" if info.owns_malloc else " in %s" % info.object)


def format_moment(time: Optional[str]) -> str:
    """`2026-11-30 12:00:00 UTC`, of the form that JSON has."""
    return "at an unknown time" if time is None else time.replace("T", " ").replace("Z", " UTC")


def format_duration(seconds: int) -> str:
    """`3 d 4 h`, `5 min`: the two largest units."""
    parts: List[str] = []
    for unit, name in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min"), (1, "s")):
        number, seconds = divmod(seconds, unit)
        if number and len(parts) < 2:
            parts.append("%d %s" % (number, name))
        elif parts:
            break
    return " ".join(parts) or "0 s"


def _mark_verdict(made: Sentence, text: str) -> Sentence:
    meaning = units.meaning_of(text)
    return made if meaning is None else mark_sentence(made, meaning)


def _cut_row(row: BriefRow, width: int) -> BriefRow:
    """The row in its lines: what is more is left out."""
    if not row.most or row.count(width) <= row.most:
        return row
    room = width - len(BRIEF_LABEL % ("", ""))

    def cut_form(form: str) -> str:
        figures = str(units.plain_form(row.figures))
        if row.most == 1:
            return text.shorten_text(form, room - len(figures))
        words = [text.shorten_text(word, room - len(BRIEF_DOTS)) for word in form.split(" ")]
        while len(words) > 1 and len(text.wrap_sentence(BRIEF_LABEL % ("", " ".join(words) + BRIEF_DOTS + figures), width)) > row.most:
            words.pop()
        return " ".join(words) + BRIEF_DOTS

    return row._replace(text=_mark_verdict(Sentence(cut_form(str(row.text)), cut_form(units.plain_form(row.text))), row.text))
