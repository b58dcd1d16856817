"""Properties of a machine: registers, thread-local storage, relocations, system calls, requirements of a call. A new machine takes one
file and one line here. A target's `arch` and a file's `header.arch` are one of these records. A field that a record leaves out is not
known of its machine, or not read there.
"""

import importlib
import os
from functools import cache
from typing import Callable, Dict, Iterator, Literal, Mapping, NamedTuple, Optional, Sequence, Tuple

from gdbheapx.common.errors import Refusal

REGISTRY: Dict[str, Tuple[int, int, str]] = {
    "i386:x86-64": (62, 8, "x86_64"),
    "i386:x64-32": (62, 4, "x32"),
    "i386": (3, 4, "i386"),
    "aarch64": (183, 8, "aarch64"),
    "arm": (40, 4, "arm"),
    "riscv:rv64": (243, 8, "riscv64"),
    "powerpc:common64": (21, 8, "ppc64"),
    "powerpc:common": (20, 4, "ppc"),
    "s390:64-bit": (22, 8, "s390x"),
}
"""gdb's name -> e_machine, word size, and the module here, called as uname(2) calls the machine and imported when it is asked for."""
CALLS_TESTED_ON = "x86-64 and aarch64"
"""Machines with a `calling`, for sentences."""
NT_PRSTATUS, NT_FPREGSET = 1, 2
ANEW_S = 0.1
"""A wait as short as this may begin again: the stop takes longer."""
ByteOrder = Literal["little", "big"]


class RegisterSet(NamedTuple):
    """NT_PRSTATUS: the general registers in the kernel's order (struct user_regs_struct)."""

    names: Sequence[str]
    word_bytes: int
    pc: str
    sp: str
    thread_pointer: Optional[str] = None
    """None: `pointer_set` has it, or nothing does."""
    pointer_set: Optional[int] = None
    """A further register set with the thread pointer."""
    read_pointer: Optional[Callable[[Mapping[str, int], bytes, str], Optional[int]]] = None
    """The thread pointer, by the general registers by name, the contents of that set, and the byte order as struct's first letter."""


class ThreadStorage(NamedTuple):
    """Thread-local storage and the thread control block, as the C library lays them out (tls.h of each machine)."""

    tcb_bytes: Optional[int] = None
    """Variant I: static blocks lie above the thread pointer, so many bytes between. None: variant II, they end at the thread pointer."""
    dtv_words: int = 1
    """Where the pointer to the dtv is, in words from the thread pointer."""
    self_words: Optional[int] = None
    """Where a pointer to the control block itself is."""
    guard_at: Optional[int] = None
    """Where the pointer guard is, in bytes from the thread pointer."""
    guard_name: Optional[str] = None
    """The variable with the pointer guard, where it is in none of the threads' control blocks."""
    guard_turn: int = 0
    """By how many bits what was XORed with it is rotated to the left (sysdeps/unix/sysv/linux/MACHINE/pointer_guard.h);
    64: not at all."""
    is_pthread: bool = False
    """struct pthread begins at the thread pointer with its own address, and is the last thing on the thread's stack; 64 bits."""
    list_at: int = 0
    """struct pthread.list, by which the stack is on one of three lists (nptl/descr.h), in bytes from the thread pointer."""


class Relocations(NamedTuple):
    """Types of relocations of data (psABI)."""

    absolute: int
    relative: int
    module: Optional[int] = None
    """Writes the module's number in the dtv (DTPMOD: general dynamic)."""
    offset: Optional[int] = None
    """Writes an offset from the thread pointer (TPOFF: initial exec)."""
    slots: Tuple[int, ...] = ()
    """Write the address of a function or variable that has a name into the global offset table (GLOB_DAT, JUMP_SLOT)."""


class Unwinding(NamedTuple):
    """DWARF's numbers of registers, as call frame information uses them."""

    names: Sequence[str]
    """By number; the return address takes the place of the program counter."""
    sp: int
    pc: int
    kept: Sequence[int]
    """What a function must leave as it was."""
    returns: Optional[int] = None
    """The register that a call puts the return address in; None: it goes to the stack, and `pc` is where it was saved."""


class SystemCalls(NamedTuple):
    """System call interface of a machine."""

    audit: int
    """AUDIT_ARCH_..., by which seccomp filters know the machine (linux/audit.h)."""
    numbers: Dict[str, int]
    """Those that are asked for here (asm/unistd.h)."""


TimedCall = Tuple[int, bool]
"""A system call with a limit in time, which the kernel goes on with by another one (restart_syscall) once it was interrupted: the address
of its struct timespec, and whether that counts from the call on (made once more, it would wait for all of it again)."""


class InSystemCall(NamedTuple):
    """Marks by which a stopped thread shows the system call that it is in."""

    instruction: bytes
    """In front of the program counter."""
    number: str
    """The register with the call's number; negative where it is in none."""
    result: str
    is_rewound: bool = False
    """A call that is to be made again has the instruction at the program counter, and the result is its first argument again: the
    kernel sees to that before a tracer sees the thread. It then goes on with a TimedCall only if the program counter is not moved."""
    timed: Optional[Callable[[Mapping[str, int]], Optional[TimedCall]]] = None
    """The general registers -> the call that they make, if it is such a one. Where it does not show otherwise."""

    def shows(self, pc: int, read: Callable[[int, int], bytes]) -> bool:
        """The instruction is in front of this program counter, or at it where the call is made again."""
        size = len(self.instruction)
        return read(pc - size, size) == self.instruction or (self.is_rewound and read(pc, size) == self.instruction)

    def against(self, registers: Mapping[str, int], pc: int, read: Callable[[int, int], bytes]) -> Optional[str]:
        """Return the reason against moving the program counter and setting it back now, or None: a wait would begin from its start. In a
        later stop of the same wait the thread shows that it waits for the rest of the time.
        """
        time_at, is_span = (self.timed(registers) if self.timed is not None else None) or (0, False)
        if not is_span or read(pc, len(self.instruction)) != self.instruction:
            return None
        data = read(time_at, 16)
        seconds = int.from_bytes(data[:8], "little") + int.from_bytes(data[8:], "little") / 1e9 if len(data) == 16 else None
        if seconds is not None and seconds <= ANEW_S:
            return None
        span = "%g s" % seconds if seconds is not None else "a time that cannot be read"
        return "has just begun to wait, for %s, which would begin anew" % span


class Calling(NamedTuple):
    """Requirements of a function call in a process."""

    arguments: Sequence[str]
    """Registers of the first arguments."""
    result: str
    sp: str
    pc: str
    entering: Sequence[Tuple[str, int]]
    """Registers and what they have when a function is entered from outside: it gets nothing in vector registers, and the thread is not
    in a system call that the kernel would go on with."""
    stack_align: int
    return_bytes: int
    """Of the return address on the stack; 0: it goes to `link`."""
    general: Sequence[str]
    """All that a call may change, in gdb's names."""
    flags: str
    passing_flags: int
    """Bits of the flags that the processor clears by itself."""
    vector: Tuple[str, str]
    """A vector register that gdb is tried on, and its halves as a field of gdb's."""
    vector_operand: str
    """Matches an operand that is a vector register, in gdb's disassembly."""
    state_set: int
    """The register set with everything that is not general."""
    call_bytes: int
    """The longest call instruction."""
    ends_call: Callable[[bytes], bool]
    """A call instruction ends after these bytes."""
    link: str = ""
    """The register with the return address."""
    kept_sets: Sequence[int] = ()
    """Register sets with all that is not general, the first that a thread has: saved, compared and set back besides what gdb does."""
    against: Optional[Callable[[Mapping[str, int], Callable[[int], bytes]], Optional[str]]] = None
    """(the general registers, what gives a register set) -> why not on this thread at this moment."""


class Architecture(NamedTuple):
    """Machine architecture."""

    name: str = ""
    """gdb's name."""
    registers: Optional[RegisterSet] = None
    vector_sets: Sequence[int] = (NT_FPREGSET,)
    """Register sets that hold vectors: programs keep pointers in them."""
    gdb_thread_pointer: Optional[str] = None
    """gdb's name of the thread pointer."""
    gdb_vectors: Sequence[Tuple[Sequence[str], Sequence[str], int]] = ()
    """Vector registers, which may hold pointers, in gdb's names: (registers, the fields that lead to their words, how many words). A
    register that this CPU lacks ends its row."""
    storage: ThreadStorage = ThreadStorage()
    relocations: Optional[Relocations] = None
    unwinding: Optional[Unwinding] = None
    system_calls: Optional[SystemCalls] = None
    in_system_call: Optional[InSystemCall] = None
    calling: Optional[Calling] = None
    relative_reads: Optional[Callable[[int, bytes, Callable[[int], int]], Iterator[int]]] = None
    """(address, code of a function, the word at an address) -> what it reads relative to itself before it returns, in the code's order."""
    return_mask: int = (1 << 64) - 1
    """Of a return address on the stack the bits that are its address: the others may be its signature."""
    returned_number: Optional[Callable[[bytes], Optional[int]]] = None
    """Code of a function that does nothing but return a number -> that number; None: it does something else."""
    red_zone_bytes: int = 128
    """Below the stack pointer a function that calls no other may use so much. Machines whose ABI has less lose nothing by it."""
    pthread_bytes: int = 2304
    """From the thread pointer on at most so much is the thread's. x86-64's struct pthread has 1,792 to 2,304 in libc 2.17 to 2.41."""
    address_bits: Sequence[int] = (48, 57)
    """How many bits an address may have. Builds for 47 make the same trees as those for 48."""
    sign_extends: bool = False
    """The bits above are copies of the highest one (canonical addresses)."""
    ignored_bits: int = 0
    """Bits of a pointer that the processor does not look at, in every process: programs, compilers and allocators keep tags there."""
    ignorable_bits: int = 0
    """Those that it does not look at in a process that has asked the kernel for that, which only a living one shows (`untag_mask` of
    /proc/PID/status)."""
    signature_set: Optional[int] = None
    """A register set whose first word has the bits of a pointer to data that may be a signature (pointer authentication): no address,
    either."""
    gdb_signature: Optional[str] = None
    """gdb's name of that word."""
    named_pages: Sequence[Tuple[int, str]] = ()
    """Pages that the kernel maps into every process at the same address."""
    mutex_bytes: Tuple[int, ...] = (40,)
    """sizeof(pthread_mutex_t) in C libraries with words of 8 bytes (bits/pthreadtypes-arch.h), the usual one first."""
    aligns_16_since: Optional[Tuple[int, ...]] = None
    """32 bits: the release of the C library since which malloc aligns to 16 bytes, () for all; None: it aligns to two words."""

    halt: bytes = b""
    """An instruction that only the kernel may execute, by which programs end themselves; empty: not known here."""

    def to_call(self) -> Calling:
        """Return the requirements of a call; Refusal if calls were never tried on this machine."""
        if self.calling is None:
            what = "calls into %s processes are not supported: they were tested only on %s" % (self.name, CALLS_TESTED_ON)
            raise Refusal(what, "--dry-run works here")
        return self.calling


def byte_order(little_endian: bool) -> ByteOrder:
    """Return the byte order as int.from_bytes takes it."""
    return "little" if little_endian else "big"


@cache
def architecture_named(name: str) -> Architecture:
    """Return the architecture with gdb's name for it; an unlisted name gives a record without any knowledge."""
    if name not in REGISTRY:
        return Architecture(name)
    architecture: Architecture = importlib.import_module("gdbheapx.inferior.arch." + REGISTRY[name][2]).ARCHITECTURE
    return architecture._replace(name=name)


@cache
def of_elf(machine: int, word_bytes: int) -> Architecture:
    """Return the architecture of an ELF header's e_machine and class."""
    names = (name for name, (number, size, _) in REGISTRY.items() if (number, size) == (machine, word_bytes))
    return architecture_named(next(names, "machine %d" % machine))


@cache
def native_architecture() -> Architecture:
    """Return the architecture of this computer."""
    here = os.uname().machine
    return architecture_named(next((name for name, (_, _, module) in REGISTRY.items() if module == here), here))
