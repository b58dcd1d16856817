"""SQLite's way to files by its form: what is nearly one is none.

Files: addons/runtimes/block_headers.py.
"""

from array import array
from typing import Any, Callable, List, Optional, Tuple, cast

import pytest

from gdbheapx.addons.runtimes.block_headers import has_sqlite
from gdbheapx.analysis.census.world import World

pytestmark = pytest.mark.once  # pure functions

START, END, NAME, CODE = 0x7F0000000000, 0x7F0000100000, 0x7F0000080000, 0x7F00000C0000
VFS = [3 | 104 << 32, 512, 0, NAME, NAME, *[CODE] * 10]
"""sqlite3_vfs: release and bytes of a file, most letters of a path, the next one, a name, data, functions."""


class Object:
    """Images of one object with these data; its last quarter is code."""

    ranges = [(START, END)]

    def __init__(self, data: List[int]) -> None:
        self._data = array("Q", data)

    def words(self, start: int, end: int) -> "array[int]":
        """See Images."""
        return self._data

    def word(self, address: int) -> Optional[int]:
        """See Images."""
        at = (address - START) // 8
        return self._data[at] if 0 <= at < len(self._data) else None

    def span_at(self, address: int) -> Tuple[int, int, Any]:
        """See Images."""
        return START, END, None

    def is_code(self, address: int) -> bool:
        """See Images."""
        return CODE <= address < END


class OneObject:
    """A process with one object that keeps these words."""

    def __init__(self, data: List[int]) -> None:
        self._images = Object(data)

    def once(self, kind: Callable[..., Any]) -> Object:
        """See World."""
        return self._images


def replaced(place: int, word: int) -> List[int]:
    """The form with another word."""
    return [*VFS[:place], word, *VFS[place + 1 :]]


@pytest.mark.parametrize(
    ("words", "is_one"),
    [
        (VFS, True),
        ([0, NAME, CODE, *VFS], True),
        ([*VFS[:7], 0, 0, 0, 0, *[CODE] * 6], True),
        (replaced(0, 4 | 104 << 32), False),
        (replaced(0, 3 | 40 << 32), False),
        (replaced(1, 4096), False),
        (replaced(3, 0x1000), False),
        (replaced(9, NAME), False),
        ([*VFS[:12], *[0] * 8], False),
        (VFS[1:], False),
        ([512] * 64, False),
    ],
)
def test_the_way_to_files(words: List[int], is_one: bool) -> None:
    """A release, the size of a file, 512 letters, a name of the object's own and eight functions or more."""
    assert has_sqlite(cast(World, OneObject(words))) == is_one
