"""Files whose kind is not known, where a FIFO would wait for a writer for ever and a device acts; and files that have no name."""

import errno
import os
import stat


class NotRegular(OSError):
    """There is something at the path, and it is no regular file."""


def open_regular(path: str) -> int:
    """A descriptor for reading the regular file at `path`. OSError if it cannot be opened, NotRegular without opening anything else."""
    check(os.stat(path), path)
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        check(os.fstat(descriptor), path)  # another one may lie there by now
    except NotRegular:
        os.close(descriptor)
        raise
    return descriptor


def check(status: os.stat_result, path: str) -> None:
    """NotRegular unless it is the status of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(errno.EINVAL, "it is not a regular file", path)


def folder() -> str:
    """Where temporary files go."""
    return os.environ.get("TMPDIR") or "/tmp"


def unnamed() -> int:
    """A descriptor of a temporary file that vanishes with it; it may hold addresses of the program, so nobody else sees it."""
    path = "%s/gdbheapx-%d-%s" % (folder(), os.getpid(), os.urandom(8).hex())
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


def copy_of(path: str) -> int:
    """A descriptor of a copy without a name. OSError if the file cannot be read or there is no room."""
    source = open_regular(path)
    try:
        descriptor = unnamed_or_in_memory()
        try:
            send(descriptor, source, 0, os.fstat(source).st_size)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    finally:
        os.close(source)


def unnamed_or_in_memory() -> int:
    """As `unnamed`, in memory where no folder takes it."""
    try:
        return unnamed()
    except OSError:
        return os.memfd_create("gdbheapx")


def send(descriptor: int, source: int, at: int, size_bytes: int) -> None:
    """Copy a part of one file to where the other stands; less at the source's end."""
    end = at + size_bytes
    while at < end:
        done = os.sendfile(descriptor, source, at, end - at)
        if not done:
            return
        at += done
