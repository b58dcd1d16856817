"""Parts of the Java heap that objects lie in, by collector, and how objects' headers and references are written.

A part is a run of objects without a gap: a region or space from its bottom to its top, less the allocation buffers of threads (TLABs), in
which nothing is written yet. Files of HotSpot: gc/*/vmStructs_*.hpp, gc/shared/threadLocalAllocBuffer.cpp, oops/compressedOops.hpp.

HotSpot's tables of its own structures, which libjvm.so exports for the serviceability agent (src/hotspot/share/runtime/vmStructs.cpp).

They have the offset of each field, the address of each static one, sizes of types and constants; JVM flags are read by them.
Tried with JDK 11, 17, 21 and 25.
"""

from struct import unpack_from
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.ranges import Range, subtract_ranges, unite_ranges
from gdbheapx.inferior.base import Target

PAGE_BYTES, MOST_PAGES = 4096, 4096
"""Of the cache."""
MOST_ROWS, ROWS_AT_ONCE, MOST_ROW_BYTES = 1 << 14, 256, 256
MOST_FLAGS = 1 << 13
MOST_NAME_BYTES = 200
MOST_WORDS = 1 << 20
"""Words that one call reads."""
FLAG_BYTES = {"bool": 1, "int": 4, "uint": 4, "intx": 8, "uintx": 8, "uint64_t": 8, "size_t": 8}
FLAG_TYPES = ("bool", "int", "uint", "intx", "uintx", "uint64_t", "size_t")
"""By the number of JVMFlag::_type since JDK 16 (flags/jvmFlag.hpp); before, a text has the name."""
SYMBOLS = "gHotSpotVM"
TABLE_COLUMNS = {
    "StructEntry": ("TypeNameOffset", "FieldNameOffset", "IsStaticOffset", "OffsetOffset", "AddressOffset"),
    "TypeEntry": ("TypeNameOffset", "SizeOffset"),
    "IntConstantEntry": ("NameOffset", "ValueOffset"),
    "LongConstantEntry": ("NameOffset", "ValueOffset"),
}


def escape_java_name(data: bytes) -> str:
    """Return modified UTF-8 as printable text, of at most 200 letters."""
    text = data[: 4 * MOST_NAME_BYTES].decode("utf-8", "backslashreplace")
    text = text[: MOST_NAME_BYTES + 1]
    shown = text if text.isprintable() else "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
    return shown if len(shown) <= MOST_NAME_BYTES else shown[: MOST_NAME_BYTES - 3] + "..."


class VmTables:
    """The tables of one JVM, and what they lead to in its memory: every number may be hostile, and what cannot be read is None."""

    major: int
    """JDK release."""

    def __init__(self, target: Target, numbers: Dict[str, int]) -> None:
        self.target, self._numbers = target, numbers
        self._order = "<" if target.little_endian else ">"
        self._pages: Dict[int, bytes] = {}
        self._offsets: Dict[Tuple[str, str], int] = {}
        self._statics: Dict[Tuple[str, str], int] = {}
        self._sizes: Dict[str, int] = {}
        self._constants: Dict[str, int] = {}
        self._flags: Optional[Dict[str, Tuple[int, int]]] = None
        self._read_rows()
        place = self.static_address("Abstract_VM_Version", "_vm_major_version")
        self.major = self.read_u4(place) or 0 if place is not None else 0

    def field_offset(self, type_name: str, *fields: str) -> Optional[int]:
        """Return the offset of the first of these fields that the structure has."""
        return next((self._offsets[type_name, field] for field in fields if (type_name, field) in self._offsets), None)

    def static_address(self, type_name: str, *fields: str) -> Optional[int]:
        """Return the address of the first of these static fields that the structure has."""
        return next((self._statics[type_name, field] for field in fields if (type_name, field) in self._statics), None)

    def static_word(self, type_name: str, *fields: str) -> Optional[int]:
        """Return the word at a static field."""
        place = self.static_address(type_name, *fields)
        return self.read_word(place) if place is not None else None

    def size_bytes(self, type_name: str) -> Optional[int]:
        """Return the size of a structure."""
        return self._sizes.get(type_name)

    def constant_value(self, name: str) -> Optional[int]:
        """Return an integer constant: of an enumeration, with its class (`G1HeapRegionType::OldTag`)."""
        return self._constants.get(name)

    def flag_value(self, name: str) -> Optional[int]:
        """Return the value of a JVM flag that is a number or a truth."""
        if self._flags is None:
            self._flags = self._read_flags()
        place, size_bytes = self._flags.get(name, (0, 0))
        return self._read_integer(place, size_bytes) if size_bytes else None

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        """Return the readable bytes at an address, up to the first that is not."""
        if address <= 0 or size_bytes <= 0 or address + size_bytes > 1 << 64:
            return b""
        return self.target.read_prefix(address, size_bytes)

    def read_word(self, address: int) -> Optional[int]:
        """Return the word at an address."""
        return self._read_integer(address, 8)

    def read_u4(self, address: int) -> Optional[int]:
        """Return four bytes at an address as an unsigned number."""
        return self._read_integer(address, 4)

    def read_u2(self, address: int) -> Optional[int]:
        """Return two bytes at an address as an unsigned number."""
        return self._read_integer(address, 2)

    def read_i4(self, address: int) -> Optional[int]:
        """Return four bytes at an address as a signed number."""
        number = self._read_integer(address, 4)
        return number if number is None else number - ((number & 0x80000000) << 1)

    def read_words(self, address: int, count: int) -> Sequence[int]:
        """Return up to `count` words from an address, as many as are readable."""
        data = self.read_prefix(address, 8 * min(max(count, 0), MOST_WORDS))
        return unpack_from("%s%dQ" % (self._order, len(data) // 8), data)

    def field_word(self, address: int, type_name: str, *fields: str) -> Optional[int]:
        """Return the word at a field of the structure that begins at an address."""
        offset = self.field_offset(type_name, *fields)
        return self.read_word(address + offset) if address and offset is not None else None

    def read_settled(self, address: int, size_bytes: int) -> bytes:
        """Return the readable bytes at an address through a cache of pages: for classes, names and other memory that HotSpot seldom writes.

        Tables are read again for each moment of a process.
        """
        data = b""
        while len(data) < size_bytes and 0 < address + len(data) < 1 << 64:
            number, within = divmod(address + len(data), PAGE_BYTES)
            page = self._pages.get(number)
            if page is None:
                if len(self._pages) >= MOST_PAGES:
                    self._pages.clear()
                page = self._pages[number] = self.read_prefix(number * PAGE_BYTES, PAGE_BYTES)
            data += page[within : within + size_bytes - len(data)]
            if len(page) < PAGE_BYTES:
                break
        return data

    def text_at(self, address: int) -> Optional[str]:
        """Return the printable ASCII text at an address, of at most 200 bytes."""
        text, end, _ = self.read_settled(address, MOST_NAME_BYTES + 1).partition(b"\0")
        return text.decode("ascii") if end and all(32 <= byte < 127 for byte in text) else None

    def symbol_text(self, symbol_address: int) -> Optional[str]:
        """Return the printable text of a Symbol, such as a class's name."""
        length, body = self.field_offset("Symbol", "_length"), self.field_offset("Symbol", "_body")
        if length is None or body is None or not symbol_address:
            return None
        size = self.read_settled(symbol_address + length, 2)
        size_bytes = min(int.from_bytes(size, self.target.byte_order), 4 * MOST_NAME_BYTES)
        data = self.read_settled(symbol_address + body, size_bytes)
        return escape_java_name(data) if len(size) == 2 and len(data) == size_bytes else None

    def _read_integer(self, address: int, size_bytes: int) -> Optional[int]:
        data = self.read_prefix(address, size_bytes)
        return int.from_bytes(data, self.target.byte_order) if len(data) == size_bytes else None

    def _read_table(self, table: str, entry: str) -> List[Sequence[int]]:
        """Read a table up to its end, a row without a name: the words at the columns."""
        numbers = [self._numbers.get(entry + column) for column in ("ArrayStride", *TABLE_COLUMNS[entry])]
        stride, *offsets = [number if number is not None else -1 for number in numbers]
        if not 8 <= stride <= MOST_ROW_BYTES or any(not 0 <= offset <= stride - 8 for offset in offsets):
            return []
        rows: List[Sequence[int]] = []
        begin = self._numbers.get(table, 0)
        while len(rows) < MOST_ROWS:
            data = self.read_prefix(begin + len(rows) * stride, ROWS_AT_ONCE * stride)
            for at in range(0, len(data) - stride + 1, stride):
                row = [unpack_from(self._order + "Q", data, at + offset)[0] for offset in offsets]
                if not row[0]:
                    return rows
                rows.append(row)
            if len(data) < ROWS_AT_ONCE * stride:
                break
        return rows

    def _read_rows(self) -> None:
        for owner, field, is_static, offset, address in self._read_table("Structs", "StructEntry"):
            names = self.text_at(owner), self.text_at(field)
            if names[0] is None or names[1] is None or names in self._offsets or names in self._statics:
                continue
            if is_static & 0xFFFFFFFF:
                self._statics[names[0], names[1]] = address
            else:
                self._offsets[names[0], names[1]] = offset
        for owner, size in self._read_table("Types", "TypeEntry"):
            self._sizes.setdefault(self.text_at(owner) or "", size)
        for kind, mask in (("Int", 0xFFFFFFFF), ("Long", (1 << 64) - 1)):
            for name, value in self._read_table(kind + "Constants", kind + "ConstantEntry"):
                value &= mask
                self._constants.setdefault(self.text_at(name) or "", value - ((value & (mask + 1) // 2) << 1))

    def _read_flags(self) -> Dict[str, Tuple[int, int]]:
        """Return address and size of each flag."""
        begin, count = self.static_word("JVMFlag", "flags"), self.static_word("JVMFlag", "numFlags")
        size = self.size_bytes("JVMFlag") or 0
        places = [self.field_offset("JVMFlag", field) for field in ("_name", "_addr", "_type")]
        name_at, value_at, type_at = [place if place is not None else size for place in places]
        if not begin or not count or not 16 <= size <= MOST_ROW_BYTES or max(name_at, value_at) > size - 8 or type_at > size - 4:
            return {}
        count = min(count, MOST_FLAGS)
        data, flags = self.read_prefix(begin, count * size), {}
        is_text = type_at <= size - 8 and self.major < 16
        for at in range(0, len(data) - size + 1, size):
            name = self.text_at(unpack_from(self._order + "Q", data, at + name_at)[0])
            number: int = unpack_from(self._order + ("Q" if is_text else "I"), data, at + type_at)[0]
            kind: Optional[str] = self.text_at(number) if is_text else FLAG_TYPES[number] if number < len(FLAG_TYPES) else None
            if name and kind in FLAG_BYTES:
                flags[name] = (unpack_from(self._order + "Q", data, at + value_at)[0], FLAG_BYTES[kind])
        return flags


def read_vm_tables(target: Target) -> Optional[VmTables]:
    """Return the tables of the process's JVM; None if it has none, or none that can be read."""
    structs = target.dynamic_symbol(SYMBOLS + "Structs")
    if structs is None or target.word_bytes != 8:
        return None
    numbers: Dict[str, int] = {}
    names = ["Structs", "Types", "IntConstants", "LongConstants"]
    for entry, columns in TABLE_COLUMNS.items():
        names += [entry + "ArrayStride", *(entry + column for column in columns)]
    for name in names:
        symbol = target.exported(structs.module, SYMBOLS + name) or target.dynamic_symbol(SYMBOLS + name)
        data = target.read_prefix(symbol.address, 8) if symbol is not None else b""
        if len(data) == 8:
            numbers[name] = int.from_bytes(data, target.byte_order)
    tables = VmTables(target, numbers)
    return tables if tables.major and tables.field_offset("Klass", "_layout_helper") is not None else None


MOST_REGIONS = 1 << 18
MOST_GRANULES, GRANULES_BYTES = 1 << 23, 1 << 20
"""Entries of ZGC's page table; bytes of it that are read at once."""
MOST_THREADS, MOST_TLAB_BYTES = 1 << 17, 256
MOST_BYTES = 1 << 44
"""Of a Java heap: ZGC's largest."""
COLLECTORS = {
    "UseG1GC": "G1",
    "UseSerialGC": "Serial",
    "UseParallelGC": "Parallel",
    "UseZGC": "ZGC",
    "UseShenandoahGC": "Shenandoah",
    "UseEpsilonGC": "Epsilon",
    "UseConcMarkSweepGC": "CMS",
}
FREE, HUMONGOUS, CONTINUES, PLAIN_REGION = range(4)
"""Kinds of regions: a humongous object begins in one, and the following ones continue it."""
GENERATIONS = (("DefNewGeneration", "_eden_space"), ("DefNewGeneration", "_from_space"), ("DefNewGeneration", "_to_space"))
YOUNG_SPACES = (("PSYoungGen", "_eden_space"), ("PSYoungGen", "_from_space"), ("PSYoungGen", "_to_space"))
SHENANDOAH_KINDS = {
    "_empty_uncommitted": FREE,
    "_empty_committed": FREE,
    "_trash": FREE,
    "_humongous_start": HUMONGOUS,
    "_pinned_humongous_start": HUMONGOUS,
    "_humongous_cont": CONTINUES,
}
NO_TABLE = "this release's tables have no %s of the collector"


HeapRegion = Tuple[int, int, int]
"""Bottom, top and kind of a collector's region."""


class JavaHeap(NamedTuple):
    """The Java heap of a process at one moment."""

    collector: str
    """`G1`, `Serial`, `Parallel`, `ZGC`, `Shenandoah`, `Epsilon`, `CMS`; empty if no flag names it."""
    is_collecting: Optional[bool]
    """It is in a pause in which objects are moved: two copies of an object may be there."""
    reserved: Sequence[Range]
    used_parts: Sequence[Range]
    """Runs of objects, sorted; a humongous object is one. Nothing else of the heap is in use but `buffers`."""
    buffers: Sequence[Range]
    """The free rest of each allocation buffer, up to its hard end."""
    problems: Sequence[str]


class JavaShape(NamedTuple):
    """Encoding of references and headers of objects."""

    oop_base: int
    oop_shift: int
    oop_bytes: int
    """4 or 8; in 8 bytes there is the address, at base 0 and shift 0."""
    class_base: int
    class_shift: int
    class_bytes: int
    """4 or 8; 0: the class is the upper part of the mark word (compact headers)."""
    class_offset: int
    """Of the class in an object, 0 for compact headers."""
    mark_class_shift: int
    """With compact headers the class is mark >> this; else 0."""
    alignment_bytes: int
    array_length_offset: int
    mirror_class_offset: Optional[int]
    """In a java.lang.Class: the Klass that it represents."""
    mirror_size_offset: Optional[int]
    """In a java.lang.Class: four bytes with the object's own size in words, static fields included."""
    mirror_static_count_offset: Optional[int]
    """In a java.lang.Class: four bytes with the number of static references; they begin where its instance fields end."""


def find_offset(tables: VmTables, *fields: Tuple[str, str]) -> Optional[int]:
    """Return the offset of the first of these fields, named by type and field, that the tables have."""
    offsets = (tables.field_offset(*field) for field in fields)
    return next((offset for offset in offsets if offset is not None), None)


def read_java_shape(tables: VmTables) -> JavaShape:
    """Read how references and headers of this JVM's objects are written."""
    is_narrow, is_compact = bool(tables.flag_value("UseCompressedOops")), bool(tables.flag_value("UseCompactObjectHeaders"))
    class_bytes = 0 if is_compact else 4 if tables.flag_value("UseCompressedClassPointers") else 8
    oop = _read_encoding(tables, "CompressedOops", "_narrow_oop") if is_narrow else (0, 0)
    klass = _read_encoding(tables, "CompressedKlassPointers", "_narrow_klass") if class_bytes < 8 else (0, 0)
    alignment = tables.flag_value("ObjectAlignmentInBytes") or 8
    offset = tables.field_offset("oopDesc", "_metadata._compressed_klass")
    shift = tables.constant_value("markWord::klass_shift")
    places = [
        tables.static_address("java_lang_Class", field) for field in ("_klass_offset", "_oop_size_offset", "_static_oop_field_count_offset")
    ]
    mirror = [tables.read_u4(place) if place is not None else None for place in places]
    return JavaShape(
        oop_base=oop[0],
        oop_shift=oop[1],
        oop_bytes=4 if is_narrow else 8,
        class_base=klass[0],
        class_shift=klass[1],
        class_bytes=class_bytes,
        class_offset=0 if is_compact else 8 if offset is None else offset,
        mark_class_shift=(42 if shift is None else shift) & 63 if is_compact else 0,
        alignment_bytes=alignment if alignment in (8, 16, 32, 64, 128, 256) else 8,
        array_length_offset=8 if is_compact else 8 + class_bytes,
        mirror_class_offset=mirror[0],
        mirror_size_offset=mirror[1],
        mirror_static_count_offset=mirror[2],
    )


def list_java_thread_addresses(tables: VmTables) -> List[int]:
    """Return the address of each JavaThread."""
    threads = tables.static_word("ThreadsSMRSupport", "_java_thread_list")
    length, array = tables.field_offset("ThreadsList", "_length"), tables.field_word(threads or 0, "ThreadsList", "_threads")
    if threads and length is not None and array:
        count = tables.read_u4(threads + length) or 0
        return [address for address in tables.read_words(array, min(count, MOST_THREADS)) if address]
    following, thread, visited = tables.field_offset("JavaThread", "_next"), tables.static_word("Threads", "_thread_list"), {0: None}
    while following is not None and thread is not None and thread not in visited and len(visited) <= MOST_THREADS:
        visited[thread] = None
        thread = tables.read_word(thread + following)
    return list(visited)[1:]


def find_java_heap(tables: VmTables) -> Optional[JavaHeap]:
    """Return the Java heap and which parts of it are in use; None where the tables do not lead to it."""
    heap = tables.static_word("Universe", "_collectedHeap")
    if not heap:
        return None
    collector = next((name for flag, name in COLLECTORS.items() if tables.flag_value(flag)), "")
    problems: List[str] = []
    reserved = [] if collector == "ZGC" else _read_reserved(tables, heap)
    if collector in ("G1", "Shenandoah", "ZGC"):
        reader = {"G1": _read_g1_regions, "Shenandoah": _read_shenandoah_regions, "ZGC": _read_zgc_pages}[collector]
        regions = reader(tables, heap)
        if not regions:
            problems.append(NO_TABLE % ("pages" if collector == "ZGC" else "regions"))
        parts = _join_humongous(regions)
    else:
        parts = _read_spaces(tables, heap, collector)
        if not parts:
            problems.append(NO_TABLE % "spaces")
    bounds = reserved or [(1, 1 << 63)]
    sound = [part for part in parts if any(low <= part[0] and part[1] <= high for low, high in bounds)]
    if len(sound) < len(parts):
        problems.append("%d of %d parts of the Java heap lie outside of it" % (len(parts) - len(sound), len(parts)))
    parts = []
    for part in sorted(sound):
        if not parts or parts[-1][1] <= part[0]:
            parts.append(part)
    buffers = _find_buffers(tables, parts)
    active = find_offset(tables, ("CollectedHeap", "_is_stw_gc_active"), ("CollectedHeap", "_is_gc_active"))
    data = tables.read_prefix(heap + active, 1) if active is not None else b""
    return JavaHeap(collector, bool(data[0]) if data else None, reserved, subtract_ranges(parts, buffers), buffers, problems)


def _read_encoding(tables: VmTables, owner: str, older: str) -> Tuple[int, int]:
    """Return base and shift of narrow pointers."""
    numbers = []
    for field in ("_base", "_shift"):
        places = [tables.static_address(owner, field, older + "." + field), tables.static_address("Universe", older + "." + field)]
        place = next((place for place in places if place is not None), None)
        numbers.append((tables.read_word(place) or 0) if place is not None else 0)
    return numbers[0], numbers[1] & 31


def _read_reserved(tables: VmTables, heap: int) -> List[Range]:
    offset, start = tables.field_offset("CollectedHeap", "_reserved"), tables.field_offset("MemRegion", "_start")
    length = tables.field_offset("MemRegion", "_word_size")
    if offset is None or start is None or length is None:
        return []
    begin, words = tables.read_word(heap + offset + start), tables.read_word(heap + offset + length)
    return [(begin, begin + 8 * words)] if begin and words and words <= MOST_BYTES // 8 else []


def _read_spaces(tables: VmTables, heap: int, collector: str) -> List[Range]:
    """Read the spaces of Serial, Parallel and Epsilon: one run of objects each."""
    owners: List[Tuple[Optional[int], Sequence[Tuple[str, str]]]] = []
    if collector == "Parallel":
        generations = [tables.static_word("ParallelScavengeHeap", field) for field in ("_young_gen", "_old_gen")]
        owners = [(generations[0], YOUNG_SPACES), (generations[1], [("PSOldGen", "_object_space")])]
    elif collector == "Serial":
        kind = "SerialHeap" if tables.field_offset("SerialHeap", "_young_gen") is not None else "GenCollectedHeap"
        generations = [tables.field_word(heap, kind, field) for field in ("_young_gen", "_old_gen")]
        owners = [(generations[0], GENERATIONS), (generations[1], [("TenuredGeneration", "_the_space")])]
    elif collector == "Epsilon":
        owners = [(heap, [("EpsilonHeap", "_space")])]
    kind = "MutableSpace" if collector == "Parallel" else "ContiguousSpace"
    bottom = find_offset(tables, (kind, "_bottom"), ("ImmutableSpace" if collector == "Parallel" else "Space", "_bottom"))
    top = tables.field_offset(kind, "_top")
    if bottom is None or top is None:
        return []
    spaces = [tables.field_word(owner or 0, *field) for owner, fields in owners for field in fields]
    ends = [(tables.read_word(space + bottom) or 0, tables.read_word(space + top) or 0) for space in spaces if space]
    return [(low, high) for low, high in ends if 0 < low < high]


def _read_g1_regions(tables: VmTables, heap: int) -> List[HeapRegion]:
    manager, kind = tables.field_offset("G1CollectedHeap", "_hrm"), "G1HeapRegion"
    if tables.size_bytes(kind) is None:
        kind = "HeapRegion"
    regions = find_offset(tables, (kind + "Manager", "_regions"), ("HeapRegionManager", "_regions"))
    tag = find_offset(tables, (kind, "_type"))
    if manager is None or regions is None or tag is None:
        return []
    within = find_offset(tables, (kind + "Type", "_tag")) or 0
    names = ("FreeTag", "HumongousMask", "ContinuesHumongousTag")
    free, humongous, continues = [tables.constant_value("%sType::%s" % (kind, name)) for name in names]
    table = heap + manager + regions
    base, length = [tables.field_word(table, "G1HeapRegionTable", field) for field in ("_base", "_length")]
    if not base or not length or free is None or not humongous or continues is None:
        return []
    pointers = tables.read_words(base, min(length, MOST_REGIONS))
    rows = _read_region_rows(tables, pointers, kind, tag + within, ("G1ContiguousSpace", "_top"), ("Space", "_bottom"))
    kinds = {free: FREE, continues: CONTINUES, continues ^ 1: HUMONGOUS}
    return [(low, high, kinds.get(number, PLAIN_REGION)) for low, high, number in rows]


def _read_shenandoah_regions(tables: VmTables, heap: int) -> List[HeapRegion]:
    base, count = [tables.field_word(heap, "ShenandoahHeap", field) for field in ("_regions", "_num_regions")]
    state = tables.field_offset("ShenandoahHeapRegion", "_state")
    if not base or not count or state is None:
        return []
    pointers = tables.read_words(base, min(count, MOST_REGIONS))
    kinds = {tables.constant_value("ShenandoahHeapRegion::" + name): kind for name, kind in SHENANDOAH_KINDS.items()}
    rows = _read_region_rows(tables, pointers, "ShenandoahHeapRegion", state)
    return [(low, high, kinds.get(number, PLAIN_REGION)) for low, high, number in rows]


def _read_region_rows(tables: VmTables, pointers: Iterable[int], kind: str, number: int, *older: Tuple[str, str]) -> List[HeapRegion]:
    """Return bottom, top and the number of its kind for each region that is there."""
    places = [find_offset(tables, (kind, field), *(place for place in older if place[1] == field)) for field in ("_bottom", "_top")]
    bottom, top = [place if place is not None else -1 for place in places]
    size_bytes, rows = max(bottom, top, number) + 8, []
    if min(bottom, top) < 0 or size_bytes > 1 << 16:
        return []
    order = "<" if tables.target.little_endian else ">"
    for pointer in pointers:
        data = tables.read_prefix(pointer, size_bytes)
        if len(data) == size_bytes:
            low, high = unpack_from(order + "Q", data, bottom)[0], unpack_from(order + "Q", data, top)[0]
            rows.append((low, high, unpack_from(order + "I", data, number)[0]))
    return rows


def _join_humongous(regions: Sequence[HeapRegion]) -> List[Range]:
    """Return each region's objects as a part, a humongous object as one."""
    parts: List[Range] = []
    is_open = False
    for bottom, top, kind in sorted(regions):
        if kind == FREE or not 0 < bottom < top:
            is_open = False
        elif kind == CONTINUES and is_open and parts[-1][1] == bottom:
            parts[-1] = (parts[-1][0], top)
        else:
            parts.append((bottom, top))
            is_open = kind in (HUMONGOUS, CONTINUES)
    return parts


def _read_zgc_pages(tables: VmTables, heap: int) -> List[HeapRegion]:
    """Read ZGC's pages: the page table has a pointer for each granule. JDK 21 has the older ZGC under names with an X."""
    letter = "X" if tables.size_bytes("XPage") is not None and not tables.flag_value("ZGenerational") else "Z"
    steps = [("CollectedHeap", "_heap"), ("Heap", "_page_table"), ("PageTable", "_map")]
    offsets = [tables.field_offset(letter + owner, field) for owner, field in steps]
    entries = tables.field_offset(letter + "GranuleMapForPageTable", "_map")
    kind = letter + "VirtualMemory"
    virtual, top = [tables.field_offset(letter + "Page", field) for field in ("_virtual", "_top")]
    start = tables.field_offset(kind, "_start")
    base = _read_zgc_base(tables, letter)
    if entries is None or virtual is None or top is None or start is None or base is None:
        return []
    granules = heap + sum(offset for offset in offsets if offset is not None)
    count, array = tables.read_word(granules + entries - 8), tables.read_word(granules + entries)
    if None in offsets or not count or not array:
        return []
    end = array + 8 * min(count, MOST_GRANULES)
    pages: Dict[int, None] = {}
    for low, high in tables.target.touched_ranges(array, end) or [(array, end)]:
        for place in range(max(low, array), min(high, end), GRANULES_BYTES):
            pages.update(dict.fromkeys(tables.read_words(place, (min(high, end, place + GRANULES_BYTES) - place) // 8)))
            if len(pages) > MOST_REGIONS:
                return []
    regions: List[HeapRegion] = []
    for page in pages:
        begin, used = tables.read_word(page + virtual + start) if page else None, tables.read_word(page + top)
        if begin is not None and used and begin < used <= MOST_BYTES:
            regions.append((base | begin, base + used, PLAIN_REGION))
    return regions


def _read_zgc_base(tables: VmTables, letter: str) -> Optional[int]:
    """Return what an offset in ZGC's heap lacks to be an address."""
    names = letter + "GlobalsForVMStructs"
    numbers = tables.static_word(names, "_instance_p")
    place = tables.field_word(numbers or 0, names, "_%sAddressGoodMask" % letter)
    if place:
        return tables.read_word(place)
    place = tables.field_word(numbers or 0, names, "_ZAddressOffsetMask")
    mask = tables.read_word(place) if place else None
    return mask + 1 if mask is not None else None


def _find_buffers(tables: VmTables, parts: Sequence[Range]) -> List[Range]:
    """Return the free rests of the allocation buffers that lie in these parts (ThreadLocalAllocBuffer::hard_end)."""
    buffer = find_offset(tables, ("Thread", "_tlab"), ("JavaThread", "_tlab"))
    start, top, end = [tables.field_offset("ThreadLocalAllocBuffer", field) for field in ("_start", "_top", "_end")]
    if buffer is None or start is None or top is None or end is None or max(start, top, end) > MOST_TLAB_BYTES:
        return []
    header = 2 if tables.flag_value("UseCompressedClassPointers") or tables.flag_value("UseCompactObjectHeaders") else 3
    prefetch = tables.static_address("ThreadLocalAllocBuffer", "_reserve_for_allocation_prefetch")
    least = tables.static_word("CollectedHeap", "_lab_alignment_reserve")
    reserve = max(tables.read_u4(prefetch) or 0 if prefetch is not None else 0, least or header)
    unit = tables.flag_value("ObjectAlignmentInBytes") or 8
    rest_bytes = -(-8 * reserve // unit) * unit if reserve < 1 << 16 else 0
    rests: List[Range] = []
    for thread in list_java_thread_addresses(tables):
        words = tables.read_words(thread + buffer, 1 + max(start, top, end) // 8)
        low, used, high = [words[offset // 8] if offset // 8 < len(words) else 0 for offset in (start, top, end)]
        if 0 < low <= used <= high:
            rests.append((used, high + rest_bytes))
    return subtract_ranges(unite_ranges(rests), subtract_ranges([(0, 1 << 64)], unite_ranges(parts)))
