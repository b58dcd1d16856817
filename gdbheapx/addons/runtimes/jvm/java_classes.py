"""Java classes and their fields, by the class loaders' lists (oops/klass.hpp, instanceKlass.hpp, fieldInfo.hpp, classLoaderData.hpp)."""

from itertools import islice
from struct import unpack_from
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.addons.runtimes.jvm.java_heap import MOST_NAME_BYTES, JavaShape, VmTables, read_java_shape

MOST_CLASSES, MOST_LOADERS = 1 << 18, 1 << 17
MOST_ABOVE = 1 << 10
"""Superclasses of one class."""
MOST_BLOCKS, MOST_VTABLE_WORDS = 1 << 13, 1 << 20
MOST_FIELDS, MOST_FIELD_BYTES = 1 << 16, 1 << 21
PLAIN, MIRROR, STACK_CHUNK, SOFT, WEAK, FINAL, PHANTOM = range(7)
"""Kinds of classes: java.lang.Class and StackChunk have objects of various sizes, References lead to what they do not hold."""
KINDS = {
    "java.lang.Class": MIRROR,
    "jdk.internal.vm.StackChunk": STACK_CHUNK,
    "java.lang.ref.SoftReference": SOFT,
    "java.lang.ref.WeakReference": WEAK,
    "java.lang.ref.FinalReference": FINAL,
    "java.lang.ref.PhantomReference": PHANTOM,
}
PRIMITIVES = {"Z": "boolean", "B": "byte", "C": "char", "S": "short", "I": "int", "J": "long", "F": "float", "D": "double"}
FIELD_SLOTS, INTERNAL, HAS_GENERIC, STATIC = 6, 0x400, 0x800, 8
"""Until JDK 20: {access, name, signature, initial value, low, high} (fieldInfo.hpp); JVM_ACC_FIELD_* and JVM_ACC_STATIC."""
FIELD_FLAGS = ("_ff_initialized", "_ff_injected", "_ff_generic", "_ff_stable", "_ff_contended")
"""Bits of a field's flags since JDK 21; the names and numbers are in the tables."""


class JavaClass(NamedTuple):
    """A class that a class loader has, or an array's."""

    key: Optional[int]
    """The number in its objects' headers; None for one that can have no objects (abstract ones since JDK 24 are outside of class space)."""
    klass: int
    """Address of the Klass."""
    name: str
    """As Java writes it: `java.util.Map$Entry`, `long[]`; printable, at most 200 letters."""
    layout_helper: int
    kind: int
    oop_blocks: Sequence[Tuple[int, int]]
    """Offset and count of references in its objects, those of superclasses included, a Reference's referent not."""
    loader_data: int
    """Address of its ClassLoaderData."""
    super_klass: int
    """0 if it has none."""
    mirror: Optional[int]
    """Its java.lang.Class object, as the handle has it."""


class JavaField(NamedTuple):
    """A field that a class declares, or that HotSpot adds to it."""

    name: str
    signature: str
    """`J`, `Ljava/lang/String;`, `[B`."""
    offset: int
    """In the object; of a static field in the class's mirror."""
    is_static: bool
    holder: int
    """Klass that declares it."""


def read_java_classes(tables: VmTables) -> Sequence[JavaClass]:
    """Return every class of every class loader, with those of arrays; at most MOST_CLASSES."""
    reader = ClassReader(tables, read_java_shape(tables))
    klasses: Dict[int, None] = {}
    loaders: Dict[int, None] = {}
    loader = tables.static_word("ClassLoaderDataGraph", "_head") or 0
    while loader and loader not in loaders and len(loaders) < MOST_LOADERS:
        loaders[loader] = None
        klass = tables.field_word(loader, "ClassLoaderData", "_klasses") or 0
        while klass and klass not in klasses and len(klasses) < MOST_CLASSES:
            klasses[klass] = None
            klass = tables.field_word(klass, "Klass", "_next_link") or 0
        loader = tables.field_word(loader, "ClassLoaderData", "_next") or 0
    classes = [row for row in map(reader.read_class, klasses) if row is not None]
    above = {row.klass: row for row in classes}
    kinds: Dict[int, int] = {}
    for row in classes:
        chain: List[JavaClass] = []
        following: Optional[JavaClass] = row
        while following is not None and following.klass not in kinds and len(chain) < MOST_ABOVE:
            chain.append(following)
            kinds[following.klass] = KINDS.get(following.name, PLAIN)
            following = above.get(following.super_klass) if not kinds[following.klass] else None
        kind = kinds[following.klass] if following is not None else PLAIN
        for link in reversed(chain):
            kind = kinds[link.klass] = kinds[link.klass] or kind
    return [row._replace(kind=kinds[row.klass]) for row in classes]


def list_fields(tables: VmTables, klass: int) -> Sequence[JavaField]:
    """Return the fields that a class itself declares, static ones and those that HotSpot adds included; none for an array's."""
    stream = tables.field_word(klass, "InstanceKlass", "_fieldinfo_stream")
    pool = tables.field_word(klass, "InstanceKlass", "_constants")
    helper = tables.field_offset("Klass", "_layout_helper")
    layout = tables.read_i4(klass + helper) if helper is not None else None
    if not pool or layout is None or layout < 0:
        return []
    slots = tables.field_word(klass, "InstanceKlass", "_fields")
    rows = _unpack_field_stream(tables, stream) if stream else _unpack_field_slots(tables, slots) if slots else ()
    fields = []
    for name, signature, offset, is_static, is_injected in rows:
        texts = [_read_injected_text(tables, at) if is_injected else _read_pool_text(tables, pool, at) for at in (name, signature)]
        if texts[0] is not None and texts[1] is not None:
            fields.append(JavaField(texts[0], texts[1], offset, is_static, klass))
    return fields


def find_field_at(tables: VmTables, klass: int, offset: int) -> Optional[JavaField]:
    """Return the field that an object of the class has at an offset, declared by it or a superclass."""
    return next((field for field in list_object_fields(tables, klass) if field.offset == offset), None)


def list_object_fields(tables: VmTables, klass: int) -> Iterator[JavaField]:
    """Return the fields that an object of the class has: its own, then the nearest superclass's."""
    chain: Dict[int, None] = {}
    while klass and klass not in chain and len(chain) < MOST_ABOVE:
        chain[klass] = None
        yield from (field for field in list_fields(tables, klass) if not field.is_static)
        klass = tables.field_word(klass, "Klass", "_super") or 0


def shown_class_name(symbol: str) -> str:
    """Return a class's name as Java writes it: `long[]` for `[J`."""
    name = symbol.lstrip("[")
    dimensions = len(symbol) - len(name)
    if dimensions:
        name = name[1:].rstrip(";") if name.startswith("L") else PRIMITIVES.get(name, name)
    place = name.rfind("+0x")
    name = name.replace("/", ".") if place < 0 else name[:place].replace("/", ".") + "/" + name[place + 1 :]
    return (name + "[]" * dimensions)[:MOST_NAME_BYTES]


class ClassReader:
    """Reads Klass structures of one JVM."""

    def __init__(self, tables: VmTables, shape: JavaShape) -> None:
        self.tables, self.shape = tables, shape
        self._order = "<" if tables.target.little_endian else ">"
        klass = ("_layout_helper", "_vtable_len", "_name", "_super", "_java_mirror", "_class_loader_data")
        offsets = [tables.field_offset("Klass", field) for field in klass]
        offsets += [tables.field_offset("InstanceKlass", field) for field in ("_itable_len", "_nonstatic_oop_map_size")]
        self._size_bytes = min(tables.size_bytes("InstanceKlass") or 0, 1 << 12)
        self._offsets = [offset if offset is not None else -1 for offset in offsets]
        if any(not 0 <= offset <= self._size_bytes - 8 for offset in self._offsets):
            self._offsets = []

    def read_class(self, klass: int) -> Optional[JavaClass]:
        """Return the class whose Klass is at an address, its kind not looked at; None if it is none."""
        data = self.tables.read_settled(klass, self._size_bytes)
        least = max(self._offsets[:6], default=self._size_bytes) + 8
        if len(data) < least:
            return None
        helper, vtable = [unpack_from(self._order + "i", data, offset)[0] for offset in self._offsets[:2]]
        name, above, handle, loader = [unpack_from(self._order + "Q", data, offset)[0] for offset in self._offsets[2:6]]
        text = self.tables.symbol_text(name)
        if text is None:
            return None
        blocks: Sequence[Tuple[int, int]] = ()
        if helper > 0 and len(data) == self._size_bytes:
            itable, count = [unpack_from(self._order + "i", data, offset)[0] for offset in self._offsets[6:]]
            blocks = self._read_oop_blocks(klass + self._size_bytes, vtable + itable, count, helper & ~7)
        key, mirror = self._make_key(klass), _read_settled_number(self.tables, handle) or None
        return JavaClass(key, klass, shown_class_name(text), helper, PLAIN, blocks, loader, above, mirror)

    def _make_key(self, klass: int) -> Optional[int]:
        shape = self.shape
        if shape.class_bytes == 8:
            return klass
        key = (klass - shape.class_base) >> shape.class_shift
        bits = 64 - shape.mark_class_shift if shape.class_bytes == 0 else 32
        return key if 0 < key < 1 << bits and shape.class_base + (key << shape.class_shift) == klass else None

    def _read_oop_blocks(self, end: int, table_words: int, count: int, object_bytes: int) -> Sequence[Tuple[int, int]]:
        """Return the OopMapBlocks, which follow vtable and itable (InstanceKlass::start_of_nonstatic_oop_maps)."""
        if not 0 < count <= MOST_BLOCKS or not 0 <= table_words <= MOST_VTABLE_WORDS:
            return ()
        data = self.tables.read_settled(end + 8 * table_words, 8 * count)
        numbers = unpack_from("%s%dI" % (self._order, len(data) // 8 * 2), data)
        blocks = list(zip(numbers[::2], numbers[1::2]))
        return [(offset, length) for offset, length in blocks if offset > 0 and offset + length * self.shape.oop_bytes <= object_bytes]


FieldNumbers = Tuple[int, int, int, bool, bool]
"""Name, signature, offset, is static, is injected."""


def _unpack_field_slots(tables: VmTables, array: int) -> Iterator[FieldNumbers]:
    """Unpack fields of JDK 11 to 20: six numbers each; one more for each generic signature follows at the end."""
    length, data_at = tables.field_offset("Array<int>", "_length"), tables.field_offset("Array<u2>", "_data")
    count = tables.read_u4(array + length) if length is not None else None
    if count is None or data_at is None:
        return
    data = tables.read_settled(array + data_at, min(2 * count, MOST_FIELD_BYTES))
    numbers = unpack_from("%s%dH" % ("<" if tables.target.little_endian else ">", len(data) // 2), data)
    end, at = len(numbers), 0
    while at + FIELD_SLOTS <= end:
        access, name, signature, _, low, high = numbers[at : at + FIELD_SLOTS]
        end -= bool(access & HAS_GENERIC)
        if low & 1:
            yield name, signature, (high << 16 | low) >> 2, bool(access & STATIC), bool(access & INTERNAL)
        at += FIELD_SLOTS


def _unpack_field_stream(tables: VmTables, array: int) -> Iterator[FieldNumbers]:
    """Unpack fields since JDK 21 (FieldInfoStream): two counts, then for each field five numbers and up to three more by its flags."""
    length, data_at = tables.field_offset("Array<int>", "_length"), tables.field_offset("Array<u1>", "_data")
    bits = [tables.constant_value("FieldInfo::FieldFlags::" + name) for name in FIELD_FLAGS]
    count = tables.read_u4(array + length) if length is not None else None
    if count is None or data_at is None or None in bits:
        return
    initialized, injected, generic, _, contended = [1 << (bit & 31) for bit in bits if bit is not None]
    numbers = iter_unsigned5(tables.read_settled(array + data_at, min(count, MOST_FIELD_BYTES)))
    fields = min(sum(next(numbers, 0) for _ in range(2)), MOST_FIELDS)
    for _ in range(fields):
        row = list(islice(numbers, 5))
        if len(row) < 5:
            return
        name, signature, offset, access, flags = row
        for flag in (initialized, generic, contended):
            if flags & flag:
                next(numbers, 0)
        yield name, signature, offset, bool(access & STATIC), bool(flags & injected)


def iter_unsigned5(data: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of an UNSIGNED5 stream (utilities/unsigned5.hpp): bytes from 192 on are followed by another, of six bits more."""
    number = shift = 0
    for byte in data:
        number += byte - 1 << shift
        if byte < 192 or shift == 24:
            yield number & 0xFFFFFFFF
            number = shift = 0
        else:
            shift += 6


def _read_pool_text(tables: VmTables, pool: int, index: int) -> Optional[str]:
    """Return the Symbol in a constant pool, whose entries follow its structure."""
    size_bytes, length = tables.size_bytes("ConstantPool"), tables.field_offset("ConstantPool", "_length")
    count = _read_settled_number(tables, pool + length, 4) if length is not None else 0
    if size_bytes is None or not 0 < index < count:
        return None
    return tables.symbol_text(_read_settled_number(tables, pool + size_bytes + 8 * index) & ~1)


def _read_settled_number(tables: VmTables, address: int, size_bytes: int = 8) -> int:
    """Return a number, 0 where it cannot be read."""
    data = tables.read_settled(address, size_bytes)
    return int.from_bytes(data, tables.target.byte_order) if len(data) == size_bytes else 0


def _read_injected_text(tables: VmTables, index: int) -> Optional[str]:
    """Return the name or signature of an injected field: a number of a VM symbol (classfile/vmSymbols.hpp)."""
    begin = tables.static_address("Symbol", "_vm_symbols[0]") or tables.static_address("vmSymbols", "_symbols[0]")
    limit = tables.constant_value("vmSymbols::SID_LIMIT")
    if not begin or not 0 < index < (limit or 1 << 12):
        return None
    return tables.symbol_text(_read_settled_number(tables, begin + 8 * index))
