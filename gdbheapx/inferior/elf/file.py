"""ELF as the target layer needs it: headers, program headers, notes and symbol tables, for both word sizes and byte orders.

Every command pays for this, so it is not pyelftools', whose import alone takes 65 ms of CPU: of libc's debug file the sections take 0.1 ms
here and 2 ms there, one symbol by name 0.4 and 375, every symbol 14 and 340 (bench/elf_readers.py). link_map.py parses the same out of
memory.

The few registers that matter (stack, program counter, thread pointer), out of the kernel's register sets; cores and ptrace use the same
sets.
"""

import os
import stat
import struct
from array import array
from typing import Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.budget import READ_SHIFT, WorkCounter, ends_with_work
from gdbheapx.common.files import RegularFile
from gdbheapx.inferior.arch import Architecture, ByteOrder, byte_order, of_elf

PT_LOAD, PT_DYNAMIC, PT_NOTE, PT_PHDR, PT_TLS = 1, 2, 4, 6, 7
ET_CORE = 4
PT_GNU_RELRO = 0x6474E552
PF_X, PF_W, PF_R = 1, 2, 4
SHT_SYMTAB, SHT_NOTE, SHT_NOBITS, SHT_DYNSYM = 2, 7, 8, 11
STT_NOTYPE, STT_OBJECT, STT_FUNC, STT_TLS = 0, 1, 2, 6
SYMBOL, SYMBOL_32 = "IBBHQQ", "IIIBBH"
"""Elf64_Sym and Elf32_Sym, whose members have another order."""
NT_GNU_BUILD_ID = 3

MOST_NOTE_PARTS = 64
"""Segments or sections of notes that are looked through for a build-id: a file has one to five."""
MOST_NAME_BYTES = 1 << 16
"""Of a name in a string table; what C++ and Rust mangle comes to a few thousand."""
MOST_SEGMENTS = 1024
"""Program headers of an object that are read: linkers write some fifteen."""
MOST_SECTION_NAME_BYTES = 255
MOST_SECTION_NAMES_BYTES = 16 << 20
"""Of all of them: 65,535 sections with names of that length."""
MOST_SYMBOL_TABLES = 4
"""Of one file: .symtab and .dynsym."""
MOST_PREFIX_BYTES = 255
"""Before the end by which names are sought."""
NAMES_SHARE, FREE_NAMES_BYTES = 4, 64 << 20
"""Names of one table are no longer in all than so many times their strings, which they may share, and so much more."""
LETTERS_SHIFT = 6
"""Letters of names cost a step for each 64 of them."""
ENTRIES_AT_ONCE = 1 << 10
MOST_ULEB_BYTES = 10
"""Of a LEB128 number: more than 64 bits are no number of these formats."""
MOST_AUXV_BYTES = 1 << 16
NT_PRSTATUS = 1


class ElfHeader(NamedTuple):
    """Fields of an ELF header."""

    word_bytes: int
    little_endian: bool
    type: int
    machine: int
    phoff: int
    shoff: int
    phentsize: int
    phnum: int
    shentsize: int
    shnum: int
    shstrndx: int

    @property
    def order(self) -> str:
        """The byte order as struct's first letter."""
        return "<" if self.little_endian else ">"

    @property
    def byte_order(self) -> ByteOrder:
        """Byte order for int.from_bytes."""
        return byte_order(self.little_endian)

    @property
    def arch(self) -> Architecture:
        """The machine."""
        return of_elf(self.machine, self.word_bytes)


class ProgramHeader(NamedTuple):
    """An entry of the program header table."""

    type: int
    flags: int
    offset: int
    vaddr: int
    filesz: int
    memsz: int
    align: int

    @property
    def writable(self) -> bool:
        """PF_W."""
        return bool(self.flags & 2)

    @property
    def executable(self) -> bool:
        """PF_X."""
        return bool(self.flags & 1)


class ElfSection(NamedTuple):
    """An entry of the section header table."""

    name: str
    type: int
    address: int
    offset: int
    size_bytes: int
    link: int
    entry_bytes: int
    flags: int


class ElfSymbol(NamedTuple):
    """An entry of a symbol table."""

    value: int
    size_bytes: int
    type: int
    section: int
    local: bool = False
    """STB_LOCAL: static, or hidden by the linker."""


def parse_header(data: bytes) -> Optional[ElfHeader]:
    """The header at the start of `data`; None if it is no ELF header or cut short."""
    if len(data) < 52 or data[:4] != b"\x7fELF" or data[4] not in (1, 2) or data[5] not in (1, 2):
        return None
    is_wide = data[4] == 2
    if is_wide and len(data) < 64:
        return None
    form = ("<" if data[5] == 1 else ">") + ("HHIQQQIHHHHHH" if is_wide else "HHIIIIIHHHHHH")
    kind, machine, _, _, phoff, shoff, _, _, *sizes = struct.unpack_from(form, data, 16)
    return ElfHeader(8 if is_wide else 4, data[5] == 1, kind, machine, phoff, shoff, *sizes)


def program_header_bytes(word_bytes: int) -> int:
    """sizeof(ElfN_Phdr)."""
    return 56 if word_bytes == 8 else 32


def parse_program_headers(order: str, word_bytes: int, data: bytes) -> List[ProgramHeader]:
    """The whole entries in `data`."""
    size = program_header_bytes(word_bytes)
    data = data[: len(data) // size * size]
    if word_bytes == 8:
        return [ProgramHeader(t, f, o, v, fs, ms, a) for t, f, o, v, _, fs, ms, a in struct.iter_unpack(order + "IIQQQQQQ", data)]
    return [ProgramHeader(t, f, o, v, fs, ms, a) for t, o, v, _, fs, ms, f, a in struct.iter_unpack(order + "IIIIIIII", data)]


def parse_notes(order: str, data: bytes, align: int = 4) -> Iterator[Tuple[bytes, int, bytes]]:
    """(owner, type, contents) of each note; a note that is cut off ends the list."""
    at, end, step = 0, len(data), 8 if align == 8 else 4
    header = struct.Struct(order + "III")
    while at + 12 <= end:
        name_bytes, desc_bytes, kind = header.unpack_from(data, at)
        desc = (at + 12 + name_bytes + step - 1) & -step
        if desc + desc_bytes > end:
            return
        yield data[at + 12 : at + 12 + name_bytes].rstrip(b"\0"), kind, data[desc : desc + desc_bytes]
        at = (desc + desc_bytes + step - 1) & -step


def find_build_id(notes: Iterator[Tuple[bytes, int, bytes]]) -> Optional[str]:
    """The build-id among these notes, in lower-case hex."""
    for name, kind, desc in notes:
        if kind == NT_GNU_BUILD_ID and name == b"GNU" and desc:
            return desc.hex()
    return None


def parse_symbol(order: str, word_bytes: int, entry: bytes) -> Tuple[int, ElfSymbol]:
    """(offset of its name, symbol) from the bytes of one symbol table entry."""
    fields = struct.unpack(order + (SYMBOL if word_bytes == 8 else SYMBOL_32), entry)
    name, info, _, section, value, size = fields if word_bytes == 8 else (fields[0], *fields[3:], fields[1], fields[2])
    return name, ElfSymbol(value, size, info & 15, section, info >> 4 == 0)


def defined_symbols(order: str, word_bytes: int, entries: bytes, types: Sequence[int]) -> Iterator[Tuple[int, ElfSymbol]]:
    """Yield (offset of its name, symbol) of the defined symbols of these types, or of all types; a program has hundreds of thousands."""
    is_long = word_bytes == 8
    for fields in struct.iter_unpack(order + (SYMBOL if is_long else SYMBOL_32), entries):
        name, info, _, section, value, size = fields if is_long else (fields[0], *fields[3:], fields[1], fields[2])
        if section and (not types or info & 15 in types):
            yield name, ElfSymbol(value, size, info & 15, section, info >> 4 == 0)


def gnu_build_id_path(build_id: str) -> str:
    """Return the path of a debug file below a debug directory."""
    return ".build-id/%s/%s.debug" % (build_id[:2], build_id[2:])


def symbol_bytes(word_bytes: int) -> int:
    """sizeof(ElfN_Sym)."""
    return 24 if word_bytes == 8 else 16


class ElfFile:
    """An ELF file on disk, read by pread on demand."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.file = RegularFile(path)
        header = parse_header(self.file.pread(64, 0))
        if header is None:
            raise ValueError("%s is not an ELF file" % path)
        self.header: ElfHeader = header
        self.work = WorkCounter(path)
        self._sections: Optional[List[ElfSection]] = None
        self._headers: Optional[List[ProgramHeader]] = None
        self._tables: Dict[int, Tuple[bytes, bytes, bytes]] = {}
        self._build_id: Optional[str] = None
        """Empty: it has none. None: it was not looked for yet."""

    def is_open_to(self, uid: int) -> bool:
        """Everybody may read the file, or it belongs to this user."""
        status = self.file.ask(os.fstat)
        return bool(status.st_mode & stat.S_IROTH) or status.st_uid == uid

    def is_public(self) -> bool:
        """Root's, as a distribution installs it, and everybody may read it."""
        return self.is_open_to(-1) and self.file.ask(os.fstat).st_uid == 0

    def pread(self, offset: int, size_bytes: int) -> bytes:
        """Bytes of the file; shorter at its end, none where a damaged file asks for more than there can be."""
        try:
            return self.file.pread(size_bytes, offset)
        except (OSError, OverflowError, MemoryError):
            return b""

    def pread_table(self, offset: int, size_bytes: int) -> bytes:
        """Read up to the first hole: no linker leaves one in a table, and a sparse file may claim any size."""
        try:
            hole = self.file.ask(lambda descriptor: os.lseek(descriptor, offset, os.SEEK_HOLE))
        except (OSError, OverflowError):  # behind the file's end, or of a file system that does not tell
            hole = offset + size_bytes
        return self.pread(offset, min(size_bytes, hole - offset))

    def program_headers(self) -> List[ProgramHeader]:
        """The first MOST_SEGMENTS."""
        if self._headers is None:
            header = self.header
            size_bytes = min(header.phnum, MOST_SEGMENTS) * program_header_bytes(header.word_bytes)
            self._headers = parse_program_headers(header.order, header.word_bytes, self.pread(header.phoff, size_bytes))
        return self._headers

    def at(self, address: int, size_bytes: int) -> bytes:
        """Return the file's bytes for this address, before any relocation; shorter where they end."""
        for entry in self.program_headers():
            if entry.type == PT_LOAD and entry.vaddr <= address < entry.vaddr + entry.filesz:
                return self.pread(entry.offset + address - entry.vaddr, min(size_bytes, entry.vaddr + entry.filesz - address))
        return b""

    def word_at(self, address: int) -> Optional[int]:
        """Return the pointer-sized integer that the file holds for this address, before any relocation; None if it holds none."""
        data = self.at(address, self.header.word_bytes)
        return int.from_bytes(data, self.header.byte_order) if len(data) == self.header.word_bytes else None

    def build_id(self) -> Optional[str]:
        """NT_GNU_BUILD_ID, from the program headers or, in debug files (whose notes they misplace), from the sections."""
        if self._build_id is not None:
            return self._build_id or None
        spans = [(part.offset, part.size_bytes, 4) for part in self.sections() if part.type == SHT_NOTE][:MOST_NOTE_PARTS]
        spans += [(part.offset, part.filesz, part.align) for part in self.program_headers() if part.type == PT_NOTE][:MOST_NOTE_PARTS]
        parts = ((self.pread(offset, min(size_bytes, 1 << 16)), align) for offset, size_bytes, align in spans if size_bytes)
        build_ids = (find_build_id(parse_notes(self.header.order, data, align)) for data, align in parts)
        self._build_id = next((build_id for build_id in build_ids if build_id), "")
        return self._build_id or None

    def sections(self) -> List[ElfSection]:
        """The section headers; empty if the file has none."""
        if self._sections is None:
            header = self.header
            form = header.order + ("IIQQQQIIQQ" if header.word_bytes == 8 else "IIIIIIIIII")
            size = struct.calcsize(form)
            raw = self.pread(header.shoff, header.shnum * header.shentsize) if header.shoff and header.shentsize == size else b""
            rows = list(struct.iter_unpack(form, raw[: len(raw) // size * size]))
            at, size_bytes = rows[header.shstrndx][4:6] if header.shstrndx < len(rows) else (0, 0)
            text = self.pread(at, min(size_bytes, MOST_SECTION_NAMES_BYTES))
            names = {row[0]: read_c_string(text, row[0], MOST_SECTION_NAME_BYTES) for row in rows}
            self._sections = [ElfSection(names[row[0]], row[1], row[3], row[4], row[5], row[6], row[9], row[2]) for row in rows]
        return self._sections

    def has_section(self, name: str) -> bool:
        """True if the section is there with contents."""
        return any(section.name == name and section.type != SHT_NOBITS for section in self.sections())

    def symbols(self, name: str) -> List[ElfSymbol]:
        """Every defined symbol of that name in .symtab, local ones too, also as link-time optimization renames them (`name.lto_priv.0`).

        What .dynsym exports is found faster by its hash, in memory.
        """
        return list(self._iterate_symbols(name))

    @ends_with_work
    def _iterate_symbols(self, name: str) -> Iterator[ElfSymbol]:
        for table in self._symbol_tables(SHT_SYMTAB):
            text = self._read_table(table)[2]
            for offset in find_substrings(text, name.encode() + b"\0", self.work):
                yield from self._at_name(table, offset)
            for offset in find_substrings(text, name.encode() + b".lto_priv.", self.work):
                if read_c_string(text, offset)[len(name) + 10 :].isdigit():
                    yield from self._at_name(table, offset)

    def names_ending(self, suffix: str) -> List[str]:
        """Every name of a defined symbol in .symtab and .dynsym that ends so, after at most MOST_PREFIX_BYTES."""
        end = suffix.encode() + b"\0"

        def find_starts(text: bytes) -> Iterator[int]:
            for at in find_substrings(text, end, self.work):
                yield from find_name_starts(text, at)

        return sorted(set(self._iterate_names(find_starts)))

    def names_starting(self, start: str) -> List[str]:
        """Every name of a defined symbol in .symtab and .dynsym that begins so."""
        return sorted(set(self._iterate_names(lambda text: find_substrings(text, start.encode(), self.work))))

    @ends_with_work
    def _iterate_names(self, places_in: Callable[[bytes], Iterable[int]]) -> Iterator[str]:
        """The names of defined symbols at some of these places of the string tables."""
        for table in self._symbol_tables(SHT_SYMTAB, SHT_DYNSYM):
            text = self._read_table(table)[2]
            letters = count_letters(text, self.path)
            for at in places_in(text):
                if self._at_name(table, at):
                    name = read_c_string(text, at)
                    letters.spend(len(name) >> LETTERS_SHIFT)
                    yield name

    @ends_with_work
    def every_symbol(self, exported: bool = False, types: Sequence[int] = ()) -> Iterator[Tuple[str, ElfSymbol]]:
        """Every defined symbol of .symtab. `exported`: and of .dynsym, which stripped files keep; what both have comes twice. `types`: of
        these alone."""
        order, word_bytes = self.header.order, self.header.word_bytes
        size = symbol_bytes(word_bytes)
        for table in self._symbol_tables(SHT_SYMTAB, *((SHT_DYNSYM,) if exported else ())):
            _, entries, text = self._read_table(table)
            letters = count_letters(text, self.path)
            for start in range(0, len(entries) // size * size, ENTRIES_AT_ONCE * size):
                self.work.spend(ENTRIES_AT_ONCE)
                count = 0
                end = min(start + ENTRIES_AT_ONCE * size, len(entries) // size * size)
                for name_at, symbol in defined_symbols(order, word_bytes, entries[start:end], types):
                    name = read_c_string(text, name_at)
                    count += len(name)
                    yield name, symbol
                letters.spend(count >> LETTERS_SHIFT)

    @ends_with_work
    def functions_at(self, value: int) -> Iterator[str]:
        """The names of functions that begin at this address of the file, by .symtab and .dynsym."""
        order, word_bytes = self.header.order, self.header.word_bytes
        size, wanted = symbol_bytes(word_bytes), struct.pack(order + ("Q" if word_bytes == 8 else "I"), value)
        for table in self._symbol_tables(SHT_SYMTAB, SHT_DYNSYM):
            _, entries, text = self._read_table(table)
            for number in sorted({at // size for at in find_substrings(entries, wanted, self.work)}):
                name_at, symbol = parse_symbol(order, word_bytes, entries[number * size : (number + 1) * size])
                if symbol.value == value and symbol.section and symbol.type == STT_FUNC:
                    yield read_c_string(text, name_at)

    def _symbol_tables(self, *types: int) -> List[ElfSection]:
        return [table for table in self.sections() if table.type in types][:MOST_SYMBOL_TABLES]

    def _read_table(self, table: ElfSection) -> Tuple[bytes, bytes, bytes]:
        """(offset of each symbol's name, the symbols, the string table)."""
        if table.offset not in self._tables:
            size = symbol_bytes(self.header.word_bytes)
            strings = self.sections()[table.link] if table.link < len(self.sections()) else table
            self.work.spend(table.size_bytes + strings.size_bytes >> READ_SHIFT)
            entries = self.pread_table(table.offset, table.size_bytes)
            words = array("I", entries[: len(entries) // size * size])
            if self.header.little_endian != (array("H", [1]).tobytes() == b"\1\0"):
                words.byteswap()
            self._tables[table.offset] = (words[:: size // 4].tobytes(), entries, self.pread_table(strings.offset, strings.size_bytes))
        return self._tables[table.offset]

    def _at_name(self, table: ElfSection, offset: int) -> List[ElfSymbol]:
        """The defined symbols whose name is at this offset of the string table; several may share one."""
        size, order, word_bytes = symbol_bytes(self.header.word_bytes), self.header.order, self.header.word_bytes
        names, entries, _ = self._read_table(table)
        self.work.spend(1 + (len(names) >> READ_SHIFT + 2))  # bytes.find passes over 4 KiB in a fraction of a step
        symbols = [
            parse_symbol(order, word_bytes, entries[place * size : (place + 1) * size])[1] for place in find_word_indexes(names, offset)
        ]
        return [symbol for symbol in symbols if symbol.section]


def find_substrings(text: bytes, what: bytes, work: WorkCounter) -> Iterator[int]:
    """Every offset at which `what` occurs in a string table; the linker lets a name share the tail of a longer one."""
    at = text.find(what)
    while at >= 0:
        work.spend()
        yield at
        at = text.find(what, at + 1)


def find_name_starts(text: bytes, at: int) -> Iterator[int]:
    """Yield the offsets at which a name that includes `at` may start: linkers let names share tails."""
    first = max(0, at - MOST_PREFIX_BYTES)
    yield from range(max(first, text.rfind(b"\0", first, at) + 1), at + 1)


def find_word_indexes(words: bytes, value: int) -> Iterator[int]:
    """Yield the indexes of `value` in an array of 32-bit words (array.index takes no start before Python 3.10)."""
    number = array("I", [value]).tobytes()
    at = words.find(number)
    while at >= 0:
        if at % 4 == 0:
            yield at // 4
        at = words.find(number, at + 1)


def count_letters(text: bytes, name: str) -> WorkCounter:
    """Counter of the letters of names that are made of a string table in one pass."""
    return WorkCounter(name, NAMES_SHARE * len(text) + FREE_NAMES_BYTES >> LETTERS_SHIFT)


def read_c_string(data: bytes, at: int, limit: int = MOST_NAME_BYTES) -> str:
    """The string that starts at `at`, or as much of it as a name can have."""
    end = data.find(b"\0", at, at + limit)
    return data[at : end if end >= 0 else at + limit].decode("utf-8", "replace")


def read_uleb(data: bytes, at: int) -> Tuple[int, int]:
    """An unsigned LEB128 number, and where it ends. ValueError where it is longer than such a number is, IndexError where it is cut."""
    value = data[at]
    if value < 0x80:
        return value, at + 1
    value &= 0x7F
    for place in range(1, MOST_ULEB_BYTES):
        byte = data[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number of more than %d bytes" % MOST_ULEB_BYTES)


def read_sleb(data: bytes, at: int) -> Tuple[int, int]:
    """Read a signed LEB128 number; return it and its end."""
    value, end = read_uleb(data, at)
    return (value - (1 << 7 * (end - at)) if data[end - 1] & 0x40 else value), end


def parse_auxv(header: ElfHeader, data: bytes) -> Dict[int, int]:
    """The auxiliary vector: type -> value."""
    form = header.order + ("QQ" if header.word_bytes == 8 else "II")
    size = 2 * header.word_bytes
    values: Dict[int, int] = {}
    for kind, value in struct.iter_unpack(form, data[: min(len(data), MOST_AUXV_BYTES) // size * size]):
        if kind == 0:
            break
        values[kind] = value
    return values


ThreadRegisters = Tuple[Optional[int], Optional[int], Optional[int]]
"""Program counter, stack pointer and thread pointer; None if this machine is not known or a set is missing."""


def decode_registers(header: ElfHeader, general: bytes, extra: bytes = b"") -> ThreadRegisters:
    """The registers from the general set and, where the machine has one, the set with the thread pointer."""
    layout = header.arch.registers
    if layout is None:
        return None, None, None
    letter = "Q" if layout.word_bytes == 8 else "I"
    words = struct.unpack_from("%s%d%s" % (header.order, len(general) // layout.word_bytes, letter), general)
    by_name = dict(zip(layout.names, words))
    pointer = by_name.get(layout.thread_pointer or "")
    if layout.pc not in by_name or layout.sp not in by_name or (layout.thread_pointer and pointer is None):
        return None, None, None
    if layout.read_pointer is not None:
        pointer = layout.read_pointer(by_name, extra, header.order)
    return by_name[layout.pc], by_name[layout.sp], pointer


def signature_bits(header: ElfHeader, mask: bytes) -> int:
    """Bits of a pointer to data that may be a signature, by the register set that has them; 0 where it has nothing."""
    return int.from_bytes(mask[: header.word_bytes], header.byte_order)


def split_register_words(header: ElfHeader, sets: Sequence[bytes]) -> List[int]:
    """Every word of some register sets, as a pointer of the program may be in any of them."""
    letter = "Q" if header.word_bytes == 8 else "I"
    return [word for data in sets for word in struct.unpack_from("%s%d%s" % (header.order, len(data) // header.word_bytes, letter), data)]
