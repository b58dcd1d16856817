"""jemalloc's own memory with random words in it, and jemalloc at work while it is looked at: every answer comes in time, and in words."""

import json
import os
import random
import re
import time
from typing import Any, Callable, Iterator, List

import pytest

from gdbheapx import command
from gdbheapx.app import runner
from gdbheapx.common.errors import HeapxError
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.jemalloc.entry import ALLOCATOR
from gdbheapx.jemalloc.extents import CACHED_DAMAGE, EXTENT_DAMAGE
from tests.support import kernelcore
from tests.support.damaged import in_time
from tests.support.damaged_jemalloc import COMMANDS, Patient
from tests.support.jemallocs import BUILDS, start
from tests.support.processes import Builder, Stage
from tests.support.random_damage import words_in_use

pytestmark = pytest.mark.once  # the rules by which damage is told are the tool's own

SEEDS = 24
MANY = 400
BY_COMMANDS = 20
"""Of so many seeds one is asked about through every command, as JSON and as text."""
PROFILED = "prof:true,lg_prof_sample:14"


@pytest.fixture(scope="module", params=[("preload", ""), ("preload", PROFILED), *((way, "") for way in BUILDS)], ids=["plain", "profiled", *BUILDS])
def patient(builder: Builder, request: pytest.FixtureRequest) -> Iterator[Patient]:
    """One core for all seeds; with profiling it has the profiler's structures too."""
    reason = kernelcore.reason()
    if reason:
        pytest.skip(reason)
    stage = Stage(builder)
    try:
        made = Patient(start(stage, request.param[0], "recorder", "park", "4", "2", conf=request.param[1]).core())
        yield made
        made.close()
    finally:
        stage.close()


def another(numbers: random.Random, old: int, places: List[List[int]]) -> int:
    """What stands there instead: a bit flipped, noise, zeros, ones, a little more or less, or a pointer to something else."""
    choice = numbers.randrange(8)
    if choice < 3:
        return old ^ 1 << numbers.randrange(64)
    if choice == 7:
        return numbers.choice(numbers.choice(places))
    return (numbers.getrandbits(64), 0, (1 << 64) - 1, old + numbers.choice((1, -1, 8, 4096, -4096, 1 << 20)))[choice - 3]


def ask_everything(patient: Patient) -> List[Any]:
    """Every question that commands ask, on the core as it is now; the problems that were told."""
    target = open_elf_target(str(patient.path))
    found = ALLOCATOR.find(target)
    assert all(one.what and "\n" not in one.what for one in found.unread)
    told: List[Any] = []
    for jemalloc in found.located:
        malloc = patient.look(target, jemalloc, told)
        for question in (
            malloc.arenas,
            malloc.bins,
            malloc.caches,
            malloc.tickers,
            malloc.decay_answer,
            malloc.tunables,
            malloc.histogram,
            malloc.claims,
            malloc.conditions,
        ):
            question()
        malloc.checks()
        json.dumps(malloc.malloc_stats().data())
        try:
            list(malloc.profile().lines(""))
        except HeapxError as refused:
            assert refused.line()
        for blocks in malloc.blocks():
            assert max(blocks.kinds) < len(malloc.shape.words) and list(blocks.addresses) == sorted(blocks.addresses)
    return told


@pytest.mark.parametrize("seeds", [range(SEEDS), pytest.param(range(SEEDS, MANY), marks=pytest.mark.wild)], ids=["few", "many"])
def test_random_words(patient: Patient, seeds: range, record_property: Callable[[str, object], None]) -> None:
    """Nothing raises and nothing hangs, whatever stands in jemalloc's memory; most of the damage is named."""
    places, named = words_in_use(patient), 0
    for seed in seeds:
        numbers = random.Random(seed)
        try:
            for _ in range(numbers.choice((1, 1, 2, 4, 16, 100))):
                place = numbers.choice(numbers.choice(places))
                if patient.holds(place):
                    patient.put(place, another(numbers, patient.get(place), places))
            with in_time("the look"):
                named += bool(ask_everything(patient))
            if seed % BY_COMMANDS == 0:
                ask_by_commands(patient, seed)
        except Exception as error:
            raise AssertionError("seed %d: %s: %s" % (seed, type(error).__name__, error)) from error
        finally:
            patient.heal()
    record_property("cores", len(seeds))
    record_property("named", named)
    assert named > len(seeds) / 4


def ask_by_commands(patient: Patient, seed: int) -> None:
    """As users do."""
    for words in COMMANDS:
        for as_json in (True, False):
            with in_time(" ".join(words)):
                asked = patient.ask(*words, as_json=as_json)
            assert asked.code in (0, 1, 3, 4) and "internal error" not in (asked.line or ""), (seed, words, asked.line)
            assert (asked.code == 1) == (asked.line is not None)


# ---------------------------------------------------------------------------------------------------- at work

OF_A_MOMENT = {str(code) for code, _ in [*EXTENT_DAMAGE.values(), *CACHED_DAMAGE.values()]}
SECONDS = 60
ENOUGH = 2


def test_a_look_in_the_middle_of_a_call(stage: Stage, live: str) -> None:
    """Threads that never rest are caught while they change extents and caches: a contradiction names who was inside, and asks for another look."""
    command.load_commands()
    process = start(stage, "preload", "churn", "3", conf="narenas:2,dirty_decay_ms:0")
    lwps = {int(name) for name in os.listdir("/proc/%d/task" % process.pid)}
    begin, seen, looks, whole = time.monotonic(), 0, 0, 0
    while (seen < ENOUGH or not whole) and time.monotonic() - begin < SECONDS:
        out: List[str] = []
        host = runner.Host("gdbheapx", out.append, out.append, lambda: open_elf_target(pid=process.pid), runner.Settings())
        ended = runner.run_command_line(["arenas", "--json", "--allocator", "jemalloc"], host)
        assert ended.code in (0, 4), ended
        looks, whole = looks + 1, whole + (ended.code == 0)
        problems = [one for one in json.loads("".join(out))["problems"] if one["where"] and one["code"] in OF_A_MOMENT]
        assert bool(problems) or ended.code == 0 or "list" in "".join(out)
        for one in problems:
            assert "retry to see whether it persists" in one["hint"], one
            if "inside jemalloc" in one["hint"]:
                named = re.match(r"threads? ([\d, ]+)", one["hint"])
                assert named is not None and {int(lwp) for lwp in named.group(1).split(",")} <= lwps, one
                seen += 1
    assert seen, "none of %d looks came in the middle of a call" % looks
    assert whole, "no look was whole"
