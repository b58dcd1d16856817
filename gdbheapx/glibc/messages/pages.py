"""The pages `arenas` and `bins` of one copy of glibc's malloc."""

from typing import Any, Dict, Mapping, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.columns import Table, columns_of, sums
from gdbheapx.glibc.records import ArenaTotals, BinRow, MmappedTotals
from gdbheapx.units import Size, cells, number


def totals(rows: Sequence[ArenaTotals], mapped: MmappedTotals) -> Dict[str, Optional[int]]:
    """The sums over its arenas, and its mapped chunks; unknown where not even main_arena could be read."""
    return {
        **sums(ArenaTotals, rows, must_exist=True),
        "arenas": len(rows) or None,
        "mmapped_chunks": mapped.chunks,
        "mmapped_bytes": mapped.bytes,
    }


def arenas(rows: Sequence[ArenaTotals], totals: Mapping[str, Optional[int]]) -> Page:
    """One line per arena, a line of sums, the mapped chunks."""
    shown = [{**row._asdict(), "index": "%d%s" % (row.index, " (locked)" if row.locked else "")} for row in rows]
    system = totals["system_bytes"]
    free = sum(totals[key] or 0 for key in ("free_bytes", "fast_bytes", "top_bytes"))
    percent = 100.0 * free / system if system else None
    yield Table(columns_of(ArenaTotals), shown, {**totals, "index": "total", "kind": "", "free_percent": percent})
    yield cells("mmapped chunks: %s, %s", number(totals["mmapped_chunks"]), Size(totals["mmapped_bytes"]))


def bins(rows: Sequence[BinRow]) -> Page:
    """The non-empty bins."""
    yield Table(columns_of(BinRow), [_bin(row) for row in rows])
    if not rows:
        yield "all bins are empty"


def _bin(row: BinRow) -> Dict[str, Any]:
    low, high = row.min_size_bytes, row.max_size_bytes
    shown = row._asdict()
    if low is None:
        shown["min_size_bytes"] = "any"
    elif high is None:
        shown["min_size_bytes"] = cells("%s-", Size(low))
    elif high != low:
        shown["min_size_bytes"] = cells("%s-%s", Size(low), Size(high))
    return shown
