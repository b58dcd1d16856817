"""Blocks by their labels.

Files: kernel/blocks/graph_queries.py.
"""

import random
from array import array

import pytest

from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph_queries import find_labelled, renumber_labels


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_blocks_of_some_labels(c_kernel: CKernel, most: int) -> None:
    """In their order, no more than so many."""
    labels = array("I", random.Random(most).choices(range(9), k=500))
    expected = [block for block, label in enumerate(labels) if label in (2, 5)]
    assert list(find_labelled(c_kernel.library, labels, (2, 5), 7, most)) == expected[:most]


@pytest.mark.parametrize("letter", "BHI")
def test_labels_by_other_numbers(c_kernel: CKernel, letter: str) -> None:
    """Little endian, of the first blocks; a label without a number is refused."""
    width, labels = array(letter).itemsize, array("I", random.Random(letter).choices(range(9), k=500))
    numbers = [(label * 0x01234567) & ((1 << 8 * width) - 1) for label in range(9)]
    expected = b"".join(numbers[label].to_bytes(width, "little") for label in labels[:400])
    assert renumber_labels(c_kernel.library, labels, 400, numbers, width) == expected
    with pytest.raises(ValueError, match="a number for each label"):
        renumber_labels(c_kernel.library, labels, 400, numbers[:3], width)
    with pytest.raises(ValueError, match="a number for each label"):
        renumber_labels(c_kernel.library, labels, 501, numbers, width)
