"""Damage in what malloc keeps for itself, by hand and at random: every command answers in time and in words, and no leak is told as whole.

A process that works while it is looked at is not called damaged: what a held mutex explains is a change under way, all else is damage.

Files: glibc/main_arena.py.
"""

import os
import shutil
import struct
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import pytest

from tests.support import kernelcore
from tests.support.damaged import DamagedCore
from tests.support.damaged_glibc import Damaged
from tests.support.damaged_jemalloc import Patient
from tests.support.glibc import PARTS, check_identity, glibc_arenas
from tests.support.hidden import hidden
from tests.support.jemallocs import start
from tests.support.paths import GDB
from tests.support.plants_glibc import Map
from tests.support.processes import Builder, Process, Stage, by_turns
from tests.support.random_damage import places_of, words_in_use
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # the rules by which damage is told are the tool's own

KINDS = (
    "size", "size-thread", "bin-cycle", "bin-wild", "fast-cycle", "tcache-cycle", "tcache-wild", "top-size", "unmap-heap",
    "unmap-subheap", "unmap-page",
)

HANG_SECONDS = 60


def ask(process: Process, kind: str, *command: str, code: int = 4) -> Dict[str, Any]:
    """The envelope of a command on a damaged target."""
    outcome = heapx(process.target(kind), *command, "--json", seconds=HANG_SECONDS)
    envelope = outcome.envelope
    assert outcome.code == code, (outcome.code, envelope["problems"], outcome.stderr[-1000:])
    assert envelope["partial"] is (code == 4)
    return envelope


def near(problems: Any, address: int, bytes_: int) -> bool:
    """A problem names an address at the damage: inside it, or the header of the chunk that holds it."""
    places = [int(problem["where"], 16) for problem in problems if problem["where"] and problem["where"].startswith("0x")]
    return any(address - 64 <= place < address + bytes_ + 64 for place in places)


@by_turns("damage", KINDS)
def test_damage_is_named_and_the_rest_counted(stage: Stage, kind: str, damage: str) -> None:
    """`arenas` on a damaged heap ends with 4, names address and rule, and counts the untouched arenas as before."""
    process = stage.start("damage", damage)
    address, bytes_, blocks = process.words()[:3]
    if damage == "unmap-heap" and hidden("symbols", "a ring of three arenas that leads into memory that is gone proves none of them"):
        refused = heapx(process.target(kind), "arenas", seconds=HANG_SECONDS)
        assert refused.code == 1 and not refused.stdout and refused.stderr.count("\n") == 1 and "no debug symbols for " in refused.stderr
        return
    envelope = ask(process, kind, "arenas")
    problems = envelope["problems"]
    assert problems and all(problem["what"] for problem in problems)
    arenas = glibc_arenas(envelope["data"])
    complete = [arena for arena in arenas if None not in (arena["system_bytes"], arena["used_bytes"])]
    if damage == "unmap-heap":  # with a thread's cache in it
        known = sum(row["bytes"] or 0 for row in ask(process, kind, "tcache")["data"]["threads"])
        rest = [arena["system_bytes"] - sum(arena[part] or 0 for part in PARTS) for arena in complete]
        assert all(arena["tcache_bytes"] is None for arena in complete)
        assert min(rest) >= 0 and sum(rest) == known, "what the other threads' caches hold is not in use, and is all that lacks"
    else:
        check_identity({"arenas": complete, "totals": {}}, unparsed=True)
    assert near(problems, address, bytes_), (hex(address), problems)
    if damage == "unmap-heap":
        # The malloc_state itself is gone, and the ring beyond it; the main arena comes first and is whole.
        assert arenas[0]["unparsed_bytes"] == 0 and arenas[0]["used_chunks"] >= blocks
        return
    assert len(arenas) == 3
    touched = 0 if damage in ("size", "bin-cycle", "bin-wild", "fast-cycle", "tcache-cycle", "tcache-wild", "top-size") else None
    for arena in arenas:
        inside_main = arena["kind"] == "main"
        if (touched == 0) != inside_main and touched == 0:
            assert arena["unparsed_bytes"] == 0, arena
        if touched is None and inside_main:
            assert arena["unparsed_bytes"] == 0 and arena["used_chunks"] >= blocks
    if damage in ("size", "size-thread"):
        hurt = [arena for arena in arenas if arena["unparsed_bytes"]]
        assert len(hurt) == 1
        assert hurt[0]["unparsed_bytes"] < hurt[0]["system_bytes"] / 100, "most of the arena lies outside the damage and can be counted"


def test_undamaged_twin_is_whole(stage: Stage, kind: str) -> None:
    """The same program without damage gives a whole answer."""
    process = stage.start("damage", "none")
    check_identity(ask(process, kind, "arenas", code=0)["data"])


def in_core(path: Path, address: int) -> bool:
    """The page at an address is in the file, whole."""
    data = path.read_bytes()
    table, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    for place in range(table, table + size * count, size):
        kind, _, offset, start, _, length = struct.unpack_from("<IIQQQQ", data, place)
        if kind == 1 and start <= address < start + length:
            return bool(offset + (address | 4095) + 1 - start <= len(data))
    return False


@pytest.mark.parametrize("percent", [25, 50, 75])
def test_cut_core(stage: Stage, core: str, percent: int) -> None:
    """A core cut short is said to be cut, exit code 4; heaps that are in it are counted as in the whole core, libc's data or not."""
    process = stage.start("damage", "none")
    whole = process.core()
    cut = process.folder / "cut.core"
    shutil.copyfile(whole, cut)
    os.truncate(cut, os.path.getsize(whole) * percent // 100)
    outcome = heapx(["--core", str(cut)], "arenas", "--json", seconds=HANG_SECONDS)
    envelope = outcome.envelope
    assert envelope["problems"][0]["code"] == "core-truncated"
    if hidden("symbols", "without libc's data no structure leads to the main arena, and no thread arena is proved without it"):
        assert outcome.code == 1 and envelope["data"] is None and outcome.stderr.count("\n") == 1 and "the core is truncated: " in outcome.stderr
        return
    assert outcome.code == 4, outcome.stderr[-1000:]
    full = {arena["address"]: arena for arena in heapx(["--core", str(whole)], "arenas", "--json").data["arenas"]}
    found = glibc_arenas(envelope["data"])
    assert found and {arena["address"] for arena in found} <= set(full)
    for arena in found:
        true = full[arena["address"]]
        # Thread caches are lost with thread-local storage: their chunks count as used, and so may the main arena's fast ones.
        assert arena["tcache_bytes"] is None and arena["used_bytes"] <= true["used_bytes"] + sum(true[part] for part in ("tcache_bytes", "fast_bytes", "overhead_bytes"))
        if arena["system_bytes"] is not None:
            assert arena["system_bytes"] == sum(arena[part] or 0 for part in PARTS)
        if not arena["unparsed_bytes"]:
            assert (arena["free_chunks"], arena["free_bytes"], arena["top_bytes"]) == (true["free_chunks"], true["free_bytes"], true["top_bytes"])
    # The heap of the main arena comes first in a core; a thread arena is found if its malloc_state was not cut off.
    kept = [address for address, arena in full.items() if arena["kind"] == "main" or in_core(cut, int(address, 16))]
    assert {arena["address"] for arena in found} == set(kept)

FEW, MANY = range(4), range(4, 200)
SEEDS = [FEW, pytest.param(MANY, marks=pytest.mark.wild)]
Core = Tuple[DamagedCore, List[List[int]], str]
"""The core, places of words of its allocator, and an address of a block in use."""


@pytest.fixture(scope="module", params=["glibc", "jemalloc"])
def hurt(builder: Builder, request: pytest.FixtureRequest) -> Iterator[Core]:
    """A core of each allocator."""
    if kernelcore.reason():
        pytest.skip(kernelcore.reason() or "")
    stage = Stage(builder)
    try:
        yield make(stage, request.param)
    finally:
        stage.close()


def make(stage: Stage, allocator: str) -> Core:
    """Undamaged."""
    if allocator == "glibc":
        core = Damaged(stage.start("damage", "rich").core())
        there = Map(core)
        return core, [places for places in places_of(there).values() if places], "0x%x" % (there.of("used", 0)[0] + 16)
    patient = Patient(start(stage, "preload", "recorder", "park", "4", "2").core())
    return patient, words_in_use(patient), "0x%x" % next(row[0] for row in patient.blocks if row[2] == "used")


def wrong_leaks(before: Any, asked: Any) -> str:
    """What is wrong with an answer of `leaks` on a damaged heap, in words; empty if nothing is."""
    if asked.code == 1:
        return ""
    envelope = asked.envelope
    was, now = (one["data"]["classes"]["leaked"]["blocks"] for one in (before, envelope))
    if now <= was or envelope["data"]["classes"] == before["data"]["classes"]:
        return ""
    if not envelope["partial"]:
        return "%d blocks leaked instead of %d, and nothing says that this is not whole" % (now, was)
    return ""


@pytest.mark.parametrize("seeds", SEEDS, ids=["few", "many"])
def test_every_question_is_answered(hurt: Core, seeds: range) -> None:
    """No traceback, no hang, exit codes by contract; what is more leaked than before is told as not whole."""
    core, kinds, used = hurt
    sound = core.ask("leaks").envelope
    for seed in seeds:
        with core.harmed(seed) as numbers:
            core.spoil(numbers, kinds)
            for words in (["check"], ["leaks"], ["owners"], ["census"], ["pins"], ["refs", used], ["whatis", used]):
                asked = core.ask_in_words(*words)
                if words == ["leaks"]:
                    assert not wrong_leaks(sound, asked), wrong_leaks(sound, asked)
                if words == ["pins"] and asked.code == 0:
                    assert not any(one["difference_bytes"] for one in asked.envelope["data"]["sums"]), "nothing says that it is not whole"

CHANGING = "arena-changing"
SIZES = {"chunk-overrun", "chunk-size-misaligned", "chunk-size-small", "chunk-mmapped-bit"}
MOST_STOPS = 9
IN_GDB = ("--gdb", GDB)
WAYS = {"arenas": IN_GDB, "report": (), "bins": (), "malloc-info": (), "chunks": ()}
"""Commands, and how they are asked: inside gdb, and from the shell alone."""


def hold(process: Process, arena: Dict[str, Any]) -> None:
    """Take the mutex of an arena, the first member of malloc_state, as a thread in malloc does."""
    descriptor = os.open("/proc/%d/mem" % process.pid, os.O_RDWR)
    os.pwrite(descriptor, (1).to_bytes(4, "little"), int(arena["address"], 16))
    os.close(descriptor)


def told(envelope: Dict[str, Any]) -> List[str]:
    """The codes of the problems."""
    return [problem["code"] for problem in envelope["problems"]]


@pytest.mark.parametrize("damage", ["size", "bin-wild", "fast-cycle", "top-size"])
def test_what_a_held_mutex_explains(stage: Stage, live: str, damage: str) -> None:
    """The same contradiction is damage where nobody holds the arena's mutex; where somebody does, it is a change under way."""
    process = stage.start("damage", damage)
    befores = {command: heapx(process.target(live), *WAYS[command], command, "--json").envelope for command in WAYS}
    main = befores["arenas"]["data"]["arenas"][0]
    hold(process, main)
    assert any(before["partial"] for before in befores.values()), "no command sees this damage"
    for command, before in befores.items():
        after = heapx(process.target(live), *WAYS[command], command, "--json")
        assert CHANGING not in told(before), command
        if not before["partial"]:
            assert after.code == 0, "%s does not see this damage" % command
            continue
        assert before["target"]["stops"] == 1, "%s: nobody held a lock" % command
        assert after.code == 4 and after.envelope["target"]["stops"] <= MOST_STOPS, command
        changing, *others = after.envelope["problems"]
        assert changing["code"] == CHANGING and changing["where"] == main["address"], command
        assert not others, "%s accuses something else" % command


def test_a_core_keeps_the_details(stage: Stage, kind: str) -> None:
    """A core has one moment alone: what does not add up is told, and that the mutex was held."""
    process = stage.start("damage", "size")
    main = heapx(process.target("live"), "arenas", "--json").envelope["data"]["arenas"][0]
    hold(process, main)
    problems = heapx(process.target(kind), "arenas", "--json").envelope["problems"]
    if kind == "core":
        assert any(problem["code"] in SIZES and "mutex is held" in problem["hint"] for problem in problems), problems
    assert any(problem["code"] == CHANGING for problem in problems) == (kind == "live")


@pytest.mark.parametrize("command", ["arenas", "report", "bins"])
def test_threads_at_work(stage: Stage, live: str, command: str) -> None:
    """Whatever the moment, nothing is accused, and figures of each arena add up."""
    process = stage.start("busy", "4")
    for _ in range(3):
        outcome = heapx(process.target(live), command, "--json")
        envelope = outcome.envelope
        assert envelope["target"]["stops"] <= MOST_STOPS
        assert set(told(envelope)) <= {CHANGING, "caches-changing", "mapped-chunks-changing"}, told(envelope)
        assert outcome.code == (4 if told(envelope) else 0)
        if command == "arenas" and not envelope["partial"]:
            check_identity(envelope["data"])
