"""The block that holds an address, how many words may be pointers, and what another allocator gives for a request.

Files: allocators/answers.py, jemalloc/entry.py.
"""

import struct
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, List, Optional, Tuple

import pytest

from gdbheapx import allocators
from gdbheapx.allocators import answers
from gdbheapx.allocators.answers import most_pointers
from gdbheapx.common.model import Claim
from gdbheapx.kernel.blocks.stream import BlockShape, make_blocks
from tests.support.paths import installed

HEADED = BlockShape(("used", "free"), (8, 8), 16)
BARE = BlockShape(("used", "free"), (0, 0), None)
ROWS = [(0x1010, 24, 0, 0, 3), (0x1030, 40, 0, 1, 3), (0x1060, 24, 0, 0, 3), (0x2010, 24, 0, 0, 3)]
"""Chunks of 32, 48 and 32 bytes from 0x1000 on, and one at 0x2000."""


def ask(rows: Any, shape: BlockShape, address: int, batch: int) -> answers.AllocatorPlace:
    batches = [make_blocks(rows[at : at + batch]) for at in range(0, len(rows), batch)]
    return answers.make_heap_place(answers.find_neighbours(batches, shape, address), shape, "fake", address)


def brief(one: Optional[answers.Neighbour]) -> Optional[Tuple[int, int, str]]:
    return (int(one.address), one.size_bytes, one.status) if one is not None else None


CASES: List[Tuple[int, Any, Any, Any, Any]] = [
    (0x1010, (0x1010, 32, "used"), 0, None, (0x1030, 48, "free")),
    (0x1020, (0x1030, 48, "free"), -16, (0x1010, 32, "used"), (0x1060, 32, "used")),
    (0x104F, (0x1030, 48, "free"), 31, (0x1010, 32, "used"), (0x1060, 32, "used")),
    (0x1068, (0x1060, 32, "used"), 8, (0x1030, 48, "free"), None),
    (0x2018, (0x2010, 32, "used"), 8, None, None),
    (0x1100, None, None, (0x1060, 32, "used"), (0x2010, 32, "used")),
    (0x3000, None, None, (0x2010, 32, "used"), None),
]


@pytest.mark.parametrize("batch", [1, 2, 3, 10])
@pytest.mark.parametrize("address, block, offset, previous, after", CASES)
def test_blocks_with_headers(address: int, block: Any, offset: Any, previous: Any, after: Any, batch: int) -> None:
    """However the stream is cut; a neighbour of a block touches it."""
    found = ask(ROWS, HEADED, address, batch)
    assert (brief(found.block), found.offset, brief(found.previous), brief(found.next)) == (block, offset, previous, after)
    assert found.chunk == (block[0] - 16 if block else None) and found.arena == (3 if block else None)


def test_blocks_without_headers() -> None:
    """Their own address is where they begin."""
    rows = [(0x1000, 16, 0, 0, 0), (0x1010, 16, 0, 1, 0)]
    found = ask(rows, BARE, 0x1010, 10)
    assert (brief(found.block), found.chunk, found.offset, brief(found.previous)) == ((0x1010, 16, "free"), None, 0, (0x1000, 16, "used"))


START, SIZE = 0x7F0000000000, 64 << 20


def target(each: int, readable: Tuple[int, int] = (0, SIZE), little: bool = True) -> Any:
    """Memory of which each so-manieth word points into it."""
    words = [START + 8 * place if each and place % each == 0 else place for place in range(512)]
    page = struct.pack("<512Q" if little else ">512Q", *words)

    def read_prefix(address: int, size: int) -> bytes:
        assert address % 4096 == 0 and START <= address < START + SIZE
        return page[:size] if readable[0] <= address - START < readable[1] else b""

    return SimpleNamespace(page_bytes=4096, word_bytes=8, little_endian=little, read_prefix=read_prefix)


CLAIMS = [Claim(START, START + SIZE // 4, "a"), Claim(START + SIZE // 2, START + SIZE, "b")]


@pytest.mark.parametrize("little", [True, False])
@pytest.mark.parametrize("each", [0, 1, 2, 16, 512])
def test_never_fewer_and_not_many_more(each: int, little: bool) -> None:
    """A margin is added, and nothing is more than all words."""
    words = SIZE // 8
    true = words // each if each else 0
    found = most_pointers(target(each, little=little), CLAIMS, SIZE)
    assert found is not None and true <= found <= min(words, true + words // 8)


def test_too_few_pages() -> None:
    """Nothing follows from them."""
    assert most_pointers(target(1, (0, SIZE // 8)), CLAIMS, SIZE) is None
    assert most_pointers(target(1), [], SIZE) is None


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

REQUESTS = [("jemalloc", "nallocx", LARGE), ("mimalloc", "mi_good_size", ()), ("tcmalloc", "tc_nallocx", LARGE)]
"""Of allocators that are here."""


@pytest.mark.parametrize("name, function, sizes", [case for case in REQUESTS if case[0] in allocators.by_name()])
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
