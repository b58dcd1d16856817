"""Threads whose decay ticker was never initialised: found where they are, nobody else accused, and per arena what was measured.

Files: commands/decay.py.
"""

import time
from typing import Any, Dict, List, NamedTuple, Optional

import pytest

from tests.support.hidden import hidden
from tests.support.jemallocs import C_WAYS, RUST, WAYS, has_ticker_bug, pairs, start
from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, heapx

pytestmark = pytest.mark.image  # how its libjemalloc keeps its threads' tickers

ROLES = ("healthy", "frees-first", "free-only", "untouched", "one-malloc", "tcache-off")
DECAY = "dirty_decay_ms:300"
"""Short against WORK_MS, so that what can go is gone."""
WORK_MS = "1500"

FIRST_ARENA = 128
UNCOUNTED = (1 << 64) - 1
MANY_PAGES = 5000
"""A burst leaves 20,000; what is purged leaves less than a hundred, and what is only reused in between leaves most of them."""

OLD_VERDICTS = {
    "main": "ticking",
    "healthy": "ticking",
    "frees-first": "blind",
    "free-only": "at-risk",
    "untouched": "not-started",
    "one-malloc": "ticking",
    "tcache-off": "ticking",
}
"""Up to 5.2.1, by the decision table. From 5.3 on every thread is `not-applicable`."""

FEW_WAYS = ("preload", "rust-0.4", "rust-0.6")
"""With the bug, without it, and without counters."""
SOME_WAYS = ("preload",) + tuple(name for name in WAYS if name in RUST and not RUST[name].lg_vaddr and RUST[name].profile == "release")


class Thread(NamedTuple):
    """A thread as the program knows it."""

    lwp: int
    role: str
    arena: Optional[int]


class Measured(NamedTuple):
    """What jemalloc itself said of an arena before and after the threads' light work."""

    before_pages: int
    after_pages: int
    sweeps: Optional[int]
    """How many while they worked."""


class Truth(NamedTuple):
    """The program's record."""

    threads: List[Thread]
    arenas: Dict[int, Measured]
    """Those that held many dirty pages before the work."""

    def of(self, role: str) -> Thread:
        """The thread of that role, of which there must be one."""
        (thread,) = [thread for thread in self.threads if thread.role == role]
        return thread


def truth(process: Process) -> Truth:
    """Read the record of je_tickers; its words begin after five of the record's head."""
    words = process.words()[5:]
    threads = []
    for number in range(words[0]):
        lwp, role, arena = words[1 + 3 * number : 4 + 3 * number]
        threads.append(Thread(lwp, ROLES[role], arena - 1 if arena else None))
    arenas = {}
    for index in range(words[FIRST_ARENA]):
        before, after, sweeps_before, sweeps_after = words[FIRST_ARENA + 1 + 4 * index : FIRST_ARENA + 5 + 4 * index]
        if before > MANY_PAGES:
            arenas[index] = Measured(before, after, None if sweeps_after == UNCOUNTED else sweeps_after - sweeps_before)
    return Truth(threads, arenas)


def tickers(process: Process, kind: str, *options: str) -> Outcome:
    """Run `tickers --json`; its answer is whole."""
    outcome = heapx(process.target(kind), "tickers", "--json", *options)
    assert all(one["code"] == "ticker-untold" for one in outcome.envelope["problems"]), outcome.envelope["problems"]
    assert outcome.envelope["partial"] is bool(outcome.envelope["problems"])
    return outcome


def by_lwp(data: Dict[str, Any]) -> Dict[int, Dict[str, Any]]:
    """The answer's threads; each is listed once."""
    threads = {thread["lwp"]: thread for thread in data["threads"]}
    assert len(threads) == len(data["threads"])
    return threads


def is_doubtful(kind: str, way: str) -> bool:
    """A blind thread is not told from one that creates its tickers at this moment."""
    why = "in a core without its program opt.narenas is unknown, and jemalloc's code is not told from the program's: a thread may be creating its tickers"
    return kind == "core" and way.startswith("rust") and has_ticker_bug(way) and hidden("libraries", why)


EACH = [(kind, way, conf) for way in SOME_WAYS for kind, conf in (("live", ""), ("core", "narenas:1"), *((("live", "narenas:1"), ("core", "")) if way == "preload" else ()))]


@pytest.mark.parametrize("kind, way, conf", EACH, ids=["-".join((*both, "one-arena" if conf else "arenas")) for *both, conf in EACH], indirect=["kind"])
def test_each_role_has_its_verdict(stage: Stage, kind: str, way: str, conf: str) -> None:
    """On a build with the bug the thread that freed first is blind and no other is; on others none is affected."""
    process = start(stage, way, "tickers", WORK_MS, *ROLES, conf=",".join(part for part in (DECAY, conf) if part))
    outcome = tickers(process, kind)
    data = outcome.envelope["data"]
    recorded = truth(process)
    threads = by_lwp(data)
    bug, doubtful = has_ticker_bug(way), is_doubtful(kind, way)
    verdicts = {role: "unknown" if doubtful and verdict == "blind" else verdict for role, verdict in OLD_VERDICTS.items()}
    assert data["affected"] is bug
    assert outcome.code == (4 if doubtful else 3 if bug and not conf else 0), "with one arena its other threads purge it"
    assert data["counts"].get("unknown" if doubtful else "blind", 0) == (1 if bug else 0)
    known = [(thread.lwp, thread.role) for thread in recorded.threads] + [(process.pid, "main")]
    assert set(threads) == {lwp for lwp, _ in known}
    for lwp, role in known:
        thread = threads[lwp]
        assert thread["verdict"] == (verdicts[role] if bug else "not-applicable"), (role, thread)
        assert thread["why"] and "\n" not in thread["why"]
        if kind == "live" and role != "main":
            assert thread["name"] == role
    for role in ("healthy", "frees-first", "tcache-off"):
        assert threads[recorded.of(role).lwp]["arena"] == recorded.of(role).arena
    if bug:
        assert threads[recorded.of("untouched").lwp]["arena"] is None and threads[recorded.of("free-only").lwp]["arena"] is None
        assert threads[recorded.of("frees-first").lwp]["ticks_left"] is None
        assert 0 <= threads[recorded.of("healthy").lwp]["ticks_left"] <= 1000


ROLES_OF = {"some-healthy": ("healthy", "frees-first", "tcache-off"), "only-blind": ("frees-first", "untouched")}
CONFS = {"arenas": "", "one-arena": "narenas:1", "background": "background_thread:true", "no-decay-time": "dirty_decay_ms:0"}
MEASURED = [(conf, roles) for conf in CONFS for roles in ROLES_OF if conf in ("arenas", "one-arena") or roles == "some-healthy"]
"""Where pages go by themselves it is the same whoever else is there."""


OF_WAYS = [(*both, way) for way in FEW_WAYS for number, both in enumerate(MEASURED) if way != "rust-0.6" or number % 2]
"""rust-0.6 has not the fault: half of them show that nothing differs by its layout."""


@pytest.mark.parametrize("conf, roles, way", [(CONFS[conf], ROLES_OF[roles], way) for conf, roles, way in OF_WAYS], ids=map("-".join, OF_WAYS))
def test_arenas_say_what_was_measured(stage: Stage, core: str, way: str, roles: Any, conf: str) -> None:
    """Where the pages stayed while the threads worked, the arena is `unpurged`; where they went, it is not."""
    process = start(stage, way, "tickers", WORK_MS, *roles, conf=conf if "decay" in conf else ",".join(part for part in (DECAY, conf) if part))
    recorded = truth(process)
    outcome = tickers(process, core)
    rows = {row["index"]: row for row in outcome.envelope["data"]["arenas"]}
    stuck = {index for index, arena in recorded.arenas.items() if arena.after_pages > arena.before_pages // 2}
    if conf == "dirty_decay_ms:0":
        assert not recorded.arenas and all(row["verdict"] == "at-once" for row in rows.values())
    if "healthy" in roles and conf in ("narenas:1", "background_thread:true"):
        assert recorded.arenas and not stuck
    if has_ticker_bug(way) and roles == ("frees-first", "untouched") and conf in ("", "narenas:1"):
        assert stuck == {recorded.of("frees-first").arena}
    if not is_doubtful("core", way):
        assert outcome.code == (3 if stuck and conf != "narenas:1" else 0), "a finding is an arena that really goes unpurged"
        assert tickers(process, core, "--strict").code == (3 if has_ticker_bug(way) else 0), "or each blind thread, if asked for"
    for index, arena in recorded.arenas.items():
        shared = conf == "narenas:1"  # with the main thread, which ticks and rests: it could
        if is_doubtful("core", way):
            assert rows[index]["verdict"] not in ("unpurged", "degraded") and rows[index]["can_purge"] in (index not in stuck or shared, None) and rows[index]["why"]
            assert rows[index]["dirty_bytes"] == 4096 * arena.after_pages or "background" in conf
            continue
        assert (rows[index]["verdict"] == "unpurged") is (index in stuck and not shared), (index, arena, rows[index])
        assert rows[index]["can_purge"] is (index not in stuck or shared), (index, arena, rows[index])
        assert rows[index]["why"]
        if "background" in conf:
            assert rows[index]["verdict"] == "purged"
        if roles == ("healthy", "frees-first", "tcache-off") and conf == "narenas:1" and has_ticker_bug(way):
            assert rows[index]["verdict"] == "degraded"
        if "background" in conf:  # its thread goes on
            assert rows[index]["dirty_bytes"] <= 4096 * arena.after_pages
        else:
            assert rows[index]["dirty_bytes"] == 4096 * arena.after_pages


@pytest.mark.parametrize("way", ["preload", "rust-0.4"])
def test_long_overdue_is_a_finding(stage: Stage, live: str, way: str) -> None:
    """One arena, a blind thread that freed 80 MB, and a main thread that could purge them and rests: the pages stay, and cost memory now."""
    if not has_ticker_bug(way):
        pytest.skip("this system's jemalloc has not the bug")
    process = start(stage, way, "tickers", "1", "frees-first", conf=DECAY + ",narenas:1")
    deadline = time.monotonic() + 60
    while (outcome := tickers(process, live)).code != 3:
        assert time.monotonic() < deadline, outcome.envelope["data"]
    (row,) = [row for row in outcome.envelope["data"]["arenas"] if row["index"] == 0]
    assert (row["verdict"], row["costs_memory"]) == ("degraded", True) and row["late_ms"] > 600 and row["dirty_bytes"] > 4096 * MANY_PAGES
    blind = [finding for finding in heapx(process.target(live), "report", "--json").data["findings"] if finding["code"] == "blind-threads"]
    assert len(blind) == 1 and "long overdue" in blind[0]["evidence"]


@pytest.mark.parametrize("kind, way", pairs(FEW_WAYS), indirect=["kind"])
def test_the_background_thread_is_not_accused(stage: Stage, kind: str, way: str) -> None:
    """jemalloc's own thread frees and allocates in no arena: it is no finding, and by it the blind thread's pages went."""
    process = start(stage, way, "tickers", WORK_MS, *ROLES, conf=DECAY + ",background_thread:true")
    recorded = truth(process)
    data = tickers(process, kind).envelope["data"]
    threads = by_lwp(data)
    own = {process.pid} | {thread.lwp for thread in recorded.threads}
    others = [thread for lwp, thread in threads.items() if lwp not in own]
    assert others and all(thread["verdict"] == "not-applicable" for thread in others), others
    if kind == "live":
        assert all(thread["name"] == "jemalloc_bg_thd" for thread in others)
    assert data["counts"].get("unknown" if is_doubtful(kind, way) else "blind", 0) == (1 if has_ticker_bug(way) else 0)
    assert recorded.arenas and all(arena.after_pages < 1000 for arena in recorded.arenas.values())


def test_without_jemalloc(stage: Stage, kind: str) -> None:
    """A process of glibc's malloc alone has no such threads: exit code 0, not affected."""
    outcome = heapx(stage.start("leaker").target(kind), "tickers", "--json")
    assert outcome.code == 0
    assert outcome.data["affected"] is False and outcome.data["threads"] == []


@pytest.mark.parametrize("way", C_WAYS)
def test_after_the_cure_the_pages_go(stage: Stage, live: str, way: str) -> None:
    """`tickers --cure` makes the blind thread tick: what stayed before is gone after the same work."""
    if not has_ticker_bug(way):
        pytest.skip("this system's jemalloc has not the bug")
    if b"--cure" not in heapx([], "tickers", "--help").stdout:
        pytest.skip("tickers has no --cure yet")
    process = start(stage, way, "tickers", WORK_MS, "frees-first", conf=DECAY)
    arena = truth(process).of("frees-first").arena
    assert arena is not None and truth(process).arenas[arena].after_pages > MANY_PAGES
    cured = heapx(process.target("live"), "tickers", "--cure", "--yes", "--json")
    assert cured.code in (0, 3), cured.stderr
    process.command(b"w")
    assert truth(process).arenas[arena].after_pages < 1000
    again = tickers(process, "live")
    assert again.code == 0 and again.envelope["data"]["counts"].get("blind", 0) == 0
