"""What is stored nowhere: mmapped chunks, and where a region begins.

Files: kernel/glibc/records.py, kernel/glibc/walkers.py.
"""

import time
from array import array
from typing import Any, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource
from gdbheapx.kernel.common.library import Kernel
from gdbheapx.kernel.glibc.records import STATUS_FREE, STATUS_USED, Geometry, MmappedChunk
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from tests.support import reference_walk
from tests.support.builders import heap
from tests.support.searches import search

FAST = search(120)
BASE = 0x70000000
USED_HEAP = [(STATUS_USED, 64), (STATUS_FREE, 96), (STATUS_USED, 48), (STATUS_USED, 32), (STATUS_USED, 128)]


@pytest.mark.parametrize("strict", [False, True])
def test_a_region_behind_foreign_bytes_is_found(kernel: Kernel, strict: bool) -> None:
    """The lowest address whose chain of sizes leads onto the anchor."""
    built = heap.build(USED_HEAP, address=BASE + 0x3330, seed=3)
    foreign = b"\xff" * (built.region.begin - BASE)
    source = BytesSource(((BASE, foreign + built.data),))
    for anchor in (built.chunks[3][0], built.region.top):
        assert ChunkWalker(kernel, source, heap.LP64, Budget()).find_chain(BASE, anchor, array("Q", [anchor]), strict=strict) == built.region.begin


@pytest.mark.parametrize("before, start", [(32, BASE), (16, BASE + 80), (48, BASE + 80)])
def test_a_strict_chain_ends_where_a_free_chunk_has_another_size(kernel: Kernel, before: int, start: int) -> None:
    """A chunk whose predecessor is free repeats that one's size, no smaller and no larger one; from the anchor itself the chain is right."""
    words = [0, 33, 0, 0, before, 48, 0, 0, 0, 0, 0, 65, *[0] * 6]
    source, anchor = BytesSource(((BASE, array("Q", words).tobytes()),)), BASE + 80
    assert ChunkWalker(kernel, source, heap.LP64, Budget()).find_chain(BASE, anchor + 16, array("Q", [anchor]), strict=True) == start


def test_hostile_sizes_take_linear_time(kernel: Kernel) -> None:
    """32 everywhere: each chain runs on to the end and misses the anchor; all of them together visit each place once."""
    data = (b"\xff" * 8 + (0x21).to_bytes(8, "little")) * (1 << 17)
    source = BytesSource(((BASE, data[:-32] + b"\xff" * 32),))
    before = time.process_time()
    assert ChunkWalker(kernel, source, heap.LP64, Budget()).find_chain(BASE, BASE + len(data), array("Q", [BASE + len(data) + 16])) is None
    assert time.process_time() - before < 5


def test_the_time_limit_bounds_the_search(kernel: Kernel) -> None:
    """An expired budget finds nothing and says so."""
    budget = Budget(0.0)
    time.sleep(0.001)
    source = BytesSource(((BASE, b"\xff" * 0x10000),))
    assert ChunkWalker(kernel, source, heap.LP64, budget).find_chain(BASE, BASE + 0x10000, array("Q", [BASE + 0x10000])) is None
    assert budget.reason
    assert ChunkWalker(kernel, source, heap.LP64, budget).scan_mmapped([(BASE, BASE + 0x10000)], False, 1, 4096) == ([], False)


@FAST
@given(
    geometry=st.sampled_from(heap.GEOMETRIES),
    words=st.lists(st.sampled_from((0, 0x10, 0x21, 0x20, 0x31, 0x41, 0x51, 0x83, 0x1001, 0xFFFF)), min_size=1, max_size=400),
    anchors=st.lists(st.integers(1, 420), min_size=1, max_size=4, unique=True),
    hole=st.integers(0, 3300),
    strict=st.booleans(),
)
def test_chains_are_those_of_the_reference_walk(
    kernel: Kernel, geometry: Geometry, words: List[int], anchors: List[int], hole: int, strict: bool
) -> None:
    """Words that are sizes more often than not, with a hole somewhere."""
    data = bytearray(8 * len(words))
    for place, value in enumerate(words):
        heap.put(data, geometry, place * geometry.word_bytes, value)
    source = BytesSource(((BASE, bytes(data[:hole])), (BASE + hole + 20, bytes(data[hole + 20 :]))))
    sorted_anchors = array("Q", sorted(heap.first_chunk(geometry, BASE + 8 * anchor) for anchor in anchors))
    found = ChunkWalker(kernel, source, geometry, Budget()).find_chain(BASE, BASE + len(data), sorted_anchors, strict)
    assert found == reference_walk.find_chain(source, geometry, BASE, BASE + len(data), sorted_anchors, strict)


def mapped(
    data: bytearray, geometry: Geometry, block: int, pages: int, alignment: int, trailer: bool, huge: bool = False, before: int = 0
) -> MmappedChunk:
    """Writes the header of one block as sysmalloc_mmap and _int_memalign leave it; `before`: the pages it had until mremap_chunk."""
    word, total = geometry.word_bytes, pages * geometry.page_bytes
    plain = block + geometry.alignment_bytes - 2 * word
    chunk = -(-(plain + 2 * word) // alignment) * alignment - 2 * word
    if chunk != plain and chunk - plain < geometry.min_chunk_bytes:
        chunk += alignment
    size = block + total - chunk - (2 * word if trailer else 0)
    if chunk != plain and before:
        heap.put(data, geometry, plain - BASE, plain - block)
        heap.put(data, geometry, plain - BASE + word, before * geometry.page_bytes - (plain - block) - (2 * word if trailer else 0) | 2)
    heap.put(data, geometry, chunk - BASE, chunk - block | (huge and trailer))
    heap.put(data, geometry, chunk - BASE + word, size | 2)
    return MmappedChunk(chunk, size, block, total)


@st.composite
def blocks(draw: Any) -> Tuple[Geometry, bytes, List[MmappedChunk], bool]:
    """Mapped blocks, some side by side, some behind other mappings."""
    geometry, trailer = draw(st.sampled_from(heap.GEOMETRIES)), draw(st.booleans())
    page = geometry.page_bytes
    wanted = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 5), st.sampled_from((1, 1, 1, 2, 4, 64, 256, 4096))), max_size=8))
    data, made = bytearray(), []  # type: bytearray, List[MmappedChunk]
    for gap, pages, units in wanted:
        alignment = max(min(units * geometry.alignment_bytes, 4 * page), geometry.alignment_bytes)
        pages += alignment // page
        data += b"\xee" * (gap * page) + b"\xdd" * (pages * page)
        before = draw(st.sampled_from((0, pages, 1 + alignment // page, 9)))
        made.append(mapped(data, geometry, BASE + len(data) - pages * page, pages, alignment, trailer, draw(st.booleans()), before))
    return geometry, bytes(data) + b"\xee" * page, made, trailer


@FAST
@given(made=blocks(), cut=st.booleans())
def test_mapped_blocks_are_found_until_the_figures_are_reached(kernel: Kernel, made: Tuple[Geometry, bytes, List[MmappedChunk], bool], cut: bool) -> None:
    """Plain and memalign'ed blocks, side by side and alone, resized or as they were made, both layouts, in one range or two."""
    geometry, data, chunks, trailer = made
    ranges = [(BASE, BASE + len(data))]
    if cut and chunks:
        ranges = [(BASE, chunks[0].block_start + chunks[0].total_bytes), (chunks[0].block_start + chunks[0].total_bytes, BASE + len(data))]
    total = sum(chunk.total_bytes for chunk in chunks)
    got = ChunkWalker(kernel, BytesSource(((BASE, data),)), geometry, Budget()).scan_mmapped(ranges, trailer, len(chunks), total)
    assert got == (chunks, True)


@pytest.mark.parametrize("trailer, ahead, complete", [(True, 0, True), (True, 48, True), (True, 40, False), (True, -16, False), (False, 48, False)])
def test_a_counter_that_is_ahead(kernel: Kernel, trailer: bool, ahead: int, complete: bool) -> None:
    """glibc 2.43 counts 16 bytes too many each time a block is moved: all blocks are found then; before, such a counter means a lost block."""
    data = bytearray(8 * 4096)
    chunks = [mapped(data, heap.LP64, BASE + place * 4096, 2, 16, trailer) for place in (1, 5)]
    ranges = [(BASE, BASE + len(data))]
    got = ChunkWalker(kernel, BytesSource(((BASE, bytes(data)),)), heap.LP64, Budget()).scan_mmapped(ranges, trailer, 2, 4 * 4096 + ahead)
    assert got == (chunks, complete)


@pytest.mark.parametrize("strangers", [(), ((5, 3),), ((5, 3), (20, 3)), ((5, 3), (20, 4), (25, 1))])
def test_what_only_looks_like_a_header(kernel: Kernel, strangers: Tuple[Tuple[int, int], ...]) -> None:
    """A program's own data may: up to two are told from mapped chunks by mp_'s counters. Where there are more, the answer says that something
    is wrong."""
    data = bytearray(b"\xee" * (40 * 4096))
    chunks = [mapped(data, heap.LP64, BASE + place * 4096, 2, 16, False) for place in (1, 10, 30)]
    also = [mapped(data, heap.LP64, BASE + place * 4096, pages, 16, False) for place, pages in strangers]
    search = (False, 3, 6 * 4096)
    got = ChunkWalker(kernel, BytesSource(((BASE, bytes(data)),)), heap.LP64, Budget()).scan_mmapped([(BASE, BASE + len(data))], *search)
    is_told = len(strangers) < 3
    assert got == ((chunks if is_told else sorted(chunks + also)), is_told)


def test_a_header_inside_a_block_that_names_another_one(kernel: Kernel) -> None:
    """It lies where memalign would have moved this block's own, and says that a block begins a page further in: it is the program's data."""
    data = bytearray(6 * 4096)
    chunk = mapped(data, heap.LP64, BASE, 6, 16, False)
    for place, value in enumerate((4096 - 16, 2 * 4096 + 16 | 2)):
        heap.put(data, heap.LP64, 2 * 4096 - 16 + 8 * place, value)
    walker = ChunkWalker(kernel, BytesSource(((BASE, bytes(data)),)), heap.LP64, Budget())
    assert walker.scan_mmapped([(BASE, BASE + len(data))], False, 1, len(data)) == ([chunk], True)


def test_a_header_on_a_page_begins_its_block(kernel: Kernel) -> None:
    """No alignment puts it on another page than the first: what says so is no header."""
    data = bytearray(6 * 4096)
    chunk = mapped(data, heap.LP64, BASE, 2, 16, False)
    for place, value in enumerate((4096, 2 * 4096 | 2)):
        heap.put(data, heap.LP64, 4 * 4096 + 8 * place, value)
    walker = ChunkWalker(kernel, BytesSource(((BASE, bytes(data)),)), heap.LP64, Budget())
    assert walker.scan_mmapped([(BASE, BASE + len(data))], False, 2, 5 * 4096) == ([chunk], False)


def test_a_block_goes_on_behind_its_range(kernel: Kernel) -> None:
    """Up to the limit that its range has: a program may protect a page inside, behind which another range begins with the rest of it. What
    lies beyond the limit is no block, and one that follows is met from the range that it begins in."""
    data = bytearray(12 * 4096)
    chunks = [mapped(data, heap.LP64, BASE, 6, 16, False), mapped(data, heap.LP64, BASE + 7 * 4096, 2, 16, False)]
    parts = ((BASE, bytes(data[: 2 * 4096])), (BASE + 3 * 4096, bytes(data[3 * 4096 :])))
    ranges = [(BASE, BASE + 2 * 4096), (BASE + 3 * 4096, BASE + 12 * 4096)]

    def scan(*limits: int) -> Tuple[Any, bool]:
        return ChunkWalker(kernel, BytesSource(parts), heap.LP64, Budget()).scan_mmapped(ranges, False, 2, 8 * 4096, limits=limits)

    assert scan(BASE + 12 * 4096, BASE + 12 * 4096) == (chunks, True)
    assert scan(BASE + 6 * 4096, BASE + 12 * 4096) == (chunks, True)
    assert scan(BASE + 5 * 4096, BASE + 12 * 4096) == scan() == (chunks[1:], False)


def test_a_terabyte_of_holes_is_passed_over(kernel: Kernel) -> None:
    """Of a core only pages that have data are looked at, however long the mapping is: at once, also where a block is never found."""
    data, far = bytearray(8 * 4096), BASE + (1 << 40) - 16 * 4096
    chunk = mapped(data, heap.LP64, BASE + 2 * 4096, 2, 16, False)
    parts = ((far, far + 4096), (far + 2 * 4096, far + 4 * 4096))
    moved, began = bytes(data), time.process_time()
    walker = ChunkWalker(kernel, BytesSource(((far, moved),)), heap.LP64, Budget())
    found, complete = walker.scan_mmapped([(BASE, BASE + (1 << 40))], False, 2, 4 * 4096, data=parts)
    assert [one.chunk - far for one in found] == [chunk.chunk - BASE] and not complete
    assert time.process_time() - began < 2


@FAST
@given(
    geometry=st.sampled_from(heap.GEOMETRIES[::2]),
    words=st.lists(st.tuples(st.integers(0, 8 * 4096 // 16 - 1), st.integers(0, 3), st.integers(0, 5)), max_size=12),
    trailer=st.booleans(),
)
def test_blocks_in_garbage_are_what_their_headers_say(
    kernel: Kernel, geometry: Geometry, words: List[Tuple[int, int, int]], trailer: bool
) -> None:
    """Headers that overlap and contradict each other: what is found is whole pages with such a header, without overlap."""
    geometry = geometry._replace(page_bytes=4096)
    data = bytearray(8 * 4096)
    for place, pages, kind in words:
        offset = place // 16 * 256 if kind > 2 else place // 256 * 4096
        heap.put(data, geometry, offset, (0, 16, 4080, 48, 4096 + 4080, 8)[kind])
        heap.put(data, geometry, offset + geometry.word_bytes, pages * 4096 - (16 * (kind % 3)) & 0xFFFFFFF8 | 2)
    source, ranges = BytesSource(((BASE, bytes(data)),)), [(BASE, BASE + len(data))]
    chunks, _ = ChunkWalker(kernel, source, geometry, Budget()).scan_mmapped(ranges, trailer, 99, 99)
    end = BASE
    for chunk, size, block, total in chunks:
        word, at = geometry.word_bytes, chunk - BASE
        order: Any = "little" if geometry.little_endian else "big"
        before, field = (int.from_bytes(data[place : place + word], order) for place in (at, at + word))
        assert (chunk - (before & ~trailer), field & ~7, field & 7) == (block, size, 2)
        assert end <= block and not block % 4096 and not total % 4096 and block + total <= BASE + len(data)
        assert total == chunk - block + size + trailer * 2 * word
        end = block + total
