"""Servers that fork, which nobody here wrote: free memory that a forked process shares leaves its RSS by a trim or purge, and stays in the machine."""

import shutil
import sys
import time
from typing import Any, Callable, List

import pytest

from tests.support import forked
from tests.support.forked import MIB
from tests.support.processes import READY_SECONDS, Stage
from tests.support.servers import Redis
from tests.support.tool import heapx

pytestmark = pytest.mark.once  # servers; test_trim and test_je_accounts hold the same figures on each libc and libjemalloc

APP = """
def build():
    made = [b"x" * (600 + number * 7919 % 30000) for number in range(4000)]
    return [one for number, one in enumerate(made) if number % 8 == 0]

kept = build()

def app(environ, start):
    start("200 OK", [])
    return [b"x"]
"""
"""Loaded before the fork: seven of eight blocks are freed by then."""

WOKEN_BYTES = 512 << 10
"""What redis-server copies of shared pages as it serves its clock and a purge its structures."""


def until(done: Callable[[], Any]) -> Any:
    """Ask until it is so: servers say in many ways that they are ready."""
    end = time.monotonic() + READY_SECONDS
    while time.monotonic() < end:
        found = done()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("not ready after %d s" % READY_SECONDS)


def gunicorn(stage: Stage, workers: int) -> List[int]:
    """Its master and its workers, each at rest in epoll_wait."""
    pytest.importorskip("gunicorn")
    folder = stage.folder()
    (folder / "app.py").write_text(APP)
    words = ["--preload", "-w", str(workers), "-k", "gthread", "-b", "unix:%s/socket" % folder, "--worker-tmp-dir", str(folder), "app:app"]
    master = stage.spawn([sys.executable, "-m", "gunicorn", *words], folder, {"HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"})
    until(lambda: master.stderr_path.read_text().count("Booting worker") == workers)
    found = forked.children(master.pid)
    for worker in found:
        until(lambda: "ep_poll" in wchan(worker) or "epoll" in wchan(worker))  # noqa: B023  (asked at once)
    return [master.pid, *found]


def wchan(pid: int) -> str:
    """Where in the kernel it sleeps; where that is not told, as if in epoll_wait."""
    try:
        with open("/proc/%d/wchan" % pid) as file:
            return file.read().strip("0") or "epoll"
    except OSError:
        return "epoll"


def test_gunicorn_with_a_preloaded_program(stage: Stage, live: str) -> None:
    """What the master freed before the fork counts in resident of each worker, and in exclusive of the last one that has it."""
    family = gunicorn(stage, 2)
    master, first, second = family
    before = forked.predicted(master, "trim")
    text = heapx(["--pid", str(first)], "trim", "--dry-run").stdout.decode()
    assert "of it in RAM now (the machine gets back" in text and "shared with forked processes" in text
    assert before["resident"] > 40 * MIB and before["exclusive"] < MIB
    for worker in (first, second):
        taken = forked.act(worker, family, "trim")
        forked.check(taken)
        assert taken.foretold > 40 * MIB and taken.foretold_exclusive < 2 * MIB
        assert forked.predicted(worker, "trim")["resident"] < MIB
    alone = forked.predicted(master, "trim")
    assert before["resident"] - MIB < alone["resident"] <= before["resident"] + MIB
    assert alone["exclusive"] > alone["resident"] - MIB
    totals = heapx(["--pid", str(master)], "report", "--json").data["totals"]["glibc"]
    assert abs(totals["reclaimable_resident_bytes"] - alone["resident"]) < MIB > abs(totals["reclaimable_exclusive_bytes"] - alone["exclusive"])


def test_redis_while_it_saves(stage: Stage, live: str) -> None:
    """During BGSAVE unused pages are shared with the child: a purge takes them from the parent's RSS, and the machine keeps them for the child."""
    if not shutil.which("redis-check-rdb"):
        pytest.skip("redis-server is not installed (redis-tools)")
    redis = Redis(stage, "dirty_decay_ms:-1", "--rdb-key-save-delay", "20000")
    redis.fill(60000)
    redis.drop(50000)
    parent = redis.process.pid
    alone = forked.predicted(parent, "purge")
    assert alone["resident"] == alone["exclusive"] > 40 * MIB
    assert redis.ask("BGSAVE").startswith(b"+Background saving started")
    (child,) = forked.children(parent)
    try:
        taken = forked.act(parent, [parent, child], "purge")
        forked.check(taken, WOKEN_BYTES)
        assert taken.foretold > 40 * MIB and taken.foretold_exclusive < 2 * MIB
        left = forked.predicted(child, "purge")
        assert left["resident"] > 40 * MIB and left["exclusive"] > left["resident"] - 2 * MIB
        assert redis.ask("GET", "key:50001").startswith(b"x") and forked.children(parent) == [child], "it serves and saves on"
    finally:
        forked.end([child])
