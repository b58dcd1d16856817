"""Everything that one ELF file tells of types, read by pyelftools: what a pack is made of. The one file that imports elftools.

Not for the product: importing pyelftools alone takes 65 ms of CPU, and it is 3 to 900 times slower than file.py and dwarf.py, whose
docstrings have the figures. Making a pack needs every unit of the file, where dwarf.py reads one.
"""

import struct
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.common.files import open_regular
from gdbheapx.inferior.elf.dwarf import RawMember, RawType, TypeReader

QUALIFIERS = ("DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type", "DW_TAG_atomic_type")
STRUCTS = ("DW_TAG_structure_type", "DW_TAG_union_type", "DW_TAG_class_type")
ENCODINGS = {2: "bool", 4: "float", 5: "int", 6: "int", 7: "uint", 8: "uint"}
"""DW_ATE_..."""
C_LANGUAGES = (0x01, 0x02, 0x0C, 0x1D, 0x2C)
"""DW_LANG_C89, C, C99, C11, C17."""
PLUS_UCONST = 0x23
MOST_BYTES = 256 << 20
"""Of .debug_info, which pyelftools holds in memory: gdb reads larger ones."""
MAX_CHAIN = 64
"""More typedefs and qualifiers than this around a type go in a circle."""
DAMAGE = (ValueError, KeyError, IndexError, AttributeError, TypeError, AssertionError, OverflowError, RecursionError, OSError, struct.error)
"""What damaged files lead to beside pyelftools' own errors."""


class PyelftoolsError(Exception):
    """pyelftools is not installed, or cannot read this file."""


class UnitNames(NamedTuple):
    """Top-level names of a unit."""

    types: Dict[str, List[Any]]
    variables: Dict[str, Any]
    enumerators: Dict[str, Any]
    constants: Dict[str, int]


def open_elftools(path: str) -> Any:
    """The file as pyelftools has it; it stays open as long as that. Unreadable where that cannot be."""
    try:
        from elftools.elf.elffile import ELFFile
    except ImportError:
        raise PyelftoolsError("pyelftools is not installed")
    try:
        return ELFFile(open(open_regular(path), "rb"))
    except (elftools_errors(), OSError) as error:
        raise PyelftoolsError("%s: %s" % (path, error))


def elftools_errors() -> Any:
    """Return the exceptions that pyelftools raises on damaged files."""
    from elftools.common.exceptions import DWARFError, ELFError
    from elftools.construct.core import ConstructError

    return (ELFError, DWARFError, ConstructError, *DAMAGE)


def read_value(die: Any, name: str) -> Any:
    """An attribute's value; None without it."""
    attribute = die.attributes.get(name)
    return attribute.value if attribute is not None else None


def read_die_name(die: Any) -> str:
    """DW_AT_name; empty without one."""
    name = read_value(die, "DW_AT_name")
    return name.decode("utf-8", "replace") if name else ""


def read_die_type(die: Any) -> Any:
    """The entry that DW_AT_type leads to; None is void."""
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def strip_die_type(die: Any) -> Tuple[Any, str]:
    """(the type without typedefs and qualifiers around it, the innermost typedef's name)."""
    alias = ""
    for _ in range(MAX_CHAIN):
        if die is None or (die.tag not in QUALIFIERS and die.tag != "DW_TAG_typedef"):
            break
        alias = read_die_name(die) if die.tag == "DW_TAG_typedef" else alias
        die = read_die_type(die)
    return die, alias


def read_member_offset(die: Any) -> int:
    """Return the offset of a member; old compilers write `DW_OP_plus_uconst N`."""
    offset = read_value(die, "DW_AT_data_member_location")
    if isinstance(offset, list):
        if offset[:1] != [PLUS_UCONST]:
            raise ValueError("a member that lies at no fixed place")
        return sum((byte & 0x7F) << 7 * place for place, byte in enumerate(offset[1:]))
    return int(offset or 0)


class WholeRaw(RawType):
    """A type's entry."""

    def __init__(self, die: Any) -> None:
        die, alias = strip_die_type(die)
        self._die = die
        self.code = self._code(die)
        self.name = "" if die is None else read_die_name(die) or alias
        self.size_bytes = 0 if die is None else read_value(die, "DW_AT_byte_size") or 0
        if self.code in ("pointer", "string") and not self.size_bytes:
            self.size_bytes = die.cu["address_size"]

    def _code(self, die: Any) -> str:
        tag = die.tag if die is not None else ""
        if tag in STRUCTS:
            return "struct"
        if tag == "DW_TAG_pointer_type":
            inner, _ = strip_die_type(read_die_type(die))
            return "string" if inner is not None and inner.tag == "DW_TAG_base_type" and read_die_name(inner) == "char" else "pointer"
        if tag == "DW_TAG_base_type":
            return "char" if read_die_name(die) == "char" else ENCODINGS.get(read_value(die, "DW_AT_encoding"), "other")
        return {"DW_TAG_array_type": "array", "DW_TAG_enumeration_type": "enum"}.get(tag, "other")

    def members(self) -> List[RawMember]:
        members = []
        for die in self._die.iter_children():
            if die.tag == "DW_TAG_member" and "DW_AT_declaration" not in die.attributes:
                members.append(
                    (read_die_name(die), read_member_offset(die), "DW_AT_bit_size" in die.attributes, WholeRaw(read_die_type(die)))
                )
        return members

    def element(self) -> Tuple[RawType, int]:
        count = 1
        for die in self._die.iter_children():
            if die.tag == "DW_TAG_subrange_type":
                bound, length = read_value(die, "DW_AT_upper_bound"), read_value(die, "DW_AT_count")
                count *= length if isinstance(length, int) else bound + 1 if isinstance(bound, int) else 0
        return WholeRaw(read_die_type(self._die)), count

    def enumerators(self) -> Dict[str, int]:
        return {
            read_die_name(die): read_value(die, "DW_AT_const_value") for die in self._die.iter_children() if die.tag == "DW_TAG_enumerator"
        }


class WholeReader(TypeReader):
    """Every type and variable at the top level of any unit of C; the unit that has the variable `near` goes first.

    What follows from a damaged file is one of errors(), here and in every look-up.
    """

    def __init__(self, elf: Any, near: str) -> None:
        section = elf.get_section_by_name(".debug_info") or elf.get_section_by_name(".zdebug_info")
        if section is None or section["sh_type"] == "SHT_NOBITS" or section.data_size > MOST_BYTES:
            raise PyelftoolsError("no debug information, or more than pyelftools can hold")
        self._types: Dict[str, List[Any]] = {}
        self._variables: Dict[str, Any] = {}
        self._enumerators: Dict[str, Any] = {}
        self._constants: Dict[str, int] = {}
        self.producer = ""
        """Language and compiler of the first unit of C: `GNU C11 12.2.0`."""
        tops = (unit.get_top_DIE() for unit in elf.get_dwarf_info().iter_CUs())
        units = [self._unit(top) for top in tops if top.tag == "DW_TAG_partial_unit" or read_value(top, "DW_AT_language") in C_LANGUAGES]
        for names in sorted(units, key=lambda names: near not in names.variables):
            for name, dies in names.types.items():
                self._types.setdefault(name, []).extend(dies)
            self._variables = {**names.variables, **self._variables}
            self._enumerators = {**names.enumerators, **self._enumerators}
            self._constants = {**names.constants, **self._constants}

    def _unit(self, top: Any) -> UnitNames:
        names = UnitNames({}, {}, {}, {})
        self.producer = self.producer or " ".join((read_value(top, "DW_AT_producer") or b"").decode("utf-8", "replace").split()[:3])
        for die in top.iter_children():
            if die.tag == "DW_TAG_variable":
                self._variable(die, names)
            elif die.tag in STRUCTS or die.tag in ("DW_TAG_typedef", "DW_TAG_enumeration_type"):
                if read_die_name(die) and "DW_AT_declaration" not in die.attributes:
                    names.types.setdefault(read_die_name(die), []).append(die)
                if die.tag == "DW_TAG_enumeration_type":
                    for child in die.iter_children():
                        names.enumerators.setdefault(read_die_name(child), die)
        return names

    def _variable(self, die: Any, names: UnitNames) -> None:
        if "DW_AT_declaration" in die.attributes:
            return
        first = die.get_DIE_from_attribute("DW_AT_specification") if "DW_AT_specification" in die.attributes else die
        typed, name = die if "DW_AT_type" in die.attributes else first, read_die_name(first)
        if isinstance(read_value(die, "DW_AT_const_value"), int):
            names.constants.setdefault(name, read_value(die, "DW_AT_const_value"))
        if "DW_AT_location" in die.attributes:
            names.variables[name] = typed
        else:  # a constant of a header, in a unit that does not keep it
            names.variables.setdefault(name, typed)

    def struct(self, name: str) -> Optional[RawType]:
        tags_first = sorted(self._types.get(name, ()), key=lambda die: die.tag == "DW_TAG_typedef")  # as gdb's domains are asked
        for die in tags_first:
            raw = WholeRaw(die)
            if raw.code == "enum" or (raw.code == "struct" and raw.members()):
                return raw
        return None

    def variable(self, name: str) -> Optional[RawType]:
        die = self._variables.get(name)
        return WholeRaw(read_die_type(die)) if die is not None else None

    def enum_with(self, enumerator: str) -> Optional[RawType]:
        die = self._enumerators.get(enumerator)
        return WholeRaw(die) if die is not None else None

    def constant(self, name: str) -> Optional[int]:
        """The value of a const integer that has no place in memory."""
        return self._constants.get(name)

    @property
    def origin(self) -> str:
        """Text for a pack's `made_from`."""
        return "debug information of %s read by pyelftools" % self.producer
