"""What an ELF library says of how it was hardened."""

from typing import Any, Set


def undefined(elf: Any) -> Set[str]:
    """The symbols that it wants of others. AssertionError where a table can be written, or the stack can be run."""
    segments = {segment["p_type"]: segment["p_flags"] for segment in elf.iter_segments()}
    tags = {entry.entry.d_tag: entry.entry.d_val for entry in elf.get_section_by_name(".dynamic").iter_tags()}
    assert "PT_GNU_RELRO" in segments and not segments["PT_GNU_STACK"] & 1
    assert tags.get("DT_FLAGS", 0) & 8 or tags.get("DT_FLAGS_1", 0) & 1 or "DT_BIND_NOW" in tags
    return {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"}
