"""The members of lists that are known to end, in Python: what members.c does."""

from typing import List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.twin.source import END, Reader
from gdbheapx.kernel.glibc import check_records as api
from gdbheapx.kernel.glibc.list_records import BIN, FAST
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.kernel.glibc.twin.lists import Words
from gdbheapx.kernel.glibc.twin.step import FLAGS

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
