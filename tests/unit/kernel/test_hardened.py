"""What reads hostile memory in C is compiled as a distribution would: the library of wheels, too, which names no libc.

Files: kernel/build.py.
"""

import platform
from pathlib import Path
from typing import Optional

import pytest
from elftools.elf.elffile import ELFFile

from gdbheapx.kernel import build


@pytest.mark.parametrize("is_portable", [False, True])
def test_the_library_is_hardened(is_portable: bool, tmp_path: Path) -> None:
    """Overruns of the stack and of arrays are found, the table of functions cannot be written, the stack cannot be run."""
    machine: Optional[str] = platform.machine() if is_portable else None
    words = build.compiler()
    if words is None or (is_portable and machine not in build.OF_MACHINE):
        pytest.skip("no C compiler here, or no wheel for this machine")
    target = tmp_path / "library.so"
    done = build.compile_into(str(target), words, build.sources(), 0, machine)
    assert done.returncode == 0, done.stdout.decode()
    with open(target, "rb") as file:
        elf = ELFFile(file)
        segments = {segment["p_type"]: segment["p_flags"] for segment in elf.iter_segments()}
        tags = {entry.entry.d_tag: entry.entry.d_val for entry in elf.get_section_by_name(".dynamic").iter_tags()}
        symbols = {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols() if symbol["st_shndx"] == "SHN_UNDEF"}
    assert "PT_GNU_RELRO" in segments and not segments["PT_GNU_STACK"] & 1
    assert tags.get("DT_FLAGS", 0) & 8 or tags.get("DT_FLAGS_1", 0) & 1 or "DT_BIND_NOW" in tags
    assert any(name.startswith("__stack_chk_") for name in symbols)
    if is_portable:  # musl has none of these
        assert not {name for name in symbols if name.endswith("_chk")}
