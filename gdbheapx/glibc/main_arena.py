"""The main arena's pieces: one run from brk, with holes where somebody else called sbrk, or pieces from mmap where brk failed.

malloc.c: sysmalloc. Holes lie between two fenceposts and the next run, whose start is stored nowhere: it is found by the chunk
sizes that lead onto a chunk known from a free list, or onto top. Pieces from mmap are in pieces.py.
"""

from array import array
from bisect import bisect_left
from typing import List, Optional

from gdbheapx.errors import Unreadable
from gdbheapx.glibc import bins, codes
from gdbheapx.glibc.bins import KIND_BITS, CachedChunks
from gdbheapx.glibc.context import ArenaWalk, Context
from gdbheapx.glibc.layouts import align_chunk
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.kernel.glibc.records import Region


def first_regions(context: Context, walk: ArenaWalk) -> List[Region]:
    """The run that starts at mp_.sbrk_base if that came from brk; none for an arena that was never used."""
    arena, target, glibc = walk.arena, context.target, context.glibc
    if not arena.top:
        return []
    try:
        base = glibc.read_mp(target)["sbrk_base"]
        top_size = target.read_word(arena.top + glibc.geometry.word_bytes) & ~7
    except Unreadable as problem:
        walk.report(codes.TOP_UNREADABLE, problem.address, "cannot read mp_ or the top chunk of main_arena", "its bytes count as unparsed")
        walk.unparsed_bytes += walk.system_bytes
        return []
    begin = align_chunk(base, glibc.geometry)
    if arena.is_contiguous:
        end = arena.top + top_size
        if end - base != walk.system_bytes:
            walk.report(
                codes.BREAK_DISAGREES,
                arena.top,
                "main_arena: sbrk_base, top and system_mem do not agree",
                "see `heapx tunables` and `heapx doctor`",
            )
            end = max(end, base + walk.system_bytes) if base < end <= _mapped_end(context, base) else base + walk.system_bytes
    else:
        end = _break_above(context, base)
        if not end:
            return []  # from mmap, as all others: pieces.py finds it
        if base <= arena.top < end:
            end = arena.top + top_size
    end = min(end, ADDRESS_MASK)  # a damaged system_mem or top may lead beyond all addresses
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


def behind_fence(context: Context, walk: ArenaWalk, region: Region, at: int, end: int, cached_chunks: CachedChunks) -> Optional[Region]:
    """The run of chunks behind a pair of fenceposts; None if the piece ends there, or if pieces.py asks for it once it knows that something
    lacks."""
    walk.overhead_bytes += end - at
    if walk.arena.is_contiguous:
        run = run_behind(context, walk, region, end, cached_chunks)
        walk.pieces += run is not None
        return run
    if _break_above(context, region.begin):
        walk.behind_fences.append((region, end))
    return None


def run_behind(context: Context, walk: ArenaWalk, region: Region, end: int, cached_chunks: CachedChunks) -> Optional[Region]:
    """The run of chunks that goes on in the region behind what somebody else's sbrk took from `end` on; None if there is none."""
    start = _chain_start(context, end, _first_known(context, walk, region, end, cached_chunks))
    if context.budget.expired():
        return region._replace(begin=end, top=region.top if region.top >= end else 0)  # where the walk ends for lack of time
    if start is None:
        if walk.arena.is_contiguous:
            walk.report(
                codes.RUN_NOT_FOUND, end, "main_arena: cannot find the run of chunks after a foreign sbrk", "its bytes count as unparsed"
            )
            walk.unparsed_bytes += region.end - end
        return None
    walk.foreign_bytes += start - end
    return region._replace(begin=start, top=region.top if region.top >= start else 0)


def _first_known(context: Context, walk: ArenaWalk, region: Region, low: int, cached_chunks: CachedChunks) -> Optional[int]:
    """The lowest chunk from `low` on in the region that a list names, or top; None if there is none."""
    members = bins.members(context, walk)
    chunks = [
        int(known[place]) & ~KIND_BITS
        for known in (members, cached_chunks.chunks)
        for place in [bisect_left(known, low)]
        if place < len(known)
    ]
    chunks += [region.top] if region.top >= low else []
    return min((chunk for chunk in chunks if chunk < region.end), default=None)


def _chain_start(context: Context, low: int, known: Optional[int]) -> Optional[int]:
    """The lowest place from `low` on whose chunks lead onto the first known chunk, or onto fenceposts before it.

    The first known chunk itself at the latest. Only that one counts as a goal: foreign bytes that happen to look like a size would
    jump over the true start and over known chunks.
    """
    if known is None:
        return None
    geometry = context.glibc.geometry
    start, goal = align_chunk(low, geometry), array("Q", [known])
    chunk = context.walker.find_chain(start, known, goal, strict=True, fences=True)
    return known if chunk is None else chunk
