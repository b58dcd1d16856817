"""The ages of pages joined with blocks: a block is stale if all its pages are; what is not known is neither warm nor stale.

Files: report/cold_text.py commands/cold.py
"""

from typing import Any, List, Optional, Tuple

import pytest

from gdbheapx.analysis import cold
from gdbheapx.analysis.cold import KNOWN, STALE
from gdbheapx.command import Style
from gdbheapx.report import cold_text

PAGE = 4096
KINDS = bytes([KNOWN | STALE, KNOWN | STALE, KNOWN, 0, KNOWN | STALE])
AGES = cold.Ages(cold.IDLE, 60.0, PAGE, [(0x10000, 0x10000 + len(KINDS) * PAGE, KINDS)])
STYLE = Style(plain_bytes=True, color=False)


@pytest.mark.parametrize(
    "at, size, found",
    [
        (0, 16, (16, 16)),
        (PAGE - 16, 16, (16, 16)),
        (PAGE - 16, 32, (32, 32)),
        (2 * PAGE - 16, 48, (16, 48)),
        (2 * PAGE, PAGE, (0, PAGE)),
        (3 * PAGE - 8, 16, (0, 8)),
        (3 * PAGE, 100, (0, 0)),
        (0, 5 * PAGE, (3 * PAGE, 4 * PAGE)),
        (5 * PAGE, 16, (0, 0)),
    ],
)
def test_bytes_of_a_block_by_the_ages_of_its_pages(at: int, size: int, found: Tuple[int, int]) -> None:
    """At the borders of pages, over several, and where no page was watched."""
    assert cold.aged(AGES).of(0x10000 + at, size) == found


def summed(*blocks: Tuple[int, int, int]) -> cold.ColdRow:
    """A row of blocks (bytes, stale, known)."""
    one = cold._Sum()
    for size, stale, known in blocks:
        one.add(size, (stale, known), (size, 0), 0)
    return one.row(True, True, True, "Session", "shop._cache")


def test_a_block_is_stale_if_all_its_pages_are() -> None:
    """Of others the bytes on untouched pages are told apart."""
    row = summed((100, 100, 100), (5000, 900, 5000), (64, 0, 64), (32, 0, 0))
    assert (row.stale_bytes, row.stale_blocks, row.partly_stale_bytes, row.unknown_bytes) == (100, 1, 900, 32)
    assert (row.blocks, row.bytes, row.resident_bytes) == (4, 5196, 5196)


def test_what_was_not_asked_is_none() -> None:
    """Never 0."""
    row = cold._Sum().row(False, False, False, None, None)
    assert {row.stale_bytes, row.stale_blocks, row.partly_stale_bytes, row.swapped_bytes, row.resident_bytes, row.locked_bytes} == {None}


def shown(means: Optional[str]) -> List[str]:
    """The text of one row."""
    row = summed((100, 100, 100), (5000, 900, 5000))
    row = row if means is not None else row._replace(stale_bytes=None, stale_blocks=None, partly_stale_bytes=None)
    found = cold.Cold([row], row, cold.BOTH, means, None if means is None else 60.0)
    return [str(line) for line in cold_text.lines(STYLE, found, None)]


@pytest.mark.parametrize("means", [None, cold.IDLE, cold.WRITTEN])
def test_the_text_names_the_means(means: Any) -> None:
    """What it can tell, and class and owner of what is stale."""
    text = "\n".join(shown(means))
    assert "Session" in text and "shop._cache" in text
    assert ("neither read nor written" in text, "only read" in text) == (means == cold.IDLE, means == cold.WRITTEN)
