"""What the pages of a heap are: each page in one cell and one state, as the definition says, and the same in both kernels."""

import os
import random
from mmap import MAP_ANONYMOUS, MAP_PRIVATE, mmap
from typing import List, Optional, Sequence, Tuple

from gdbheapx.budget import Budget
from gdbheapx.inferior.base import BytesSource, PageTable
from gdbheapx.kernel import Kernel
from gdbheapx.kernel.blocks.heapmap import Cell, MapShape
from gdbheapx.kernel.blocks.records import (
    CLASS_CACHED,
    CLASS_FREE,
    CLASS_OVERHEAD,
    CLASS_RESERVE,
    CLASS_RETURNED,
    CLASS_USED,
    make_blocks,
)

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
    kernel: Kernel, rows: Sequence[Row], ranges: Sequence[Tuple[int, int]], shape: MapShape = SHAPE, pages: Optional[PageTable] = None
) -> List[Cell]:
    made = kernel.heap_map(BytesSource(()), shape, ranges, pages, Budget())
    half = len(rows) // 2
    for part in (rows[:half], rows[half:]):
        made.stream(iter([make_blocks(part, in_order=False)]))
    return made.cells()


def test_each_state(kernel: Kernel) -> None:
    """One page each: in use, shared by used and free, cached, the allocator's own, free at an end, returned."""
    parts = [(CLASS_USED, PAGE), (CLASS_USED, 100), (CLASS_FREE, PAGE - 100), (CLASS_CACHED, PAGE), (CLASS_OVERHEAD, PAGE)]
    parts += [(CLASS_FREE, 1000), (CLASS_RESERVE, PAGE - 1000), (CLASS_RETURNED, PAGE)]
    found = cells(kernel, side_by_side(*parts), [(AT, AT + 6 * PAGE)], SHAPE._replace(cell_bytes=8 * PAGE))
    assert found == [Cell(PAGE, PAGE, PAGE, PAGE, PAGE, PAGE, 0, 0, 0)]


def test_cells_run_on_over_ranges(kernel: Kernel) -> None:
    """A cell has the end of one range and the begin of the next; what lies in no range counts nowhere."""
    rows = [(AT, 3 * PAGE, CLASS_USED, 0, 0), (AT + 16 * PAGE, 3 * PAGE, CLASS_FREE, 2, 0), (AT + 64 * PAGE, PAGE, CLASS_USED, 0, 0)]
    found = cells(kernel, rows, [(AT, AT + 3 * PAGE), (AT + 16 * PAGE, AT + 19 * PAGE)])
    assert [(one.used_bytes, one.free_bytes) for one in found] == [(3 * PAGE, PAGE), (0, 2 * PAGE)]


def test_slabs_and_unreturned_pages(kernel: Kernel) -> None:
    """A free region of a slab is pinned by its slab; unused pages that are not returned yet count as free."""
    rows = side_by_side((CLASS_FREE, 2 * PAGE), (CLASS_RETURNED, PAGE))
    shape = SHAPE._replace(free_is_pinned=True, free_kinds=frozenset((CLASS_RETURNED,)))
    assert cells(kernel, rows, [(AT, AT + 4 * PAGE)], shape) == [Cell(0, 2 * PAGE, 0, 0, PAGE, 0, 0, 0, 0)]


def test_units_begin_before_their_address(kernel: Kernel) -> None:
    """A block's header belongs to it: one on the page before makes that page one in use."""
    shape = SHAPE._replace(lead_bytes=16, overheads=[16])
    assert cells(kernel, [(AT + PAGE, 32, CLASS_USED, 0, 0)], [(AT, AT + 4 * PAGE)], shape)[0].used_bytes == 2 * PAGE


def test_absurd_blocks_end_soon(kernel: Kernel) -> None:
    """Sizes and addresses that no process has change nothing but what they cover, and take no time."""
    rows = [(AT, 1 << 61, CLASS_USED, 0, 0), (0, 8, CLASS_USED, 0, 0), (AT, (1 << 64) - 1, CLASS_FREE, 2, 0), (AT, 0, CLASS_FREE, 200, 0)]
    assert cells(kernel, rows, [(AT, AT + 4 * PAGE)])[0].used_bytes == 4 * PAGE


def test_both_kernels_agree(c_kernel: Kernel, python_kernel: Kernel) -> None:
    """On a thousand random blocks in random ranges."""
    chance = random.Random(7)
    for _ in range(30):
        parts = [(chance.choice(range(6)), chance.choice((16, 48, 1000, 4096, 9000, 70000))) for _ in range(300)]
        rows = side_by_side(*parts)
        end = (rows[-1][0] + rows[-1][1] + PAGE) & -PAGE
        middle = (AT + chance.randrange(end - AT)) & -PAGE
        ranges = [one for one in ((AT, middle), (middle + PAGE, end)) if one[0] < one[1]]
        shape = MapShape(PAGE, 0, PAGE * chance.choice((1, 3, 16)), frozenset((5,)), chance.random() < 0.5)
        assert cells(c_kernel, rows, ranges, shape) == cells(python_kernel, rows, ranges, shape)


def test_what_is_in_ram(kernel: Kernel) -> None:
    """Of this process's own free pages those that were written."""
    memory = mmap(-1, 8 * PAGE, MAP_PRIVATE | MAP_ANONYMOUS)
    memory[2 * PAGE] = memory[5 * PAGE] = 1
    import ctypes

    at = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    table = PageTable(os.getpid(), False, False, -1, ())
    found = cells(kernel, [(at, 8 * PAGE, CLASS_FREE, 2, 0)], [(at, at + 8 * PAGE)], SHAPE, table)
    assert [one.free_resident_bytes for one in found] == [PAGE, PAGE] and sum(one.free_bytes for one in found) == 8 * PAGE
