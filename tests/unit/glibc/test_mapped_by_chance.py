"""Words of other memory that look like headers of mmapped chunks, beside those that mp_ counts.

Files: glibc/survey.py.
"""

from array import array
from typing import List, Sequence, Tuple

import pytest

from gdbheapx.glibc.records import MmappedTotals
from gdbheapx.glibc.survey import _leave_out_ranges
from gdbheapx.kernel.glibc.records import MmappedChunks

RANGES = [(0x10000, 0x90000), (0x100000, 0x180000), (0x200000, 0x280000)]


def chunks(*places: Tuple[int, int]) -> MmappedChunks:
    """Chunks with a mapping of so many bytes."""
    return MmappedChunks(array("Q", (number for start, size in places for number in (start, size, start, size))))


@pytest.mark.parametrize(
    "found, counted, kept",
    [
        ([(0x10000, 0x3000), (0x100000, 0x2000), (0x108000, 0x1000)], (1, 0x3000), [0x10000]),
        ([(0x10000, 0x3000), (0x100000, 0x2000), (0x200000, 0x2000)], (2, 0x5000), None),  # either of two may be one
        ([(0x10000, 0x3000), (0x100000, 0x2000), (0x200000, 0x1000)], (1, 0x3000), [0x10000]),  # of two ranges
        ([(0x10000, 0x3000), (0x18000, 0x1000), (0x100000, 0x2000)], (2, 0x5000), None),  # one of a range with a true one
    ],
)
def test_ranges_are_left_out_if_all_others_are_as_counted(found: Sequence[Tuple[int, int]], counted: Tuple[int, int], kept: List[int]) -> None:
    """Only where one choice of ranges explains the surplus, in chunks and to the byte."""
    rest, is_complete = _leave_out_ranges(chunks(*found), RANGES, MmappedTotals(*counted))
    assert is_complete == (kept is not None)
    assert [chunk.chunk for chunk in rest] == (kept or [start for start, _ in found])
