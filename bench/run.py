"""`make bench`: the figures of docs/reference/scale.md, and heaps that are bad to read, each with its limit; exit code 1 if something is over it.

Environment: BENCH_ONLY (names, by commas; default all but those of BY_NAME), BENCH_RUNS (default 15), BENCH_FOLDER (where the cores go, 3 GB; default a
temporary folder).
"""

import os
import shutil
import signal
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import List

from bench import bad_shapes, container_pass, fragmented, graph, peers, regions, scale, shape_rows, stops
from bench.rows import Row, head, show, total
from bench.timing import RUNS
from tests.support import kernelcore

CORES = {"fragmented": fragmented.measure, "regions": regions.measure, "graph": graph.measure}
BY_NAME = {"containers": container_pass.measure, "scale": scale.measure, "stops": stops.measure, "peers": peers.measure}
"""Too large to be measured each time, or not everywhere."""
PARTS = {**CORES, **{name: partial(shape_rows.measure_shape, name) for name in bad_shapes.SHAPES}, **BY_NAME}


def chosen() -> List[str]:
    """What is measured."""
    asked = [name for name in os.environ.get("BENCH_ONLY", "").split(",") if name]
    unknown = [name for name in asked if name not in PARTS]
    if unknown:
        raise SystemExit("BENCH_ONLY: no %s; there are %s" % (", ".join(unknown), ", ".join(PARTS)))
    return asked or [name for name in PARTS if name not in BY_NAME]


def main(folder: Path) -> int:
    """Measure everything, print one table."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # without its compiled modules gdb's Python compiles them anew each time: 45 ms and more
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # processes, groups and folders are ended and removed then as well
    parts = chosen()
    if {*CORES, "containers", "scale", "peers"} & set(parts):
        if shutil.disk_usage(folder).free < 4 << 30:
            print("%s has less than 4 GB free; set BENCH_FOLDER to a folder that has" % folder, file=sys.stderr)
            return 1
        why = kernelcore.reason()
        if why:
            print("no cores can be measured: " + why, file=sys.stderr)
            return 1
    if os.getloadavg()[0] > 0.5:
        print("the machine is busy (load %.1f): the figures say little, the fixed cost least" % os.getloadavg()[0])
    print("cores: medians of %d interleaved runs, page cache warm unless said otherwise" % RUNS)
    print("bad shapes: the shortest stop of %d interleaved looks; %d CPUs" % (shape_rows.ROUNDS, os.cpu_count() or 0))
    head()
    rows: List[Row] = []
    for name in parts:
        more = PARTS[name](folder)
        show(more)
        rows += more
    return 0 if total(rows) else 1


if __name__ == "__main__":
    if os.environ.get("BENCH_FOLDER"):
        sys.exit(main(Path(os.environ["BENCH_FOLDER"])))
    with tempfile.TemporaryDirectory(prefix="gdbheapx-bench-") as name:
        sys.exit(main(Path(name)))
