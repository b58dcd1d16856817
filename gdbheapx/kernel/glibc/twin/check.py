"""The checks of single chunks in Python: what check.c does, without its fast loop."""

from bisect import bisect_left
from typing import List, Sequence

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.glibc import check_records as api
from gdbheapx.kernel.glibc.records import STATUS_FREE, STATUS_TCACHE_STRUCT, STATUS_USED, Geometry, Region
from gdbheapx.kernel.glibc.twin.step import FLAGS, NON_MAIN, PREV_INUSE, Chunk, Cursor, Window

CHUNKS_BETWEEN_CLOCKS = 4096


class Checker:
    """One pass over all regions."""

    def __init__(self, reader: Reader, geometry: Geometry, cached_chunks: Sequence[int], members: Sequence[int]) -> None:
        self._reader, self._geometry, self._cached_chunks, self._members = reader, geometry, cached_chunks, members
        self._rows: List[api.Broken] = []
        self._counts = [0] * api.BROKEN_RULES
        self._member = self._astray = self._flags = 0
        self._before = STATUS_USED

    def check(self, regions: Sequence[api.Checked], budget: Budget) -> api.BrokenChunks:
        """See ChunkWalker."""
        try:
            for region, flags in regions:
                if budget.expired() or not self._check_region(region, flags, budget):
                    break
        except KeyboardInterrupt:
            budget.interrupt()
        return api.BrokenChunks(tuple(self._rows), tuple(self._counts))

    def _check_region(self, region: Region, flags: int, budget: Budget) -> bool:
        window = Window(self._reader, self._geometry, region.begin, region.end)
        cursor = Cursor(self._geometry, region, self._cached_chunks, window)
        self._flags, self._before = flags, STATUS_USED
        self._member = bisect_left(self._members, region.begin)
        self._astray, self._last = bisect_left(self._cached_chunks, region.begin), bisect_left(self._cached_chunks, region.end)
        steps = 0
        while self._step(cursor):
            steps += 1
            if steps % CHUNKS_BETWEEN_CLOCKS == 0 and budget.expired():
                return False
        return True

    def _step(self, cursor: Cursor) -> bool:
        previous, met = cursor.previous, cursor.specials_met
        stop, chunk = cursor.step()
        first = cursor.follows(stop)
        if stop is None:
            self._judge(chunk, cursor.specials_met != met)
            self._before = chunk.status
            self._pass_astray(cursor, chunk)
            return True
        if first is not None:
            cursor.enter(first)
            self._before = STATUS_USED
            return True
        self._tell(api.BROKEN_STOP, cursor.at, stop, previous)
        return False

    def _tell(self, rule: int, address: int, value: int, previous: int) -> None:
        self._counts[rule] += 1
        if self._counts[rule] <= api.MOST_ROWS or rule == api.BROKEN_STOP:
            self._rows.append(api.Broken(rule, address, value, previous, self._before))

    def _next_member(self) -> int:
        return self._members[self._member] if self._member < len(self._members) else ADDRESS_MASK

    def _pass_astray(self, cursor: Cursor, chunk: Chunk) -> None:
        while self._astray < self._last and self._cached_chunks[self._astray] & ~FLAGS < cursor.at:
            place = self._cached_chunks[self._astray] & ~FLAGS
            if place > chunk.address:
                self._tell(api.BROKEN_LISTED_ASTRAY, place, 0, chunk.address)
            self._astray += 1
        while self._next_member() < cursor.at:
            self._tell(api.BROKEN_BINNED_ASTRAY, self._next_member(), 0, chunk.address)
            self._member += 1

    def _judge(self, chunk: Chunk, is_listed: bool) -> None:
        at, field, before = chunk.address, chunk.field, chunk.previous
        is_member = self._next_member() == at
        self._member += is_member
        if not field & PREV_INUSE and not before and self._flags & api.REGION_FIRST:
            self._tell(api.BROKEN_FIRST, at, field, before)
        if chunk.status != STATUS_FREE:
            if is_member:
                self._tell(api.BROKEN_BINNED_USED, at, field, before)
            if chunk.status <= STATUS_TCACHE_STRUCT and bool(field & NON_MAIN) == bool(self._flags & api.REGION_MAIN):
                self._tell(api.BROKEN_NON_MAIN, at, field, before)
            return
        if chunk.repeated_size != chunk.size:
            self._tell(api.BROKEN_PREV_SIZE, at, chunk.repeated_size, before)
        if not field & PREV_INUSE and before:
            self._tell(api.BROKEN_FREE_NEIGHBOURS, at, before, before)
        if field & NON_MAIN:
            self._tell(api.BROKEN_FREE_FLAGS, at, field, before)
        if is_listed:
            self._tell(api.BROKEN_LISTED_FREE, at, chunk.size, before)
        elif not is_member and self._flags & api.REGION_BINS_KNOWN:
            self._tell(api.BROKEN_NOT_BINNED, at, chunk.size, before)
