"""Against a program that records its own blocks: jemalloc's listing says of each what became of it.

Files: jemalloc/arenas.py, jemalloc/extents.py.
"""

import os
import re
from collections import Counter, defaultdict
from typing import Any, Dict, List

import pytest

from tests.support.hidden import hidden
from tests.support.jemalloc_record import read
from tests.support.jemallocs import EVERY_PAIR, UNKNOWN_LAYOUT, has_stats, start
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx, told

pytestmark = [pytest.mark.image, pytest.mark.first]  # where its libjemalloc puts blocks

CONFS = ("narenas:1", "tcache:false", "percpu_arena:percpu", "retain:false", "dirty_decay_ms:0", "oversize_threshold:0", "background_thread:true")
"""What changes where blocks lie; with the library that every system has."""


def recorder(stage: Stage, way: str, conf: str = "") -> Process:
    """Four threads' blocks of every class, at rest while jemalloc's own figures are as printed."""
    return start(stage, way, "recorder", "park", "4", "4", conf=conf)


ASKED = ("chunks", "arenas", "bins", "tcache", "chunks --histogram --allocator jemalloc", "pins --no-owners --allocator jemalloc")
"""What the tests ask of each process, at once."""


def listing(envelope: Dict[str, Any]) -> List[Dict[str, Any]]:
    """jemalloc's entries of a `chunks` answer, which must be whole."""
    assert envelope["partial"] is False, envelope["problems"]
    return [chunk for chunk in envelope["data"]["chunks"] if chunk["allocator"].startswith("jemalloc")]


def blocks_by_address(chunks: List[Dict[str, Any]]) -> Dict[int, Dict[str, Any]]:
    """What malloc handed out: address -> entry; none is listed twice."""
    taken = [chunk for chunk in chunks if chunk["status"] in ("used", "cached")]
    by_address = {int(chunk["address"], 16): chunk for chunk in taken}
    assert len(by_address) == len(taken), "an address is listed twice: %s" % Counter(chunk["address"] for chunk in taken).most_common(3)
    return by_address


@pytest.mark.parametrize("kind, way", EVERY_PAIR, indirect=["kind"])
def test_every_recorded_block(lasting: Lasting, kind: str, way: str) -> None:
    """Each live block is `used`, each that a thread's or an explicit cache holds `cached`, with its usable size and arena; no freed one is either."""
    check_blocks(lasting.of(kind, recorder, way), kind)


@pytest.mark.parametrize("conf", CONFS)
def test_every_recorded_block_however_it_is_set(lasting: Lasting, core: str, conf: str) -> None:
    """The same with one arena, one for each CPU, without caches, without retained pages and more."""
    late = os.cpu_count() or 1 if "background_thread:true" in conf else 0
    check_blocks(lasting.of(core, recorder, "preload", conf), core, "tcache:false" not in conf, late)


def check_blocks(process: Process, kind: str, caches: bool = True, late: int = 0) -> None:
    """Compare the listing with the record. `late`: threads that jemalloc may start after it, with a block each for thread-local storage."""
    record = read(process)
    assert len(record.live) > 3000 and len(record.freed) > 1000
    assert len(record.cached) > (300 if caches else 10)  # an explicit cache is one even where threads have none
    envelope = told(process, kind, *ASKED)[0]
    found = blocks_by_address(listing(envelope))
    for status, recorded in (("used", record.live), ("cached", record.cached)):
        wrong = [(block, found.get(address)) for address, block in recorded.items() if found.get(address, {}).get("status") != status]
        if status == "cached" and any(one["version"].startswith("5.3.1") for one in envelope["allocators"] if one["name"] == "jemalloc"):
            assert len(wrong) < len(recorded) // 10  # its caches are flushed by the clock too, so a slow machine flushes some after the record
            wrong = [one for one in wrong if (one[1] or {}).get("status") == "used"]
        assert not wrong, "%d of %d blocks are not %s: %s" % (len(wrong), len(recorded), status, wrong[:3])
        recorded = {address: block for address, block in recorded.items() if address in found}  # but for those flushed ones
        sizes = [(block, found[address]) for address, block in recorded.items() if found[address]["usable_bytes"] != block.usable]
        assert not sizes, "%d of %d have another usable size: %s" % (len(sizes), len(recorded), sizes[:3])
        arenas = [(block, found[address]) for address, block in recorded.items() if block.arena not in (None, found[address]["arena"])]
        assert not arenas, "%d of %d are in another arena: %s" % (len(arenas), len(recorded), arenas[:3])
    assert all(chunk["size_bytes"] == chunk["usable_bytes"] and chunk["chunk"] is None for chunk in found.values())
    wrong = [(block, found[address]) for address, block in record.freed.items() if address in found and address != record.print_buffer]
    assert len(wrong) <= late, "%d of %d freed blocks are not free: %s" % (len(wrong), len(record.freed), wrong[:3])


@pytest.mark.parametrize("kind, way", EVERY_PAIR, indirect=["kind"])
def test_sums(lasting: Lasting, kind: str, way: str) -> None:
    """Per arena, the listing adds up to the columns of `arenas`, those to the totals, and `bins`, `tcache` and the histogram say the same."""
    check_sums(lasting.of(kind, recorder, way), kind, has_stats(way))


@pytest.mark.parametrize("conf", CONFS)
def test_sums_however_it_is_set(lasting: Lasting, core: str, conf: str) -> None:
    """The same with one arena, one for each CPU, without caches, without retained pages and more."""
    check_sums(lasting.of(core, recorder, "preload", conf), core, counted=True)


def check_sums(process: Process, kind: str, counted: bool) -> None:
    """Compare the commands with each other; what only counters tell is null in a build that keeps none."""
    chunks, arenas, bins, tcache, histogram, pins = told(process, kind, *ASKED)
    sums = defaultdict(int)  # type: dict[tuple[int, str], int]
    counts = Counter()  # type: dict[str, int]
    for chunk in listing(chunks):
        sums[chunk["arena"], chunk["status"]] += chunk["size_bytes"]
        counts[chunk["status"]] += 1
    rows = [row for row in arenas["data"]["arenas"] if row["allocator"] == "jemalloc"]
    assert len(rows) >= 4 and [row["index"] for row in rows] == sorted(row["index"] for row in rows)
    for row in rows:
        for status in ("used", "cached", "dirty", "muzzy", "retained"):
            assert row[status + "_bytes"] == sums[row["index"], status], (row["index"], status)
        assert row["allocated_bytes"] == row["used_bytes"] + row["cached_bytes"]
        assert row["allocated_bytes"] <= row["active_bytes"]
        assert row["active_bytes"] <= row["mapped_bytes"] if counted else row["metadata_bytes"] is None
        assert row["reclaimable_bytes"] == row["dirty_bytes"] + row["muzzy_bytes"]
    assert {chunk["arena"] for chunk in listing(chunks)} <= {row["index"] for row in rows}
    totals = arenas["data"]["totals"]["jemalloc"]
    for column in ("allocated_bytes", "active_bytes", "retained_bytes", "cached_bytes", "used_bytes"):
        assert totals[column] == sum(row[column] for row in rows), column
    for column in ("metadata_bytes", "resident_bytes"):
        assert totals[column] == (sum(row[column] for row in rows) if counted else None), column
    held = [thread for thread in tcache["data"]["threads"] if thread["allocator"] == "jemalloc"]
    for thread in held:
        assert (sum(row["chunks"] for row in thread["bins"]), sum(row["bytes"] for row in thread["bins"])) == (thread["chunks"], thread["bytes"])
    assert sum(thread["bytes"] for thread in held) == totals["cached_bytes"]
    used = histogram["data"]["histogram"]
    assert sum(row["used_chunks"] for row in used) == counts["used"] and sum(row["tcache_chunks"] for row in used) == counts["cached"]
    assert sum(row["used_bytes"] for row in used) == totals["used_bytes"] and sum(row["tcache_bytes"] for row in used if "tcache_bytes" in row) in (0, totals["cached_bytes"])
    assert bins["partial"] is False and any(row["allocator"] == "jemalloc" for row in bins["data"]["bins"])
    kept = pins["data"]["sums"][0]
    assert kept["difference_bytes"] == 0 and kept["kept_bytes"] == sum(size for (_, status), size in sums.items() if status == "free")


def test_filters_choose_from_the_full_list(lasting: Lasting, kind: str) -> None:
    """--arena, --status, --min-size and --max-size choose exactly the entries that a reader would pick."""
    target = lasting.of(kind, recorder, "preload").target(kind)
    full = heapx(target, "chunks", "--json", "--allocator", "jemalloc").data["chunks"]

    def pick(*options: str) -> List[Dict[str, Any]]:
        return list(heapx(target, "chunks", "--json", "--allocator", "jemalloc", *options).data["chunks"])

    some = sorted({chunk["arena"] for chunk in full})[1]
    assert pick("--arena", str(some)) == [chunk for chunk in full if chunk["arena"] == some]
    assert pick("--status", "cached", "--status", "dirty") == [chunk for chunk in full if chunk["status"] in ("cached", "dirty")]
    assert pick("--status", "used", "--min-size", "5000", "--max-size", "100000") == [
        chunk for chunk in full if chunk["status"] == "used" and 5000 <= chunk["size_bytes"] <= 100000
    ]


def test_a_build_with_symbols_alone(stage: Stage, kind: str) -> None:
    """tikv-jemallocator 0.7 as it is shipped, 5.3.1 with another tsd_s than Debian's: read by the layout that its arenas have."""
    target = start(stage, UNKNOWN_LAYOUT.name, "recorder", "park", "2", "1").target(kind)
    envelope = heapx(target, "arenas", "--json").envelope
    (info,) = [one for one in envelope["allocators"] if one["name"] == "jemalloc"]
    assert info["layout"] == "table" and not envelope["partial"]
    if hidden("symbols", "it is read by its structure, which does not tell the release that it says it is"):
        assert info["address_source"] == "probe" and info["version"] in ("5.3.1", None)
    else:
        assert (info["address_source"], info["version"]) == ("symbol", "5.3.1")
    assert heapx(target, "tcache", "--json").data["threads"]
    assert re.search("the layout of 5.3.1 stats fits(,| its arenas)", heapx(target, "doctor").stdout.decode())
