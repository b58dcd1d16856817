"""Names of fields of objects that are no containers: `__slots__` and members that types of C declare, and builtin types' own."""

from typing import Dict, Optional

from gdbheapx.addons.runtimes.cpython import arrays
from gdbheapx.addons.runtimes.cpython.types import HEAP_TYPE, IS_TYPE, STR, WORD, PyType
from gdbheapx.addons.runtimes.cpython.values import Values

MEMBERS = 240
"""tp_members, in a type: {name, kind, offset, flags, doc} of 40 bytes each (PyMemberDef)."""
MEMBER_BYTES = 40
OBJECT_KINDS = (6, 16)
"""T_OBJECT, T_OBJECT_EX."""
MOST_MEMBERS = 1024
BASE_EXCEPTION = 1 << 30
EXCEPTION_3_8 = {24: ".args", 32: ".__traceback__", 40: ".__context__", 48: ".__cause__"}
EXCEPTION_3_11 = {24: ".args", 32: ".__notes__", 40: ".__traceback__", 48: ".__context__", 56: ".__cause__"}
BY_NAME: Dict[str, Dict[int, str]] = {
    "cell": {16: ".cell_contents"},
    "method": {16: ".__func__", 24: ".__self__"},
    "builtin_function_or_method": {24: ".__self__", 32: ".__module__"},
    "property": {16: ".fget", 24: ".fset", 32: ".fdel", 40: ".__doc__"},
    "classmethod": {16: ".__func__"},
    "staticmethod": {16: ".__func__"},
    "collections.defaultdict": {48: ".default_factory"},
    "functools._lru_cache_wrapper": {88: ".__wrapped__"},
    arrays.NDARRAY: {arrays.BASE: ".base", arrays.DESCRIPTION: ".dtype"},
    "traceback": {16: ".tb_next", 24: ".tb_frame"},
    "frame": {24: ".f_back", 32: ".f_code", 40: ".f_builtins", 48: ".f_globals"},
}
"""(offset, name) for a type and all derived from it."""
FRAME_3_11 = {16: ".f_back"}
NAME, QUALIFIED_NAME, CACHED_KEYS = -24, -8, 0
"""In a class, from where it has the keys that its instances share (PyHeapTypeObject.ht_cached_keys)."""
CACHED_KEYS_AT = {9: 864, 10: 872, 12: 880, 15: 888}
CACHED_KEYS_3_8 = 872


class Fields:
    """Of one process's types."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._made: Dict[int, Dict[int, str]] = {}
        self.cached_keys_at = self._cached_keys()

    def name(self, py_type: PyType, offset: int) -> Optional[str]:
        """`.items`, of the word at this offset in an object; None where nothing tells."""
        if py_type.address not in self._made:
            self._made[py_type.address] = self._make(py_type)
        return self._made[py_type.address].get(offset)

    def _make(self, py_type: PyType) -> Dict[int, str]:
        made: Dict[int, str] = {}
        release = self._values.layout.release
        for kin in reversed(list(self._values.types.family(py_type))):
            if kin.flags & BASE_EXCEPTION and not made:
                made.update(EXCEPTION_3_11 if release >= 11 else EXCEPTION_3_8)
            made.update(self._members(kin))
            if not kin.flags & HEAP_TYPE or kin.name.startswith(("functools.", "collections.")):
                made.update(FRAME_3_11 if kin.name == "frame" and release >= 11 else BY_NAME.get(kin.name, {}))
            if kin.name == "function" and not kin.flags & HEAP_TYPE:
                made.update(self._values.layout.function)
        if py_type.flags & IS_TYPE:
            made.update({self.cached_keys_at + NAME: ".__name__", self.cached_keys_at + QUALIFIED_NAME: ".__qualname__"})
        return made

    def _members(self, py_type: PyType) -> Dict[int, str]:
        """Of the type's own."""
        values, made = self._values, {}
        at = values.word(py_type.address + MEMBERS)
        for _ in range(MOST_MEMBERS):
            words = values.world.words(at, MEMBER_BYTES // WORD) if at else None
            if words is None or not words[0]:
                break
            text = values.world.read(words[0], 256).split(b"\0")[0].decode("utf-8", "replace")
            if words[1] & 0xFFFFFFFF in OBJECT_KINDS and text.isidentifier():
                made[words[2]] = "." + text
            at += MEMBER_BYTES
        return made

    def _cached_keys(self) -> int:
        """Where a class has the keys that its instances share: they moved in 3.9, 3.10, 3.12 and 3.15."""
        release = max(self._values.layout.release, 9)
        return CACHED_KEYS_3_8 if self._is_3_8() else CACHED_KEYS_AT[max(key for key in CACHED_KEYS_AT if key <= release)]

    def _is_3_8(self) -> bool:
        """Not 3.9: what stands before the keys there is no class's qualified name."""
        if self._values.layout.release > 8:
            return False
        classes = [py_type.address for py_type in self._values.types.all.values() if py_type.flags & HEAP_TYPE]
        place = CACHED_KEYS_AT[9] + QUALIFIED_NAME
        return not any(self._values.has(self._values.word(at + place), STR) for at in classes[:8])

    def shared_keys(self, py_type: PyType) -> int:
        """Address of the keys that instances share; 0 where a type has none."""
        return self._values.word(py_type.address + self.cached_keys_at) if py_type.flags & HEAP_TYPE else 0
