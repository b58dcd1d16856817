"""Two hundred kills of the tool, of its helper, and of both, at any instant of an injection, on a machine at work: the process is as it was.

GDBHEAPX_RANDOM_KILLS is how many of each.
"""

import os
import random
import signal
import time
from typing import List, Set

import pytest

from gdbheapx.addons.labs.short_stop import userfaultfd
from gdbheapx.common.errors import HeapxError
from tests.support.injections import is_well, started, state
from tests.support.processes import Stage
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
    lacking = userfaultfd.find_lacking_injection()
    if lacking:
        pytest.skip(lacking)
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
