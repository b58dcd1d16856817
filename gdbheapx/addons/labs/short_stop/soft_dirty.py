"""The marks that the kernel keeps of what a process writes to (soft-dirty, Linux 6.1 here): cleared once, and then they only grow.

No call is made in the process, and it is not stopped. All marks of it are cleared at once, also those that somebody else waits for.
"""

import ctypes
import mmap
import os
from array import array
from functools import cache
from typing import Any, Optional

from gdbheapx.actions import preflight
from gdbheapx.actions.injected import AS_TODAY, in_child, make_no_injection_error
from gdbheapx.errors import HeapxError
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.live import procfs, seccomp
from gdbheapx.inferior.live.page_table import ENTRY_BYTES, PRESENT, kernel_release
from gdbheapx.kernel.common.follow import is_marked
from gdbheapx.problems import NO_SHORT_STOP

MARKED, FRAME = 1 << 55, (1 << 55) - 1
"""Of an entry of pagemap: written to since the marks were cleared; which page of the machine's it is, 0 without CAP_SYS_ADMIN."""
CLEAR = b"4"
FIRST = (6, 1)
"""The oldest that this was tried on. Until 5.11 marks were cleared under too weak a lock, and 5.19 loses some by mprotect."""
OF_KERNEL = "[v"
"""How the names of vdso, vvar and vsyscall begin."""


@cache
def find_lacking_marks() -> Optional[str]:
    """Describe the feature that the kernel lacks, or forbids this process; tried in a child. None if it is all there."""
    if kernel_release() < FIRST:
        return "soft-dirty bits are used from Linux %d.%d on" % FIRST
    return in_child(_try_marks, "this process may not clear its own soft-dirty bits")


def _try_marks() -> Optional[str]:
    """On this process, which ends then."""
    with mmap.mmap(-1, mmap.PAGESIZE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as page:
        page[0] = 1
        if not _read_entry(page) & MARKED:
            return "this kernel has no soft-dirty bits (CONFIG_MEM_SOFT_DIRTY)"
        if not _read_entry(page) & FRAME:
            return "soft-dirty bits need CAP_SYS_ADMIN here: only page frames show that a page was moved"
        clear_marks(os.getpid())
        if page[0] != 1 or _read_entry(page) & (PRESENT | MARKED) != PRESENT:
            return "this kernel does not clear soft-dirty bits"
        _protect_page(page, mmap.PROT_READ)
        _protect_page(page, mmap.PROT_READ | mmap.PROT_WRITE)  # after which Linux 5.19 marks nothing
        page[0] = 2
        return None if _read_entry(page) & MARKED else "this kernel does not set soft-dirty bits again"


def _page_address(page: Any) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(page))


def _protect_page(page: Any, how: int) -> None:
    if ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(_page_address(page)), ctypes.c_size_t(mmap.PAGESIZE), how):
        raise OSError(ctypes.get_errno(), "mprotect")


def _read_entry(page: Any) -> int:
    number = _page_address(page) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        return array("Q", os.pread(pagemap.fileno(), ENTRY_BYTES, number * ENTRY_BYTES))[0]


def check_marks(target: Target, library: Any, accepts_loss: bool) -> None:
    """HeapxError where something is in the way of that; the process is only looked at."""
    what, table = find_lacking_marks(), target.page_table()
    if what or table is None or not target.pid:
        raise make_no_injection_error(what or "the page table of this process cannot be read")
    try:
        preflight.require_writable(target.pid)
    except HeapxError as error:
        raise HeapxError(error.message, error.hint, code=NO_SHORT_STOP)
    ranges = [(one.start, one.end) for one in target.mappings() if not one.name.startswith(OF_KERNEL)]
    if not accepts_loss and not is_marked(library, table, ranges):
        raise make_no_injection_error(
            "the soft-dirty bits of process %d were cleared already, by an earlier --short-stop or a program that relies on them (CRIU)"
            % target.pid,
            "if no other program relies on them, add --accept-mark-loss; or " + AS_TODAY,
        )


def clear_marks(pid: int) -> None:
    """Clear all marks of the process. Its page faults wait meanwhile."""
    try:
        with open("/proc/%d/clear_refs" % procfs.proc_entry_number(pid), "wb", buffering=0) as file:
            file.write(CLEAR)
    except OSError as error:
        raise make_no_injection_error("the soft-dirty bits of process %d cannot be cleared: %s" % (pid, error.strerror))


def is_filtered(pid: int) -> bool:
    """Threads of it are under seccomp filters."""
    return any(seccomp.read_seccomp_rules(lwp).mode != seccomp.DISABLED for lwp in procfs.list_thread_ids(pid))
