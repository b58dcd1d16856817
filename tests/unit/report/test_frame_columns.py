"""Rows as a pandas frame.

Files: report/encodings.py.
"""

from typing import NamedTuple, Optional

import pytest

from gdbheapx.report import encodings


class Row(NamedTuple):
    """A row with a figure that may be unknown."""

    blocks: int
    size_bytes: Optional[int]


def test_an_unknown_whole_number_makes_no_floats() -> None:
    """A column of whole numbers stays one where some are unknown: they are NA, and 2**60 + 1 is not rounded."""
    pytest.importorskip("pandas")
    frame = encodings.make_pandas([Row(1, None), Row(2, (1 << 60) + 1)])
    assert str(frame["size_bytes"].dtype) == "Int64" and str(frame["blocks"].dtype) == "int64"
    assert frame["size_bytes"].isna().tolist() == [True, False] and int(frame["size_bytes"][1]) == (1 << 60) + 1
