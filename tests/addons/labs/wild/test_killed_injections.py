"""Two hundred kills of the tool, of its helper, and of both, at any instant of an injection, on a machine at work: the process is as it was.

GDBHEAPX_RANDOM_KILLS is how many of each.

A hundred short stops of a process that loses blocks, writes, maps and unmaps, on a machine at work: each answer has the blocks that were
lost at that instant by the program's own list, and no other.

GDBHEAPX_SHORT_STOPS is how many.
"""

import json
import os
import random
import signal
import struct
import time
from typing import Callable, List, Set, Tuple

import pytest

from gdbheapx.addons.labs.short_stop import userfaultfd
from gdbheapx.common.errors import HeapxError
from tests.support.injections import is_well, started, state
from tests.support.processes import Process, Stage
from tests.support.tool import alone
from tests.support.victims import until

pytestmark = pytest.mark.wild  # the load takes the machine for minutes

KILLS = int(os.environ.get("GDBHEAPX_RANDOM_KILLS", "200"))
WINDOW_S = 0.06


def processes(field: int, wanted: Set[int]) -> List[int]:
    """Those whose /proc/PID/stat has one of these numbers there: 1 is the parent, 3 the session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open("/proc/%s/stat" % name, "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if int(fields[field]) in wanted and fields[0] not in (b"Z", b"X"):
                found.append(int(name))
    return found


@pytest.mark.parametrize("where", ["read", "nanosleep", "vectors"])
@pytest.mark.parametrize("whom", ["tool", "helper", "both"])
def test_killed(stage: Stage, load: None, whom: str, where: str) -> None:
    """Its descriptors, masks and registers are as before, nobody holds it, it goes on, and nobody is left of those that were killed."""
    process = started(stage, where, "beside")
    before = state(process)
    sessions: Set[int] = set()
    for _ in range(KILLS):
        child = os.fork()
        if not child:
            try:
                os.setsid()
                while True:
                    try:
                        os.close(userfaultfd.take_descriptor(process.pid)[0])
                    except HeapxError:
                        pass
            finally:
                os._exit(0)
        sessions.add(child)
        time.sleep(random.random() * WINDOW_S)
        helpers = processes(1, {child})
        sessions.update(helpers)
        for pid in helpers if whom != "tool" else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if whom == "helper":
            time.sleep(random.random() * 0.01)  # the tool says so, and goes on
            assert os.waitpid(child, os.WNOHANG) == (0, 0)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        is_well(process, before)
    until(lambda: not processes(3, sessions), lambda: "left: %s" % processes(3, sessions), process)

LOOKS = int(os.environ.get("GDBHEAPX_SHORT_STOPS", "100"))
MIB, A_SECOND = "64", "300"
MASK, HEAD = 0x5A5A5A5A5A5A5A5A, struct.Struct("<5Q")
AT_HAND = 1
"""The block that is being lost may still be in a register."""


@pytest.fixture(autouse=True)
def possible() -> None:
    """Not everywhere."""
    lacking = userfaultfd.find_lacking_injection()
    if lacking:
        pytest.skip(lacking)


def told(process: Process) -> Tuple[int, ...]:
    """begun, lost, longest_write_ns, writes, huge."""
    with open(process.record_path, "rb") as file:
        return HEAD.unpack(file.read(HEAD.size))


def addresses(process: Process, number: int) -> List[int]:
    """Of the first ones that were lost."""
    with open(process.record_path, "rb") as file:
        file.seek(HEAD.size)
        return [one ^ MASK for one in struct.unpack("<%dQ" % number, file.read(8 * number))]


def test_no_difference(stage: Stage, load: None, record_property: Callable[[str, object], None]) -> None:
    """Blocks that were lost before are in the answer, in the order of the list, without a gap, and nothing else is."""
    process, stops, short = stage.start("losing", MIB, A_SECOND), [], 0
    for look in range(LOOKS):
        before, began = told(process), time.monotonic()
        words = ("leaks", "--list", "--limit", "1000000", "--no-weak", "--short-stop", "--yes", "--accept-thp-split", "--json", "--max-stop", "10")
        outcome, after = alone(process.target("live"), *words), told(process)
        envelope = json.loads(outcome.stdout)
        assert outcome.code in (0, 3) and envelope["partial"] is False, (look, outcome.stderr, envelope["problems"])
        codes = {one["code"] for one in envelope["problems"]}
        assert codes <= {"no-short-stop", "several-moments"}, codes
        short += "no-short-stop" not in codes
        listed = addresses(process, after[0])
        found = {int(block["address"], 16) for block in envelope["data"]["blocks"] if block["class"] == "leaked"}
        number = len(found)
        assert found == set(listed[:number]), (look, number, sorted(found ^ set(listed[:number]))[:5])
        assert before[1] - AT_HAND <= number <= after[0], (look, before, number, after, time.monotonic() - began)
        stops.append(envelope["target"]["stopped_ms"])
    record_property("short", "%d of %d, longest stop %.1f ms, median %.1f ms" % (short, LOOKS, max(stops), sorted(stops)[LOOKS // 2]))
    print("%d of %d short, longest stop %.1f ms, median %.1f ms" % (short, LOOKS, max(stops), sorted(stops)[LOOKS // 2]))
    assert short > LOOKS // 2
