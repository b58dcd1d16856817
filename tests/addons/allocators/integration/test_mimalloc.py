"""mimalloc, read by its structures alone: every block against what the program itself recorded, live and on a core."""

import json
from bisect import bisect_right
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from gdbheapx import kernel as kernels
from gdbheapx.addons.allocators.mimalloc import heap
from gdbheapx.common.budget import Budget
from tests.support.damaged_mimalloc import DamagedMimalloc
from tests.support.heap_contexts import heap_context
from tests.support.mimallocs import LACKING, adds_up, libraries, library, recorded, recorder, unread
from tests.support.processes import Stage
from tests.support.tool import alone, heapx

pytestmark = [pytest.mark.image, pytest.mark.first]  # this system's libmimalloc

LIBRARIES = libraries() or [None]
MB = 1 << 20
OTHERS = 16
"""Blocks of the C library: a stack of the dynamic linker for each thread, and the like."""


@pytest.fixture(params=LIBRARIES, ids=lambda path: "none" if path is None else path.name)
def path(request: pytest.FixtureRequest) -> Path:
    if request.param is None:
        pytest.skip(LACKING)
    found: Path = request.param
    return found


def own(data: Any, key: str) -> List[Dict[str, Any]]:
    return [row for row in data[key] if row["allocator"] == "mimalloc"]


@pytest.mark.parametrize("newer", unread() or [None], ids=lambda path: "none" if path is None else path.name)
def test_a_release_that_is_not_read_is_named(stage: Stage, kind: str, newer: Optional[Path]) -> None:
    """3.6 keeps its pages in another way: the answer is partial, and has nothing of that mimalloc."""
    if newer is None:
        pytest.skip("no libmimalloc of a release that is not read")
    told = alone(recorder(stage, newer).target(kind), "arenas", "--json")
    assert told.code == 4 and [one["code"] for one in told.envelope["problems"]] == ["allocator-unread"]
    assert not own(told.envelope["data"], "arenas")


def test_every_block_is_told(stage: Stage, kind: str, path: Path) -> None:
    """Each recorded block is in use and begins where the allocator's does, or, aligned, inside it; its usable size ends where that ends."""
    process = recorder(stage, path)
    target, truth = process.target(kind), recorded(process)
    chunks = alone(target, "chunks", "--allocator", "mimalloc", "--json").data["chunks"]
    used = {int(row["address"], 0): row["usable_bytes"] for row in chunks if row["status"] == "used"}
    starts, inside = sorted(used), 0
    is_padded = "secure" in path.name or "debug" in path.name  # what was asked for may be less than its block has room for
    for address, usable in truth.items():
        start = starts[bisect_right(starts, address) - 1]
        assert start == address or start < address < start + used[start], hex(address)
        left = start + used[start] - address - usable
        assert left == 0 or (is_padded and left > 0), hex(address)
        inside += start != address
    assert inside <= len(truth) // 50 and 0 <= len(used) - len(truth) <= OTHERS
    arenas = alone(target, "arenas", "--allocator", "mimalloc", "--json").data["arenas"]
    adds_up(arenas)
    assert sum(row["used_blocks"] for row in arenas) == len(used) and not any(row["unparsed_bytes"] for row in arenas)
    assert sum(row["used_bytes"] for row in arenas) == sum(used.values())
    by_status = [sum(row["usable_bytes"] for row in chunks if row["status"] == status) for status in ("free", "remote-free", "reserve", "span")]
    if not is_padded:
        assert by_status == [sum(row["%s_bytes" % part] for row in arenas) for part in ("free", "remote_free", "reserve", "span")]
    bins = alone(target, "bins", "--allocator", "mimalloc", "--json").data["bins"]
    for name in ("pages", "used_blocks", "used_bytes", "free_blocks", "remote_free_bytes", "reserve_bytes"):
        assert sum(row[name] for row in bins) == sum(row[name] for row in arenas), name
    assert sum(row["remote_free_blocks"] for row in arenas) > 0
    checked = alone(target, "check", "--json")
    assert (checked.code, checked.data.get("broken", [])) == (0, [])


def test_pins_keep_what_is_free(stage: Stage, kind: str, path: Path) -> None:
    """All that is free in pages is kept by a block, or waits: to the byte, in builds that have a word behind each block, too; free spans that
    are as large as blocks are not counted."""
    data = alone(recorder(stage, path).target(kind), "pins", "--no-owners", "--json").data
    (sums,) = own(data, "sums")
    assert sums["kept_bytes"] > MB and sums["difference_bytes"] == 0, sums


def test_totals_need_no_list(stage: Stage, path: Path) -> None:
    """What a process that stands still is not asked for is what its pages count: the same as their lists, page by page, and those of other
    threads' frees are followed all the same."""
    core = DamagedMimalloc(recorder(stage, path).core())
    around = heap_context(core.target, kernels.load_native_library(), Budget(None), lambda *told: None)
    counted = heap.survey_mimalloc(core.mimalloc, around, follows=False)
    assert counted.is_whole and counted.pages == core.found.pages and counted.pieces == core.found.pieces
    assert sum(page.remote for page in counted.pages) > 0 and len(counted.frees.addresses) < len(core.found.frees.addresses) // 2


def test_threads_that_work_break_nothing(stage: Stage, path: Path) -> None:
    """With four threads inside malloc and free, what adds up does, and no rule is broken for sure."""
    process = recorder(stage, path, "busy")
    for _ in range(3):
        outcome = alone(process.target("live"), "arenas", "--allocator", "mimalloc", "--json")
        adds_up(outcome.data["arenas"])
        assert all(problem["code"] == "page-changing" for problem in outcome.envelope["problems"]), outcome.envelope["problems"]


def test_owners_are_threads(stage: Stage, kind: str) -> None:
    """An arena is what one thread owns, in the order of their ids; a watch counts the same pages."""
    process = recorder(stage, library())
    rows = alone(process.target(kind), "arenas", "--allocator", "mimalloc", "--json").data["arenas"]
    threads = [row["lwp"] for row in rows if row["owner"] == "thread"]
    assert threads == sorted(threads) and process.pid in threads and len(threads) == 4
    assert [row["index"] for row in rows] == list(range(len(rows)))
    if kind == "live":
        outcome = alone(process.target(kind), "watch", "--every", "0.05", "--times", "1", "--json")
        told = next(one for one in map(json.loads, outcome.stdout.splitlines()) if one["kind"] == "sample")["allocators"]["mimalloc"]
        for name in ("pages", "free_bytes", "reserve_bytes", "span_bytes", "held_bytes"):
            assert told[name] == sum(row[name] for row in rows), name
        assert told["used_bytes"] == sum(row["used_bytes"] + row["remote_free_bytes"] for row in rows)


def test_it_has_no_thread_caches(stage: Stage, kind: str) -> None:
    """Which is said; an empty table would be a cache that is empty."""
    outcome = alone(recorder(stage, library()).target(kind), "tcache", "--allocator", "mimalloc")
    assert outcome.code == 0 and b"mimalloc has no thread caches" in outcome.stdout


def test_memory_that_waits_for_its_owner(stage: Stage, kind: str) -> None:
    """What other threads have freed of a thread that sleeps is a finding, with the thread that keeps it."""
    if library().name.endswith(".so.3"):
        pytest.skip("in release 3 a full page belongs to nobody, and who frees its last block returns it")
    process = stage.start("mi_remote", env={"LD_PRELOAD": str(library())})
    data = alone(process.target(kind), "report", "--json").data
    (found,) = [one for one in data["findings"] if one["code"] == "freed-by-other-threads"]
    rows = own(data, "arenas")
    waiting = max(rows, key=lambda row: row["remote_free_bytes"])
    assert waiting["remote_free_bytes"] >= 16 * MB and waiting["uncollected_bytes"] >= 8 * MB and waiting["lwp"] == process.words()[0]
    assert "thread %d" % waiting["lwp"] in found["evidence"] and "mi_collect" in found["hint"]


def test_what_a_collection_returns(stage: Stage, live: str, path: Path) -> None:
    """When the owner collects, what waited for it is gone, and RSS falls by what was foreseen, or by a little more where nothing is left of a
    segment. In release 3 full pages are nobody's, and who frees the last block returns the page."""
    process = stage.start("mi_remote", env={"LD_PRELOAD": str(path)})
    told = alone(process.target(live), "arenas", "--allocator", "mimalloc", "--json")
    before = told.data["arenas"]
    if next(one for one in told.envelope["allocators"] if one["name"] == "mimalloc")["version"].startswith("3"):
        assert sum(row["remote_free_bytes"] for row in before) < MB
        return
    owner = next(row for row in before if row["lwp"] == process.words()[0])
    assert owner["collectable_bytes"] >= owner["uncollected_bytes"] > 8 * MB
    rss = process.smaps_rollup("Rss")
    process.command(b"c")
    fallen = rss - process.smaps_rollup("Rss")
    assert owner["uncollected_bytes"] * 0.9 <= fallen <= owner["collectable_bytes"] + MB
    after = alone(process.target(live), "arenas", "--allocator", "mimalloc", "--json").data["arenas"]
    assert sum(row["remote_free_bytes"] for row in after if row["lwp"] == owner["lwp"]) == 0


@pytest.mark.parametrize("words", ["purge --dry-run", "purge --yes", "trim --yes"])
def test_what_returns_memory_is_said(stage: Stage, live: str, words: str) -> None:
    """Neither command does: the answer names the call of the thread itself, and the setting for the next start."""
    outcome = heapx(recorder(stage, library(), slots=50).target(live), *words.split())
    assert outcome.code == 1 and "MIMALLOC_PURGE_DELAY=0" in outcome.stderr and "gdbheapx trim" not in outcome.stderr


def test_whatis_tells_page_and_segment(stage: Stage, kind: str) -> None:
    """An address inside a block: the block, its neighbours, its page, and the segment around it, in release 3 the arena."""
    process = recorder(stage, library())
    address = sorted(recorded(process))[100]
    (place,) = alone(process.target(kind), "whatis", hex(address + 1), "--json").data["places"]
    assert int(place["block"]["address"], 0) <= address and place["block"]["status"] == "used" and place["allocator"] == "mimalloc"
    assert [part["kind"] for part in place["parts"]][:2] == ["page", "arena" if library().name.endswith(".so.3") else "segment"]


def test_a_mimalloc_beside_the_owner_of_malloc(stage: Stage, kind: str, path: Path) -> None:
    """As in a wheel: each byte of the process is counted once, and a block of one heap is held, or lost, by one of the other."""
    process = stage.start("mi_beside", str(path))
    memory = alone(process.target(kind), "report", "--json").data["memory"]
    parts = [memory[part] for part in ("allocator_bytes", "stack_bytes", "file_bytes", "anonymous_bytes", "shared_memory_bytes", "device_bytes")]
    assert sum(parts) == memory["total_bytes"] == (process.smaps_rollup("Rss") if kind == "live" else memory["total_bytes"])
    assert sum(memory["allocators"].values()) == memory["allocator_bytes"] and set(memory["allocators"]) == {"glibc", "mimalloc"}
    assert memory["allocators"]["mimalloc"] > 32 * MB > 8 * memory["allocators"]["glibc"]
    classes = alone(process.target(kind), "leaks", "--json").data["classes"]
    (roots,) = process.words()[:1]
    assert (classes["leaked"]["blocks"], classes["leaked"]["roots"]) == (2 * roots, roots)
    assert classes["maybe"]["blocks"] <= 2 or "secure" in path.name, "in no order, where one ends the next begins, which another holds"
