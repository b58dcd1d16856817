"""From a debugger's or a DWARF reader's types to a TypeSet: one walk, so that every reader's types look the same."""

import re
from abc import ABC, abstractmethod
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.inferior.base import Member, StructType, TypeSet
from gdbheapx.work import Work

MANGLES = ("use_a_getter_or_setter_instead_", "cant_access_tsd_items_directly_use_a_getter_or_setter_")
"""What stands before the members of a tsd in some builds (TSD_MANGLE of internal/tsd.h, 5.0 to 5.1 and since 5.2)."""
SCALAR_MEMBERS = ("repr", "val")
"""The only member of such structs: atomics (atomic_gcc_atomic.h) and locked counters (lockedint.h, since 5.3.0)."""
MAX_WRAPPERS = 4
MAX_DIMENSIONS = 32
"""Of an array; one that has more is an element of itself."""
MAX_MEMBERS = 1 << 18
"""Members that are looked at, those of anonymous structs each time they are met: an allocator's are some thousands."""
MAX_STRUCTS = 4096
"""More structs than this inside one another is damage."""


class RawMember(NamedTuple):
    """A member as the debug information has it."""

    name: str
    """Empty for an anonymous struct or union."""
    offset: int
    is_bit_field: bool
    type: "RawType"


class RawType(ABC):
    """A type of some reader of debug information, without typedefs and qualifiers around it."""

    code: str
    """`struct` (a union too), `array`, `enum`, `pointer`, `string` (char *), `int`, `uint`, `bool`, `char`, `float` or `other`."""
    name: str
    """Tag, or the name of the typedef next to it, or empty."""
    size_bytes: int

    @abstractmethod
    def members(self) -> List[RawMember]:
        """Of a struct or union, in the order of their declaration; empty if it is only declared."""

    @abstractmethod
    def element(self) -> Tuple["RawType", int]:
        """Of an array: the type of its elements and their number, 0 for a flexible array member."""

    @abstractmethod
    def enumerators(self) -> Dict[str, int]:
        """Of an enum."""


class Reader(ABC):
    """Looks types up in the debug information of one loaded object."""

    @abstractmethod
    def struct(self, name: str) -> Optional[RawType]:
        """The complete struct, union or enum with this tag or typedef."""

    @abstractmethod
    def variable(self, name: str) -> Optional[RawType]:
        """The type of the variable with exactly this name."""

    @abstractmethod
    def enum_with(self, enumerator: str) -> Optional[RawType]:
        """The enum that has this enumerator."""


def private_prefix(name: str) -> str:
    """The private prefix in a symbol's name, such as `je_`, `_rjem_je_`; empty if it has none."""
    match = re.match(r"\w*?je_", name)
    return match.group(0) if match else ""


class Walk:
    """Collects what is wanted and all that it contains by value."""

    def __init__(self, reader: Reader, prefix: str) -> None:
        self.reader = reader
        self.prefix = prefix
        self.found = TypeSet()
        self._work = Work("debug information", MAX_MEMBERS)

    def collect(self, structs: Sequence[str], variables: Sequence[str], enumerators: Sequence[str]) -> TypeSet:
        """The set; what the debug information lacks is left out."""
        for name in structs:
            raw = self.reader.struct(name)
            if raw is not None:
                self.place(raw, "", name)
        for name in variables:
            raw = (self.reader.variable(self.prefix + name) if self.prefix else None) or self.reader.variable(name)
            member = self.place(raw, "", name) if raw is not None else None
            if member is not None:
                self.found.variables[name] = member
        for name in enumerators:
            raw = self.reader.enum_with(name) if self.found.enumerator(name) is None else None
            if raw is not None:
                self.place(raw, "", "")
        return self.found

    def place(self, raw: RawType, owner: str, name: str) -> Optional[Member]:
        """How a member or variable of this type reads, at offset 0; its struct or enum joins the set."""
        count = 1
        for _ in range(MAX_DIMENSIONS):
            if raw.code != "array":
                break
            raw, length = raw.element()
            count *= length
        if raw.code == "enum":
            self.found.enums.setdefault(raw.name, {}).update(raw.enumerators())
            return Member(0, raw.size_bytes, count, "enum %s" % raw.name)
        if raw.code != "struct":
            return None if raw.code == "other" else Member(0, raw.size_bytes, count, raw.code)
        scalar = self.scalar(raw)
        if scalar is not None:
            return scalar._replace(count=count * scalar.count)
        called = raw.name or ("%s.%s" % (owner, name) if owner else name)
        self.add(raw, called)
        return Member(0, raw.size_bytes, count, "struct %s" % called)

    def scalar(self, raw: RawType, depth: int = 0) -> Optional[Member]:
        """What an atomic or locked counter wraps; None for any other struct."""
        members = raw.members()
        if len(members) != 1 or members[0].name not in SCALAR_MEMBERS or members[0].is_bit_field or depth > MAX_WRAPPERS:
            return None
        inner = members[0].type
        return self.scalar(inner, depth + 1) if inner.code == "struct" else self.place(inner, "", "") if inner.code != "array" else None

    def add(self, raw: RawType, name: str) -> None:
        """The struct and everything in it."""
        if name in self.found.structs or len(self.found.structs) >= MAX_STRUCTS:
            return
        members: Dict[str, Member] = {}
        self.found.structs[name] = StructType(raw.size_bytes, members)
        self.fill(raw, name, 0, members)

    def fill(self, raw: RawType, owner: str, base: int, members: Dict[str, Member]) -> None:
        """The members of `raw` as members of `owner`."""
        for inner in raw.members():
            self._work.spend()
            if inner.is_bit_field:
                continue
            if not inner.name:
                if inner.type.code == "struct":
                    self.fill(inner.type, owner, base + inner.offset, members)
                continue
            name = self.plain(inner.name)
            member = self.place(inner.type, owner, name)
            if member is not None:
                members[name] = member._replace(offset=base + inner.offset)

    def plain(self, name: str) -> str:
        """A member's name without what the build put before it."""
        for mangle in MANGLES:
            if name.startswith(mangle):
                name = name[len(mangle) :]
        if self.prefix and name.startswith(self.prefix) and len(name) > len(self.prefix):
            name = name[len(self.prefix) :]
        return name
