"""The page `arenas` of one mimalloc."""

from typing import Any, Mapping, Optional, Sequence

from gdbheapx.allocators.records import Page
from gdbheapx.columns import Table, columns_of
from gdbheapx.mimalloc.records import MimallocArena
from gdbheapx.units import Size, cells


def page(rows: Sequence[Any], totals: Mapping[str, Optional[int]]) -> Page:
    """One line per owner, the sums, and what stands beside them."""
    yield Table(columns_of(MimallocArena), rows, {**totals, "index": "total"}, "no pages")
    if totals.get("remote_free_bytes"):
        what = "freed by others: %s wait for their owners, which collect them only when they allocate; %s of it are whole pages"
        yield cells(what, Size(totals["remote_free_bytes"]), Size(totals["uncollected_bytes"]))
    if totals.get("collectable_bytes"):
        resident = totals.get("collectable_resident_bytes")
        what = "mi_collect(true), called by each of these threads, would return empty pages and spans: "
        if resident is None:
            yield cells(what + "%s, of which it is unknown how much is in RAM", Size(totals["collectable_bytes"]))
        elif resident:
            yield cells(what + "%s in RAM", Size(resident))
    if totals.get("returned_bytes"):
        yield cells("plus %s of address space: returned to the OS, or never used", Size(totals["returned_bytes"]))
