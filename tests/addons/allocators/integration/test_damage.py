"""musl's, tcmalloc's and mimalloc's own memory with random words in it: every answer comes in time and in words, and no wrong sum is
called whole.
"""

import resource
import signal
import subprocess
from array import array
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, NamedTuple, Optional, Sequence, Tuple

import pytest

from gdbheapx.addons.allocators.musl.entry import ALLOCATOR as MUSL
from gdbheapx.addons.allocators.musl.records import AREA_BYTES, MuslGroup
from gdbheapx.addons.allocators.tcmalloc.entry import ALLOCATOR as TCMALLOC
from gdbheapx.common.budget import Budget
from gdbheapx.kernel import load_native_library
from tests.support import kernelcore, mimallocs, musls, tcmallocs
from tests.support.damaged import DamagedCore, in_time
from tests.support.damaged_mimalloc import DamagedMimalloc
from tests.support.heap_contexts import heap_context
from tests.support.processes import Process, Stage
from tests.support.tool import alone

pytestmark = pytest.mark.image  # this system's libtcmalloc

ONCE = pytest.mark.once  # the rules are the tool's own, whatever the release
FEW, MANY = {"musl": 60, "tcmalloc": 40, "mimalloc": 8}, 300
COMMANDS = ("bins", "chunks --limit 100", "check", "leaks", "report", "whatis 0x1000", "pins", "tcache", "doctor")
EXACT = {
    "musl": ("system_bytes", "groups", "used_blocks", "used_bytes", "free_slots", "free_bytes", "overhead_bytes"),
    "tcmalloc": (
        *("system_bytes", "spans", "used_blocks", "used_bytes", "central_bytes", "transfer_bytes", "cached_bytes"),
        *("tail_bytes", "free_bytes", "returned_bytes"),
    ),
}
"""What an answer that is called whole has right: of musl what metas alone tell, as headers of blocks show where these are damaged."""


class Patient(NamedTuple):
    """One core: its allocator, where its structures lie, and each how many seeds every command is asked."""

    core: DamagedCore
    name: str
    process: Process
    kinds: Dict[str, Sequence[int]]
    every: int = 15

    def sums(self) -> Optional[Tuple[bool, Any]]:
        """Whether `arenas` is called whole, and what it says; None: the allocator is not read at all."""
        asked = self.core.ask("arenas", "--allocator", self.name)
        if asked.code not in (0, 3, 4):
            return None
        rows = asked.envelope["data"]["arenas"]
        if self.name != "mimalloc":
            return asked.envelope["partial"], [rows[0][name] for name in EXACT[self.name]]
        mimallocs.adds_up(rows)  # whatever is damaged
        # What other threads have freed counts as in use: an empty list of these may be, and so may a page of nobody.
        parts = (("used_blocks", "remote_free_blocks"), ("used_bytes", "remote_free_bytes"), ("free_bytes",))
        return asked.envelope["partial"], [sum(row[name] for row in rows for name in part) for part in parts]


def opened(entry: Any, core: DamagedCore) -> Tuple[Any, Any]:
    """What was found of an allocator, and its heap."""
    (found,) = entry.find(core.target).located
    return found, entry.open(found, heap_context(core.target, load_native_library(), Budget(), lambda *problem, **more: None))


def on_musl(stage: Stage) -> Patient:
    process = musls.start(stage, "mu_recorder", "static, stripped", "3", "300", "2")
    core = DamagedCore(process.core())
    found, malloc = opened(MUSL, core)
    groups = malloc.groups()
    rows = [MuslGroup._make(row) for row in zip(*(groups.column(name) for name in MuslGroup._fields))]
    kinds: Dict[str, Sequence[int]] = {
        "context": range(found.context, found.context + 928, 8),
        "meta": [row.meta + at for row in rows for at in (0, 8, 16, 24, 32)],
        "area": [area + at for area in groups.areas for at in (0, 8, 16)],
        "unused metas": [area + at for area in groups.areas for at in range(24 + 40 * 90, AREA_BYTES - 40, 8)],
        "group": [row.address for row in rows],
        "header": [row.address + 8 + row.slot_bytes * slot for row in rows for slot in range(row.slots)],
    }
    return Patient(core, "musl", process, kinds)


def on_tcmalloc(stage: Stage) -> Patient:
    process = tcmallocs.recorder(stage, tcmallocs.library(), slots=200)
    core = DamagedCore(process.core())
    found, heap = opened(TCMALLOC, core)
    survey, counts, known = heap.survey(), heap.counts(), found.structure
    target, page_map, count = core.target, known.page_map, known.sizes.classes
    root = array("Q", target.read_prefix(page_map.root, 8 * page_map.root_words))
    words = [(leaf, array("Q", target.read_prefix(leaf, 8 << page_map.leaf_bits))) for leaf in root if leaf]
    kinds: Dict[str, Sequence[int]] = {
        "root": [page_map.root + 8 * place for place, leaf in enumerate(root) if leaf],
        "leaf": [leaf + 8 * place for leaf, inside in words for place, word in enumerate(inside) if word],
        "span": [address + at for address in counts.spans.column("address") for at in (0, 8, 32, 40)],
        "central": [known.central + known.stride * number + at for number in range(1, count) for at in (0, 8, 112, 120, 1152)],
        "batch": [known.central + known.stride * row.size_class + 128 for row in counts.central if row.batches] or [known.central],
        "cache": [row.address + at for row in counts.caches for at in range(0, 32 * count, 8) if at % 32 in (0, 8, 24)],
        "caches": [row.address + known.threads.next + at for row in counts.caches for at in (0, 8)] + [known.threads.head],
        "link": list(survey.frees.addresses),
        "figures": [page_map.stats + at for at in (0, 8, 16)],
        "sizes": [known.sizes.address // 8 * 8 + 8 * place for place in range(1, count // 2)],
    }
    return Patient(core, "tcmalloc", process, kinds)


def on_mimalloc(stage: Stage, path: Optional[Path]) -> Patient:
    process = mimallocs.recorder(stage, path or mimallocs.library(), slots=200)
    core = DamagedMimalloc(process.core())
    return Patient(core, "mimalloc", process, {str(place): kind for place, kind in enumerate(core.kinds)}, every=1)


LIBRARIES = [pytest.param(path, id="mimalloc" if path is None else path.name, marks=ONCE) for path in mimallocs.libraries() or [None]]


@pytest.fixture(scope="module", params=[pytest.param(on_musl, id="musl", marks=ONCE), pytest.param(on_tcmalloc, id="tcmalloc"), *LIBRARIES])
def patient(core_stage: Stage, request: pytest.FixtureRequest) -> Iterator[Patient]:
    """A small core for all seeds."""
    made = request.param(core_stage) if callable(request.param) else on_mimalloc(core_stage, request.param)
    yield made
    made.core.close()


@pytest.mark.parametrize("is_few", [True, pytest.param(False, marks=pytest.mark.wild)], ids=["few", "many"])
def test_random_words(patient: Patient, is_few: bool, record_property: Callable[[str, object], None]) -> None:
    """Nothing raises and nothing hangs; sums that are called whole are right."""
    few, told = FEW[patient.name], 0
    seeds, sound = range(few) if is_few else range(few, MANY), patient.sums()
    assert sound is not None and not sound[0]
    for seed in seeds:
        with patient.core.harmed(seed) as numbers:
            patient.core.spoil(numbers, [places for places in patient.kinds.values() if places])
            with in_time("arenas"):
                found = patient.sums()
            told += found is None or found[0]
            assert found is None or found[0] or found == sound
            for words in COMMANDS if seed % patient.every == 0 else ():
                patient.core.ask_in_words(*words.split())
    record_property("cores", len(seeds))
    record_property("told", told)
    assert told > len(seeds) / 3 or patient.name == "mimalloc"


@ONCE
@pytest.mark.parametrize("patient", [pytest.param(on_musl, id="musl")], indirect=True)
def test_a_block_that_was_written_past_is_named(patient: Patient) -> None:
    """One byte beyond what was asked for: `check` gives exit code 3, the block, wherever in its slot it begins, and what musl would do."""
    truth, slots = musls.recorded(patient.process), {header + 8 for header in patient.kinds["header"]}
    address = next(at for at, size in sorted(truth.items()) if size % 16 == 3 and at not in slots)
    with patient.core.harmed(0):
        patient.core.put(address + truth[address], 0x41, 1)
        asked = patient.core.ask("check")
        (row,) = asked.envelope["data"]["findings"]
        assert asked.code == 3 and row["code"] == "block-overrun"
        assert (int(row["suspect"]["address"], 16), row["suspect"]["size_bytes"]) == (address, truth[address])


@pytest.mark.parametrize("patient", [pytest.param(on_tcmalloc, id="tcmalloc")], indirect=True)
def test_a_link_that_was_overwritten(patient: Patient) -> None:
    """`check` gives exit code 3, the rule and the place."""
    links = patient.kinds["link"]
    with patient.core.harmed(0):
        patient.core.put(links[len(links) // 2], 0x4141414141414141)
        asked = patient.core.ask("check")
        assert asked.code == 3 and "free-objects-broken" in [row["code"] for row in asked.envelope["data"]["findings"]]


def unlimited() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@ONCE
@pytest.mark.parametrize("way", ["shared", "static, stripped"])
@pytest.mark.parametrize("what", ["overrun", "double-free"])
def test_a_process_that_musl_has_stopped(stage: Stage, tmp_path: Path, what: str, way: str) -> None:
    """report says that it was musl, and check names the block where the heap shows it."""
    if kernelcore.reason():
        pytest.skip(str(kernelcore.reason()))
    program = musls.build(stage, "mu_aborts", way)
    ended = subprocess.run([program, what], cwd=tmp_path, preexec_fn=unlimited)
    assert ended.returncode == -signal.SIGSEGV
    (core,) = tmp_path.glob("*core*")
    report = alone(["--core", str(core)], "report", "--json").envelope["data"]
    assert report["verdict"]["code"] == "aborted-in-malloc" and report["next"][0]["command"] == "check"
    outcome = alone(["--core", str(core)], "check", "--json")
    rows = outcome.envelope["data"]["findings"]
    assert ([row["code"] for row in rows], outcome.code) == ((["block-overrun"], 3) if what == "overrun" else ([], 0))
