"""What a walk over jemalloc's extents counts, and its blocks one by one, in Python: what extent_totals.c and blocks.c do."""

from typing import Dict, FrozenSet, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel import extents_api as api
from gdbheapx.kernel.api import STOP_END, STOP_TIME, Residency, histogram_class
from gdbheapx.kernel.base import ADDRESS_MASK
from gdbheapx.kernel.batches import ListingEnd
from gdbheapx.kernel.extents_base import BlockListing, BlockRow
from gdbheapx.kernel.pagemap import Pages
from gdbheapx.kernel.twin_extents import Extent, Extents

ACTIVE, DIRTY, MUZZY, RETAINED, OTHER = range(5)
ROWS_AT_ONCE = 4096
REGIONS = frozenset((api.BLOCK_USED, api.BLOCK_CACHED, api.BLOCK_FREE))


class Arena:
    """The counters of one arena."""

    def __init__(self) -> None:
        self.states = [[0] * (2 + len(Residency._fields)) for _ in range(5)]
        self.bins: Dict[int, List[int]] = {}
        self.larges: Dict[int, List[int]] = {}
        self.rows: Dict[int, List[int]] = {}

    def answer(self, index: int, has_pages: bool) -> api.ArenaExtents:
        """As a record."""
        states = [api.StateTotals(row[0], row[1], Residency(*row[2:]) if has_pages else None) for row in self.states]
        bins = tuple(api.BinTotals(szind, *row) for szind, row in sorted(self.bins.items()))
        larges = tuple(api.LargeTotals(szind, *row) for szind, row in sorted(self.larges.items()))
        rows = tuple((place, row[0], row[1], row[2], row[3], row[4], row[5]) for place, row in sorted(self.rows.items()))
        return api.ArenaExtents(index, states[0], states[1], states[2], states[3], states[4], bins, larges, rows)


def place_of(extents: Extents, state: int) -> int:
    """ACTIVE to OTHER for a number of extent_state_t."""
    layout = extents.layout
    for place, known in enumerate((layout.active, layout.dirty, layout.muzzy, layout.retained)):
        if state == known:
            return place
    return OTHER


class Totals:
    """One walk."""

    def __init__(self, extents: Extents, page_bytes: int, cached: Sequence[int], pages: Optional[Pages]) -> None:
        self._extents, self._page_bytes, self._cached, self._pages = extents, page_bytes, cached, pages
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
            tuple(arena.answer(index, self._pages is not None) for index, arena in sorted(self._arenas.items())),
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
        if place != ACTIVE:
            self._count_inactive(arena, place, extent)
        elif extent.slab:
            self._count_slab(arena.bins.setdefault(extent.szind, [0, 0, 0, 0]), extent)
        else:
            self._count_large(arena.larges.setdefault(extent.szind, [0, 0, 0, 0]), extent)

    def _count_inactive(self, arena: Arena, place: int, extent: Extent) -> None:
        size = extent.end - extent.begin
        if place != OTHER:
            row = arena.rows.setdefault(histogram_class(size, self._page_bytes), [0] * 6)
            row[2 * (place - DIRTY)] += 1
            row[2 * (place - DIRTY) + 1] += size
        self._judge_outside(extent.end)

    def _count_slab(self, row: List[int], extent: Extent) -> None:
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

    def _count_large(self, row: List[int], extent: Extent) -> None:
        size = extent.end - extent.begin
        row[0] += 1
        row[1] += size
        for address in self._cached_below(extent.end):
            if address != extent.address:
                self._misplace(address, api.CACHED_NOT_START)
            else:
                row[2] += 1
                row[3] += size


class Blocks(BlockListing):
    """A listing."""

    def __init__(
        self,
        extents: Extents,
        heap: api.HeapLayout,
        cached: Sequence[int],
        budget: Budget,
        arena: Optional[int],
        statuses: FrozenSet[int],
        bounds: Tuple[int, int],
    ) -> None:
        super().__init__(budget)
        self._extents, self._size_classes, self._cached, self._sizes = extents, heap.size_classes, frozenset(cached), heap.sizes
        self._arena, self._statuses, self._bounds = arena, statuses, bounds

    def _at(self) -> int:
        return self._extents.at

    def _batch(self) -> List[BlockRow]:
        rows: List[BlockRow] = []
        while len(rows) < ROWS_AT_ONCE:
            extent = self._extents.next()
            if extent is None:
                if self._extents.ended:
                    self._end = ListingEnd(STOP_END, self._extents.at)
                break
            if self._arena is None or self._arena == extent.arena:
                rows += self._blocks_of(extent)
        return rows

    def _blocks_of(self, extent: Extent) -> List[BlockRow]:
        place = place_of(self._extents, extent.state)
        if place != ACTIVE:
            status = (api.BLOCK_DIRTY, api.BLOCK_MUZZY, api.BLOCK_RETAINED, api.BLOCK_OTHER)[place - DIRTY]
            return self._wanted(extent, extent.begin, extent.end - extent.begin, status)
        if extent.slab:
            return self._regions_of(extent)
        status = api.BLOCK_CACHED if extent.address in self._cached else api.BLOCK_USED
        return self._wanted(extent, extent.address, self._large_size(extent), status)

    def _wanted(self, extent: Extent, address: int, size: int, status: int) -> List[BlockRow]:
        if status not in self._statuses or not self._bounds[0] <= size <= self._bounds[1]:
            return []
        return [(address, size, status, extent.arena)]

    def _large_size(self, extent: Extent) -> int:
        size = extent.end - extent.begin
        if not self._sizes.from_extent or extent.szind < len(self._extents.bins):
            return self._size_classes[extent.szind]
        return size - self._sizes.large_pad_bytes if size > self._sizes.large_pad_bytes else size

    def _regions_of(self, extent: Extent) -> List[BlockRow]:
        shape = self._extents.bins[extent.szind]
        size = shape.reg_size_bytes
        if not self._statuses & REGIONS or not self._bounds[0] <= size <= self._bounds[1]:
            return []
        rows: List[BlockRow] = []
        for region in range(shape.nregs):
            address = extent.begin + region * size
            if extent.free >> region & 1:
                status = api.BLOCK_FREE
            else:
                status = api.BLOCK_CACHED if address in self._cached else api.BLOCK_USED
            if status in self._statuses:
                rows.append((address, size, status, extent.arena))
        return rows
