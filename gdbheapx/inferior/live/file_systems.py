"""Determine whether the file system of a mapped file answers: pages of RAM and disks do, those of a FUSE server may never come."""

import os
from typing import Dict, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Mapping
from gdbheapx.inferior.live import procfs
from gdbheapx.ranges import RangeIndex

IN_MEMORY = frozenset(("tmpfs", "ramfs", "shmem", "devtmpfs", "hugetlbfs"))
"""Types whose pages are RAM or swap: no server has them."""
NO_DISK = "00:"
"""How a device begins that is no block device, as of FUSE, NFS, tmpfs and overlays."""


def is_fuse(kind: Optional[str]) -> bool:
    """Any user may mount it, and serve it as he likes."""
    return kind is not None and kind.split(".", 1)[0] in ("fuse", "fuseblk")


class FileSystems:
    """Types of the file systems that one process has mapped files of, looked up once, by mountinfo of the process and of this one."""

    def __init__(self, entry: int) -> None:
        self._entry = entry
        """Its number in /proc here."""
        self._types: Optional[Dict[str, str]] = None
        self._of: Tuple[Optional[Sequence[Mapping]], RangeIndex] = (None, RangeIndex(()))

    def kind(self, mapping: Mapping) -> Optional[str]:
        """The type, such as `ext4`; None where no mount has it, as on a disk whose mounts are elsewhere."""
        if not mapping.inode or not mapping.device.startswith(NO_DISK):
            return None
        if self._types is None:
            from gdbheapx.inferior.live import smaps

            texts = [procfs.slurp_file("/proc/%s/mountinfo" % pid) or b"" for pid in ("self", self._entry)]
            self._types = {**smaps.map_device_types(texts[0]), **smaps.map_device_types(texts[1]), _device_of_shared_memory(): "shmem"}
        return self._types.get(mapping.device)

    def unanswered(self, mappings: Sequence[Mapping]) -> RangeIndex:
        """Ranges of mappings whose files may never be answered for."""
        if self._of[0] is not mappings:
            self._of = (mappings, RangeIndex((row.start, row.end) for row in mappings if is_fuse(self.kind(row))))
        return self._of[1]

    def is_memory(self, mapping: Mapping) -> bool:
        """Pages are RAM or swap."""
        return self.kind(mapping) in IN_MEMORY


def _device_of_shared_memory() -> str:
    """The device of the kernel's own mount, in no table, whose files are memfds, SysV segments and shared anonymous memory (mm/shmem.c)."""
    descriptor = os.memfd_create("gdbheapx", os.MFD_CLOEXEC)
    try:
        device = os.fstat(descriptor).st_dev
    finally:
        os.close(descriptor)
    return "%02x:%02x" % (os.major(device), os.minor(device))
