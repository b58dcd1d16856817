"""What `watch` makes of samples: growth, steps at which memory was returned, the verdict; and its loop over a process that ends.

Spikes of a watch, what the kernel counts read again and again, and a process whose core is being written.

Files: addons/monitor/watch/samples.py, addons/monitor/watch/summary.py, addons/monitor/watch/trends.py, allocators/answers.py.
"""

import os
import random
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, Iterable, List, Optional, Tuple

import pytest

from gdbheapx.addons.monitor.capture.dumped import _DumpedMemory
from gdbheapx.addons.monitor.watch import samples, text
from gdbheapx.addons.monitor.watch import summary as codes
from gdbheapx.addons.monitor.watch import trends as spikes
from gdbheapx.addons.monitor.watch.counters import Counters, ProcessCounters
from gdbheapx.addons.monitor.watch.samples import Sample, Sampler, Watched
from gdbheapx.addons.monitor.watch.summary import History, Over, Summary, watch_events
from gdbheapx.addons.monitor.watch.trends import MOST_POINTS, Series, Steps
from gdbheapx.allocators.answers import Figure, Reading
from gdbheapx.common.budget import Budget
from gdbheapx.common.errors import UnreadableMemory
from gdbheapx.common.model import AllocatorInfo

MB = 1 << 20
INFO = AllocatorInfo("toy", "toy", "1", "libtoy.so", None, None, None, True)
WATCHED = Watched(INFO, (Figure("free_bytes", "free", "free", True),), "trim --dry-run")


def sample(
    at: float,
    rss: int,
    used: Optional[int] = 0,
    kept: Optional[int] = 500,
    swapped: int = 0,
    returnable: Optional[int] = None,
    virtual: Optional[int] = None,
) -> Sample:
    """Sizes in MiB. As a rule much is kept, in RAM or not: so it may have been returned."""
    used_bytes, kept_bytes = (None if one is None else one * MB for one in (used, kept))
    held = None if used_bytes is None or kept_bytes is None else used_bytes + kept_bytes
    reading = Reading((None,), held, used_bytes, kept_bytes, None if returnable is None else returnable * MB)
    counters = ProcessCounters(rss * MB, rss * MB, swapped * MB, 1, None if virtual is None else virtual * MB)
    return Sample(1000 + at, at, counters, None, [reading], None)


def seen(samples: Iterable[Sample]) -> Steps:
    """The steps in them."""
    found = Steps()
    for one in samples:
        found.add(one)
    return found


def history(samples: Iterable[Sample]) -> History:
    """Of them."""
    found = History([WATCHED])
    for one in samples:
        found.add(one)
    return found


def summary(samples: Iterable[Sample]) -> Summary:
    """Of all of them."""
    made = history(samples).summary(codes.TIMES, 0)
    assert made is not None
    return made


def test_a_series_stays_small() -> None:
    """100,000 samples are no more points than a few; the first, the last and the extremes are exact, and so is the slope of a straight line."""
    series = Series()
    for second in range(100_000):
        series.add(second, 1000 + 1000 * second)
    change = series.change()
    assert len(series.points()) <= MOST_POINTS and change is not None
    assert (change.first, change.last, change.lowest, change.highest) == (1000, 1000 + 1000 * 99_999, 1000, 1000 + 1000 * 99_999)
    assert change.bytes_per_hour == 3_600_000 and not change.is_noise


def test_unknown_values_leave_a_gap() -> None:
    """None counts as nothing, not as 0."""
    series = Series()
    for second in range(20):
        series.add(second, None if second % 2 else 7)
    assert (series.lowest, series.highest, series.count) == (7, 7, 10)


@pytest.mark.parametrize("count, apart", [(4, 10.0), (100, 0.05)])
def test_little_is_not_judged(count: int, apart: float) -> None:
    """Few samples, or a short time, say nothing about growth."""
    series = Series()
    for number in range(count):
        series.add(number * apart, number * MB)
    assert series.change() is None

CASES: List[Tuple[str, List[Tuple[int, Optional[int], Optional[int]]]]] = [
    (codes.STEADY, [(100, 50, 40)] * 20),
    (codes.SHRANK, [(100 - 2 * step, 50, 40) for step in range(20)]),
    (codes.IN_USE, [(100 + 5 * step, 50 + 5 * step, 40) for step in range(20)]),
    (codes.KEPT, [(100 + 5 * step, 50, 40 + 5 * step) for step in range(20)]),
    (codes.ELSEWHERE, [(100 + 5 * step, 50, 40) for step in range(20)]),
    (codes.GREW, [(100 + 5 * step, None, None) for step in range(20)]),
]


@pytest.mark.parametrize("code, rows", CASES, ids=[code for code, _ in CASES])
def test_growth_is_put_where_it_is(code: str, rows: List[Tuple[int, Optional[int], Optional[int]]]) -> None:
    """At least half of the growth of RSS must be in use, or kept, to be called so."""
    assert summary(sample(step * 5.0, *row) for step, row in enumerate(rows)).code == code

ARENAS, HEAP = "CPython: object arenas (obmalloc)", "V8: JavaScript heap"


def in_pools(name: str, each: int, held_each: int = 0) -> Any:
    """The summary where RSS grows by 5 MiB a sample, of them so many in a runtime's memory and so many held by the allocator."""
    samples = []
    for step in range(20):
        made = sample(step * 5.0, 100 + 5 * step, None if held_each else 50, None if held_each else 40)
        made = made._replace(readings=[made.readings[0]._replace(held_bytes=(90 + held_each * step) * MB)])
        samples.append(made._replace(pools={name: (30 + each * step) * MB, "JVM: Java heap": MB} if step % 3 == 0 else None))
    return summary(samples)


def test_growth_in_the_memory_of_a_runtime() -> None:
    """It is said so, with what to ask; where an allocator grew in the same mappings, that is no growth of the runtime."""
    found = in_pools(ARENAS, 4)
    assert (found.code, found.pool.name, found.pool.bytes) == (codes.POOLS, ARENAS, 72 * MB)
    assert text.format_verdict(found).startswith("Growing: CPython's objects, +72.0 MiB in %s: " % ARENAS)
    assert text.next_commands(found) == ["owners", "census", "report"]
    other = in_pools(HEAP, 4)
    assert text.format_verdict(other).startswith("Growing: V8's objects") and text.next_commands(other) == ["report"]
    assert in_pools(ARENAS, 1).code == in_pools(ARENAS, 4, 2).code == codes.ELSEWHERE
    assert in_pools(ARENAS, 0).pool is None


def test_held_without_a_split() -> None:
    """Where it was never known what is in use, growth of what is held is called that."""
    samples = [sample(step * 5.0, 100 + 5 * step, None, None) for step in range(20)]
    held = [one.readings[0]._replace(held_bytes=(60 + 5 * step) * MB) for step, one in enumerate(samples)]
    assert summary(one._replace(readings=[reading]) for one, reading in zip(samples, held)).code == codes.HELD


def test_growth_after_a_return() -> None:
    """What comes back is not called a leak somewhere else; kept memory that is not in RAM is not called kept in RAM."""
    samples = [sample(step * 2.0, 100 if not 3 < step < 12 else 30, 20, 70) for step in range(40)]
    found = summary(samples)
    assert (found.code, found.steps) == (codes.RETURNED, 1) and found.is_mostly_kept
    found = summary([*samples, sample(81, 25, 20, 70)])
    assert found.kept_resident_bytes == 25 * MB and not found.is_mostly_kept


def test_a_return_and_what_came_back() -> None:
    """60 MiB go while the use stays: a step. 30 are back after 20 s as memory in use, 57 after 60 s."""
    rows = [(0, 100, 40), (5, 40, 40), (10, 40, 40), (25, 70, 70), (65, 97, 97), (100, 97, 97)]
    steps = seen(sample(at, rss, used, 60) for at, rss, used in rows)
    (step,) = steps.kept
    assert (step.returned_bytes, step.half_s, step.most_s) == (60 * MB, 20, 60)
    assert (step.back_bytes, step.back_used_bytes) == (57 * MB, 57 * MB)
    worth = steps.worth()
    assert worth is not None and (worth.code, worth.half_s) == ("does-not-pay", 20)


def test_what_is_no_return() -> None:
    """The program freed it; it went to swap; it is a page of a file more or less; it is too little."""
    assert seen([sample(0, 100, 80), sample(5, 40, 20)]).count == 0
    assert seen([sample(0, 100, 80), sample(5, 40, 80, swapped=60)]).count == 0
    assert seen([sample(0, 1000, 80), sample(5, 990, 80)]).count == 0
    assert seen([sample(0, 100, None), sample(5, 40, None)]).count == 0


def test_a_return_by_the_counters_alone() -> None:
    """Where nobody knows what is in use, what could be returned must have become less."""
    assert seen([sample(0, 100, None, returnable=70), sample(5, 40, None, returnable=10)]).count == 1
    assert seen([sample(0, 100, None, returnable=70), sample(5, 40, None, returnable=70)]).count == 0


@pytest.mark.parametrize("later, count", [(40, 1), (3, 0)])
def test_a_step_that_is_decided_later(later: int, count: int) -> None:
    """What is in use was not known when memory went away: it is when it is known again."""
    steps = seen([sample(0, 100, 40), sample(5, 40, None), sample(10, 40, None), sample(15, 40, later)])
    assert steps.count == count


def test_a_step_that_the_program_goes_on_with() -> None:
    """First memory is returned, then the program frees as much: only the first is a step."""
    steps = seen([sample(0, 100, 50), sample(1, 60, 50), sample(2, 20, 10), sample(3, 20, 10)])
    assert steps.count == 1 and steps.kept[0].returned_bytes == 40 * MB


def test_a_step_over_several_samples_is_one() -> None:
    """A purge that takes longer than the time between two samples."""
    steps = seen([sample(0, 100, 10), sample(1, 80, 10), sample(2, 60, 10), sample(3, 40, 10), sample(4, 40, 10)])
    assert steps.count == 1 and steps.kept[0].returned_bytes == 60 * MB


def said(samples: Iterable[Sample]) -> str:
    """The summary as people read it."""
    found = summary(samples)
    lines = [text.format_verdict(found), *text.format_end_state(found)]
    lines += [text.format_growth(name, one, has_rate=not found.steps) for name, one in (("RSS", found.rss), ("in use", found.used)) if one is not None]
    lines += [text.of_step(one) for one in found.last_steps]
    lines += [text.of_undecided(found.undecided_bytes)] if found.undecided_bytes else []
    return "\n".join([*lines, *([text.of_worth(found.worth, found.steps)] if found.worth is not None else [])])


def test_what_is_in_use_need_not_be_in_ram() -> None:
    """Blocks in use that were never touched take nothing from what is kept in RAM: it is at most as much as there is anonymous memory, and
    nothing is said where that is no less than what is kept."""
    untouched = said(sample(at, 50, used=60, kept=40) for at in range(0, 60, 5))
    assert "40.0 MiB free" in untouched and "at most" not in untouched
    assert "40.0 MiB free (at most 30.0 MiB of it resident)" in said(sample(at, 30, used=60, kept=40) for at in range(0, 60, 5))


@pytest.mark.parametrize("kept", [5, 400])
def test_a_program_that_unmaps_its_own_memory_returns_none(kept: int) -> None:
    """300 MiB are mapped and unmapped, again and again: no allocator had them, whether it keeps little or much; RSS does not grow back, and
    nothing is said of a trim."""
    rows = [(at, 20 + 300 * (at // 5 % 2), 700 + 300 * (at // 5 % 2)) for at in range(0, 200, 5)]
    samples = [sample(at, rss, 10, kept, virtual=size if kept > 300 else None) for at, rss, size in rows]
    assert seen(samples).count == 0 and seen(samples).undecided_bytes == 0
    told = said(samples)
    assert "trim" not in told and "returned" not in told and "RSS swings" in told


def test_what_an_allocator_unmaps_is_returned() -> None:
    """Address space that it gave up itself is none of the program's."""
    one, other = sample(0, 400, 10, 390, virtual=900), sample(5, 110, 10, 100, virtual=610)
    assert seen([one, other]).count == 1


def test_growth_that_is_a_swing_is_no_growth() -> None:
    """A program that works in bursts: the mean of the last fifth may be higher than that of the first by chance; no rate is told, no cause."""
    bursts = {1, 20, 34, 35, 36, 37, 39}
    told = said(sample(at * 2.0, 250 if at in bursts else 20, 10, 240 if at in bursts else 10, virtual=300) for at in range(40))
    assert "RSS swings" in told and "an hour" not in told and "leak" not in told


def test_growth_below_bursts_is_growth() -> None:
    """Bursts do not hide what stays: the low points rise."""
    samples = [sample(at * 2.0, 20 + 8 * at + (30 if at % 4 == 0 else 0), 10 + 8 * at + (30 if at % 4 == 0 else 0), 20) for at in range(40)]
    assert summary(samples).code == codes.IN_USE and "an hour" in said(samples)


def test_kept_growth_beside_a_growing_use_is_not_called_harmless() -> None:
    """What is in use did not grow: said only where that is so."""
    both = said(sample(at * 5.0, 100 + 5 * at, 50 + 2 * at, 40 + 3 * at) for at in range(20))
    alone = said(sample(at * 5.0, 100 + 5 * at, 50, 40 + 5 * at) for at in range(20))
    assert "malloc keeps" in both and "did not grow" not in both and "no leak" not in both + alone
    assert "malloc keeps; memory in use did not grow" in alone


def test_growth_that_did_not_come_back_is_not_said_to() -> None:
    """A little was returned early, and RSS grew by more than that: something else grew."""
    rows = [(at, 100 + 10 * at - (20 if at > 2 else 0)) for at in range(40)]
    found = summary(sample(at * 2.0, rss, 20, 60) for at, rss in rows)
    assert found.steps == 1 and found.code == codes.ELSEWHERE


def test_falls_are_judged_alike() -> None:
    """What fell with what is in use is no return, whatever its size; what cannot be judged is said so, and no fall is forgotten."""
    freed = [sample(0, 100, 90, 5), sample(2, 92, 82, 5), sample(4, 92, 82, 5), sample(6, 76, 66, 5), sample(8, 76, 66, 5)]
    assert seen(freed).count == 0 and "returned" not in said(freed)
    unknown = [sample(0, 100, 40, 50), sample(2, 60, None, None), sample(4, 100, None, None), sample(6, 60, None, None)]
    assert seen(unknown).count == 0 and seen(unknown).undecided_bytes == 80 * MB
    assert "Another 80.0 MiB left RAM" in said(unknown)
    twice = [sample(at, 100 if at in (0, 10) else 60, 40, 60) for at in (0, 5, 10, 15, 20)]
    assert seen(twice).count == 2, "the second time as the first"


class Process:
    """Counters that end with a sample, or in the middle of one."""

    def __init__(self, lives: int, ends_in_the_middle: bool = False) -> None:
        self.reads, self.lives, self.ends_in_the_middle = 0, lives, ends_in_the_middle
        self.pid, self.stopped_ms = 77, None

    def name(self) -> str:
        return "toy"

    def read(self) -> Optional[ProcessCounters]:
        self.reads += 1
        return None if self.has_ended() else ProcessCounters(5 * MB, 4 * MB, 0, 1)

    def pages(self) -> None:
        return None

    def has_ended(self) -> bool:
        """It has been read often enough."""
        return self.reads > self.lives


class Meter:
    """One that fails where the process is gone."""

    info, figures = INFO, WATCHED.figures

    def __init__(self, process: Process) -> None:
        self.process = process

    def read(self, walk_seconds: float) -> Reading:
        """A reading, or what a vanished process gives."""
        if self.process.ends_in_the_middle and self.process.reads + 1 >= self.process.lives:
            self.process.lives = 0
            raise UnreadableMemory(0x1000)
        return Reading((1,), 10, 6, 4, 10)


def session_of(process: Process) -> Any:
    """What a sampler needs of one: a target, and its one heap."""
    heap = SimpleNamespace(capabilities={"meter": lambda: Meter(process)})
    heaps = SimpleNamespace(may_be_none=False, all=lambda: [heap], dry_run=lambda heap: None)
    return SimpleNamespace(target=process, heaps=heaps)


@pytest.fixture(autouse=True)
def counters_of_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process here is its own counters."""
    monkeypatch.setattr(samples, "open_counters", lambda target: target)


def watched(process: Process, times: Optional[int] = None, budget: Optional[Budget] = None) -> List[Any]:
    """All events, without waiting."""
    sampler = Sampler(session_of(process), is_exact=False)
    return list(watch_events(sampler, History(sampler.watched), 0.001, times, budget or Budget(), sleep=lambda seconds: None))


@pytest.mark.parametrize("in_the_middle", [False, True])
def test_a_process_that_ends(in_the_middle: bool) -> None:
    """The sample that it ended in is not told; the last event says so, with the summary of those before."""
    found = watched(Process(7, in_the_middle))
    assert isinstance(found[-1], Over) and found[-1].why == codes.ENDED
    assert len(found) - 1 == found[-1].summary.samples >= 2
    assert all(one.readings[0].used_bytes == 6 for one in found[:-1])


def test_who_stops_it_gets_a_summary() -> None:
    """Ctrl-C ends it as it should end: nothing is missing."""
    budget = Budget()
    sampler = Sampler(session_of(Process(10**9)), is_exact=False)
    loop = watch_events(sampler, History(sampler.watched), 0.001, None, budget, sleep=lambda seconds: None)
    assert isinstance(next(loop), Sample)
    budget.interrupt()
    found = list(loop)
    assert [type(one) for one in found] == [Over]
    over: Any = found[0]
    assert over.why == codes.STOPPED and over.summary.samples == 1
    assert budget.reason is None

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
