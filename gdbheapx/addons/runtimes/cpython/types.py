"""CPython's types, found by what they are: no symbol is read. Offsets and flags are those of 3.8 to 3.14 with 64-bit words, not of
free-threaded builds (Include/cpython/object.h).

What CPython's objects own besides themselves: which word of an object points to a body, and what that is.
"""

import sys
from array import array
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.analysis.census.world import World
from gdbheapx.analysis.reachability.heap_graph import find_module_at
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


def read_py_segments(world: World) -> Iterator[PySegment]:
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


def find_root(world: World, memory: Sequence[PySegment]) -> Optional[TypeRoot]:
    """Find `type`, which is its own type, and whose only base has none."""
    for start, words in memory:
        places = range(start - TYPE, start - TYPE + len(words) * WORD, WORD)
        for at in [at for at, word in zip(places, words) if at == word]:
            root = root_at(world, at)
            if root:
                return root
    return None


def root_at(world: World, at: int) -> Optional[TypeRoot]:
    """Return the root if the object at this address is `type`, else None."""
    words = world.words(at, TYPE_WORDS)
    if words is None or words[FLAGS // WORD] & (IS_TYPE | READY) != IS_TYPE | READY:
        return None
    base = words[BASE // WORD]
    of_base, order = world.words(base, TYPE_WORDS), world.words(words[MRO // WORD], 6)
    if of_base is None or order is None or of_base[TYPE // WORD] != at or of_base[BASE // WORD] or order[2] != 2:
        return None
    return next((TypeRoot(at, base, items) for items in (3, 4) if order[items : items + 2] == (at, base)), None)


def minor_version(world: World, memory: Sequence[PySegment]) -> Optional[int]:
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

    def __init__(self, world: World, memory: Sequence[PySegment], root: TypeRoot, matches: Sequence[Signed]) -> None:
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
