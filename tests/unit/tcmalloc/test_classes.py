"""tcmalloc's size classes, and those of other allocators, against what the libraries of this system say."""

import ctypes
import subprocess
import sys

import pytest

from gdbheapx.tcmalloc import classes
from tests.support.tcmallocs import library

SIZES = (*range(1, 4000, 7), *range(4000, 300000, 1013), *range(300000, 2 << 20, 100003))


def test_classes_are_those_of_the_library() -> None:
    """tc_nallocx says what block a request gets, and makes none. In a process of its own: the library takes malloc's place where it is loaded."""
    text = "import ctypes, sys; f = ctypes.CDLL(sys.argv[1]).tc_nallocx; f.restype = ctypes.c_size_t; "
    text += "f.argtypes = [ctypes.c_size_t, ctypes.c_int]; print(*(f(int(n), 0) for n in sys.argv[2:]))"
    done = subprocess.run([sys.executable, "-c", text, str(library()), *map(str, SIZES)], capture_output=True, text=True, check=True)
    if ctypes.sizeof(ctypes.c_void_p) == 8:
        assert [classes.block_bytes(size) for size in SIZES] == list(map(int, done.stdout.split()))


@pytest.mark.parametrize("request_bytes, block", [(1, 8), (8, 8), (9, 16), (17, 32), (129, 144), (1025, 1152), (3329, 4096), (262144, 262144), (262145, 270336)])
def test_a_request_gets_the_smallest_block_that_holds_it(request_bytes: int, block: int) -> None:
    """Classes that waste no page less are one; beyond 256 KiB a block is whole pages."""
    assert classes.block_bytes(request_bytes) == block
