"""The kinds of memory that `report` tells apart, and those that a mapping's own line tells: files, shared memory, devices."""

from typing import NamedTuple, Optional

from gdbheapx.inferior.base import MappingUse
from gdbheapx.model import CERTAIN

ALLOCATOR = "allocator"
STACK = "stack"
JIT = "jit"
BSS = "bss"
BRK = "brk"
NAMED = "named"
RUNTIME = "runtime"
ANONYMOUS = "anonymous"
SHARED = "shared-memory"
COPIED = "private-file"
CACHE = "page-cache"
LOCKED = "locked-file"
DEVICE = "device"
KERNEL = "kernel"
HUGETLB = "hugetlb"

PRIVATE = frozenset((STACK, JIT, BSS, BRK, NAMED, RUNTIME, ANONYMOUS, KERNEL))
"""Anonymous memory of the process that is no allocator's."""
FILE = frozenset((COPIED, CACHE, LOCKED))


class Owner(NamedTuple):
    """Whose memory it is: one line of the split."""

    kind: str
    """One of the kinds above."""
    name: str
    sure: str = CERTAIN
    """`certain`, `likely` or `guess`."""
    allocator: Optional[str] = None
    """Its id."""
    program: Optional[str] = None
    """The runtime or program whose memory it is, such as `JVM`."""


OTHER = Owner(ANONYMOUS, "other anonymous memory")
PAGE_CACHE = Owner(CACHE, "page cache of mapped files (the kernel can drop it)")
LOCKED_PAGES = Owner(LOCKED, "locked pages of mapped files (mlock: the kernel cannot drop them)")
COPIED_PAGES = Owner(COPIED, "private copies of file pages (.data, relocations)")
COPIED_DATA = Owner(COPIED, "private copies of pages of mapped data files")
"""Of files that are no loaded objects."""
DUMPED_FILES = Owner(CACHE, "read-only file pages in the core")
DUMPED_WRITABLE = Owner(COPIED, "writable mappings of files, dumped whole")
ZEROED = Owner(BSS, "bss (zeroed variables)")
KERNEL_PAGES = Owner(KERNEL, "pages of the kernel ([vdso], [vvar])")
PROGRAM_BREAK = Owner(BRK, "program break ([heap]) in which no allocator's blocks were read")

HUGE_PAGES = Owner(HUGETLB, "huge pages of hugetlbfs: not in RSS")

SYSV, MEMFD, SHM, ZERO = "/SYSV", "/memfd:", "/dev/shm/", "/dev/zero"
DELETED = " (deleted)"
NAMED_SHARED, NAMED_PRIVATE = "[anon_shmem:", "[anon:"
ANON_HUGE = "/anon_hugepage"
NO_DEVICES = (ZERO, SHM, "/dev/hugepages", "/dev/mqueue")
"""Below /dev and no device memory."""
TEMPORARY = frozenset(("tmpfs", "ramfs", "shmem", "devtmpfs"))
"""File systems whose files are memory: no disk has what the kernel would drop."""
DEVICE_FLAGS = frozenset(("pf", "io"))
OF_KERNEL = ("[v", "[uprobes]", "[sigpage]", "[vectors]")


def given_name(label: str) -> str:
    """NAME of `[anon:NAME]` or `[anon_shmem:NAME]` (mm/madvise.c, prctl PR_SET_VMA_ANON_NAME; Linux 5.17 and 6.2)."""
    return label.partition(":")[2].rstrip("]").strip()


def is_hugetlb(use: MappingUse) -> bool:
    """Pages of hugetlbfs: they are counted nowhere else."""
    return bool(use.hugetlb_bytes) or (use.flags is not None and "ht" in use.flags) or use.mapping.name.startswith(ANON_HUGE)


def is_locked(use: MappingUse) -> bool:
    """By mlock or mlockall: all of its pages stay in RAM (VmFlags, Linux 3.8)."""
    return use.flags is not None and "lo" in use.flags


def is_shared_memory(use: MappingUse) -> bool:
    """Memory without a disk behind it that other processes may map: shmem of every sort."""
    name = use.mapping.name
    if name.startswith((SYSV, MEMFD, SHM, NAMED_SHARED)):
        return True
    if name.startswith(ZERO):  # a private mapping of /dev/zero is anonymous memory, and does not say (deleted)
        return use.mapping.shared or name.endswith(DELETED)
    return use.filesystem in TEMPORARY and not is_device(use)


def is_device(use: MappingUse) -> bool:
    """Memory of a device or a driver, or rings that the kernel shares with the process."""
    name = use.mapping.name
    if use.flags and use.flags & DEVICE_FLAGS:
        return True
    return name.startswith(("anon_inode:", "/anon_inode:", "socket:")) or (name.startswith("/dev/") and not name.startswith(NO_DEVICES))


def shared_owner(use: MappingUse) -> Owner:
    """Shared memory by the name that says where it comes from."""
    name = use.mapping.name
    plain = name[: -len(DELETED)] if name.endswith(DELETED) else name
    if plain.startswith(MEMFD):
        return Owner(SHARED, "shared memory: memfd %s" % plain[len(MEMFD) :])
    if plain.startswith(SYSV):
        return Owner(SHARED, "shared memory: SysV segment, key 0x%s" % plain[len(SYSV) :])
    if plain.startswith(ZERO):
        return Owner(SHARED, "shared memory: anonymous (/dev/zero)")
    if plain.startswith(NAMED_SHARED):
        return Owner(SHARED, "shared memory: %s" % given_name(plain))
    return Owner(SHARED, "shared memory: %s" % plain)


def by_line(use: MappingUse) -> Optional[Owner]:
    """The owner, if the mapping's own line tells it; for a file that of its pages that are not private copies. None: anonymous memory."""
    name = use.mapping.name
    if is_hugetlb(use):
        return HUGE_PAGES
    if not name and not (use.flags and use.flags & DEVICE_FLAGS):  # nearly all of a process with many mappings
        return None
    if name.startswith(OF_KERNEL):
        return KERNEL_PAGES
    if is_shared_memory(use):
        return shared_owner(use)
    if is_device(use):
        return Owner(DEVICE, "device memory: %s" % (name or "unnamed"))
    if use.mapping.is_file and not name.startswith(ZERO):
        return LOCKED_PAGES if is_locked(use) else PAGE_CACHE
    return None
