"""What was done to a process: the call, predicted and measured."""

from typing import Any, Iterator, Optional, Sequence

from gdbheapx.analysis.acted import Acted, PurgeDryRun, figures
from gdbheapx.command import Answer, Style
from gdbheapx.report.pages import in_ram, sizes
from gdbheapx.report.text import table

NAMES = {"anonymous": "anonymous", "rss": "RSS", "swap": "swap"}


def answer(done: Acted) -> Answer:
    """The answer of a command that has made a call."""
    return Answer(lambda: done.data, lambda style: call(style, done))


def call(style: Style, done: Acted) -> Iterator[str]:
    """One call, predicted against measured."""
    size = sizes(style)
    caller = "thread %d%s" % (done.caller.lwp, " (%s)" % done.caller.name if done.caller.name else "")
    if done.trouble is None:
        yield "%s returned %s after %.1f ms, called by %s on %s in its %s" % (done.call, done.returned, done.elapsed_ms, done.way, caller, done.caller.place)
    else:
        yield "%s by %s on %s: %s" % (done.call, done.way, caller, done.trouble)
    if done.way_reason is not None:
        yield "used general registers only, because gdb cannot write and restore the others here: %s" % done.way_reason
    yield "predicted   %s%s" % (size(done.predicted_bytes), in_ram(size, done.predicted_resident_bytes, done.predicted_exclusive_bytes, ""))
    for name, before, after in figures(done.before, done.after):
        if before is not None and after is not None:
            change = "%s returned to the OS" % size(before - after) if before > after else "%s more" % size(after - before) if after > before else "unchanged"
            yield "%-11s %s -> %s: %s" % (NAMES[name], size(before), size(after), change)
    if done.pages_before is not None and done.pages_after is not None:
        for word in ("dirty_pages", "muzzy_pages"):
            yield "%-11s %s -> %s" % (word.replace("_", " "), _known(getattr(done.pages_before, word)), _known(getattr(done.pages_after, word)))
    if done.stopped_ms is not None:
        yield "the process was stopped for %.1f ms in total%s, and is running again" % (done.stopped_ms, ", %d times" % done.tries if done.tries > 1 else "")


def purge_dry_run(style: Style, found: PurgeDryRun) -> Iterator[str]:
    """What a purge would give back, arena by arena."""
    size = sizes(style)
    rows = [row for row in found.arenas if row.reclaimable_bytes or row.reclaimable_bytes is None]
    body = [[str(row.index), size(row.dirty_bytes), size(row.muzzy_bytes), size(row.reclaimable_resident_bytes)] for row in rows]
    if body:
        yield from table(["arena", "dirty", "muzzy", "in RAM"], body, "lrrr")
    more = in_ram(size, found.predicted_resident_bytes, found.predicted_exclusive_bytes)
    yield "a purge would return %s to the OS%s; nothing was called" % (size(found.predicted_bytes), more)


def cured(style: Style, threads: Sequence[Any], stopped_ms: Optional[float]) -> Iterator[str]:
    """What became of each blind thread."""
    for row in threads:
        yield "%s thread %s%s: %s" % ("cured    " if row.cured else "NOT cured", row.lwp, " (%s)" % row.name if row.name else "", row.why)
    if not threads:
        yield "no thread is blind: nothing was written"
    if stopped_ms is not None:
        yield "the process was stopped for %.1f ms in total, and is running again" % stopped_ms
    yield ""


def _known(number: object) -> str:
    return "unknown" if number is None else str(number)
