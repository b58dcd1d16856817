"""DWARF of single compilation units, by pread of the ELF file that has it: versions 2 to 5, both widths, both byte orders.

Why not gdb's: it indexes all units of the object first and reads one whole, with its macros. A program whose allocator was built with -g3,
as its configure asks for, takes it 3 s for each unit but the first; this takes 50 ms. What is not understood here is Unsupported: gdb is
asked then. Why not pyelftools: the structs of libc's malloc.c take 70 ms here and 190 there, after 65 ms for its import
(bench/elf_readers.py). It reads whole files, in whole_file.py, where time does not matter.
"""

import re
import struct
import sys
import zlib
from abc import ABC, abstractmethod
from array import array
from bisect import bisect_right
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar

from gdbheapx.common.budget import READ_SHIFT, TooMuchWork, WorkCounter
from gdbheapx.inferior.base import Member, StructType, TypeLayout, TypeSet
from gdbheapx.inferior.elf.file import MOST_NAME_BYTES, SHT_NOBITS, ElfFile, ElfSection, read_sleb, read_uleb

AT_SIBLING, AT_NAME, AT_BYTE_SIZE, AT_LOW_PC, AT_HIGH_PC, AT_LANGUAGE, AT_CONST_VALUE, AT_UPPER_BOUND = (
    0x01, 0x03, 0x0B, 0x11, 0x12, 0x13, 0x1C, 0x2F,
)  # fmt: skip
AT_ABSTRACT_ORIGIN, AT_COUNT, AT_DATA_MEMBER_LOCATION, AT_DECLARATION, AT_ENCODING, AT_LOCATION, AT_SPECIFICATION, AT_TYPE = (
    0x31, 0x37, 0x38, 0x3C, 0x3E, 0x02, 0x47, 0x49,
)  # fmt: skip
AT_BIT_SIZE, AT_IMPORT, AT_RANGES, AT_STR_OFFSETS_BASE = 0x0D, 0x18, 0x55, 0x72
WANTED = frozenset(
    (
        AT_SIBLING, AT_NAME, AT_BYTE_SIZE, AT_LOW_PC, AT_HIGH_PC, AT_LANGUAGE, AT_CONST_VALUE, AT_UPPER_BOUND, AT_ABSTRACT_ORIGIN, AT_COUNT,
        AT_DATA_MEMBER_LOCATION, AT_DECLARATION, AT_ENCODING, AT_LOCATION, AT_SPECIFICATION, AT_TYPE, AT_BIT_SIZE, AT_IMPORT, AT_RANGES,
        AT_STR_OFFSETS_BASE,
    )
)  # fmt: skip
"""Attributes that are used; the others are stepped over."""
(
    ADDR, BLOCK2, BLOCK4, DATA2, DATA4, DATA8, STRING, BLOCK, BLOCK1, DATA1, FLAG, SDATA, STRP, UDATA, REF_ADDR, REF1, REF2, REF4, REF8,
    REF_UDATA, INDIRECT,
    SEC_OFFSET, EXPRLOC, FLAG_PRESENT, STRX, ADDRX, REF_SUP4, STRP_SUP, DATA16, LINE_STRP, REF_SIG8, IMPLICIT_CONST, LOCLISTX, RNGLISTX,
    REF_SUP8,
    STRX1, STRX2, STRX3, STRX4, ADDRX1, ADDRX2, ADDRX3, ADDRX4,
) = (0x01, *range(0x03, 0x2D))  # fmt: skip
GNU_ADDR_INDEX, GNU_STR_INDEX, GNU_REF_ALT, GNU_STRP_ALT = 0x1F01, 0x1F02, 0x1F20, 0x1F21
SIZES = {
    DATA1: 1, DATA2: 2, DATA4: 4, DATA8: 8, DATA16: 16, FLAG: 1, FLAG_PRESENT: 0, IMPLICIT_CONST: 0, REF1: 1, REF2: 2, REF4: 4, REF8: 8,
    REF_SIG8: 8,
    REF_SUP4: 4, REF_SUP8: 8, STRX1: 1, STRX2: 2, STRX3: 3, STRX4: 4, ADDRX1: 1, ADDRX2: 2, ADDRX3: 3, ADDRX4: 4,
}  # fmt: skip
"""Forms of one length."""
OFFSETS = (STRP, SEC_OFFSET, STRP_SUP, LINE_STRP, GNU_REF_ALT, GNU_STRP_ALT)
"""Forms as long as the unit's offsets."""
ULEBS = (UDATA, REF_UDATA, STRX, ADDRX, LOCLISTX, RNGLISTX, GNU_ADDR_INDEX, GNU_STR_INDEX)
TAG_IMPORTED_UNIT = 0x3D
C_LANGUAGES = (0x01, 0x02, 0x0C, 0x1D, 0x2C)
"""DW_LANG_C89, C, C99, C11, C17."""
UT_COMPILE, UT_TYPE, UT_PARTIAL = 1, 2, 3
SHF_COMPRESSED, ELFCOMPRESS_ZLIB = 0x800, 1
BLOCK_BYTES = 1 << 16
MAX_UNIT_BYTES = 256 << 20
MAX_PLAIN_BYTES = 512 << 20
"""No compressed section is unpacked beyond this."""
DAMAGE = (IndexError, struct.error, KeyError, RecursionError, OverflowError, ValueError)
"""What the numbers of damaged debug information lead to."""


class Unsupported(Exception):
    """A form or a kind of file that is not read here."""


AttributeForm = Tuple[int, int, int, int]
"""(attribute, 0 if it is not used, form, bytes of its value or -1 where the form does not say, value of DW_FORM_implicit_const) of an
abbreviation; several that are skipped together are one."""


Abbreviation = Tuple[int, bool, Sequence[AttributeForm]]
"""Tag of the entries with one code, whether they have children, and their attributes."""
Result = TypeVar("Result")


class DwarfUnit:
    """The header of one unit."""

    def __init__(self, offset: int, head: bytes, order: str) -> None:
        big = ">" if order == "big" else "<"
        (length,) = struct.unpack_from(big + "I", head)
        self.offset = offset
        self.offset_bytes: int = 8 if length == 0xFFFFFFFF else 4
        at = 12 if self.offset_bytes == 8 else 4
        length = struct.unpack_from(big + "Q", head, 4)[0] if self.offset_bytes == 8 else length
        self.size_bytes = at + length
        (self.version,) = struct.unpack_from(big + "H", head, at)
        if not 2 <= self.version <= 5 or not 0 < length <= MAX_UNIT_BYTES:
            raise Unsupported("a unit of version %d and %d bytes" % (self.version, length))
        letter = "Q" if self.offset_bytes == 8 else "I"
        self.kind: int = UT_COMPILE
        self.address_bytes: int
        self.abbreviations: int
        if self.version >= 5:
            self.kind, self.address_bytes, self.abbreviations = struct.unpack_from(big + "BB" + letter, head, at + 2)
            self.first = at + 4 + self.offset_bytes + (8 if self.kind in (4, 5) else 8 + self.offset_bytes if self.kind in (2, 6) else 0)
        else:
            self.abbreviations, self.address_bytes = struct.unpack_from(big + letter + "B", head, at + 2)
            self.first = at + 3 + self.offset_bytes
        """Where in the unit its first entry lies."""
        self.data = b""
        self.table: Dict[int, Abbreviation] = {}
        self.string_offsets = 2 * self.offset_bytes
        """DW_AT_str_offsets_base."""


class Die(NamedTuple):
    """An entry: a type, a member, a variable."""

    unit: DwarfUnit
    offset: int
    """In its unit."""
    tag: int
    values: Dict[int, Any]
    """Wanted attributes: numbers, bytes of blocks, offsets of entries in .debug_info, (section, offset) of strings."""
    end: int
    """Where its children begin, or what follows it."""
    has_children: bool


class Sections:
    """Bytes of debug sections, in blocks that are kept; compressed ones are unpacked whole."""

    def __init__(self, file: ElfFile) -> None:
        self._file = file
        self._found: Dict[str, ElfSection] = {
            section.name: section
            for section in file.sections()
            if section.type != SHT_NOBITS and section.name.startswith((".debug_", ".zdebug_"))
        }
        self._plain: Dict[str, bytes] = {}
        self._blocks: Dict[Tuple[str, int], bytes] = {}

    def size_bytes(self, name: str) -> int:
        """0 for a section that is not there."""
        plain = self._find_unpacked(name)
        return len(plain) if plain is not None else self._found[name].size_bytes if name in self._found else 0

    def read(self, name: str, at: int, size_bytes: int) -> bytes:
        """Bytes of a section; fewer at its end."""
        plain = self._find_unpacked(name)
        if plain is not None:
            return plain[at : at + size_bytes]
        section = self._found.get(name)
        self._file.work.spend(1 + (size_bytes >> READ_SHIFT))
        return b"" if section is None else self._file.pread(section.offset + at, max(0, min(size_bytes, section.size_bytes - at)))

    def _find_unpacked(self, name: str) -> Optional[bytes]:
        if name not in self._plain:
            section, old = self._found.get(name), self._found.get(".z" + name[1:])
            if section is not None and section.flags & SHF_COMPRESSED:
                data = self._file.pread(section.offset, section.size_bytes)
                kind = int.from_bytes(data[:4], self._file.header.byte_order)
                if kind != ELFCOMPRESS_ZLIB:
                    raise Unsupported("sections compressed in way %d" % kind)
                self._plain[name] = inflate_section(data[24 if self._file.header.word_bytes == 8 else 12 :])
            elif section is None and old is not None:
                self._plain[name] = inflate_section(self._file.pread(old.offset, old.size_bytes)[12:])
            else:
                return None
        return self._plain[name]

    def string(self, name: str, at: int) -> bytes:
        """The string that begins there, or as much of it as a name can have."""
        parts: List[bytes] = []
        while sum(map(len, parts)) < MOST_NAME_BYTES:
            place, inside = divmod(at, BLOCK_BYTES)
            block = self._blocks.get((name, place))
            if block is None:
                block = self._blocks[(name, place)] = self.read(name, place * BLOCK_BYTES, BLOCK_BYTES)
            end = block.find(b"\0", inside)
            parts.append(block[inside : end if end >= 0 else len(block)])
            if end >= 0 or len(block) < BLOCK_BYTES:
                return b"".join(parts)
            at = (place + 1) * BLOCK_BYTES
        return b"".join(parts)


def inflate_section(data: bytes) -> bytes:
    """Decompress a zlib section."""
    try:
        return zlib.decompressobj().decompress(data, MAX_PLAIN_BYTES)
    except zlib.error as error:
        raise Unsupported("a compressed section: %s" % error)


def reject_damage(step: Callable[[], Result]) -> Result:
    """Return the result of `step`; Unsupported if the debug information is damaged."""
    try:
        return step()
    except DAMAGE as error:
        raise Unsupported("damaged debug information: %s" % error)


class Dwarf:
    """The debug information of one file. Whatever is damaged ends in Unsupported."""

    def __init__(self, file: ElfFile) -> None:
        self.sections = Sections(file)
        self._work = file.work
        self.order = file.header.byte_order
        self._tables: Dict[Tuple[int, int, int, int], Dict[int, Abbreviation]] = {}
        self._units: List[DwarfUnit] = []
        self._starts: List[int] = []
        self._entries: Dict[int, Die] = {}
        self.types: Dict[int, DwarfRaw] = {}
        """By the place of their entries, as type_of() makes them."""
        self.layouts: Dict[int, DieLayout] = {}
        """The same of layout_of(): millions of blocks ask for few of them."""
        self._end = 0
        """Where the headers that are read so far end."""

    # ------------------------------------------------------------------------------------------------ units

    def units(self) -> Iterator[DwarfUnit]:
        """The headers of all units, one after the other."""
        place = 0
        while True:
            if place == len(self._units):
                self._work.spend()
                head = self.sections.read(".debug_info", self._end, 40)
                if len(head) < 12:
                    return
                self._units.append(DwarfUnit(self._end, head.ljust(40, b"\0"), self.order))
                self._starts.append(self._end)
                self._end += self._units[-1].size_bytes
            yield self._units[place]
            place += 1

    def unit_at(self, offset: int) -> DwarfUnit:
        """The unit in which this offset of .debug_info lies."""
        for unit in self.units() if offset >= self._end else ():
            if offset < unit.offset + unit.size_bytes:
                break
        place = bisect_right(self._starts, offset) - 1
        if not 0 <= offset < self._end:
            raise Unsupported("an entry beyond all units")
        return self._units[place]

    def unit_of(self, address: int) -> Optional[DwarfUnit]:
        """The unit whose code holds this address of the file; None if none is known to."""
        offset = reject_damage(lambda: self._by_ranges(address))
        return self.unit_at(offset) if offset is not None else reject_damage(lambda: self._by_looking(address))

    def _by_ranges(self, address: int) -> Optional[int]:
        """Find the unit by .debug_aranges, which gcc writes."""
        data, at = self.sections.read(".debug_aranges", 0, self.sections.size_bytes(".debug_aranges")), 0
        big = ">" if self.order == "big" else "<"
        while at + 12 <= len(data):
            (length,) = struct.unpack_from(big + "I", data, at)
            wide = length == 0xFFFFFFFF
            head = at + (12 if wide else 4)
            length = struct.unpack_from(big + "Q", data, at + 4)[0] if wide else length
            unit, word = struct.unpack_from(big + ("QB" if wide else "IB"), data, head + 2)
            if word not in (4, 8):
                return None
            first = head + 4 + (8 if wide else 4)
            first += -(first - at) % (2 * word)
            words = array("Q" if word == 8 else "I", data[first : first + (head + length - first) // (2 * word) * 2 * word])
            if self.order != sys.byteorder:
                words.byteswap()
            if any(start <= address < start + size for start, size in zip(words[::2], words[1::2])):
                return int(unit)
            at = head + length
        return None

    def _by_looking(self, address: int) -> Optional[DwarfUnit]:
        """A unit of C that says so, or that contains the function's address."""
        for unit in self.units():
            if unit.kind != UT_COMPILE:
                continue
            root = self.root(unit, whole=False)
            if root.values.get(AT_LANGUAGE) not in C_LANGUAGES:
                continue
            low, high = root.values.get(AT_LOW_PC), root.values.get(AT_HIGH_PC)
            if isinstance(low, int) and isinstance(high, int) and AT_RANGES not in root.values:
                if low <= address < (high if high > low else low + high):
                    return unit
            elif self.load(unit).data.find(address.to_bytes(unit.address_bytes, self.order)) >= 0:
                return unit
        return None

    def load(self, unit: DwarfUnit) -> DwarfUnit:
        """The unit with its bytes and abbreviations."""
        if len(unit.data) < unit.size_bytes:
            unit.data = self.sections.read(".debug_info", unit.offset, unit.size_bytes)
            if len(unit.data) < unit.size_bytes:
                raise Unsupported("a unit that is cut")
        return self._with_table(unit)

    def _with_table(self, unit: DwarfUnit) -> DwarfUnit:
        if not unit.table:
            key = (unit.abbreviations, unit.version, unit.address_bytes, unit.offset_bytes)
            if key not in self._tables:
                self._tables[key] = reject_damage(lambda: self._read_abbreviations(unit))
            unit.table = self._tables[key]
        return unit

    def _read_abbreviations(self, unit: DwarfUnit) -> Dict[int, Abbreviation]:
        size = BLOCK_BYTES
        while True:
            data = self.sections.read(".debug_abbrev", unit.abbreviations, size)
            try:
                return parse_abbreviations(data, unit, self._work)
            except IndexError:  # it goes on behind what was read
                if len(data) < size:
                    raise
                size *= 4

    # ------------------------------------------------------------------------------------------------ entries

    def root(self, unit: DwarfUnit, whole: bool = True) -> Die:
        """The unit's own entry. Not `whole`: only as much of the unit is read as that takes."""
        if whole or unit.data:
            self.load(unit)
        else:
            self._with_table(unit)
        data = unit.data or self.sections.read(".debug_info", unit.offset, min(unit.size_bytes, 4096))
        die = reject_damage(lambda: self.die(unit, unit.first, data))
        if die is None:
            raise Unsupported("a unit without an entry")
        if isinstance(die.values.get(AT_STR_OFFSETS_BASE), int):
            unit.string_offsets = die.values[AT_STR_OFFSETS_BASE]
        return die

    def entry(self, offset: int) -> Die:
        """The entry at this offset of .debug_info."""
        die = self._entries.get(offset)
        if die is None:
            unit = self.load(self.unit_at(offset))
            die = reject_damage(lambda: self.die(unit, offset - unit.offset, unit.data))
            if die is None:
                raise Unsupported("an offset without an entry")
            self._entries[offset] = die
        return die

    def children(self, parent: Die, imported: Optional[Set[int]] = None) -> Iterator[Die]:
        """The entries right below one; those of partial units that it imports, once each, among them."""
        at, imported = parent.end, set() if imported is None else imported
        try:
            while parent.has_children:
                child = self.die(parent.unit, at, parent.unit.data)
                if child is None:
                    return
                other = child.values.get(AT_IMPORT) if child.tag == TAG_IMPORTED_UNIT else None
                if other is None:
                    yield child
                elif isinstance(other, int) and other not in imported:
                    imported.add(other)
                    yield from self.children(self.entry(other), imported)
                at = self._offset_after(child)
        except DAMAGE as error:
            raise Unsupported("damaged debug information: %s" % error)

    def _offset_after(self, die: Die) -> int:
        if not die.has_children:
            return die.end
        sibling = die.values.get(AT_SIBLING)
        if isinstance(sibling, int) and sibling - die.unit.offset > die.offset:
            return sibling - die.unit.offset
        unit, at, depth = die.unit, die.end, 1
        data, table = unit.data, unit.table
        while depth:
            code, at = read_uleb(data, at)
            if not code:
                depth -= 1
                continue
            _, has_children, steps = table[code]
            self._work.spend(1 + len(steps))
            for _, form, size, _ in steps:
                at = at + size if size >= 0 else self._skip_value(unit, form, data, at)
            depth += has_children
        return at

    def die(self, unit: DwarfUnit, at: int, data: bytes) -> Optional[Die]:
        """The entry at this place of the unit; None at the end of a list of children."""
        start = at
        code, at = read_uleb(data, at)
        if not code:
            return None
        tag, has_children, steps = unit.table[code]
        self._work.spend(1 + len(steps))
        values: Dict[int, Any] = {}
        for attribute, form, size, constant in steps:
            if attribute:
                values[attribute] = self._read_value(unit, form, constant, data, at)
            at = at + size if size >= 0 else self._skip_value(unit, form, data, at)
        return Die(unit, start, tag, values, at, has_children)

    def _skip_value(self, unit: DwarfUnit, form: int, data: bytes, at: int) -> int:
        if form in ULEBS or form == SDATA:
            return read_uleb(data, at)[1]
        if form == STRING:
            return data.index(b"\0", at) + 1
        if form in (EXPRLOC, BLOCK):
            length, at = read_uleb(data, at)
            return at + length
        if form in (BLOCK1, BLOCK2, BLOCK4):
            width = {BLOCK1: 1, BLOCK2: 2, BLOCK4: 4}[form]
            return at + width + int(int.from_bytes(data[at : at + width], self.order))
        if form == INDIRECT:
            form, at = read_uleb(data, at)
            size = form_length(form, unit)
            return at + size if size >= 0 else self._skip_value(unit, form, data, at)
        raise Unsupported("form 0x%x" % form)

    def _read_value(self, unit: DwarfUnit, form: int, constant: int, data: bytes, at: int) -> Any:
        """Return an attribute's value. Offsets of entries are those in .debug_info, whatever they count from."""
        if form in (STRP, LINE_STRP):
            return (".debug_str" if form == STRP else ".debug_line_str", self._read_number(data, at, unit.offset_bytes))
        if form in (REF1, REF2, REF4, REF8):
            return unit.offset + self._read_number(data, at, SIZES[form])
        if form in (DATA1, DATA2, DATA4, DATA8, FLAG):
            return self._read_number(data, at, SIZES[form])
        if form in (FLAG_PRESENT, IMPLICIT_CONST):
            return constant if form == IMPLICIT_CONST else 1
        if form == STRING:
            return data[at : data.index(b"\0", at)]
        if form == SDATA:
            return read_sleb(data, at)[0]
        if form == UDATA:
            return read_uleb(data, at)[0]
        if form == REF_UDATA:
            return unit.offset + read_uleb(data, at)[0]
        if form in (ADDR, REF_ADDR, SEC_OFFSET):
            return self._read_number(data, at, form_length(form, unit))
        if form in (STRX, GNU_STR_INDEX, STRX1, STRX2, STRX3, STRX4):
            index = read_uleb(data, at)[0] if form in ULEBS else self._read_number(data, at, SIZES[form])
            entry = self.sections.read(".debug_str_offsets", unit.string_offsets + index * unit.offset_bytes, unit.offset_bytes)
            return (".debug_str", self._read_number(entry, 0, unit.offset_bytes))
        if form == INDIRECT:
            form, at = read_uleb(data, at)
            return self._read_value(unit, form, 0, data, at)
        if form in (EXPRLOC, BLOCK, BLOCK1):
            length, at = read_uleb(data, at) if form != BLOCK1 else (data[at], at + 1)
            return data[at : at + length]
        return Unsupported("form 0x%x" % form)  # an error only for who needs it

    def _read_number(self, data: bytes, at: int, size: int) -> int:
        return int(int.from_bytes(data[at : at + size], self.order))

    def name(self, die: Die) -> str:
        """DW_AT_name; empty without one."""
        value = die.values.get(AT_NAME, b"")
        if isinstance(value, tuple):
            value = self.sections.string(*value)
        if isinstance(value, Unsupported):
            raise value
        return str(value.decode("utf-8", "replace"))

    def referred(self, die: Die, attribute: int) -> Optional[Die]:
        """The entry that an attribute leads to; None without the attribute."""
        value = die.values.get(attribute)
        if isinstance(value, Unsupported):
            raise value
        return None if value is None else self.entry(value)


def form_length(form: int, unit: DwarfUnit) -> int:
    """Return the size of a form's value; -1 if the value holds its length."""
    if form in SIZES:
        return SIZES[form]
    if form == ADDR:
        return unit.address_bytes
    if form == REF_ADDR:
        return unit.address_bytes if unit.version == 2 else unit.offset_bytes
    return unit.offset_bytes if form in OFFSETS else -1


def parse_abbreviations(data: bytes, unit: DwarfUnit, work: WorkCounter) -> Dict[int, Abbreviation]:
    """Parse a table of .debug_abbrev. IndexError if it is cut."""
    by_code: Dict[int, Abbreviation] = {}
    code, at = read_uleb(data, 0)
    while code:
        work.spend()
        tag, at = read_uleb(data, at)
        has_children = data[at]
        at += 1
        steps: List[AttributeForm] = []
        while True:
            work.spend()
            attribute, at = read_uleb(data, at)
            form, at = read_uleb(data, at)
            constant, at = read_sleb(data, at) if form == IMPLICIT_CONST else (0, at)
            if not attribute and not form:
                break
            size = form_length(form, unit)
            kept = attribute if attribute in WANTED else 0
            before, _, before_bytes, _ = steps[-1] if steps else (-1, 0, -1, 0)
            if not kept and size >= 0 and not before and before_bytes >= 0:
                steps[-1] = (0, 0, before_bytes + size, 0)
            else:
                steps.append((kept, form, size, constant))
        by_code[code] = (tag, bool(has_children), steps)
        code, at = read_uleb(data, at)
    return by_code


MANGLES = ("use_a_getter_or_setter_instead_", "cant_access_tsd_items_directly_use_a_getter_or_setter_")
"""What precedes the members of a tsd in some builds (TSD_MANGLE of internal/tsd.h, 5.0 to 5.1 and since 5.2)."""
SCALAR_MEMBERS = ("repr", "val")
"""The only member of such structs: atomics (atomic_gcc_atomic.h) and locked counters (lockedint.h, since 5.3.0)."""
MAX_WRAPPERS = 4
MAX_DIMENSIONS = 32
"""Of an array; one that has more is an element of itself."""
MAX_MEMBERS = 1 << 18
"""Members that are looked at, those of anonymous structs each time they are met: an allocator's are some thousands."""
MAX_STRUCTS = 4096
"""More structs than this inside one another is damage."""


class RawType(ABC):
    """A type of some reader of debug information, without typedefs and qualifiers around it."""

    code: str
    """`struct` (a union too), `array`, `enum`, `pointer`, `string` (char *), `int`, `uint`, `bool`, `char`, `float` or `other`."""
    name: str
    """Tag, or the name of the typedef next to it, or empty."""
    size_bytes: int

    @abstractmethod
    def members(self) -> "List[RawMember]":
        """Return the members of a struct or union in order; empty if it is only declared."""

    @abstractmethod
    def element(self) -> Tuple["RawType", int]:
        """Return the element type and length of an array; 0 for a flexible array member."""

    @abstractmethod
    def enumerators(self) -> Dict[str, int]:
        """Return the enumerators of an enum."""


RawMember = Tuple[str, int, bool, RawType]
"""Name of a member (empty for an anonymous struct or union), its offset, whether it is a bit field, and its type."""


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
        if called not in self.found.structs and len(self.found.structs) < MAX_STRUCTS:
            members: Dict[str, Member] = {}
            self.found.structs[called] = StructType(raw.size_bytes, members)
            self.fill(raw, called, 0, members)
        return Member(0, raw.size_bytes, count, "struct %s" % called)

    def scalar(self, raw: RawType, depth: int = 0) -> Optional[Member]:
        """Return the scalar that an atomic or locked counter wraps; None for any other struct."""
        members = raw.members()
        name, _, is_bit_field, inner = members[0] if len(members) == 1 else ("", 0, False, raw)
        if name not in SCALAR_MEMBERS or is_bit_field or depth > MAX_WRAPPERS:
            return None
        return self.scalar(inner, depth + 1) if inner.code == "struct" else self.place(inner, "", "") if inner.code != "array" else None

    def fill(self, raw: RawType, owner: str, base: int, members: Dict[str, Member]) -> None:
        """The members of `raw` as members of `owner`."""
        for name, offset, is_bit_field, inner in raw.members():
            self._work.spend()
            if is_bit_field or not name:
                if not is_bit_field and inner.code == "struct":
                    self.fill(inner, owner, base + offset, members)
                continue
            name = self.plain(name)
            member = self.place(inner, owner, name)
            if member is not None:
                members[name] = member._replace(offset=base + offset)

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


def strip_typedefs(dwarf: Dwarf, die: Optional[Die]) -> Tuple[Optional[Die], str]:
    """Return a type without typedefs and qualifiers, and the name of the innermost typedef."""
    alias = ""
    for _ in range(MAX_CHAIN):
        if die is None or (die.tag != TYPEDEF and die.tag not in QUALIFIERS):
            break
        alias = dwarf.name(die) if die.tag == TYPEDEF else alias
        die = dwarf.referred(die, AT_TYPE)
    return die, alias


def type_of(dwarf: Dwarf, die: Optional[Die]) -> "DwarfRaw":
    """Return the type of this entry, made once; None is void."""
    key = -1 if die is None else die.unit.offset + die.offset
    if key not in dwarf.types:
        dwarf.types[key] = DwarfRaw(dwarf, die)
    return dwarf.types[key]


class DwarfRaw(RawType):
    """A type's entry."""

    def __init__(self, dwarf: Dwarf, die: Optional[Die]) -> None:
        self._dwarf = dwarf
        self._members: Optional[List[RawMember]] = None
        self._enumerators: Optional[Dict[str, int]] = None
        die, alias = strip_typedefs(dwarf, die)
        self._die = die
        self.code = self._classify_die(die)
        self.name = "" if die is None else dwarf.name(die) or alias
        self.size_bytes = 0 if die is None else read_number(die, AT_BYTE_SIZE) or 0
        if die is not None and self.code in ("pointer", "string") and not self.size_bytes:
            self.size_bytes = die.unit.address_bytes

    def _classify_die(self, die: Optional[Die]) -> str:
        if die is None:
            return "other"
        if die.tag in STRUCTS:
            return "struct"
        if die.tag == POINTER:
            inner, _ = strip_typedefs(self._dwarf, self._dwarf.referred(die, AT_TYPE))
            return "string" if inner is not None and inner.tag == BASE and self._dwarf.name(inner) == "char" else "pointer"
        if die.tag == BASE:
            return "char" if self._dwarf.name(die) == "char" else ENCODINGS.get(read_number(die, AT_ENCODING) or 0, "other")
        return {ARRAY: "array", ENUMERATION: "enum"}.get(die.tag, "other")

    def members(self) -> List[RawMember]:
        if self._members is None:
            self._members = []
            for die in self._dwarf.children(self._die) if self._die is not None else ():
                if die.tag == MEMBER and AT_DECLARATION not in die.values:
                    kind = type_of(self._dwarf, self._dwarf.referred(die, AT_TYPE))
                    self._members.append((self._dwarf.name(die), read_location(die), AT_BIT_SIZE in die.values, kind))
        return self._members

    def element(self) -> Tuple[RawType, int]:
        count = 1
        for die in self._dwarf.children(self._die) if self._die is not None else ():
            if die.tag == SUBRANGE:
                bound, length = read_number(die, AT_UPPER_BOUND), read_number(die, AT_COUNT)
                count *= length if length is not None else bound + 1 if bound is not None else 0
        return type_of(self._dwarf, self._dwarf.referred(self._die, AT_TYPE)) if self._die is not None else self, count

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

    With link-time optimization the unit that has the code has nothing else: the function's abstract origin lies where its types do.
    """

    def __init__(self, dwarf: Dwarf, unit: DwarfUnit, address: int) -> None:
        self._dwarf = dwarf
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
        # tags before typedefs, as gdb's domains are asked
        for die in sorted(self._types.get(name, ()), key=lambda die: die.tag == TYPEDEF):
            raw = type_of(self._dwarf, die)
            if raw.code == "enum" or (raw.code == "struct" and raw.members()):
                return raw
        return None

    def variable(self, name: str) -> Optional[RawType]:
        die = self._variables.get(name)
        return type_of(self._dwarf, self._dwarf.referred(die, AT_TYPE)) if die is not None else None

    def enum_with(self, enumerator: str) -> Optional[RawType]:
        for die in self._enums:
            raw = type_of(self._dwarf, die)
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
SETS = ("set<", "multiset<", "unordered_set<", "unordered_multiset<")
ENDS = (*MAPS, *SEQUENCES, *OWNERS, *SETS, "shared_ptr<", "weak_ptr<", "basic_string<")


def layout_of(dwarf: Dwarf, die: Die) -> "Optional[DieLayout]":
    """Return the type that an entry refers to, without typedefs and qualifiers, made once."""
    inner, _ = strip_typedefs(dwarf, dwarf.referred(die, AT_TYPE))
    if inner is None:
        return None
    key = inner.unit.offset + inner.offset
    if key not in dwarf.layouts:
        dwarf.layouts[key] = DieLayout(dwarf, inner)
    return dwarf.layouts[key]


class DieLayout(TypeLayout):
    """The type of one entry. Whatever is not understood has no members."""

    def __init__(self, dwarf: Dwarf, die: Die) -> None:
        self._dwarf, self._die = dwarf, die
        self.name = dwarf.name(die)
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
        dwarf = self._dwarf
        for die in dwarf.children(self._die):
            made = layout_of(dwarf, die) if die.tag in (MEMBER, INHERITANCE) else None
            size = (read_number(made._die, AT_BYTE_SIZE) or made._die.unit.address_bytes) if made is not None else 0
            if made is not None and read_location(die) <= offset < read_location(die) + size:
                name = dwarf.name(die) if die.tag == MEMBER else ""
                return "." + name if name else "", read_location(die), made
        return None

    def target(self) -> Optional[TypeLayout]:
        """See Layout."""
        if self._die.tag == POINTER:
            return read_guarded(lambda: layout_of(self._dwarf, self._die))
        return read_guarded(lambda: self._find_parameter(0)) if self.name.startswith(OWNERS) else None

    def element(self) -> Optional[TypeLayout]:
        """See Layout."""
        if not self.name.startswith((*MAPS, *SEQUENCES)):
            return None
        return read_guarded(lambda: self._find_parameter(int(self.name.startswith(MAPS))))

    def _find_parameter(self, place: int) -> Optional[TypeLayout]:
        parameters = [die for die in self._dwarf.children(self._die) if die.tag == TEMPLATE_TYPE]
        return layout_of(self._dwarf, parameters[place]) if place < len(parameters) else None


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
        self._dwarf: Optional[Dwarf] = None
        self._data = b""
        self._variables: Dict[int, List[Die]] = {}
        """By where the unit begins."""

    def variable(self, address: int) -> Optional[TypeLayout]:
        """The type of the variable at this address of the file; None where debug information is too large, or does not say."""
        return read_guarded(lambda: self._find_variable(address))

    def _find_variable(self, address: int) -> Optional[TypeLayout]:
        if self._dwarf is None:
            self._dwarf = Dwarf(self._file)
            size = self._dwarf.sections.size_bytes(".debug_info")
            self._data = self._dwarf.sections.read(".debug_info", 0, size) if size <= MOST_INFO_BYTES else b""
        dwarf, written = self._dwarf, AT_ADDRESS + address.to_bytes(8, "little")
        place = self._data.find(written)
        if place < 0:
            return None
        unit = dwarf.unit_at(place)
        if unit.offset not in self._variables:
            is_small = unit.size_bytes <= MOST_UNIT_BYTES
            self._variables[unit.offset] = list(_find_variables(dwarf, dwarf.root(unit), 0)) if is_small else []
        die = next((die for die in self._variables[unit.offset] if die.values[AT_LOCATION] == written[1:]), None)
        declared = die if die is None or AT_TYPE in die.values else dwarf.referred(die, AT_SPECIFICATION)
        return layout_of(dwarf, declared) if declared is not None else None


def _find_variables(dwarf: Dwarf, parent: Die, depth: int) -> Iterator[Die]:
    """Yield variables that have an address, also in namespaces."""
    for die in dwarf.children(parent):
        if die.tag == NAMESPACE and depth < MOST_DEPTH:
            yield from _find_variables(dwarf, die, depth + 1)
        elif die.tag == VARIABLE and AT_LOCATION in die.values:
            yield die
