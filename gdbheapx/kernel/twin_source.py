"""Bulk sources in pure Python: the readable prefix of a range."""

import os
from bisect import bisect_right
from typing import Callable, List, Optional, Tuple

from gdbheapx.target.base import BulkSource, BytesSource, CallSource, FileSource, ProcessSource

END = 0xFFFFFFFFFFFFFFFF


class Reader:
    """One opened source. A process is read by /proc/PID/mem, which also gives pages that it may not read itself (PROT_NONE)."""

    def __init__(self, source: BulkSource) -> None:
        self.source = source
        self._fd = -1
        self._pieces: List[Tuple[int, int, int, Optional[bytes]]] = []
        if isinstance(source, FileSource):
            self._fd = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
            self._pieces = [(piece.address, piece.size_bytes, piece.file_offset, None) for piece in source.segments]
        elif isinstance(source, ProcessSource):
            self._fd = os.open("/proc/%d/mem" % source.pid, os.O_RDONLY | os.O_CLOEXEC)
        elif isinstance(source, BytesSource):
            self._pieces = [(address, len(data), 0, data) for address, data in source.pieces]
        elif not isinstance(source, CallSource):
            raise TypeError("no bulk source: %r" % (source,))
        self._starts = [piece[0] for piece in self._pieces]

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # `close` is bound early: when the interpreter ends, this module's own names may be gone before the object is
        if getattr(self, "_fd", -1) >= 0:
            close(self._fd)
            self._fd = -1

    def read(self, address: int, size_bytes: int) -> bytes:
        """The readable prefix of [address, address + size_bytes)."""
        size_bytes = min(size_bytes, END - address)
        if size_bytes <= 0:
            return b""
        if isinstance(self.source, CallSource):
            return self.source.read(address, size_bytes)[:size_bytes]
        if isinstance(self.source, ProcessSource):
            return self._from_file(address, size_bytes)
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
            part = self._from_file(offset + skip, want) if data is None else data[skip : skip + want]
            parts.append(part)
            if len(part) < want:
                break
            address += want
            size_bytes -= want
        return parts[0] if len(parts) == 1 else b"".join(parts)

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
