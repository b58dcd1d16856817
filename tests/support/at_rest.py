"""A process that sleeps, and has no page of any file in its memory: what a look reads in one without need comes in and is counted."""

import ctypes
import os
import time
from pathlib import Path
from typing import Iterator, Tuple

PIDFD_OPEN, PROCESS_MADVISE = 434, 440
"""Numbers of system calls, the same on every architecture; C libraries before glibc 2.36 have no function for them."""

MADV_PAGEOUT = 21


class Range(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def sleeps(pid: int) -> bool:
    """Every thread waits in the kernel."""
    return all((task / "stat").read_text().rpartition(")")[2].split()[0] == "S" for task in Path("/proc/%d/task" % pid).iterdir())


def wait(pid: int, seconds: float = 120) -> None:
    """Until every thread of the process waits: what it said a moment ago it may still be returning from."""
    end = time.monotonic() + seconds
    while not sleeps(pid):
        assert time.monotonic() < end, "process %d does not come to rest" % pid
        time.sleep(0.002)


def of_files(pid: int) -> Iterator[Tuple[int, int]]:
    """Begin and end of each mapping of a file."""
    for line in Path("/proc/%d/maps" % pid).read_text().splitlines():
        fields = line.split(None, 5)
        if len(fields) == 6 and fields[5].startswith("/"):
            begin, end = (int(part, 16) for part in fields[0].split("-"))
            yield begin, end


def page_out(pid: int) -> None:
    """Wait until the process sleeps, and take the clean pages of files that no other process has out of its memory, where the kernel lets us."""
    wait(pid)
    libc = ctypes.CDLL(None, use_errno=True)
    pidfd = libc.syscall(PIDFD_OPEN, pid, 0)
    if pidfd < 0:
        return  # a kernel before 5.3; the figures are compared all the same
    try:
        for begin, end in of_files(pid):
            libc.syscall(PROCESS_MADVISE, pidfd, ctypes.byref(Range(begin, end - begin)), ctypes.c_size_t(1), MADV_PAGEOUT, 0)
    finally:
        os.close(pidfd)
