"""Signatures that are one row each; those of a runtime or library are looked for only where a module of theirs is loaded."""

import re
import struct
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from gdbheapx.analysis.census.containers import MOST_COUNT, FoundContainer, make_container, spare_bytes_beyond
from gdbheapx.analysis.census.images import Images
from gdbheapx.analysis.census.world import EXACT, SHAPE, Ask, CensusTarget, Length, Recogniser, RuntimeLabels, Signature
from gdbheapx.kernel.blocks.signatures import (
    ADDRESS,
    ALL,
    AT_LEAST,
    AT_MOST,
    ELEMENT,
    EQUAL,
    FIELD,
    IN_RANGES,
    IN_SET,
    NOT_EQUAL,
    USABLE,
    Condition,
    NumberSet,
    SignatureRow,
    Signed,
)

ENTRY, DICT, RAW = "dict entry", "dict", "string object"
EMBEDDED = "string object with its bytes"
NUMBER = 0x10
OBJECTS = {
    NUMBER: "string object (number)",
    0x91: "list object (quicklist)",
    0xB1: "list object (listpack)",
    0x22: "set object (dict)",
    0x62: "set object (intset)",
    0xB2: "set object (listpack)",
    0x73: "sorted set object (skiplist)",
    0x53: "sorted set object (ziplist)",
    0xB3: "sorted set object (listpack)",
    0x24: "hash object (dict)",
    0x54: "hash object (ziplist)",
    0xB4: "hash object (listpack)",
    0xA6: "stream object",
}
"""By type and encoding (server.h: OBJ_LIST and so on, OBJ_ENCODING_INT and so on)."""
MOST_ADDRESS = 1 << 47
HEADS = NumberSet((1, 3, 5, 9))
"""Of strings, in bytes: where pointers to them lead, modulo 16."""
LEAST_OBJECTS = 64
"""Of one sort: the dict of its commands alone has hundreds of entries; a few of another program's blocks fit as well."""
LEAST_DICTS = 8
"""Each database has two, and so has each of its tables of commands and scripts."""
BODIES = ("quicklist", "listpack", "intset", "ziplist")
HEAP, HEADS_SET, COUNTS_SET, LAST_SET = range(4)
"""Sets of each row: what can be written to, HEADS, COUNTS, and one of its own."""
COUNTS = NumberSet((1, 0x7FFFFFFF))
"""References to an object: to all but shared ones there is one."""


def make_pointer_condition(at: int) -> Condition:
    """Return the condition for a pointer to something writable."""
    return Condition(at, 8, IN_RANGES, HEAP)


def make_string_conditions(at: int) -> List[Condition]:
    """Return the conditions for a pointer to a string."""
    return [make_pointer_condition(at), Condition(at, 1, IN_SET, HEADS_SET, mask=0xF)]


class Redis(Recogniser):
    """Objects, dicts and their entries."""

    module, objects = "redis", ("redis", "valkey", "keydb")

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return the rows of objects, dicts and entries. An embedded string begins 19 bytes into its object's block; other objects have
        16 bytes.
        """
        writable = [(mapping.start, mapping.end) for mapping in world.target.mappings() if mapping.writable]
        sets = [NumberSet(ranges=writable), HEADS, COUNTS]
        counted = Condition(4, 4, IN_SET, COUNTS_SET)
        embedded = [Condition(0, 1, EQUAL, 0x80), counted, Condition(8, 8, EQUAL, 19, ADDRESS), Condition(18, 1, EQUAL, 1)]
        yield self._make_ask(embedded, (20, 128), EMBEDDED, sets, 1, EXACT)
        yield self._make_ask([Condition(0, 1, EQUAL, 0), counted, *make_string_conditions(8)], (16, 24), RAW, sets)
        yield self._make_ask([Condition(0, 1, EQUAL, NUMBER), counted, Condition(0, 4, AT_LEAST, 1 << 8)], (16, 24), OBJECTS[NUMBER], sets)
        for kind in sorted(OBJECTS):
            if kind != NUMBER:
                yield self._make_ask([Condition(0, 1, EQUAL, kind), counted, make_pointer_condition(8)], (16, 24), OBJECTS[kind], sets, 1)
        entry = [*make_string_conditions(0), Condition(16, 8, EQUAL, 0, mask=7), Condition(16, 8, AT_MOST, MOST_ADDRESS)]
        yield self._make_ask(entry, (24, 32), ENTRY, sets)
        data = [(start, start + len(content)) for module in world.modules()[:1] for start, content in world.data(module)]
        types = [Condition(0, 8, IN_RANGES, LAST_SET), make_pointer_condition(8), Condition(24, 8, AT_MOST, MOST_ADDRESS)]
        yield self._make_ask(types, (56, 64), DICT, [*sets, NumberSet(ranges=sorted(data))], LEAST_DICTS)

    def lengths(self, world: CensusTarget) -> Iterable[Length]:
        return (Length(EMBEDDED, 16, 20, length_bytes=1),)

    def read_container(self, fits: Callable[[int, int], bool], at: int, these: Sequence[int]) -> FoundContainer:
        """Read a dict: type, two tables, how many in each, where rehashing is, and the tables' sizes as powers of two; up to 6.2 type,
        private data, and twice table, size, mask, how many."""
        if len(these) < 7:
            return None
        if these[1] and 0 < these[3] < MOST_COUNT and these[2] == these[4] == 0 and these[5] == (1 << 64) - 1:
            power = these[6] >> 16 & 0xFF
            if power < 40 and fits(these[1], 8 << power):
                return make_container("dict", at, 7, these[3], None, spare_bytes_beyond(8 << power, 8 * these[3]))
        is_old = these[3] and these[4] == these[3] - 1 and not these[3] & these[4] and 0 < these[5] < MOST_COUNT
        if not is_old or not fits(these[2], 8 * these[3]):
            return None
        return make_container("dict", at, 11, these[5], None, spare_bytes_beyond(8 * these[3], 8 * these[5]))

    def _make_ask(
        self,
        conditions: Sequence[Condition],
        usable: Tuple[int, int],
        name: str,
        sets: Sequence[NumberSet],
        least: int = LEAST_OBJECTS,
        sure: str = SHAPE,
    ) -> Ask:
        row = SignatureRow(conditions, least_usable=usable[0], most_usable=usable[1])
        return Ask(row, lambda key: Signature(name, self.module, sure), sets, 35, least_blocks=least)

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        """Name the strings of keys and values, the tables of dicts, and the bodies of objects."""
        names = {(ENTRY, 0): "key (sds)", (ENTRY, 8): "value", (RAW, 8): "value (sds)"}
        names.update({(DICT, at): "table of a dict" for at in (8, 16)})
        for name in OBJECTS.values():
            kind = name.partition("(")[2].rstrip(")")
            if kind in BODIES:
                names[name, 8] = kind
        return names


PARENT, NAME, IDENT = 24, 56, 64
"""Of MemoryContextData (src/include/nodes/memnodes.h)."""
ASET, FREE_POINTER, END_POINTER, BLOCK_HEADER_BYTES = 0, 24, 32, 40
"""Of AllocBlockData."""
HEADER_BYTES = range(160, 296, 8)
"""Of AllocSetContext: its free lists differ by release. The context's first block follows it."""
BLOCK_BYTES = [1 << shift for shift in range(10, 24)]
"""Blocks double from the initial size to the largest (ALLOCSET_DEFAULT_MAXSIZE)."""
SLACK_BYTES, PAGE_BYTES = 24, 4096
"""Usable above what was asked for; of a mapping of its own up to a page more."""
LEAST_MAPPED_BYTES = 128 << 10
LEAST_LARGE_BYTES = 8192
MOST_NAME = 64


class MemoryContexts(Recogniser):
    """A header is proven by its first block, which points back to it; a block by its end, which is the malloc block's."""

    module, objects = "postgres", ("postgres",)
    table = RuntimeLabels(
        "PostgreSQL", "", "", "malloc: blocks of no memory context that has a name (libraries, the server's own)", "malloc: blocks in use"
    )

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return rows for headers, for blocks of each size, and for chunks that are too large for a block and have a block of their own."""
        for header in HEADER_BYTES:
            first = [
                Condition(header + ASET, 8, EQUAL, 0, ADDRESS),
                Condition(header + FREE_POINTER, 8, AT_LEAST, header + BLOCK_HEADER_BYTES, ADDRESS),
                Condition(header + FREE_POINTER, 8, AT_MOST, 0, FIELD, other=header + END_POINTER),
            ]
            row = SignatureRow(first, least_usable=header + BLOCK_HEADER_BYTES, key=(header + ASET, 8, ALL))
            yield Ask(row, lambda key: self._of_context(world, key), order=20)
        for size in BLOCK_BYTES:
            conditions = [Condition(END_POINTER, 8, EQUAL, size, ADDRESS), *self._make_used_conditions()]
            most = size + SLACK_BYTES + (PAGE_BYTES if size >= LEAST_MAPPED_BYTES else 0)
            row = SignatureRow(conditions, size, most, key=(ASET, 8, ALL))
            yield Ask(row, lambda key: self._of_context(world, key), order=21)
        large = [Condition(FREE_POINTER, 8, EQUAL, 0, FIELD, other=END_POINTER), *self._make_used_conditions()]
        large.append(Condition(END_POINTER, 8, AT_LEAST, LEAST_LARGE_BYTES, ADDRESS))
        row = SignatureRow(large, least_usable=LEAST_LARGE_BYTES, key=(ASET, 8, ALL))
        yield Ask(row, lambda key: self._of_context(world, key), order=22)

    def _make_used_conditions(self) -> List[Condition]:
        return [
            Condition(ASET, 8, NOT_EQUAL, 0),
            Condition(FREE_POINTER, 8, AT_LEAST, BLOCK_HEADER_BYTES, ADDRESS),
            Condition(FREE_POINTER, 8, AT_MOST, 0, FIELD, other=END_POINTER),
        ]

    def _of_context(self, world: CensusTarget, context: int) -> Optional[Signature]:
        header = world.words(context, IDENT // 8 + 1)
        if header is None or not header[2] or not header[NAME // 8]:
            return None
        name = world.text(header[NAME // 8], MOST_NAME)
        if name == "dynahash" and header[IDENT // 8]:
            name = world.text(header[IDENT // 8], MOST_NAME) or name
        if name is None and header[PARENT // 8] and world.words(header[PARENT // 8], 1) is None:
            return None
        return Signature("memory context %s" % name, self.module, EXACT) if name else Signature("memory context", self.module, SHAPE)


COMPRESSOR, DECOMPRESSOR = "state of a stream that compresses", "state of a stream that decompresses"
BEFORE = (0, 8, 16)
"""Bytes before a state."""
WINDOWS = (80, 160)
"""Of a compressor's state: where w_size is; Chromium's has checksums before it."""
COMPRESSOR_BYTES, DECOMPRESSOR_BYTES = (5800, 6400), (7050, 9200)
"""That a block with a state has; Chromium's has larger tables of codes."""
BUFFERS = {
    (COMPRESSOR, 8 * ELEMENT): "buffers of a stream that compresses",
    (DECOMPRESSOR, 8 * ELEMENT): "window of a stream that decompresses",
}
"""A state is so large that the offset of a pointer in it is not reported."""


class Zlib(Recogniser):
    """The window's size, its power and its mask fit each other; the method is 8; states have numbers of their own."""

    module, line_of_library = "zlib", "malloc: streams of zlib"

    def is_here(self, world: CensusTarget) -> bool:
        """Return True for any program of this word size: zlib may be linked in without a name, and the fields of a state prove it."""
        return world.word_bytes == 8 and world.little_endian

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return rows for compressors and decompressors, with and without words before the state."""
        for before in BEFORE:
            for window in WINDOWS:
                row = SignatureRow(_make_compressor_conditions(before, before + window), *COMPRESSOR_BYTES)
                yield Ask(row, lambda key: Signature(COMPRESSOR, self.module, EXACT), order=15)
            row = SignatureRow(_make_decompressor_conditions(before), *DECOMPRESSOR_BYTES)
            yield Ask(row, lambda key: Signature(DECOMPRESSOR, self.module, EXACT), order=15)

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        return BUFFERS


def _make_compressor_conditions(at: int, window: int) -> List[Condition]:
    """Return the conditions of a compressor: strm, status (42 to 666), pending_buf; method; w_size, w_bits, w_mask and window."""
    return [
        *(Condition(at, 8, NOT_EQUAL, 0), Condition(at + 8, 4, AT_LEAST, 42), Condition(at + 8, 4, AT_MOST, 666)),
        *(Condition(at + 16, 8, NOT_EQUAL, 0), Condition(at + 72, 1, EQUAL, 8), Condition(window + 16, 8, NOT_EQUAL, 0)),
        *(Condition(window + 4, 4, AT_LEAST, 8), Condition(window + 4, 4, AT_MOST, 15), Condition(window, 4, AT_LEAST, 256)),
        Condition(window + 8, 4, EQUAL, -1, FIELD, other=window),
    ]


def _make_decompressor_conditions(at: int) -> List[Condition]:
    """Return the conditions of a decompressor: strm; mode, from HEAD to SYNC; last, wrap; dmax, at most 32 KiB; wbits."""
    return [
        *(Condition(at, 8, NOT_EQUAL, 0), Condition(at + 8, 4, AT_LEAST, 16180), Condition(at + 8, 4, AT_MOST, 16211)),
        *(Condition(at + 12, 4, AT_MOST, 1), Condition(at + 16, 4, AT_MOST, 7)),
        *(Condition(at + 28, 4, AT_MOST, 32768), Condition(at + 28, 4, NOT_EQUAL, 0), Condition(at + 56, 4, AT_MOST, 15)),
    ]


TAGS = (
    *("Java Heap", "Class", "Thread", "Thread Stack", "Code", "GC", "Compiler", "JVMCI", "Internal", "Other", "Symbol"),
    *("Native Memory Tracking", "Shared class space", "Arena Chunk", "Test", "Tracing", "Logging", "Statistics", "Arguments", "Module"),
    *("Safepoint", "Synchronization", "Serviceability", "Metaspace", "String Deduplication", "Object Monitors"),
)
"""HotSpot's MEMFLAGS by number, up to JDK 17 (share/memory/allocation.hpp: MEMORY_TYPES_DO)."""
NEWER_TAGS = (*TAGS[:6], "GCCardSet", *TAGS[6:])
"""JDK 21 and later; between 17 and 21 the release that has it was not looked for."""
LEAST_BLOCKS = 16
"""Of SQLite's, whose one open database has hundreds: two in 100,000 of another program fit as well."""
VFS_PATH_BYTES, VFS_VERSIONS, VFS_FILE_BYTES = 512, range(1, 4), range(64, 513)
"""Of SQLite's sqlite3_vfs for Unix {iVersion, szOsFile, mxPathname, pNext, zName, pAppData, xOpen, ...} (os_unix.c: UNIXVFS)."""
VFS_NAME, VFS_FUNCTIONS, LEAST_VFS_FUNCTIONS, MOST_VFS_FUNCTIONS = 16, 32, 8, 12
"""In bytes after mxPathname; of the functions, the four that load extensions may be lacking."""
PAGES = [512 << power for power in range(8)]
PAGE_HEAD_BYTES = 480
"""That SQLite's cache puts after a page, at most (pcache1.c: PgHdr1; pager.c: PgHdr, MemPage)."""


class NativeMemoryTracking(Recogniser):
    """HotSpot's header before each block with -XX:NativeMemoryTracking (share/services/mallocHeader.hpp: size, tag, canary 0xE99E)."""

    module, objects, is_wide = "jvm", ("libjvm.so",), False
    table = RuntimeLabels(
        "JVM",
        "JVM: Java heap",
        "",
        "malloc: blocks without a header of NMT's (JNI, libraries)",
        "malloc: blocks in use (NMT is off: direct buffers, JNI, the JVM itself)",
    )

    def __init__(self) -> None:
        self._tags: Sequence[str] = TAGS

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return the row of the header: size, tag and canary. The size leaves room for the footer's two bytes."""
        conditions = [
            Condition(14, 2, EQUAL, 0xE99E),
            Condition(13, 1, EQUAL, 0),
            Condition(12, 1, AT_MOST, len(NEWER_TAGS) - 1),
            Condition(0, 8, AT_MOST, -18, USABLE),
        ]
        yield Ask(SignatureRow(conditions, least_usable=24, key=(12, 1, 0xFF)), self._name_tag, order=10, settle=self._settle_tags)

    def _settle_tags(self, matches: Sequence[Signed]) -> None:
        # Symbol, 10 or 11, has by far the most blocks of the two
        blocks: Dict[int, int] = {match.key: match.blocks for match in matches}
        self._tags = NEWER_TAGS if blocks.get(11, 0) > blocks.get(10, 0) else TAGS

    def _name_tag(self, key: int) -> Optional[Signature]:
        return Signature("NMT %s" % self._tags[key], self.module, EXACT) if key < len(self._tags) else None


def has_sqlite(world: CensusTarget) -> bool:
    """Return whether some object has SQLite inside: its data have the sqlite3_vfs for Unix, recognised by its form."""
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

    def is_here(self, world: CensusTarget) -> bool:
        is_inside = world.word_bytes == 8 and world.little_endian and world.constant(has_sqlite)
        return is_inside or super().is_here(world)

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return the row of SQLite's blocks: they begin with a size, a multiple of 8 that fits the block."""
        conditions = [Condition(0, 8, EQUAL, 0, mask=7), Condition(0, 8, AT_MOST, -8, USABLE), Condition(0, 8, AT_LEAST, -23, USABLE)]
        yield Ask(SignatureRow(conditions, least_usable=40, key=(0, 8, ALL)), self._name_block, order=45, settle=self._settle_database)

    def _settle_database(self, matches: Sequence[Signed]) -> None:
        blocks = {match.key: match.blocks for match in matches}
        self._is_known = sum(blocks.values()) >= LEAST_BLOCKS
        self._pages = {
            size: page for size, count in blocks.items() if count >= LEAST_BLOCKS for page in PAGES if page < size <= page + PAGE_HEAD_BYTES
        }

    def _name_block(self, key: int) -> Optional[Signature]:
        name = "page of %d bytes in SQLite's cache" % self._pages[key] if key in self._pages else "sqlite3_malloc"
        return Signature(name, self.module, SHAPE) if self._is_known else None


class OneRow(Recogniser):
    """Blocks of one name that one row recognises, if an object of that name is loaded, or the program exports a function of its library."""

    is_wide = False

    def __init__(self, module: str, name: str, row: SignatureRow, function: str, table: Optional[RuntimeLabels] = None) -> None:
        self.module, self.objects, self._name, self._row, self._function = module, (module,), name, row, function
        self.table = table

    def is_here(self, world: CensusTarget) -> bool:
        """Return True if the library is present. A program that loads modules of its own exports its functions to them, whatever its name
        is.
        """
        return super().is_here(world) or any(world.target.exported(module, self._function) for module in world.modules()[:1])

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        """Return the one row."""
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


class PerlArenas(OneRow):
    """Heads of scalars, free ones among them: PL_sv_arenaroot and the list of free ones lead to each arena."""

    leads_to_all = True


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
    PerlArenas("perl", "arena of 170 SV heads", PERL_ARENA, "Perl_newSV", PERL_LABELS),
    Sqlite(),
    OneRow("nginx", "ngx_pool_t", NGX_POOL, "ngx_create_pool"),
    Zlib(),
    MemoryContexts(),
    Redis(),
]
