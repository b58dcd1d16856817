"""PHP's memory manager: chunks of 2 MiB and huge blocks that it takes from the kernel itself (Zend/zend_alloc.c).

Values of PHP as they lie in memory: arrays, objects, classes, and the tables of globals.

Layouts: Zend/zend_types.h, zend.h, zend_globals.h, zend_gc.c.

Paths of PHP's values, as PHP writes them: `$cache["u:1"]->items[3]`, `App\\Registry::$all["x"]`, `frame handle(): $rows`.
"""

import re
from bisect import bisect_right
from collections import Counter
from functools import partial
from itertools import accumulate, islice
from struct import unpack, unpack_from
from typing import Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.world import SHAPE, Ask, CensusTarget, Inner, Length, Recogniser, RuntimeLabels, Signature
from gdbheapx.analysis.reachability import paths as steps
from gdbheapx.common import problems
from gdbheapx.common.hints import hint_command
from gdbheapx.common.model import TargetAddress
from gdbheapx.kernel.blocks.signatures import AT_MOST, EQUAL, FIELD, IN_SET, NOT_EQUAL, USABLE, Condition, NumberSet, SignatureRow
from gdbheapx.kernel.blocks.stream import NativeBlocks

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
CLASS_NAME, CLASS_FLAGS, PROPERTIES_INFO, CONSTANTS = 8, 28, 72, 128
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


def read_interpreter_data(world: CensusTarget) -> Iterator[Tuple[bytes, int]]:
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

    def __init__(self, world: CensusTarget, layout: PhpLayout) -> None:
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
        return steps.decode_text(self.world.read(address + TEXT, min(words[2], steps.TEXT_BYTES)))

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
        words = self.words(class_ + CLASS_NAME, 1)
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


def read_php_release(world: CensusTarget) -> Optional[Tuple[int, Optional[str]]]:
    """Return ZEND_MODULE_API_NO, which all built-in modules of a release have, and its version, if that can be read; None without
    modules."""
    entries = [entry for content, _ in read_interpreter_data(world) for entry in _find_module_entries(content)]
    numbers = Counter(entry[0] >> 32 for entry in entries).most_common(1)
    if not numbers or numbers[0][1] < LEAST_MODULES:
        return None
    versions = (world.text(entry[MODULE_VERSION]) for entry in entries if world.text(entry[MODULE_NAME]) == STANDARD)
    return numbers[0][0], next(versions, None)


def find_php_layout(world: CensusTarget) -> Optional[PhpLayout]:
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


FRAME_BYTES = 80
"""Of zend_execute_data {opline, call, return value, function, This and how it was called, previous, symbol table, ...}; its variables
follow."""
OPLINE, FUNCTION, THIS, HOW, PREVIOUS, SYMBOLS = 0, 3, 4, 5, 6, 7
HAS_SYMBOLS = 1 << 20
"""ZEND_CALL_HAS_SYMBOL_TABLE: the table leads to the variables, which a file that the function includes takes over while it runs."""
USER_FUNCTION = 2
FUNCTION_NAME, SCOPE, LENGTH, OPERATIONS, NAMES = 1, 2, 1, 2, 5
"""Of zend_op_array, in words: {type and flags, function_name, scope, ...}; after last_var (Layout.variables): last (operations) in a lower
half, opcodes, ..., vars."""
OPERATION_BYTES = 32
MOST_FRAMES, MOST_VARIABLES = 10_000, 4096


def find_current_frame(words: Sequence[int]) -> int:
    """Return EG(current_execute_data), which follows {top and end of the stack, its page, size of a page} in the executor's globals; 0 if
    it is not found.
    """
    for at in range(len(words) - 4):
        if words[at + 2] < words[at] <= words[at + 1] and words[at + 3] == STACK_BYTES:
            return words[at + 4]
    return 0


def list_php_locals(values: PhpValues, frame: int) -> Iterator[Tuple[str, str, PhpValue]]:
    """Yield (function, name, value) of the variables of all functions, the innermost first; those of files are global, or
    their function's."""
    seen: Set[int] = set()
    while frame and frame not in seen and len(seen) < MOST_FRAMES:
        seen.add(frame)
        words = values.words(frame, FRAME_BYTES // 8)
        if not words:
            return
        yield from _of_frame(values, frame, words)
        frame = words[PREVIOUS]


def _of_frame(values: PhpValues, frame: int, words: Sequence[int]) -> Iterator[Tuple[str, str, PhpValue]]:
    place = values.layout.variables
    code = values.words(words[FUNCTION], place + NAMES + 1)
    function = _name_function(values, code, code[place:], words[OPLINE]) if code else None
    if function is None:
        return
    how = words[HOW] & HALF
    if how & 0xFF == OBJECT:
        yield function, "this", PhpValue(OBJECT, words[THIS])
    table = values.table(words[SYMBOLS]) if how & HAS_SYMBOLS else None
    found = values.named(table) if table is not None else _list_compiled_variables(values, frame, code[place:])
    for name, value in found if table is not None or not how & HAS_SYMBOLS else ():
        yield function, name, value


def _name_function(values: PhpValues, code: Sequence[int], further: Sequence[int], operation: int) -> Optional[str]:
    """Return the name of a function that is written in PHP and executes its own code, else None: the layout is another release's.
    `further`: words of zend_op_array, from last_var on.
    """
    done = operation - further[OPERATIONS]
    if code[0] & 0xFF != USER_FUNCTION or not 0 <= done < OPERATION_BYTES * (further[LENGTH] & HALF) or done % OPERATION_BYTES:
        return None
    name, class_ = values.text(code[FUNCTION_NAME]), values.class_name(code[SCOPE]) if code[SCOPE] else ""
    return None if not name or class_ is None else "%s::%s" % (class_, name) if class_ else name


def _list_compiled_variables(values: PhpValues, frame: int, further: Sequence[int]) -> Iterator[Tuple[str, PhpValue]]:
    count = further[0] >> 32
    names = values.words(further[NAMES], count) if count <= MOST_VARIABLES else ()
    slots = values.words(frame + FRAME_BYTES, VALUE_BYTES // 8 * count) if names else ()
    for number, word in enumerate(names if slots else ()):
        name = values.text(word)
        if name is not None:
            yield name, values.value_in(slots, VALUE_BYTES // 8 * number)


ARRAY_NAME, STRING_NAME, REFERENCE_NAME = "array", "string", "reference"
OWNING = {ARRAY_NAME: 0b100, STRING_NAME: 0, REFERENCE_NAME: 0b10}
OBJECT_WORDS = steps.ALL_WORDS & ~0b1111
"""After counts, number, class and handlers."""
WORD = re.compile(r"[A-Za-z_\x80-\U0010ffff][A-Za-z0-9_\x80-\U0010ffff]*\Z")
ESCAPES = {"\\": "\\\\", '"': '\\"', "$": "\\$", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def mask_php_class(values: PhpValues, class_: int) -> Optional[int]:
    """Return the mask of a class's instances, which leaves out words after their last property; None for a class that is written in C."""
    count = values.count(class_)
    end = PROPERTY_TABLE // 8 + VALUE_BYTES // 8 * count if count is not None else 0
    return OBJECT_WORDS & ((1 << end) - 1 if end <= steps.LAST_BIT else steps.ALL_WORDS) if end else None


_Moved = Optional[Tuple[steps.ValuePosition, Optional[Tuple[str, str]]]]


class PhpNamer(steps.ValueNamer):
    """Global variables first, then what classes keep, then constants, then variables of functions."""

    def __init__(self, values: PhpValues, found: PhpGlobals) -> None:
        super().__init__()
        self._values, self._globals = values, found

    def starts(self) -> Iterable[steps.Start]:
        """Return values that are blocks of their own."""
        for name, value in self._values.named(self._globals.symbols):
            yield from self._make_starts(value, [], steps.VARIABLE, "$" + _format_name(name))
        for _, value in self._values.named(self._globals.classes):
            name_ = self._values.class_name(value.data) if value.type == POINTER else None
            if name_ is not None:
                yield from self._of_class(value.data, steps.PathStep(steps.TYPE, name_, TargetAddress(value.data)))
        for name, value in self._values.named(self._globals.constants):
            if value.type == POINTER:
                yield from self._make_starts(self._values.value(value.data), [], steps.VARIABLE, name)
        for function, name, value in list_php_locals(self._values, find_current_frame(self._globals.behind)):
            frame = steps.PathStep(steps.FRAME, "frame %s(): " % function, None)
            yield from self._make_starts(value, [frame], steps.LOCAL, "$" + _format_name(name))

    def _of_class(self, class_: int, first: steps.PathStep) -> Iterator[steps.Start]:
        for name, value in self._values.statics(class_):
            yield from self._make_starts(value, [first], steps.ATTRIBUTE, "::$" + name)
        for name, value in self._values.class_constants(class_):
            yield from self._make_starts(value, [first], steps.ATTRIBUTE, "::" + name)

    def _make_starts(self, value: PhpValue, before: List[steps.PathStep], kind: str, name: str) -> Iterator[steps.Start]:
        inner = self._values.referred(value)
        if inner.type in COUNTED:
            yield steps.Start(inner.data, [*before, steps.PathStep(kind, name, TargetAddress(inner.data))])

    def owning_words(self, signature: Optional[str]) -> int:
        """Return the mask of such blocks: a string leads nowhere, an array to its data, and other names are those of classes."""
        return steps.ALL_WORDS if signature is None else OWNING.get(signature, OBJECT_WORDS)

    def owns_nothing(self) -> Iterable[int]:
        """Return the addresses of the list of all objects and of similar lists."""
        return self._globals.weak

    def read_kind(self, address: int) -> int:
        """See ValueNamer."""
        words = self._values.words(address, 1)
        return words[0] >> 32 & 0xF if words else 0

    def follow_word(self, position: steps.ValuePosition, place: int, below: int) -> _Moved:
        """See ValueNamer."""
        if position.kind == REFERENCE and place == position.address + 8:
            value = self._values.value(place)
            return (steps.ValuePosition(value.type, value.data), None) if value.type in COUNTED else None
        if position.kind == OBJECT and place == position.address + PROPERTIES:
            return steps.ValuePosition(ARRAY, below, True), None
        if position.kind == OBJECT and place >= position.address + PROPERTY_TABLE:
            return self._move_to_property(position, place, below)
        table = self._values.table(position.address) if position.kind == ARRAY else None
        if table is None or place == position.address + 16:
            return None if table is None else (position, None)
        return self._move_to_entry(table, place, position.is_beside)

    def _move_to_property(self, position: steps.ValuePosition, place: int, below: int) -> _Moved:
        class_, value = self._values.words(position.address + 16, 1), self._values.value(place)
        name = self._values.property_names(class_[0]).get(place - position.address) if class_ else None
        if name is not None:
            return (steps.ValuePosition(value.type, value.data), (steps.ATTRIBUTE, "->" + name)) if value.type in COUNTED else None
        return steps.ValuePosition(self.read_kind(below), below), (steps.FIELD, "->?")  # of a class that is written in C

    def _move_to_entry(self, table: PhpTable, place: int, is_properties: bool) -> _Moved:
        number, rest = divmod(place - table.data, table.step)
        if not 0 <= number < table.used or rest:  # a key
            return None
        value, words = self._values.value(place), self._values.words(place, table.step // 8)
        if value.type not in COUNTED or not words:
            return None
        name, number = (0, number) if table.is_packed else (words[3], words[2])
        text = self._values.text(name) if name else None
        if name and text is None:
            return None
        key = "%d" % (number - (number >> 63 << 64)) if text is None else steps.quote_text(text, ESCAPES)
        if is_properties and text is not None:
            return steps.ValuePosition(value.type, value.data), (steps.ATTRIBUTE, "->" + _format_name(text.rpartition("\0")[2]))
        return steps.ValuePosition(value.type, value.data), (steps.INDEX if text is None else steps.KEY, "[%s]" % key)

    def contents(self, address: int, size_bytes: int, signature: Optional[str]) -> Optional[str]:
        if signature == ARRAY_NAME:
            table = self._values.table(address)
            return "array of {:,}".format(table.length) if table is not None else "array of 0"
        words = self._values.words(address, 3) if signature == STRING_NAME else ()
        return "string, {:,} bytes".format(words[2]) if words else None

    def named_texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[Tuple[str, str]]:
        """Return (name, text) of an object's declared properties. See Namer."""
        head = self._values.words(address, 3) if signature not in OWNING else ()
        if not head or head[0] >> 32 & 0xF != OBJECT or self._values.class_name(head[2]) != signature:
            return ()
        named = ((name, self._values.value(address + offset)) for offset, name in self._values.property_names(head[2]).items())
        texts = ((name, self._values.begin(value.data)) for name, value in named if value.type == STRING)
        return [(name, text) for name, text in texts if text is not None]

    def texts(self, address: int, size_bytes: int, signature: Optional[str]) -> Iterable[str]:
        """Return the keys of an array with names, or the values of one without. See Namer."""
        own = self._values.begin(address) if signature == STRING_NAME else None
        if own is not None:
            return [own]
        table = self._values.table(address) if signature == ARRAY_NAME else None
        if table is not None:
            entries = islice(self._values.entries(table._replace(used=min(table.used, steps.TEXT_WORDS))), steps.TEXT_WORDS)
            pointers: Iterable[int] = [key or value.data for key, _, value in entries if key or value.type == STRING]
        else:
            pointers = self._values.words(address, min(size_bytes // 8, steps.TEXT_WORDS))
        return (text for text in map(self._values.begin, pointers) if text is not None)


def _format_name(name: str) -> str:
    """Format the name of a variable or a property, which may be any text."""
    return name if WORD.match(name) else "{%s}" % steps.quote_text(name, ESCAPES)


CHUNK_BYTES = 2 << 20
HEAP_OFFSET = 64
"""Of zend_mm_heap in the main chunk; a chunk begins with {heap, next, prev}."""
SIZE, FREE_SLOTS, BINS, HEAP_WORDS = 2, (4, 5), 30, 48
"""Of zend_mm_heap, in words: size, peak, from 8.4 on shadow_key, free_slot[30], real_size, ..., huge_list, main_chunk, cached_chunks."""
MOST_MEMBERS = 1 << 16
MANAGER = "Zend memory manager"
MOST_HEAPS = 8
"""Each of which did not prove itself."""


PAGE_BYTES, PAGES = 4096, 512
HEAD_BYTES = 4096
FIRST = 0x40000001
"""Of map[0], in each chunk: the head is one large page."""
SMALL, LARGE = 1 << 31, 1 << 30
"""ZEND_MM_IS_SRUN, ZEND_MM_IS_LRUN; both: a further page of a small run (ZEND_MM_IS_NRUN)."""
SIZE_CLASSES = (
    *((8, 512, 1), (16, 256, 1), (24, 170, 1), (32, 128, 1), (40, 102, 1), (48, 85, 1), (56, 73, 1), (64, 64, 1), (80, 51, 1), (96, 42, 1)),
    *((112, 36, 1), (128, 32, 1), (160, 25, 1), (192, 21, 1), (224, 18, 1), (256, 16, 1), (320, 64, 5), (384, 32, 3), (448, 9, 1)),
    *((512, 8, 1), (640, 32, 5), (768, 16, 3), (896, 9, 2), (1024, 8, 2), (1280, 16, 5), (1536, 8, 3), (1792, 16, 7), (2048, 8, 4)),
    *((2560, 8, 5), (3072, 4, 3)),
)
"""(bytes of an element, elements, pages) by number (zend_alloc_sizes.h)."""
MOST_FREE = 1 << 20
UNIT_BYTES = 8
TYPE_IN_COUNTS = 0xF
"""Of the second half of a zend_refcounted_h: the type of what is counted."""
IS_COUNTED = Condition(0, 4, NOT_EQUAL, 0)
STRING_ROW = SignatureRow(
    [IS_COUNTED, Condition(4, 4, EQUAL, STRING, mask=TYPE_AND_MARKS), Condition(16, 8, AT_MOST, -TEXT - 1, base=USABLE)], least_usable=32
)
"""Its flags, and no mark of the collector; its length fits the block."""
ARRAY_ROW = SignatureRow(
    [
        *(IS_COUNTED, Condition(4, 4, EQUAL, ARRAY, mask=TYPE_IN_COUNTS), Condition(12, 4, NOT_EQUAL, 0, mask=1 << 31)),
        *(Condition(24, 4, AT_MOST, 0, base=FIELD, other=32), Condition(28, 4, AT_MOST, 0, base=FIELD, other=24)),
    ],
    *(56, 56),
)
"""A mask below 0; no more values than used places, and no more of these than there are."""
REFERENCE_ROW = SignatureRow([IS_COUNTED, Condition(4, 4, EQUAL, REFERENCE, mask=TYPE_IN_COUNTS), Condition(24, 8, EQUAL, 0)], 32, 32)
"""No typed property refers to it."""


class ZendManager(NamedTuple):
    """Zend memory manager: its chunks and huge blocks."""

    taken: Sequence[Tuple[int, int]]
    """Chunks and huge blocks."""
    size_bytes: int
    """In use, as memory_get_usage() says."""
    chunks: Sequence[int]
    huge: Sequence[Tuple[int, int]]
    notes: Sequence[int]
    """Blocks of its own: the list of huge ones."""
    free_slots: Sequence[int]


class Php(Recogniser):
    """The main chunk holds the heap's own account; with the huge blocks the ring of chunks must add up to what it says was taken."""

    module, objects = "php", ("php", "libphp")
    table = RuntimeLabels(
        "PHP",
        "Zend memory manager",
        "",
        "malloc: blocks in use (the interpreter, classes and functions, extensions)",
        "malloc: blocks in use (the interpreter, classes and functions, extensions)",
    )

    def asks(self, world: CensusTarget) -> Iterable[Ask]:
        release = world.once(read_php_release) if find_php_layout(world) is None else None
        if release is not None:
            which = release[1] or "with interface %d" % release[0]
            what = "PHP %s: its values have no types here; gdbheapx knows those of PHP %s" % (which, RELEASES)
            hint = "all of PHP's memory as one: %s" % hint_command("report")
            world.session.problem(problems.RUNTIME_UNREAD, None, what, hint, partial=False)
        found, values = world.once(find_php_tables), world.once(make_php_reader)
        if found is None or values is None or world.once(find_zend_manager) is None:
            return
        for row, name in ((STRING_ROW, STRING_NAME), (ARRAY_ROW, ARRAY_NAME), (REFERENCE_ROW, REFERENCE_NAME)):
            yield Ask(row, lambda key, name=name: Signature(name, self.module, SHAPE), order=40)  # type: ignore[misc]
        classes = {value.data: values.class_name(value.data) for _, value in values.named(found.classes) if value.type == POINTER}
        is_object = [IS_COUNTED, Condition(4, 4, EQUAL, OBJECT, mask=TYPE_IN_COUNTS), Condition(16, 8, IN_SET, 0)]
        row = SignatureRow(is_object, least_usable=40, key=(16, 8, (1 << 64) - 1))
        numbers, owning = [NumberSet(sorted(classes))], partial(mask_php_class, values)

        def name_object(key: int) -> Optional[Signature]:
            name = classes.get(key)
            return Signature(name, self.module) if name is not None else None

        yield Ask(row, name_object, numbers, order=40, owning=owning)

    def lengths(self, world: CensusTarget) -> Iterable[Length]:
        return (Length(STRING_NAME, 16, TEXT + 1),)

    def inner(self, world: CensusTarget) -> Sequence[Inner]:
        """Return the manager's blocks if they add up to its own count of bytes in use, else its chunks, as memory that is not divided
        further.
        """
        memory = world.once(find_zend_manager)
        if memory is None:
            return ()
        taken = sum(end - start for start, end in memory.taken)
        pieces = find_zend_pieces(world, memory.chunks, memory.huge, memory.free_slots, memory.notes)
        if pieces is None or sum(pieces[0].usable_bytes) + pieces[1] != memory.size_bytes:
            return [Inner(iter(()), self.module, MANAGER, memory.taken, taken - memory.size_bytes, 0, is_told_apart=False)]
        return [Inner(iter(pieces[:1]), self.module, MANAGER, memory.taken, taken - memory.size_bytes, pieces[1], UNIT_BYTES)]

    def fields(self, world: CensusTarget) -> Mapping[Tuple[str, int], str]:
        return {(ARRAY_NAME, 16): "elements of an array"}

    def namer(self, world: CensusTarget) -> Optional[steps.Namer]:
        found, values = world.once(find_php_tables), world.once(make_php_reader)
        return PhpNamer(values, found) if found is not None and values is not None and world.once(find_zend_manager) is not None else None


def make_php_reader(world: CensusTarget) -> Optional[PhpValues]:
    """Return the reader of values; None for a layout that is not known."""
    known = find_php_layout(world)
    return PhpValues(world, known) if known is not None else None


def find_php_tables(world: CensusTarget) -> Optional[PhpGlobals]:
    """Return the interpreter's tables."""
    values = world.once(make_php_reader)
    return values.globals() if values is not None else None


def find_zend_manager(world: CensusTarget) -> Optional[ZendManager]:
    """Return the first heap whose structure proves it, or None."""
    judged: Set[int] = set()
    for mapping in world.target.mappings():
        if mapping.name or not mapping.writable or mapping.end - mapping.start < CHUNK_BYTES:
            continue
        for chunk in range(-(-mapping.start // CHUNK_BYTES) * CHUNK_BYTES, mapping.end - CHUNK_BYTES + 1, CHUNK_BYTES):
            head = world.words(chunk, 1)
            if head is None or head[0] % CHUNK_BYTES != HEAP_OFFSET or head[0] in judged:
                continue
            judged.add(head[0])
            made = _of_heap(world, head[0])
            if made is not None or len(judged) == MOST_HEAPS:
                return made
    return None


def _of_heap(world: CensusTarget, heap: int) -> Optional[ZendManager]:
    """Return the heap's chunks and huge blocks, or None if they differ from its own counts."""
    main, words = heap - HEAP_OFFSET, world.words(heap, HEAP_WORDS)
    chunks = _walk_chunk_ring(world, main, heap)
    if words is None or chunks is None:
        return None
    taken = [(chunk, chunk + CHUNK_BYTES) for chunk in chunks]
    # cached chunks count in real_size and are in no ring; the list of huge blocks stands before the pointer to the main chunk
    place = next((at for at in range(FREE_SLOTS[-1] + BINS + 1, HEAP_WORDS) if words[at] == main), None)
    if place is None:
        return None
    noted = dict(_walk_list(world, words[place - 1], 3))  # zend_mm_huge_list: {ptr, size, next}
    huge = [(start, start + size_bytes) for start, size_bytes, _ in noted.values()]
    taken += huge
    if place + 1 < HEAP_WORDS:
        cached = _walk_list(world, words[place + 1], 2)  # for reuse: a list linked by their second word
        taken += [(chunk, chunk + CHUNK_BYTES) for chunk, _ in cached if not chunk % CHUNK_BYTES]
    whole = sorted(set(taken))
    real = sum(end - start for start, end in whole)
    slots = next((words[at : at + BINS] for at in FREE_SLOTS if words[at + BINS] == real), None)
    return ZendManager(whole, words[SIZE], chunks, huge, list(noted), slots) if slots is not None and words[SIZE] <= real else None


def _walk_chunk_ring(world: CensusTarget, main: int, heap: int) -> Optional[List[int]]:
    chunks, at = [main], main
    while len(chunks) < MOST_MEMBERS:
        head = world.words(at, 2)
        if head is None or head[0] != heap or head[1] % CHUNK_BYTES:
            return None
        if head[1] == main:
            return chunks
        at = head[1]
        chunks.append(at)
    return None


def _walk_list(world: CensusTarget, first: int, count: int) -> Iterator[Tuple[int, Tuple[int, ...]]]:
    """Yield (address, words) of the members of a list: the last of `count` words leads to the next member."""
    seen: Set[int] = set()
    while first and first not in seen and len(seen) < MOST_MEMBERS:
        seen.add(first)
        words = world.words(first, count)
        if words is None:
            return
        yield first, words
        first = words[-1]


def find_zend_pieces(
    world: CensusTarget, chunks: Sequence[int], huge: Sequence[Tuple[int, int]], free_slots: Sequence[int], notes: Sequence[int]
) -> Optional[Tuple[NativeBlocks, int]]:
    """Return the pieces in use and the bytes of the manager's own blocks, or None if a map or a list is damaged. `free_slots`: the first
    free element of each bin; `notes`: the manager's own blocks, which lead to what others own.
    """
    runs = [(start, end - start, 1) for start, end in huge]
    for chunk in chunks:
        pages = _read_page_map(world, chunk)
        if pages is None:
            return None
        runs += _list_runs(chunk, pages)
    runs.sort()
    labels = world.unlisted(runs, free_slots, MOST_FREE)
    if labels is None:
        return None
    starts, firsts, notes_bytes = [start for start, _, _ in runs], [0, *accumulate(count for _, _, count in runs)], 0
    for address in notes if runs else ():
        place = max(0, bisect_right(starts, address) - 1)
        start, size, count = runs[place]
        number, rest = divmod(address - start, size or 1)
        if not rest and 0 <= number < count and labels[firsts[place] + number]:
            labels[firsts[place] + number] = 0
            notes_bytes += size
    return world.cells(runs, labels), notes_bytes


def _read_page_map(world: CensusTarget, chunk: int) -> Optional[Sequence[int]]:
    head = world.read(chunk, HEAD_BYTES)
    words = unpack("<%dI" % (HEAD_BYTES // 4), head) if len(head) == HEAD_BYTES else ()
    place = next((at for at in range(16, len(words) - PAGES + 1) if words[at] == FIRST), None)
    return None if place is None else words[place : place + PAGES]


def _list_runs(chunk: int, pages: Sequence[int]) -> Iterator[Tuple[int, int, int]]:
    """Yield (start, bytes of an element, elements) of each run except the chunk's head."""
    page = 1
    while page < PAGES:
        info, start = pages[page], chunk + page * PAGE_BYTES
        length = 1
        if info & SMALL and not info & LARGE and info & 31 < len(SIZE_CLASSES):
            size, count, length = SIZE_CLASSES[info & 31]
            yield start, size, count
        elif info & LARGE and not info & SMALL and info & 1023:
            length = info & 1023
            yield start, length * PAGE_BYTES, 1
        page += length


RECOGNISERS: List[Recogniser] = [Php()]
