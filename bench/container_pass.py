"""What containers add to owners, on lists, trees and hash tables in order and anywhere in memory: processor time and memory a block.

By name alone (BENCH_ONLY=containers). `python -m bench.container_pass CORE`: one round on one core, as JSON.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List

from bench.graph import command
from bench.graph_round import opened, peak_bytes, read_graph
from bench.rows import Row, progress
from bench.timing import HERE
from tests.support import kernelcore

ROUNDS = int(os.environ.get("BENCH_GRAPH_RUNS", "3"))
BLOCKS = [int(count) for count in os.environ.get("BENCH_CONTAINERS", "1000000,10000000").split(",")]
SECONDS = {"in order": 2.5, "shuffled": 5.0}
"""Of 10 million blocks."""
BYTES = 60.0


def times() -> "tuple[float, float]":
    """Processor time of this process in user mode, of all its threads; and what a clock on the wall tells."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_utime, time.perf_counter()


def round_on(core: str) -> Dict[str, float]:
    """One round, in a process of its own."""
    found: Dict[str, float] = {}

    def measured(name: str, work: Callable[[], Any]) -> Any:
        before, bytes_before = times(), peak_bytes(forget=True)
        done = work()
        after = times()
        found[name], found[name + " wall"] = after[0] - before[0], after[1] - before[1]
        found[name + " bytes"] = (peak_bytes() - bytes_before) / reach.numbers.blocks
        return done

    reach = read_graph(opened(core), slots=True)
    graph, first, weak = reach.graph, reach.roots_from, reach.weak
    measured("dominators", lambda: graph.dominators(first, weak))
    found["containers"] = len(measured("find", lambda: graph.containers(weak[0], weak[0])))
    graph = read_graph(opened(core), slots=True).graph  # which has not found them yet
    measured("with containers", lambda: graph.dominators(first, weak, containers=True))
    return {**found, "blocks": reach.numbers.blocks, "edges": reach.numbers.edges}


def rows_of(core: str, order: str, blocks: int) -> List[Row]:
    """One heap, each figure at its best."""
    work = [sys.executable, "-m", "bench.container_pass", core]
    got: List[Dict[str, float]] = [json.loads(subprocess.check_output(work, cwd=HERE.parent)) for _ in range(ROUNDS)]
    best = {name: min(one[name] for one in got) for name in got[0]}
    about, limit = "%d blocks, %s" % (blocks, order), SECONDS[order] * blocks / 1e7
    note = "%d containers, %.2f edges a block" % (best["containers"], best["edges"] / best["blocks"])
    return [
        Row("%s: containers are found" % about, None, best["find"], "s CPU", note),
        Row("%s: what they add to dominators" % about, limit, best["with containers"] - best["dominators"], "s CPU"),
        Row("%s: the same by the clock" % about, None, best["with containers wall"] - best["dominators wall"], "s"),
        Row("%s: dominators without them" % about, None, best["dominators"], "s CPU"),
        Row(
            "%s: memory beside the graph" % about, BYTES, best["with containers bytes"], "B/blk", "%.0f without" % best["dominators bytes"]
        ),
        Row("%s: owners, the whole command" % about, None, min(command(core, "owners")() for _ in range(ROUNDS)), "s CPU"),
    ]


def measure(folder: Path) -> List[Row]:
    """All heaps."""
    program = str(folder / "containers")
    subprocess.check_call(["gcc", "-O2", "-o", program, str(HERE / "shapes" / "containers.c")])
    rows: List[Row] = []
    for blocks in BLOCKS:
        for order in SECONDS:
            words = [program, str(blocks), *(["shuffled"] if order == "shuffled" else [])]
            process = kernelcore.start(words, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            assert process.stdout
            if process.stdout.readline() != b"ready\n":
                raise SystemExit("containers did not get ready")
            core = kernelcore.take(process, str(folder / "containers.core"))
            progress("containers: a core of %d MB" % (os.path.getsize(core) >> 20))
            rows += rows_of(core, order, blocks)
            os.unlink(core)
    return rows


if __name__ == "__main__":
    print(json.dumps(round_on(str(Path(sys.argv[1]).resolve()))))
