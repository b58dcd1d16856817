"""mallinfo2's ten fields and malloc_stats' figures, from the totals of the arenas (malloc.c: int_mallinfo, __malloc_stats)."""

from typing import List, NamedTuple, Sequence, Tuple

from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.layout.view import View


class Mallinfo2(NamedTuple):
    """struct mallinfo2, field by field."""

    arena: int
    """Bytes from brk and in thread arenas: the sum of system_mem."""
    ordblks: int
    """Free chunks in bins, and one top for each arena."""
    smblks: int
    """Chunks in fastbins."""
    hblks: int
    """Mapped chunks."""
    hblkhd: int
    """Bytes in them."""
    usmblks: int
    """Always 0."""
    fsmblks: int
    """Bytes in fastbins."""
    uordblks: int
    """arena - fordblks: thread caches and overhead count as used here."""
    fordblks: int
    """Bytes free: bins, fastbins and tops."""
    keepcost: int
    """The main arena's top."""


class StatsArena(NamedTuple):
    """One arena's block of malloc_stats."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody calls on a record
    system_bytes: int
    in_use_bytes: int


def free_bytes(row: ArenaTotals) -> int:
    """fordblks of one arena."""
    return (row.free_bytes or 0) + (row.fast_bytes or 0) + (row.top_bytes or 0)


def mallinfo2(rows: Sequence[ArenaTotals], mp: View) -> Mallinfo2:
    """The ten fields for all arenas."""
    system = sum(row.system_bytes or 0 for row in rows)
    free = sum(free_bytes(row) for row in rows)
    return Mallinfo2(
        arena=system,
        ordblks=sum((row.free_chunks or 0) + 1 for row in rows),
        smblks=sum(row.fast_chunks or 0 for row in rows),
        hblks=mp["n_mmaps"],
        hblkhd=mp["mmapped_mem"],
        usmblks=0,
        fsmblks=sum(row.fast_bytes or 0 for row in rows),
        uordblks=system - free,
        fordblks=free,
        keepcost=sum(row.top_bytes or 0 for row in rows if row.kind == "main"),
    )


def malloc_stats(rows: Sequence[ArenaTotals], mp: View) -> Tuple[List[StatsArena], StatsArena]:
    """malloc_stats(3)'s figures without its 32-bit overflow: one entry per arena, and the total including mapped chunks."""
    arenas = [StatsArena(row.index, row.system_bytes or 0, (row.system_bytes or 0) - free_bytes(row)) for row in rows]
    mapped = mp["mmapped_mem"]
    total = StatsArena(-1, mapped + sum(a.system_bytes for a in arenas), mapped + sum(a.in_use_bytes for a in arenas))
    return arenas, total
