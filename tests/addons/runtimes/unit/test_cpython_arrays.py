"""numpy's arrays, made by hand: shapes, and which element a word of their data is.

Files: addons/runtimes/cpython/paths.py.
"""

from types import SimpleNamespace
from typing import Any, Dict, Optional, Tuple

import pytest

from gdbheapx.addons.runtimes.cpython import paths as arrays

ARRAY, DATA, SIZES, STEPS, TYPE = 0x1000, 0x100000, 0x2000, 0x3000, 0x4000


def memory(dimensions: Tuple[int, ...], strides: Tuple[int, ...], number: int, kind: str) -> Any:
    """What reads one array."""
    words: Dict[int, int] = {ARRAY + 16: DATA, ARRAY + 32: SIZES, ARRAY + 40: STEPS, ARRAY + 56: TYPE}
    numbers = {ARRAY + 24: len(dimensions), TYPE + 24: ord(kind), TYPE + 28: number}

    def read(at: int, count: int) -> Optional[Tuple[int, ...]]:
        return {SIZES: dimensions, STEPS: strides}.get(at)

    return SimpleNamespace(word=lambda at: words.get(at, 0), number=lambda at, size: numbers.get(at, 0), world=SimpleNamespace(words=read))


def test_shapes() -> None:
    """As Python writes them; a type that is not known is left out."""
    one, many = memory((3,), (8,), 12, "f"), memory((1000, 50), (400, 8), 99, "f")
    assert [arrays.describe_ndarray(array) for array in (arrays.read_ndarray(some, ARRAY) for some in (one, many)) if array] == [
        "ndarray float64 (3,)",
        "ndarray (1000, 50)",
    ]


@pytest.mark.parametrize(
    ("dimensions", "strides", "offset", "text"),
    [
        ((5,), (8,), 24, "[3]"),
        ((5,), (8,), 40, None),  # behind the last
        ((5,), (8,), 12, None),
        ((5,), (16,), 24, None),  # between two of every other
        ((4, 6), (48, 8), 48 * 2 + 8 * 5, "[2, 5]"),
        ((4, 6), (8, 32), 8 * 2 + 32 * 5, "[2, 5]"),  # by columns
        ((5,), ((1 << 64) - 8,), 0, None),  # backwards
        ((5,), (0,), 0, None),
    ],
)
def test_elements(dimensions: Tuple[int, ...], strides: Tuple[int, ...], offset: int, text: Optional[str]) -> None:
    """Which object of an array a word is."""
    array = arrays.read_ndarray(memory(dimensions, strides, 17, "O"), ARRAY)
    assert array is not None and arrays.format_index(array, DATA + offset) == text


def test_numbers_are_no_objects() -> None:
    """A word of an array of numbers leads nowhere; what has no dimensions, or a hundred, is no array."""
    array = arrays.read_ndarray(memory((5,), (8,), 12, "f"), ARRAY)
    assert array is not None and arrays.format_index(array, DATA) is None
    assert arrays.read_ndarray(memory((), (), 12, "f"), ARRAY) is None
    assert arrays.read_ndarray(memory((1,) * 100, (8,) * 100, 12, "f"), ARRAY) is None
