"""Which pages of a live process are in memory: /proc/PID/pagemap, in Python."""

import os
from array import array
from typing import Any, Optional, Sequence, Tuple

from gdbheapx.kernel.base import Residency

PRESENT = 1 << 63
SWAPPED = 1 << 62
EXCLUSIVE = 1 << 56
"""Mapped by this process alone. The shared zero page, which reading a never-touched page maps, is present and not exclusive."""

ENTRIES_AT_ONCE = 8192


class Pagemap:
    """One process's pagemap; `resident` of ascending ranges."""

    def __init__(self, pid: int) -> None:
        self._fd = -1
        self._fd = os.open("/proc/%d/pagemap" % pid, os.O_RDONLY | os.O_CLOEXEC)
        self._page = os.sysconf("SC_PAGESIZE")
        self._first = 0
        self._entries: Any = array("Q")

    def __del__(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def resident(self, begin: int, end: int) -> Residency:
        """The residency of one page-aligned range."""
        page, last, present, exclusive, swapped = begin // self._page, end // self._page, 0, 0, 0
        while page < last:
            if not self._first <= page < self._first + len(self._entries):
                self._load(page)
                if not self._entries:
                    break
            here = min(self._first + len(self._entries), last)
            for entry in self._entries[page - self._first : here - self._first]:
                if entry & PRESENT:
                    present += 1
                    exclusive += entry >> 56 & 1
                swapped += entry >> 62 & 1
            page = here
        return Residency(exclusive * self._page, present * self._page, swapped * self._page)

    def _load(self, page: int) -> None:
        try:
            data = os.pread(self._fd, 8 * ENTRIES_AT_ONCE, 8 * page)
        except (OSError, OverflowError):
            data = b""
        self._first, self._entries = page, array("Q", data[: len(data) & ~7])


def open_pagemap(pid: Optional[int]) -> Optional[Pagemap]:
    """The process's pagemap, or None if it cannot be opened."""
    try:
        return None if pid is None else Pagemap(pid)
    except OSError:
        return None


def resident(pid: int, ranges: Sequence[Tuple[int, int]]) -> Optional[Residency]:
    """The residency of all ranges together."""
    pagemap = open_pagemap(pid)
    if pagemap is None:
        return None
    parts = [pagemap.resident(begin, end) for begin, end in ranges]
    return Residency(*(sum(part[place] for part in parts) for place in range(3)))
