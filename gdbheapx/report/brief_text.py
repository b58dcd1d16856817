"""The first lines that `report` prints: at most MOST_LINES of 80 columns, which say what they are about when they are pasted somewhere."""

from typing import Any, Callable, Iterator, List, Mapping, NamedTuple, Optional

from gdbheapx import hints
from gdbheapx.analysis.brief import Brief, is_large, may_have_suspect
from gdbheapx.analysis.split import taken
from gdbheapx.command import Style
from gdbheapx.model import CERTAIN, AllocatorInfo
from gdbheapx.report import fitting, reach_text
from gdbheapx.stops import paused
from gdbheapx.units import DAMAGE, HEADING, WARNING, Said, Size, cells, join_sentences, mark, meaning_of, plain_form, say, share
from gdbheapx.verdict import FRAGMENTED, GROWING, INCONCLUSIVE, KEPT, LEAKED, Verdict

MOST_LINES, COLUMNS = 12, 80
LABEL = "%-11s%s"
DOTS = " ..."
MEANINGS = {LEAKED: DAMAGE, GROWING: DAMAGE, KEPT: WARNING, FRAGMENTED: WARNING, INCONCLUSIVE: WARNING}
"""Of a verdict, by its kind; the others are no cause for concern."""
DAY_S, HOUR_S, MINUTE_S = 86_400, 3600, 60


class Row(NamedTuple):
    """One fact of the head."""

    label: str
    text: str
    most: int
    """In how many lines it must fit; 0: it is not cut."""
    figures: str = ""
    """What stands behind the text and is not cut."""

    def line(self) -> Said:
        """As it is printed."""
        return _marked(say(LABEL, self.label, say("%s%s", self.text, self.figures)), self.text)

    def count(self, width: int) -> int:
        """Lines that it takes."""
        return len(fitting.wrapped(str(self.line()), width))


def lines(style: Style, brief: Brief, target: Mapping[str, Any]) -> Iterator[str]:
    """The head. `target`: that of the envelope."""
    rows = list(_rows(brief, target, lambda text: hints.whole(text, style.command_line)))
    if style.wraps and style.width is not None:
        width = max(style.width, COLUMNS)
        rows = [_cut(row, width) for row in rows]
        while sum(row.count(width) for row in rows) > MOST_LINES:
            longest = max(rows, key=lambda row: row.count(width) if row.most else 0)
            if longest.count(width) == 1:
                break
            rows[rows.index(longest)] = _cut(longest._replace(most=longest.count(width) - 1), width)
    yield from (row.line() for row in rows)


def sentence(judged: Verdict) -> Said:
    """The verdict itself."""
    first = judged.lines[0]
    return say("%s%s: %s", first.what, "" if judged.sure == CERTAIN else " (%s)" % judged.sure, first.evidence)


def meaning(judged: Verdict) -> str:
    """Return the meaning of the line with the verdict."""
    return MEANINGS.get(judged.kind, HEADING)


def _rows(brief: Brief, target: Mapping[str, Any], whole: Callable[[str], str]) -> Iterator[Row]:
    host = " on %s" % target["host"] if target["host"] else ""
    if target["kind"] == "snapshot":
        of = " of a core" if target["taken_of"] == "core" else host
        yield Row("Snapshot", str(target["snapshot"]), 1, ", taken %s%s" % (moment(target["taken"]), of))
    elif target["kind"] == "core":
        yield Row("Core", str(target["core"]), 1, ", written %s" % moment(target["time"]))
    numbers = ["pid %d" % target["pid"]] if target["pid"] is not None else []
    numbers += ["up %s" % duration(target["uptime_s"])] if target["uptime_s"] is not None else []
    yield Row("Process", target["program"] or "?", 1, " (%s)" % ", ".join(numbers) if numbers else "")
    if target["command_line"]:
        yield Row("Command", target["command_line"], 1)
    if target["kind"] not in ("core", "snapshot"):
        pause = "; %s" % paused(target["pause_ms"], target["pauses"]) if target["pause_ms"] is not None else ""
        yield Row("Read", moment(target["time"]) + host, 1, pause)
    yield Row("Allocator", ", ".join(map(_allocator, brief.allocators)) or "none that gdbheapx can read", 1)
    yield _memory(brief)
    yield Row("Verdict", mark(sentence(brief.verdict), meaning(brief.verdict)), MOST_LINES)
    if brief.suspect is not None and is_large(brief):
        figures = say(", %s (%.0f %%)", Size(brief.suspect.retained_bytes), brief.suspect.share_percent)
        yield Row("Suspect", mark(reach_text.called(brief.suspect), WARNING), 2, figures)
    elif brief.was_looked and brief.suspect is None:
        yield Row("Suspect", reach_text.NOBODY, 1)
    elif may_have_suspect(brief):
        yield Row("Suspect", "not looked for: %s" % whole(hints.ask("report --deep")), 0)
    if brief.next is not None:
        yield Row("Next", whole(brief.next.command or str(brief.next.sentence)), 0)


def _memory(brief: Brief) -> Row:
    """Of all memory that is in RAM, or in the core, the largest parts."""
    memory = brief.memory
    if memory is None:
        return Row("Memory", "? (this target does not tell)", 1)
    large = [part for part in brief.largest if 100 * taken(part) >= memory.total_bytes] or brief.largest[:1]
    parts = [say("%s %s (%s)", part.name.split(" (")[0], Size(taken(part)), share(taken(part), memory.total_bytes)) for part in large]
    more = cells(", plus %s in swap", Size(memory.swapped_bytes)) if memory.swapped_bytes else ""
    label = "RSS" if memory.measure == "resident" else "Memory"
    return Row(label, say("%s%s: %s", Size(memory.total_bytes), more, join_sentences(", ", parts)), 2)


def _allocator(info: AllocatorInfo) -> str:
    version = info.version or "of an unknown release"
    return "%s %s%s" % (info.name, version, "" if info.owns_malloc else " in %s" % info.object)


def moment(time: Optional[str]) -> str:
    """`2026-11-30 12:00:00 UTC`, of the form that JSON has."""
    return "at an unknown time" if time is None else time.replace("T", " ").replace("Z", " UTC")


def duration(seconds: int) -> str:
    """`3 d 4 h`, `5 min`: the two largest units."""
    parts: List[str] = []
    for unit, name in ((DAY_S, "d"), (HOUR_S, "h"), (MINUTE_S, "min"), (1, "s")):
        number, seconds = divmod(seconds, unit)
        if number and len(parts) < 2:
            parts.append("%d %s" % (number, name))
        elif parts:
            break
    return " ".join(parts) or "0 s"


def _marked(made: Said, text: str) -> Said:
    meaning = meaning_of(text)
    return made if meaning is None else mark(made, meaning)


def _cut(row: Row, width: int) -> Row:
    """The row in its lines: what is more is left out."""
    if not row.most or row.count(width) <= row.most:
        return row
    room = width - len(LABEL % ("", ""))

    def cut(form: str) -> str:
        figures = str(plain_form(row.figures))
        if row.most == 1:
            return fitting.shortened(form, room - len(figures))
        words = [fitting.shortened(word, room - len(DOTS)) for word in form.split(" ")]
        while len(words) > 1 and len(fitting.wrapped(LABEL % ("", " ".join(words) + DOTS + figures), width)) > row.most:
            words.pop()
        return " ".join(words) + DOTS

    return row._replace(text=_marked(Said(cut(str(row.text)), cut(plain_form(row.text))), row.text))
