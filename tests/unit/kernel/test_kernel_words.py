"""Words that may be addresses: those that lie in some ranges, whatever piece of memory they are in.

Files: kernel/common/library.py, kernel/common/library.py.
"""

import random
from typing import List, Tuple

import pytest

from gdbheapx.kernel.common.library import Kernel

BASE = 0x7F0000001003
RANGES = [[], [(0x1000, 0x2000)], [(0x1000, 0x2000), (0x2000, 0x3000)], [(64 * n, 64 * n + 24) for n in range(1, 400)], [(1, (1 << 64) - 1)]]


@pytest.mark.parametrize("ranges", RANGES)
@pytest.mark.parametrize("mask", [0, 7, 63])
def test_words_into_ranges(kernel: Kernel, ranges: List[Tuple[int, int]], mask: int) -> None:
    """As each word by itself tells; zeros lead nowhere, and bytes before the first aligned word and behind the last are no words."""
    pick = random.Random(mask + len(ranges))
    memory: List[Tuple[int, bytes]] = []
    for start in (BASE, BASE + 0x5005, BASE + 0x8000):
        words = [pick.choice((0, 8 * pick.randrange(1 << 12), pick.randrange(1 << 15), pick.randrange(1 << 64))) for _ in range(500)]
        memory.append((start, bytes(-start & 7) + b"".join(word.to_bytes(8, "little") for word in words) + b"\1\2\3"))
    expected = []
    for start, data in memory:
        for at in range(-start & 7, len(data) - 7, 8):
            word = int.from_bytes(data[at : at + 8], "little")
            if not word & mask and any(low <= word < high for low, high in ranges):
                expected.append((start + at, word))
    before = kernel.searched_words
    assert kernel.find_addresses(memory, ranges, mask) == expected and (expected or not ranges)
    assert kernel.searched_words - before == 1500
    assert kernel.find_addresses([(BASE, b"short")], ranges, mask) == []
