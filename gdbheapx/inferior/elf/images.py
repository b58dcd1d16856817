"""Read an ELF file as it is laid out in memory: relocated pointers, vtables with their class names, and code with its call slots.

Vtables are found by symbols and, in stripped files, by the type_infos that they point to (Itanium C++ ABI, 2.9).
"""

import struct
from bisect import bisect_left, bisect_right
from itertools import islice
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from gdbheapx.arch import Relocations
from gdbheapx.budget import READ_SHIFT, WorkCounter
from gdbheapx.inferior.base import ObjectCode
from gdbheapx.inferior.elf.file import (
    LETTERS_SHIFT,
    PT_DYNAMIC,
    PT_LOAD,
    STT_OBJECT,
    ElfFile,
    ElfSymbol,
    ProgramHeader,
    parse_symbol,
    read_c_string,
    symbol_bytes,
)
from gdbheapx.inferior.elf.unwind import CallFrames

DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ, DT_REL, DT_RELSZ, DT_RELRSZ, DT_RELR = 5, 6, 7, 8, 10, 17, 18, 35, 36
PF_X = 1
MOST_BYTES = 256 << 20
"""Of words that are looked through: more is in no object that is of use."""
MOST_RELOCATIONS_BYTES = 48 << 20
MOST_PACKED = 4_000_000
"""Of places in DT_RELR."""
MOST_TEXT_BYTES = 4097
"""Of a class's name with its end, and of a symbol's."""
PIECE_BYTES, SMALL_PIECE_BYTES = 1 << 20, 1 << 16
MOST_NAMES_BYTES = 1 << 28
"""Of all names of one object."""
KINDS = ("N10__cxxabiv117__class_type_infoE", "N10__cxxabiv120__si_class_type_infoE", "N10__cxxabiv121__vmi_class_type_infoE")
"""The classes of type_infos of classes: without bases, with one, with several or virtual ones."""
VTABLE = "_ZTV"
TYPE_INFO, TYPE_NAME = "_ZTI", "_ZTS"
MOST_DISTANCE = 1 << 20
"""From a base to the start of its object, in bytes."""
MOST_BASES = 64
MOST_NAME_BYTES = 4096
MOST_VTABLES = 200_000


class ImportedPointer(NamedTuple):
    """A pointer to what another object defines."""

    name: str
    addend: int


class ElfImage:
    """The loaded parts of one file."""

    def __init__(self, file: ElfFile) -> None:
        self.file = file
        self.word_bytes = file.header.word_bytes
        self._loads: List[ProgramHeader] = [header for header in file.program_headers() if header.type == PT_LOAD]
        self._letters = WorkCounter(file.path, MOST_NAMES_BYTES >> LETTERS_SHIFT)
        self._piece = (0, b"")
        """Where the last part of a sorted list of words was read, and what it was."""
        self._is_wide = self.word_bytes == 8
        self._dynamic = self._read_dynamic()
        self._names: Dict[int, Tuple[str, ElfSymbol]] = {}
        self.own: Dict[int, int] = {}
        """Where the dynamic linker writes a pointer to this object, and to what address."""
        self.imported: Dict[int, ImportedPointer] = {}
        """Where it writes one to another object."""
        self._apply_relocations()

    def read(self, address: int, size_bytes: int) -> bytes:
        """Return the file's bytes for these addresses; shorter where they end."""
        self.file.work.spend(1 + (size_bytes >> READ_SHIFT))
        for load in self._loads:
            if load.vaddr <= address < load.vaddr + load.filesz:
                return self.file.pread(load.offset + address - load.vaddr, min(size_bytes, load.vaddr + load.filesz - address))
        return b""

    def number(self, address: int) -> Optional[int]:
        """The signed word in the file; None where it has none."""
        data = self.read(address, self.word_bytes)
        return int.from_bytes(data, self.file.header.byte_order, signed=True) if len(data) == self.word_bytes else None

    def pointer(self, address: int) -> Optional[int]:
        """The address of this object that stands there in memory; None where it is another object's, or none."""
        if address in self.imported:
            return None
        value = self.own.get(address)
        return value if value is not None else self.number(address)

    def is_relocated(self, address: int) -> bool:
        """The dynamic linker writes there."""
        return address in self.own or address in self.imported

    def is_code(self, address: int) -> bool:
        """An address of executable memory."""
        return any(load.flags & PF_X and load.vaddr <= address < load.vaddr + load.memsz for load in self._loads)

    def text(self, address: int) -> Optional[bytes]:
        """The string that starts there; None where it does not end."""
        data = self.read(address, 256)
        if b"\0" not in data:
            data = self.read(address, MOST_TEXT_BYTES)
        text, end, _ = data.partition(b"\0")
        self._letters.spend(len(text) >> LETTERS_SHIFT)
        return text if end else None

    def words_in(self, values: Set[int]) -> List[int]:
        """Every place of data where a pointer to one of these addresses of this object stands."""
        places = {place for place, value in self.own.items() if value in values}
        if self.file.header.type == 2:  # ET_EXEC: what it says of itself needs no relocation
            for start, data in self._iterate_data():
                form = "%s%d%s" % (self.file.header.order, len(data) // self.word_bytes, "Q" if self._is_wide else "I")
                words = struct.unpack_from(form, data)
                places.update(start + self.word_bytes * at for at, word in enumerate(words) if word in values)
        return sorted(place for place in places if place not in self.imported)

    def _iterate_data(self) -> Iterator[Tuple[int, bytes]]:
        """(address, bytes) of what is no code, in pieces of whole words."""
        code = [
            (section.address, section.address + section.size_bytes)
            for section in self.file.sections()
            if section.flags & 4 and section.address
        ]
        left = MOST_BYTES
        for load in self._loads:
            if load.flags & PF_X and not code:
                continue
            at, end = load.vaddr + -load.vaddr % self.word_bytes, load.vaddr + load.filesz
            while at < end and left > 0:
                self.file.work.spend(len(code))
                skip = next((stop for start, stop in code if start <= at < stop), None)
                if skip is not None:
                    at = skip + -skip % self.word_bytes
                    continue
                stop = min([end, at + PIECE_BYTES] + [start for start, _ in code if start > at])
                data = self.read(at, stop - at)
                if not data:
                    break
                yield at, data
                left -= len(data)
                at += len(data) + -len(data) % self.word_bytes

    def find_text(self, text: bytes) -> List[int]:
        """Every address where this string starts, behind the end of another."""
        addresses, pattern = [], b"\0" + text + b"\0"
        for load in self._loads:
            for start in range(0, min(load.filesz, MOST_BYTES), PIECE_BYTES):
                data = self.read(load.vaddr + start, PIECE_BYTES + len(pattern))
                at = data.find(pattern)
                while 0 <= at < PIECE_BYTES:
                    addresses.append(load.vaddr + start + at + 1)
                    at = data.find(pattern, at + 1)
        return sorted(set(addresses))

    def _read_dynamic(self) -> Dict[int, int]:
        tags: Dict[int, int] = {}
        form = self.file.header.order + ("qQ" if self._is_wide else "iI")
        for entry in self.file.program_headers():
            if entry.type == PT_DYNAMIC:
                data = self.file.pread(entry.offset, min(entry.filesz, 1 << 16))
                for tag, value in struct.iter_unpack(form, data[: len(data) // (2 * self.word_bytes) * 2 * self.word_bytes]):
                    if tag == 0:
                        break
                    tags.setdefault(tag, value)
        return tags

    def table(self, start: int, size: int, form: str) -> Iterator[Tuple[int, ...]]:
        """The rows of a table of relocations; `start`, `size`: their tags in the dynamic section."""
        step = struct.calcsize(form)
        data = self.read(self._dynamic[start], min(self._dynamic.get(size, 0), MOST_RELOCATIONS_BYTES)) if start in self._dynamic else b""
        self.file.work.spend(len(data) // step)
        return struct.iter_unpack(form, data[: len(data) // step * step])

    def _apply_relocations(self) -> None:
        kinds, order = self.file.header.arch.relocations, self.file.header.order
        if kinds is None:
            return
        for place, info, addend in self.table(DT_RELA, DT_RELASZ, order + ("QQq" if self._is_wide else "IIi")):
            if info == kinds.relative:
                self.own[place] = addend
            else:
                self._add_absolute_pointer(kinds, place, info, addend)
        for place, info in self.table(DT_REL, DT_RELSZ, order + ("QQ" if self._is_wide else "II")):
            if info == kinds.relative:
                self.own[place] = self._in_place(place)
            else:
                self._add_absolute_pointer(kinds, place, info, None)
        for place in islice(self._iterate_relr(), MOST_PACKED):
            value = self._in_place(place)
            if value:  # where a file has a hole there is none, however many places lead into it
                self.own[place] = value

    def _in_place(self, place: int) -> int:
        start, data = self._piece
        if not 0 <= place - start <= len(data) - self.word_bytes:
            start, data = self._piece = place, self.read(place, SMALL_PIECE_BYTES)
        word = data[place - start : place - start + self.word_bytes]
        return int.from_bytes(word, self.file.header.byte_order) if len(word) == self.word_bytes else 0

    def _add_absolute_pointer(self, kinds: Relocations, place: int, info: int, addend: Optional[int]) -> None:
        """A pointer to what has a name."""
        kind, number = (info & 0xFFFFFFFF, info >> 32) if self._is_wide else (info & 0xFF, info >> 8)
        if kind == kinds.absolute:
            name, symbol = self.symbol(number)
            plus = addend if addend is not None else self.number(place) or 0
            if symbol.section:
                self.own[place] = symbol.value + plus
            else:
                self.imported[place] = ImportedPointer(name, plus)

    def symbol(self, number: int) -> Tuple[str, ElfSymbol]:
        """An entry of .dynsym."""
        if number not in self._names:
            size = symbol_bytes(self.word_bytes)
            data = self.read(self._dynamic.get(DT_SYMTAB, 0) + number * size, size)
            name, symbol = parse_symbol(self.file.header.order, self.word_bytes, data.ljust(size, b"\0"))
            text = self.read(self._dynamic.get(DT_STRTAB, 0) + name, 256)
            if b"\0" not in text:
                text = self.read(self._dynamic.get(DT_STRTAB, 0) + name, MOST_TEXT_BYTES)
            self._names[number] = (read_c_string(text, 0), symbol)
            self._letters.spend(len(self._names[number][0]) >> LETTERS_SHIFT)
        return self._names[number]

    def _iterate_relr(self) -> Iterator[int]:
        """The places that DT_RELR packs: an even word is an address, an odd one a bitmap of the words behind it."""
        at, bits = 0, 8 * self.word_bytes - 1
        for (entry,) in self.table(DT_RELR, DT_RELRSZ, self.file.header.order + ("Q" if self._is_wide else "I")):
            if not entry & 1:
                yield entry
                at = entry + self.word_bytes
                continue
            self.file.work.spend(bits)
            for bit in range(bits):
                if entry >> (bit + 1) & 1:
                    yield at + bit * self.word_bytes
            at += bits * self.word_bytes


class RawVtable(NamedTuple):
    """A vtable by its mangled name."""

    mangled: str
    """Of the class, as in its type_info: `N3foo3barE`."""
    within: int
    """Where the part of the object that points here begins in the object: 0 for its own first word."""


class TypeInfo(NamedTuple):
    """A class's type_info."""

    mangled: str
    kind: str
    """One of KINDS."""


def find_raw_vtables(file: ElfFile, with_symbols: Sequence[ElfFile] = ()) -> Dict[int, RawVtable]:
    """Address point in the file -> vtable. `with_symbols`: files that may have symbols for it, such as its debug file."""
    image = ElfImage(file)
    known = list(_find_vtable_symbols([file, *with_symbols]))
    infos = _find_type_infos(image, _find_kinds(image, known))
    by_address = dict(_with_type_info(image, infos, [(start, end) for start, end, _ in known]))
    word = image.word_bytes
    points = sorted(by_address)
    for start, end, name in known:
        is_plain = not (image.number(start) or image.number(start + word) or image.is_relocated(start + word))
        if is_plain and not _any_within(points, start, end):  # without RTTI, or a copy of another object's (R_..._COPY)
            by_address.setdefault(start + 2 * word, RawVtable(name, 0))
    return dict(sorted(by_address.items())[:MOST_VTABLES])


def _find_vtable_symbols(files: Sequence[ElfFile]) -> Iterator[Tuple[int, int, str]]:
    """(start, end, mangled class name) of every vtable that has a symbol."""
    met: Set[Tuple[int, int]] = set()
    for file in files:
        for name, symbol in file.symbols_starting(VTABLE):
            place = (symbol.value, symbol.value + symbol.size_bytes)
            if symbol.type == STT_OBJECT and symbol.size_bytes and place not in met:
                met.add(place)
                yield symbol.value, symbol.value + symbol.size_bytes, name[len(VTABLE) :]


def _find_kinds(image: ElfImage, symbols: Sequence[Tuple[int, int, str]]) -> Dict[int, str]:
    """The address points of the vtables of the type_infos themselves, where they lie in this object: those of which of KINDS."""
    word = image.word_bytes
    by_address = {start + 2 * word: name for start, _, name in symbols if name in KINDS}
    if by_address:
        return by_address
    for kind in KINDS:  # a static executable without symbols: from the class's name to its type_info to its vtable
        names = set(image.find_text(kind.encode()))
        infos = {place - word for place in image.words_in(names)} if names else set()
        for place in image.words_in(infos) if infos else ():
            if image.number(place - word) == 0 and not image.is_relocated(place - word) and _has_code(image, place + word):
                by_address[place + word] = kind
    return by_address


def _find_type_infos(image: ElfImage, kinds: Dict[int, str]) -> Dict[int, TypeInfo]:
    """Every type_info of a class, by its address."""
    word = image.word_bytes
    by_symbol = {VTABLE + kind: kind for kind in KINDS}
    places = [(place, kinds[image.pointer(place) or 0]) for place in image.words_in(set(kinds))] if kinds else []
    places += [
        (place, by_symbol[imported.name])
        for place, imported in image.imported.items()
        if imported.name in by_symbol and imported.addend == 2 * word
    ]
    infos = {}
    for place, kind in places:
        at = image.pointer(place + word)
        text = image.text(at) if at else None
        mangled = parse_type_name(text + b"\0") if text else None
        if mangled:
            infos[place] = TypeInfo(mangled, kind)
    return infos


def parse_type_name(data: bytes) -> Optional[str]:
    """The mangled name that these bytes begin with, as a type_info points to it; None if it is none, or has no end."""
    text, end, _ = data.partition(b"\0")
    if not end or not text or len(text) > MOST_NAME_BYTES or not all(32 < byte < 127 for byte in text):
        return None
    return text.decode("ascii").lstrip("*")  # `*`: two of this name may be two classes


def _with_type_info(image: ElfImage, infos: Dict[int, TypeInfo], symbols: List[Tuple[int, int]]) -> Iterator[Tuple[int, RawVtable]]:
    """(address point, vtable) of every place that points to a type_info and is no part of one."""
    word = image.word_bytes
    inside = _find_base_places(image, infos)
    starts = sorted(symbols)
    named = [(place, infos[image.pointer(place) or 0].mangled) for place in image.words_in(set(infos))] if infos else []
    others = [
        (place, imported.name) for place, imported in image.imported.items() if imported.name.startswith(TYPE_INFO) and not imported.addend
    ]
    named += [(place, name[len(TYPE_INFO) :]) for place, name in others]
    for place, name in named:
        distance = image.number(place - word)
        if place in inside or distance is None or image.is_relocated(place - word) or distance % word or not -MOST_DISTANCE < distance <= 0:
            continue
        if _is_covered(starts, place) or _has_code(image, place + word):
            yield place + word, RawVtable(name, -distance)


def _find_base_places(image: ElfImage, infos: Dict[int, TypeInfo]) -> Set[int]:
    """The places inside type_infos that lead to those of their bases."""
    word = image.word_bytes
    bases: Set[int] = set()
    for start, info in infos.items():
        first = start + 2 * word
        if info.kind == KINDS[1]:
            bases.add(first)
        elif info.kind == KINDS[2]:  # unsigned flags, count; then a pointer and a word for each base
            count = int.from_bytes(image.read(first + 4, 4), image.file.header.byte_order)
            bases.update(first + 8 + 2 * word * number for number in range(min(count, MOST_BASES)))
    return bases


def _has_code(image: ElfImage, place: int) -> bool:
    """A function is among the first entries: those of an abstract class's destructors may be empty."""
    word = image.word_bytes
    for at in (place, place + word, place + 2 * word):
        address = image.pointer(at)
        if address is None:
            return at in image.imported
        if address:
            return image.is_code(address & ~1)
    return False


def _is_covered(ranges: Sequence[Tuple[int, int]], place: int) -> bool:
    """A sorted range begins at or before the place, and ends behind it."""
    number = bisect_right(ranges, (place, 1 << 64)) - 1
    return number >= 0 and place < ranges[number][1]


def _any_within(points: Sequence[int], start: int, end: int) -> bool:
    number = bisect_left(points, start)
    return number < len(points) and points[number] <= end


DT_PLTRELSZ, DT_JMPREL = 2, 23
MOST_CODE_BYTES = 512 << 20


def read_code(file: ElfFile) -> Optional[ObjectCode]:
    """Read an object's code with its functions and call slots; None for a machine whose code is not read."""
    header = file.header
    if header.arch.code is None or header.arch.relocations is None or header.word_bytes != 8 or not header.little_endian:
        return None
    image, left, parts = ElfImage(file), MOST_CODE_BYTES, []
    for segment in file.program_headers():
        if segment.type == PT_LOAD and segment.executable:
            data = file.pread(segment.offset, min(segment.filesz, left))
            left -= len(data)
            parts.append((segment.vaddr, data))
    slots: Dict[int, str] = {place: imported.name for place, imported in image.imported.items() if not imported.addend}
    pointers = dict(image.own)
    for table in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        for place, info, addend in image.table(*table, header.order + "QQq"):
            if info & 0xFFFFFFFF in header.arch.relocations.slots:
                name, symbol = image.symbol(info >> 32)
                slots[place] = name
                if symbol.section:
                    pointers[place] = symbol.value + addend
    return ObjectCode(header.arch, parts, CallFrames(file).functions(), slots, pointers)
