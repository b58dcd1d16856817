"""Cores that are larger than the memory that is given: time and memory by the number of blocks, in a memory cgroup of 1 GiB.

By name alone (BENCH_ONLY=scale), as root: the largest core has 20 GB of address space and takes 3.4 GB of disk, 3.3 GB of memory for a minute, and
a quarter of an hour in all. Environment: BENCH_SCALE (blocks, by commas), BENCH_SCALE_BYTES (the group's limit).
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Dict, List, NamedTuple, Tuple

from bench.rows import Row, progress
from bench.timing import HERE, MB, TOOL
from tests.support import kernelcore
from tests.support.memory_group import hierarchy

BLOCKS = [int(count) for count in os.environ.get("BENCH_SCALE", "10000000,30000000,100000000").split(",")]
LIMIT_BYTES = int(os.environ.get("BENCH_SCALE_BYTES", str(1 << 30)))
COMMANDS: Dict[str, Tuple[str, ...]] = {"arenas": ("arenas",), "leaks": ("leaks", "--no-weak"), "snapshot": ("snapshot",)}
LINEAR = 2.5
"""A block of the largest core may take so many times the processor time of one of the smallest: `leaks` reads several times what has no room."""


class Run(NamedTuple):
    """One command on one core."""

    code: int
    seconds: float
    cpu_seconds: float
    rss_bytes: int


def make_core(folder: Path, program: Path, blocks: int) -> str:
    """A kernel core of a program with so many blocks."""
    process = kernelcore.start([str(program), str(blocks)], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    if process.stdout.readline() != b"ready\n":
        raise SystemExit("%s did not get ready" % program)
    return kernelcore.take(process, str(folder / ("%s%d.core" % (program.name, blocks))))


def make_group() -> Path:
    """A memory cgroup with the limit, without swap."""
    top, reason = hierarchy()
    if top is None:
        raise SystemExit("scale: no memory cgroup can be made: " + reason)
    group = top / ("gdbheapx-scale-%d" % os.getpid())
    group.mkdir()
    for name, text in (("memory.limit_in_bytes", LIMIT_BYTES), ("memory.max", LIMIT_BYTES), ("memory.swap.max", 0)):
        if (group / name).exists():
            (group / name).write_text(str(text))
    return group


def forget(core: str) -> None:
    """Nothing of the core is in the page cache: what is read counts in the group then."""
    with open(core, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def run_in(group: Path, core: str, words: Tuple[str, ...], folder: Path) -> Run:
    """The command, and what it took; killed by the group: code -9."""
    forget(core)
    more = [str(folder / "scale.snap")] if words[0] == "snapshot" else []
    with tempfile.TemporaryFile() as said:
        began = time.monotonic()
        inside = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(group), TOOL, "--gdb", "none", "--core", core, *words, *more]
        process = subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in (0, 4):
            said.seek(0)
            print(said.read()[-1000:].decode(errors="replace"), file=sys.stderr)
        return Run(process.returncode, time.monotonic() - began, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def measure(folder: Path) -> List[Row]:
    """Each command on each core; the last rows say whether it is linear."""
    program = folder / "many"
    subprocess.check_call(["gcc", "-O2", "-o", str(program), str(HERE / "shapes" / "many.c")])
    found: Dict[Tuple[str, int], Run] = {}
    group = make_group()
    try:
        for blocks in BLOCKS:
            core = make_core(folder, program, blocks)
            stat = os.stat(core)
            progress("scale: a core of %d MB, %d MB of them on the disk" % (stat.st_size // MB, stat.st_blocks * 512 // MB))
            for name, words in COMMANDS.items():
                found[name, blocks] = run_in(group, core, words, folder)
                progress("scale: %s of %d blocks: %s" % (name, blocks, found[name, blocks]))
            os.unlink(core)
    finally:
        group.rmdir()
    return [row for name in COMMANDS for row in rows_of(name, {blocks: found[name, blocks] for blocks in BLOCKS})]


def rows_of(name: str, runs: Dict[int, Run]) -> List[Row]:
    """One command."""
    rows: List[Row] = []
    for blocks, one in runs.items():
        wrong = "" if one.code in (0, 4) else "FAILED"
        about = "%d blocks in %d MB: %s" % (blocks, LIMIT_BYTES // MB, name)
        rows.append(Row(about, None, one.seconds, "s", "%.1f s of processor time" % one.cpu_seconds, wrong))
        rows.append(Row("%s, memory" % about, LIMIT_BYTES / MB, one.rss_bytes / MB, "MB", "exit code %d" % one.code))
    least, most = min(runs), max(runs)
    ratio = (runs[most].cpu_seconds / most) / (runs[least].cpu_seconds / least)
    return [*rows, Row("%s: a block of %d to one of %d" % (name, most, least), LINEAR, ratio, "x")]
