"""The folder of a capture: names of its files, which of them stay, and whether there is room. All is done by its descriptor."""

import os
import re
import stat
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

NOT_SAFE = re.compile(r"[^A-Za-z0-9._+-]")
OURS = re.compile(
    r"gdbheapx-[0-9]+-[0-9]{8}T[0-9]{6}Z-crash-(?:u(?P<uid>[0-9]+)-)?(?P<program>[A-Za-z0-9._+-]*)\.snap(?:\.[0-9]+-[0-9a-f]{8})?",
    re.ASCII,
)
"""A snapshot, or what was being written when its writer was killed (output.OutputFile)."""
RESERVE_BYTES = 64 << 20
"""What is left free for others."""
SHARE = 32
"""A snapshot has some 2 bytes for a block: no more than one of so many bytes of the process."""


class KeptCapture(NamedTuple):
    """Snapshot that is in the folder."""

    modified_ns: int
    name: str
    bytes: int
    uid: Optional[str]
    """User of the process, in digits; None in names of earlier releases."""
    program: str


class CaptureFolder:
    """Folder for snapshots, by its descriptor; `path` is its name. The holder of the turn is alone in it."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor

    def name(self, pid: int, uid: int, program: Optional[str], unix_s: float) -> str:
        """The name for a snapshot of this process. Of its program's name, which is data, only what is safe in any shell."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_s))
        return "gdbheapx-%d-%s-crash-u%d-%s.snap" % (pid, moment, uid, NOT_SAFE.sub("_", (program or "")[:32]))

    def room_bytes(self) -> int:
        """Return how many bytes a file may have."""
        room = os.fstatvfs(self.descriptor)
        return max(room.f_bavail * room.f_frsize - RESERVE_BYTES, 0)

    def prune(self, most: int, most_bytes: int, coming: Optional[str] = None) -> List[str]:
        """Remove snapshots beyond so many, with the one that is to have the name `coming`, or beyond so many bytes; the newest stays. The
        paths of what was removed.

        Who has most loses first: of the user with most of them the program with most of them, and of that the oldest. Where the newest
        alone is larger than all that any other user has, no other snapshot is removed for its bytes.
        """
        kept, gone = self._list_files()
        added = [] if coming is None else [read_name(coming, 0, 0)]
        while len(kept) > 1:
            are_many = len(kept) + len(added) > most
            if not are_many and sum(one.bytes for one in kept) <= most_bytes:
                break
            of_user: Dict[Optional[str], int] = {}
            of_program: Dict[Tuple[Optional[str], str], int] = {}
            for one in kept + added:
                weight = 1 if are_many else one.bytes
                of_user[one.uid] = of_user.get(one.uid, 0) + weight
                of_program[one.uid, one.program] = of_program.get((one.uid, one.program), 0) + weight
            loser = min(kept[:-1], key=lambda one: (-of_user[one.uid], -of_program[one.uid, one.program], one.modified_ns))
            if not are_many and of_user[kept[-1].uid] > of_user[loser.uid]:
                break
            kept.remove(loser)
            gone.append(loser.name)
        for name in gone:
            os.unlink(name, dir_fd=self.descriptor)
        return [os.path.join(self.path, name) for name in gone]

    def _list_files(self) -> Tuple[List[KeptCapture], List[str]]:
        """Snapshots, the newest last, and the names of what was being written when its writer was killed."""
        kept: List[KeptCapture] = []
        parts: List[str] = []
        for name in filter(OURS.fullmatch, os.listdir(self.descriptor)):
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                continue
            if name.endswith(".snap"):
                kept.append(read_name(name, status.st_mtime_ns, status.st_size))
            else:
                parts.append(name)
        return sorted(kept), parts


def read_name(name: str, modified_ns: int, size_bytes: int) -> KeptCapture:
    """Return the record of a snapshot with a name that CaptureFolder.name has made."""
    match = OURS.fullmatch(name)
    assert match is not None
    return KeptCapture(modified_ns, name, size_bytes, match["uid"], match["program"])
