"""Prediction of the memory that malloc_trim(0) would give back, by its own rules (malloc.c: mtrim and systrim, after malloc_consolidate),
and of pages without a block. A huge page comes as a whole when one byte of it is touched: where malloc has no block, nothing else would
have brought it into RAM.
"""

from array import array
from typing import Annotated, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.columns import BYTES, IF_KNOWN, TEXT, Column, add_values
from gdbheapx.errors import UnreadableMemory
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.kernel.blocks.stream import BlockFilter
from gdbheapx.kernel.common.in_ram import NOTHING, UNKNOWN, InRam
from gdbheapx.kernel.glibc.records import STATUS_FREE, NativeListed, WalkResult
from gdbheapx.ranges import Range


def count_blockless_huge_bytes(context: Context, walk: ArenaWalk, total: Optional[WalkResult], kept: InRam) -> Optional[int]:
    """Parts of huge pages in which no block lies. `kept`: what of the rest of its heaps is in RAM."""
    page = context.glibc.geometry.page_bytes
    inside = context.ram.settle(total.interior_residency, walk.ranges(page)) if total is not None else NOTHING
    spans = list_top_pages(context, walk)
    top = NOTHING if not spans and context.ram.pages is not None else context.ram.of(spans, False) or UNKNOWN
    return add_values(part.huge_bytes for part in (inside, top, kept))


def list_top_pages(context: Context, walk: ArenaWalk) -> List[Range]:
    """Whole pages inside tops, with the free chunks that border them."""
    geometry = context.glibc.geometry
    page, spans = geometry.page_bytes, []
    for region, result in walk.runs:
        start = -(-((result.top_run_start or region.top) + geometry.chunk_struct_bytes) // page) * page
        end = (region.top + result.top_bytes) & -page
        if result.top_bytes and start < end:
            spans.append((start, end))
    return sorted(spans)


def list_free_pages(context: Context, walks: Sequence[ArenaWalk]) -> List[Range]:
    """Whole pages inside free chunks (malloc.c: mtrim), in the order of the walks."""
    geometry, spans = context.glibc.geometry, []
    page = geometry.page_bytes
    regions = [NativeListed(region, walk.arena.index) for walk in walks for region, _ in walk.runs]
    for batch in context.walker.blocks(regions, array("Q"), BlockFilter(kinds=frozenset((STATUS_FREE,)), min_size=page)):
        for address, usable in zip(batch.addresses, batch.usable_bytes):
            start = -(-(address - 2 * geometry.word_bytes + geometry.chunk_struct_bytes) // page) * page
            end = (address + usable) & -page
            if start < end:
                spans.append((start, end))
    return spans


def count_zero_huge_bytes(context: Context, walks: Sequence[ArenaWalk], heap_max: int) -> Optional[int]:
    """Return how much of count_blockless_huge_bytes() holds only zeros; None as Ram.zero_huge_bytes()."""
    spans = list_free_pages(context, walks)
    for walk in walks:
        spans += [*list_top_pages(context, walk), *walk.reserves(heap_max)]
    return context.ram.zero_huge_bytes(spans, context.source, context.budget)


class TopTrim(NamedTuple):
    """The end of the main arena that systrim would give back to brk."""

    start: int
    end: int

    @property
    def bytes(self) -> int:
        """Its length."""
        return self.end - self.start


class ArenaTrim(NamedTuple):
    """Memory of an arena that malloc_trim would give back."""

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


def predict_trim(context: Context, walk: ArenaWalk, total: WalkResult, pad: int = 0) -> ArenaTrim:
    """The prediction for one walked arena."""
    top = predict_systrim(context, walk, total, pad) if walk.arena.is_main else None
    ranges = walk.ranges(context.glibc.geometry.page_bytes)
    apart = [(mapping.start, mapping.end) for mapping in context.target.mappings() if mapping.is_hugetlb]
    if apart and any(low < end and start < high for start, end in ranges for low, high in apart):
        interior = _free_outside(context, walk, apart)
        known = NOTHING if not interior and context.ram.pages is not None else context.ram.of(interior) or UNKNOWN
        size = sum(end - start for start, end in interior)
        return ArenaTrim(walk.arena.index, size, 0, known.resident_bytes, known.exclusive_bytes)
    parts = [context.ram.settle(total.interior_residency, ranges)]
    if top is not None:
        parts.append(context.ram.of([(top.start, top.end)]) or UNKNOWN)
    resident, exclusive = (add_values(part[place] for part in parts) for place in range(2))
    return ArenaTrim(walk.arena.index, total.interior_bytes, top.bytes if top else 0, resident, exclusive)


def _free_outside(context: Context, walk: ArenaWalk, apart: Sequence[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """Whole pages inside free chunks outside hugetlbfs: of its pages madvise takes whole ones alone, and gives them to their pool."""
    return sorted(
        (start, end) for start, end in list_free_pages(context, [walk]) if not any(low < end and start < high for low, high in apart)
    )


def predict_systrim(context: Context, walk: ArenaWalk, total: WalkResult, pad: int = 0) -> Optional[TopTrim]:
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
    except UnreadableMemory:
        return None
    extra = (area - pad) // unit * unit
    return TopTrim(end - extra, end) if extra else None
