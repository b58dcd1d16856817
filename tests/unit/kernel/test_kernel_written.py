"""Pages that hold anything but zeros.

Files: kernel/common/library.py.
"""

import os
import random
from array import array
from pathlib import Path
from typing import List, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource, FileSource, Segment
from gdbheapx.kernel.common.library import Kernel

MIB = 1 << 20
BASE = 0x7F0000000000


def expected(memory: bytes, ranges: List[Tuple[int, int]], page: int) -> List[int]:
    """Byte by byte."""
    found: List[int] = []
    for begin, end in ranges:
        at = begin
        while at < end:
            until = min((at // page + 1) * page, end)
            if memory[at - BASE : until - BASE].strip(b"\0") or len(memory) < until - BASE:
                if found and found[-1] == at:
                    found[-1] = until
                else:
                    found += [at, until]
            at = until
    return found


@pytest.mark.parametrize("page", [4096, 16384, 65536])
def test_runs(kernel: Kernel, page: int) -> None:
    """Each page with one byte set anywhere is in a run, and no other; runs that touch are one, also over the ends of ranges and of reads."""
    numbers = random.Random(page)
    memory = bytearray(3 * MIB)
    for number in range(len(memory) // page):
        if numbers.random() < 0.6:
            memory[number * page + numbers.choice((0, 1, page // 2, page - 1))] = 1
    bounds = [0, 5, page, 2 * page + 1, 300000, 300000, MIB - 3, 2 * MIB, len(memory)]
    ranges = [(BASE + bounds[place], BASE + bounds[place + 1]) for place in (0, 2, 3, 5, 6, 7) if bounds[place] < bounds[place + 1]]
    found = kernel.written(BytesSource(((BASE, bytes(memory)),)), ranges, page, Budget())
    assert list(found.bounds) == expected(bytes(memory), ranges, page) and found.until is None


def test_a_file_with_holes(kernel: Kernel, tmp_path: Path) -> None:
    """Segments may begin anywhere in the file; what the file does not have any more counts as written, for it is not known."""
    path = tmp_path / "core"
    with open(path, "wb") as file:
        file.truncate(2 * MIB + 777)
        file.seek(777 + 8192 + 4095)
        file.write(b"\1")
    segments = (Segment(BASE, MIB, 777), Segment(BASE + MIB, 2 * MIB, 777 + MIB))
    found = kernel.written(FileSource(str(path), segments), [(BASE, BASE + 3 * MIB)], 4096, Budget())
    assert list(found.bounds) == [BASE + 8192, BASE + 12288, BASE + 2 * MIB, BASE + 3 * MIB] and found.until is None


def test_out_of_time(kernel: Kernel) -> None:
    """Where the time is up is told: what lies behind is in no run."""
    found = kernel.written(BytesSource(((BASE, b"\1" * MIB),)), [(BASE, BASE + MIB)], 4096, Budget(-1.0))
    assert found.bounds == array("Q") and found.until == BASE


def test_ctrl_c(kernel: Kernel) -> None:
    """A signal in the middle ends the search where it is; the answer has what was found."""
    budget, asked = Budget(), []

    def read(address: int, size: int) -> bytes:
        asked.append(address)
        if len(asked) > 2:
            raise KeyboardInterrupt
        return b"\1" * size

    found = kernel.written(read, [(BASE, BASE + 4 * MIB)], 4096, budget)
    assert budget.reason is not None and list(found.bounds) == [BASE, found.until] and found.until is not None and found.until < BASE + MIB


def test_as_fast_as_memory_can_be_read(c_kernel: Kernel, tmp_path: Path) -> None:
    """Blocks, not pages, are read: a file of 64 MiB takes no more than 300 reads."""
    size = 64 * MIB
    reads: List[int] = []

    def read(address: int, length: int) -> bytes:
        reads.append(length)
        return bytes(length)

    found = c_kernel.written(read, [(BASE, BASE + size)], os.sysconf("SC_PAGESIZE"), Budget())
    assert not len(found.bounds) and len(reads) <= 300 and sum(reads) == size
