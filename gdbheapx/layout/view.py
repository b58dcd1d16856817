"""A struct read from memory: members by path, as the types of its build place them."""

import sys
from array import array
from typing import Any, List, Optional

from gdbheapx.arch import byte_order
from gdbheapx.inferior.base import Target
from gdbheapx.inferior.types import Member, TypeSet

_CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
"""Letters of the array module for unsigned numbers by their bytes."""


class View:
    """A struct read from memory: members by path, as integers."""

    def __init__(self, types: TypeSet, struct: str, address: int, data: bytes, little_endian: bool) -> None:
        self.types = types
        self.struct = struct
        self.address = address
        self._data = data
        self._order = byte_order(little_endian)

    def has(self, path: str) -> bool:
        """This build has the member."""
        return self.types.place(self.struct, path) is not None

    def __getitem__(self, path: str) -> int:
        """A scalar; KeyError if this build has no such member."""
        member = self._member(path)
        return self._integer(member.offset, member)

    def get(self, *paths: str) -> Optional[int]:
        """The scalar at the first of these paths that this build has; None if it has none of them."""
        path = self.types.first(self.struct, *paths)
        return None if path is None else self[path]

    def array(self, path: str) -> List[int]:
        """An array of scalars."""
        member = self._member(path)
        return [self._integer(member.offset + i * member.size_bytes, member) for i in range(member.count)]

    def numbers(self, path: str) -> Any:
        """An array of unsigned numbers as array('Q'), for long ones."""
        member = self._member(path)
        found = array(_CODES[member.size_bytes], self._data[member.offset : member.offset + member.count * member.size_bytes])
        if self._order != sys.byteorder:
            found.byteswap()
        return found if found.typecode == "Q" else array("Q", found)

    @property
    def size_bytes(self) -> int:
        """sizeof the struct."""
        return self.types.size_bytes(self.struct)

    def address_of(self, path: str) -> int:
        """Where the member lies in the target."""
        return self.address + self._member(path).offset

    def view(self, path: str, index: int = 0) -> "View":
        """An embedded struct; `index` for an array of them."""
        member = self._member(path)
        if member.struct is None:
            raise KeyError("%s.%s is no struct" % (self.struct, path))
        offset = member.offset + index * member.size_bytes
        return View(
            self.types, member.struct, self.address + offset, self._data[offset : offset + member.size_bytes], self._order == "little"
        )

    def bytes_of(self, path: str) -> bytes:
        """The member's bytes."""
        member = self._member(path)
        return self._data[member.offset : member.offset + member.size_bytes * member.count]

    def _member(self, path: str) -> Member:
        member = self.types.place(self.struct, path)
        if member is None:
            raise KeyError("%s.%s" % (self.struct, path))
        return member

    def _integer(self, offset: int, member: Member) -> int:
        return int.from_bytes(self._data[offset : offset + member.size_bytes], self._order, signed=member.signed)


def read_view(target: Target, types: TypeSet, struct: str, address: int) -> View:
    """The struct at `address`, read at once. Unreadable if any byte of it is missing; KeyError if this build has no such struct."""
    return View(types, struct, address, target.read(address, types.size_bytes(struct)), target.little_endian)
