"""arm: 32 bits (ELF for the Arm Architecture)."""

from gdbheapx.inferior.arch import Architecture, Relocations, ThreadStorage

ARCHITECTURE = Architecture(storage=ThreadStorage(tcb_bytes=8, dtv_words=0), relocations=Relocations(absolute=2, relative=23))
