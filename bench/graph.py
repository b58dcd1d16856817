"""The graph of blocks: each phase as a ratio to a bare pass over all words of all used blocks, in processor time."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

from bench.rows import Row, progress
from bench.timing import HERE, TOOL, interleaved
from tests.support import kernelcore

ROUNDS = int(os.environ.get("BENCH_GRAPH_RUNS", "5"))
TEXT = "import time; a={'w%%d' %% i: [i, str(i), (i, i + 1)] for i in range(%d)}; b=[{'n': i, 't': 't' * (i %% 50)} for i in range(%d)]"


class Program(NamedTuple):
    """What makes a heap, and the limits of the ratios on it."""

    name: str
    command: Tuple[str, ...]
    env: Dict[str, str]
    limits: Dict[str, Optional[float]]


def programs(folder: Path) -> List[Program]:
    """The four."""
    wide: Dict[str, Optional[float]] = {"graph": 3.5, "mark": 2.0, "leaks": 14.0, "dominators": 18.0, "census": 12.0, "bytes a block": 16.0}
    python: Dict[str, Optional[float]] = {"graph": 6.0, "mark": 3.0, "leaks": None, "dominators": None, "census": None, "bytes a block": None}
    none: Dict[str, Optional[float]] = dict.fromkeys(wide)
    ready = "; print('ready', flush=True); time.sleep(3600)"
    return [
        Program("10 M blocks, several owners", (str(folder / "owned"), "10000000"), {}, wide),
        Program("2 M blocks, several owners", (str(folder / "owned"), "2000000"), {}, none),
        Program("2 M blocks, half leaked", (str(folder / "leaky"), "2000000"), {}, none),
        Program("CPython, PYTHONMALLOC=malloc", (sys.executable, "-c", TEXT % (300000, 200000) + ready), {"PYTHONMALLOC": "malloc"}, python),
    ]


def build(folder: Path) -> None:
    """Compile the programs and the bare pass."""
    for name, flags in (("owned", ()), ("leaky", ()), ("words", ("-shared", "-fPIC"))):
        subprocess.check_call(["gcc", "-O2", *flags, "-o", str(folder / name), str(HERE / "shapes" / (name + ".c"))])


def core_of(folder: Path, number: int, program: Program) -> str:
    """A kernel core of the program."""
    process = kernelcore.start(list(program.command), cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, **program.env})
    assert process.stdout
    if process.stdout.readline() != b"ready\n":
        raise SystemExit("%s did not get ready" % program.name)
    return kernelcore.take(process, str(folder / ("graph%d.core" % number)))


def round_on(folder: Path, core: str, got: List[Dict[str, float]]) -> Callable[[], float]:
    """One round, kept."""

    def work() -> float:
        done = subprocess.check_output([sys.executable, "-m", "bench.graph_round", core, str(folder / "words")], cwd=HERE.parent)
        got.append(json.loads(done))
        return 0.0

    return work


def children() -> float:
    """Processor time of all commands so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command(core: str, *words: str) -> Callable[[], float]:
    """Processor time of one command."""

    def work() -> float:
        before = children()
        subprocess.run([TOOL, "--gdb", "none", "--core", core, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return children() - before

    return work


def rows_of(program: Program, got: List[Dict[str, float]]) -> List[Row]:
    """The ratios of one program: each phase at its best."""
    best = {name: min(one[name] for one in got) for name in got[0]}
    sums = {**best, "leaks": best["survey"] + best["graph"] + best["mark"] + best["leak roots"]}
    note = "%.2f edges a block, bare pass %.3f s" % (best["edges"] / best["blocks"], best["bare"])
    found = [
        Row("%s: %s / bare pass" % (program.name, name), program.limits[name], sums[name] / best["bare"], "x", note if name == "graph" else "")
        for name in ("graph", "mark", "leaks", "dominators", "census")
    ]
    memory = [
        Row("%s: memory of leaks" % program.name, program.limits["bytes a block"], best["bytes a block"], "B/blk"),
        Row("%s: memory of census" % program.name, None, best["bytes a block of census"], "B/blk"),
    ]
    content = Row("%s: equal contents, per GB in use" % program.name, 2.5, best["content a GB"], "s CPU")
    return [*found, content, *memory]


def measure(folder: Path) -> List[Row]:
    """All four, interleaved."""
    build(folder)
    every = programs(folder)
    cores = [core_of(folder, number, program) for number, program in enumerate(every)]
    got: List[List[Dict[str, float]]] = [[] for _ in every]
    progress("graph: cores of %s MB" % ", ".join(str(os.path.getsize(core) >> 20) for core in cores))
    work = {"round%d" % number: round_on(folder, core, got[number]) for number, core in enumerate(cores)}
    leaky = {"leaks": command(cores[2], "leaks", "--no-weak"), "start": command(cores[2], "doctor")}
    times = interleaved(ROUNDS, **work, **leaky)
    for core in cores:
        os.unlink(core)
    rows = [row for program, some in zip(every, got) for row in rows_of(program, some)]
    return [*rows, Row("2 M blocks, half leaked: the whole command, beyond start", 0.6, min(times["leaks"]) - min(times["start"]), "s CPU")]
