"""What an arena counts, against what the walk over its extents adds up to; its bins' slabs; its base.

What threads remember of the radix tree: rtree_ctx of each tsd.

How extents are linked: the heaps and rings of each arena, with what it says of them.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.errors import Unreadable
from gdbheapx.inferior.base import TypeSet
from gdbheapx.jemalloc import codes
from gdbheapx.jemalloc.check.findings import Findings
from gdbheapx.jemalloc.context import Context
from gdbheapx.jemalloc.detection import calibrate
from gdbheapx.jemalloc.detection.calibrate import words
from gdbheapx.jemalloc.heap import arenas as arena_list
from gdbheapx.jemalloc.heap import base, extents
from gdbheapx.jemalloc.heap.arenas import Arena
from gdbheapx.jemalloc.stats import arena as stats_arena
from gdbheapx.jemalloc.threads.tsd import Tsds
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.records import ArenaExtents
from gdbheapx.layout.view import View
from gdbheapx.problems import Code
from gdbheapx.units import plural

STATES: Dict[str, Code] = {
    "dirty": codes.DIRTY_PAGES,
    "muzzy": codes.MUZZY_PAGES,
    "retained": codes.RETAINED_PAGES,
    "pinned": codes.PINNED_PAGES,
}
INVALID_KEY = 1
"""RTREE_LEAFKEY_INVALID."""
CACHES = ("cache", "l2_cache")
ROOT = ("heap.ph.root", "ph.root", "ph_root")
FIRST = ("head.qlh_first", "qlh_first")
WORDS = {
    api.LINKED_UNREADABLE: "points from 0x%x to something that is not an extent",
    api.LINKED_BACK: "points from 0x%x here, but this extent does not point back",
    api.LINKED_ALIEN: "points from 0x%x to an extent of another arena, state or size class",
    api.LINKED_FULL: "points from 0x%x to a slab that has no free region, or no used one",
    api.LINKED_CYCLE: "has more members than there are extents: it points from 0x%x back into itself",
}


def uses_hpa(view: View) -> bool:
    """The huge page allocator has served this arena: its pages are in no list of extents."""
    return bool(view.get("pa_shard.ever_used_hpa") or view.get("pa_shard.use_hpa"))


def tell_pages(context: Context, findings: Findings, arena: Arena, view: View, seen: Optional[ArenaExtents]) -> None:
    """Pages by state."""
    if uses_hpa(view) or (seen is not None and seen.other.extents):
        return
    page = context.geometry.page_bytes
    for state in arena_list.states_of(context):
        code, counted = STATES[state], arena_list.pages(view, state)
        _compare(findings, code, arena, "%s pages" % state, counted, getattr(seen, state).bytes // page if seen is not None else 0)
    active = seen.active.bytes // page if seen is not None else 0
    _compare(findings, codes.ACTIVE_PAGES, arena, "active pages", arena_list.active_pages(view), active)


def tell_mapped(context: Context, findings: Findings, arena: Arena, view: View, seen: Optional[ArenaExtents]) -> None:
    """Bytes mapped: active, dirty, muzzy and pinned extents (arena_stats.mapped, from 5.3 pac_stats.pac_mapped)."""
    if uses_hpa(view) or (seen is not None and seen.other.extents):
        return
    counted = view.get("stats.pa_shard_stats.pac_stats.pac_mapped", "stats.mapped")
    there = seen.active.bytes + seen.dirty.bytes + seen.muzzy.bytes + seen.pinned.bytes if seen is not None else 0
    if counted is not None and counted != there:
        what = "arena %d counts 0x%x bytes as mapped, its extents have 0x%x" % (arena.index, counted, there)
        findings.add(codes.MAPPED_BYTES, arena.address, what, arena.index)


def _compare(findings: Findings, code: Code, arena: Arena, name: str, counted: Optional[int], there: int) -> None:
    if counted is not None and counted != there:
        what = "arena %d counts %d %s, its extents have %d" % (arena.index, counted, name, there)
        findings.add(code, arena.address, what, arena.index)


def tell_bins(context: Context, findings: Findings, arena: Arena, view: View, seen: Optional[ArenaExtents], is_sampling: bool) -> None:
    """Slabs and regions of each bin. Sampled allocations are counted in the bin, and lie elsewhere (5.3.1)."""
    own = {row.szind: row for row in seen.bins} if seen is not None else {}
    for szind, row in enumerate(stats_arena.read_bins(context, view)):
        slabs, regions = (own[szind].curslabs, own[szind].curregs) if szind in own else (0, 0)
        if row["curslabs"] is not None and row["curslabs"] != slabs:
            what = "bin %d of arena %d counts %d slabs, there are %d" % (szind, arena.index, row["curslabs"], slabs)
            findings.add(codes.BIN_SLABS, _place(arena, szind), what, arena.index)
        if is_sampling or row["curregs"] is None:
            continue
        if row["curregs"] != regions:
            what = "bin %d of arena %d counts %d regions in use, its slabs have %d" % (szind, arena.index, row["curregs"], regions)
            findings.add(codes.BIN_REGIONS, _place(arena, szind), what, arena.index)
        elif row["nmalloc"] is not None and (row["nmalloc"] - row["ndalloc"]) % (1 << 64) != row["curregs"]:
            what = "bin %d of arena %d: nmalloc %d less ndalloc %d is not curregs %d"
            numbers = (szind, arena.index, row["nmalloc"], row["ndalloc"], row["curregs"])
            findings.add(codes.BIN_REQUESTS, _place(arena, szind), what % numbers, arena.index)


def _place(arena: Arena, szind: int) -> int:
    """Of the bin where it is told by its number alone: apart for each bin, inside the arena."""
    return arena.address + szind


def tell_slabs(context: Context, findings: Findings, arena: Arena) -> None:
    """What bins point to."""
    target, types, geometry = context.target, context.types, context.geometry
    for szind, place in calibrate.current_slabs(target, context.symbols, types, geometry, arena.address):
        slab = target.read_word(place)
        try:
            is_good = bool(calibrate.slab_begin(target, types, geometry, arena.index, szind, slab))
        except Unreadable:
            is_good = False
        if not is_good:
            what = "bin %d of arena %d points to 0x%x, which is not one of its slabs" % (szind, arena.index, slab)
            findings.add(codes.BIN_SLAB_WRONG, place, what, arena.index)


def tell_base(context: Context, findings: Findings, arena: Arena) -> None:
    """The blocks of metadata."""
    mapped = base.totals(context, arena).mapped_bytes
    blocks: List[base.BaseBlock] = base.blocks(context, arena)
    there = sum(block.size_bytes for block in blocks)
    if mapped is not None and mapped != there:
        what = "the base of arena %d counts 0x%x bytes, its blocks have 0x%x" % (arena.index, mapped, there)
        findings.add(codes.BASE_MAPPED, arena.address, what, arena.index)


def tell_rtree_caches(context: Context, findings: Findings, tsds: Tsds) -> None:
    """Each leaf node that a thread remembers is the one to which the tree leads for its key (rtree.h: rtree_leaf_elm_lookup)."""
    types, target, word = context.types, context.target, context.geometry.word_bytes
    if len(context.geometry.rtree.levels) < 2:
        return
    leaves: Dict[int, int] = {}
    for record in tsds.records:
        for name in CACHES:
            path = types.first("tsd_s", "rtree_ctx." + name)
            place = types.place("tsd_s", path) if path is not None else None
            if record.address is None or place is None or place.size_bytes != 2 * word or context.budget.expired():
                continue
            try:
                column = words(target, record.address + place.offset, 2 * place.count)
                for number, (key, leaf) in enumerate(zip(column[::2], column[1::2])):
                    if key == INVALID_KEY or not leaf:
                        continue
                    if key not in leaves:
                        leaves[key] = calibrate.leaf_of(target, context.geometry, key)
                    if leaves[key] != leaf:
                        where = record.address + place.offset + 2 * word * number
                        what = "a thread remembers the rtree node 0x%x for 0x%x, the tree has 0x%x" % (leaf, key, leaves[key])
                        findings.add(codes.RTREE_CACHE, where, what)
            except Unreadable:
                continue


class Offsets(NamedTuple):
    """Links in an extent structure."""

    next: int
    previous: int
    child: int = api.NO_LINK


class Links(NamedTuple):
    """Where links lie in this build's extents; None for what its types do not tell."""

    heap: Optional[Offsets]
    unused: Optional[Offsets]
    """The ring of unused extents, oldest first."""
    used: Optional[Offsets]


class Asked(NamedTuple):
    """One list, and what belongs to it."""

    name: str
    arena: Arena
    place: int
    """Where its head lies."""
    row: api.LinkedList
    is_bin: bool = False


def links(types: TypeSet, struct: str) -> Links:
    """By the names of each release."""

    def ring(*names: str) -> Optional[Offsets]:
        known = (_offsets(types, struct, name + ".qre_next", name + ".qre_prev") for name in names)
        return next((offsets for offsets in known if offsets), None)

    heap = next(
        (
            offsets
            for name, prefix in (("heap_link.link.", ""), ("ph_link.", "phn_"))
            for offsets in (_offsets(types, struct, *(name + prefix + step for step in ("next", "prev", "lchild"))),)
            if offsets
        ),
        None,
    )
    return Links(heap, ring("ql_link_inactive", "ql_link"), ring("ql_link_active", "ql_link"))


def _offsets(types: TypeSet, struct: str, *paths: str) -> Optional[Offsets]:
    size, places = types.size_bytes(struct), [types.place(struct, path) for path in paths]
    offsets = [place.offset for place in places if place is not None and place.offset + place.size_bytes <= size]
    return Offsets(*offsets) if len(offsets) == len(paths) else None


class Lists:
    """All lists of one jemalloc: collected, followed together, and told."""

    def __init__(self, context: Context, findings: Findings, most: int) -> None:
        """`most`: extents that there can be."""
        self._context, self._found, self._most = context, findings, most
        self._links = links(context.types, context.geometry.extent_struct)
        self._asked: List[Asked] = []
        self._sets: List[Tuple[Arena, str, int, List[int], Optional[int]]] = []
        self._bins: List[Tuple[Arena, int, List[int], Optional[int]]] = []

    def _add(self, name: str, arena: Arena, place: int, head: int, offsets: Offsets, state: int, szind: int, is_bin: bool) -> int:
        is_heap = offsets.child != api.NO_LINK
        row = api.LinkedList(head, *offsets, arena.index, state, szind, is_bin and is_heap, self._most)
        self._asked.append(Asked(name, arena, place, row, is_bin))
        return len(self._asked) - 1

    def add(self, arena: Arena, view: View) -> None:
        """The lists of one arena. Unreadable if its bins are."""
        states = self._context.geometry.states
        for state in arena_list.states_of(self._context):
            for path in ("pa_shard.pac.ecache_%s.eset" % state, "pa_shard.pac.ecache_%s.guarded_eset" % state, "extents_%s" % state):
                if view.has(path + ".npages"):
                    self._add_set(arena, view, path, state, getattr(states, state))
        large = self._context.types.first("arena_s", *("large." + name for name in FIRST))
        if large is not None and self._links.used is not None:
            place = view.address_of(large)
            self._add("list of large allocations", arena, place, view[large], self._links.used, states.active, api.ANY, False)
        self._add_bins(arena, view)

    def _add_set(self, arena: Arena, view: View, path: str, state: str, number: int) -> None:
        types, target, word = self._context.types, self._context.target, self._context.geometry.word_bytes
        array = types.first("arena_s", path + ".bins", path + ".heaps")
        whole = types.place("arena_s", array) if array is not None else None
        root = types.first("arena_s", *("%s[0].%s" % (array, name) for name in ROOT)) if array is not None else None
        first = types.place("arena_s", root) if root is not None else None
        if self._links.heap is None or whole is None or first is None:
            return
        column = calibrate.words(target, arena.address + whole.offset, whole.count * whole.size_bytes // word)
        step, offset = whole.size_bytes // word, (first.offset - whole.offset) // word
        heads = column[offset::step][: whole.count]
        numbers = [
            self._add(
                "heap of %s extents" % state,
                arena,
                arena.address + first.offset + index * whole.size_bytes,
                head,
                self._links.heap,
                number,
                api.ANY,
                False,
            )
            for index, head in enumerate(heads)
            if head
        ]
        ring = None
        lru = types.first("arena_s", *("%s.lru.%s" % (path, name) for name in FIRST))
        if lru is not None and self._links.unused is not None and state != "pinned":  # no age counts there (eset.c: eset_insert)
            ring = self._add(
                "list of %s extents" % state, arena, view.address_of(lru), view[lru], self._links.unused, number, api.ANY, False
            )
        self._sets.append((arena, path, view[path + ".npages"], numbers, ring))
        self._tell_bitmap(arena, view, path, state, heads)

    def _tell_bitmap(self, arena: Arena, view: View, path: str, state: str, heads: Sequence[int]) -> None:
        """A bit is set where a heap holds something: malloc looks into no other."""
        bitmap = self._context.types.place("arena_s", path + ".bitmap")
        if bitmap is None:
            return
        bits, width = view.numbers(path + ".bitmap"), 8 * bitmap.size_bytes
        for index, head in enumerate(heads):
            if index // width < len(bits) and bool(head) != bool(bits[index // width] >> index % width & 1):
                what = "arena %d: heap %d of %s extents is %s, but its bit says otherwise" % (
                    arena.index,
                    index,
                    state,
                    "not empty" if head else "empty",
                )
                self._found.add(codes.HEAP_BITMAP, view.address_of(path + ".bitmap") + index // 8, what, arena.index)

    def _add_bins(self, arena: Arena, view: View) -> None:
        context, active = self._context, self._context.geometry.states.active
        struct = calibrate.bin_struct(context.types)
        heap = context.types.first(struct, *("slabs_nonfull." + name for name in ROOT))
        full = context.types.first(struct, *("slabs_full." + name for name in FIRST))
        size = context.types.size_bytes(struct)
        for szind, shards in enumerate(
            calibrate.bin_addresses(context.target, context.symbols, context.types, context.geometry.bins, view)
        ):
            numbers, counted = [], 0
            has_count = context.types.place(struct, "stats.nonfull_slabs") is not None
            for shard in shards:
                own = View(context.types, struct, shard, context.target.read(shard, size), context.geometry.little_endian)
                counted += own["stats.nonfull_slabs"] if has_count else 0
                if heap is not None and self._links.heap is not None:
                    name, place = "heap of slabs of bin %d" % szind, own.address_of(heap)
                    numbers.append(self._add(name, arena, place, own[heap], self._links.heap, active, szind, True))
                if full is not None and self._links.used is not None:
                    name, place = "list of full slabs of bin %d" % szind, own.address_of(full)
                    self._add(name, arena, place, own[full], self._links.used, active, szind, True)
            if has_count:
                self._bins.append((arena, szind, numbers, counted))

    def tell(self, has_stats: bool) -> None:
        """Follows them all, and says what does not hold."""
        told = extents.walker(self._context).follow([asked.row for asked in self._asked])
        for asked, seen in zip(self._asked, told):
            if seen.problem:
                is_ring = asked.row.child_offset == api.NO_LINK
                is_alien = seen.problem in (api.LINKED_ALIEN, api.LINKED_FULL)
                code = (
                    (codes.RING_MEMBER if is_alien else codes.RING_LINKS)
                    if is_ring
                    else (codes.HEAP_MEMBER if is_alien else codes.HEAP_LINKS)
                )
                where = seen.before or asked.place
                what = "arena %d: the %s %s" % (asked.arena.index, asked.name, WORDS[seen.problem] % where)
                self._found.add(code, seen.at, what, asked.arena.index)
        if len(told) == len(self._asked):
            self._tell_sums(told, has_stats)

    def _tell_sums(self, told: Sequence[api.Linked], has_stats: bool) -> None:
        page = self._context.geometry.page_bytes
        for arena, path, npages, numbers, ring in self._sets:
            if any(told[number].problem for number in numbers):
                continue
            there, name = sum(told[number].bytes for number in numbers) // page, path.split(".", 2)[-1]
            if there != npages:
                what = "arena %d: %s counts %s, its heaps have %d" % (arena.index, name, plural(npages, "page"), there)
                self._found.add(codes.HEAP_PAGES, arena.address + self._offset(path + ".npages"), what, arena.index)
            members = sum(told[number].members for number in numbers)
            if ring is not None and not told[ring].problem and told[ring].members != members:
                what = "arena %d: the list of %s has %d extents, its heaps have %d" % (arena.index, name, told[ring].members, members)
                self._found.add(codes.RING_MISCOUNTS, self._asked[ring].place, what, arena.index)
        for arena, szind, numbers, counted in self._bins if has_stats else ():
            there = sum(told[number].members for number in numbers)
            if numbers and not any(told[number].problem for number in numbers) and there != counted:
                what = "bin %d of arena %d counts %d slabs with a free region, its heap has %d" % (szind, arena.index, counted or 0, there)
                self._found.add(codes.BIN_NONFULL, self._asked[numbers[0]].place, what, arena.index)

    def _offset(self, path: str) -> int:
        place = self._context.types.place("arena_s", path)
        return place.offset if place is not None else 0


def tell_links(context: Context, findings: Findings, arenas: Sequence[Arena], most: int, has_stats: bool) -> Dict[int, Unreadable]:
    """Every list of every arena; by index the arenas that could not be read whole."""
    lists, failed = Lists(context, findings, most), {}
    for arena in arenas:
        if context.budget.expired():
            break
        try:
            lists.add(arena, arena.read())
        except Unreadable as problem:
            failed[arena.index] = problem
    lists.tell(has_stats)
    return failed
