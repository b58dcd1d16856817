"""The few registers that matter (stack, program counter, thread pointer), out of the kernel's register sets; cores and ptrace use the same
sets."""

import struct
from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.inferior.elf.file import Header

NT_PRSTATUS = 1


class Registers(NamedTuple):
    """What one thread's register sets say; None where this machine is not known or a set is missing."""

    pc: Optional[int]
    sp: Optional[int]
    thread_pointer: Optional[int]


def decode(header: Header, general: bytes, extra: bytes = b"") -> Registers:
    """The registers from the general set and, where the machine has one, the set that tells the thread pointer."""
    layout = header.arch.registers
    if layout is None:
        return Registers(None, None, None)
    letter = "Q" if layout.word_bytes == 8 else "I"
    words = struct.unpack_from("%s%d%s" % (header.order, len(general) // layout.word_bytes, letter), general)
    by_name = dict(zip(layout.names, words))
    pointer = by_name.get(layout.thread_pointer or "")
    if layout.pc not in by_name or layout.sp not in by_name or (layout.thread_pointer and pointer is None):
        return Registers(None, None, None)
    if layout.read_pointer is not None:
        pointer = layout.read_pointer(by_name, extra, header.order)
    return Registers(by_name[layout.pc], by_name[layout.sp], pointer)


def words_of(header: Header, sets: Sequence[bytes]) -> List[int]:
    """Every word of some register sets, as a pointer of the program may stand in any of them."""
    letter = "Q" if header.word_bytes == 8 else "I"
    return [word for data in sets for word in struct.unpack_from("%s%d%s" % (header.order, len(data) // header.word_bytes, letter), data)]
