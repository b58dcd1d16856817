"""Constants that V8 exports for postmortem debuggers (`v8dbg_*`): types and offsets of its objects.

Tried with node 20, 22, 24 and 26.
"""

import re
from typing import Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Target

PREFIX, NUMBER_BYTES = "v8dbg_", 4
MOST_OFFSET = 1 << 12
TAGGED = ("Tagged_Object_", "Object", "HeapObject", "Tagged_HeapObject_")
TYPES = (
    *("Map", "ByteArray", "FixedDoubleArray", "HeapNumber", "Oddball", "FixedArray", "ScopeInfo", "PropertyArray", "PropertyCell"),
    *("FeedbackVector", "WeakCell", "FreeSpace", "DescriptorArray"),
    *("JSFunction", "JSArray", "JSArrayBuffer", "JSTypedArray", "JSDataView", "JSMap", "JSSet", "JSWeakMap"),
)
"""Names of types: their numbers have the same with a line between words, `JS_ARRAY_BUFFER`."""
WORD_END = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=^JS)")
OFFSETS = {
    "buffer_data": ("JSArrayBuffer__backing_store__uintptr_t",),
    "buffer_length": ("JSArrayBuffer__byte_length__size_t",),
    "map_size": ("Map__instance_size_in_words__char",),
    "map_begin": ("Map__inobject_properties_start_or_constructor_function_index__char",),
    "map_type": ("Map__instance_type__uint16_t",),
    "map_bits": ("Map__bit_field3__int",),
    "map_maker": tuple("Map__constructor_or_back_pointer__" + kind for kind in TAGGED),
    "map_descriptors": ("Map__instance_descriptors_offset",),
    "descriptors_begin": ("DescriptorArray__header_size__uintptr_t",),
    "string_length": ("String__length__int32_t",),
    "string_bytes": ("SeqOneByteString__chars__char",),
    "string_first": ("ConsString__first__String",),
    "string_second": ("ConsString__second__String",),
    "function_shared": ("JSFunction__shared__SharedFunctionInfo",),
    "function_context": ("JSFunction__context__Tagged_Context_", "JSFunction__context__Context"),
    "shared_name": tuple("SharedFunctionInfo__name_or_scope_info__" + kind for kind in (*TAGGED, "Tagged_NameOrScopeInfoT_")),
    "shared_script": tuple("SharedFunctionInfo__%s" % name for name in ("raw_script__Tagged_Object_", "script_or_debug_info__HeapObject")),
    "script_name": ("Script__name__Object",),
}
NUMBERS = (
    *("TaggedSize", "FirstNonstringType", "FirstContextType", "LastContextType", "FirstJSFunctionType", "LastJSFunctionType"),
    *("context_min_slots", "scopeinfo_idx_ncontextlocals", "scopeinfo_idx_first_vars", "StringRepresentationMask", "OneByteStringTag"),
    *("bit_field3_number_of_own_descriptors_mask", "bit_field3_number_of_own_descriptors_shift", "prop_index_mask", "prop_index_shift"),
    *("prop_location_mask", "prop_desc_details", "prop_desc_size"),
)
OPTIONAL = ("FirstJSFunctionType", "LastJSFunctionType", "FreeSpace")


class V8Constants(NamedTuple):
    """Numbers that this V8 exports."""

    types: Mapping[str, int]
    """By a class's name, its instance type."""
    offsets: Mapping[str, int]
    """Of fields in bytes, by the names in OFFSETS."""
    numbers: Mapping[str, int]

    def name_type(self, number: int) -> Optional[str]:
        """Return the class of an instance type."""
        if self.is_context(number):
            return "Context"
        if self.is_function(number):
            return "JSFunction"
        return next((name for name, type_number in self.types.items() if type_number == number), None)

    def is_context(self, number: int) -> bool:
        """Return True for the instance type of a context."""
        return self.numbers["FirstContextType"] <= number <= self.numbers["LastContextType"]

    def is_function(self, number: int) -> bool:
        """Return True for the instance type of a function."""
        first = self.numbers.get("FirstJSFunctionType", self.types["JSFunction"])
        # without a last one: those of constructors of typed arrays and so on follow the first (instance-type.h)
        return first <= number <= self.numbers.get("LastJSFunctionType", first + 16)


def read_v8_constants(target: Target) -> Optional[V8Constants]:
    """Read the constants of the process's V8; None if one is missing, or if its pointers are compressed to four bytes."""
    types = {name: _read_first(target, ["type_%s__%s_TYPE" % (name, WORD_END.sub("_", name).upper())]) for name in TYPES}
    offsets = {name: _read_first(target, ["class_" + place for place in places]) for name, places in OFFSETS.items()}
    numbers = {name: _read_first(target, [name]) for name in NUMBERS}
    sound = all(number is not None and number >= 0 for number in (*types.values(), *numbers.values()) if number is not None)
    needed = [number for group in (types, offsets, numbers) for name, number in group.items() if name not in OPTIONAL]
    if not sound or None in needed or numbers["TaggedSize"] != 8:
        return None
    known = [{name: number for name, number in group.items() if number is not None} for group in (types, offsets, numbers)]
    constants = V8Constants(*known)
    return constants if all(0 <= offset < MOST_OFFSET for offset in constants.offsets.values()) else None


def _read_first(target: Target, names: Sequence[str]) -> Optional[int]:
    """Return the number of the first of these names that is exported."""
    for name in names:
        symbol = target.dynamic_symbol(PREFIX + name)
        data = target.read_prefix(symbol.address, NUMBER_BYTES) if symbol is not None else b""
        if len(data) == NUMBER_BYTES:
            return int.from_bytes(data, target.byte_order, signed=True)
    return None


def has_v8_constants(target: Target) -> Tuple[bool, bool]:
    """Return whether V8 exports any constant, and whether its pointers are as long as the process's."""
    size = _read_first(target, ["TaggedSize"])
    return size is not None, size == 8
