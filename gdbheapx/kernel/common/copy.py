"""Copies of a process's memory: in one stop, in rounds while its writes are tracked, or in a stop without Python code."""

import ctypes
import os
import re
import struct
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.ranges import subtract_ranges, unite_ranges
from gdbheapx.inferior.base import EndedStop, PageTable
from gdbheapx.kernel.common.library import (
    ADDRESS_MASK,
    NativeObject,
    OpenPages,
    OpenSource,
    address_of,
    flatten_pairs,
    flatten_record,
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
        self._library = library
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
            self._library.heapx_copy_free(self.handle)
            self.handle = 0
        if self._memory >= 0:
            close(self._memory)
            self._memory = -1

    def prepare(self, ranges: Sequence[CopiedRange]) -> int:
        """Makes memory present for all that was touched by now: its bytes."""
        self.set(ranges)
        return self._run_counted(self._library.heapx_copy_prepare)

    def take(self, ranges: Sequence[CopiedRange], source: OpenSource, until: Any, first: int = 0) -> Optional[int]:
        """Copies a process that is stopped: every range that begins at the address `first` or after it. `source`: its own, which knows
        what may be brought in from swap; `until`: one double, by the monotonic clock. The begin of the first range for which there was no
        time; None: there is none."""
        self.set(ranges)
        return self._run_until(self._library.heapx_copy_take, source, until, first)

    def run_along(self, ranges: Sequence[CopiedRange], source: OpenSource, is_marked: bool) -> int:
        """Copies memory that is followed, after prepare() and while the process runs: bytes. `source`: as of take();
        `is_marked`: by the kernel's marks, without rounds."""
        self.set(ranges)
        return self._run_counted(self._library.heapx_copy_run_along, source.handle, is_marked)

    def round(self, source: OpenSource, looks: bool) -> int:
        """Copies what was written to there since the last round, or since it was protected: bytes. `looks`: also whether pages are shared
        by now, which takes most of the time."""
        return self._run_counted(self._library.heapx_copy_round, source.handle, looks)

    def last(self, ranges: Sequence[CopiedRange], source: OpenSource, until: Any) -> Optional[int]:
        """Copy the rest after rounds, as take() does: of followed ranges only the pages written to since."""
        self.set(ranges)
        return self._run_until(self._library.heapx_copy_last, source, until)

    def _run_counted(self, work: Any, *how: Any) -> int:
        """Return the bytes that a pass has copied."""
        out = array("Q", CopyTaken(0, 0))
        work(self.handle, self._threads, *how, address_of(out))
        return CopyTaken(*out).copied_bytes

    def _run_until(self, work: Any, source: OpenSource, until: Any, *first: int) -> Optional[int]:
        """Return where the last pass ended; None if there was time for all."""
        out = array("Q", CopyTaken(0, 0))
        left = work(self.handle, self._threads, source.handle, address_of(until), *first, address_of(out))
        self.taken = CopyTaken(*out)
        return None if left == ADDRESS_MASK else left

    def set(self, ranges: Sequence[CopiedRange]) -> None:
        """Say what is copied from now on: sorted ranges."""
        made = lacking_rooms(self._rooms, [(start, end) for start, end, _ in ranges])
        self._rooms = sorted([*self._rooms, *made])
        pieces, rooms = flatten_pairs(split_by_rooms(ranges, self._rooms)), flatten_pairs(made)
        require_memory(self._library.heapx_copy_ranges(self.handle, address_of(pieces), len(pieces) // 3, address_of(rooms), len(made)))

    def run(self, address: int, size_bytes: int) -> Tuple[int, Optional[bytes]]:
        """See CopiedMemory."""
        run = array("Q", [size_bytes, 0])
        what = self._library.heapx_copy_run(self.handle, address, address_of(run))
        piece = ctypes.string_at(run[1], run[0]) if what == COPIED_HERE else b"" if what == COPIED_UNREAD else None
        return run[0], piece

    def kinds(self, start: int, end: int) -> Optional[bytes]:
        """See CopiedMemory."""
        page, parts = self._page, []
        first, count = start & -page, -(-end // page) - start // page
        while count:
            kinds = ctypes.create_string_buffer(count)
            known = self._library.heapx_copy_kinds(self.handle, first, count, kinds)
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


HELD_DONE, HELD_ASKS, HELD_NOT = 0, 1, 2
"""The process was stopped, and runs on; it is stopped until it is given what is to be copied; it was not possible, and it runs on."""
HEAD = struct.Struct("=3Q")
Find = Callable[[bytes], Sequence[CopiedRange]]
"""What is to be copied, by the text of maps."""


class HoldOrder(NamedTuple):
    """Facts required about a process before it is stopped."""

    pid: int
    limit_ns: int
    """How long it may be stopped."""
    patience_ns: int
    """How long its threads may take to stop."""
    number_at: int
    """The word of the general registers that shows which system call a thread is in, and the one with its result."""
    result_at: int
    thread_count: int
    text_bytes: int
    """Of /proc/PID/maps."""
    worker_count: int


class HoldTaken(NamedTuple):
    """Result of a stop."""

    began_ns: int
    """By the monotonic clock."""
    stopped_ns: int
    unread_from: int
    copied_bytes: int
    unread_bytes: int
    ended: int
    """What wait(2) gave for the process's end, plus 1; 0: it has not ended."""
    text: int
    text_bytes: int
    registers: int
    registers_bytes: int


class Hold(NativeObject):
    """Native state of one stop; MemoryError if there is no room."""

    def __init__(self, library: Any, order: HoldOrder, sets: Sequence[int]) -> None:
        self._library = library
        self._out = array("Q", bytes(8 * len(HoldTaken._fields)))
        numbers, wanted = flatten_record(order), array("Q", sets)
        super().__init__(library.heapx_hold_new(address_of(numbers), address_of(wanted), len(wanted)), library.heapx_hold_free)

    def take(self, copy: Copy, source: OpenSource, maps: bytes, ranges: Sequence[CopiedRange], find: Find) -> Optional[EndedStop]:
        """Stop the process and end its copy: the ranges are those of `maps`; if they are others, find() gives them. None: it was not
        possible, and the process runs on."""
        copy.set(ranges)
        told = ctypes.create_string_buffer(maps, len(maps))
        state = self._library.heapx_hold_begin(self.handle, copy.handle, source.handle, told, len(maps), address_of(self._out))
        if state == HELD_ASKS:
            copy.set(find(self._read_result(6)))
            state = self._library.heapx_hold_go_on(self.handle, address_of(self._out))
        if state != HELD_DONE:
            return None
        taken = HoldTaken(*self._out)
        copy.taken = CopyTaken(taken.copied_bytes, taken.unread_bytes)
        left, ended = None if taken.unread_from == ADDRESS_MASK else taken.unread_from, taken.ended - 1 if taken.ended else None
        return EndedStop(left, taken.began_ns, taken.stopped_ns / 1e6, ended, self._read_result(6), parse_registers(self._read_result(8)))

    def _read_result(self, place: int) -> bytes:
        return ctypes.string_at(self._out[place], self._out[place + 1])


def parse_registers(data: bytes) -> Dict[int, Dict[int, bytes]]:
    """Parse the register sets that take_registers in C has written, by thread and number of the set."""
    sets: Dict[int, Dict[int, bytes]] = {}
    place = 0
    while place < len(data):
        lwp, number, length = HEAD.unpack_from(data, place)
        place += HEAD.size
        sets.setdefault(lwp, {})[number] = data[place : place + length]
        place += -(-length // 8) * 8
    return sets


def is_marked(library: Any, table: PageTable, ranges: Sequence[Tuple[int, int]]) -> bool:
    """Return True if each page that is in RAM has the kernel's mark of a write (soft-dirty), as all have until the marks are cleared."""
    pages, bounds = OpenPages(library, table), flatten_pairs(ranges)
    first = library.heapx_pages_unmarked(pages.handle, address_of(bounds), len(ranges)) if pages.handle else 0
    return bool(first == ADDRESS_MASK)


class NativeFollower:
    """Write tracking of one process, by a userfaultfd that it has made; the descriptor is closed with this. OSError if this kernel cannot
    do it.
    """

    def __init__(self, library: Any, descriptor: int) -> None:
        self._library, self._descriptor = library, descriptor
        self._ranges = array("Q")
        error = self._library.heapx_follow_begin(descriptor)
        if error:
            self.end()
            raise OSError(error, os.strerror(error))

    def follow(self, ranges: Sequence[Tuple[int, int]], pagemap: int = -1) -> int:
        """Track writes to these ranges from now on, and return the number of bytes tracked. `pagemap`: a descriptor of the process's, by
        which it takes half the time; ranges without a page table yet are not protected, and show as written.
        """
        fresh = flatten_pairs(ranges)
        self._ranges += fresh
        return int(self._library.heapx_follow_ranges(self._descriptor, pagemap, address_of(fresh), len(ranges)))

    def leave(self) -> None:
        """Remove all protection, piece by piece, as the end of the descriptor has the process wait for all at once."""
        self._library.heapx_follow_end(self._descriptor, address_of(self._ranges), len(self._ranges) // 2)
        self._ranges = array("Q")

    def end(self, close: Callable[[int], None] = os.close) -> None:
        """Remove all protection for good. Harmless when called twice."""
        if self._descriptor >= 0:
            self.leave()
            close(self._descriptor)
            self._descriptor = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        self.end(close)
