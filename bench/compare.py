"""`make compare OLD=DIR`: what this checkout answers against what another one does, on the same processes and cores; exit code 1 where they differ.

Words and codes are left out, and what differs from look to look; every other key and value must be equal. Programs: the small shapes, with both allocators.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Iterator, List, Tuple

from tabulate import tabulate

from bench import shape_programs
from bench.shape_process import ShapeProcess
from bench.timing import HERE

COMMANDS = ("report", "arenas", "chunks", "chunks --histogram", "bins", "tcache", "malloc-info", "malloc-stats", "tunables", "tickers", "decay", "doctor")
PROGRAMS: Tuple[Tuple[str, Tuple[str, ...], bool], ...] = (
    ("threads", ("20", "20", "7"), False),
    ("threads", ("20", "20", "7"), True),
    ("arenas", ("8", "512"), False),
    ("arenas", ("8", "512"), True),
    ("mapped", ("50",), False),
)
"""Shapes, their arguments, and whether they run on jemalloc."""
WORDS = {"what", "hint", "evidence", "why", "code", "found", "next", "next_steps", "lines", "findings", "advice", "checks", "name"}
"""Keys under which sentences stand."""
OF_THE_LOOK = {"stopped_ms", "stops", "swapped_in_bytes", "tool", "uptime_ns", "late_ms", "epoch_ms", "deadline_ms", "pss_bytes", "shared_bytes"}


def answer(checkout: Path, target: List[str], words: str) -> Any:
    """Exit code and envelope."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [sys.executable, "-m", "gdbheapx.cli", *target, *words.split(), "--json"]
    done = subprocess.run(command, cwd=checkout, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    return {"exit": done.returncode, "envelope": json.loads(done.stdout) if done.stdout.startswith("{") else None}


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


def compared(checkouts: Tuple[Path, Path], target: List[str], title: str) -> Iterator[List[str]]:
    """A row for each command."""
    for words in COMMANDS:
        old, new = (answer(checkout, target, words) for checkout in checkouts)
        found = list(differences(old, new))
        keys = len(json.dumps(new))
        yield [title, words, str(new["exit"]), "%d bytes" % keys, "equal" if not found else "%d: %s" % (len(found), "; ".join(found[:3]))]


def main() -> int:
    """Compare, print one table."""
    if len(sys.argv) != 2 or not (Path(sys.argv[1]) / "gdbheapx" / "cli.py").exists():
        print("usage: compare.py OLD, the folder of another checkout (git worktree add OLD COMMIT; make -C OLD kernel)", file=sys.stderr)
        return 2
    checkouts = (Path(sys.argv[1]).resolve(), HERE.parent)
    rows: List[List[str]] = []
    with tempfile.TemporaryDirectory(prefix="gdbheapx-compare-") as name:
        folder = Path(name)
        for program, arguments, is_jemalloc in PROGRAMS:
            title = program + (" on jemalloc" if is_jemalloc else "")
            command = [shape_programs.program(folder, program), str(folder / "record"), *arguments]
            process = ShapeProcess(command, folder / "record", {"LD_PRELOAD": shape_programs.jemalloc_library()} if is_jemalloc else {})
            try:
                core = "%s.%d" % (folder / "the.core", process.pid)
                subprocess.run(["gcore", "-o", str(folder / "the.core"), str(process.pid)], stdin=subprocess.DEVNULL, capture_output=True, check=True)
                rows += compared(checkouts, ["--pid", str(process.pid)], title + ", live")
                rows += compared(checkouts, ["--core", core], title + ", core")
                os.unlink(core)
            finally:
                process.end()
    print(tabulate(rows, ["target", "command", "exit", "answer", "against the other"], disable_numparse=True))
    wrong = sum(row[-1] != "equal" for row in rows)
    print("%d of %d answers differ" % (wrong, len(rows)))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
