"""Structs declared once: fields with their C types and the releases that have them; placed for any word size."""

import sys
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

from gdbheapx.target.base import FieldPlace, StructPlace

Version = Tuple[int, ...]

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Letters of the array module for unsigned numbers by their bytes."""


class CType(NamedTuple):
    """A C type by its size; 0 stands for the target's word."""

    size_bytes: int
    signed: bool


INT = CType(4, True)
UINT = CType(4, False)
U16 = CType(2, False)
CHAR = CType(1, False)
WORD = CType(0, False)
"""size_t, unsigned long or a pointer."""


class Shape(NamedTuple):
    """What the places of members depend on beside the release."""

    word_bytes: int
    alignment_bytes: int
    """MALLOC_ALIGNMENT."""


Count = Union[int, Callable[[Shape], int]]


class Field(NamedTuple):
    """One member of a struct."""

    name: str
    ctype: CType
    count: Count = 1  # type: ignore[assignment]  # hides tuple.count, which nobody calls on a record
    since: Optional[Version] = None
    """First release that has it."""
    until: Optional[Version] = None
    """First release that lacks it again."""
    source: str = ""


class Struct(NamedTuple):
    """A struct as all releases together know it: members in memory order."""

    name: str
    fields: Tuple[Field, ...]


def place(struct: Struct, version: Version, shape: Shape) -> StructPlace:
    """Offsets of the members that `version` has, by the C rules of alignment."""
    offset = 0
    widest = 1
    fields: Dict[str, FieldPlace] = {}
    for field in struct.fields:
        if (field.since and version < field.since) or (field.until and version >= field.until):
            continue
        size = field.ctype.size_bytes or shape.word_bytes
        count = field.count if isinstance(field.count, int) else field.count(shape)
        offset = -(-offset // size) * size
        fields[field.name] = FieldPlace(offset, size, count, field.ctype.signed)
        offset += size * count
        widest = max(widest, size)
    return StructPlace(struct.name, -(-offset // widest) * widest, fields)


class Record:
    """A struct read from memory: members by name, as integers, arrays as tuples of them."""

    def __init__(self, layout: StructPlace, address: int, data: bytes, little_endian: bool) -> None:
        self.layout = layout
        self.address = address
        self._data = data
        self._order = "little" if little_endian else "big"

    def has(self, name: str) -> bool:
        """This release has the member."""
        return name in self.layout.fields

    def address_of(self, name: str) -> int:
        """Where the member lies in the target."""
        return self.address + self.layout.fields[name].offset

    def __getitem__(self, name: str) -> int:
        """A scalar member."""
        field = self.layout.fields[name]
        return self._integer(field.offset, field)

    def get(self, name: str) -> Optional[int]:
        """A scalar member, None if this release has none of that name."""
        return self[name] if name in self.layout.fields else None

    def array(self, name: str) -> List[int]:
        """An array member."""
        field = self.layout.fields[name]
        return [self._integer(field.offset + i * field.size_bytes, field) for i in range(field.count)]

    def numbers(self, name: str) -> Any:
        """An array member of unsigned numbers as array('Q'), for long ones."""
        field = self.layout.fields[name]
        found = array(_CODES[field.size_bytes], self._data[field.offset : field.offset + field.count * field.size_bytes])
        if self._order != sys.byteorder:
            found.byteswap()
        return found if found.typecode == "Q" else array("Q", found)

    def _integer(self, offset: int, field: FieldPlace) -> int:
        order: Any = self._order
        return int.from_bytes(self._data[offset : offset + field.size_bytes], order, signed=field.signed)
