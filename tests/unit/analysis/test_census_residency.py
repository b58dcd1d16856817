"""What of each block is in RAM and in swap, by pages.

Files: analysis/census/owned.py.
"""

import random
from typing import Dict, Optional, Tuple

import pytest

from gdbheapx.analysis.census.owned import PageStates
from gdbheapx.kernel.common.copy import KIND_EXCLUSIVE, KIND_RESIDENT, KIND_SWAPPED, KIND_UNSURE

pytestmark = pytest.mark.once  # pure functions
PAGE = 16
OWN = KIND_RESIDENT | KIND_EXCLUSIVE


def pages(kinds: Dict[Tuple[int, int], Optional[bytes]], resident: Optional[int] = None) -> PageStates:
    return PageStates(list(kinds), PAGE, lambda start, end: kinds[start, end], lambda start, end: resident)


def test_a_block_has_its_share_of_its_pages() -> None:
    """Byte by byte as a plain count has it, over pages of each sort and mappings with gaps."""
    chance = random.Random(7)
    kinds = {(base, base + 40 * PAGE): bytes(chance.choice((0, OWN, KIND_SWAPPED)) for _ in range(40)) for base in (320, 64 * PAGE, 640 * PAGE)}
    asked = pages(dict(kinds))
    for _ in range(2000):
        (start, end), of = chance.choice(list(kinds.items()))
        address = chance.randrange(start, end)
        size = chance.randrange(0, end - address + 1)
        plain = [of[(at - start) // PAGE] for at in range(address, address + size)]
        assert asked.of(address, size) == (sum(one == OWN for one in plain), sum(one == KIND_SWAPPED for one in plain))
    assert asked.is_whole


@pytest.mark.parametrize("resident, expected", [(2 * PAGE, 2 * PAGE), (PAGE, PAGE), (None, None), (5, None)])
def test_pages_that_are_unsure(resident: Optional[int], expected: Optional[int]) -> None:
    """RSS says whether they are the zero page or shared; where it does not, nothing is said."""
    asked = pages({(0, 2 * PAGE): bytes([OWN, KIND_UNSURE])}, resident)
    found = asked.of(0, 2 * PAGE)
    assert (found[0], asked.is_whole) == (expected or 0, expected is not None)


@pytest.mark.parametrize("address, size", [(0, 8), (2 * PAGE, 8), (PAGE, 2 * PAGE), (8 * PAGE, 8), (10 * PAGE, 8)])
def test_what_is_not_known_is_said(address: int, size: int) -> None:
    """Beside every mapping, beyond one, or in one of which nothing is known, or too little."""
    asked = pages({(PAGE, 2 * PAGE): bytes([OWN]), (8 * PAGE, 9 * PAGE): None, (10 * PAGE, 12 * PAGE): bytes([OWN])})
    assert asked.of(address, size) == (0, 0) and not asked.is_whole
    assert PageStates([], PAGE, lambda start, end: None, lambda start, end: None).of(0, 1) == (0, 0)
