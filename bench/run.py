"""`make bench`: the time and memory of `arenas` beyond gdb's own, against a bare C loop over the same chunks.

Environment: BENCH_RUNS (default 15), BENCH_FOLDER (where the cores go, 3 GB; default a temporary folder).
"""

import json
import os
import random
import shutil
import statistics
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tools"))

import kernelcore  # noqa: E402  (its folder must be on the path first)

RUNS = int(os.environ.get("BENCH_RUNS", "15"))
TOOL = str(Path(sys.executable).parent / "gdbheapx")
TABULATE = {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
"""So that gdb finds tabulate, as it does where the package is installed and not a checkout."""
GDBINIT = str(HERE.parent / "gdbheapx" / "gdbinit.py")
SMALL, LARGE = 1_000_000, 5_000_000
REGIONS = 12_100_000
MB = 1 << 20


class Row(NamedTuple):
    """One line of the table."""

    figure: str
    limit: Optional[float]
    measured: float
    unit: str
    note: str = ""

    def line(self) -> str:
        """The line as it is printed."""
        limit = "-" if self.limit is None else "%.3g" % self.limit
        verdict = "" if self.limit is None else "ok" if self.measured <= self.limit else "OVER"
        return "%-64s %8s %10.3f %-5s %-4s %s" % (self.figure, limit, self.measured, self.unit, verdict, self.note)


class Heap(NamedTuple):
    """A core to measure on."""

    core: str
    chunks: int
    used_bytes: int
    free_bytes: int


def wall(command: Sequence[str], env: Optional[Dict[str, str]] = None) -> float:
    """Seconds that the command takes; it must succeed."""
    start = time.perf_counter()
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
    took = time.perf_counter() - start
    if done.returncode:
        raise SystemExit("%s ended with %d: %s" % (" ".join(command), done.returncode, done.stderr.decode()[-1000:]))
    return took


def walk(folder: Path, core: str) -> List[float]:
    """chunks, used bytes, free bytes and seconds of the bare loop."""
    return [float(word) for word in subprocess.check_output([str(folder / "walk"), core]).split()]


def build(folder: Path) -> None:
    """Compile the two programs."""
    for name in ("frag", "walk"):
        subprocess.check_call(["gcc", "-O2", "-g", "-o", str(folder / name), str(HERE / (name + ".c")), "-pthread"])


def start_frag(folder: Path, objects: int, arenas: int, *more: str) -> "subprocess.Popen[bytes]":
    """The program that makes the heap, ready."""
    command = [str(folder / "frag"), str(folder / "record"), str(objects), str(arenas), *more]
    process = kernelcore.start(
        command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "GLIBC_TUNABLES": "glibc.malloc.arena_max=%d" % arenas}
    )
    assert process.stdout
    if process.stdout.readline() != b"ready\n":
        raise SystemExit("frag did not get ready")
    return process


def make_heap(folder: Path, name: str, objects: int, arenas: int) -> Heap:
    """A kernel core of frag, with what the bare loop counts in it."""
    process = start_frag(folder, objects, arenas)
    core = kernelcore.take(process, str(folder / (name + ".core")))
    counted = walk(folder, core)
    print(
        "%s: %d objects in each of %d arenas, %d chunks, core of %d MB" % (name, objects, arenas, counted[0], os.path.getsize(core) / MB), flush=True
    )
    return Heap(core, int(counted[0]), int(counted[1]), int(counted[2]))


def check(heap: Heap) -> None:
    """The tool counts what the bare loop counts, before anything is timed."""
    totals = json.loads(subprocess.check_output([TOOL, "--core", heap.core, "arenas", "--json"]))["data"]["totals"]["glibc"]
    in_use = totals["used_bytes"] + totals["tcache_bytes"] + totals["fast_bytes"]
    if totals["free_bytes"] != heap.free_bytes or abs(in_use - heap.used_bytes) > 4096 * 16:
        raise SystemExit(
            "the tool counts %d used, %d free; the bare loop %d used, %d free" % (in_use, totals["free_bytes"], heap.used_bytes, heap.free_bytes)
        )


def interleaved(runs: int, **what: Callable[[], float]) -> Dict[str, List[float]]:
    """Each measure once in each of `runs` rounds, in another order each time, so that slow phases and neighbours hit all alike."""
    got = {name: [] for name in what}  # type: Dict[str, List[float]]
    order = random.Random(1)
    for _ in range(runs):
        for name in order.sample(sorted(what), len(what)):
            got[name].append(what[name]())
    return got


def beyond(got: Dict[str, List[float]], name: str, alone: str) -> float:
    """Median, over the rounds, of the tool's time less gdb's own in the same round."""
    return statistics.median(tool - gdb for tool, gdb in zip(got[name], got[alone]))


def alone(folder: Path, heap: Heap) -> Callable[[], float]:
    """gdb on the same core, doing nothing."""
    return lambda: wall(["gdb", "-nx", "-q", "-batch", str(folder / "frag"), heap.core])


def arenas(heap: Heap, *more: str, env: Optional[Dict[str, str]] = None) -> Callable[[], float]:
    """The tool's `arenas` on a core."""
    return lambda: wall([TOOL, "--core", heap.core, "arenas", *more], env)


def cores(folder: Path, small: Heap, large: Heap) -> List[Row]:
    """Slope and fixed cost, from two cores and one interleaved series."""
    got = interleaved(
        RUNS,
        gdb_small=alone(folder, small),
        json_small=arenas(small, "--json"),
        table_small=arenas(small, env=TABULATE),
        walk_small=lambda: walk(folder, small.core)[3],
        gdb_large=alone(folder, large),
        json_large=arenas(large, "--json"),
        table_large=arenas(large, env=TABULATE),
        walk_large=lambda: walk(folder, large.core)[3],
    )
    more = large.chunks - small.chunks
    loop = beyond(got, "walk_large", "walk_small") / more
    rows = [
        Row("the bare loop, one more chunk", None, loop * 1e9, "ns"),
        Row("gdb alone on the large core", None, statistics.median(got["gdb_large"]), "s"),
    ]
    for form, fixed_limit in (("json", 0.06), ("table", 0.15)):
        lower, upper = beyond(got, form + "_small", "gdb_small"), beyond(got, form + "_large", "gdb_large")
        slope = (upper - lower) / more
        rows.append(Row("arenas, %s: beyond gdb alone, small core / large core" % form, None, upper, "s", "small: %.3f s" % lower))
        rows.append(Row("arenas, %s: slope, of the bare loop's" % form, 0.5, slope / loop, "x", "%.1f ns a chunk" % (slope * 1e9)))
        rows.append(Row("arenas, %s: fixed cost" % form, fixed_limit, lower - slope * small.chunks, "s"))
    twins = interleaved(
        max(3, RUNS // 3),
        small=arenas(small, "--json", env={"GDBHEAPX_KERNEL": "python"}),
        large=arenas(large, "--json", env={"GDBHEAPX_KERNEL": "python"}),
    )
    twin = (
        statistics.median(twins["large"])
        - statistics.median(twins["small"])
        - statistics.median(got["gdb_large"])
        + statistics.median(got["gdb_small"])
    ) / more
    rows.append(Row("the Python twin: slope, of the bare loop's", 6, twin / loop, "x", "%.0f ns a chunk" % (twin * 1e9)))
    return rows


PEAK = """python
def figure(key):
    return [int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(key + ":")][0]
open("/proc/self/clear_refs", "w").write("5")
before = figure("VmRSS")
gdb.execute("source %s")
gdb.execute("heapx arenas --json -o %s")
print("PEAK", figure("VmHWM") - before)
end
"""


def peak(folder: Path, heap: Heap, program: Optional[str] = None) -> float:
    """Megabytes that gdb's resident memory rises, at its highest, while the tool is sourced and answers."""
    script, answer = folder / "peak.gdb", folder / "peak.json"
    script.write_text(PEAK % (GDBINIT, answer))
    out = subprocess.check_output(
        ["gdb", "-nx", "-q", "-batch", program or str(folder / "frag"), heap.core, "-x", str(script)], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ).decode()
    answer.unlink()
    return float(out[out.index("PEAK") :].split()[1])


def memory(folder: Path, small: Heap, large: Heap) -> List[Row]:
    """Memory above gdb's own, and that it does not grow with the heap."""
    got = interleaved(3, small=lambda: peak(folder, small), large=lambda: peak(folder, large))
    lower, upper = statistics.median(got["small"]), statistics.median(got["large"])
    return [Row("memory above gdb's own, large core", 8, upper, "MB"), Row("the same, large less small core (flat)", 1, upper - lower, "MB")]


def stop(folder: Path) -> List[Row]:
    """The stop of a live process, from its own clock."""
    process = start_frag(folder, LARGE, 1, "gaps")
    assert process.stdin and process.stdout
    gaps, quiet, told = [], [], []  # type: ignore[var-annotated]

    def longest() -> float:
        return struct.unpack_from("<Q", (folder / "record").read_bytes())[0] / 1e9

    def reset() -> None:
        process.stdin.write(b"z")  # type: ignore[union-attr]
        process.stdin.flush()  # type: ignore[union-attr]
        process.stdout.readline()  # type: ignore[union-attr]

    try:
        for _ in range(RUNS):
            reset()
            time.sleep(0.5)
            quiet.append(longest())
            reset()
            answer = json.loads(subprocess.check_output([TOOL, "--pid", str(process.pid), "arenas", "--json"], stdin=subprocess.DEVNULL))
            gaps.append(longest())
            told.append(answer["target"]["stopped_ms"] / 1000)
    finally:
        process.kill()
        process.wait()
    return [
        Row(
            "stop of a live process with 600 MB of heap, its own clock",
            0.15,
            statistics.median(gaps),
            "s",
            "worst %.3f, the tool says %.3f, undisturbed %.3f" % (max(gaps), statistics.median(told), statistics.median(quiet)),
        )
    ]


def many(folder: Path) -> List[Row]:
    """Sixteen arenas of 100 MB."""
    heap = make_heap(folder, "sixteen", 815_000, 16)
    check(heap)
    got = interleaved(max(5, RUNS // 2), gdb=alone(folder, heap), tool=arenas(heap, "--json"), loop=lambda: walk(folder, heap.core)[3])
    os.unlink(heap.core)
    took, loop = beyond(got, "tool", "gdb"), statistics.median(got["loop"])
    return [Row("16 arenas of 100 MB: arenas --json beyond gdb alone", None, took, "s", "the bare loop: %.3f s, ratio %.2f" % (loop, took / loop))]


def jemalloc(folder: Path) -> List[Row]:
    """A heap of jemalloc with ten million regions in use; no row where the library is not installed."""
    program = str(folder / "regions")
    built = subprocess.run(
        ["gcc", "-O2", "-g", "-o", program, str(HERE / "regions.c"), "-pthread", "-l:libjemalloc.so.2"], stderr=subprocess.PIPE, check=False
    )
    if built.returncode:
        print("jemalloc is not measured: a program cannot be linked with libjemalloc.so.2 here (Debian: libjemalloc2)")
        return []
    process = kernelcore.start([program, str(REGIONS)], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    left = int(process.stdout.readline().split()[1])
    heap = Heap(kernelcore.take(process, str(folder / "regions.core")), left, 0, 0)
    row = json.loads(subprocess.check_output([TOOL, "--core", heap.core, "arenas", "--json"]))["data"]["totals"]["jemalloc"]
    # stdio and the C library have a few blocks of their own
    if not 0 <= row["used_blocks"] - left < 100:
        raise SystemExit("the tool counts %d blocks in use, the program has %d" % (row["used_blocks"], left))
    gdb = lambda: wall(["gdb", "-nx", "-q", "-batch", program, heap.core])  # noqa: E731
    got = interleaved(max(5, RUNS // 2), gdb=gdb, json=arenas(heap, "--json"), table=arenas(heap, env=TABULATE))
    above = statistics.median([peak(folder, heap, program) for _ in range(3)])
    size = os.path.getsize(heap.core) / MB
    os.unlink(heap.core)
    note = "%.1f million regions in use, core of %d MB" % (left / 1e6, size)
    return [
        Row("jemalloc: arenas, json: beyond gdb alone", 2, beyond(got, "json", "gdb"), "s", note),
        Row("jemalloc: arenas, table: beyond gdb alone", 2, beyond(got, "table", "gdb"), "s"),
        Row("jemalloc: memory above gdb's own", 32, above, "MB"),
    ]


def evict(path: str) -> None:
    """Throw a file out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def cold(folder: Path, large: Heap) -> List[Row]:
    """The large core read from disk."""

    def once(measure: Callable[[], float]) -> Callable[[], float]:
        def run() -> float:
            evict(large.core)
            return measure()

        return run

    got = interleaved(3, gdb=once(alone(folder, large)), tool=once(arenas(large, "--json")), cat=once(lambda: wall(["cat", large.core])))
    return [
        Row(
            "cold page cache: arenas --json beyond gdb alone, large core",
            None,
            beyond(got, "tool", "gdb"),
            "s",
            "cat of the core to nowhere: %.3f s" % statistics.median(got["cat"]),
        )
    ]


def main(folder: Path) -> int:
    """Measure everything, print one table."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # without its compiled modules gdb's Python compiles them anew each time: 45 ms and more
    if shutil.disk_usage(folder).free < 4 << 30:
        print("%s has less than 4 GB free; set BENCH_FOLDER to a folder that has" % folder, file=sys.stderr)
        return 1
    why = kernelcore.reason()
    if why:
        print("no cores can be measured: " + why, file=sys.stderr)
        return 1
    load = os.getloadavg()[0]
    build(folder)
    small, large = make_heap(folder, "small", SMALL, 1), make_heap(folder, "large", LARGE, 1)
    check(small)
    check(large)
    rows = cores(folder, small, large) + memory(folder, small, large) + stop(folder) + cold(folder, large)
    os.unlink(small.core)
    os.unlink(large.core)
    rows += many(folder)
    rows += jemalloc(folder)
    print("\nmedians of %d interleaved runs, page cache warm unless said otherwise, %d CPUs" % (RUNS, os.cpu_count() or 0))
    if load > 0.5:
        print("the machine was busy before the first run (load %.1f): the figures say little, the fixed cost least" % load)
    print("%-64s %8s %10s" % ("figure", "limit", "measured"))
    for row in rows:
        print(row.line())
    return 1 if any(row.limit is not None and row.measured > row.limit for row in rows) else 0


if __name__ == "__main__":
    if os.environ.get("BENCH_FOLDER"):
        sys.exit(main(Path(os.environ["BENCH_FOLDER"])))
    with tempfile.TemporaryDirectory(prefix="gdbheapx-bench-") as name:
        sys.exit(main(Path(name)))
