"""`watch`: its samples are what stopped looks find, the process never notices, and whatever ends it, its last words are a summary."""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Sequence

import pytest

from gdbheapx.addons.monitor.watch.samples import find_meter
from gdbheapx.allocators.session import Session
from gdbheapx.common.errors import HeapxError
from gdbheapx.inferior.live.source import LiveSource
from gdbheapx.inferior.live.stopper import Stopper
from gdbheapx.inferior.target import ElfTarget
from tests.support import jemallocs, programs
from tests.support.processes import Process, Stage
from tests.support.programs import need
from tests.support.tool import alone, heapx, tool_command, tool_environment

pytestmark = pytest.mark.once  # reading the process and its allocators is proved in the images by the other modules

MB = 1 << 20


class Watch:
    """A watch that runs beside the test."""

    def __init__(self, pid: int, *words: str, before: Sequence[str] = ()) -> None:
        command = [*before, *tool_command(), "--pid", str(pid), "watch", *words]
        self.popen = subprocess.Popen(
            command, env=tool_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
        )

    def line(self) -> Dict[str, Any]:
        """The next line of --json."""
        found: Dict[str, Any] = json.loads(self.popen.stdout.readline())
        return found

    def end(self, number: int = signal.SIGTERM) -> List[Dict[str, Any]]:
        """The lines that are left when it was told to end."""
        self.popen.send_signal(number)
        out, errors = self.popen.communicate(timeout=60)
        assert self.popen.returncode == 0, errors
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def begin() -> Iterator[Callable[..., Watch]]:
    """Starts one; ended with the test."""
    made: List[Watch] = []

    def start(*given: Any, **more: Any) -> Watch:
        made.append(Watch(*given, **more))
        return made[-1]

    yield start
    for one in made:
        if one.popen.poll() is None:
            one.popen.kill()
        one.popen.communicate()


def totals(process: Process, allocator: str) -> Dict[str, Any]:
    """A look at the process while it stands still."""
    found: Dict[str, Any] = alone(process.target("live"), "arenas", "--json").envelope["data"]["totals"][allocator]
    return found


def start(stage: Stage, allocator: str) -> Process:
    """A process that allocates and frees without end."""
    return stage.start("busy", "2") if allocator == "glibc" else jemallocs.start(stage, "preload", "churn", "2")


SLACK = {"system_bytes": 0.01, "used_bytes": 0.05}
"""By so much more than six looks a figure of a process that never rests may differ: these are few of its moments."""


def test_samples_are_what_stopped_looks_find(stage: Stage, live: str) -> None:
    """Of a process that allocates and frees without end: at least 95 in 100 samples are in the range of looks before and after."""
    process = start(stage, "glibc")
    looks = [totals(process, "glibc") for _ in range(3)]
    told = heapx(process.target(live), "watch", "--every", "0.01", "--times", "100", "--json").lines
    looks += [totals(process, "glibc") for _ in range(3)]
    samples = [one["allocators"]["glibc"] for one in told if one["kind"] == "sample"]
    assert len(samples) == 100
    for key, slack in SLACK.items():
        found = [used_while_running(one) if key == "used_bytes" else one[key] for one in looks]
        low, high = min(found) * (1 - slack), max(found) * (1 + slack)
        known = [one[key] for one in samples if one[key] is not None]
        assert sum(low <= value <= high for value in known) >= 0.95 * len(known), (key, low, high, sorted(known)[:3], sorted(known)[-3:])
        assert len(known) == 100 or key == "used_bytes"


def used_while_running(look: Dict[str, Any]) -> int:
    """What the walk of a glibc process that stands still has, as the estimate counts it: with thread caches and overhead."""
    return sum(look[key] for key in ("used_bytes", "mmapped_bytes", "tcache_bytes", "overhead_bytes"))


GROWS = """
import time
print("ready", flush=True)
blocks = []
while True:
    blocks.append(bytearray(30000))
    if len(blocks) % 5 == 0:
        blocks[-3] = None
    time.sleep(0.001)
"""


GROWING = {"glibc": ("system_bytes", "used_bytes"), "jemalloc": ("allocated_bytes", "active_bytes")}


@pytest.mark.parametrize("allocator", sorted(GROWING))
def test_samples_lie_between_two_stopped_looks(stage: Stage, live: str, allocator: str) -> None:
    """Of a process that grows: figures are between those of the looks before and after, in at least 95 of 100 samples, estimates too."""
    env = {"MALLOC_MMAP_THRESHOLD_": "1000000000"} if allocator == "glibc" else {"LD_PRELOAD": str(jemallocs.library())}
    process = stage.spawn_ready([sys.executable, "-c", GROWS], env=env)
    first = totals(process, allocator)
    told = heapx(process.target(live), "watch", "--every", "0.02", "--times", "100", "--json").lines
    last = totals(process, allocator)
    samples = [one["allocators"][allocator] for one in told if one["kind"] == "sample"]
    for key in GROWING[allocator]:
        low, high = (used_while_running(one) if key == "used_bytes" else one[key] for one in (first, last))
        known = [one[key] for one in samples if one[key] is not None]
        assert sum(low <= value <= high for value in known) >= 0.95 * len(known), (key, low, high, known)
        assert len(known) >= (5 if key == "used_bytes" else 100) and high > low * 1.5


def tracers(pid: int) -> List[str]:
    """TracerPid of each thread."""
    return [
        line.split()[1]
        for path in Path("/proc/%d/task" % pid).glob("*/status")
        for line in path.read_text().splitlines()
        if line.startswith("TracerPid")
    ]


@pytest.mark.parametrize("allocator", ["glibc", "jemalloc"])
def test_it_never_attaches(stage: Stage, live: str, begin: Callable[..., Watch], tmp_path: Path, allocator: str) -> None:
    """strace of watch itself: no ptrace, no process_vm_readv or writev, no signal; /proc/PID/mem is opened for reading; TracerPid stays 0."""
    need("strace")
    process, log = start(stage, allocator), tmp_path / "log"
    calls = "trace=ptrace,process_vm_readv,process_vm_writev,kill,tkill,tgkill,openat,open,pidfd_open,pidfd_send_signal"
    watch = begin(process.pid, "--every", "0.05", "--times", "20", "--json", before=["strace", "-f", "-qq", "-o", str(log), "-e", calls])
    kinds = [watch.line()["kind"]]
    while kinds[-1] != "end":
        assert tracers(process.pid) == ["0"] * 3
        kinds.append(watch.line()["kind"])
    assert watch.popen.wait(60) == 0 and kinds == ["start"] + ["sample"] * 20 + ["end"]
    text = log.read_text()
    assert "/proc/%d/mem" % process.pid in text
    assert not re.search(r"\b(ptrace|process_vm_\w+|t?g?kill|pidfd_\w+)\(", text)
    assert all("O_RDONLY" in line for line in text.splitlines() if "/proc/%d/mem" % process.pid in line)


def test_exact_stops_and_says_so(stage: Stage, live: str) -> None:
    """--exact: each sample has its stop, nothing is an estimate, the figures are those of `arenas`; and the process runs on."""
    process = stage.start("recorder", "4", "20000", "3")
    told = heapx(process.target(live), "watch", "--every", "0.05", "--times", "3", "--exact", "--json").lines
    assert told[0]["stops_the_process"] is True and told[0]["allocators"][0]["estimates"] == []
    found = totals(process, "glibc")
    for one in told[1:-1]:
        assert 0 < one["stopped_ms"] < 5000
        assert one["allocators"]["glibc"]["used_bytes"] == found["used_bytes"] + found["mmapped_bytes"]
        assert one["allocators"]["glibc"]["free_bytes"] == found["free_bytes"] + found["fast_bytes"]
    text = heapx(process.target(live), "watch", "--every", "0.05", "--times", "1", "--exact").stdout.decode()
    assert "each sample stops it" in text and "free~" not in text and " ms" in text
    assert tracers(process.pid)[0] == "0"


def test_exact_outlasts_a_debugger(stage: Stage, live: str, begin: Callable[..., Watch]) -> None:
    """While another tracer holds the process nothing is known of its heap; afterwards it is again."""
    process = stage.start("recorder", "2", "1000", "3")
    watch = begin(process.pid, "--exact", "--every", "0.05", "--json")
    until(watch, "sample")

    def used() -> Any:
        return until(watch, "sample")["allocators"]["glibc"]["used_bytes"]

    assert used() > 0
    other = Stopper(process.pid)
    for _ in range(100):
        try:
            other.stop()
            break
        except HeapxError:  # the watch has it
            time.sleep(0.01)
    try:
        assert any(used() is None for _ in range(200))
    finally:
        other.let_go()
    assert any(used() is not None for _ in range(200))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whoever_ends_it_gets_the_summary(stage: Stage, live: str, begin: Callable[..., Watch], number: int) -> None:
    """Ctrl-C and SIGTERM: exit code 0, the last line says why."""
    process = stage.start("recorder", "2", "1000", "3")
    watch = begin(process.pid, "--every", "0.05", "--json")
    assert [watch.line()["kind"] for _ in range(4)] == ["start", "sample", "sample", "sample"]
    left = watch.end(number)
    assert (left[-1]["kind"], left[-1]["why"]) == ("end", "stopped") and left[-1]["samples"] >= 3


def test_a_process_that_ends(stage: Stage, live: str, begin: Callable[..., Watch], tmp_path: Path) -> None:
    """The watch ends with it, quietly, and nothing of it is left in the metrics. Before, Prometheus' own parsers take these: of OpenMetrics, and promtool of
    the text format that the textfile collector reads."""
    process, path = stage.start("recorder", "2", "1000", "3"), tmp_path / "out.prom"
    watch = begin(process.pid, "--every", "0.05", "--json", "--openmetrics", str(path))
    assert [watch.line()["kind"] for _ in range(3)] == ["start", "sample", "sample"]
    text, promtool = path.read_text(), programs.found("promtool")
    assert 'gdbheapx_up{pid="%d"' % process.pid in text and "gdbheapx_rss_bytes{" in text
    if promtool is not None:
        done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr + done.stdout
    if importlib.util.find_spec("prometheus_client") is not None:
        from prometheus_client.openmetrics import parser

        families = {family.name: family for family in parser.text_string_to_metric_families(text)}
        assert families["gdbheapx_rss_bytes"].unit == "bytes" and families["gdbheapx_rss_bytes"].samples[0].value > MB
    process.popen.kill()
    out, errors = watch.popen.communicate(timeout=60)
    assert watch.popen.returncode == 0 and errors == b"" and json.loads(out.splitlines()[-1])["why"] == "process-ended"
    assert re.search(r"^gdbheapx_up\{.*\} 0$", path.read_text(), re.M) and "gdbheapx_rss_bytes{" not in path.read_text()


def test_a_process_that_becomes_another_program(stage: Stage, live: str, begin: Callable[..., Watch]) -> None:
    """execve ends the watch: the addresses that it knows are of the program before."""
    process = stage.spawn_ready([sys.executable, "-c", "import os; print('ready', flush=True); input(); os.execv('/bin/sleep', ['sleep', '60'])"])
    watch = begin(process.pid, "--every", "0.05", "--json")
    assert [watch.line()["kind"] for _ in range(2)] == ["start", "sample"]
    process.send(b"\n")
    out, _ = watch.popen.communicate(timeout=60)
    assert watch.popen.returncode == 0 and json.loads(out.splitlines()[-1])["why"] == "other-program"


def test_a_trim_and_what_comes_back(stage: Stage, live: str, begin: Callable[..., Watch]) -> None:
    """The program trims itself and later takes half of it again: the step is told, how much is back, and that it is in use."""
    body = """
import ctypes, sys
trim = ctypes.CDLL(None).malloc_trim
blocks = [bytearray(20000) for number in range(4000)]
kept = blocks[::8]
del blocks
print("ready", flush=True); sys.stdin.read(1)
trim(0)
print("ready", flush=True); sys.stdin.read(1)
more = [bytearray(20000) for number in range(1750)]
print("ready", flush=True); sys.stdin.read(1)
"""
    env = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "100000000000", "PYTHONMALLOC": "malloc"}
    process = stage.spawn_ready([sys.executable, "-c", body], env=env)
    watch = begin(process.pid, "--every", "0.1", "--json")
    assert [watch.line()["kind"] for _ in range(4)] == ["start", "sample", "sample", "sample"]
    process.command(b"t")
    step = until(watch, "returned")
    assert 50 * MB < step["returned_bytes"] < 80 * MB and step["rss_before_bytes"] - step["rss_after_bytes"] > 50 * MB
    process.command(b"m")
    for _ in range(5):
        until(watch, "sample")
    end = watch.end()[-1]
    (last,) = end["last_steps"]
    assert 25 * MB < last["back_bytes"] < 45 * MB
    in_use = last["back_used_bytes"]  # unknown where a busy machine gave a sample no time for the walk
    assert in_use is None or in_use >= last["back_bytes"] * 0.8
    assert end["steps"] == 1 and end["worth"]["code"] == "too-early"


def until(watch: Watch, kind: str) -> Dict[str, Any]:
    """The next line of this kind."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        found = watch.line()
        if found["kind"] == kind:
            return found
    raise AssertionError("no %s" % kind)


def own_rss(pid: int) -> int:
    """RSS in bytes."""
    return int(Path("/proc/%d/statm" % pid).read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("allocator", ["glibc", "jemalloc"])
def test_its_own_memory_stays_flat(stage: Stage, live: str, begin: Callable[..., Watch], tmp_path: Path, allocator: str) -> None:
    """Between the 300th sample and the 1,500th its RSS grows by less than 512 KiB, with every file written."""
    process = start(stage, allocator)
    words = ["--csv", str(tmp_path / "csv"), "--openmetrics", str(tmp_path / "prom"), "--jsonl", str(tmp_path / "jsonl")]
    if importlib.util.find_spec("jinja2") is not None:
        words += ["--html", str(tmp_path / "page.html")]
    watch = begin(process.pid, "--every", "0.0005", "--times", "1600", "--json", *words)
    for _ in range(300):
        watch.line()
    before = own_rss(watch.popen.pid)
    for _ in range(1200):
        watch.line()
    after = own_rss(watch.popen.pid)
    assert after - before < MB // 2, (before, after)


def test_a_program_without_malloc(stage: Stage, live: str) -> None:
    """No allocator can be read: RSS and threads are watched all the same."""
    process = stage.start("untouched")
    told = heapx(process.target(live), "watch", "--every", "0.05", "--times", "2", "--allocator", "glibc", "--json").lines
    assert told[1]["rss_bytes"] > 0 and told[1]["threads"] == 1


ADDING = """
import itertools, sys
kept = {}
for line in itertools.chain([None], sys.stdin):
    for number in range(len(kept), len(kept) + 100000):
        kept[number] = "order %d" % number
    print("ready", flush=True)
"""


@pytest.mark.skipif("t" in sys.abiflags, reason="free-threaded builds have other pools")
def test_a_runtimes_pools_are_measured(stage: Stage) -> None:
    """While the process runs, named as in the split of `report`; they grow with its objects. A program without a runtime is not asked."""
    process = stage.spawn_ready([sys.executable, "-c", ADDING])
    meter = find_meter(Session(ElfTarget(LiveSource(process.pid, "", None), ())))
    before = meter() or {}
    process.send(b"\n")
    process.wait_ready()
    grown = {name: size - before.get(name, 0) for name, size in (meter() or {}).items()}
    assert list(grown) == ["CPython: object arenas (obmalloc)"] and 4 * MB < grown["CPython: object arenas (obmalloc)"] < 40 * MB
    other = stage.start("recorder", "1", "100", "3")
    assert find_meter(Session(ElfTarget(LiveSource(other.pid, "", None), ()))) is None


SPIKING = """
import ctypes, mmap, sys, time
libc, size, way = ctypes.CDLL(None), 80 << 20, sys.argv[1]
libc.mmap.restype = libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes, libc.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
print("ready", flush=True)
while True:
    time.sleep(0.8)
    if way == "mappings":
        address = libc.mmap(None, ctypes.c_size_t(size), 3, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, ctypes.c_size_t(0))
    else:
        address = libc.malloc(size)
    ctypes.memset(address, 1, size)
    time.sleep(0.8)
    if way == "mappings":
        libc.munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    else:
        libc.free(address)
"""


@pytest.mark.parametrize("way", ["mappings", "allocators"])
def test_spikes(stage: Stage, way: str) -> None:
    """Of mappings of the program's own and of malloc: how high, whose, and that they were not memory returned to the OS; the peak is the
    kernel's."""
    process = stage.spawn_ready([sys.executable, "-c", SPIKING, way])
    end = heapx(process.target("live"), "watch", "--every", "0.1", "--times", "125", "--json").lines[-1]
    spikes = end["spikes"]
    assert spikes["number"] >= 3 and spikes["bytes"] == pytest.approx(80 * MB, rel=0.1) and spikes["whose"] == way
    assert end["steps"] == 0 and end["code"] in ("swings", "steady")
    high = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/%d/status" % process.pid).read_text(), re.MULTILINE)
    assert high is not None and 80 * MB < end["peak_bytes"] <= int(high[1]) << 10
