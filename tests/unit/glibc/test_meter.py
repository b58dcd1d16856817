"""The counters that `watch` reads are what the walk over every chunk finds, for every release; and a heap that changes or goes away is no crash.

Files: session.py.
"""

import random
from typing import Any

import pytest

from gdbheapx.glibc.meter import GlibcMeter
from gdbheapx.session import Session
from tests.support.builders.process import WORLDS, World, make


def name(world: World) -> str:
    return "%d.%d-%s" % (*world.version, world.machine)


def meter_of(session: Session) -> GlibcMeter:
    heap: Any = session.heaps.one()
    made: GlibcMeter = heap.capabilities["meter"]()
    return made


@pytest.mark.parametrize("world", WORLDS, ids=name)
def test_counters_are_what_the_walk_finds(world: World) -> None:
    """2.29 to 2.43, 32 and 64 bits, both byte orders: system, top, mapped chunks and what is free, to the byte; the second sample like the first."""
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
    meter = meter_of(Session(make(WORLDS[0]).target))
    found = meter.read(0.0)
    assert found.values[1] and found.values[4] is None and found.used_bytes is None and found.held_bytes is not None


@pytest.mark.parametrize("lost", range(0, 60, 3))
def test_memory_that_goes_away_in_a_sample(monkeypatch: pytest.MonkeyPatch, lost: int) -> None:
    """From any read on nothing can be read: figures are unknown, none is invented, and nothing is raised."""
    session = Session(make(WORLDS[0]).target)
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
    session = Session(make(WORLDS[0]).target)
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
