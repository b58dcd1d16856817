"""Pages of a heap: their state by the definition, and pages that hold anything but zeros.

Files: kernel/blocks/pages.py, kernel/common/library.py.
"""

import os
import random
from array import array
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Set, Tuple

import pytest

from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource, FileSource, PageTable, Segment
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.pages import Cell, MapShape
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RESERVE, CLASS_USED, make_blocks
from gdbheapx.kernel.common.library import Kernel

AT, PAGE = 0x100000, 4096
SHAPE = MapShape(PAGE, 0, 4 * PAGE)
Row = Tuple[int, int, int, int, int]


def side_by_side(*parts: Tuple[int, int]) -> List[Row]:
    """(class, bytes) one after the other, from AT on; kinds are classes."""
    rows, at = [], AT
    for class_, size in parts:
        rows.append((at, size, class_, class_, 0))
        at += size
    return rows


def cells(
    kernel: CKernel, rows: Sequence[Row], ranges: Sequence[Tuple[int, int]], shape: MapShape = SHAPE, pages: Optional[PageTable] = None
) -> List[Cell]:
    made = kernel.heap_map(BytesSource(()), shape, ranges, pages, Budget())
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        made.stream(iter([make_blocks(part, in_order=False)]))
    return made.cells()


def test_absurd_blocks_end_soon(c_kernel: CKernel) -> None:
    """Sizes and addresses that no process has change nothing but what they cover, and take no time."""
    rows = [(AT, 1 << 61, CLASS_USED, 0, 0), (0, 8, CLASS_USED, 0, 0), (AT, (1 << 64) - 1, CLASS_FREE, 2, 0), (AT, 0, CLASS_FREE, 200, 0)]
    assert cells(c_kernel, rows, [(AT, AT + 4 * PAGE)])[0].used_bytes == 4 * PAGE


def state(classes: Set[int], free_is_pinned: bool) -> Optional[int]:
    """Which of a cell's numbers a page counts for that has blocks of these classes."""
    busy, is_free = classes & {CLASS_USED, CLASS_OVERHEAD}, classes & {CLASS_FREE, CLASS_RESERVE}
    if busy:
        return 1 if classes - busy else 0 if CLASS_USED in busy else 3
    if CLASS_CACHED in classes:
        return 2
    if is_free:
        return 1 if free_is_pinned and CLASS_FREE in classes else 4
    return 5 if classes else None


def test_each_page_by_the_definition(c_kernel: CKernel) -> None:
    """Of a thousand random blocks in random ranges."""
    chance = random.Random(7)
    for _ in range(30):
        parts = [(chance.choice(range(6)), chance.choice((16, 48, 1000, 4096, 9000, 70000))) for _ in range(300)]
        rows = side_by_side(*parts)
        end = (rows[-1][0] + rows[-1][1] + PAGE) & -PAGE
        middle = (AT + chance.randrange(end - AT)) & -PAGE
        ranges = [one for one in ((AT, middle), (middle + PAGE, end)) if one[0] < one[1]]
        shape = MapShape(PAGE, 0, PAGE * chance.choice((1, 3, 16)), frozenset((5,)), chance.random() < 0.5)
        on_page: Dict[int, Set[int]] = {}
        for address, size, class_, kind, _ in rows:
            for page in range(address & -PAGE, address + size, PAGE):
                on_page.setdefault(page, set()).add(CLASS_RESERVE if kind == 5 else class_)
        expected = [[0] * 9 for _ in range(shape.cells(ranges))]
        for number, page in enumerate(page for start, stop in ranges for page in range(start, stop, PAGE)):
            of = state(on_page.get(page, set()), shape.free_is_pinned)
            if of is not None:
                expected[number * PAGE // shape.cell_bytes][of] += PAGE
        assert cells(c_kernel, rows, ranges, shape) == [Cell(*one) for one in expected]


def test_what_is_in_ram(c_kernel: CKernel) -> None:
    """Of this process's own free pages those that were written."""
    memory = mmap(-1, 8 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS)
    memory[2 * PAGE] = memory[5 * PAGE] = 1
    import ctypes

    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    table = PageTable(os.getpid(), False, False, -1, ())
    found = cells(c_kernel, [(at, 8 * PAGE, CLASS_FREE, 2, 0)], [(at, at + 8 * PAGE)], SHAPE, table)
    assert [one.free_resident_bytes for one in found] == [PAGE, PAGE] and sum(one.free_bytes for one in found) == 8 * PAGE


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
