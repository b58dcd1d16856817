"""A process whose main thread has ended while others run is alive: /proc/PID is empty, and another thread's entry shows everything."""

from pathlib import Path

import pytest

from tests.support.processes import Lasting, Stage
from tests.support.tool import alone, heapx
from tests.support.victims import status

pytestmark = pytest.mark.image  # which gdb and libc

COMMANDS = (
    *("report", "arenas", "bins", "tcache", "check", "leaks", "owners", "census", "pins", "chunks", "malloc-info", "malloc-stats", "tunables", "doctor"),
    *("trim --dry-run", "watch --every 0.01 --times 2", "watch --exact --every 0.01 --times 2", "export --format folded", "tickers"),
)


@pytest.mark.parametrize("words", COMMANDS)
def test_each_command_reads_it(lasting: Lasting, live: str, words: str) -> None:
    """Its memory is read whole; only the main thread's own cache may be missing, and that is said. It runs on."""
    process = lasting.of(live, Stage.start, "main_ended")
    assert status(process.pid, "State")[0] == "Z"
    outcome = alone(process.target(live), *words.split())
    assert outcome.code in (0, 4), outcome.stderr
    assert status(process.pid, "State")[0] == "Z" and int(status(process.pid, "Threads")) == 2


@pytest.mark.parametrize("way", ["gdb", "alone"])
def test_its_blocks(lasting: Lasting, live: str, way: str, tmp_path: Path) -> None:
    """The same blocks by each way to read it, and of a snapshot of it."""
    process = lasting.of(live, Stage.start, "main_ended")
    words = ["chunks", "--histogram", "--json", "--max-stop", "600"]
    found = (heapx if way == "gdb" else alone)(process.target(live), *words)
    assert found.code in (0, 4), found.stderr
    assert [row for row in found.envelope["data"]["histogram"] if row["used_chunks"] >= 1000], found.envelope["data"]
    kept = tmp_path / "kept"
    assert (heapx if way == "gdb" else alone)(process.target(live), "snapshot", str(kept), "--max-stop", "600").code in (0, 4)
    assert kept.stat().st_size > 1000


def test_what_changes_it_is_refused(lasting: Lasting, live: str) -> None:
    """gdb cannot attach to it: that is said before anything is stopped, and no other reason is made up."""
    process = lasting.of(live, Stage.start, "main_ended")
    outcome = heapx(process.target(live), "trim", "--yes")
    assert outcome.code == 1 and "main thread has ended" in outcome.stderr and outcome.stderr.count("\n") == 1


def test_one_without_any_thread_is_a_zombie() -> None:
    """Where nobody runs any more there is no memory."""
    import os
    import subprocess
    import sys

    from gdbheapx.inferior.live import procfs

    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        os.waitid(os.P_PID, gone.pid, os.WEXITED | os.WNOWAIT)
        assert procfs.proc_entry_number(gone.pid) == gone.pid
