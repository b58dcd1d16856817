"""mimalloc's free lists and tcmalloc's page map as they are walked."""

import random
import struct
from array import array
from typing import Any, Dict, List, Sequence

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
from gdbheapx.addons.allocators.tcmalloc import records
from gdbheapx.addons.allocators.tcmalloc import records as api
from gdbheapx.addons.allocators.tcmalloc.records import PageLeaf, SpanLayout, TcFreeList
from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.slots import SlotRun, SlotWalker

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


LEAF_BITS, SHIFT = 8, 13
LAYOUT = SpanLayout(1, SHIFT, LEAF_BITS, 12)
SIZES = [0, 8, 16, 48, 1000, 9000] + [0] * (api.SIZE_CLASSES - 6)
LEAVES, STRUCTS = 0x1000_0000, 0x2000_0000


def memory(rng: random.Random) -> Dict[int, bytearray]:
    """Three leaves with spans, some of them wrong, words of no span between them."""
    pieces = {LEAVES + 0x10000 * number: bytearray(8 << LEAF_BITS) for number in range(3)}
    pieces[STRUCTS] = bytearray(api.SPAN_BYTES * 400)
    if rng.random() < 0.3:
        del pieces[LEAVES + 0x20000][5 * rng.randrange(300) :]
    page, number = rng.randrange(20), 0
    while page < 3 << LEAF_BITS and number < 400:
        pages, at = rng.choice((1, 1, 2, 3, 30)), STRUCTS + api.SPAN_BYTES * number
        size_class, location = rng.choice((0, 0, 1, 2, 3, 4, 5, 6, 200)), rng.choice((0, 0, 0, 1, 2, 3))
        start = page if rng.random() < 0.9 else page + 1
        fields = (start, pages if rng.random() < 0.95 else rng.choice((0, 1 << 40)), 0, 0, rng.randrange(1 << 40), 5, size_class, location | 4 * (number & 1))
        pieces[STRUCTS][api.SPAN_BYTES * number : api.SPAN_BYTES * (number + 1)] = struct.pack("<QQQQQHBB", *fields)
        for inner in range(page, min(page + pages, 3 << LEAF_BITS)):
            leaf, place = pieces[LEAVES + 0x10000 * (inner >> LEAF_BITS)], 8 * (inner & (1 << LEAF_BITS) - 1)
            if place + 8 <= len(leaf) and rng.random() < 0.9:
                word = at if rng.random() < 0.95 else rng.choice((3, 0x3000_0000, STRUCTS + api.SPAN_BYTES * rng.randrange(400)))
                leaf[place : place + 8] = struct.pack("<Q", word)
        page, number = page + pages + rng.choice((0, 0, 1)), number + 1
    return pieces


@pytest.mark.parametrize("seed", range(30))
def test_spans_are_what_their_pages_name(c_kernel: CKernel, seed: int) -> None:
    """In address order, without overlap, each as its structure says; their runs fill them, and what is wrong was written so."""
    pieces = memory(random.Random(seed))
    source = BytesSource(tuple((start, bytes(data)) for start, data in sorted(pieces.items())))
    leaves = [PageLeaf(number, LEAVES + 0x10000 * number) for number in range(3)]
    one = records.read_spans(c_kernel, source, LAYOUT, leaves, SIZES, Budget())
    assert one.is_whole
    starts, sizes = one.column("start"), one.column("bytes")
    assert all(start + size <= following for start, size, following in zip(starts, sizes, starts[1:]))
    for address, start, size in zip(one.column("address"), starts, sizes):
        written = pieces[STRUCTS][address - STRUCTS : address - STRUCTS + 16] if address < STRUCTS + api.SPAN_BYTES * 400 else b""
        assert struct.unpack("<QQ", written) == (start >> SHIFT, size >> SHIFT)
    width = len(SlotRun._fields)
    runs = [SlotRun._make(one.runs[at : at + width]) for at in range(0, len(one.runs), width)]
    assert sum(run.slots * run.slot_bytes for run in runs) == sum(sizes) == sum(tally.bytes for tally in one.tallies)
    _, _, nothing = records.follow_objects(c_kernel, source, True, array("Q"), 0, Budget())
    assert SlotWalker(c_kernel, source, one.runs, records.TC_CLASS_OF, records.TC_LABELS, Budget(), nothing).tally().is_whole


def test_lists_end(c_kernel: CKernel) -> None:
    """To the end, to the limit of one list and of all, around a ring, to what is no address and to what cannot be read."""
    at = 0x5000_0000
    words = bytearray(8 * 1000)

    def link(place: int, value: int) -> None:
        words[8 * place : 8 * place + 8] = struct.pack("<Q", value)

    for place in range(100):
        link(place, at + 8 * (place + 1) if place < 99 else 0)
    link(200, at + 8 * 201)
    link(201, at + 8 * 200)
    link(300, 0x4141414141414141)
    link(301, 7)
    link(302, 0x7777_0000)
    lists = [(at, 1000), (at, 50), (at + 1600, 10), (at + 2400, 10), (at + 2408, 10), (at + 2416, 10), (0, 10), (at + 3, 1)]
    numbers = array("Q", [number for place, (head, most) in enumerate(lists) for number in TcFreeList(head, most, place % 4, at if place % 2 else 0)])
    source = BytesSource(((at, bytes(words)),))
    for most in (10_000, 120):
        is_whole, ends, frees = records.follow_objects(c_kernel, source, True, numbers, most, Budget())
        assert is_whole and len(ends) == len(lists) and sum(end.count for end in ends) == len(frees.addresses)
        if most == 10_000:
            assert [end.count for end in ends] == [100, 50, 10, 1, 1, 1, 0, 0]
            expected = [api.LIST_GOOD, api.LIST_LONG, api.LIST_LONG, api.LIST_MISALIGNED, api.LIST_MISALIGNED, api.LIST_UNREADABLE, api.LIST_GOOD]
            assert [end.problem for end in ends] == [*expected, api.LIST_MISALIGNED]
        assert list(frees.addresses) == sorted(frees.addresses) and set(frees.kinds) <= set(range(4))
