"""Pages of a heap: their state by the definition.

Files: addons/views/html/page_parts.py.
"""

import os
import random
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import Dict, List, Optional, Sequence, Set, Tuple

from gdbheapx.addons.views.html.page_parts import Cell, MapShape, NativeHeapMap
from gdbheapx.common.budget import Budget
from gdbheapx.inferior.base import BytesSource, PageTable
from gdbheapx.kernel.binding import CKernel
from gdbheapx.kernel.blocks.stream import CLASS_CACHED, CLASS_FREE, CLASS_OVERHEAD, CLASS_RESERVE, CLASS_USED, make_blocks
from gdbheapx.kernel.common.library import OpenPages

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
    made = NativeHeapMap(kernel.library, kernel.open(BytesSource(())), shape, ranges, OpenPages(kernel.library, pages), Budget())
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
        expected = [[0] * 9 for _ in range(shape.count_cells(ranges))]
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
