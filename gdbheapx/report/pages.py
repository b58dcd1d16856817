"""The text of each command: records in, lines out. No arithmetic beyond what a reader sees as a column."""

from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.analysis.check import Check
from gdbheapx.analysis.trim import DryRun
from gdbheapx.command import Style
from gdbheapx.model import AllocatorInfo, ArenaTotals, BinRow, HistogramRow, MmappedTotals, ThreadCache
from gdbheapx.report.text import human, table

Sizes = Callable[[Optional[int]], str]


def sizes(style: Style) -> Sizes:
    """How this answer shows bytes: human, or plain integers with --bytes; unknown as `?`."""

    def show(value: Optional[int]) -> str:
        if value is None:
            return "?"
        return str(value) if style.plain_bytes else human(value)

    return show


def count(value: Optional[int]) -> str:
    """A number of things; unknown as `?`."""
    return "?" if value is None else str(value)


def heading(info: AllocatorInfo, first: bool) -> Iterator[str]:
    """A line above the table of one allocator, where there are several."""
    if not first:
        yield ""
    owns = {True: ", owns malloc", False: "", None: ", cannot determine whether it owns malloc"}[info.owns_malloc]
    yield "%s: %s %s in %s%s" % (info.id, info.name, info.version or "of unknown version", info.object, owns)


def in_ram_columns(sums: Dict[str, Optional[int]], returned: str) -> Dict[str, str]:
    """Heading -> figure of what else there is to say of RAM: only where it says something.

    `returned`: the figure of what was given back.
    """
    shared = sums["reclaimable_exclusive_bytes"] != sums["reclaimable_resident_bytes"]
    wanted = (("exclusive", "reclaimable_exclusive_bytes", shared), ("returned, in RAM", returned, sums[returned]), ("huge pages", "huge_bytes", sums["huge_bytes"]))
    return {heading: key for heading, key, shown in wanted if shown}


def arenas(style: Style, rows: Sequence[ArenaTotals], mapped: Optional[MmappedTotals], sums: Dict[str, Optional[int]]) -> Iterator[str]:
    """One line per arena, a line of sums, the mapped chunks."""
    size = sizes(style)
    show_resident = any(row.reclaimable_resident_bytes is not None for row in rows)
    show_unparsed = any(row.unparsed_bytes for row in rows)
    headers = ["arena", "kind", "heaps", "system", "used", "tcache", "fast", "free", "top", "overhead"]
    more = in_ram_columns(sums, "free_returned_resident_bytes")
    headers += ["unparsed"] * show_unparsed + ["free %", "reclaimable"] + ["in RAM"] * show_resident + list(more) + ["threads"]

    def line(name: str, kind: str, figures: Dict[str, Optional[int]], percent: str) -> List[str]:
        shown = [name, kind, count(figures["heaps"])]
        shown += [size(figures[key + "_bytes"]) for key in ("system", "used", "tcache", "fast", "free", "top", "overhead")]
        shown += [size(figures["unparsed_bytes"])] * show_unparsed + [percent, size(figures["reclaimable_bytes"])]
        shown += [size(figures["reclaimable_resident_bytes"])] * show_resident + [size(figures[key]) for key in more.values()]
        return shown + [count(figures["threads"])]

    body = []
    for row in rows:
        mark = " (locked)" if row.locked else ""
        body.append(line(str(row.index) + mark, row.kind, row._asdict(), "?" if row.free_percent is None else "%.1f" % row.free_percent))
    percent = "?"
    if sums["system_bytes"]:
        free = sum(sums[key] or 0 for key in ("free_bytes", "fast_bytes", "top_bytes"))
        percent = "%.1f" % (100.0 * free / (sums["system_bytes"] or 1))
    body.append(line("total", "", sums, percent))
    yield from table(headers, body, "ll" + "r" * (len(headers) - 2))
    if mapped is not None:
        yield "mapped chunks: %s of %s" % (count(mapped.chunks), size(mapped.bytes))


def histogram(style: Style, rows: Sequence[HistogramRow]) -> Iterator[str]:
    """Chunks by size class."""
    size = sizes(style)
    headers = ["chunk size", "used", "used bytes", "free", "free bytes", "in tcache"]
    body = []
    for row in rows:
        span = size(row.max_size_bytes) if row.size_bytes == row.max_size_bytes else "%s-%s" % (size(row.size_bytes), size(row.max_size_bytes))
        body.append([span, count(row.used_chunks), size(row.used_bytes), count(row.free_chunks), size(row.free_bytes), count(row.tcache_chunks)])
    yield from table(headers, body, "rrrrrr")


def bins(style: Style, rows: Sequence[BinRow]) -> Iterator[str]:
    """The non-empty bins."""
    size = sizes(style)
    several = len({row.allocator for row in rows}) > 1
    body = []
    for row in rows:
        arena = "%s %d" % (row.allocator, row.arena) if several else str(row.arena)
        span = "any" if row.min_size_bytes is None else size(row.min_size_bytes)
        if row.min_size_bytes is not None and row.max_size_bytes != row.min_size_bytes:
            span += "-" + (size(row.max_size_bytes) if row.max_size_bytes is not None else "")
        body.append([arena, row.kind, str(row.index), span, count(row.chunks), size(row.bytes)])
    yield from table(["arena", "kind", "bin", "chunk size", "chunks", "bytes"], body, "llrrrr")
    if not rows:
        yield "all bins are empty"


def tcache(style: Style, rows: Sequence[ThreadCache]) -> Iterator[str]:
    """One line per thread, its fullest bins behind it."""
    size = sizes(style)
    body = []
    for row in rows:
        largest = sorted(row.bins, key=lambda found: -(found.bytes or 0))[:3]
        shown = ", ".join("%d x %s" % (found.chunks, size(found.size_bytes)) for found in largest)
        arena = "none" if row.arena is None else str(row.arena)
        thread = "explicit %d" % row.explicit if row.explicit is not None else count(row.lwp)
        body.append([thread, row.name or "", arena, str(row.tcache or "none"), count(row.chunks), size(row.bytes), shown])
    yield from table(["thread", "name", "arena", "tcache", "chunks", "bytes", "most bytes in"], body, "lllrrrl")


def pairs(rows: Iterable[Tuple[str, str, str]]) -> Iterator[str]:
    """Name, value, meaning."""
    yield from table(["name", "value", "meaning"], [list(row) for row in rows], "lrl")


def in_ram(size: Sizes, resident_bytes: Optional[int], exclusive_bytes: Optional[int], when: str = " now") -> str:
    """What stands behind the bytes that a trim or purge would return: how many are in RAM, and of these what the machine gets, where that is less."""
    if resident_bytes is None:
        return ""
    text = ", %s of it in RAM%s" % (size(resident_bytes), when)
    if exclusive_bytes is None or exclusive_bytes >= resident_bytes:
        return text
    return text + " (the machine gets back %s of that: the rest is shared with forked processes, or is part of a huge page)" % size(exclusive_bytes)


def trim(style: Style, found: DryRun) -> Iterator[str]:
    """What a trim would give back, arena by arena."""
    size = sizes(style)
    resident = found.predicted_resident_bytes is not None
    headers = ["arena", "inside free chunks", "top"] + ["in RAM"] * resident
    body = [[str(row.arena), size(row.interior_bytes), size(row.top_bytes)] + [size(row.resident_bytes)] * resident for row in found.arenas]
    yield from table(headers, body, "l" + "r" * (len(headers) - 1))
    more = in_ram(size, found.predicted_resident_bytes, found.predicted_exclusive_bytes)
    yield "malloc_trim would return %s to the OS%s; nothing was called" % (size(found.predicted_bytes), more)


def checks(rows: Sequence[Check]) -> Iterator[str]:
    """One line per thing looked at: how it stands, what it is, and what to do where it is not well."""
    marks = {True: "ok", False: "NO", None: "--"}
    for row in rows:
        yield "%-3s %-22s %s" % (marks[row.ok], row.what, row.found)
        if row.hint:
            yield "    %-22s %s" % ("", row.hint)
