"""gperftools' tcmalloc, read by its structure: every block and every figure against what the program itself recorded, live and on a core."""

import json
import sys
from pathlib import Path
from typing import Tuple

import pytest

from gdbheapx.addons.allocators.tcmalloc.codes import LISTS_CHANGING
from gdbheapx.problems import ALLOCATOR_UNREAD
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tcmallocs import libraries, library, recorded, recorder
from tests.support.tool import acted, alone, answers, heapx, told
from tests.support.unchanged import WALKERS, unchanged

pytestmark = pytest.mark.image  # this system's libtcmalloc

LIBRARIES = libraries() or [None]
ONLY = ("--allocator", "tcmalloc")
ASKED = ("arenas", "bins", "chunks --histogram", "tcache", "check")
COMMANDS = (*ASKED, "leaks", "owners", "census", "pins", "whatis BLOCK", "refs BLOCK", "report", "doctor", "export --format folded")
SEEDS = 300


@pytest.fixture(params=LIBRARIES, ids=lambda path: "none" if path is None else str(path).strip("/").replace("/", "-")[-60:])
def path(request: pytest.FixtureRequest) -> Path:
    """Each library in turn."""
    if request.param is None:
        pytest.skip("no libtcmalloc here (Debian: libtcmalloc-minimal4)")
    found: Path = request.param
    return found


def at_rest(stage: Stage) -> Process:
    """Four threads' blocks on the first library."""
    return recorder(stage)


def beside(stage: Stage) -> Process:
    """One more."""
    return recorder(stage)


@pytest.mark.first
def test_blocks_and_figures(stage: Stage, kind: str, path: Path) -> None:
    """Address, state and usable size of every recorded block are equal; the figures are MallocExtension's to the byte, and add up."""
    check(recorder(stage, path), kind)


@by_turns("way", ["in the program", "static", "static, stripped"])
def test_linked_in(stage: Stage, kind: str, way: str) -> None:
    """The same of a program that contains it, dynamic or static, with symbols or without."""
    archive = library().with_name("libtcmalloc_minimal.a")
    if not archive.exists():
        pytest.skip("no libtcmalloc_minimal.a here (Debian: libgoogle-perftools-dev)")
    more = {"in the program": (), "static": ("-static",), "static, stripped": ("-static", "-s")}[way]
    flags = [*more, "-Wl,--whole-archive", "-l:" + archive.name, "-Wl,--no-whole-archive", "-lstdc++", "-lm"]
    check(stage.start("tc_recorder", "4", "400", "4", flags=flags), kind)


def check(process: Process, kind: str) -> None:
    """What was recorded is what is read."""
    target, truth = process.target(kind), recorded(process)
    chunks = heapx(target, "chunks", *ONLY, "--json").data["chunks"]
    read = {int(row["address"], 0): row for row in chunks}
    assert len(truth.blocks) > 500
    for block in truth.blocks:
        row = read[block.address]
        assert (row["status"], row["usable_bytes"]) == ("used", block.usable), hex(block.address)
    used = [row for row in chunks if row["status"] == "used"]
    assert 0 <= len(used) - len(truth.blocks) <= 40  # the leaked one, and those of the C and C++ libraries
    (arena,) = heapx(target, "arenas", *ONLY, "--json").data["arenas"]
    assert arena["used_bytes"] == truth.figures["allocated"] == sum(row["usable_bytes"] for row in used)
    assert arena["system_bytes"] == truth.figures["heap"]
    assert arena["central_bytes"] + arena["tail_bytes"] == truth.figures["central"]
    for name in ("free", "returned", "transfer", "cached"):
        assert arena[name + "_bytes"] == truth.figures[name], name
    parts = ("used", "central", "transfer", "cached", "tail", "free", "returned")
    assert arena["system_bytes"] == sum(arena["%s_bytes" % part] for part in parts)
    assert heapx(target, "check", *ONLY, "--json").data["findings"] == []
    owners = {row["lwp"] for row in heapx(target, "tcache", *ONLY, "--json").data["threads"]}
    assert len(owners - {None}) == 4


def test_busy_threads(stage: Stage, kind: str) -> None:
    """What four threads change meanwhile is a moment and no damage; every recorded block is in use."""
    process = recorder(stage, None, "busy")
    for _ in range(3 if kind == "live" else 1):
        truth = recorded(process)
        envelope = heapx(process.target(kind), "chunks", *ONLY, "--json").envelope
        assert {problem["code"] for problem in envelope["problems"]} <= {LISTS_CHANGING}, envelope["problems"]
        read = {int(row["address"], 0): row for row in envelope["data"]["chunks"]}
        assert all(read[block.address]["status"] == "used" for block in truth.blocks)
        checked = heapx(process.target(kind), "check", *ONLY, "--json").envelope
        assert [rule for rule in checked["data"]["findings"] if rule["evidence"] is None] == []


@pytest.mark.first
def test_a_purge(stage: Stage, live: str) -> None:
    """What was predicted is returned: no free span is left, RSS falls by what was in RAM, nothing else changes."""
    process = recorder(stage, None, slots=4000)
    before = heapx(process.target(live), "arenas", *ONLY, "--json").data["arenas"][0]
    predicted = heapx(process.target(live), "purge", "--dry-run", "--json").data
    assert predicted["predicted_bytes"] == before["free_bytes"] > 0
    data = acted(heapx(process.target(live), "purge", "--yes", "--json").data)
    assert data["predicted_resident_bytes"] == predicted["predicted_resident_bytes"]
    assert abs(data["rss_diff_bytes"] + data["predicted_resident_bytes"]) <= 256 << 10
    process.command(b"s")
    after, truth = heapx(process.target(live), "arenas", *ONLY, "--json").data["arenas"][0], recorded(process)
    assert (after["free_bytes"], after["returned_bytes"]) == (0, before["free_bytes"] + before["returned_bytes"])
    assert truth.figures["returned"] == after["returned_bytes"] and after["used_bytes"] == before["used_bytes"]
    assert after["system_bytes"] == truth.figures["heap"] == before["system_bytes"]


def test_commands_with_gdb_and_without(lasting: Lasting, kind: str) -> None:
    """Each answer is whole, and the same."""
    process = lasting.of(kind, at_rest)
    block = hex(recorded(process).blocks[0].address)
    asked = [words.replace("BLOCK", block) for words in COMMANDS]
    by_gdb = answers(process.target(kind), process.folder, *asked)
    for words, envelope in zip(asked, by_gdb):
        outcome = alone(process.target(kind), *words.split(), "--json")
        assert outcome.code in (0, 3) and outcome.envelope["partial"] is envelope["partial"] is False, (words, outcome.stderr, envelope["problems"])
        if words in ASKED:
            assert outcome.envelope["data"] == envelope["data"], words
        assert words == "doctor" or [info["id"] for info in envelope["allocators"]] == ["tcmalloc", "glibc"]


def test_what_is_lost(lasting: Lasting, live: str) -> None:
    """The one block that nothing points to is leaked; a core lacks the record, which points to all others."""
    process = lasting.of(live, at_rest)
    (envelope,) = told(process, live, "leaks")
    lost = [address for row in envelope["data"]["groups"] for address in row["sample"]]
    assert hex(recorded(process).leaked) in lost and envelope["data"]["classes"]["leaked"]["roots"] <= 3, envelope["data"]


def test_the_meter_reads_what_a_walk_counts(lasting: Lasting, live: str) -> None:
    """By counters alone, of a process at rest."""
    process = lasting.of(live, at_rest)
    runs = [heapx(process.target(live), "watch", "--every", "0.05", "--times", "2", *more, "--json") for more in ((), ("--exact",))]
    lines = [[line for line in run.stdout.decode().splitlines() if '"sample"' in line][-1] for run in runs]
    counted, exact = (json.loads(line)["allocators"]["tcmalloc"] for line in lines)
    for key in ("system_bytes", "free_bytes", "returned_bytes", "central_bytes", "transfer_bytes", "cached_bytes", "held_bytes"):
        assert counted[key] == exact[key], key


@pytest.mark.once
@pytest.mark.parametrize("words", WALKERS)
def test_reading_costs_the_process_nothing(lasting: Lasting, live: str, words: str) -> None:
    """No page table, page, swap entry or page fault more. A second process keeps the program's code in memory."""
    process, _ = lasting.of(live, at_rest), lasting.of(live, beside)
    with unchanged(process.pid):
        outcome = alone(process.target(live), *words.split(), "--json")
        assert outcome.code in (0, 3), outcome.stderr[-1000:]


def test_a_snapshot(lasting: Lasting, live: str) -> None:
    """It answers as the process does, and two have a difference."""
    process = lasting.of(live, at_rest)
    files = [str(process.folder / name) for name in ("old.heapx", "new.heapx")]
    for file in files:
        assert heapx(process.target(live), "snapshot", file).code == 0
    for words in ("arenas", "bins", "leaks", "report", "tcache"):
        outcome = heapx(["--snapshot", files[0]], *words.split(), "--json")
        assert outcome.code == 0 and outcome.envelope["partial"] is False, outcome.stderr
    assert heapx([], "diff", *files, "--json").envelope["problems"] == []
    query = heapx(["--snapshot", files[0]], "query", "select sum(used_bytes) as used from bins", "--json")
    if query.code == 0:  # DuckDB is there
        assert query.envelope["data"]["rows"]


def test_what_is_named_alone(stage: Stage, live: str) -> None:
    """The debugging malloc is refused in one line, with the next step."""
    debug = library().with_name("libtcmalloc_minimal_debug.so.4")
    if not debug.exists():
        pytest.skip("no libtcmalloc_minimal_debug here")
    program = "print('ready', flush=True); input()"
    process = stage.spawn_ready([sys.executable, "-c", program], env={"LD_PRELOAD": str(debug), "PYTHONMALLOC": "malloc"})
    outcome = heapx(process.target(live), "arenas", *ONLY)
    assert outcome.code in (1, 2) and len(outcome.stderr.strip().splitlines()) == 1
    assert "debugging malloc" in heapx(process.target(live), "report").stdout.decode()


@by_turns("flags", [(), ("-s",), ("-static", "-s")])
def test_googles_is_named(stage: Stage, kind: str, flags: Tuple[str, ...]) -> None:
    """By the lines that it prints, which no strip takes away: it is never taken for gperftools', and the next step is its own statistics."""
    process = stage.start("of_google", flags=flags)
    outcome = heapx(process.target(kind), "arenas", *ONLY)
    assert outcome.code in (1, 2) and len(outcome.stderr.strip().splitlines()) == 1 and "GetStats" in outcome.stderr
    envelope = heapx(process.target(kind), "report", "--json").envelope
    assert "tcmalloc" not in [info["name"] for info in envelope["allocators"]]
    assert ALLOCATOR_UNREAD in [problem["code"] for problem in envelope["problems"]], envelope["problems"]
    assert "GetStats" in json.dumps(envelope["data"]["next"])
