"""Pages without a block in huge pages: which pages these are, and what of them holds zeros.

File: glibc/survey.py.
"""

import ctypes
import mmap
import os
from types import SimpleNamespace
from typing import Any, List, Tuple

import pytest

from gdbheapx import kernel
from gdbheapx.budget import Budget
from gdbheapx.glibc import survey
from gdbheapx.inferior.base import ProcessSource
from gdbheapx.inferior.live import procfs, usage
from gdbheapx.kernel.common import in_ram
from gdbheapx.kernel.common.in_ram import InRam

PAGE, HUGE, MADV_HUGEPAGE = 4096, 2 << 20, 14
GEOMETRY = SimpleNamespace(page_bytes=PAGE, chunk_struct_bytes=48, word_bytes=8)


def walk(*runs: Tuple[int, int, int], reserves: Any = ()) -> Any:
    """An arena whose runs end on tops: (where the free chunks before top begin or 0, top, its end)."""
    made = [(SimpleNamespace(top=top), SimpleNamespace(top_run_start=run, top_bytes=end - top)) for run, top, end in runs]
    return SimpleNamespace(arena=SimpleNamespace(index=0), runs=made, reserves=lambda heap_max: list(reserves))


def context(free: Any = (), **more: Any) -> Any:
    """What a walk carries along, with these free chunks (address of the block, usable bytes)."""
    batch = SimpleNamespace(addresses=[one for one, _ in free], usable_bytes=[size for _, size in free])
    known = {"glibc": SimpleNamespace(geometry=GEOMETRY), "walker": SimpleNamespace(blocks=lambda *asked: [batch])}
    return SimpleNamespace(**{**known, **more})


def test_whole_pages_of_tops_and_of_free_chunks() -> None:
    """malloc's own words at the begin of a chunk stay, and a page that is not free as a whole is none."""
    assert survey.list_top_pages(context(), walk((0, 0x10010, 0x14000), (0x20FF0, 0x21800, 0x24000))) == [(0x11000, 0x14000), (0x22000, 0x24000)]
    assert survey.list_top_pages(context(), walk((0, 0x10FE0, 0x12000), (0, 0, 0))) == []
    assert survey.list_free_pages(context([(0x10010, 0x3000), (0x20010, 0x800)]), [walk((0, 0x30000, 0x31000))]) == [(0x11000, 0x13000)]


@pytest.mark.parametrize("part, expected", [(InRam(9, 9, 4), 12), (InRam(9, 9, None), None)], ids=["known", "untold"])
def test_the_sum_is_unknown_where_a_part_is(part: InRam, expected: Any) -> None:
    """Free chunks, tops, and the rest of heaps."""
    ram = SimpleNamespace(pages=object(), settle=lambda counted, ranges: InRam(9, 9, 4), of=lambda ranges, exclusive: part)
    one = walk((0, 0x10000, 0x14000))
    one.ranges = lambda page: [(0x10000, 0x14000)]
    assert survey.count_blockless_huge_bytes(context(ram=ram), one, SimpleNamespace(interior_residency=None), InRam(4, 4, 4)) == expected


def test_pages_of_zeros_in_huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was written is left out, and no page is read that is not in RAM."""
    table = usage.Finder(os.getpid()).find(procfs.read_process_maps(os.getpid()))
    if PAGE != mmap.PAGESIZE or table is None or not table.scans:
        pytest.skip("this kernel does not tell which pages are huge")
    memory = mmap.mmap(-1, 5 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -(-ctypes.addressof(ctypes.c_char.from_buffer(memory)) // HUGE) * HUGE
    assert ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(4 * HUGE), MADV_HUGEPAGE) == 0
    for place in (0, HUGE + 5 * PAGE, HUGE + 6 * PAGE):
        ctypes.memset(start + place, 1, 1)
    native = kernel.load_native_library()

    def of(ranges: List[Tuple[int, int]], with_exclusive: bool = True) -> InRam:
        found = native.residency(table, ranges, with_exclusive)
        assert found is not None
        return InRam(found.resident_bytes, found.exclusive_bytes, found.huge_bytes)

    here: Any = SimpleNamespace(can_read_on=True, kind="live", page_bytes=PAGE, page_table=lambda: table)
    ram = in_ram.Ram(here, native)
    monkeypatch.setattr(ram, "of", of)
    if of([(start, start + 2 * HUGE)]).huge_bytes != 2 * HUGE:
        pytest.skip("the kernel gives no huge pages here")
    around = context(target=here, ram=ram, kernel=native, source=ProcessSource(os.getpid()), budget=Budget())
    spans = [(start + PAGE, start + 4 * HUGE)]
    assert survey.count_zero_huge_bytes(around, [walk(reserves=spans)], 0) == 2 * HUGE - 3 * PAGE
    assert of([(start, start + 4 * HUGE)]).resident_bytes == 2 * HUGE, "reading brought more into RAM"
    here.can_read_on = False
    assert survey.count_zero_huge_bytes(around, [walk(reserves=spans)], 0) is None, "it runs on"
    here.can_read_on = True
    monkeypatch.setattr(in_ram, "MOST_READ_BYTES", HUGE)
    assert survey.count_zero_huge_bytes(around, [walk(reserves=spans)], 0) is None
