"""Opening files whose kind is not known: where a file is expected there may lie a FIFO, which waits for a writer for ever, or a device, which acts."""

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
        raise NotRegular(errno.EINVAL, "it is no regular file", path)
