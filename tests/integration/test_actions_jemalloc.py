"""purge and tickers --cure on a live process: what was predicted goes, blind threads see, and nobody is harmed."""

import resource
import socket
from typing import Any, Dict, List

import jeharness
import pytest
from harness import READY_SECONDS, Process, Stage, answers, heapx
from jeharness import C_WAYS, has_ticker_bug
from test_actions_glibc import acted
from victims import ROUNDS, Client, Rounds, Victim, check_free, rounds, server

pytestmark = pytest.mark.image  # its gdb makes the call, in its libjemalloc

PAGE = resource.getpagesize()
REDIS_ROUNDS = 5
NO_DECAY = "dirty_decay_ms:-1,muzzy_decay_ms:-1,narenas:4"
"""What is freed stays until it is purged."""
LOOK_COSTS = 1 << 20
"""What ctl_init takes at the first mallctl of a process's life (62 pages here, by the number of arenas): the tool's call before its first figure pays it."""
TRIES = 3
BUGGY = "preload" if has_ticker_bug("preload") else "rust-0.4"
"""A jemalloc with the bug: this system's, or else the one in an old Rust program."""


def environment(conf: str) -> Dict[str, str]:
    """This system's jemalloc preloaded."""
    return {"LD_PRELOAD": str(jeharness.library()), "MALLOC_CONF": conf}


def jemalloc_arenas(process: Process) -> List[Dict[str, Any]]:
    """The rows of `arenas`."""
    data = heapx(process.target("live"), "arenas", "--json").data
    return [row for row in data["arenas"] if row["allocator"] == "jemalloc"]


def at_rest(stage: Stage) -> Process:
    """Three threads that left free memory behind and rest, under jemalloc."""
    return stage.start("victim", "rest", env=environment(NO_DECAY))


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


def redis_asker(redis: Any) -> Any:
    """Sets, reads back and deletes values of many sizes, over one connection; every reply is checked."""
    from test_real_jemalloc import reply, request

    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(READY_SECONDS)
    connection.connect(str(redis.socket))
    held = {}  # type: Dict[int, str]

    def exchange(*words: str) -> bytes:
        connection.sendall(request(*words))
        return bytes(reply(connection))

    def ask(number: int) -> bool:
        key, size = number % 500, 1 + number * 7919 % 20000
        right = True
        if key in held:
            value = held.pop(key)
            right = exchange("GET", "checked:%d" % key) == value.encode() + b"\r\n"
            right = exchange("DEL", "checked:%d" % key) == b":1\r\n" and right
        held[key] = chr(97 + number % 26) * size
        return exchange("SET", "checked:%d" % key, held[key]) == b"+OK\r\n" and right

    return ask


def redis_under_load(stage: Stage) -> "tuple[Any, Client]":
    """redis-server with keys in it, and a client that checks every reply."""
    import sys
    from pathlib import Path

    sys.path.append(str(Path(__file__).resolve().parents[1] / "real"))
    from test_real_jemalloc import Redis

    redis = Redis(stage)
    redis.fill(20000)
    client = Client(redis_asker(redis))
    client.start()
    return redis, client


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

DECAY_MS = 400


def blind_process(stage: Stage, way: str, work_ms: int = 300) -> Process:
    """One thread that allocated first, and two that freed first: blind in a build with the bug."""
    return jeharness.start(stage, way, "tickers", str(work_ms), "healthy", "frees-first", "frees-first", conf="dirty_decay_ms:%d,narenas:8" % DECAY_MS)


def verdicts(process: Process) -> Dict[int, str]:
    """By lwp."""
    envelope = heapx(process.target("live"), "tickers", "--json").envelope
    return {thread["lwp"]: thread["verdict"] for thread in envelope["data"]["threads"]}


def held_by(process: Process, lwps: List[int]) -> int:
    """Dirty bytes of the arenas that these threads are bound to."""
    tickers, arenas = answers(process.target("live"), process.folder, "tickers", "arenas")
    bound = {thread["arena"] for thread in tickers["data"]["threads"] if thread["lwp"] in lwps}
    return sum(row["dirty_bytes"] for row in arenas["data"]["arenas"] if row["allocator"] == "jemalloc" and row["index"] in bound)


def test_cure(stage: Stage, live: str) -> None:
    """Blind threads are `ticking` after --cure, without a call; at their next work they purge what they hold, within the decay time."""
    process = blind_process(stage, BUGGY)
    before = verdicts(process)
    blind = [lwp for lwp, verdict in before.items() if verdict == "blind"]
    assert len(blind) == 2 and heapx(process.target(live), "tickers").code == 3
    assert held_by(process, blind) > 100 << 20
    outcome = heapx(process.target(live), "tickers", "--cure", "--yes", "--json")
    assert outcome.code == 0, outcome.stderr
    assert held_by(process, blind) > 100 << 20, "nothing was called"
    after = verdicts(process)
    assert after == {lwp: "ticking" if lwp in blind else verdict for lwp, verdict in before.items()}
    assert heapx(process.target(live), "tickers").code == 0
    for _ in range(TRIES):  # light work of 300 ms each time, against a decay of 400 ms
        process.command(b"w")
    left = held_by(process, blind)
    assert left < 20 << 20, "%d bytes are dirty still" % left
    check_free(process)


def test_cure_of_one_thread(stage: Stage, live: str) -> None:
    """--thread T cures that thread alone; the other stays blind, exit code 3."""
    process = blind_process(stage, BUGGY)
    first, second = sorted(lwp for lwp, verdict in verdicts(process).items() if verdict == "blind")
    outcome = heapx(process.target(live), "tickers", "--cure", "--thread", str(first), "--yes", "--json")
    assert outcome.code in (0, 3), outcome.stderr
    after = verdicts(process)
    assert (after[first], after[second]) == ("ticking", "blind")
    process.command(b"w")


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


def test_cure_needs_consent(stage: Stage, live: str) -> None:
    """Without --yes and without a terminal nothing is written."""
    process = blind_process(stage, BUGGY)
    before = verdicts(process)
    outcome = heapx(process.target(live), "tickers", "--cure")
    assert outcome.code == 1 and "--yes" in outcome.stderr
    assert verdicts(process) == before
