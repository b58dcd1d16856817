"""Copies a process while it runs: native state of the writes that are tracked, of the rounds, and of a stop without Python code."""

import ctypes
import os
import struct
from array import array
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import EndedStop, PageTable
from gdbheapx.kernel.common.copy import CopiedRange, Copy, CopyTaken
from gdbheapx.kernel.common.library import ADDRESS_MASK, NativeObject, OpenPages, OpenSource, address_of, flatten_pairs, flatten_record

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


def copy_running(copy: Copy, ranges: Sequence[CopiedRange], source: OpenSource, by_marks: bool) -> int:
    """Copy memory whose writes are tracked, after Copy.prepare and while the process runs: bytes. `source`: as of Copy.take;
    `by_marks`: by the kernel's marks, without rounds."""
    copy.set(ranges)
    return copy.run_counted(copy.library.heapx_copy_run_along, source.handle, by_marks)


def copy_written(copy: Copy, source: OpenSource, looks: bool) -> int:
    """Copy what was written to there since the last round, or since it was protected: bytes. `looks`: also whether pages are shared
    by now, which takes most of the time."""
    return copy.run_counted(copy.library.heapx_copy_round, source.handle, looks)


def copy_rest(copy: Copy, ranges: Sequence[CopiedRange], source: OpenSource, until: Any) -> Optional[int]:
    """Copy the rest after rounds, as Copy.take does: of tracked ranges only the pages written to since."""
    copy.set(ranges)
    return copy.run_until(copy.library.heapx_copy_last, source, until)


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
