"""The page that `report` prints."""

from typing import Iterator

from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.split import Split, largest_parts
from gdbheapx.command import Style
from gdbheapx.model import MmappedTotals
from gdbheapx.report import pages
from gdbheapx.report.text import table

BIGGEST_ARENAS = 8


def lines(style: Style, found: Overview) -> Iterator[str]:
    """Split, verdict, findings, arenas, size classes, next steps."""
    if found.split is not None:
        yield from _split(style, found.split)
        yield ""
    yield "Verdict"
    for line in found.verdict.lines:
        yield "  %s: %s" % (line.what, line.evidence)
        if line.hint:
            yield "    %s" % line.hint
    for finding in found.findings:
        yield "  Mind: %s (%s)%s" % (finding.what, finding.evidence, "; " + finding.hint if finding.hint else "")
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


def _arenas(style: Style, found: Overview) -> Iterator[str]:
    biggest = sorted(found.arenas, key=lambda row: -(row.system_bytes or 0))[:BIGGEST_ARENAS]
    mapped = {name: MmappedTotals(sums["mmapped_chunks"], sums["mmapped_bytes"]) for name, sums in found.totals.items()}
    more = len(found.arenas) - len(biggest)
    yield "Arenas" if not more else "Arenas (the %d biggest of %d)" % (len(biggest), len(found.arenas))
    yield from pages.arenas(style, biggest, mapped, found.totals)
