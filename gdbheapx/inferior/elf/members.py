"""Names of variables' members by debug information: the unit that has a variable is found by the variable's address, and read alone."""

from typing import Callable, Dict, Iterator, List, Optional, Tuple, TypeVar

from gdbheapx.inferior.base import Layout
from gdbheapx.inferior.elf.dwarf import AT_BYTE_SIZE, AT_LOCATION, AT_SPECIFICATION, AT_TYPE, DAMAGE, Die, Dwarf, Unsupported
from gdbheapx.inferior.elf.dwarf_types import CLASS, MAX_CHAIN, MEMBER, POINTER, QUALIFIERS, STRUCTURE, TYPEDEF, VARIABLE, location, number
from gdbheapx.inferior.elf.file import ElfFile
from gdbheapx.work import TooMuchWork

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

Found = TypeVar("Found")


class Layouts:
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


class DieLayout(Layout):
    """The type of one entry. Whatever is not understood has no members."""

    def __init__(self, layouts: Layouts, die: Die) -> None:
        self._layouts, self._die = layouts, die
        self.name = layouts.dwarf.name(die)
        self._known: Dict[int, Optional[Tuple[str, Layout]]] = {}
        """By offset what begins there."""

    def member(self, offset: int) -> Optional[Tuple[str, Layout]]:
        """See Layout."""
        if offset not in self._known and len(self._known) < MOST_MEMBERS:
            self._known[offset] = guarded(lambda: self._member(offset))
        return self._known.get(offset)

    def _member(self, offset: int) -> Optional[Tuple[str, Layout]]:
        here, text = self, ""
        for _ in range(MOST_DEPTH):
            if here.name.startswith(ENDS) or here._die.tag not in (STRUCTURE, CLASS):
                break
            inner = here._at(offset)
            if inner is None:
                return None
            name, start, here = inner
            text, offset = text + name, offset - start
        return None if offset else (text, here)

    def _at(self, offset: int) -> "Optional[Tuple[str, int, DieLayout]]":
        dwarf = self._layouts.dwarf
        for die in dwarf.children(self._die):
            made = self._layouts.of(die) if die.tag in (MEMBER, INHERITANCE) else None
            size = (number(made._die, AT_BYTE_SIZE) or made._die.unit.address_bytes) if made is not None else 0
            if made is not None and location(die) <= offset < location(die) + size:
                name = dwarf.name(die) if die.tag == MEMBER else ""
                return "." + name if name else "", location(die), made
        return None

    def target(self) -> Optional[Layout]:
        """See Layout."""
        if self._die.tag == POINTER:
            return guarded(lambda: self._layouts.of(self._die))
        return self._parameter(0) if self.name.startswith(OWNERS) else None

    def element(self) -> Optional[Layout]:
        """See Layout."""
        return self._parameter(int(self.name.startswith(MAPS))) if self.name.startswith((*MAPS, *SEQUENCES)) else None

    def _parameter(self, place: int) -> Optional[Layout]:
        def find() -> Optional[Layout]:
            parameters = [die for die in self._layouts.dwarf.children(self._die) if die.tag == TEMPLATE_TYPE]
            return self._layouts.of(parameters[place]) if place < len(parameters) else None

        return guarded(find)


def guarded(find: Callable[[], Found]) -> Optional[Found]:
    """What it finds; None where debug information is damaged, of an unknown form, or too much to read."""
    try:
        return find()
    except (Unsupported, TooMuchWork, *DAMAGE):
        return None


class Members:
    """Of one file."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._layouts: Optional[Layouts] = None
        self._data = b""
        self._variables: Dict[int, List[Die]] = {}
        """By where the unit begins."""

    def variable(self, address: int) -> Optional[Layout]:
        """The type of the variable at this address of the file; None where debug information is too large, or does not say."""
        return guarded(lambda: self._variable(address))

    def _variable(self, address: int) -> Optional[Layout]:
        if self._layouts is None:
            self._layouts = Layouts(Dwarf(self._file))
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
            self._variables[unit.offset] = list(_variables(dwarf, dwarf.root(unit), 0)) if is_small else []
        die = next((die for die in self._variables[unit.offset] if die.values[AT_LOCATION] == written[1:]), None)
        declared = die if die is None or AT_TYPE in die.values else dwarf.referred(die, AT_SPECIFICATION)
        return self._layouts.of(declared) if declared is not None else None


def _variables(dwarf: Dwarf, parent: Die, depth: int) -> Iterator[Die]:
    """Those that have an address, also in namespaces."""
    for die in dwarf.children(parent):
        if die.tag == NAMESPACE and depth < MOST_DEPTH:
            yield from _variables(dwarf, die, depth + 1)
        elif die.tag == VARIABLE and AT_LOCATION in die.values:
            yield die
