"""A walk over the chunks of one region, in Python: what chunks.c does, and what totals.c counts.

Nearly every chunk is small, is no special and contradicts nothing: `_loop` counts those, at a third of a microsecond each. Whatever is
unusual makes it raise or break, and is met by Cursor.step.
"""

from array import array
from collections import Counter
from typing import Any, Dict, List, Optional, Tuple

from gdbheapx.budget import Budget
from gdbheapx.kernel.common.records import ADDRESS_MASK, STOP_FENCE, STOP_TIME, STOP_TOP, histogram_class
from gdbheapx.kernel.common.twin.pagemap import Pages
from gdbheapx.kernel.glibc.records import (
    PAGE_COUNTERS,
    STATUS_FAST,
    STATUS_FENCE,
    STATUS_FREE,
    STATUS_TCACHE,
    STATUS_TCACHE_STRUCT,
    WalkResult,
)
from gdbheapx.kernel.glibc.twin.step import FLAGS, PREV_INUSE, Chunk, Cursor, Window

SMALL_LIMIT = 4143
"""As in chunk.h: what the quick loop counts by raw size field cannot hold a page that mtrim would give back."""

STRUCT_BYTES = {STATUS_TCACHE_STRUCT: "tcache_struct", STATUS_TCACHE: "tcache", STATUS_FAST: "fast", STATUS_FREE: "free"}


class Totals:
    """The counters of one walk. `counts` is by WalkResult's field names."""

    def __init__(self, cursor: Cursor, pages: Optional[Pages]) -> None:
        geometry = cursor.geometry
        self.counts: Dict[str, int] = dict.fromkeys(WalkResult._fields, 0)
        self.run = 0
        """Start of the open run of free and fast chunks, 0 if none: the quick loop is not used while one is open."""
        self._cursor, self._geometry, self._pages = cursor, geometry, pages
        self._rows: Dict[int, List[int]] = {}
        limit = min(SMALL_LIMIT, geometry.page_bytes - 1 + geometry.chunk_struct_bytes)
        # By raw size field: None makes the quick loop's += raise for every field that is no plain small chunk's.
        self.small: List[Any] = [None] * (limit // geometry.alignment_bytes * geometry.alignment_bytes + FLAGS + 1)
        for size in range(geometry.min_chunk_bytes, limit + 1, geometry.alignment_bytes):
            for flags in (0, 1, 4, 5):
                self.small[size + flags] = 0
        self.small_free: Counter[int] = Counter()

    def count(self, chunk: Chunk) -> None:
        """Counts one chunk."""
        counts, status, size = self.counts, chunk.status, chunk.size
        row = self._row(size)
        if status in (STATUS_FREE, STATUS_FAST):
            if status == STATUS_FREE:
                self._count_free(chunk)
            row[2] += 1
            row[3] += size
            if not self.run:
                self.run = chunk.previous if not chunk.field & PREV_INUSE and chunk.previous else chunk.address
        else:
            self.close_run(chunk.address)
        if status == STATUS_FENCE:
            counts["fence_bytes"] += size
            return
        name = STRUCT_BYTES.get(status, "used")
        counts[name + "_chunks"] += 1
        counts[name + "_bytes"] += size
        if name == "used":
            row[0] += 1
            row[1] += size
        elif status == STATUS_TCACHE:
            row[4] += 1

    def _row(self, size: int) -> List[int]:
        index = histogram_class(size, self._geometry.alignment_bytes)
        return self._rows.setdefault(index, [0, 0, 0, 0, 0])

    def _count_free(self, chunk: Chunk) -> None:
        counts = self.counts
        counts["largest_free_bytes"] = max(counts["largest_free_bytes"], chunk.size)
        counts["free_sum"] += chunk.address
        counts["fd_sum"] += chunk.fd
        counts["bk_sum"] += chunk.bk
        if chunk.repeated_size != chunk.size:
            counts["bad_prev_size"] = counts["bad_prev_size"] or chunk.address
            counts["bad_prev_size_chunks"] += 1
        # PREV_INUSE clear: the chunk before it is free as well, and free() would have merged the two.
        if not chunk.field & PREV_INUSE and chunk.previous:
            counts["bad_neighbour"] = counts["bad_neighbour"] or chunk.address
            counts["bad_neighbour_chunks"] += 1

    def close_run(self, end: int) -> None:
        """The run ends at `end`, which is not top: its whole pages are what mtrim (malloc.c) would give back."""
        start, page, kept = self.run, self._geometry.page_bytes, self._geometry.chunk_struct_bytes
        self.run = 0
        if not start or end - start <= page - 1 + kept:
            return
        first = (start + kept + page - 1) & -page
        length = (end - first) & -page
        if length <= 0:
            return
        self.counts["interior_ranges"] += 1
        self.counts["interior_bytes"] += length
        if self._pages:
            found = self._pages.residency(first, first + length)
            self.counts["interior_resident_bytes"] += found.resident_bytes
            self.counts["interior_exclusive_bytes"] += found.exclusive_bytes
            self.counts["interior_unsure_bytes"] += found.unsure_bytes
            self.counts["interior_huge_bytes"] += found.huge_bytes

    def settle_top(self) -> None:
        """The walk ended on top: malloc_consolidate would merge the run before it into top."""
        cursor = self._cursor
        self.counts["top_bytes"] = cursor.size
        self.counts["top_run_start"] = self.run or (0 if cursor.field & PREV_INUSE else cursor.previous)
        self.run = 0

    def enter_piece(self, first: int, end: int) -> None:
        """On to a further piece of the main arena; `end`: where the last chunk of this one ends."""
        self.close_run(end)
        self.counts["fence_bytes"] += first - end
        self.counts["further_pieces"] += 1
        self._cursor.enter(first)

    def settle_fence(self) -> None:
        """sysmalloc, old top too small to be freed: a MINSIZE chunk directly before the terminator is the fencepost itself."""
        cursor, size = self._cursor, self._geometry.min_chunk_bytes
        if cursor.field == PREV_INUSE and cursor.previous_was_quick and cursor.at - cursor.previous == size:
            row = self._row(size)
            row[0] -= 1
            row[1] -= size
            self.counts["used_chunks"] -= 1
            self.counts["used_bytes"] -= size
            self.counts["fence_bytes"] += size

    def _add_small(self) -> None:
        counts = self.counts
        for raw, number in enumerate(self.small):
            if not number:
                continue
            size, free = raw & ~FLAGS, self.small_free.get(raw, 0)
            row = self._row(size)
            for name, place, chunks in (("used", 0, number - free), ("free", 2, free)):
                counts[name + "_chunks"] += chunks
                counts[name + "_bytes"] += chunks * size
                row[place] += chunks
                row[place + 1] += chunks * size
            if free:
                counts["largest_free_bytes"] = max(counts["largest_free_bytes"], size)

    def result(self, stop: int) -> WalkResult:
        """The answer; the walk has ended for good."""
        counts, cursor = self.counts, self._cursor
        cursor.finish()
        self.close_run(cursor.at)
        self._add_small()
        for name in ("free_sum", "fd_sum", "bk_sum"):
            counts[name] &= ADDRESS_MASK
        counts.update(stop=stop, at=cursor.at, specials_met=cursor.specials_met)
        counts.update(missed_special=cursor.missed_special, missed_specials=cursor.missed_specials)
        rows = tuple(
            (index, row[0], row[1], row[2], row[3], row[4]) for index, row in sorted(self._rows.items()) if row[0] or row[2] or row[4]
        )
        fields: Dict[str, Any] = dict(counts, histogram=rows)
        if self._pages is None:
            fields.update(dict.fromkeys(PAGE_COUNTERS))
        return WalkResult(**fields)


def walk_region(cursor: Cursor, budget: Budget, pages: Optional[Pages]) -> WalkResult:
    """Walks one region. Ctrl-C may come between the statements of one chunk: a partial answer can then be off by that chunk."""
    totals = Totals(cursor, pages)
    try:
        stop = STOP_TIME if budget.expired() else _walk(cursor, totals, budget)
    except KeyboardInterrupt:
        budget.interrupt()
        stop = STOP_TIME
    return totals.result(stop)


def _walk(cursor: Cursor, totals: Totals, budget: Budget) -> int:
    window, reads = cursor.window, cursor.window.reads
    while True:
        if not totals.run:
            _quick(cursor, totals, window)
        if window.reads != reads:
            reads = window.reads
            if budget.expired():
                return STOP_TIME
        stop, chunk = cursor.step()
        if stop is None:
            totals.count(chunk)
            continue
        first = cursor.follows(stop)
        if stop == STOP_TOP:
            totals.settle_top()
        elif stop == STOP_FENCE:
            totals.settle_fence()
        if first is None:
            return stop
        totals.enter_piece(first, cursor.at + (cursor.size if stop == STOP_TOP else 0))


def _views(window: Window, bound: int) -> Tuple[Any, Any, Any, Any]:
    """Views of the block up to `bound` that show prev_size, size, fd and bk of a chunk at the same index: its offset / 8."""
    count = (bound - window.begin) // window.word
    if window.swapped:
        swapped = array(window.letter, window.data[: count * window.word])
        swapped.byteswap()
        words: Any = memoryview(swapped)
    else:
        words = memoryview(window.data)[: count * window.word].cast(window.letter)
    if window.word == 8:
        return words, words[1:], words[2:], words[3:]
    return words[::2], words[1::2], words[2::2], words[3::2]


def _quick(cursor: Cursor, totals: Totals, window: Window) -> None:
    """Counts chunks from cursor.at on as long as they are usual, and moves on."""
    begin, region, special = window.begin, cursor.region, cursor.next_special()
    offset = cursor.at - begin
    if not 0 <= offset < len(window.data) or offset & 7:
        return
    bound = min(begin + len(window.data), region.end)
    if bound - cursor.at < 4 * window.word:
        return
    repeated, fields, fds, bks = _views(window, bound)
    barrier = region.top if region.top >= cursor.at and region.top else bound
    if special is not None and special < barrier:
        barrier = special
    last = -((begin - barrier) // 8)
    if last < len(fields):
        fields = fields[: max(last, 0)]
    free: List[int] = []
    start = offset >> 3
    place, previous = _loop(fields, repeated, start, totals.small, free.append)
    if place == start:
        return
    totals.small_free.update(map(fields.__getitem__, free))
    counts = totals.counts
    counts["free_sum"] += begin * len(free) + 8 * sum(free)
    counts["fd_sum"] += sum(map(fds.__getitem__, free))
    counts["bk_sum"] += sum(map(bks.__getitem__, free))
    cursor.at = begin + 8 * place
    cursor.previous = begin + 8 * previous
    cursor.previous_was_quick = True


def _loop(fields: Any, repeated: Any, start: int, small: List[Any], free: Any) -> Tuple[int, int]:
    """Counts chunks by raw size field in `small` and hands the places of free ones to `free`.

    Returns the place of the first chunk not counted and that of the chunk before it. Written twice in a row, with the two places taking
    turns, to save two moves per chunk. One compare finds a free chunk whose size is not repeated behind it, one that follows a free
    chunk (PREV_INUSE clear), and one with a flag that free chunks do not carry.
    """
    place = start
    field = last = 0
    try:
        field = fields[place]
        small[field] += 1
    except (IndexError, TypeError):
        return start, start
    following = place + (field >> 3)
    try:
        while True:
            last = fields[following]
            if not last & 1:
                if repeated[following] + 1 != field:
                    break
                free(place)
            small[last] += 1
            place = following + (last >> 3)
            field = fields[place]
            if not field & 1:
                if repeated[place] + 1 != last:
                    break
                free(following)
            small[field] += 1
            following = place + (field >> 3)
    except (IndexError, TypeError):
        newest = max(place, following)
        if newest < len(fields):
            # `small` refused it: the chunk before it is settled.
            return newest, min(place, following)
    # The last counted chunk's successor is unknown or contradicts it: it is taken back, for the slow way.
    if place > following:
        place, field = following, last
    small[field] -= 1
    # The chunk before it matters only if it is free, and then its size is repeated here.
    return place, start if field & 1 or place == start else place - (repeated[place] >> 3)
