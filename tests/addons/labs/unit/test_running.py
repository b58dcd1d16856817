"""A process that writes, maps and unmaps while it is copied: the copy is as it was when it stood still.

Files: addons/labs/short_stop/running.py
"""

import ctypes
import mmap
import os
import subprocess
import time
from array import array
from pathlib import Path
from typing import Iterator, List, Sequence

import pytest

from gdbheapx import kernel
from gdbheapx.addons.labs.short_stop.running import NativeFollower, copy_rest, copy_running, copy_written
from gdbheapx.app.stopping import copied_ranges
from gdbheapx.common.budget import NEVER
from gdbheapx.inferior.base import Mapping
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.source import LiveSource
from gdbheapx.inferior.live.stopper import Stopper
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.common import copy
from gdbheapx.kernel.common.copy import TAKES_ALL
from gdbheapx.kernel.common.library import address_of
from tests.support.compilers import compile_c
from tests.support.paths import PROGRAMS

PIDFD_OPEN, PIDFD_GETFD = 434, 438
LOOKS = 10
PAGE = mmap.PAGESIZE
PRESENT, SWAPPED, PROTECTED = 1 << 63, 1 << 62, 1 << 57
PROGRAM = (PROGRAMS / "follow_lists.c").read_text()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """It goes on changing its memory, and has made a userfaultfd."""
    program = subprocess.Popen([compile_c(PROGRAM, tmp_path / "writer", "-O1")], stdout=subprocess.PIPE)
    yield program
    program.kill()
    program.communicate()


def borrow_follower(kernel: CKernel, pid: int, number: int) -> NativeFollower:
    """A follower with the process's userfaultfd, which is the process's descriptor of that number; skips where there is none."""
    libc = ctypes.CDLL(None, use_errno=True)
    process = libc.syscall(PIDFD_OPEN, pid, 0)
    descriptor = int(libc.syscall(PIDFD_GETFD, process, number, 0))
    os.close(process)
    if descriptor < 0:
        pytest.skip("no userfaultfd here")
    try:
        return NativeFollower(kernel.library, descriptor)
    except OSError:
        pytest.skip("this kernel tells nobody what is written")


def pagemap(pid: int, mapping: Mapping) -> Sequence[int]:
    """What the kernel tells of its pages."""
    with open("/proc/%d/pagemap" % pid, "rb", buffering=0) as file:
        return array("Q", os.pread(file.fileno(), mapping.size_bytes // PAGE * 8, mapping.start // PAGE * 8))


def followed(mappings: List[Mapping]) -> List[Mapping]:
    """Private memory that it may write to."""
    return [one for one in mappings if one.is_untouched_zero and one.writable and not one.is_hugetlb]


def test_it_is_as_it_was_in_the_last_stop(writer: "subprocess.Popen[bytes]", c_kernel: CKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Byte for byte, and page for page, by whichever call it was protected; afterwards nothing is."""
    monkeypatch.setattr(kernel, "load_native_library", lambda: c_kernel)
    assert writer.stdout is not None
    pid = writer.pid
    follower = borrow_follower(c_kernel, pid, int(writer.stdout.readline()))
    for look in range(int(os.environ.get("LOOKS", LOOKS))):
        source = LiveSource(pid)
        table = source.page_table()
        assert table is not None
        if not table.scans:
            pytest.skip("no PAGEMAP_SCAN here")
        held = c_kernel.copy(table)
        ranges = copied_ranges(source.mappings(), set(), set())
        held.prepare(ranges)
        plain = [(one.start, one.end) for one in followed(source.mappings())]
        with open("/proc/%d/pagemap" % pid, "rb") as by_scan:
            assert follower.follow(plain, by_scan.fileno() if look % 2 else -1) > 16 << 20
        opened = c_kernel.open_apart(source.bulk_source())
        assert copy_running(held, [(*one, 0) for one in plain], opened, False) > 16 << 20
        time.sleep(0.01 * (look % 3))
        copy_written(held, opened, True)
        stopper = Stopper(pid)
        stopper.stop()
        try:  # how much is written between two rounds depends on what else runs; nothing is while it stands still
            copy_written(held, opened, False)
            assert copy_written(held, opened, False) == 0
        finally:
            stopper.let_go()
        copy_written(held, opened, False)
        stopper = Stopper(pid)
        stopper.stop()
        try:
            now = LiveSource(pid)
            mappings = [one for one in now.mappings() if one.writable and one.readable]
            assert copy_rest(held, copied_ranges(now.mappings(), set(), set()), opened, array("d", [NEVER])) is None
            assert held.taken.unread_bytes == 0
            assert held.taken.copied_bytes
            for one in mappings:
                with open("/proc/%d/mem" % pid, "rb", buffering=0) as memory:
                    touched = held.touched(one.start, one.end, True)
                    assert touched is not None
                    for start, end in touched:
                        have, place = b"", start
                        while place < end:
                            got, piece = held.run(place, end - place)
                            have, place = have + (piece or bytes(got)), place + got
                        assert have == os.pread(memory.fileno(), end - start, start), (look, hex(start))
                    pages = [place // PAGE for start, end in touched for place in range(start, end, PAGE)]
                    entries = dict(enumerate(pagemap(pid, one), one.start // PAGE))
                    there = {page for page, entry in entries.items() if entry & PRESENT or entry & (SWAPPED | PROTECTED) == SWAPPED}
                    for page in there.difference(pages):  # it stands in a write: the kernel has given it a page that it has not written yet
                        assert entries[page] & PRESENT and entries[page] & PROTECTED, (look, hex(page * PAGE))
                        assert not any(os.pread(memory.fileno(), PAGE, page * PAGE)), (look, hex(page * PAGE))
                    assert there.issuperset(pages) and len(there.difference(pages)) <= 1, look
            follower.leave()
        finally:
            stopper.let_go()
    follower.end()
    left = [entry for one in followed(LiveSource(pid).mappings()) for entry in pagemap(pid, one) if entry & PROTECTED]
    assert not any(entry & PRESENT for entry in left)
    assert writer.poll() is None


RETURNING = (PROGRAMS / "follow_returning.c").read_text()


def test_nothing_stays_protected_where_a_mapping_came_back(tmp_path: Path, c_kernel: CKernel) -> None:
    """Beside its neighbour it is one mapping with it again, of which the kernel then tells nothing any more."""
    path, size = compile_c(RETURNING, tmp_path / "returning", "-O1"), 65536
    with subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        try:
            assert program.stdin is not None and program.stdout is not None
            number, start = map(int, program.stdout.readline().split())
            follower = borrow_follower(c_kernel, program.pid, number)
            (stays,) = (one for one in LiveSource(program.pid).mappings() if one.start == start)
            assert follower.follow([(start, start + size), (start + 4 * size, start + 5 * size)]) == 2 * size
            assert all(entry & PRESENT and entry & PROTECTED for entry in pagemap(program.pid, stays))
            program.stdin.write(b"x")
            program.stdin.flush()
            assert program.stdout.readline() == b"back\n"
            follower.leave()
            both = stays._replace(end=start + 2 * size)
            assert all(entry & PRESENT and not entry & PROTECTED for entry in pagemap(program.pid, both))
            follower.end()
        finally:
            program.kill()


MARKED = (PROGRAMS / "follow_marked.c").read_text()


def test_protected_pages_that_do_not_exist_are_in_no_swap(tmp_path: Path, c_kernel: CKernel) -> None:
    """Nor when they were moved since (until Linux 6.13 they stay protected); they are not read."""
    with subprocess.Popen([compile_c(MARKED, tmp_path / "marked", "-O1")], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdin is not None and program.stdout is not None
        program.stdin.write(b"x")
        program.stdin.flush()
        for _ in range(2):
            failed, start = map(int, program.stdout.readline().split())
            if failed or not procfs.read_capabilities() >> 21 & 1:
                program.kill()
                pytest.skip("no userfaultfd here, or no right to know in which swap a page is")
            source, end = LiveSource(program.pid), start + (16 << 20)
            table = source.page_table()
            before, kept = resident(program.pid), start + (4 << 20)
            assert table is not None and source.touched_ranges(start, end) == [(start, kept)] == source.present_ranges(start, end)
            sums = c_kernel.residency(table, [(start, end)])
            assert (sums.resident_bytes, sums.swapped_bytes) == (4 << 20, 0)
            assert len(source.read_prefix(start, 16 << 20)) == 16 << 20 and source.swapped_in_bytes() == 0
            assert c_kernel.copy(table).prepare([(start, end, 0)]) == 4 << 20
            assert resident(program.pid) == before
            program.stdin.write(b"x")
            program.stdin.flush()
        program.kill()


def resident(pid: int) -> str:
    """VmRSS, and what its page tables take."""
    fields = procfs.read_process_status(pid)
    return fields["VmRSS"] + fields["VmPTE"]


def entry(frame: int, *bits: int) -> int:
    """Of pagemap, of a page in RAM."""
    return 1 << 63 | frame | sum(1 << bit for bit in bits)


def test_marks_of_what_was_written(tmp_path: Path) -> None:
    """Of a process's files that are made up: kept is a page of the same frame without a mark, and of no file; all else is read again."""
    marked, alone, of_file, first = 55, 56, 61, 16
    cases = [  # each: entries of pagemap in the first pass and in the last, and whether it is read again
        (entry(100), entry(100), False),
        (entry(101), entry(101, marked), True),
        (entry(102, marked), entry(102, marked), True),
        (entry(103, marked), entry(103), True),  # somebody has cleared marks meanwhile
        (entry(104), entry(204), True),  # moved with its page table
        (entry(105, alone), entry(105), False),  # forked
        (entry(0), entry(0), True),  # frames are not told
        (entry(107, of_file), entry(107, of_file), True),
        (entry(108), entry(108, of_file), True),
        (0, entry(109), True),
        (0, entry(110, marked), True),
    ]
    library = kernel.load_native_library().library
    with open(tmp_path / "pagemap", "w+b", buffering=0) as pagemap, open(tmp_path / "mem", "w+b", buffering=0) as memory:

        def write(which: int, value: int) -> None:
            words = array("Q", [int(case[which]) for case in cases] + [[entry(111), entry(112)], [0, 0]][which])
            pagemap.seek(8 * first)
            pagemap.write(words.tobytes())
            memory.seek(PAGE * first)
            memory.write(bytes([value]) * PAGE * len(words))

        count = len(cases) + 2
        write(0, 1)
        table = library.heapx_pages_new(pagemap.fileno(), -1, 0, 0, None, 0, None)
        made = library.heapx_copy_new(table, memory.fileno())
        ranges, rooms = array("Q", [first * PAGE, (first + count) * PAGE, TAKES_ALL]), array("Q", [0, 64 * PAGE])
        assert library.heapx_copy_ranges(made, address_of(ranges), 1, address_of(rooms), 1)
        out = array("Q", bytes(8 * len(copy.CopyTaken._fields)))
        library.heapx_copy_prepare(made, 1, address_of(out))
        library.heapx_copy_run_along(made, 1, None, 1, address_of(out))
        write(1, 2)
        library.heapx_copy_last(made, 1, None, None, address_of(out))
        assert out[0] == PAGE * sum(case[2] for case in cases)
        for number, (_, _, is_anew) in enumerate(cases):
            run = array("Q", [8, 0])
            assert library.heapx_copy_run(made, (first + number) * PAGE, address_of(run)) == copy.COPIED_HERE
            assert ctypes.string_at(run[1], 1)[0] == 1 + is_anew, number
        for number in (count - 2, count - 1):  # dropped
            assert library.heapx_copy_run(made, (first + number) * PAGE, address_of(array("Q", [8, 0]))) == copy.COPIED_NOT
        bounds = array("Q", [(first + 1) * PAGE, (first + 3) * PAGE])
        write(1, 2)
        assert library.heapx_pages_unmarked(table, address_of(bounds), 1) == copy.ADDRESS_MASK
        write(0, 2)
        assert library.heapx_pages_unmarked(table, address_of(bounds), 1) == (first + 1) * PAGE
        library.heapx_copy_free(made)
        library.heapx_pages_free(table)
