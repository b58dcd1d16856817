"""`watch --pids`: many processes by their counters; who grows is told with a rate that is true, who rests or swings is not.

Files: addons/monitor/watch/machine.py
"""

import os
import sys
import time
from pathlib import Path
from typing import Dict, List

import pytest

from gdbheapx.addons.monitor.watch import machine
from gdbheapx.addons.monitor.watch.counters import ProcessCounters
from gdbheapx.common.budget import Budget
from tests.support.busy import stretch
from tests.support.processes import Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # reading counters is proved in the images by the other modules
MB = 1 << 20
PROGRAM = """
import ctypes, sys, time
ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
kept, each = [], int(sys.argv[2])
print("ready", flush=True)
while True:
    kept.append(bytearray(each)) if each else None
    time.sleep(0.05)
"""


NAME = "many%d" % (os.getpid() % 100000)


def start(stage: Stage, each: int) -> int:
    """The id of a process that is called so, and takes so much each twentieth of a second."""
    return stage.spawn_ready([sys.executable, "-c", PROGRAM, NAME, str(each)]).pid


def test_who_grows_and_how_fast(stage: Stage, tmp_path: Path) -> None:
    """2 MB a second are 7 GB an hour; those that rest have no rate; the file has the same lines."""
    grows, rests, log = start(stage, 100_000), [start(stage, 0) for _ in range(3)], tmp_path / "log"
    outcome = heapx([], "watch", "--pids", NAME, "--every", "1", "--times", "14", "--json", "--jsonl", str(log), seconds=120)
    *samples, end = outcome.lines
    assert outcome.code == 0 and len(samples) == 14 and end["kind"] == "end" and [one["processes"] for one in samples] == [4] * 14
    rows = {row["pid"]: row for row in end["rows"]}
    assert set(rows) == {grows, *rests} and all(row["name"] == NAME for row in end["rows"])
    assert end["rows"][0]["pid"] == grows and all(rows[pid]["sure_bytes_per_hour"] is None and abs(rows[pid]["grown_bytes"]) < MB for pid in rests)
    truth = 20 * 100_000 * 3600
    assert 0.4 * truth < rows[grows]["sure_bytes_per_hour"] < 1.3 * truth, rows[grows]
    assert log.read_bytes() == outcome.stdout
    assert "TracerPid:\t0" in Path("/proc/%d/status" % grows).read_text()


def test_those_that_end_and_those_that_begin(stage: Stage) -> None:
    """One that ended keeps its row, and says so; one that began is followed from then on. Nobody is counted twice."""
    from gdbheapx.addons.monitor.watch.counters import Counters

    followed = machine.Machine(NAME, Counters)
    first = start(stage, 0)
    followed.sample(0.0)
    second = start(stage, 0)
    followed.sample(1.0)
    stage.processes[0].end()
    followed.sample(2.0)
    rows = {row.pid: row for row in followed.rows()}
    assert (rows[first].ended, rows[second].ended, rows[first].seen_s, rows[second].seen_s, followed.running) == ("ended", "", 1.0, 1.0, 1)


class Told:
    """Counters that a test gives."""

    def __init__(self, pid: int) -> None:
        self._pid, self._count = pid, 0

    def name(self) -> str:
        return "p%d" % self._pid

    def read(self) -> ProcessCounters:
        self._count += 1
        swings = 100 * MB + (self._count % 8) * 20 * MB
        grows = 100 * MB + self._count * 2 * MB
        rss = swings if self._pid % 2 else grows
        return ProcessCounters(rss, rss, None, 1)

    container = pages = pressure = None


def proc(folder: Path, groups: Dict[int, str]) -> Path:
    """A /proc with processes in these groups, and a thread of the kernel."""
    for pid, group in groups.items():
        (folder / str(pid)).mkdir(parents=True)
        (folder / str(pid) / "cgroup").write_text("0::%s\n" % group)
        (folder / str(pid) / "statm").write_text("9 9 9 9 0 9 0" if pid != 2 else "0 0 0 0 0 0 0")
        (folder / str(pid) / "comm").write_text("p%d\n" % pid)
    return folder


@pytest.mark.parametrize("which, wanted", [("ALL", {1, 3, 4, 5}), ("/a", {3, 4}), ("/a/b", {4}), ("p5", {5}), ("/nowhere", set())])
def test_whom_it_follows(tmp_path: Path, which: str, wanted: "set[int]") -> None:
    """All but threads of the kernel; a group with those below it, and none whose name only begins alike; a program by its name."""
    folder = proc(tmp_path, {1: "/", 2: "/", 3: "/a", 4: "/a/b/c" if which == "/a" else "/a/b", 5: "/ab"})
    followed = machine.Machine(which, Told, str(folder))  # type: ignore[arg-type]
    followed.sample(0.0)
    assert {row.pid for row in followed.rows()} == wanted


def test_swings_are_no_growth(tmp_path: Path) -> None:
    """Of two that end as high as each other the one that grew steadily is named."""
    followed = machine.Machine("ALL", Told, str(proc(tmp_path, {10: "/", 11: "/"})))  # type: ignore[arg-type]
    for at in range(64):
        followed.sample(at * 10.0)
    grows, swings = followed.rows()
    assert (grows.pid, swings.pid, swings.sure_bytes_per_hour) == (10, 11, None)
    assert abs((grows.sure_bytes_per_hour or 0) - 720 * MB) < 72 * MB


@pytest.mark.parametrize("words", [["--exact"], ["--csv", "x"], ["--snapshot-when", "pressure"], ["--every", "0"]])
def test_what_does_not_go_with_it(words: List[str]) -> None:
    """One line, exit code 2."""
    outcome = heapx([], "watch", "--pids", "ALL", *words)
    assert outcome.code == 2 and "--pids" in outcome.stderr and len(outcome.stderr.splitlines()) == 1


def test_it_ends_when_it_is_told_to() -> None:
    """A budget that is over ends it with what there was."""
    budget = Budget(0.2)
    began = time.monotonic()
    *_, end = machine.sample_machine(machine.Machine("/nowhere", Told), 60.0, None, budget)  # type: ignore[arg-type]
    assert end.kind == "end" and time.monotonic() - began < stretch(10)
