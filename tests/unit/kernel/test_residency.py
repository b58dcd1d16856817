"""What is in RAM: written, read only, shared with a child, huge, in part huge; with PAGEMAP_SCAN, by page frames, and by smaps alone.

Files: kernel/common/in_ram.py.
"""

import ctypes
import mmap
import os
import signal
import sys
from array import array
from typing import Iterator, List, NamedTuple, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import PageTable, ProcessSource
from gdbheapx.inferior.live import procfs, usage
from gdbheapx.inferior.target import ElfTarget, open_elf_target
from gdbheapx.kernel.common.in_ram import InRam, Ram
from gdbheapx.kernel.common.library import Kernel, Residency
from gdbheapx.kernel.glibc.records import STATUS_FREE, STATUS_USED
from gdbheapx.kernel.glibc.walkers import ChunkWalker
from tests.support.builders import heap

PAGE = os.sysconf("SC_PAGESIZE")
HUGE = 2 << 20
MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_GUARD_INSTALL = 14, 15, 102
NONE = array("Q")

pytestmark = pytest.mark.skipif(PAGE != 4096, reason="written for pages of 4 KiB")


class Area(NamedTuple):
    """Anonymous memory of this process, aligned to a huge page."""

    memory: "mmap.mmap"
    start: int

    def write(self, first: int, last: int, step: int = PAGE) -> "Area":
        for offset in range(first, last, step):
            ctypes.memset(self.start + offset, 1, 1)
        return self

    def read(self, first: int, last: int) -> "Area":
        for offset in range(first, last, PAGE):
            assert ctypes.string_at(self.start + offset, 1) == b"\0"
        return self


def area(size: int, advice: int = MADV_NOHUGEPAGE) -> Area:
    memory = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    start = -(-begin // HUGE) * HUGE
    assert ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice) == 0
    return Area(memory, start)


WAYS = {"plain": (False, False), "scan": (True, False), "scan that mistakes the huge zero page": (True, True), "frames": (False, True)}
"""PAGEMAP_SCAN, /proc/kpageflags."""


def shows_frames() -> bool:
    """/proc/kpageflags may be read, and pagemap tells this process which frames its pages are (zeros without CAP_SYS_ADMIN)."""
    touched = area(PAGE).write(0, PAGE)
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        (entry,) = array("Q", os.pread(pagemap.fileno(), 8, 8 * touched.start // PAGE))
    return os.access("/proc/kpageflags", os.R_OK) and entry & (1 << 55) - 1 != 0


@pytest.fixture(params=WAYS)
def table(request: pytest.FixtureRequest) -> Iterator[PageTable]:
    """Every way to know that this machine has, one at a time."""
    scans, frames = WAYS[request.param]
    best = usage.Finder(os.getpid()).find(procfs.read_process_maps(os.getpid()))
    assert best is not None
    if scans and not best.scans:
        pytest.skip("this kernel has no PAGEMAP_SCAN")
    if scans and not frames and not best.knows_huge_zero:
        pytest.skip("this kernel mistakes the huge zero page")
    if frames and not shows_frames():
        pytest.skip("page frames are for CAP_SYS_ADMIN alone, which is lacking here")
    flags = os.open("/proc/kpageflags", os.O_RDONLY) if frames else -1
    yield best._replace(scans=scans, knows_huge_zero=best.knows_huge_zero and not frames, flags_fd=flags)
    if flags >= 0:
        os.close(flags)


@pytest.fixture
def child() -> Iterator[List[int]]:
    """Children that are made by fork() while the test runs; they wait until it is over."""
    made: List[int] = []
    yield made
    for pid in made:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def fork(made: List[int]) -> None:
    """A child that shares every page."""
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    made.append(pid)


def target_with(table: PageTable) -> ElfTarget:
    """This process as a target that has only this way."""
    target = open_elf_target(pid=os.getpid())
    target.source.page_table = lambda: table  # type: ignore[method-assign]
    return target


def in_ram(kernel: Kernel, table: PageTable, ranges: List[Tuple[int, int]]) -> InRam:
    """Where exclusive_bytes is not wanted the rest is the same."""
    whole, found = kernel.residency(table, ranges), Ram(target_with(table), kernel).of(ranges)
    assert whole is not None and kernel.residency(table, ranges, False) == whole._replace(exclusive_bytes=0)
    assert found is not None
    return found


def test_smaps_tells_where_the_page_table_does_not(kernel: Kernel, table: PageTable) -> None:
    """Pages of one mapping that are all the zero page, or all shared after fork, are told by the mapping's Rss."""
    memory = area(8 << 20).write(0, 1 << 20).read(2 << 20, 3 << 20)
    assert in_ram(kernel, table, [(memory.start, memory.start + (8 << 20))]) == InRam(1 << 20, 1 << 20, 0)


def test_huge_pages_are_told_by_a_scan(kernel: Kernel, table: PageTable) -> None:
    """Part of one counts in resident and not in exclusive; where the kernel cannot tell, exclusive and huge are unknown."""
    memory = area(8 << 20, MADV_HUGEPAGE).write(0, 6 << 20)
    uses = {one.mapping.start: one for one in open_elf_target(pid=os.getpid()).memory_use().mappings}  # type: ignore[union-attr]
    if uses[memory.start].huge_bytes != 6 << 20:
        pytest.skip("the kernel gives no huge pages here")
    assert in_ram(kernel, table, [(memory.start, memory.start + (8 << 20))]) == InRam(6 << 20, *((6 << 20, 6 << 20) if table.scans else (None, None)))
    part = in_ram(kernel, table, [(memory.start + PAGE, memory.start + (5 << 20))])
    assert part == InRam((5 << 20) - PAGE, *((2 << 20, (5 << 20) - PAGE) if table.scans else (None, None)))


def test_resident_interior_bytes_of_a_walk(kernel: Kernel, table: PageTable) -> None:
    """Of the whole pages in free chunks, those that are in memory; without a page table nothing is known."""
    memory = area(HUGE)
    built = heap.build([(STATUS_USED, 64), (STATUS_FREE, 40 * PAGE), (STATUS_USED, 64)], address=memory.start)
    ctypes.memmove(memory.start, built.data[:96], 96)
    tail = built.data[64 + 40 * PAGE :]
    ctypes.memmove(memory.start + 64 + 40 * PAGE, tail, len(tail))
    memory.write(10 * PAGE, 11 * PAGE).write(20 * PAGE, 21 * PAGE)
    geometry = heap.LP64._replace(page_bytes=PAGE)
    source = ProcessSource(os.getpid(), ((memory.start, memory.start + HUGE),))
    result = ChunkWalker(kernel, source, geometry, Budget()).walk([built.region], NONE, pages=table)[0]
    assert (result.interior_ranges, result.interior_bytes) == (1, 39 * PAGE)
    assert result.interior_residency == Residency(2 * PAGE, 2 * PAGE, 0, 0, 0)
    assert ChunkWalker(kernel, ProcessSource(os.getpid()), geometry, Budget()).walk([built.region], NONE)[0].interior_residency is None


def test_memory_outside_rss_is_not_counted(kernel: Kernel, table: PageTable) -> None:
    """Hugetlb pages are in RAM and in no RSS: their ranges are named by the table."""
    memory = area(8 << 20).write(0, 4 << 20)
    outside = table._replace(outside_rss=((memory.start + (1 << 20), memory.start + (2 << 20)), (memory.start + (6 << 20), memory.start + (7 << 20))))
    found = kernel.residency(outside, [(memory.start, memory.start + (8 << 20))])
    assert found is not None and found.resident_bytes == 3 << 20


def test_untouched_memory_is_read_as_zeros_and_stays_untouched(kernel: Kernel) -> None:
    """No page of it is mapped by the read, neither in bulk nor for a single word; touched pages are read as they are."""
    memory = area(64 << 20).write(32 << 20, (32 << 20) + PAGE)
    before = present(memory)
    zeros = ((memory.start, memory.start + (64 << 20)),)
    target = open_elf_target(pid=os.getpid())
    built = heap.build([(STATUS_USED, 64)] * 40, address=memory.start + (32 << 20))
    ctypes.memmove(built.region.begin, built.data, min(len(built.data), PAGE))
    result = ChunkWalker(kernel, ProcessSource(os.getpid(), zeros), heap.LP64, Budget()).walk([built.region._replace(end=memory.start + (64 << 20))], NONE)[0]
    assert result.used_chunks >= 39
    assert target.read(memory.start + (8 << 20), 3 << 20) == bytes(3 << 20)
    assert target.read((memory.start + (32 << 20)) - 8, 16) == bytes(8) + built.data[:8]
    assert present(memory) == before == 1


def test_a_guard_page_is_not_swap(kernel: Kernel, table: PageTable) -> None:
    """It looks swapped in pagemap; reading it gives nothing and brings nothing in, so nothing is counted."""
    memory = area(8 << 20).write(0, 4 << 20)
    if ctypes.CDLL(None).madvise(ctypes.c_void_p(memory.start + (1 << 20)), ctypes.c_size_t(PAGE), MADV_GUARD_INSTALL) != 0:
        pytest.skip("this kernel has no guard pages (Linux 6.13)")
    if entry_of(memory.start + (1 << 20)) >> 58 & 1 == 0:
        pytest.skip("this kernel does not tell guard pages (Linux 6.15)")
    assert entry_of(memory.start + (1 << 20)) >> 62 == 1
    before, target = kernel.swapped_in_bytes, open_elf_target(pid=os.getpid())
    assert target.read_prefix(memory.start + (1 << 20) - PAGE, 3 * PAGE) == (b"\1" + bytes(PAGE - 1))
    source = ProcessSource(os.getpid(), ((memory.start, memory.start + (8 << 20)),))
    ChunkWalker(kernel, source, heap.LP64, Budget()).walk([heap.build([(STATUS_USED, 64)], address=memory.start + (1 << 20)).region], NONE)
    assert (target.swapped_in_bytes(), kernel.swapped_in_bytes - before) == (0, 0)
    found = kernel.residency(table, [(memory.start, memory.start + (2 << 20))])
    assert found is not None and (found.resident_bytes, found.swapped_bytes) == ((2 << 20) - PAGE, 0)


def entry_of(address: int) -> int:
    """The page's entry of pagemap."""
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        return int.from_bytes(os.pread(pagemap.fileno(), 8, 8 * (address // PAGE)), sys.byteorder)


def present(memory: Area) -> int:
    """Pages of it that the page table has, the zero page included."""
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        data = os.pread(pagemap.fileno(), 8 * (64 << 20) // PAGE, 8 * memory.start // PAGE)
    return sum(entry >> 63 for entry in array("Q", data))
