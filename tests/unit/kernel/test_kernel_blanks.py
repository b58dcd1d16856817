"""Memory that was never touched is passed, however much of it a block has: the answers are those of a look at each of its bytes.

Files: inferior/live/usage.py.
"""

import ctypes
import mmap
import os
import random
import time
from array import array
from functools import partial
from typing import Any, List, Sequence, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import NOWHERE, BulkSource, BytesSource, FileSource, ProcessSource, Segment
from gdbheapx.inferior.live import procfs, usage
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.graph import LEAKED, Graph, GraphShape
from gdbheapx.kernel.blocks.signatures import Referring
from gdbheapx.kernel.blocks.stream import CLASS_USED
from tests.support.worlds import GraphMemory, build, roots_from

PAGE, SIZE, LARGE = os.sysconf("SC_PAGESIZE"), 24 << 20, 20 << 20
MADV_NOHUGEPAGE = 15

pytestmark = pytest.mark.skipif(PAGE != 4096, reason="written for pages of 4 KiB")


class Made:
    """A block of 20 MiB in this process, of which some pages were touched, and small blocks behind it."""

    def __init__(self, size: int = SIZE) -> None:
        self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)  # MAP_NORESERVE
        self.start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        self.size = size
        ctypes.CDLL(None).madvise(ctypes.c_void_p(self.start), ctypes.c_size_t(size), MADV_NOHUGEPAGE)
        self.large = (self.start + 16, LARGE)
        self.small = [(self.start + LARGE + 4096 + 64 * place, 56) for place in range(200)]
        self.zeros = ((self.start, self.start + size),)
        self.copy = bytearray(min(size, SIZE))

    def put(self, offset: int, value: int) -> None:
        """A word, or as much of it as stands in the page where it begins."""
        data = value.to_bytes(8, "little")[: max(1, min(8, PAGE - offset % PAGE))]
        ctypes.memmove(self.start + offset, data, len(data))
        self.copy[offset : offset + len(data)] = data if offset < SIZE else b""

    def world(self, source: BulkSource) -> GraphMemory:
        rows = [(address, size, CLASS_USED, 0, 0) for address, size in [self.large, *self.small]]
        shape = GraphShape([(self.start, self.start + self.size)], [], 8, True, 16, True)
        return GraphMemory(source, shape, rows, [], "little")  # type: ignore[arg-type]

    def sources(self) -> List[BulkSource]:
        """Every way that this machine has."""
        table = usage.Finder(os.getpid()).find(procfs.read_process_maps(os.getpid()))
        scans = [False, True] if table is not None and table.scans else [False]
        return [ProcessSource(os.getpid(), self.zeros, scans=one) for one in scans]

    def present(self) -> int:
        """Pages that the page table has."""
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            data = os.pread(pagemap.fileno(), 8 * self.size // PAGE, 8 * self.start // PAGE)
        return sum(entry >> 63 for entry in array("Q", data))


def scattered(seed: int) -> Made:
    """Pages far from each other and near, pointers in every way, some across the end of a page that was touched."""
    rng, made = random.Random(seed), Made()
    for _ in range(6):
        page = rng.randrange(1, LARGE // PAGE) * PAGE
        for _ in range(rng.randrange(1, 4)):
            address = rng.choice(made.small)[0]
            made.put(page + 8 * rng.randrange(PAGE // 8), rng.choice((address, address, address | 0xABCD << 48)))
            made.put(page + PAGE - rng.choice((6, 7, 8)), address)
            page += PAGE * rng.choice((1, 2, 7))
    return made


def told(kernel: CKernel, made: Made, source: BulkSource) -> Tuple[Any, ...]:
    """Edges, and what a second look finds."""
    world = made.world(source)
    graph = build(kernel, world, [made.large[0]])
    sums = graph.mark(roots_from(graph, world))
    again = graph.look_again([(made.start, made.start + 4096)], None)
    numbers = graph.numbers()
    edges = [graph.edges(node) for node in range(numbers.nodes)]
    return sums, again, edges, [graph.evidence(node) for node in range(numbers.nodes)], numbers.unread_bytes


@pytest.mark.parametrize("seed", range(6))
def test_a_look_at_each_byte_tells_the_same(c_kernel: CKernel, seed: int) -> None:
    """Strong pointers and weak ones, with their slots; and no page more is there than before."""
    made = scattered(seed)
    expected = told(c_kernel, made, BytesSource(((made.start, bytes(made.copy)),)))
    assert expected[0][LEAKED].blocks > expected[1][LEAKED].blocks or seed == 5
    before = made.present()
    for source in made.sources():
        assert told(c_kernel, made, source) == expected
    assert made.present() == before < 100


def test_zeros_that_were_touched_are_equal_to_those_that_were_not(c_kernel: CKernel) -> None:
    """Two blocks of one content have one hash, whichever pages of them are there."""
    made = Made()
    rows = [(made.start + (place << 20), 1 << 19, CLASS_USED, 0, 0) for place in range(3)]
    for place, value in enumerate((1, 1, 2)):
        made.put((place << 20) + 40, 7)
        made.put((place << 20) + (300 << 10), value)
    for offset in range(0, 1 << 19, PAGE):
        made.put(offset + 8, 0)
    for source in made.sources():
        world = made.world(source)._replace(rows=rows)
        signer = c_kernel.signer(source, (8, True), [], [], Budget())
        signer.keep_contents()
        graph = build(c_kernel, world, prepare=partial(Graph.sign, signer=signer))
        signer.refer(graph, [0] * signer.label_count(), Referring(2, graph.numbers().blocks, False, 0))
        assert (signer.copied().contents, signer.copied().blocks) == (1, 2)


def test_a_reserve_takes_no_time(c_kernel: CKernel) -> None:
    """64 GiB of which three pages were touched, by the first look and by the second."""
    made = Made(64 << 30)
    made.large = (made.start + (32 << 20), (64 << 30) - (32 << 20))
    for offset in (5, 30, 50):
        made.put(offset << 30, made.small[offset][0])
    source, began = made.sources()[-1], time.process_time()
    if not (isinstance(source, ProcessSource) and source.scans):
        pytest.skip("this kernel has no PAGEMAP_SCAN (Linux 6.7)")
    world = made.world(source)._replace(rows=sorted((*one, CLASS_USED, 0, 0) for one in [made.large, *made.small]))
    graph = build(c_kernel, world, [made.large[0]])
    assert graph.mark(roots_from(graph, world))[LEAKED].blocks == len(made.small) - 3
    assert graph.look_again([], None)[LEAKED].blocks == len(made.small) - 3
    assert time.process_time() - began < 2, "each page was looked at"


def test_what_a_core_left_out_is_passed(c_kernel: CKernel, tmp_path: Any) -> None:
    """The same of a core, where it counts as zeros."""
    made, file = Made(), tmp_path / "memory"
    file.write_bytes(ctypes.string_at(made.start + LARGE, 64 << 10))
    begins: Sequence[Segment] = (Segment(made.start, LARGE, NOWHERE), Segment(made.start + LARGE, 64 << 10, 0))
    found = told(c_kernel, made, FileSource(str(file), tuple(begins)))
    assert found[0] == found[1] and found[0][LEAKED].blocks == len(made.small) and not found[4]
