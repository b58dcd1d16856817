"""Rows of comma-separated values: Python's csv reads back what was given.

Files: addons/views/query/csv_rows.py.
"""

import csv
import io
from array import array
from typing import Any, Iterator, List, NamedTuple, Tuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gdbheapx import kernel
from gdbheapx.addons.views.query import csv_rows
from gdbheapx.addons.views.query.csv_rows import CsvRows, CsvWords, format_cell
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.stream import CLASS_FREE, CLASS_OVERHEAD, CLASS_USED, NO_ARENA, BlockShape, NativeBlocks, make_blocks
from tests.support.hostile import HOSTILE

pytestmark = pytest.mark.image  # what its compiler and Python make of it

FEW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
WORDS = CsvWords([b"used", b"cached", b"free"], [b"used", b"mmapped"], [8, 16], b"malloc#2", [b"Session", b'"a,""b"', "\u00e9t\u00e9".encode(), b""])
NUMBER = st.one_of(st.integers(0, (1 << 64) - 1 - 16), st.sampled_from([0, 9, 10, 0xFFFFFFFF, (1 << 63), (1 << 64) - 17]))
ROW = st.tuples(NUMBER, NUMBER, st.integers(0, 2), st.integers(0, 1), st.one_of(st.integers(0, NO_ARENA), st.just(NO_ARENA)))


@FEW
@given(st.lists(st.tuples(ROW, st.integers(0, 4)), max_size=40), st.booleans())
def test_each_cell_is_what_went_in(c_kernel: CKernel, given_rows: List[Tuple[Any, int]], has_labels: bool) -> None:
    """Whatever the numbers, with labels and without."""
    blocks = make_blocks([row for row, _ in given_rows], in_order=False)
    labels = array("I", [label for _, label in given_rows]) if has_labels else None
    found = CsvRows(c_kernel.library, WORDS).rows(blocks, labels)
    read = list(csv.reader(io.StringIO(found.decode("utf-8"), newline=""), strict=True))
    names = ["", "Session", 'a,"b', "\u00e9t\u00e9", ""]
    expected = []
    for (address, usable, class_, kind, arena), label in given_rows:
        row = [hex(address), str(usable + (8, 16)[kind]), str(usable), ("used", "cached", "free")[class_], ("used", "mmapped")[kind]]
        row += ["" if arena == NO_ARENA else str(arena), "malloc#2"]
        expected.append([*row, names[label]] if has_labels else row)
    assert read == expected


@pytest.mark.parametrize("row, label", [((1, 1, 3, 0, 0), 0), ((1, 1, 0, 2, 0), 0), ((1, 1, 0, 0, 0), 5)])
def test_a_number_without_a_word_is_refused(c_kernel: CKernel, row: Tuple[int, int, int, int, int], label: int) -> None:
    """No text beyond those that were given is read."""
    with pytest.raises(ValueError):
        CsvRows(c_kernel.library, WORDS).rows(make_blocks([row]), array("I", [label]))


def test_hostile_names_are_cells() -> None:
    """In a spreadsheet no formula, in the file one line, in any program UTF-8."""
    for name in HOSTILE:
        (row,) = csv.reader(io.StringIO(format_cell(name).decode("utf-8"), newline=""), strict=True) if name else [[""]]
        assert len(row) == 1 and not row[0].startswith(("=", "+", "-", "@")) and (row[0].isprintable() or not row[0])
    assert format_cell("=1+1") == b"'=1+1" and format_cell("-x") == b"'-x" and format_cell('a,"b') == b'"a,""b"'


class CsvInfo(NamedTuple):
    """Its id."""

    id: str = "glibc"


class Heap(NamedTuple):
    """Two batches: three blocks, and a mapped one."""

    info: CsvInfo = CsvInfo()
    shape: BlockShape = BlockShape(("used", "free", "mmapped"), (8, 8, 16), 16)

    def blocks(self) -> Iterator[NativeBlocks]:
        """By address."""
        yield make_blocks([(0x1010, 24, CLASS_OVERHEAD, 0, 0), (0x1030, 56, CLASS_FREE, 1, 0), (0x1070, 40, CLASS_USED, 0, 0)])
        yield make_blocks([(0x7010, 4080, CLASS_USED, 2, NO_ARENA)])


def test_every_block_is_a_row() -> None:
    """The size is the allocator's own; a block of no arena has an empty cell."""
    assert "".join(csv_rows.format_csv(kernel.load_native_library(), [Heap()])).splitlines() == [
        "address,size_bytes,usable_bytes,class,status,arena,allocator",
        "0x1010,32,24,overhead,used,0,glibc",
        "0x1030,64,56,free,free,0,glibc",
        "0x1070,48,40,used,used,0,glibc",
        "0x7010,4096,4080,used,mmapped,,glibc",
    ]


@pytest.mark.parametrize("addresses, labels", [([0x1070, 0x7010], [2, 1]), ([0x1000, 0x1070, 0x3000, 0x7010], [1, 2, 2, 1])])
def test_names_are_found_by_address(addresses: List[int], labels: List[int]) -> None:
    """Whether or not other blocks with a name lie between."""
    signed = csv_rows.BlockSignatures(array("Q", addresses), array("I", labels), ["=cmd", "Session"])
    lines = "".join(csv_rows.format_signed_csv(kernel.load_native_library(), list(csv_rows.read_used_blocks([Heap()])), signed)).splitlines()
    assert lines[1:] == ["0x1070,48,40,used,used,0,glibc,Session", "0x7010,4096,4080,used,mmapped,,glibc,'=cmd"]


def test_a_block_without_a_name_has_none() -> None:
    """It is in use all the same."""
    signed = csv_rows.BlockSignatures(array("Q", [0x7010]), array("I", [1]), ["Session"])
    lines = "".join(csv_rows.format_signed_csv(kernel.load_native_library(), list(csv_rows.read_used_blocks([Heap()])), signed)).splitlines()
    assert lines[1:] == ["0x1070,48,40,used,used,0,glibc,", "0x7010,4096,4080,used,mmapped,,glibc,Session"]
