"""The checks of single chunks and of members in Python: what check.c does, without its fast loop, and what members.c does."""

from bisect import bisect_left
from typing import List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.records import ADDRESS_MASK
from gdbheapx.kernel.common.twin.source import END, Reader
from gdbheapx.kernel.glibc import check as api
from gdbheapx.kernel.glibc.lists import BIN, FAST
from gdbheapx.kernel.glibc.records import STATUS_FREE, STATUS_TCACHE_STRUCT, STATUS_USED, Geometry, Region
from gdbheapx.kernel.glibc.twin.lists import Words
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


STEPS_BETWEEN_CLOCKS = 1024
Firsts = Tuple[int, int, int, int]
"""Of a large bin: the first chunk of all, its bk_nextsize, the first of the size at hand, its fd_nextsize."""


class Members:
    """One pass over all lists."""

    def __init__(self, reader: Reader, geometry: Geometry, mangled: bool) -> None:
        self._words, self._word, self._mangled = Words(reader, geometry), geometry.word_bytes, mangled
        self._mask = (1 << 8 * geometry.word_bytes) - 1
        self._rows: List[api.Broken] = []
        self._counts = [0] * api.MEMBER_RULES
        self._number = self._steps = self._binned = self._binned_sum = 0

    def check(self, lists: Sequence[api.MemberList], budget: Budget) -> api.BrokenMembers:
        """See ChunkWalker."""
        try:
            for self._number, one in enumerate(lists):
                if one.kind == BIN:
                    self._bin(one, budget)
                else:
                    self._single(one, budget)
        except KeyboardInterrupt:
            budget.interrupt()
        return api.BrokenMembers(tuple(self._rows), tuple(self._counts), self._binned, self._binned_sum & END)

    def _late(self, budget: Budget) -> bool:
        self._steps += 1
        return self._steps % STEPS_BETWEEN_CLOCKS == 1 and budget.expired()

    def _tell(self, rule: int, chunk: int, value: int) -> None:
        self._counts[rule] += 1
        if self._counts[rule] <= api.MOST_ROWS:
            self._rows.append(api.Broken(rule, chunk, value, self._number, 0))

    def _check_size(self, one: api.MemberList, chunk: int, size: int) -> None:
        if not one.min_size <= size <= one.max_size:
            self._tell(api.MEMBER_SIZE, chunk, size)

    def _single(self, one: api.MemberList, budget: Budget) -> None:
        entry, left, word = one.head, one.count, self._word
        while left and entry and not self._late(budget):
            chunk = entry if one.kind == FAST else (entry - 2 * word) & self._mask
            words = self._words.at((chunk + word) & self._mask, 3)
            if words is None:
                return
            self._check_size(one, chunk, words[0] & ~FLAGS)
            if one.key and words[2] != one.key:
                self._tell(api.MEMBER_KEY, chunk, words[2])
            field = (chunk + 2 * word) & self._mask
            entry = (words[1] ^ field >> 12 if self._mangled else words[1]) & self._mask
            left -= 1

    def _bin(self, one: api.MemberList, budget: Budget) -> None:
        head = self._words.at(one.head + 2 * self._word, 1)
        if head is None:
            self._tell(api.MEMBER_LINK, one.head, 0)
            return
        entry, left, size, before = head[0], one.count, 0, one.head
        firsts: Optional[Firsts] = None
        while entry != one.head:
            if self._late(budget):
                return
            words = self._words.at(entry, 6 if one.is_sorted else 4) if left else None
            if words is None or words[3] != before:
                self._tell(api.MEMBER_LINK, entry, before)
                return
            self._check_size(one, entry, words[1] & ~FLAGS)
            if one.is_sorted:
                firsts = self._order(firsts, entry, words[1] & ~FLAGS, size, words)
            self._binned += 1
            self._binned_sum += entry
            size, before, entry, left = words[1] & ~FLAGS, entry, words[2], left - 1
        self._close(one, before, firsts)

    def _close(self, one: api.MemberList, before: int, firsts: Optional[Firsts]) -> None:
        """The bin is back at its header."""
        back = self._words.at(one.head + 3 * self._word, 1)
        if back is None or back[0] != before:
            self._tell(api.MEMBER_LINK, one.head, back[0] if back else 0)
        elif firsts is not None and (firsts[3] != firsts[0] or firsts[1] != firsts[2]):
            self._tell(api.MEMBER_NEXTSIZE, firsts[0], firsts[2])

    def _order(self, firsts: Optional[Firsts], chunk: int, size: int, before: int, words: Sequence[int]) -> Firsts:
        if firsts is None:
            return chunk, words[5], chunk, words[4]
        if size > before:
            self._tell(api.MEMBER_ORDER, chunk, before)
        if size == before:
            return firsts
        if firsts[3] != chunk or words[5] != firsts[2]:
            self._tell(api.MEMBER_NEXTSIZE, chunk, firsts[2])
        return firsts[0], firsts[1], chunk, words[4]
