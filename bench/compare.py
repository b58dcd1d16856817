"""`make compare OLD=DIR`: what this checkout answers against what another one does, on the same processes and cores; exit code 1 where they differ.

With RUNS=N what they cost: the least CPU time of N runs of each, in turn.

Words and codes of JSON are left out, and what differs from look to look; every other key and value must be equal, and each line of the text. Programs:
the small shapes, with both allocators: as processes, as cores, as cores that are cut or damaged, and as snapshots, which each checkout takes itself.
"""

import json
import os
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, List, Tuple

from tabulate import tabulate

from bench import shape_programs
from bench.shape_process import ShapeProcess
from bench.timing import HERE

COMMANDS = (
    *("report", "report --deep", "arenas", "chunks", "chunks --histogram", "chunks --limit 9 --sort size", "bins", "tcache", "malloc-info", "malloc-stats"),
    *("tunables", "tickers", "decay", "doctor", "trim --dry-run", "purge --dry-run", "check", "leaks", "leaks --list", "owners", "census", "pins"),
    *("pins --no-owners", "whatis 4096", "refs 4096", "export --format folded", "export --format folded --of census"),
)
PROGRAMS: Tuple[Tuple[str, Tuple[str, ...], bool], ...] = (
    ("threads", ("20", "20", "7"), False),
    ("threads", ("20", "20", "7"), True),
    ("arenas", ("8", "512"), False),
    ("arenas", ("8", "512"), True),
    ("mapped", ("50",), False),
)
"""Shapes, their arguments, and whether they run on jemalloc."""
WORDS = {"what", "hint", "evidence", "why", "code", "found", "next", "lines", "findings", "advice", "checks", "name"}
"""Keys under which sentences stand."""
WORSE_SHARE, WORSE_MS = 0.05, 5.0
"""From both on a command takes more CPU time than before."""
OF_THE_LOOK = {"stopped_ms", "predicted_stop_ms", "snapshot", "taken", "stops", "swapped_in_bytes", "tool", "uptime_ns", "uptime_s", "time", "pause_ms", "pauses", "late_ms", "epoch_ms", "deadline_ms", "pss_bytes", "shared_bytes"}


CHANGING = re.compile(r"\b[\d.]+ (ms|s)\b|[\d.]+ [KMG]iB reclaimable by the kernel|PSS [\d.]+ [KMG]iB|taken [\d-]+ [\d:]+ UTC")
"""What a text has of the moment."""
Targets = Tuple[List[str], List[str]]
"""The options that name a target, for each of the two checkouts."""


def run(checkout: Path, target: List[str], *words: str) -> "subprocess.CompletedProcess[str]":
    """One command line."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    own = checkout / ".venv" / "bin" / "python"  # an environment has the commands of the checkout that it was made for
    command = [str(own if own.exists() else sys.executable), "-m", "gdbheapx", *target, *words]
    return subprocess.run(command, cwd=checkout, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")


def answer(checkout: Path, target: List[str], words: str) -> Any:
    """Exit code, envelope, and the lines of the text."""
    done = run(checkout, target, *words.split(), "--json")
    text = run(checkout, target, *words.split())
    lines = CHANGING.sub("...", text.stdout + text.stderr).replace(target[1], "TARGET").splitlines()
    answered = done.stdout if target[0] == "--pid" else done.stdout.replace(target[1], "TARGET")  # a number may have a pid's digits
    return {"exit": done.returncode, "envelope": json.loads(answered) if answered.startswith("{") else None, "lines of text": lines}


def differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Where the two are not the same."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new} - WORDS - OF_THE_LOOK):
            if key not in old or key not in new:
                yield "%s.%s is in one alone" % (path, key)
            else:
                yield from differences(old[key], new[key], "%s.%s" % (path, key))
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield "%s has %d entries, had %d" % (path, len(new), len(old))
        for place, (one, other) in enumerate(zip(old, new)):
            yield from differences(one, other, "%s[%d]" % (path, place))
    elif old != new:
        yield "%s is %r, was %r" % (path, new, old)


def compared(checkouts: Tuple[Path, Path], each: Targets, title: str) -> Iterator[List[str]]:
    """A row for each command."""
    for words in COMMANDS:
        old, new = (answer(checkout, target, words) for checkout, target in zip(checkouts, each))
        found = list(differences(old, new))
        keys = len(json.dumps(new))
        yield [title, words, str(new["exit"]), "%d bytes" % keys, "equal" if not found else "%d: %s" % (len(found), "; ".join(found[:3]))]


def spoiled(core: str) -> Iterator[Tuple[str, str]]:
    """(file, title) of the core cut, and of it with words overwritten: the same ones each time."""
    content = Path(core).read_bytes()
    Path(core + ".cut").write_bytes(content[: len(content) * 6 // 10])
    yield core + ".cut", "cut core"
    damaged, chosen = bytearray(content), random.Random(4)
    for _ in range(300):
        at = chosen.randrange(len(content) // 20, len(content) - 8) & ~7
        damaged[at : at + 8] = chosen.getrandbits(64).to_bytes(8, "little")
    Path(core + ".damaged").write_bytes(damaged)
    yield core + ".damaged", "damaged core"


def forms(checkouts: Tuple[Path, Path], core: str) -> Iterator[Tuple[Targets, str]]:
    """The core, its spoiled copies, and a snapshot of it by each checkout."""
    yield (["--core", core], ["--core", core]), "core"
    for path, title in spoiled(core):
        yield (["--core", path], ["--core", path]), title
        os.unlink(path)
    snapshots = ["%s.%d.snapshot" % (core, number) for number in range(2)]
    for checkout, path in zip(checkouts, snapshots):
        run(checkout, ["--core", core], "snapshot", path).check_returncode()
    yield (["--snapshot", snapshots[0]], ["--snapshot", snapshots[1]]), "snapshot"


def targets(checkouts: Tuple[Path, Path], folder: Path) -> Iterator[Tuple[Targets, str]]:
    """(options, title) of each process and of the forms of its core; the process ends, and the core is gone, when the next is asked for."""
    for program, arguments, is_jemalloc in PROGRAMS:
        title = program + (" on jemalloc" if is_jemalloc else "")
        command = [shape_programs.program(folder, program), str(folder / "record"), *arguments]
        process = ShapeProcess(command, folder / "record", {"LD_PRELOAD": shape_programs.jemalloc_library()} if is_jemalloc else {})
        try:
            core = "%s.%d" % (folder / "the.core", process.pid)
            subprocess.run(["gcore", "-o", str(folder / "the.core"), str(process.pid)], stdin=subprocess.DEVNULL, capture_output=True, check=True)
            yield (["--pid", str(process.pid)], ["--pid", str(process.pid)]), title + ", live"
            for each, form in forms(checkouts, core):
                yield each, "%s, %s" % (title, form)
            os.unlink(core)
        finally:
            process.end()


def cpu_ms(checkout: Path, target: List[str], words: str) -> float:
    """User and system milliseconds of one command, gdb's own among them."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    own = checkout / ".venv" / "bin" / "python"
    command = [str(own if own.exists() else sys.executable), "-m", "gdbheapx", *target, *words.split(), "--json"]
    child = subprocess.Popen(command, cwd=checkout, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(child.pid, 0)
    child.returncode = 0
    return 1000 * (used.ru_utime + used.ru_stime)


def timed(checkouts: Tuple[Path, Path], target: List[str], title: str, runs: int) -> Iterator[List[str]]:
    """A row for each command: the least of so many runs of each checkout, in turn."""
    for words in COMMANDS:
        took = [[cpu_ms(checkout, target, words) for checkout in checkouts] for _ in range(runs)]
        old, new = (min(column) for column in zip(*took))
        worse = new > old * (1 + WORSE_SHARE) and new > old + WORSE_MS
        yield [title, words, "%.0f" % old, "%.0f" % new, "%+.1f %%" % (100 * (new - old) / old), "WORSE" if worse else "ok"]


def main() -> int:
    """Compare, print one table. With RUNS: CPU time instead of answers."""
    if len(sys.argv) not in (2, 3) or not (Path(sys.argv[1]) / "gdbheapx" / "__main__.py").exists():
        print("usage: python -m bench.compare OLD [RUNS]; OLD: the folder of another checkout (git worktree add OLD COMMIT)", file=sys.stderr)
        return 2
    checkouts, runs = (Path(sys.argv[1]).resolve(), HERE.parent), int(sys.argv[2]) if len(sys.argv) == 3 else 0
    rows: List[List[str]] = []
    with tempfile.TemporaryDirectory(prefix="gdbheapx-compare-") as name:
        for each, title in targets(checkouts, Path(name)):
            rows += timed(checkouts, each[1], title, runs) if runs else compared(checkouts, each, title)
    if runs:
        print(tabulate(rows, ["target", "command", "old, CPU ms", "new, CPU ms", "change", ""], disable_numparse=True))
        worse = sum(row[-1] != "ok" for row in rows)
        print("least of %d runs in turn: %d of %d are worse by more than 5 %% and 5 ms" % (runs, worse, len(rows)))
        return 1 if worse else 0
    print(tabulate(rows, ["target", "command", "exit", "answer", "against the other"], disable_numparse=True))
    wrong = sum(row[-1] != "equal" for row in rows)
    print("%d of %d answers differ" % (wrong, len(rows)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
