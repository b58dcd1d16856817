"""What `diff` shows."""

import shlex
from typing import Any, Dict, Iterator, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.command import Style
from gdbheapx.report import text
from gdbheapx.snapshot.diff import Change, Diff, Side, changed
from gdbheapx.snapshot.growth import DUMPED, Part
from gdbheapx.units import Said, Size, say

MOST_ROWS = 10
TARGETS = {"snapshot": "--snapshot", "core": "--core", "process": "--pid"}
"""By what was named, the option that names it; what gdb has needs none."""


def data(found: Diff, limit: Optional[int]) -> Dict[str, Any]:
    """The `data` member."""
    lists = {name: getattr(found, name) for name in ("arenas", "classes", "owners", "leaks")}
    return {**found._asdict(), **{name: None if rows is None else list(rows[:limit]) for name, rows in lists.items()}}


def lines(style: Style, found: Diff, limit: Optional[int]) -> Iterator[str]:
    """The text."""
    yield from text.show(style, page(found, MOST_ROWS if limit is None else limit))


def page(found: Diff, limit: int) -> Page:
    """Verdict, states, then whose it is."""
    yield "old: %s" % _side(found.old)
    yield "new: %s" % _side(found.new)
    if found.old.executable != found.new.executable:
        yield "these are two programs"
    yield ""
    yield found.verdict.what
    parts = found.growth.parts
    if parts:
        yield ""
        yield "Parts of the memory%s" % (", bytes in the core" if found.growth.measure == DUMPED else "")
        yield from (_part(one) for one in parts[:limit])
        if len(parts) > limit:
            yield "  %d more: --limit N" % (len(parts) - limit)
    yield from ("  %s" % one for one in found.growth.lacking)
    states = changed(found.states)
    yield from _rows("RSS, and what allocators have" if parts else "", states, len(states))
    yield from _rows("Arenas: in use", found.arenas, limit)
    for title, name in (("What it is", "classes"), ("Who keeps it", "owners"), ("Leaked or held", "leaks")):
        rows = getattr(found, name)
        if rows is not None:
            yield from _rows(title, rows, limit)
            continue
        yield ""
        yield "%s: not known of %s" % (title, "; ".join("%s: %s" % (one.side, one.why) for one in found.missing if one.what == name))
    if found.next:
        yield ""
        yield "Next"
    for one in found.next:
        yield "  %s %s" % (_asking(found.new if one.side == "new" else found.old, one.command), one.why)


def _asking(side: Side, command: str) -> str:
    """A line for a shell; for gdb, of what it has itself."""
    if side.form not in TARGETS:
        return "heapx %s" % command
    return "gdbheapx %s %s %s" % (TARGETS[side.form], shlex.quote(side.what), command)


def _side(side: Side) -> str:
    pid = "" if side.pid is None else ", process %d" % side.pid
    if side.kind == "core":
        when = "core written %s" % side.taken if side.taken is not None else "core, unknown when it was written"
    else:
        when = side.taken or "unknown when"
    return "%s (%s%s, %s)" % (side.what, side.executable or side.kind, pid, when)


def _part(one: Part) -> Said:
    """`+ BYTES (NEW - OLD) what`, and what of it is in use."""
    used = say("")
    if one.used_diff_bytes:
        sign = "-" if one.used_diff_bytes < 0 else "+"
        used = say("; in use %s %s (%s - %s)", sign, Size(abs(one.used_diff_bytes)), Size(one.used_new_bytes), Size(one.used_old_bytes))
    if one.diff_bytes is None:
        return say("  ? %s%s", one.what, used)
    sign = "-" if one.diff_bytes < 0 else "+" if one.diff_bytes else " "
    return say("  %s %s (%s - %s)  %s%s", sign, Size(abs(one.diff_bytes)), Size(one.new_bytes), Size(one.old_bytes), one.what, used)


def _rows(title: str, rows: Sequence[Change], limit: int) -> Page:
    """`+ BYTES (NEW - OLD) COUNT what`."""
    if not rows:
        return
    yield ""
    if title:
        yield title
    for one in rows[:limit]:
        yield _line(one)
    if len(rows) > limit:
        yield "  %d more: --limit N" % (len(rows) - limit)


def _line(one: Change) -> Said:
    sign = "-" if one.diff_bytes < 0 else "+" if one.diff_bytes else " "
    count = "" if one.diff_count is None else " %+d blocks" % one.diff_count
    whose = " of %s" % one.whose if one.whose else ""
    what = "  %s %s (%s - %s)%s  %s%s"
    return say(what, sign, Size(abs(one.diff_bytes)), Size(one.new_bytes), Size(one.old_bytes), count, one.what, whose)
