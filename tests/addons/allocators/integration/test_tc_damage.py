"""tcmalloc's own memory with random words in it: every answer comes in time and in words, and no sum that is wrong is called whole."""

import random
from array import array
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from gdbheapx.addons.allocators.tcmalloc.entry import ALLOCATOR
from gdbheapx.common.budget import Budget
from gdbheapx.kernel import load_native_library
from tests.support.damaged import DamagedCore
from tests.support.heap_contexts import heap_context
from tests.support.processes import Stage
from tests.support.random_damage import HOW_MANY, another
from tests.support.tcmallocs import library, recorder

pytestmark = pytest.mark.image  # this system's libtcmalloc

SEEDS, MANY = 40, 300
COMMANDS = ("bins", "chunks --limit 100", "check", "leaks", "report", "whatis 0x1000", "pins", "tcache", "purge --dry-run")
SUMS = ("system_bytes", "spans", "used_blocks", "used_bytes", "central_bytes", "transfer_bytes", "cached_bytes", "tail_bytes", "free_bytes", "returned_bytes")


class Patient:
    """One core: where its structures lie, and what its sums are."""

    def __init__(self, core: DamagedCore) -> None:
        self.core = core
        (found,) = ALLOCATOR.find(core.target).located
        heap: Any = ALLOCATOR.open(found, heap_context(core.target, load_native_library(), Budget(), lambda *problem, **more: None))
        survey, counts, known = heap.survey(), heap.counts(), found.structure
        target, page_map = core.target, known.page_map
        root = array("Q", target.read_prefix(page_map.root, 8 * page_map.root_words))
        leaves = [leaf for leaf in root if leaf]
        words = [(leaf, array("Q", target.read_prefix(leaf, 8 << page_map.leaf_bits))) for leaf in leaves]
        count = known.sizes.classes
        self.kinds: Dict[str, List[int]] = {
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
        self.whole = self.sums()

    def sums(self) -> Any:
        """The row of `arenas`, and whether it is called whole; None: it is not read at all."""
        asked = self.core.ask("arenas", "--allocator", "tcmalloc")
        return None if asked.code not in (0, 3, 4) else (asked.envelope["partial"], asked.envelope["data"]["arenas"][0])


@pytest.fixture(scope="module")
def patient(core_stage: Stage) -> Iterator[Patient]:
    """A small core for all seeds."""
    core = DamagedCore(recorder(core_stage, library(), slots=200).core())
    yield Patient(core)
    core.close()


def hurt(patient: Patient, seed: int) -> List[Tuple[str, int]]:
    """Another word in some places."""
    numbers, done = random.Random(seed), []
    for _ in range(numbers.choice(HOW_MANY)):
        kind = numbers.choice(sorted(patient.kinds))
        place = numbers.choice(patient.kinds[kind])
        if patient.core.holds(place):
            patient.core.put(place, another(numbers, patient.core.get(place), patient.kinds[kind]))
            done.append((kind, place))
    return done


@pytest.mark.parametrize("seeds", [range(SEEDS), pytest.param(range(SEEDS, MANY), marks=pytest.mark.wild)], ids=["few", "many"])
def test_random_words(patient: Patient, seeds: range, record_property: Callable[[str, object], None]) -> None:
    """Nothing raises and nothing hangs; sums that are called whole are right."""
    (is_partial, truth), told = patient.whole, 0
    assert not is_partial
    for seed in seeds:
        done: List[Tuple[str, int]] = []
        try:
            done = hurt(patient, seed)
            found = patient.sums()
            told += found is None or found[0]
            if found is not None and not found[0]:
                assert {name: found[1][name] for name in SUMS} == {name: truth[name] for name in SUMS}
            for words in COMMANDS if seed % 15 == 0 else ():
                asked = patient.core.ask(*words.split())
                assert asked.code in (0, 1, 2, 3, 4) and "internal error" not in (asked.line or ""), (words, asked.line)
        except Exception as error:
            raise AssertionError("seed %d: %s: %s: %s" % (seed, done[:4], type(error).__name__, error)) from error
        finally:
            patient.core.heal()
    record_property("cores", len(seeds))
    record_property("told", told)
    assert told > len(seeds) / 3


def test_a_link_that_was_overwritten(patient: Patient) -> None:
    """`check` gives exit code 3, the rule and the place."""
    place = patient.kinds["link"][len(patient.kinds["link"]) // 2]
    try:
        patient.core.put(place, 0x4141414141414141)
        asked = patient.core.ask("check")
        assert asked.code == 3
        assert "free-objects-broken" in [row["code"] for row in asked.envelope["data"]["findings"]]
    finally:
        patient.core.heal()
