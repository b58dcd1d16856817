"""Types of one compilation unit, by dwarf.py, for type_walk.py."""

from typing import Any, Dict, List, Optional, Tuple

from gdbheapx.inferior.elf.dwarf import (
    AT_ABSTRACT_ORIGIN,
    AT_BIT_SIZE,
    AT_BYTE_SIZE,
    AT_CONST_VALUE,
    AT_COUNT,
    AT_DATA_MEMBER_LOCATION,
    AT_DECLARATION,
    AT_ENCODING,
    AT_LOCATION,
    AT_LOW_PC,
    AT_SPECIFICATION,
    AT_TYPE,
    AT_UPPER_BOUND,
    Die,
    Dwarf,
    Unit,
    Unsupported,
)
from gdbheapx.inferior.elf.file import ElfFile, uleb
from gdbheapx.inferior.elf.type_walk import RawMember, RawType, Reader
from gdbheapx.work import TooMuchWork

ARRAY, ENUMERATION, MEMBER, POINTER, STRUCTURE, TYPEDEF, UNION, SUBRANGE, BASE, ENUMERATOR, VARIABLE = (
    0x01, 0x04, 0x0D, 0x0F, 0x13, 0x16, 0x17, 0x21, 0x24, 0x28, 0x34,
)  # fmt: skip
CLASS, SUBPROGRAM, QUALIFIERS = 0x02, 0x2E, (0x26, 0x35, 0x37, 0x47)
"""const, volatile, restrict, _Atomic."""
STRUCTS = (STRUCTURE, UNION, CLASS)
ENCODINGS = {2: "bool", 4: "float", 5: "int", 6: "int", 7: "uint", 8: "uint"}
PLUS_UCONST = 0x23
MAX_CHAIN = 64
"""More typedefs and qualifiers than this around a type go in a circle."""


class Types:
    """The types of one file, each made once."""

    def __init__(self, dwarf: Dwarf) -> None:
        self.dwarf = dwarf
        self._made: Dict[int, DwarfRaw] = {}

    def of(self, die: Optional[Die]) -> "DwarfRaw":
        """The type of this entry; None is void."""
        key = -1 if die is None else die.unit.offset + die.offset
        if key not in self._made:
            self._made[key] = DwarfRaw(self, die)
        return self._made[key]

    def referred(self, die: Die) -> "DwarfRaw":
        """The type that an entry's DW_AT_type leads to."""
        return self.of(self.dwarf.referred(die, AT_TYPE))


class DwarfRaw(RawType):
    """A type's entry."""

    def __init__(self, types: Types, die: Optional[Die]) -> None:
        self._types, self._dwarf = types, types.dwarf
        self._members: Optional[List[RawMember]] = None
        self._enumerators: Optional[Dict[str, int]] = None
        dwarf = types.dwarf
        alias = ""
        for _ in range(MAX_CHAIN):
            if die is None or (die.tag != TYPEDEF and die.tag not in QUALIFIERS):
                break
            alias = dwarf.name(die) if die.tag == TYPEDEF else alias
            die = dwarf.referred(die, AT_TYPE)
        self._die = die
        self.code = self._code(die)
        self.name = "" if die is None else dwarf.name(die) or alias
        self.size_bytes = self._number(AT_BYTE_SIZE) or 0
        if die is not None and self.code in ("pointer", "string") and not self.size_bytes:
            self.size_bytes = die.unit.address_bytes

    def _number(self, attribute: int) -> Optional[int]:
        return number(self._die, attribute) if self._die is not None else None

    def _code(self, die: Optional[Die]) -> str:
        if die is None:
            return "other"
        if die.tag in STRUCTS:
            return "struct"
        if die.tag == POINTER:
            return "string" if self._is_text(die) else "pointer"
        if die.tag == BASE:
            return "char" if self._dwarf.name(die) == "char" else ENCODINGS.get(number(die, AT_ENCODING) or 0, "other")
        return {ARRAY: "array", ENUMERATION: "enum"}.get(die.tag, "other")

    def _is_text(self, die: Die) -> bool:
        """It points to char, whatever is around that."""
        inner = self._dwarf.referred(die, AT_TYPE)
        for _ in range(MAX_CHAIN):
            if inner is None or (inner.tag != TYPEDEF and inner.tag not in QUALIFIERS):
                break
            inner = self._dwarf.referred(inner, AT_TYPE)
        return inner is not None and inner.tag == BASE and self._dwarf.name(inner) == "char"

    def members(self) -> List[RawMember]:
        if self._members is None:
            self._members = []
            for die in self._dwarf.children(self._die) if self._die is not None else ():
                if die.tag == MEMBER and AT_DECLARATION not in die.values:
                    self._members.append(
                        RawMember(self._dwarf.name(die), location(die), AT_BIT_SIZE in die.values, self._types.referred(die))
                    )
        return self._members

    def element(self) -> Tuple[RawType, int]:
        count = 1
        for die in self._dwarf.children(self._die) if self._die is not None else ():
            if die.tag == SUBRANGE:
                bound, length = number(die, AT_UPPER_BOUND), number(die, AT_COUNT)
                count *= length if length is not None else bound + 1 if bound is not None else 0
        return self._types.referred(self._die) if self._die is not None else self, count

    def enumerators(self) -> Dict[str, int]:
        if self._enumerators is None:
            children = self._dwarf.children(self._die) if self._die is not None else ()
            self._enumerators = {self._dwarf.name(die): number(die, AT_CONST_VALUE) or 0 for die in children if die.tag == ENUMERATOR}
        return self._enumerators


def number(die: Die, attribute: int) -> Optional[int]:
    """An attribute that is a number; None without it, or where it is computed."""
    value = die.values.get(attribute)
    return value if isinstance(value, int) else None


def location(die: Die) -> int:
    """Where a member lies; old compilers write `DW_OP_plus_uconst N`."""
    value: Any = die.values.get(AT_DATA_MEMBER_LOCATION, 0)
    if isinstance(value, bytes) and value[:1] == bytes((PLUS_UCONST,)) and len(value) > 1:
        return uleb(value + b"\0", 1)[0]
    if not isinstance(value, int):
        raise Unsupported("a member that lies at no fixed place")
    return value


class DwarfReader(Reader):
    """Looks in the unit of one function, and in others only for what this one refers to.

    With link-time optimization the unit that has the code has nothing else: the function's abstract origin stands where its types do.
    """

    def __init__(self, dwarf: Dwarf, unit: Unit, address: int) -> None:
        self._dwarf, self._all = dwarf, Types(dwarf)
        self._types: Dict[str, List[Die]] = {}
        self._enums: List[Die] = []
        self._variables: Dict[str, Die] = {}
        home = self._take(unit, address)
        if home is not None:
            self._take(home, None)

    def _take(self, unit: Unit, address: Optional[int]) -> Optional[Unit]:
        """Note what the unit has. The other unit in which the function at this address was written, if it is another."""
        dwarf, home = self._dwarf, None
        for die in dwarf.children(dwarf.root(unit)):
            if die.tag == SUBPROGRAM and address is not None and die.values.get(AT_LOW_PC) == address:
                origin = dwarf.referred(die, AT_ABSTRACT_ORIGIN)
                home = origin.unit if origin is not None and origin.unit is not unit else None
            if AT_DECLARATION in die.values and die.tag != VARIABLE:
                continue
            if die.tag in STRUCTS or die.tag in (TYPEDEF, ENUMERATION):
                self._types.setdefault(dwarf.name(die), []).append(die)
                if die.tag == ENUMERATION:
                    self._enums.append(die)
            elif die.tag == VARIABLE:
                first = dwarf.referred(die, AT_SPECIFICATION) or die
                name = dwarf.name(first)
                if AT_LOCATION in die.values or name not in self._variables:
                    self._variables[name] = die if AT_TYPE in die.values else first
        return home

    def struct(self, name: str) -> Optional[RawType]:
        for die in sorted(
            self._types.get(name, ()), key=lambda die: die.tag == TYPEDEF
        ):  # tags before typedefs, as gdb's domains are asked
            raw = self._all.of(die)
            if raw.code == "enum" or (raw.code == "struct" and raw.members()):
                return raw
        return None

    def variable(self, name: str) -> Optional[RawType]:
        die = self._variables.get(name)
        return self._all.referred(die) if die is not None else None

    def enum_with(self, enumerator: str) -> Optional[RawType]:
        for die in self._enums:
            raw = self._all.of(die)
            if enumerator in raw.enumerators():
                return raw
        return None

    def constant(self, name: str) -> Optional[int]:
        """The value of a const integer that has no place in memory."""
        die = self._variables.get(name)
        return number(die, AT_CONST_VALUE) if die is not None else None


class Units:
    """Readers of the units that were asked for, each made once."""

    def __init__(self) -> None:
        self._files: Dict[str, Dwarf] = {}
        self._readers: Dict[Tuple[str, int], Optional[DwarfReader]] = {}

    def reader(self, file: ElfFile, address: int) -> Optional[DwarfReader]:
        """Of the unit whose code holds this address of the file; None if there is none, or none that is understood here."""
        key = (file.path, address)
        if key not in self._readers:
            try:
                dwarf = self._files.setdefault(file.path, Dwarf(file))
                unit = dwarf.unit_of(address)
                self._readers[key] = DwarfReader(dwarf, unit, address) if unit is not None else None
            except (Unsupported, TooMuchWork):
                self._readers[key] = None
        return self._readers[key]
