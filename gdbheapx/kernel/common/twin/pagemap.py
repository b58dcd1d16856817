"""Which pages of a live process are in RAM, in Python: what pagemap.c does."""

import os
import struct
from array import array
from fcntl import ioctl
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from gdbheapx.inferior.base import PageTable
from gdbheapx.kernel.common.records import Residency

PRESENT, SWAPPED, GUARD, EXCLUSIVE = 1 << 63, 1 << 62, 1 << 58, 1 << 56
FRAME = (1 << 55) - 1
FLAG_ZERO_PAGE = 1 << 24
SCAN, SCAN_ARG, SCAN_REGION = 0xC0606610, struct.Struct("<12Q"), struct.Struct("<3Q")
CATEGORY_ZERO_PAGE, CATEGORY_HUGE = 1 << 5, 1 << 6
REGIONS_AT_ONCE = 128
RESIDENT_KIND, UNSURE_KIND, EXCLUSIVE_KIND, SWAPPED_KIND, HUGE_KIND = 1, 2, 4, 8, 16
WINDOW_PAGES = 2048


class Pages:
    """A process's page table; `residency` of ascending ranges. The names are those of pagemap.c."""

    def __init__(self, table: PageTable) -> None:
        self._table = table
        self._fd = -1
        self._fd = os.open("/proc/%d/pagemap" % table.pid, os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGESIZE")
        self._huge = self._page * (self._page // 8)
        self._first = 0
        self._kinds: List[int] = []

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def residency(self, begin: int, end: int) -> Residency:
        """Of one page-aligned range."""
        page, sums = self._page, [0, 0, 0, 0, 0]
        for number, kind in self._counted(begin // page, end // page):
            if kind & SWAPPED_KIND:
                sums[2] += page
            if kind & UNSURE_KIND:
                sums[4] += page
            if not kind & RESIDENT_KIND:
                continue
            block = number * page & -self._huge
            sums[0] += page
            sums[3] += page if kind & HUGE_KIND else 0
            if kind & EXCLUSIVE_KIND and (not kind & HUGE_KIND or (block >= begin and block + self._huge <= end)):
                sums[1] += page
        return Residency(*sums)

    def kinds(self, begin: int, end: int) -> bytes:
        """A byte for each page of a page-aligned range: bits; fewer where the table cannot be read."""
        return bytes(kind for _, kind in self._kinds_of(begin // self._page, end // self._page))

    def is_resident(self, address: int) -> bool:
        """The page is in RAM, or may be."""
        return any(kind & (RESIDENT_KIND | UNSURE_KIND) for _, kind in self._kinds_of(address // self._page, address // self._page + 1))

    def is_swapped(self, address: int) -> bool:
        """The page is in swap."""
        return any(kind & SWAPPED_KIND for _, kind in self._kinds_of(address // self._page, address // self._page + 1))

    def _counted(self, first: int, last: int) -> Iterator[Tuple[int, int]]:
        """(page number, kind) of the pages that RSS counts and of which there is something to say."""
        for number, kind in self._kinds_of(first, last):
            address = number * self._page
            if kind and not any(start <= address < end for start, end in self._table.outside_rss):
                yield number, kind

    def _kinds_of(self, number: int, last: int) -> Iterator[Tuple[int, int]]:
        while number < last:
            if not self._first <= number < self._first + len(self._kinds):
                self._load(number)
                if not self._kinds:
                    return
            here = min(self._first + len(self._kinds), last)
            yield from zip(range(number, here), self._kinds[number - self._first : here - self._first])
            number = here

    def _load(self, first: int) -> None:
        entries = read_words(self._fd, WINDOW_PAGES, first)
        self._first, self._kinds = first, [self._kind_of(entry) for entry in entries]
        if self._table.scans and any(kind & (RESIDENT_KIND | UNSURE_KIND) for kind in self._kinds):
            self._scan(entries)

    def _kind_of(self, entry: int) -> int:
        if not entry & PRESENT:
            return SWAPPED_KIND if is_swapped(entry) else 0
        if entry & EXCLUSIVE:
            return RESIDENT_KIND | EXCLUSIVE_KIND
        return UNSURE_KIND if self._table.scans else self._kind_of_shared(entry)

    def _kind_of_shared(self, entry: int) -> int:
        frame = entry & FRAME
        flags = read_words(self._table.flags_fd, 1, frame) if self._table.flags_fd >= 0 and frame else ()
        return UNSURE_KIND if not flags else 0 if flags[0] & FLAG_ZERO_PAGE else RESIDENT_KIND

    def _scan(self, entries: Sequence[int]) -> None:
        start, end = self._first * self._page, (self._first + len(self._kinds)) * self._page
        while start < end:
            regions, walked = scan(self._fd, start, end)
            for begin, until, categories in regions:
                for place in range(begin // self._page - self._first, until // self._page - self._first):
                    self._apply(place, categories, entries[place])
            if walked <= start:
                break
            start = walked
        for place, kind in enumerate(self._kinds if walked else ()):
            if kind & (UNSURE_KIND | HUGE_KIND) == UNSURE_KIND:
                self._kinds[place] = RESIDENT_KIND
            elif kind & UNSURE_KIND and self._table.knows_huge_zero:
                self._kinds[place] = RESIDENT_KIND | HUGE_KIND

    def _apply(self, place: int, categories: int, entry: int) -> None:
        kind = self._kinds[place]
        if categories & CATEGORY_ZERO_PAGE:
            self._kinds[place] = 0
        elif kind & (RESIDENT_KIND | UNSURE_KIND):
            if kind & UNSURE_KIND and not self._table.knows_huge_zero:
                kind = self._kind_of_shared(entry)
            self._kinds[place] = kind and kind | HUGE_KIND


def scan(descriptor: int, start: int, end: int) -> Tuple[List[Tuple[int, int, int]], int]:
    """One PAGEMAP_SCAN for the zero page and huge pages: (start, end, categories) of runs of pages, and up to where it went; 0 if it
    fails."""
    room = array("Q", bytes(SCAN_REGION.size * REGIONS_AT_ONCE))
    wanted = CATEGORY_ZERO_PAGE | CATEGORY_HUGE
    given = bytearray(SCAN_ARG.pack(SCAN_ARG.size, 0, start, end, 0, room.buffer_info()[0], REGIONS_AT_ONCE, 0, 0, 0, wanted, wanted))
    try:
        count = ioctl(descriptor, SCAN, given, True)
    except OSError:
        return [], 0
    return list(SCAN_REGION.iter_unpack(room.tobytes()[: SCAN_REGION.size * count])), SCAN_ARG.unpack(given)[4]


def read_words(descriptor: int, count: int, first: int) -> Any:
    """`count` words of a file of words, from the one with this number on; fewer where it ends."""
    try:
        data = os.pread(descriptor, 8 * count, 8 * first)
    except (OSError, OverflowError):
        data = b""
    return array("Q", data[: len(data) & ~7])


def is_swapped(entry: int) -> bool:
    """The page of this entry of pagemap is in swap; a guard page only looks so."""
    return entry & (PRESENT | SWAPPED | GUARD) == SWAPPED


def open_pages(table: Optional[PageTable]) -> Optional[Pages]:
    """The process's page table, or None if it cannot be opened."""
    try:
        return None if table is None else Pages(table)
    except OSError:
        return None


def residency(table: PageTable, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
    """Of all ranges together."""
    pages = open_pages(table)
    if pages is None:
        return None
    parts = [pages.residency(begin, end) for begin, end in ranges]
    return Residency(*(sum(part[place] for part in parts) for place in range(len(Residency._fields))))
