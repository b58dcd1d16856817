"""Memory that an allocator gave back and that is in RAM all the same is told, with what keeps it there and what to do about it."""

from pathlib import Path
from typing import Any, Dict

import pytest

from tests.support.jemallocs import start
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # residency and verdict, which no libc changes

SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
MB = 1 << 20
NO_SCAN = {"GDBHEAPX_PAGEMAP_SCAN": "0"}


@pytest.fixture(autouse=True)
def has_huge_pages() -> None:
    """A kernel that gives huge pages to who asks."""
    if not SETTING.exists() or "[never]" in SETTING.read_text():
        pytest.skip("transparent huge pages are switched off here")


def check_parts(found: Dict[str, Any], process: Process) -> None:
    """The parts of the memory add up to RSS within 1 %."""
    rss = process.smaps_rollup("Rss")
    assert abs(sum(part["resident_bytes"] or 0 for part in found["split"]) - rss) <= rss / 100


def test_retained_pages_in_ram(stage: Stage, live: str) -> None:
    """The bytes of jemalloc's retained ranges that huge pages keep in RAM: a column, a part of what it holds, the verdict, with jemalloc's own setting."""
    process = start(stage, "preload", "huge", "20000", conf="thp:always,dirty_decay_ms:0")
    found = heapx(process.target(live), "report", "--json").data
    sums, (used,) = found["totals"]["jemalloc"], process.words()
    resident = sums["retained_resident_bytes"]
    in_ram = process.smaps_rollup("Anonymous")
    assert used <= in_ram - resident <= sums["active_bytes"] + sums["metadata_bytes"] + 4 * MB, (used, in_ram, resident)
    assert resident > 10 * sums["active_bytes"], "most of each huge page was given back"
    assert sums["retained_huge_bytes"] <= sums["huge_bytes"] <= process.smaps_rollup("AnonHugePages")
    assert sums["retained_huge_bytes"] > 0.9 * resident
    verdict = found["verdict"]
    assert (verdict["kind"], verdict["code"], verdict["sure"]) == ("kept", "given-back-in-ram", "certain")
    assert found["next"][0]["command"] == "MALLOC_CONF=thp:never"
    held = {part["name"]: part["bytes"] for part in found["held"]["jemalloc"]}
    assert held["returned, but still in RAM"] == resident
    assert found["memory"]["allocators"]["jemalloc"] >= resident + used
    check_parts(found, process)
    arenas = heapx(process.target(live), "arenas", "--bytes", "--wide").stdout.decode()
    assert "returned, resident" in arenas and str(resident) in arenas.replace(",", "")


def test_the_cure_for_retained_pages(stage: Stage, live: str) -> None:
    """With the setting that is recommended nothing of that stays."""
    process = start(stage, "preload", "huge", "20000", conf="thp:never,dirty_decay_ms:0")
    found = heapx(process.target(live), "report", "--json").data
    assert found["totals"]["jemalloc"]["retained_resident_bytes"] < MB
    assert found["verdict"]["kind_1_0"] != "huge-pages"


def test_retained_pages_of_a_core_are_not_called_empty(stage: Stage, core: str) -> None:
    """A core does not tell what was in RAM: null, and the sentence says so."""
    process = start(stage, "preload", "huge", "20000", conf="thp:always,dirty_decay_ms:0")
    found = heapx(process.target(core), "report", "--json").data
    assert found["totals"]["jemalloc"]["retained_resident_bytes"] is None
    text = heapx(process.target(core), "report").stdout.decode()
    assert "not resident" not in text and "it is unknown whether" in text


@pytest.mark.parametrize("huge", [True, False], ids=["huge", "small"])
@pytest.mark.parametrize("scan", [True, False], ids=["scan", "no-scan"])
def test_what_lies_behind_a_heap(stage: Stage, live: str, huge: bool, scan: bool) -> None:
    """The end of a thread arena's heap that malloc gave back, in RAM again: to the byte, and huge pages are blamed only if there are some."""
    process = stage.start("heap_end", "24", "1" if huge else "0")
    found = heapx(process.target(live), "report", "--json", env={} if scan else NO_SCAN).data
    sums, (behind,) = found["totals"]["glibc"], process.words()
    assert sums["free_returned_resident_bytes"] == behind
    if scan and sums["free_returned_huge_bytes"] is not None:
        assert sums["free_returned_huge_bytes"] == (behind if huge else 0)
    verdict = found["verdict"]
    line = next(line for line in verdict["lines"] if line["code"] == "given-back-in-ram")
    assert line["evidence"].endswith("huge pages") == huge, line
    assert verdict["kind_1_0"] == ("huge-pages" if huge else "hoarding")
    check_parts(found, process)


def spread(stage: Stage, hugetlb: int, written: bool = False) -> Process:
    """Blocks far apart in one growth of the main arena, on huge pages or not."""
    tunables = "glibc.malloc.hugetlb=%d:glibc.malloc.top_pad=%d" % (hugetlb, 36 * MB)
    return stage.start("spread", "320", "1" if written else "0", env={"GLIBC_TUNABLES": tunables})


def test_huge_pages_without_blocks(stage: Stage, live: str) -> None:
    """What huge pages fill without a block is what RSS lacks with the setting that is recommended, within 5 %: column, verdict, next step."""
    process, cured = spread(stage, 1), spread(stage, 0)
    found = heapx(process.target(live), "report", "--json").data
    sums = found["totals"]["glibc"]
    if sums["blockless_huge_bytes"] is None:
        pytest.skip("this kernel does not tell which pages are huge")
    saved = process.smaps_rollup("Rss") - cured.smaps_rollup("Rss")
    assert saved > 16 * MB, "the kernel gives no huge pages here"
    assert abs(sums["blockless_huge_bytes"] - saved) <= saved / 20, (sums, saved)
    verdict = found["verdict"]
    assert (verdict["kind"], verdict["code"], verdict["sure"]) == ("kept", "huge-pages-without-blocks", "likely")
    assert found["next"][0]["command"] == "GLIBC_TUNABLES=glibc.malloc.hugetlb=0"
    better = heapx(cured.target(live), "report", "--json").data
    assert better["totals"]["glibc"]["blockless_huge_bytes"] == 0 and better["verdict"]["kind_1_0"] != "huge-pages"


def test_pages_that_the_program_wrote_are_not_blamed_on_huge_pages(stage: Stage, live: str) -> None:
    """They would be in RAM without huge pages as well: the column has them, and the verdict is that of free memory."""
    found = heapx(spread(stage, 1, written=True).target(live), "report", "--json").data
    if found["totals"]["glibc"]["blockless_huge_bytes"] is None:
        pytest.skip("this kernel does not tell which pages are huge")
    assert found["totals"]["glibc"]["blockless_huge_bytes"] > 16 * MB
    assert found["verdict"]["kind"] == "kept"
    assert not any(line["code"] == "huge-pages-without-blocks" for line in found["verdict"]["lines"])


def test_a_core_does_not_tell_huge_pages(stage: Stage, core: str) -> None:
    """Unknown, not 0."""
    assert heapx(spread(stage, 1).target(core), "report", "--json").data["totals"]["glibc"]["blockless_huge_bytes"] is None
