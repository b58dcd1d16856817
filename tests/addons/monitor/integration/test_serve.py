"""`serve`: a scrape has what the last sample found, of one process or of many; nobody is stopped, and it ends when it is told to.

Files: addons/monitor/commands/serve.py, addons/monitor/watch/endpoint.py.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from tests.support.processes import Stage
from tests.support.programs import found
from tests.support.serving import Served
from tests.support.tool import heapx
from tests.support.unchanged import unchanged

pytest.importorskip("prometheus_client", reason="serve requires prometheus_client")

pytestmark = pytest.mark.once  # reading the process and its allocators is proved in the images by the other modules

MB = 1 << 20
ANYWHERE = ("--listen", "127.0.0.1:0")
NO_RIGHTS = ["setpriv", "--reuid=65532", "--regid=65532", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
"""As the container of serve-daemonset.yaml runs."""


@pytest.fixture
def serving() -> Iterator[Any]:
    """Starts one; ended with the test."""
    made: List[Served] = []

    def start(*words: str, before: Any = ()) -> Served:
        made.append(Served(*words, before=before))
        return made[-1]

    yield start
    for one in made:
        if one.popen.poll() is None:
            one.popen.kill()
        one.popen.communicate()


def test_one_process(stage: Stage, live: str, serving: Any) -> None:
    """A scrape has figures of the process; promtool takes it; SIGTERM ends it, code 0."""
    process = stage.start("recorder", "2", "1000", "3")
    one = serving("--pid", str(process.pid), "serve", *ANYWHERE, "--every", "0.1")
    told = one.series()
    assert told["gdbheapx_up"][0].value == 1 and told["gdbheapx_allocator_held_bytes"][0].labels["allocator"] == "glibc"
    resident = int(Path("/proc/%d/statm" % process.pid).read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
    assert abs(told["gdbheapx_rss_bytes"][0].value - resident) < MB
    assert set(told["gdbheapx_rss_bytes"][0].labels) - {"container_id", "pod_uid"} == {"pid", "name"}
    assert told["gdbheapx_build_info"][0].value == 1 and one.start["is_private"] is True
    assert "TracerPid:\t0" in Path("/proc/%d/status" % process.pid).read_text()
    promtool = found("promtool")
    if promtool is not None:
        done = subprocess.run([promtool, "check", "metrics"], input=one.text("text/plain"), capture_output=True, text=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    last = one.end()
    assert (last["kind"], last["why"]) == ("end", "stopped") and last["samples"] >= told["gdbheapx_samples_total"][0].value


def test_it_ends_with_its_process(stage: Stage, live: str, serving: Any) -> None:
    """And says so; the port is free again."""
    process = stage.start("recorder", "2", "1000", "3")
    one = serving("--pid", str(process.pid), "serve", *ANYWHERE, "--every", "0.1")
    one.series()
    process.popen.kill()
    out, errors = one.popen.communicate(timeout=60)
    assert (one.popen.returncode, errors, json.loads(out.splitlines()[-1])["why"]) == (0, b"", "process-ended")
    assert heapx([], "serve", "--pids", "none", "--times", "1", "--listen", one.start["url"].split("/")[2]).code == 0


def test_the_process_pays_nothing(stage: Stage, live: str) -> None:
    """A sleeping process has no page fault, page or page table more."""
    process = stage.start("asleep")
    process.command(b"w")
    with unchanged(process.pid):
        outcome = heapx(process.target(live), "serve", *ANYWHERE, "--every", "0.05", "--times", "3")
        assert outcome.code == 0 and b"ended after 3 samples" in outcome.stdout


PROGRAM = "import ctypes; ctypes.CDLL(None).prctl(15, %r, 0, 0, 0); kept = bytearray(20_000_000); print('ready', flush=True); input()"


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="only root can give rights up, with setpriv (util-linux)")
def test_many_without_any_right(stage: Stage, serving: Any) -> None:
    """Counters of processes of another user need no capability. One that begins is among them, one that ends goes away."""
    name = "served%d" % (os.getpid() % 100_000)
    first, second = ([sys.executable, "-c", PROGRAM % name.encode()] for _ in range(2))
    process = stage.spawn_ready(first)
    one = serving("serve", "--pids", name, *ANYWHERE, "--every", "0.1", before=NO_RIGHTS)
    told = one.series()
    (sample,) = told["gdbheapx_rss_bytes"]
    assert sample.labels["pid"] == str(process.pid) and sample.labels["name"] == name and sample.value > 20_000_000
    assert told["gdbheapx_processes"][0].value == 1 and told["gdbheapx_peak_bytes"][0].value >= sample.value - MB
    other = stage.spawn_ready(second)
    process.popen.kill()
    process.popen.wait()
    then = one.series()["gdbheapx_samples_total"][0].value
    pids = [sample.labels["pid"] for sample in one.series(then + 1)["gdbheapx_rss_bytes"]]
    assert pids == [str(other.pid)]
    assert one.end(signal.SIGINT)["why"] == "stopped"


@pytest.mark.parametrize(
    "words, code",
    [
        (["serve"], 2),
        (["serve", "--pids", "ALL", "--times", "0"], 2),
        (["serve", "--pids", "ALL", "--every", "0"], 2),
        (["serve", "--pids", "ALL", "--listen", "9090"], 2),
        (["serve", "--pids", "ALL", "--listen", "::1:80"], 2),
        (["serve", "--pids", "ALL", "--listen", "192.0.2.1:80"], 1),
        (["--pid", str(os.getpid()), "serve", "--pids", "ALL"], 2),
        (["--pid", "999999999", "serve"], 1),
    ],
)
def test_what_it_refuses(words: List[str], code: int) -> None:
    """In one line."""
    outcome = heapx([], *words)
    assert outcome.code == code and outcome.stdout == b"" and len(outcome.stderr.splitlines()) == 1
