"""The main arena's pieces: one run from brk, with holes where somebody else called sbrk, or pieces from mmap where brk failed.

malloc.c: sysmalloc. Holes lie between two fenceposts and the next run, whose start is stored nowhere: it is found by the chunk
sizes that lead onto a chunk known from a free list, or onto top.
"""

from array import array
from bisect import bisect_left, bisect_right
from typing import List, Optional, Sequence

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import bins
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.geometry import align_chunk
from gdbheapx.glibc.memory import range_around
from gdbheapx.glibc.specials import Specials
from gdbheapx.kernel.api import Region


def first_regions(context: Context, walk: ArenaWalk) -> List[Region]:
    """The run that starts at mp_.sbrk_base; none for an arena that was never used."""
    arena, target, glibc = walk.arena, context.target, context.glibc
    if not arena.top:
        return []
    try:
        base = glibc.read_mp(target)["sbrk_base"]
        top_size = target.read_word(arena.top + glibc.geometry.word_bytes) & ~7
    except Unreadable as problem:
        context.report(problem.address, "mp_ or the top chunk of main_arena cannot be read", "its bytes are listed as unparsed")
        walk.unparsed_bytes += walk.system_bytes
        return []
    begin = align_chunk(base, glibc.geometry)
    if arena.is_contiguous:
        end = arena.top + top_size
        if end - base != walk.system_bytes:
            context.report(arena.top, "main_arena: sbrk_base, top and system_mem do not agree", "see `heapx tunables` and `heapx doctor`")
            end = max(end, base + walk.system_bytes) if base < end <= _mapped_end(context, base) else base + walk.system_bytes
    else:
        end = _break_above(context, base) or _mapped_end(context, base)
        if base <= arena.top < end:
            end = arena.top + top_size
    if not base or end <= begin:
        walk.unparsed_bytes += walk.system_bytes
        return []
    walk.overhead_bytes += begin - base
    walk.pieces = 1
    return [Region(begin, end, arena.top if begin <= arena.top < end else 0)]


def _break_above(context: Context, base: int) -> int:
    """The program break if `base` came from brk and not from mmap, else 0."""
    value = context.glibc.break_address(context.target) or 0
    return value if base < value <= _mapped_end(context, base) else 0


def _mapped_end(context: Context, address: int) -> int:
    """End of the writable memory that goes on without a hole from `address`; hugepage advice splits [heap] into several mappings."""
    end = address
    for mapping in context.target.mappings():
        if mapping.start <= end < mapping.end and mapping.writable:
            end = mapping.end
    return end


def fence_end(context: Context, at: int) -> int:
    """End of the two (or three) fenceposts of 2 words at `at`; 0 if that is not what stands there (sysmalloc)."""
    word = context.glibc.geometry.word_bytes
    count = 0
    while count < 3:
        try:
            size = context.target.read_word(at + 2 * word * count + word) & ~7
        except Unreadable:
            break
        if size != 2 * word:
            break
        count += 1
    return at + 2 * word * count if count >= 2 else 0


def behind_fence(context: Context, walk: ArenaWalk, region: Region, at: int, end: int, specials: Specials) -> Optional[Region]:
    """The run of chunks behind a pair of fenceposts; None if the piece ends there."""
    walk.overhead_bytes += end - at
    if not walk.arena.is_contiguous and not _break_above(context, region.begin):
        return None  # a piece from mmap ends here; detached_region finds the others
    anchors = set(specials.between(end, region.end)).union(chunk for chunk in bins.members(context, walk) if end <= chunk < region.end)
    if region.top >= end:
        anchors.add(region.top)
    start = _chain_start(context, end, sorted(anchors))
    if start is None:
        if walk.arena.is_contiguous:
            context.report(end, "main_arena: the run of chunks behind a foreign sbrk was not found", "its bytes are listed as unparsed")
            walk.unparsed_bytes += region.end - end
        return None
    walk.foreign_bytes += start - end
    walk.pieces += 1
    return Region(start, region.end, region.top if region.top >= start else 0)


def _chain_start(context: Context, low: int, anchors: Sequence[int]) -> Optional[int]:
    """The lowest place from `low` on whose chunks lead onto the first known chunk, or onto fenceposts before it.

    The first known chunk itself at the latest. Only that one counts as a goal: foreign bytes that happen to look like a size would
    jump over the true start and over known chunks.
    """
    if not anchors:
        return None
    geometry, first = context.glibc.geometry, anchors[0]
    start = align_chunk(low, geometry)
    goal = array("Q", [first])
    found = context.kernel.find_chain(context.source, geometry, start, first, goal, context.budget, strict=True, fences=True)
    return first if found is None else found


def detached_region(context: Context, walk: ArenaWalk, specials: Specials) -> Optional[Region]:
    """A piece of a non-contiguous arena that was not walked yet: it starts on a page and leads onto top or a listed chunk.

    Called again until it gives None. Then the pieces either add up to system_mem or the difference is reported as not located.
    """
    if walk.arena.is_contiguous or not walk.arena.top:
        return None
    missing = _missing_bytes(walk)
    if missing > 0:
        for anchor in _anchors_left(context, walk, specials):
            region = _region_around(context, walk, anchor)
            if region is not None:
                walk.pieces += 1
                walk.overhead_bytes += region.begin - (region.begin & -context.glibc.geometry.page_bytes)
                return region
        region = _unanchored(context, walk, missing)
        if region is not None:
            walk.pieces += 1
            return region
    return None


def _missing_bytes(walk: ArenaWalk) -> int:
    """system_mem less what was walked."""
    return walk.system_bytes - walk.overhead_bytes - walk.unparsed_bytes - walk.walked_bytes


def _anchors_left(context: Context, walk: ArenaWalk, specials: Specials) -> List[int]:
    """The anchors that no run has met yet."""
    if walk.anchors is None:
        walk.anchors = _anchors(context, walk, specials)
    for region, result in walk.runs[walk.anchored_runs :]:
        del walk.anchors[bisect_left(walk.anchors, region.begin) : bisect_right(walk.anchors, result.at)]
    walk.anchored_runs = len(walk.runs)
    return walk.anchors


def _anchors(context: Context, walk: ArenaWalk, specials: Specials) -> List[int]:
    """Chunks that surely belong to the main arena: top, its binned chunks, and listed chunks without NON_MAIN_ARENA."""
    found = {walk.arena.top, *bins.members(context, walk)}
    for chunk in specials.between(0, (1 << 64) - 1):
        try:
            if not context.target.read_word(chunk + context.glibc.geometry.word_bytes) & 6:
                found.add(chunk)
        except Unreadable:
            continue
    return sorted(found)


def _region_around(context: Context, walk: ArenaWalk, anchor: int) -> Optional[Region]:
    """The piece that holds `anchor`: from the lowest page whose chunk sizes lead exactly onto it."""
    around = range_around(context.target, anchor)
    if around is None:
        return None
    low, high = around
    page, word, top = context.glibc.geometry.page_bytes, context.glibc.geometry.word_bytes, walk.arena.top
    top_end = top + (context.target.read_word(top + word) & ~7)
    walked = [-(-result.at // page) * page for _, result in walk.runs if low <= result.at < anchor]
    low = max([low, *walked] + [top_end] * (low <= top < anchor))
    for start in range(low, anchor + 1, page):
        begin = align_chunk(start, context.glibc.geometry)
        if begin == anchor or _leads_to(context, begin, anchor):
            return Region(begin, top_end, top) if begin <= top < high else Region(begin, high, 0)
        if context.budget.expired():
            return None
    return None


def _leads_to(context: Context, begin: int, anchor: int) -> bool:
    """Chunk sizes lead from `begin` exactly onto `anchor`."""
    kernel, geometry = context.kernel, context.glibc.geometry
    return kernel.find_chain(context.source, geometry, begin, begin + 1, array("Q", [anchor]), context.budget) == begin


def _unanchored(context: Context, walk: ArenaWalk, missing: int) -> Optional[Region]:
    """A piece without any free chunk: a writable anonymous mapping whose chunks end in two fenceposts and are not too long."""
    page = context.glibc.geometry.page_bytes
    for mapping in context.target.mappings():
        if not mapping.writable or mapping.is_file or mapping.name.startswith("[stack"):
            continue
        begin = align_chunk(mapping.start, context.glibc.geometry)
        if any(region.begin <= begin <= result.at for region, result in walk.runs):
            continue
        probe = Region(begin, min(mapping.end, mapping.start + missing), 0)
        result = context.kernel.walk(context.source, context.glibc.geometry, [probe], array("Q"), context.budget)[0]
        end = fence_end(context, result.at)
        if result.used_chunks and end and end % page == 0 and end - begin <= missing:
            return probe
    return None
