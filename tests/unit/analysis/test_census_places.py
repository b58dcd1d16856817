"""Names by who alone points to a block."""

from types import SimpleNamespace
from typing import Any

import pytest

from gdbheapx.analysis.census import find
from gdbheapx.kernel.blocks.signatures import OTHERS, REFERRED, ROOTED, Signed


@pytest.mark.parametrize("row", [REFERRED, ROOTED])
def test_places_beyond_the_labels_have_no_name(row: int) -> None:
    """Of millions of places the kernel labels one million; blocks of the rest share a key, which is no place."""
    reach: Any = SimpleNamespace(word_bytes=8, regions=SimpleNamespace(roots=[]))
    names: Any = None
    one = Signed(row + 3, OTHERS, 7, 700, 0x1000, 100, 100)
    assert find._place(one, 3, {}, [], names, reach, {}) is None


def test_the_size_of_blocks_that_nothing_names() -> None:
    """It is told where all have the same, and is never a key."""
    one = Signed(5, OTHERS, 7, 700, 0x1000, 24, 216)
    assert find._one_size(one) is None and find._one_size(one._replace(least_bytes=216)) == 216
