"""Types from an ELF file's DWARF by pyelftools: the reader behind `make packs`, independent of gdb."""

from typing import Any, Dict, List, Optional, Tuple

from elftools.elf.elffile import ELFFile

from gdbheapx.target.type_walk import RawMember, RawType, Reader

QUALIFIERS = ("DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_restrict_type", "DW_TAG_atomic_type")
STRUCTS = ("DW_TAG_structure_type", "DW_TAG_union_type", "DW_TAG_class_type")
BOOLEAN, FLOAT, SIGNED, SIGNED_CHAR, UNSIGNED, UNSIGNED_CHAR = 2, 4, 5, 6, 7, 8
"""DW_ATE_..."""


def value(die: Any, name: str) -> Any:
    """An attribute's value; None without it."""
    found = die.attributes.get(name)
    return found.value if found is not None else None


def name_of(die: Any) -> str:
    found = value(die, "DW_AT_name")
    return found.decode() if found else ""


def type_of(die: Any) -> Any:
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


class DwarfRaw(RawType):
    """A type DIE."""

    def __init__(self, die: Any) -> None:
        alias = ""
        while die is not None and (die.tag in QUALIFIERS or die.tag == "DW_TAG_typedef"):
            alias = name_of(die) if die.tag == "DW_TAG_typedef" else alias
            die = type_of(die)
        self._die = die
        self.code = self._code(die)
        self.name = "" if die is None else name_of(die) or alias
        self.size_bytes = 0 if die is None else value(die, "DW_AT_byte_size") or 0
        if self.code in ("pointer", "string") and not self.size_bytes:
            self.size_bytes = die.cu["address_size"]

    def _code(self, die: Any) -> str:
        tag = die.tag if die is not None else ""
        if tag in STRUCTS:
            return "struct"
        if tag == "DW_TAG_pointer_type":
            inner = type_of(die)
            while inner is not None and (inner.tag in QUALIFIERS or inner.tag == "DW_TAG_typedef"):
                inner = type_of(inner)
            return "string" if inner is not None and inner.tag == "DW_TAG_base_type" and name_of(inner) == "char" else "pointer"
        if tag == "DW_TAG_base_type":
            encoding = value(die, "DW_AT_encoding")
            if name_of(die) == "char":
                return "char"
            return {BOOLEAN: "bool", FLOAT: "float", SIGNED: "int", SIGNED_CHAR: "int", UNSIGNED: "uint", UNSIGNED_CHAR: "uint"}.get(
                encoding, "other"
            )
        return {"DW_TAG_array_type": "array", "DW_TAG_enumeration_type": "enum"}.get(tag, "other")

    def members(self) -> List[RawMember]:
        found = []
        for die in self._die.iter_children():
            if die.tag == "DW_TAG_member" and "DW_AT_declaration" not in die.attributes:
                is_bit_field = "DW_AT_bit_size" in die.attributes
                found.append(RawMember(name_of(die), value(die, "DW_AT_data_member_location") or 0, is_bit_field, DwarfRaw(type_of(die))))
        return found

    def element(self) -> Tuple[RawType, int]:
        count = 1
        for die in self._die.iter_children():
            if die.tag == "DW_TAG_subrange_type":
                bound, length = value(die, "DW_AT_upper_bound"), value(die, "DW_AT_count")
                count *= length if length is not None else bound + 1 if bound is not None else 0
        return DwarfRaw(type_of(self._die)), count

    def enumerators(self) -> Dict[str, int]:
        return {name_of(die): value(die, "DW_AT_const_value") for die in self._die.iter_children() if die.tag == "DW_TAG_enumerator"}


class DwarfReader(Reader):
    """Every type and variable at the top level of any unit; the unit that defines `near` goes first."""

    def __init__(self, path: str, near: str) -> None:
        self._file = open(path, "rb")
        self.elf = ELFFile(self._file)
        self.dwarf = self.elf.get_dwarf_info()
        self._types: Dict[str, List[Any]] = {}
        self._variables: Dict[str, Any] = {}
        self._enumerators: Dict[str, Any] = {}
        self._constants: Dict[str, int] = {}
        self.producer = ""
        units = [self._unit(unit) for unit in self.dwarf.iter_CUs()]
        for types, variables, enumerators in sorted(units, key=lambda one: near not in one[1]):
            for name, dies in types.items():
                self._types.setdefault(name, []).extend(dies)
            for found, every in ((variables, self._variables), (enumerators, self._enumerators)):
                for name, die in found.items():
                    every.setdefault(name, die)

    def _unit(self, unit: Any) -> Tuple[Dict[str, List[Any]], Dict[str, Any], Dict[str, Any]]:
        types: Dict[str, List[Any]] = {}
        variables: Dict[str, Any] = {}
        enumerators: Dict[str, Any] = {}
        top = unit.get_top_DIE()
        producer = (value(top, "DW_AT_producer") or b"").decode()
        self.producer = self.producer or " ".join(producer.split()[:3])
        for die in top.iter_children():
            if die.tag in STRUCTS + ("DW_TAG_typedef", "DW_TAG_enumeration_type"):
                if name_of(die) and "DW_AT_declaration" not in die.attributes:
                    types.setdefault(name_of(die), []).append(die)
                if die.tag == "DW_TAG_enumeration_type":
                    for one in die.iter_children():
                        enumerators.setdefault(name_of(one), die)
            elif die.tag == "DW_TAG_variable" and "DW_AT_declaration" not in die.attributes:
                first = die.get_DIE_from_attribute("DW_AT_specification") if "DW_AT_specification" in die.attributes else die
                typed = die if "DW_AT_type" in die.attributes else first
                if isinstance(value(die, "DW_AT_const_value"), int):
                    self._constants.setdefault(name_of(first), value(die, "DW_AT_const_value"))
                if "DW_AT_location" in die.attributes:
                    variables[name_of(first)] = typed
                else:  # a constant of a header, in a unit that does not keep it
                    variables.setdefault(name_of(first), typed)
        return types, variables, enumerators

    def struct(self, name: str) -> Optional[RawType]:
        every = sorted(self._types.get(name, ()), key=lambda die: die.tag == "DW_TAG_typedef")  # tags before typedefs, as gdb's domains are asked
        for die in every:
            raw = DwarfRaw(die)
            if raw.code == "enum" or (raw.code == "struct" and raw.members()):
                return raw
        return None

    def variable(self, name: str) -> Optional[RawType]:
        die = self._variables.get(name)
        return DwarfRaw(type_of(die)) if die is not None else None

    def enum_with(self, enumerator: str) -> Optional[RawType]:
        die = self._enumerators.get(enumerator)
        return DwarfRaw(die) if die is not None else None

    def constant(self, name: str) -> Optional[int]:
        """The value of a const integer that has no place in memory."""
        return self._constants.get(name)

    def strings(self) -> bytes:
        """.debug_str, which holds the macros of -g3 as well."""
        section = self.elf.get_section_by_name(".debug_str")
        return bytes(section.data()) if section is not None else b""
