"""What the model says of a synthetic process is what the process was made of, for every release and geometry.

Files: glibc/arenas.py, glibc/freelists.py, glibc/entry.py, glibc/main_arena.py, glibc/records.py, glibc/survey.py.
"""

from typing import List

import pytest

from gdbheapx.glibc.layouts import MALLOC_STATE, NEWEST_KNOWN
from gdbheapx.glibc.records import ArenaTotals
from gdbheapx.kernel.glibc.records import STATUS_FAST, STATUS_FREE, STATUS_TCACHE, STATUS_TCACHE_STRUCT, STATUS_USED
from gdbheapx.session import Session
from tests.support.builders.process import WORLDS, Fake, World, make


def name(world: World) -> str:
    return "%d.%d-%s" % (*world.version, world.machine)


def look(fake: Fake) -> Session:
    return Session(fake.target)


def sums(row: ArenaTotals) -> int:
    parts = (row.used_bytes, row.tcache_bytes, row.fast_bytes, row.free_bytes, row.top_bytes, row.overhead_bytes, row.unparsed_bytes)
    return sum(part or 0 for part in parts)


def counts(fake: Fake, arena: int, status: int) -> int:
    return sum(1 for built in fake.arenas[arena] for chunk in built.chunks if chunk[2] == status)


@pytest.mark.parametrize("world", WORLDS, ids=name)
def test_totals_are_those_of_the_process(world: World) -> None:
    """Counts by status, the identity to the byte, unparsed 0, no problem: 2.29 to 2.43, 32 and 64 bits, both byte orders, 64 KiB pages."""
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


@pytest.mark.parametrize("world", WORLDS[::5], ids=name)
def test_bins_and_caches(world: World) -> None:
    """Bins hold all free chunks, fastbins all fast ones, each thread's cache those of its arena."""
    fake = make(world, seed=7)
    malloc = look(fake).heaps.one()
    rows = malloc.bins()
    for index in range(len(fake.arenas)):
        assert sum(row.chunks or 0 for row in rows if row.arena == index and row.kind != "fast") == counts(fake, index, STATUS_FREE)
        assert sum(row.chunks or 0 for row in rows if row.arena == index and row.kind == "fast") == counts(fake, index, STATUS_FAST)
    assert [cache.chunks for cache in malloc.caches()] == [counts(fake, index, STATUS_TCACHE) for index in range(len(fake.arenas))]
    assert [cache.arena for cache in malloc.caches()] == list(range(len(fake.arenas)))


@pytest.mark.parametrize("world", [world for world in WORLDS if world.word_bytes == 8], ids=name)
def test_release_is_told_from_the_bytes(world: World) -> None:
    """Without any version string the layouts that fit are those of the release, or of a neighbour with the same layouts."""
    fake = make(world)
    del fake.target.symbols["__libc_version"]
    malloc = look(fake).heaps.one()
    assert malloc.info.layout == "probe"
    assert malloc.glibc.malloc_state.size_bytes == world.size_of(MALLOC_STATE)
    assert [row.unparsed_bytes for row in malloc.arenas()] == [0] * len(fake.arenas)


def test_newer_release_is_said_to_be_unlisted() -> None:
    """A release newer than any that was tried is read like the newest, with a note that leaves the answer whole."""
    major, minor = NEWEST_KNOWN
    session = look(make(WORLDS[-5]._replace(version=(major, minor + 1))))
    assert [row.unparsed_bytes for row in session.heaps.one().arenas()] == [0, 0, 0, 0]
    assert not session.partial and "newer than %d.%d" % NEWEST_KNOWN in session.problems[0].what


def damaged(world: World = WORLDS[10]) -> Fake:
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
