"""Structs declared once: fields with their C types and the releases that have them; placed for any word size, where the types of the build
itself do not have them."""

from typing import Callable, Dict, NamedTuple, Optional, Sequence, Tuple, Union

from gdbheapx.inferior.types import Member, StructType, TypeSet

Version = Tuple[int, ...]


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


def has(field: Field, version: Version) -> bool:
    """The release has this member."""
    return (field.since is None or version >= field.since) and (field.until is None or version < field.until)


def place(struct: Struct, version: Version, shape: Shape) -> StructType:
    """The members that `version` has, by the C rules of alignment."""
    offset = 0
    widest = 1
    members: Dict[str, Member] = {}
    for field in struct.fields:
        if not has(field, version):
            continue
        size = field.ctype.size_bytes or shape.word_bytes
        count = field.count if isinstance(field.count, int) else field.count(shape)
        offset = -(-offset // size) * size
        members[field.name] = Member(offset, size, count, "int" if field.ctype.signed else "uint")
        offset += size * count
        widest = max(widest, size)
    return StructType(-(-offset // widest) * widest, members)


class Needed(NamedTuple):
    """A struct that is read, as the tables know it."""

    struct: Struct
    members: Sequence[str]
    """What it must have to be of use."""


def take(found: TypeSet, needed: Needed, own: Optional[TypeSet], version: Optional[Version], shape: Shape) -> Optional[bool]:
    """Add the struct to `found`: as the build's own types have it (True), else by the table's row for `version` (False).

    None if neither has what is needed.
    """
    name = needed.struct.name
    layout = own.structs.get(name) if own is not None else None
    is_own = layout is not None and all(member in layout.members for member in needed.members)
    if not is_own:
        layout = place(needed.struct, version, shape) if version is not None else None
    if layout is None or any(member not in layout.members for member in needed.members):
        return None
    found.structs[name] = layout
    return is_own
