"""The words of an ELF file as the dynamic linker makes them: pointers to the file itself, and those to what other objects define.

An address here is one in the file, as link-time addresses are: the load bias is left out.
"""

import struct
from itertools import islice
from typing import Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from gdbheapx.arch import Relocations
from gdbheapx.inferior.elf.file import (
    PT_DYNAMIC,
    PT_LOAD,
    ElfFile,
    ElfSymbol,
    ProgramHeader,
    c_string,
    parse_symbol,
    symbol_bytes,
)

DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ, DT_REL, DT_RELSZ, DT_RELRSZ, DT_RELR = 5, 6, 7, 8, 10, 17, 18, 35, 36
PF_X = 1
MOST_BYTES = 256 << 20
"""Of words that are looked through: more is in no object that is of use."""
MOST_RELOCATIONS_BYTES = 48 << 20
MOST_PACKED = 4_000_000
"""Of places in DT_RELR."""
MOST_TEXT_BYTES = 1 << 16
PIECE_BYTES = 1 << 20


class Imported(NamedTuple):
    """A pointer to what another object defines."""

    name: str
    addend: int


class Image:
    """The loaded parts of one file."""

    def __init__(self, file: ElfFile) -> None:
        self.file = file
        self.word_bytes = file.header.word_bytes
        self._loads: List[ProgramHeader] = [one for one in file.program_headers() if one.type == PT_LOAD]
        self._is_wide = self.word_bytes == 8
        self._dynamic = self._read_dynamic()
        self._names: Dict[int, Tuple[str, ElfSymbol]] = {}
        self.own: Dict[int, int] = {}
        """Where the dynamic linker writes a pointer to this object, and to what address."""
        self.imported: Dict[int, Imported] = {}
        """Where it writes one to another object."""
        self._relocate()

    def read(self, address: int, size_bytes: int) -> bytes:
        """What the file has for these addresses; shorter where that ends."""
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
        found = self.own.get(address)
        return found if found is not None else self.number(address)

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
        return text if end else None

    def words_in(self, values: Set[int]) -> List[int]:
        """Every place of data where a pointer to one of these addresses of this object stands."""
        found = {place for place, value in self.own.items() if value in values}
        if self.file.header.type == 2:  # ET_EXEC: what it says of itself needs no relocation
            for start, data in self._data():
                form = "%s%d%s" % (self.file.header.order, len(data) // self.word_bytes, "Q" if self._is_wide else "I")
                words = struct.unpack_from(form, data)
                found.update(start + self.word_bytes * at for at, word in enumerate(words) if word in values)
        return sorted(place for place in found if place not in self.imported)

    def _data(self) -> Iterator[Tuple[int, bytes]]:
        """(address, bytes) of what is no code, in pieces of whole words."""
        code = [(one.address, one.address + one.size_bytes) for one in self.file.sections() if one.flags & 4 and one.address]
        left = MOST_BYTES
        for load in self._loads:
            if load.flags & PF_X and not code:
                continue
            at, end = load.vaddr + -load.vaddr % self.word_bytes, load.vaddr + load.filesz
            while at < end and left > 0:
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
        found, wanted = [], b"\0" + text + b"\0"
        for load in self._loads:
            for start in range(0, min(load.filesz, MOST_BYTES), PIECE_BYTES):
                data = self.read(load.vaddr + start, PIECE_BYTES + len(wanted))
                at = data.find(wanted)
                while 0 <= at < PIECE_BYTES:
                    found.append(load.vaddr + start + at + 1)
                    at = data.find(wanted, at + 1)
        return sorted(set(found))

    def _read_dynamic(self) -> Dict[int, int]:
        found: Dict[int, int] = {}
        form = self.file.header.order + ("qQ" if self._is_wide else "iI")
        for entry in self.file.program_headers():
            if entry.type == PT_DYNAMIC:
                data = self.file.pread(entry.offset, min(entry.filesz, 1 << 16))
                for tag, value in struct.iter_unpack(form, data[: len(data) // (2 * self.word_bytes) * 2 * self.word_bytes]):
                    if tag == 0:
                        break
                    found.setdefault(tag, value)
        return found

    def _table(self, start: int, size: int, form: str) -> Iterator[Tuple[int, ...]]:
        step = struct.calcsize(form)
        data = self.read(self._dynamic[start], min(self._dynamic.get(size, 0), MOST_RELOCATIONS_BYTES)) if start in self._dynamic else b""
        return struct.iter_unpack(form, data[: len(data) // step * step])

    def _relocate(self) -> None:
        kinds, order = self.file.header.arch.relocations, self.file.header.order
        if kinds is None:
            return
        for place, info, addend in self._table(DT_RELA, DT_RELASZ, order + ("QQq" if self._is_wide else "IIi")):
            if info == kinds.relative:
                self.own[place] = addend
            else:
                self._absolute(kinds, place, info, addend)
        for place, info in self._table(DT_REL, DT_RELSZ, order + ("QQ" if self._is_wide else "II")):
            if info == kinds.relative:
                self.own[place] = self._in_place(place)
            else:
                self._absolute(kinds, place, info, None)
        for place in islice(self._relr(), MOST_PACKED):
            self.own[place] = self._in_place(place)

    def _in_place(self, place: int) -> int:
        return (self.number(place) or 0) & (1 << 8 * self.word_bytes) - 1

    def _absolute(self, kinds: Relocations, place: int, info: int, addend: Optional[int]) -> None:
        """A pointer to what has a name."""
        kind, number = (info & 0xFFFFFFFF, info >> 32) if self._is_wide else (info & 0xFF, info >> 8)
        if kind == kinds.absolute:
            name, symbol = self._symbol(number)
            plus = addend if addend is not None else self.number(place) or 0
            if symbol.section:
                self.own[place] = symbol.value + plus
            else:
                self.imported[place] = Imported(name, plus)

    def _symbol(self, number: int) -> Tuple[str, ElfSymbol]:
        """An entry of .dynsym."""
        if number not in self._names:
            size = symbol_bytes(self.word_bytes)
            data = self.read(self._dynamic.get(DT_SYMTAB, 0) + number * size, size)
            name, symbol = parse_symbol(self.file.header.order, self.word_bytes, data.ljust(size, b"\0"))
            text = self.read(self._dynamic.get(DT_STRTAB, 0) + name, 256)
            if b"\0" not in text:
                text = self.read(self._dynamic.get(DT_STRTAB, 0) + name, MOST_TEXT_BYTES)
            self._names[number] = (c_string(text, 0), symbol)
        return self._names[number]

    def _relr(self) -> Iterator[int]:
        """The places that DT_RELR packs: an even word is an address, an odd one a bitmap of the words behind it."""
        at, bits = 0, 8 * self.word_bytes - 1
        for (entry,) in self._table(DT_RELR, DT_RELRSZ, self.file.header.order + ("Q" if self._is_wide else "I")):
            if not entry & 1:
                yield entry
                at = entry + self.word_bytes
                continue
            for bit in range(bits):
                if entry >> (bit + 1) & 1:
                    yield at + bit * self.word_bytes
            at += bits * self.word_bytes
