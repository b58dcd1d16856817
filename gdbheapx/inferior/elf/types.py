"""Read types from DWARF: a TypeSet for allocators, and member names by offset for the program's variables."""

import re
from abc import ABC, abstractmethod
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, TypeVar

from gdbheapx.budget import TooMuchWork, WorkCounter
from gdbheapx.inferior.base import Member, StructType, TypeLayout, TypeSet
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
    DAMAGE,
    Die,
    Dwarf,
    DwarfUnit,
    Unsupported,
)
from gdbheapx.inferior.elf.file import ElfFile, read_uleb

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
        """Return the members of a struct or union in order; empty if it is only declared."""

    @abstractmethod
    def element(self) -> Tuple["RawType", int]:
        """Return the element type and length of an array; 0 for a flexible array member."""

    @abstractmethod
    def enumerators(self) -> Dict[str, int]:
        """Return the enumerators of an enum."""


class TypeReader(ABC):
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


def find_private_prefix(name: str) -> str:
    """The private prefix in a symbol's name, such as `je_`, `_rjem_je_`; empty if it has none."""
    match = re.match(r"\w*?je_", name)
    return match.group(0) if match else ""


class TypeWalk:
    """Collects what is wanted and all that it contains by value."""

    def __init__(self, reader: TypeReader, prefix: str) -> None:
        self.reader = reader
        self.prefix = prefix
        self.found = TypeSet()
        self._work = WorkCounter("debug information", MAX_MEMBERS)

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
        """Return how a member or variable of this type reads, at offset 0; add its struct or enum to the set."""
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
        """Return the scalar that an atomic or locked counter wraps; None for any other struct."""
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


class DwarfTypes:
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

    def __init__(self, types: DwarfTypes, die: Optional[Die]) -> None:
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
        self.code = self._classify_die(die)
        self.name = "" if die is None else dwarf.name(die) or alias
        self.size_bytes = self._read_number(AT_BYTE_SIZE) or 0
        if die is not None and self.code in ("pointer", "string") and not self.size_bytes:
            self.size_bytes = die.unit.address_bytes

    def _read_number(self, attribute: int) -> Optional[int]:
        return read_number(self._die, attribute) if self._die is not None else None

    def _classify_die(self, die: Optional[Die]) -> str:
        if die is None:
            return "other"
        if die.tag in STRUCTS:
            return "struct"
        if die.tag == POINTER:
            return "string" if self._is_text(die) else "pointer"
        if die.tag == BASE:
            return "char" if self._dwarf.name(die) == "char" else ENCODINGS.get(read_number(die, AT_ENCODING) or 0, "other")
        return {ARRAY: "array", ENUMERATION: "enum"}.get(die.tag, "other")

    def _is_text(self, die: Die) -> bool:
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
                        RawMember(self._dwarf.name(die), read_location(die), AT_BIT_SIZE in die.values, self._types.referred(die))
                    )
        return self._members

    def element(self) -> Tuple[RawType, int]:
        count = 1
        for die in self._dwarf.children(self._die) if self._die is not None else ():
            if die.tag == SUBRANGE:
                bound, length = read_number(die, AT_UPPER_BOUND), read_number(die, AT_COUNT)
                count *= length if length is not None else bound + 1 if bound is not None else 0
        return self._types.referred(self._die) if self._die is not None else self, count

    def enumerators(self) -> Dict[str, int]:
        if self._enumerators is None:
            children = self._dwarf.children(self._die) if self._die is not None else ()
            self._enumerators = {self._dwarf.name(die): read_number(die, AT_CONST_VALUE) or 0 for die in children if die.tag == ENUMERATOR}
        return self._enumerators


def read_number(die: Die, attribute: int) -> Optional[int]:
    """An attribute that is a number; None without it, or where it is computed."""
    value = die.values.get(attribute)
    return value if isinstance(value, int) else None


def read_location(die: Die) -> int:
    """Return the offset of a member; old compilers write `DW_OP_plus_uconst N`."""
    value: Any = die.values.get(AT_DATA_MEMBER_LOCATION, 0)
    if isinstance(value, bytes) and value[:1] == bytes((PLUS_UCONST,)) and len(value) > 1:
        return read_uleb(value + b"\0", 1)[0]
    if not isinstance(value, int):
        raise Unsupported("a member that lies at no fixed place")
    return value


class DwarfReader(TypeReader):
    """Looks in the unit of one function, and in others only for what this one refers to.

    With link-time optimization the unit that has the code has nothing else: the function's abstract origin stands where its types do.
    """

    def __init__(self, dwarf: Dwarf, unit: DwarfUnit, address: int) -> None:
        self._dwarf, self._all = dwarf, DwarfTypes(dwarf)
        self._types: Dict[str, List[Die]] = {}
        self._enums: List[Die] = []
        self._variables: Dict[str, Die] = {}
        home = self._take_unit(unit, address)
        if home is not None:
            self._take_unit(home, None)

    def _take_unit(self, unit: DwarfUnit, address: Optional[int]) -> Optional[DwarfUnit]:
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
        return read_number(die, AT_CONST_VALUE) if die is not None else None


class DwarfUnits:
    """Readers of the units that were asked for, each made once."""

    def __init__(self) -> None:
        self._files: Dict[str, Dwarf] = {}
        self._readers: Dict[Tuple[str, int], Optional[DwarfReader]] = {}

    def reader(self, file: ElfFile, address: int) -> Optional[DwarfReader]:
        """Return a reader of the unit whose code covers this address of the file, or None."""
        key = (file.path, address)
        if key not in self._readers:
            try:
                dwarf = self._files.setdefault(file.path, Dwarf(file))
                unit = dwarf.unit_of(address)
                self._readers[key] = DwarfReader(dwarf, unit, address) if unit is not None else None
            except (Unsupported, TooMuchWork):
                self._readers[key] = None
        return self._readers[key]


INHERITANCE, TEMPLATE_TYPE, NAMESPACE = 0x1C, 0x2F, 0x39
MOST_INFO_BYTES, MOST_UNIT_BYTES = 64 << 20, 8 << 20
"""Of .debug_info in which variables are looked for, and of a unit that is read for one."""
MOST_MEMBERS = 1 << 12
"""Offsets of a type that are kept."""
MOST_DEPTH = 8
"""Namespaces in each other, and classes in each other by value."""
AT_ADDRESS = bytes((0x09, 0x03))
"""DW_AT_location of a variable in a program of 64 bits, before the address: the expression's length and DW_OP_addr."""
MAPS, SEQUENCES, OWNERS = ("map<", "multimap<", "unordered_map<", "unordered_multimap<"), ("list<", "deque<", "vector<"), ("unique_ptr<",)
"""What ends a path of members: values of the first are their second parameter, elements and targets of the others the first."""
ENDS = (
    *MAPS,
    *SEQUENCES,
    *OWNERS,
    "set<",
    "multiset<",
    "unordered_set<",
    "unordered_multiset<",
    "shared_ptr<",
    "weak_ptr<",
    "basic_string<",
)

Result = TypeVar("Result")


class DieLayouts:
    """The types of one file, each made once: millions of blocks ask for few of them."""

    def __init__(self, dwarf: Dwarf) -> None:
        self.dwarf = dwarf
        self._made: Dict[int, DieLayout] = {}

    def of(self, die: Die) -> "Optional[DieLayout]":
        """The type that an entry refers to, without typedefs and qualifiers."""
        inner = self.dwarf.referred(die, AT_TYPE)
        for _ in range(MAX_CHAIN):
            if inner is None or (inner.tag != TYPEDEF and inner.tag not in QUALIFIERS):
                break
            inner = self.dwarf.referred(inner, AT_TYPE)
        if inner is None:
            return None
        key = inner.unit.offset + inner.offset
        if key not in self._made:
            self._made[key] = DieLayout(self, inner)
        return self._made[key]


class DieLayout(TypeLayout):
    """The type of one entry. Whatever is not understood has no members."""

    def __init__(self, layouts: DieLayouts, die: Die) -> None:
        self._layouts, self._die = layouts, die
        self.name = layouts.dwarf.name(die)
        self._known: Dict[int, Optional[Tuple[str, TypeLayout]]] = {}
        """By offset what begins there."""

    def member(self, offset: int) -> Optional[Tuple[str, TypeLayout]]:
        """See Layout."""
        if offset not in self._known and len(self._known) < MOST_MEMBERS:
            self._known[offset] = read_guarded(lambda: self._find_member(offset))
        return self._known.get(offset)

    def _find_member(self, offset: int) -> Optional[Tuple[str, TypeLayout]]:
        here, text = self, ""
        for _ in range(MOST_DEPTH):
            if here.name.startswith(ENDS) or here._die.tag not in (STRUCTURE, CLASS):
                break
            inner = here._find_member_at(offset)
            if inner is None:
                return None
            name, start, here = inner
            text, offset = text + name, offset - start
        return None if offset else (text, here)

    def _find_member_at(self, offset: int) -> "Optional[Tuple[str, int, DieLayout]]":
        dwarf = self._layouts.dwarf
        for die in dwarf.children(self._die):
            made = self._layouts.of(die) if die.tag in (MEMBER, INHERITANCE) else None
            size = (read_number(made._die, AT_BYTE_SIZE) or made._die.unit.address_bytes) if made is not None else 0
            if made is not None and read_location(die) <= offset < read_location(die) + size:
                name = dwarf.name(die) if die.tag == MEMBER else ""
                return "." + name if name else "", read_location(die), made
        return None

    def target(self) -> Optional[TypeLayout]:
        """See Layout."""
        if self._die.tag == POINTER:
            return read_guarded(lambda: self._layouts.of(self._die))
        return self._find_parameter(0) if self.name.startswith(OWNERS) else None

    def element(self) -> Optional[TypeLayout]:
        """See Layout."""
        return self._find_parameter(int(self.name.startswith(MAPS))) if self.name.startswith((*MAPS, *SEQUENCES)) else None

    def _find_parameter(self, place: int) -> Optional[TypeLayout]:
        def find_parameter() -> Optional[TypeLayout]:
            parameters = [die for die in self._layouts.dwarf.children(self._die) if die.tag == TEMPLATE_TYPE]
            return self._layouts.of(parameters[place]) if place < len(parameters) else None

        return read_guarded(find_parameter)


def read_guarded(find: Callable[[], Result]) -> Optional[Result]:
    """Return the result of `find`; None if debug information is damaged, unknown, or too large."""
    try:
        return find()
    except (Unsupported, TooMuchWork, *DAMAGE):
        return None


class VariableTypes:
    """Types of a file's variables by address."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._layouts: Optional[DieLayouts] = None
        self._data = b""
        self._variables: Dict[int, List[Die]] = {}
        """By where the unit begins."""

    def variable(self, address: int) -> Optional[TypeLayout]:
        """The type of the variable at this address of the file; None where debug information is too large, or does not say."""
        return read_guarded(lambda: self._find_variable(address))

    def _find_variable(self, address: int) -> Optional[TypeLayout]:
        if self._layouts is None:
            self._layouts = DieLayouts(Dwarf(self._file))
            sections = self._layouts.dwarf.sections
            size = sections.size_bytes(".debug_info")
            self._data = sections.read(".debug_info", 0, size) if size <= MOST_INFO_BYTES else b""
        dwarf, written = self._layouts.dwarf, AT_ADDRESS + address.to_bytes(8, "little")
        place = self._data.find(written)
        if place < 0:
            return None
        unit = dwarf.unit_at(place)
        if unit.offset not in self._variables:
            is_small = unit.size_bytes <= MOST_UNIT_BYTES
            self._variables[unit.offset] = list(_find_variables(dwarf, dwarf.root(unit), 0)) if is_small else []
        die = next((die for die in self._variables[unit.offset] if die.values[AT_LOCATION] == written[1:]), None)
        declared = die if die is None or AT_TYPE in die.values else dwarf.referred(die, AT_SPECIFICATION)
        return self._layouts.of(declared) if declared is not None else None


def _find_variables(dwarf: Dwarf, parent: Die, depth: int) -> Iterator[Die]:
    """Yield variables that have an address, also in namespaces."""
    for die in dwarf.children(parent):
        if die.tag == NAMESPACE and depth < MOST_DEPTH:
            yield from _find_variables(dwarf, die, depth + 1)
        elif die.tag == VARIABLE and AT_LOCATION in die.values:
            yield die
