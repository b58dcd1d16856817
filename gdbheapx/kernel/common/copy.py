"""Copies of a process's memory, in stops."""

import ctypes
import os
import re
from array import array
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.ranges import subtract_ranges, unite_ranges
from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.common.library import (
    ADDRESS_MASK,
    OpenPages,
    OpenSource,
    address_of,
    flatten_pairs,
    require_memory,
    usable_cpus,
)

TAKES_ALL, TAKES_OWN = 0, 1
"""Of a range every page that was touched; or those alone that are no pages of the mapped file."""
COPIED_HERE, COPIED_NOT, COPIED_UNREAD, COPIED_ELSEWHERE = 0, 1, 2, 3
"""What the copy has at an address: the bytes; nothing, since no page was touched, or it is the mapped file's; nothing, although there was
something; no range is there."""
KIND_RESIDENT, KIND_UNSURE, KIND_EXCLUSIVE, KIND_SWAPPED, KIND_HUGE, KIND_ZERO, KINDS_OF_PAGES = 1, 2, 4, 8, 16, 128, 159
KIND_COPIED, KIND_UNREAD = 32, 64
"""What is known of a page: bits."""
ROOM_BYTES = 64 << 20
"""Around what is mapped: a heap grows, and mappings are joined."""
HUGE_BYTES = 2 << 20
MOST_THREADS = 2
"""A third one takes memory's bandwidth from the first two."""

Range = Tuple[int, int]
CopiedRange = Tuple[int, int, int]
"""Begin, end, TAKES_..."""


class CopyTaken(NamedTuple):
    """Result of one pass over a process."""

    copied_bytes: int
    unread_bytes: int
    """Of pages that could not be read."""


class Copy:
    """Copy of one process's memory. MemoryError if there is no room; OSError if the process is gone, or may not be read."""

    handle, _memory = 0, -1

    def __init__(self, library: Any, table: PageTable) -> None:
        self.library = library
        self._memory = os.open("/proc/%d/mem" % table.pid, os.O_RDONLY | os.O_CLOEXEC)
        self._pages = OpenPages(library, table)
        self._rooms: List[Range] = []
        self._page = os.sysconf("SC_PAGESIZE")
        self.taken = CopyTaken(0, 0)
        """By the last take()."""
        self._threads = min(MOST_THREADS, usable_cpus())
        self.handle = require_memory(self._pages.handle and library.heapx_copy_new(self._pages.handle, self._memory))

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.handle:
            self.library.heapx_copy_free(self.handle)
            self.handle = 0
        if self._memory >= 0:
            close(self._memory)
            self._memory = -1

    def prepare(self, ranges: Sequence[CopiedRange]) -> int:
        """Makes memory present for all that was touched by now: its bytes."""
        self.set(ranges)
        return self.run_counted(self.library.heapx_copy_prepare)

    def take(self, ranges: Sequence[CopiedRange], source: OpenSource, until: Any, first: int = 0) -> Optional[int]:
        """Copies a process that is stopped: every range that begins at the address `first` or after it. `source`: its own, which knows
        what may be brought in from swap; `until`: one double, by the monotonic clock. The begin of the first range for which there was no
        time; None: there is none."""
        self.set(ranges)
        return self.run_until(self.library.heapx_copy_take, source, until, first)

    def run_counted(self, work: Any, *how: Any) -> int:
        """Run a pass of the native library, and return the bytes that it has copied."""
        out = array("Q", CopyTaken(0, 0))
        work(self.handle, self._threads, *how, address_of(out))
        return CopyTaken(*out).copied_bytes

    def run_until(self, work: Any, source: OpenSource, until: Any, *first: int) -> Optional[int]:
        """Run a pass of the native library with a deadline, and return where it ended; None if there was time for all."""
        out = array("Q", CopyTaken(0, 0))
        left = work(self.handle, self._threads, source.handle, address_of(until), *first, address_of(out))
        self.taken = CopyTaken(*out)
        return None if left == ADDRESS_MASK else left

    def set(self, ranges: Sequence[CopiedRange]) -> None:
        """Say what is copied from now on: sorted ranges."""
        made = lacking_rooms(self._rooms, [(start, end) for start, end, _ in ranges])
        self._rooms = sorted([*self._rooms, *made])
        pieces, rooms = flatten_pairs(split_by_rooms(ranges, self._rooms)), flatten_pairs(made)
        require_memory(self.library.heapx_copy_ranges(self.handle, address_of(pieces), len(pieces) // 3, address_of(rooms), len(made)))

    def run(self, address: int, size_bytes: int) -> Tuple[int, Optional[bytes]]:
        """See CopiedMemory."""
        run = array("Q", [size_bytes, 0])
        what = self.library.heapx_copy_run(self.handle, address, address_of(run))
        piece = ctypes.string_at(run[1], run[0]) if what == COPIED_HERE else b"" if what == COPIED_UNREAD else None
        return run[0], piece

    def kinds(self, start: int, end: int) -> Optional[bytes]:
        """See CopiedMemory."""
        page, parts = self._page, []
        first, count = start & -page, -(-end // page) - start // page
        while count:
            kinds = ctypes.create_string_buffer(count)
            known = self.library.heapx_copy_kinds(self.handle, first, count, kinds)
            if not known:
                return None
            parts.append(kinds.raw[:known])
            first, count = first + known * page, count - known
        return b"".join(parts)

    def touched(self, start: int, end: int, swapped: bool) -> Optional[List[Range]]:
        """See CopiedMemory."""
        page, all_kinds = self._page, self.kinds(start, end)
        if all_kinds is None:
            return None
        bits, first = KIND_RESIDENT | KIND_UNSURE | KIND_ZERO | (KIND_SWAPPED if swapped else 0), start & -page
        runs = re.finditer(b"[^\0]+", all_kinds.translate(bytes(kind & bits for kind in range(256))))
        return [(max(start, first + run.start() * page), min(end, first + run.end() * page)) for run in runs]


def lacking_rooms(rooms: Sequence[Range], ranges: Sequence[Range]) -> List[Range]:
    """Return the ranges where room is to be made so that all ranges have some: with a little around them, and none twice."""
    wanted = unite_ranges(
        (max(start - ROOM_BYTES, 0) & -HUGE_BYTES, -(-(end + ROOM_BYTES) // HUGE_BYTES) * HUGE_BYTES) for start, end in ranges
    )
    return subtract_ranges(wanted, rooms)


def split_by_rooms(ranges: Sequence[CopiedRange], rooms: Sequence[Range]) -> List[CopiedRange]:
    """The ranges, cut where one room ends and another begins; both sorted."""
    pieces, place = [], 0
    for start, end, takes in ranges:
        while rooms[place][1] <= start:
            place += 1
        here = place
        while start < end:
            until = min(end, rooms[here][1])
            pieces.append((start, until, takes))
            start, here = until, here + 1
    return pieces
