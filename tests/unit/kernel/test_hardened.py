"""What reads hostile memory in C is compiled as a distribution would: the overruns that a compiler can see are found, tables of functions
cannot be written, the stack cannot be run.

Files: kernel/build.py.
"""

from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from gdbheapx.kernel import build
from tests.support.hardened import undefined


def test_the_library_is_hardened() -> None:
    """That of this installation, as far as its file tells."""
    library = Path(build.native_folder()) / build.LIBRARY
    if not library.exists():
        pytest.skip("no C kernel here")
    with open(library, "rb") as file:
        assert any(name.startswith("__stack_chk_") for name in undefined(ELFFile(file)))
