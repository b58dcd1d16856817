"""Values of PHP as they lie in memory: arrays, objects, classes, and the tables of globals.

Layouts: Zend/zend_types.h, zend.h, zend_globals.h, zend_gc.c.
"""

from collections import Counter
from struct import unpack, unpack_from
from typing import Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.analysis.census.world import World
from gdbheapx.analysis.reachability.paths import TEXT_BYTES, decode_text

STRING, ARRAY, OBJECT, REFERENCE, INDIRECT, POINTER = 6, 7, 8, 10, 12, 13
"""Of a zval: its type (zend_types.h: IS_...)."""
COUNTED = (STRING, ARRAY, OBJECT, REFERENCE)
LONG = 4
PACKED = 1 << 2
"""HASH_FLAG_PACKED: no keys, values of 16 bytes."""
STATIC = 1 << 4
"""ZEND_ACC_STATIC, of a property."""
BUCKET_BYTES, VALUE_BYTES = 32, 16
TEXT = 24
"""Of zend_string {counts, hash, length, characters}: where these begin."""
PROPERTIES, PROPERTY_TABLE = 32, 40
"""Of zend_object {counts, handle, class, handlers, properties, table}."""
NAME, CLASS_FLAGS, PROPERTIES_INFO, CONSTANTS = 8, 28, 72, 128
"""Of zend_class_entry {type, name, ...}: name, ce_flags; after Layout.statics: tables of properties and constants."""
USER_CLASS = 2
MOST_PROPERTIES = 1 << 16
HALF = (1 << 32) - 1
STACK_BYTES, LEAST_ROOTS, LEAST_THRESHOLD = 256 << 10, 16 << 10, 10_001
"""ZEND_VM_STACK_PAGE_SIZE; of the collector's buffer, in roots."""
MOST_TABLE = 1 << 22
MOST_TEXT, MOST_LENGTH = 4096, 1 << 40
TYPE_AND_MARKS = 0xFFFFFC0F
"""Of the second half of a zend_refcounted_h: the type, and what the collector notes there, which is nothing of a string."""
BEHIND_WORDS = 64
"""Of executor_globals after symbol_table: function_table, class_table and zend_constants are among them."""


def read_interpreter_data(world: World) -> Iterator[Tuple[bytes, int]]:
    """Yield the interpreter's data in words, and their first address."""
    for module in world.modules():
        if "php" in module.file_name:
            for start, _, end in world.target.writable_segments(module):
                start = -(-start // 8) * 8
                content = world.read(start, end - start)
                yield content[: len(content) & -8], start


class PhpValue(NamedTuple):
    """PHP's zval."""

    type: int
    data: int
    """A pointer, or the number."""


class PhpTable(NamedTuple):
    """A zend_array."""

    address: int
    data: int
    used: int
    length: int
    is_packed: bool

    @property
    def step(self) -> int:
        """Return the bytes from one value to the next."""
        return VALUE_BYTES if self.is_packed else BUCKET_BYTES


class PhpGlobals(NamedTuple):
    """Tables of the interpreter."""

    symbols: PhpTable
    classes: PhpTable
    constants: PhpTable
    weak: Sequence[int]
    """Blocks that point to values and own none: the list of all objects, the stack, what the collector has to look at."""
    behind: Sequence[int] = ()
    """Words of executor_globals after symbol_table."""


class PhpLayout(NamedTuple):
    """Offsets of one release."""

    properties: int
    """Of zend_class_entry: default_properties_count."""
    statics: int
    """Of zend_class_entry: static members as declared, and where those of now are; tables of properties and constants follow."""
    create: int
    """Of zend_class_entry: create_object."""
    guards: int
    """ZEND_ACC_USE_GUARDS: instances have one more value after their properties."""
    variables: int
    """The word of zend_op_array whose upper half is last_var; what follows it is alike."""


class PhpValues:
    """Reads values of one target."""

    def __init__(self, world: World, layout: PhpLayout) -> None:
        self.world, self.layout = world, layout
        self._offsets: Dict[int, Dict[int, str]] = {}
        self._map = self._map_base()

    def words(self, address: int, count: int) -> Sequence[int]:
        """Return so many words; empty if they cannot all be read."""
        if not 0 < address < 1 << 63 or not 0 < count <= MOST_TABLE:
            return ()
        data = self.world.read(address, 8 * count)
        return unpack("<%dQ" % count, data) if len(data) == 8 * count else ()

    def text(self, address: int) -> Optional[str]:
        """Return the zend_string at the address if it is short and UTF-8, else None."""
        words = self.words(address, 3)
        if not words or words[2] > MOST_TEXT:
            return None
        data = self.world.read(address + TEXT, words[2]) if words[2] else b""
        try:
            return data.decode("utf-8") if len(data) == words[2] else None
        except UnicodeDecodeError:
            return None

    def begin(self, address: int) -> Optional[str]:
        """Return the first characters of a zend_string, of any content; None if there is none."""
        words = self.words(address, 3) if not address % 8 else ()
        if not words or not words[0] & HALF or words[0] >> 32 & TYPE_AND_MARKS != STRING or words[2] > MOST_LENGTH:
            return None
        return decode_text(self.world.read(address + TEXT, min(words[2], TEXT_BYTES)))

    def table(self, address: int) -> Optional[PhpTable]:
        """Return the zend_array at the address if its numbers fit each other, else None."""
        words = self.words(address, 5)
        return _make_table(address, words) if words else None

    def entries(self, table: PhpTable) -> Iterator[Tuple[int, int, PhpValue]]:
        """Yield key (a zend_string; 0: the number is the key), number and value of an array's entries."""
        words = self.words(table.data, table.used * table.step // 8)
        for place in range(table.used if words else 0):
            at = place * table.step // 8
            value = self.value_in(words, at)
            if value.type:
                yield (0, place, value) if table.is_packed else (words[at + 3], words[at + 2], value)

    def value_in(self, words: Sequence[int], at: int) -> PhpValue:
        """Return the zval in these words; INDIRECT is followed."""
        kind = words[at + 1] & 0xFF
        return self.value(words[at]) if kind == INDIRECT else PhpValue(kind, words[at])

    def value(self, address: int) -> PhpValue:
        """Return the zval at the address; its type is 0 if there is none."""
        words = self.words(address, 2)
        kind = words[1] & 0xFF if words else 0
        return PhpValue(0, 0) if kind in (0, INDIRECT) else PhpValue(kind, words[0])

    def referred(self, value: PhpValue) -> PhpValue:
        return self.value(value.data + 8) if value.type == REFERENCE else value

    def named(self, table: PhpTable) -> Iterator[Tuple[str, PhpValue]]:
        """Yield (key, value) of a table of names."""
        for key, _, value in self.entries(table):
            name = self.text(key) if key else None
            if name is not None:
                yield name, value

    def class_name(self, class_: int) -> Optional[str]:
        words = self.words(class_ + NAME, 1)
        return self.text(words[0]) if words else None

    def count(self, class_: int) -> Optional[int]:
        """Return the number of values that instances have from PROPERTY_TABLE on, if the class is written in PHP and nothing else makes
        its instances; else None.
        """
        type_, flags = (self._read_number(class_ + at) for at in (0, CLASS_FLAGS))
        count, create = self._read_number(class_ + self.layout.properties), self.words(class_ + self.layout.create, 1)
        if type_ is None or flags is None or count is None or type_ & 0xFF != USER_CLASS or count > MOST_PROPERTIES or create != (0,):
            return None
        return count + bool(flags & self.layout.guards)

    def _read_number(self, address: int) -> Optional[int]:
        words = self.words(address & -8, 1)
        return words[0] >> address % 8 * 8 & HALF if words else None

    def property_names(self, class_: int) -> Dict[int, str]:
        if class_ not in self._offsets:
            table = self.table(class_ + self.layout.statics + PROPERTIES_INFO)
            found = self._list_properties(table) if table is not None else ()
            self._offsets[class_] = {offset: name for name, offset, is_static in found if not is_static}
        return self._offsets[class_]

    def _list_properties(self, table: PhpTable) -> Iterator[Tuple[str, int, bool]]:
        for name, value in self.named(table):
            words = self.words(value.data, 1) if value.type == POINTER else ()
            if words:
                yield name, words[0] & 0xFFFFFFFF, bool(words[0] >> 32 & STATIC)

    def statics(self, class_: int) -> Iterator[Tuple[str, PhpValue]]:
        """Yield (name, value) of a class's static properties."""
        info, places = self.table(class_ + self.layout.statics + PROPERTIES_INFO), self.words(class_ + self.layout.statics, 2)
        if info is None or not places or not places[0]:
            return
        place = places[1]
        if place & 1:  # an offset from map_ptr_base (zend_map_ptr.h)
            place = next(iter(self.words(self._map + place, 1)), 0) if self._map else 0
        for name, number, is_static in self._list_properties(info) if place else ():
            if is_static:
                yield name, self.value_in(self.words(place + VALUE_BYTES * number, 2) or (0, 0), 0)

    def class_constants(self, class_: int) -> Iterator[Tuple[str, PhpValue]]:
        """Yield (name, value) of a class's constants."""
        table = self.table(class_ + self.layout.statics + CONSTANTS)
        for name, value in self.named(table) if table is not None else ():
            if value.type == POINTER:
                yield name, self.value(value.data)

    def globals(self) -> Optional[PhpGlobals]:
        """Return executor_globals, found by a table in the interpreter's data that has `_GET`, and the tables after it."""
        for content, start in read_interpreter_data(self.world):
            words = unpack("<%dQ" % (len(content) // 8), content)
            # a table's size and mask, before anything is read: nTableMask is minus twice nTableSize, or of a packed one -2
            for at in [at - 1 for at, word in enumerate(words) if word >> 63 and 1 <= at <= len(words) - 7]:
                size = words[at + 4] & HALF
                if not size or size & (size - 1) or words[at + 1] >> 32 != (1 << 32) - 2 * size:
                    continue
                symbols = _make_table(start + 8 * at, words[at : at + 5])
                if symbols is None or "_GET" not in (name for name, _ in self.named(symbols)):
                    continue
                behind = words[at + 7 : at + 7 + BEHIND_WORDS]
                classes, constants = (self._find_table_with(behind, name) for name in ("stdclass", "E_ALL"))
                if classes is None or constants is None:
                    return None
                return PhpGlobals(symbols, classes, constants, [*self._find_weak_places(words)], behind)
        return None

    def _find_weak_places(self, words: Sequence[int]) -> Iterator[int]:
        for first, second, third, fourth in zip(words, words[1:], words[2:], words[3:]):
            if not first or first % 8 or first >> 47:
                continue
            if third < first <= second == third + STACK_BYTES:
                yield third
            is_store = 1 < second & HALF <= second >> 32 and self._is_store(first, second & HALF)
            if is_store or (not second & 0xFEFEFEFE and _are_roots(third & HALF, third >> 32, fourth & HALF, fourth >> 32)):
                yield first

    def _is_store(self, address: int, top: int) -> bool:
        """Return True if the objects in the first places have these numbers."""
        places = list(enumerate(self.words(address, min(top, 32)) or ()))[1:]
        numbers = [(number, self.words(place, 2)) for number, place in places if not place & 1]
        return bool(numbers) and all(words and words[0] >> 32 & 0xF == OBJECT and words[1] & HALF == number for number, words in numbers)

    def _find_table_with(self, addresses: Sequence[int], name: str) -> Optional[PhpTable]:
        tables = (table for table in map(self.table, addresses) if table is not None)
        return next((table for table in tables if any(key == name for key, _ in self.named(table))), None)

    def _map_base(self) -> int:
        """Return compiler_globals.map_ptr_base, which is map_ptr_real_base - 1 and follows it."""
        symbol = self.world.target.dynamic_symbol("compiler_globals")
        size = self.world.target.symbol_bytes(symbol) if symbol is not None else None
        words = self.words(symbol.address, (size or 4096) // 8) if symbol is not None else ()
        pairs = zip(words, words[1:])
        return next((after for before, after in pairs if before > 4096 and before % 8 == 0 and after == before - 1), 0)


def _are_roots(first_unused: int, threshold: int, size: int, number: int) -> bool:
    """Return True if the numbers of zend_gc_globals fit each other (zend_gc.c: GC_THRESHOLD_DEFAULT, GC_DEFAULT_BUF_SIZE)."""
    return LEAST_THRESHOLD <= threshold <= size and not size % LEAST_ROOTS and number < first_unused <= size


def _make_table(address: int, words: Sequence[int]) -> Optional[PhpTable]:
    """Make a table from {counts, flags and mask, data, used and length, size}."""
    used, length, size = words[3] & 0xFFFFFFFF, words[3] >> 32, words[4] & 0xFFFFFFFF
    if words[0] >> 32 & 0xF != ARRAY or not length <= used <= size or size & (size - 1) or not words[2] or words[2] % 8:
        return None
    return PhpTable(address, words[2], used, length, bool(words[1] & PACKED))


MODULE_BYTES, MODULE_NAME, MODULE_VERSION, MODULE_WORDS = 168, 4, 11, 12
"""Of zend_module_entry, in words: {size in the lower half, number of the interface in the upper, ..., name, ..., version}."""
STANDARD = "standard"
"""A module of every interpreter, whose version is the interpreter's own."""
LEAST_MODULES = 4
"""That an interpreter has built in."""
FIRST_DAY, LAST_DAY = 2000_00_00, 2100_00_00
"""Of numbers of interfaces, which are days."""


PHP_8_2 = PhpLayout(properties=32, statics=48, create=376, guards=1 << 11, variables=9)
PHP_8_4 = PHP_8_2._replace(create=384, variables=11)
PHP_8_5 = PHP_8_4._replace(guards=1 << 30)
PHP_8_6 = PHP_8_5._replace(properties=36, statics=56, create=392)
LAYOUTS = {20220829: PHP_8_2, 20240924: PHP_8_4, 20250925: PHP_8_5, 20260924: PHP_8_6}
RELEASES = "8.2, 8.4, 8.5 and 8.6"


def read_php_release(world: World) -> Optional[Tuple[int, Optional[str]]]:
    """Return ZEND_MODULE_API_NO, which all built-in modules of a release have, and its version, if that can be read; None without
    modules."""
    entries = [entry for content, _ in read_interpreter_data(world) for entry in _find_module_entries(content)]
    numbers = Counter(entry[0] >> 32 for entry in entries).most_common(1)
    if not numbers or numbers[0][1] < LEAST_MODULES:
        return None
    versions = (world.text(entry[MODULE_VERSION]) for entry in entries if world.text(entry[MODULE_NAME]) == STANDARD)
    return numbers[0][0], next(versions, None)


def find_php_layout(world: World) -> Optional[PhpLayout]:
    """Return the layout of the target's interpreter, or None for another release."""
    known = world.once(read_php_release)
    return LAYOUTS.get(known[0]) if known is not None else None


def _find_module_entries(content: bytes) -> Iterator[Sequence[int]]:
    begin = MODULE_BYTES.to_bytes(4, "little")
    at = content.find(begin)
    while 0 <= at <= len(content) - 8 * MODULE_WORDS:
        entry = unpack_from("<%dQ" % MODULE_WORDS, content, at)
        if not at % 8 and FIRST_DAY < entry[0] >> 32 < LAST_DAY:
            yield entry
        at = content.find(begin, at + 1)
