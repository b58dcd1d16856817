"""The table of mounts, /proc/PID/mountinfo (proc_pid_mountinfo(5)), and the kinds of file systems by how they answer."""

import os
import re
from functools import lru_cache
from typing import FrozenSet, Iterator, NamedTuple, Optional, Set

LOCAL = frozenset(
    b"ext2 ext3 ext4 xfs btrfs tmpfs ramfs rootfs overlay squashfs erofs zfs f2fs bcachefs iso9660 udf vfat msdos exfat ntfs3 jfs reiserfs"
    b" nilfs2 hfsplus hugetlbfs cramfs romfs jffs2 ubifs".split()
)
"""Types whose reads wait for this machine's own disks at most. All others may wait for a server, or for a program of some user."""
PSEUDO = frozenset(
    b"proc sysfs devpts devtmpfs tracefs debugfs securityfs selinuxfs smackfs configfs cgroup cgroup2 cpuset bpf pstore efivarfs mqueue"
    b" binfmt_misc fusectl nsfs sockfs pipefs anon_inodefs rpc_pipefs nfsd functionfs resctrl autofs".split()
)
"""Types whose files are no data: to open or read one may change something."""
BYTES_AT_ONCE = 4096
MFD_HUGETLB, MFD_HUGE_SHIFT = 0x4, 26
"""Flags of memfd_create(2), which not every Python names."""


class MountLine(NamedTuple):
    """Line of a mount table (/proc/PID/mountinfo)."""

    id: int
    device: str
    """MAJOR:MINOR, decimal."""
    root: str
    """The folder of the file system that is mounted."""
    point: str
    kind: bytes
    options: str
    """Of the file system itself."""


def unescape_field(text: bytes) -> str:
    """Decode a field, in which blanks, newlines and backslashes are octal."""
    return os.fsdecode(re.sub(rb"\\([0-7]{3})", lambda match: bytes([int(match[1], 8) & 0xFF]), text))


def parse_line(line: bytes) -> Optional[MountLine]:
    """Return the mount of a line, or None if it is none."""
    before, _, after = line.partition(b" - ")
    fields, what = before.split(b" "), after.split(b" ")
    if len(fields) < 6 or len(what) < 3 or not fields[0].isdigit():
        return None
    return MountLine(
        int(fields[0]),
        fields[2].decode("ascii", "replace"),
        unescape_field(fields[3]),
        unescape_field(fields[4]),
        what[0],
        unescape_field(what[2]),
    )


def parse_mounts(data: bytes) -> Iterator[MountLine]:
    """Yield the mounts of a table. Only a newline ends a line: names hold any other character."""
    return (mount for mount in map(parse_line, data.split(b"\n")) if mount is not None)


def read_mounts(path: str) -> Iterator[MountLine]:
    """Yield the mounts of a table as far as they are asked for: it may have thousands. Nothing where it cannot be read."""
    rest = b""
    try:
        with open(path, "rb", buffering=0) as file:
            while True:
                piece = file.read(BYTES_AT_ONCE)
                if not piece:
                    return
                whole, _, rest = (rest + piece).rpartition(b"\n")
                yield from parse_mounts(whole)
    except OSError:
        return


def kind_of(descriptor: int, table: str) -> Optional[bytes]:
    """Return the type of file system behind a descriptor without a question to it, by its mount's number in this table or our own. None if
    neither has it, and for an overlay of another user namespace: what it lies over is known to its user alone."""
    number = _mount_id(descriptor)
    if number is None or number in _memory_mounts():
        return None if number is None else b"tmpfs"
    for path in dict.fromkeys((table, "/proc/self/mountinfo")):
        mount = next((mount for mount in read_mounts(path) if mount.id == number), None)
        if mount is not None:
            return None if mount.kind == b"overlay" and _user_namespace(path) != _user_namespace("/proc/self/mountinfo") else mount.kind
    return None


def _mount_id(descriptor: int) -> Optional[int]:
    try:
        with open("/proc/self/fdinfo/%d" % descriptor, "rb") as file:
            found = re.search(rb"^mnt_id:\s*(\d+)", file.read(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found is not None else None


@lru_cache(maxsize=1)
def _memory_mounts() -> FrozenSet[Optional[int]]:
    """The kernel's own mounts, in no table, of memfds, SysV segments and shared anonymous memory (shm_mnt in mm/shmem.c; of huge pages,
    one for each size, in fs/hugetlbfs/inode.c). A copy of such a file would bring it in from swap."""
    numbers: Set[Optional[int]] = set()
    for flags in (0, MFD_HUGETLB, MFD_HUGETLB | 21 << MFD_HUGE_SHIFT, MFD_HUGETLB | 30 << MFD_HUGE_SHIFT):
        try:
            descriptor = os.memfd_create("gdbheapx", os.MFD_CLOEXEC | flags)
        except OSError:  # the machine has no pages of that size
            continue
        numbers.add(_mount_id(descriptor))
        os.close(descriptor)
    return frozenset(numbers)


def _user_namespace(table: str) -> Optional[str]:
    try:
        return os.readlink(os.path.join(os.path.dirname(table), "ns", "user"))
    except OSError:
        return None


def kind_of_device(status: os.stat_result) -> Optional[bytes]:
    """Return the type of the file system on a device, as far as it is mounted here: for mounts that no table shows (below a chroot)."""
    device = "%d:%d" % (os.major(status.st_dev), os.minor(status.st_dev))
    return next((mount.kind for mount in read_mounts("/proc/self/mountinfo") if mount.device == device), None)
