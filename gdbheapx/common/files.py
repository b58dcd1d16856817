"""Files whose kind is not known, where a FIFO would wait for a writer for ever and a device acts; files that a target names; and files
that have no name.

What a target names is never opened as text: links of its tree lead to places in that tree (openat2(2), RESOLVE_IN_ROOT), magic links of
/proc nowhere, and a file is looked at (O_PATH) before it is opened. Whatever lies on a file system that may not answer is opened by a child
that may be abandoned (apart.py).
"""

import ctypes
import errno
import os
import re
import resource
import stat
import threading
from collections import OrderedDict
from functools import lru_cache
from typing import TYPE_CHECKING, Callable, FrozenSet, Iterator, NamedTuple, Optional, Set, Tuple, TypeVar

if TYPE_CHECKING:
    from gdbheapx.common import apart

HANDLE = os.O_PATH | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
OPENAT2 = 437
"""Its number on all machines (Linux 5.6)."""
NO_XDEV, NO_MAGICLINKS, IN_ROOT = 0x01, 0x02, 0x10
"""RESOLVE_... (linux/openat2.h)."""
MOST_COPIED_BYTES = 1 << 30
MAX_LINKS = 40
"""As many symbolic links as the kernel follows."""


Asked = TypeVar("Asked")


class NotRegular(OSError):
    """Error: the path exists and is not a regular file."""


class TargetPath(str):
    """A path that a target gave, as text for people: it is opened below `root`, or where that is None as the link of /proc that it is."""

    root: Optional[str]

    def __new__(cls, text: str, root: Optional[str] = "/") -> "TargetPath":
        made = super().__new__(cls, text)
        made.root = root
        return made

    @property
    def inside(self) -> str:
        """The path in the tree."""
        top = (self.root or "").rstrip("/")
        return self[len(top) :] if self.startswith(top + "/") else str(self)

    @property
    def mount_table(self) -> str:
        """The mountinfo of the process whose tree it is; ours where that is no one's."""
        parts = self.split("/")
        return "/proc/%s/mountinfo" % (parts[2] if self.startswith("/proc/") and parts[2].isdigit() else "self")


def in_tree(root: str, name: str) -> TargetPath:
    """Return the path of a target's file below `root` (empty: the tree is this machine's own; a relative name is one of our folder)."""
    if not root:
        return TargetPath(name, "/" if name.startswith("/") else ".")
    return TargetPath("%s/%s" % (root.rstrip("/"), name.lstrip("/")), root)


def open_regular(path: str) -> int:
    """A descriptor for reading the regular file at `path`. OSError if it cannot be opened, NotRegular without opening anything else."""
    if isinstance(path, TargetPath):
        return open_of_target(path)
    handle = os.open(path, HANDLE)
    try:
        check_regular(os.fstat(handle), path)
        return reopen_handle(handle, path, READ)
    finally:
        os.close(handle)


def open_of_target(path: TargetPath, is_folder: bool = False) -> int:
    """Open a regular file or folder that a target names. It comes from a child where it is not on the tree's uppermost mount, or that may
    not answer: a mount is not crossed here, so none can get in the way."""
    handle = _look_up_here(path)
    if handle is None:
        return open_apart(path, is_folder)
    try:
        return open_handle(handle, path, is_folder)
    finally:
        os.close(handle)


@lru_cache(maxsize=1)
def reader() -> "apart.Reader":
    """Return the one who reads what may not answer; its modules cost two milliseconds."""
    from gdbheapx.common import apart

    return apart.Reader(open_in_child)


def open_apart(path: TargetPath, is_folder: bool = False) -> int:
    """Return a descriptor of a file or folder of a target; of a file that may not answer one of its copy, of such a folder none."""
    return reader().open_file(path, path.root, is_folder)


def read_apart(path: str) -> bytes:
    """Return the first bytes of a file of /proc whose reading may wait for a process's own memory. Empty where there is no answer."""
    try:
        return reader().read_text(path)
    except OSError:
        return b""


def open_in_child(name: str, root: Optional[str], is_folder: bool) -> int:
    """Open in apart.py's child, which may wait for ever: what cannot be trusted to answer again is copied."""
    path = TargetPath(name, root)
    handle = look_up(path)
    try:
        kind = kind_of(handle, path.mount_table) or kind_of_device(os.fstat(handle))
        if kind in PSEUDO:
            raise NotRegular(errno.EINVAL, "it is not a regular file", path)
        if kind not in LOCAL and is_folder:
            raise OSError(errno.EREMOTEIO, "its file system may not answer", path)
        descriptor = open_handle(handle, path, is_folder)
        return descriptor if kind in LOCAL else copy_unnamed(descriptor)
    finally:
        os.close(handle)


def copy_unnamed(source: int) -> int:
    """Return a copy without a name, with the time, the owner and the rights of its source; the source is closed."""
    try:
        status = os.fstat(source)
        if status.st_size > MOST_COPIED_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        descriptor = unnamed_or_in_memory()
        copy_range(descriptor, source, 0, status.st_size)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & 0o444)
        if status.st_uid != os.geteuid() == 0:
            os.fchown(descriptor, status.st_uid, -1)
        return descriptor
    finally:
        os.close(source)


def _look_up_here(path: TargetPath) -> Optional[int]:
    """Return a handle of what is known to answer, None for all else."""
    top = os.open(path if path.root is None else path.root, HANDLE)
    try:
        if kind_of(top, path.mount_table) not in LOCAL:
            return None
        if path.root is None:
            return os.dup(top)
        return openat2(top, path.inside, HANDLE, IN_ROOT | NO_MAGICLINKS | NO_XDEV)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ENOSYS, errno.EPERM, errno.EAGAIN):
            return None
        raise
    finally:
        os.close(top)


def look_up(path: TargetPath) -> int:
    """Return a handle of whatever the path leads to in its tree; this may wait for a file system for ever."""
    top = os.open(path if path.root is None else path.root, HANDLE)
    try:
        if path.root is None:
            return os.dup(top)
        try:
            return openat2(top, path.inside, HANDLE, IN_ROOT | NO_MAGICLINKS)
        except OSError as error:
            if error.errno not in (errno.ENOSYS, errno.EPERM, errno.EAGAIN):
                raise
        return walk_path(top, path.inside)
    finally:
        os.close(top)


def openat2(top: int, path: str, flags: int, resolve: int) -> int:
    """openat2(2), which neither Python nor old C libraries have. ENOSYS before Linux 5.6, EPERM below old filters of containers."""
    how = (ctypes.c_uint64 * 3)(flags, 0, resolve)
    call = ctypes.CDLL(None, use_errno=True).syscall
    descriptor: int = call(ctypes.c_long(OPENAT2), ctypes.c_long(top), os.fsencode(path), how, ctypes.c_size_t(ctypes.sizeof(how)))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), path)
    return descriptor


def walk_path(top: int, path: str, judge: Optional[Callable[[os.stat_result], None]] = None, is_tree: bool = True) -> int:
    """Return a handle of what `path` leads to below a folder, without openat2: the text of each link is resolved component by component.
    `judge` sees the status of each of them before it is used, and may raise. Not `is_tree`: the folder is no root, only a beginning."""
    at, parts, links = [os.dup(top)], path.split("/")[::-1], 0
    try:
        while parts:
            part = parts.pop()
            if part == ".." and (len(at) > 1 or not is_tree):
                folder_above = os.open("..", HANDLE, dir_fd=at[0]) if len(at) == 1 else None
                os.close(at.pop())
                at += [] if folder_above is None else [folder_above]
            if part in ("", ".", ".."):
                continue
            at.append(os.open(part, HANDLE | os.O_NOFOLLOW, dir_fd=at[-1]))
            status = os.fstat(at[-1])
            if judge is not None:
                judge(status)
            if not stat.S_ISLNK(status.st_mode):
                continue
            link, links = at.pop(), links + 1
            try:
                if kind_of(link, "/proc/self/mountinfo") == b"proc":  # no text leads where it does
                    if is_tree:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    at.append(os.open(part, HANDLE, dir_fd=at[-1]))
                    continue
                text = os.readlink("", dir_fd=link)
            finally:
                os.close(link)
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            while text.startswith("/") and len(at) > is_tree:
                os.close(at.pop())
            at += [] if at else [os.open("/", HANDLE)]
            parts += text.split("/")[::-1]
        return os.dup(at[-1])
    finally:
        for descriptor in at:
            os.close(descriptor)


def open_handle(handle: int, path: str, is_folder: bool = False) -> int:
    """Open what a handle of a target's file is of, for reading: a regular file, or a folder."""
    if is_folder:
        return reopen_handle(handle, path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    check_regular(os.fstat(handle), path)
    return reopen_handle(handle, path, READ)


def reopen_handle(handle: int, path: str, flags: int) -> int:
    """Open what a handle is of, whatever lies at the path by now."""
    try:
        return os.open("/proc/self/fd/%d" % handle, flags)
    except FileNotFoundError:  # no /proc here, or that of another pid namespace
        descriptor = os.open(path, flags)
    if os.path.samestat(os.fstat(descriptor), os.fstat(handle)):
        return descriptor
    os.close(descriptor)
    raise NotRegular(errno.ESTALE, "another file lies there by now", path)


class RegularFile:
    """A regular file for reading at offsets. Few of them are open at a time: one that is asked again is opened again."""

    MOST_OPEN = 256
    _open: "OrderedDict[int, int]" = OrderedDict()
    _lock = threading.RLock()

    def __init__(self, path: str) -> None:
        self.path = path
        self._identity: Optional[Tuple[int, int]] = None
        self.ask(lambda descriptor: None)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        descriptor = self._open.pop(id(self), None)
        if descriptor is not None:  # `os` may be gone when the interpreter ends
            close(descriptor)

    def ask(self, question: Callable[[int], Asked]) -> Asked:
        """Return what `question` gives for the file's descriptor. OSError if it cannot be opened again, or another file lies there."""
        with self._lock:
            descriptor = self._open.pop(id(self), None)
            if descriptor is None:
                descriptor = open_regular(self.path)
                status = os.fstat(descriptor)
                identity = status.st_size, status.st_mtime_ns  # a copy (apart.py) has these of its source
                if identity != (self._identity or identity):
                    os.close(descriptor)
                    raise NotRegular(errno.ESTALE, "another file lies there by now", self.path)
                self._identity = identity
                room = min(self.MOST_OPEN, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
                while len(self._open) >= max(room, 1):
                    os.close(self._open.popitem(last=False)[1])
            self._open[id(self)] = descriptor
            return question(descriptor)

    def pread(self, size_bytes: int, offset: int) -> bytes:
        return self.ask(lambda descriptor: os.pread(descriptor, size_bytes, offset))


def check_regular(status: os.stat_result, path: str) -> None:
    """NotRegular unless it is the status of a regular file."""
    if not stat.S_ISREG(status.st_mode):
        raise NotRegular(errno.EINVAL, "it is not a regular file", path)


def temporary_folder() -> str:
    """Return the folder for temporary files."""
    return os.environ.get("TMPDIR") or "/tmp"


def open_unnamed() -> int:
    """A descriptor of a temporary file that vanishes with it; it may hold addresses of the program, so no one else sees it."""
    path = "%s/gdbheapx-%d-%s" % (temporary_folder(), os.getpid(), os.urandom(8).hex())
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(path)
    return descriptor


def copy_of(path: str) -> int:
    """A descriptor of a copy without a name. OSError if the file cannot be read or there is no room."""
    source = open_regular(path)
    try:
        descriptor = unnamed_or_in_memory()
        try:
            copy_range(descriptor, source, 0, os.fstat(source).st_size)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor
    finally:
        os.close(source)


def unnamed_or_in_memory() -> int:
    """Return a descriptor of a nameless temporary file, in memory if no folder takes it."""
    try:
        return open_unnamed()
    except OSError:
        return os.memfd_create("gdbheapx")


def copy_range(descriptor: int, source: int, at: int, size_bytes: int) -> None:
    """Copy a part of one file to where the other is; less at the source's end."""
    end = at + size_bytes
    while at < end:
        done = os.sendfile(descriptor, source, at, end - at)
        if not done:
            return
        at += done


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
    """Return the type of file system of a descriptor without a question to it, by its mount's number in this table or our own. None if
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


def open_standard() -> None:
    """Make of each standard descriptor that the caller closed one that cannot be written: the next file that is opened would get its
    number."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)
            os.set_inheritable(number, True)
