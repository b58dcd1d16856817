"""check on jemalloc: each planted damage under its rule, nothing in what is whole, on a core and live."""

from typing import Iterator

import pytest

from tests.support import kernelcore
from tests.support.damaged_jemalloc import Patient
from tests.support.jemallocs import start
from tests.support.plants_jemalloc import PLANTS, Plant
from tests.support.processes import Builder, Stage
from tests.support.tool import alone, heapx

pytestmark = pytest.mark.once  # the rules are the tool's own


@pytest.fixture(scope="module")
def made(builder: Builder) -> Iterator[Patient]:
    """One core for all plants."""
    reason = kernelcore.reason()
    if reason:
        pytest.skip(reason)
    stage = Stage(builder)
    try:
        patient = Patient(start(stage, "preload", "recorder", "park", "4", "2").core())
        yield patient
        patient.close()
    finally:
        stage.close()


@pytest.fixture
def patient(made: Patient) -> Iterator[Patient]:
    """The core, healthy again afterwards."""
    yield made
    made.heal()


def test_the_undamaged_core_breaks_no_rule(patient: Patient) -> None:
    """Exit code 0, no finding."""
    asked = patient.ask("check")
    assert (asked.code, asked.envelope["data"], asked.envelope["problems"]) == (0, {"findings": []}, [])


@pytest.mark.parametrize("one", PLANTS, ids=lambda one: one.name)
def test_a_plant_is_found(patient: Patient, one: Plant) -> None:
    """Its rule is told, exit code 3."""
    one.do(patient)
    asked = patient.ask("check")
    findings = asked.envelope["data"]["findings"] if asked.envelope["data"] else []
    assert asked.line is None and asked.code == 3, (asked.code, asked.line, findings[:3], asked.envelope["problems"][:3])
    assert {row["rule"] for row in findings} & set(one.rules), [row["rule"] for row in findings]


def test_through_the_doors(stage: Stage, kind: str) -> None:
    """In gdb and without, live and on a core: nothing is broken in a program at rest."""
    process = start(stage, "preload", "recorder", "park", "4", "2")
    for outcome in (heapx(process.target(kind), "check", "--json"), alone(process.target(kind), "check", "--json")):
        assert (outcome.code, outcome.data) == (0, {"findings": []}), outcome.stderr
