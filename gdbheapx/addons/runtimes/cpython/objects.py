"""CPython's types, found by what they are: no symbol is read. Offsets and flags are those of 3.8 to 3.14 with 64-bit words, not of
free-threaded builds (Include/cpython/object.h).

What CPython's objects own besides themselves: which word of an object points to a body, and what that is.

Reads CPython's objects: texts, numbers, dicts. Whatever is not as it must be reads as nothing: memory may be damaged.

Masks of the words of CPython's objects that own what they point to.

Not so: links of the collector's lists, counts and types, weak references and the list of them, and what a class has of its bases (they
have names of their own), links of chains whose members a dict has as well.
"""

import struct
import sys
from array import array
from typing import Dict, FrozenSet, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.world import CensusTarget
from gdbheapx.analysis.reachability.heap_graph import find_module_at
from gdbheapx.analysis.reachability.paths import ALL_WORDS, LAST_BIT, Namer
from gdbheapx.kernel.blocks.graph_queries import Counting
from gdbheapx.kernel.blocks.signatures import AT_LEAST, AT_MOST, EQUAL, Condition, SignatureRow, Signed

WORD = 8
TYPE, NAME, BASIC, ITEM, FLAGS, BASE, MRO = 8, 24, 32, 40, 168, 256, 344
TYPE_WORDS = (MRO + WORD) // WORD
STATIC_BUILTIN, INLINE_VALUES, MANAGED_WEAKREF, MANAGED_DICT = 1 << 1, 1 << 2, 1 << 3, 1 << 4
HEAP_TYPE, READY, HAS_GC = 1 << 9, 1 << 12, 1 << 14
BUILTINS = {1 << 24: "int", 1 << 25: "list", 1 << 26: "tuple", 1 << 27: "bytes", 1 << 28: "str", 1 << 29: "dict", 1 << 31: "type"}
"""The flag that a type shares with all types derived from it."""
LIST, STR, DICT, IS_TYPE = 1 << 25, 1 << 28, 1 << 29, 1 << 31
GC_HEAD = 16
PRE_HEADER = 16
DEBUG_HEAD = 16
"""Of PYTHONMALLOC=debug: size, letter of the API, seven bytes 0xFD. What is too large for a pool has two: pools hand on what has theirs."""
DEBUG_SHIFTS = (DEBUG_HEAD, 2 * DEBUG_HEAD)
LEAST_STR = 40
"""Compact strings lack the rest of their struct (48 bytes before 3.12)."""
MOST_BASIC, MOST_ITEM, LEAST_HEAP_TYPE = 1 << 20, 1 << 16, 600
MOST_DATA = 16 << 20
"""Of one object's writable memory: .bss may be as long as it likes."""
FLAGS_IN_COUNTS = 14
"""Minor version from which on a reference count has some."""
LOW_HALF, HIGH_HALF, OVERFLOW = 0xFFFFFFFF, 0xFFFFFFFF << 32, 0xFFFF << 32
"""Of a reference count; since 3.14 the lower half of its upper half is 0 while it is counted in 32 bits (ob_overflow, then ob_flags)."""
LOWEST = 0x1000
UNNAMED = "type at "
"""What the name of a static type begins with where its text cannot be read."""
COOKIE = b"xdebugpy"
"""Before a version as in sys.hexversion, since 3.13 (struct _Py_DebugOffsets)."""
HEAP_TYPE_SHIFTS = (0, DEBUG_SHIFTS[1])
"""By row: a heap type is too large for a pool."""
BY_NAME: Dict[str, Sequence[Tuple[int, str]]] = {
    "set": ((40, "set table"),),
    "frozenset": ((40, "set table"),),
    "bytearray": ((32, "bytearray bytes"),),
    "array.array": ((24, "array items"),),
    "collections.deque": ((24, "deque block"), (32, "deque block")),
    "collections.OrderedDict": ((48, "ordered dict index"),),
    "numpy.ndarray": ((16, "ndarray data"), (32, "ndarray dimensions")),
}
"""(offset in the object, what it points to) of types that have no flag, and of all derived from them."""
BY_FLAG: Dict[int, Sequence[Tuple[int, str]]] = {
    DICT: ((32, "dict keys"), (40, "dict values")),
    LIST: ((24, "list items"),),
    IS_TYPE: ((176, "type doc"), (864, "type keys"), (872, "type keys"), (880, "type keys")),
}
"""By what all derived types have. Keys that instances of a class share moved in 3.10 and 3.12; else objects are at these places."""
MANAGED: Sequence[Tuple[int, str]] = ((0, "instance values"),)
"""3.11: the first word of the block."""
MANAGED_TAGGED: Sequence[Tuple[int, str]] = ((8, "instance values"),)
"""3.12."""


class PyType(NamedTuple):
    """PyTypeObject."""

    address: int
    name: str
    """As tp_name has it; of a static type whose text cannot be read its place."""
    flags: int
    basic_bytes: int
    base: int
    metatype: int

    @property
    def short_name(self) -> str:
        return "unknown" if self.name.startswith(UNNAMED) else self.name.rpartition(".")[2]

    @property
    def head_bytes(self) -> int:
        """Return the bytes before the object in its block: the words of a managed dict, the collector's head."""
        return bool(self.flags & HAS_GC) * GC_HEAD + bool(self.flags & (MANAGED_DICT | MANAGED_WEAKREF)) * PRE_HEADER

    @property
    def least_bytes(self) -> int:
        """Return the size of the smallest object of the type, head included."""
        return self.head_bytes + (min(self.basic_bytes, LEAST_STR) if self.flags & STR else self.basic_bytes)


PySegment = Tuple[int, "array[int]"]
"""Begin of an object's writable memory, and its words."""


class TypeRoot(NamedTuple):
    """`type` and `object`."""

    type: int
    object: int
    items: int
    """Word of a tuple at which its items begin: a cached hash precedes them since 3.14."""


def read_py_segments(world: CensusTarget) -> Iterator[PySegment]:
    """Return the data segments of all objects, .bss too, as far as they are in memory."""
    for module in world.modules():
        for start, end, end_of_bss in world.target.writable_segments(module):
            stop = min(end_of_bss, start + MOST_DATA)
            for low, high in world.target.present_ranges(start, stop) or ((start, min(end, stop)),):
                low = -(-low // WORD) * WORD
                data = world.read(low, high - low)
                words = array("Q", data[: len(data) // WORD * WORD])
                if world.little_endian != (sys.byteorder == "little"):
                    words.byteswap()
                yield low, words


def find_root(world: CensusTarget, memory: Sequence[PySegment]) -> Optional[TypeRoot]:
    """Find `type`, which is its own type, and whose only base has none."""
    for start, words in memory:
        places = range(start - TYPE, start - TYPE + len(words) * WORD, WORD)
        for at in [at for at, word in zip(places, words) if at == word]:
            root = root_at(world, at)
            if root:
                return root
    return None


def root_at(world: CensusTarget, at: int) -> Optional[TypeRoot]:
    """Return the root if the object at this address is `type`, else None."""
    words = world.words(at, TYPE_WORDS)
    if words is None or words[FLAGS // WORD] & (IS_TYPE | READY) != IS_TYPE | READY:
        return None
    base = words[BASE // WORD]
    of_base, order = world.words(base, TYPE_WORDS), world.words(words[MRO // WORD], 6)
    if of_base is None or order is None or of_base[TYPE // WORD] != at or of_base[BASE // WORD] or order[2] != 2:
        return None
    return next((TypeRoot(at, base, items) for items in (3, 4) if order[items : items + 2] == (at, base)), None)


def minor_version(world: CensusTarget, memory: Sequence[PySegment]) -> Optional[int]:
    """Return 13 for 3.13, from _PyRuntime; None up to 3.12. From 3.14 on the upper half of a reference count has flags."""
    for _, words in memory:
        place = words.tobytes().find(COOKIE) if world.little_endian == (sys.byteorder == "little") else -1
        if place >= 0 and not place % WORD and place // WORD + 1 < len(words) and words[place // WORD + 1] >> 24 == 3:
            return words[place // WORD + 1] >> 16 & 0xFF
    return None


def debug_head(shift: int) -> List[Condition]:
    """Return conditions for the last word that PYTHONMALLOC=debug writes before an object; none for no shift."""
    return [Condition(shift - 8, 1, EQUAL, ord("o")), Condition(shift - 4, 4, EQUAL, 0xFDFDFDFD)] if shift else []


def heap_type_rows() -> List[SignatureRow]:
    """Return rows for blocks that may be heap types: with the collector's head, and those with the head of PYTHONMALLOC=debug before it.
    Their key is tp_mro, a tuple that each type has for itself.
    """
    rows = []
    for shift in HEAP_TYPE_SHIFTS:
        at = shift + GC_HEAD
        conditions = [
            *debug_head(shift),
            Condition(at + FLAGS, 8, EQUAL, HEAP_TYPE | READY, mask=HEAP_TYPE | READY),
            Condition(at + BASIC, 8, AT_LEAST, 16),
            Condition(at + BASIC, 8, AT_MOST, MOST_BASIC),
            Condition(at + ITEM, 8, AT_MOST, MOST_ITEM),
            *(Condition(at + place, 8, AT_LEAST, LOWEST) for place in (TYPE, NAME, BASE, MRO)),
            *(Condition(at + place, 8, EQUAL, 0, mask=7) for place in (TYPE, BASE, MRO)),
        ]
        rows.append(SignatureRow(conditions, least_usable=at + LEAST_HEAP_TYPE, key=(at + MRO, 8, (1 << 64) - 1)))
    return rows


class PyTypes:
    """Types of a process by address."""

    def __init__(self, world: CensusTarget, memory: Sequence[PySegment], root: TypeRoot, matches: Sequence[Signed]) -> None:
        self._world = world
        self.root = root
        self.all: Dict[int, PyType] = {}
        self.shifts: Sequence[int] = (0,)
        """What PYTHONMALLOC=debug writes where blocks begin: in pools, and in larger ones."""
        self._search_types(memory, matches)
        self._name_builtins()
        flags = 0
        for py_type in self.all.values():
            flags |= py_type.flags if not py_type.flags & HEAP_TYPE else py_type.flags & (INLINE_VALUES | MANAGED_WEAKREF)
        self.has_inline_values = bool(flags & INLINE_VALUES)
        """3.13 and later: values of an instance follow it."""
        self.has_tagged_dicts = bool(flags & (STATIC_BUILTIN | MANAGED_WEAKREF | INLINE_VALUES))
        """3.12 and later: one word before an instance is its dict or its values."""

    def _search_types(self, memory: Sequence[PySegment], matches: Sequence[Signed]) -> None:
        """Find instances of `type`, and of every metatype among them, until there are no more."""
        waiting: Dict[int, List[Tuple[int, int]]] = {}
        for match in matches:
            at = match.sample + HEAP_TYPE_SHIFTS[match.row] + GC_HEAD
            head = self._world.words(at, 2)
            waiting.setdefault(head[1] if head else 0, []).append((at, match.row))
        fresh: Set[int] = {self.root.type}
        by_row = [0, 0]
        while fresh:
            before = set(self.all)
            for start, words in memory:
                for place in [place for place, word in enumerate(words) if word in fresh]:
                    self._add_type(start + (place - 1) * WORD)
            for metatype in fresh:
                for at, row in waiting.get(metatype, ()):
                    by_row[row] += self._add_type(at)
            for address in [py_type.base for py_type in self.all.values() if py_type.base not in self.all]:
                self._add_type(address)
            fresh = {at for at in set(self.all) - before if self.all[at].flags & IS_TYPE} - {self.root.type}
        if by_row[1] > by_row[0]:
            self.shifts = DEBUG_SHIFTS

    def _add_type(self, at: int) -> bool:
        """Add an address if it is a type, whose tp_mro begins with itself, and return whether it is one."""
        if at in self.all:
            return False
        words = self._world.words(at, TYPE_WORDS)
        if words is None or not words[FLAGS // WORD] & READY:
            return False
        basic, item, order = words[BASIC // WORD], words[ITEM // WORD], words[MRO // WORD]
        if not 16 <= basic < MOST_BASIC or item >= MOST_ITEM or order % WORD or order < LOWEST:
            return False
        first = self._world.words(order + self.root.items * WORD, 1)
        if first != (at,):
            return False
        name = self._read_text(words[NAME // WORD])
        self.all[at] = PyType(at, name or self._format_place(at), words[FLAGS // WORD], basic, words[BASE // WORD], words[TYPE // WORD])
        return True

    def _read_text(self, at: int) -> str:
        data = self._world.read(at, 256).split(b"\0")[0] if at >= LOWEST else b""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return ""
        return text if text.isprintable() and len(data) < 256 else ""

    def _format_place(self, at: int) -> str:
        module = find_module_at(self._world.target, at)
        return "%s%s+0x%x" % (UNNAMED, module.file_name, at - module.base) if module else "%s0x%x" % (UNNAMED, at)

    def _name_builtins(self) -> None:
        """Name static types that need no text: the only one with a certain flag and the base `object`."""
        named = {self.root.object: "object"}
        for flag, name in BUILTINS.items():
            having = [py_type.address for py_type in self.all.values() if py_type.flags & flag and py_type.base == self.root.object]
            if len(having) == 1:
                named[having[0]] = name
        for address, name in named.items():
            if address in self.all:
                self.all[address] = self.all[address]._replace(name=name)

    def rename(self, names: Mapping[int, str]) -> None:
        """Set names found by other means, by address."""
        for address, name in names.items():
            self.all[address] = self.all[address]._replace(name=name)

    def family(self, py_type: PyType) -> Iterator[PyType]:
        seen: Set[int] = set()
        at: Optional[PyType] = py_type
        while at and at.address not in seen:
            yield at
            seen.add(at.address)
            at = self.all.get(at.base)


class PyBody(NamedTuple):
    """A word of the blocks of one type."""

    type: int
    """Address of the type: the key of its row."""
    offset: int
    """Of the word in the block; the row's head is counted."""
    name: str
    inside: bool = False
    """The word may point into the body, not to its begin (values of 3.11 and 3.12: their size precedes them, and the lowest bit
    distinguishes them from a dict)."""


def list_bodies(types: PyTypes, py_type: PyType) -> Iterator[PyBody]:
    """Return the bodies that objects of a type own."""
    in_debug = bool(types.shifts[0])
    before = types.shifts[0] + py_type.head_bytes
    for flag, fields in BY_FLAG.items():
        if py_type.flags & flag:
            yield from (PyBody(py_type.address, before + offset, name, in_debug) for offset, name in fields)
    for kin in types.family(py_type):
        if not kin.flags & HEAP_TYPE or kin.name in ("array.array", "collections.deque"):
            yield from (PyBody(py_type.address, before + offset, name, in_debug) for offset, name in BY_NAME.get(kin.name, ()))
    if py_type.flags & MANAGED_DICT and not types.has_inline_values:
        fields = MANAGED_TAGGED if types.has_tagged_dicts else MANAGED
        yield from (PyBody(py_type.address, types.shifts[0] + offset, name, inside=True) for offset, name in fields)


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

    def __init__(self, world: CensusTarget, types: PyTypes, layout: PyLayout) -> None:
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


WEAK_LIST_OFFSET = 208
"""tp_weaklistoffset, in a type."""
WEAK = frozenset((16, 40, 48))
"""PyWeakReference: wr_object, wr_prev, wr_next."""
OF_CLASS = frozenset((24, 256, 336, 344, 352, 360, 368))
"""PyTypeObject: tp_name (in a str that has a word of its own), tp_base, tp_bases, tp_mro, tp_cache, tp_subclasses, tp_weaklist."""
COUNTED_OF_CLASS = (256, 336, 344, 352, 360)
"""Of these the ones that are counted references: tp_base, tp_bases, tp_mro, tp_cache, tp_subclasses."""
COUNTING_BODIES = ("dict keys", "dict values", "list items", "set table", "instance values", "deque block", "type keys")
"""Blocks that objects own and that have references."""
NUMBERS_OF_CLASS = frozenset((32, 40, 168, 208, 288, 384))
"""tp_basicsize, tp_itemsize, tp_flags, tp_weaklistoffset, tp_dictoffset, tp_version_tag: where the heap lies low they look like
pointers."""
CODE_CACHES = frozenset((128, 136, 152, 160))
"""PyCodeObject of 3.8 to 3.10: co_zombieframe, whose stack has what ended calls have left, co_weakreflist, co_opcache_map, co_opcache."""
NOT_OWNED: Dict[str, FrozenSet[int]] = {
    **dict.fromkeys(("weakref", "weakref.ReferenceType"), WEAK),
    **dict.fromkeys(("weakproxy", "weakref.ProxyType", "weakcallableproxy", "weakref.CallableProxyType"), WEAK),
    **dict.fromkeys(("functools._lru_cache_wrapper", "functools._lru_list_elem"), frozenset((16, 24))),
    "dict": frozenset((16, 24)),
    "collections.OrderedDict": frozenset((64, 80, 88)),
    "collections.deque": frozenset(range(80, 208, WORD)),
}
"""By the name of a type, and for all derived from it: offsets in the object. Of a deque (3.11 and later) its free blocks;
of an OrderedDict what its keys were when its nodes were made (od_resize_sentinel)."""
GENERATORS = ("generator", "coroutine", "async_generator")
WITH_FRAME = (*GENERATORS, "frame")
GENERATOR_ITEM = {11: 56, 12: 48}
"""gi_exc_state.previous_item: in the caller's memory. The next word, of where a coroutine was made, is not always written."""
LINKED_TASKS = 14
"""Since then all tasks are in a list, by the last two words of each (TaskObj.task_node in Modules/_asynciomodule.c)."""
FRAME_DATA, OLD_FRAME_PARTS = 24, {8: range(88, 360, WORD), 10: range(80, 352, WORD)}
"""A frame object's pointer to its data; up to 3.10 numbers, blocks that it is in, and its generator, which it does not
count."""
GENERATOR_RUNS, CELL_NUMBERS, SPARE_FRAME = 24, 96, 128
"""gi_running (to 3.9), of whose word one byte is written; co_cell2arg and co_zombieframe (to 3.10), a frame that a call
left and the next one takes."""
CODE_EXTRA, MOST_CODE_BYTES = 144, 256
"""What code has for the interpreter alone: weak references, caches, counters."""
CLASS_DICT, MOST_DICTS = 264, 1 << 17
POOL_BYTES = 512
DEBUG_BYTES = 32
"""Of PYTHONMALLOC=debug around each block."""


class PyMasks(Namer):
    """Part of the namer of CPython's objects that answers by the names of types."""

    def __init__(self, values: PyValues, dicts: Iterable[int]) -> None:
        """Take the dicts of modules."""
        self._values = values
        self._has_name = _with_names(values, dicts)
        self._named: Dict[str, List[PyType]] = {}
        for py_type in values.types.all.values():
            self._named.setdefault(py_type.name, []).append(py_type)
        self._made: Dict[str, int] = {}

    def owning_words(self, signature: Optional[str]) -> int:
        if signature is None or signature not in self._named:
            return ALL_WORDS
        if signature not in self._made:
            links, owned = 0, 0
            for py_type in self._named[signature]:
                owned |= self._mask_owned(py_type)
                links |= self._mask_links(py_type)
            self._made[signature] = owned & ~links
        return self._made[signature]

    def object_offset(self, signature: Optional[str]) -> int:
        """Return the offset of the object in its block; 0 if types of that name differ."""
        offsets = {self._find_shift(py_type) + py_type.head_bytes for py_type in self._named.get(signature or "", ())}
        return offsets.pop() if len(offsets) == 1 else 0

    def items(self, signature: Optional[str]) -> Tuple[int, int]:
        """Return where the items of tuples and numbers begin in a block, and their size; (0, 0) for others, and if types of that name
        differ."""
        found = {self._read_item_layout(py_type) for py_type in self._named.get(signature or "", ())}
        return found.pop() if len(found) == 1 else (0, 0)

    def _read_item_layout(self, py_type: PyType) -> Tuple[int, int]:
        is_tuple = py_type.flags & TUPLE and py_type.name == "tuple"  # those derived may have more items than they count: os.stat_result
        is_counted = is_tuple or (py_type.flags & INT and self._values.layout.release < 12)
        if not is_counted or self._find_shift(py_type) or py_type.head_bytes != GC_HEAD:
            return 0, 0
        return GC_HEAD + py_type.basic_bytes, self._values.word(py_type.address + ITEM) & 0xFF

    def counting(self, signature: Optional[str]) -> Counting:
        types = self._named.get(signature or "", ())
        begins = {(self._find_shift(py_type) + py_type.head_bytes, py_type.flags & HAS_GC) for py_type in types}
        if len(begins) != 1:
            return Counting()
        (begin, is_visited), more, own = begins.pop(), 0, 0
        for py_type in types:
            words = [*([TYPE] if py_type.flags & HEAP_TYPE else []), *(COUNTED_OF_CLASS if py_type.flags & IS_TYPE else ())]
            for offset in words:
                more |= _mask_words(begin + offset, begin + offset + WORD)
            for body in list_bodies(self._values.types, py_type):
                own |= _mask_words(body.offset, body.offset + WORD) if body.name in COUNTING_BODIES else 0
        return Counting(self.owning_words(signature), more, own, begin // WORD + 1, int(bool(is_visited)))

    def is_of_program(self, signature: Optional[str]) -> bool:
        """Return True for a class made by Python code, as far as its flags show."""
        return any(py_type.flags & HEAP_TYPE for py_type in self._named.get(signature or "", ()))

    def _find_shift(self, py_type: PyType) -> int:
        if not self._values.types.shifts[0]:
            return 0
        return DEBUG_HEAD * (1 + (py_type.head_bytes + py_type.basic_bytes + DEBUG_BYTES > POOL_BYTES))

    def _mask_links(self, py_type: PyType) -> int:
        """Return the collector's links, and the list of weak references of objects with a managed dict (3.12 and later)."""
        first = self._find_shift(py_type) + py_type.head_bytes - GC_HEAD
        links = _mask_words(first, first + GC_HEAD) if py_type.head_bytes else 0
        if py_type.head_bytes > GC_HEAD and self._values.types.has_tagged_dicts:
            links |= _mask_words(first - 2 * WORD, first - WORD)
        return links

    def _mask_owned(self, py_type: PyType) -> int:
        begin = self._find_shift(py_type) + py_type.head_bytes
        mask = _mask_words(begin - GC_HEAD - 2 * WORD, begin - GC_HEAD) if py_type.head_bytes > GC_HEAD else 0
        if py_type.name in ("str", "bytes", "int", "bool", "float", "complex", "bytearray"):
            return mask if py_type.name != "bytearray" else mask | _mask_words(begin + 32, begin + 48)
        item = self._values.word(py_type.address + 40)
        has_dict_behind = py_type.flags & (INT | BYTES) and self._values.layout.release < 12
        is_long = (item == WORD or py_type.flags & INLINE_VALUES or has_dict_behind) and not py_type.flags & IS_TYPE
        least = begin + (self._values.layout.wide_text if py_type.flags & STR else 2 * WORD)
        mask |= _mask_words(least, begin + py_type.basic_bytes)
        if is_long:
            mask |= _mask_words(begin + py_type.basic_bytes, None)
        if py_type.flags & HEAP_TYPE and py_type.address not in self._has_name:
            mask |= _mask_words(begin + TYPE, begin + TYPE + WORD)
        for offset in self._not_owned(py_type):
            mask &= ~_mask_words(begin + offset, begin + offset + WORD)
        return mask

    def _not_owned(self, py_type: PyType) -> Set[int]:
        release = self._values.layout.release
        weak_list = self._values.word(py_type.address + WEAK_LIST_OFFSET)
        found = {weak_list} if 0 < weak_list < py_type.basic_bytes else set()
        if py_type.flags & IS_TYPE:
            found |= OF_CLASS | NUMBERS_OF_CLASS
        for kin in self._values.types.family(py_type):
            found |= NOT_OWNED.get(kin.name, frozenset())
            if kin.name in GENERATORS and release < 10:
                found.add(GENERATOR_RUNS)
            elif kin.name in GENERATORS and release >= 11:
                item = GENERATOR_ITEM[min(release, 12)]
                found |= {item, item + WORD, self._values.layout.generator_frame + self._values.layout.frame.previous}
            if kin.name == "_asyncio.Task" and release >= LINKED_TASKS:
                found |= {kin.basic_bytes - 2 * WORD, kin.basic_bytes - WORD}
            if kin.name == "module":
                found.add(self._values.layout.module_state)
            if kin.name == "code":
                found |= {*range(CODE_EXTRA, MOST_CODE_BYTES, WORD), *((CELL_NUMBERS, SPARE_FRAME, *CODE_CACHES) if release < 11 else ())}
            if kin.name == "frame":
                found |= {FRAME_DATA} if release >= 11 else set(OLD_FRAME_PARTS[release])
        return found


def _with_names(values: PyValues, dicts: Iterable[int]) -> Set[int]:
    """Return classes that belong to a module, or to such a class; others are named by their instances (`thing.__class__.memo`)."""
    found: Set[int] = set()
    waiting = list(dicts)
    for at in waiting:
        if len(waiting) > MOST_DICTS:
            break
        for _, value in values.entries(at):
            known = values.types.all.get(value)
            if known is not None and known.flags & HEAP_TYPE and value not in found:
                found.add(value)
                waiting.append(values.word(value + CLASS_DICT))
    return found


def _mask_words(start: int, end: Optional[int]) -> int:
    """Return the mask of the words from one byte to another, or to the end."""
    first, last = min(start // WORD, LAST_BIT), LAST_BIT + 1 if end is None else min(end // WORD, LAST_BIT + 1)
    return ((1 << last) - 1) & ~((1 << first) - 1) if last > first else 0
