"""ppc64 and ppc64le (ELF ABI of 64-bit PowerPC)."""

from gdbheapx.inferior.arch import Architecture, Relocations, ThreadStorage

ARCHITECTURE = Architecture(storage=ThreadStorage(tcb_bytes=-0x7000), relocations=Relocations(absolute=38, relative=22))
