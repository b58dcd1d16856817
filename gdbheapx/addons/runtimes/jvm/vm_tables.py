"""HotSpot's tables of its own structures, which libjvm.so exports for the serviceability agent (src/hotspot/share/runtime/vmStructs.cpp).

They have the offset of each field, the address of each static one, sizes of types and constants; JVM flags are read by them.
Tried with JDK 11, 17, 21 and 25.
"""

from struct import unpack_from
from typing import Dict, List, Optional, Sequence, Tuple

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
