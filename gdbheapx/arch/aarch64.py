"""aarch64, also called arm64 (ELF for the Arm 64-bit Architecture; asm/ptrace.h: user_pt_regs; nptl's tls.h).

A thread that is stopped in a system call does not show it: the kernel has prepared its restart (arch/arm64/kernel/signal.c: do_signal).
Linux has every process ignore the top byte of pointers to data (Documentation/arch/arm64/tagged-pointers.rst); what signatures of pointers
may take of the rest depends on the size of addresses (arch/arm64/kernel/ptrace.c: pac_mask_get). No call was tried.
The C library keeps the pointer guard in a variable of the dynamic linker, so no offset from the thread pointer tells it.
"""

import struct
from typing import Mapping, Optional

from gdbheapx.arch import Architecture, RegisterSet, Relocations, SystemCalls, ThreadStorage

NT_ARM_TLS = 0x401
NT_ARM_PAC_MASK = 0x406
"""struct user_pac_mask: that of data, that of code."""
GENERAL = tuple("x%d" % number for number in range(31))


def read_pointer(registers: Mapping[str, int], pointers: bytes, order: str) -> Optional[int]:
    """tpidr_el0, the first word of the set."""
    return int(struct.unpack_from(order + "Q", pointers)[0]) if len(pointers) >= 8 else None


ARCHITECTURE = Architecture(
    registers=RegisterSet((*GENERAL, "sp", "pc", "pstate"), 8, pc="pc", sp="sp", pointer_set=NT_ARM_TLS, read_pointer=read_pointer),
    gdb_thread_pointer="tpidr",
    gdb_words=((GENERAL, (), 1), (tuple("v%d" % number for number in range(32)), ("d", "u"), 2)),
    ignored_bits=0xFF << 56,
    signature_set=NT_ARM_PAC_MASK,
    gdb_signature="pauth_dmask",
    mutex_bytes=(48, 40),
    storage=ThreadStorage(tcb_bytes=16, dtv_words=0),
    relocations=Relocations(absolute=257, relative=1027, module=1028, offset=1030),
    system_calls=SystemCalls(
        audit=0xC00000B7,
        numbers={
            "futex": 98,
            "nanosleep": 101,
            "clock_gettime": 113,
            "clock_nanosleep": 115,
            "sched_yield": 124,
            "restart_syscall": 128,
            "brk": 214,
            "munmap": 215,
            "mmap": 222,
            "mprotect": 226,
            "madvise": 233,
        },
    ),
)
