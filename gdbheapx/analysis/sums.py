"""Sums over arenas. A sum with an unknown part is unknown."""

from typing import Any, Dict, Iterable, Optional, Sequence

from gdbheapx.model import ArenaTotals, JemallocArena, MmappedTotals

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
    "reclaimable_exclusive_bytes",
    "free_returned_resident_bytes",
    "free_returned_huge_bytes",
    "huge_bytes",
    "threads",
    "attached_threads",
)

_JEMALLOC_SUMMED = (
    "allocated_bytes",
    "active_bytes",
    "metadata_bytes",
    "resident_bytes",
    "mapped_bytes",
    "retained_bytes",
    "used_blocks",
    "used_bytes",
    "cached_blocks",
    "cached_bytes",
    "dirty_bytes",
    "muzzy_bytes",
    "unparsed_bytes",
    "threads",
    "blind_threads",
    "reclaimable_bytes",
    "reclaimable_resident_bytes",
    "reclaimable_exclusive_bytes",
    "retained_resident_bytes",
    "retained_huge_bytes",
    "huge_bytes",
)
"""jemalloc's six totals first."""


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


def jemalloc_sums(rows: Sequence[JemallocArena]) -> Dict[str, Optional[int]]:
    """The summed columns of one jemalloc's arenas; unknown where none could be read, as there is always one."""
    sums: Dict[str, Optional[int]] = {name: add(getattr(row, name) for row in rows) if rows else None for name in _JEMALLOC_SUMMED}
    sums["arenas"] = len(rows)
    return sums


def allocator_sums(malloc: Any) -> Dict[str, Optional[int]]:
    """One allocator's totals, in its own words."""
    if malloc.kind == "jemalloc":
        return jemalloc_sums(malloc.arenas())
    return arena_sums(malloc.arenas(), malloc.mmapped_totals())


def mapped_sum(parts: Iterable[MmappedTotals]) -> MmappedTotals:
    """Mapped chunks of several allocators."""
    found = list(parts)
    return MmappedTotals(add(part.chunks for part in found), add(part.bytes for part in found))
