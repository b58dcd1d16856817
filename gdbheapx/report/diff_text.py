"""What `diff` shows."""

from typing import Any, Dict, Iterator, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.command import Style
from gdbheapx.report import text
from gdbheapx.snapshot.diff import Change, Diff, Side, changed
from gdbheapx.snapshot.growth import DUMPED, Part
from gdbheapx.units import HEADING, Said, Size, duration, mark, say

MOST_ROWS = 10


def data(diff: Diff, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    lists = {name: getattr(diff, name) for name in ("arenas", "classes", "owners", "held", "leaks", "contexts")}
    return {**diff._asdict(), **{name: None if rows is None else list(rows[:limit]) for name, rows in lists.items()}}


def lines(style: Style, diff: Diff, limit: Optional[int]) -> Iterator[str]:
    """The text."""
    yield from text.show(style, page(diff, MOST_ROWS if limit is None else limit))


def page(diff: Diff, limit: int) -> Page:
    """Verdict, states, then whose it is."""
    yield "old: %s" % _side(diff.old)
    later = "" if diff.between_s is None else ", %s %s" % (duration(abs(diff.between_s)), "later" if diff.between_s >= 0 else "EARLIER")
    yield "new: %s%s" % (_side(diff.new), later)
    if diff.old.executable != diff.new.executable:
        yield "these are two programs"
    yield ""
    yield mark(diff.verdict.what, HEADING)
    yield from ("  %s" % line for line in diff.verdict.details)
    parts = diff.growth.parts
    if parts:
        yield ""
        yield "Parts of the memory%s" % (", bytes in the core" if diff.growth.measure == DUMPED else "")
        yield from (_part(part) for part in parts[:limit])
        if len(parts) > limit:
            yield "  %d more: --limit N" % (len(parts) - limit)
    yield from ("  %s" % why for why in diff.growth.lacking)
    states = changed(diff.states)
    yield from _rows("RSS, and what allocators have" if parts else "", states, len(states))
    yield from _rows("Arenas: in use", diff.arenas, limit)
    yield from _rows("Memory contexts: in use", diff.contexts or (), limit)
    for title, name in (
        ("What it is", "classes"),
        ("Who keeps it", "owners"),
        ("Which owner, by class", "held"),
        ("Leaked or held", "leaks"),
    ):
        rows = getattr(diff, name)
        if rows is not None:
            yield from _rows(title, rows, limit)
            continue
        yield ""
        yield "%s: not known of %s" % (
            title,
            "; ".join("%s: %s" % (lacking.side, lacking.why) for lacking in diff.missing if lacking.what == name),
        )
    if diff.next_steps:
        yield ""
        yield "Next steps"
    for step in diff.next_steps:
        yield say("  %s", step.sentence)


def _side(side: Side) -> str:
    pid = "" if side.pid is None else ", process %d" % side.pid
    if side.kind == "core":
        when = "core written %s" % side.taken if side.taken is not None else "core, unknown when it was written"
    else:
        when = side.taken or "unknown when"
    return "%s (%s%s, %s)" % (side.what, side.executable or side.kind, pid, when)


def _part(part: Part) -> Said:
    """`+ BYTES (NEW - OLD) what`, and what of it is in use."""
    used = say("")
    if part.used_diff_bytes:
        sign = "-" if part.used_diff_bytes < 0 else "+"
        used = say("; in use %s %s (%s - %s)", sign, Size(abs(part.used_diff_bytes)), Size(part.used_new_bytes), Size(part.used_old_bytes))
    if part.diff_bytes is None:
        return say("  ? %s%s", part.what, used)
    used = say("%s%s", _only(part.only), used)
    sign = "-" if part.diff_bytes < 0 else "+" if part.diff_bytes else " "
    return say("  %s %s (%s - %s)  %s%s", sign, Size(abs(part.diff_bytes)), Size(part.new_bytes), Size(part.old_bytes), part.what, used)


def _rows(title: str, rows: Sequence[Change], limit: int) -> Page:
    """`+ BYTES (NEW - OLD) COUNT what`."""
    if not rows:
        return
    yield ""
    if title:
        yield title
    for row in rows[:limit]:
        yield _line(row)
    if len(rows) > limit:
        yield "  %d more: --limit N" % (len(rows) - limit)


def _line(change: Change) -> Said:
    sign = "-" if change.diff_bytes < 0 else "+" if change.diff_bytes else " "
    count = "" if change.diff_count is None else " %+d blocks" % change.diff_count
    whose = " of %s" % change.whose if change.whose else ""
    sizes = [
        say("at most %s" if change.at_most == side else "%s", Size(size))
        for side, size in (("new", change.new_bytes), ("old", change.old_bytes))
    ]
    contents = ", %s" % change.contents if change.contents else ""
    only = _only(change.only)
    return say("  %s %s (%s - %s)%s  %s%s%s%s", sign, Size(abs(change.diff_bytes)), *sizes, count, change.what, whose, only, contents)


def _only(side: Optional[str]) -> str:
    """A row that one side does not have, which is not the same as 0 there."""
    return ", only in %s" % side if side is not None else ""
