"""Heaps and rings of extents, in Python: what linked.c does."""

from typing import Dict, List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.jemalloc import linked_records as api
from gdbheapx.kernel.jemalloc.records import HeapLayout
from gdbheapx.kernel.jemalloc.twin.rtree import ADDRESSES, PAGE_BYTES

MEMBERS_BETWEEN_CLOCKS = 1024
MOST_PAGES = 512


class Follower:
    """Follows lists one after the other."""

    def __init__(self, reader: Reader, heap: HeapLayout) -> None:
        self._read, self._layout, self._heap = reader.read, heap.extent, heap
        self._order = "little" if heap.extent.little_endian else "big"
        self._pages: Dict[int, bytes] = {}

    def follow(self, lists: Sequence[api.LinkedList], budget: Budget) -> List[api.Linked]:
        """What was found, of as many lists as there was time for."""
        found: List[api.Linked] = []
        visited = 0
        try:
            for one in lists:
                steps = [(one.head, 0)] if one.head else []
                answer = api.Linked(0, 0, api.LINKED_GOOD, 0, 0)
                while steps and not answer.problem:
                    visited += 1
                    if visited % MEMBERS_BETWEEN_CLOCKS == 1 and budget.expired():
                        return found
                    answer = self._visit(one, answer, steps)
                found.append(answer)
        except KeyboardInterrupt:
            budget.interrupt()
        return found

    def _visit(self, one: api.LinkedList, answer: api.Linked, steps: List[Tuple[int, int]]) -> api.Linked:
        (at, before), is_ring = steps.pop(), one.child_offset == api.NO_LINK
        answer = answer._replace(at=at, before=before)
        data = self._bytes(at)
        if data is None:
            return answer._replace(problem=api.LINKED_UNREADABLE)
        layout = self._layout
        if before and self._word(data, one.prev_offset) != before:
            return answer._replace(problem=api.LINKED_BACK)
        if is_ring and before and at == one.head:
            return answer
        problem = self._judge(one, int.from_bytes(data[layout.bits_offset : layout.bits_offset + 8], self._order))  # type: ignore[arg-type]
        if problem or answer.members >= one.most:
            return answer._replace(problem=problem or api.LINKED_CYCLE)
        for offset in (one.next_offset,) if is_ring else (one.next_offset, one.child_offset):
            link = self._word(data, offset)
            if link or is_ring:
                steps.append((link, at))
        size = self._word(data, layout.size_offset) & -(1 << self._heap.rtree.lg_page)
        return answer._replace(members=answer.members + 1, bytes=answer.bytes + size)

    def _judge(self, one: api.LinkedList, bits: int) -> int:
        layout, bins = self._layout, self._heap.bins
        arena, state, szind, nfree = (
            bits >> field.shift & (1 << field.width) - 1 for field in (layout.arena, layout.state, layout.szind, layout.nfree)
        )
        if arena != one.arena or state != one.state or one.szind not in (api.ANY, szind):
            return api.LINKED_ALIEN
        if one.is_nonfull and (szind >= len(bins) or not 0 < nfree < bins[szind].nregs):
            return api.LINKED_FULL
        return api.LINKED_GOOD

    def _word(self, data: bytes, offset: int) -> int:
        return int.from_bytes(data[offset : offset + self._layout.word_bytes], self._order)  # type: ignore[arg-type]

    def _bytes(self, address: int) -> Optional[bytes]:
        size, page = self._layout.size_bytes, address & -PAGE_BYTES
        if address % self._layout.word_bytes or address + size >= ADDRESSES:
            return None
        offset = address - page
        if offset + size <= PAGE_BYTES:
            if page not in self._pages:
                if len(self._pages) >= MOST_PAGES:
                    self._pages.clear()
                self._pages[page] = self._read(page, PAGE_BYTES)
            data = self._pages[page][offset : offset + size]
            if len(data) == size:
                return data
        data = self._read(address, size)
        return data if len(data) == size else None
