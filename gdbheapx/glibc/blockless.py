"""Pages of arenas in which no block lies: whole pages inside free chunks and tops, and the rest of heaps; what of them huge pages fill.

A huge page comes as a whole when one byte of it is touched: where malloc has no block, nothing else would have brought it into RAM.
"""

from array import array
from typing import List, Optional, Sequence, Tuple

from gdbheapx.columns import add
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.kernel.blocks.records import BlockFilter
from gdbheapx.kernel.common.in_ram import NOTHING, UNKNOWN, InRam
from gdbheapx.kernel.glibc.records import STATUS_FREE, Listed, WalkResult

Range = Tuple[int, int]


def huge_bytes(context: Context, walk: ArenaWalk, total: Optional[WalkResult], kept: InRam) -> Optional[int]:
    """Parts of huge pages in which no block lies. `kept`: what of the rest of its heaps is in RAM."""
    page = context.glibc.geometry.page_bytes
    inside = context.ram.settle(total.interior_residency, walk.ranges(page)) if total is not None else NOTHING
    spans = tops(context, walk)
    top = NOTHING if not spans and context.ram.pages is not None else context.ram.of(spans, False) or UNKNOWN
    return add(part.huge_bytes for part in (inside, top, kept))


def tops(context: Context, walk: ArenaWalk) -> List[Range]:
    """Whole pages inside tops, with the free chunks that border them."""
    geometry = context.glibc.geometry
    page, spans = geometry.page_bytes, []
    for region, result in walk.runs:
        start = -(-((result.top_run_start or region.top) + geometry.chunk_struct_bytes) // page) * page
        end = (region.top + result.top_bytes) & -page
        if result.top_bytes and start < end:
            spans.append((start, end))
    return sorted(spans)


def free_pages(context: Context, walks: Sequence[ArenaWalk]) -> List[Range]:
    """Whole pages inside free chunks (malloc.c: mtrim), in the order of the walks."""
    geometry, spans = context.glibc.geometry, []
    page = geometry.page_bytes
    regions = [Listed(region, walk.arena.index) for walk in walks for region, _ in walk.runs]
    for batch in context.walker.blocks(regions, array("Q"), BlockFilter(kinds=frozenset((STATUS_FREE,)), min_size=page)):
        for address, usable in zip(batch.addresses, batch.usable_bytes):
            start = -(-(address - 2 * geometry.word_bytes + geometry.chunk_struct_bytes) // page) * page
            end = (address + usable) & -page
            if start < end:
                spans.append((start, end))
    return spans


def zero_huge_bytes(context: Context, walks: Sequence[ArenaWalk], heap_max: int) -> Optional[int]:
    """What of huge_bytes() holds zeros alone; None as Ram.zero_huge_bytes()."""
    spans = [*free_pages(context, walks), *(span for walk in walks for span in (*tops(context, walk), *walk.reserves(heap_max)))]
    return context.ram.zero_huge_bytes(spans, context.source, context.budget)
