"""DWARF of single compilation units, by pread of the ELF file that has it: versions 2 to 5, both widths, both byte orders.

Why not gdb's: it indexes all units of the object first and reads one whole, with its macros. A program whose allocator was built with -g3,
as its configure asks for, takes it 3 s for each unit but the first; this takes 50 ms. What is not understood here is Unsupported: gdb is
asked then. Why not pyelftools: the structs of libc's malloc.c take 70 ms here and 190 there, after 65 ms for its import
(bench/elf_readers.py). It reads whole files, in whole_file.py, where nobody waits.
"""

import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from gdbheapx.budget import READ_SHIFT, WorkCounter
from gdbheapx.inferior.elf.file import MOST_NAME_BYTES, SHT_NOBITS, ElfFile, ElfSection, read_sleb, read_uleb

AT_SIBLING, AT_NAME, AT_BYTE_SIZE, AT_LOW_PC, AT_HIGH_PC, AT_LANGUAGE, AT_CONST_VALUE, AT_UPPER_BOUND = (
    0x01,
    0x03,
    0x0B,
    0x11,
    0x12,
    0x13,
    0x1C,
    0x2F,
)
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
"""Attributes that somebody asks for; the others are stepped over."""
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


class AttributeForm(NamedTuple):
    """An attribute of an abbreviation, or several that are skipped together."""

    attribute: int
    """0: nobody asks for it."""
    form: int
    size_bytes: int
    """-1 where the form does not tell."""
    constant: int
    """Of DW_FORM_implicit_const."""


class Abbreviation(NamedTuple):
    """Attributes of the entries with one code."""

    tag: int
    has_children: bool
    steps: Tuple[AttributeForm, ...]


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
                self._plain[name] = self._unpack_section(section)
            elif section is None and old is not None:
                self._plain[name] = inflate_section(self._file.pread(old.offset, old.size_bytes)[12:])
            else:
                return None
        return self._plain[name]

    def _unpack_section(self, section: ElfSection) -> bytes:
        data = self._file.pread(section.offset, section.size_bytes)
        kind = int.from_bytes(data[:4], self._file.header.byte_order)
        if kind != ELFCOMPRESS_ZLIB:
            raise Unsupported("sections compressed in way %d" % kind)
        return inflate_section(data[24 if self._file.header.word_bytes == 8 else 12 :])

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
        offset = self._run_guarded(lambda: self._by_ranges(address))
        if offset is not None:
            return self.unit_at(offset)
        unit: Optional[DwarfUnit] = self._run_guarded(lambda: self._by_looking(address))
        return unit

    def _run_guarded(self, step: Callable[[], Any]) -> Any:
        try:
            return step()
        except DAMAGE as error:
            raise Unsupported("damaged debug information: %s" % error)

    def _by_ranges(self, address: int) -> Optional[int]:
        """Find the unit by .debug_aranges, which gcc writes."""
        data, at, big = (
            self.sections.read(".debug_aranges", 0, self.sections.size_bytes(".debug_aranges")),
            0,
            ">" if self.order == "big" else "<",
        )
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
        """A unit of C that says so, or in which the function's address stands."""
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
                self._tables[key] = self._run_guarded(lambda: self._read_abbreviations(unit))
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
        die: Optional[Die] = self._run_guarded(lambda: self.die(unit, unit.first, data))
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
            die = self._run_guarded(lambda: self.die(unit, offset - unit.offset, unit.data))
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
            abbreviation = table[code]
            self._work.spend(1 + len(abbreviation.steps))
            for step in abbreviation.steps:
                at = at + step.size_bytes if step.size_bytes >= 0 else self._skip_value(unit, step.form, data, at)
            depth += abbreviation.has_children
        return at

    def die(self, unit: DwarfUnit, at: int, data: bytes) -> Optional[Die]:
        """The entry at this place of the unit; None at the end of a list of children."""
        start = at
        code, at = read_uleb(data, at)
        if not code:
            return None
        abbreviation = unit.table[code]
        self._work.spend(1 + len(abbreviation.steps))
        values: Dict[int, Any] = {}
        for attribute, form, size, constant in abbreviation.steps:
            if attribute:
                values[attribute] = self._read_value(unit, form, constant, data, at)
            at = at + size if size >= 0 else self._skip_value(unit, form, data, at)
        return Die(unit, start, abbreviation.tag, values, at, abbreviation.has_children)

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
            return self._read_indexed(unit, read_uleb(data, at)[0] if form in ULEBS else self._read_number(data, at, SIZES[form]))
        if form == INDIRECT:
            form, at = read_uleb(data, at)
            return self._read_value(unit, form, 0, data, at)
        if form in (EXPRLOC, BLOCK, BLOCK1):
            length, at = read_uleb(data, at) if form != BLOCK1 else (data[at], at + 1)
            return data[at : at + length]
        return Unsupported("form 0x%x" % form)  # an error only for who needs it

    def _read_number(self, data: bytes, at: int, size: int) -> int:
        return int(int.from_bytes(data[at : at + size], self.order))

    def _read_indexed(self, unit: DwarfUnit, index: int) -> Any:
        place = unit.string_offsets + index * unit.offset_bytes
        return (".debug_str", self._read_number(self.sections.read(".debug_str_offsets", place, unit.offset_bytes), 0, unit.offset_bytes))

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
            if not kept and size >= 0 and steps and not steps[-1].attribute and steps[-1].size_bytes >= 0:
                steps[-1] = AttributeForm(0, 0, steps[-1].size_bytes + size, 0)
            else:
                steps.append(AttributeForm(kept, form, size, constant))
        by_code[code] = Abbreviation(tag, bool(has_children), tuple(steps))
        code, at = read_uleb(data, at)
    return by_code
