"""What a walk over jemalloc's extents counts, in Python: what extent_totals.c does."""

import os
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.records import ADDRESS_MASK, STOP_END, STOP_TIME, Residency, histogram_class
from gdbheapx.kernel.common.twin.pagemap import RESIDENT_KIND, SWAPPED_KIND, UNSURE_KIND, Pages
from gdbheapx.kernel.jemalloc import records as api
from gdbheapx.kernel.jemalloc.twin.extents import Extent, Extents

ACTIVE, DIRTY, MUZZY, RETAINED, PINNED, OTHER = range(api.STATES)
IN_MEMORY = RESIDENT_KIND | UNSURE_KIND | SWAPPED_KIND


class Arena:
    """The counters of one arena."""

    def __init__(self) -> None:
        self.states = [[0] * (2 + len(Residency._fields)) for _ in range(api.STATES)]
        self.bins: Dict[int, List[int]] = {}
        self.larges: Dict[int, List[int]] = {}
        self.rows: Dict[int, List[int]] = {}
        self.absent = dict.fromkeys(api.AbsentTotals._fields, 0)

    def answer(self, index: int, has_pages: bool, has_runs: bool) -> api.ArenaExtents:
        """As a record."""
        states = [api.StateTotals(row[0], row[1], Residency(*row[2:]) if has_pages else None) for row in self.states]
        bins = tuple(api.BinTotals(szind, *row) for szind, row in sorted(self.bins.items()))
        larges = tuple(api.LargeTotals(szind, *row) for szind, row in sorted(self.larges.items()))
        rows = tuple((place, *row) for place, row in sorted(self.rows.items()))
        absent = api.AbsentTotals(**self.absent) if has_pages or has_runs else None
        return api.ArenaExtents._make([index, *states, bins, larges, rows, absent])


def place_of(extents: Extents, state: int) -> int:
    """ACTIVE to OTHER for a number of extent_state_t."""
    layout = extents.layout
    for place, known in enumerate((layout.active, layout.dirty, layout.muzzy, layout.retained, layout.pinned)):
        if state == known:
            return place
    return OTHER


def large_size(heap: api.HeapLayout, extent: Extent) -> int:
    """Usable bytes of the only block of an active extent."""
    size, pad = extent.end - extent.begin, heap.sizes.large_pad_bytes
    if not heap.sizes.from_extent or extent.szind < len(heap.bins):
        return heap.size_classes[extent.szind]
    return size - pad if size > pad else size


class Totals:
    """One walk."""

    def __init__(
        self, extents: Extents, heap: api.HeapLayout, cached: Sequence[int], pages: Optional[Pages], runs: Optional[Sequence[int]]
    ) -> None:
        self._extents, self._page_bytes, self._cached, self._pages = extents, 1 << heap.rtree.lg_page, cached, pages
        self._heap, self._runs = heap, runs
        self._next_cached = self._counted = 0
        self._reasons = [0] * api.CACHED_REASONS
        self._misplaced: List[api.CachedProblem] = []
        self._arenas: Dict[int, Arena] = {}
        self._ranges: List[Tuple[int, int]] = []

    def walk(self, budget: Budget) -> api.ExtentsResult:
        """Walks. Ctrl-C may come between the statements for one extent: a partial answer can then be off by that extent."""
        try:
            while not budget.expired():
                extent = self._extents.next()
                if extent is not None:
                    self._count(extent)
                elif self._extents.ended:
                    self._judge_outside(ADDRESS_MASK)
                    return self._result(STOP_END)
        except KeyboardInterrupt:
            budget.interrupt()
        return self._result(STOP_TIME)

    def _result(self, stop: int) -> api.ExtentsResult:
        extents = self._extents
        tree, problems = extents.tree, extents.problems
        return api.ExtentsResult(
            stop,
            extents.at,
            tuple(arena.answer(index, self._pages is not None, self._runs is not None) for index, arena in sorted(self._arenas.items())),
            tuple(self._ranges),
            tree.nodes,
            tree.leaf_nodes,
            self._counted,
            extents.unassociated,
            extents.unparsed_bytes,
            tree.unreadable_bytes,
            tuple(problems.rows),
            tuple(problems.counts),
            tuple(self._misplaced),
            tuple(self._reasons),
            tuple(extents.details.rows),
            tuple(extents.details.counts),
        )

    def _misplace(self, address: int, reason: int) -> None:
        self._reasons[reason] += 1
        if len(self._misplaced) < api.MOST_PROBLEMS:
            self._misplaced.append(api.CachedProblem(address, reason))

    def _cached_below(self, end: int) -> Iterator[int]:
        """The next cached pointers below `end`; one that was given before is counted and passed over."""
        cached = self._cached
        while self._next_cached < len(cached) and cached[self._next_cached] < end:
            place = self._next_cached
            self._next_cached += 1
            if place and cached[place - 1] == cached[place]:
                self._misplace(cached[place], api.CACHED_TWICE)
            else:
                yield cached[place]

    def _judge_outside(self, end: int) -> None:
        """Those below `end` lie in no active extent."""
        for address in self._cached_below(end):
            self._misplace(address, api.CACHED_UNKNOWN if address in self._extents.unknown else api.CACHED_OUTSIDE)

    def _join(self, begin: int, end: int) -> None:
        ranges = self._ranges
        if ranges and (ranges[-1][1] == begin or len(ranges) == api.MOST_RANGES):
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((begin, end))

    def _count(self, extent: Extent) -> None:
        arena = self._arenas.get(extent.arena)
        if arena is None:
            arena = self._arenas[extent.arena] = Arena()
        place = place_of(self._extents, extent.state)
        self._counted += 1
        self._join(extent.begin, extent.end)
        arena.states[place][0] += 1
        arena.states[place][1] += extent.end - extent.begin
        for number, found in enumerate(self._pages.residency(extent.begin, extent.end) if self._pages else ()):
            arena.states[place][2 + number] += found
        self._judge_outside(extent.begin)
        unknown = self._extents.unknown
        if unknown.begin < extent.end:  # what is known now
            unknown.begin = min(unknown.end, extent.end)
        absent = self._absent(extent.begin, extent.end)
        if place != ACTIVE:
            arena.absent[api.AbsentTotals._fields[4 + place]] += absent
            self._count_inactive(arena, place, extent)
            return
        if absent:
            self._charge(arena.absent, extent, absent)
        if extent.slab:
            self._count_slab(arena.bins.setdefault(extent.szind, [0, 0, 0, 0]), extent, arena.absent)
        else:
            self._count_large(arena.larges.setdefault(extent.szind, [0, 0, 0, 0]), extent, arena.absent)

    def _absent(self, begin: int, end: int) -> int:
        """Bytes of a range that are neither in RAM nor in swap, or not in the core."""
        if self._runs is not None:
            runs = zip(self._runs[::2], self._runs[1::2])
            return end - begin - sum(max(0, min(end, last) - max(begin, first)) for first, last in runs)
        if self._pages is None or begin >= end:
            return 0
        page = os.sysconf("SC_PAGESIZE")
        first, there = begin // page * page, self._pages.kinds(begin // page * page, -(-end // page) * page)
        edges = [(max(begin, first + page * place), min(end, first + page * (place + 1))) for place in range(-(-(end - first) // page))]
        return sum(last - start for (start, last), kind in zip(edges, there) if not kind & IN_MEMORY)

    def _charge(self, sums: Dict[str, int], extent: Extent, absent: int) -> None:
        """What of an active extent is not in memory, by block; those in thread caches count as used here."""
        if extent.slab:
            shape = self._extents.bins[extent.szind]
            starts = [extent.begin + region * shape.reg_size_bytes for region in range(shape.nregs)]
            parts = [self._absent(start, start + shape.reg_size_bytes) for start in starts]
            for region, part in enumerate(parts):
                sums["free" if extent.free >> region & 1 else "used"] += part
        else:
            end = min(extent.end, extent.address + large_size(self._heap, extent))
            parts = [absent - self._absent(extent.begin, extent.address) - self._absent(end, extent.end)]
            sums["used"] += parts[0]
        sums["rounding" if extent.slab or extent.szind >= len(self._heap.bins) else "sampled"] += absent - sum(parts)

    def _charge_cached(self, sums: Dict[str, int], address: int, size: int) -> None:
        part = self._absent(address, address + size)
        sums["used"] -= part
        sums["cached"] += part

    def _count_inactive(self, arena: Arena, place: int, extent: Extent) -> None:
        size = extent.end - extent.begin
        if place != OTHER:
            row = arena.rows.setdefault(histogram_class(size, self._page_bytes), [0] * api.UNUSED_NUMBERS)
            row[2 * (place - DIRTY)] += 1
            row[2 * (place - DIRTY) + 1] += size
        self._judge_outside(extent.end)

    def _count_slab(self, row: List[int], extent: Extent, absent: Dict[str, int]) -> None:
        shape = self._extents.bins[extent.szind]
        row[0] += 1
        row[1] += shape.nregs - extent.nfree
        row[3] += extent.nfree != 0
        for address in self._cached_below(extent.end):
            region, rest = divmod(address - extent.begin, shape.reg_size_bytes)
            if rest or region >= shape.nregs:
                self._misplace(address, api.CACHED_NOT_START)
            elif extent.free >> region & 1:
                self._misplace(address, api.CACHED_FREE)
            else:
                row[2] += 1
                self._charge_cached(absent, address, shape.reg_size_bytes)

    def _count_large(self, row: List[int], extent: Extent, absent: Dict[str, int]) -> None:
        size = extent.end - extent.begin
        row[0] += 1
        row[1] += size
        for address in self._cached_below(extent.end):
            if address != extent.address:
                self._misplace(address, api.CACHED_NOT_START)
            else:
                row[2] += 1
                row[3] += size
                self._charge_cached(absent, address, min(extent.end - address, large_size(self._heap, extent)))
