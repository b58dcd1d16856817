"""x32: programs with 32-bit pointers and the registers of x86-64 (x32 psABI)."""

from gdbheapx.inferior.arch import Relocations, ThreadStorage, x86_64

ARCHITECTURE = x86_64.ARCHITECTURE._replace(
    storage=ThreadStorage(self_words=2),
    relocations=Relocations(absolute=10, relative=8, module=16, offset=18),
    unwinding=None,
    system_calls=None,
    calling=None,
    relative_reads=None,
    aligns_16_since=(2, 26),
    sign_extends=False,
)
