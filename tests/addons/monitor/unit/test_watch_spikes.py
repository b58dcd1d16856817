"""Spikes of a watch, what the kernel counts read again and again, and a process whose core is being written.

Files: addons/monitor/watch/trends.py.
"""

import os
import random
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from gdbheapx.addons.monitor.capture.dumped import _DumpedMemory
from gdbheapx.addons.monitor.watch import summary as codes
from gdbheapx.addons.monitor.watch import trends as spikes
from gdbheapx.addons.monitor.watch.counters import Counters, ProcessCounters
from gdbheapx.addons.monitor.watch.samples import Sample, Watched
from gdbheapx.addons.monitor.watch.summary import History, Summary
from gdbheapx.allocators.answers import Reading
from gdbheapx.common.model import AllocatorInfo

MB = 1 << 20
WATCHED = Watched(AllocatorInfo("toy", "toy", "1", "libtoy.so", None, None, None, True), (), "trim --dry-run")
KINDS = (spikes.MAPPINGS, spikes.ALLOCATORS, spikes.FILES, spikes.TOUCHED)


class Program:
    """Has `base` in RAM all the time, half of it in use in malloc; sizes in bytes. What it needs for a spike is of one kind."""

    def __init__(self, kind: str, base: int, height: int, known_used: float, seed: int) -> None:
        self.kind, self.base, self.height, self.known_used, self.draw = kind, base, height, known_used, random.Random(seed)

    def sample(self, at: float, is_high: bool, leaked: int = 0) -> Sample:
        """One."""
        more = self.height * is_high
        rss, used = self.base + more + leaked, self.base // 2 + leaked + more * (self.kind == spikes.ALLOCATORS)
        kept = self.base // 4
        virtual = 4 * self.base + leaked + more * (self.kind in (spikes.MAPPINGS, spikes.ALLOCATORS, spikes.FILES))
        is_known = self.draw.random() < self.known_used
        reading = Reading((), used + kept, used if is_known else None, kept if is_known else None, None)
        counters = ProcessCounters(rss, rss - more * (self.kind == spikes.FILES), 0, 1, virtual, self.base + self.height + leaked)
        return Sample(1000 + at, at, counters, None, [reading], None)


def summary(samples: List[Sample]) -> Summary:
    """Of all of them."""
    history = History([WATCHED])
    for one in samples:
        history.add(one)
    made = history.summary(codes.TIMES, 0)
    assert made is not None
    return made


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(40))
def test_regular_spikes(kind: str, seed: int) -> None:
    """Of any base, height, period, spacing of samples and leak beside them: how many, how high, how often and whose are what they were;
    none is memory that was returned, and no timer is advised or advised against."""
    draw = random.Random(seed)
    base, height = draw.randint(20, 2000) * MB, draw.randint(150, 900) * MB
    spacing = draw.choice((0.5, 1.0, 5.0))
    every = draw.randint(5, 30)
    high = draw.randint(2, every - 2)
    program = Program(kind, base, height, draw.choice((1.0, 0.2)), seed)
    leak = draw.choice((0, height // 200))
    begin = draw.randint(0, every - 1)
    states = [(begin + number) % every < high for number in range(12 * every)]
    found = summary([program.sample(number * spacing, is_high, leak * number // every) for number, is_high in enumerate(states)])
    falls = sum(before and not now for before, now in zip(states, states[1:])) - states[0]  # of which no rise was seen
    assert found.spikes is not None and found.spikes.number == falls
    assert abs(found.spikes.bytes - height) <= height // 50 and found.spikes.period_s == pytest.approx(every * spacing, rel=0.02)
    assert found.spikes.whose == kind
    if kind in (spikes.MAPPINGS, spikes.FILES, spikes.ALLOCATORS):
        assert (found.steps, found.worth) == (0, None)
        assert not found.undecided_bytes or (kind == spikes.ALLOCATORS and program.known_used < 1)
    assert found.code in (codes.SWINGS, codes.STEADY, codes.IN_USE, codes.HELD)
    if not leak:
        assert found.code not in (codes.IN_USE, codes.HELD)
    assert found.peak_bytes is not None and found.peak_bytes >= base + height


@pytest.mark.parametrize("seed", range(40))
def test_a_fall_is_returned_or_not_by_one_rule(seed: int) -> None:
    """Whatever its size: RSS that falls while as much is in use and mapped was returned; not where the program freed or unmapped it."""
    draw = random.Random(seed)
    base = draw.randint(50, 500) * MB
    size = draw.randint(base // 40 + MB, base // 4)
    for kind, steps in ((spikes.TOUCHED, 1), (spikes.MAPPINGS, 0), (spikes.ALLOCATORS, 0), (spikes.FILES, 0)):
        program = Program(kind, base, size, 1.0, seed)
        assert summary([program.sample(number, number < 10) for number in range(60)]).steps == steps, kind


def test_growth_is_no_spike() -> None:
    """Nor is noise, nor one fall; irregular ones have no period."""
    program = Program(spikes.ALLOCATORS, 100 * MB, 300 * MB, 1.0, 0)
    assert summary([program.sample(at, at > 5, at * MB) for at in range(60)]).spikes is None
    noisy = Program(spikes.ALLOCATORS, 1000 * MB, 20 * MB, 1.0, 0)
    assert summary([noisy.sample(at, at % 4 < 2) for at in range(60)]).spikes is None
    irregular = summary([program.sample(at, at in (3, 4, 30, 31, 36, 37, 80, 81)) for at in range(100)]).spikes
    assert irregular is not None and (irregular.number, irregular.period_s) == (4, None)


@pytest.mark.parametrize("held, code", [(400, codes.TOUCHED), (None, codes.GREW), (80, codes.ELSEWHERE)])
def test_memory_that_was_held_before(held: Optional[int], code: str) -> None:
    """What malloc had got before the watch, and the program writes to now, is no growth elsewhere."""
    samples = []
    for at in range(40):
        rss = (100 + 5 * at) * MB
        reading = Reading((), None if held is None else held * MB, None, None, None)
        samples.append(Sample(at, at, ProcessCounters(rss, rss, 0, 1, 1 << 30), None, [reading], None))
    assert summary(samples).code == code


PAGE = os.sysconf("SC_PAGESIZE")


def test_of_this_process() -> None:
    """RSS, anonymous memory and threads are those of /proc; the pages are counted too."""
    counters = Counters(os.getpid())
    found, pages = counters.read(), counters.pages()
    assert found is not None and found.threads is not None and found.threads >= 1
    assert 0 < found.anonymous_bytes < found.resident_bytes and found.resident_bytes % PAGE == 0
    if pages is not None:
        assert pages.resident_bytes and abs(pages.resident_bytes - found.resident_bytes) < max(found.resident_bytes // 2, 8 << 20)


@pytest.mark.parametrize("is_reaped", [False, True])
def test_a_process_that_has_ended(is_reaped: bool) -> None:
    """None, also while it waits to be reaped; the folder that was opened belongs to it alone."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    counters = Counters(child.pid)
    assert counters.read() is not None
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    if is_reaped:
        child.wait()
    assert counters.read() is None and counters.pages() is None
    child.wait()


@pytest.mark.parametrize("name", [b"a\nThreads:\t99", b"\x1b[31m", b"\xff\xfe", b"=1+1"])
def test_a_name_is_data(name: bytes) -> None:
    """A program that calls itself a line of status changes no figure; bytes that are no UTF-8 are replaced."""
    program = "import ctypes, sys; ctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0); print(1, flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", program, name.hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdin is not None
    child.stdout.readline()
    counters = Counters(child.pid)
    found = counters.read()
    assert found is not None and found.threads == 1
    assert counters.name() == name[:15].decode("utf-8", "replace")
    child.stdin.close()
    child.wait()
    child.stdout.close()


SYSTEM_PAGE = 4096


def memory(segments: int, hole: int = -1) -> Any:
    """So many segments of a page side by side, of which the dump leaves one out."""
    loads = [SimpleNamespace(start=place * SYSTEM_PAGE, dumped_bytes=0 if place == hole else SYSTEM_PAGE) for place in range(segments)]
    made = _DumpedMemory.__new__(_DumpedMemory)
    made._live = SimpleNamespace(read_prefix=lambda address, size: b"%c" % (address // SYSTEM_PAGE % 251) * size)  # type: ignore[assignment]
    made.find = lambda address: loads[address // SYSTEM_PAGE] if address // SYSTEM_PAGE < segments else None  # type: ignore[method-assign,assignment,return-value]
    return made


def test_a_read_goes_through_all_segments() -> None:
    """Five thousand of them, as where each page was protected by itself; to the end of the last one."""
    found = memory(5000).read_dumped(100, 5001 * SYSTEM_PAGE)
    assert len(found) == 5000 * SYSTEM_PAGE - 100 and found[SYSTEM_PAGE] == 1 and found[-1] == 4999 % 251


def test_a_read_ends_where_nothing_is_dumped() -> None:
    """At a hole, and at once in it."""
    one = memory(10, hole=4)
    assert len(one.read_dumped(0, 8 * SYSTEM_PAGE)) == 4 * SYSTEM_PAGE and one.read_dumped(4 * SYSTEM_PAGE, 8) == b""
