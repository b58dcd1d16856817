"""s390x (ELF ABI of z/Architecture)."""

from gdbheapx.inferior.arch import Architecture, Relocations

ARCHITECTURE = Architecture(relocations=Relocations(absolute=22, relative=12))
