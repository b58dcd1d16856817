"""What this kernel, and our rights, let us know of the pages of a process: see base.PageTable."""

import errno
import fcntl
import os
import re
import sys
from typing import Optional, Sequence, Tuple

from gdbheapx.target.base import Mapping, PageTable

SWITCH = "GDBHEAPX_PAGEMAP_SCAN"
"""Set to 0 it has everything done without PAGEMAP_SCAN, as on older kernels: for tests."""
SCAN, SCAN_ARG_BYTES = 0xC0606610, 96
"""_IOWR('f', 16, struct pm_scan_arg) (linux/fs.h)."""
KNOWS_HUGE_ZERO = (6, 17)
"""Before, PAGE_IS_PFNZERO was never set for the huge zero page (fs/proc/task_mmu.c: pagemap_thp_category)."""


def find(pid: int, mappings: Sequence[Mapping]) -> Optional[PageTable]:
    """The page table of a process; None if its pagemap cannot be read."""
    try:
        descriptor = os.open("/proc/%d/pagemap" % pid, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        outside = tuple((mapping.start, mapping.end) for mapping in mappings if mapping.is_hugetlb)
        return PageTable(pid, _scans(descriptor), kernel_release() >= KNOWS_HUGE_ZERO, _sees_frames(), outside)
    finally:
        os.close(descriptor)


def _scans(descriptor: int) -> bool:
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


def _sees_frames() -> bool:
    """/proc/kpageflags is there, and we may read it."""
    return os.access("/proc/kpageflags", os.R_OK)


def kernel_release() -> Tuple[int, int]:
    """Version of the running kernel, such as (6, 1)."""
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)
