"""The decision table row by row, on records and on synthetic tsds of 5.0.1, 5.1.0 and 5.2.1.

Files: jemalloc/decay.py.
"""

from typing import Any, Dict, Optional

import pytest

from gdbheapx.inferior.base import Thread
from gdbheapx.jemalloc import decay, threads
from gdbheapx.jemalloc.decay import TickerFacts, judge_thread
from gdbheapx.jemalloc.layouts import has_ticker_bug
from gdbheapx.jemalloc.records import TickerThread
from gdbheapx.jemalloc.threads import Tsd
from tests.support.builders.jemalloc import OLD, VERSIONS, JemallocMemory

THREAD = Thread(101, "worker", 0x1000, 0x900, 0x400000)
HEALTHY: Dict[str, Any] = {
    "state": "nominal",
    "tcache_enabled": True,
    "tcache_arena": 0x5000,
    "reentrancy_level": 0,
    "arenas_tdata_bypass": False,
    "arenas_tdata": 0x7000,
    "narenas_tdata": 3,
    "arena": 0x5000,
    "iarena": 0x4000,
    "arena_index": 1,
    "thread_allocated_bytes": 1000,
    "thread_deallocated_bytes": 500,
    "ticker": (96, 1000),
}
STUCK = {**HEALTHY, "arenas_tdata_bypass": True, "arenas_tdata": 0, "narenas_tdata": 0, "ticker": None}
FACTS = TickerFacts(affected=True, not_ready=None, counts=True, is_background=False, grows=False)


def judged(record: Dict[str, Any], facts: TickerFacts = FACTS, **changes: Any) -> TickerThread:
    """What the table says of the record with these changes."""
    return judge_thread(Tsd(THREAD, 0x1000, **{**record, **changes}), facts)


CASES = [
    ("0 no tsd", HEALTHY, {"state": None, "trouble": "cannot read its tsd"}, {}, "unknown", 0),
    ("0 not initialised", STUCK, {}, {"not_ready": "jemalloc is not initialised yet"}, "unknown", 0),
    ("0 bypass is no bool", STUCK, {"arenas_tdata_bypass": None}, {}, "unknown", 0),
    ("1 before 8", STUCK, {"state": "uninitialized"}, {}, "not-started", 1),
    ("2", STUCK, {"state": "minimal_initialized", "reentrancy_level": 1, "arena": 0, "iarena": 0}, {}, "at-risk", 2),
    ("3 exiting", STUCK, {"state": "purgatory"}, {}, "not-applicable", 3),
    ("3 background thread", STUCK, {"state": "reincarnated", "reentrancy_level": 1}, {"is_background": True}, "not-applicable", 3),
    ("4", STUCK, {"arenas_tdata_bypass": False}, {}, "ticking", 4),
    ("5", HEALTHY, {}, {}, "ticking", 5),
    ("5 array shorter than the arenas", HEALTHY, {"narenas_tdata": 1, "ticker": None}, {}, "ticking", 5),
    ("5 before 7", HEALTHY, {"reentrancy_level": 1}, {}, "ticking", 5),
    ("6", HEALTHY, {"arenas_tdata_bypass": True}, {}, "unknown", 6),
    ("7 inside jemalloc", STUCK, {"reentrancy_level": 1}, {}, "unknown", 7),
    ("7 cleaned up", STUCK, {"arena": 0, "iarena": 0}, {}, "unknown", 7),
    ("7 tickers freed", STUCK, {"narenas_tdata": 17}, {}, "unknown", 7),
    ("7 makes its tickers", STUCK, {}, {"grows": True}, "unknown", 7),
    ("9 its code is not known", STUCK, {}, {"grows": None}, "unknown", 9),
    ("7 before 9", STUCK, {"thread_deallocated_bytes": 0}, {"grows": None}, "unknown", 7),
    ("7 never freed", STUCK, {"thread_deallocated_bytes": 0}, {}, "unknown", 7),
    ("7 cache begins", STUCK, {"tcache_arena": 0}, {}, "unknown", 7),
    ("8", STUCK, {}, {}, "blind", 8),
    ("8 slow path", STUCK, {"state": "nominal_slow", "tcache_enabled": False, "tcache_arena": 0}, {}, "blind", 8),
    ("8 recompute", STUCK, {"state": "nominal_recompute"}, {}, "blind", 8),
    ("8 without statistics", STUCK, {"thread_allocated_bytes": 0, "thread_deallocated_bytes": 0}, {"counts": False}, "blind", 8),
    ("8 bound to an internal arena only", STUCK, {"arena": 0}, {}, "blind", 8),
]


@pytest.mark.parametrize("record, changes, facts, verdict, row", [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_row(record: Dict[str, Any], changes: Dict[str, Any], facts: Dict[str, Any], verdict: str, row: int) -> None:
    """The first row that matches decides, and says why in one line."""
    found = judged(record, FACTS._replace(**facts), **changes)
    assert (found.verdict, found.row) == (verdict, row), found
    assert found.why and "\n" not in found.why
    assert (found.hint == "retry") is (row in (6, 7))


@pytest.mark.parametrize("record", [HEALTHY, STUCK, {**STUCK, "state": "minimal_initialized"}, {**STUCK, "state": None}])
def test_builds_without_the_bug(record: Dict[str, Any]) -> None:
    """No thread of such a build is judged, whatever its tsd holds: `not-applicable`, never healthy."""
    found = judged(record, FACTS._replace(affected=False))
    assert (found.verdict, found.row) == ("not-applicable", None)


# ---------------------------------------------------------------------------------------------------- from memory


def measured(version: Any) -> JemallocMemory:
    """The threads of the table of measured values in the reference: what each looked like in a real process of 5.2.1."""
    world = JemallocMemory(version, arenas=4)
    used = {"thread_allocated": 80000000, "thread_deallocated": 80000000}
    world.thread("main", "nominal", 0, **used)
    world.thread("healthy", "nominal", 1, **used)
    world.thread("frees-first", "nominal", 2, arenas_tdata_bypass=1, **used)
    world.thread("few-calls", "nominal", 2, arenas_tdata_bypass=1, thread_deallocated=64)
    world.thread("free-only", "minimal_initialized", arenas_tdata_bypass=1, reentrancy_level=1, thread_deallocated=6400)
    world.thread("untouched", "uninitialized")
    world.thread("one-malloc", "nominal", 3, thread_allocated=112)
    world.thread("tcache-off", "nominal_slow", 3, **used)
    world.thread("jemalloc_bg_thd", "reincarnated", arenas_tdata_bypass=1, reentrancy_level=1)
    world.thread("exiting", "purgatory", arenas_tdata_bypass=1)
    records = [thread.thread_pointer or 0 for thread in world.memory.threads_known]
    for number, ticks in ((0, [5]), (1, [1000, 96, 1000, 1000]), (6, [1000, 1000, 1000, 999]), (7, [1000, 1000, 1000, 23])):
        world.tickers(records[number], ticks)
    for number in (0, 1, 2, 3, 6):
        world.own_cache(records[number], min(number, 3), {})
    return world


VERDICTS = {
    "main": "ticking",
    "healthy": "ticking",
    "frees-first": "blind",
    "few-calls": "blind",
    "free-only": "at-risk",
    "untouched": "not-started",
    "one-malloc": "ticking",
    "tcache-off": "ticking",
    "jemalloc_bg_thd": "not-applicable",
    "exiting": "not-applicable",
}


def judge_world(world: JemallocMemory, counts: Optional[bool] = True) -> Dict[str, TickerThread]:
    """Thread name -> judgement."""
    found = threads.read_tsds(world.context, world.arenas)
    judgements = decay.judge_threads(world.context, found, decay.read_background(world.context), counts)
    return {record.thread.name or "": one for record, one in zip(found.records, judgements) if record.thread is not None}


@pytest.mark.parametrize("version", OLD)
def test_synthetic_threads(version: Any) -> None:
    """Every kind of thread that was measured has its verdict on 5.0.1, 5.1.0 and 5.2.1."""
    world = measured(version)
    assert has_ticker_bug(world.types, version)
    assert {name: one.verdict for name, one in judge_world(world).items()} == VERDICTS
    assert not world.problems


@pytest.mark.parametrize("version", OLD)
def test_tickers_are_those_of_the_own_arena(version: Any) -> None:
    """The ticker that is shown is the one of the thread's arena; an array that is too short has none for it."""
    world = measured(version)
    found = {record.thread.name: record for record in threads.read_tsds(world.context, world.arenas).records if record.thread is not None}
    assert found["healthy"].ticker == (96, 1000)
    assert found["one-malloc"].ticker == (999, 1000)
    assert found["main"].ticker == (5, 1000)
    world.put("tsd_s", found["healthy"].address or 0, narenas_tdata=1)
    assert threads.read_tsds(world.context, world.arenas).records[1].ticker is None


def test_the_ticker_of_newer_builds() -> None:
    """From 5.3.0 on the ticker is a member of the tsd, and no thread is judged."""
    for version in VERSIONS[3:]:
        world = JemallocMemory(version)
        world.thread("one", "nominal", 1, arena_decay_ticker__tick=961, arena_decay_ticker__nticks=1000)
        world.thread("two", "minimal_initialized")
        assert not has_ticker_bug(world.types, version)
        assert threads.read_tsds(world.context, world.arenas).records[0].ticker == (961, 1000)
        assert {one.verdict for one in judge_world(world).values()} == {"not-applicable"}


@pytest.mark.parametrize("name, value, size", [("tsd_booted", 0, 1), ("malloc_init_state", 1, 4)])
def test_before_initialisation_nothing_is_said(name: str, value: int, size: int) -> None:
    """While jemalloc is being initialised every thread is unknown: the bypass of the first one is set then."""
    world = measured((5, 2, 1))
    world.variable(name, value, size)
    assert {one.verdict for one in judge_world(world).values()} == {"unknown"}


# ---------------------------------------------------------------------------------------------------- the array is being made


CODE = 0x7F0000001000


def growing(first_word: int, pc: int, own_arenas: bool, function: bool, main: bool = False) -> str:
    """The verdict on a thread whose bypass is set, with this word on its stack and this pc."""
    world = JemallocMemory((5, 2, 1), arenas=3)
    world.thread("main", "nominal", 0, arenas_tdata_bypass=int(main), thread_deallocated=64, thread_allocated=64)
    world.thread("worker", "nominal", 1, arenas_tdata_bypass=1, thread_deallocated=64, thread_allocated=64)
    number = 0 if main else 1
    thread = world.memory.threads_known[number]
    world.memory.threads_known[number] = thread._replace(pc=pc)
    world.memory.write((thread.stack_pointer or 0) + 40, first_word.to_bytes(8, "little"))
    world.memory.code = [(CODE, CODE + 0x4000)]
    if function:
        world.symbols.places["arena_tdata_get_hard"] = (CODE + 0x100, 0x200)
    if own_arenas:
        jemalloc: Any = world.context.jemalloc._replace(geometry=world.geometry._replace(manual_arena_base=2))
        world.context = world.context._replace(jemalloc=jemalloc)
    return judge_world(world)["main" if main else "worker"].verdict


@pytest.mark.parametrize("function", [True, False], ids=["with-symbol", "without"])
@pytest.mark.parametrize("main", [True, False], ids=["main", "worker"])
def test_arrays_that_are_made_anew(function: bool, main: bool) -> None:
    """A thread that can be inside arena_tdata_get_hard, as its stack or pc shows, is unknown; where neither does it is blind."""
    assert growing(0, 0x400000, True, function, main) == "blind"
    assert growing(CODE + 0x180, 0x400000, True, function, main) == "unknown"
    assert growing(0, CODE + 0x180, True, function, main) == "unknown"


def test_other_code_of_jemalloc_is_no_doubt() -> None:
    """Where the function's addresses are known, a blind thread that is busy in malloc is still blind."""
    assert growing(CODE + 0x1000, CODE + 0x2000, True, True) == "blind"
    assert growing(CODE + 0x1000, CODE + 0x2000, True, False) == "unknown"


def test_without_later_arenas_only_the_first_thread_can_grow() -> None:
    """A worker's array has room for every arena there was when it began: without arenas of the program's own it is never made anew."""
    assert growing(CODE + 0x180, CODE + 0x180, False, True) == "blind"
    assert growing(CODE + 0x180, CODE + 0x180, False, True, main=True) == "unknown"
