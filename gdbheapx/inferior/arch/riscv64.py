"""riscv64 (RISC-V ELF psABI; asm/ptrace.h: user_regs_struct; nptl's tls.h)."""

from gdbheapx.inferior.arch import Architecture, RegisterSet, Relocations, ThreadStorage

ORDER = (
    *("pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", *("a%d" % number for number in range(8))),
    *(*("s%d" % number for number in range(2, 12)), "t3", "t4", "t5", "t6"),
)

ARCHITECTURE = Architecture(
    registers=RegisterSet(ORDER, 8, pc="pc", sp="sp", thread_pointer="tp"),
    gdb_thread_pointer="tp",
    storage=ThreadStorage(tcb_bytes=0, dtv_words=-2),
    relocations=Relocations(absolute=2, relative=3, module=7, offset=11),
    aligns_16_since=(),
)
