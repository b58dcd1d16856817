"""x86-64, also called amd64 and Intel 64. System V ABI of x86-64; sys/user.h; nptl's tls.h."""

import re
from typing import Callable, Iterator, Optional

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

NT_X86_XSTATE = 0x202
EXTENDED = tuple("r%d" % number for number in range(8, 16))
ORDER = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax"),
    *("rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs"),
)
"""struct user_regs_struct."""
RESUME = 1 << 16
"""RF of eflags."""
READS = (
    rb"(?:[\x40-\x4f]?(?:\x0f[\xb6\xb7\xbe\xbf]|[\x8a\x8b\x8d])|[\xf2\xf3\x66]?[\x40-\x4f]?\x0f[\x10\x28\x6f])"
    rb"[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]"
)
"""mov, movzx, movsx, lea and vector moves, relative to the next instruction; what follows is the distance."""
RET = b"\xc3"
LAM_U57 = 0x3F << 57
"""Linear address masking, as Linux has it: bits 57 to 62 (arch/x86/kernel/process_64.c: mm_enable_lam)."""


def ends_with_call(code: bytes) -> bool:
    """A call instruction ends after these 7 bytes: relative, or through a register or memory."""
    return len(code) == 7 and (code[2] == 0xE8 or any(code[at] == 0xFF and code[at + 1] & 0x38 == 0x10 for at in range(6)))


def read_rip_relative(address: int, code: bytes, word_at: Callable[[int], int]) -> Iterator[int]:
    """Yield the addresses that a function reads relative to itself before it returns."""
    for read in re.finditer(READS, code):
        after = read.end() + 4
        if after > len(code) or RET in code[: read.start()]:
            return
        yield address + after + int.from_bytes(code[read.end() : after], "little", signed=True)


MOV_EAX, RETURN, TARGET_MARK = 0xB8, 0xC3, b"\xf3\x0f\x1e\xfa"


def returned_number(code: bytes) -> Optional[int]:
    """See Architecture: `mov eax, N; ret`, after the mark of a jump's target where there is one."""
    code = code[len(TARGET_MARK) :] if code.startswith(TARGET_MARK) else code
    if len(code) < 6 or code[0] != MOV_EAX or code[5] != RETURN:
        return None
    return int.from_bytes(code[1:5], "little")


ARCHITECTURE = Architecture(
    halt=b"\xf4",
    returned_number=returned_number,
    registers=RegisterSet(ORDER, 8, pc="rip", sp="rsp", thread_pointer="fs_base"),
    vector_sets=(NT_FPREGSET, NT_X86_XSTATE),
    gdb_thread_pointer="fs_base",
    gdb_vectors=(
        (tuple("ymm%d" % number for number in range(16)), ("v4_int64",), 4),
        (tuple("xmm%d" % number for number in range(16)), ("v2_int64",), 2),
    ),
    storage=ThreadStorage(self_words=2, guard_at=0x30, guard_turn=17, is_pthread=True, list_at=704),
    relocations=Relocations(absolute=1, relative=8, module=16, offset=18, slots=(6, 7)),
    unwinding=Unwinding(
        ("rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", *EXTENDED, "rip"), sp=7, pc=16, kept=(3, 6, 12, 13, 14, 15)
    ),
    system_calls=SystemCalls(
        audit=0xC000003E,
        numbers={
            "close": 3,
            "mmap": 9,
            "mprotect": 10,
            "munmap": 11,
            "brk": 12,
            "sched_yield": 24,
            "madvise": 28,
            "nanosleep": 35,
            "futex": 202,
            "restart_syscall": 219,
            "clock_gettime": 228,
            "clock_nanosleep": 230,
            "kcmp": 312,
            "rt_sigreturn": 15,
            "userfaultfd": 323,
            "pidfd_getfd": 438,
        },
    ),
    in_system_call=InSystemCall(instruction=b"\x0f\x05", number="orig_rax", result="rax"),
    calling=Calling(
        arguments=("rdi", "rsi", "rdx", "rcx", "r8", "r9"),
        result="rax",
        sp="rsp",
        pc="rip",
        entering=(("rax", 0), ("orig_rax", -1)),
        stack_align=16,
        return_bytes=8,
        general=("rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", *EXTENDED, "rip", "eflags", "orig_rax"),
        flags="eflags",
        passing_flags=RESUME,
        vector=("xmm15", "v2_int64"),
        vector_operand=r"%?\b([xyz]mm\d|k[0-7]\b|mm[0-7]|st\()",
        state_set=NT_X86_XSTATE,
        call_bytes=7,
        ends_call=ends_with_call,
    ),
    relative_reads=read_rip_relative,
    sign_extends=True,
    ignorable_bits=LAM_U57,
    named_pages=((0xFFFFFFFFFF600000, "[vsyscall]"),),
)
