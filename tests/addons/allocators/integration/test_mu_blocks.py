"""Against a program that records its own blocks: musl's malloc by its structure, shared, static and stripped, live and on cores."""

from typing import Any, Dict, List

import pytest

from gdbheapx.addons.allocators.musl.records import TRAILER_BYTES
from tests.support.hidden import hidden
from tests.support.musls import WAYS, recorded, start
from tests.support.processes import Lasting, Process, Stage
from tests.support.tool import heapx, told

pytestmark = [pytest.mark.image, pytest.mark.first]  # the musl of the release

ASKED = ("arenas", "chunks", "chunks --histogram", "bins", "check")
BOTH = [(kind, way) for kind in ("live", "core") for way in WAYS]


def recorder(stage: Stage, way: str) -> Process:
    """Six threads' blocks of 1 byte to 4 MB, 2 % of them aligned up to 2 MiB; two more threads have ended."""
    return start(stage, "mu_recorder", way, "6", "1500", "3")


def answers(lasting: Lasting, kind: str, way: str, *commands: str) -> List[Any]:
    """What these commands say, whole answers."""
    process = lasting.of(kind, recorder, way)
    for envelope in told(process, kind, *ASKED):
        assert envelope["partial"] is False, envelope["problems"]
        (info,) = envelope["allocators"]
        owns = None if kind == "core" and way == "shared" and hidden("libraries", "whose `malloc` is called stands in the library") else True
        assert (info["id"], info["owns_malloc"], info["address_source"]) == ("musl", owns, "probe")
    return [process.told[command]["data"] for command in commands]


@pytest.mark.parametrize("kind, way", BOTH, indirect=["kind"])
def test_every_recorded_block_with_what_was_asked_for(lasting: Lasting, kind: str, way: str) -> None:
    """Address and size of each block in use are exact, and there is no other."""
    (listed,) = answers(lasting, kind, way, "chunks")
    used = {int(chunk["address"], 16): chunk["usable_bytes"] for chunk in listed["chunks"] if chunk["status"] == "used"}
    truth = recorded(lasting.of(kind, recorder, way))
    assert len(truth) > 3000 and {at: used.get(at) for at in truth} == truth
    assert len(set(used) - set(truth)) < 10  # stdio's and the like


@pytest.mark.parametrize("kind, way", BOTH, indirect=["kind"])
def test_identity_and_sums(lasting: Lasting, kind: str, way: str) -> None:
    """system by mappings equals the parts by slots, and these equal the listing, the size classes and the histogram: what was asked for by
    the headers of blocks, and the slots around it by the masks."""
    arenas, listed, histogram, bins, check = answers(lasting, kind, way, *ASKED)
    (row,) = arenas["arenas"]
    assert row["system_bytes"] == row["used_bytes"] + row["free_bytes"] + row["overhead_bytes"] and row["unparsed_bytes"] == 0
    for status, blocks in (("used", "used_blocks"), ("free", "free_slots")):
        own = [chunk["usable_bytes"] for chunk in listed["chunks"] if chunk["status"] == status]
        rows = bins["bins"]
        assert (len(own), sum(own)) == (row[blocks], sum(one[status + "_bytes"] for one in rows))
        beside = sum(one["slack_bytes"] - TRAILER_BYTES * one["used_slots"] for one in rows) if status == "used" else 0
        assert sum(own) + beside == row[status + "_bytes"]
        assert sum(one[status + "_bytes"] for one in histogram["histogram"]) == row[status + "_bytes"]
        assert sum(one[status + "_slots"] for one in rows) == row[blocks]
    assert check["findings"] == []


@pytest.mark.parametrize("kind", ["live", "core"], indirect=True)
def test_threads_that_allocate_all_the_time(stage: Stage, kind: str) -> None:
    """A look at four busy threads is whole, or says that a thread is in the middle of a change; what is recorded is there in any case."""
    process = start(stage, "mu_recorder", "shared", "5", "400", "2", "busy")
    truth: Dict[int, int] = recorded(process)
    for _ in range(4 if kind == "live" else 1):
        envelope = heapx(process.target(kind), "chunks", "--json").envelope
        assert {problem["code"] for problem in envelope["problems"]} <= {"slot-changing", "class-usage-mismatch"}, envelope["problems"]
        used = {int(chunk["address"], 16): chunk["usable_bytes"] for chunk in envelope["data"]["chunks"] if chunk["status"] == "used"}
        assert {at: used.get(at) for at in truth} == truth
