"""Where a region begins whose start is stored nowhere, in Python: what chain.c does."""

from bisect import bisect_left
from typing import Optional, Sequence, Set, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.glibc.records import Geometry
from gdbheapx.kernel.glibc.twin.lists import CACHE_PAGE, Words
from gdbheapx.kernel.glibc.twin.step import FLAGS, IS_MMAPPED, PREV_INUSE

CANDIDATES_BETWEEN_CLOCKS = 256


class Chains:
    """The search below one set of anchors."""

    def __init__(self, reader: Reader, geometry: Geometry, anchors: Sequence[int], strict: bool, fences: bool) -> None:
        self._geometry, self._anchors, self._strict, self._fences = geometry, anchors, strict, fences
        self._last = anchors[-1] if len(anchors) else 0
        self._words = Words(reader, geometry, direct_reads=0)
        self._broken: Set[int] = set()
        """Chains through here lead nowhere."""

    def lowest(self, low: int, high: int, budget: Budget, step: int) -> Optional[int]:
        """See ChunkWalker.find_chain."""
        if not len(self._anchors) or low >= high:
            return None
        try:
            return self.search(low, high, budget, step)
        except KeyboardInterrupt:
            budget.interrupt()
            return None

    def search(self, low: int, high: int, budget: Budget, unit: int) -> Optional[int]:
        """The lowest start in [low, high), `unit` bytes from one candidate to the next."""
        candidate, count = low + -(low + 2 * self._geometry.word_bytes) % self._geometry.alignment_bytes, 0
        while candidate < high and candidate <= self._last:
            count += 1
            if count % CANDIDATES_BETWEEN_CLOCKS == 1 and budget.expired():
                return None
            if self._leads_on(candidate):
                return candidate
            following = candidate + unit
            page = following & -CACHE_PAGE
            if page != candidate & -CACHE_PAGE and self._words.has_hole(page):
                following += -(-(page + CACHE_PAGE - following) // unit) * unit
            candidate = following
        return None

    def _leads_on(self, at: int) -> bool:
        before = 0
        while True:
            anchored = self._is_anchor(at)
            if anchored and not self._strict:
                return True
            header = self._words.at(at, 2)
            if header is None or (self._strict and not self._joins(header, before)):
                return False
            if anchored:
                return True
            if at in self._broken:
                return False
            if self._fences and before and self._is_fence_pair(at, header[1]):
                return True
            self._broken.add(at)
            before = self._plausible(header[1], self._last - at)
            if not before:
                return False
            at += before

    def _joins(self, header: Tuple[int, ...], before: int) -> bool:
        """The header agrees with the size of the chunk before it; the first chunk has a used one before it."""
        return bool(header[1] & PREV_INUSE) or (before != 0 and header[0] == before)

    def _is_fence_pair(self, at: int, field: int) -> bool:
        """Two fenceposts end a piece of the main arena (sysmalloc)."""
        size = 2 * self._geometry.word_bytes
        if field & ~PREV_INUSE != size:
            return False
        second = self._words.at(at + size, 2)
        return second is not None and second[1] == size | PREV_INUSE

    def _is_anchor(self, address: int) -> bool:
        place = bisect_left(self._anchors, address)
        return place < len(self._anchors) and self._anchors[place] == address

    def _plausible(self, field: int, room: int) -> int:
        size = field & ~FLAGS
        good = self._geometry.min_chunk_bytes <= size <= room and not size % self._geometry.alignment_bytes and not field & IS_MMAPPED
        return size if good else 0
