"""The few registers that matter (stack, program counter, thread pointer), out of the kernel's register sets; cores and ptrace use the same
sets."""

import struct
from typing import List, NamedTuple, Optional, Sequence

from gdbheapx.inferior.elf.file import EM_386, EM_AARCH64, EM_RISCV, EM_X86_64, Header

NT_PRSTATUS = 1
NT_FPREGSET = 2
NT_386_TLS = 0x200
NT_X86_XSTATE = 0x202
NT_ARM_TLS = 0x401
NT_PRXFPREG = 0x46E62B7F
VECTOR_SETS = (NT_FPREGSET, NT_X86_XSTATE, NT_PRXFPREG)
"""Register sets that hold vectors: programs keep pointers in them. The general one is NT_PRSTATUS."""


class Registers(NamedTuple):
    """What one thread's register sets say; None where this machine is not known or a set is missing."""

    pc: Optional[int]
    sp: Optional[int]
    thread_pointer: Optional[int]


class Places(NamedTuple):
    """Where they stand in the general register set, as indexes of words."""

    pc: int
    sp: int
    thread_pointer: Optional[int]


PLACES = {
    (EM_X86_64, 8): Places(16, 19, 21),
    (EM_X86_64, 4): Places(16, 19, 21),
    (EM_386, 4): Places(12, 15, None),
    (EM_AARCH64, 8): Places(32, 31, None),
    (EM_RISCV, 8): Places(0, 2, 4),
}
"""user_regs_struct of each machine. x32 programs have 64-bit registers."""

I386_GS = 10


def extra_set(header: Header) -> Optional[int]:
    """The register set that tells the thread pointer where the general one does not."""
    return {EM_386: NT_386_TLS, EM_AARCH64: NT_ARM_TLS}.get(header.machine)


def decode(header: Header, general: bytes, extra: bytes = b"") -> Registers:
    """The registers from the general set and, on i386 and aarch64, the set that extra_set names."""
    places = PLACES.get((header.machine, header.word_bytes))
    letter = "Q" if header.machine == EM_X86_64 or header.word_bytes == 8 else "I"
    size = struct.calcsize(letter)
    words = struct.unpack_from("%s%d%s" % (header.order, len(general) // size, letter), general)
    if places is None or len(words) <= max(places.pc, places.sp, places.thread_pointer or 0):
        return Registers(None, None, None)
    pointer = words[places.thread_pointer] if places.thread_pointer is not None else None
    if header.machine == EM_AARCH64 and len(extra) >= 8:
        pointer = struct.unpack_from(header.order + "Q", extra)[0]
    elif header.machine == EM_386 and len(words) > I386_GS:
        for number, base, _, _ in struct.iter_unpack(header.order + "IIII", extra[: len(extra) // 16 * 16]):
            if number == words[I386_GS] >> 3:
                pointer = base
    return Registers(words[places.pc], words[places.sp], pointer)


def words_of(header: Header, sets: Sequence[bytes]) -> List[int]:
    """Every word of some register sets, as a pointer of the program may stand in any of them."""
    letter = "Q" if header.word_bytes == 8 else "I"
    return [word for data in sets for word in struct.unpack_from("%s%d%s" % (header.order, len(data) // header.word_bytes, letter), data)]
