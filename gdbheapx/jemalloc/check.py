"""Check the rules of jemalloc: the radix tree, extents, slabs, caches, and the arenas' own accounts."""

from bisect import bisect_right
from collections import Counter
from typing import Callable, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import INSIDE, LOCKED, MOST_BROKEN, BrokenRule, Neighbour, RuleSuspect, make_collector, sorted_out
from gdbheapx.errors import UnreadableMemory
from gdbheapx.inferior.base import TypeSet
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.arenas import (
    ArenaHandle,
    BaseBlock,
    JemallocContext,
    count_active_pages,
    count_pages,
    find_threads_inside,
    list_base_blocks,
    list_unused_states,
    read_base,
    sum_writable_bytes,
)
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
from gdbheapx.jemalloc.symbols import find_bin_addresses, find_current_slabs, find_leaf, name_bin_struct, read_slab_begin, read_words
from gdbheapx.jemalloc.threads import JemallocCaches, Tsds
from gdbheapx.kernel.blocks.stream import BlockFilter, BlockStream
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import ArenaExtents, ExtentsResult
from gdbheapx.layout.view import LayoutView
from gdbheapx.model import TargetAddress
from gdbheapx.problems import Diagnostic, PartialSink, ProblemCode
from gdbheapx.units import count_noun

FATAL_SIGNALS = (4, 6, 7, 8, 11)
"""Signals of a fault or of abort(): what a thread met inside jemalloc was wrong before."""


def is_in_change(context: JemallocContext) -> bool:
    """Return whether a thread was in jemalloc's own code, and not because it crashed there; False where the program contains jemalloc."""
    if has_crashed(context) or context.jemalloc.module.is_executable:
        return False
    return bool(find_threads_inside(context)[0])


def has_crashed(context: JemallocContext) -> bool:
    """The process ended by a fault or by abort()."""
    return any(thread.signal in FATAL_SIGNALS for thread in context.target.threads()[:1])


def find_locked_arenas(context: JemallocContext, arenas: Sequence[ArenaHandle]) -> FrozenSet[int]:
    """Indexes of arenas that a thread holds a lock of: what it was changing there is half done. A crash has stopped everything."""
    if has_crashed(context):
        return frozenset()
    threads = {thread.lwp for thread in context.target.threads()}
    return frozenset(arena.index for arena in arenas if any(lock.owner in threads for lock in find_arena_locks(context, arena)))


class JemallocFindings:
    """The broken rules of one heap, each place once."""

    def __init__(self, context: JemallocContext, arenas: Sequence[ArenaHandle]) -> None:
        size = context.types.size_bytes("arena_s")
        self._context, self._listed = context, arenas
        self._arenas = sorted((arena.address, arena.address + size, arena.index) for arena in arenas)
        self._starts = [span[0] for span in self._arenas]
        self._locked: List[FrozenSet[int]] = []
        self._found: Dict[Tuple[str, Optional[int]], BrokenRule] = {}
        self._is_changing = is_in_change(context)

    @property
    def rows(self) -> List[BrokenRule]:
        return list(self._found.values())

    def _arena_of(self, address: Optional[int]) -> Optional[int]:
        place = bisect_right(self._starts, address) - 1 if address is not None else -1
        return self._arenas[place][2] if place >= 0 and address is not None and address < self._arenas[place][1] else None

    def _find_evidence(self, arena: Optional[int]) -> Optional[str]:
        """Return the change in progress that may explain a contradiction in this arena, or in an unknown one."""
        if self._is_changing:
            return INSIDE
        if not self._locked:
            self._locked.append(find_locked_arenas(self._context, self._listed))
        return LOCKED if arena in self._locked[0] or (arena is None and self._locked[0]) else None

    def add(self, code: ProblemCode, address: Optional[int], what: str, arena: Optional[int] = None, is_fixed: bool = False) -> None:
        """Add a broken rule unless its place has one. `is_fixed`: no step of jemalloc's own changes it."""
        key = (str(code), address)
        if key in self._found or len(self._found) >= MOST_BROKEN:
            return
        arena = arena if arena is not None else self._arena_of(address)
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


def has_used_hpa(view: LayoutView) -> bool:
    """The huge page allocator has served this arena: its pages are in no list of extents."""
    return bool(view.get("pa_shard.ever_used_hpa") or view.get("pa_shard.use_hpa"))


class ArenaAccounts:
    """An arena's own counters, compared with what its extents add up to."""

    def __init__(
        self, context: JemallocContext, findings: JemallocFindings, arena: ArenaHandle, view: LayoutView, seen: Optional[ArenaExtents]
    ) -> None:
        self._context, self._findings, self._arena, self._view, self._seen = context, findings, arena, view, seen
        self._is_moving = has_used_hpa(view) or (seen is not None and bool(seen.other.extents))

    def _sum_bytes(self, *states: str) -> int:
        return sum(getattr(self._seen, state).bytes for state in states) if self._seen is not None else 0

    def check_pages(self) -> None:
        """Compare pages by state."""
        counted = {state: count_pages(self._view, state) for state in list_unused_states(self._context)}
        counted["active"] = count_active_pages(self._view)
        for state, count in counted.items():
            there = self._sum_bytes(state) // self._context.geometry.page_bytes
            if count not in (None, there) and not self._is_moving:
                what = "arena %d counts %d %s pages, its extents have %d" % (self._arena.index, count or 0, state, there)
                self._findings.add(PAGE_CODES[state], self._arena.address, what, self._arena.index)

    def check_mapped(self) -> None:
        """Compare bytes mapped: active, dirty, muzzy and pinned extents (arena_stats.mapped, from 5.3 pac_stats.pac_mapped)."""
        counted = self._view.get("stats.pa_shard_stats.pac_stats.pac_mapped", "stats.mapped")
        there = self._sum_bytes("active", "dirty", "muzzy", "pinned")
        if counted not in (None, there) and not self._is_moving:
            what = "arena %d counts 0x%x bytes as mapped, its extents have 0x%x" % (self._arena.index, counted or 0, there)
            self._findings.add(codes.MAPPED_BYTES, self._arena.address, what, self._arena.index)

    def check_bins(self, is_sampling: bool) -> None:
        """Compare slabs and regions of each bin. Sampled allocations are counted in the bin, and lie elsewhere (5.3.1)."""
        index, own = self._arena.index, {row.szind: row for row in self._seen.bins} if self._seen is not None else {}
        for szind, row in enumerate(read_bin_stats(self._context, self._view)):
            place = self._arena.address + szind  # stands for the bin
            slabs, regions = (own[szind].curslabs, own[szind].curregs) if szind in own else (0, 0)
            if row["curslabs"] is not None and row["curslabs"] != slabs:
                what = "bin %d of arena %d counts %d slabs, there are %d" % (szind, index, row["curslabs"], slabs)
                self._findings.add(codes.BIN_SLABS, place, what, index)
            if is_sampling or row["curregs"] is None:
                continue
            if row["curregs"] != regions:
                what = "bin %d of arena %d counts %d regions in use, its slabs have %d" % (szind, index, row["curregs"], regions)
                self._findings.add(codes.BIN_REGIONS, place, what, index)
            elif row["nmalloc"] is not None and (row["nmalloc"] - row["ndalloc"]) % (1 << 64) != row["curregs"]:
                what = "bin %d of arena %d: nmalloc %d less ndalloc %d is not curregs %d"
                numbers = (szind, index, row["nmalloc"], row["ndalloc"], row["curregs"])
                self._findings.add(codes.BIN_REQUESTS, place, what % numbers, index)


def check_slabs(context: JemallocContext, findings: JemallocFindings, arena: ArenaHandle) -> None:
    """Check the slabs that bins point to."""
    target, types, geometry = context.target, context.types, context.geometry
    for szind, place in find_current_slabs(target, context.symbols, types, geometry, arena.address):
        slab = target.read_word(place)
        try:
            is_good = bool(read_slab_begin(target, types, geometry, arena.index, szind, slab))
        except UnreadableMemory:
            is_good = False
        if not is_good:
            what = "bin %d of arena %d points to 0x%x, which is not one of its slabs" % (szind, arena.index, slab)
            findings.add(codes.BIN_SLAB_WRONG, place, what, arena.index)


def check_base(context: JemallocContext, findings: JemallocFindings, arena: ArenaHandle) -> None:
    """The blocks of metadata."""
    base = read_base(context, arena.read())
    mapped = base.get("mapped") if base is not None else None
    there = sum(block.size_bytes for block in list_base_blocks(context, arena))
    if mapped is not None and mapped != there:
        what = "the base of arena %d counts 0x%x bytes, its blocks have 0x%x" % (arena.index, mapped, there)
        findings.add(codes.BASE_MAPPED, arena.address, what, arena.index)


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
                        leaves[key] = find_leaf(target, context.geometry, key)
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


class AskedList(NamedTuple):
    """A list to follow, with the properties of its members."""

    name: str
    arena: ArenaHandle
    place: int
    """Address of its head."""
    row: api.LinkedList


class ExtentLists:
    """The lists of one jemalloc: collected, followed together, and compared."""

    def __init__(self, context: JemallocContext, findings: JemallocFindings, most: int) -> None:
        """`most`: extents that there can be."""
        self._context, self._found, self._most = context, findings, most
        types, struct = context.types, context.geometry.extent_struct
        self._heap = _find_links(types, struct, "heap_link.link.", "ph_link.phn_")
        self._unused = _find_links(types, struct, "ql_link_inactive.", "ql_link.")  # the ring of unused extents, oldest first
        self._used = _find_links(types, struct, "ql_link_active.", "ql_link.")
        self._asked: List[AskedList] = []
        self._sets: List[Tuple[ArenaHandle, str, int, List[int], Optional[int]]] = []
        self._bins: List[Tuple[ArenaHandle, int, List[int], Optional[int]]] = []

    def _add_list(
        self, name: str, arena: ArenaHandle, place: int, head: int, offsets: LinkOffsets, state: int, szind: int, is_bin: bool
    ) -> int:
        row = api.LinkedList(head, *offsets, arena.index, state, szind, is_bin and offsets[2] != api.NO_LINK, self._most)
        self._asked.append(AskedList(name, arena, place, row))
        return len(self._asked) - 1

    def add(self, arena: ArenaHandle, view: LayoutView) -> None:
        """The lists of one arena. Unreadable if its bins are."""
        states = self._context.geometry.states
        for state in list_unused_states(self._context):
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
        self._sets.append((arena, path, view[path + ".npages"], numbers, ring))
        self._tell_bitmap(arena, view, path, state, heads)

    def _tell_bitmap(self, arena: ArenaHandle, view: LayoutView, path: str, state: str, heads: Sequence[int]) -> None:
        """A bit is set where a heap holds something: malloc looks into no other."""
        bitmap = self._context.types.place("arena_s", path + ".bitmap")
        if bitmap is None:
            return
        bits, width = view.numbers(path + ".bitmap"), 8 * bitmap.size_bytes
        for index, head in enumerate(heads):
            if index // width < len(bits) and bool(head) != bool(bits[index // width] >> index % width & 1):
                what = "arena %d: heap %d of %s extents is %s, but its bit says otherwise"
                what %= arena.index, index, state, "not empty" if head else "empty"
                self._found.add(codes.HEAP_BITMAP, view.address_of(path + ".bitmap") + index // 8, what, arena.index)

    def _add_bins(self, arena: ArenaHandle, view: LayoutView) -> None:
        context, active = self._context, self._context.geometry.states.active
        struct = name_bin_struct(context.types)
        heap = context.types.first(struct, *("slabs_nonfull." + name for name in HEAP_ROOTS))
        full = context.types.first(struct, *("slabs_full." + name for name in RING_HEADS))
        size = context.types.size_bytes(struct)
        for szind, shards in enumerate(find_bin_addresses(context.target, context.symbols, context.types, context.geometry.bins, view)):
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

    def tell(self, has_stats: bool) -> None:
        """Follows them all, and says what does not hold."""
        told = make_extent_walker(self._context).follow([asked.row for asked in self._asked])
        for asked, seen in zip(self._asked, told):
            if seen.problem:
                is_ring = asked.row.child_offset == api.NO_LINK
                is_alien = seen.problem in (api.LINKED_ALIEN, api.LINKED_FULL)
                links, members = (codes.RING_LINKS, codes.RING_MEMBER) if is_ring else (codes.HEAP_LINKS, codes.HEAP_MEMBER)
                code = members if is_alien else links
                where = seen.before or asked.place
                what = "arena %d: the %s %s" % (asked.arena.index, asked.name, LINK_FAULTS[seen.problem] % where)
                self._found.add(code, seen.at, what, asked.arena.index)
        if len(told) == len(self._asked):
            self._tell_sums(told, has_stats)

    def _tell_sums(self, told: Sequence[api.NativeLinked], has_stats: bool) -> None:
        page = self._context.geometry.page_bytes
        for arena, path, npages, numbers, ring in self._sets:
            if any(told[number].problem for number in numbers):
                continue
            there, name = sum(told[number].bytes for number in numbers) // page, path.split(".", 2)[-1]
            if there != npages:
                what = "arena %d: %s counts %s, its heaps have %d" % (arena.index, name, count_noun(npages, "page"), there)
                self._found.add(codes.HEAP_PAGES, arena.address + self._find_offset(path + ".npages"), what, arena.index)
            members = sum(told[number].members for number in numbers)
            if ring is not None and not told[ring].problem and told[ring].members != members:
                what = "arena %d: the list of %s has %d extents, its heaps have %d" % (arena.index, name, told[ring].members, members)
                self._found.add(codes.RING_MISCOUNTS, self._asked[ring].place, what, arena.index)
        for arena, szind, numbers, counted in self._bins if has_stats else ():
            there = sum(told[number].members for number in numbers)
            if numbers and not any(told[number].problem for number in numbers) and there != counted:
                what = "bin %d of arena %d counts %d slabs with a free region, its heap has %d" % (szind, arena.index, counted or 0, there)
                self._found.add(codes.BIN_NONFULL, self._asked[numbers[0]].place, what, arena.index)

    def _find_offset(self, path: str) -> int:
        place = self._context.types.place("arena_s", path)
        return place.offset if place is not None else 0


def check_links(
    context: JemallocContext, findings: JemallocFindings, arenas: Sequence[ArenaHandle], most: int, has_stats: bool
) -> Dict[int, UnreadableMemory]:
    """Every list of every arena; by index the arenas that could not be read whole."""
    lists, failed = ExtentLists(context, findings, most), {}
    for arena in arenas:
        if context.budget.expired():
            break
        try:
            lists.add(arena, arena.read())
        except UnreadableMemory as problem:
            failed[arena.index] = problem
    lists.tell(has_stats)
    return failed


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
        self._blocks: Optional[List[BaseBlock]] = None
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
            self._slots = {}
            for cache in self._caches.caches:
                stacks = sorted(cache.bins.stacks, key=lambda stack: stack.start)
                slots = [stack.start + number * self._context.geometry.word_bytes for stack in stacks for number in range(stack.count)]
                self._slots.update(zip(cache.pointers, slots) if len(slots) == len(cache.pointers) else ())
        return self.of(self._slots.get(pointer))

    def _search_suspect(self, place: int) -> Optional[RuleSuspect]:
        extent = find_extent(self._context, place)
        if extent is not None and extent.is_slab:
            located = locate_jemalloc_address(self._context, self._arenas, self._caches, place)
            if located is None or located.block is None:
                return None
            return _make_suspect(located.previous) if located.previous is not None else self._ends_at(extent.begin)
        if extent is not None:
            return self._ends_at(extent.begin)
        if self._blocks is None:
            self._blocks = _list_all_base_blocks(self._context, self._arenas)
        page = self._context.geometry.page_bytes
        block = next((base_block for base_block in self._blocks if base_block.address <= place < base_block.address + page), None)
        return self._ends_at(block.address if block is not None else place & -page)

    def _ends_at(self, address: int) -> Optional[RuleSuspect]:
        located = locate_jemalloc_address(self._context, self._arenas, self._caches, address - 1)
        if located is None or located.block is None or located.block.status not in WRITTEN_STATUSES:
            return None
        return _make_suspect(located.block)


def _list_all_base_blocks(context: JemallocContext, arenas: Sequence[ArenaHandle]) -> List[BaseBlock]:
    blocks: List[BaseBlock] = []
    for arena in arenas:
        try:
            blocks += list_base_blocks(context._replace(report=make_collector([])), arena)
        except UnreadableMemory:
            continue
    return blocks


def _make_suspect(block: Optional[Neighbour]) -> Optional[RuleSuspect]:
    if block is None or block.status not in WRITTEN_STATUSES:
        return None
    return RuleSuspect(block.address, block.size_bytes, block.status)


class CheckedHeap(NamedTuple):
    """A heap as it was read, with its complaints collected."""

    context: JemallocContext
    arenas: Sequence[ArenaHandle]
    walked: ExtentsResult
    tsds: Tsds
    caches: JemallocCaches
    has_stats: bool
    stream: Callable[[BlockFilter], BlockStream]


def check_heap(seen: CheckedHeap, told: Sequence[Diagnostic], rest: PartialSink) -> List[BrokenRule]:
    """Return the broken rules of a heap; `rest` receives the diagnostics that are none."""
    context = seen.context
    findings = JemallocFindings(context, seen.arenas)
    named = [diagnostic for diagnostic in told if not _is_unmapped(context, findings, diagnostic)]
    sorted_out(named, RULE_CODES, rest, lambda told: findings.add(told.code, told.address, told.what, is_fixed=told.code in FIXED_CODES))
    is_whole = bool(seen.walked.summary.done) and not any(seen.walked.problem_counts) and not leaves_stale_elements(context)
    by_index = {row.arena: row for row in seen.walked.arenas}
    _check_details(seen, findings)
    is_sampling = bool(context.variable("opt_prof", 1))
    for arena in seen.arenas:
        if context.budget.expired():
            break
        try:
            accounts = ArenaAccounts(context, findings, arena, arena.read(), by_index.get(arena.index))
            if is_whole:
                accounts.check_pages()
            if is_whole and seen.has_stats:
                accounts.check_mapped()
                accounts.check_bins(is_sampling)
            if seen.has_stats:
                check_base(context, findings, arena)
            check_slabs(context, findings, arena)
        except UnreadableMemory as problem:
            rest(codes.ARENA_UNREADABLE, problem.address, "cannot read arena %d completely" % arena.index, "not every rule was checked")
    for index, lost in check_links(context, findings, seen.arenas, _bound_extents(seen, is_whole), seen.has_stats).items():
        what = "cannot read the lists of arena %d completely" % index
        rest(codes.ARENA_UNREADABLE, lost.address, what, "not every rule was checked")
    _check_threads(seen, findings)
    check_rtree_caches(context, findings, seen.tsds)
    _check_classes(seen, findings)
    return _add_suspects(seen, findings.rows)


def _bound_extents(seen: CheckedHeap, is_whole: bool) -> int:
    """No list has more members."""
    walked, size = seen.walked.summary, seen.context.types.size_bytes(seen.context.geometry.extent_struct)
    return walked.extents + walked.unassociated_extents if is_whole else sum_writable_bytes(seen.context) // size


def _check_details(seen: CheckedHeap, findings: JemallocFindings) -> None:
    """Report contradictions that take no extent out of the totals. If most leaf elements disagree, their meaning is unknown and they are
    skipped."""
    active = sum(arena.active.extents for arena in seen.walked.arenas)
    is_known = seen.walked.detail_counts[api.EXTENT_LEAF] <= max(1, active // 2)
    for detail in seen.walked.details:
        code, what = DETAIL_CODES[detail.code]
        if is_known or detail.code != api.EXTENT_LEAF:
            findings.add(code, detail.page, "%s (extent 0x%x)" % (what, detail.extent))


def _add_suspects(seen: CheckedHeap, rows: Sequence[BrokenRule]) -> List[BrokenRule]:
    """Add the block that most likely overran, if one ends just before the damage."""
    suspects = OverrunSuspects(seen.context, seen.arenas, seen.caches)
    structs = {problem.page: problem.extent for problem in (*seen.walked.problems, *seen.walked.details) if problem.extent}
    told = []
    for number, row in enumerate(rows):
        if number < MOST_SUSPECTS and row.address is not None:
            place = structs.get(row.address, row.address)
            row = row._replace(
                suspect=suspects.of_cached(place) if row.code in SLOT_CODES else suspects.of(place) if row.code not in BLOCK_CODES else None
            )
        told.append(row)
    return told


def _is_unmapped(context: JemallocContext, findings: JemallocFindings, diagnostic: Diagnostic) -> bool:
    address = diagnostic.address
    if diagnostic.code not in UNMAPPED_CODES or address is None:
        return False
    if any(span.start <= address < span.end for span in context.target.mappings()):
        return False
    findings.add(diagnostic.code, address, diagnostic.what, is_fixed=True)
    return True


def _check_threads(seen: CheckedHeap, findings: JemallocFindings) -> None:
    """nthreads[0] of an arena is the number of threads bound to it (arena_bind), unless arenas belong to processors."""
    if not seen.tsds.complete or has_percpu_arenas(seen.context):
        return
    bound = Counter(record.arena for record in seen.tsds.records if record.arena)
    for arena in seen.arenas:
        try:
            counted = arena.read().get("nthreads[0]")
        except UnreadableMemory:
            continue
        if counted is not None and counted != bound[arena.address]:
            what = "arena %d counts %s, bound to it: %d" % (arena.index, count_noun(counted, "thread"), bound[arena.address])
            findings.add(codes.THREADS_MISCOUNTED, arena.address, what, arena.index)


def _check_classes(seen: CheckedHeap, findings: JemallocFindings) -> None:
    """Check that each cached block has the size of its cache bin's class."""
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
    for blocks in seen.stream(BlockFilter(frozenset((api.BLOCK_CACHED,)))):
        for address, usable in zip(blocks.addresses, blocks.usable_bytes):
            szind = classes.get(address)
            is_told = szind is not None and not (seen.context.geometry.size_from_extent and szind >= seen.context.geometry.nbins)
            if szind is not None and is_told and sizes[szind] != usable:
                what = "a thread cache's bin for blocks of %d bytes holds this block of %d bytes" % (sizes[szind], usable)
                findings.add(codes.CACHED_CLASS, address, what)
