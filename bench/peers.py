"""The same questions of the same cores beside chap (github.com/vmware/chap), which answers none before it has looked at everything.

By name alone (BENCH_ONLY=peers). Environment: CHAP (the program; default `chap` of the PATH), BENCH_PEERS (blocks, by commas).
"""

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import List, NamedTuple, Sequence, Tuple

from bench import scale
from bench.rows import Row, progress
from bench.shape_programs import program
from bench.timing import MB, TOOL

BLOCKS = [int(count) for count in os.environ.get("BENCH_PEERS", "2000000,10000000").split(",")]
ROUNDS = 3
QUESTIONS: Tuple[Tuple[str, Tuple[str, ...], float], ...] = (("totals", ("arenas",), 1 / 13), ("leaks", ("leaks",), 1 / 3), ("census", ("census",), 1))
"""Of chap's processor time each may take so much."""


class Answer(NamedTuple):
    """What one run took, and what it said."""

    cpu_seconds: float
    rss_bytes: int
    said: str


def run(words: Sequence[str], asked: str = "") -> Answer:
    """The program, with this on its standard input."""
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as given:
        given.write(asked)
        given.seek(0)
        process = subprocess.Popen(words, stdin=given, stdout=said, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return Answer(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, said.read())


def fastest(words: Sequence[str], asked: str = "") -> Answer:
    """Of some runs."""
    return min(run(words, asked) for _ in range(ROUNDS))


def rows_of(chap: str, core: str, blocks: int) -> List[Row]:
    """One core. Both must find as many leaked blocks."""
    theirs = fastest([chap, core], "count leaked\n")
    told = re.search(r"^(\d+) allocations", theirs.said, re.MULTILINE)
    rows = [Row("%d blocks: chap, any question" % blocks, None, theirs.cpu_seconds, "s", "%d MB" % (theirs.rss_bytes // MB), "" if told else "FAILED")]
    for name, words, limit in QUESTIONS:
        ours, wrong = fastest([TOOL, "--gdb", "none", "--core", core, *words, "--json"]), ""
        if name == "leaks" and told:
            found = json.loads(ours.said)["data"]["classes"]["leaked"]["blocks"]
            wrong = "" if found == int(told.group(1)) else "CHANGED"
            progress("peers: leaked %s by chap, %d here" % (told.group(1), found))
        note = "%.2f s, %d MB: 1/%.1f of the memory" % (ours.cpu_seconds, ours.rss_bytes // MB, theirs.rss_bytes / ours.rss_bytes)
        rows.append(Row("%d blocks: %s, of chap's processor time" % (blocks, name), limit, ours.cpu_seconds / theirs.cpu_seconds, "x", note, wrong))
    return rows


def measure(folder: Path) -> List[Row]:
    """Each size: half of the blocks are leaked, in chains and rings."""
    chap = os.environ.get("CHAP") or shutil.which("chap")
    if chap is None:
        raise SystemExit("peers: no chap here: build it from its source, and set CHAP to it")
    made, rows = Path(program(folder, "leaky")), []  # type: Path, List[Row]
    for blocks in BLOCKS:
        core = scale.make_core(folder, made, blocks)
        rows += rows_of(chap, core, blocks)
        os.unlink(core)
    return rows
