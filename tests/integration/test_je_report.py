"""The report tells what jemalloc's memory is, who can give it back and what to do; doctor how each jemalloc was recognised, or why not."""

import re
from typing import Any, Dict, Iterator, List

import pytest

from tests.support.jemallocs import forget_bases, has_stats, has_ticker_bug, pairs, start, unknown_library, version
from tests.support.processes import Process, Stage
from tests.support.sums import check_sums
from tests.support.tool import Outcome, heapx, steps_of

pytestmark = pytest.mark.once  # what the tool makes of figures that test_je_accounts holds

FEW_WAYS = ("preload", "rust-0.4", "rust-0.6")
"""With the fault and without, with counters and without, by a pack and by another build's layout."""


def report(process: Process, kind: str) -> Outcome:
    """`report --json`, whole."""
    outcome = heapx(process.target(kind), "report", "--json")
    assert outcome.code == 0, outcome.envelope["problems"]
    return outcome


def sentences(data: Dict[str, Any]) -> List[str]:
    """Verdict and findings as a reader sees them."""
    return [line["what"] for line in data["verdict"]["lines"] + data["findings"]]


def check_parts(data: Dict[str, Any]) -> Dict[str, int]:
    """What jemalloc holds adds up to its own totals, to the byte; returned by name."""
    totals = data["totals"]["jemalloc"]
    parts = {part["name"]: part["bytes"] for part in data["held"]["jemalloc"]}
    assert len(parts) == 7
    known = totals["active_bytes"] + totals["dirty_bytes"] + totals["muzzy_bytes"] + (totals["metadata_bytes"] or 0)
    assert sum(size or 0 for size in parts.values()) == known
    assert parts["in use by the program"] == totals["used_bytes"]
    assert parts["jemalloc's metadata"] == totals["metadata_bytes"]
    return parts


def check_split(data: Dict[str, Any]) -> Dict[str, Any]:
    """The parts of the process add up, and each allocator's share is in it; their sums are returned."""
    check_sums(data)
    return data["memory"]  # type: ignore[no-any-return]


def test_a_leak(stage: Stage, kind: str) -> None:
    """Blocks that nobody frees: in use, and their size class is the first."""
    process = start(stage, "preload", "shapes", "leak")
    data = report(process, kind).data
    assert data["verdict"]["kind"] == "in-use"
    assert check_parts(data)["in use by the program"] >= 40 << 20
    assert check_split(data)["allocators"]["jemalloc"] >= 40 << 20
    assert data["sizes"][0]["size_bytes"] == 384, "340 bytes take a region of 384"
    assert any("chunks --histogram" in step for step in steps_of(data))
    text = heapx(process.target(kind), "report").stdout.decode()
    assert "In use: " in text and "What jemalloc holds" in text


def test_fragmentation(stage: Stage, kind: str) -> None:
    """Slabs of which one region in twenty is used: fragmented, with the class that holds most; a purge is not promised to help."""
    data = report(start(stage, "preload", "shapes", "fragment"), kind).data
    assert data["verdict"]["kind"] == "fragmented"
    assert check_parts(data)["free regions in slabs"] > 40 << 20
    assert "regions of 224 bytes" in data["verdict"]["lines"][0]["hint"]
    assert not any("purge" in step for step in steps_of(data))


def test_a_page_more_for_each_large_block(stage: Stage, kind: str) -> None:
    """What large blocks are rounded up by is no memory that jemalloc keeps: a cache of them is in use, and the page is named with its end."""
    data = report(start(stage, "preload", "shapes", "round"), kind).data
    check_split(data)
    present = {part["name"]: part["present_bytes"] for part in data["held"]["jemalloc"]}
    assert data["verdict"]["kind"] == "in-use" and 10 << 20 < present["rounding to pages"] < 13 << 20
    (line,) = [line for line in data["findings"] if line["code"] == "large-blocks-rounding"]
    way = "cache_oblivious:false" if version("preload") >= (5, 3, 1) else "--disable-cache-oblivious"
    assert way in line["hint"]


def test_sampled_blocks_that_are_in_use(stage: Stage, kind: str) -> None:
    """With heap profiling each sampled block has two pages of its own, of which the second was never touched: it counts nowhere."""
    data = report(start(stage, "preload", "shapes", "leak", conf="prof:true,lg_prof_sample:12"), kind).data
    check_split(data)
    parts = {part["name"]: part for part in data["held"]["jemalloc"]}
    sampled = parts["rounding of sampled blocks"]
    assert parts["in use by the program"]["present_bytes"] > 40 << 20, "every block was written"
    assert sampled["bytes"] - sampled["present_bytes"] > 30 << 20 and data["verdict"]["kind"] == "in-use"


def dirty_pages(counters: Any, in_shard: bool) -> Iterator[int]:
    """jemalloc's own counters of them: 5.3.1 has sums of these tables beside them."""
    rows = counters.items() if isinstance(counters, dict) else enumerate(counters) if isinstance(counters, list) else ()
    for key, value in rows:
        if in_shard and str(key).startswith("ndirty_"):
            yield value
        else:
            yield from dirty_pages(value, in_shard or key in ("full_slabs", "empty_slabs", "nonfull_slabs"))


def test_dirty_pages_in_huge_pages(stage: Stage, kind: str) -> None:
    """What the huge page allocator keeps is jemalloc's, by its own counter; no purge reaches it, and what bounds it is said."""
    if version("preload") < (5, 3, 0):
        pytest.skip("this jemalloc has no huge page allocator")
    process = start(stage, "preload", "shapes", "freed", conf="hpa:true,hpa_dirty_mult:-1")
    data = report(process, kind).data
    split, totals = check_split(data), data["totals"]["jemalloc"]
    assert totals["huge_dirty_bytes"] > 32 << 20 and split["anonymous_bytes"] < 4 << 20
    assert (data["verdict"]["kind"], data["verdict"]["code"]) == ("kept", "unused-pages")
    assert "opt.hpa_dirty_mult is -1" in data["verdict"]["lines"][0]["hint"] and "hpa_dirty_mult:0.25" in str(steps_of(data))
    foreseen = heapx(process.target(kind), "purge", "--dry-run", "--json").data["arenas"]
    assert sum(row["huge_dirty_bytes"] for row in foreseen) == totals["huge_dirty_bytes"]
    last = heapx(process.target(kind), "purge", "--dry-run").stdout.decode().strip().split("\n")[-1]
    assert "no purge reaches them; any number of them may stay: opt.hpa_dirty_mult is -1" in last
    counters = heapx(process.target(kind), "malloc-stats", "--json").data
    assert totals["huge_dirty_bytes"] == 4096 * sum(dirty_pages(counters, False))


def test_purging_switched_off(stage: Stage, kind: str) -> None:
    """With dirty_decay_ms -1 freed pages stay: hoarding, for that reason and with the cure of it; the figure is the arenas'."""
    process = start(stage, "preload", "tickers", "200", "healthy", conf="dirty_decay_ms:-1")
    data = report(process, kind).data
    assert data["verdict"]["kind"] == "kept"
    dirty = check_parts(data)["dirty pages"]
    assert dirty > 64 << 20 and dirty == sum(row["dirty_bytes"] for row in data["arenas"] if row["allocator"] == "jemalloc")
    assert [text for text in sentences(data) if "dirty_decay_ms is -1" in text]
    assert not [text for text in sentences(data) if "blind" in text], "pages stay for another reason"
    assert any("dirty_decay_ms:10000" in step for step in steps_of(data))
    if kind == "live":
        assert data["totals"]["jemalloc"]["reclaimable_resident_bytes"] > 64 << 20


@pytest.mark.parametrize("kind, way", pairs(FEW_WAYS), indirect=["kind"])
def test_blind_threads_are_counted_in_one_sentence(stage: Stage, kind: str, way: str) -> None:
    """Where the fault struck the report says so with the number of threads and the bytes; elsewhere the word is not used."""
    process = start(stage, way, "tickers", "600", "healthy", "frees-first", "frees-first", conf="dirty_decay_ms:300")
    data = report(process, kind).data
    blind = [finding for finding in data["findings"] if "blind" in finding["what"]]
    check_parts(data)
    if not has_ticker_bug(way):
        assert not blind
        return
    assert len(blind) == 1 and blind[0]["what"].startswith("2 threads are blind")
    assert re.search(r"arenas? [\d, ]+ holds? [\d.]+ MiB of unused pages", blind[0]["evidence"])
    others = [one for one in data["findings"] if one not in data["verdict"]["lines"]]
    assert others[0] == blind[0], "it comes first behind the verdict"
    assert any(step.startswith("tickers") for step in steps_of(data))
    assert data["verdict"]["kind"] == "kept"


@pytest.mark.parametrize("kind, way", pairs(FEW_WAYS), indirect=["kind"])
def test_settings_are_named_as_the_build_has_them(stage: Stage, kind: str, way: str) -> None:
    """Calls and environment variables carry the build's own prefix; a build without counters is said to be one."""
    data = report(start(stage, way, "tickers", "10", "healthy", conf="dirty_decay_ms:-1"), kind).data
    steps = " ".join(steps_of(data))
    mine, other = ("_rjem_mallctl(", "_RJEM_MALLOC_CONF=") if way.startswith("rust") else (" mallctl(", " MALLOC_CONF=")
    assert mine in " " + steps and other in " " + steps
    assert any("no statistics" in text for text in sentences(data)) == (not has_stats(way))


def test_a_jemalloc_that_cannot_be_read(stage: Stage, kind: str) -> None:
    """Without names and with arenas that no known layout has there is no verdict, no figure of another allocator in its place, and the way
    to get one."""
    copy = unknown_library(stage.folder())
    process = stage.start("je_shapes", "leak", env={"LD_PRELOAD": str(copy)}, flags=["-Wl,--no-as-needed", "-ldl"])
    forget_bases(process)
    outcome = heapx(process.target(kind), "report", "--json")
    assert outcome.code == 4, "the owner of malloc is not read"
    data = outcome.envelope["data"]
    assert data["verdict"]["kind"] == "inconclusive" and "jemalloc" in data["verdict"]["evidence"]
    assert any("--debug-dir" in step or "debuginfod-find" in step for step in steps_of(data))
    rows = heapx(process.target(kind), "doctor", "--json").data["checks"]
    (row,) = [row for row in rows if row["what"] == "jemalloc"]
    assert row["ok"] is False and str(copy) in row["found"] and "bundled packs" in row["found"] and "it owns malloc" in row["found"]
    assert "no known layout fits its arenas" in row["found"]
    assert re.search(r"build-id [0-9a-f]{40}", row["found"]) and "debuginfod-find debuginfo" in row["hint"]
    text = heapx(process.target(kind), "doctor").stdout.decode()
    assert text.count("build-id " + re.findall(r"build-id ([0-9a-f]{40})", row["found"])[0]) == 1, "named once"
