"""The page that `report` prints."""

from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

from gdbheapx.analysis.memory.kinds import ALLOCATOR, FILE, GUESS
from gdbheapx.analysis.memory_verdict import weight
from gdbheapx.analysis.overview import Overview
from gdbheapx.analysis.split import Memory, taken
from gdbheapx.analysis.sums import add
from gdbheapx.analysis.verdict import NOT_MALLOC, SMALL, Verdict
from gdbheapx.command import Style
from gdbheapx.model import Finding, MemoryPart, MmappedTotals
from gdbheapx.report import jemalloc_text, pages
from gdbheapx.report.text import printable, table

BIGGEST_ARENAS = 8
SMALL_PART = 2000
"""Times a smaller part is less than the whole: it would show as 0.0 %."""
MANY_MAPPINGS = 10
"""From here on a part says over how many mappings it is spread."""
COLUMNS = (("shared", "shared_bytes"), ("PSS", "pss_bytes"), ("swapped", "swapped_bytes"), ("huge pages", "huge_bytes"), ("hugetlb", "hugetlb_bytes"))
"""Shown where any part has some."""


def lines(style: Style, found: Overview) -> Iterator[str]:
    """Split, verdict, findings, what jemalloc holds, arenas, size classes, next steps."""
    if found.split is not None and found.memory is not None:
        yield from _split(style, found.split, found.memory)
        yield ""
    yield from _verdicts(found)
    for finding in found.findings:
        yield from _line("Note: ", finding)
    for name, parts in found.held.items():
        yield ""
        yield from _held(style, name, parts, found.totals[name])
    yield ""
    yield from _arenas(style, found)
    if found.size_classes:
        yield ""
        yield "Size classes that hold the most memory"
        yield from pages.histogram(style, found.size_classes)
    yield ""
    yield "Next"
    for step in found.next_steps:
        yield "  %s" % step


def _split(style: Style, parts: Sequence[MemoryPart], memory: Memory) -> Iterator[str]:
    size = pages.sizes(style)
    live = memory.measure == "resident"
    beside = [
        (memory.swapped_bytes, "plus %s in swap"),
        (memory.hugetlb_bytes, "plus %s in huge pages of hugetlbfs"),
        (memory.pss_bytes if memory.shared_bytes else None, "PSS %s"),
        (memory.droppable_bytes, "%s of it droppable"),
        (memory.zero_bytes, "plus %s of zeros: reserved, returned or never written"),
    ]
    more = "".join(", " + text % size(value) for value, text in beside if value)
    yield "%s: %s%s" % ("Memory in RAM (RSS)" if live else "Bytes in the core", size(memory.total_bytes), more)
    columns = [column for column in COLUMNS if any(getattr(part, column[1]) for part in parts)]
    body = []
    for name, members in _rows(parts, memory.total_bytes):
        bytes_ = sum(map(taken, members))
        row = [name, size(bytes_), "%.1f %%" % (100.0 * bytes_ / (memory.total_bytes or 1))]
        body.append(row + [size(add(getattr(part, column) for part in members)) for _, column in columns])
    yield from table(["", "bytes", "share", *(heading for heading, _ in columns)], body, "lrr" + "r" * len(columns))
    if any(part.sure == GUESS for part in parts):
        yield "?  a guess: no other owner of such memory is known in a program like this"
    if memory.largest:
        yield "Largest parts that are not malloc's:"
        for one in memory.largest:
            yield printable("  %10s  %-13s %s" % (size(one.bytes), one.kind, one.name))


def _rows(parts: Sequence[MemoryPart], total: int) -> Iterator[Tuple[str, Sequence[MemoryPart]]]:
    """The parts, those that would show as 0.0 % together."""
    small = [part for part in parts if SMALL_PART * weight(part) < total and part.kind != ALLOCATOR]
    for part in parts:
        if len(small) < 2 or part not in small:
            yield _part_name(part), (part,)
    if len(small) >= 2:
        yield "%d smaller parts" % len(small), small


def _part_name(part: MemoryPart) -> str:
    """With how many mappings it is spread over, where that is much, and a mark where it is guessed."""
    spread = " (%d mappings)" % part.mappings if part.mappings >= MANY_MAPPINGS and part.kind not in FILE else ""
    return "%s%s%s" % (part.name, spread, " ?" if part.sure == GUESS else "")


def _verdicts(found: Overview) -> Iterator[str]:
    """The verdict, then a line for each further allocator that holds enough to be judged."""
    yield "Verdict"
    yield from _verdict(found.verdict)
    for name, judged in list(found.verdicts.items())[1:]:
        if judged.kind != SMALL and name in found.shown and found.verdict.kind != NOT_MALLOC:
            yield "Also in this target: %s" % name
            yield from _verdict(judged)


def _verdict(judged: Verdict) -> Iterator[str]:
    for line in judged.lines:
        yield from _line("", line)


def _line(mark: str, finding: Finding) -> Iterator[str]:
    """One sentence with its figures, and what follows from it below."""
    yield printable("  %s%s: %s" % (mark, finding.what, finding.evidence))
    if finding.hint:
        yield printable("    %s" % finding.hint)


def _held(style: Style, name: str, parts: Sequence[Any], sums: Dict[str, Optional[int]]) -> Iterator[str]:
    size = pages.sizes(style)
    total = sum(part.bytes or 0 for part in parts)
    yield "What %s holds, in RAM or not: %s" % (name, size(total))
    body = [[part.name, size(part.bytes), "?" if part.bytes is None else "%.1f %%" % (100.0 * part.bytes / (total or 1))] for part in parts]
    yield from table(["", "bytes", "share"], body, "lrr")
    retained, resident = sums["retained_bytes"], sums["retained_resident_bytes"]
    if retained and resident is None:
        yield "plus %s retained: address space returned to the OS; it is unknown whether some of it is still in RAM" % size(retained)
    elif retained and retained > (resident or 0):
        yield "plus %s retained: address space only, no RAM behind it" % size(retained - (resident or 0))


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
        yield "Arenas (the %d largest of %d)" % (len(biggest), len(rows)) if more else "Arenas"
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
