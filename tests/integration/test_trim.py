"""What trim --dry-run predicts is what malloc_trim then gives back, to the byte.

Files: allocators/plan.py.
"""

import resource
from typing import Any, Dict, List, Tuple

import pytest

from gdbheapx.common import addon_loader
from gdbheapx.common.units import format_size
from tests.support import kernelcore
from tests.support.jemallocs import library as jemalloc
from tests.support.processes import Process, Stage
from tests.support.tool import answers, heapx

pytestmark = [pytest.mark.image, pytest.mark.first]  # what its libc's malloc_trim gives back

STATES = ("main", "arenas", "fast", "untouched", "sbrk", "mmapped-main", "small-top")
PAGE = resource.getpagesize()
IN_RAM = (
    "reclaimable_resident_bytes", "reclaimable_exclusive_bytes", "free_returned_resident_bytes", "free_returned_huge_bytes", "huge_bytes",
    "blockless_huge_bytes",
)
"""What no core tells."""


def whole(process: Process, kind: str) -> List[Dict[str, Any]]:
    """What `arenas` and `trim --dry-run` say, from one gdb."""
    found = answers(process.target(kind), process.folder, "arenas", "trim --dry-run")
    for envelope in found:
        assert envelope["partial"] is False, envelope["problems"]
    return [envelope["data"] for envelope in found]


def predicted(process: Process, kind: str) -> int:
    """The prediction, the same by `arenas` and by `trim --dry-run`."""
    arenas, trim = whole(process, kind)
    totals = arenas["totals"]["glibc"]
    assert trim["way"] == "none" and trim["returned"] is None
    assert trim["predicted_bytes"] == totals["reclaimable_bytes"]
    assert trim["predicted_resident_bytes"] == totals["reclaimable_resident_bytes"]
    return int(totals["reclaimable_resident_bytes"])


@pytest.mark.parametrize("state", STATES)
def test_prediction_equals_the_drop(stage: Stage, live: str, state: str) -> None:
    """reclaimable_resident_bytes equals the drop of Anonymous in smaps_rollup when the process calls malloc_trim(0) itself."""
    process = stage.start("trimmer", state)
    expected = predicted(process, live)
    before = process.smaps_rollup("Anonymous")
    process.command(b"t")
    drop = before - process.smaps_rollup("Anonymous")
    assert drop == expected
    if state not in ("small-top",):
        assert drop > 100 * PAGE, "the program built too little to trim"


@pytest.mark.parametrize("tunables", ["glibc.malloc.hugetlb=1", "glibc.malloc.tcache_count=0"])
def test_prediction_holds_with_tunables(stage: Stage, live: str, tunables: str) -> None:
    """The prediction holds with huge pages, where top is cut in their multiples, and without thread caches."""
    process = stage.start("trimmer", "fast", env={"GLIBC_TUNABLES": tunables})
    expected = predicted(process, live)
    before = process.smaps_rollup("Anonymous")
    process.command(b"t")
    assert before - process.smaps_rollup("Anonymous") == expected


@pytest.mark.parametrize("scan", ["1", "0"], ids=["scan", "no scan"])
def test_shared_pages_leave_the_process_and_stay_in_the_machine(stage: Stage, live: str, scan: str) -> None:
    """After a fork, free pages that the child has as well count in resident, which is the drop of RSS, and not in exclusive, which is what was the
    process's own; with PAGEMAP_SCAN and without."""
    process = stage.start("trimmer", "fork")
    before = process.own_pages()
    totals = heapx(process.target(live), "arenas", "--json", env={"GDBHEAPX_PAGEMAP_SCAN": scan}).data["totals"]["glibc"]
    trim = heapx(process.target(live), "trim", "--dry-run", "--json", env={"GDBHEAPX_PAGEMAP_SCAN": scan}).data
    for word in ("resident", "exclusive"):
        assert trim["predicted_%s_bytes" % word] == totals["reclaimable_%s_bytes" % word]
    anonymous = process.smaps_rollup("Anonymous")
    process.command(b"t")
    after = process.own_pages()
    assert anonymous - process.smaps_rollup("Anonymous") == totals["reclaimable_resident_bytes"]
    assert len([address for address, own in before.items() if own and address not in after]) * PAGE == totals["reclaimable_exclusive_bytes"]
    shared = [address for address, own in before.items() if not own and address not in after]
    assert len(shared) * PAGE == totals["reclaimable_resident_bytes"] - totals["reclaimable_exclusive_bytes"] > 0


@pytest.mark.parametrize("state", [state if state in ("main", "arenas", "fast") else pytest.param(state, marks=pytest.mark.once) for state in STATES])
def test_core_predicts_the_same_bytes(stage: Stage, live: str, core: str, state: str) -> None:
    """A core gives the same reclaimable_bytes as the live process; the resident figure is null, and that is a whole answer."""
    process = stage.start("trimmer", state)
    alive = answers(process.target(live), process.folder, "arenas")[0]["data"]
    dead, dry = whole(process, core)
    assert dead["totals"]["glibc"]["reclaimable_bytes"] == alive["totals"]["glibc"]["reclaimable_bytes"]
    assert dead["totals"]["glibc"]["reclaimable_resident_bytes"] is None
    for dead_arena, alive_arena in zip(dead["arenas"], alive["arenas"]):
        same = {key: value for key, value in alive_arena.items() if key not in IN_RAM}
        assert {key: value for key, value in dead_arena.items() if key not in IN_RAM} == same
        assert {key: dead_arena[key] for key in IN_RAM} == dict.fromkeys(IN_RAM)
    assert dry["predicted_bytes"] == alive["totals"]["glibc"]["reclaimable_bytes"]
    assert dry["predicted_resident_bytes"] is None and dry["rss_before_bytes"] is None


def test_core_refuses_to_trim(stage: Stage, core: str) -> None:
    """trim without --dry-run on a core says in one line why not, exit code 1."""
    process = stage.start("trimmer", "main")
    outcome = heapx(process.target(core), "trim")
    assert outcome.code == 1 and len(outcome.stderr.strip().splitlines()) >= 1


def test_reading_changes_nothing(stage: Stage, live: str) -> None:
    """The process has the same anonymous memory after the tool was there, and runs on."""
    process = stage.start("trimmer", "untouched")
    before = process.smaps_rollup("Anonymous")
    heapx(process.target(live), "report", "--json")
    assert process.smaps_rollup("Anonymous") == before
    assert process.popen.poll() is None
    with open("/proc/%d/status" % process.pid) as status:
        assert "TracerPid:\t0" in status.read()
    process.command(b"t")


def test_reading_copies_no_shared_page(stage: Stage, live: str) -> None:
    """Pages shared with a forked child stay shared: process_vm_readv would copy every one that it reads (Linux 5.19 and later)."""
    process = stage.start("trimmer", "fork")
    before, proportional = process.own_pages(), process.smaps_rollup("Pss")
    assert heapx(process.target(live), "arenas", "--json").code == 0
    after = process.own_pages()
    copied = [address for address, own in before.items() if not own and after.get(address)]
    assert len(copied) < 8, "%d of %d shared pages were copied, Pss went from %d to %d" % (
        len(copied), len(before), proportional, process.smaps_rollup("Pss"),
    )


@pytest.mark.parametrize("words", [("trim", "--dry-run"), ("trim", "--yes")], ids=lambda words: words[1])
def test_malloc_is_another_allocators(stage: Stage, live: str, words: Tuple[str, ...]) -> None:
    """A trim of the heap that nobody uses would mislead; the next step is the owner's own command."""
    process = stage.start("trimmer", "main", env={"LD_PRELOAD": str(jemalloc())})
    outcome = heapx(process.target(live), *words)
    assert outcome.code == 1 and "jemalloc owns malloc here" in outcome.stderr and "purge" in outcome.stderr


def test_a_core_shows_what_of_it_was_in_memory(stage: Stage) -> None:
    """The kernel leaves a hole for each page that was not there: the file has as much of what a trim would return as was in RAM, and
    what-if takes no more for free."""
    if kernelcore.reason():
        pytest.skip(kernelcore.reason() or "")
    process = stage.start("trimmer", "untouched")
    dry = heapx(process.target("live"), "trim", "--dry-run", "--json").data
    assert dry["predicted_resident_bytes"] < dry["predicted_bytes"]
    text = heapx(process.target("core"), "trim", "--dry-run").stdout.decode()
    assert " to the OS, %s of it in the core; only the live process" % format_size(dry["predicted_resident_bytes"]) in text
    if addon_loader.has_capability("settings"):
        (restart,) = [one for one in heapx(process.target("core"), "what-if", "--json").data["settings"] if one["code"] == "restart"]
        free = sum(dry["predicted_%sbytes" % which] * sign for which, sign in (("", -1), ("resident_", 1)))
        totals = heapx(process.target("core"), "arenas", "--json").data["totals"]["glibc"]
        assert restart["acts_on_bytes"] == free + sum(totals[name] for name in ("free_bytes", "fast_bytes", "tcache_bytes", "top_bytes"))
