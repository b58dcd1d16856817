"""The page `tunables` of one jemalloc: where its options came from, the options, the threads that purge."""

from typing import Any, Optional, Union

from gdbheapx.allocators.records import Page
from gdbheapx.columns import COUNT, TEXT, Column, Table
from gdbheapx.jemalloc.stats.tunables import Tunable, Tunables
from gdbheapx.units import Said, Size, cells, number

_COLUMNS = (Column("name", TEXT, field="name"), Column("value", COUNT, field="value"), Column("meaning", TEXT, field="meaning"))


def page(found: Tunables) -> Page:
    """Sources, options, background threads."""
    for source in found.sources or ():
        yield "%s: %s" % (source.name, source.text)
    if not found.sources:
        yield "no option was set, as far as gdbheapx can see" if found.sources is not None else "what options were set is unknown"
    for option in found.refused:
        yield "not in force: %s, set in %s: %s" % (option.option, option.source, option.why)
    for name in found.unread_variables:
        yield "%s is in the environment, and this jemalloc does not read it" % name
    if found.tunables is None:
        yield "options have no names in this build: their values are unknown"
    yield ""
    rows = []
    for one in found.tunables or ():
        set_in = "set in %s" % one.set_in if one.set_in else ""
        rows.append({"name": one.name, "value": _value(one), "meaning": "; ".join(part for part in (one.meaning, set_in) if part)})
    if rows:
        yield Table(_COLUMNS, rows)
        yield ""
    yield _background(found)


def _background(found: Tunables) -> str:
    threads = found.background_threads
    if not threads.enabled:
        return "background threads: off" if threads.enabled is False else "background threads: unknown"
    if threads.max is None:
        return "background threads: %s are running" % number(threads.running)
    text = "background threads: %s of at most %s are running; " % (number(threads.running), number(threads.max))
    if threads.runs is None:
        return text + "this build does not count their runs"
    return text + "%s runs so far, one every %.0f ms" % (number(threads.runs), threads.run_interval_ms or 0)


def _value(row: Tunable) -> Said:
    shown = _one(row.value, row.unit)
    return cells("%s", shown) if row.now is None or row.now == row.value else cells("%s (now %s)", shown, _one(row.now, row.unit))


def _one(value: Any, unit: Optional[str]) -> Union[str, Size]:
    if value is None:
        return "?"
    if isinstance(value, bool):
        return "true" if value else "false"
    if unit == "bytes":
        return Size(value)
    return "%d ms" % value if unit == "ms" else str(value)
