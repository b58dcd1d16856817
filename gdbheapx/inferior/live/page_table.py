"""Determine what this kernel, and the rights of this process, reveal of the pages of a process: see base.PageTable."""

import errno
import fcntl
import os
import re
import sys
from array import array
from typing import Callable, List, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Mapping, PageTable
from gdbheapx.inferior.live import procfs
from gdbheapx.ranges import unite_ranges

SWITCH = "GDBHEAPX_PAGEMAP_SCAN"
"""Set to 0 it has everything done without PAGEMAP_SCAN, as on older kernels: for tests."""
SCAN, SCAN_ARG_BYTES = 0xC0606610, 96
"""_IOWR('f', 16, struct pm_scan_arg) (linux/fs.h)."""
KNOWS_HUGE_ZERO = (6, 17)
"""Before, PAGE_IS_PFNZERO was never set for the huge zero page (fs/proc/task_mmu.c: pagemap_thp_category)."""
PRESENT, SWAPPED, OF_FILE, GUARD, ENTRY_BYTES = 1 << 63, 1 << 62, 1 << 61, 1 << 58, 8
"""Bits of an entry of pagemap (Documentation/admin-guide/mm/pagemap.rst): a guard page has the second and holds nothing."""
PROTECTED, TYPE, MARK = 1 << 57, 31, 31
"""Of an entry that looks swapped: a userfaultfd protects it, and which swap it is in; the last type is none. Told with CAP_SYS_ADMIN."""
MOST_PAGES = 1 << 16


class Finder:
    """Asks once what this kernel and our rights allow, and for each look what RSS leaves out."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: Optional[PageTable] = None
        self._flags = -1

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self._flags >= 0:  # `os` may be gone when the interpreter ends
            close(self._flags)

    def find(self, mappings: Sequence[Mapping]) -> Optional[PageTable]:
        """The page table of the process; None if its pagemap cannot be read."""
        if self._known is None:
            self._known = self._probe_page_table()
        if self._known is None:
            return None
        return self._known._replace(outside_rss=tuple((mapping.start, mapping.end) for mapping in mappings if mapping.is_hugetlb))

    def _probe_page_table(self) -> Optional[PageTable]:
        try:
            descriptor = os.open("/proc/%d/pagemap" % procfs.proc_entry_number(self._pid), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            scans, knows_huge_zero = _has_pagemap_scan(descriptor), kernel_release() >= KNOWS_HUGE_ZERO
        finally:
            os.close(descriptor)
        if not (scans and knows_huge_zero):
            self._flags = _open_flags()
        return PageTable(procfs.proc_entry_number(self._pid), scans, knows_huge_zero, self._flags, ())


def _has_pagemap_scan(descriptor: int) -> bool:
    """PAGEMAP_SCAN is there: over no page at all it succeeds."""
    if os.environ.get(SWITCH) == "0":
        return False
    argument = bytearray(SCAN_ARG_BYTES)
    argument[:8] = SCAN_ARG_BYTES.to_bytes(8, sys.byteorder)
    try:
        fcntl.ioctl(descriptor, SCAN, argument, True)
    except OSError as error:
        return error.errno not in (errno.ENOTTY, errno.EINVAL)
    return True


def _open_flags() -> int:
    """/proc/kpageflags (Documentation/admin-guide/mm/pagemap.rst); -1 if it may not be read."""
    try:
        return os.open("/proc/kpageflags", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1


def kernel_release() -> Tuple[int, int]:
    """Version of the running kernel, such as (6, 1)."""
    match = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(match.group(1)), int(match.group(2))) if match else (0, 0)


def is_mark(entry: int) -> bool:
    """Return True if an entry that looks swapped is a page that was never touched, which a userfaultfd protects, or did before it was
    moved (mremap, until Linux 6.13).
    """
    return bool(entry & PROTECTED) and entry & TYPE == MARK


def list_touched_ranges(pid: int, start: int, end: int) -> List[Tuple[int, int]]:
    """Return the pages like list_present_ranges(), for a range of any length, and with those in swap."""
    step = MOST_PAGES * os.sysconf("SC_PAGESIZE")
    return [part for at in range(start, end, step) for part in list_present_ranges(pid, at, min(at + step, end), PRESENT | SWAPPED)]


def list_present_ranges(pid: int, start: int, end: int, bits: int = PRESENT) -> List[Tuple[int, int]]:
    """The pages of this range that are in a process's memory now, joined; empty where pagemap cannot be read. `bits`: of which an
    entry of pagemap must have one."""
    page_bytes = os.sysconf("SC_PAGESIZE")
    first, last = start // page_bytes, min(-(-end // page_bytes), start // page_bytes + MOST_PAGES)
    try:
        with open("/proc/%d/pagemap" % procfs.proc_entry_number(pid), "rb", buffering=0) as file:
            data = os.pread(file.fileno(), ENTRY_BYTES * (last - first), ENTRY_BYTES * first)
    except (OSError, OverflowError):
        return []
    empty = (len(data) - len(data.lstrip(b"\0"))) // ENTRY_BYTES  # of a stack that is nearly all of it
    entries = enumerate(array("Q", data[ENTRY_BYTES * empty : len(data) & -ENTRY_BYTES]), first + empty)
    wanted = (number for number, entry in entries if entry & bits and not entry & GUARD and (entry & PRESENT or not is_mark(entry)))
    pages = (number * page_bytes for number in wanted)
    return [(max(low, start), min(high, end)) for low, high in unite_ranges((page, page + page_bytes) for page in pages)]
