"""The block that holds an address, from a stream of blocks: itself, its neighbours, its header, gaps."""

from typing import Any, List, Optional, Tuple

import pytest

from gdbheapx.allocators import answers
from gdbheapx.kernel.blocks.stream import BlockShape, make_blocks

HEADED = BlockShape(("used", "free"), (8, 8), 16)
BARE = BlockShape(("used", "free"), (0, 0), None)
ROWS = [(0x1010, 24, 0, 0, 3), (0x1030, 40, 0, 1, 3), (0x1060, 24, 0, 0, 3), (0x2010, 24, 0, 0, 3)]
"""Chunks of 32, 48 and 32 bytes from 0x1000 on, and one at 0x2000."""


def ask(rows: Any, shape: BlockShape, address: int, batch: int) -> answers.AllocatorPlace:
    batches = [make_blocks(rows[at : at + batch]) for at in range(0, len(rows), batch)]
    return answers.make_heap_place(answers.find_neighbours(batches, shape, address), shape, "fake", address)


def brief(one: Optional[answers.Neighbour]) -> Optional[Tuple[int, int, str]]:
    return (int(one.address), one.size_bytes, one.status) if one is not None else None


CASES: List[Tuple[int, Any, Any, Any, Any]] = [
    (0x1010, (0x1010, 32, "used"), 0, None, (0x1030, 48, "free")),
    (0x1020, (0x1030, 48, "free"), -16, (0x1010, 32, "used"), (0x1060, 32, "used")),
    (0x104F, (0x1030, 48, "free"), 31, (0x1010, 32, "used"), (0x1060, 32, "used")),
    (0x1068, (0x1060, 32, "used"), 8, (0x1030, 48, "free"), None),
    (0x2018, (0x2010, 32, "used"), 8, None, None),
    (0x1100, None, None, (0x1060, 32, "used"), (0x2010, 32, "used")),
    (0x3000, None, None, (0x2010, 32, "used"), None),
]


@pytest.mark.parametrize("batch", [1, 2, 3, 10])
@pytest.mark.parametrize("address, block, offset, previous, after", CASES)
def test_blocks_with_headers(address: int, block: Any, offset: Any, previous: Any, after: Any, batch: int) -> None:
    """However the stream is cut; a neighbour of a block touches it."""
    found = ask(ROWS, HEADED, address, batch)
    assert (brief(found.block), found.offset, brief(found.previous), brief(found.next)) == (block, offset, previous, after)
    assert found.chunk == (block[0] - 16 if block else None) and found.arena == (3 if block else None)


def test_blocks_without_headers() -> None:
    """Their own address is where they begin."""
    rows = [(0x1000, 16, 0, 0, 0), (0x1010, 16, 0, 1, 0)]
    found = ask(rows, BARE, 0x1010, 10)
    assert (brief(found.block), found.chunk, found.offset, brief(found.previous)) == ((0x1010, 16, "free"), None, 0, (0x1000, 16, "used"))
