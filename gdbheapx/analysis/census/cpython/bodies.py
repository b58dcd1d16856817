"""What CPython's objects own beside themselves: which word of an object points to a body, and what that is."""

from typing import Dict, Iterator, NamedTuple, Sequence, Tuple

from gdbheapx.analysis.census.cpython.types import DICT, HEAP_TYPE, IS_TYPE, LIST, MANAGED_DICT, PyType, Types


class Body(NamedTuple):
    """A word of the blocks of one type."""

    type: int
    """Address of the type: the key of its row."""
    offset: int
    """Of the word in the block; the row's head is counted."""
    name: str
    inside: bool = False
    """The word may point into the body, not to its begin (values of 3.11 and 3.12: their size stands before them, and the lowest bit tells
    them from a dict)."""


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


def bodies(types: Types, one: PyType) -> Iterator[Body]:
    """Of one type's objects; with PYTHONMALLOC=debug of those in pools, and there every word points behind a head."""
    in_debug = bool(types.shifts[0])
    before = types.shifts[0] + one.head_bytes
    for flag, fields in BY_FLAG.items():
        if one.flags & flag:
            yield from (Body(one.address, before + offset, name, in_debug) for offset, name in fields)
    for kin in types.family(one):
        if not kin.flags & HEAP_TYPE or kin.name in ("array.array", "collections.deque"):
            yield from (Body(one.address, before + offset, name, in_debug) for offset, name in BY_NAME.get(kin.name, ()))
    if one.flags & MANAGED_DICT and not types.has_inline_values:
        fields = MANAGED_TAGGED if types.has_tagged_dicts else MANAGED
        yield from (Body(one.address, types.shifts[0] + offset, name, inside=True) for offset, name in fields)
