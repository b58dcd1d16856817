"""A fragmented heap of glibc (frag.c), as cores and alive: slope and fixed cost of `arenas`, memory, the stop, a cold cache, many arenas."""

import json
import os
import statistics
import struct
import subprocess
import time
from pathlib import Path
from typing import Callable, List

from bench.rows import Row, progress
from bench.timing import HERE, MB, RUNS, TABULATE, TOOL, Heap, arenas, beyond, interleaved, peak, wall
from tests.support import kernelcore

SMALL, LARGE = 1_000_000, 5_000_000


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
    progress("%s: %d objects in each of %d arenas, %d chunks, core of %d MB" % (name, objects, arenas, counted[0], os.path.getsize(core) / MB))
    return Heap(core, int(counted[0]), int(counted[1]), int(counted[2]))


def check(heap: Heap) -> None:
    """The tool counts what the bare loop counts, before anything is timed."""
    totals = json.loads(subprocess.check_output([TOOL, "--core", heap.core, "arenas", "--json"]))["data"]["totals"]["glibc"]
    in_use = totals["used_bytes"] + totals["tcache_bytes"] + totals["fast_bytes"]
    if totals["free_bytes"] != heap.free_bytes or abs(in_use - heap.used_bytes) > 4096 * 16:
        raise SystemExit(
            "the tool counts %d used, %d free; the bare loop %d used, %d free" % (in_use, totals["free_bytes"], heap.used_bytes, heap.free_bytes)
        )


def alone(folder: Path, heap: Heap) -> Callable[[], float]:
    """gdb on the same core, doing nothing."""
    return lambda: wall(["gdb", "-nx", "-q", "-batch", str(folder / "frag"), heap.core])


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
    for size, limit in (("small", 0.6), ("large", 1)):
        least, gdb = min(got["json_" + size]), min(got["gdb_" + size])
        rows.append(Row("arenas without gdb, %s core: of gdb alone's time, least of each" % size, limit, least / gdb, "x", "%.3f s of %.3f" % (least, gdb)))
    return rows


def memory(folder: Path, small: Heap, large: Heap) -> List[Row]:
    """Memory above gdb's own, and that it does not grow with the heap."""
    got = interleaved(3, small=lambda: peak(folder, small, str(folder / "frag")), large=lambda: peak(folder, large, str(folder / "frag")))
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


def measure(folder: Path) -> List[Row]:
    """Everything about it."""
    build(folder)
    small, large = make_heap(folder, "small", SMALL, 1), make_heap(folder, "large", LARGE, 1)
    check(small)
    check(large)
    rows = cores(folder, small, large) + memory(folder, small, large) + stop(folder) + cold(folder, large)
    os.unlink(small.core)
    os.unlink(large.core)
    return rows + many(folder)
