"""Every rule of one jemalloc in one look: the radix tree, extents, slabs, caches, and the arenas' own accounts."""

from collections import Counter
from typing import Callable, Dict, List, NamedTuple, Sequence, Tuple

from gdbheapx.allocators.rules import BrokenRule, Known, sorted_out
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.check import arenas
from gdbheapx.jemalloc.check.findings import Findings
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap import extents
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.purging.ticker_rows import arenas_are_of_processors
from gdbheapx.jemalloc.threads import tcache, tsd
from gdbheapx.kernel.blocks.records import Blocks, BlockStream, Wanted
from gdbheapx.kernel.common.records import STOP_END
from gdbheapx.kernel.jemalloc.records import BLOCK_CACHED, ExtentsResult
from gdbheapx.problems import Code, Complaint, Nature, Report

LEFT_BY_FORK = (codes.TSD_UNOWNED, codes.CACHE_UNOWNED)
"""What threads leave behind that a fork has not taken along."""
BY_CODE: Dict[Code, Known] = {
    code: Known(str(code))
    for code in vars(codes).values()
    if isinstance(code, Code) and code.nature == Nature.DAMAGE and code not in LEFT_BY_FORK
}
UNMAPPED = (codes.NODE_UNREADABLE, codes.NODE_HOLE, codes.EXTENT_UNREADABLE, codes.ARENA_UNREADABLE, codes.BASE_UNREADABLE)
"""Damage where nothing is mapped at the address; else a core that lacks it."""
FIXED = tuple(extents.DAMAGE[number][0] for number in extents.OF_NODES)
"""No step of jemalloc's own looks like these."""


class Seen(NamedTuple):
    """What was read, by a heap whose complaints are collected."""

    context: Context
    arenas: Sequence[Arena]
    walked: ExtentsResult
    tsds: tsd.Tsds
    caches: tcache.Caches
    has_stats: bool
    stream: Callable[[Wanted], BlockStream]


def rules(seen: Seen, told: Sequence[Complaint], rest: Report) -> List[BrokenRule]:
    """What is broken; `rest`: whom to tell what is no broken rule."""
    context = seen.context
    size = context.types.size_bytes("arena_s")
    found = Findings(context, sorted((one.address, one.address + size, one.index) for one in seen.arenas))
    named = [one for one in told if not _is_unmapped(context, found, one)]
    sorted_out(named, BY_CODE, rest, lambda one, _: found.add(one.code, one.address, one.what, is_fixed=one.code in FIXED))
    is_whole = seen.walked.stop == STOP_END and not any(seen.walked.problem_counts) and not extents.leaves_elements(context)
    by_index = {one.arena: one for one in seen.walked.arenas}
    is_sampling = bool(context.variable("opt_prof", 1))
    for arena in seen.arenas:
        if context.budget.expired():
            break
        try:
            view = arena.read()
            if is_whole:
                arenas.tell_pages(context, found, arena, view, by_index.get(arena.index))
            if is_whole and seen.has_stats:
                arenas.tell_bins(context, found, arena, view, by_index.get(arena.index), is_sampling)
            if seen.has_stats:
                arenas.tell_base(context, found, arena)
            arenas.tell_slabs(context, found, arena)
        except Unreadable as problem:
            rest(codes.ARENA_UNREADABLE, problem.address, "cannot read arena %d completely" % arena.index, "not every rule was checked")
    _threads(seen, found)
    _classes(seen, found)
    return found.rows


def _is_unmapped(context: Context, found: Findings, one: Complaint) -> bool:
    address = one.address
    if one.code not in UNMAPPED or address is None or any(span.start <= address < span.end for span in context.target.mappings()):
        return False
    found.add(one.code, address, one.what, is_fixed=True)
    return True


def _threads(seen: Seen, found: Findings) -> None:
    """nthreads[0] of an arena is the number of threads bound to it (arena_bind), unless arenas belong to processors."""
    if not seen.tsds.complete or arenas_are_of_processors(seen.context):
        return
    bound = Counter(record.arena for record in seen.tsds.records if record.arena)
    for arena in seen.arenas:
        try:
            counted = arena.read().get("nthreads[0]")
        except Unreadable:
            continue
        if counted is not None and counted != bound[arena.address]:
            what = "arena %d counts %d threads, %d are bound to it" % (arena.index, counted, bound[arena.address])
            found.add(codes.THREADS_MISCOUNTED, arena.address, what, arena.index)


def _classes(seen: Seen, found: Findings) -> None:
    """Each cached block has the size of its cache bin's class."""
    sizes, wanted = seen.context.geometry.size_classes, {}
    for cache in seen.caches.caches:
        stacks = sorted(cache.bins.stacks, key=lambda one: one.start)
        if sum(stack.count for stack in stacks) != len(cache.pointers):
            continue
        place = 0
        for stack in stacks:
            for pointer in cache.pointers[place : place + stack.count]:
                wanted[pointer] = stack.szind
            place += stack.count
    if not wanted or seen.context.budget.expired():
        return
    for blocks in seen.stream(Wanted(frozenset((BLOCK_CACHED,)))):
        for address, usable in _pairs(blocks):
            szind = wanted.get(address)
            is_told = szind is not None and not (seen.context.geometry.size_from_extent and szind >= seen.context.geometry.nbins)
            if szind is not None and is_told and sizes[szind] != usable:
                what = "a thread cache's bin for blocks of %d bytes holds this block of %d bytes" % (sizes[szind], usable)
                found.add(codes.CACHED_CLASS, address, what)


def _pairs(blocks: Blocks) -> "zip[Tuple[int, int]]":
    return zip(blocks.addresses, blocks.usable_bytes)
