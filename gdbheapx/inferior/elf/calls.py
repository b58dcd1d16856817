"""Walks from the innermost call of a thread to the outermost: through its stack as it was, by the call frames of files."""

from typing import Callable, Dict, List, Optional, Sequence

from gdbheapx.inferior.base import Call, StackCopy
from gdbheapx.inferior.elf import unwind

MOST_CALLS = 1000

RowOf = Callable[[int], Optional[unwind.Row]]
"""What the file has that lies at an address."""


def registers(words: Sequence[int], pointer: int, pc: int) -> Dict[int, int]:
    """By DWARF's numbers; only the two where the words are not in the kernel's order."""
    places = unwind.USER_REGISTERS
    if len(words) > max(places.values()) and (words[places[unwind.STACK]], words[places[unwind.RETURN]]) == (pointer, pc):
        return {number: words[place] for number, place in places.items()}
    return {unwind.STACK: pointer, unwind.RETURN: pc}


def walk(copy: StackCopy, row_of: RowOf) -> List[Call]:
    """As far as the files tell."""
    found: List[Call] = []

    def word(address: int) -> Optional[int]:
        at = address - copy.pointer
        return int.from_bytes(copy.data[at : at + 8], "little") if 0 <= at <= len(copy.data) - 8 else None

    now, is_return = registers(copy.words, copy.pointer, copy.pc), False
    while len(found) < MOST_CALLS and now.get(unwind.RETURN):
        pc, pointer = now[unwind.RETURN], now[unwind.STACK]
        row = row_of(pc - is_return)
        after = unwind.caller(row, now, word) if row is not None else None
        if row is None or after is None or after[unwind.STACK] <= pointer:
            break
        found.append(Call(pointer, after[unwind.STACK], pc, is_return))
        now, is_return = after, not row.is_signal
    return found
