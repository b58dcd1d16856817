"""Walks from the innermost call of a thread to the outermost: through its stack as it was, by the call frames of files."""

from typing import Callable, Dict, List, Optional, Sequence

from gdbheapx.arch import Architecture, Unwinding
from gdbheapx.inferior.base import Call, StackCopy
from gdbheapx.inferior.elf import unwind

MOST_CALLS = 1000

RowOf = Callable[[int], Optional[unwind.UnwindRow]]
"""What the file has that lies at an address."""


def registers(words: Sequence[int], order: Sequence[str], numbers: Unwinding, pointer: int, pc: int) -> Dict[int, int]:
    """By DWARF's numbers; only the two where the words are not in the kernel's order."""
    if len(words) >= len(order):
        by_number = {number: words[order.index(name)] for number, name in enumerate(numbers.names)}
        if (by_number[numbers.sp], by_number[numbers.pc]) == (pointer, pc):
            return by_number
    return {numbers.sp: pointer, numbers.pc: pc}


def walk(copy: StackCopy, row_of: RowOf, arch: Architecture) -> List[Call]:
    """As far as the files tell."""
    found: List[Call] = []
    numbers = arch.unwinding
    if numbers is None or arch.registers is None:
        return found

    def word(address: int) -> Optional[int]:
        at = address - copy.pointer
        return int.from_bytes(copy.data[at : at + 8], "little") if 0 <= at <= len(copy.data) - 8 else None

    now, is_return = registers(copy.words, arch.registers.names, numbers, copy.pointer, copy.pc), False
    while len(found) < MOST_CALLS and now.get(numbers.pc):
        pc, pointer = now[numbers.pc], now[numbers.sp]
        row = row_of(pc - is_return)
        after = unwind.caller(row, now, word, numbers) if row is not None else None
        if row is None or after is None or after[numbers.sp] <= pointer:
            break
        found.append(Call(pointer, after[numbers.sp], pc, is_return))
        now, is_return = after, not row.is_signal
    return found
