"""The report tells a hoard from a leak, and splits the memory of the process.

Files: analysis/inside.py.
"""

import pytest

from tests.support.paths import ROOT
from tests.support.processes import Stage, by_turns
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # what the tool makes of figures that test_accounts holds


def test_a_hoarding_server(stage: Stage, kind: str) -> None:
    """The demo's server, which freed the first of two waves, is said to be hoarding, and trim's share is named."""
    executable = stage.builder.build(str(ROOT / "demo" / "hoarder"))
    folder = stage.folder()
    process = stage.spawn_ready([str(executable), "serve", str(folder / "socket")], folder)
    data = heapx(process.target(kind), "report", "--json").data
    assert data["verdict"]["kind"] == "kept"
    totals = data["totals"]["glibc"]
    assert totals["reclaimable_bytes"] > 0.4 * totals["system_bytes"]
    assert "Kept: " in heapx(process.target(kind), "report").stdout.decode()


def test_what_a_leak_is(stage: Stage, kind: str) -> None:
    """Of a core and of a small process without being asked: what is in use, what nothing leads to, who keeps most of the rest."""
    process = stage.start("leaker")
    plain = heapx(process.target(kind), "report", "--json").data
    assert plain["inside"] is not None
    steps = [step["command"] for step in plain["next"] if "coredump_filter" not in step["command"]]
    assert steps[: steps.index("census") + 1] == ["leaks", "owners", "census"]
    inside = heapx(process.target(kind), "report", "--deep", "--json").data["inside"]
    census, leaks = (heapx(process.target(kind), *words, "--json").data for words in (["census"], ["leaks", "--no-weak"]))
    assert inside["classes"] == census["rows"][:5] and inside["used"] == census["used"]
    assert inside["leaked"] == {key: leaks["classes"]["leaked"][key] for key in ("blocks", "bytes")}
    owners = heapx(process.target(kind), "owners", "--json").data
    assert [inside["suspect"]] == (owners["suspects"][:1] or [None])
    text = heapx(process.target(kind), "report", "--deep").stdout.decode()
    assert "In use: " in text and text.index("Verdict") < text.index("In use: ") < text.index("Arenas")


def test_time_for_the_rest_alone(stage: Stage, core: str) -> None:
    """Where there is no time or no memory for a look at all blocks, the rest of the report stands, and says so."""
    process = stage.start("leaker")
    lacking = heapx(process.target(core), "report", "--json", env={"GDBHEAPX_MEMORY": "1"})
    assert lacking.code == 0 and lacking.data["inside"] is None and lacking.data["verdict"]["kind"] == "in-use"
    assert [one["code"] for one in lacking.envelope["problems"]] == ["no-answer"]


@by_turns("name", ["recorder", "mapper"])
def test_split_adds_up(stage: Stage, kind: str, name: str) -> None:
    """The sums add up to the whole; memory that is not malloc's is not called malloc's, and the verdict is on it."""
    process = stage.start(name, *(["9", "1000", "3"] if name == "recorder" else []))
    data = heapx(process.target(kind), "report", "--json").data_beside_own_memory
    split = data["memory"]
    parts = [split[part] for part in ("allocator_bytes", "stack_bytes", "file_bytes", "anonymous_bytes", "shared_memory_bytes", "device_bytes")]
    assert sum(parts) == split["total_bytes"]
    if name == "mapper":
        assert split["anonymous_bytes"] >= 64 << 20 and split["allocator_bytes"] < 4 << 20
        assert split["largest"][0]["bytes"] >= split["unclaimed"][0]["resident_bytes" if kind == "live" else "dumped_bytes"] >= 64 << 20
        assert (data["verdict"]["kind"], data["verdict"]["code"]) == ("in-use", "mostly-anonymous")
        assert "leak" not in " ".join(line["what"] for line in data["verdict"]["lines"]), "malloc has far less than a tenth"
        assert {"command", "why"} == set(data["next"][0])
        assert "malloc" in heapx(process.target(kind), "report").stdout.decode()


def test_tops_of_thread_arenas(stage: Stage, kind: str) -> None:
    """41 MiB in the tops of non-main arenas are said as such: no trim returns them, and what a trim would give back leaves them out."""
    environment = {"MALLOC_TRIM_THRESHOLD_": "1000000000", "MALLOC_ARENA_MAX": "64"}
    process = stage.start("tops", "14", env=environment)
    data = heapx(process.target(kind), "report", "--json").data
    tops = sum(arena["top_bytes"] for arena in data["arenas"] if arena["kind"] != "main")
    assert tops >= 0.9 * process.words()[0] > 36 << 20
    (line,) = [line for line in data["findings"] if line["code"] == "thread-tops"]
    assert "%.1f MiB in 14 tops" % (tops / 2**20) in line["evidence"] and "malloc_trim never returns these" in line["hint"]
    assert data["verdict"]["kind"] == "kept"
    assert data["totals"]["glibc"]["reclaimable_bytes"] < tops // 10
