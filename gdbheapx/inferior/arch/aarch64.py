"""aarch64, also called arm64 (ELF for the Arm 64-bit Architecture; asm/ptrace.h: user_pt_regs; nptl's tls.h).

A thread that is stopped in a system call does not show it: the kernel has prepared its restart (arch/arm64/kernel/signal.c: do_signal).
Linux has every process ignore the top byte of pointers to data (Documentation/arch/arm64/tagged-pointers.rst); what signatures of pointers
may take of the rest depends on the size of addresses (arch/arm64/kernel/ptrace.c: pac_mask_get).
The C library keeps the pointer guard in a variable of the dynamic linker, and XORs with it alone (sysdeps/unix/sysv/linux/aarch64).
"""

import struct
from typing import Callable, Dict, Iterator, Mapping, Optional, Tuple

from gdbheapx.inferior.arch import (
    NT_FPREGSET,
    Architecture,
    Calling,
    InSystemCall,
    RegisterSet,
    Relocations,
    SystemCalls,
    ThreadStorage,
    Unwinding,
)

NT_ARM_TLS, NT_ARM_SVE, NT_ARM_PAC_MASK, NT_ARM_SSVE, NT_ARM_ZA, NT_ARM_GCS = 0x401, 0x405, 0x406, 0x40B, 0x40C, 0x410
"""NT_ARM_PAC_MASK is struct user_pac_mask: that of data, that of code."""
GENERAL = tuple("x%d" % number for number in range(31))
NAMES = (*GENERAL, "sp", "pc", "pstate")
"""struct user_pt_regs."""
SET_HEADER = struct.Struct("<IIHHHH")
"""struct user_sve_header and user_za_header (asm/ptrace.h): its size and the most it may be, the same of a vector, flags."""
SVE_REGISTERS, SHADOW_STACK = 1, 1
"""Flags of those sets: registers as SVE has them, of NT_ARM_SSVE only in streaming mode; and of struct user_gcs."""
BRANCH_TYPE = 3 << 10
"""PSTATE.BTYPE: the instruction before was an indirect branch, and this one must be a landing pad. All bits: one for jumps, which functions
that others may call need not have. They have one for the other two kinds, as after a procedure linkage table."""
STEP = 1 << 21
"""PSTATE.SS, which the kernel sets and clears for a debugger."""
CODE_BITS = 48
"""The kernel maps nothing above without being asked for it by an address; signatures of return addresses begin there or higher."""
NANOSLEEP, CLOCK_NANOSLEEP, FUTEX = 101, 115, 98
TIMER_ABSTIME, FUTEX_WAIT, FUTEX_WAIT_BITSET, FUTEX_COMMAND = 1, 0, 9, 0x7F


def read_tpidr(registers: Mapping[str, int], pointers: bytes, order: str) -> Optional[int]:
    """tpidr_el0, the first word of the set."""
    return int(struct.unpack_from(order + "Q", pointers)[0]) if len(pointers) >= 8 else None


def find_timed_call(registers: Mapping[str, int]) -> Optional[Tuple[int, bool]]:
    """A call that the kernel goes on with by its restart block: hrtimer_nanosleep, futex_wait (kernel/time/hrtimer.c, kernel/futex)."""
    number, command = registers["x8"], registers["x1"] & FUTEX_COMMAND
    if number == NANOSLEEP:
        return registers["x0"], True
    if number == CLOCK_NANOSLEEP and not registers["x1"] & TIMER_ABSTIME:
        return registers["x2"], True
    if number == FUTEX and command in (FUTEX_WAIT, FUTEX_WAIT_BITSET) and registers["x3"]:
        return registers["x3"], command == FUTEX_WAIT
    return None


def reason_against_call(registers: Mapping[str, int], register_set: Callable[[int], bytes]) -> Optional[str]:
    """Return the reason against a call on this thread, a state that the call would upset, or None."""
    if registers["cpsr"] & BRANCH_TYPE == BRANCH_TYPE:
        return "stands between an indirect branch and its landing pad (BTI)"
    streaming, tiles, shadow = (register_set(number) for number in (NT_ARM_SSVE, NT_ARM_ZA, NT_ARM_GCS))
    if len(streaming) >= SET_HEADER.size and SET_HEADER.unpack_from(streaming)[4] & SVE_REGISTERS:
        return "is in SME's streaming mode"
    if len(tiles) >= SET_HEADER.size and SET_HEADER.unpack_from(tiles)[0] > SET_HEADER.size:
        return "has matrices in its registers (SME's ZA)"
    if len(shadow) >= 8 and int.from_bytes(shadow[:8], "little") & SHADOW_STACK:
        return "has a shadow stack (GCS), which forbids a return without a call"
    return None


def ends_with_bl(code: bytes) -> bool:
    """bl, or blr, also those that authenticate a pointer (blraa and the like)."""
    word = int.from_bytes(code, "little")
    return len(code) == 4 and (word >> 26 == 0x25 or word & 0xFEFFF000 == 0xD63F0000)


ADRP, ADD, LOAD, RET = (0x9F000000, 0x90000000), (0xFFC00000, 0x91000000), (0x3B000000, 0x39000000), 0xD65F03C0
"""(bits that decide it, these bits): a page relative to the code; a sum with 12 bits; loads and stores with an unsigned offset."""
NEAR_BYTES = 1 << 32
"""What leads so near is taken for a pointer in the global offset table that is followed elsewhere."""


def read_page_relative(address: int, code: bytes, word_at: Callable[[int], int]) -> Iterator[int]:
    """A page's address comes first, then what is read in that page: the variable, or the pointer to it in the global offset table."""
    known: Dict[int, int] = {}
    slots: Dict[int, int] = {}
    for place, (word,) in zip(range(address, address + len(code), 4), struct.iter_unpack("<I", code[: len(code) & -4])):
        to, base, offset = word & 31, word >> 5 & 31, word >> 10 & 0xFFF
        if word == RET:
            break
        if word & ADRP[0] == ADRP[1]:
            pages = (word >> 5 & 0x7FFFF) << 2 | word >> 29 & 3
            slots.pop(to, None)
            known[to] = (place & -4096) + ((pages ^ 1 << 20) - (1 << 20) << 12)
        elif word & ADD[0] == ADD[1] and base in known:
            known[to] = known[base] + offset
        elif word & LOAD[0] == LOAD[1] and word >> 22 & 3:
            size = word >> 30
            if base in slots:
                yield word_at(slots.pop(base)) + (offset << size)
            elif base in known:
                if size == 3 and not word >> 26 & 1:
                    slots[to] = known[base] + (offset << size)
                else:
                    yield known[base] + (offset << size)
                known.pop(to, None)
    yield from (slot for slot in slots.values() if abs(word_at(slot) - address) >= NEAR_BYTES)


ARCHITECTURE = Architecture(
    registers=RegisterSet(NAMES, 8, pc="pc", sp="sp", pointer_set=NT_ARM_TLS, read_pointer=read_tpidr),
    vector_sets=(NT_FPREGSET, NT_ARM_SVE, NT_ARM_SSVE),
    gdb_thread_pointer="tpidr",
    gdb_vectors=((tuple("v%d" % number for number in range(32)), ("d", "u"), 2),),
    ignored_bits=0xFF << 56,
    signature_set=NT_ARM_PAC_MASK,
    gdb_signature="pauth_dmask",
    mutex_bytes=(48, 40),
    storage=ThreadStorage(tcb_bytes=16, dtv_words=0, guard_name="__pointer_chk_guard", guard_turn=64),
    relocations=Relocations(absolute=257, relative=1027, module=1028, offset=1030),
    system_calls=SystemCalls(
        audit=0xC00000B7,
        numbers={
            "close": 57,
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
            "kcmp": 272,
            "rt_sigreturn": 139,
            "userfaultfd": 282,
            "pidfd_getfd": 438,
        },
    ),
    unwinding=Unwinding((*GENERAL, "sp", "pc"), sp=31, pc=32, kept=tuple(range(19, 30)), returns=30),
    in_system_call=InSystemCall(instruction=b"\x01\0\0\xd4", number="x8", result="x0", is_rewound=True, timed=find_timed_call),
    calling=Calling(
        arguments=GENERAL[:8],
        result="x0",
        sp="sp",
        pc="pc",
        entering=(),
        stack_align=16,
        return_bytes=0,
        general=(*GENERAL, "sp", "pc", "cpsr"),
        flags="cpsr",
        passing_flags=STEP,
        vector=("v15", "d.u"),
        vector_operand=r"\b[vzqdshbp]\d",
        state_set=NT_FPREGSET,
        call_bytes=4,
        ends_call=ends_with_bl,
        link="x30",
        kept_sets=(NT_ARM_SVE, NT_FPREGSET),
        against=reason_against_call,
    ),
    relative_reads=read_page_relative,
    return_mask=(1 << CODE_BITS) - 1,
)
