"""One chunk after the other, in Python: what step.c and window.c do."""

import struct
import sys
from bisect import bisect_left
from typing import Any, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.kernel.common.records import (
    STOP_END,
    STOP_FENCE,
    STOP_MISALIGNED,
    STOP_MMAPPED_BIT,
    STOP_OVERRUN,
    STOP_SMALL,
    STOP_TOP,
    STOP_UNREADABLE,
)
from gdbheapx.kernel.common.twin.source import Reader
from gdbheapx.kernel.glibc.records import (
    SPECIAL_FAST,
    SPECIAL_TCACHE_STRUCT,
    STATUS_FENCE,
    STATUS_FREE,
    STATUS_USED,
    Geometry,
    Region,
)

PREV_INUSE, IS_MMAPPED, NON_MAIN, FLAGS = 1, 2, 4, 7
PROVEN_CHUNKS = 16
BLOCK_BYTES = 256 << 10
FIRST_READ = 8192


class Chunk(NamedTuple):
    """One chunk met. `previous`: the chunk before it, 0 if none; `repeated_size`: prev_size of the next chunk."""

    address: int
    field: int
    size: int
    fd: int
    bk: int
    previous: int
    repeated_size: int
    status: int


class Window:
    """One block of target memory between `low` and `high`."""

    def __init__(self, reader: Reader, geometry: Geometry, low: int, high: int) -> None:
        self.begin = 0
        self.data = b""
        self.reads = 0
        self.word = geometry.word_bytes
        self.swapped = geometry.little_endian != (sys.byteorder == "little")
        self._reader = reader
        self._low, self._high = low, high
        self._next_read = BLOCK_BYTES
        letter = "Q" if geometry.word_bytes == 8 else "I"
        self.letter: Any = letter
        self._formats = [struct.Struct("%s%d%s" % ("<" if geometry.little_endian else ">", count, letter)) for count in range(5)]

    def words(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """`count` words at `address`, None if they cannot all be read."""
        offset, size = address - self.begin, count * self.word
        if not 0 <= offset <= len(self.data) - size:
            if not self._miss(address, size):
                return None
            offset = address - self.begin
        return self._formats[count].unpack_from(self.data, offset)

    def _miss(self, address: int, size: int) -> bool:
        if not self._low <= address <= self._high - size:
            return False
        if self.reads and address - self.begin - len(self.data) > BLOCK_BYTES // 4:
            self._next_read = FIRST_READ
        start = max(address & -4096, self._low)
        if (address - start) & 7:
            start = address
        self._fill(start)
        if start < address and len(self.data) < address - start + size:
            self._fill(address)
        self._next_read = min(4 * self._next_read, BLOCK_BYTES)
        return len(self.data) >= address - self.begin + size

    def _fill(self, start: int) -> None:
        self.begin, self.data = start, b""
        self.reads += 1
        self.data = self._reader.read(start, min(self._next_read, self._high - start))


class Cursor:
    """Where a walk is, and the cached chunks it passed."""

    def __init__(self, geometry: Geometry, region: Region, cached_chunks: Sequence[int], window: Window) -> None:
        self.geometry, self.region, self.window = geometry, region, window
        self.at = region.begin
        self.previous = 0
        self.previous_was_quick = False
        self.field = 0
        self.size = 0
        self.specials_met = self.missed_specials = self.missed_special = 0
        self._cached_chunks = cached_chunks
        self._place = bisect_left(cached_chunks, region.begin)
        self._last = bisect_left(cached_chunks, region.end)

    def next_special(self) -> Optional[int]:
        """The address of the next special, None if there is none."""
        return self._cached_chunks[self._place] & ~FLAGS if self._place < self._last else None

    def finish(self) -> None:
        """Settles the cached chunks up to the end of the walk."""
        self._take_specials(self.at)

    def _take_specials(self, address: int) -> int:
        kind = 0
        while self._place < self._last:
            special = self._cached_chunks[self._place]
            place = special & ~FLAGS
            if place > address:
                break
            if place == address:
                self.specials_met += 1
                kind = kind or special & FLAGS
            else:
                self.missed_special = self.missed_special or special
                self.missed_specials += 1
            self._place += 1
        return kind

    def step(self) -> Tuple[Optional[int], Any]:
        """Meets the chunk at `at` and moves on: (None, Chunk), or (STOP_ number, None) with what was read in `field` and `size`."""
        region, window, address, word = self.region, self.window, self.at, self.geometry.word_bytes
        if address >= region.end:
            return STOP_END, None
        if region.end - address < 2 * word:
            return STOP_OVERRUN, None
        head = window.words(address, 4) or window.words(address, 2)
        if head is None:
            return STOP_UNREADABLE, None
        self.field = head[1]
        self.size = size = head[1] & ~FLAGS
        stop = self._judge()
        if stop is not None:
            return stop, None
        after = window.words(address + size, 2) if region.end - address - size >= 2 * word else None
        status = self._status(after)
        fd, bk = head[2:] if len(head) == 4 else (0, 0)
        chunk = Chunk(address, self.field, size, fd, bk, self.previous, after[0] if after else 0, status)
        self.previous, self.previous_was_quick = address, False
        self.at = address + size
        return None, chunk

    def follows(self, stop: Optional[int]) -> Optional[int]:
        """After STOP_FENCE or STOP_TOP of a joined region: the first chunk of the piece that follows, None if none does. Nothing moves."""
        region, page = self.region, self.geometry.page_bytes
        if not region.joined or stop not in (STOP_FENCE, STOP_TOP):
            return None
        end = self.at + self.size if stop == STOP_TOP else self._fences_end(self.at)
        first = end + -(end + 2 * self.geometry.word_bytes) % self.geometry.alignment_bytes
        return first if end and not end % page and first < region.end and self._begins_piece(first) else None

    def enter(self, first: int) -> None:
        """On to a further piece."""
        self.at, self.previous, self.previous_was_quick = first, 0, False

    def _fences_end(self, at: int) -> int:
        """Where a piece ends by the two or three fenceposts of 2 words at `at` (sysmalloc), 0 if that is not what stands there."""
        size, align = 2 * self.geometry.word_bytes, self.geometry.alignment_bytes
        count = 0
        while count < 3:
            header = self.window.words(at + size * count, 2)
            if header is None or header[1] & ~FLAGS != size:
                break
            count += 1
        return -(-(at + size * count) // align) * align if count >= 2 else 0

    def _is_goal(self, at: int) -> bool:
        place = bisect_left(self._cached_chunks, at, 0, self._last)
        if at == self.region.top or (place < self._last and self._cached_chunks[place] & ~FLAGS == at):
            return True
        end = self._fences_end(at)
        return end != 0 and not end % self.geometry.page_bytes

    def _begins_piece(self, first: int) -> bool:
        """Chunks of the main arena stand from `first` on: see records.Region.joined."""
        geometry, at, before = self.geometry, first, 0
        for count in range(PROVEN_CHUNKS):
            room = self.region.end - at
            if room < 2 * geometry.word_bytes:
                return False
            if count and self._is_goal(at):
                return True
            header = self.window.words(at, 2)
            if header is None:
                return False
            size = header[1] & ~FLAGS
            if not geometry.min_chunk_bytes <= size <= room or size % geometry.alignment_bytes or header[1] & (IS_MMAPPED | NON_MAIN):
                return False
            if not header[1] & PREV_INUSE and (not before or header[0] != before):
                return False
            if at == self.region.top:
                return True
            at, before = at + size, size
        return True

    def _judge(self) -> Optional[int]:
        geometry, region, size = self.geometry, self.region, self.size
        room, plain = region.end - self.at, self.field & ~PREV_INUSE
        if self.at == region.top:
            return STOP_OVERRUN if size > room else STOP_TOP
        if plain in (0, 2 * geometry.word_bytes):
            return STOP_FENCE
        if size < geometry.min_chunk_bytes:
            return STOP_SMALL
        if size % geometry.alignment_bytes:
            return STOP_MISALIGNED
        if self.field & IS_MMAPPED:
            return STOP_MMAPPED_BIT
        if size > room or self.at < region.top < self.at + size:
            return STOP_OVERRUN
        return None

    def _status(self, after: Optional[Tuple[int, ...]]) -> int:
        kind = self._take_specials(self.at)
        if after and not after[1] & PREV_INUSE:
            return STATUS_FREE
        if SPECIAL_FAST <= kind <= SPECIAL_TCACHE_STRUCT:
            return kind
        # sysmalloc, old top too small to be freed: the old top itself becomes the fencepost, before a terminator 0|PREV_INUSE.
        if after and self.size == self.geometry.min_chunk_bytes and after[1] == PREV_INUSE and self.at + self.size != self.region.top:
            return STATUS_FENCE
        return STATUS_USED
