"""The page that `report` prints."""

from typing import Any, Iterator, Sequence

from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.split import Split, largest_parts
from gdbheapx.analysis.verdict import SMALL, Verdict
from gdbheapx.command import Style
from gdbheapx.model import Finding, MmappedTotals
from gdbheapx.report import jemalloc_text, pages
from gdbheapx.report.text import table

BIGGEST_ARENAS = 8


def lines(style: Style, found: Overview) -> Iterator[str]:
    """Split, verdict, findings, what jemalloc holds, arenas, size classes, next steps."""
    if found.split is not None:
        yield from _split(style, found.split)
        yield ""
    yield from _verdicts(found)
    for finding in found.findings:
        yield from _line("Mind: ", finding)
    for name, parts in found.held.items():
        yield ""
        yield from _held(style, name, parts, found.totals[name]["retained_bytes"])
    yield ""
    yield from _arenas(style, found)
    if found.size_classes:
        yield ""
        yield "Size classes that hold most"
        yield from pages.histogram(style, found.size_classes)
    yield ""
    yield "Next"
    for step in found.next_steps:
        yield "  %s" % step


def _split(style: Style, split: Split) -> Iterator[str]:
    size = pages.sizes(style)
    swapped = ", %s more in swap" % size(split.swapped_bytes) if split.swapped_bytes else ""
    yield "%s: %s%s" % ("Memory in RAM (RSS)" if split.measure == "resident" else "Bytes in the core", size(split.total_bytes), swapped)
    body = [[part.name, size(part.bytes), "%.1f %%" % (100.0 * part.bytes / (split.total_bytes or 1))] for part in largest_parts(split)]
    yield from table(["", "bytes", "share"], body, "lrr")
    if split.largest:
        yield "Largest that are not malloc's:"
        for part in split.largest:
            yield "  %10s  %-9s %s" % (size(part.bytes), part.kind, part.name)


def _verdicts(found: Overview) -> Iterator[str]:
    """The verdict, then a line for each further allocator that holds enough to be judged."""
    yield "Verdict"
    yield from _verdict(found.verdict)
    for name, judged in list(found.verdicts.items())[1:]:
        if judged.kind != SMALL:
            yield "%s beside it" % name
            yield from _verdict(judged)


def _verdict(judged: Verdict) -> Iterator[str]:
    for line in judged.lines:
        yield from _line("", line)


def _line(mark: str, finding: Finding) -> Iterator[str]:
    """One sentence with its figures, and what follows from it below."""
    yield "  %s%s: %s" % (mark, finding.what, finding.evidence)
    if finding.hint:
        yield "    %s" % finding.hint


def _held(style: Style, name: str, parts: Sequence[Any], retained: Any) -> Iterator[str]:
    size = pages.sizes(style)
    total = sum(part.bytes or 0 for part in parts)
    yield "What %s holds, in RAM or not: %s" % (name, size(total))
    body = [[part.name, size(part.bytes), "?" if part.bytes is None else "%.1f %%" % (100.0 * part.bytes / (total or 1))] for part in parts]
    yield from table(["", "bytes", "share"], body, "lrr")
    if retained:
        yield "beside it %s retained: address space without memory behind it" % size(retained)


def _arenas(style: Style, found: Overview) -> Iterator[str]:
    several = len(found.allocators) > 1
    for number, info in enumerate(found.allocators):
        if several:
            yield from pages.heading(info, first=not number)
        rows = [row for row in found.arenas if row.allocator == info.id]
        if several and not sum(map(_holds, rows)) and not found.totals[info.id].get("mmapped_bytes"):
            yield "it holds nothing"
            continue
        biggest = sorted(rows, key=_holds)[:BIGGEST_ARENAS]
        more = len(rows) > len(biggest)
        yield "Arenas (the %d biggest of %d)" % (len(biggest), len(rows)) if more else "Arenas"
        sums = found.totals[info.id]
        if info.name == "jemalloc":
            yield from jemalloc_text.arenas(style, biggest, None, sums)
        else:
            yield from pages.arenas(style, biggest, MmappedTotals(sums["mmapped_chunks"], sums["mmapped_bytes"]), sums)


def _holds(row: Any) -> int:
    """Minus what an arena holds: the biggest sorts first."""
    if hasattr(row, "system_bytes"):
        return -(row.system_bytes or 0)
    return -sum(part or 0 for part in (row.active_bytes, row.dirty_bytes, row.muzzy_bytes))
