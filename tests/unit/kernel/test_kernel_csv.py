"""Rows of comma-separated values: Python's csv reads back what was given.

Files: kernel/blocks/csv.py.
"""

import csv
import io
from array import array
from typing import Tuple

import pytest

from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.csv import CsvWords
from gdbheapx.kernel.blocks.records import make_blocks
from tests.support.hostile import HOSTILE

pytestmark = pytest.mark.image  # what its compiler and Python make of it

WORDS = CsvWords([b"used", b"cached", b"free"], [b"used", b"mmapped"], [8, 16], b"malloc#2", [b"Session", b'"a,""b"', "\u00e9t\u00e9".encode(), b""])


@pytest.mark.parametrize("row, label", [((1, 1, 3, 0, 0), 0), ((1, 1, 0, 2, 0), 0), ((1, 1, 0, 0, 0), 5)])
def test_a_number_without_a_word_is_refused(c_kernel: CKernel, row: Tuple[int, int, int, int, int], label: int) -> None:
    """No text beyond those that were given is read."""
    with pytest.raises(ValueError):
        c_kernel.csv(WORDS).rows(make_blocks([row]), array("I", [label]))


def test_hostile_names_are_cells() -> None:
    """In a spreadsheet no formula, in the file one line, in any program UTF-8."""
    from gdbheapx.report.csv_rows import cell

    for name in HOSTILE:
        (row,) = csv.reader(io.StringIO(cell(name).decode("utf-8"), newline=""), strict=True) if name else [[""]]
        assert len(row) == 1 and not row[0].startswith(("=", "+", "-", "@")) and (row[0].isprintable() or not row[0])
    assert cell("=1+1") == b"'=1+1" and cell("-x") == b"'-x" and cell('a,"b') == b'"a,""b"'
