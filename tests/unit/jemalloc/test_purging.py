"""Who can purge an arena, case by case; the decay state it rests on; and whether a build counts at all.

Files: jemalloc/decay.py, jemalloc/options.py.
"""

from types import SimpleNamespace
from typing import Any, Dict, NamedTuple, Optional

import pytest

from gdbheapx.jemalloc import decay, options
from gdbheapx.jemalloc.decay import ArenaDecay, BackgroundState, DecayClock, DecayState
from gdbheapx.jemalloc.records import PublicNames, TickerArena
from tests.support.builders.jemalloc import NBINS, VERSIONS, JemallocMemory
from tests.support.builders.records import ticker_arena, ticker_thread

SECOND = 10**9
MADE = 1000 * SECOND
INTERVAL = 50 * 10**6
"""Of the default decay time, 10 s."""


def state(name: str = "dirty", **changes: Any) -> DecayState:
    """Pages that decay in 10 s, and whose interval runs."""
    values: Dict[str, Any] = {
        "state": name,
        "time_ms": 10000 if name == "dirty" else 0,
        "pages": 5000,
        "sweeps": 3,
        "madvises": 3,
        "purged_pages": 700,
        "interval_ns": INTERVAL,
        "epoch_ns": MADE + 90 * SECOND,
        "deadline_ns": MADE + 90 * SECOND + INTERVAL,
        "nunpurged_pages": 0,
        "limit_pages": None,
    }
    return DecayState(**{**values, **changes})


def arena(**changes: Any) -> ArenaDecay:
    """An arena with such pages."""
    nothing: Any = None
    return ArenaDecay(nothing, MADE, state(**changes), state("muzzy", pages=0))


class Drivers(NamedTuple):
    """The threads that can drive an arena's decay."""

    threads: int
    healthy: int
    blind: int
    unknown: int
    others_healthy: int
    all_known: bool
    background: Optional[str]
    percpu: bool


def judge_arena(decays: ArenaDecay, drivers: Drivers, clock: DecayClock) -> TickerArena:
    """The row of an arena with these threads."""
    counts = {"healthy_threads": drivers.healthy, "blind_threads": drivers.blind, "unknown_threads": drivers.unknown}
    assert sum(counts.values()) == drivers.threads
    known = drivers.threads if drivers.all_known else None
    row = ticker_arena(0, "unknown", 0, threads=known, background_thread=drivers.background, **counts)
    return decay.judge_arena(row, decays, clock, drivers.others_healthy, drivers.percpu)


AT = (MADE + 90 * SECOND + INTERVAL // 2, True)
"""While the interval runs."""
LATER = (MADE + 99 * SECOND, True)
"""Nine seconds after it should have ended."""
DRIVEN = Drivers(threads=2, healthy=2, blind=0, unknown=0, others_healthy=1, all_known=True, background=None, percpu=False)
BLIND = DRIVEN._replace(healthy=0, blind=2)
SOME = DRIVEN._replace(healthy=1, blind=1)

CASES = [
    ("healthy", DRIVEN, {}, AT, "purged", True),
    ("healthy and idle", DRIVEN, {}, LATER, "idle", True),
    ("healthy, idle, nothing to purge", DRIVEN, {"pages": 0}, LATER, "purged", True),
    ("some blind", SOME, {}, AT, "degraded", True),
    ("some blind, the others idle", SOME, {}, LATER, "degraded", True),
    ("all blind, driven by others' frees", BLIND, {}, AT, "degraded", True),
    ("all blind, nobody drives it", BLIND, {}, LATER, "unpurged", False),
    ("all blind, nothing to purge", BLIND, {"pages": 0}, LATER, "degraded", True),
    ("all blind, in the whole process", BLIND._replace(others_healthy=0), {}, AT, "unpurged", False),
    ("all blind, not every tsd known", BLIND._replace(others_healthy=0, all_known=False), {}, AT, "degraded", True),
    ("one of two unknown", DRIVEN._replace(healthy=0, blind=1, unknown=1), {}, LATER, "unknown", None),
    ("one unknown, one healthy", DRIVEN._replace(healthy=1, unknown=1), {}, AT, "purged", True),
    ("no thread", DRIVEN._replace(threads=0, healthy=0), {}, LATER, "no-threads", True),
    ("no thread, none elsewhere", DRIVEN._replace(threads=0, healthy=0, others_healthy=0), {}, LATER, "no-threads", False),
    ("no thread known", DRIVEN._replace(threads=0, healthy=0, all_known=False), {}, LATER, "unknown", None),
    ("never", BLIND, {"time_ms": -1}, LATER, "never", False),
    ("at once", BLIND, {"time_ms": 0}, LATER, "at-once", True),
    ("background thread", BLIND._replace(background="started"), {}, LATER, "purged", True),
    ("background threads on, none for it, late", DRIVEN._replace(background="stopped"), {}, LATER, "unpurged", False),
    ("background threads on, none for it yet", DRIVEN._replace(background="none"), {}, AT, "degraded", None),
    ("background thread paused", BLIND._replace(background="paused"), {}, LATER, "unknown", None),
    ("percpu", SOME._replace(percpu=True), {}, AT, "degraded", True),
]


@pytest.mark.parametrize("drivers, changes, time, verdict, can_purge", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_outlook(drivers: Drivers, changes: Dict[str, Any], time: DecayClock, verdict: str, can_purge: Optional[bool]) -> None:
    """Each case has its verdict, and a reason in one line."""
    found = judge_arena(arena(**changes), drivers, time)
    assert (found.verdict, found.can_purge) == (verdict, can_purge), found
    assert found.why and "\n" not in found.why


@pytest.mark.parametrize("drivers, time, verdict", [(DRIVEN, LATER, "idle"), (DRIVEN, AT, "purged"), (BLIND, LATER, "unpurged")])
def test_muzzy_pages_decay_where_dirty_ones_go_at_once(drivers: Drivers, time: DecayClock, verdict: str) -> None:
    """Pages that were dirty when the time was set to 0 are muzzy now, and wait for a thread: of these it is judged, where there are any."""
    decays = arena(time_ms=0)
    assert judge_arena(decays._replace(muzzy=state("muzzy", time_ms=10000)), drivers, time).verdict == verdict
    assert judge_arena(decays._replace(muzzy=state("muzzy", time_ms=10000, pages=0)), drivers, time).verdict == "at-once"
    assert judge_arena(decays._replace(muzzy=state("muzzy")), drivers, time).verdict == "at-once"


@pytest.mark.parametrize("pages", [1, 20000])
def test_pages_alone_accuse_nobody(pages: int) -> None:
    """However many pages are dirty: without a sign in the arena that nobody drives it, it is not unpurged while somebody ticks."""
    assert judge_arena(arena(pages=pages), BLIND, AT).verdict == "degraded"
    assert judge_arena(arena(pages=pages), DRIVEN, LATER).verdict == "idle"


def test_on_a_core_never_swept_is_a_sign() -> None:
    """Where the time is a lower bound, pages of which none was ever swept show it; on a live process the clock does."""
    early = (AT[0], False)
    assert judge_arena(arena(sweeps=0), BLIND, early).verdict == "unpurged"
    assert judge_arena(arena(sweeps=3), BLIND, early).verdict == "degraded"
    assert judge_arena(arena(sweeps=None), BLIND, early).verdict == "degraded"
    assert judge_arena(arena(sweeps=0), BLIND, AT).verdict == "degraded"
    assert judge_arena(arena(), BLIND, (None, False)).late_ms is None


def test_a_little_late_is_no_sign() -> None:
    """Threads that work tick every thousand calls, not every interval: some intervals late is nothing."""
    some = (MADE + 90 * SECOND + 15 * INTERVAL, True)
    assert judge_arena(arena(), BLIND, some).verdict == "degraded"
    assert judge_arena(arena(), DRIVEN, some).verdict == "purged"


def test_never_since_it_was_made() -> None:
    """An arena whose epoch is still the one of its beginning says so."""
    found = judge_arena(arena(epoch_ns=MADE, deadline_ns=MADE + INTERVAL, sweeps=0), BLIND, LATER)
    assert "has never run since the arena was made" in (found.evidence or "")
    assert found.late_ms == pytest.approx(99000 - 50)


# ---------------------------------------------------------------------------------------------------- decay from memory


def filled(version: Any) -> JemallocMemory:
    """Arenas with decay state."""
    world = JemallocMemory(version)
    base = "pa_shard.pac." if version >= (5, 3, 0) else ""
    stats = "stats.pa_shard_stats.pac_stats." if version >= (5, 3, 0) else "stats."
    pages = base + "ecache_dirty.eset.npages" if version >= (5, 3, 0) else "extents_dirty.npages"
    for one in world.arenas:
        paths = {base + "decay_dirty.time_ms": 500, base + "decay_muzzy.time_ms": -1, pages: 7 + one.index, stats + "decay_dirty.npurge": 9}
        paths.update({base + "decay_dirty.interval.ns": 2500000, base + "decay_dirty.epoch.ns": MADE + one.index, base + "decay_dirty.deadline.ns": MADE + SECOND})
        paths["create_time.ns"] = MADE
        for path, value in paths.items():
            world.put_path("arena_s", one.address, path, value)
    return world


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("counts", [True, False, None])
def test_decay_state(version: Any, counts: Optional[bool]) -> None:
    """Times, pages and counters are read wherever a release has them; without statistics counters are unknown, not 0."""
    world = filled(version)
    found = decay.read_decay(world.context, world.arenas, counts)
    assert [one.dirty.pages for one in found] == [7, 8, 9]
    assert {(one.dirty.time_ms, one.muzzy.time_ms) for one in found} == {(500, -1)}
    assert {one.dirty.sweeps for one in found} == ({9} if counts else {None})
    assert {one.dirty.deadline_ns for one in found} == {MADE + SECOND}
    assert (found[0].dirty.limit_pages is None) is (version < (5, 3, 0))


@pytest.mark.parametrize("version", VERSIONS)
def test_time(version: Any) -> None:
    """A live process's clock counts; on a core the latest time that jemalloc noted; a clock that is behind it is another one."""
    world = filled(version)
    found = decay.read_decay(world.context, world.arenas, True)
    assert decay.read_decay_clock(world.context, found) == (MADE + 2, False)
    world.memory.clock = MADE + 3 * SECOND
    assert decay.read_decay_clock(world.context, found) == (MADE + 3 * SECOND, True)
    assert decay.measure_overdue_ns(found[0].dirty, decay.read_decay_clock(world.context, found)) == 2 * SECOND
    assert decay.measure_overdue_ns(found[0].muzzy, decay.read_decay_clock(world.context, found)) is None
    world.memory.clock = SECOND
    assert decay.read_decay_clock(world.context, found) == (MADE + 2, False)


@pytest.mark.parametrize(
    "now_ns, is_exact, pages, expected",
    [(MADE + 90 * SECOND, True, 7, 0), (MADE + 90 * SECOND, False, 7, None), (MADE + 90 * SECOND, False, 0, 0), (MADE + 99 * SECOND, False, 7, 9 * SECOND - INTERVAL)],
)
def test_a_core_never_shows_that_pages_are_in_time(now_ns: int, is_exact: bool, pages: int, expected: Optional[int]) -> None:
    """Its clock is the latest time that was noted, often that of the same arena: what is not overdue by it may be so since hours."""
    assert decay.measure_overdue_ns(state(pages=pages), (now_ns, is_exact)) == expected


def test_an_unreadable_arena() -> None:
    """An arena that cannot be read is reported and the others are there."""
    world = filled((5, 2, 1))
    world.arenas[1] = world.arenas[1]._replace(address=0x666000)
    assert [one.arena.index for one in decay.read_decay(world.context, world.arenas, True)] == [0, 2]
    assert [one.address for one in world.problems] == [0x666000]


# ---------------------------------------------------------------------------------------------------- what helps


@pytest.mark.parametrize("blind", [0, 1])
@pytest.mark.parametrize("unknown", [0, 1])
@pytest.mark.parametrize("verdict", ["purged", "idle", "degraded", "unpurged", "at-once", "never", "no-threads", "unknown"])
def test_no_harm_is_never_said_beside_harm(verdict: str, blind: int, unknown: int) -> None:
    """Only where each arena with a blind thread is purged, or would not be by anybody, and no thread's state is unknown."""
    threads = [ticker_thread("blind")] + [ticker_thread("unknown")] * unknown
    rows = [
        ticker_arena(0, "purged", 0, background_thread=None, dirty_decay_ms=500, blind_threads=1, unknown_threads=0),
        ticker_arena(4, verdict, 53 << 20, background_thread=None, dirty_decay_ms=500, blind_threads=blind, unknown_threads=unknown),
    ]
    told = [one.what for one in decay.list_ticker_advice(threads, rows, PublicNames("je_", "MALLOC_CONF"))]
    is_harmless = not unknown and (not blind or verdict in ("purged", "at-once", "never"))
    assert any("no harm now" in what for what in told) is is_harmless


# ---------------------------------------------------------------------------------------------------- does the build count


@pytest.mark.parametrize("version", [version for version in VERSIONS if version < (5, 2, 0)])
@pytest.mark.parametrize(
    "slabs, counted, expected", [((), (), None), ((3,), (), False), ((3,), (3,), True), ((3, 5), (5,), True), ((), (4,), True), (range(NBINS), (), False)]
)
def test_has_stats(version: Any, slabs: Any, counted: Any, expected: Optional[bool]) -> None:
    """A slab that is counted proves statistics; slabs of which none is counted prove that there are none; no slab proves nothing."""
    world = JemallocMemory(version)
    for szind in slabs:
        world.put_path("arena_s", world.arenas[1].address, "bins[%d].slabcur" % szind, 0x5000)
    for szind in counted:
        world.put_path("arena_s", world.arenas[2].address, "bins[%d].stats.curslabs" % szind, 1)
    assert options.counts_stats(world.context, world.arenas) is expected


@pytest.mark.parametrize(
    "names, names_threads, enabled",
    [(["main", "jemalloc_bg_thd"], True, True), (["main", "worker"], True, False), (["main", "worker"], False, None), (["main", None], True, None), ([], True, None)],
)
def test_background_threads_without_a_switch(names: Any, names_threads: bool, enabled: Optional[bool]) -> None:
    """No thread has their name: they are off, if this build would give it to them and each thread's name is known."""
    threads: Any = [SimpleNamespace(name=name) for name in names]
    symbols = SimpleNamespace(by_structure=True, texts=SimpleNamespace(names_threads=names_threads))
    context: Any = SimpleNamespace(symbols=symbols, target=SimpleNamespace(threads=lambda: threads))
    assert decay.read_background(context).enabled is enabled


@pytest.mark.parametrize("version", [(5, 2, 1), (5, 3, 0)])
@pytest.mark.parametrize(
    "changes, late_ms, active, finding",
    [
        ({}, 20001.0, 1 << 20, True),
        ({}, 19999.0, 1 << 20, False),
        ({"pages": 256}, 20001.0, 1 << 20, False),
        ({"pages": 256}, 20001.0, 20_000, True),
        ({"pages": 256}, 20001.0, 30_000, False),
        ({"verdict": "idle"}, 20001.0, 0, False),
        ({"verdict": "unpurged"}, 0.0, 1 << 20, True),
        ({}, None, 0, False),
    ],
)
def test_what_costs_memory(version: Any, changes: Dict[str, Any], late_ms: Optional[float], active: int, finding: bool) -> None:
    """An arena that some of its threads could purge is a finding once it is late by twice its decay time and keeps more than 1 MiB or 1 %."""
    world = JemallocMemory(version)
    world.put_path("arena_s", world.arenas[0].address, "nactive" if version < (5, 3, 0) else "pa_shard.nactive", active)
    pages, verdict = changes.get("pages", 257), changes.get("verdict", "degraded")
    row = ticker_arena(0, verdict, pages * 4096, dirty_decay_ms=10000, late_ms=late_ms)
    assert decay.costs_memory(row, decay.count_costly_bytes(world.context, world.arenas[:1])) is finding


def test_background_threads_known_by_name_alone() -> None:
    """How often they ran is unknown there, not zero."""
    assert (BackgroundState(True, 4, [], 4).runs, BackgroundState(True, 4, [], 4).run_interval_ns) == (None, None)
    assert (BackgroundState(True, 0, []).runs, BackgroundState(True, 0, []).run_interval_ns) == (0, 0)
