"""Call frames by what compilers leave for exceptions (.eh_frame, found through PT_GNU_EH_FRAME), from files alone.

DWARF 5, 6.4; LSB 5.0 core, 10.6; a machine's own numbers are in arch/. Where a file has none of it, or
writes it in a rare form, nothing is known.

Walks from the innermost call of a thread to the outermost: through its stack as it was, by the call frames of files.

DWARF expressions (DWARF 5, 2.5), as far as call frames have them: of signal handlers' callers, and of the procedure linkage table.
"""

import struct
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.arch import Architecture, Unwinding
from gdbheapx.inferior.base import StackCall, StackCopy
from gdbheapx.inferior.elf.file import PT_LOAD, ElfFile, read_sleb, read_uleb

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
            offset, at = read_sleb(data, at)
            value = registers[code - 0x70] + offset if code - 0x70 in registers else None
        elif code in TWO and len(stack) > 1:
            two, operand = stack.pop(), stack.pop()
            value = TWO[code](operand, two)
        elif code == 0x06 and stack:
            value = word(stack.pop())
        elif code == 0x23 and stack:
            offset, at = read_uleb(data, at)
            value = stack.pop() + offset
        elif code in (0x08, 0x09):
            value, at = data[at] - (256 if code == 0x09 and data[at] > 127 else 0), at + 1
        else:
            return None
        if value is None:
            return None
        stack.append(value & MASK)
    return stack[-1] if stack else None


class FrameCommon(NamedTuple):
    """A common information entry (CIE)."""

    code_align: int
    data_align: int
    encoding: int
    is_signal: bool
    has_size: bool
    program: bytes


class UnwindRow(NamedTuple):
    """Rules that lead from a frame to its caller."""

    register: Optional[int]
    """The frame's end is this register and `offset`; None: `expression` tells it."""
    offset: int
    expression: bytes
    rules: Dict[int, Tuple[int, int, bytes]]
    """Register -> (how it was saved, number, expression)."""
    is_signal: bool
    """The frame was interrupted, not left by a call."""


class CallFrames:
    """.eh_frame of a file."""

    def __init__(self, file: ElfFile) -> None:
        self._file, numbers = file, file.header.arch.unwinding
        self._return = None if numbers is None else numbers.pc if numbers.returns is None else numbers.returns
        headers = file.program_headers()
        self._loads = [header for header in headers if header.type == PT_LOAD]
        self._table: List[Tuple[int, int]] = []
        entry = next((header for header in headers if header.type == PT_GNU_EH_FRAME), None)
        if entry is not None and numbers is not None and file.header.word_bytes == 8 and file.header.little_endian:
            self._read_table(entry.vaddr, file.pread_table(entry.offset, min(entry.filesz, MOST_TABLE_BYTES)))

    def _read_table(self, address: int, data: bytes) -> None:
        if len(data) >= 12 and data[0] == 1 and tuple(data[1:4]) == (PCREL4, UDATA4, DATAREL4):
            count = struct.unpack_from("<I", data, 8)[0]
            self._file.work.spend(min(count, len(data) // 8))
            rows = struct.iter_unpack("<ii", data[12 : 12 + 8 * count][: (len(data) - 12) // 8 * 8])
            self._table = [(address + start, address + entry) for start, entry in rows]

    def functions(self) -> List[Tuple[int, int]]:
        """(begin, end) of all that has call frames, sorted; the end is the next one's begin where its own entry cannot be read. Behind
        the last its segment ends."""
        ranges = []
        for place, (start, entry) in enumerate(self._table):
            self._file.work.spend()
            following = self._table[place + 1][0] if place + 1 < len(self._table) else self._end_of_load(start)
            data = self._read_loaded(entry + 4, 12)
            size = int.from_bytes(data[8:12], "little") if len(data) == 12 else 0
            ranges.append((start, start + size if size and start + size <= following else following))
        return ranges

    def _end_of_load(self, address: int) -> int:
        return next((load.vaddr + load.filesz for load in self._loads if load.vaddr <= address < load.vaddr + load.filesz), address)

    def _read_sized_bytes(self, address: int) -> bytes:
        """A length and so many bytes behind it."""
        data = self._read_loaded(address, 4)
        size = int.from_bytes(data, "little") if len(data) == 4 else 0
        return self._read_loaded(address + 4, size) if size <= MOST_ENTRY_BYTES else b""

    def _read_loaded(self, address: int, size_bytes: int) -> bytes:
        load = next((segment for segment in self._loads if segment.vaddr <= address < segment.vaddr + segment.filesz), None)
        return b"" if load is None else self._file.pread(load.offset + address - load.vaddr, size_bytes)

    def row(self, address: int) -> Optional[UnwindRow]:
        """Return the unwind row for an address in the file."""
        try:
            return self._find_row(address)
        except (IndexError, struct.error, ValueError):  # cut off, or of a form that is not read
            return None

    def _find_row(self, address: int) -> Optional[UnwindRow]:
        low, high = 0, len(self._table)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._table[middle][0] <= address else (low, middle)
        if not low:
            return None
        place = self._table[low - 1][1]
        data = self._read_sized_bytes(place)
        common = self._read_common_entry(place + 4 - struct.unpack_from("<i", data)[0])
        if common is None or common.encoding != PCREL4:
            return None
        start, size = struct.unpack_from("<iI", data, 4)
        start += place + 8
        if not start <= address < start + size:
            return None
        at = 12
        if common.has_size:
            length, at = read_uleb(data, at)
            at += length
        self._file.work.spend(len(common.program) + len(data))
        machine = CfaMachine(common)
        machine.run(common.program, None)
        machine.first = dict(machine.rules)
        machine.run(data[at:], address - start)
        return UnwindRow(machine.register, machine.offset, machine.expression, machine.rules, common.is_signal)

    def _read_common_entry(self, address: int) -> Optional[FrameCommon]:
        data = self._read_sized_bytes(address)
        end = data.index(b"\0", 5)
        words, at = data[5:end].decode("ascii"), end + 1
        code, at = read_uleb(data, at)
        align, at = read_sleb(data, at)
        returns, at = (data[at], at + 1) if data[4] == 1 else read_uleb(data, at)
        if returns != self._return or (words and not words.startswith("z")):
            return None
        encoding, program = 0, at
        if words:
            length, at = read_uleb(data, at)
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
        return FrameCommon(code, align, encoding, "S" in words, bool(words), data[program:])


class CfaMachine:
    """Interpreter of an entry's instructions (DW_CFA_*)."""

    def __init__(self, common: FrameCommon) -> None:
        self._common = common
        self.register: Optional[int] = None
        self.offset = 0
        self.expression = b""
        self.rules: Dict[int, Tuple[int, int, bytes]] = {}
        self.first: Dict[int, Tuple[int, int, bytes]] = {}
        self._kept: List[Tuple[Optional[int], int, bytes, Dict[int, Tuple[int, int, bytes]]]] = []

    def run(self, data: bytes, until: Optional[int]) -> None:
        """Execute instructions up to an offset from the function's start."""
        at = here = 0
        while at < len(data):
            code = data[at]
            at += 1
            if code >> 6 == 1 or code in (2, 3, 4):
                size = {2: 1, 3: 2, 4: 4}.get(code, 0)
                here += (int.from_bytes(data[at : at + size], "little") if size else code & 63) * self._common.code_align
                at += size
                if until is not None and here > until:
                    return
            elif code >> 6 == 2:
                offset, at = read_uleb(data, at)
                self._set_rule(code & 63, SAVED, offset * self._common.data_align)
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
        align = self._common.data_align
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
        operand, after = read_uleb(data, at)
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
            self.offset = read_sleb(data, at)[0] * align
        elif code in (0x10, 0x16):
            size, after = read_uleb(data, after)
            self._set_rule(operand, EXPRESSION if code == 0x10 else VALUE, 0, data[after : after + size])
            after += size
        elif code in (0x05, 0x09, 0x0C):
            two, after = read_uleb(data, after)
            if code == 0x0C:
                self.register, self.offset = operand, two
            else:
                self._set_rule(operand, *((SAVED, two * align) if code == 0x05 else (OTHER, two)))
        elif code in (0x11, 0x12):
            two, after = read_sleb(data, after)
            if code == 0x12:
                self.register, self.offset = operand, two * align
            else:
                self._set_rule(operand, SAVED, two * align)
        elif code != 0x2E:
            raise ValueError(code)
        return after


def unwind_caller(row: UnwindRow, registers: Registers, word: Word, numbers: Unwinding) -> Optional[Registers]:
    """The registers of the caller; its stack pointer is the frame's end. Without a return address nobody has called."""
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


def map_call_registers(words: Sequence[int], order: Sequence[str], numbers: Unwinding, pointer: int, pc: int) -> Dict[int, int]:
    """Number registers as DWARF does; only pc and stack pointer if the words are not in the kernel's order."""
    if len(words) >= len(order):
        by_number = {number: words[order.index(name)] for number, name in enumerate(numbers.names)}
        if (by_number[numbers.sp], by_number[numbers.pc]) == (pointer, pc):
            return by_number
    return {numbers.sp: pointer, numbers.pc: pc}


def walk_calls(copy: StackCopy, row_of: RowOf, arch: Architecture) -> List[StackCall]:
    """Return the calls on a copied stack, innermost first, as far as files have unwind rows."""
    calls: List[StackCall] = []
    numbers = arch.unwinding
    if numbers is None or arch.registers is None:
        return calls

    def read_stack_word(address: int) -> Optional[int]:
        at = address - copy.pointer
        return int.from_bytes(copy.data[at : at + 8], "little") if 0 <= at <= len(copy.data) - 8 else None

    now, is_return = map_call_registers(copy.words, arch.registers.names, numbers, copy.pointer, copy.pc), False
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
