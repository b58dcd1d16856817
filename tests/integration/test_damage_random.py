"""Random words in what malloc keeps for itself: every command answers in time and in words, and no leak is told as whole."""

import time
from typing import Any, Callable, Iterator, Sequence, Tuple

import pytest

from tests.support import kernelcore
from tests.support.busy import stretch
from tests.support.damaged_glibc import Damaged
from tests.support.damaged_jemalloc import Patient
from tests.support.jemallocs import start
from tests.support.plants_glibc import Map
from tests.support.processes import Builder, Stage
from tests.support.random_damage import damage, damage_jemalloc, places_of, words_in_use

pytestmark = pytest.mark.once  # the rules by which damage is told are the tool's own

FEW, MANY = range(4), range(4, 200)
SEEDS = [FEW, pytest.param(MANY, marks=pytest.mark.wild)]
LONGEST_SECONDS = 30
CODES = (0, 1, 3, 4)
Core = Tuple[Any, Callable[[int], None], str]
"""The core, what damages it by a seed, and an address of a block in use."""


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
        kinds = places_of(there)
        return core, lambda seed: damage(core, kinds, seed), "0x%x" % (there.of("used", 0)[0] + 16)
    patient = Patient(start(stage, "preload", "recorder", "park", "4", "2").core())
    places = words_in_use(patient)
    return patient, lambda seed: damage_jemalloc(patient, places, seed), "0x%x" % next(row[0] for row in patient.blocks if row[2] == "used")


def ask(core: Any, words: Sequence[str], seed: int) -> Any:
    """The answer, which came in time."""
    begin = time.monotonic()
    try:
        asked = core.ask(*words)
    except Exception as error:
        raise AssertionError("seed %d, %s: %s: %s" % (seed, words, type(error).__name__, error)) from error
    assert time.monotonic() - begin < stretch(LONGEST_SECONDS), (seed, words)
    assert asked.code in CODES and "internal error" not in (asked.line or ""), (seed, words, asked.code, asked.line)
    assert (asked.code == 1) == (asked.line is not None), (seed, words, asked.code, asked.line)
    return asked


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
    core, harm, used = hurt
    sound = core.ask("leaks").envelope
    for seed in seeds:
        try:
            harm(seed)
            for words in (["check"], ["leaks"], ["owners"], ["census"], ["pins"], ["refs", used], ["whatis", used]):
                asked = ask(core, words, seed)
                if words == ["leaks"]:
                    assert not wrong_leaks(sound, asked), (seed, wrong_leaks(sound, asked))
                if words == ["pins"] and asked.code == 0:
                    assert not any(one["difference_bytes"] for one in asked.envelope["data"]["sums"]), (seed, "and nothing says that it is not whole")
        finally:
            core.heal()
