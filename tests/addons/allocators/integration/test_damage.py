"""musl's own memory with random words in it: every answer comes in time and in words, and no sum that is wrong is called whole.

Random words in what mimalloc keeps for itself: every command answers in time and in words, and no sum that is wrong is told as whole.
"""

import random
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from gdbheapx.addons.allocators.musl.records import AREA_BYTES, MuslGroup
from tests.support import kernelcore
from tests.support.busy import stretch
from tests.support.damaged import DamagedCore
from tests.support.damaged_mimalloc import DamagedMimalloc
from tests.support.mimallocs import LACKING, adds_up, libraries, recorder
from tests.support.musls import build, recorded, start
from tests.support.processes import Builder, Process, Stage
from tests.support.programs import need
from tests.support.random_damage import another, in_time
from tests.support.tool import alone

pytestmark = pytest.mark.once  # the rules are the tool's own, whatever the release

SEEDS, MANY = 60, 300
COMMANDS = (["arenas"], ["bins"], ["chunks", "--limit", "100"], ["check"], ["leaks"], ["report"], ["whatis", "0x1000"], ["pins"], ["tcache"])
EXACT = ("system_bytes", "groups", "used_blocks", "used_bytes", "free_slots", "free_bytes", "overhead_bytes")
"""What is told by metas alone; headers of blocks show where these are damaged."""


class Patient:
    """One core: where its structures lie, and what its sums are."""

    def __init__(self, process: Process) -> None:
        from gdbheapx.addons.allocators.musl.entry import ALLOCATOR
        from gdbheapx.common.budget import Budget
        from gdbheapx.kernel import load_native_library
        from tests.support.heap_contexts import heap_context

        self.core = DamagedCore(process.core())
        self.truth = recorded(process)
        (found,) = ALLOCATOR.find(self.core.target).located
        malloc: Any = ALLOCATOR.open(found, heap_context(self.core.target, load_native_library(), Budget(), lambda *problem, **more: None))
        groups = malloc.groups()
        self.whole = self.sums()
        rows = [MuslGroup._make(row) for row in zip(*(groups.column(name) for name in MuslGroup._fields))]
        metas = [row.meta + at for row in rows for at in (0, 8, 16, 24, 32)]
        self.structures: Dict[str, List[int]] = {
            "context": list(range(found.context, found.context + 928, 8)),
            "meta": metas,
            "area": [area + at for area in groups.areas for at in (0, 8, 16)],
            "unused metas": [area + at for area in groups.areas for at in range(24 + 40 * 90, AREA_BYTES - 40, 8)],
            "group": [row.address for row in rows],
        }
        slots = [row.address + 16 + row.slot_bytes * slot for row in rows for slot in range(row.slots)]
        self.slots = frozenset(slots)
        self.headers = [slot - 8 for slot in slots]

    def sums(self) -> Any:
        """The row of `arenas`, and whether it is called whole."""
        asked = self.core.ask("arenas")
        return None if asked.code == 1 else (asked.envelope["partial"], asked.envelope["data"]["arenas"][0])


@pytest.fixture(scope="module")
def patient(core_stage: Stage) -> Iterator[Patient]:
    """A small core for all seeds."""
    need("musl-gcc")
    made = Patient(start(core_stage, "mu_recorder", "static, stripped", "3", "300", "2"))
    yield made
    made.core.close()


def spoil(patient: Patient, numbers: random.Random) -> None:
    """Another word in some places."""
    kinds = [*patient.structures.values(), patient.headers]
    for _ in range(numbers.choice((1, 1, 1, 2, 4, 16, 64))):
        places = numbers.choice(kinds)
        place = numbers.choice(places)
        if patient.core.holds(place):
            patient.core.put(place, another(numbers, patient.core.get(place), places))


@pytest.mark.parametrize("seeds", [range(SEEDS), pytest.param(range(SEEDS, MANY), marks=pytest.mark.wild)], ids=["few", "many"])
def test_random_words(patient: Patient, seeds: range, record_property: Callable[[str, object], None]) -> None:
    """Nothing raises and nothing hangs; sums that are called whole are right."""
    (is_partial, truth), told = patient.whole, 0
    assert not is_partial
    for seed in seeds:
        numbers = random.Random(seed)
        try:
            spoil(patient, numbers)
            with in_time("arenas"):
                found = patient.sums()
            told += found is None or found[0]
            if found is not None and not found[0]:
                assert {name: found[1][name] for name in EXACT} == {name: truth[name] for name in EXACT}
            for words in COMMANDS if seed % 15 == 0 else ():
                with in_time(" ".join(words)):
                    asked = patient.core.ask(*words)
                assert asked.code in (0, 1, 3, 4) and "internal error" not in (asked.line or ""), (words, asked.line)
        except Exception as error:
            raise AssertionError("seed %d: %s: %s" % (seed, type(error).__name__, error)) from error
        finally:
            patient.core.heal()
    record_property("cores", len(seeds))
    record_property("told", told)
    assert told > len(seeds) / 3


def test_a_block_that_was_written_past_is_named(patient: Patient) -> None:
    """One byte beyond what was asked for: `check` gives exit code 3, the block, wherever in its slot it begins, and what musl would do."""
    address = next(at for at, size in sorted(patient.truth.items()) if size % 16 == 3 and at not in patient.slots)
    try:
        patient.core.put(address + patient.truth[address], 0x41, 1)
        asked = patient.core.ask("check")
        (row,) = asked.envelope["data"]["findings"]
        assert asked.code == 3 and row["code"] == "block-overrun"
        assert (int(row["suspect"]["address"], 16), row["suspect"]["size_bytes"]) == (address, patient.truth[address])
    finally:
        patient.core.heal()


def unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@pytest.mark.parametrize("way", ["shared", "static, stripped"])
@pytest.mark.parametrize("what", ["overrun", "double-free"])
def test_a_process_that_musl_has_stopped(stage: Stage, tmp_path: Path, what: str, way: str) -> None:
    """report says that it was musl, and check names the block where the heap shows it."""
    if kernelcore.reason():
        pytest.skip(str(kernelcore.reason()))
    program = build(stage, "mu_aborts", way)
    ended = subprocess.run([program, what], cwd=tmp_path, preexec_fn=unlimited)
    assert ended.returncode == -signal.SIGSEGV
    (core,) = tmp_path.glob("*core*")
    report = alone(["--core", str(core)], "report", "--json").envelope["data"]
    assert report["verdict"]["code"] == "aborted-in-malloc" and report["next"][0]["command"] == "check"
    outcome = alone(["--core", str(core)], "check", "--json")
    rows = outcome.envelope["data"]["findings"]
    assert ([row["code"] for row in rows], outcome.code) == ((["block-overrun"], 3) if what == "overrun" else ([], 0))

MIMALLOC_SEEDS = [range(8), pytest.param(range(8, 300), marks=pytest.mark.wild)]
LONGEST_SECONDS = 30


@pytest.fixture(scope="module", params=libraries() or [None], ids=lambda path: "none" if path is None else path.name)
def hurt(builder: Builder, request: pytest.FixtureRequest) -> Iterator[DamagedMimalloc]:
    """A core of each library."""
    if kernelcore.reason() or request.param is None:
        pytest.skip(kernelcore.reason() or LACKING)
    path: Path = request.param
    stage = Stage(builder)
    try:
        yield DamagedMimalloc(recorder(stage, path, slots=200).core())
    finally:
        stage.close()


def sums(rows: Any) -> Tuple[int, ...]:
    """Blocks and bytes that are in use or wait for their owner, and bytes that are free."""
    names = (("used_blocks", "remote_free_blocks"), ("used_bytes", "remote_free_bytes"), ("free_bytes",))
    return tuple(sum(row[name] for row in rows for name in some) for some in names)


def asked(core: DamagedMimalloc, seed: int, *words: str) -> Any:
    """The answer, which came in time."""
    begin = time.monotonic()
    try:
        told = core.ask(*words)
    except Exception as error:
        raise AssertionError("seed %d, %s: %s: %s" % (seed, words, type(error).__name__, error)) from error
    assert time.monotonic() - begin < stretch(LONGEST_SECONDS), (seed, words)
    assert told.code in (0, 1, 3, 4) and "internal error" not in (told.line or ""), (seed, words, told.code, told.line)
    return told


@pytest.mark.parametrize("seeds", MIMALLOC_SEEDS, ids=["few", "many"])
def test_no_wrong_sum_is_whole(hurt: DamagedMimalloc, seeds: range) -> None:
    """Sums add up whatever is damaged; where they are others than before, the answer says that it is not whole. What other threads have freed
    counts as in use here: an empty list of these is nothing that could not be, and no more is whose a page is."""
    sound = sums(hurt.ask("arenas", "--allocator", "mimalloc").envelope["data"]["arenas"])
    for seed in seeds:
        try:
            hurt.harm(seed)
            told = asked(hurt, seed, "arenas", "--allocator", "mimalloc")
            if told.code != 1:
                rows = told.envelope["data"]["arenas"]
                adds_up(rows)
                assert sums(rows) == sound or told.envelope["partial"], seed
            for words in (["check"], ["bins"], ["chunks", "--limit", "5"], ["leaks"], ["report"], ["doctor"]):
                asked(hurt, seed, *words)
        finally:
            hurt.heal()
