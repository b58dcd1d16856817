"""Read an ELF file as it is laid out in memory: relocated pointers, vtables with their class names, code, and call frames.

Vtables are found by symbols and, in stripped files, by the type_infos that they point to (Itanium C++ ABI, 2.9). Call frames are those that
compilers leave for exceptions (.eh_frame, found through PT_GNU_EH_FRAME): DWARF 5, 6.4; LSB 5.0 core, 10.6; a machine's own numbers are in
arch/. Where a file has none of it, or writes it in a rare form, nothing is known. DWARF expressions (DWARF 5, 2.5) are evaluated as far as
call frames have them: for signal handlers' callers and the procedure linkage table.
"""

import struct
from bisect import bisect_left, bisect_right
from itertools import islice
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Set, Tuple

import gdbheapx.inferior.elf.file as elf
from gdbheapx.common.budget import READ_SHIFT, WorkCounter
from gdbheapx.inferior.arch import Architecture, Relocations, Unwinding
from gdbheapx.inferior.base import ClassVtable, ObjectCode, StackCall, StackCopy

MASK = (1 << 64) - 1
TWO: Dict[int, Callable[[int, int], int]] = {
    0x1A: lambda first, second: first & second,
    0x1C: lambda first, second: first - second,
    0x22: lambda first, second: first + second,
    0x24: lambda first, second: first << min(second, 64),
    0x2A: lambda first, second: int(first >= second),
}
"""DW_OP_and, minus, plus, shl, ge."""
PT_GNU_EH_FRAME = 0x6474E550
SIGNED = 0x2D
"""DW_CFA_AARCH64_negate_ra_state: from here on the return address is signed, or not any more. Its bits that are no address are dropped
in either case."""
PCREL4, DATAREL4, UDATA4 = 0x1B, 0x3B, 0x03
MOST_ENTRY_BYTES = 1 << 16
MOST_TABLE_BYTES = 32 << 20
"""Of .eh_frame_hdr: four million functions."""
MOST_REGISTERS = 128
"""DWARF's numbers of what is saved in a frame are below it on all machines of arch/."""
MOST_STATES = 64
"""That DW_CFA_remember_state keeps at a time: compilers nest one or two."""
SAVED, OTHER, EXPRESSION, VALUE, SAME = range(5)
Word = Callable[[int], Optional[int]]
Registers = Dict[int, int]
MOST_CALLS = 1000


def evaluate_expression(
    data: bytes, registers: Dict[int, int], word: Callable[[int], Optional[int]], first: Optional[int]
) -> Optional[int]:
    """Evaluate a DWARF expression; None if it needs unknown values. `first`: initial stack."""
    stack: List[int] = [] if first is None else [first]
    at = 0
    while at < len(data):
        code, at = data[at], at + 1
        value: Optional[int]
        if 0x30 <= code < 0x50:
            value = code - 0x30
        elif 0x70 <= code < 0x90:
            offset, at = elf.read_sleb(data, at)
            value = registers[code - 0x70] + offset if code - 0x70 in registers else None
        elif code in TWO and len(stack) > 1:
            two, operand = stack.pop(), stack.pop()
            value = TWO[code](operand, two)
        elif code == 0x06 and stack:
            value = word(stack.pop())
        elif code == 0x23 and stack:
            offset, at = elf.read_uleb(data, at)
            value = stack.pop() + offset
        elif code in (0x08, 0x09):
            value, at = data[at] - (256 if code == 0x09 and data[at] > 127 else 0), at + 1
        else:
            return None
        if value is None:
            return None
        stack.append(value & MASK)
    return stack[-1] if stack else None


class UnwindRow:
    """Rules that lead from a frame to its caller, as the instructions of its entries (DW_CFA_*) give them."""

    def __init__(self, code_align: int, data_align: int, is_signal: bool) -> None:
        self._code_align, self._data_align = code_align, data_align
        self.is_signal = is_signal
        """The frame was interrupted, not left by a call."""
        self.register: Optional[int] = None
        """The frame's end is this register and `offset`; None: `expression` gives it."""
        self.offset = 0
        self.expression = b""
        self.rules: Dict[int, Tuple[int, int, bytes]] = {}
        """Register -> (how it was saved, number, expression)."""
        self.first: Dict[int, Tuple[int, int, bytes]] = {}
        """Those of the common entry, to which a register may be restored."""
        self._kept: List[Tuple[Optional[int], int, bytes, Dict[int, Tuple[int, int, bytes]]]] = []

    def run(self, data: bytes, until: Optional[int]) -> None:
        """Execute instructions up to an offset from the function's start."""
        at = here = 0
        while at < len(data):
            code = data[at]
            at += 1
            if code >> 6 == 1 or code in (2, 3, 4):
                size = {2: 1, 3: 2, 4: 4}.get(code, 0)
                here += (int.from_bytes(data[at : at + size], "little") if size else code & 63) * self._code_align
                at += size
                if until is not None and here > until:
                    return
            elif code >> 6 == 2:
                offset, at = elf.read_uleb(data, at)
                self._set_rule(code & 63, SAVED, offset * self._data_align)
            elif code >> 6 == 3:
                self._restore_register(code & 63)
            else:
                at = self._run_other_instruction(code, data, at)

    def _restore_register(self, register: int) -> None:
        self.rules.pop(register, None)
        if register in self.first:
            self.rules[register] = self.first[register]

    def _set_rule(self, register: int, how: int, number: int, expression: bytes = b"") -> None:
        if register >= MOST_REGISTERS:
            raise ValueError(register)
        self.rules[register] = (how, number, expression)

    def _run_other_instruction(self, code: int, data: bytes, at: int) -> int:
        align = self._data_align
        if code in (0, SIGNED):
            return at
        if code == 0x0A:
            if len(self._kept) >= MOST_STATES:
                raise ValueError(code)
            self._kept.append((self.register, self.offset, self.expression, dict(self.rules)))
            return at
        if code == 0x0B:
            self.register, self.offset, self.expression, self.rules = self._kept.pop()
            return at
        operand, after = elf.read_uleb(data, at)
        if code == 0x0E:
            self.offset = operand
        elif code == 0x0F:
            self.register, self.expression, after = None, data[after : after + operand], after + operand
        elif code == 0x0D:
            self.register = operand
        elif code == 0x06:
            self._restore_register(operand)
        elif code in (0x07, 0x08):
            self._set_rule(operand, SAME if code == 0x08 else OTHER, -1)
        elif code == 0x13:
            self.offset = elf.read_sleb(data, at)[0] * align
        elif code in (0x10, 0x16):
            size, after = elf.read_uleb(data, after)
            self._set_rule(operand, EXPRESSION if code == 0x10 else VALUE, 0, data[after : after + size])
            after += size
        elif code in (0x05, 0x09, 0x0C):
            two, after = elf.read_uleb(data, after)
            if code == 0x0C:
                self.register, self.offset = operand, two
            else:
                self._set_rule(operand, *((SAVED, two * align) if code == 0x05 else (OTHER, two)))
        elif code in (0x11, 0x12):
            two, after = elf.read_sleb(data, after)
            if code == 0x12:
                self.register, self.offset = operand, two * align
            else:
                self._set_rule(operand, SAVED, two * align)
        elif code != 0x2E:
            raise ValueError(code)
        return after


class CallFrames:
    """.eh_frame of a file."""

    def __init__(self, file: elf.ElfFile) -> None:
        self._file, numbers = file, file.header.arch.unwinding
        self._return = None if numbers is None else numbers.pc if numbers.returns is None else numbers.returns
        headers = file.program_headers()
        self._loads = [header for header in headers if header.type == elf.PT_LOAD]
        self._table: List[Tuple[int, int]] = []
        entry = next((header for header in headers if header.type == PT_GNU_EH_FRAME), None)
        if entry is not None and numbers is not None and file.header.word_bytes == 8 and file.header.little_endian:
            data = file.pread_table(entry.offset, min(entry.filesz, MOST_TABLE_BYTES))
            if len(data) >= 12 and data[0] == 1 and tuple(data[1:4]) == (PCREL4, UDATA4, DATAREL4):
                count = struct.unpack_from("<I", data, 8)[0]
                file.work.spend(min(count, len(data) // 8))
                rows = struct.iter_unpack("<ii", data[12 : 12 + 8 * count][: (len(data) - 12) // 8 * 8])
                self._table = [(entry.vaddr + start, entry.vaddr + place) for start, place in rows]

    def functions(self) -> List[Tuple[int, int]]:
        """(begin, end) of all that has call frames, sorted; the end is the next one's begin where its own entry cannot be read. The last
        ends with its segment."""
        ranges = []
        for place, (start, entry) in enumerate(self._table):
            self._file.work.spend()
            ends = (load.vaddr + load.filesz for load in self._loads if load.vaddr <= start < load.vaddr + load.filesz)
            following = self._table[place + 1][0] if place + 1 < len(self._table) else next(ends, start)
            data = self._file.at(entry + 4, 12)
            size = int.from_bytes(data[8:12], "little") if len(data) == 12 else 0
            ranges.append((start, start + size if size and start + size <= following else following))
        return ranges

    def _read_sized_bytes(self, address: int) -> bytes:
        """A length and so many bytes after it."""
        data = self._file.at(address, 4)
        size = int.from_bytes(data, "little") if len(data) == 4 else 0
        return self._file.at(address + 4, size) if size <= MOST_ENTRY_BYTES else b""

    def row(self, address: int) -> Optional[UnwindRow]:
        """Return the unwind row for an address in the file."""
        following = bisect_right(self._table, (address, 1 << 64))
        try:
            return self._run_entry(address, self._table[following - 1][1]) if following else None
        except (IndexError, struct.error, ValueError):  # cut off, or of a form that is not read
            return None

    def _run_entry(self, address: int, place: int) -> Optional[UnwindRow]:
        data = self._read_sized_bytes(place)
        common = self._read_common_entry(place + 4 - struct.unpack_from("<i", data)[0])
        if common is None:
            return None
        row, program, has_size = common
        start, size = struct.unpack_from("<iI", data, 4)
        start += place + 8
        if not start <= address < start + size:
            return None
        at = 12
        if has_size:
            length, at = elf.read_uleb(data, at)
            at += length
        self._file.work.spend(len(program) + len(data))
        row.run(program, None)
        row.first = dict(row.rules)
        row.run(data[at:], address - start)
        return row

    def _read_common_entry(self, address: int) -> Optional[Tuple[UnwindRow, bytes, bool]]:
        """Return a row, the instructions of a common information entry (CIE), and whether entries have a size before theirs."""
        data = self._read_sized_bytes(address)
        end = data.index(b"\0", 5)
        words, at = data[5:end].decode("ascii"), end + 1
        code, at = elf.read_uleb(data, at)
        align, at = elf.read_sleb(data, at)
        returns, at = (data[at], at + 1) if data[4] == 1 else elf.read_uleb(data, at)
        if returns != self._return or (words and not words.startswith("z")):
            return None
        encoding, program = 0, at
        if words:
            length, at = elf.read_uleb(data, at)
            program = at + length
        for letter in words[1:]:
            if letter == "R":
                encoding, at = data[at], at + 1
            elif letter == "P":
                if data[at] & 0x0F not in (0x03, 0x0B):
                    return None
                at += 5
            elif letter == "L":
                at += 1
        return (UnwindRow(code, align, "S" in words), data[program:], bool(words)) if encoding == PCREL4 else None


def unwind_caller(row: UnwindRow, registers: Registers, word: Word, numbers: Unwinding) -> Optional[Registers]:
    """The registers of the caller; its stack pointer is the frame's end. Without a return address there is no caller."""
    if row.register is None:
        end = evaluate_expression(row.expression, registers, word, None)
    else:
        end = registers[row.register] + row.offset if row.register in registers else None
    if end is None:
        return None
    of_caller = {number: value for number, value in registers.items() if number in numbers.kept}
    for register, (how, number, expression) in row.rules.items():
        value: Optional[int] = None
        if how == SAVED:
            value = word(end + number)
        elif how == OTHER:
            value = registers.get(number)
        elif how == SAME:
            value = registers.get(register)
        else:
            value = evaluate_expression(expression, registers, word, end)
            value = word(value) if how == EXPRESSION and value is not None else value
        of_caller.pop(register, None)
        if value is not None:
            of_caller[register] = value
    of_caller.setdefault(numbers.sp, end)
    if numbers.returns is not None:
        back = of_caller.pop(numbers.returns, None) if numbers.returns in row.rules else registers.get(numbers.returns)
        if back is not None:
            of_caller[numbers.pc] = back
    return of_caller


RowOf = Callable[[int], Optional[UnwindRow]]
"""What the file has that lies at an address."""


def walk_calls(copy: StackCopy, row_of: RowOf, arch: Architecture) -> List[StackCall]:
    """Return the calls on a copied stack, innermost first, as far as files have unwind rows."""
    calls: List[StackCall] = []
    numbers = arch.unwinding
    if numbers is None or arch.registers is None:
        return calls

    def read_stack_word(address: int) -> Optional[int]:
        at = address - copy.pointer
        return int.from_bytes(copy.data[at : at + 8], "little") if 0 <= at <= len(copy.data) - 8 else None

    # only pc and stack pointer are known if the words are not in the kernel's order
    order, now, is_return = arch.registers.names, {numbers.sp: copy.pointer, numbers.pc: copy.pc}, False
    if len(copy.words) >= len(order):
        by_number = {number: copy.words[order.index(name)] for number, name in enumerate(numbers.names)}
        now = by_number if (by_number[numbers.sp], by_number[numbers.pc]) == (copy.pointer, copy.pc) else now
    while len(calls) < MOST_CALLS and now.get(numbers.pc):
        pc, pointer = now[numbers.pc], now[numbers.sp]
        row = row_of(pc - is_return)
        after = unwind_caller(row, now, read_stack_word, numbers) if row is not None else None
        if row is None or after is None or after[numbers.sp] <= pointer:
            break
        calls.append(StackCall(pointer, after[numbers.sp], pc, is_return))
        if numbers.pc in after:
            after[numbers.pc] &= arch.return_mask
        now, is_return = after, not row.is_signal
    return calls


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


class ElfImage:
    """The loaded parts of one file."""

    def __init__(self, file: elf.ElfFile) -> None:
        self.file = file
        self.word_bytes = file.header.word_bytes
        self._loads: List[elf.ProgramHeader] = [header for header in file.program_headers() if header.type == elf.PT_LOAD]
        self._letters = WorkCounter(file.path, MOST_NAMES_BYTES >> elf.LETTERS_SHIFT)
        self._piece = (0, b"")
        """Where the last part of a sorted list of words was read, and what it was."""
        self._is_wide = self.word_bytes == 8
        self._dynamic: Dict[int, int] = {}
        form = file.header.order + ("qQ" if self._is_wide else "iI")
        for entry in file.program_headers():
            data = file.pread(entry.offset, min(entry.filesz, 1 << 16)) if entry.type == elf.PT_DYNAMIC else b""
            for tag, value in struct.iter_unpack(form, data[: len(data) // (2 * self.word_bytes) * 2 * self.word_bytes]):
                if tag == 0:
                    break
                self._dynamic.setdefault(tag, value)
        self._names: Dict[int, Tuple[str, elf.ElfSymbol]] = {}
        self.own: Dict[int, int] = {}
        """Where the dynamic linker writes a pointer to this object, and to what address."""
        self.imported: Dict[int, Tuple[str, int]] = {}
        """Where it writes one to another object: name and addend."""
        self._apply_relocations()

    def read(self, address: int, size_bytes: int) -> bytes:
        """Return the file's bytes for these addresses; shorter where they end."""
        self.file.work.spend(1 + (size_bytes >> READ_SHIFT))
        return self.file.at(address, size_bytes)

    def number(self, address: int) -> Optional[int]:
        """The signed word in the file; None where it has none."""
        data = self.read(address, self.word_bytes)
        return int.from_bytes(data, self.file.header.byte_order, signed=True) if len(data) == self.word_bytes else None

    def pointer(self, address: int) -> Optional[int]:
        """The address of this object that is there in memory; None where it is another object's, or none."""
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
        self._letters.spend(len(text) >> elf.LETTERS_SHIFT)
        return text if end else None

    def words_in(self, values: Set[int]) -> List[int]:
        """Every place of data where a pointer to one of these addresses of this object is."""
        places = {place for place, value in self.own.items() if value in values}
        if self.file.header.type == 2:  # ET_EXEC: what it says of itself needs no relocation
            for start, data in self._iterate_data():
                form = "%s%d%s" % (self.file.header.order, len(data) // self.word_bytes, "Q" if self._is_wide else "I")
                words = struct.unpack_from(form, data)
                places.update(start + self.word_bytes * at for at, word in enumerate(words) if word in values)
        return sorted(place for place in places if place not in self.imported)

    def _iterate_data(self) -> Iterator[Tuple[int, bytes]]:
        """(address, bytes) of what is no code, in pieces of whole words."""
        sections = [section for section in self.file.sections() if section.flags & 4 and section.address]
        code = [(section.address, section.address + section.size_bytes) for section in sections]
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
        """Every address where this string starts, after the end of another."""
        addresses, pattern = [], b"\0" + text + b"\0"
        for load in self._loads:
            for start in range(0, min(load.filesz, MOST_BYTES), PIECE_BYTES):
                data = self.read(load.vaddr + start, PIECE_BYTES + len(pattern))
                at = data.find(pattern)
                while 0 <= at < PIECE_BYTES:
                    addresses.append(load.vaddr + start + at + 1)
                    at = data.find(pattern, at + 1)
        return sorted(set(addresses))

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
                self.imported[place] = (name, plus)

    def symbol(self, number: int) -> Tuple[str, elf.ElfSymbol]:
        """An entry of .dynsym."""
        if number not in self._names:
            size = elf.symbol_bytes(self.word_bytes)
            data = self.read(self._dynamic.get(DT_SYMTAB, 0) + number * size, size)
            name, symbol = elf.parse_symbol(self.file.header.order, self.word_bytes, data.ljust(size, b"\0"))
            text = self.read(self._dynamic.get(DT_STRTAB, 0) + name, 256)
            if b"\0" not in text:
                text = self.read(self._dynamic.get(DT_STRTAB, 0) + name, MOST_TEXT_BYTES)
            self._names[number] = (elf.read_c_string(text, 0), symbol)
            self._letters.spend(len(self._names[number][0]) >> elf.LETTERS_SHIFT)
        return self._names[number]

    def _iterate_relr(self) -> Iterator[int]:
        """The places that DT_RELR packs: an even word is an address, an odd one a bitmap of the words after it."""
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


def find_raw_vtables(file: elf.ElfFile, with_symbols: Sequence[elf.ElfFile] = ()) -> Dict[int, ClassVtable]:
    """Address point in the file -> vtable. `with_symbols`: files that may have symbols for it, such as its debug file."""
    image = ElfImage(file)
    known = list(_find_vtable_symbols([file, *with_symbols]))
    infos = _find_type_infos(image, _find_kinds(image, known))
    by_address = dict(_with_type_info(image, infos, [(start, end) for start, end, _ in known]))
    word = image.word_bytes
    points = sorted(by_address)
    for start, end, name in known:
        is_plain = not (image.number(start) or image.number(start + word) or image.is_relocated(start + word))
        number = bisect_left(points, start)
        has_point = number < len(points) and points[number] <= end
        if is_plain and not has_point:  # without RTTI, or a copy of another object's (R_..._COPY)
            by_address.setdefault(start + 2 * word, (name, 0))
    return dict(sorted(by_address.items())[:MOST_VTABLES])


def _find_vtable_symbols(files: Sequence[elf.ElfFile]) -> Iterator[Tuple[int, int, str]]:
    """(start, end, mangled class name) of every vtable that has a symbol."""
    met: Set[Tuple[int, int]] = set()
    for file in files:
        for name, symbol in file.every_symbol(True, (elf.STT_OBJECT,)):
            place = (symbol.value, symbol.value + symbol.size_bytes)
            if name.startswith(VTABLE) and symbol.size_bytes and place not in met:
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


def _find_type_infos(image: ElfImage, kinds: Dict[int, str]) -> Dict[int, Tuple[str, str]]:
    """Return (mangled name, one of KINDS) of every type_info of a class, by its address."""
    word = image.word_bytes
    by_symbol = {VTABLE + kind: kind for kind in KINDS}
    places = [(place, kinds[image.pointer(place) or 0]) for place in image.words_in(set(kinds))] if kinds else []
    places += [(place, by_symbol[name]) for place, (name, addend) in image.imported.items() if name in by_symbol and addend == 2 * word]
    infos = {}
    for place, kind in places:
        at = image.pointer(place + word)
        text = image.text(at) if at else None
        mangled = parse_type_name(text + b"\0") if text else None
        if mangled:
            infos[place] = (mangled, kind)
    return infos


def parse_type_name(data: bytes) -> Optional[str]:
    """The mangled name that these bytes begin with, as a type_info points to it; None if it is none, or has no end."""
    text, end, _ = data.partition(b"\0")
    if not end or not text or len(text) > MOST_NAME_BYTES or not all(32 < byte < 127 for byte in text):
        return None
    return text.decode("ascii").lstrip("*")  # `*`: two of this name may be two classes


def _with_type_info(
    image: ElfImage, infos: Dict[int, Tuple[str, str]], symbols: List[Tuple[int, int]]
) -> Iterator[Tuple[int, ClassVtable]]:
    """(address point, vtable) of every place that points to a type_info and is no part of one."""
    word = image.word_bytes
    inside = _find_base_places(image, infos)
    starts = sorted(symbols)
    named = [(place, infos[image.pointer(place) or 0][0]) for place in image.words_in(set(infos))] if infos else []
    others = [(place, name) for place, (name, addend) in image.imported.items() if name.startswith(TYPE_INFO) and not addend]
    named += [(place, name[len(TYPE_INFO) :]) for place, name in others]
    for place, name in named:
        distance = image.number(place - word)
        if place in inside or distance is None or image.is_relocated(place - word) or distance % word or not -MOST_DISTANCE < distance <= 0:
            continue
        number = bisect_right(starts, (place, 1 << 64)) - 1
        has_symbol = number >= 0 and place < starts[number][1]
        if has_symbol or _has_code(image, place + word):
            yield place + word, (name, -distance)


def _find_base_places(image: ElfImage, infos: Dict[int, Tuple[str, str]]) -> Set[int]:
    """The places inside type_infos that lead to those of their bases."""
    word = image.word_bytes
    bases: Set[int] = set()
    for start, (_, kind) in infos.items():
        first = start + 2 * word
        if kind == KINDS[1]:
            bases.add(first)
        elif kind == KINDS[2]:  # unsigned flags, count; then a pointer and a word for each base
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


DT_PLTRELSZ, DT_JMPREL = 2, 23
MOST_CODE_BYTES = 512 << 20


def read_code(file: elf.ElfFile) -> Optional[ObjectCode]:
    """Read an object's code with its functions and call slots; None for a machine whose code is not read."""
    header = file.header
    if header.arch.relocations is None or header.word_bytes != 8 or not header.little_endian:
        return None
    image, left, parts = ElfImage(file), MOST_CODE_BYTES, []
    for segment in file.program_headers():
        if segment.type == elf.PT_LOAD and segment.executable:
            data = file.pread(segment.offset, min(segment.filesz, left))
            left -= len(data)
            parts.append((segment.vaddr, data))
    slots: Dict[int, str] = {place: name for place, (name, addend) in image.imported.items() if not addend}
    pointers = dict(image.own)
    for table in ((DT_RELA, DT_RELASZ), (DT_JMPREL, DT_PLTRELSZ)):
        for place, info, addend in image.table(*table, header.order + "QQq"):
            if info & 0xFFFFFFFF in header.arch.relocations.slots:
                name, symbol = image.symbol(info >> 32)
                slots[place] = name
                if symbol.section:
                    pointers[place] = symbol.value + addend
    return ObjectCode(header.arch, parts, CallFrames(file).functions(), slots, pointers)
