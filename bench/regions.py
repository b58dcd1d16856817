"""A heap of jemalloc with ten million regions (regions.c), as a core."""

import json
import os
import statistics
import subprocess
from pathlib import Path
from typing import List

from bench.rows import Row, progress
from bench.timing import HERE, MB, RUNS, TABULATE, TOOL, Heap, arenas, beyond, interleaved, peak, wall
from tests.support import kernelcore

REGIONS = 12_100_000


def measure(folder: Path) -> List[Row]:
    """A heap of jemalloc with ten million regions in use; no row where the library is not installed."""
    program = str(folder / "regions")
    built = subprocess.run(
        ["gcc", "-O2", "-g", "-o", program, str(HERE / "regions.c"), "-pthread", "-l:libjemalloc.so.2"], stderr=subprocess.PIPE, check=False
    )
    if built.returncode:
        progress("jemalloc is not measured: a program cannot be linked with libjemalloc.so.2 here (Debian: libjemalloc2)")
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
