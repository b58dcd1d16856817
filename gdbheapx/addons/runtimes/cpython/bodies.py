"""Steps from what objects own beside themselves: tables of dicts and sets, items of lists, blocks of deques."""

from typing import Callable, Dict, Optional, Tuple

from gdbheapx.addons.runtimes.cpython import arrays
from gdbheapx.addons.runtimes.cpython.place import (
    ARRAY,
    ATTRIBUTES,
    CACHE,
    CLASS,
    DEQUE_LEFT,
    DEQUE_RIGHT,
    ITEMS,
    LINK,
    SET,
    SPLIT,
    TABLE,
    Place,
    move_to,
    thing,
)
from gdbheapx.addons.runtimes.cpython.types import WORD
from gdbheapx.addons.runtimes.cpython.values import KEYS, SIZE, VALUES, Keys, Values
from gdbheapx.analysis.naming.namer import ATTRIBUTE, INDEX, KEY, PathMove

DESCRIPTOR = 272
"""tp_descr_get, in a type."""
SET_ENTRY, SET_MASK = 16, 32
DEQUE_ITEMS, DEQUE_LEFT_INDEX, DEQUE_RIGHT_INDEX = 64, 40, 48
"""BLOCKLEN; leftindex, rightindex in a deque. In a block: leftlink, items, rightlink."""
LRU_RESULT = 48
LAZY = "lazy_import"
"""Type of what 3.15 imports when it is asked for."""


class Bodies:
    """Of one process."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._by_kind: Dict[str, Callable[[Place, int, int], Optional[PathMove]]] = {
            TABLE: self._of_table,
            SPLIT: self._of_split,
            ITEMS: self._of_items,
            SET: self._of_set,
            LINK: self._of_link,
            ARRAY: self._of_array,
            DEQUE_LEFT: self._of_deque,
            DEQUE_RIGHT: self._of_deque,
        }

    def follow(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
        """One of their words; None where it is left over."""
        known = self._by_kind.get(place.kind)
        return known(place, word_at, pointer) if known is not None else None

    def attribute(self, keys: int, index: int, view: str, pointer: int) -> Optional[PathMove]:
        """The value with this number in what has its keys elsewhere."""
        key = self._values.key_of(keys, index) if index >= 0 else 0
        return self._value(key, view, pointer) if key else None

    def _value(self, key: int, view: str, pointer: int) -> Optional[PathMove]:
        """What a dict has for a key, or a class, an instance or a module as an attribute."""
        values = self._values
        if not values.is_object(pointer) and view != CACHE:
            return None
        text = values.text(key) if view in (ATTRIBUTES, CLASS) else None
        place = thing(pointer) if values.is_object(pointer) else Place(LINK, pointer)
        if text is not None and text.isidentifier() and not self._is_hidden(pointer, view):
            return move_to(ATTRIBUTE, "." + text, place)
        literal = values.literal(key)
        key_type = values.type_of(key)
        if literal is None:
            literal = "<%s object>" % (key_type.short_name if key_type else "unknown")
        return move_to(KEY, "%s[%s]" % (".__dict__" * (view in (ATTRIBUTES, CLASS)), literal), place)

    def _is_hidden(self, address: int, view: str) -> bool:
        """Asked by name a class gives something else, such as a static method's function; for a lazy import, so does a module."""
        py_type = self._values.type_of(address)
        if py_type is None or py_type.name == LAZY:
            return py_type is not None
        return view == CLASS and bool(self._values.word(py_type.address + DESCRIPTOR)) and py_type.name != "function"

    def _of_link(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
        """An element of an lru_cache's list, whose type is none of the census's up to 3.9."""
        known = word_at == place.address + LRU_RESULT and self._values.is_object(pointer)
        return move_to("", "", thing(pointer)) if known else None

    def _of_table(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
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
            return move_to(KEY, ".__dict__" * (place.view in (ATTRIBUTES, CLASS)) + text, thing(pointer))
        return None

    def _entry(self, keys: Keys, word_at: int) -> Tuple[int, int]:
        number, offset = divmod(word_at - keys.entries, keys.entry_bytes)
        return (number, offset) if 0 <= number < keys.entry_count else (-1, 0)

    def _of_split(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
        index = (word_at - self._values.split_value(place.address, 0)) // WORD
        return self.attribute(place.owner, index, place.view or "", pointer) if index >= 0 else None

    def _of_items(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
        index = (word_at - place.address) // WORD
        if not 0 <= index < self._values.word(place.owner + SIZE) or not self._values.is_object(pointer):
            return None
        return move_to(INDEX, "[%d]" % index, thing(pointer))

    def _of_set(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
        return self.element(place.address, word_at, self._values.word(place.owner + SET_MASK), pointer)

    def element(self, table: int, word_at: int, mask: int, pointer: int) -> Optional[PathMove]:
        """An element of a set."""
        number, offset = divmod(word_at - table, SET_ENTRY)
        py_type = self._values.type_of(pointer)
        if offset or not 0 <= number <= mask or py_type is None:
            return None
        text = self._values.literal(pointer) or "<%s object>" % py_type.short_name
        return move_to(KEY, "{%s}" % text, thing(pointer))

    def _of_array(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
        array = arrays.read(self._values, place.owner)
        text = arrays.index(array, word_at) if array is not None and self._values.is_object(pointer) else None
        return move_to(INDEX, text, thing(pointer)) if text is not None else None

    def _of_deque(self, place: Place, word_at: int, pointer: int) -> Optional[PathMove]:
        """A block: a link to the next one, or an item (Modules/_collectionsmodule.c)."""
        word = (word_at - place.address) // WORD
        is_left = place.kind == DEQUE_LEFT
        if word == (DEQUE_ITEMS + 1 if is_left else 0):
            return move_to("", "", place._replace(address=pointer, number=place.number + 1))
        if not 1 <= word <= DEQUE_ITEMS or not self._values.is_object(pointer):
            return None
        size = self._values.word(place.owner + SIZE)
        if is_left:
            index = place.number * DEQUE_ITEMS + word - 1 - self._values.word(place.owner + DEQUE_LEFT_INDEX)
        else:
            index = size - 1 - (self._values.word(place.owner + DEQUE_RIGHT_INDEX) - (word - 1)) - place.number * DEQUE_ITEMS
        return move_to(INDEX, "[%d]" % index, thing(pointer)) if 0 <= index < size else None
