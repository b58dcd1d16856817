"""`profile` writes what the process's own prof.dump wrote, live and from a core; jeprof reads it."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Iterable, List, NamedTuple, Set, Tuple

import pytest

from tests.support.gcores import gcore
from tests.support.jemallocs import PROFILING, start
from tests.support.processes import Process, Stage, by_turns
from tests.support.tool import answers, heapx

pytestmark = pytest.mark.image  # what its libjemalloc writes as a profile

WAYS = ("preload", "linked", PROFILING.name)
SAMPLED = "prof:true,lg_prof_sample:9"
CONFS = (
    SAMPLED + ",prof_accum:true",
    "prof:true,lg_prof_sample:0",
    "prof:true,lg_prof_sample:14",
    SAMPLED + ",prof_unbias:false",
    SAMPLED + ",background_thread:true,narenas:1",
)
"""Everything that was ever allocated too; every block; few blocks; counters as they are (jemalloc before 5.3.0 has no other); other threads."""


class Dump(NamedTuple):
    """A heap profile, parted."""

    counters: List[str]
    """What stands before the mappings, line by line."""
    mappings: Set[Tuple[str, ...]]
    """(range, offset, file) of executable ones."""


def parted(text: str) -> Dump:
    """The two parts of a profile's text."""
    counters, mark, maps = text.partition("\nMAPPED_LIBRARIES:\n")
    assert mark, text[-200:]
    found = re.findall(r"^([0-9a-f]+-[0-9a-f]+) r-xp ([0-9a-f]+) \S+ \d+ +(/.*)$", maps, re.M)
    return Dump(counters.splitlines(), set(found))


def profiled(stage: Stage, way: str, conf: str = SAMPLED, threads: int = 4) -> Process:
    """The program at rest after its own dump."""
    return start(stage, way, "prof", str(threads), conf=conf)


def own_dump(process: Process) -> str:
    """What the process wrote."""
    return Path(str(process.record_path) + ".heap").read_text()


def check(process: Process, kind: str) -> None:
    """The same lines in the same order, and the same code mapped at the same places."""
    outcome = heapx(process.target(kind), "profile")
    assert (outcome.code, outcome.stderr) == (0, ""), outcome
    own, found = parted(own_dump(process)), parted(outcome.stdout.decode())
    assert len(own.counters) > 20
    assert found.counters == own.counters
    assert found.mappings == own.mappings


@by_turns("way", WAYS)
def test_equals_its_own_dump(stage: Stage, kind: str, way: str) -> None:
    """Head, threads with their names, backtraces, each thread's share: line for line what prof.dump wrote."""
    check(profiled(stage, way), kind)


def test_code_that_gdb_left_out_of_its_core(stage: Stage, live: str) -> None:
    """gdb's core has no header for code: jeprof finds the functions by what the dynamic linker has loaded."""
    process = profiled(stage, "preload")
    outcome = heapx(["--core", str(gcore(process))], "profile")
    own, found = parted(own_dump(process)), parted(outcome.stdout.decode())
    assert outcome.code == 0 and found.counters == own.counters
    assert found.mappings == own.mappings and any("/libc" in name for *_, name in found.mappings)


@pytest.mark.parametrize("conf", CONFS)
def test_however_it_samples(stage: Stage, core: str, conf: str) -> None:
    """With other rates of sampling, accumulated, uncorrected."""
    check(profiled(stage, "preload", conf), core)


def by_function(process: Process, file: Path) -> List[str]:
    """jeprof's table without its header."""
    done = subprocess.run(
        ["jeprof", "--text", "--show_bytes", process.executable, str(file)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    return [line for line in done.stdout.splitlines() if "%" in line]


def test_jeprof_reads_it(stage: Stage, core: str) -> None:
    """jeprof makes of it what it makes of the process's own dump, with the names of the functions."""
    if not shutil.which("jeprof"):
        pytest.skip("jeprof is not installed")
    process = profiled(stage, "preload")
    file = process.folder / "found.heap"
    assert heapx(process.target(core), "profile", "-o", str(file)).code == 0
    own = process.folder / "own.heap"
    own.write_text(own_dump(process))
    table = by_function(process, file)
    assert table == by_function(process, own)
    assert any("large_maker" in line for line in table)


def refused(target: List[str], words: Iterable[str]) -> None:
    """One line that names the cause and what to do, exit code 1, and no data."""
    outcome = heapx(target, "profile", "--json")
    assert outcome.code == 1
    assert json.loads(outcome.stdout)["data"] is None
    (line,) = outcome.stderr.strip().splitlines()
    assert all(word in line for word in words), line


def test_how_much_it_covers(stage: Stage, live: str) -> None:
    """Sampling that is off leaves a profile that is empty: that is said beside it, and report does not promise one."""
    process = profiled(stage, "preload", "prof:true,prof_active:false")
    outcome = heapx(process.target(live), "profile")
    assert outcome.code == 0 and "covers 0 % of the memory in use" in outcome.stderr and "sampling is off" in outcome.stderr
    found = heapx(process.target(live), "profile", "--json")
    assert found.data["covered_bytes"] == 0 and found.data["used_bytes"] > 0
    assert [problem["code"] for problem in found.envelope["problems"]] == ["profile-covers-part"] and not found.envelope["partial"]
    report = heapx(process.target(live), "report", "--json").data
    assert "sampling is off" in " ".join(finding["what"] for finding in report["findings"])
    assert not any((step["command"] or "").startswith("profile") for step in report["next"])


@pytest.mark.rust
def test_built_without(stage: Stage, core: str) -> None:
    """tikv-jemallocator has no profiling unless it is asked for."""
    refused(start(stage, "rust-0.6", "recorder", "park", "2", "2").target(core), ["without profiling"])


def test_damaged(stage: Stage, live: str) -> None:
    """A table that was overwritten in part: what is whole is written, what is not is named, exit code 4."""
    process = profiled(stage, "preload")
    (envelope,) = answers(process.target(live), process.folder, "profile")
    whole = envelope["data"]["backtraces"]
    gctx = find_gctx(process)
    with open("/proc/%d/mem" % process.pid, "r+b", buffering=0) as memory:
        memory.seek(gctx.vec_at)
        memory.write((1 << 40).to_bytes(8, "little"))
    outcome = heapx(process.target(live), "profile", "--json")
    assert outcome.code == 4
    assert outcome.envelope["data"]["backtraces"] == whole - 1
    assert any(problem["where"] == "0x%x" % (1 << 40) for problem in outcome.envelope["problems"])


class Gctx(NamedTuple):
    """One backtrace of the process in its memory."""

    vec_at: int
    """Address of the pointer to its addresses."""


def find_gctx(process: Process) -> Gctx:
    """The pointer to the first backtrace of its own dump, by the addresses themselves: a word that points right behind the pointer's struct."""
    frames = [int(word, 16) for word in next(line for line in own_dump(process).splitlines() if line.startswith("@")).split()[1:]]
    wanted = b"".join(frame.to_bytes(8, "little") for frame in frames)
    with open("/proc/%d/maps" % process.pid) as maps, open("/proc/%d/mem" % process.pid, "rb", buffering=0) as memory:
        for line in maps:
            if " rw-p " not in line or "[stack]" in line:
                continue
            start, end = (int(word, 16) for word in line.split()[0].split("-"))
            memory.seek(start)
            try:
                data = memory.read(end - start)
            except OSError:
                continue  # a thread's stack whose guard is a part of its mapping, as of glibc 2.42
            at = data.find(wanted)
            while at >= 0:
                vec = start + at
                before = data.rfind(vec.to_bytes(8, "little"), max(0, at - 64), at)
                if before >= 0:
                    return Gctx(start + before)
                at = data.find(wanted, at + 8)
    raise AssertionError("the backtrace is not in memory")
