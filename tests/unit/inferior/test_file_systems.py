"""Pages that are not there, or that a file system of some user serves, are never read through /proc/PID/mem."""

import mmap
import os
import struct
from array import array
from pathlib import Path
from typing import Iterator, List, Optional, Tuple

import pytest

from gdbheapx import kernel
from gdbheapx.common.budget import Budget
from gdbheapx.common.ranges import RangeIndex
from gdbheapx.inferior.base import Mapping, ProcessSource, SwapRoom
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.source import LiveMemory
from gdbheapx.inferior.live.usage import FileSystems, is_fuse
from gdbheapx.kernel.common.library import STOP_UNREADABLE
from gdbheapx.kernel.glibc.records import Geometry, Region
from gdbheapx.kernel.glibc.walkers import ChunkWalker

PAGE = mmap.PAGESIZE
TOUCHED, OWN, MISSING = range(3)
"""Pages of the file: one that was read, one of which there is a private copy, one that was never touched."""


class Mapped:
    """A file that this very process has mapped, and what is known of it."""

    def __init__(self, path: Path, letters: bytes = b"ABC") -> None:
        path.write_bytes(b"".join(bytes([letter]) * PAGE for letter in letters))
        with open(path, "r+b") as file:
            self.map = mmap.mmap(file.fileno(), 3 * PAGE, access=mmap.ACCESS_COPY)
        rows = procfs.read_process_maps(os.getpid())
        self.row = next(row for row in rows if row.name == str(path))
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            os.pread(memory.fileno(), 1, self.row.start)
        self.map[OWN * PAGE] = ord("x")
        self.map.madvise(mmap.MADV_DONTNEED, MISSING * PAGE, PAGE)  # which came along with its neighbours
        assert self.entry(TOUCHED) >> 62 and not self.entry(MISSING) >> 62

    def entry(self, place: int) -> int:
        """Of the page table."""
        with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
            return int(struct.unpack("<Q", os.pread(pagemap.fileno(), 8, 8 * (self.row.start // PAGE + place)))[0])

    def memory(self, row: Mapping, unanswered: bool = False, faulting: Tuple[Tuple[int, int], ...] = ()) -> LiveMemory:
        """What reads it."""
        rows = [row]
        memory = LiveMemory(os.getpid(), lambda: rows, lambda name: name, faulting=lambda asks: RangeIndex(faulting))
        if unanswered:
            memory.file_systems.kind = lambda mapping: "fuse.test"  # type: ignore[method-assign]
        return memory


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[Mapped]:
    """The file; its mapping ends with the test."""
    made = Mapped(tmp_path / "file")
    yield made
    made.map.close()


def pages(mapped: Mapped, memory: LiveMemory) -> List[bytes]:
    """The first byte of each."""
    return [memory.read_prefix(mapped.row.start + place * PAGE, 1) for place in range(3)]


def test_a_missing_page_comes_from_the_file_or_not_at_all(mapped: Mapped) -> None:
    """As it is in the file; of a file that cannot be opened it is not read, is said, and is as missing as before."""
    assert pages(mapped, mapped.memory(mapped.row)) == [b"A", b"x", b"C"]
    memory = mapped.memory(mapped.row)
    memory._open_file = lambda mapping: None  # type: ignore[method-assign]
    memory.file_systems.kind = lambda mapping: "ext4"  # type: ignore[method-assign]  # wherever temporary files are: RAM would be read
    assert pages(mapped, memory) == [b"A", b"x", b""]
    assert memory.unread_files == {mapped.row.name: mapped.row.start + MISSING * PAGE}
    assert memory.read_prefix(mapped.row.start, 3 * PAGE)[PAGE - 1 :: PAGE] == b"AB"
    assert not mapped.entry(MISSING) >> 62


def test_of_a_users_file_system_private_copies_alone_are_read(mapped: Mapped) -> None:
    """Its server may take back any other page between the look and the read."""
    memory = mapped.memory(mapped.row, unanswered=True)
    assert pages(mapped, memory) == [b"", b"x", b""] and list(memory.unread_files) == [mapped.row.name]


def test_without_a_page_table_a_users_file_system_is_left_alone(mapped: Mapped) -> None:
    """Nothing tells then which pages are copies."""
    memory = mapped.memory(mapped.row, unanswered=True)
    os.close(memory.pagemap)
    memory.pagemap = -1
    assert pages(mapped, memory) == [b"", b"", b""]
    source = ProcessSource(os.getpid(), unanswered=((mapped.row.start, mapped.row.end),))  # which asks for none
    assert not was_read(source, mapped.row.start)


def test_anonymous_memory_that_a_userfaultfd_fills_in_is_no_zeros() -> None:
    """What it would hold is unknown."""
    with mmap.mmap(-1, PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as blank:
        address = next(row.end for row in procfs.read_process_maps(os.getpid()) if row.is_untouched_zero and row.writable and not row.name) - PAGE
        rows = [row for row in procfs.read_process_maps(os.getpid()) if row.start <= address < row.end]
        for faulting, expected in (((), PAGE), (((address, address + PAGE),), 0)):
            memory = LiveMemory(os.getpid(), lambda: rows, str, faulting=lambda asks, faulting=faulting: RangeIndex(faulting))  # type: ignore[misc]
            assert len(memory._by_mapping(address, PAGE, 0)) == expected
        assert len(blank) == PAGE


def was_read(source: ProcessSource, address: int) -> bool:
    """The native library can read a page: a walk over it ends for another reason."""
    walker = ChunkWalker(kernel.load_native_library(), source, Geometry(8, 16, 32, 48, 4096, True), Budget())
    return walker.walk([Region(address, address + PAGE, 0)], array("Q"))[0].stop != STOP_UNREADABLE


GUARDS = ("", "unanswered", "brought_in")


def source(mapped: Mapped, guard: str) -> ProcessSource:
    """Bulk bytes of this process, with that guard over the file."""
    plain = ProcessSource(os.getpid(), swap=SwapRoom())
    return plain._replace(**{guard: ((mapped.row.start, mapped.row.end),)}) if guard else plain  # type: ignore[arg-type]


@pytest.mark.parametrize("guard, expected", list(zip(GUARDS, ([True, True, False], [False, True, False], [True, True, True]))))
def test_bulk_reads_do_the_same(mapped: Mapped, guard: str, expected: List[bool]) -> None:
    """With nothing, what may never answer, and what may be brought in."""
    assert [was_read(source(mapped, guard), mapped.row.start + place * PAGE) for place in range(3)] == expected
    assert bool(mapped.entry(MISSING) >> 62) is expected[MISSING]


@pytest.mark.parametrize("guard, expected", list(zip(GUARDS, ([False, True, True], [True, True, True], [False, True, False]))))
def test_so_does_the_search_for_zeros(tmp_path: Path, guard: str, expected: List[bool]) -> None:
    """Of pages of zeros it tells which may be none, as those may be that it cannot read."""
    mapped, loaded = Mapped(tmp_path / "file", bytes(3)), kernel.load_native_library()
    ranges = [(mapped.row.start + place * PAGE, mapped.row.start + (place + 1) * PAGE) for place in range(3)]
    assert [bool(loaded.written(source(mapped, guard), [one], PAGE, Budget()).bounds) for one in ranges] == expected
    assert bool(mapped.entry(MISSING) >> 62) is (guard == "brought_in")
    mapped.map.close()


@pytest.mark.parametrize(
    "kind, expected", [("fuse", True), ("fuse.sshfs", True), ("fuseblk", True), ("fusectl", False), ("ext4", False), (None, False)]
)
def test_kinds(kind: Optional[str], expected: bool) -> None:
    """What a user may mount and serve."""
    assert is_fuse(kind) is expected


def test_shared_memory_has_no_server() -> None:
    """It is told by the device of the kernel's own mount, which is in no table."""
    descriptor = os.memfd_create("test")
    os.ftruncate(descriptor, PAGE)
    with mmap.mmap(descriptor, PAGE) as shared:
        row = next(row for row in procfs.read_process_maps(os.getpid()) if row.name.startswith("/memfd:test"))
        assert FileSystems(os.getpid()).is_memory(row) and len(shared) == PAGE
    os.close(descriptor)
