"""A process of twice its memory limit, the rest in swap: no look, and no refused action, gets it killed. 20 of 20.

Two hundred looks of all commands that read, at processes at work on a machine at work: none keeps its process stopped over --max-stop.
"""

import json
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Tuple

import pytest

from tests.support import memory_group, swap
from tests.support.processes import Process, Stage
from tests.support.tool import Outcome, alone, heapx
from tests.support.unchanged import EVERY
from tests.support.victims import check_free

pytestmark = pytest.mark.wild  # real swap, twenty times; integration/test_swap.py has some of it

MIB = 1 << 20
LIMIT_BYTES, HEAP_BYTES = 60 * MIB, 118_000_000

HOLDS = (
    "import sys; held = [bytes(1000) for _ in range(%d)]; held[::4] = [None] * len(held[::4]); print('ready', flush=True); sys.stdin.read()"
)
"""Three quarters of a heap are in use; of the rest lie 1 KiB each between them, free."""

ASKED = (*EVERY, "trim --yes")


@pytest.fixture
def bounded(stage: Stage) -> Iterator[Process]:
    """Such a process; skips with the reason where there is no swap, or no memory cgroup."""
    try:
        with swap.swap(), memory_group.limited(LIMIT_BYTES) as group:
            command = [sys.executable, "-I", "-S", "-c", HOLDS % (HEAP_BYTES // 1000)]
            process = stage.spawn_ready(memory_group.entering(group, *command), env={"PYTHONMALLOC": "malloc"})
            try:
                yield process
            finally:
                process.end()
    except (swap.NoSwap, memory_group.NoGroup) as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("words", ASKED)
def test_it_lives(bounded: Process, live: str, words: str) -> None:
    """The answer is whole, or says what was left in swap; an action is done or refused for that. The process lives either way."""
    outcome = heapx(bounded.target(live), *words.split(), "--json")
    assert bounded.popen.poll() is None, "the look got the process killed: " + outcome.stderr
    if words.startswith("watch"):  # a document for each look
        assert outcome.code == 0 or (outcome.code == 4 and "pages in swap were not read" in outcome.stderr), outcome.stderr
        return
    envelope = outcome.envelope
    codes = {problem["code"] for problem in envelope["problems"]} | {envelope.get("error", {}).get("code")}
    assert codes & {"in-swap", "stop-limit"} if outcome.code else not envelope["partial"], (outcome.code, codes, outcome.stderr)
    assert "internal-error" not in codes

LIMITS_S = (0.05, 0.3, None)
DEFAULT_S = 2.0
TOLERANCE_MS = 50
"""To let every thread go, and for the scheduler on a machine at work: the keeper has to be run first."""

LOOKS = 200
COMMANDS = ("arenas", "report", "chunks --histogram", "bins", "check", "leaks", "owners", "census", "pins", "malloc-info", "snapshot", "doctor")


class Watcher(threading.Thread):
    """Looks at a process from outside, each millisecond: how long it was seen in a tracing stop without a break."""

    def __init__(self, pid: int) -> None:
        threading.Thread.__init__(self, daemon=True)
        self._path, self._ends = "/proc/%d/stat" % pid, threading.Event()
        self.longest_ms = 0.0

    def run(self) -> None:
        began: Optional[float] = None
        while not self._ends.wait(0.001):
            seen = time.monotonic()
            if Path(self._path).read_text().rpartition(")")[2].split()[0] != "t":
                began = None
                continue
            began = seen if began is None else began
            self.longest_ms = max(self.longest_ms, 1000 * (seen - began))

    def end(self) -> float:
        self._ends.set()
        self.join()
        return self.longest_ms


def attempts(target: List[str], folder: Path, way: Callable[..., Outcome], count: int) -> List[Tuple[float, str, Optional[float], str]]:
    """(the longest overrun in ms, the command, its limit, by whom it was measured), the longest first."""
    found = []
    for number in range(count):
        words = COMMANDS[number % len(COMMANDS)].split()
        limit_s = LIMITS_S[number // len(COMMANDS) % len(LIMITS_S)]
        more = [str(folder / ("%d.snapshot" % number))] if words[0] == "snapshot" else []
        watcher = Watcher(int(target[1]))
        watcher.start()
        outcome = way(target, *words, *more, "--json", *([] if limit_s is None else ["--max-stop", str(limit_s)]))
        outside_ms = watcher.end()
        assert outcome.code in (0, 1, 3, 4), outcome.stderr
        own_ms = json.loads(outcome.stdout)["target"]["stopped_ms"] or 0.0
        most_ms = 1000 * (DEFAULT_S if limit_s is None else limit_s)
        found += [(own_ms - most_ms, words[0], limit_s, "itself"), (outside_ms - most_ms, words[0], limit_s, "from outside")]
        for path in more:
            Path(path).unlink(missing_ok=True)
    return sorted(found, reverse=True, key=lambda one: one[0])


@pytest.mark.parametrize("way, count", [(alone, LOOKS * 3 // 4), (heapx, LOOKS // 4)], ids=["alone", "gdb"])
def test_no_stop_is_over_its_limit(
    stage: Stage, live: str, load: None, tmp_path: Path, way: Callable[..., Outcome], count: int, record_property: Callable[[str, object], None]
) -> None:
    """Sixteen threads in malloc, without and with gdb."""
    process = stage.start("busy", "16")
    found = attempts(list(process.target(live)), tmp_path, way, count)
    record_property("overrun", found[0])
    print(found[:5])
    assert found[0][0] <= TOLERANCE_MS, found[:10]
    check_free(process)


@pytest.mark.skipif(not (shutil.which("redis-server") and shutil.which("redis-benchmark")), reason="redis is not installed")
def test_redis_under_its_benchmark(load: None, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """A server that nobody here wrote, while its benchmark runs."""
    socket = tmp_path / "redis"
    server = subprocess.Popen(["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", ""], stdout=subprocess.DEVNULL)
    try:
        while not socket.exists():
            time.sleep(0.05)
        made = "redis-benchmark -s %s -q -l -r 1000000 -d 200 -t set,lpush" % socket
        bench = subprocess.Popen(made.split(), stdout=subprocess.DEVNULL)
        try:
            found = attempts(["--pid", str(server.pid)], tmp_path, alone, LOOKS // 4)
        finally:
            bench.kill()
            bench.wait()
        record_property("overrun", found[0])
        print(found[:5])
        assert found[0][0] <= TOLERANCE_MS, found[:10]
        assert server.poll() is None
    finally:
        server.kill()
        server.wait()
