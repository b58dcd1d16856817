"""Walks: what was built is what is counted, and damage stops them where the reference walk stops, for the same reason.

Files: kernel/common/library.py, kernel/glibc/walkers.py.
"""

import random
from array import array
from typing import Any, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BulkSource, BytesSource
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RESERVE, CLASS_USED, EVERYTHING, BlockFilter
from gdbheapx.kernel.common.library import STOP_END, STOP_FENCE, Kernel
from gdbheapx.kernel.glibc.records import (
    STATUS_FAST,
    STATUS_FENCE,
    STATUS_FREE,
    STATUS_TCACHE,
    STATUS_TCACHE_STRUCT,
    STATUS_TOP,
    STATUS_USED,
    Geometry,
    NativeListed,
    Region,
    WalkResult,
)
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from tests.support import reference_walk
from tests.support.builders import heap
from tests.support.builders.drawn import damaged, heaps
from tests.support.searches import search

NONE = array("Q")
CLASS_OF = {
    STATUS_USED: CLASS_USED,
    STATUS_FAST: CLASS_CACHED,
    STATUS_TCACHE: CLASS_CACHED,
    STATUS_TCACHE_STRUCT: CLASS_OVERHEAD,
    STATUS_FREE: CLASS_FREE,
    STATUS_TOP: CLASS_RESERVE,
    STATUS_FENCE: CLASS_OVERHEAD,
}
FAST = search(150)


def walk(kernel: Kernel, source: BulkSource, geometry: Geometry, region: Region, cached_chunks: Any = NONE, threads: int = 1) -> WalkResult:
    return ChunkWalker(kernel, source, geometry, Budget()).walk([region], cached_chunks, threads=threads)[0]


def listed(kernel: Kernel, source: BulkSource, geometry: Geometry, region: Region, cached_chunks: Any = NONE, wanted: BlockFilter = EVERYTHING) -> Tuple[Any, Any]:
    """(chunk, size, status) of each, and how it ended."""
    stream = ChunkWalker(kernel, source, geometry, Budget()).blocks([NativeListed(region, 7)], cached_chunks, wanted)
    rows = [row for blocks in stream for row in zip(*blocks)]
    word = geometry.word_bytes
    assert all(class_ == CLASS_OF[kind] and arena == 7 for _, _, class_, kind, arena in rows)
    return [(address - 2 * word, usable + word, kind) for address, usable, _, kind, _ in rows], stream.result


@FAST
@given(made=heaps())
def test_a_walk_counts_what_was_built(kernel: Kernel, made: Tuple[Geometry, heap.Built]) -> None:
    """Every field of the result follows from the list that the heap was made from, for every geometry and every end."""
    geometry, built = made
    assert walk(kernel, built.source, geometry, built.region, built.cached_chunks) == built.expected


@FAST
@given(made=heaps())
def test_a_listing_gives_the_chunks_that_were_built(kernel: Kernel, made: Tuple[Geometry, heap.Built]) -> None:
    """Address, size and status of every chunk, the end as the walk says it; filters only leave out."""
    geometry, built = made
    rows, end = listed(kernel, built.source, geometry, built.region, built.cached_chunks)
    assert rows == built.chunks
    assert (end.stop, end.at) == (built.expected.stop, built.expected.at)
    rows, _ = listed(kernel, built.source, geometry, built.region, built.cached_chunks, BlockFilter({STATUS_FREE, STATUS_FAST}, 64, 256))
    assert rows == [row for row in built.chunks if 64 <= row[1] <= 256 and row[2] in (STATUS_FREE, STATUS_FAST)]


@FAST
@given(case=damaged())
def test_damage_is_the_same_to_the_reference_walk(kernel: Kernel, case: Tuple[Geometry, Region, Any, BulkSource]) -> None:
    """Overwritten words, wrong cached chunks and holes: equal in every field, walk and listing."""
    geometry, region, cached_chunks, source = case
    assert walk(kernel, source, geometry, region, cached_chunks) == reference_walk.walk(source, geometry, region, cached_chunks)
    rows, end = reference_walk.list_chunks(source, geometry, [NativeListed(region, 7)], cached_chunks)
    word = geometry.word_bytes
    assert listed(kernel, source, geometry, region, cached_chunks) == ([(address - 2 * word, usable + word, kind) for address, usable, kind, _ in rows], end)


@FAST
@given(data=st.binary(max_size=600), geometry=st.sampled_from(heap.GEOMETRIES), top=st.integers(0, 600), shift=st.integers(0, 17))
def test_garbage_stops_it_as_the_reference_walk(kernel: Kernel, data: bytes, geometry: Geometry, top: int, shift: int) -> None:
    """Random bytes, also at addresses that no chunk can have, and a top anywhere: no crash, equal results."""
    begin = 0x10000 + shift
    region, source = Region(begin, begin + len(data) + 8, begin + top), BytesSource(((begin, data),))
    assert walk(kernel, source, geometry, region) == reference_walk.walk(source, geometry, region)


def test_many_random_heaps_with_few_bits_flipped(kernel: Kernel) -> None:
    """Flipped bits in larger heaps than hypothesis makes: equal results, also with a special on every tenth chunk."""
    for seed in range(12):
        rng = random.Random(seed)
        data, region, cached_chunks = heap.large(seed, 1)
        changed = bytearray(data)
        for _ in range(rng.randrange(4)):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        source = BytesSource(((region.begin, bytes(changed)),))
        assert walk(kernel, source, heap.LP64, region, cached_chunks) == reference_walk.walk(source, heap.LP64, region, cached_chunks)


@pytest.mark.parametrize("seed", range(20))
def test_a_heap_of_many_pages_with_runs_of_free_chunks(kernel: Kernel, seed: int) -> None:
    """So long that most of it is counted by the fast loop, which leaves runs, and what looks like a heap's end, to the other."""
    rng = random.Random(seed)
    spec: List[Tuple[int, int]] = []
    for _ in range(60):
        spec += [(STATUS_FREE, 32 + 16 * rng.randrange(40))] * rng.randrange(2)
        spec += rng.choice(([], [(STATUS_FAST, 32 + 16 * rng.randrange(6))] * rng.choice((1, 90)), [(STATUS_FAST, 4096 + 16 * rng.randrange(9))]))
        spec += [(STATUS_USED, 32 + 16 * rng.randrange(20))] * rng.randrange(1, 40)
    built = heap.build(spec, seed=seed)
    assert walk(kernel, built.source, heap.LP64, built.region, built.cached_chunks) == built.expected
    data = bytearray(built.data)
    ends = [two[0] for one, two in zip(built.chunks, built.chunks[1:]) if one[1:] == (32, STATUS_USED) and two[2] == STATUS_USED]
    for place in rng.sample(ends, min(len(ends), 1)):
        heap.put(data, heap.LP64, place - built.region.begin + 8, 1)
    source = BytesSource(((built.region.begin, bytes(data)),))
    assert walk(kernel, source, heap.LP64, built.region, built.cached_chunks) == reference_walk.walk(source, heap.LP64, built.region, built.cached_chunks)


@pytest.mark.parametrize("unit, apart", [(64, 3 << 20), (8192, 16384)])
def test_runs_that_cross_the_places_of_a_cut(c_kernel: Kernel, unit: int, apart: int) -> None:
    """Nothing but fastbin chunks with one in use now and then: threads begin inside a run or with it, and the pages of all runs are counted once."""
    begin, size = 0x5550000, 28 << 20
    data = ((unit | 1) << 64).to_bytes(unit, "little") * (size // unit)
    used = range(begin, begin + size, apart)
    cached_chunks = array("Q", [chunk | STATUS_FAST for chunk in range(begin, begin + size, unit) if (chunk - begin) % apart])
    result = walk_alike(c_kernel, BytesSource(((begin, data),)), heap.LP64, [Region(begin, begin + size, 0)], cached_chunks)
    pages = [min(start + apart, begin + size) // 4096 - -(-(start + unit + 48) // 4096) for start in used]
    assert (result.interior_bytes, result.interior_ranges, result.used_chunks) == (4096 * sum(pages), len(used), len(used))


def walk_alike(kernel: Kernel, source: BulkSource, geometry: Geometry, regions: List[Region], cached_chunks: Any) -> WalkResult:
    """What any number of threads tells, of the first region."""
    first, *others = (ChunkWalker(kernel, source, geometry, Budget()).walk(regions, cached_chunks, threads=threads) for threads in (1, 2, 3, 8))
    assert all(other == first for other in others)
    return first[0]


@pytest.mark.parametrize("geometry", [heap.LP64, heap.GEOMETRIES[3], heap.GEOMETRIES[4], heap.GEOMETRIES[8]])
def test_results_do_not_depend_on_the_number_of_threads(c_kernel: Kernel, geometry: Geometry) -> None:
    """A region long enough to be cut into pieces; and equal to the reference walk, which never cuts."""
    data, region, cached_chunks = heap.large(7, 40, geometry)
    source = BytesSource(((region.begin, data),))
    assert walk_alike(c_kernel, source, geometry, [region], cached_chunks).stop == STOP_END
    shorter = region._replace(end=region.begin + len(data) // 10)
    assert walk(c_kernel, source, geometry, shorter, cached_chunks, 4) == reference_walk.walk(source, geometry, shorter, cached_chunks)


@pytest.mark.parametrize("largest", [6000, 100_000])
@pytest.mark.parametrize("seed", range(4))
def test_nor_with_damage_or_large_chunks(c_kernel: Kernel, seed: int, largest: int) -> None:
    """Pieces beyond damage are thrown away; between large chunks a place to cut is found by headers that lie far apart."""
    rng = random.Random(seed)
    data, region, cached_chunks = heap.large(seed, 30, heap.LP64, largest)
    changed = bytearray(data)
    for _ in range(seed):
        changed[rng.randrange(len(changed) // 16) * 16 + 8] ^= 1 << rng.randrange(8)
    other = Region(region.end + 0x1000, region.end + 0x1000 + len(data), 0)
    source = BytesSource(((region.begin, bytes(changed)), (other.begin, data)))
    result = walk_alike(c_kernel, source, heap.LP64, [region, other], cached_chunks)
    assert seed or result.stop == STOP_END


def test_a_chain_of_false_headers_inside_a_chunk_deceives_nobody(c_kernel: Kernel) -> None:
    """A used chunk of many MiB that holds a perfect heap: pieces that begin in it are thrown away."""
    inner, _, _ = heap.large(3, 28)
    before, after = heap.large(1, 6)[0], heap.large(2, 6)[0]
    size = len(inner) + 16
    wrapped = bytearray(size)
    heap.put(wrapped, heap.LP64, 8, size | 1)
    wrapped[16:] = inner
    data = before + bytes(wrapped) + after
    region = Region(0x5550000, 0x5550000 + len(data), 0)
    result = walk_alike(c_kernel, BytesSource(((region.begin, data),)), heap.LP64, [region], NONE)
    assert result.used_bytes + result.free_bytes == len(data)


def piece(spec: List[Tuple[int, int]], address: int, has_top: bool = False, geometry: Geometry = heap.LP64) -> Tuple[bytes, heap.Built]:
    """A piece of a main arena that is not contiguous, from its page on: chunks without N, then two fenceposts, or top, up to the end of a page."""
    built, word = heap.build(spec, geometry, end="top" if has_top else "end", address=address, seed=address & 0xFFFF), geometry.word_bytes
    data = bytearray(built.region.begin - address) + built.data
    for chunk, size, _ in built.chunks:
        place = chunk - address
        heap.put(data, geometry, place + word, size | (data[place + word] & 1))
    if has_top:
        grown = -(-len(data) // 4096) * 4096 - (built.region.top - address)
        heap.put(data, geometry, built.region.top - address + word, grown | 1)
        return bytes(data) + bytes(-len(data) % 4096), built
    fences = bytearray(4 * word)
    heap.put(fences, geometry, word, 2 * word | 1)
    heap.put(fences, geometry, 3 * word, 2 * word | 1)
    assert 0 <= -(len(data) + 4 * word) % 4096 < geometry.alignment_bytes
    return bytes(data + fences) + bytes(-(len(data) + 4 * word) % 4096), built


def filled(spec: List[Tuple[int, int]], pages: int, geometry: Geometry = heap.LP64) -> List[Tuple[int, int]]:
    """The chunks and one more, up to the fenceposts at the end of so many pages; malloc rounds the size of what was top down (sysmalloc)."""
    room = pages * 4096 - heap.first_chunk(geometry, 0) - 4 * geometry.word_bytes - sum(size for _, size in spec)
    return [*spec, (STATUS_USED, room & -geometry.alignment_bytes)]


def joined_pieces(seed: int, geometry: Geometry = heap.LP64) -> Tuple[bytes, int, int, List[heap.Built], Any]:
    """Four pieces, the second with top and without fenceposts: (bytes, begin, top, the pieces, cached chunks)."""
    rng, begin = random.Random(seed), 0x7F0000000000 if geometry.word_bytes == 8 else 0xF6800000
    data, built, top = b"", [], 0
    for number in range(4):
        spec: List[Tuple[int, int]] = []
        for _ in range(rng.randrange(1, 60)):
            status = rng.choice((STATUS_USED, STATUS_TCACHE, STATUS_FAST, STATUS_FREE)) if spec and spec[-1][0] != STATUS_FREE else STATUS_USED
            spec.append((status, 32 + 16 * rng.randrange(60)))
        if spec[-1][0] == STATUS_FREE:
            spec.append((STATUS_USED, 64))
        made, one = piece(spec if number == 1 else filled(spec, 20, geometry), begin + len(data), number == 1, geometry)
        top = one.region.top if number == 1 else top
        data, built = data + made, [*built, one]
    return data, begin, top, built, array("Q", [special for one in built for special in one.cached_chunks])


I386 = Geometry(4, 16, 16, 24, 4096, True)
"""The alignment exceeds two words: chunks begin half a unit behind a page, and fenceposts end as far before one."""


@pytest.mark.parametrize("geometry", [heap.LP64, I386], ids=["lp64", "i386"])
@pytest.mark.parametrize("seed", range(8))
def test_a_walk_goes_on_from_piece_to_piece(kernel: Kernel, seed: int, geometry: Geometry) -> None:
    """Behind fenceposts and behind top that end with a page: counted is what all pieces hold, what lies between apart, and listed is each chunk."""
    data, begin, top, built, cached_chunks = joined_pieces(seed, geometry)
    foreign = bytes(random.Random(seed).randrange(256) for _ in range(8192))
    source, first = BytesSource(((begin, data + foreign),)), built[0].region.begin
    region = Region(first, begin + len(data) + len(foreign), top, True)
    result = walk(kernel, source, geometry, region, cached_chunks)
    between = (0 if geometry == heap.LP64 else 3 * 8 + 2 * 8) + 2 * 4 * geometry.word_bytes  # the last piece's fenceposts are the caller's
    assert (result.stop, result.further_pieces, result.fence_bytes) == (STOP_FENCE, 3, between)
    for name in ("used", "tcache", "fast", "free"):
        for unit in ("_chunks", "_bytes"):
            assert getattr(result, name + unit) == sum(getattr(one.expected, name + unit) for one in built), name + unit
    assert result.interior_bytes == sum(one.expected.interior_bytes for one in built) and not result.bad_neighbour_chunks
    assert (result.specials_met, result.missed_specials) == (len(cached_chunks), 0)
    assert [row[0] for row in listed(kernel, source, geometry, region, cached_chunks)[0]] == [chunk for one in built for chunk, _, _ in one.chunks]
    alone = walk(kernel, source, geometry, region._replace(joined=False), cached_chunks)
    assert (alone.stop, alone.further_pieces, alone.used_chunks) == (STOP_FENCE, 0, built[0].expected.used_chunks)


@search(60)
@given(seed=st.integers(0, 1 << 30), flips=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 7)), max_size=4))
def test_it_goes_on_over_damaged_pieces_as_the_reference_walk(kernel: Kernel, seed: int, flips: List[Tuple[int, int]]) -> None:
    """Flipped bits anywhere: where a walk goes on, and what it counts, is what the reference walk says."""
    data, begin, top, _, cached_chunks = joined_pieces(seed)
    changed = bytearray(data + bytes(4096))
    for place, bit in flips:
        changed[place % len(changed)] ^= 1 << bit
    source, region = BytesSource(((begin, bytes(changed)),)), Region(begin, begin + len(changed), top, True)
    assert walk(kernel, source, heap.LP64, region, cached_chunks) == reference_walk.walk(source, heap.LP64, region, cached_chunks)


def test_many_pieces_in_several_threads(c_kernel: Kernel) -> None:
    """A region of 600 pieces that is cut for several threads gives what one thread gives."""
    begin, data = 0x7F0000000000, b""
    spec = filled([(STATUS_USED, 96), (STATUS_FREE, 4096), (STATUS_USED, 32)] * 15, 24)
    one, _ = piece(spec, begin)
    data = one * 600
    region, source = Region(begin, begin + len(data), 0, True), BytesSource(((begin, data),))
    result = walk_alike(c_kernel, source, heap.LP64, [region], NONE)
    assert (result.further_pieces, result.free_chunks) == (599, 600 * 15)
