"""A JVM in a megabyte: tables, classes, fields and regions at places that no release has, and the same with hostile numbers.

Files: addons/runtimes/jvm/java_heap.py, addons/runtimes/jvm/java_classes.py.
"""

import random
import struct
import time
from typing import Dict, List, Optional, Sequence, Tuple, cast

import pytest

from gdbheapx.addons.runtimes.jvm import java_classes
from gdbheapx.addons.runtimes.jvm.java_heap import VmTables, find_java_heap, list_java_thread_addresses, read_java_shape, read_vm_tables
from gdbheapx.inferior.base import Module, Symbol, Target

pytestmark = pytest.mark.once  # pure functions

BASE, SIZE = 0x7F0000000000, 1 << 20
HEAP, REGION = 0x80000000, 1 << 20
MODULE = Module("/usr/lib/jvm/lib/server/libjvm.so", BASE, False, None, None)
HOSTILE = (1, 7, BASE, BASE + SIZE - 4, 1 << 31, (1 << 31) - 1, 1 << 63, (1 << 63) - 1, (1 << 64) - 1, (1 << 64) - 8, 0xFFFFFFFF)
KLASS = {"_layout_helper": 8, "_vtable_len": 12, "_name": 16, "_super": 24, "_java_mirror": 32, "_class_loader_data": 40, "_next_link": 48}
KLASS_BYTES = 112
STRUCTURES: Dict[str, Dict[str, int]] = {
    "Klass": KLASS,
    "InstanceKlass": {"_itable_len": 64, "_nonstatic_oop_map_size": 68, "_constants": 72},
    "ClassLoaderData": {"_klasses": 8, "_next": 16},
    "Symbol": {"_length": 4, "_body": 6},
    "ConstantPool": {"_length": 8},
    "Array<int>": {"_length": 0},
    "Array<u1>": {"_data": 4},
    "Array<u2>": {"_data": 4},
    "JVMFlag": {"_addr": 0, "_name": 8, "_type": 20},
    "CollectedHeap": {"_reserved": 16, "_is_gc_active": 40},
    "MemRegion": {"_start": 0, "_word_size": 8},
    "G1CollectedHeap": {"_hrm": 48},
    "G1HeapRegionManager": {"_regions": 8},
    "G1HeapRegionTable": {"_base": 8, "_length": 16},
    "G1HeapRegion": {"_bottom": 0, "_top": 16, "_type": 24},
    "G1HeapRegionType": {"_tag": 4},
    "ThreadsList": {"_length": 4, "_threads": 16},
    "Thread": {"_tlab": 24},
    "ThreadLocalAllocBuffer": {"_start": 0, "_top": 8, "_end": 16},
}
CONSTANTS = {"FreeTag": 0, "YoungMask": 2, "HumongousMask": 4, "StartsHumongousTag": 4, "ContinuesHumongousTag": 5, "OldMask": 8}
FIELD_FLAGS = {"_ff_initialized": 0, "_ff_injected": 1, "_ff_generic": 2, "_ff_stable": 3, "_ff_contended": 4}


class FakeJvm:
    """Memory with structures of a JVM, as a target has it."""

    word_bytes, little_endian = 8, True
    byte_order = "little"

    def __init__(self, streams: bool = True) -> None:
        self.data, self.end = bytearray(SIZE), BASE + 64
        self.numbers: Dict[str, int] = {}
        self.rows: List[Tuple[str, str, bool, int]] = []
        self.sizes = {"Klass": 56, "InstanceKlass": KLASS_BYTES, "ConstantPool": 16, "JVMFlag": 24, "G1HeapRegion": 40}
        self.constants = {"G1HeapRegionType::" + name: number for name, number in CONSTANTS.items()}
        self.streams, self.names, self.reads = streams, cast(Dict[bytes, int], {}), 0
        self.constants.update({"FieldInfo::FieldFlags::" + name: bit for name, bit in FIELD_FLAGS.items()})
        self.constants["Negative"], self.constants["vmSymbols::SID_LIMIT"] = -3, 3
        self.loader = self.take(32)
        self.static("ClassLoaderDataGraph", "_head", self.loader)
        self.static("Abstract_VM_Version", "_vm_major_version", 25 if streams else 17)

    def take(self, size_bytes: int) -> int:
        """Memory that nothing else has."""
        self.end += 16 + size_bytes + -size_bytes % 8
        return self.end - size_bytes - -size_bytes % 8

    def put(self, address: int, value: int, size_bytes: int = 8) -> None:
        """Write a number."""
        self.write(address, (value & (1 << 8 * size_bytes) - 1).to_bytes(size_bytes, "little"))

    def write(self, address: int, data: bytes) -> int:
        """Write bytes."""
        self.data[address - BASE : address - BASE + len(data)] = data
        return address

    def text(self, name: str) -> int:
        """Return where a C string is."""
        data = name.encode() + b"\0"
        if data not in self.names:
            self.names[data] = self.write(self.take(len(data)), data)
        return self.names[data]

    def symbol(self, name: bytes) -> int:
        """Make a Symbol."""
        place = self.take(6 + len(name))
        self.put(place + 4, len(name), 2)
        return self.write(place + 6, name) - 6

    def static(self, owner: str, field: str, value: int) -> None:
        """Add a static field with its value."""
        place = self.take(8)
        self.put(place, value)
        self.rows.append((owner, field, True, place))

    def klass(self, name: bytes, layout: int, above: int = 0, blocks: Sequence[Tuple[int, int]] = (), vtable: int = 3) -> int:
        """Add a class before all others of the loader."""
        place = self.take(KLASS_BYTES + 8 * (vtable + 2 + len(blocks)))
        mirror = self.take(8)
        self.put(mirror, HEAP + 64)
        words = {"_name": self.symbol(name), "_super": above, "_java_mirror": mirror, "_class_loader_data": self.loader}
        words["_next_link"] = struct.unpack_from("<Q", self.data, self.loader + 8 - BASE)[0]
        for field, value in words.items():
            self.put(place + KLASS[field], value)
        for field, value in (("_layout_helper", layout), ("_vtable_len", vtable)):
            self.put(place + KLASS[field], value, 4)
        self.put(place + 64, 2, 4)
        self.put(place + 68, len(blocks), 4)
        for number, (offset, count) in enumerate(blocks):
            self.write(place + KLASS_BYTES + 8 * (vtable + 2 + number), struct.pack("<iI", offset, count))
        self.put(self.loader + 8, place)
        return place

    def fields(self, klass: int, pool: Sequence[bytes], data: bytes, count: int) -> int:
        """Give a class its constant pool and its fields."""
        place = self.take(16 + 8 * (len(pool) + 1))
        self.put(place + 8, len(pool) + 1, 4)
        for number, name in enumerate(pool):
            self.put(place + 16 + 8 * (number + 1), self.symbol(name) | 1)
        self.put(klass + 72, place)
        array = self.take(4 + len(data))
        self.put(array, count, 4)
        self.write(array + 4, data)
        self.put(klass + 80, array)
        return array

    def tables(self) -> Optional[VmTables]:
        """Write the tables as HotSpot's C++ compiler lays them out, and read them."""
        self.rows += [(owner, field, False, place) for owner, fields in STRUCTURES.items() for field, place in fields.items()]
        self.rows.append(("InstanceKlass", "_fieldinfo_stream" if self.streams else "_fields", False, 80))
        structs = [
            (self.text(owner), self.text(field), 0, int(fixed), 0 if fixed else at, at if fixed else 0)
            for owner, field, fixed, at in self.rows
        ]
        sizes = [(self.text(name), 0, 0, 0, size, 0) for name, size in self.sizes.items()]
        constants = [(self.text(name), number & 0xFFFFFFFF) for name, number in self.constants.items()]
        self.table("Structs", "StructEntry", structs, TypeName=0, FieldName=8, IsStatic=24, Offset=32, Address=40)
        self.table("Types", "TypeEntry", sizes, TypeName=0, Size=32)
        self.table("IntConstants", "IntConstantEntry", constants, Name=0, Value=8)
        self.table("LongConstants", "LongConstantEntry", [], Name=0, Value=8)
        return read_vm_tables(cast(Target, self))

    def table(self, name: str, entry: str, rows: Sequence[Sequence[int]], **offsets: int) -> None:
        """Write one table with what leads to it."""
        stride = 48 if len(offsets) > 2 or entry == "TypeEntry" else 16
        place = self.take((len(rows) + 1) * stride)
        for number, row in enumerate(rows):
            self.write(place + number * stride, struct.pack("<%dQ" % len(row), *row))
        numbers = {name: place, entry + "ArrayStride": stride, **{"%s%sOffset" % (entry, column): at for column, at in offsets.items()}}
        for known, value in numbers.items():
            self.numbers[known] = self.take(8)
            self.put(self.numbers[known], value)

    def dynamic_symbol(self, name: str) -> Optional[Symbol]:
        """See Target."""
        place = self.numbers.get(name[len("gHotSpotVM") :])
        return None if place is None else Symbol(name, place, MODULE, "symbol")

    def exported(self, module: Module, name: str) -> Optional[Symbol]:
        """See Target."""
        return self.dynamic_symbol(name)

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        """See Memory."""
        self.reads += 1
        assert address >= 0 and size_bytes >= 0 and address + size_bytes <= 1 << 64
        return bytes(self.data[address - BASE : address - BASE + size_bytes]) if BASE <= address < BASE + SIZE else b""

    def touched_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        """See Memory."""
        return ()


def add_flags(jvm: FakeJvm, flags: Sequence[Tuple[str, int, int]]) -> None:
    """Add JVM flags: name, number of the type, value. The byte after each value is not its own."""
    table = jvm.take(24 * (len(flags) + 1))
    for number, (name, kind, value) in enumerate(flags):
        place = jvm.take(16)
        jvm.write(place, b"\xaa" * 16)
        jvm.put(place, value, (1, 4, 4, 8, 8, 8, 8)[kind])
        jvm.write(table + 24 * number, struct.pack("<QQII", place, jvm.text(name), 0, kind))
    jvm.static("JVMFlag", "flags", table)
    jvm.static("JVMFlag", "numFlags", len(flags) + 1)


def add_g1(jvm: FakeJvm, regions: Sequence[Tuple[int, int, int]], buffer: Tuple[int, int, int]) -> int:
    """Add a Java heap of 16 regions, of which these (number, used bytes, tag) are there, and a thread with its buffer (start, top, end)."""
    heap, array, thread = jvm.take(128), jvm.take(8 * 16), jvm.take(64)
    jvm.write(heap + 16, struct.pack("<QQ", HEAP, 2 * REGION))
    jvm.write(heap + 48 + 8 + 8, struct.pack("<QQ", array, len(regions)))
    for place, (number, used, tag) in enumerate(regions):
        region = jvm.take(40)
        jvm.put(array + 8 * place, region)
        jvm.write(region, struct.pack("<QQQII", HEAP + number * REGION, 0, HEAP + number * REGION + used, 0, tag))
    jvm.write(thread + 24, struct.pack("<QQQ", *buffer))
    threads, listed = jvm.take(8), jvm.take(32)
    jvm.put(threads, thread)
    jvm.write(listed, struct.pack("<IIQQ", 0, 1, 0, threads))
    jvm.static("ThreadsSMRSupport", "_java_thread_list", listed)
    jvm.static("Universe", "_collectedHeap", heap)
    return heap


def make_jvm(streams: bool = True) -> FakeJvm:
    """A JVM with G1, some classes and fields."""
    jvm = FakeJvm(streams)
    flags = (("UseG1GC", 0, 1), ("UseCompressedOops", 0, 1), ("UseCompressedClassPointers", 0, 1), ("ObjectAlignmentInBytes", 1, 8))
    add_flags(jvm, flags)
    jvm.static("CompressedKlassPointers", "_base", BASE)
    jvm.static("CompressedKlassPointers", "_shift", 3)
    place = HEAP + 5 * REGION
    regions = [(0, 4096, 8), (1, 0, 0), (2, REGION, 4), (3, REGION, 5), (4, 800, 5), (5, 2048, 2), (6, 64, 8)]
    add_g1(jvm, regions, (place + 1024, place + 1100 // 8 * 8, place + 1520))
    injected = jvm.take(32)
    for number, name in enumerate((b"<none>", b"loader_data", b"J")):
        jvm.put(injected + 8 * number, jvm.symbol(name))
    jvm.rows.append(("Symbol", "_vm_symbols[0]", True, injected))
    above = jvm.klass(b"java/lang/Object", 16)
    reference = jvm.klass(b"java/lang/ref/Reference", 32, above, [(16, 2)])
    phantom = jvm.klass(b"java/lang/ref/PhantomReference", 32, reference, [(16, 2)])
    jvm.klass(b"sun/misc/Cleaner", 48, phantom, [(16, 2), (32, 3)])
    jvm.klass(b"[[Ljava/lang/String;", -0x7FEFFFFE, above)
    jvm.klass(b"[J", -0x3FEFFFFD, above)
    jvm.klass(b"Story$$Lambda+0x00007f00", 16, above)
    jvm.klass(b"evil\x1b[2J\xff" + b"x" * 400, 16, above)
    options = jvm.klass(b"org/rocksdb/ReadOptions", 32, above, [(24, 1)])
    pool = (b"nativeHandle_", b"J", b"kept", b"Ljava/util/List;")
    if streams:  # two fields and an injected one; one has an initial value, a generic signature and a group
        numbers = [2, 1, 1, 2, 16, 2, 0, 3, 4, 300, 8, 1 | 4 | 16, 9, 9, 9, 1, 2, 24, 0, 2]
        data = b"".join(pack_unsigned5(number) for number in numbers)
        jvm.fields(options, pool, data, len(data))
    else:
        slots = [2, 1, 2, 0, 16 << 2 | 1, 0, 8 | 0x800, 3, 4, 0, 300 << 2 | 1, 0, 0x400, 1, 2, 0, 24 << 2 | 1, 0, 77]
        jvm.fields(options, pool, struct.pack("<%dH" % len(slots), *slots), len(slots))
    jvm.klass(b"org/rocksdb/Derived", 40, options, [(24, 1)])
    return jvm


def pack_unsigned5(number: int) -> bytes:
    """Return a number in one to five bytes, the way HotSpot's UNSIGNED5::write_uint does."""
    data = b""
    while number >= 191 and len(data) < 4:
        number -= 191
        data += bytes([192 + number % 64])
        number //= 64
    return data + bytes([number + 1])


@pytest.fixture(params=[True, False], ids=["stream", "slots"])
def tables(request: pytest.FixtureRequest) -> VmTables:
    """The tables of a sound JVM."""
    read = make_jvm(request.param).tables()
    assert read is not None
    return read


def test_tables_have_what_is_written(tables: VmTables) -> None:
    """Offsets, sizes, constants and flags with the width of their types."""
    assert tables.field_offset("Klass", "_gone", "_super") == 24 and tables.field_offset("ClassLoaderDataGraph", "_head") is None
    assert tables.static_address("Klass", "_super") is None and tables.size_bytes("InstanceKlass") == KLASS_BYTES
    assert (tables.constant_value("Negative"), tables.constant_value("Positive")) == (-3, None)
    names = ("UseG1GC", "ObjectAlignmentInBytes", "UseSerialGC")
    assert [tables.flag_value(name) for name in names] == [1, 8, None]


def test_numbers_of_five_bytes() -> None:
    """Each number of up to 32 bits comes back."""
    numbers = [0, 1, 190, 191, 192, 254, 255, 12414, 12415, 1 << 20, (1 << 32) - 1]
    assert list(java_classes.iter_unsigned5(b"".join(pack_unsigned5(number) for number in numbers))) == numbers


def test_classes_and_fields(tables: VmTables) -> None:
    """Names as Java writes them, kinds by superclasses, references of objects, fields in both encodings."""
    classes = {row.name: row for row in java_classes.read_java_classes(tables)}
    assert classes["sun.misc.Cleaner"].kind == java_classes.PHANTOM and classes["java.lang.ref.Reference"].kind == java_classes.PLAIN
    assert classes["sun.misc.Cleaner"].oop_blocks == [(16, 2), (32, 3)] and classes["sun.misc.Cleaner"].mirror == HEAP + 64
    assert {"java.lang.String[][]", "long[]", "Story$$Lambda/0x00007f00"} <= set(classes)
    (evil,) = [name for name in classes if name.startswith("evil")]
    assert evil.startswith("evil\\x1b[2J\\xff") and len(evil) == 200 and evil.isprintable()
    options, derived = classes["org.rocksdb.ReadOptions"], classes["org.rocksdb.Derived"]
    assert options.key == (options.klass - BASE) >> 3
    handle = java_classes.JavaField("nativeHandle_", "J", 16, False, options.klass)
    injected = java_classes.JavaField("loader_data", "J", 24, False, options.klass)
    kept = java_classes.JavaField("kept", "Ljava/util/List;", 300, True, options.klass)
    assert java_classes.list_fields(tables, options.klass) == [handle, kept, injected]
    assert [java_classes.find_field_at(tables, derived.klass, offset) for offset in (16, 300)] == [handle, None]
    assert java_classes.list_fields(tables, classes["long[]"].klass) == []


def test_heap_is_its_regions_without_buffers(tables: VmTables) -> None:
    """Free regions are no part, a humongous object is one, the rest of a buffer up to its hard end is in none, and what is outside is dropped."""
    heap, place = find_java_heap(tables), HEAP + 5 * REGION
    assert heap is not None and (heap.collector, heap.problems) == ("G1", [])
    assert heap.reserved == [(HEAP, HEAP + 16 * REGION)] and heap.is_collecting is False
    humongous = (HEAP + 2 * REGION, HEAP + 4 * REGION + 800)
    parts = [
        (HEAP, HEAP + 4096),
        humongous,
        (place, place + 1096),
        (place + 1520 + 16, place + 2048),
        (place + REGION, place + REGION + 64),
    ]
    assert (heap.used_parts, heap.buffers) == (parts, [(place + 1096, place + 1536)])


def test_parts_outside_of_the_heap_are_dropped() -> None:
    """A region that lies elsewhere is a problem, and no part."""
    jvm = make_jvm()
    add_g1(jvm, [(0, 4096, 8), (40, 4096, 8)], (0, 0, 0))
    jvm.rows.reverse()
    tables = jvm.tables()
    heap = find_java_heap(tables) if tables else None
    assert heap is not None and heap.used_parts == [(HEAP, HEAP + 4096)] and len(heap.problems) == 1


def test_lists_may_be_cycles() -> None:
    """Loaders, classes and superclasses that lead back to themselves end."""
    jvm = make_jvm()
    first = jvm.klass(b"One", 16)
    second = jvm.klass(b"Two", 16, first)
    jvm.put(first + KLASS["_super"], second)
    jvm.put(first + KLASS["_next_link"], second)
    jvm.put(jvm.loader + 16, jvm.loader)
    tables = jvm.tables()
    assert tables is not None and sorted(row.name for row in java_classes.read_java_classes(tables)) == ["One", "Two"]
    assert list(java_classes.list_object_fields(tables, first)) == []


@pytest.mark.parametrize("name", ["StructEntryArrayStride", "StructEntryOffsetOffset", "Structs", "IntConstants"])
@pytest.mark.parametrize("number", [0, *HOSTILE])
def test_hostile_tables_are_none_or_part(name: str, number: int) -> None:
    """A stride, column or table that cannot be gives no tables, or those without what it leads to."""
    jvm = make_jvm()
    jvm.tables()
    jvm.put(jvm.numbers[name], number)
    tables = read_vm_tables(cast(Target, jvm))
    assert tables is None or tables.major


@pytest.mark.parametrize("seed", range(6))
def test_hostile_numbers_raise_nothing(seed: int) -> None:
    """Words anywhere in the JVM are replaced by hostile ones: all is read in bounded time, and each name can be shown."""
    sound = make_jvm(bool(seed % 2))
    sound.tables()
    chance, begin = random.Random(seed), time.process_time()
    for _ in range(200):
        jvm = make_jvm(bool(seed % 2))
        jvm.numbers, jvm.data = sound.numbers, bytearray(sound.data)
        for _ in range(chance.choice((1, 4, 30))):
            jvm.put(BASE + chance.randrange((sound.end - BASE) // 8) * 8, chance.choice(HOSTILE))
        tables = read_vm_tables(cast(Target, jvm))
        if tables is None:
            continue
        read_java_shape(tables), list_java_thread_addresses(tables)
        heap = find_java_heap(tables)
        assert heap is None or all(0 < low < high for low, high in heap.used_parts)
        for row in java_classes.read_java_classes(tables):
            assert row.name.isprintable() and len(row.name) <= 200
            java_classes.list_fields(tables, row.klass)
    assert time.process_time() - begin < 60
