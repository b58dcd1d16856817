"""Programs that manage memory of their own: how each is noticed, and how its mappings lie. Rows of data; `shapes.py` applies them.

A row holds facts that were seen in the mappings of the releases named beside it. None of them needs a symbol.
"""

from typing import FrozenSet, NamedTuple, Optional, Tuple

from gdbheapx.model import GUESS, LIKELY

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


class Shape(NamedTuple):
    """What one sort of a runtime's mappings has in common. A mapping fits if every condition holds."""

    what: str
    """Behind the runtime's name: `Java heap`."""
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
    """A look at a few of its words decides (`pools.py`)."""
    sure: str = LIKELY


class Runtime(NamedTuple):
    """One program or library."""

    name: str
    objects: Tuple[str, ...]
    """How file names of loaded objects begin that show it."""
    section: Optional[str] = None
    """Instead: a section of the executable."""
    shapes: Tuple[Shape, ...] = ()
    """Of its private writable memory; the first that fits."""
    code: Optional[str] = None
    """What its executable anonymous memory is."""
    shared: Tuple[Tuple[str, str], ...] = ()
    """Start of the mapping's name, and what such shared memory is."""
    rest: Optional[str] = None
    """What its other anonymous memory is called; None where other libraries of such a program often have memory of that sort too."""


JVM = Runtime(  # OpenJDK 17 with G1, Serial, Parallel, ZGC
    "JVM",
    ("libjvm.so",),
    shapes=(
        # reserved in nodes of 64 MiB or as class space, committed in granules of 64 KiB (metaspaceSettings.hpp)
        Shape(
            "metaspace and class space", align_bytes=64 * KIB, multiple_bytes=64 * KIB, max_bytes=4 * MIB, reserve_above=True, below=None
        ),
        # compressed pointers to objects reach 32 GiB, 64 GiB with larger alignment
        Shape("Java heap", align_bytes=64 * KIB, min_bytes=64 * KIB, below=64 * GIB),
        Shape("Java heap", end_align_bytes=512 * KIB, min_bytes=MIB, min_run_bytes=16 * GIB),  # larger ones lie anywhere
        # whole chunks of 4 MiB side by side, which the kernel joins
        Shape("metaspace and class space", align_bytes=4 * MIB, multiple_bytes=64 * KIB, max_bytes=64 * MIB, reserve_above=True),
    ),
    code="code cache",
    shared=(("/memfd:java_heap", "Java heap (ZGC)"),),
    rest="tables of the garbage collector and other",
)

V8_OBJECTS = ("node", "libnode.so", "libv8", "d8", "chrome", "chromium", "electron")

WASM = Runtime(  # node 20 and 26, wasmtime 50: pages of 64 KiB at the begin of all that an index of 32 bits reaches, and a guard behind
    "WebAssembly",
    (*V8_OBJECTS, "wasmtime", "libwasmtime", "_libwasmtime"),
    # of V8's heap in a sandbox the last page has reserved addresses behind it, too: up to 1 TiB
    shapes=(Shape("linear memory", align_bytes=64 * KIB, multiple_bytes=64 * KIB, reach=(4 * GIB, 16 * GIB)),),
)

V8 = Runtime(  # node 20: pages of 256 KiB, larger ones for large objects; not inherited by a fork (`dc`)
    "V8",
    V8_OBJECTS,
    shapes=(
        Shape("JavaScript heap", align_bytes=256 * KIB, flags=frozenset({"dc"})),
        Shape("JavaScript heap", align_bytes=256 * KIB, sure=GUESS),
    ),
    code="JavaScript code",
)

GO = Runtime(  # Go 1.19 and 1.26: arenas of 64 MiB (runtime/malloc.go: heapArenaBytes), wherever the heap begins
    "Go",
    (),
    section=".gopclntab",
    shapes=(Shape("heap", run_align_bytes=64 * MIB, align_bytes=8 * KIB, multiple_bytes=8 * KIB, min_bytes=64 * KIB),),
    rest="tables of the runtime",
)

BEAM = Runtime(  # OTP 25: carriers of the allocators of erts
    "BEAM",
    ("beam.smp", "beam.debug.smp"),
    shapes=(Shape("carriers", align_bytes=16 * KIB, multiple_bytes=16 * KIB, min_bytes=256 * KIB),),
    code="JIT code",
    shared=(("/memfd:vmem", "JIT code"),),
    rest="single-block carriers and other",
)

PHP = Runtime(  # PHP 8.2 to 8.6: chunks of 2 MiB (Zend/zend_alloc.c: ZEND_MM_CHUNK_SIZE)
    "PHP",
    ("php", "libphp"),
    shapes=(Shape("Zend memory manager", align_bytes=2 * MIB, min_bytes=2 * MIB),),
    shared=(("/dev/zero", "opcache"),),
)

RUBY = Runtime(  # Ruby 3.1: pages of 16 KiB, later 64 KiB (gc.c: HEAP_PAGE_ALIGN_LOG)
    "Ruby",
    ("ruby", "libruby"),
    shapes=(
        Shape("transient heap", align_bytes=32 * KIB, multiple_bytes=32 * MIB, max_bytes=32 * MIB),  # up to 3.2 (transient_heap.c)
        Shape("object heap", align_bytes=16 * KIB, multiple_bytes=16 * KIB),
    ),
)

CPYTHON = Runtime(  # 3.9, 3.11, 3.13: arenas of 256 KiB, from 3.10 on of 1 MiB, which the kernel joins to longer mappings
    "CPython",
    ("python", "libpython"),
    shapes=(Shape("object arenas (obmalloc)", min_bytes=128 * KIB, probe="cpython-pools"),),
)

GCC = Runtime(  # cc1plus 12
    "GCC",
    ("cc1", "lto1", "f951", "gnat1"),
    rest="trees and RTL (its garbage-collected heap)",
)

MARIADB = Runtime("MariaDB", ("mariadbd", "mysqld"), shapes=(Shape("InnoDB buffer pool", min_bytes=4 * MIB, sure=GUESS),))

POSTGRES = Runtime("PostgreSQL", ("postgres",), shared=(("/dev/zero", "shared_buffers and its other shared memory"),))

NGINX = Runtime("nginx", ("nginx",), shared=(("/dev/zero", "shared zones"),))

RUNTIMES = (JVM, WASM, V8, GO, BEAM, PHP, RUBY, CPYTHON, GCC, MARIADB, POSTGRES, NGINX)

NAMES = (("Go: ", "Go"), ("v8", "V8"), ("zend_alloc", "PHP"), ("cpython:", "CPython"), ("dalvik-", "ART"))
"""How names that programs give to their anonymous memory begin, and whose they are."""
