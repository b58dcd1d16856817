"""DWARF expressions (DWARF 5, 2.5), as far as call frames have them: of signal handlers' callers, and of the procedure linkage table."""

from typing import Callable, Dict, List, Optional, Tuple

MASK = (1 << 64) - 1


def unsigned(data: bytes, at: int) -> Tuple[int, int]:
    """A LEB128 number, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def signed(data: bytes, at: int) -> Tuple[int, int]:
    """The same with a sign."""
    value, end = unsigned(data, at)
    bits = 7 * (end - at)
    return value - (1 << bits) if value >> (bits - 1) else value, end


TWO: Dict[int, Callable[[int, int], int]] = {
    0x1A: lambda one, two: one & two,
    0x1C: lambda one, two: one - two,
    0x22: lambda one, two: one + two,
    0x24: lambda one, two: one << min(two, 64),
    0x2A: lambda one, two: int(one >= two),
}
"""DW_OP_and, minus, plus, shl, ge."""


def evaluated(data: bytes, registers: Dict[int, int], word: Callable[[int], Optional[int]], first: Optional[int]) -> Optional[int]:
    """What the expression comes to; None where it needs what is not known. `first`: what lies on its stack at first."""
    stack: List[int] = [] if first is None else [first]
    at = 0
    while at < len(data):
        code, at = data[at], at + 1
        value: Optional[int]
        if 0x30 <= code < 0x50:
            value = code - 0x30
        elif 0x70 <= code < 0x90:
            offset, at = signed(data, at)
            value = registers[code - 0x70] + offset if code - 0x70 in registers else None
        elif code in TWO and len(stack) > 1:
            two, one = stack.pop(), stack.pop()
            value = TWO[code](one, two)
        elif code == 0x06 and stack:
            value = word(stack.pop())
        elif code == 0x23 and stack:
            offset, at = unsigned(data, at)
            value = stack.pop() + offset
        elif code in (0x08, 0x09):
            value, at = data[at] - (256 if code == 0x09 and data[at] > 127 else 0), at + 1
        else:
            return None
        if value is None:
            return None
        stack.append(value & MASK)
    return stack[-1] if stack else None
