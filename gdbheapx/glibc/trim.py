"""What malloc_trim(0) would give back, by its own rules (malloc.c: mtrim and systrim, after malloc_consolidate)."""

from typing import Annotated, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.columns import BYTES, IF_KNOWN, TEXT, Column, add
from gdbheapx.errors import Unreadable
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.kernel.common.in_ram import NOTHING, UNKNOWN
from gdbheapx.kernel.glibc.records import WalkResult


class TopTrim(NamedTuple):
    """The end of the main arena that systrim would give back to brk."""

    start: int
    end: int

    @property
    def bytes(self) -> int:
        """Its length."""
        return self.end - self.start


class Prediction(NamedTuple):
    """One arena's share of what malloc_trim would give back."""

    arena: Annotated[int, Column("arena", TEXT)]
    interior_bytes: Annotated[int, Column("inside free chunks", BYTES)]
    """Whole pages inside free chunks (madvise)."""
    top_bytes: Annotated[int, Column("top", BYTES)]
    """The end of top (brk); 0 for thread arenas, ever."""
    resident_bytes: Annotated[Optional[int], Column("resident", BYTES, shown=IF_KNOWN)]
    """Those of both that count in RSS; None where there is no page table, or it does not tell."""
    exclusive_bytes: Optional[int]
    """Those of them that the machine gets back at once, see kernel.common.in_ram.InRam."""

    @property
    def bytes(self) -> int:
        """Both."""
        return self.interior_bytes + self.top_bytes


def predict(context: Context, walk: ArenaWalk, total: WalkResult, pad: int = 0) -> Prediction:
    """The prediction for one walked arena."""
    top = systrim(context, walk, total, pad) if walk.arena.is_main else None
    ranges = walk.ranges(context.glibc.geometry.page_bytes)
    apart = [(mapping.start, mapping.end) for mapping in context.target.mappings() if mapping.is_hugetlb]
    if apart and any(low < end and start < high for start, end in ranges for low, high in apart):
        interior = _outside(context, walk, apart)
        known = NOTHING if not interior and context.ram.pages is not None else context.ram.of(interior) or UNKNOWN
        size = sum(end - start for start, end in interior)
        return Prediction(walk.arena.index, size, 0, known.resident_bytes, known.exclusive_bytes)
    parts = [context.ram.settle(total.interior_residency, ranges)]
    if top is not None:
        parts.append(context.ram.of([(top.start, top.end)]) or UNKNOWN)
    resident, exclusive = (add(part[place] for part in parts) for place in range(2))
    return Prediction(walk.arena.index, total.interior_bytes, top.bytes if top else 0, resident, exclusive)


def _outside(context: Context, walk: ArenaWalk, apart: Sequence[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Whole pages inside free chunks outside hugetlbfs: of its pages madvise takes whole ones alone, and gives them to their pool."""
    from gdbheapx.glibc.blockless import free_pages

    return sorted(
        (start, end) for start, end in free_pages(context, [walk]) if not any(low < end and start < high for low, high in apart)
    )


def systrim(context: Context, walk: ArenaWalk, total: WalkResult, pad: int = 0) -> Optional[TopTrim]:
    """The range that systrim(pad) would give back; None if nothing: too small, or the break is not where top ends.

    Free and fast chunks that border top are merged into it first (malloc_consolidate).
    """
    glibc = context.glibc
    top, size = walk.arena.top, total.top_bytes
    end = top + size
    if not size or glibc.break_address(context.target) != end:
        return None
    size = end - (total.top_run_start or top)
    area = size - glibc.geometry.min_chunk_bytes - 1
    if area <= pad:
        return None
    try:
        unit = glibc.read_mp(context.target).get("thp_pagesize") or glibc.geometry.page_bytes
    except Unreadable:
        return None
    extra = (area - pad) // unit * unit
    return TopTrim(end - extra, end) if extra else None
