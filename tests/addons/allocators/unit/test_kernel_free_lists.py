"""mimalloc's free lists: members, rings, strays, lists of all pages, encoded lists."""

import random
from typing import Any, List, Sequence

import pytest

from gdbheapx import kernel as kernels
from gdbheapx.addons.allocators.mimalloc.records import (
    LIST_GOOD,
    LIST_LONG,
    LIST_STRAY,
    LIST_UNREADABLE,
    MI_FREE,
    MI_REMOTE,
    FreeBlocks,
    MiFreeList,
    MiListEnd,
    MiListPage,
    follow_free_lists,
)
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource

BASE, SIZE, COUNT = 0x10000, 48, 200
PAGES = [MiListPage(BASE, SIZE, COUNT), MiListPage(BASE + 0x10000, 16, 50)]
MASK = (1 << 64) - 1


def turned(value: int, by: int) -> int:
    return (value << by | value >> (64 - by)) & MASK if by else value


def written(links: Sequence[Sequence[int]], null: int = 0, key: int = 0, turn: int = 0) -> BytesSource:
    """Memory in which these addresses are linked."""
    data = bytearray(0x20000)
    for members in links:
        for address, following in zip(members, [*members[1:], null]):
            value = (turned(following ^ turn, key & 63) + key) & MASK if key else following
            data[address - BASE : address - BASE + 8] = value.to_bytes(8, "little")
    return BytesSource(((BASE, bytes(data)),))


def followed(source: Any, rows: List[MiFreeList]) -> FreeBlocks:
    """All of them, to their ends."""
    told = follow_free_lists(kernels.load_native_library(), source, rows, PAGES, Budget(None))
    assert told.is_whole and sum(end.members for end in told.ends) == len(told.addresses) == len(told.kinds)
    assert list(told.addresses) == sorted(told.addresses)
    return told


def plain(head: int, page: int, kind: int = MI_FREE) -> MiFreeList:
    return MiFreeList(head, page, kind, 0, False, 0, 0)


def test_members_are_told_by_address() -> None:
    """In whatever order the list has them, with their kinds; a list of all pages counts by page."""
    numbers = random.Random(7).sample(range(COUNT - 1), 60)
    first = [BASE + SIZE * number for number in numbers]
    mixed = [BASE + SIZE * 199, BASE + 0x10000 + 16 * 3, BASE + 0x10000]
    rows = [plain(first[0], 0), plain(mixed[0], 2, MI_REMOTE), plain(0, 1)]
    told = followed(written([first, mixed]), rows)
    assert list(told.addresses) == sorted([*first, *mixed]) and list(told.shared) == [1, 2]
    assert [end.problem for end in told.ends] == [LIST_GOOD] * 3 and [end.members for end in told.ends] == [60, 3, 0]


def test_a_ring_ends() -> None:
    """A list with more members than there are blocks comes back."""
    ring = [BASE, BASE + SIZE, BASE + 2 * SIZE, BASE]
    source = written([ring[:3]], null=BASE)
    (end,) = followed(source, [plain(BASE, 0)]).ends
    assert (end.problem, end.members) == (LIST_LONG, COUNT)


@pytest.mark.parametrize("address", [BASE + 4, BASE - SIZE, BASE + SIZE * COUNT, MASK, 8])
def test_what_is_no_block_ends_a_list(address: int) -> None:
    """Inside a block, before and behind the page, at no address."""
    told = followed(written([[BASE + SIZE]], null=address), [plain(BASE + SIZE, 0)])
    assert told.ends == [MiListEnd(1, LIST_STRAY, address)]


def test_memory_that_is_missing_ends_a_list() -> None:
    """What came before is told."""
    source = BytesSource(((BASE, (BASE + SIZE * 150).to_bytes(8, "little") + bytes(100)),))
    (end,) = followed(source, [plain(BASE, 0)]).ends
    assert end == MiListEnd(1, LIST_UNREADABLE, BASE + SIZE * 150)


def test_blocks_on_two_lists_are_counted() -> None:
    """The address stands there twice."""
    told = followed(written([[BASE, BASE + SIZE]]), [plain(BASE, 0), plain(BASE + SIZE, 0, MI_REMOTE)])
    assert told.twice == 1 and list(told.addresses) == [BASE, BASE + SIZE, BASE + SIZE]


@pytest.mark.parametrize("key", [0x123456789ABCDE40, 0xFEDCBA9876543217])
def test_encoded_lists(key: int) -> None:
    """Two keys; the page's own address stands for the end, also with a turn by nothing."""
    null, turn = 0x7000, 0x5555AAAA12345678
    members = [BASE + SIZE * number for number in (5, 1, 9)]
    told = followed(written([members], null, key, turn), [MiFreeList(members[0], 0, MI_FREE, null, True, key, turn)])
    assert list(told.addresses) == sorted(members) and told.ends[0].problem == LIST_GOOD
