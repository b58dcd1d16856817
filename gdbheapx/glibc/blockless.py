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
from gdbheapx.ranges import union

MOST_READ_BYTES = 256 << 20
"""More than this is not read for zeros: it would be half of a stop."""
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
    """What of huge_bytes() holds zeros alone. None of a process that runs on: a page that it gave back meanwhile would be put into RAM."""
    if not context.target.can_read_on:
        return None
    spans = [*free_pages(context, walks), *(span for walk in walks for span in (*tops(context, walk), *walk.reserves(heap_max)))]
    pieces = [piece for span in union(spans) for piece in _huge_pieces(context, span)]
    if context.ram.pages is None or not context.ram.pages.scans or sum(end - start for start, end in pieces) > MOST_READ_BYTES:
        return None
    written = context.kernel.written(context.source, pieces, context.glibc.geometry.page_bytes, context.budget)
    if written.until is not None:
        return None
    return sum(end - start for start, end in pieces) - sum(end - start for start, end in zip(written.bounds[::2], written.bounds[1::2]))


def _huge_pieces(context: Context, span: Range) -> List[Range]:
    """The parts that are in RAM as parts of huge pages: reading any other page would put it there."""
    found = context.ram.of([span], False)
    if found is None or not found.huge_bytes:
        return []
    page = context.glibc.geometry.page_bytes
    step = page * (page // 8)  # what one entry of the page table's second level maps
    bounds = [span[0], *range((span[0] & -step) + step, span[1], step), span[1]]
    pieces = [piece for piece in zip(bounds, bounds[1:]) if piece[0] < piece[1]]
    return [piece for piece in pieces if (context.ram.of([piece], False) or UNKNOWN).huge_bytes == piece[1] - piece[0]]
