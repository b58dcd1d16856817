"""Sums over arenas. A sum with an unknown part is unknown."""

from typing import Dict, Iterable, Optional, Sequence

from gdbheapx.model import ArenaTotals, MmappedTotals

_SUMMED = (
    "heaps",
    "system_bytes",
    "max_system_bytes",
    "used_chunks",
    "used_bytes",
    "tcache_chunks",
    "tcache_bytes",
    "fast_chunks",
    "fast_bytes",
    "free_chunks",
    "free_bytes",
    "top_bytes",
    "overhead_bytes",
    "foreign_bytes",
    "unparsed_bytes",
    "tcache_struct_chunks",
    "reclaimable_bytes",
    "reclaimable_resident_bytes",
    "threads",
    "attached_threads",
)


def add(values: Iterable[Optional[int]]) -> Optional[int]:
    """The sum; None if any value is None."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def arena_sums(rows: Sequence[ArenaTotals], mapped: MmappedTotals) -> Dict[str, Optional[int]]:
    """The summed columns of one allocator's arenas, plus its mapped chunks."""
    sums: Dict[str, Optional[int]] = {name: add(getattr(row, name) for row in rows) for name in _SUMMED}
    largest = [row.largest_free_bytes for row in rows]
    sums["largest_free_bytes"] = None if None in largest else max([value or 0 for value in largest], default=0)
    sums["arenas"] = len(rows)
    sums["mmapped_chunks"] = mapped.chunks
    sums["mmapped_bytes"] = mapped.bytes
    return sums


def mapped_sum(parts: Iterable[MmappedTotals]) -> MmappedTotals:
    """Mapped chunks of several allocators."""
    found = list(parts)
    return MmappedTotals(add(part.chunks for part in found), add(part.bytes for part in found))
