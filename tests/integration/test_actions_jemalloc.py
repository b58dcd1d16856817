"""purge and tickers --cure on a live process: what was predicted goes, blind threads see, and nobody is harmed.

Files: commands/purge.py.
"""

import resource
from typing import Any, Dict, List

import pytest

from tests.support.jemalloc_states import BUGGY, at_rest, blind_process, environment, verdicts
from tests.support.jemallocs import C_WAYS, has_ticker_bug
from tests.support.processes import Process, Stage
from tests.support.servers import redis_under_load
from tests.support.tool import acted, answers, heapx
from tests.support.victims import ROUNDS, Rounds, Victim, check_free, rounds, server

pytestmark = pytest.mark.image  # its gdb makes the call, in its libjemalloc

PAGE = resource.getpagesize()
REDIS_ROUNDS = 5
LOOK_COSTS = 1 << 20
"""What ctl_init takes at the first mallctl of a process's life (62 pages here, by the number of arenas): the tool's call before its first figure pays it."""
TRIES = 3


def jemalloc_arenas(process: Process) -> List[Dict[str, Any]]:
    """The rows of `arenas`."""
    data = heapx(process.target("live"), "arenas", "--json").data
    return [row for row in data["arenas"] if row["allocator"] == "jemalloc"]


def test_purge_gives_back_what_was_predicted(stage: Stage, live: str) -> None:
    """On a process at rest Anonymous falls by the resident dirty and muzzy pages, within one page an arena; none are left, nothing used is touched."""
    process = at_rest(stage)
    before = jemalloc_arenas(process)
    outside = process.smaps_rollup("Anonymous")
    data = acted(heapx(process.target(live), "purge", "--yes", "--json").data)
    outside -= process.smaps_rollup("Anonymous")
    after = jemalloc_arenas(process)
    dirty = sum(row["dirty_bytes"] + row["muzzy_bytes"] for row in before)
    assert dirty > 10 << 20, "the program left too little behind"
    assert data["predicted_bytes"] == dirty == sum(row["reclaimable_bytes"] for row in before)
    assert data["returned"] == 0
    assert "purge" in data["call"]
    assert abs(-data["anonymous_diff_bytes"] - data["predicted_resident_bytes"]) <= PAGE * len(before)
    assert abs(outside - data["predicted_resident_bytes"]) <= LOOK_COSTS
    assert sum(row["dirty_bytes"] + row["muzzy_bytes"] for row in after) == 0
    assert [row["used_bytes"] for row in after] == [row["used_bytes"] for row in before], "the call allocated"
    outside = process.smaps_rollup("Anonymous")
    again = acted(heapx(process.target(live), "purge", "--yes", "--json").data)
    assert (again["anonymous_before_bytes"], again["anonymous_after_bytes"]) == (outside, process.smaps_rollup("Anonymous")), "ctl_init runs once"
    check_free(process)
    process.command(b"x")
    Victim(process)


def test_purge_of_one_arena(stage: Stage, live: str) -> None:
    """--arena I purges that arena and no other."""
    process = at_rest(stage)
    before = jemalloc_arenas(process)
    chosen = max(before, key=lambda row: row["dirty_bytes"])["index"]
    data = acted(heapx(process.target(live), "purge", "--arena", str(chosen), "--yes", "--json").data)
    for old, new in zip(before, jemalloc_arenas(process)):
        assert new["dirty_bytes"] == (0 if new["index"] == chosen else old["dirty_bytes"])
    held = next(row for row in before if row["index"] == chosen)
    assert data["predicted_bytes"] == held["dirty_bytes"] + held["muzzy_bytes"]
    assert abs(-data["anonymous_diff_bytes"] - data["predicted_resident_bytes"]) <= PAGE


def test_no_such_arena(stage: Stage, live: str) -> None:
    """An arena that is not there is refused before anything is called."""
    process = at_rest(stage)
    before = process.smaps_rollup("Anonymous")
    outcome = heapx(process.target(live), "purge", "--arena", "3999", "--yes")
    assert outcome.code in (1, 2) and "3999" in outcome.stderr
    assert process.smaps_rollup("Anonymous") == before


def test_decay_purges_only_what_is_due(stage: Stage, live: str) -> None:
    """--decay with decay switched off (-1) leaves all pages; the call is made and returns."""
    process = at_rest(stage)
    before = [row["dirty_bytes"] for row in jemalloc_arenas(process)]
    data = acted(heapx(process.target(live), "purge", "--decay", "--yes", "--json").data)
    assert data["returned"] == 0 and "decay" in data["call"]
    assert [row["dirty_bytes"] for row in jemalloc_arenas(process)] == before


def test_dry_run_changes_nothing(stage: Stage, live: str) -> None:
    """purge --dry-run predicts what the call then gives back."""
    process = at_rest(stage)
    before = jemalloc_arenas(process)
    dry = heapx(process.target(live), "purge", "--dry-run", "--json").data
    assert dry["way"] == "none" and dry["returned"] is None
    assert jemalloc_arenas(process) == before
    wet = heapx(process.target(live), "purge", "--yes", "--json").data
    for key in ("predicted_bytes", "predicted_resident_bytes"):
        assert wet[key] == dry[key]


def test_dry_run_on_a_core(stage: Stage, core: str) -> None:
    """A core predicts the bytes; what is resident is null."""
    process = at_rest(stage)
    dry = heapx(process.target(core), "purge", "--dry-run", "--json").data
    assert dry["predicted_bytes"] > 10 << 20
    assert dry["predicted_resident_bytes"] is None and dry["rss_before_bytes"] is None


def test_server_under_load_is_not_harmed(stage: Stage, live: str) -> None:
    """Many times attach, purge, detach while threads hammer malloc: 0 wrong answers, registers, signals lost, deaths, hangs; most rounds do it."""
    made = server(stage, environment("narenas:4"))
    table = rounds(ROUNDS, ["--pid", str(made.victim.pid)], ["purge"], made.check_well)
    made.end()
    assert table.done + sum(table.refused.values()) == ROUNDS
    assert table.done >= ROUNDS // 2, table.table()
    assert table.given_back_bytes > 0


def test_single_thread_under_load(stage: Stage, live: str) -> None:
    """A program of one thread that is in malloc and free for ever: done or refused, and its heap stays whole."""
    victim = Victim(stage.start("victim", "single", env=environment("narenas:1")))
    table = rounds(ROUNDS // 2, ["--pid", str(victim.pid)], ["purge", "--wait", "20"], victim.check_well)
    assert table.done + sum(table.refused.values()) == ROUNDS // 2


# ---------------------------------------------------------------------------------------------------- redis-server


def test_redis_is_not_harmed(stage: Stage, live: str) -> None:
    """redis-server goes through purges while a client checks every reply: none is wrong, and redis' own process goes on."""
    redis, client = redis_under_load(stage)
    table = Rounds()
    for _ in range(REDIS_ROUNDS):
        table.count(heapx(redis.process.target(live), "purge", "--yes", "--json"))
        check_free(redis.process)
        client.check(redis.process)
    client.stop()
    assert client.answers > 100
    assert table.done >= 1, table.table()
    assert redis.ask("PING") == b"+PONG\r\n"


# ---------------------------------------------------------------------------------------------------- blind threads


def held_by(process: Process, lwps: List[int]) -> int:
    """Dirty bytes of the arenas that these threads are bound to."""
    tickers, arenas = answers(process.target("live"), process.folder, "tickers", "arenas")
    bound = {thread["arena"] for thread in tickers["data"]["threads"] if thread["lwp"] in lwps}
    return sum(row["dirty_bytes"] for row in arenas["data"]["arenas"] if row["allocator"] == "jemalloc" and row["index"] in bound)


@pytest.mark.rust
def test_cure(stage: Stage, live: str) -> None:
    """Blind threads are `ticking` after --cure, without a call; at their next work they purge what they hold, within the decay time."""
    process = blind_process(stage, BUGGY)
    before = verdicts(process)
    blind = [lwp for lwp, verdict in before.items() if verdict == "blind"]
    assert len(blind) == 2 and heapx(process.target(live), "tickers", "--strict").code == 3
    assert held_by(process, blind) > 100 << 20
    outcome = heapx(process.target(live), "tickers", "--cure", "--yes", "--json")
    assert outcome.code == 0, outcome.stderr
    assert held_by(process, blind) > 100 << 20, "nothing was called"
    after = verdicts(process)
    assert after == {lwp: "ticking" if lwp in blind else verdict for lwp, verdict in before.items()}
    assert heapx(process.target(live), "tickers", "--strict").code == 0
    for _ in range(TRIES):  # light work of 300 ms each time, against a decay of 400 ms
        process.command(b"w")
    left = held_by(process, blind)
    assert left < 20 << 20, "%d bytes are dirty still" % left
    check_free(process)


@pytest.mark.rust
def test_cure_of_one_thread(stage: Stage, live: str) -> None:
    """--thread T cures that thread alone; the other stays blind, exit code 3."""
    process = blind_process(stage, BUGGY)
    first, second = sorted(lwp for lwp, verdict in verdicts(process).items() if verdict == "blind")
    outcome = heapx(process.target(live), "tickers", "--cure", "--thread", str(first), "--yes", "--json")
    assert outcome.code in (0, 3), outcome.stderr
    after = verdicts(process)
    assert (after[first], after[second]) == ("ticking", "blind")
    process.command(b"w")


@pytest.mark.rust
def test_nothing_to_cure(stage: Stage, live: str) -> None:
    """In a build without the bug, or without a blind thread, --cure writes nothing and says so."""
    way = "rust-0.6-stats" if has_ticker_bug("preload") else C_WAYS[0]
    process = blind_process(stage, way)
    before = verdicts(process)
    outcome = heapx(process.target(live), "tickers", "--cure", "--yes")
    assert outcome.code in (0, 1)
    assert len(outcome.stderr.strip().splitlines()) == outcome.code
    assert verdicts(process) == before
    process.command(b"w")


@pytest.mark.rust
def test_cure_needs_consent(stage: Stage, live: str) -> None:
    """Without --yes and without a terminal nothing is written."""
    process = blind_process(stage, BUGGY)
    before = verdicts(process)
    outcome = heapx(process.target(live), "tickers", "--cure")
    assert outcome.code == 1 and "--yes" in outcome.stderr
    assert verdicts(process) == before
