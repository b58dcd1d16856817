"""A process that works while it is looked at is not called damaged: what a held mutex explains is a change under way, all else is damage."""

import os
from typing import Any, Dict, List

import pytest

from tests.support.glibc import check_identity
from tests.support.paths import GDB
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # when a contradiction counts is the tool's own

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
