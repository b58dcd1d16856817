"""Where a path has come to, and what one pointer more makes of it."""

from typing import NamedTuple

from gdbheapx.analysis.naming.namer import PathMove, PathStep
from gdbheapx.model import Address

OBJECT, TABLE, SPLIT, ITEMS, SET, DEQUE_LEFT, DEQUE_RIGHT, LINK, ARRAY, BYTES, RAW = (
    *("object", "keys", "values", "items", "set", "deque", "deque end", "link", "array", "bytes", "raw"),
)
"""What a pointer leads to: an object, or a body that one owns. RAW: nothing is known of it."""
BODIES = (TABLE, SPLIT, ITEMS, SET, DEQUE_LEFT, DEQUE_RIGHT, LINK, ARRAY, BYTES)
"""Of these it is known what each of their words is."""
ATTRIBUTES, CLASS, CELLS, CELL, CACHE = "attributes", "class", "cells", "cell", "cache"
"""How the last object was reached, where that changes what its parts are called: as `__dict__` of an instance or module, of a class, as a
function's cells, as one of them, or as what an lru_cache looks its keys up in."""


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


def move_to(kind: str, text: str, place: Place, is_open: bool = False, opening: str = "") -> PathMove:
    """Return the move to a place, with one step, or with none where the text is empty."""
    return PathMove(place, [PathStep(kind, text, Address(place.address))] if text else (), is_open, opening)


def thing(address: int, view: str = "", text: str = "") -> Place:
    """An object."""
    return Place(OBJECT, address, view=view, text=text)
