"""Files that a watch writes for hours: appended to, or replaced as a whole, and readable by their owner alone."""

import os
import stat
from typing import Any, Optional

from gdbheapx.errors import HeapxError
from gdbheapx.problems import CANNOT_WRITE, UNSAFE_PATH

FILE_MODE = 0o600


def cannot(path: str, error: OSError) -> HeapxError:
    """What to say of it."""
    return HeapxError("cannot write to %s: %s" % (path, error.strerror or error), "choose another file", code=CANNOT_WRITE)


class Appended:
    """A file that grows line by line, each handed on at once. One that is there already is continued if its first line is ours."""

    def __init__(self, path: str, head: Optional[str]) -> None:
        """`head`: the first line; None: there is none, and any file is continued."""
        self._path = path
        try:
            if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
                raise HeapxError(
                    "%s is a symbolic link owned by another user; gdbheapx does not follow it" % path,
                    "choose another file",
                    code=UNSAFE_PATH,
                )
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            descriptor = os.open(path, flags, FILE_MODE)
        except OSError as error:
            raise cannot(path, error)
        self._file: Any = open(descriptor, "wb", buffering=0)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            self._file.close()
            what = "belongs to another user" if stat.S_ISREG(status.st_mode) else "is not a regular file"
            raise HeapxError("%s %s; gdbheapx does not write to it" % (path, what), "choose another file", code=UNSAFE_PATH)
        os.fchmod(descriptor, FILE_MODE)
        if head is not None and status.st_size:
            first = os.pread(descriptor, len(os.fsencode(head)) + 1, 0)
            if first != os.fsencode(head) + b"\n":
                self._file.close()
                raise HeapxError("%s exists, and its columns are others" % path, "choose another file, or move it away", code=CANNOT_WRITE)
        elif head is not None:
            self.line(head)

    def line(self, text: str) -> None:
        """One line, in one piece."""
        left = memoryview(text.encode("utf-8", "backslashreplace") + b"\n")
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise cannot(self._path, error)


def replace(path: str, text: str) -> None:
    """The whole file anew, so that no reader ever sees a part. One that is there already passes on its mode and group: who lets a collector
    of another user read it does so once, beforehand."""
    folder, name = os.path.split(path)
    apart = os.path.join(folder, ".%s.%d-%s" % (name, os.getpid(), os.urandom(4).hex()))
    try:
        descriptor = os.open(apart, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, FILE_MODE)
        try:
            try:
                _pass_on(path, descriptor)
                left = memoryview(text.encode("utf-8", "backslashreplace"))
                while left:
                    left = left[os.write(descriptor, left) :]
            finally:
                os.close(descriptor)
            os.rename(apart, path)
        except BaseException:
            os.unlink(apart)
            raise
    except OSError as error:
        raise cannot(path, error)


def _pass_on(path: str, descriptor: int) -> None:
    """Mode and group of a regular file of ours. Who may not give the group leaves the mode, too."""
    try:
        status = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return
    try:
        if status.st_gid != os.fstat(descriptor).st_gid:
            os.fchown(descriptor, -1, status.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o666)
    except OSError:
        pass
