"""glibc's counters of a process that runs: every arena's system_mem and top, mp_'s mmapped chunks, and what is in bins as an estimate.

A thread may change an arena while it is read. Sizes of tops are believed only if top is the same before and after; what is in bins is
walked twice, and is unknown where the two differ.
"""

from typing import List, Mapping, Optional, Sequence, Tuple

from gdbheapx.allocators.answers import BUSY_TRIES, Figure, Reading, make_empty_reading
from gdbheapx.allocators.records import HeapContext
from gdbheapx.common.budget import Budget
from gdbheapx.common.columns import add_values
from gdbheapx.common.errors import HeapxError, UnreadableMemory
from gdbheapx.common.model import AllocatorInfo
from gdbheapx.glibc.arenas import Arena, Glibc, read_ring
from gdbheapx.glibc.freelists import head_address, list_used_bins, most_chunks
from gdbheapx.glibc.layouts import fast_size
from gdbheapx.inferior.base import ProcessSource
from gdbheapx.kernel.glibc.records import BIN, CUT, FAST, NativeFreeLists, NativeRules
from gdbheapx.kernel.glibc.walkers import ChunkWalker

FIGURES = (
    Figure("arenas", "arenas", "arenas that the process has", is_shown=False),
    Figure("system_bytes", "system", "bytes that all arenas took from the kernel and did not return", goes=2),
    Figure("top_bytes", "top", "bytes at the end of each arena that are in no chunk yet", goes=6),
    Figure("mmapped_bytes", "mmapped", "bytes of chunks that have a mapping of their own", goes=3),
    Figure("free_bytes", "free~", "estimate: bytes of free chunks in bins and fastbins, without thread caches", is_estimate=True),
)
TOLERATED_PERCENT = 2
"""By so much of what is free two walks may differ."""
TOLERATED_OF_SYSTEM = 1000
"""Or by one part in so many of what all arenas have: of little that is free a few chunks are more than 2 %, and do not matter."""
LIST_TRIES, MOST_BROKEN = 8, 4
"""How often a list is followed that changes meanwhile; and how many may never hold, which count as far as they were followed."""


class GlibcMeter:
    """Reader of one malloc's counters."""

    figures = FIGURES

    def __init__(self, glibc: Glibc, around: HeapContext) -> None:
        self.glibc, self.around = glibc, around
        self._source = around.target.bulk_source()
        if isinstance(self._source, ProcessSource):  # what is untouched now may be touched at the next sample
            self._source = self._source._replace(untouched_zero=())

    @property
    def info(self) -> AllocatorInfo:
        """Return the allocator's description."""
        return self.glibc.info()

    def read(self, walk_seconds: float) -> Reading:
        """The counters now."""
        # a ring that contradicts itself is read again at the next sample
        arenas = read_ring(self.around.target, self.glibc, lambda *complaint: None)
        if not arenas:
            return make_empty_reading(FIGURES)
        system = sum(arena.state["system_mem"] for arena in arenas)
        top = add_values(self._read_top(arena) for arena in arenas if arena.top)  # None: one changes too fast
        mapped = self.glibc.read_setting(self.around.target, "mmapped_mem")
        free = self._sum_free(arenas, system, walk_seconds) if walk_seconds > 0 and top is not None else None
        held = None if mapped is None else system + mapped
        kept = None if free is None or top is None else free + top
        used = None if held is None or kept is None or kept > held else held - kept
        kept = kept if used is not None else None
        return Reading((len(arenas), system, top, mapped, free), held, used, kept, system, system - (top or 0), mapped)

    def _read_top(self, arena: Arena) -> Optional[int]:
        """Return the size of an arena's top chunk, if `top` does not move while it is read; else None. Its P bit is always set (malloc.c:
        set_head).
        """
        target, word = self.around.target, self.glibc.geometry.word_bytes
        place, top = arena.state.address_of("top"), arena.top
        most = max(arena.state["system_mem"], arena.state["max_system_mem"])
        try:
            for _ in range(BUSY_TRIES):
                size, now = target.read_word(top + word), target.read_word(place)
                if now == top and size & 1 and size & ~7 <= most:
                    return size & ~7
                top = now
        except UnreadableMemory:
            pass
        return None

    def _sum_free(self, arenas: Sequence[Arena], system: int, walk_seconds: float) -> Optional[int]:
        """Return the bytes in bins and fastbins, if two walks agree and both ended in time; else None."""
        budget = Budget(walk_seconds)
        first = self._walk_lists(arenas, budget)
        second = self._walk_lists(arenas, budget) if first is not None else None
        if first is None or second is None:
            return None
        tolerated = max(max(first, second) * TOLERATED_PERCENT // 100, system // TOLERATED_OF_SYSTEM)
        return second if abs(first - second) <= tolerated and second <= system else None

    def _walk_lists(self, arenas: Sequence[Arena], budget: Budget) -> Optional[int]:
        """Sum the bytes in bins and fastbins in one walk. Lists that break, as they do while a thread changes them, are followed again
        one by one. None if many never hold, or time ran out.
        """
        lists = [(arena, kind, index) for arena in arenas for kind in (FAST, BIN) for index in list_used_bins(arena, kind, self.glibc)]
        sums = self._follow_lists(lists, budget)
        if sums is None:
            return None
        total = lost = 0
        for free_list, (size, is_whole) in zip(lists, sums):
            if not is_whole:
                size, is_whole = self._follow_alone(free_list, budget)
                lost += not is_whole
                if lost > MOST_BROKEN or budget.expired():
                    return None
            total += size
        return total

    def _follow_alone(self, free_list: Tuple[Arena, int, int], budget: Budget) -> Tuple[int, bool]:
        """Follow one list separately, and return its bytes, and whether it came to its end. That takes microseconds; with all others, the
        list would change meanwhile.
        """
        size = 0
        for _ in range(LIST_TRIES):
            sums = self._follow_lists([free_list], budget, is_fresh=True)
            size, is_whole = sums[0] if sums else (0, False)
            if is_whole:
                return size, True
        return min(size, free_list[0].state["system_mem"]), False

    def _follow_lists(
        self, free_lists: Sequence[Tuple[Arena, int, int]], budget: Budget, is_fresh: bool = False
    ) -> Optional[List[Tuple[int, bool]]]:
        """Return for each list (arena, FAST or BIN, number) its bytes, and whether it came to its end; None if time ran out. `is_fresh`:
        from the head of now, not of the arena as read.
        """
        lists, word = NativeFreeLists(), self.glibc.geometry.word_bytes
        for arena, kind, index in free_lists:
            head = head_address(arena, kind, index, self.glibc)
            if kind == FAST:  # its first chunk; the header of a bin stays where it is
                fresh = self.around.target.read_prefix(head, word) if is_fresh else b""
                head = int(arena.state.numbers("fastbinsY")[index])
                head = int.from_bytes(fresh, self.around.target.byte_order) if len(fresh) == word else head
            lists.add(kind, (head,), most_chunks(arena, self.glibc))
        if not free_lists or budget.expired():
            return None if free_lists else []
        walker = ChunkWalker(self.around.kernel, self._source, self.glibc.geometry, budget)
        try:
            followed = walker.follow(lists, NativeRules(self.glibc.traits.safe_linking))
        except (HeapxError, MemoryError):
            return None
        if CUT in followed.problems:
            return None
        sums = []
        for (arena, kind, index), count, size, problem in zip(free_lists, followed.counts, followed.bytes, followed.problems):
            size = count * fast_size(index, self.glibc.geometry) if kind == FAST else size
            sums.append((size, not problem and size <= arena.state["system_mem"]))
        return sums


def make_glibc_exact_reading(totals: Mapping[str, Optional[int]]) -> Reading:
    """Return the meter's figures from the totals of a walk in a stop."""

    def sum_totals(*names: str) -> Optional[int]:
        return add_values(totals.get(name) for name in names)

    names = ("arenas", "system_bytes", "top_bytes", "mmapped_bytes")
    held, used = sum_totals("system_bytes", "mmapped_bytes"), sum_totals("used_bytes", "mmapped_bytes")
    kept = sum_totals("free_bytes", "fast_bytes", "top_bytes", "tcache_bytes")
    return Reading(
        (*(totals.get(name) for name in names), sum_totals("free_bytes", "fast_bytes")), held, used, kept, totals.get("system_bytes")
    )
