"""Every rule of one jemalloc in one look: the radix tree, extents, slabs, caches, and the arenas' own accounts.

Which block most likely overran: the one that ends where the memory begins in which something is damaged.
"""

from collections import Counter
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.places import Neighbour
from gdbheapx.allocators.rules import BrokenRule, Suspect, collector, sorted_out
from gdbheapx.errors import Unreadable
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.check import arenas
from gdbheapx.jemalloc.check.findings import Findings
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.heap import base, extents, locate
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.purging.ticker_rows import arenas_are_of_processors
from gdbheapx.jemalloc.threads import tcache, tsd
from gdbheapx.jemalloc.threads.tcache import Caches
from gdbheapx.kernel.blocks.records import BlockFilter, Blocks, BlockStream
from gdbheapx.kernel.common.records import STOP_END
from gdbheapx.kernel.jemalloc import records as kernel_api
from gdbheapx.kernel.jemalloc.records import BLOCK_CACHED, ExtentsResult
from gdbheapx.problems import Code, Diagnostic, Report
from gdbheapx.units import plural

WRITTEN = ("used", "cached")
"""Statuses of blocks into which somebody writes, or wrote."""
LEFT_BY_FORK = (codes.TSD_UNOWNED, codes.CACHE_UNOWNED)
"""What threads leave behind that a fork has not taken along."""
OF_RULES = {code for code in vars(codes).values() if isinstance(code, Code)}.difference(LEFT_BY_FORK)
"""Damage by these codes is a broken rule."""
UNMAPPED = (codes.NODE_UNREADABLE, codes.NODE_HOLE, codes.EXTENT_UNREADABLE, codes.ARENA_UNREADABLE, codes.BASE_UNREADABLE)
"""Damage where nothing is mapped at the address; else a core that lacks it."""
FIXED = tuple(extents.DAMAGE[number][0] for number in extents.OF_NODES)
"""No step of jemalloc's own looks like these."""
DETAILS: Dict[int, Tuple[Code, str]] = {
    kernel_api.EXTENT_LEAF: (codes.LEAF, "the rtree says another size class, slab bit or state of this page than its extent"),
    kernel_api.EXTENT_INTERIOR: (codes.SLAB_PAGES, "the rtree does not map each page of this slab to it"),
    kernel_api.EXTENT_SHARD: (codes.SLAB_SHARD, "this slab is one of a shard that its bin does not have"),
    kernel_api.EXTENT_BITMAP_REST: (codes.SLAB_BITMAP_REST, "the bitmap of this slab has free regions beyond its last one"),
}
"""By EXTENT_ number: what is wrong with extents that can be counted all the same."""
OF_SLOTS = (codes.CACHED_OUTSIDE, codes.CACHED_NOT_START, codes.CACHED_CLASS, codes.CACHED_UNKNOWN)
"""What a thread cache holds was overwritten."""
OF_BLOCKS = (codes.CACHED_FREE, codes.CACHED_TWICE)
"""The block itself was freed twice."""
MOST_SUSPECTS = 100


class Suspects:
    """Metadata lies apart from blocks: only its first page can be reached by one, and a cache's stack where it is a block itself."""

    def __init__(self, context: Context, arenas: Sequence[Arena], caches: Caches) -> None:
        self._context, self._arenas, self._caches = context, arenas, caches
        self._slots: Optional[Dict[int, int]] = None
        self._blocks: Optional[List[base.BaseBlock]] = None
        self._known: Dict[int, Optional[Suspect]] = {}

    def of(self, place: Optional[int]) -> Optional[Suspect]:
        """The block that ends where the memory around `place` begins."""
        if not place:
            return None
        if place not in self._known:
            self._known[place] = self._of(place)
        return self._known[place]

    def of_cached(self, pointer: int) -> Optional[Suspect]:
        """The same of the slot of a thread cache that holds this pointer."""
        if self._slots is None:
            self._slots = {}
            for cache in self._caches.caches:
                stacks = sorted(cache.bins.stacks, key=lambda stack: stack.start)
                slots = [stack.start + number * self._context.geometry.word_bytes for stack in stacks for number in range(stack.count)]
                self._slots.update(zip(cache.pointers, slots) if len(slots) == len(cache.pointers) else ())
        return self.of(self._slots.get(pointer))

    def _of(self, place: int) -> Optional[Suspect]:
        extent = locate.extent_at(self._context, place)
        if extent is not None and extent.is_slab:
            located = locate.find(self._context, self._arenas, self._caches, place)
            if located is None or located.block is None:
                return None
            return _suspect(located.previous) if located.previous is not None else self._ends_at(extent.begin)
        if extent is not None:
            return self._ends_at(extent.begin)
        if self._blocks is None:
            self._blocks = _base_blocks(self._context, self._arenas)
        page = self._context.geometry.page_bytes
        block = next((base_block for base_block in self._blocks if base_block.address <= place < base_block.address + page), None)
        return self._ends_at(block.address if block is not None else place & -page)

    def _ends_at(self, address: int) -> Optional[Suspect]:
        located = locate.find(self._context, self._arenas, self._caches, address - 1)
        if located is None or located.block is None or located.block.status not in WRITTEN:
            return None
        return _suspect(located.block)


def _base_blocks(context: Context, arenas: Sequence[Arena]) -> List[base.BaseBlock]:
    """Of all arenas. What is broken there was told before."""
    blocks: List[base.BaseBlock] = []
    for arena in arenas:
        try:
            blocks += base.blocks(context._replace(report=collector([])), arena)
        except Unreadable:
            continue
    return blocks


def _suspect(block: Optional[Neighbour]) -> Optional[Suspect]:
    if block is None or block.status not in WRITTEN:
        return None
    return Suspect(block.address, block.size_bytes, block.status)


class CheckedHeap(NamedTuple):
    """What was read, by a heap whose complaints are collected."""

    context: Context
    arenas: Sequence[Arena]
    walked: ExtentsResult
    tsds: tsd.Tsds
    caches: tcache.Caches
    has_stats: bool
    stream: Callable[[BlockFilter], BlockStream]


def rules(seen: CheckedHeap, told: Sequence[Diagnostic], rest: Report) -> List[BrokenRule]:
    """What is broken; `rest`: whom to tell what is no broken rule."""
    context = seen.context
    findings = Findings(context, seen.arenas)
    named = [diagnostic for diagnostic in told if not _is_unmapped(context, findings, diagnostic)]
    sorted_out(named, OF_RULES, rest, lambda told: findings.add(told.code, told.address, told.what, is_fixed=told.code in FIXED))
    is_whole = seen.walked.stop == STOP_END and not any(seen.walked.problem_counts) and not extents.leaves_elements(context)
    by_index = {row.arena: row for row in seen.walked.arenas}
    _details(seen, findings)
    is_sampling = bool(context.variable("opt_prof", 1))
    for arena in seen.arenas:
        if context.budget.expired():
            break
        try:
            view = arena.read()
            if is_whole:
                arenas.tell_pages(context, findings, arena, view, by_index.get(arena.index))
            if is_whole and seen.has_stats:
                arenas.tell_mapped(context, findings, arena, view, by_index.get(arena.index))
                arenas.tell_bins(context, findings, arena, view, by_index.get(arena.index), is_sampling)
            if seen.has_stats:
                arenas.tell_base(context, findings, arena)
            arenas.tell_slabs(context, findings, arena)
        except Unreadable as problem:
            rest(codes.ARENA_UNREADABLE, problem.address, "cannot read arena %d completely" % arena.index, "not every rule was checked")
    for index, lost in arenas.tell_links(context, findings, seen.arenas, _most_extents(seen, is_whole), seen.has_stats).items():
        what = "cannot read the lists of arena %d completely" % index
        rest(codes.ARENA_UNREADABLE, lost.address, what, "not every rule was checked")
    _threads(seen, findings)
    arenas.tell_rtree_caches(context, findings, seen.tsds)
    _classes(seen, findings)
    return _with_suspects(seen, findings.rows)


def _most_extents(seen: CheckedHeap, is_whole: bool) -> int:
    """No list has more members."""
    walked, size = seen.walked, seen.context.types.size_bytes(seen.context.geometry.extent_struct)
    return walked.extents + walked.unassociated_extents if is_whole else extents.writable_bytes(seen.context) // size


def _details(seen: CheckedHeap, findings: Findings) -> None:
    """What takes no extent out of the totals. Where most leaf elements say something else, what they say is not known."""
    active = sum(arena.active.extents for arena in seen.walked.arenas)
    is_known = seen.walked.detail_counts[kernel_api.EXTENT_LEAF] <= max(1, active // 2)
    for detail in seen.walked.details:
        code, what = DETAILS[detail.code]
        if is_known or detail.code != kernel_api.EXTENT_LEAF:
            findings.add(code, detail.page, "%s (extent 0x%x)" % (what, detail.extent))


def _with_suspects(seen: CheckedHeap, rows: Sequence[BrokenRule]) -> List[BrokenRule]:
    """With the block that most likely overran, where one ends just before what is damaged."""
    suspects = Suspects(seen.context, seen.arenas, seen.caches)
    structs = {problem.page: problem.extent for problem in (*seen.walked.problems, *seen.walked.details) if problem.extent}
    told = []
    for number, row in enumerate(rows):
        if number < MOST_SUSPECTS and row.address is not None:
            place = structs.get(row.address, row.address)
            row = row._replace(
                suspect=suspects.of_cached(place) if row.code in OF_SLOTS else suspects.of(place) if row.code not in OF_BLOCKS else None
            )
        told.append(row)
    return told


def _is_unmapped(context: Context, findings: Findings, diagnostic: Diagnostic) -> bool:
    address = diagnostic.address
    if diagnostic.code not in UNMAPPED or address is None or any(span.start <= address < span.end for span in context.target.mappings()):
        return False
    findings.add(diagnostic.code, address, diagnostic.what, is_fixed=True)
    return True


def _threads(seen: CheckedHeap, findings: Findings) -> None:
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
            what = "arena %d counts %s, bound to it: %d" % (arena.index, plural(counted, "thread"), bound[arena.address])
            findings.add(codes.THREADS_MISCOUNTED, arena.address, what, arena.index)


def _classes(seen: CheckedHeap, findings: Findings) -> None:
    """Each cached block has the size of its cache bin's class."""
    sizes, classes = seen.context.geometry.size_classes, {}
    for cache in seen.caches.caches:
        stacks = sorted(cache.bins.stacks, key=lambda stack: stack.start)
        if sum(stack.count for stack in stacks) != len(cache.pointers):
            continue
        place = 0
        for stack in stacks:
            for pointer in cache.pointers[place : place + stack.count]:
                classes[pointer] = stack.szind
            place += stack.count
    if not classes or seen.context.budget.expired():
        return
    for blocks in seen.stream(BlockFilter(frozenset((BLOCK_CACHED,)))):
        for address, usable in _pairs(blocks):
            szind = classes.get(address)
            is_told = szind is not None and not (seen.context.geometry.size_from_extent and szind >= seen.context.geometry.nbins)
            if szind is not None and is_told and sizes[szind] != usable:
                what = "a thread cache's bin for blocks of %d bytes holds this block of %d bytes" % (sizes[szind], usable)
                findings.add(codes.CACHED_CLASS, address, what)


def _pairs(blocks: Blocks) -> "zip[Tuple[int, int]]":
    return zip(blocks.addresses, blocks.usable_bytes)
