"""Extents of memory that a program's hooks can never return, which jemalloc keeps apart after 5.3.1: a state of their own everywhere.

The builds are those that GDBHEAPX_JEMALLOCS names; none is on any system.
"""

from typing import Any, Dict, List

import pytest

from tests.support.jemalloc_record import read
from tests.support.jemallocs import BUILDS, has_stats, start, version
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx, told

pytestmark = pytest.mark.once  # these libraries come from nowhere but the environment

NEWER = [way for way in BUILDS if version(way) > (5, 3, 1) and has_stats(way)] or [pytest.param("", marks=pytest.mark.skip(reason="GDBHEAPX_JEMALLOCS names no jemalloc after 5.3.1 that counts"))]
ASKED = ("arenas", "chunks", "bins", "check", "malloc-stats --allocator jemalloc")


def pinned(stage: Stage, way: str) -> Process:
    """An arena of the program's own with hooks, of whose mappings each second one is pinned."""
    return start(stage, way, "pinned")


@pytest.mark.parametrize("way", NEWER)
def test_a_state_of_their_own(lasting: Lasting, kind: str, way: str) -> None:
    """Pinned bytes are jemalloc's own figure in every command; they are in `mapped`, and a purge is not said to reach them."""
    process = lasting.of(kind, pinned, way)
    record = read(process)
    index, pinned_bytes, dirty_pages, mapped_bytes = record.words[:4]
    arenas, chunks, bins, check, stats = told(process, kind, *ASKED)
    assert not any(answer["partial"] for answer in (arenas, chunks, bins, check, stats)), arenas["problems"]
    (row,) = [row for row in arenas["data"]["arenas"] if row["allocator"] == "jemalloc" and row["index"] == index]
    assert pinned_bytes and (row["pinned_bytes"], row["dirty_bytes"]) == (pinned_bytes, 4096 * dirty_pages)
    assert row["reclaimable_bytes"] == row["dirty_bytes"] + row["muzzy_bytes"]
    assert row["mapped_bytes"] == mapped_bytes
    own: List[Dict[str, Any]] = [chunk for chunk in chunks["data"]["chunks"] if chunk["allocator"] == "jemalloc" and chunk["arena"] == index]
    assert sum(chunk["size_bytes"] for chunk in own if chunk["status"] == "pinned") == pinned_bytes
    used = {int(chunk["address"], 16): chunk for chunk in own if chunk["status"] == "used"}
    assert {address: block.usable for address, block in record.live.items()} == {
        address: used[address]["usable_bytes"] for address in record.live if address in used
    }
    assert not set(record.freed) & set(used)
    assert sum(one["bytes"] for one in bins["data"]["bins"] if one["kind"] == "pinned") == pinned_bytes
    assert check["data"]["findings"] == []
    entry = stats["data"]["jemalloc"]["stats.arenas"][str(index)]
    assert entry["pinned"] == pinned_bytes == sum(one["pinned_bytes"] for one in entry["extents"])


@pytest.mark.parametrize("way", NEWER[:1])
def test_where_an_address_lies(stage: Stage, kind: str, way: str) -> None:
    """`whatis` names the state, and the filter of `chunks` knows it."""
    process = pinned(stage, way)
    target = process.target(kind)
    listed = heapx(target, "chunks", "--status", "pinned", "--json").data["chunks"]
    assert listed and {chunk["status"] for chunk in listed} == {"pinned"}
    found = heapx(target, "whatis", listed[0]["address"], "--json").data
    assert '"pinned"' in str(found).replace("'", '"')
