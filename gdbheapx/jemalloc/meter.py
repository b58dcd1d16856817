"""Read jemalloc's counters of a running process: the pages of every arena, and what is allocated.

jemalloc changes each counter in one step under a lock of its own. A sum over many of them is of no single moment, and is off by what was
allocated meanwhile. Where a group of counters has not changed since the sample before, neither has its sum."""

from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import Figure, Reading, make_empty_reading
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.jemalloc.arenas import EXTENT_STATES, JemallocContext, find_page_counters
from gdbheapx.jemalloc.layouts import MAX_ARENAS
from gdbheapx.jemalloc.stats import GAP_BYTES
from gdbheapx.layout.view import LayoutView

METER_FIGURES = (
    Figure("arenas", "arenas", "arenas that exist", is_shown=False),
    Figure("allocated_bytes", "allocated", "bytes of allocations, thread caches included", is_shown=False),
    Figure("active_bytes", "active", "bytes of pages with allocations", goes=2),
    Figure("dirty_bytes", "dirty", "bytes of unused pages that were not returned to the OS yet"),
    Figure("muzzy_bytes", "muzzy", "bytes of unused pages that the OS may take at any time", goes=7),
    Figure("retained_bytes", "retained", "bytes of address space that is kept without memory", goes=6),
    Figure("pinned_bytes", "pinned", "bytes of unused pages that extent hooks can never return", is_shown=False),
)
METER_STATES = ("active", *EXTENT_STATES)
WORD = 8


CounterSpan = Tuple[int, int, Sequence[int], Sequence[int]]
"""Counters that lie side by side and are read at once, of large allocations, or of bins: where they begin, and how many bytes they take; of
each its place in words from there, and the bytes of each that it counts, below 0 where it counts what was freed."""


class JemallocMeter:
    """Reader of the counters of one instance."""

    figures = METER_FIGURES

    def __init__(self, context: JemallocContext) -> None:
        self._context = context
        self._large = self._find_large()
        """As if its arena began at 0."""
        self._spans: Dict[int, List[CounterSpan]] = {}
        self._places = {state: self._of_pages(state) for state in METER_STATES}
        """Of the counters of pages, from the start of an arena; none where this build has none."""
        self._arena_bytes = context.types.size_bytes("arena_s")
        self._reach: Dict[int, int] = {}
        """Address -> so many bytes from the arena on hold it and its bins, where these follow it (from 5.3)."""
        self._sums: Dict[Tuple[int, int], Tuple[bytes, int]] = {}
        """The counters of a group as they were last, and their sum."""
        self._checked: Dict[int, int] = {}
        """Address -> index of arenas that were found to be that arena."""
        self._counts = False
        """This build counts what is allocated: seen to do so."""

    def _of_pages(self, state: str) -> List[int]:
        types, word = self._context.types, self._context.geometry.word_bytes
        members = [types.place("arena_s", path) for path in find_page_counters(types, state)]
        offsets = [member.offset for member in members if member is not None and member.size_bytes == word]
        return offsets if len(offsets) == len(members) else []

    @property
    def info(self) -> AllocatorInfo:
        return self._context.jemalloc.info()

    def read(self, walk_seconds: float) -> Reading:
        """The counters now. There is nothing to be estimated."""
        pages: Dict[str, Optional[int]] = dict.fromkeys(METER_STATES, 0)
        allocated: Optional[int] = 0
        arenas, there = self._list_arenas(), ("active", *self._context.list_unused_states())
        if "pinned" not in there and self._context.jemalloc.is_partial:
            pages["pinned"] = None
        word = self._context.geometry.word_bytes
        order = self._context.target.byte_order
        for _, address in arenas:
            data = self._context.target.read_prefix(address, self._reach.get(address, self._arena_bytes))
            if len(data) < self._arena_bytes:
                return make_empty_reading(METER_FIGURES)
            view = LayoutView(self._context.types, "arena_s", address, data, self._context.geometry.little_endian)
            for state, places in self._places.items():
                so_far = pages[state]
                if state not in there:
                    continue
                if not places or so_far is None:
                    pages[state] = None
                else:
                    pages[state] = so_far + sum(int.from_bytes(data[place : place + word], order) for place in places)
            own = self._sum_allocated(view, data) if allocated is not None else None
            allocated = None if own is None or allocated is None else allocated + own
        if not arenas:
            return make_empty_reading(METER_FIGURES)
        if self._context.hides_dirty_pages() is not False:
            pages["dirty"] = None
        self._counts = self._counts or bool(allocated)
        return _make_reading(len(arenas), allocated if self._counts else None, pages, self._context.geometry.page_bytes)

    def _list_arenas(self) -> List[Tuple[int, int]]:
        """(index, address) of every arena that exists by now."""
        context = self._context
        anchor, total = context.symbols.find("arenas"), context.variable("narenas_total", 4)
        count = min(max(context.geometry.narenas, total or 0), MAX_ARENAS)
        word = context.geometry.word_bytes
        data = context.target.read_prefix(anchor.address, count * word) if anchor is not None else b""
        arenas = []
        for index, address in enumerate(context.unpack_pointers(data[: len(data) // word * word])):
            if address and self._checked.get(address) != index:
                own = context.jemalloc.read_own_index(address)
                if own not in (None, index):
                    continue  # it is being made, or what was here is no arena any more
                self._checked[address] = index
            if address:
                arenas.append((index, address))
        if len(self._checked) > len(arenas):  # one was destroyed: what is in its place may be another
            self._checked, self._spans, self._reach, self._sums = {}, {}, {}, {}
        return arenas

    def _sum_allocated(self, arena: LayoutView, data: bytes) -> Optional[int]:
        """Bytes of its allocations, small and large; None where this build has no counters or a thread is changing them. `data`: from the
        arena on, often with its bins."""
        if self._large is None:
            return None
        total, (offset, large_bytes, large_places, large_sizes) = 0, self._large
        try:
            spans = [(arena.address + offset, large_bytes, large_places, large_sizes), *self._find_bins(arena)]
        except (UnreadableMemory, KeyError):
            return None
        for number, (start, size_bytes, places, sizes) in enumerate(spans):
            begin = start - arena.address
            here = data[begin : begin + size_bytes] if 0 <= begin <= len(data) - size_bytes else None
            if here is None:
                here = self._context.target.read_prefix(start, size_bytes)
            if len(here) < size_bytes:
                return None
            known = self._sums.get((arena.address, number))
            if known is None or known[0] != here:
                words = self._context.unpack_pointers(here)
                known = here, sum(words[place] * size for place, size in zip(places, sizes))
                self._sums[arena.address, number] = known
            if not 0 <= known[1] < 1 << 62:
                return None
            total += known[1]
        return total

    def _find_large(self) -> Optional[CounterSpan]:
        """Counters of large allocations: of bytes, from 5.3.1 on, else of blocks of each class; None in a build without statistics."""
        types, geometry = self._context.types, self._context.geometry
        table = types.place("arena_s", "stats.lstats")
        if table is None or table.struct is None or geometry.word_bytes != WORD or table.size_bytes % WORD:
            return None
        sizes = geometry.size_classes[geometry.nbins :][: table.count]
        active = types.place(table.struct, "active_bytes")
        counters = [types.place(table.struct, name) for name in ("nmalloc", "ndalloc")] if active is None else [active]
        offsets = [counter.offset for counter in counters if counter is not None and counter.size_bytes == WORD]
        if len(offsets) < len(counters) or (active is None and geometry.size_from_extent):
            return None
        places = [(at + offset) // WORD for offset in offsets for at in range(0, table.size_bytes * len(sizes), table.size_bytes)]
        each_bytes = [*sizes, *(-size for size in sizes)] if active is None else [1] * len(sizes)
        return table.offset, table.size_bytes * len(sizes), places, each_bytes

    def _find_bins(self, arena: LayoutView) -> List[CounterSpan]:
        """Find the counters of regions in the arena's bins, which never move."""
        if arena.address not in self._spans:
            context = self._context
            struct = context.jemalloc.bin_struct
            counter, size = context.types.place(struct, "stats.curregs"), context.types.size_bytes(struct)
            if counter is None or counter.size_bytes != WORD or counter.offset % WORD:
                raise KeyError(struct)
            addresses = context.jemalloc.find_bin_addresses(arena)
            pairs = [(address, info.reg_size_bytes) for shards, info in zip(addresses, context.geometry.bins) for address in shards]
            spans = self._spans[arena.address] = _merge_spans(sorted(pairs), size, counter.offset)
            ends = [start + size_bytes - arena.address for start, size_bytes, _, _ in spans]
            self._reach[arena.address] = max([self._arena_bytes, *(end for end in ends if 0 < end <= self._arena_bytes + GAP_BYTES)])
        return self._spans[arena.address]


def _merge_spans(bins: Sequence[Tuple[int, int]], size_bytes: int, offset: int) -> List[CounterSpan]:
    """Sorted (address, bytes of a region) of bins, those together that lie close to each other."""
    spans: List[CounterSpan] = []
    at = 0
    while at < len(bins):
        end = at
        while end + 1 < len(bins) and bins[end + 1][0] - bins[end][0] <= GAP_BYTES:
            end += 1
        start = bins[at][0]
        here = bins[at : end + 1]
        places = [(address - start + offset) // WORD for address, _ in here]
        spans.append((start, bins[end][0] - start + size_bytes, places, [region for _, region in here]))
        at = end + 1
    return spans


def _make_reading(arenas: Optional[int], allocated: Optional[int], pages: Mapping[str, Optional[int]], page_bytes: int) -> Reading:
    """`pages`: counted in `page_bytes`."""
    sizes = [None if (count := pages[state]) is None else count * page_bytes for state in METER_STATES]
    active, dirty, muzzy, _, pinned = sizes
    if allocated is not None and active is not None and allocated > active:
        allocated = None  # counted at different moments
    unused = None if dirty is None or muzzy is None else dirty + muzzy
    own = None if unused is None else unused + (pinned or 0)  # unknown only where no layout is
    held = None if active is None or own is None else active + own
    kept = own if held is None or allocated is None else held - allocated
    return Reading((arenas, allocated, *sizes), held, allocated, kept, unused)


def read_exactly(totals: Mapping[str, Optional[int]]) -> Reading:
    """Make the meter's figures from a walk of a stopped process; blocks in thread caches count as kept."""
    reading = _make_reading(
        totals.get("arenas"), totals.get("allocated_bytes"), {state: totals.get(state + "_bytes") for state in METER_STATES}, 1
    )
    used, held = totals.get("used_bytes"), reading.held_bytes
    return reading._replace(used_bytes=used, kept_bytes=reading.kept_bytes if used is None or held is None else held - used)
