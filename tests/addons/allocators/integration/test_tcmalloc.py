"""tcmalloc in real processes: alone, beside another allocator or a second copy, and with its samples."""

import json
import re
import shutil
import signal
import sys
from itertools import combinations
from pathlib import Path
from typing import Any, Dict, Iterable, Tuple

import pytest

from gdbheapx.addons.allocators.tcmalloc.codes import LISTS_CHANGING
from gdbheapx.common.problems import ALLOCATOR_UNREAD, NOT_PROFILED
from tests.support.jemalloc_inside import Inside, inside
from tests.support.processes import Lasting, Process, Stage, by_turns
from tests.support.tcmallocs import libraries, library, recorded, recorder
from tests.support.tool import acted, heapx, told

pytestmark = pytest.mark.image  # this system's libtcmalloc

LIBRARIES = libraries() or [None]
ONLY = ("--allocator", "tcmalloc")


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


def test_what_is_lost(lasting: Lasting, live: str) -> None:
    """The one block that nothing points to is leaked; a core lacks the record, which points to all others."""
    process = lasting.of(live, at_rest)
    (envelope,) = told(process, live, "leaks")
    lost = [address for row in envelope["data"]["groups"] for address in row["sample"]]
    assert hex(recorded(process).leaked) in lost and envelope["data"]["classes"]["leaked"]["roots"] <= 3, envelope["data"]


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


MB = 1 << 20
INSIDE = {"in the program": Inside(prefix="xy_"), "in a loaded library": Inside(prefix="xy_", library=True)}
TWO = """
import ctypes, os, sys
other = ctypes.CDLL(sys.argv[1], mode=os.RTLD_DEEPBIND | os.RTLD_NOW)
other.tc_malloc.restype = ctypes.c_void_p
blocks = [other.tc_malloc(1000) for _ in range(20000)]
for block in blocks:
    ctypes.memset(block, 1, 1000)
print("ready", flush=True)
sys.stdin.read()
"""


def check_each(process: Process, kind: str, *names: str) -> Dict[str, Any]:
    """Each allocator is read whole, no range is claimed by two, and the report's parts add up to RSS, or to what the core has. The totals of each."""
    target = process.target(kind)
    envelope = heapx(target, "report", "--json").envelope
    assert sorted(info["id"] for info in envelope["allocators"]) == sorted(names) and not envelope["partial"], envelope["problems"]
    rows = {name: heapx(target, "chunks", "--allocator", name, "--json").data["chunks"] for name in names}
    blocks = {name: [(int(row["address"], 0), row["usable_bytes"]) for row in rows[name]] for name in names}
    for one, other in combinations(names, 2):
        ends = sorted((start, start + size, name) for name in (one, other) for start, size in blocks[name])
        assert not [pair for pair in zip(ends, ends[1:]) if pair[0][1] > pair[1][0] and pair[0][2] != pair[1][2]]
    memory = envelope["data"]["memory"]
    parts = ("allocator", "stack", "file", "anonymous", "shared_memory", "device")
    assert sum(memory["allocators"].values()) == memory["allocator_bytes"] and set(names) >= set(memory["allocators"])
    assert sum(memory[part + "_bytes"] for part in parts) == memory["total_bytes"], memory
    totals: Dict[str, Any] = envelope["data"]["totals"]
    return totals


@by_turns("way", INSIDE)
def test_with_a_jemalloc(stage: Stage, kind: str, way: str) -> None:
    """It is preloaded, and the program has a jemalloc under names of its own."""
    process = inside(stage, INSIDE[way], 40, env={"LD_PRELOAD": str(library())})
    totals = check_each(process, kind, "tcmalloc", "jemalloc", "glibc")
    assert totals["jemalloc"]["allocated_bytes"] >= 15 * MB and totals["tcmalloc"]["system_bytes"] > 0


def test_two_copies(stage: Stage, kind: str) -> None:
    """One owns malloc; the other is loaded by a library for itself. 2.16 and later end with a signal then, whoever looks."""
    path = stage.folder() / "libtcmalloc_minimal.so.4"
    shutil.copy(library(), path)
    process = stage.spawn([sys.executable, "-c", TWO, str(path)], env={"LD_PRELOAD": str(library()), "PYTHONMALLOC": "malloc"})
    try:
        process.wait_ready()
    except AssertionError:
        if process.popen.wait(60) in (-signal.SIGSEGV, -signal.SIGILL, -signal.SIGABRT):
            pytest.skip("this tcmalloc does not live beside a copy of itself")
        raise
    totals = check_each(process, kind, "tcmalloc", "tcmalloc#2", "glibc")
    assert totals["tcmalloc#2"]["used_bytes"] >= 20000 * 1000 and totals["tcmalloc"]["used_bytes"] > MB


HEADER = Path("/usr/include/gperftools/malloc_extension.h")
FLAGS = ("-Wl,--no-as-needed", "-ltcmalloc")
ROW = re.compile(r" *(\d+): +(\d+) \[.*\] @((?: 0x[0-9a-f]+)+)$")


def sampling(stage: Stage) -> Process:
    """One block in about 32 KiB is sampled."""
    if not HEADER.exists():
        pytest.skip("no gperftools/malloc_extension.h here (Debian: libgoogle-perftools-dev)")
    return stage.start("tc_prof", env={"TCMALLOC_SAMPLE_PARAMETER": "32768"}, flags=FLAGS)


def sites(lines: Iterable[str]) -> Dict[str, Tuple[int, int]]:
    """Blocks and bytes by stack."""
    found: Dict[str, Tuple[int, int]] = {}
    for row in filter(None, map(ROW.match, lines)):
        before = found.get(row[3], (0, 0))
        found[row[3]] = before[0] + int(row[1]), before[1] + int(row[2])
    return found


def test_the_profile_is_its_own(lasting: Lasting, kind: str, tmp_path: Path) -> None:
    """To the block and the byte; pprof's form has the same calls."""
    process = lasting.of(kind, sampling)
    truth = sites(Path(str(process.record_path) + ".heap").read_text().splitlines())
    envelope = heapx(process.target(kind), "profile", "--json").envelope
    data = envelope["data"]
    assert envelope["problems"] == [] and data["sample_bytes"] == 32768 and data["backtraces"] == len(truth)
    assert sites(data["profile"].splitlines()) == truth and sum(blocks for blocks, _ in truth.values()) > 20
    assert "@ heap_v2/32768\n" in data["profile"] and "MAPPED_LIBRARIES" in data["profile"]
    file = tmp_path / "profile.pb.gz"
    assert heapx(process.target(kind), "export", "--of", "profile", "--format", "pprof", "-o", str(file)).code == 0 and file.stat().st_size > 100


def test_one_that_samples_nothing(stage: Stage, live: str) -> None:
    """One line, with the next step."""
    outcome = heapx(recorder(stage).target(live), "profile", "--json")
    assert outcome.code == 1 and outcome.envelope["error"]["code"] == NOT_PROFILED and "TCMALLOC_SAMPLE_PARAMETER" in outcome.envelope["error"]["hint"]
