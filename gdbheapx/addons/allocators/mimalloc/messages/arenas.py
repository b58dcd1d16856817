"""The page `arenas` of one mimalloc."""

from typing import Any, Iterator, Mapping, Optional, Sequence

from gdbheapx.addons.allocators.mimalloc.records import MimallocArena
from gdbheapx.allocators.records import Page
from gdbheapx.columns import Table, columns_of
from gdbheapx.units import Said, Size, cells


def page(rows: Sequence[Any], totals: Mapping[str, Optional[int]]) -> Page:
    """One line per owner, the sums, and what stands beside them."""
    yield Table(columns_of(MimallocArena), rows, {**totals, "index": "total"})
    if totals.get("remote_free_bytes"):
        what = "freed by others: %s wait for their owners, which collect them only when they allocate; %s of it are whole pages"
        yield cells(what, Size(totals["remote_free_bytes"]), Size(totals["uncollected_bytes"]))
    yield from collections(totals)
    in_ram = totals.get("returned_resident_bytes") or 0
    if in_ram:
        yield cells("plus %s returned to the OS or never used, but in RAM (not part of held)", Size(in_ram))
    if (totals.get("returned_bytes") or 0) > in_ram:
        yield cells("plus %s of address space: returned to the OS, or never used", Size((totals["returned_bytes"] or 0) - in_ram))


CALLS = (
    ("unowned_collectable", "mi_collect(true), called by any one thread, would return memory that no thread owns: "),
    ("collectable", "mi_collect(true), called by each of these threads, would return empty pages and spans: "),
)


def collections(totals: Mapping[str, Optional[int]]) -> Iterator[Said]:
    """What a call of the program's own would return, by who has to make it."""
    for name, what in CALLS:
        resident = totals.get(name + "_resident_bytes")
        if not totals.get(name + "_bytes"):
            continue
        if resident is None:
            yield cells(what + "%s (how much is in RAM is unknown)", Size(totals[name + "_bytes"]))
        elif resident:
            yield cells(what + "%s in RAM", Size(resident))
