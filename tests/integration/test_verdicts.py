"""Verdicts weigh what takes memory, and know what they lack: on processes and cores, whole and cut.

`report`: a hoard is told from a leak, and what a terminal of 80x24 shows is at most 12 lines that say what it comes to.

Files: analysis/inside.py, commands/report.py, report/overview_text.py.
"""

import os
import shlex
import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest

from tests.support import gcores, jemallocs
from tests.support.javas import JAVA
from tests.support.paths import ROOT
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import heapx, on_terminal

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

PYTHON = """class Item:
    def __init__(self, number): self.name, self.tags = "item %d" % number, [number]
cache = {number: Item(number) for number in range(40000)}
print("ready", flush=True); input()"""


def lines_on_terminal(*words: str) -> List[str]:
    """The lines that the tool writes to a terminal of 80 columns and 24 lines."""
    return on_terminal(80, words, {"NO_COLOR": "1"}, 24).replace("\r\n", "\n").splitlines()


STARTED: Dict[str, Callable[[Stage], Process]] = {
    "leaking": lambda stage: stage.start("leaker"),
    "on jemalloc": lambda stage: stage.start("leaker", env={"LD_PRELOAD": str(jemallocs.library())}),
    "on Python": lambda stage: stage.spawn_ready([sys.executable, "-c", PYTHON]),
    "on Java": lambda stage: stage.spawn_text("Big.java", JAVA, ["java", "-Xmx64m", "Big.java"]),
    "tiny": lambda stage: stage.spawn_ready(["sh", "-c", "echo ready; read line"]),
}


def check(words: List[str]) -> Dict[str, str]:
    """Head and end of the report of this target; the head's facts."""
    lines = lines_on_terminal(*words, "report")
    head = lines[: lines.index("")]
    end = lines[-23:]
    assert len(head) <= 12 and all(len(line) <= 80 for line in lines if "gdbheapx " not in line), lines
    assert "Next steps" in end and (any(line.startswith("Verdict") for line in end)), end
    labels = [line.split()[0] for line in head if line[:1].strip()]
    assert {"Process", "Allocator", "Verdict", "Next"} <= set(labels) and {"RSS", "Memory"} & set(labels), head
    facts: Dict[str, str] = {}
    for line in head:
        label = line[:11].strip() or next(reversed(facts))
        facts[label] = (facts.get(label, "") + " " + line[11:]).strip()
    assert "pid " in facts["Process"]
    return facts


@pytest.mark.parametrize("name", STARTED)
def test_a_process(stage: Stage, name: str) -> None:
    """Who, since when, where, when, for how long it paused; the next command is whole and runs."""
    process = STARTED[name](stage)
    facts = check(["--pid", str(process.pid)])
    assert "up " in facts["Process"] and " UTC on %s; paused " % os.uname().nodename in facts["Read"] and facts["Command"]
    if facts["Next"].startswith("gdbheapx "):
        words = shlex.split(facts["Next"])[1:]
        assert words[:2] == ["-p", str(process.pid)] and heapx(words[:2], words[2], "--help").code == 0
    if name == "tiny":
        brief = lines_on_terminal("--pid", str(process.pid), "report", "--brief")
        assert [line[:11].strip() for line in brief[: len(facts)]][:4] == list(facts)[:4] and "Next steps" not in brief
    if name == "on Python":
        assert facts["Suspect"].startswith("__main__.cache, dict of 40,000 entries, ")
    if name == "on jemalloc":
        assert facts["Allocator"].startswith("jemalloc 5")


def test_a_small_process_is_looked_at_by_itself(stage: Stage) -> None:
    """In a copy, so that it does not pause longer; --no-deep does not, and says how to find out."""
    process = stage.start("leaker")
    target = ["--pid", str(process.pid)]
    by_itself, asked, without = (heapx(target, "report", *words, "--json").data for words in ([], ["--deep"], ["--no-deep"]))
    assert by_itself["inside"] is not None and without["inside"] is None
    assert by_itself["inside"]["used"]["blocks"] == asked["inside"]["used"]["blocks"] and by_itself["verdict"]["code"] == asked["verdict"]["code"]
    text = heapx(target, "report", "--no-deep", "--brief").stdout.decode()
    assert "Suspect    not looked for: gdbheapx -p %d report --deep" % process.pid in text


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
