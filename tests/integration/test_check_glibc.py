"""check on glibc malloc: each planted damage under its rule, nothing in what is whole, on a core and live.

Files: glibc/rules.py.
"""

from typing import Iterator

import pytest

from gdbheapx.glibc.rules import RULES
from tests.support import plants_mapped
from tests.support.damaged_glibc import Damaged
from tests.support.plants_glibc import PLANTS, Map, Plant, plant
from tests.support.processes import Stage

pytestmark = pytest.mark.once  # the rules are the tool's own; the layouts they rest on have tests in every image


@pytest.fixture(scope="module")
def there(core_stage: Stage) -> Iterator[Map]:
    """One core for all plants."""
    core = Damaged(core_stage.start("damage", "rich").core())
    yield Map(core)
    core.close()


@pytest.fixture
def patient(there: Map) -> Iterator[Map]:
    """The core, healthy again afterwards."""
    yield there
    there.core.heal()


def test_the_undamaged_core_breaks_no_rule(patient: Map) -> None:
    """Exit code 0, no finding."""
    asked = patient.core.ask("check")
    assert (asked.code, asked.envelope["data"], asked.envelope["problems"]) == (0, {"findings": []}, [])


@pytest.mark.parametrize("one", PLANTS, ids=lambda one: one.name)
def test_a_plant_is_found(patient: Map, one: Plant) -> None:
    """Its rule is told, exit code 3; every finding has a rule of the table, and no sentence is an internal error."""
    plant(patient, one)
    asked = patient.core.ask("check")
    assert asked.line is None and asked.code == (4 if one.rules == ("arena-mutex",) else 3), (asked.code, asked.line, asked.envelope)
    findings = asked.envelope["data"]["findings"]
    told = {row["rule"] for row in findings}
    assert told & set(one.rules), (told, findings[:5])
    assert told <= set(RULES)


def test_the_block_that_overran_is_the_suspect(patient: Map) -> None:
    """A size field that was overwritten from below: the used block before it, with its address and size, and what it is."""
    chunk = patient.of("used", 0)[12]
    before = max(one for one in patient.chunks if one.address < chunk)
    for place, some in enumerate((b"a string", b" that is", b" too lon", b"g")):
        patient.core.put(before.address + 16 + 8 * place, int.from_bytes(some, "little"))
    patient.core.put(chunk + 8, 0x4141414141414141)
    row = next(row for row in patient.core.ask("check").envelope["data"]["findings"] if row["rule"].startswith("chunk-"))
    suspect = {"address": "0x%x" % (before.address + 16), "size_bytes": before.size, "status": "used", "owner": None, "signature": "text"}
    assert (row["address"], row["rule"], row["suspect"], row["abort"]) == ("0x%x" % chunk, "chunk-overrun", suspect, "double free or corruption (out)")


def test_what_a_held_lock_explains_is_no_finding(patient: Map) -> None:
    """With the arena's mutex held the same damage is told as unsure, exit code 4; in the core of a crash it is damage again."""
    patient.core.put(patient.of("used", 0)[12] + 8, 0x4141414141414141)
    patient.core.put(patient.state(0, "mutex"), 1, 4)
    asked = patient.core.ask("check")
    assert asked.code == 4 and {row["evidence"] for row in asked.envelope["data"]["findings"]} == {"locked"}
    assert [one["code"] for one in asked.envelope["problems"]].count("check-unsettled") == 1


UNPLANTED = ("main-arena-lost", "run-not-found", "fencepost-missing", "system-mem", "bins-mismatch", "top-missing", "chunk-unmapped")
"""Rules that one word does not break: the survey's own tests have these, test_inside_gdb_and_without the last."""


def test_every_rule_has_a_plant() -> None:
    """Once at least."""
    planted = {rule for one in PLANTS for rule in one.rules}.union(one.rule for one in plants_mapped.PLANTS)
    assert set(RULES) - planted <= set(UNPLANTED)
