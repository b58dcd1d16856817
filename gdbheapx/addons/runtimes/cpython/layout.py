"""Where CPython's objects have their fields, by release: found by the flags of types, without a symbol and without sys.version.

Sources: Include/cpython/*object.h, Include/internal/pycore_dict.h, pycore_frame.h, pycore_interpframe_structs.h (3.14),
Objects/dictobject.c and Objects/codeobject.c of 3.8 to 3.15; offsets are those of 64-bit words, not of free-threaded builds.
"""

from typing import Dict, NamedTuple, Optional, Tuple

from gdbheapx.addons.runtimes.cpython.types import HEAP_TYPE, MANAGED_DICT, Types

NEWEST = 15
"""The last minor version whose layouts are known."""
TP_ALLOC = 304
"""In a PyTypeObject of 64 bits (Include/cpython/object.h; the same since Python 3.0)."""
HEADS = (0, 16, 32)
"""What may stand before an object of Python: nothing, that of the collector, that and two pointers."""
IMMUTABLE_TYPE = 1 << 8
"""Of all static types since 3.10."""
FUNCTION_3_8 = {
    16: ".__code__",
    24: ".__globals__",
    32: ".__defaults__",
    40: ".__kwdefaults__",
    48: ".__closure__",
    56: ".__doc__",
    64: ".__name__",
    88: ".__module__",
    96: ".__annotations__",
    104: ".__qualname__",
}
FUNCTION_3_10 = {
    16: ".__globals__",
    24: ".__builtins__",
    32: ".__name__",
    40: ".__qualname__",
    48: ".__code__",
    56: ".__defaults__",
    64: ".__kwdefaults__",
    72: ".__closure__",
    80: ".__doc__",
    104: ".__module__",
}
FUNCTION_3_11 = {**FUNCTION_3_10, 112: ".__annotations__"}
FUNCTION_3_12 = {**FUNCTION_3_11, 120: ".__type_params__"}
FUNCTION_3_14 = {**FUNCTION_3_11, 120: ".__annotate__", 128: ".__type_params__"}
FUNCTIONS = {8: FUNCTION_3_8, 10: FUNCTION_3_11, 12: FUNCTION_3_12, 14: FUNCTION_3_14}


class Frame(NamedTuple):
    """A _PyInterpreterFrame (3.11 and later)."""

    code: int
    previous: int
    globals: int
    owner: int
    """Of the byte that says where it lies."""
    locals: int


class Layout(NamedTuple):
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
    frame: Frame
    module_state: int
    """Of a module's pointer to what it has of its own in C; two words on is its name."""
    generator_frame: int
    """Of the frame in a generator or coroutine; before 3.11 of the pointer to it."""

    @property
    def has_packed_keys(self) -> bool:
        """3.11 and later: a dict's keys begin with their sizes as logarithms, and may be of strings alone."""
        return self.release >= 11

    @property
    def has_digit_tags(self) -> bool:
        """3.12 and later: sign and number of digits of an int share a word."""
        return self.release >= 12


FRAMES = {
    11: Frame(code=32, previous=48, globals=8, owner=69, locals=72),
    12: Frame(code=0, previous=8, globals=24, owner=70, locals=72),
    14: Frame(code=0, previous=8, globals=24, owner=74, locals=80),
}
GENERATOR_FRAMES = {8: 16, 11: 80, 12: 72}


def _of(table: Dict[int, Frame], release: int) -> Frame:
    return table[max((key for key in table if key <= release), default=min(table))]


def release_of(types: Types, minor_version: Optional[int]) -> int:
    """By what the types' flags show; since 3.13 it is written somewhere."""
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


def layout_of(types: Types, minor_version: Optional[int]) -> Layout:
    """Of one process."""
    release = release_of(types, minor_version)
    texts: Tuple[int, int] = (40, 56) if release >= 12 else (48, 72)
    return Layout(
        release=release,
        items=types.root.items * 8,
        ascii_text=texts[0],
        wide_text=texts[1],
        function=FUNCTIONS[max(key for key in FUNCTIONS if key <= release)],
        closure=48 if release < 10 else 72,
        frame=_of(FRAMES, release),
        module_state=24 if release >= 15 else 32,
        generator_frame=GENERATOR_FRAMES[max(key for key in GENERATOR_FRAMES if key <= release)],
    )
