"""glibc's counters of a process that runs: every arena's system_mem and top, mp_'s mapped chunks, and what is in bins as an estimate.

A thread may change an arena while it is read. Sizes of tops are believed only if top is the same before and after; what is in bins is
walked twice, and is unknown where the two differ.
"""

from array import array
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.allocators.metering import BUSY_TRIES, Figure, Reading, nothing
from gdbheapx.allocators.records import Around
from gdbheapx.budget import Budget
from gdbheapx.errors import HeapxError, Unreadable
from gdbheapx.glibc.arenas import MAX_ARENAS, Arena, read_ring
from gdbheapx.glibc.bins import headers, most_chunks
from gdbheapx.glibc.geometry import fast_size
from gdbheapx.glibc.layouts import MALLOC_STATE
from gdbheapx.glibc.located import Glibc
from gdbheapx.inferior.base import ProcessSource
from gdbheapx.kernel.glibc.list_records import BIN, FAST, Lists, Rules
from gdbheapx.layout.view import View
from gdbheapx.model import AllocatorInfo

FIGURES = (
    Figure("arenas", "arenas", "arenas that the process has", is_shown=False),
    Figure("system_bytes", "system", "bytes that all arenas took from the kernel and did not return"),
    Figure("top_bytes", "top", "bytes at the end of each arena that are in no chunk yet"),
    Figure("mmapped_bytes", "mmapped", "bytes of chunks that have a mapping of their own"),
    Figure("free_bytes", "free~", "estimate: bytes of free chunks in bins and fastbins, without thread caches", is_estimate=True),
)
TOLERATED_PERCENT = 2
"""By so much of what is free two walks may differ."""
TOLERATED_OF_SYSTEM = 1000
"""Or by one part in so many of what all arenas have: of little that is free a few chunks are more than 2 %, and matter to nobody."""
PATIENT = 1 << 40
"""Lists are followed link by link: no mapping is looked through, so that none needs to be known."""
NEW_RING = 16
"""Samples after which the whole ring is read again."""


def whatever(*_: object, **__: object) -> None:
    """Nobody is told what contradicts itself: it is read again at the next sample."""


class GlibcMeter:
    """Of one copy."""

    figures = FIGURES

    def __init__(self, glibc: Glibc, around: Around) -> None:
        self.glibc, self.around = glibc, around
        self._source = around.target.bulk_source()
        if isinstance(self._source, ProcessSource):  # what is untouched now may be touched at the next sample
            self._source = ProcessSource(self._source.pid)
        self._size_bytes = glibc.types.size_bytes(MALLOC_STATE.name)
        self._addresses: List[int] = []
        self._age = 0

    @property
    def info(self) -> AllocatorInfo:
        """Of the allocator."""
        return self.glibc.info()

    def read(self, walk_seconds: float) -> Reading:
        """The counters now."""
        arenas = self._arenas()
        if not arenas:
            return nothing(FIGURES)
        system = sum(arena.state["system_mem"] for arena in arenas)
        top = self._tops(arenas)
        mapped = self._mmapped()
        free = self._free(arenas, system, walk_seconds) if walk_seconds > 0 and top is not None else None
        held = None if mapped is None else system + mapped
        kept = None if free is None or top is None else free + top
        used = None if held is None or kept is None or kept > held else held - kept
        return Reading((len(arenas), system, top, mapped, free), held, used, kept if used is not None else None, system)

    def _arenas(self) -> List[Arena]:
        """All arenas as they are now; the ring is followed anew where it has changed, and now and then. Empty if it cannot be read."""
        self._age += 1
        found = self._known() if self._addresses and self._age % NEW_RING else []
        if not found:
            found = read_ring(self.around.target, self.glibc, whatever)
            self._addresses = [arena.address for arena in found]
        return found

    def _known(self) -> List[Arena]:
        """The arenas that are known, if there are no others by now: a new one is linked behind main_arena (arena.c: _int_new_arena)."""
        target, types, main = self.around.target, self.glibc.types, self.glibc.main_arena.address
        found: List[Arena] = []
        for index, address in enumerate(self._addresses):
            data = target.read_prefix(address, self._size_bytes)
            if len(data) < self._size_bytes:
                return []
            found.append(Arena(index, address, address == main, View(types, MALLOC_STATE.name, address, data, target.little_endian)))
        after = [arena.state["next"] for arena in found]
        return found if len(found) <= MAX_ARENAS and after == [*self._addresses[1:], main] else []

    def _tops(self, arenas: Sequence[Arena]) -> Optional[int]:
        """Bytes of all top chunks; None if one changes too fast."""
        total = 0
        for arena in arenas:
            if arena.top:
                size = self._top(arena)
                if size is None:
                    return None
                total += size
        return total

    def _top(self, arena: Arena) -> Optional[int]:
        """Of one arena: the size that stands behind `top`, if top has not moved meanwhile. Its P bit is always set (malloc.c: set_head)."""
        target, word = self.around.target, self.glibc.geometry.word_bytes
        place, top = arena.state.address_of("top"), arena.top
        most = max(arena.state["system_mem"], arena.state["max_system_mem"])
        try:
            for _ in range(BUSY_TRIES):
                size, now = target.read_word(top + word), target.read_word(place)
                if now == top and size & 1 and size & ~7 <= most:
                    return size & ~7
                top = now
        except Unreadable:
            pass
        return None

    def _mmapped(self) -> Optional[int]:
        try:
            return self.glibc.read_mp(self.around.target)["mmapped_mem"]
        except Unreadable:
            return None

    def _free(self, arenas: Sequence[Arena], system: int, walk_seconds: float) -> Optional[int]:
        """What is in bins and fastbins, if two walks agree on it and both came to their end in time."""
        budget = Budget(walk_seconds)
        first = self._walk(arenas, budget)
        second = self._walk(arenas, budget) if first is not None else None
        if first is None or second is None:
            return None
        tolerated = max(max(first, second) * TOLERATED_PERCENT // 100, system // TOLERATED_OF_SYSTEM)
        return second if abs(first - second) <= tolerated and second <= system else None

    def _walk(self, arenas: Sequence[Arena], budget: Budget) -> Optional[int]:
        """The same once. Arenas whose lists break, as they do while a thread changes them, are walked again; None if one never holds."""
        total, left = 0, list(arenas)
        for _ in range(BUSY_TRIES):
            try:
                sums = self._follow(left, budget)
            except (HeapxError, MemoryError):
                return None
            if sums is None:
                return None
            total += sum(size for size in sums.values() if size is not None)
            left = [self._again(arena) for arena in left if sums[arena.address] is None]
            if not left:
                return total
        return None

    def _again(self, arena: Arena) -> Arena:
        data = self.around.target.read_prefix(arena.address, self._size_bytes)
        if len(data) < self._size_bytes:
            return arena
        return arena._replace(state=View(self.glibc.types, MALLOC_STATE.name, arena.address, data, self.around.target.little_endian))

    def _follow(self, arenas: Sequence[Arena], budget: Budget) -> Optional[Dict[int, Optional[int]]]:
        """Address of each arena -> bytes on its free lists, None where one is broken. None in all if time ran out."""
        lists, spans, largest = Lists(), [], 0
        for arena in arenas:
            first = len(lists)
            sizes = self._add_fast(lists, arena)
            bins = len(lists)
            own, heads = headers(arena, self.glibc), arena.state.numbers("bins")[0::2]
            used = [header for head, header in zip(heads, own) if head not in (0, header)]
            lists.add(BIN, used, most_chunks(arena, self.glibc))
            spans.append((arena.address, first, bins, len(lists), sizes))
            largest = max([largest, *sizes])
        if not len(lists):
            return {address: 0 for address, *_ in spans}
        walker = self.around.kernel.glibc(self._source, self.glibc.geometry, budget)
        found = walker.follow(lists, Rules(self.glibc.traits.safe_linking, largest, patience_reads=PATIENT), (), threads=1)
        if found.cut:
            return None
        sums: Dict[int, Optional[int]] = {}
        for address, first, bins, end, sizes in spans:
            if any(found.problems[first:end]):
                sums[address] = None
            else:
                sums[address] = sum(count * size for count, size in zip(found.counts[first:bins], sizes)) + sum(found.bytes[bins:end])
        return sums

    def _add_fast(self, lists: Lists, arena: Arena) -> List[int]:
        """The arena's fastbins that are not empty; the chunk size of each. None from 2.43 on."""
        if not arena.state.has("fastbinsY"):
            return []
        heads: List[Tuple[int, int]] = [(index, head) for index, head in enumerate(arena.state.numbers("fastbinsY")) if head]
        lists.add(FAST, array("Q", [head for _, head in heads]), most_chunks(arena, self.glibc))
        return [fast_size(index, self.glibc.geometry) for index, _ in heads]


def exact(totals: Mapping[str, Optional[int]]) -> Reading:
    """The same figures from a walk over every chunk while the process stood still."""

    def both(*names: str) -> Optional[int]:
        found = [totals.get(name) for name in names]
        return None if None in found else sum(one or 0 for one in found)

    names = ("arenas", "system_bytes", "top_bytes", "mmapped_bytes")
    held, used = both("system_bytes", "mmapped_bytes"), both("used_bytes", "mmapped_bytes")
    kept = both("free_bytes", "fast_bytes", "top_bytes", "tcache_bytes")
    return Reading((*(totals.get(name) for name in names), both("free_bytes", "fast_bytes")), held, used, kept, totals.get("system_bytes"))
