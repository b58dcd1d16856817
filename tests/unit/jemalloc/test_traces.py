"""What gives a jemalloc without symbols away, and what does not.

Files: jemalloc/traces.py.
"""

from typing import Dict, Iterator, List, Sequence, Tuple

import pytest

from gdbheapx.inferior.base import Module
from gdbheapx.jemalloc import layouts, traces
from gdbheapx.jemalloc.traces import TSD_IMAGES
from tests.support.builders.jemalloc import LIBRARY, NBINS, FakeMemory

PAGE = 4096
BSS = 0x7F0000100000
TEXTS = b"\0".join(b"<jemalloc>: message %d" % number for number in range(20))
VERSION = b"\x005.2.1-0-gea6b3e973b477b8061e0076bb257dbd7f3faa756\0"
PROGRAM = Module("/bin/fake", 0x400000, True, None, False)


class Traced(FakeMemory):
    """One object: constants, a thread-local image, .bss of which only some pages are there."""

    def __init__(self, texts: bytes = b"", image: bytes = b"", bss_bytes: int = 1 << 21, has_all: bool = False) -> None:
        super().__init__()
        self.texts, self.image, self.bss_bytes, self.has_all = texts, image, bss_bytes, has_all
        self.present: List[Tuple[int, int]] = []
        self.read: List[Tuple[int, int]] = []

    def constant_data(self, module: Module) -> Iterator[bytes]:
        return iter([self.texts] if self.texts else [])

    def has_all_constants(self, module: Module) -> bool:
        return self.has_all

    def thread_local_image(self, module: Module) -> bytes:
        return self.image

    def writable_segments(self, module: Module) -> Sequence[Tuple[int, int, int]]:
        return [(BSS, BSS, BSS + self.bss_bytes)]

    def present_ranges(self, start: int, end: int) -> Sequence[Tuple[int, int]]:
        return self.present

    def read_prefix(self, address: int, size_bytes: int) -> bytes:
        self.read.append((address, size_bytes))
        return super().read_prefix(address, size_bytes)

    def holds(self, offset: int, data: bytes) -> None:
        """These bytes in .bss, whose pages are then there."""
        start = BSS + (offset & -PAGE)
        end = start + -(-(offset % PAGE + len(data)) // PAGE) * PAGE
        self.pieces[start] = bytearray(end - start)
        self.write(BSS + offset, data)
        self.present.append((start, end))


def bins(page: int = PAGE, shards: int = 1, rows: int = NBINS, stride: int = 40) -> bytes:
    """bin_infos[]: every slab is as many pages as hold a whole number of regions."""
    found = b""
    for size in layouts.compute_size_classes(16)[:rows]:
        slab = next(size_ for size_ in range(page, 1 << 24, page) if size_ % size == 0)
        row = size.to_bytes(8, "little") + slab.to_bytes(8, "little") + (slab // size).to_bytes(4, "little") + shards.to_bytes(4, "little")
        found += (row + (slab // size).to_bytes(8, "little")).ljust(stride, b"\0")
    return found


def image_of(state: int, ticker: int, before: int = 500) -> bytes:
    """A thread-local image with this tsd_s of such a state in it."""
    data = bytearray(before) + traces.RTREE_CTX + bytes([state]) + bytes(40)
    data[before + ticker : before + ticker + 8] = traces.TICKER
    return bytes(data)


# ---------------------------------------------------------------------------------------------------- texts


def test_a_reader_of_logs_is_no_jemalloc() -> None:
    """A few texts that begin as jemalloc's do, without anything else, are none; nothing more is then looked for."""
    found = traces.read_object_texts(Traced(b"\0<jemalloc>: \0<jemalloc>: Unable to\0" + VERSION), LIBRARY)
    assert not found.is_jemalloc and found.version_text is None and found.profiles is None
    assert traces.find_traces(Traced(b"\0<jemalloc>: \0", has_all=True), LIBRARY) is None


# ---------------------------------------------------------------------------------------------------- the thread-local image


@pytest.mark.parametrize("release, state, ticker", [(*one[:2], ticker) for one in TSD_IMAGES for ticker in one[2]], ids=str)
def test_the_thread_local_image_tells_the_release(release: str, state: int, ticker: int) -> None:
    """rtree_ctx, the byte behind it and the place of the decay ticker belong to one release."""
    assert traces.find_thread_image(image_of(state, ticker)) == (500, release)


def test_an_image_of_an_unknown_release_or_none() -> None:
    """A tsd_s of another make is one all the same; zeros, and a pattern that is there twice, are none."""
    assert traces.find_thread_image(image_of(6, -100)) == (500, None)
    assert traces.find_thread_image(bytes(4096)) == (None, None)
    assert traces.find_thread_image(traces.RTREE_CTX * 3) == (None, None)
    assert traces.find_thread_image(traces.RTREE_CTX) == (0, None), "cut off behind it"


# ---------------------------------------------------------------------------------------------------- bins and arenas


def test_bins_that_do_not_agree_are_none() -> None:
    """One wrong number ends the rows, and too few rows are chance."""
    damaged = bytearray(bins())
    damaged[10 * 40 + 16] ^= 1
    assert traces.search_bin_table(bytes(damaged), 0) is None
    assert traces.search_bin_table(bins(rows=traces.LEAST_BINS - 1), 0) is None


def test_of_memory_only_pages_that_are_there_are_read() -> None:
    """A core without the file is known by its bins; nothing beside the dumped pages is read."""
    target = Traced()
    target.holds(0x5018, bins())
    found = traces.find_traces(target, LIBRARY)
    assert found is not None and found.bins is not None and found.bins.address == BSS + 0x5018
    assert {address for address, _ in target.read} == {BSS + 0x5000}


def test_bins_without_shards_alone_prove_nothing() -> None:
    """jemalloc 4 has the same rows; there must be an arena."""
    target = Traced()
    target.holds(0x5018, bins(shards=0))
    assert traces.find_traces(target, LIBRARY) is None


def arena(target: Traced, pointer_to_base: int = 0xC0) -> int:
    """A block of metadata with a base and an arena that points to it; the arena's address."""
    block = 0x7F1000200000
    target.pieces[block] = bytearray(1 << 17)
    target.write(block, (1 << 21).to_bytes(8, "little"))
    target.write(block + 0x1000 + 26000, (block + pointer_to_base).to_bytes(8, "little"))
    return block + 0x1000


def test_an_arena_in_its_own_block_proves_a_jemalloc() -> None:
    """5.0 and 5.1 in a core without the file: a word leads into a block of metadata, to a struct that points to the block's base."""
    target = Traced()
    target.holds(0x8000, arena(target).to_bytes(8, "little"))
    found = traces.find_traces(target, LIBRARY)
    assert found is not None and found.release is None and found.bins is None
    other = Traced()
    other.holds(0x8000, arena(other, 0x100).to_bytes(8, "little"))
    assert traces.find_traces(other, LIBRARY) is None, "it points elsewhere in its block"


# ---------------------------------------------------------------------------------------------------- what is not searched


def test_an_object_without_room_for_arenas_is_not_read() -> None:
    """Nothing of an ordinary library is read; of an executable only its constants, which may be those of a jemalloc 4."""
    small = Traced(TEXTS + VERSION, bss_bytes=traces.ARENA_POINTERS * 8 - 8)
    assert traces.find_traces(small, LIBRARY) is None
    found = traces.find_traces(small, PROGRAM)
    assert found is not None and found.release is not None and found.rtree_ctx is None
    assert not small.read


def test_a_file_without_traces_ends_the_search() -> None:
    """Where the constants are known and are not jemalloc's, no memory is read."""
    target = Traced(bytes(64), has_all=True)
    target.holds(0x5000, bins())
    assert traces.find_traces(target, LIBRARY) is None and not target.read


def test_constants_of_which_a_part_is_missing_do_not_end_the_search() -> None:
    """gdb dumps the segment before .rodata whole: however much that is, jemalloc may be told by its bins."""
    target = Traced(bytes(1 << 20))
    target.holds(0x5000, bins())
    found = traces.find_traces(target, LIBRARY)
    assert found is not None and found.bins is not None and not found.constants.is_jemalloc


@pytest.mark.parametrize("change", [{"word_bytes": 4}, {"little_endian": False}], ids=str)
def test_other_machines_are_left_alone(change: Dict[str, int]) -> None:
    """The signatures are of 64-bit little-endian builds."""
    target = Traced(TEXTS + VERSION)
    for name, value in change.items():
        setattr(target, name, value)
    assert traces.find_traces(target, LIBRARY) is None
