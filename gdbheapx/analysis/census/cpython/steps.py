"""From a pointer in an object or in what it owns to the step that the language has for it."""

from typing import Callable, Dict, NamedTuple, Optional

from gdbheapx.analysis.census.cpython.fields import Fields
from gdbheapx.analysis.census.cpython.frames import Frames
from gdbheapx.analysis.census.cpython.masks import GENERATORS
from gdbheapx.analysis.census.cpython.types import DICT, GC_HEAD, INLINE_VALUES, IS_TYPE, ITEM, LIST, TYPE, WORD, PyType
from gdbheapx.analysis.census.cpython.values import KEYS, SIZE, TUPLE, VALUES, Keys, Values, quoted
from gdbheapx.analysis.naming.namer import ATTRIBUTE, CLOSURE, FIELD, INDEX, KEY, LOCAL

OBJECT, TABLE, SPLIT, ITEMS, SET, DEQUE_LEFT, DEQUE_RIGHT, LINK, BYTES, RAW = (
    *("object", "keys", "values", "items", "set", "deque", "deque end", "link", "bytes", "raw"),
)
"""What a pointer leads to: an object, or a body that one owns. RAW: nothing is known of it."""
BODIES = (TABLE, SPLIT, ITEMS, SET, DEQUE_LEFT, DEQUE_RIGHT, LINK, BYTES)
"""Of these it is known what each of their words is."""
ATTRIBUTES, CLASS, CELLS, CELL, CACHE = "attributes", "class", "cells", "cell", "cache"
"""How the last object was reached, where that changes what its parts are called: as `__dict__` of an instance or module, of a class, as a
function's cells, as one of them, or as what an lru_cache looks its keys up in."""
DICT_OFFSET, CLASS_DICT, DESCRIPTOR = 288, 264, 272
"""tp_dictoffset, tp_dict and tp_descr_get, in a type."""
SET_TABLE, SET_SMALL, SET_ENTRY = 40, 64, 16
SET_SMALL_ENTRIES = 8
DEQUE_ITEMS, DEQUE_FIRST, DEQUE_LAST, DEQUE_LEFT_INDEX, DEQUE_RIGHT_INDEX = 64, 24, 32, 40, 48
"""BLOCKLEN; leftblock, rightblock, leftindex, rightindex in a deque. In a block: leftlink, items, rightlink."""
LRU_CACHE, LRU_RESULT = 72, 48
MAPPING = 16
TYPE_DOC = 176
OF_BYTES = {"bytearray": (32, 40), "array.array": (24,)}
"""Pointers to what has no pointers."""
MODULE_DEFINITION, MODULE_STATE, DEFINED_SIZE = 24, 32, 56


class Place(NamedTuple):
    """Where a path has come to."""

    kind: str
    address: int
    owner: int = 0
    """Of a body: the object it belongs to, or the keys of values."""
    view: str = ""
    text: str = ""
    """Of a cell: what its content is called."""
    opening: str = ""
    """Of a coroutine's frame, or a cell in one: `coroutine handler(): `, where a path to its variables begins anew."""
    number: int = 0
    """Of a deque's block, from the end where the path began; of something of which no more is known its size."""


class Move(NamedTuple):
    """One pointer followed."""

    kind: str
    text: str
    """Empty: the language has no word for it."""
    place: Place
    is_open: bool = False
    """The text counts only where the path ends here: what follows says the same better."""
    opening: str = ""
    """What the path begins with instead of all before: a coroutine is known by its function, not by whose list it waits in."""
    is_stale: bool = False
    """The word is left over: behind a list's length, in a free entry of a dict."""


class Steps:
    """Of one process."""

    def __init__(self, values: Values) -> None:
        self._values, self._fields, self._frames = values, Fields(values), Frames(values)
        self._by_kind: Dict[str, Callable[[Place, int, int], Optional[Move]]] = {
            OBJECT: self._of_object,
            TABLE: self._of_table,
            SPLIT: self._of_split,
            ITEMS: self._of_items,
            SET: self._of_set,
            LINK: self._of_link,
            DEQUE_LEFT: self._of_deque,
            DEQUE_RIGHT: self._of_deque,
        }

    def follow(self, place: Place, word_at: int) -> Move:
        """The pointer at that address, which lies in the block of `place`."""
        pointer = self._values.word(word_at)
        known = self._by_kind.get(place.kind)
        move = known(place, word_at, pointer) if known is not None else None
        if move is not None:
            return move
        return self._field(place, word_at, pointer, place.kind in BODIES or self._is_behind(place, word_at))

    def _is_behind(self, place: Place, word_at: int) -> bool:
        """Behind the end of the object, in a frame's unused stack, or before it."""
        values, offset = self._values, word_at - place.address
        py_type = values.type_of(place.address) if place.kind == OBJECT else None
        if py_type is None:
            return place.kind == RAW and 0 < place.number <= offset
        if values.layout.release < 11 and values.is_named(place.address, "frame"):
            return word_at >= self._frames.stack_end(place.address)
        if self._is_generator(place) and values.layout.release >= 11:
            return offset >= self._frames.stack_end(place.address + values.layout.generator_frame) - place.address
        item = values.word(py_type.address + ITEM)
        count = values.word(place.address + SIZE) if item else 0
        end = py_type.basic_bytes + (item * min(count, (1 << 64) - count) if not py_type.flags & (IS_TYPE | INLINE_VALUES) else 0)
        if py_type.flags & INLINE_VALUES:
            end += WORD * (1 + values.number(place.address + py_type.basic_bytes, 1))
        return offset >= end or -GC_HEAD <= offset < 0 or offset < -py_type.head_bytes

    def _field(self, place: Place, word_at: int, pointer: int, is_stale: bool) -> Move:
        offset = word_at - place.address
        text = ".<%s0x%x>" % ("-" if offset < 0 else "+", abs(offset))
        return Move(FIELD, text, self._object(pointer) if self._values.is_object(pointer) else Place(RAW, pointer), is_stale=is_stale)

    def _object(self, address: int, view: str = "", text: str = "") -> Place:
        return Place(OBJECT, address, view=view, text=text)

    def _of_object(self, place: Place, word_at: int, pointer: int) -> Optional[Move]:
        values, offset = self._values, word_at - place.address
        py_type = values.type_of(place.address)
        if py_type is None:
            return None
        body = self._body(place, py_type, offset, pointer)
        if body is not None:
            return body
        if not values.is_object(pointer & ~3 if self._is_generator(place) else pointer):
            return None
        if place.view == CELL and offset == 16:
            return Move(CLOSURE, place.text, self._object(pointer), opening=place.opening)
        if offset == TYPE:
            return Move(ATTRIBUTE, ".__class__", self._object(pointer))
        if py_type.flags & TUPLE and offset >= values.layout.items:
            return self._of_tuple(place, (offset - values.layout.items) // WORD, pointer)
        own = self._own(place, py_type, offset, pointer)
        if own is not None:
            return own
        name = self._fields.name(py_type, offset)
        return Move(ATTRIBUTE, name, self._object(pointer)) if name is not None else None

    def _body(self, place: Place, py_type: PyType, offset: int, pointer: int) -> Optional[Move]:
        """Dicts of attributes, tables, values: what has no name by itself."""
        values, flags = self._values, py_type.flags
        if offset < 0:
            return self._before(place, py_type, offset, pointer)
        if flags & IS_TYPE and offset == CLASS_DICT:
            return self._attributes(pointer, CLASS)
        if offset == self._dict_offset(place, py_type):
            return self._attributes(pointer, ATTRIBUTES)
        if flags & DICT and offset == KEYS:
            return Move("", "", Place(TABLE, pointer, place.address, place.view))
        if flags & DICT and offset == VALUES:
            return Move("", "", Place(SPLIT, pointer, values.word(place.address + KEYS), place.view))
        if flags & LIST and offset == 24:
            return Move("", "", Place(ITEMS, pointer, place.address))
        table = self._table_of(py_type, offset)
        if table:
            return Move("", "", Place(table, pointer, place.address))
        if flags & IS_TYPE and offset == self._fields.cached_keys_at:
            return Move("", "", Place(TABLE, pointer))
        if py_type.name == "module" and offset == MODULE_STATE:
            return self._state(place, pointer)
        if flags & INLINE_VALUES and offset >= py_type.basic_bytes + WORD:
            return self._attribute(self._fields.shared_keys(py_type), (offset - py_type.basic_bytes) // WORD - 1, ATTRIBUTES, pointer)
        return None

    def _state(self, place: Place, pointer: int) -> Move:
        """What a module of C has of its own: it says how much that is (PyModuleDef.m_size)."""
        definition = self._values.word(place.address + MODULE_DEFINITION)
        size = self._values.word(definition + DEFINED_SIZE) if definition else 0
        return Move(FIELD, ".<state>", Place(RAW, pointer, number=size or 1))

    def _table_of(self, py_type: PyType, offset: int) -> str:
        """The body of a set or a deque that the word leads to."""
        names = {kin.name for kin in self._values.types.family(py_type)}
        if names & {"set", "frozenset"} and offset == SET_TABLE:
            return SET
        if (py_type.flags & IS_TYPE and offset == TYPE_DOC) or any(offset in OF_BYTES.get(name, ()) for name in names):
            return BYTES
        return {DEQUE_FIRST: DEQUE_LEFT, DEQUE_LAST: DEQUE_RIGHT}.get(offset, "") if "collections.deque" in names else ""

    def _attributes(self, pointer: int, view: str) -> Optional[Move]:
        if not self._values.has(pointer, DICT):
            return None
        return Move(ATTRIBUTE, ".__dict__", self._object(pointer, view), is_open=True)

    def _before(self, place: Place, py_type: PyType, offset: int, pointer: int) -> Optional[Move]:
        """A managed dict, or values without one, before the object: in 3.11 a word for each, later one (pycore_object.h)."""
        if py_type.head_bytes <= GC_HEAD:
            return None
        keys, is_11 = self._fields.shared_keys(py_type), not self._values.types.has_tagged_dicts
        if is_11 and offset == -4 * WORD:
            return Move("", "", Place(SPLIT, pointer, keys, ATTRIBUTES))
        if not is_11 and offset == -3 * WORD and pointer & 1:
            return Move("", "", Place(SPLIT, pointer + 1, keys, ATTRIBUTES))
        return self._attributes(pointer, ATTRIBUTES) if offset == -3 * WORD else None

    def _dict_offset(self, place: Place, py_type: PyType) -> int:
        """Where the object has a pointer to its dict; 0: nowhere. A negative one counts from the end of what has items."""
        offset = self._values.word(py_type.address + DICT_OFFSET)
        if not offset >> 63:
            return offset
        item, count = self._values.word(py_type.address + 40), self._values.word(place.address + SIZE)
        count = (1 << 64) - count if count >> 63 else count
        size = py_type.basic_bytes + item * count
        return -(-size // WORD) * WORD - ((1 << 64) - offset) if offset < (1 << 64) - 1 and count < 1 << 32 else 0

    def _of_tuple(self, place: Place, index: int, pointer: int) -> Optional[Move]:
        values = self._values
        if index >= values.word(place.address + SIZE):
            return None
        if place.view == CELLS and values.is_named(pointer, "cell"):
            names = self._frames.free_names(place.owner)
            if index < len(names) and names[index]:
                content = ".__closure__[%s]" % quoted(names[index] or "")
                return Move(CLOSURE, ".__closure__[%d]" % index, self._object(pointer, CELL, content), is_open=True)
        is_open = place.view == CELLS
        return Move(INDEX, "%s[%d]" % (".__closure__" * is_open, index), self._object(pointer))

    def _is_generator(self, place: Place) -> bool:
        return self._values.is_named(place.address, *GENERATORS)

    def _own(self, place: Place, py_type: PyType, offset: int, pointer: int) -> Optional[Move]:
        """Of builtin types that are no containers of one kind."""
        values = self._values
        names = {kin.name for kin in values.types.family(py_type)}
        if "function" in names and offset == values.layout.closure and values.has(pointer, TUPLE):
            code = next(at for at, name in values.layout.function.items() if name == ".__code__")
            cells = Place(OBJECT, pointer, owner=values.word(place.address + code), view=CELLS)
            return Move(CLOSURE, ".__closure__", cells, is_open=True)
        if names & {"set", "frozenset"} and SET_SMALL <= offset < SET_SMALL + SET_SMALL_ENTRIES * SET_ENTRY:
            return self._element(place.address + SET_SMALL, place.address + offset, SET_SMALL_ENTRIES - 1, pointer)
        if "mappingproxy" in names and offset == MAPPING:
            return Move("", "", self._object(pointer))
        if "functools._lru_cache_wrapper" in names and offset == LRU_CACHE:
            return Move(FIELD, ".<cache>", self._object(pointer, CACHE))
        if "functools._lru_list_elem" in names and offset == LRU_RESULT:
            return Move("", "", self._object(pointer))
        if "_asyncio.Task" in names and self._values.is_named(pointer, *GENERATORS):
            return Move(ATTRIBUTE, ".get_coro()", self._object(pointer))
        if names & set(GENERATORS):
            return self._of_generator(place, offset, pointer & ~3)
        is_frame = "frame" in names and values.layout.release < 11
        return self._local(place.address, place.address + offset, place.opening, pointer) if is_frame else None

    def _of_generator(self, place: Place, offset: int, pointer: int) -> Optional[Move]:
        """Its frame up to 3.10, then what is in that: variables, and last what a coroutine waits for."""
        values, frames = self._values, self._frames
        kind = next((name for name in GENERATORS if values.is_named(place.address, name)), "generator")
        at = place.address + values.layout.generator_frame
        frame = values.word(at) if values.layout.release < 11 else at
        opening = "" if kind == "generator" else "%s %s(): " % (kind.replace("_", " "), frames.function(frame))
        if values.layout.release < 11:
            text = {"generator": ".gi_frame", "coroutine": ".cr_frame"}.get(kind, ".ag_frame")
            return Move(ATTRIBUTE, text, Place(OBJECT, pointer, opening=opening)) if place.address + offset == at else None
        local = self._local(frame, place.address + offset, opening, pointer, ".gi_frame")
        is_last = place.address + offset == frames.stack_end(frame) - WORD
        return Move(ATTRIBUTE, ".cr_await", self._object(pointer)) if local is None and is_last and kind == "coroutine" else local

    def _local(self, frame: int, word_at: int, opening: str, pointer: int, before: str = "") -> Optional[Move]:
        local = next((local for local in self._frames.locals(frame) if local.place == word_at), None)
        if local is None:
            return None
        text = local.name if opening else "%s.f_locals[%s]" % (before, quoted(local.name))
        if self._values.is_named(pointer, "cell"):
            return Move(LOCAL, ".<cell %s>" % local.name, Place(OBJECT, pointer, view=CELL, text=text, opening=opening), is_open=True)
        return Move(LOCAL, text, self._object(pointer), opening=opening)

    def _attribute(self, keys: int, index: int, view: str, pointer: int) -> Optional[Move]:
        key = self._values.key_of(keys, index) if index >= 0 else 0
        return self._value(key, view, pointer) if key else None

    def _value(self, key: int, view: str, pointer: int) -> Optional[Move]:
        """What a dict has for a key, or a class, an instance or a module as an attribute."""
        values = self._values
        if not values.is_object(pointer) and view != CACHE:
            return None
        text = values.text(key) if view in (ATTRIBUTES, CLASS) else None
        place = self._object(pointer) if values.is_object(pointer) else Place(LINK, pointer)
        if text is not None and text.isidentifier() and not (view == CLASS and self._is_bound(pointer)):
            return Move(ATTRIBUTE, "." + text, place)
        literal = values.literal(key)
        key_type = values.type_of(key)
        if literal is None:
            literal = "<%s object>" % (key_type.short_name if key_type else "unknown")
        return Move(KEY, "%s[%s]" % (".__dict__" * (view in (ATTRIBUTES, CLASS)), literal), place)

    def _is_bound(self, address: int) -> bool:
        """Asked by name the class gives something else: a static method's function, a property of its own."""
        py_type = self._values.type_of(address)
        return py_type is not None and bool(self._values.word(py_type.address + DESCRIPTOR)) and py_type.name != "function"

    def _of_link(self, place: Place, word_at: int, pointer: int) -> Optional[Move]:
        """An element of an lru_cache's list, whose type is none of the census's up to 3.9."""
        known = word_at == place.address + LRU_RESULT and self._values.is_object(pointer)
        return Move("", "", self._object(pointer)) if known else None

    def _of_table(self, place: Place, word_at: int, pointer: int) -> Optional[Move]:
        keys = self._values.keys(place.address)
        number, offset = self._entry(keys, word_at) if keys else (-1, 0)
        if keys is None or number < 0 or (place.owner and self._values.word(place.owner + KEYS) != place.address):
            return None
        key = self._values.word(keys.entries + number * keys.entry_bytes + keys.key)
        if offset == keys.value and key and place.owner and not self._values.word(place.owner + VALUES):
            return self._value(key, place.view, pointer)
        if offset == keys.key and self._values.is_object(pointer):
            literal = self._values.literal(pointer)
            name = self._values.type_of(pointer)
            text = ".<key %s>" % (literal or "%s object" % (name.short_name if name else ""))
            return Move(KEY, ".__dict__" * (place.view in (ATTRIBUTES, CLASS)) + text, self._object(pointer))
        return None

    def _entry(self, keys: Keys, word_at: int) -> "tuple[int, int]":
        number, offset = divmod(word_at - keys.entries, keys.entry_bytes)
        return (number, offset) if 0 <= number < keys.entry_count else (-1, 0)

    def _of_split(self, place: Place, word_at: int, pointer: int) -> Optional[Move]:
        index = (word_at - self._values.split_value(place.address, 0)) // WORD
        return self._attribute(place.owner, index, place.view or "", pointer) if index >= 0 else None

    def _of_items(self, place: Place, word_at: int, pointer: int) -> Optional[Move]:
        index = (word_at - place.address) // WORD
        if not 0 <= index < self._values.word(place.owner + SIZE) or not self._values.is_object(pointer):
            return None
        return Move(INDEX, "[%d]" % index, self._object(pointer))

    def _of_set(self, place: Place, word_at: int, pointer: int) -> Optional[Move]:
        return self._element(place.address, word_at, self._values.word(place.owner + 32), pointer)

    def _element(self, table: int, word_at: int, mask: int, pointer: int) -> Optional[Move]:
        number, offset = divmod(word_at - table, SET_ENTRY)
        py_type = self._values.type_of(pointer)
        if offset or not 0 <= number <= mask or py_type is None:
            return None
        text = self._values.literal(pointer) or "<%s object>" % py_type.short_name
        return Move(KEY, "{%s}" % text, self._object(pointer))

    def _of_deque(self, place: Place, word_at: int, pointer: int) -> Optional[Move]:
        """A block: a link to the next one, or an item (Modules/_collectionsmodule.c)."""
        word = (word_at - place.address) // WORD
        is_left = place.kind == DEQUE_LEFT
        if word == (DEQUE_ITEMS + 1 if is_left else 0):
            return Move("", "", place._replace(address=pointer, number=place.number + 1))
        if not 1 <= word <= DEQUE_ITEMS or not self._values.is_object(pointer):
            return None
        size = self._values.word(place.owner + SIZE)
        if is_left:
            index = place.number * DEQUE_ITEMS + word - 1 - self._values.word(place.owner + DEQUE_LEFT_INDEX)
        else:
            index = size - 1 - (self._values.word(place.owner + DEQUE_RIGHT_INDEX) - (word - 1)) - place.number * DEQUE_ITEMS
        return Move(INDEX, "[%d]" % index, self._object(pointer)) if 0 <= index < size else None
