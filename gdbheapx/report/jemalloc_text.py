"""The text of jemalloc's answers: records in, lines out."""

from typing import Any, Dict, Iterator, List, Optional, Sequence

from gdbheapx.command import Style
from gdbheapx.model import JemallocArena, JemallocBin
from gdbheapx.report.pages import count, in_ram_columns, sizes
from gdbheapx.report.text import table

SIX = ("allocated", "active", "metadata", "resident", "mapped", "retained")
"""malloc_stats_print's first line, in its order."""


def milliseconds(value: Optional[int]) -> str:
    """A decay time as jemalloc's options have it."""
    return "?" if value is None else {-1: "never", 0: "at once"}.get(value, "%d ms" % value)


def arenas(style: Style, rows: Sequence[JemallocArena], mapped: Any, sums: Dict[str, Optional[int]]) -> Iterator[str]:
    """One line per arena, a line of sums, jemalloc's six totals."""
    size = sizes(style)
    resident = any(row.reclaimable_resident_bytes is not None for row in rows)
    unparsed = any(row.unparsed_bytes for row in rows)
    blind = any(row.blind_threads for row in rows)
    columns = ["used", "cached", "active", "dirty", "muzzy", "retained", "metadata"] + ["unparsed"] * unparsed + ["reclaimable"]
    more = in_ram_columns(sums, "retained_resident_bytes")
    headers = ["arena", "kind", *columns] + ["in RAM"] * resident + list(more) + ["threads"] + ["blind"] * blind + ["dirty decay", "muzzy decay"]

    def line(name: str, kind: str, figures: Dict[str, Any], decay: List[str]) -> List[str]:
        shown = [name, kind] + [size(figures[key + "_bytes"]) for key in columns]
        shown += [size(figures["reclaimable_resident_bytes"])] * resident + [size(figures[key]) for key in more.values()]
        return shown + [count(figures["threads"])] + [count(figures["blind_threads"])] * blind + decay

    body = [line(str(row.index), row.kind, row._asdict(), [milliseconds(row.dirty_decay_ms), milliseconds(row.muzzy_decay_ms)]) for row in rows]
    body.append(line("total", "", sums, ["", ""]))
    yield from table(headers, body, "ll" + "r" * (len(headers) - 2))
    yield ", ".join("%s: %s" % (word.capitalize() if word == "allocated" else word, size(sums[word + "_bytes"])) for word in SIX)


def bins(style: Style, rows: Sequence[JemallocBin]) -> Iterator[str]:
    """Size classes with what they hold, then unused extents."""
    size = sizes(style)
    body = []
    for row in rows:
        index = "" if row.index is None else str(row.index)
        span = size(row.max_size_bytes) if row.kind == "small" or row.min_size_bytes == row.max_size_bytes else "-".join(map(size, (row.min_size_bytes, row.max_size_bytes)))
        held = ["", "", "", ""] if row.index is None else [count(row.used_blocks), size(row.used_bytes), count(row.cached_blocks), size(row.cached_bytes)]
        pieces = count(row.slabs if row.slabs is not None else row.extents)
        body.append([str(row.arena), row.kind, index, span, pieces, *held, count(row.chunks), size(row.bytes)])
    headers = ["arena", "kind", "class", "size", "slabs/extents", "used", "used bytes", "cached", "cached bytes", "free", "free bytes"]
    yield from table(headers, body, "ll" + "r" * 9)
    if not rows:
        yield "no extents"
