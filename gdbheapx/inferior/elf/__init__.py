"""ELF files, their symbols and DWARF, and the target that needs no gdb."""
