"""What the model says of a synthetic process is what the process was made of, for every release and geometry, by walk and by counters; words and pages that look like blocks are none.

Files: glibc/arenas.py, glibc/freelists.py, glibc/entry.py, glibc/main_arena.py, glibc/records.py, glibc/survey.py, allocators/session.py.
"""

import ctypes
import mmap
import os
import random
from array import array
from types import SimpleNamespace
from typing import Any, List, Sequence, Tuple

import pytest

from gdbheapx import kernel
from gdbheapx.allocators.session import Session
from gdbheapx.common.budget import Budget
from gdbheapx.glibc import survey
from gdbheapx.glibc.layouts import MALLOC_STATE, NEWEST_TRIED
from gdbheapx.glibc.meter import GlibcMeter
from gdbheapx.glibc.records import ArenaTotals, MmappedTotals
from gdbheapx.glibc.survey import _leave_out_ranges
from gdbheapx.inferior.base import ProcessSource
from gdbheapx.inferior.live import procfs, usage
from gdbheapx.kernel.common import in_ram
from gdbheapx.kernel.common.in_ram import InRam
from gdbheapx.kernel.glibc.records import STATUS_FAST, STATUS_FREE, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_USED, MmappedChunks
from tests.support.builders.process import ON_X86_64, WORLDS, Fake, GlibcMachine, make


def look(fake: Fake) -> Session:
    return Session(fake.target)


def sums(row: ArenaTotals) -> int:
    parts = (row.used_bytes, row.tcache_bytes, row.fast_bytes, row.free_bytes, row.top_bytes, row.overhead_bytes, row.unparsed_bytes)
    return sum(part or 0 for part in parts)


def counts(fake: Fake, arena: int, status: int) -> int:
    return sum(1 for built in fake.arenas[arena] for chunk in built.chunks if chunk[2] == status)


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_totals_are_those_of_the_process(world: GlibcMachine) -> None:
    """Counts by status, the identity to the byte, unparsed 0, no problem, in every release and geometry."""
    fake = make(world)
    session = look(fake)
    rows = session.heaps.one().arenas()
    assert session.problems == []
    assert len(rows) == len(fake.arenas)
    for row in rows:
        assert sums(row) == row.system_bytes and row.unparsed_bytes == 0
        found = (row.used_chunks, row.free_chunks, row.fast_chunks, row.tcache_chunks, row.tcache_struct_chunks)
        assert found == tuple(counts(fake, row.index, status) for status in (STATUS_USED, STATUS_FREE, STATUS_FAST, STATUS_TCACHE, STATUS_TCACHE_STRUCT))
        assert row.heaps == len(fake.arenas[row.index]) and row.threads == 1


@pytest.mark.parametrize("world", ON_X86_64.values(), ids=str)
def test_bins_and_caches(world: GlibcMachine) -> None:
    """Bins hold all free chunks, fastbins all fast ones, each thread's cache those of its arena."""
    fake = make(world, seed=7)
    malloc = look(fake).heaps.one()
    rows = malloc.bins()
    for index in range(len(fake.arenas)):
        assert sum(row.chunks or 0 for row in rows if row.arena == index and row.kind != "fast") == counts(fake, index, STATUS_FREE)
        assert sum(row.chunks or 0 for row in rows if row.arena == index and row.kind == "fast") == counts(fake, index, STATUS_FAST)
    assert [cache.chunks for cache in malloc.caches()] == [counts(fake, index, STATUS_TCACHE) for index in range(len(fake.arenas))]
    assert [cache.arena for cache in malloc.caches()] == list(range(len(fake.arenas)))


@pytest.mark.parametrize("world", [world for world in WORLDS if world.word_bytes == 8], ids=str)
def test_release_is_told_from_the_bytes(world: GlibcMachine) -> None:
    """Without any version string the layouts that fit are those of the release, or of a neighbour with the same layouts."""
    fake = make(world)
    del fake.target.symbols["__libc_version"]
    malloc = look(fake).heaps.one()
    assert malloc.info.layout == "probe"
    assert malloc.glibc.malloc_state.size_bytes == world.size_of(MALLOC_STATE)
    assert [row.unparsed_bytes for row in malloc.arenas()] == [0] * len(fake.arenas)


def test_newer_release_is_said_to_be_unlisted() -> None:
    """A release newer than any that was tried is read like the newest, with a note that leaves the answer whole."""
    major, minor = NEWEST_TRIED
    session = look(make(ON_X86_64[NEWEST_TRIED]._replace(version=(major, minor + 1))))
    assert [row.unparsed_bytes for row in session.heaps.one().arenas()] == [0, 0, 0, 0]
    assert not session.partial and "newer than %d.%d" % NEWEST_TRIED in session.problems[0].what


def damaged(world: GlibcMachine = ON_X86_64[2, 36]) -> Fake:
    return make(world, seed=3)


def partial(session: Session) -> List[str]:
    assert session.partial and session.problems
    return [problem.what for problem in session.problems]


@pytest.mark.parametrize("value", [0, 8, 0x4141414141414141, (1 << 40) | 1, 0x103, 0x29])
def test_bad_size_costs_its_own_bytes(value: int) -> None:
    """A size field overwritten in one heap: the rule is named with the address, the arena keeps its identity, the others are whole."""
    fake = damaged()
    built = fake.arenas[1][0]
    place = next(number for number, chunk in enumerate(built.chunks) if number > 50 and chunk[2] == STATUS_USED)
    chunk = built.chunks[place][0]
    fake.target.put_word(chunk + 8, value)
    session = look(fake)
    rows = session.heaps.one().arenas()
    partial(session)
    assert any(problem.where == hex(chunk) for problem in session.problems), session.problems
    assert all(sums(row) == row.system_bytes for row in rows)
    assert rows[1].unparsed_bytes and rows[1].unparsed_bytes < (rows[1].system_bytes or 0) // 4
    assert [row.unparsed_bytes for row in rows if row.index != 1] == [0, 0, 0]


def meter_of(session: Session) -> GlibcMeter:
    heap: Any = session.heaps.one()
    made: GlibcMeter = heap.capabilities["meter"]()
    return made


@pytest.mark.parametrize("world", WORLDS, ids=str)
def test_counters_are_what_the_walk_finds(world: GlibcMachine) -> None:
    """System, top, mapped chunks and what is free, to the byte, in every release and geometry; the second sample like the first."""
    session = Session(make(world).target)
    heap: Any = session.heaps.one()
    totals, meter = heap.totals(), meter_of(session)
    for _ in range(2):
        found = meter.read(10.0)
        free = totals["free_bytes"] + totals["fast_bytes"]
        assert list(found.values) == [totals["arenas"], totals["system_bytes"], totals["top_bytes"], totals["mmapped_bytes"], free]
        assert found.held_bytes == totals["system_bytes"] + totals["mmapped_bytes"]
        assert found.kept_bytes == free + totals["top_bytes"] and found.used_bytes == found.held_bytes - found.kept_bytes
    exact = heap.capabilities["exact-reading"]()
    assert list(exact.values) == list(found.values)
    assert exact.used_bytes == totals["used_bytes"] + totals["mmapped_bytes"] < found.used_bytes


def test_no_time_no_estimate() -> None:
    """The counters are there, what is free is unknown, and so is what is in use."""
    meter = meter_of(Session(make(ON_X86_64[2, 29]).target))
    found = meter.read(0.0)
    assert found.values[1] and found.values[4] is None and found.used_bytes is None and found.held_bytes is not None


@pytest.mark.parametrize("lost", range(0, 60, 3))
def test_memory_that_goes_away_in_a_sample(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    """From any read on nothing can be read: figures are unknown, none is invented, and nothing is raised."""
    session = Session(make(ON_X86_64[2, 29]).target)
    meter = meter_of(session)
    whole, reads = meter.read(10.0), 0
    original = session.target.read_prefix

    def cut(address: int, size_bytes: int) -> bytes:
        nonlocal reads
        reads += 1
        return original(address, size_bytes) if reads <= lost else b""

    monkeypatch.setattr(session.target, "read_prefix", cut)
    found = meter.read(10.0)
    assert all(value in (None, known, 0) for value, known in zip(found.values[1:], whole.values[1:])) or found.values[0] != whole.values[0]
    if reads > lost:
        assert None in found.values or found.values[0] != whole.values[0]


@pytest.mark.parametrize("seed", range(40))
def test_a_heap_that_lies(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Any word of it may be anything: the reading ends, is bounded by what the arenas say of themselves, and nothing is raised."""
    session = Session(make(ON_X86_64[2, 29]).target)
    meter = meter_of(session)
    chance, original = random.Random(seed), session.target.read_prefix

    def lying(address: int, size_bytes: int) -> bytes:
        data = bytearray(original(address, size_bytes))
        if data and chance.random() < 0.3:
            at = chance.randrange(len(data))
            data[at : at + 8] = chance.choice((b"\xff" * 8, b"\0" * 8, chance.randbytes(8)))[: len(data) - at]
        return bytes(data)

    monkeypatch.setattr(session.target, "read_prefix", lying)
    for _ in range(3):
        found = meter.read(0.5)
        if found.used_bytes is not None:
            assert found.held_bytes is not None and 0 <= found.used_bytes <= found.held_bytes


RANGES = [(0x10000, 0x90000), (0x100000, 0x180000), (0x200000, 0x280000)]


def chunks(*places: Tuple[int, int]) -> MmappedChunks:
    """Chunks with a mapping of so many bytes."""
    return MmappedChunks(array("Q", (number for start, size in places for number in (start, size, start, size))))


@pytest.mark.parametrize(
    "found, counted, kept",
    [
        ([(0x10000, 0x3000), (0x100000, 0x2000), (0x108000, 0x1000)], (1, 0x3000), [0x10000]),
        ([(0x10000, 0x3000), (0x100000, 0x2000), (0x200000, 0x2000)], (2, 0x5000), None),  # either of two may be one
        ([(0x10000, 0x3000), (0x100000, 0x2000), (0x200000, 0x1000)], (1, 0x3000), [0x10000]),  # of two ranges
        ([(0x10000, 0x3000), (0x18000, 0x1000), (0x100000, 0x2000)], (2, 0x5000), None),  # one of a range with a true one
    ],
)
def test_ranges_are_left_out_if_all_others_are_as_counted(found: Sequence[Tuple[int, int]], counted: Tuple[int, int], kept: List[int]) -> None:
    """Only where one choice of ranges explains the surplus, in chunks and to the byte."""
    rest, is_complete = _leave_out_ranges(chunks(*found), RANGES, MmappedTotals(*counted))
    assert is_complete == (kept is not None)
    assert [chunk.chunk for chunk in rest] == (kept or [start for start, _ in found])


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
