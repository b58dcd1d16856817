"""Signatures that are one row each; those of a runtime or library are looked for only where a module of theirs is loaded."""

import re
import struct
from typing import Dict, Iterable, List, Optional, Sequence

from gdbheapx.analysis.census.vtables import Images
from gdbheapx.analysis.census.world import EXACT, SHAPE, Ask, Recogniser, RuntimeLabels, Signature, World
from gdbheapx.kernel.blocks.signatures import ADDRESS, ALL, AT_LEAST, AT_MOST, EQUAL, FIELD, USABLE, Condition, SignatureRow, Signed

TAGS = [
    "Java Heap",
    "Class",
    "Thread",
    "Thread Stack",
    "Code",
    "GC",
    "Compiler",
    "JVMCI",
    "Internal",
    "Other",
    "Symbol",
    "Native Memory Tracking",
    "Shared class space",
    "Arena Chunk",
    "Test",
    "Tracing",
    "Logging",
    "Statistics",
    "Arguments",
    "Module",
    "Safepoint",
    "Synchronization",
    "Serviceability",
    "Metaspace",
    "String Deduplication",
    "Object Monitors",
]
"""HotSpot's MEMFLAGS by number, up to JDK 17 (share/memory/allocation.hpp: MEMORY_TYPES_DO)."""
NEWER_TAGS = [*TAGS[:6], "GCCardSet", *TAGS[6:]]
"""JDK 21 and later; between 17 and 21 the release that has it was not looked for."""
LEAST_BLOCKS = 16
"""Of SQLite's, whose one open database has hundreds: two in 100,000 of another program fit as well."""
VFS_PATH_BYTES, VFS_VERSIONS, VFS_FILE_BYTES = 512, range(1, 4), range(64, 513)
"""Of SQLite's sqlite3_vfs for Unix {iVersion, szOsFile, mxPathname, pNext, zName, pAppData, xOpen, ...} (os_unix.c: UNIXVFS)."""
VFS_NAME, VFS_FUNCTIONS, LEAST_VFS_FUNCTIONS, MOST_VFS_FUNCTIONS = 16, 32, 8, 12
"""In bytes behind mxPathname; of the functions, the four that load extensions may be lacking."""
PAGES = [512 << power for power in range(8)]
PAGE_HEAD_BYTES = 480
"""That SQLite's cache puts behind a page, at most (pcache1.c: PgHdr1; pager.c: PgHdr, MemPage)."""


class NativeMemoryTracking(Recogniser):
    """HotSpot's header before each block with -XX:NativeMemoryTracking (share/services/mallocHeader.hpp: size, tag, canary 0xE99E)."""

    module, objects, is_wide = "jvm", ("libjvm.so",), False
    table = RuntimeLabels(
        "JVM",
        "",
        "",
        "malloc: blocks without a header of NMT's (JNI, libraries)",
        "malloc: blocks in use (NMT is off: direct buffers, JNI, the JVM itself)",
    )

    def __init__(self) -> None:
        self._tags: Sequence[str] = TAGS

    def asks(self, world: World) -> Iterable[Ask]:
        """Size, tag and canary; the footer's two bytes fit behind."""
        conditions = [
            Condition(14, 2, EQUAL, 0xE99E),
            Condition(13, 1, EQUAL, 0),
            Condition(12, 1, AT_MOST, len(NEWER_TAGS) - 1),
            Condition(0, 8, AT_MOST, -18, USABLE),
        ]
        yield Ask(SignatureRow(conditions, least_usable=24, key=(12, 1, 0xFF)), self._name, order=10, settle=self._settle)

    def _settle(self, matches: Sequence[Signed]) -> None:
        """Which table it is: Symbol, 10 or 11, has by far the most blocks of the two."""
        blocks: Dict[int, int] = {match.key: match.blocks for match in matches}
        self._tags = NEWER_TAGS if blocks.get(11, 0) > blocks.get(10, 0) else TAGS

    def _name(self, key: int) -> Optional[Signature]:
        return Signature("NMT %s" % self._tags[key], self.module, EXACT) if key < len(self._tags) else None


def has_sqlite(world: World) -> bool:
    """Whether some object's data have the way to files that SQLite registers when it begins, by its form: it may be inside any program."""
    images = world.once(Images)
    for start, end in images.ranges:
        for match in re.finditer(re.escape(struct.pack("<Q", VFS_PATH_BYTES)), images.words(start, end).tobytes()):
            at = start + match.start()
            kind, name, span = images.word(at - 8) or 0, images.word(at + VFS_NAME) or 0, images.span_at(at)
            if kind & 0xFFFFFFFF not in VFS_VERSIONS or kind >> 32 not in VFS_FILE_BYTES or not span or not span[0] <= name < span[1]:
                continue
            words = [word for word in (images.word(at + VFS_FUNCTIONS + 8 * number) for number in range(MOST_VFS_FUNCTIONS)) if word]
            if len(words) >= LEAST_VFS_FUNCTIONS and all(map(images.is_code, words)):
                return True
    return False


class Sqlite(Recogniser):
    """SQLite writes the size before each block where malloc_usable_size is not used (mem1.c: sqlite3MemMalloc)."""

    module, objects, is_wide = "sqlite", ("sqlite",), False

    def __init__(self) -> None:
        self._is_known = True
        self._pages: Dict[int, int] = {}

    def is_here(self, world: World) -> bool:
        """By a library's name, or by what it keeps in its data."""
        is_inside = world.word_bytes == 8 and world.little_endian and world.constant(has_sqlite)
        return is_inside or super().is_here(world)

    def asks(self, world: World) -> Iterable[Ask]:
        """A multiple of 8 that fits the block."""
        conditions = [Condition(0, 8, EQUAL, 0, mask=7), Condition(0, 8, AT_MOST, -8, USABLE), Condition(0, 8, AT_LEAST, -23, USABLE)]
        yield Ask(SignatureRow(conditions, least_usable=40, key=(0, 8, ALL)), self._name, order=45, settle=self._settle)

    def _settle(self, matches: Sequence[Signed]) -> None:
        blocks = {match.key: match.blocks for match in matches}
        self._is_known = sum(blocks.values()) >= LEAST_BLOCKS
        self._pages = {
            size: page for size, count in blocks.items() if count >= LEAST_BLOCKS for page in PAGES if page < size <= page + PAGE_HEAD_BYTES
        }

    def _name(self, key: int) -> Optional[Signature]:
        name = "page of %d bytes in SQLite's cache" % self._pages[key] if key in self._pages else "sqlite3_malloc"
        return Signature(name, self.module, SHAPE) if self._is_known else None


class OneRow(Recogniser):
    """Blocks of one name that one row tells, where an object of that name is loaded, or the program offers a function of that one's."""

    is_wide = False

    def __init__(self, module: str, name: str, row: SignatureRow, function: str, table: Optional[RuntimeLabels] = None) -> None:
        self.module, self.objects, self._name, self._row, self._function = module, (module,), name, row, function
        self.table = table

    def is_here(self, world: World) -> bool:
        """A program that loads modules of its own offers its functions to them, whatever it is called."""
        return super().is_here(world) or any(world.target.exported(module, self._function) for module in world.modules()[:1])

    def asks(self, world: World) -> Iterable[Ask]:
        """The row."""
        yield Ask(self._row, lambda key: Signature(self._name, self.module, SHAPE), order=40)


PERL_ARENA = SignatureRow([Condition(8, 4, EQUAL, 170)], least_usable=4080, most_usable=4104)
"""Arenas that Perl cuts its scalars' heads from (sv.c: S_more_sv): the first of 170 heads of 24 bytes has their number."""
PERL_LABELS = RuntimeLabels(
    "Perl",
    "",
    "malloc: heads of scalars, and blocks that they alone reference",
    "malloc: other blocks in use (what several point to, modules in C, libraries)",
    "malloc: blocks in use",
)
NGX_POOL = SignatureRow(
    [
        Condition(0, 8, AT_LEAST, 80, ADDRESS),
        Condition(0, 8, AT_MOST, 0, FIELD, other=8),
        Condition(24, 8, AT_MOST, 9),
        Condition(32, 8, AT_LEAST, 1),
        Condition(32, 8, AT_MOST, 4095),
    ],
    least_usable=80,
)
"""nginx's pools (ngx_palloc.h: ngx_pool_t: last, end, next, failed, max, current): what is free lies between last and end, in the block."""
RECOGNISERS: List[Recogniser] = [
    NativeMemoryTracking(),
    OneRow("perl", "arena of 170 SV heads", PERL_ARENA, "Perl_newSV", PERL_LABELS),
    Sqlite(),
    OneRow("nginx", "ngx_pool_t", NGX_POOL, "ngx_create_pool"),
]
