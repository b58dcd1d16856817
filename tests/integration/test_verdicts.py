"""Verdicts weigh what takes memory, and know what they lack: on processes and cores, whole and cut."""

import os
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from tests.support import gcores, jemallocs
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # what the tool makes of figures that test_accounts holds

MIB = 1 << 20
MANY_ARENAS = {"MALLOC_ARENA_MAX": "700"}


def report(target: List[str]) -> Dict[str, Any]:
    """Whole or partial."""
    return dict(heapx(target, "report", "--no-deep", "--json").envelope)


def lines(data: Dict[str, Any]) -> List[str]:
    return [line["code"] for line in [*data["verdict"]["lines"], *data["findings"]]]


def test_arenas_that_nobody_touched_are_no_hoard(stage: Stage, kind: str) -> None:
    """300 tops of 130 KiB each, which malloc counts as free: next to nothing of that takes memory, and nothing is said of it."""
    process = stage.start("left", "300", "0", env=MANY_ARENAS)
    data = report(process.target(kind))["data"]
    totals = data["totals"]["glibc"]
    assert totals["arenas"] == 301 and totals["top_bytes"] > 37 * MIB > 10 * data["memory"]["allocators"]["glibc"]
    glibc = data["verdicts"]["glibc"]
    assert (glibc["kind"], glibc["sure"]) == ("small", "certain") and data["verdict"]["kind"] != "kept"
    assert not {"thread-tops", "many-arenas", "free-in-small-pieces", "freed-and-held"} & set(lines(data))


def test_arenas_whose_threads_have_ended(stage: Stage, kind: str) -> None:
    """All is free, most of it in fastbins, and a trim would return next to nothing: nothing pins it, and the reason is said."""
    process = stage.start("left", "8", "60000", env=MANY_ARENAS)
    data = report(process.target(kind))["data"]
    totals = data["totals"]["glibc"]
    assert totals["fast_bytes"] >= process.words()[0] > 45 * MIB and totals["reclaimable_bytes"] < MIB
    verdict = data["verdict"]
    assert (verdict["kind"], verdict["code"], verdict["sure"]) == ("kept", "arenas-left-behind", "certain")
    assert all(words in verdict["lines"][0]["hint"] for words in ("never returns the end of a thread arena", "glibc.malloc.mxfast=0"))
    assert "fastbins" in lines(data) and "free-between-blocks" not in lines(data)
    assert "pins" not in [step["command"] for step in data["next"]] and "trim --dry-run" not in [step["command"] for step in data["next"]]


@pytest.mark.parametrize("name, arguments", [("left", ["8", "60000"]), ("leaker", []), ("recorder", ["9", "20000", "3"])])
def test_a_core_that_was_cut(stage: Stage, core: str, tmp_path: Path, name: str, arguments: List[str]) -> None:
    """Wherever it ends: the verdict is that on the whole core, less sure, or there is none. No share of what is not known."""
    process = stage.start(name, *arguments, env=MANY_ARENAS)
    target = process.target(core)
    path = Path(target[-1])
    whole = report(target)["data"]["verdict"]
    size = path.stat().st_size
    data = path.read_bytes()
    kinds = set()
    for part in (0.1, 0.4, 0.7, 0.95, 1 - 4096 / size):
        cut = tmp_path / "cut.core"
        cut.write_bytes(data[: int(size * part)])
        outcome = heapx(["--core", str(cut)], "report", "--no-deep", "--json")
        assert outcome.code in (1, 4), "it is not whole"
        if outcome.code == 1:
            continue
        found = outcome.envelope["data"]["verdict"]
        kinds.add(found["kind"])
        assert found["kind"] in (whole["kind"], "inconclusive"), (part, found)
        if found["kind"] == "inconclusive":
            assert not any("%" in line["evidence"] for line in found["lines"] if line["code"] == "evidence-missing" and not line["evidence"].endswith("missing"))
    assert "inconclusive" in kinds


@pytest.mark.parametrize("env", [{}, {"LD_PRELOAD": str(jemallocs.library())}], ids=["glibc", "jemalloc"])
def test_a_core_of_gdbs_that_was_cut(stage: Stage, live: str, tmp_path: Path, env: Dict[str, str]) -> None:
    """Its notes are its end: without them nobody knows what was loaded. Memory that nobody claims is then not called another's, nor the heap
    of an allocator that was never used the process's."""
    path = gcores.gcore(stage.start("leaker", env=env))
    whole, data = report(["--core", str(path)])["data"]["verdict"], path.read_bytes()
    kinds = set()
    for part in (0.3, 0.8, 0.95, 0.99, 1 - 4096 / len(data)):
        cut = tmp_path / "cut.core"
        cut.write_bytes(data[: int(len(data) * part)])
        found = report(["--core", str(cut)])
        verdict = found["data"]["verdict"]
        kinds.add(verdict["kind"])
        assert verdict["kind"] in (whole["kind"], "inconclusive"), (part, verdict)
        if verdict["kind"] == "inconclusive" or verdict["sure"] != "certain":
            assert True not in [one["owns_malloc"] for one in found["allocators"]] and found["data"]["next"]
        else:  # it lacks notes alone
            assert verdict["evidence"] == whole["evidence"] and found["partial"]
    assert "inconclusive" in kinds


POOL = Path("/proc/sys/vm/nr_hugepages")


@pytest.fixture
def huge_pages() -> Iterator[None]:
    """60 pages of hugetlbfs, given back at the end."""
    before = POOL.read_text() if POOL.exists() else ""
    if not before or not os.access(POOL, os.W_OK):
        pytest.skip("no right to reserve pages of hugetlbfs (vm.nr_hugepages)")
    POOL.write_text(str(int(before) + 60))
    try:
        if int(POOL.read_text()) < int(before) + 60:
            pytest.skip("this machine has no 60 huge pages to reserve now")
        yield
    finally:
        POOL.write_text(before)


def test_pages_of_hugetlbfs_are_memory_that_no_trim_returns(stage: Stage, live: str, huge_pages: None) -> None:
    """They are in no RSS, and what is free in them is there all the same; the prediction is kept by the call: nothing."""
    process = stage.start("trimmer", "main", env={"GLIBC_TUNABLES": "glibc.malloc.hugetlb=2"})
    target = process.target(live)
    data = report(target)["data"]
    if not data["memory"]["hugetlb_bytes"]:
        pytest.skip("this libc takes no pages of hugetlbfs (before 2.35)")
    totals = data["totals"]["glibc"]
    assert data["memory"]["hugetlb_bytes"] >= totals["system_bytes"] > 16 * MIB and totals["free_bytes"] > 8 * MIB
    assert totals["reclaimable_bytes"] == 0 and "hugetlb-pages" in lines(data)
    assert (data["verdict"]["kind"], data["verdict"]["sure"]) == ("kept", "certain")
    assert heapx(target, "trim", "--dry-run", "--json").data["predicted_bytes"] == 0
    done = heapx(target, "trim", "--yes", "--json").data
    assert abs(done["anonymous_diff_bytes"]) < MIB
    assert report(target)["data"]["memory"]["hugetlb_bytes"] == data["memory"]["hugetlb_bytes"]
