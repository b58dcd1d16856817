"""--short-stop: the same answers after a stop of milliseconds, asked for like an action, and nothing of it is left in the process.

Files: addons/labs/short_stop/stop.py.
"""

import json
import os
import random
import resource
import signal
import subprocess
import time
from typing import Any, Callable, List, Tuple

import pytest

from gdbheapx.addons.labs.short_stop import stop, userfaultfd
from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, alone, tool_command

pytestmark = pytest.mark.once  # a container forbids userfaultfd

LOOKS = ("leaks", "owners", "census", "pins", "check")
TRIES = 5
"""On a machine at work no thread may come to make the calls in time; then the process is copied in its stop."""
WRITTEN_HUGE_PAGES, HUGE_BYTES = 3, 2 << 20
"""See losing.c."""
LATE_MS = 2000
"""A write takes microseconds, and 5 ms at most by bench/stops.py, of a quiet machine; here others may have the processor."""
KILLS = int(os.environ.get("GDBHEAPX_RANDOM_KILLS", "10"))


@pytest.fixture(autouse=True)
def possible() -> None:
    """Not everywhere."""
    lacking = userfaultfd.find_lacking_injection()
    if lacking and not stop.is_by_marks():
        pytest.skip(lacking)


def short(*more: str) -> Tuple[str, ...]:
    """The option, and that marks of an earlier look do not matter."""
    return ("--short-stop", "--yes", "--accept-mark-loss", *more)


@pytest.fixture
def injects() -> None:
    """For what concerns calls in the process."""
    if stop.is_by_marks():
        pytest.skip("no call is made in the process: this kernel has marks")


@pytest.fixture
def recorder(stage: Stage) -> Process:
    """A heap of some thousand blocks, still."""
    return stage.start("recorder", "2", "50000", "5")


def looked(process: Process, *words: str) -> Outcome:
    """Its answer, without gdb."""
    return alone(process.target("live"), *words, "--json", "--max-stop", "10")


def codes(outcome: Outcome) -> List[str]:
    """Of what it notes."""
    return [one["code"] for one in json.loads(outcome.stdout)["problems"]]


def left(pid: int) -> Tuple[int, bool]:
    """How many descriptors it has, and whether any of its memory is watched."""
    with open("/proc/%d/smaps" % pid, "rb") as smaps:
        return len(os.listdir("/proc/%d/fd" % pid)), userfaultfd.SOMEBODYS.search(smaps.read()) is not None


@pytest.mark.parametrize("words", LOOKS)
def test_answers_are_the_same(recorder: Process, words: str) -> None:
    """Of a process that does nothing meanwhile; both stops are counted. A thread that is late on a busy machine takes one more."""
    before = left(recorder.pid)
    wanted = [1, 1 if stop.is_by_marks() else 2]
    for _ in range(TRIES):
        plain, taken = looked(recorder, words), looked(recorder, words, *short())
        counts = [json.loads(one.stdout)["target"]["stops"] for one in (plain, taken)]
        if "no-short-stop" not in codes(taken) and counts == wanted:
            break
    assert taken.code == plain.code and "no-short-stop" not in codes(taken), taken.stdout[-1500:]
    assert json.loads(taken.stdout)["data"] == json.loads(plain.stdout)["data"]
    assert counts == wanted
    assert left(recorder.pid) == before and not before[1]


def test_it_is_asked_for(recorder: Process) -> None:
    """Without a terminal and --yes nothing is done, and the process is not stopped."""
    outcome = looked(recorder, "leaks", "--short-stop")
    envelope = json.loads(outcome.stdout)
    assert outcome.code == 1 and envelope["error"]["code"] == "not-confirmed" and envelope["target"]["stopped_ms"] is None
    assert envelope["error"]["hint"] == "add --yes, or omit --short-stop"


@pytest.mark.usefixtures("injects")
def test_what_is_in_the_way_is_said(stage: Stage) -> None:
    """It is copied in its stop then; the answer is whole."""
    process = stage.start("recorder", "2", "2000", "5")
    used = len(os.listdir("/proc/%d/fd" % process.pid))
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used, used))
    outcome = looked(process, "leaks", "--short-stop", "--yes")
    assert outcome.code in (0, 3) and "no-short-stop" in codes(outcome)
    assert json.loads(outcome.stdout)["partial"] is False


def test_marks_that_somebody_may_wait_for(recorder: Process) -> None:
    """A second look finds the marks cleared, and cannot know by whom: it is refused unless that is accepted. The answer is whole."""
    if not stop.is_by_marks():
        pytest.skip("this kernel has no marks, or does without")
    assert "no-short-stop" not in codes(looked(recorder, "leaks", "--short-stop", "--yes"))
    refused = looked(recorder, "leaks", "--short-stop", "--yes")
    assert "no-short-stop" in codes(refused) and "--accept-mark-loss" in refused.stdout
    assert json.loads(refused.stdout)["partial"] is False
    assert "no-short-stop" not in codes(looked(recorder, "leaks", *short()))


def huge_bytes(process: Process) -> int:
    """AnonHugePages of the mapping that is meant to have some."""
    start = process.words()[4]
    with open("/proc/%d/smaps" % process.pid) as smaps:
        lines = iter(smaps)
        for line in lines:
            place = line.split()[0].partition("-")
            if place[1] and int(place[0], 16) <= start < int(place[2], 16):
                return next(int(one.split()[1]) for one in lines if one.startswith("AnonHugePages:")) << 10
    return 0


@pytest.mark.usefixtures("injects")
def test_huge_pages_stay_but_those_that_are_written(stage: Stage) -> None:
    """It is refused where there are many, unless that is accepted; then the others are as they were."""
    process = stage.start("losing", "4", "10")
    before = huge_bytes(process)
    if before <= userfaultfd.MOST_HUGE_BYTES:
        pytest.skip("no huge pages here")
    refused = looked(process, "leaks", "--short-stop", "--yes")
    assert "no-short-stop" in codes(refused) and huge_bytes(process) == before
    for _ in range(TRIES):
        taken = looked(process, "leaks", *short("--accept-thp-split"))
        if "no-short-stop" not in codes(taken):
            break
    assert "no-short-stop" not in codes(taken)
    assert before - WRITTEN_HUGE_PAGES * HUGE_BYTES <= huge_bytes(process) <= before


def test_writes_go_on_meanwhile(stage: Stage, record_property: Callable[[str, object], None]) -> None:
    """None waits for the copy. What was read in the stop is told."""
    process = stage.start("losing", "64", "10")
    outcome = looked(process, "leaks", *short("--accept-thp-split"))
    _, _, longest_ns, writes = process.words()[:4]
    record_property("longest write", "%.3f ms of %d" % (longest_ns / 1e6, writes))
    assert writes > 1000 and longest_ns < LATE_MS * 1e6
    if "no-short-stop" not in codes(outcome):
        assert json.loads(outcome.stdout)["target"]["dirty_pages"] > 0


def test_killed_at_any_instant(stage: Stage) -> None:
    """The process goes on, with the descriptors that it had, and none of its memory is watched."""
    process = stage.start("recorder", "2", "50000", "5")
    before = left(process.pid)
    command: List[Any] = [*tool_command(), "--pid", str(process.pid), "--gdb", "none", "leaks", *short(), "--json"]
    assert subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout.startswith(b'{"schema"'), "what is killed works otherwise"
    for _ in range(KILLS):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as tool:
            time.sleep(random.uniform(0.05, 0.5))
            tool.send_signal(signal.SIGKILL)
        deadline = time.monotonic() + 10
        while (left(process.pid) != before or "(stopped)" in status(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert left(process.pid) == before and "(stopped)" not in status(process.pid)
        assert "tracing" not in status(process.pid)


def status(pid: int) -> str:
    """/proc/PID/status."""
    with open("/proc/%d/status" % pid) as file:
        return file.read()
