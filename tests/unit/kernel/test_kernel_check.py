"""The checks of chunks and members: nothing in a heap as it was built, each contradiction where it is, and both kernels say the same.

Files: kernel/glibc/records.py, kernel/glibc/walkers.py.
"""

import random
from array import array
from typing import Any, Dict, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.glibc import records as api
from gdbheapx.kernel.glibc.records import BIN, FAST, STATUS_FENCE, STATUS_FREE, STATUS_TOP, TCACHE, Geometry, Region, WalkResult
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from tests.support import reference_walk
from tests.support.builders import heap
from tests.support.builders.drawn import damaged, heaps
from tests.support.searches import search

DRAWN = search(150)
ALL = api.REGION_FIRST | api.REGION_BINS_KNOWN


def check(kernel: Kernel, source: BulkSource, geometry: Geometry, region: Region, flags: int, cached_chunks: Any, members: Any) -> api.BrokenRows:
    return ChunkWalker(kernel, source, geometry, Budget()).check([api.Checked(region, flags)], cached_chunks, members)


def binned(built: heap.Built) -> "array[int]":
    """The free chunks, as bins hold them."""
    return array("Q", [chunk for chunk, _, status in built.chunks if status == STATUS_FREE])


def with_owner(built: heap.Built, geometry: Geometry, is_main: bool) -> bytearray:
    """The heap's bytes with NON_MAIN_ARENA as chunks of such an arena have it."""
    data = bytearray(built.data)
    for chunk, size, status in built.chunks:
        if status not in (STATUS_FREE, STATUS_TOP, STATUS_FENCE):
            offset = chunk - built.region.begin + geometry.word_bytes
            field = int.from_bytes(data[offset : offset + geometry.word_bytes], "little" if geometry.little_endian else "big")
            heap.put(data, geometry, offset, size | field & 1 | (0 if is_main else 4))
    return data


@DRAWN
@given(made=heaps(), is_main=st.booleans())
def test_a_heap_as_it_was_built_breaks_no_rule(kernel: Kernel, made: Tuple[Geometry, heap.Built], is_main: bool) -> None:
    """But for free chunks side by side, which some of these have; each region's end is the walk's."""
    geometry, built = made
    source = BytesSource(((built.region.begin, bytes(with_owner(built, geometry, is_main))),))
    found_rows, counts = check(kernel, source, geometry, built.region, ALL | (api.REGION_MAIN if is_main else 0), built.cached_chunks, binned(built))
    pairs = [two[0] for one, two in zip(built.chunks, built.chunks[1:]) if one[2] == two[2] == STATUS_FREE]
    assert [row.address for row in found_rows if row.rule == api.BROKEN_FREE_NEIGHBOURS] == pairs[: api.MOST_ROWS]
    assert sum(counts) == len(pairs) + 1 and (found_rows[-1].rule, found_rows[-1].value) == (api.BROKEN_STOP, built.expected.stop)


@st.composite
def cases(draw: Any) -> Tuple[Geometry, Region, Any, BulkSource, Any, int]:
    """A damaged heap, and bins that hold some of its chunks and some that are none."""
    geometry, region, cached_chunks, source = draw(damaged())
    span = max(region.end - region.begin, 1)
    places = draw(st.lists(st.integers(0, span // 8), max_size=30))
    members = array("Q", sorted({(region.begin & -8) + 8 * place for place in places}))
    return geometry, region, cached_chunks, source, members, draw(st.integers(0, 7))


def check_like_walk(found_rows: Any, counts: Any, result: WalkResult) -> None:
    """It ends where the walk ends, and counts what the walk counts."""
    (stop,) = [row for row in found_rows if row.rule == api.BROKEN_STOP]
    assert (stop.address, stop.value) == (result.at, result.stop)
    assert counts[api.BROKEN_PREV_SIZE] == result.bad_prev_size_chunks
    assert counts[api.BROKEN_FREE_NEIGHBOURS] == result.bad_neighbour_chunks


@DRAWN
@given(case=cases())
def test_damage_has_rows_that_are_bounded_and_in_order(kernel: Kernel, case: Tuple[Geometry, Region, Any, BulkSource, Any, int]) -> None:
    """Overwritten words, holes, lists and bins that lie: it ends where the walk ends, and tells as many rows as it counts."""
    geometry, region, cached_chunks, source, members, flags = case
    found_rows, counts = check(kernel, source, geometry, region, flags, cached_chunks, members)
    check_like_walk(found_rows, counts, reference_walk.walk(source, geometry, region, cached_chunks))
    assert flags & api.REGION_BINS_KNOWN or not counts[api.BROKEN_NOT_BINNED]
    for rule, count in enumerate(counts):
        assert sum(row.rule == rule for row in found_rows) == min(count, api.MOST_ROWS)


@pytest.mark.parametrize("seed", range(6))
def test_damage_in_a_large_heap_is_counted_as_by_the_walk(kernel: Kernel, seed: int) -> None:
    """Some MiB with twenty overwritten words: the fast loop passes what contradicts nothing, and only that."""
    data, region, cached_chunks = heap.large(seed, 3)
    rng, changed = random.Random(seed), bytearray(data)
    for _ in range(20):
        offset = rng.randrange(len(changed) // 8) * 8
        heap.put(changed, heap.LP64, offset, rng.choice([0x21, 0x40, 0x31, 0x45, rng.getrandbits(64)]))
    members = array("Q", sorted({region.begin + 16 * rng.randrange(len(data) // 16) for _ in range(200)}))
    source = BytesSource(((region.begin, bytes(changed)),))
    found_rows, counts = check(kernel, source, heap.LP64, region, seed % 8, cached_chunks, members)
    assert found_rows[-1].rule == api.BROKEN_STOP
    check_like_walk(found_rows, counts, reference_walk.walk(source, heap.LP64, region, cached_chunks))


# ---------------------------------------------------------------------------------------------------- members


class Room:
    """Memory in which lists are written by hand."""

    def __init__(self) -> None:
        self.data, self.begin = bytearray(0x4000), 0x10000

    def put(self, address: int, *words: int) -> None:
        for number, word in enumerate(words):
            heap.put(self.data, heap.LP64, address - self.begin + 8 * number, word)

    def check(self, kernel: Kernel, *lists: api.MemberList, mangled: bool = True) -> Dict[int, List[Tuple[int, int, int]]]:
        """rule -> (chunk, value, list) of each."""
        source = BytesSource(((self.begin, bytes(self.data)),))
        found_rows, counts = ChunkWalker(kernel, source, heap.LP64, Budget()).check_members(lists, mangled)
        rows: Dict[int, List[Tuple[int, int, int]]] = {}
        for row in found_rows:
            rows.setdefault(row.rule, []).append((row.address, row.value, row.previous))
        assert tuple(len(rows.get(rule, ())) for rule in range(api.MEMBER_RULES)) == tuple(counts[: api.MEMBER_RULES])
        return rows

    def single(self, entries: List[int], sizes: List[int], key: int, offset: int = 0) -> None:
        """A protected list; `offset`: from an entry to its link."""
        for entry, after, size in zip(entries, [*entries[1:], 0], sizes):
            field = entry + offset
            self.put(field - 8, size | 1, after ^ field >> 12, key)

    def ring(self, header: int, chunks: List[Tuple[int, int]]) -> None:
        """A large bin: (chunk, size), largest first, with the links between sizes."""
        whole = [header, *[chunk for chunk, _ in chunks], header]
        self.put(header + 16, whole[1], whole[-2])
        firsts = [chunk for place, (chunk, size) in enumerate(chunks) if not place or chunks[place - 1][1] != size]
        for place, (chunk, size) in enumerate(chunks, 1):
            links = [0, 0]
            if chunk in firsts:
                at = firsts.index(chunk)
                links = [firsts[(at + 1) % len(firsts)], firsts[at - 1]]
            self.put(chunk, 0, size | 1, whole[place + 1], whole[place - 1], *links)


TCACHE_ENTRIES = [0x10100, 0x10200, 0x10300]
LARGE = [(0x11000, 0x600), (0x11800, 0x600), (0x12000, 0x580), (0x12800, 0x500)]


@pytest.mark.parametrize(
    "place, value, rule, chunk, told",
    [
        (0x101F8, 81, api.MEMBER_SIZE, 0x101F0, 80),
        (0x10208, 5, api.MEMBER_KEY, 0x101F0, 5),
        (0x10808, 49, api.MEMBER_SIZE, 0x10800, 48),
        (0x12008, 0x701, api.MEMBER_SIZE, 0x12000, 0x700),
        (0x12008, 0x701, api.MEMBER_ORDER, 0x12000, 0x600),
        (0x12020, 0, api.MEMBER_NEXTSIZE, 0x12800, 0x12000),
        (0x11028, 0x11800, api.MEMBER_NEXTSIZE, 0x11000, 0x12800),
        (0x12828, 0, api.MEMBER_NEXTSIZE, 0x12800, 0x12000),
        (0x12018, 0, api.MEMBER_LINK, 0x12000, 0x11800),
        (0x11810, 0x11810, api.MEMBER_LINK, 0x11810, 0x11800),
        (0x11810, 0x99999990, api.MEMBER_LINK, 0x99999990, 0x11800),
        (0x10F18, 0x12000, api.MEMBER_LINK, 0x10F00, 0x12000),
    ],
)
def test_a_member_that_breaks_a_rule(kernel: Kernel, place: int, value: int, rule: int, chunk: int, told: int) -> None:
    """Its size, key, order, and the links between sizes."""
    room = Room()
    room.single(TCACHE_ENTRIES, [64] * 3, 0xABCD)
    room.single([0x10800, 0x10900], [32, 32], 7, 16)
    room.ring(0x10F00, LARGE)
    lists = [
        api.MemberList(TCACHE, 0x10100, 3, 64, 64, 0xABCD, False),
        api.MemberList(FAST, 0x10800, 2, 32, 32, 0, False),
        api.MemberList(BIN, 0x10F00, 4, 0x500, 0x600, 0, True),
    ]
    assert room.check(kernel, *lists) == {}
    room.put(place, value)
    assert (chunk, told) in [row[:2] for row in room.check(kernel, *lists)[rule]]


@DRAWN
@given(data=st.binary(min_size=64, max_size=800), heads=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 120), st.integers(0, 9)), max_size=6), sort=st.booleans())
def test_garbage_is_followed_to_an_end(kernel: Kernel, data: bytes, heads: List[Tuple[int, int, int]], sort: bool) -> None:
    """Lists that lead anywhere end after as many members as were announced."""
    begin = 0x10000
    words = array("Q", data[: len(data) & -8])
    words = array("Q", [begin + (word % len(data) & -8) if word % 3 else word for word in words])
    lists = [api.MemberList(kind, begin + 8 * place, count, 32, 4096, 7 * (place % 2), sort) for kind, place, count in heads]
    source = BytesSource(((begin, words.tobytes()),))
    found_rows, counts = ChunkWalker(kernel, source, heap.LP64, Budget()).check_members(lists, False)
    assert counts[api.MEMBER_RULES] <= sum(one.count for one in lists if one.kind == BIN)
    for rule, count in enumerate(counts[: api.MEMBER_RULES]):
        assert sum(row.rule == rule for row in found_rows) == min(count, api.MOST_ROWS)
