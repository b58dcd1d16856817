"""How many words of blocks may be pointers, by pages from all over them.

Files: allocators/answers.py.
"""

import struct
from types import SimpleNamespace
from typing import Any, Tuple

import pytest

from gdbheapx.allocators.answers import most_pointers
from gdbheapx.model import Claim

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
