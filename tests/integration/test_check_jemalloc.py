"""check on jemalloc: each planted damage under its rule, nothing in what is whole, on a core and live.

Files: jemalloc/check.py.
"""

from typing import Any, Iterator

import pytest

from tests.support.damaged_jemalloc import Living, Patient
from tests.support.gcores import gcore
from tests.support.jemallocs import WAYS, pairs, start
from tests.support.plants_jemalloc import LINKS, PLANTS, Plant, stack_of
from tests.support.processes import Builder, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.once  # the rules are the tool's own


def test_the_undamaged_core_breaks_no_rule(patient: Patient) -> None:
    """Exit code 0, no finding."""
    asked = patient.ask("check")
    assert (asked.code, asked.envelope["data"], asked.envelope["problems"]) == (0, {"findings": []}, [])


@pytest.mark.parametrize("one", PLANTS, ids=lambda one: one.name)
def test_a_plant_is_found(patient: Patient, one: Plant) -> None:
    """Its rule is told, exit code 3."""
    check_found(patient, one)


def check_found(patient: "Patient | Living", one: Plant) -> None:
    one.do(patient)
    asked = patient.ask("check")
    findings = asked.envelope["data"]["findings"] if asked.envelope["data"] else []
    assert asked.line is None and asked.code == 3, (asked.code, asked.line, findings[:3], asked.envelope["problems"][:3])
    assert {row["rule"] for row in findings} & set(one.rules), [row["rule"] for row in findings]


@pytest.fixture(scope="module")
def born(builder: Builder) -> Iterator[Living]:
    """The process itself, at rest."""
    stage = Stage(builder)
    try:
        process = start(stage, "preload", "recorder", "park", "4", "2")
        living = Living(gcore(process), process.pid)
        yield living
        living.close()
    finally:
        stage.close()


@pytest.fixture
def living(born: Living) -> Iterator[Living]:
    """The process, healthy again afterwards."""
    yield born
    born.heal()


@pytest.mark.parametrize("one", LINKS, ids=lambda one: one.name)
def test_a_plant_is_found_live(living: Living, one: Plant) -> None:
    """The same in the memory of the process."""
    check_found(living, one)


def test_the_block_before_a_cache_is_the_suspect(patient: Patient) -> None:
    """A cache's stack lies in a block: what it holds was overwritten by the block that ends where that begins."""
    stack = stack_of(patient)[1]
    patient.put(stack.start, 0x4141414141414141)
    row = next(row for row in patient.ask("check").envelope["data"]["findings"] if row["rule"] == "cached-outside")
    place = patient.malloc.block_at(stack.start)
    before = patient.malloc.block_at(place.block.address - 1) if place is not None and place.block is not None else None
    suspect: Any = None
    if before is not None and before.block is not None and before.block.status in ("used", "cached"):
        suspect = {"address": "0x%x" % before.block.address, "size_bytes": before.block.size_bytes, "status": before.block.status}
    found = row["suspect"] and {key: row["suspect"][key] for key in ("address", "size_bytes", "status")}
    assert (row["address"], found) == ("0x4141414141414141", suspect)


@pytest.mark.parametrize("kind, way", pairs(WAYS), indirect=["kind"])
def test_no_release_breaks_a_rule(stage: Stage, kind: str, way: str) -> None:
    """What is sound is found sound, whatever the release names its links, counters and bits."""
    outcome = alone(start(stage, way, "recorder", "park", "4", "2").target(kind), "check", "--json")
    assert (outcome.code, outcome.data) == (0, {"findings": []}), outcome.stderr


def test_guard_pages_break_no_rule(stage: Stage, kind: str) -> None:
    """From 5.3.0 two pages around each large extent count as mapped and are in none: what is mapped is not compared then."""
    outcome = alone(start(stage, "preload", "recorder", "park", "4", "2", conf="san_guard_large:1").target(kind), "check", "--json")
    assert (outcome.code, outcome.data) == (0, {"findings": []}), outcome.stderr


@pytest.mark.wild  # a thread just woken from a lock that nobody holds any more can still look like damage
def test_threads_that_never_rest_break_no_rule(stage: Stage) -> None:
    """What threads were changing is explained by that: no finding is sure, live and in cores."""
    process = start(stage, "preload", "churn", "4", conf="dirty_decay_ms:20,muzzy_decay_ms:20")
    outcomes = [alone(process.target("live"), "check", "--json") for _ in range(4)]
    outcomes += [alone(["--core", str(gcore(process))], "check", "--json") for _ in range(2)]
    for outcome in outcomes:
        sure = [row for row in outcome.envelope["data"]["findings"] if row["evidence"] is None]
        assert outcome.code in (0, 4) and not sure, (outcome.code, sure[:4])
