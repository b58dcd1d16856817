"""i386: 32-bit x86 (psABI of i386; the kernel's user_regs_struct32)."""

import struct
from typing import Mapping, Optional

from gdbheapx.inferior.arch import NT_FPREGSET, Architecture, RegisterSet, Relocations, ThreadStorage

NT_386_TLS, NT_X86_XSTATE, NT_PRXFPREG = 0x200, 0x202, 0x46E62B7F
ORDER = (
    *("ebx", "ecx", "edx", "esi", "edi", "ebp", "eax", "xds", "xes", "xfs", "xgs", "orig_eax"),
    *("eip", "xcs", "eflags", "esp", "xss"),
)


def read_gs_base(registers: Mapping[str, int], descriptors: bytes, order: str) -> Optional[int]:
    """The base of the segment that gs selects: each of the thread's descriptors is a struct user_desc (number, base, limit, flags)."""
    entries = struct.iter_unpack(order + "IIII", descriptors[: len(descriptors) // 16 * 16])
    bases = {number: base for number, base, _, _ in entries}
    return bases.get(registers["xgs"] >> 3)


ARCHITECTURE = Architecture(
    halt=b"\xf4",
    registers=RegisterSet(ORDER, 4, pc="eip", sp="esp", pointer_set=NT_386_TLS, read_pointer=read_gs_base),
    vector_sets=(NT_FPREGSET, NT_X86_XSTATE, NT_PRXFPREG),
    gdb_vectors=(
        (tuple("ymm%d" % number for number in range(8)), ("v4_int64",), 4),
        (tuple("xmm%d" % number for number in range(8)), ("v2_int64",), 2),
    ),
    storage=ThreadStorage(self_words=2),
    relocations=Relocations(absolute=1, relative=8, module=35, offset=14),
    aligns_16_since=(2, 26),
)
