"""Swap for tests: the machine's own, else a file or compressed RAM (zram) that is swap as long as the tests need it; and memory of one process pushed there."""

import ctypes
import fcntl
import os
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Iterator, List, Tuple

SWAP_BYTES = 256 << 20
PIDFD_OPEN, PROCESS_MADVISE, MADV_PAGEOUT = 434, 440, 21
"""The same numbers on every architecture but alpha (linux/unistd.h)."""
MOST_VECTORS = 1024
"""UIO_MAXIOV."""
ZRAM = Path("/sys/class/zram-control")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class NoSwap(Exception):
    """There is none here and none can be made; the message says why."""


def run(*words: str) -> None:
    """A command of util-linux; NoSwap with what it says."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "PATH": PATH})
    except OSError as error:
        raise NoSwap("%s: %s" % (words[0], error.strerror)) from None
    if done.returncode:
        raise NoSwap("%s: %s" % (" ".join(words[:1]), done.stderr.strip()))


def in_use() -> bool:
    """The machine has swap of its own with room for a test."""
    rows = [line.split() for line in Path("/proc/swaps").read_text().splitlines()[1:]]
    return sum(int(row[2]) - int(row[3]) for row in rows) * 1024 > SWAP_BYTES


@contextmanager
def on_a_file() -> Iterator[None]:
    """A file in the folder for temporary files."""
    descriptor, path = tempfile.mkstemp(prefix="gdbheapx-swap-")
    try:
        os.posix_fallocate(descriptor, 0, SWAP_BYTES)
        run("mkswap", path)
        run("swapon", path)
        try:
            yield
        finally:
            run("swapoff", path)
    except OSError as error:
        raise NoSwap("%s: %s" % (path, error.strerror)) from None
    finally:
        os.close(descriptor)
        os.unlink(path)


@contextmanager
def on_zram() -> Iterator[None]:
    """A device of compressed RAM, made for this."""
    try:
        number = (ZRAM / "hot_add").read_text().strip()
        (Path("/sys/block/zram%s" % number) / "disksize").write_text(str(SWAP_BYTES))
    except OSError as error:
        raise NoSwap("no zram: %s" % error.strerror) from None
    try:
        run("mkswap", "/dev/zram" + number)
        run("swapon", "/dev/zram" + number)
        try:
            yield
        finally:
            run("swapoff", "/dev/zram" + number)
    finally:
        (ZRAM / "hot_remove").write_text(number)


@contextmanager
def swap() -> Iterator[None]:
    """The machine has swap within; NoSwap where it has none and none can be made. One at a time: what ends swap brings in everything that is there."""
    if os.geteuid() != 0:
        raise NoSwap("only root can push another process out")
    with open(os.path.join(tempfile.gettempdir(), "gdbheapx-swap.lock"), "a") as lock, ExitStack() as made:
        fcntl.flock(lock, fcntl.LOCK_EX)
        why = []  # type: List[str]
        for way in () if in_use() else (on_a_file, on_zram):
            try:
                made.enter_context(way())
                why.clear()
                break
            except NoSwap as reason:
                why.append(str(reason))
        if why:
            raise NoSwap("; ".join(why))
        yield


class Vector(ctypes.Structure):
    """struct iovec."""

    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def push_out(pid: int, ranges: List[Tuple[int, int]]) -> None:
    """Pages of these ranges (start, end) that the process has for itself go to swap."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.syscall(PIDFD_OPEN, pid, 0)
    if descriptor < 0:
        raise NoSwap("pidfd_open: %s" % os.strerror(ctypes.get_errno()))
    try:
        for place in range(0, len(ranges), MOST_VECTORS):
            part = ranges[place : place + MOST_VECTORS]
            vectors = (Vector * len(part))(*[(start, end - start) for start, end in part])
            if libc.syscall(PROCESS_MADVISE, descriptor, vectors, ctypes.c_size_t(len(part)), MADV_PAGEOUT, 0) < 0:
                raise NoSwap("process_madvise: %s" % os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)
