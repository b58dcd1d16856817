"""jemalloc's options as a page: where they came from, the table, the threads that purge."""

from typing import Any, Iterator

from gdbheapx.command import Style
from gdbheapx.report import pages
from gdbheapx.report.text import table


def page(style: Style, found: Any) -> Iterator[str]:
    """The lines for one jemalloc."""
    for source in found.sources:
        yield "%s: %s" % (source.name, source.text)
    if not found.sources:
        yield "no option was set, as far as gdbheapx can see"
    yield ""
    rows = []
    for one in found.tunables:
        set_in = "set in %s" % one.set_in if one.set_in else ""
        rows.append([one.name, _value(style, one), "; ".join(part for part in (one.meaning, set_in) if part)])
    yield from table(["name", "value", "meaning"], rows, "lrl")
    threads = found.background_threads
    yield ""
    if threads["enabled"]:
        yield "background threads: %s of at most %s are running; %s runs so far, one every %.0f ms" % (
            pages.count(threads["running"]),
            pages.count(threads["max"]),
            pages.count(threads["runs"]),
            threads["run_interval_ms"],
        )
    else:
        yield "background threads: off" if threads["enabled"] is False else "background threads: unknown"


def _value(style: Style, row: Any) -> str:
    shown = _one(style, row.value, row.unit)
    return shown if row.now is None or row.now == row.value else "%s (now %s)" % (shown, _one(style, row.now, row.unit))


def _one(style: Style, value: Any, unit: Any) -> str:
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "true" if value else "false"
    if unit == "bytes":
        return pages.sizes(style)(value)
    return "%d ms" % value if unit == "ms" else str(value)
