"""Dicts of redis, by their words.

Files: addons/runtimes/block_headers.py.
"""

from typing import Optional, Sequence

import pytest

from gdbheapx.addons.runtimes.block_headers import Redis

pytestmark = pytest.mark.once  # pure functions

TABLE, NONE = 0x5000, (1 << 64) - 1


def fits(address: int, size_bytes: int) -> bool:
    """True for the one block of the graph, of 16 words."""
    return (address, size_bytes) == (TABLE, 16 * 8)


def elements(*words: int) -> Optional[int]:
    """Of the dict that has these words."""
    padded: Sequence[int] = [*words, *[0] * (11 - len(words))]
    found = Redis().read_container(fits, 0x1000, padded)
    return None if found is None else found.elements


def test_dicts() -> None:
    """Of 7.0 by the power of two that is its table's size, of 6.2 by size and mask."""
    assert elements(0x400000, TABLE, 0, 11, 0, NONE, 4 << 16) == 11
    assert elements(0x400000, 0, TABLE, 16, 15, 11, 0, 0, 0, 0, NONE) == 11
    assert elements(0x400000, TABLE, 0, 11, 0, NONE, 9 << 16) is None
