"""From a pointer in an object or in what it owns to the step that the language has for it."""

from typing import Optional

from gdbheapx.addons.runtimes.cpython import arrays
from gdbheapx.addons.runtimes.cpython.bodies import LRU_RESULT, SET_ENTRY, Bodies
from gdbheapx.addons.runtimes.cpython.fields import Fields
from gdbheapx.addons.runtimes.cpython.frame_steps import FrameSteps
from gdbheapx.addons.runtimes.cpython.frames import FRAMES_HAVE_TAGS, TAGS
from gdbheapx.addons.runtimes.cpython.masks import GENERATORS
from gdbheapx.addons.runtimes.cpython.place import (
    ARRAY,
    ATTRIBUTES,
    BODIES,
    BYTES,
    CACHE,
    CELL,
    CELLS,
    CLASS,
    DEQUE_LEFT,
    DEQUE_RIGHT,
    ITEMS,
    OBJECT,
    RAW,
    SET,
    SPLIT,
    TABLE,
    Place,
    move_to,
    thing,
)
from gdbheapx.addons.runtimes.cpython.types import DICT, GC_HEAD, INLINE_VALUES, IS_TYPE, ITEM, LIST, TYPE, WORD, PyType
from gdbheapx.addons.runtimes.cpython.values import INT, KEYS, SIZE, TUPLE, VALUES, Values, quoted
from gdbheapx.analysis.naming.namer import ATTRIBUTE, CLOSURE, FIELD, INDEX, PathMove

DICT_OFFSET, CLASS_DICT = 288, 264
"""tp_dictoffset and tp_dict, in a type."""
LRU_CACHE = 72
MAPPING, MODULE_DICT = 16, 16
TYPE_DOC = 176
OF_BYTES = {
    "bytearray": (32, 40),
    "array.array": (24,),
    "_io.StringIO": (16,),
    "StgDict": (168, 184),
    **dict.fromkeys(("_io.BufferedReader", "_io.BufferedWriter", "_io.BufferedRandom"), (56,)),
}
"""Pointers to what has no pointers."""
SET_TABLE, SET_SMALL, SET_SMALL_ENTRIES = 40, 64, 8
DEQUE_FIRST, DEQUE_LAST = 24, 32
"""leftblock, rightblock in a deque."""
MODULE_DEFINITION, DEFINED_SIZE = 24, 56


class Steps:
    """Of one process."""

    def __init__(self, values: Values) -> None:
        self._values, self._fields = values, Fields(values)
        self._bodies, self._frames = Bodies(values), FrameSteps(values)

    def follow(self, place: Place, word_at: int) -> Optional[PathMove]:
        """The pointer at that address, which lies in the block of `place`."""
        pointer = self._values.word(word_at)
        known = self._of_object if place.kind == OBJECT else self._bodies.follow
        move = known(place, word_at, pointer)
        if move is not None:
            return move
        return self._field(place, word_at, pointer, place.kind in BODIES or self._is_behind(place, word_at))

    def end_in(self, block: int) -> Optional[int]:
        """Where in that block the stack of the frame in its object ends; None where it has none."""
        found = self._values.object_in(block)
        return None if found is None else self._frames.end(thing(found[0]), found[1])

    def _is_behind(self, place: Place, word_at: int) -> bool:
        """Behind the end of the object, in a frame's unused stack, or before it."""
        values, offset = self._values, word_at - place.address
        py_type = values.type_of(place.address) if place.kind == OBJECT else None
        if py_type is None:
            return place.kind == RAW and 0 < place.number <= offset
        end_of_frame = self._frames.end(place, py_type)
        if end_of_frame is not None:
            return word_at >= end_of_frame
        item = values.word(py_type.address + ITEM)
        count = values.word(place.address + SIZE) if item else 0
        if py_type.flags & INT and values.layout.has_digit_tags:
            count >>= 3
        end = py_type.basic_bytes + (item * min(count, (1 << 64) - count) if not py_type.flags & (IS_TYPE | INLINE_VALUES) else 0)
        if py_type.flags & INLINE_VALUES:
            end += WORD * (1 + values.number(place.address + py_type.basic_bytes, 1))
        return offset >= end or -GC_HEAD <= offset < 0 or offset < -py_type.head_bytes

    def _field(self, place: Place, word_at: int, pointer: int, is_stale: bool) -> Optional[PathMove]:
        """A word that nothing has a name for. What is not aligned is no pointer: a text, or a number."""
        offset = word_at - place.address
        if place.kind == OBJECT and self._values.layout.release >= FRAMES_HAVE_TAGS:
            pointer &= ~TAGS
        text = ".<%s0x%x>" % ("-" if offset < 0 else "+", abs(offset))
        next_place = thing(pointer) if self._values.is_object(pointer) else Place(RAW, pointer)
        return None if is_stale or pointer % WORD else move_to(FIELD, text, next_place)

    def _of_object(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
        values, offset = self._values, word_at - place.address
        py_type = values.type_of(place.address)
        if py_type is None:
            return None
        body = self._body(place, py_type, offset, pointer)
        if body is not None:
            return body
        if not values.is_object(pointer & ~TAGS if self._is_generator(place) else pointer):
            return None
        if place.view == CELL and offset == 16:
            return move_to(CLOSURE, place.text, thing(pointer), opening=place.opening)
        if offset == TYPE:
            return move_to(ATTRIBUTE, ".__class__", thing(pointer))
        if py_type.flags & TUPLE and offset >= values.layout.items:
            return self._of_tuple(place, (offset - values.layout.items) // WORD, pointer)
        own = self._own(place, py_type, offset, pointer)
        if own is not None:
            return own
        name = self._fields.name(py_type, offset)
        if name == ".__annotations__" and not values.has(pointer, DICT):  # made when asked for
            return move_to(FIELD, ".<annotations>", thing(pointer))
        return move_to(ATTRIBUTE, name, thing(pointer)) if name is not None else None

    def _body(self, place: Place, py_type: PyType, offset: int, pointer: int) -> Optional[PathMove]:
        """Dicts of attributes, tables, values: what has no name by itself."""
        values, flags = self._values, py_type.flags
        if offset < 0:
            return self._before(place, py_type, offset, pointer)
        if flags & IS_TYPE and offset == CLASS_DICT:
            return self._attributes(pointer, CLASS)
        if offset == self._dict_offset(place, py_type):
            return self._attributes(pointer, ATTRIBUTES)
        if flags & DICT and offset == KEYS:
            return move_to("", "", Place(TABLE, pointer, place.address, place.view))
        if flags & DICT and offset == VALUES:
            return move_to("", "", Place(SPLIT, pointer, values.word(place.address + KEYS), place.view))
        if flags & LIST and offset == 24:
            return move_to("", "", Place(ITEMS, pointer, place.address))
        table = self._table_of(py_type, offset)
        if table:
            return move_to("", "", Place(table, pointer, place.address))
        if flags & IS_TYPE and offset == self._fields.cached_keys_at:
            return move_to("", "", Place(TABLE, pointer))
        if flags & INLINE_VALUES and offset >= py_type.basic_bytes + WORD:
            return self._bodies.attribute(
                self._fields.shared_keys(py_type), (offset - py_type.basic_bytes) // WORD - 1, ATTRIBUTES, pointer
            )
        return None

    def state(self, module: int) -> Place:
        """What a module of C has of its own: up to 3.14 it says how much that is (PyModuleDef.m_size)."""
        at = self._values.word(module + self._values.layout.module_state)
        if self._values.layout.release >= 15:
            return Place(RAW, at)
        definition = self._values.word(module + MODULE_DEFINITION)
        size = self._values.word(definition + DEFINED_SIZE) if definition else 0
        return Place(RAW, at, number=size or 1)

    def _table_of(self, py_type: PyType, offset: int) -> str:
        """The body of a set, a deque or an array that the word leads to."""
        names = {kin.name for kin in self._values.types.family(py_type)}
        if names & {"set", "frozenset"} and offset == SET_TABLE:
            return SET
        if (py_type.flags & IS_TYPE and offset == TYPE_DOC) or any(offset in OF_BYTES.get(name, ()) for name in names):
            return BYTES
        if arrays.NDARRAY in names and offset == arrays.DATA:
            return ARRAY
        return {DEQUE_FIRST: DEQUE_LEFT, DEQUE_LAST: DEQUE_RIGHT}.get(offset, "") if "collections.deque" in names else ""

    def _attributes(self, pointer: int, view: str) -> Optional[PathMove]:
        if not self._values.has(pointer, DICT):
            return None
        return move_to(ATTRIBUTE, ".__dict__", thing(pointer, view), is_open=True)

    def _before(self, place: Place, py_type: PyType, offset: int, pointer: int) -> Optional[PathMove]:
        """A managed dict, or values without one, before the object: in 3.11 a word for each, later one (pycore_object.h)."""
        if py_type.head_bytes <= GC_HEAD:
            return None
        keys, is_11 = self._fields.shared_keys(py_type), not self._values.types.has_tagged_dicts
        if is_11 and offset == -4 * WORD:
            return move_to("", "", Place(SPLIT, pointer, keys, ATTRIBUTES))
        if not is_11 and offset == -3 * WORD and pointer & 1:
            return move_to("", "", Place(SPLIT, pointer + 1, keys, ATTRIBUTES))
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

    def _of_tuple(self, place: Place, index: int, pointer: int) -> Optional[PathMove]:
        values = self._values
        if index >= values.word(place.address + SIZE):
            return None
        if place.view == CELLS and values.is_named(pointer, "cell"):
            names = self._frames.frames.free_names(place.owner)
            if index < len(names) and names[index]:
                content = ".__closure__[%s]" % quoted(names[index] or "")
                return move_to(CLOSURE, ".__closure__[%d]" % index, thing(pointer, CELL, content), is_open=True)
        is_open = place.view == CELLS
        return move_to(INDEX, "%s[%d]" % (".__closure__" * is_open, index), thing(pointer))

    def _is_generator(self, place: Place) -> bool:
        return self._values.is_named(place.address, *GENERATORS)

    def _own(self, place: Place, py_type: PyType, offset: int, pointer: int) -> Optional[PathMove]:
        """Of builtin types that are no containers of one kind."""
        values = self._values
        names = {kin.name for kin in values.types.family(py_type)}
        if "function" in names and offset == values.layout.closure and values.has(pointer, TUPLE):
            code = next(at for at, name in values.layout.function.items() if name == ".__code__")
            cells = Place(OBJECT, pointer, owner=values.word(place.address + code), view=CELLS)
            return move_to(CLOSURE, ".__closure__", cells, is_open=True)
        if names & {"set", "frozenset"} and SET_SMALL <= offset < SET_SMALL + SET_SMALL_ENTRIES * SET_ENTRY:
            return self._bodies.element(place.address + SET_SMALL, place.address + offset, SET_SMALL_ENTRIES - 1, pointer)
        if "mappingproxy" in names and offset == MAPPING:
            return move_to(ATTRIBUTE, ".<mapping>", thing(pointer), is_open=True)
        if (
            "module" in names
            and offset == values.layout.module_state + 2 * WORD
            and values.get(values.word(place.address + MODULE_DICT), "__name__") == pointer
        ):
            return move_to(ATTRIBUTE, ".__name__", thing(pointer))
        if "functools._lru_cache_wrapper" in names and offset == LRU_CACHE:
            return move_to(FIELD, ".<cache>", thing(pointer, CACHE))
        if "functools._lru_list_elem" in names and offset == LRU_RESULT:
            return move_to("", "", thing(pointer))
        if "_asyncio.Task" in names and self._values.is_named(pointer, *GENERATORS):
            return move_to(ATTRIBUTE, ".get_coro()", thing(pointer))
        if names & set(GENERATORS):
            return self._frames.of_generator(place, offset, pointer & ~TAGS)
        return self._frames.of_frame(place, py_type, offset, pointer) if "frame" in names else None
