"""Bulk sources in pure Python: the readable prefix of a range."""

import os
from bisect import bisect_right
from typing import Callable, List, Optional, Sequence, Tuple

from gdbheapx.inferior.base import NOWHERE, BulkSource, BytesSource, CallSource, FileSource, ProcessSource, SwapRoom
from gdbheapx.kernel.common.twin.pagemap import is_swapped, read_words

END = 0xFFFFFFFFFFFFFFFF
PAGES_AT_ONCE = 4096
PLAIN, UNTOUCHED, IN_SWAP, OF_FILE = range(4)
PRESENT_OF_FILE = 0b101
"""The highest bits of such an entry."""


def _kind(entry: int) -> int:
    """How a page of this entry of pagemap is read."""
    return IN_SWAP if is_swapped(entry) else OF_FILE if entry >> 61 == PRESENT_OF_FILE else PLAIN if entry >> 62 else UNTOUCHED


def _until(ranges: Sequence[Tuple[int, int]], address: int) -> int:
    """End of the range that holds `address`; 0 if none does."""
    place = bisect_right(ranges, (address, END)) - 1
    return ranges[place][1] if place >= 0 and address < ranges[place][1] else 0


class Reader:
    """One opened source. A process is read by /proc/PID/mem, which also gives pages that it may not read itself (PROT_NONE).

    `swapped_in`: one number to which it adds the bytes that it brings in from swap.
    """

    def __init__(self, source: BulkSource, swapped_in: Optional[List[int]] = None) -> None:
        self.source = source
        self._fd = self._pagemap = -1
        self._page = os.sysconf("SC_PAGESIZE")
        self._zeros: Tuple[Tuple[int, int], ...] = ()
        self._swapped_in = [0] if swapped_in is None else swapped_in
        self._swap = (source.swap if isinstance(source, ProcessSource) else None) or SwapRoom()
        self._pieces: List[Tuple[int, int, int, Optional[bytes]]] = []
        if isinstance(source, FileSource):
            self._fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
            self._pieces = [(piece.address, piece.size_bytes, piece.file_offset, None) for piece in source.segments]
        elif isinstance(source, ProcessSource):
            self._fd = os.open("/proc/%d/mem" % source.pid, os.O_RDONLY | os.O_CLOEXEC)
            self._zeros = source.untouched_zero
            try:
                is_asked = self._zeros or source.swap is not None
                self._pagemap = os.open("/proc/%d/pagemap" % source.pid, os.O_RDONLY | os.O_CLOEXEC) if is_asked else -1
            except OSError:  # not in this kernel
                pass
        elif isinstance(source, BytesSource):
            self._pieces = [(address, len(data), 0, data) for address, data in source.pieces]
        elif not isinstance(source, CallSource):
            raise TypeError("no bulk source: %r" % (source,))
        self._starts = [piece[0] for piece in self._pieces]

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # `close` is bound early: when the interpreter ends, this module's own names may be gone before the object is
        for descriptor in (getattr(self, "_fd", -1), getattr(self, "_pagemap", -1)):
            if descriptor >= 0:
                close(descriptor)
        self._fd = self._pagemap = -1

    def read(self, address: int, size_bytes: int) -> bytes:
        """The readable prefix of [address, address + size_bytes)."""
        size_bytes = min(size_bytes, END - address)
        if size_bytes <= 0:
            return b""
        if isinstance(self.source, CallSource):
            return self.source.read(address, size_bytes)[:size_bytes]
        if isinstance(self.source, ProcessSource):
            if self._pagemap < 0:
                size_bytes = self._readable(address, size_bytes, OF_FILE)  # without a page table nothing tells whose a page is
                found = self._from_file(address, size_bytes) if self._swap.has_room_for_all() else b""
            else:
                found = self._from_process(address, size_bytes)
            if self.source.still is not None:
                self.source.still.check()
            return found
        return self._from_pieces(address, size_bytes)

    def _from_pieces(self, address: int, size_bytes: int) -> bytes:
        parts: List[bytes] = []
        place = max(bisect_right(self._starts, address) - 1, 0)
        while size_bytes and place < len(self._pieces):
            start, length, offset, data = self._pieces[place]
            skip = address - start
            if skip < 0 or (skip >= length and parts):
                break
            place += 1
            if skip >= length:
                continue
            want = min(size_bytes, length - skip)
            if offset == NOWHERE:
                part = bytes(want)
            else:
                part = self._from_file(offset + skip, want) if data is None else data[skip : skip + want]
            parts.append(part)
            if len(part) < want:
                break
            address += want
            size_bytes -= want
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _from_process(self, address: int, size_bytes: int) -> bytes:
        """As _from_file, but for untouched pages of private anonymous memory, which are zeros, and up to the first page in swap for which
        there is no room (source.c: read_process)."""
        parts: List[bytes] = []
        while size_bytes:
            first = address // self._page
            entries = read_words(self._pagemap, min((address + size_bytes - 1) // self._page - first + 1, PAGES_AT_ONCE), first)
            kind = _kind(entries[0]) if len(entries) else PLAIN
            count = next((place for place, entry in enumerate(entries) if _kind(entry) != kind), len(entries))
            if kind == IN_SWAP:
                count = self._swap.take(count * self._page, self._page) // self._page
                self._swapped_in[0] += self._page * count
                if not count:
                    break
            want = min(size_bytes, (first + count) * self._page - address) if len(entries) else size_bytes
            until = _until(self._zeros, address) if kind == UNTOUCHED else 0
            if until:
                want = min(want, until - address)
            else:
                want = self._readable(address, want, kind if len(entries) else PLAIN)
            part = bytes(want) if until else self._from_file(address, want)
            if not want:
                break
            parts.append(part)
            if len(part) < want:
                break
            address, size_bytes = address + want, size_bytes - want
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _readable(self, address: int, size_bytes: int, kind: int) -> int:
        """How many of these bytes, which are no zeros, may be read by /proc/PID/mem (source.c: readable)."""
        source = self.source
        assert isinstance(source, ProcessSource)
        if kind == UNTOUCHED:
            return max(0, min(size_bytes, _until(source.brought_in, address) - address))
        if kind != OF_FILE or not source.unanswered:
            return size_bytes
        following = next((start for start, _ in source.unanswered if start > address), END)
        return 0 if _until(source.unanswered, address) else min(size_bytes, following - address)

    def _from_file(self, offset: int, size_bytes: int) -> bytes:
        parts: List[bytes] = []
        while size_bytes:
            try:
                part = os.pread(self._fd, size_bytes, offset)
            except (OSError, OverflowError):
                break
            if not part:
                break
            parts.append(part)
            offset += len(part)
            size_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
