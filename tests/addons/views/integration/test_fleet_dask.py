"""`fleet --dask`: a real scheduler and real worker processes, which are killed, are of another version, or go away."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional

import pytest

from tests.support.processes import Stage
from tests.support.tool import heapx, tool_command, tool_environment

pytest.importorskip("distributed", reason="fleet --dask requires distributed")
pytestmark = pytest.mark.once  # images have no distributed

CORES = 12
POISON = """import os, signal, subprocess
class Popen(subprocess.Popen):
    def __init__(self, words, *given, **how):
        if any(word.endswith("/poison") for word in words):
            os.kill(os.getpid(), signal.SIGKILL)
        super().__init__(words, *given, **how)
subprocess.Popen = Popen
"""
"""As a worker's sitecustomize: the look at a core of that name kills the worker, before it begins: it would search no such module."""
OLDER = "import gdbheapx.common\ngdbheapx.common.__version__ = '0.0.1'\n"


def until(fact: Callable[[], object], seconds: float = 60) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.01)


class Cluster:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: List[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(file))
        until(file.exists)
        until(lambda: file.read_text().strip().endswith("}"))
        self.address: str = json.loads(file.read_text())["address"]

    def start(self, *words: str, site: Optional[str] = None) -> "subprocess.Popen[bytes]":
        """One process; `site` is Python that it and its children run first."""
        environment = tool_environment()
        if site is not None:
            (self.folder / "site").mkdir(exist_ok=True)
            (self.folder / "site" / "sitecustomize.py").write_text(site)
            environment["PYTHONPATH"] = "%s:%s" % (self.folder / "site", environment["PYTHONPATH"])
        command = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
        with open(self.folder / ("%d.log" % len(self.started)), "wb") as log:
            made = subprocess.Popen(command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.started.append(made)
        return made

    def worker(self, *words: str, site: Optional[str] = None) -> "subprocess.Popen[bytes]":
        """One worker of one thread that is ready."""
        log = self.folder / ("%d.log" % len(self.started))
        made = self.start("worker", self.address, "--nthreads", "1", *words, site=site)
        until(lambda: "Registered to:" in log.read_text())
        return made

    def end(self) -> None:
        """All of it."""
        for one in reversed(self.started):
            one.terminate()
        for one in reversed(self.started):
            try:
                one.wait(timeout=10)
            except subprocess.TimeoutExpired:
                one.kill()
                one.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A scheduler without workers."""
    folder = tmp_path / "cluster"
    folder.mkdir()
    made = Cluster(folder)
    yield made
    made.end()


@pytest.fixture
def cores(stage: Stage, tmp_path: Path) -> List[str]:
    """Copies of one."""
    folder = tmp_path / "cores"
    folder.mkdir()
    core = stage.start("contents").core()
    copies = [folder / ("copy.%d" % number) for number in range(CORES)]
    for path in copies:
        path.write_bytes(core.read_bytes())
    return [str(path) for path in copies]


def children(process: "subprocess.Popen[bytes]") -> List[int]:
    """What the process has started and what of it runs."""
    found: List[int] = []
    try:
        for task in Path("/proc/%d/task" % process.pid).iterdir():
            found += [int(word) for word in (task / "children").read_text().split()]
    except OSError:
        pass  # a thread ended
    return found


def running(words: List[str]) -> "subprocess.Popen[bytes]":
    """The tool, in the background."""
    command = [*tool_command(), "fleet", *words]
    return subprocess.Popen(command, env=tool_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def looks(cores: List[str]) -> List[str]:
    """Processes that look at one of the cores."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        if any(word[len("--core=") :] in cores for word in words if word.startswith("--core=")):
            found.append(path.parent.name)
    return found


def by_core(out: Path) -> Dict[str, Dict[str, object]]:
    """The rows, by the name of their core."""
    rows = heapx([], "table", str(out), "--json").data["rows"]
    return {Path(row["core"]).name: row for row in rows}


@pytest.mark.slow
def test_a_killed_worker_loses_no_core(cluster: Cluster, cores: List[str], tmp_path: Path) -> None:
    """One of two workers is killed while it looks: its core is looked at again, the table is that of a local run, and no look is left."""
    cluster.worker("--no-nanny")
    victim = cluster.worker("--no-nanny")
    out = tmp_path / "out"
    bad = [str(tmp_path / "missing"), str(tmp_path / "cut")]
    Path(bad[1]).write_bytes(Path(cores[0]).read_bytes()[:100])
    tool = running([*cores, *bad, "--dask", cluster.address, "-o", str(out), "--json"])
    until(lambda: len(list(out.glob("*.json"))) > 1 and children(victim))
    there = len(list(out.glob("*.json")))
    victim.send_signal(signal.SIGKILL)
    told, said = tool.communicate(timeout=120)
    assert there < len(cores) and tool.returncode == 4, said
    rows = json.loads(told)["data"]["rows"]
    assert sum(row["error"] is None for row in rows) == CORES and len(rows) == CORES + 2
    until(lambda: not looks(cores), 10)
    local = heapx([], "fleet", *cores, *bad, "-o", str(tmp_path / "local"), "--json").envelope["data"]["rows"]
    assert [{**row, "document": ""} for row in rows] == [{**row, "document": ""} for row in local]
    assert b"not encrypted" not in said  # of an address of this machine


@pytest.mark.slow
def test_a_core_that_kills_its_workers_is_a_row(cluster: Cluster, cores: List[str], tmp_path: Path) -> None:
    """Dask gives it up after some workers; the run ends, and a second one makes that core alone. Dask blames each core that waits for a worker
    which dies: the other one has its answer before."""
    cluster.worker(site=POISON)
    poison, out = tmp_path / "poison", tmp_path / "out"
    poison.write_bytes(Path(cores[0]).read_bytes())
    assert heapx([], "fleet", cores[0], "--dask", cluster.address, "-o", str(out)).code == 0
    done = heapx([], "fleet", cores[0], str(poison), "--dask", cluster.address, "-o", str(out))
    assert done.code == 4, done.stderr
    rows = by_core(out)
    assert "KilledWorker" in str(rows["poison"]["error"]) and rows["copy.0"]["error"] is None
    before = (out / str(rows["copy.0"]["document"])).stat().st_mtime_ns
    assert heapx([], "fleet", cores[0], str(poison), "-o", str(out)).code == 0
    after = by_core(out)
    assert after["poison"]["error"] is None and (out / str(after["copy.0"]["document"])).stat().st_mtime_ns == before


@pytest.mark.slow
def test_another_version(cluster: Cluster, cores: List[str], tmp_path: Path) -> None:
    """A worker with another gdbheapx looks at nothing: a line and rows that say so."""
    cluster.worker(site=OLDER)
    done = heapx([], "fleet", *cores[:3], "--dask", cluster.address, "-o", str(tmp_path / "out"))
    assert done.code == 1 and done.stderr.count("another gdbheapx on worker") == 2, done.stderr
    assert all("0.0.1, here" in str(row["error"]) for row in by_core(tmp_path / "out").values())


@pytest.mark.slow
def test_interrupt_cancels(cluster: Cluster, cores: List[str], tmp_path: Path) -> None:
    """Ctrl-C: whole documents stay, the worker's look ends, and the same line goes on from there."""
    worker, out = cluster.worker("--no-nanny"), tmp_path / "out"
    words = [*cores, "--dask", cluster.address, "-o", str(out)]
    tool = running(words)
    until(lambda: list(out.glob("*.json")) and children(worker))
    tool.send_signal(signal.SIGINT)
    _, said = tool.communicate(timeout=60)
    found = {path.name: path.stat().st_mtime_ns for path in out.glob("*.json")}
    assert tool.returncode == 4 and 0 < len(found) < CORES, said
    until(lambda: not looks(cores), 10)
    assert heapx([], "fleet", *words).code == 0
    assert {name: (out / name).stat().st_mtime_ns for name in found} == found and len(list(out.glob("*.json"))) == CORES


@pytest.mark.slow
def test_lost_scheduler(cluster: Cluster, cores: List[str], tmp_path: Path) -> None:
    """One line with the next step; what is whole stays."""
    cluster.worker("--no-nanny")
    out = tmp_path / "out"
    tool = running([*cores, "--dask", cluster.address, "-o", str(out)])
    until(lambda: list(out.glob("*.json")))
    cluster.scheduler.send_signal(signal.SIGKILL)
    _, said = tool.communicate(timeout=60)
    lines = [line for line in said.decode().splitlines() if " so far" not in line or "lost" in line]
    assert tool.returncode == 1 and len(lines) == 1 and "lost the scheduler at %s; " % cluster.address in lines[0]
    assert all(json.loads(path.read_text())["data"] for path in out.glob("*.json"))
    again = heapx([], "fleet", *cores, "--dask", cluster.address, "-o", str(out))
    assert again.code == 1 and again.stderr.count("\n") == 1 and "no scheduler answers at" in again.stderr


def test_without_distributed(tmp_path: Path) -> None:
    """One line with the next step; no file of the cores is opened for it."""
    (tmp_path / "distributed.py").write_text("raise ImportError('hidden by a test')\n")
    environment = {"PYTHONPATH": "%s:%s" % (tmp_path, tool_environment()["PYTHONPATH"])}
    done = heapx([], "fleet", "/dev/null", "--dask", "localhost:1", "-o", str(tmp_path / "out"), env=environment)
    assert done.code == 1 and done.stderr.count("\n") == 1 and "pip install 'gdbheapx[dask]'" in done.stderr
    both = heapx([], "fleet", "/dev/null", "--dask", "localhost:1", "--workers", "2", "-o", str(tmp_path / "out"))
    assert both.code == 2 and "cannot be combined" in both.stderr
    assert os.listdir(tmp_path / "out") == ["views.sql"]
