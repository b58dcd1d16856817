"""ppc: 32-bit PowerPC."""

from gdbheapx.inferior.arch import Architecture, ThreadStorage

ARCHITECTURE = Architecture(storage=ThreadStorage(tcb_bytes=-0x7000), aligns_16_since=())
