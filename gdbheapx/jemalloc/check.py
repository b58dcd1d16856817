"""Check the rules of jemalloc: the radix tree, extents, slabs, caches, and the arenas' own accounts."""

from bisect import bisect_right
from collections import Counter
from typing import Dict, List, Optional, Sequence, Set, Tuple

from gdbheapx.allocators.answers import INSIDE, LOCKED, MOST_BROKEN, BrokenRule, Neighbour, RuleSuspect, make_collector, sorted_out
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import TargetAddress
from gdbheapx.common.problems import Diagnostic, PartialSink, ProblemCode
from gdbheapx.common.units import count_noun
from gdbheapx.inferior.base import TypeSet
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.arenas import ArenaHandle, ArenaView, JemallocContext
from gdbheapx.jemalloc.decay import has_percpu_arenas
from gdbheapx.jemalloc.extents import (
    EXTENT_DAMAGE,
    NODE_DAMAGE,
    find_extent,
    leaves_stale_elements,
    locate_jemalloc_address,
    make_extent_walker,
)
from gdbheapx.jemalloc.plan import find_arena_locks
from gdbheapx.jemalloc.stats import read_bin_stats
from gdbheapx.jemalloc.symbols import read_words
from gdbheapx.jemalloc.threads import JemallocCaches, Tsds
from gdbheapx.kernel.blocks.stream import BlockFilter
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import ArenaExtents, ExtentsResult
from gdbheapx.layout.view import LayoutView

FATAL_SIGNALS = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort(): what a thread met inside jemalloc was wrong before."""


def has_crashed(context: JemallocContext) -> bool:
    """The process ended by a fault or by abort()."""
    return any(thread.signal in FATAL_SIGNALS for thread in context.target.threads()[:1])


class JemallocFindings:
    """The broken rules of one heap, each place once."""

    def __init__(self, context: JemallocContext, arenas: Sequence[ArenaHandle]) -> None:
        size = context.types.size_bytes("arena_s")
        self._context, self._listed = context, arenas
        self._arenas = sorted((arena.address, arena.address + size, arena.index) for arena in arenas)
        self._starts = [span[0] for span in self._arenas]
        self._locked: Optional[Set[int]] = None
        self._found: Dict[Tuple[str, Optional[int]], BrokenRule] = {}
        # A crash has stopped everything; the code of a program that contains jemalloc may be its own.
        in_own_code = not context.jemalloc.module.is_executable and not has_crashed(context)
        self._is_changing = in_own_code and bool(context.find_threads_inside()[0])

    @property
    def rows(self) -> List[BrokenRule]:
        return list(self._found.values())

    def _find_evidence(self, arena: Optional[int]) -> Optional[str]:
        """Return the change in progress that may explain a contradiction in this arena, or in an unknown one: where a thread holds a lock
        of it, what it was changing there is half done."""
        if self._is_changing:
            return INSIDE
        if self._locked is None:
            threads = set() if has_crashed(self._context) else {thread.lwp for thread in self._context.target.threads()}
            locks = ((one.index, lock.owner) for one in self._listed if threads for lock in find_arena_locks(self._context, one))
            self._locked = {index for index, owner in locks if owner in threads}
        return LOCKED if arena in self._locked or (arena is None and self._locked) else None

    def add(self, code: ProblemCode, address: Optional[int], what: str, arena: Optional[int] = None, is_fixed: bool = False) -> None:
        """Add a broken rule unless its place has one. `is_fixed`: no step of jemalloc's own changes it."""
        key = (str(code), address)
        if key in self._found or len(self._found) >= MOST_BROKEN:
            return
        if arena is None and address is not None:
            place = bisect_right(self._starts, address) - 1
            arena = self._arenas[place][2] if place >= 0 and address < self._arenas[place][1] else None
        self._found[key] = BrokenRule(
            allocator=self._context.jemalloc.id,
            arena=arena,
            code=code,
            address=TargetAddress(address) if address is not None else None,
            rule=str(code),
            abort=None,
            suspect=None,
            what=what,
            evidence=None if is_fixed else self._find_evidence(arena),
        )


PAGE_CODES: Dict[str, ProblemCode] = {
    "dirty": codes.DIRTY_PAGES,
    "muzzy": codes.MUZZY_PAGES,
    "retained": codes.RETAINED_PAGES,
    "pinned": codes.PINNED_PAGES,
    "active": codes.ACTIVE_PAGES,
}
INVALID_KEY = 1
"""RTREE_LEAFKEY_INVALID."""
GUARD_OPTIONS = ("opt_san_guard_small", "opt_san_guard_large")
"""From 5.3.0: the pages around an extent count as mapped, and are in none (san.c: san_guard_pages)."""
RTREE_CACHES = ("cache", "l2_cache")
HEAP_ROOTS = ("heap.ph.root", "ph.root", "ph_root")
RING_HEADS = ("head.qlh_first", "qlh_first")
LINK_FAULTS = {
    api.LINKED_UNREADABLE: "points from 0x%x to something that is not an extent",
    api.LINKED_BACK: "points from 0x%x here, but this extent does not point back",
    api.LINKED_ALIEN: "points from 0x%x to an extent of another arena, state or size class",
    api.LINKED_FULL: "points from 0x%x to a slab that has no free region, or no used one",
    api.LINKED_CYCLE: "has more members than there are extents: it points from 0x%x back into itself",
}


def check_pages(
    context: JemallocContext,
    findings: JemallocFindings,
    arena: ArenaHandle,
    view: ArenaView,
    seen: Optional[ArenaExtents],
    counts_mapped: bool,
) -> None:
    """Compare the pages by state that an arena counts with its extents, and the bytes mapped: active, dirty, muzzy and pinned ones
    (arena_stats.mapped, from 5.3 pac_stats.pac_mapped)."""
    if view.get("pa_shard.ever_used_hpa") or view.get("pa_shard.use_hpa") or (seen is not None and seen.other.extents):
        return  # the pages of the huge page allocator are in no list of extents; or some are on the way from one state to another
    there = {state: getattr(seen, state).bytes if seen is not None else 0 for state in PAGE_CODES}
    for state in ("active", *context.list_unused_states()):
        count, pages = view.count_pages(state), there[state] // context.geometry.page_bytes
        if count not in (None, pages):
            what = "arena %d counts %d %s pages, its extents have %d" % (arena.index, count or 0, state, pages)
            findings.add(PAGE_CODES[state], arena.address, what, arena.index)
    mapped = view.get("stats.pa_shard_stats.pac_stats.pac_mapped", "stats.mapped")
    there_bytes = sum(there[state] for state in ("active", "dirty", "muzzy", "pinned"))
    if counts_mapped and mapped not in (None, there_bytes):
        what = "arena %d counts 0x%x bytes as mapped, its extents have 0x%x" % (arena.index, mapped or 0, there_bytes)
        findings.add(codes.MAPPED_BYTES, arena.address, what, arena.index)


def check_bins(
    context: JemallocContext, findings: JemallocFindings, arena: ArenaHandle, view: ArenaView, seen: Optional[ArenaExtents]
) -> None:
    """Compare slabs and regions of each bin. Sampled allocations are counted in the bin, and lie elsewhere (5.3.1).

    Since arena.<i>.reset, which is refused for automatic arenas, curregs counts from 0, nmalloc and ndalloc do not (arena_bin_reset).
    """
    may_be_reset = arena.kind not in ("auto", "huge")
    index, own = arena.index, {row.szind: row for row in seen.bins} if seen is not None else {}
    is_sampling = bool(context.variable("opt_prof", 1))
    for szind, row in enumerate(read_bin_stats(context, view)):
        place = arena.address + szind  # stands for the bin
        slabs, regions = (own[szind].curslabs, own[szind].curregs) if szind in own else (0, 0)
        if row["curslabs"] is not None and row["curslabs"] != slabs:
            what = "bin %d of arena %d counts %d slabs, there are %d" % (szind, index, row["curslabs"], slabs)
            findings.add(codes.BIN_SLABS, place, what, index)
        if is_sampling or row["curregs"] is None:
            continue
        if row["curregs"] != regions:
            what = "bin %d of arena %d counts %d regions in use, its slabs have %d" % (szind, index, row["curregs"], regions)
            findings.add(codes.BIN_REGIONS, place, what, index)
            continue
        left = (row["nmalloc"] - row["ndalloc"] - row["curregs"]) % (1 << 64)
        if left and (not may_be_reset or left >= 1 << 63):
            what = "bin %d of arena %d: nmalloc %d less ndalloc %d is not curregs %d"
            numbers = (szind, index, row["nmalloc"], row["ndalloc"], row["curregs"])
            findings.add(codes.BIN_REQUESTS, place, what % numbers, index)


def check_metadata(context: JemallocContext, findings: JemallocFindings, arena: ArenaHandle, has_stats: bool) -> None:
    """Check the blocks of metadata, and the slabs that bins point to."""
    base = context.read_base(arena.read()) if has_stats else None
    mapped = base.get("mapped") if base is not None else None
    there = sum(end - start for start, end in context.list_base_blocks(arena)) if has_stats else 0
    if mapped is not None and mapped != there:
        what = "the base of arena %d counts 0x%x bytes, its blocks have 0x%x" % (arena.index, mapped, there)
        findings.add(codes.BASE_MAPPED, arena.address, what, arena.index)
    for szind, place in context.jemalloc.find_current_slabs(arena.address):
        slab = context.target.read_word(place)
        try:
            is_good = bool(slab and context.jemalloc.check_slab(arena.index, szind, slab)[1])
        except UnreadableMemory:
            is_good = False
        if not is_good:
            what = "bin %d of arena %d points to 0x%x, which is not one of its slabs" % (szind, arena.index, slab)
            findings.add(codes.BIN_SLAB_WRONG, place, what, arena.index)


def check_rtree_caches(context: JemallocContext, findings: JemallocFindings, tsds: Tsds) -> None:
    """Check that each leaf node in a thread's rtree_ctx is the one that the tree has for its key (rtree.h: rtree_leaf_elm_lookup)."""
    types, target, word = context.types, context.target, context.geometry.word_bytes
    if len(context.geometry.rtree.levels) < 2:
        return
    leaves: Dict[int, int] = {}
    for record in tsds.records:
        for name in RTREE_CACHES:
            path = types.first("tsd_s", "rtree_ctx." + name)
            place = types.place("tsd_s", path) if path is not None else None
            if record.address is None or place is None or place.size_bytes != 2 * word or context.budget.expired():
                continue
            try:
                column = read_words(target, record.address + place.offset, 2 * place.count)
                for number, (key, leaf) in enumerate(zip(column[::2], column[1::2])):
                    if key == INVALID_KEY or not leaf:
                        continue
                    if key not in leaves:
                        leaves[key] = context.jemalloc.find_leaf(key)
                    if leaves[key] != leaf:
                        where = record.address + place.offset + 2 * word * number
                        what = "a thread remembers the rtree node 0x%x for 0x%x, the tree has 0x%x" % (leaf, key, leaves[key])
                        findings.add(codes.RTREE_CACHE, where, what)
            except UnreadableMemory:
                continue


LinkOffsets = Tuple[int, int, int]
"""Offsets of next, previous and child in an extent structure; of a ring the last is NO_LINK."""


def _find_links(types: TypeSet, struct: str, *names: str) -> Optional[LinkOffsets]:
    """Find the first of these links that this build has, by the names of each release."""
    size = types.size_bytes(struct)
    for name in names:
        steps = ("qre_next", "qre_prev") if name.startswith("ql") else ("next", "prev", "lchild")
        places = [types.place(struct, name + step) for step in steps]
        offsets = [place.offset for place in places if place is not None and place.offset + place.size_bytes <= size]
        if len(offsets) == len(steps):
            following, previous, *child = offsets
            return following, previous, child[0] if child else api.NO_LINK
    return None


class ExtentLists:
    """The lists of one jemalloc: collected, followed together, and compared."""

    def __init__(self, context: JemallocContext, findings: JemallocFindings, most: int) -> None:
        """`most`: extents that there can be."""
        self._context, self._found, self._most = context, findings, most
        types, struct = context.types, context.geometry.extent_struct
        self._heap = _find_links(types, struct, "heap_link.link.", "ph_link.phn_")
        self._unused = _find_links(types, struct, "ql_link_inactive.", "ql_link.")  # the ring of unused extents, oldest first
        self._used = _find_links(types, struct, "ql_link_active.", "ql_link.")
        self._asked: List[Tuple[str, ArenaHandle, int, api.LinkedList]] = []
        """What each list is, its arena, the address of its head, and what its members must be like."""
        self._sets: List[Tuple[ArenaHandle, str, int, int, List[int], Optional[int]]] = []
        self._bins: List[Tuple[ArenaHandle, int, List[int], int]] = []

    def _add_list(
        self, name: str, arena: ArenaHandle, place: int, head: int, offsets: LinkOffsets, state: int, szind: int, is_bin: bool
    ) -> int:
        row = api.LinkedList(head, *offsets, arena.index, state, szind, is_bin and offsets[2] != api.NO_LINK, self._most)
        self._asked.append((name, arena, place, row))
        return len(self._asked) - 1

    def add(self, arena: ArenaHandle, view: LayoutView) -> None:
        """The lists of one arena. Unreadable if its bins are."""
        states = self._context.geometry.states
        for state in self._context.list_unused_states():
            for path in ("pa_shard.pac.ecache_%s.eset" % state, "pa_shard.pac.ecache_%s.guarded_eset" % state, "extents_%s" % state):
                if view.has(path + ".npages"):
                    self._add_set(arena, view, path, state, getattr(states, state))
        large = self._context.types.first("arena_s", *("large." + name for name in RING_HEADS))
        if large is not None and self._used is not None:
            place = view.address_of(large)
            self._add_list("list of large allocations", arena, place, view[large], self._used, states.active, api.ANY, False)
        self._add_bins(arena, view)

    def _add_set(self, arena: ArenaHandle, view: LayoutView, path: str, state: str, number: int) -> None:
        types, target, word = self._context.types, self._context.target, self._context.geometry.word_bytes
        array = types.first("arena_s", path + ".bins", path + ".heaps")
        whole = types.place("arena_s", array) if array is not None else None
        root = types.first("arena_s", *("%s[0].%s" % (array, name) for name in HEAP_ROOTS)) if array is not None else None
        first = types.place("arena_s", root) if root is not None else None
        if self._heap is None or whole is None or first is None:
            return
        column = read_words(target, arena.address + whole.offset, whole.count * whole.size_bytes // word)
        step, offset = whole.size_bytes // word, (first.offset - whole.offset) // word
        heads, name, start = column[offset::step][: whole.count], "heap of %s extents" % state, arena.address + first.offset
        places = ((start + index * whole.size_bytes, head) for index, head in enumerate(heads) if head)
        numbers = [self._add_list(name, arena, *place, self._heap, number, api.ANY, False) for place in places]
        ring = None
        lru = types.first("arena_s", *("%s.lru.%s" % (path, name) for name in RING_HEADS))
        if lru is not None and self._unused is not None and state != "pinned":  # no age counts there (eset.c: eset_insert)
            name, place = "list of %s extents" % state, view.address_of(lru)
            ring = self._add_list(name, arena, place, view[lru], self._unused, number, api.ANY, False)
        npages = path + ".npages"
        self._sets.append((arena, path.split(".", 2)[-1], view.address_of(npages), view[npages], numbers, ring))
        bitmap = types.place("arena_s", path + ".bitmap")
        if bitmap is None:
            return
        # a bit is set where a heap holds something: malloc looks into no other
        bits, width = view.numbers(path + ".bitmap"), 8 * bitmap.size_bytes
        for index, head in enumerate(heads):
            if index // width < len(bits) and bool(head) != bool(bits[index // width] >> index % width & 1):
                what = "arena %d: heap %d of %s extents is %s, but its bit says otherwise"
                what %= arena.index, index, state, "not empty" if head else "empty"
                self._found.add(codes.HEAP_BITMAP, view.address_of(path + ".bitmap") + index // 8, what, arena.index)

    def _add_bins(self, arena: ArenaHandle, view: LayoutView) -> None:
        context, active = self._context, self._context.geometry.states.active
        struct = context.jemalloc.bin_struct
        heap = context.types.first(struct, *("slabs_nonfull." + name for name in HEAP_ROOTS))
        full = context.types.first(struct, *("slabs_full." + name for name in RING_HEADS))
        size = context.types.size_bytes(struct)
        for szind, shards in enumerate(context.jemalloc.find_bin_addresses(view)):
            numbers, counted = [], 0
            has_count = context.types.place(struct, "stats.nonfull_slabs") is not None
            for shard in shards:
                own = LayoutView(context.types, struct, shard, context.target.read(shard, size), context.geometry.little_endian)
                counted += own["stats.nonfull_slabs"] if has_count else 0
                if heap is not None and self._heap is not None:
                    name, place = "heap of slabs of bin %d" % szind, own.address_of(heap)
                    numbers.append(self._add_list(name, arena, place, own[heap], self._heap, active, szind, True))
                if full is not None and self._used is not None:
                    name, place = "list of full slabs of bin %d" % szind, own.address_of(full)
                    self._add_list(name, arena, place, own[full], self._used, active, szind, True)
            if has_count:
                self._bins.append((arena, szind, numbers, counted))

    def compare(self, has_stats: bool) -> None:
        """Follows them all, and adds what does not hold."""
        followed = make_extent_walker(self._context).follow([row for _, _, _, row in self._asked])
        for (name, arena, place, row), seen in zip(self._asked, followed):
            if seen.problem:
                is_ring = row.child_offset == api.NO_LINK
                links, members = (codes.RING_LINKS, codes.RING_MEMBER) if is_ring else (codes.HEAP_LINKS, codes.HEAP_MEMBER)
                code = members if seen.problem in (api.LINKED_ALIEN, api.LINKED_FULL) else links
                what = "arena %d: the %s %s" % (arena.index, name, LINK_FAULTS[seen.problem] % (seen.before or place))
                self._found.add(code, seen.at, what, arena.index)
        if len(followed) < len(self._asked):
            return
        for arena, name, place, npages, numbers, ring in self._sets:
            if any(followed[number].problem for number in numbers):
                continue
            pages = sum(followed[number].bytes for number in numbers) // self._context.geometry.page_bytes
            if pages != npages:
                what = "arena %d: %s counts %s, its heaps have %d" % (arena.index, name, count_noun(npages, "page"), pages)
                self._found.add(codes.HEAP_PAGES, place, what, arena.index)
            count = sum(followed[number].members for number in numbers)
            if ring is not None and not followed[ring].problem and followed[ring].members != count:
                what = "arena %d: the list of %s has %d extents, its heaps have %d" % (arena.index, name, followed[ring].members, count)
                self._found.add(codes.RING_MISCOUNTS, self._asked[ring][2], what, arena.index)
        for arena, szind, numbers, counted in self._bins if has_stats else ():
            count = sum(followed[number].members for number in numbers)
            if numbers and not any(followed[number].problem for number in numbers) and count != counted:
                what = "bin %d of arena %d counts %d slabs with a free region, its heap has %d" % (szind, arena.index, counted, count)
                self._found.add(codes.BIN_NONFULL, self._asked[numbers[0]][2], what, arena.index)


WRITTEN_STATUSES = ("used", "cached")
"""Statuses of blocks that the program writes to, or wrote to."""
LEFT_BY_FORK = (codes.TSD_UNOWNED, codes.CACHE_UNOWNED)
"""Leftovers of threads that did not exist any more after a fork."""
RULE_CODES = {code for code in vars(codes).values() if isinstance(code, ProblemCode)}.difference(LEFT_BY_FORK)
"""Damage by these codes is a broken rule."""
UNMAPPED_CODES = (codes.NODE_UNREADABLE, codes.NODE_HOLE, codes.EXTENT_UNREADABLE, codes.ARENA_UNREADABLE, codes.BASE_UNREADABLE)
"""Damage where nothing is mapped at the address; else a core that lacks it."""
FIXED_CODES = tuple(EXTENT_DAMAGE[number][0] for number in NODE_DAMAGE)
"""No step of jemalloc's own looks like these."""
DETAIL_CODES: Dict[int, Tuple[ProblemCode, str]] = {
    api.EXTENT_LEAF: (codes.LEAF, "the rtree says another size class, slab bit or state of this page than its extent"),
    api.EXTENT_INTERIOR: (codes.SLAB_PAGES, "the rtree does not map each page of this slab to it"),
    api.EXTENT_SHARD: (codes.SLAB_SHARD, "this slab is one of a shard that its bin does not have"),
    api.EXTENT_BITMAP_REST: (codes.SLAB_BITMAP_REST, "the bitmap of this slab has free regions beyond its last one"),
}
"""By EXTENT_ number: what is wrong with extents that can be counted all the same."""
SLOT_CODES = (codes.CACHED_OUTSIDE, codes.CACHED_NOT_START, codes.CACHED_CLASS, codes.CACHED_UNKNOWN)
"""What a thread cache holds was overwritten."""
BLOCK_CODES = (codes.CACHED_FREE, codes.CACHED_TWICE)
"""The block itself was freed twice."""
MOST_SUSPECTS = 100


class OverrunSuspects:
    """Metadata lies apart from blocks: only its first page can be reached by one, and a cache's stack where it is a block itself."""

    def __init__(self, context: JemallocContext, arenas: Sequence[ArenaHandle], caches: JemallocCaches) -> None:
        self._context, self._arenas, self._caches = context, arenas, caches
        self._slots: Optional[Dict[int, int]] = None
        self._blocks: Optional[List[Tuple[int, int]]] = None
        self._known: Dict[int, Optional[RuleSuspect]] = {}

    def of(self, place: Optional[int]) -> Optional[RuleSuspect]:
        """The block that ends where the memory around `place` begins."""
        if not place:
            return None
        if place not in self._known:
            self._known[place] = self._search_suspect(place)
        return self._known[place]

    def of_cached(self, pointer: int) -> Optional[RuleSuspect]:
        """Return the suspect for the slot of a thread cache that holds this pointer."""
        if self._slots is None:
            slots = (cache.list_slots(self._context.geometry.word_bytes) for cache in self._caches.caches)
            self._slots = {block: slot for own in slots for block, slot, _ in own}
        return self.of(self._slots.get(pointer))

    def _search_suspect(self, place: int) -> Optional[RuleSuspect]:
        extent, page = find_extent(self._context, place), self._context.geometry.page_bytes
        before: Optional[Neighbour] = None
        if extent is not None:
            start = extent.begin
        else:
            if self._blocks is None:
                self._blocks = []
                for arena in self._arenas:
                    try:
                        self._blocks += self._context._replace(report=make_collector([])).list_base_blocks(arena)
                    except UnreadableMemory:
                        continue
            start = next((start for start, _ in self._blocks if start <= place < start + page), place & -page)
        if extent is not None and extent.is_slab:
            located = locate_jemalloc_address(self._context, self._arenas, self._caches, place)
            if located is None or located.block is None:
                return None
            before = located.previous
        if before is None:
            located = locate_jemalloc_address(self._context, self._arenas, self._caches, start - 1)
            before = located.block if located is not None else None
        if before is None or before.status not in WRITTEN_STATUSES:
            return None
        return RuleSuspect(before.address, before.size_bytes, before.status)


def check_heap(
    context: JemallocContext,
    arenas: Sequence[ArenaHandle],
    walked: ExtentsResult,
    tsds: Tsds,
    caches: JemallocCaches,
    has_stats: bool,
    told: Sequence[Diagnostic],
    rest: PartialSink,
) -> List[BrokenRule]:
    """Return the broken rules of a heap as it was read, with the complaints about that; `rest` receives the diagnostics that are none."""
    findings, named = JemallocFindings(context, arenas), []
    mapped = [(span.start, span.end) for span in context.target.mappings()]
    for one in told:
        if one.code in UNMAPPED_CODES and one.address is not None and not any(start <= one.address < end for start, end in mapped):
            findings.add(one.code, one.address, one.what, is_fixed=True)
        else:
            named.append(one)
    sorted_out(named, RULE_CODES, rest, lambda one: findings.add(one.code, one.address, one.what, is_fixed=one.code in FIXED_CODES))
    is_whole = bool(walked.summary.done) and not any(walked.problem_counts) and not leaves_stale_elements(context)
    by_index = {row.arena: row for row in walked.arenas}
    guards = [context.variable(name) for name in GUARD_OPTIONS if "edata_s" in context.types.structs]
    may_guard = any(guards) or (context.symbols.by_structure and None in guards)
    most = walked.summary.extents + walked.summary.unassociated_extents
    if not is_whole:
        most = context.sum_writable_bytes() // context.types.size_bytes(context.geometry.extent_struct)
    lists = ExtentLists(context, findings, most)
    # if most leaf elements disagree, their meaning is unknown
    active = sum(arena.active.extents for arena in walked.arenas)
    is_known = walked.detail_counts[api.EXTENT_LEAF] <= max(1, active // 2)
    for detail in walked.details:
        code, what = DETAIL_CODES[detail.code]
        if is_known or detail.code != api.EXTENT_LEAF:
            findings.add(code, detail.page, "%s (extent 0x%x)" % (what, detail.extent))
    for arena in arenas:
        if context.budget.expired():
            break
        try:
            view, seen = arena.read(), by_index.get(arena.index)
            if is_whole:
                check_pages(context, findings, arena, view, seen, has_stats and not may_guard)
            if is_whole and has_stats:
                check_bins(context, findings, arena, view, seen)
            check_metadata(context, findings, arena, has_stats)
            lists.add(arena, view)
        except UnreadableMemory as problem:
            rest(codes.ARENA_UNREADABLE, problem.address, "cannot read arena %d completely" % arena.index, "not every rule was checked")
    lists.compare(has_stats)
    _check_threads(context, findings, arenas, tsds)
    check_rtree_caches(context, findings, tsds)
    _check_classes(context, findings, caches)
    suspects = OverrunSuspects(context, arenas, caches)
    structs = {problem.page: problem.extent for problem in (*walked.problems, *walked.details) if problem.extent}
    rows = findings.rows
    for number, row in enumerate(rows[:MOST_SUSPECTS]):
        if row.address is not None and row.code not in BLOCK_CODES:
            place = structs.get(row.address, row.address)
            rows[number] = row._replace(suspect=suspects.of_cached(place) if row.code in SLOT_CODES else suspects.of(place))
    return rows


def _check_threads(context: JemallocContext, findings: JemallocFindings, arenas: Sequence[ArenaHandle], tsds: Tsds) -> None:
    """nthreads[0] of an arena is the number of threads bound to it (arena_bind), unless arenas belong to processors."""
    if not tsds.complete or has_percpu_arenas(context):
        return
    bound = Counter(record.arena for record in tsds.records if record.arena)
    for arena in arenas:
        try:
            counted = arena.read().get("nthreads[0]")
        except UnreadableMemory:
            continue
        if counted is not None and counted != bound[arena.address]:
            what = "arena %d counts %s, bound to it: %d" % (arena.index, count_noun(counted, "thread"), bound[arena.address])
            findings.add(codes.THREADS_MISCOUNTED, arena.address, what, arena.index)


def _check_classes(context: JemallocContext, findings: JemallocFindings, caches: JemallocCaches) -> None:
    """Check that each cached block has the size of its cache bin's class."""
    geometry = context.geometry
    classes = {block: szind for cache in caches.caches for block, _, szind in cache.list_slots(geometry.word_bytes)}
    if not classes or context.budget.expired():
        return
    for blocks in make_extent_walker(context).blocks(caches.pointers, BlockFilter(frozenset((api.BLOCK_CACHED,)))):
        for address, usable in zip(blocks.addresses, blocks.usable_bytes):
            szind = classes.get(address)
            if szind is None or (geometry.size_from_extent and szind >= geometry.nbins) or geometry.size_classes[szind] == usable:
                continue
            what = "a thread cache's bin for blocks of %d bytes holds this block of %d bytes" % (geometry.size_classes[szind], usable)
            findings.add(codes.CACHED_CLASS, address, what)
