"""What a walk counts, in Python: what totals.c does."""

from collections import Counter
from typing import Any, Dict, List, Optional

from gdbheapx.kernel.common.records import ADDRESS_MASK, histogram_class
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
from gdbheapx.kernel.glibc.twin.step import FLAGS, PREV_INUSE, Chunk, Cursor

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
