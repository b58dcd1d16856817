"""Single stop of a process in which the copy of its memory is completed, without Python code."""

import ctypes
import struct
from array import array
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

from gdbheapx.inferior.base import EndedStop
from gdbheapx.kernel.common.copy import CopiedRange, Copy, CopyTaken
from gdbheapx.kernel.common.library import OpenSource, address_of, declare_functions, flatten_record
from gdbheapx.kernel.common.records import ADDRESS_MASK

PROTOTYPES = """
struct hold *heapx_hold_new(const struct hold_order *order, const uint64_t *sets, uint64_t set_count);
void heapx_hold_free(struct hold *hold);
int heapx_hold_begin(struct hold *hold, struct copy *copy, const struct source *swap, const uint8_t *maps, uint64_t maps_bytes,
    struct hold_taken *out);
int heapx_hold_go_on(struct hold *hold, struct hold_taken *out);
"""

HELD_DONE, HELD_ASKS, HELD_NOT = 0, 1, 2
"""The process was stopped, and runs on; it stands still until it is told what is to be copied; it was not possible, and it runs on."""
HEAD = struct.Struct("=3Q")
Find = Callable[[bytes], Sequence[CopiedRange]]
"""What is to be copied, by the text of maps."""


class HoldOrder(NamedTuple):
    """Facts required about a process before it is stopped."""

    pid: int
    limit_ns: int
    """How long it may stand still."""
    patience_ns: int
    """How long its threads may take to stop."""
    number_at: int
    """The word of the general registers that tells which system call a thread is in, and the one with its result."""
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
    """What wait(2) told of the process's end, plus 1; 0: it has not ended."""
    text: int
    text_bytes: int
    registers: int
    registers_bytes: int


class Hold:
    """Native state of one stop; MemoryError if there is no room."""

    def __init__(self, library: Any, order: HoldOrder, sets: Sequence[int]) -> None:
        self._library = declare_functions(library, PROTOTYPES)
        self._out = array("Q", bytes(8 * len(HoldTaken._fields)))
        numbers, wanted = flatten_record(order), array("Q", sets)
        self._handle = self._library.heapx_hold_new(address_of(numbers), address_of(wanted), len(wanted))
        if not self._handle:
            raise MemoryError()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.heapx_hold_free(self._handle)
            self._handle = None

    def take(self, copy: Copy, source: OpenSource, maps: bytes, ranges: Sequence[CopiedRange], find: Find) -> Optional[EndedStop]:
        """Stop the process and end its copy: the ranges are those of `maps`; if they are others, find() tells. None: it was not
        possible, and the process runs on."""
        copy.set(ranges)
        told = ctypes.create_string_buffer(maps, len(maps))
        state = self._library.heapx_hold_begin(self._handle, copy.handle, source.handle, told, len(maps), address_of(self._out))
        if state == HELD_ASKS:
            copy.set(find(self._read_result(6)))
            state = self._library.heapx_hold_go_on(self._handle, address_of(self._out))
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
