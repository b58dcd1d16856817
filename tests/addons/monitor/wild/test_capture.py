"""`capture`, hundreds of times: processes that crash while they allocate at 50 to 200 MB/s leave whole snapshots, and nothing else is harmed."""

import time
from pathlib import Path
from typing import Callable, Dict, List, Optional

import pytest

from tests.support import crashes
from tests.support.processes import Stage

pytestmark = pytest.mark.wild  # it takes the machine for minutes
CRASHES, BY_SOCKET, LEAST_PERCENT = 200, 100, 95
WHOLLY = 20
"""Of so many one is compared by all accounts (tests/addons/monitor/integration/test_capture.py does ten), the others by what the arenas hold."""
RATES = (50_000_000, 100_000_000, 200_000_000)


def crash(stage: Stage, number: int, server: Optional[crashes.Server] = None) -> str:
    """What came of it, by the pipe or by this server; empty: a whole snapshot, which says what the core says."""
    folder, process = stage.folder(), stage.start("crashing", "4", str(RATES[number % len(RATES)]))
    time.sleep(0.05 * (number % 20))  # how far it has grown is what the rounds differ by
    line = crashes.captured(process, ("byte", "sa"[number % 2]), folder, server)
    core = (server.folder if server is not None else folder) / "core"
    assert process.popen.returncode == (-6 if number % 2 else -11) and line["passed_code"] == 0, line
    if line["outcome"] not in ("taken", "partial"):
        return "%s: %s" % (line["outcome"], line["why"])
    try:
        if number % WHOLLY:
            crashes.same("arenas", ["--core", str(core)], line["path"])
        else:
            crashes.same_as_core(line["path"], core, folder)
    except AssertionError as error:
        return str(error)[:200]
    return ""


def test_two_hundred_crashes(builder: object, record_property: Callable[[str, object], None]) -> None:
    """At least 95 of 100 are whole; each process ends by its own signal, and each core goes on."""
    wrong: List[str] = []
    for number in range(CRASHES):
        stage = Stage(builder)  # type: ignore[arg-type]
        try:
            wrong += [why for why in [crash(stage, number)] if why]
        finally:
            stage.close()
    record_property("whole", "%d of %d" % (CRASHES - len(wrong), CRASHES))
    assert 100 * len(wrong) <= (100 - LEAST_PERCENT) * CRASHES, wrong
    assert Path("/proc/sys/kernel/core_pattern").read_text() == "core\n"


def test_a_hundred_crashes_of_one_server(builder: object, stage: Stage, record_property: Callable[[str, object], None]) -> None:
    """The same by the socket; the server has its memory, its descriptors and no child afterwards."""
    folder = stage.folder()
    server = crashes.Server(folder)
    try:
        wrong: List[str] = []
        before = {}
        for number in range(BY_SOCKET):
            own = Stage(builder)  # type: ignore[arg-type]
            try:
                wrong += [why for why in [crash(own, number, server)] if why]
            finally:
                own.close()
            before = before or cost(server.popen.pid)
        after = cost(server.popen.pid)
        record_property("whole", "%d of %d, %s then %s" % (BY_SOCKET - len(wrong), BY_SOCKET, before, after))
        assert 100 * len(wrong) <= (100 - LEAST_PERCENT) * BY_SOCKET, wrong
        assert after["descriptors"] == before["descriptors"] and after["rss_bytes"] < before["rss_bytes"] + (1 << 20)
        assert len(server.children()) <= 1 and server.end() == 0
    finally:
        server.popen.kill()
    assert Path("/proc/sys/kernel/core_pattern").read_text() == "core\n"


def cost(pid: int) -> Dict[str, int]:
    """What a process has."""
    resident = int(Path("/proc/%d/statm" % pid).read_text().split()[1]) * 4096
    return {"rss_bytes": resident, "descriptors": len(list(Path("/proc/%d/fd" % pid).iterdir()))}
