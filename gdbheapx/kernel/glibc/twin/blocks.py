"""Every chunk of a glibc heap as a stream of blocks, in Python: what listing.c does."""

from array import array
from typing import List, Sequence, Tuple

from gdbheapx.kernel.blocks.records import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RESERVE, CLASS_USED, BlockFilter, Blocks
from gdbheapx.kernel.blocks.twin import Rows, Source
from gdbheapx.kernel.common.records import ADDRESS_MASK, STOP_END, STOP_TOP
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.glibc.records import (
    STATUS_FAST,
    STATUS_FENCE,
    STATUS_FREE,
    STATUS_TCACHE,
    STATUS_TCACHE_STRUCT,
    STATUS_TOP,
    STATUS_USED,
    Geometry,
    Region,
)
from gdbheapx.kernel.glibc.twin.step import Cursor, Window

CLASS_OF = {
    STATUS_USED: CLASS_USED,
    STATUS_FAST: CLASS_CACHED,
    STATUS_TCACHE: CLASS_CACHED,
    STATUS_TCACHE_STRUCT: CLASS_OVERHEAD,
    STATUS_FREE: CLASS_FREE,
    STATUS_TOP: CLASS_RESERVE,
    STATUS_FENCE: CLASS_OVERHEAD,
}

CLASSES = bytes(CLASS_OF.get(status, 0) for status in range(256))


class Lane:
    """A region that is open."""

    def __init__(self, cursor: Cursor, arena: int) -> None:
        self.cursor, self.arena = cursor, arena
        self.address = self.size = self.status = self.stop = 0
        self.ready = self.ended = False
        """Ready: address, size and status are the next wanted chunk's."""

    @property
    def at(self) -> int:
        """Where it goes on."""
        return self.address if self.ready else self.cursor.at


class Listing(Source):
    """Regions by their addresses; more than one is open where they overlap: behind damage a further one begins, and the damaged one keeps
    its end."""

    def __init__(
        self, reader: Reader, geometry: Geometry, regions: Sequence[Tuple[Region, int]], cached_chunks: Sequence[int], wanted: BlockFilter
    ) -> None:
        self.lead = 2 * geometry.word_bytes
        self.stop = STOP_END
        self._reader, self._geometry, self._cached_chunks, self._wanted = reader, geometry, cached_chunks, wanted
        self._regions = list(regions)
        """Those not yet opened."""
        self._lanes: List[Lane] = []
        self._last = 0
        self._kinds = frozenset(CLASS_OF) if wanted.kinds is None else frozenset(wanted.kinds)
        self._least, self._most, self._first = (
            wanted.min_size,
            ADDRESS_MASK if wanted.max_size is None else wanted.max_size,
            wanted.start - self.lead,
        )

    @property
    def ended(self) -> bool:
        """See Source."""
        return not self._lanes and not self._regions

    @property
    def at(self) -> int:
        """See Source."""
        if self.ended:
            return self._last
        return max(min([lane.at for lane in self._lanes] + [region.begin for region, _ in self._regions[:1]]), self._wanted.start)

    def fill(self, rows: Rows) -> None:
        """See Source."""
        while rows.left > 0:
            self._settle()
            if not self._lanes:
                return
            lane = min(self._lanes, key=lambda lane: lane.address)
            limits = [other.address for other in self._lanes if other is not lane] + [region.begin for region, _ in self._regions[:1]]
            limit = min(limits, default=1 << 64)
            self._run(lane, limit, rows)

    def _run(self, lane: Lane, limit: int, rows: Rows) -> None:
        """The lane's chunks as long as they are the lowest; what is not a usual chunk is left to _step."""
        step, kinds, least, most = lane.cursor.step, self._kinds, self._least, self._most
        address, size, status, left = lane.address, lane.size, lane.status, rows.left
        found: List[Tuple[int, int, int]] = []
        try:
            while True:
                found.append((address, size, status))
                lane.ready = False
                if len(found) == left:
                    return
                while True:
                    stop, chunk = step()
                    if stop is not None:
                        return
                    address, _, size, _, _, _, _, status = chunk
                    if status in kinds and least <= size <= most and address >= self._first:
                        break
                if address >= limit:
                    lane.address, lane.size, lane.status, lane.ready = address, size, status, True
                    return
        finally:
            rows.extend(self._blocks(found, lane.arena))

    def _blocks(self, found: Sequence[Tuple[int, int, int]], arena: int) -> Blocks:
        addresses, sizes, statuses = (array(letter, column) for letter, column in zip("QQB", zip(*found)))
        lead, overhead = self.lead, self._geometry.overhead_bytes
        usable, classes = array("Q", [size - overhead for size in sizes]), array("B", statuses.tobytes().translate(CLASSES))
        return Blocks(array("Q", [address + lead for address in addresses]), usable, classes, statuses, array("I", [arena]) * len(found))

    def _settle(self) -> None:
        """All lanes at a chunk that is wanted, and none left closed that begins before one of them."""
        while True:
            for lane in list(self._lanes):
                if not self._step(lane):
                    self._lanes.remove(lane)
                    self.stop, self._last = lane.stop, lane.cursor.at
            if not self._regions or (self._lanes and self._regions[0][0].begin > min(lane.address for lane in self._lanes)):
                return
            region, arena = self._regions.pop(0)
            if region.end > self._wanted.start:
                cursor = Cursor(self._geometry, region, self._cached_chunks, Window(self._reader, self._geometry, region.begin, region.end))
                self._lanes.append(Lane(cursor, arena))

    def _step(self, lane: Lane) -> bool:
        """Goes on to the lane's next wanted chunk; False if there is none."""
        cursor = lane.cursor
        while not lane.ready:
            if lane.ended:
                return False
            stop, chunk = cursor.step()
            if stop is None:
                address, size, status = chunk.address, chunk.size, chunk.status
            else:
                address, size, status = cursor.at, cursor.size, STATUS_TOP
                first = cursor.follows(stop)
                lane.ended, lane.stop = first is None, stop
                if first is not None:
                    cursor.enter(first)
                if stop != STOP_TOP or not size:  # a top of no bytes is damage, and no block
                    continue
            if status in self._kinds and self._least <= size <= self._most and address >= self._first:
                lane.address, lane.size, lane.status, lane.ready = address, size, status, True
        return True
