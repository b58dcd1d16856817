"""How `make bench` measures: whole commands, in interleaved rounds, against gdb alone."""

import os
import random
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Sequence

HERE = Path(__file__).resolve().parent
RUNS = int(os.environ.get("BENCH_RUNS", "15"))
TOOL = str(Path(sys.executable).parent / "gdbheapx")
TABULATE = {"PYTHONPATH": sysconfig.get_paths()["purelib"]}
"""So that gdb finds tabulate, as it does where the package is installed and not a checkout."""
GDBINIT = str(HERE.parent / "gdbheapx" / "gdbinit.py")
MB = 1 << 20


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


def arenas(heap: Heap, *more: str, env: Optional[Dict[str, str]] = None) -> Callable[[], float]:
    """The tool's `arenas` on a core."""
    return lambda: wall([TOOL, "--core", heap.core, "arenas", *more], env)


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


def peak(folder: Path, heap: Heap, program: str) -> float:
    """Megabytes that gdb's resident memory rises, at its highest, while the tool is sourced and answers."""
    script, answer = folder / "peak.gdb", folder / "peak.json"
    script.write_text(PEAK % (GDBINIT, answer))
    out = subprocess.check_output(
        ["gdb", "-nx", "-q", "-batch", program, heap.core, "-x", str(script)], stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT
    ).decode()
    answer.unlink()
    return float(out[out.index("PEAK") :].split()[1])
