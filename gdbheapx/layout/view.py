"""A struct read from memory: members by path, as the types of its build place them, or as it is declared here once with the releases that
have its fields."""

import struct
import sys
from array import array
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.inferior.arch import byte_order
from gdbheapx.inferior.base import Member, StructType, Target, TypeSet

LETTERS = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Letters of the modules array and struct for unsigned numbers by their bytes."""


class LayoutView:
    """A struct read from memory: members by path, as integers."""

    def __init__(self, types: TypeSet, struct: str, address: int, data: bytes, little_endian: bool) -> None:
        self.types = types
        self.struct = struct
        self.address = address
        self._data = data
        self._order = byte_order(little_endian)

    def has(self, path: str) -> bool:
        """Return True if this build has the member."""
        return self.types.place(self.struct, path) is not None

    def __getitem__(self, path: str) -> int:
        """A scalar; KeyError if this build has no such member."""
        member = self._find_member(path)
        return int.from_bytes(self._data[member.offset : member.offset + member.size_bytes], self._order, signed=member.signed)

    def get(self, *paths: str) -> Optional[int]:
        """The scalar at the first of these paths that this build has; None if it has none of them."""
        path = self.types.first(self.struct, *paths)
        return None if path is None else self[path]

    def array(self, path: str) -> List[int]:
        """An array of scalars."""
        member = self._find_member(path)
        offsets = range(member.offset, member.offset + member.count * member.size_bytes, member.size_bytes)
        return [int.from_bytes(self._data[at : at + member.size_bytes], self._order, signed=member.signed) for at in offsets]

    def column(self, path: str, member: str) -> Optional[List[int]]:
        """`member` of each element of the array of structs at `path`; None if this build has no such array or member."""
        table = self.types.place(self.struct, path)
        inner = self.types.place(table.struct, member) if table is not None and table.struct else None
        if table is None or inner is None:
            return None
        return unpack_strided(self.bytes_of(path), inner.offset, table.size_bytes, inner.size_bytes, self._order == "little", inner.signed)

    def numbers(self, path: str) -> Any:
        """An array of unsigned numbers as array('Q'), for long ones."""
        member = self._find_member(path)
        values = array(LETTERS[member.size_bytes], self._data[member.offset : member.offset + member.count * member.size_bytes])
        if self._order != sys.byteorder:
            values.byteswap()
        return values if values.typecode == "Q" else array("Q", values)

    @property
    def size_bytes(self) -> int:
        """sizeof the struct."""
        return self.types.size_bytes(self.struct)

    def address_of(self, path: str) -> int:
        """Return the address of the member in the target."""
        return self.address + self._find_member(path).offset

    def view(self, path: str, index: int = 0) -> "LayoutView":
        """An embedded struct; `index` for an array of them."""
        member = self._find_member(path)
        if member.struct is None:
            raise KeyError("%s.%s is no struct" % (self.struct, path))
        offset = member.offset + index * member.size_bytes
        return LayoutView(
            self.types, member.struct, self.address + offset, self._data[offset : offset + member.size_bytes], self._order == "little"
        )

    def bytes_of(self, path: str) -> bytes:
        """The member's bytes."""
        member = self._find_member(path)
        return self._data[member.offset : member.offset + member.size_bytes * member.count]

    def _find_member(self, path: str) -> Member:
        member = self.types.place(self.struct, path)
        if member is None:
            raise KeyError("%s.%s" % (self.struct, path))
        return member


def unpack_strided(data: bytes, offset: int, stride: int, size_bytes: int, little_endian: bool, signed: bool = False) -> List[int]:
    """Integers every `stride` bytes from `offset` on."""
    if size_bytes in LETTERS and offset % size_bytes == 0 and stride % size_bytes == 0:
        letter = LETTERS[size_bytes].lower() if signed else LETTERS[size_bytes]
        numbers = struct.unpack_from("%s%d%s" % ("<" if little_endian else ">", len(data) // size_bytes, letter), data)
        return list(numbers[offset // size_bytes :: stride // size_bytes])
    order, ends = byte_order(little_endian), range(offset, len(data) - size_bytes + 1, stride)
    return [int.from_bytes(data[at : at + size_bytes], order, signed=signed) for at in ends]


def read_view(target: Target, types: TypeSet, struct: str, address: int) -> LayoutView:
    """The struct at `address`, read at once. Unreadable if any byte of it is missing; KeyError if this build has no such struct."""
    return LayoutView(types, struct, address, target.read(address, types.size_bytes(struct)), target.little_endian)


class Picker:
    """Unpacks chosen members from the bytes of one kind of struct."""

    def __init__(self, types: TypeSet, name: str, members: Sequence[Tuple[str, ...]], little_endian: bool) -> None:
        """`members`: for each number the paths it may have, newest first. What this build has not is None in every answer."""
        known = [types.first(name, *paths) for paths in members]
        places = [types.place(name, path) if path is not None else None for path in known]
        offsets = [place.offset if place is not None else -1 for place in places]
        order = sorted(range(len(places)), key=lambda number: offsets[number])
        shape, at = "<" if little_endian else ">", 0
        self._from: List[Optional[int]] = [None] * len(members)
        count = 0
        for number in order:
            place = places[number]
            if place is None:
                continue
            letter = LETTERS[place.size_bytes]
            shape += "%dx%s" % (place.offset - at, letter.lower() if place.signed else letter)
            at = place.offset + place.size_bytes
            self._from[number] = count
            count += 1
        self._struct = struct.Struct(shape)
        self.addresses = [None if place is None else place.offset for place in places]
        """Offset of each member that was wanted."""

    def columns(self, data: bytes, stride_bytes: int) -> List[Optional[Sequence[int]]]:
        """Return the requested numbers of every struct in an array, a column for each; empty if there is no struct."""
        padded = struct.Struct("%s%dx" % (self._struct.format, stride_bytes - self._struct.size))
        columns: List[Sequence[int]] = list(zip(*padded.iter_unpack(data[: len(data) // stride_bytes * stride_bytes])))
        return [None if place is None else columns[place] if columns else () for place in self._from]

    def pick(self, data: bytes) -> List[Optional[int]]:
        """The numbers in the order in which they were wanted."""
        values = self._struct.unpack_from(data)
        return [None if place is None else values[place] for place in self._from]


Version = Tuple[int, ...]


CType = Tuple[int, bool]
"""A C type by its size, where 0 means the target's word, and whether it is signed."""


INT: CType = (4, True)
UINT: CType = (4, False)
U16: CType = (2, False)
CHAR: CType = (1, False)
WORD: CType = (0, False)
"""size_t, unsigned long or a pointer."""


class Shape(NamedTuple):
    """Properties other than the release that the offsets of members depend on."""

    word_bytes: int
    alignment_bytes: int
    """MALLOC_ALIGNMENT."""


Count = Union[int, Callable[[Shape], int]]


class Field(NamedTuple):
    """Member of a struct."""

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


def release_has(field: Field, version: Version) -> bool:
    """The release has this member."""
    return (field.since is None or version >= field.since) and (field.until is None or version < field.until)


def lay_out_struct(struct: Struct, version: Version, shape: Shape) -> StructType:
    """The members that `version` has, by the C rules of alignment."""
    offset = 0
    widest = 1
    members: Dict[str, Member] = {}
    for field in struct.fields:
        if not release_has(field, version):
            continue
        size, is_signed = field.ctype
        size = size or shape.word_bytes
        count = field.count if isinstance(field.count, int) else field.count(shape)
        offset = -(-offset // size) * size
        members[field.name] = Member(offset, size, count, "int" if is_signed else "uint")
        offset += size * count
        widest = max(widest, size)
    return StructType(-(-offset // widest) * widest, members)


def take_struct(
    types: TypeSet, struct: Struct, needed: Sequence[str], own: Optional[TypeSet], version: Optional[Version], shape: Shape
) -> Optional[bool]:
    """Add the struct to `types`: as the build's own types have it (True), else by the table's row for `version` (False), of which what
    these types say is not there is left out, except for what is `needed`: members without which it is of no use.

    None if neither has what is needed.
    """
    layout = described = own.structs.get(struct.name) if own is not None else None
    is_own = layout is not None and all(member in layout.members for member in needed)
    if not is_own:
        layout = lay_out_struct(struct, version, shape) if version is not None else None
        if layout is not None and described is not None and described.members:
            kept = {*described.members, *needed}
            layout = layout._replace(members={member: at for member, at in layout.members.items() if member in kept})
    if layout is None or any(member not in layout.members for member in needed):
        return None
    types.structs[struct.name] = layout
    return is_own
