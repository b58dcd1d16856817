"""`watch --snapshot-when`: one before, some when a rule holds, no more than were asked for; the process goes on, and `diff` says what grew.

Files: addons/monitor/watch/capture.py addons/monitor/watch/counters.py
"""

import argparse
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest

from gdbheapx.addons.monitor.watch import capture, table
from gdbheapx.addons.monitor.watch import counters as pressing
from gdbheapx.addons.monitor.watch.counters import ProcessCounters
from gdbheapx.addons.monitor.watch.samples import Sample
from gdbheapx.common.errors import HeapxError
from gdbheapx.snapshot import take
from tests.support.cgroup_files import PID, V1_MOUNT, V2_MOUNT, Machine
from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, heapx

pytestmark = pytest.mark.once  # reading the process is proved in the images by the other modules
MB = 1 << 20
GROWS = """
import sys, time
kept, each = [], int(sys.argv[1])
print("ready", flush=True)
while True:
    kept.append(bytearray(each))
    time.sleep(0.05)
"""


@pytest.fixture
def growing(stage: Stage) -> Process:
    """It takes 2 MB each second; blocks below the mmap threshold."""
    return stage.spawn_ready([sys.executable, "-c", GROWS, "100000"])


@pytest.fixture
def resting(stage: Stage) -> Process:
    return stage.spawn_ready([sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(600)"])


def decided(outcome: Outcome) -> List[Dict[str, Any]]:
    """What was decided about snapshots."""
    assert outcome.code == 0, outcome.stderr
    return [one for one in outcome.lines if one["kind"] == "snapshot"]


def watch(pid: int, folder: Path, *words: str) -> Outcome:
    """One that ends by itself."""
    return heapx(["--pid", str(pid)], "watch", "--every", "0.5", *words, "--snapshot-to", str(folder), "--json", seconds=240)


def test_growth_takes_one_and_diff_says_what_grew(growing: Process, tmp_path: Path) -> None:
    """The first is taken at the beginning, the next when the growth is sure; both are whole snapshots of that process, which runs on."""
    made = decided(watch(growing.pid, tmp_path, "--times", "30", "--snapshot-when", "growth=100M/6", "--snapshots", "1", "--snapshot-gap", "1"))
    assert [(one["rule"], one["outcome"]) for one in made][:2] == [("before", "taken"), ("growth", "taken")]
    assert {one["outcome"] for one in made[2:]} <= {"enough"} and len(made) <= 3, made
    first, last = (one["path"] for one in made[:2])
    assert all(one["stopped_ms"] > 0 and one["size_bytes"] == Path(one["path"]).stat().st_size for one in made[:2])
    grown = heapx([], "diff", first, last, "--json").data
    (used,) = [row for row in grown["states"] if row["what"] == "used" and row["whose"] == "glibc"] or [None]
    assert used is None or used["diff_bytes"] > 4 * MB
    assert growing.popen.poll() is None and "TracerPid:\t0" in Path("/proc/%d/status" % growing.pid).read_text()


def test_to_a_url(resting: Process, tmp_path: Path) -> None:
    """It is taken, and is there; where it cannot be, the decision says why, and the snapshot is kept on this machine."""
    pytest.importorskip("fsspec", reason="URLs require fsspec")
    words = "--every", "0.5", "--times", "1", "--snapshot-when", "above=9T", "--json"
    for url, outcome in (("file://%s" % tmp_path, "taken"), ("nosuch://bucket", "failed")):
        env = {"TMPDIR": str(tmp_path)}
        (made,) = decided(heapx(["--pid", str(resting.pid)], "watch", *words, "--snapshot-to", url, seconds=240, env=env))
        assert made["outcome"] == outcome, made
        assert outcome == "failed" or heapx(["--snapshot", made["path"]], "arenas", "--json").envelope["target"]["pid"] == resting.pid
    assert "kept" in made["why"] and len(list(tmp_path.glob("*.snap"))) == 2


def test_nothing_grows_nothing_is_taken(resting: Process, tmp_path: Path) -> None:
    """But that at the beginning; no rule holds, and nothing more is said."""
    made = decided(watch(resting.pid, tmp_path, "--times", "14", "--snapshot-when", "growth=1M/4", "--snapshot-when", "above=4G"))
    assert [(one["rule"], one["outcome"]) for one in made] == [("before", "taken")]
    assert len(list(tmp_path.iterdir())) == 1


def test_no_more_than_asked_for_and_none_too_soon(growing: Process, tmp_path: Path) -> None:
    """A rule that holds all the time takes N, at least the gap apart; each decision is told once, and the file of samples has them, too."""
    log = tmp_path / "log.jsonl"
    words = ("--times", "24", "--snapshot-when", "above=1M", "--snapshots", "2", "--snapshot-gap", "2", "--jsonl", str(log))
    made = decided(watch(growing.pid, tmp_path, *words))
    outcomes = [one["outcome"] for one in made]
    assert outcomes.count("taken") == 3 and outcomes[-1] == "enough" and outcomes.count("enough") == 1
    assert all(one != other for one, other in zip(outcomes, outcomes[1:]) if one != "taken")
    moments = [Path(one["path"]).name.split("-")[2] for one in made if one["outcome"] == "taken"]
    assert len(set(moments)) == 3
    assert [one for one in map(json.loads, log.read_text().splitlines()) if one["kind"] == "snapshot"] == made
    kept = table.RecordedWatch(str(log))
    assert len(list(kept.samples())) == 24 and not kept.left_out


def test_one_that_cannot_be_taken_is_told_and_the_watch_goes_on(resting: Process, tmp_path: Path) -> None:
    """The folder is gone by then."""
    folder = tmp_path / "gone"
    folder.mkdir()
    captures = capture.Captures(resting.pid, [capture.Rule(capture.ABOVE, 1)], str(folder), 2, 0.0)
    shutil.rmtree(folder)
    made = [one for at in range(3) for one in captures.add(sample(float(at), 50 * MB))]
    assert {one.outcome for one in made} == {"failed"} and all("; " in one.why for one in made)
    assert not captures.pair()


def sample(elapsed_s: float, rss_bytes: int) -> Sample:
    """What the rules read of one."""
    return Sample(time.time(), elapsed_s, ProcessCounters(rss_bytes, rss_bytes, None, 1, None, None, None), None, [], None)


def stubbed(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """No process is looked at: paths that would be written."""
    paths: List[str] = []
    monkeypatch.setattr(take.SnapshotStandby, "take", lambda standby, path, more: paths.append(path) or {})
    return paths


def test_swings_are_no_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that goes up and down by far more than the rule's rate takes none; the same rate as steady growth takes one."""
    stubbed(monkeypatch)
    for steady in (False, True):
        captures = capture.Captures(1, [capture.Rule(capture.GROWTH, 600 * MB)], "/nowhere", 5, 0.0)
        made = []
        for at in range(120):
            rss = 100 * MB + (at * MB if steady else (at % 12) * 10 * MB)
            made += [one.rule for one in captures.add(sample(float(at), rss))]
        assert (capture.GROWTH in made) == steady, made


def kernel_files(machine: Machine, high: int, waited: str, of_machine: str = "0.00") -> None:
    """The process in one cgroup of version 2."""
    machine.process("0::/a\n", V2_MOUNT % ("/", machine.top))
    machine.group("/a", {"memory.events": "low 0\nhigh %d\nmax 0\noom 0\noom_kill 0" % high, "cgroup.events": "populated 1"})
    if waited:
        machine.group("/a", {"memory.pressure": "some avg10=%s avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0" % waited})
    machine.write(machine.proc / "pressure" / "memory", "some avg10=%s avg60=0.00 avg300=0.00 total=1\n" % of_machine)


def test_pressure_is_felt_where_the_kernel_counts_it(tmp_path: Path) -> None:
    """memory.events that rise, or tasks that waited; where the group does not tell, the machine's."""
    machine = Machine(tmp_path)
    kernel_files(machine, 3, "0.00")
    pressure = pressing.Pressure(PID, machine.files)
    assert pressure.felt(10) is None
    kernel_files(machine, 5, "0.00")
    assert (pressure.felt(10) or "").startswith("high of ") and pressure.felt(10) is None
    kernel_files(machine, 5, "12.50")
    assert "12.5 %" in (pressure.felt(10) or "") and pressure.felt(20) is None
    (machine.top / "a" / "memory.pressure").unlink()
    kernel_files(machine, 5, "", "40.00")
    assert "40 %" in (pressure.felt(10) or "")


def version_one(machine: Machine, used_mb: int, failures: int) -> Machine:
    """The process in a cgroup of version 1 with a limit of 100 MB."""
    machine.process("4:memory:/a\n", V1_MOUNT % ("/", machine.top))
    machine.group("/a", {"memory.limit_in_bytes": 100 * MB, "memory.usage_in_bytes": used_mb * MB, "memory.failcnt": failures})
    return machine


def test_a_limit_that_is_close(tmp_path: Path) -> None:
    """Less than a tenth of it is left, or what is left lasts for seconds as the group grows; of version 1 the times that it was met, too."""
    machine = Machine(tmp_path)
    pressure = pressing.Pressure(PID, version_one(machine, 40, 7).files)
    assert pressure.felt(10, 1.0) is None
    version_one(machine, 48, 7)
    assert pressure.felt(10, 2.0) is None  # it lasts for 6.5 s
    version_one(machine, 60, 7)
    assert "40.0 MiB left of 100.0 MiB" in (pressure.felt(10, 3.0) or "") and pressure.felt(10, 4.0) is None
    version_one(machine, 61, 7)
    assert pressure.felt(10, 5.0) is None  # that slowly it lasts for 39 s
    version_one(machine, 60, 8)
    assert (pressure.felt(10, 6.0) or "").endswith("memory.failcnt rose by 1") and pressure.felt(10, 7.0) is None
    version_one(machine, 91, 8)
    assert "9.0 MiB left" in (pressure.felt(10, 1000.0) or "")


def test_memory_that_is_the_groups_own(tmp_path: Path) -> None:
    """A limit that holds for the watch as well counts; one that holds for the other alone, or has room, does not."""
    machine = version_one(Machine(tmp_path), 60, 0)
    assert pressing.lacking_here(PID, 1 << 40, machine.files) is None
    machine.write(machine.proc / str(os.getpid()) / "cgroup", "4:memory:/a\n")
    assert pressing.lacking_here(PID, 30 * MB, machine.files) is None
    assert "40.0 MiB left" in (pressing.lacking_here(PID, 50 * MB, machine.files) or "")


def test_one_program_takes_all(resting: Process, tmp_path: Path) -> None:
    """It has what the first look imported, goes first where memory is short, is started anew if it has ended, and ends with the watch."""
    standby = take.SnapshotStandby(resting.pid)
    standby.take(str(tmp_path / "0"))
    first = standby._popen
    assert first is not None and Path("/proc/%d/oom_score_adj" % first.pid).read_text() == "1000\n"
    standby.take(str(tmp_path / "1"))
    assert standby._popen is first
    first.kill()
    first.wait()
    standby.take(str(tmp_path / "2"))
    assert standby._popen is not first and sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2"]
    with pytest.raises(HeapxError, match="no snapshot of"):
        standby.take(str(tmp_path / "nowhere" / "3"))
    second = standby._popen
    second.stdin.close()
    assert second.wait(30) == 0


def test_rules(resting: Process, tmp_path: Path) -> None:
    """What a rule may be; anything else is refused in one line before anything is watched."""
    assert capture.parse_capture_rule("growth=64M/5") == capture.Rule("growth", 64 * MB, span_s=5) and capture.parse_capture_rule("above=2G").bytes == 2 << 30
    assert capture.parse_capture_rule("pressure").percent == 10 and capture.parse_capture_rule("pressure=2.5").percent == 2.5
    for text in ("growth", "above=", "pressure=0", "pressure=x", "nothing", "pressure=101", "growth=much", "growth=1M/0"):
        with pytest.raises((ValueError, argparse.ArgumentTypeError)):
            capture.parse_capture_rule(text)
    for words in (["--snapshot-when", "nothing"], ["--snapshot-when", "above=1M", "--snapshot-to", str(tmp_path / "nowhere")]):
        outcome = heapx(["--pid", str(resting.pid)], "watch", "--times", "1", *words)
        assert outcome.code == 2 and len(outcome.stderr.splitlines()) == 1, outcome.stderr
