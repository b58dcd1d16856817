"""What another allocator gives for a request, against what its library says.

Files: allocators/answers.py, jemalloc/entry.py.
"""

import subprocess
import sys

import pytest

from gdbheapx import allocators
from tests.support.paths import installed

SIZES = (*range(1, 4000, 7), *range(4000, 128 << 10, 1013))
LARGE = (*range(128 << 10, 300000, 1013), *range(300000, 2 << 20, 100003))
SMALL = 14336
"""The last of jemalloc's small classes with pages of 4 KiB."""
ASK = """
import ctypes, sys
ask = getattr(ctypes.CDLL(None), sys.argv[1])
ask.argtypes, ask.restype = [ctypes.c_size_t, ctypes.c_int], ctypes.c_size_t
print(*(ask(int(size), 0) for size in sys.argv[2:]))
"""
"""Both arguments are given to functions that take one, too."""

CASES = [("jemalloc", "nallocx", LARGE), ("mimalloc", "mi_good_size", ()), ("tcmalloc", "tc_nallocx", LARGE)]
"""Of allocators that are here."""


@pytest.mark.parametrize("name, function, sizes", [case for case in CASES if case[0] in allocators.by_name()])
@pytest.mark.skipif(sys.maxsize < 1 << 32, reason="the classes are those of 64-bit machines")
def test_classes_are_those_of_the_library(name: str, function: str, sizes: "tuple[int, ...]") -> None:
    """Asked without making a block, in a process of its own: a library takes malloc's place where it is loaded. mimalloc rounds what is large to
    pages there, and its place to slices. jemalloc 5.3.1 has pages in place of large classes, which are at most as large."""
    allocator = allocators.by_name()[name]
    found = installed([allocator.preload], "")
    if not found:
        pytest.skip("no %s here" % allocator.preload)
    asked = [*SIZES, *sizes]
    words = [sys.executable, "-c", ASK, function, *map(str, asked)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env={"LD_PRELOAD": str(found[0])})
    told = list(zip(asked, (allocator.preload_bytes(size) for size in asked), map(int, done.stdout.split())))
    pages = [-(-size // 4096) * 4096 if name == "jemalloc" and size > SMALL else None for size, _, _ in told]
    assert [row for row, whole in zip(told, pages) if row[1] != row[2] and not row[2] == whole <= row[1]] == []
