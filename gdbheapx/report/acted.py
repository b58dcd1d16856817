"""What was done to a process: the call, predicted and measured."""

from typing import Iterator

from gdbheapx.analysis.acted import Acted, figures
from gdbheapx.command import Style
from gdbheapx.report.pages import sizes

NAMES = {"anonymous": "anonymous", "rss": "RSS", "swap": "swap"}


def call(style: Style, done: Acted) -> Iterator[str]:
    """One call, predicted against measured."""
    size = sizes(style)
    caller = "thread %d%s" % (done.caller.lwp, " (%s)" % done.caller.name if done.caller.name else "")
    if done.trouble is None:
        yield "%s returned %s after %.1f ms, called by %s on %s in its %s" % (done.call, done.returned, done.elapsed_ms, done.way, caller, done.caller.place)
    else:
        yield "%s by %s on %s: %s" % (done.call, done.way, caller, done.trouble)
    in_ram = ", %s of it in RAM" % size(done.predicted_resident_bytes) if done.predicted_resident_bytes is not None else ""
    yield "predicted   %s%s" % (size(done.predicted_bytes), in_ram)
    for name, before, after in figures(done.before, done.after):
        if before is not None and after is not None:
            change = "%s given back" % size(before - after) if before > after else "%s more" % size(after - before) if after > before else "unchanged"
            yield "%-11s %s -> %s: %s" % (NAMES[name], size(before), size(after), change)
    if done.pages_before is not None and done.pages_after is not None:
        for word in ("dirty_pages", "muzzy_pages"):
            yield "%-11s %s -> %s" % (word.replace("_", " "), _known(getattr(done.pages_before, word)), _known(getattr(done.pages_after, word)))
    if done.stopped_ms is not None:
        yield "the process was stopped for %.1f ms in all%s, and runs on" % (done.stopped_ms, ", %d times" % done.tries if done.tries > 1 else "")


def _known(number: object) -> str:
    return "unknown" if number is None else str(number)
