"""tcmalloc's page map and lists as they are walked: random spans with left-over words, and lists that end in every way."""

import random
import struct
from array import array
from typing import Dict

import pytest

from gdbheapx.addons.allocators.tcmalloc import records
from gdbheapx.addons.allocators.tcmalloc import records as api
from gdbheapx.addons.allocators.tcmalloc.records import PageLeaf, SpanLayout, TcFreeList
from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.slots import SlotRun, SlotWalker

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
