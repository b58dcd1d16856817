"""Linked lists in Python: what lists.c does."""

from array import array
from typing import Any, Dict, Optional, Tuple

from gdbheapx.kernel.api import BinResult, Geometry, ListResult
from gdbheapx.kernel.base import PROBLEMS
from gdbheapx.kernel.twin_source import Reader
from gdbheapx.kernel.twin_step import FLAGS

_, UNALIGNED, UNREADABLE, TOO_LONG, BACK_LINK = PROBLEMS

CACHE_PAGE = 4096
CACHE_PAGES = 256
DIRECT_READS = 32


class Words:
    """Small reads all over memory: direct ones first, whole pages once a list proves long. Lives for one list."""

    def __init__(self, reader: Reader, geometry: Geometry, direct_reads: int = DIRECT_READS) -> None:
        self._reader = reader
        self._word = geometry.word_bytes
        self._order: Any = "little" if geometry.little_endian else "big"
        self._direct_reads = direct_reads
        self._pages: Dict[int, bytes] = {}

    def at(self, address: int, count: int) -> Optional[Tuple[int, ...]]:
        """`count` words at `address`, None if they cannot all be read."""
        word, size = self._word, count * self._word
        data = self._bytes(address, size)
        if len(data) < size:
            return None
        return tuple(int.from_bytes(data[place : place + word], self._order) for place in range(0, size, word))

    def _bytes(self, address: int, size: int) -> bytes:
        offset = address & (CACHE_PAGE - 1)
        if self._direct_reads or offset + size > CACHE_PAGE:
            self._direct_reads = max(self._direct_reads - 1, 0)
            return self._reader.read(address, size)
        part = self._page(address - offset)[offset : offset + size]
        # A page may begin in a hole.
        return part if len(part) == size else self._reader.read(address, size)

    def _page(self, page: int) -> bytes:
        data = self._pages.get(page)
        if data is None:
            if len(self._pages) >= CACHE_PAGES:
                self._pages.clear()
            data = self._pages[page] = self._reader.read(page, CACHE_PAGE)
        return data

    def has_hole(self, page: int) -> bool:
        """Neither the first nor the last byte of the page of 4,096 bytes can be read."""
        return not self._page(page) and not self._reader.read(page + CACHE_PAGE - 1, 1)


def collect_list(
    reader: Reader, geometry: Geometry, head: int, link_offset: int, mangled: bool, limit: int, mem_offset: int
) -> ListResult:
    """See base.Kernel."""
    words, mask = Words(reader, geometry), (1 << 8 * geometry.word_bytes) - 1
    entries, entry = array("Q"), head
    while entry:
        if (entry + mem_offset) % geometry.alignment_bytes:
            return ListResult(entries, UNALIGNED, entry)
        if len(entries) >= limit:
            return ListResult(entries, TOO_LONG, entry)
        field = (entry + link_offset) & mask
        link = words.at(field, 1)
        if link is None:
            return ListResult(entries, UNREADABLE, entry)
        entries.append(entry)
        # PROTECT_PTR / REVEAL_PTR, malloc.c: always by 12 bits.
        entry = (link[0] ^ field >> 12) & mask if mangled else link[0]
    return ListResult(entries, None, 0)


def walk_bin(reader: Reader, geometry: Geometry, header: int, limit: int, want_members: bool) -> BinResult:
    """See base.Kernel."""
    words, word = Words(reader, geometry), geometry.word_bytes
    members = array("Q")
    chunks = total = raw_total = raw_max = raw_min = 0

    def end(problem: Optional[str], at: int) -> BinResult:
        return BinResult(chunks, total, raw_total, raw_min, raw_max, members if want_members else None, problem, at)

    first = words.at(header + 2 * word, 1)
    if first is None:
        return end(UNREADABLE, header)
    chunk, previous = first[0], header
    while chunk != header:
        if (chunk + 2 * word) % geometry.alignment_bytes:
            return end(UNALIGNED, chunk)
        if chunks >= limit:
            return end(TOO_LONG, chunk)
        found = words.at(chunk, 4)
        if found is None:
            return end(UNREADABLE, chunk)
        _, raw, forward, back = found
        if back != previous:
            return end(BACK_LINK, chunk)
        raw_min = min(raw, raw_min) if chunks else raw
        raw_max = max(raw, raw_max)
        total += raw & ~FLAGS
        raw_total += raw
        chunks += 1
        if want_members:
            members.append(chunk)
        chunk, previous = forward, chunk
    last = words.at(header + 3 * word, 1)
    if last is None:
        return end(UNREADABLE, header)
    return end(None, 0) if last[0] == previous else end(BACK_LINK, header)
