"""The pages `arenas` and `bins` of one jemalloc."""

from typing import Any, Dict, Mapping, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.columns import Table, columns_of, sums
from gdbheapx.jemalloc.records import JemallocArena, JemallocBin
from gdbheapx.units import Size, cells

SIX = ("allocated", "active", "metadata", "resident", "mapped", "retained")
"""malloc_stats_print's first line, in its order."""


def totals(rows: Sequence[JemallocArena]) -> Dict[str, Optional[int]]:
    """The sums over its arenas; unknown where none could be read, as there is always one."""
    return {**sums(JemallocArena, rows, must_exist=True), "arenas": len(rows)}


def arenas(rows: Sequence[JemallocArena], totals: Mapping[str, Optional[int]]) -> Page:
    """One line per arena, a line of sums, jemalloc's six totals."""
    yield Table(columns_of(JemallocArena), rows, {**totals, "index": "total", "kind": ""})
    six = ["%s: %s" % (word.capitalize() if word == "allocated" else word, "%s") for word in SIX]
    yield cells(", ".join(six), *(Size(totals[word + "_bytes"]) for word in SIX))


def bins(rows: Sequence[JemallocBin]) -> Page:
    """Size classes with what they hold, then unused extents."""
    yield Table(columns_of(JemallocBin), [_bin(row) for row in rows])
    if not rows:
        yield "no extents"


def _bin(row: JemallocBin) -> Dict[str, Any]:
    shown: Dict[str, Any] = {**row._asdict(), "index": "" if row.index is None else row.index}
    if row.kind != "small" and row.min_size_bytes != row.max_size_bytes:
        shown["max_size_bytes"] = cells("%s-%s", Size(row.min_size_bytes), Size(row.max_size_bytes))
    shown["slabs"] = row.slabs if row.slabs is not None else row.extents
    if row.index is None:
        shown.update(dict.fromkeys(("used_blocks", "used_bytes", "cached_blocks", "cached_bytes"), ""))
    return shown
