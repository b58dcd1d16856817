"""The folder of a capture: names of its files, which of them stay, whether there is room, and whose turn it is."""

import fcntl
import os
import re
import stat
import time
from typing import List, NamedTuple, Optional

from gdbheapx.errors import HeapxError
from gdbheapx.problems import CANNOT_WRITE, UNSAFE_PATH

NOT_SAFE = re.compile(r"[^A-Za-z0-9._+-]")
OURS = re.compile(r"gdbheapx-[0-9]+-[0-9]{8}T[0-9]{6}Z-crash-[A-Za-z0-9._+-]*\.snap(?P<part>\.[0-9]+-[0-9a-f]{8})?", re.ASCII)
"""A snapshot, or what was being written when its writer was killed (output.Replacing)."""
RESERVE_BYTES = 64 << 20
"""What is left free for others."""
SHARE = 32
"""A snapshot has some 2 bytes for a block: no more than one of so many bytes of the process."""
WAIT_S = 0.05


def only_ours(path: str, status: os.stat_result, hint: str) -> None:
    """HeapxError where others may change what is in the folder."""
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise HeapxError("others may write to %s" % path, hint, code=UNSAFE_PATH)


class Kept(NamedTuple):
    """One snapshot that is there."""

    modified_ns: int
    path: str
    bytes: int


class Folder:
    """Where snapshots go. It is locked until this process has ended: one capture at a time."""

    def __init__(self, path: str, until: float) -> None:
        """HeapxError where it cannot be used. `until` this moment of the monotonic clock another capture is waited for."""
        self.path = os.path.abspath(path)
        try:
            os.makedirs(self.path, 0o700, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            status = os.fstat(self._descriptor)
        except OSError as error:
            raise HeapxError("cannot use the folder %s: %s" % (path, error.strerror), "choose another with --to DIR", code=CANNOT_WRITE)
        only_ours(path, status, "choose one that root owns, with mode 0700: --to DIR")
        self.is_ours = self._lock(until)
        """False: another capture is at work."""

    def _lock(self, until: float) -> bool:
        while True:
            try:
                fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except OSError:
                if time.monotonic() >= until:
                    return False
                time.sleep(WAIT_S)

    def free(self) -> None:
        """Let the next one in."""
        os.close(self._descriptor)

    def name(self, pid: int, program: Optional[str], unix_s: float) -> str:
        """The path for a snapshot of this process. Of its name, which is data, only what is safe in any shell."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_s))
        return os.path.join(self.path, "gdbheapx-%d-%s-crash-%s.snap" % (pid, moment, NOT_SAFE.sub("_", (program or "")[:32])))

    def room_bytes(self) -> int:
        """How long a file may become."""
        room = os.fstatvfs(self._descriptor)
        return max(room.f_bavail * room.f_frsize - RESERVE_BYTES, 0)

    def prune(self, most: int, most_bytes: int) -> List[str]:
        """Remove all but the newest: so many, and so many bytes together; the newest stays. What was removed."""
        kept: List[Kept] = []
        gone: List[str] = []
        for name in os.listdir(self._descriptor):
            match, path = OURS.fullmatch(name), os.path.join(self.path, name)
            status = os.lstat(path) if match is not None else None
            if match is None or status is None or not stat.S_ISREG(status.st_mode):
                continue
            if match["part"]:  # whoever wrote it was killed: nobody else is at work here
                gone.append(path)
            else:
                kept.append(Kept(status.st_mtime_ns, path, status.st_size))
        total = 0
        for place, one in enumerate(sorted(kept, reverse=True)):
            total += one.bytes
            if place and (place >= most or total > most_bytes):
                gone.append(one.path)
        for path in gone:
            os.unlink(path)
        return gone
