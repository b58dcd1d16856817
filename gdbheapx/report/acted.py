"""What was done to a process: the call, predicted and measured."""

from gdbheapx.allocators.records import Page
from gdbheapx.allocators.returning import in_ram
from gdbheapx.analysis.acted import Acted, figures
from gdbheapx.command import Answer
from gdbheapx.report.text import show
from gdbheapx.units import Size, cells, plural

NAMES = {"anonymous": "anonymous", "rss": "RSS", "swap": "swap"}


def answer(done: Acted) -> Answer:
    """The answer of a command that has made a call."""
    return Answer(lambda: done.data, lambda style: show(style, call(done)))


def call(done: Acted) -> Page:
    """One call, predicted against measured."""
    predicted = done.predicted
    caller = "thread %d%s" % (done.caller.lwp, " (%s)" % done.caller.name if done.caller.name else "")
    if done.trouble is None:
        text = "%s returned %s after %.1f ms, called by %s on %s in its %s"
        yield text % (done.call, done.returned, done.elapsed_ms, done.way, caller, done.caller.place)
    else:
        yield "%s by %s on %s: %s" % (done.call, done.way, caller, done.trouble)
    if done.way_reason is not None:
        yield "used general registers only, because gdb cannot write and restore the others here: %s" % done.way_reason
    yield cells("predicted   %s%s", Size(predicted.bytes), in_ram(predicted.resident_bytes, predicted.exclusive_bytes, ""))
    for name, before, after in figures(done.before, done.after):
        if before is not None and after is not None:
            change = cells("unchanged")
            if before != after:
                change = cells("%s returned to the OS" if before > after else "%s more", Size(abs(before - after)))
            yield cells("%-11s %s -> %s: %s", NAMES[name], Size(before), Size(after), change)
    for word, before in (predicted.kept or {}).items():
        yield "%-11s %s -> %s" % (word.replace("_", " "), _known(before), _known((done.kept_after or {}).get(word)))
    if done.stopped_ms is not None:
        tries = ", %s" % plural(done.tries, "time") if done.tries > 1 else ""
        yield "the process was stopped for %.1f ms in total%s, and is running again" % (done.stopped_ms, tries)


def _known(number: object) -> str:
    return "unknown" if number is None else str(number)
