"""Reads CPython's objects: texts, numbers, dicts. Whatever is not as it must be reads as nothing: memory may be damaged."""

import struct
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from gdbheapx.addons.runtimes.cpython.types import (
    DICT,
    FLAGS_IN_COUNTS,
    HEAP_TYPE,
    HIGH_HALF,
    LOW_HALF,
    MANAGED_DICT,
    OVERFLOW,
    STR,
    WORD,
    PyType,
    PyTypes,
)
from gdbheapx.analysis.census.world import World

NEWEST = 15
"""The last minor version whose layouts are known."""
TP_ALLOC = 304
"""In a PyTypeObject of 64 bits (Include/cpython/object.h; the same since Python 3.0)."""
HEADS = (0, 16, 32)
"""Bytes that may precede an object of Python: nothing, that of the collector, that and two pointers."""
IMMUTABLE_TYPE = 1 << 8
"""Of all static types since 3.10."""
FUNCTION_3_8 = {
    16: ".__code__", 24: ".__globals__", 32: ".__defaults__", 40: ".__kwdefaults__", 48: ".__closure__", 56: ".__doc__",
    64: ".__name__", 88: ".__module__", 96: ".__annotations__", 104: ".__qualname__",
}  # fmt: skip
FUNCTION_3_10 = {
    16: ".__globals__", 24: ".__builtins__", 32: ".__name__", 40: ".__qualname__", 48: ".__code__", 56: ".__defaults__",
    64: ".__kwdefaults__", 72: ".__closure__", 80: ".__doc__", 104: ".__module__",
}  # fmt: skip
FUNCTION_3_11 = {**FUNCTION_3_10, 112: ".__annotations__"}
FUNCTION_3_12 = {**FUNCTION_3_11, 120: ".__type_params__"}
FUNCTION_3_14 = {**FUNCTION_3_11, 120: ".__annotate__", 128: ".__type_params__"}
FUNCTIONS = {8: FUNCTION_3_8, 10: FUNCTION_3_11, 12: FUNCTION_3_12, 14: FUNCTION_3_14}


class PyFrameLayout(NamedTuple):
    """A _PyInterpreterFrame (3.11 and later)."""

    code: int
    previous: int
    globals: int
    owner: int
    """Of the byte that says where it lies."""
    locals: int


class PyLayout(NamedTuple):
    """Offsets in bytes, from where an object begins."""

    release: int
    """The lowest minor version that it may be: 8, 10 to 15 (3.9 is as 3.8)."""
    items: int
    """Of a tuple's first item."""
    ascii_text: int
    """Of the characters of a compact string."""
    wide_text: int
    """The same, where not all are ASCII."""
    function: Dict[int, str]
    closure: int
    """Of a function's cells."""
    frame: PyFrameLayout
    module_state: int
    """Of a module's pointer to what it has of its own in C; two words on is its name."""
    generator_frame: int
    """Of the frame in a generator or coroutine; before 3.11 of the pointer to it."""

    @property
    def has_digit_tags(self) -> bool:
        """Return True for 3.12 and later: sign and number of digits of an int share a word."""
        return self.release >= 12


FRAMES = {
    11: PyFrameLayout(code=32, previous=48, globals=8, owner=69, locals=72),
    12: PyFrameLayout(code=0, previous=8, globals=24, owner=70, locals=72),
    14: PyFrameLayout(code=0, previous=8, globals=24, owner=74, locals=80),
}
GENERATOR_FRAMES = {8: 16, 11: 80, 12: 72}


def find_python_release(types: PyTypes, minor_version: Optional[int]) -> int:
    """Return the minor version by the flags of types; since 3.13 it is written somewhere."""
    if minor_version is not None:
        return minor_version
    if types.has_inline_values:
        return 13
    if types.has_tagged_dicts:
        return 12
    heap = [py_type.flags for py_type in types.all.values() if py_type.flags & HEAP_TYPE]
    if any(flags & MANAGED_DICT for flags in heap):
        return 11
    static = [py_type.flags for py_type in types.all.values() if not py_type.flags & HEAP_TYPE]
    return 10 if any(flags & IMMUTABLE_TYPE for flags in static) else 8


def make_python_layout(types: PyTypes, minor_version: Optional[int]) -> PyLayout:
    """Return the layout of a process's release."""
    release = find_python_release(types, minor_version)
    return PyLayout(
        release=release,
        items=types.root.items * 8,
        ascii_text=40 if release >= 12 else 48,
        wide_text=56 if release >= 12 else 72,
        function=FUNCTIONS[max(key for key in FUNCTIONS if key <= release)],
        closure=48 if release < 10 else 72,
        frame=FRAMES[max((key for key in FRAMES if key <= release), default=min(FRAMES))],
        module_state=24 if release >= 15 else 32,
        generator_frame=GENERATOR_FRAMES[max(key for key in GENERATOR_FRAMES if key <= release)],
    )


MOST_CHARACTERS = 40
"""Of a key in a path; what is longer ends with ELLIPSIS."""
ELLIPSIS = "\u2026"
MOST_READ_CHARACTERS = 4096
MOST_ITEMS = 3
"""Of a tuple that is written out as a key."""
MOST_DIGITS = 4
MOST_ENTRIES = 1 << 22
"""Of one dict that is gone through."""
TUPLE, BYTES, INT = 1 << 26, 1 << 27, 1 << 24
ENTRIES_AT_ONCE = 4096
LENGTH, SIZE = 16, 16
"""Of a string; of what has a number of items."""
KEYS, VALUES = 32, 40
"""In a dict."""


class PyDictKeys(NamedTuple):
    """The table that a dict looks its keys up in (PyDictKeysObject)."""

    entries: int
    """Address of the first."""
    entry_count: int
    """So many were ever put in: some may be gone again."""
    entry_bytes: int
    key: int
    value: int
    """Offsets in an entry."""


class PyValues:
    """Reads objects of one process."""

    def __init__(self, world: World, types: PyTypes, layout: PyLayout) -> None:
        self.world, self.types, self.layout = world, types, layout
        self._order = world.target.byte_order
        self._no_count = OVERFLOW if layout.release >= FLAGS_IN_COUNTS else HIGH_HALF

    def word(self, address: int) -> int:
        """Return the word at an address; 0 if it cannot be read."""
        return self.number(address, WORD)

    def number(self, address: int, size_bytes: int) -> int:
        """Return the unsigned number at an address; 0 if it cannot be read."""
        data = self.world.read(address, size_bytes)
        return int.from_bytes(data, self._order) if len(data) == size_bytes else 0

    def type_of(self, address: int) -> Optional[PyType]:
        """Return the type of an object; None if there is none: a type, and before it a count, whose upper half has at most flags (since
        3.14)."""
        head = self.world.words(address, 2) if address and not address % WORD else None
        if head is None or not head[0] & LOW_HALF or head[0] & self._no_count:
            return None
        return self.types.all.get(head[1])

    def is_object(self, address: int) -> bool:
        """Return True if the type of the object at this address is known."""
        return self.type_of(address) is not None

    def has(self, address: int, flag: int) -> bool:
        """Return True if the object's type has the flag."""
        py_type = self.type_of(address)
        return bool(py_type and py_type.flags & flag)

    def object_in(self, block: int) -> Optional[Tuple[int, PyType]]:
        """Return the object whose block begins at the address, and its type."""
        for shift in self.types.shifts:
            for head in (0, 16, 32):
                py_type = self.type_of(block + shift + head)
                if py_type and py_type.head_bytes == head:
                    return block + shift + head, py_type
        return None

    def is_named(self, address: int, *names: str) -> bool:
        """Return True if the object's type, or one of its bases, has one of the names."""
        py_type = self.type_of(address)
        return py_type is not None and any(kin.name in names for kin in self.types.family(py_type))

    def text(self, address: int, limit: int = MOST_READ_CHARACTERS) -> Optional[str]:
        """Return the first characters of a str (PyASCIIObject, PyCompactUnicodeObject); None if it is no str, or not compact."""
        if not self.has(address, STR):
            return None
        length, state = self.word(address + LENGTH), self.number(address + 32, 4)
        kind, is_compact, is_ascii = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if kind not in (1, 2, 4) or not is_compact or length > 1 << 40:
            return None
        at = address + (self.layout.ascii_text if is_ascii else self.layout.wide_text)
        size = kind * min(length, limit)
        data = self.world.read(at, size)
        if len(data) < size:
            return None
        if kind == 1:
            return data.decode("latin-1")
        codes = [int.from_bytes(data[place : place + kind], self._order) for place in range(0, size, kind)]
        return "".join(map(chr, codes)) if all(code < 0x110000 for code in codes) else None

    def integer(self, address: int) -> Optional[int]:
        size = self.word(address + SIZE)
        if self.layout.has_digit_tags:
            is_negative, count = size & 3 == 2, 0 if size & 3 == 1 else size >> 3
        else:
            is_negative = bool(size >> 63)
            count = (1 << 64) - size if is_negative else size
        if count > MOST_DIGITS:
            return None
        data = self.world.read(address + 24, 4 * count)
        if len(data) < 4 * count:
            return None
        digits = [int.from_bytes(data[4 * place : 4 * place + 4], self._order) for place in range(count)]
        number = sum(digit << 30 * place for place, digit in enumerate(digits))
        return -number if is_negative else number

    def literal(self, address: int, depth: int = 0) -> Optional[str]:
        """Return str, bytes, int, bool, float, None and small tuples of these as Python writes them; None for others."""
        py_type = self.type_of(address)
        if py_type is None:
            return None
        if py_type.name == "str":
            text = self.text(address, MOST_CHARACTERS + 1)
            return None if text is None else quote_python_text(text)
        if py_type.name == "bytes":
            data = self.world.read(address + 32, min(self.word(address + SIZE), MOST_CHARACTERS + 1))
            return "b" + quote_python_text(data.decode("latin-1"), is_bytes=True)
        if py_type.name in ("int", "bool"):
            number = self.integer(address)
            return None if number is None else str(bool(number)) if py_type.name == "bool" else str(number)
        if py_type.name == "float":
            data = self.world.read(address + 16, 8)
            return repr(struct.unpack("<d" if self._order == "little" else ">d", data)[0]) if len(data) == 8 else None
        if py_type.name == "NoneType":
            return "None"
        count = self.word(address + SIZE)
        if py_type.name != "tuple" or count > MOST_ITEMS or depth > 1:
            return None
        items = [self.literal(self.word(address + self.layout.items + place * WORD), depth + 1) for place in range(count)]
        known = [item for item in items if item is not None]
        return None if len(known) < count else "(%s%s)" % (", ".join(known), "," * (count == 1))

    def tuple_texts(self, address: int, most: int = 1024) -> List[Optional[str]]:
        count = min(self.word(address + SIZE), most) if self.has(address, TUPLE) else 0
        return [self.text(self.word(address + self.layout.items + place * WORD)) for place in range(count)]

    def keys(self, address: int) -> Optional[PyDictKeys]:
        head = self.world.read(address, 40)
        if len(head) < 40:
            return None
        if self.layout.release >= 11:  # keys begin with their sizes as logarithms, and may be strings only
            log2_size, log2_index, kind = head[8], head[9], head[10]
            count = int.from_bytes(head[24:32], self._order)
            if log2_size > 40 or log2_index > 43 or kind > 2 or count > 1 << log2_size:
                return None
            entries = address + 32 + (1 << log2_index)
            return PyDictKeys(entries, count, 24, 8, 16) if kind == 0 else PyDictKeys(entries, count, 16, 0, 8)
        size, count = (int.from_bytes(head[at : at + 8], self._order) for at in (8, 32))
        if not size or size & (size - 1) or count > size:
            return None
        width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4 if size <= 0xFFFFFFFF else 8
        return PyDictKeys(address + 40 + size * width, count, 24, 8, 16)

    def entries(self, address: int) -> Iterator[Tuple[int, int]]:
        """Yield (key, value) of a dict, also of one whose keys are shared."""
        keys = self.keys(self.word(address + KEYS)) if self.has(address, DICT) else None
        if keys is None:
            return
        split = self.word(address + VALUES)
        for place in range(0, min(keys.entry_count, MOST_ENTRIES), ENTRIES_AT_ONCE):
            count = min(ENTRIES_AT_ONCE, keys.entry_count - place)
            words = self.world.words(keys.entries + place * keys.entry_bytes, count * keys.entry_bytes // WORD)
            if words is None:
                return
            step = keys.entry_bytes // WORD
            named = words[keys.key // WORD :: step], words[keys.value // WORD :: step]
            for number, (key, value) in enumerate(zip(*named)):
                value = self.word(self.split_value(split, place + number)) if split else value
                if key and value:
                    yield key, value

    def split_value(self, values: int, index: int) -> int:
        """Return the address of a value in a table apart from its keys (PyDictValues); since 3.13 a word of sizes comes first."""
        return values + index * WORD + (WORD if self.layout.release >= 13 else 0)

    def key_of(self, keys_at: int, index: int) -> int:
        """Return the key with this number in a table; 0 if there is none."""
        keys = self.keys(keys_at)
        return self.word(keys.entries + index * keys.entry_bytes + keys.key) if keys and 0 <= index < keys.entry_count else 0

    def get(self, address: int, name: str) -> int:
        """Return the value of a dict for a str; 0 if there is none."""
        return next((value for key, value in self.entries(address) if self.text(key) == name), 0)


def quote_python_text(text: str, is_bytes: bool = False) -> str:
    """Return a text in double quotes, escaped and cut."""
    cut = text[:MOST_CHARACTERS]
    made = "".join(_escape_character(character, is_bytes) for character in cut)
    return '"%s%s"' % (made, ELLIPSIS if len(text) > MOST_CHARACTERS else "")


def _escape_character(character: str, is_bytes: bool) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable() and (not is_bytes or character < "\x7f"):
        return character
    return character.encode("unicode_escape").decode("ascii")
