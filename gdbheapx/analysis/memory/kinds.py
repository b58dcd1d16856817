"""Kinds of memory: owners of mappings by their own line, programs and libraries by the shape of theirs, and neighbours of a mapping."""

from bisect import bisect_right
from typing import FrozenSet, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.model import CERTAIN, GUESS, LIKELY
from gdbheapx.inferior.base import MappingUse

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


class MemoryOwner(NamedTuple):
    """Owner of memory: one line of the split."""

    kind: str
    """One of the kinds above."""
    name: str
    sure: str = CERTAIN
    """`certain`, `likely` or `guess`."""
    allocator: Optional[str] = None
    """Its id."""
    program: Optional[str] = None
    """The runtime or program whose memory it is, such as `JVM`."""


OTHER = MemoryOwner(ANONYMOUS, "other anonymous memory")
PAGE_CACHE = MemoryOwner(CACHE, "page cache of mapped files (the kernel can drop it)")
LOCKED_PAGES = MemoryOwner(LOCKED, "locked pages of mapped files (mlock: the kernel cannot drop them)")
COPIED_PAGES = MemoryOwner(COPIED, "private copies of file pages (.data, relocations)")
COPIED_DATA = MemoryOwner(COPIED, "private copies of pages of mapped data files")
"""Of files that are no loaded objects."""
DUMPED_FILES = MemoryOwner(CACHE, "read-only file pages in the core")
DUMPED_WRITABLE = MemoryOwner(COPIED, "writable mappings of files, dumped whole")
ZEROED = MemoryOwner(BSS, "bss (zeroed variables)")
KERNEL_PAGES = MemoryOwner(KERNEL, "pages of the kernel ([vdso], [vvar])")
PROGRAM_BREAK = MemoryOwner(BRK, "program break ([heap]) in which no allocator's blocks were read")

HUGE_PAGES = MemoryOwner(HUGETLB, "huge pages of hugetlbfs: not in RSS")

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


def parse_given_name(label: str) -> str:
    """NAME of `[anon:NAME]` or `[anon_shmem:NAME]` (mm/madvise.c, prctl PR_SET_VMA_ANON_NAME; Linux 5.17 and 6.2)."""
    return label.partition(":")[2].rstrip("]").strip()


def is_hugetlb(use: MappingUse) -> bool:
    """Pages of hugetlbfs: they are counted nowhere else."""
    return bool(use.hugetlb_bytes) or (use.flags is not None and "ht" in use.flags) or use.mapping.name.startswith(ANON_HUGE)


def is_locked(use: MappingUse) -> bool:
    """Return True if the mapping is locked by mlock or mlockall: all of its pages stay in RAM (VmFlags, Linux 3.8)."""
    return use.flags is not None and "lo" in use.flags


def is_shared_memory(use: MappingUse) -> bool:
    """Memory without a file on disk that other processes may map: shmem of every sort."""
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


def find_owner_by_line(use: MappingUse) -> Optional[MemoryOwner]:
    """The owner, if the mapping's own line shows it; for a file that of its pages that are not private copies. None: anonymous memory."""
    name = use.mapping.name
    if is_hugetlb(use):
        return HUGE_PAGES
    if not name and not (use.flags and use.flags & DEVICE_FLAGS):  # nearly all of a process with many mappings
        return None
    if name.startswith(OF_KERNEL):
        return KERNEL_PAGES
    if is_shared_memory(use):
        plain = name[: -len(DELETED)] if name.endswith(DELETED) else name
        if plain.startswith(MEMFD):
            plain = "memfd %s" % plain[len(MEMFD) :]
        elif plain.startswith(SYSV):
            plain = "SysV segment, key 0x%s" % plain[len(SYSV) :]
        elif plain.startswith(ZERO):
            plain = "anonymous (/dev/zero)"
        elif plain.startswith(NAMED_SHARED):
            plain = parse_given_name(plain)
        return MemoryOwner(SHARED, "shared memory: %s" % plain)
    if is_device(use):
        return MemoryOwner(DEVICE, "device memory: %s" % (name or "unnamed"))
    if use.mapping.is_file and not name.startswith(ZERO):
        return LOCKED_PAGES if is_locked(use) else PAGE_CACHE
    return None


KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class MappingShape(NamedTuple):
    """Common properties of one sort of a runtime's mappings. A mapping fits if every condition holds."""

    what: str
    """After the runtime's name: `Java heap`."""
    align_bytes: int = 1
    """Of the first address."""
    end_align_bytes: int = 1
    multiple_bytes: int = 1
    """Of the length."""
    min_bytes: int = 0
    max_bytes: Optional[int] = None
    below: Optional[int] = None
    """The whole mapping lies below this address."""
    run_align_bytes: int = 1
    """Of both ends of the run of anonymous mappings around it, reserved ones included."""
    min_run_bytes: int = 0
    reserve_above: bool = False
    """Reserved addresses follow it."""
    reach: Optional[Tuple[int, int]] = None
    """Least and most bytes of it and the reserved addresses that follow."""
    flags: FrozenSet[str] = frozenset()
    """Of VmFlags; not asked for where these are unknown (cores, Linux before 3.8)."""
    probe: Optional[str] = None
    """A look at a few of its words decides (`attribute.py`)."""
    sure: str = LIKELY


class KnownRuntime(NamedTuple):
    """Program or library with memory of its own."""

    name: str
    objects: Tuple[str, ...]
    """How file names of loaded objects begin that show it."""
    section: Optional[str] = None
    """Instead: a section of the executable."""
    shapes: Tuple[MappingShape, ...] = ()
    """Of its private writable memory; the first that fits."""
    code: Optional[str] = None
    """What its executable anonymous memory is."""
    shared: Tuple[Tuple[str, str], ...] = ()
    """Start of the mapping's name, and what such shared memory is."""
    rest: Optional[str] = None
    """What its other anonymous memory is called; None where other libraries of such a program often have memory of that sort too."""


JVM = KnownRuntime(  # OpenJDK 17 with G1, Serial, Parallel, ZGC
    "JVM",
    ("libjvm.so",),
    shapes=(
        # reserved in nodes of 64 MiB or as class space, committed in granules of 64 KiB (metaspaceSettings.hpp)
        MappingShape(
            "metaspace and class space", align_bytes=64 * KIB, multiple_bytes=64 * KIB, max_bytes=4 * MIB, reserve_above=True, below=None
        ),
        # compressed pointers to objects reach 32 GiB, 64 GiB with larger alignment
        MappingShape("Java heap", align_bytes=64 * KIB, min_bytes=64 * KIB, below=64 * GIB),
        MappingShape("Java heap", end_align_bytes=512 * KIB, min_bytes=MIB, min_run_bytes=16 * GIB),  # larger ones lie anywhere
        # whole chunks of 4 MiB side by side, which the kernel joins
        MappingShape("metaspace and class space", align_bytes=4 * MIB, multiple_bytes=64 * KIB, max_bytes=64 * MIB, reserve_above=True),
    ),
    code="code cache",
    shared=(("/memfd:java_heap", "Java heap (ZGC)"),),
    rest="tables of the garbage collector and other",
)

V8_OBJECTS = ("node", "libnode.so", "libv8", "d8", "chrome", "chromium", "electron")

WASM = (
    KnownRuntime(  # node 20 and 26, wasmtime 50: pages of 64 KiB at the begin of all that an index of 32 bits reaches, and a guard behind
        "WebAssembly",
        (*V8_OBJECTS, "wasmtime", "libwasmtime", "_libwasmtime"),
        # of V8's heap in a sandbox the last page has reserved addresses behind it, too: up to 1 TiB
        shapes=(MappingShape("linear memory", align_bytes=64 * KIB, multiple_bytes=64 * KIB, reach=(4 * GIB, 16 * GIB)),),
    )
)

V8 = KnownRuntime(  # node 20: pages of 256 KiB, larger ones for large objects; not inherited by a fork (`dc`)
    "V8",
    V8_OBJECTS,
    shapes=(
        MappingShape("JavaScript heap", align_bytes=256 * KIB, flags=frozenset({"dc"})),
        MappingShape("JavaScript heap", align_bytes=256 * KIB, sure=GUESS),
    ),
    code="JavaScript code",
)

GO = KnownRuntime(  # Go 1.19 and 1.26: arenas of 64 MiB (runtime/malloc.go: heapArenaBytes), wherever the heap begins
    "Go",
    (),
    section=".gopclntab",
    shapes=(MappingShape("heap", run_align_bytes=64 * MIB, align_bytes=8 * KIB, multiple_bytes=8 * KIB, min_bytes=64 * KIB),),
    rest="tables of the runtime",
)

BEAM = KnownRuntime(  # OTP 25: carriers of the allocators of erts
    "BEAM",
    ("beam.smp", "beam.debug.smp"),
    shapes=(MappingShape("carriers", align_bytes=16 * KIB, multiple_bytes=16 * KIB, min_bytes=256 * KIB),),
    code="JIT code",
    shared=(("/memfd:vmem", "JIT code"),),
    rest="single-block carriers and other",
)

PHP = KnownRuntime(  # PHP 8.2 to 8.6: chunks of 2 MiB (Zend/zend_alloc.c: ZEND_MM_CHUNK_SIZE)
    "PHP",
    ("php", "libphp"),
    shapes=(MappingShape("Zend memory manager", align_bytes=2 * MIB, min_bytes=2 * MIB),),
    shared=(("/dev/zero", "opcache"),),
)

RUBY = KnownRuntime(  # Ruby 3.1: pages of 16 KiB, later 64 KiB (gc.c: HEAP_PAGE_ALIGN_LOG)
    "Ruby",
    ("ruby", "libruby"),
    shapes=(
        MappingShape("transient heap", align_bytes=32 * KIB, multiple_bytes=32 * MIB, max_bytes=32 * MIB),  # up to 3.2 (transient_heap.c)
        MappingShape("object heap", min_bytes=16 * KIB, probe="ruby-pages"),  # the kernel joins them to blocks that malloc mapped
        MappingShape("object heap", align_bytes=16 * KIB, multiple_bytes=16 * KIB),
    ),
)

CPYTHON = KnownRuntime(  # 3.9, 3.11, 3.13: arenas of 256 KiB, from 3.10 on of 1 MiB, which the kernel joins to longer mappings
    "CPython",
    ("python", "libpython"),
    shapes=(MappingShape("object arenas (obmalloc)", min_bytes=128 * KIB, probe="cpython-pools"),),
)

GCC = KnownRuntime(  # cc1plus 12
    "GCC",
    ("cc1", "lto1", "f951", "gnat1"),
    rest="trees and RTL (its garbage-collected heap)",
)

MARIADB = KnownRuntime(  # 10.11: what my_large_malloc() maps: pool and log of InnoDB, page cache of Aria, key buffer of MyISAM
    "MariaDB",
    ("mariadbd", "mysqld"),
    shapes=(MappingShape("buffers of InnoDB, Aria and MyISAM", min_bytes=4 * MIB, sure=GUESS),),
)

LUAJIT = KnownRuntime(  # 2.1: segments of 128 KiB (lj_alloc.c: DEFAULT_GRANULARITY), which the kernel joins, and large objects each alone
    "LuaJIT",
    ("libluajit", "luajit"),
    shapes=(MappingShape("objects", min_bytes=128 * KIB, sure=GUESS),),
    code="machine code",
)

POSTGRES = KnownRuntime("PostgreSQL", ("postgres",), shared=(("/dev/zero", "shared_buffers and its other shared memory"),))

NGINX = KnownRuntime("nginx", ("nginx",), shared=(("/dev/zero", "shared zones"),))

RUNTIMES = (JVM, WASM, V8, GO, BEAM, PHP, RUBY, CPYTHON, GCC, MARIADB, LUAJIT, POSTGRES, NGINX)

NAMES = (("Go: ", "Go"), ("v8", "V8"), ("zend_alloc", "PHP"), ("cpython:", "CPython"), ("dalvik-", "ART"))
"""How names that programs give to their anonymous memory begin, and whose they are."""


class MappingPlaces:
    """Questions about neighbours. Mappings are named by their index."""

    def __init__(self, uses: Sequence[MappingUse]) -> None:
        self.uses = uses
        self._starts = [use.mapping.start for use in uses]
        self._runs: Sequence[Tuple[int, int]] = ()

    def at(self, address: Optional[int]) -> Optional[int]:
        """The mapping that holds the address."""
        place = bisect_right(self._starts, address) - 1 if address else -1
        return place if place >= 0 and (address or 0) < self.uses[place].mapping.end else None

    def is_plain(self, place: int) -> bool:
        """Private anonymous memory that can be written: what a stack or a heap is made of."""
        mapping = self.uses[place].mapping
        return mapping.readable and mapping.writable and not mapping.shared and is_anonymous_use(self.uses[place])

    def is_reserve(self, place: int) -> bool:
        """Private anonymous addresses without any right: reserved, or a guard."""
        mapping = self.uses[place].mapping
        return not (mapping.readable or mapping.writable or mapping.executable or mapping.shared) and is_anonymous_use(self.uses[place])

    def guard_bytes(self, place: int) -> int:
        """Length of the reserve right below; 0 if there is none."""
        if place == 0 or self.uses[place - 1].mapping.end != self.uses[place].mapping.start or not self.is_reserve(place - 1):
            return 0
        return self.uses[place - 1].mapping.size_bytes

    def may_have_had_guard(self, place: int) -> bool:
        """Return True if a guard may have been below this mapping of a core by gdb, which leaves out unreadable memory, or records it as
        readable (gcore_create_callback): nothing lies right below, or anonymous memory that cannot be written.
        """
        mapping = self.uses[place].mapping
        if mapping.dumped_bytes is None or place == 0 or self.uses[place - 1].mapping.end < mapping.start:
            return mapping.dumped_bytes is not None
        below = self.uses[place - 1]
        return is_anonymous_use(below) and not (below.mapping.writable or below.mapping.executable)

    def reserve_above(self, place: int) -> int:
        """Length of the reserve right above; 0 if there is none."""
        last = place + 1 == len(self.uses)
        if last or self.uses[place + 1].mapping.start != self.uses[place].mapping.end or not self.is_reserve(place + 1):
            return 0
        return self.uses[place + 1].mapping.size_bytes

    def run(self, place: int) -> Tuple[int, int]:
        """First address and end of the private anonymous mappings without a hole, of whatever rights, that this one belongs to."""
        if not self._runs:
            starts: List[int] = []
            end_before = 0  # of a private anonymous mapping right before
            for use in self.uses:
                is_private = is_anonymous_use(use) and not use.mapping.shared
                starts.append(starts[-1] if starts and is_private and use.mapping.start == end_before else use.mapping.start)
                end_before = use.mapping.end if is_private else 0
            ends = [use.mapping.end for use in self.uses]
            for number in range(len(ends) - 2, -1, -1):
                if starts[number] == starts[number + 1]:
                    ends[number] = ends[number + 1]
            self._runs = list(zip(starts, ends))
        return self._runs[place]


def is_anonymous_use(use: MappingUse) -> bool:
    """No file is mapped here: no name, or a name that the program gave to anonymous memory."""
    return not use.mapping.name or use.mapping.name.startswith("[anon:")
