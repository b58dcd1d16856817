"""How long each command has a process stand still, by the clock of the process itself, beside a plain read of the same memory.

By name alone (BENCH_ONLY=stops): the heap of 8 GiB and its copy take 17 GB. Environment: BENCH_STOPS (GiB, by commas; default 0.5,2,8),
BENCH_STOPS_BLOCKS (of `large,small,holes,runs,fast`), BENCH_STOPS_COMMANDS, BENCH_STOPS_PRIORITY (the tool runs as SCHED_FIFO of that priority; the
clock of the process has 50), BENCH_STOPS_ROUNDS (default 2; the shortest counts).
"""

import json
import os
import re
import resource
import shutil
import struct
import subprocess
import time
from functools import cache
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

from bench.rows import Row, progress
from bench.shape_process import ShapeProcess
from bench.shape_programs import Broken, program
from bench.timing import TOOL
from tests.support import kernelcore

SIZES = [float(size) for size in os.environ.get("BENCH_STOPS", "0.5,2,8").split(",")]
KINDS = os.environ.get("BENCH_STOPS_BLOCKS", "large,small,holes,runs,fast").split(",")
COPYING = ("check", "leaks", "owners", "census", "pins", "snapshot")
COMMANDS = os.environ.get("BENCH_STOPS_COMMANDS", "report,arenas," + ",".join(COPYING)).split(",")
PRIORITY = int(os.environ.get("BENCH_STOPS_PRIORITY", "0"))
ROUNDS = int(os.environ.get("BENCH_STOPS_ROUNDS", "2"))
TITLES = {"large": "blocks of 64 KiB", "small": "blocks of 24 to 136 bytes", "holes": "every second of them free", "runs": "runs of 64 free", "fast": "every second of them in a fastbin"}
FREE_GIB = 0.6
"""The heaps of which a half is free have one size: they are about a limit relative to a plain read."""
GIB = 1 << 30
RATES = (0, 1000, 20000)
"""Writes a second to random pages: what the process is told by the place."""
RECORD = struct.Struct("<6Q")
PIECE_BYTES = 256 << 10
SECONDS = 600
LIKE_EACH_OTHER = 1.3
OF_A_READ = 0.8
LATE_MS = 5.0
"""A write of the process may take so long while it is looked at in the short way."""
FAR_GIB = 1e11 / GIB


class Clock(NamedTuple):
    """What the process says of itself since it was asked last (shapes/standing.c)."""

    longest_gap_ns: int
    all_gaps_ns: int
    gaps: int
    longest_write_ns: int
    writes: int
    is_fifo: int


class Stop(NamedTuple):
    """One command on one process."""

    words: str
    longest_ms: float
    all_ms: float
    stops: int
    told_ms: float
    predicted_ms: float
    write_ms: float
    dirty_pages: int
    wall_s: float
    rss_bytes: int
    wrong: str
    why: str

    def note(self, read_ms: float) -> str:
        """What stands beside the figure."""
        told = "all %.1f in %d, told %.1f, predicted %.3g, plain read %.0f" % (self.all_ms, self.stops, self.told_ms, self.predicted_ms, read_ms)
        return "%s ms; wall %.2f s, %d MB%s" % (told, self.wall_s, self.rss_bytes >> 20, "; " + self.why if self.why else "")


class Standing(ShapeProcess):
    """The process that watches its clock."""

    start_seconds = SECONDS

    def ask(self, place: int) -> None:
        """Its record is set back, and it writes at the rate of that place."""
        assert self._popen.stdin
        self._popen.stdin.write(b"%d" % place)
        self._wait("the process")

    def clock(self) -> Clock:
        """Since then."""
        return Clock(*RECORD.unpack_from(self._record.read_bytes()))


@cache
def short_stop(command: str) -> Tuple[str, ...]:
    """The words for a stop in the short way, which may have to be agreed to; none where the command does not know it."""
    told = subprocess.run([TOOL, command, "--help"], capture_output=True, text=True).stdout
    return tuple(word for word in ("--short-stop", "--yes") if word in told) if "--short-stop" in told else ()


def raised(priority: int = PRIORITY) -> None:
    """For the tool, before exec; and for the plain read that stands beside it. 0: as everybody."""
    if PRIORITY:
        os.sched_setscheduler(0, os.SCHED_FIFO if priority else os.SCHED_OTHER, os.sched_param(priority))


def dirty_pages(target: object) -> int:
    """What the answer tells of pages that were read again in the stop; 0 where it tells nothing."""
    found = re.search(r'"dirty_pages": (\d+)', json.dumps(target))
    return int(found.group(1)) if found else 0


def look(process: Standing, words: List[str], folder: Path, place: int = 0) -> Stop:
    """One command; the tool may take as long as it needs."""
    snap = folder / "stops.snap"
    more = [str(snap)] if words[0] == "snapshot" else []
    if snap.exists():
        snap.unlink()
    process.ask(place)
    command = [TOOL, "--pid", str(process.pid), *words, *more, "--max-stop", "120", "--json"]
    out, said, began = folder / "stops.out", folder / "stops.said", time.monotonic()
    with open(out, "wb") as answer, open(said, "wb") as errors:
        tool = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=answer, stderr=errors, preexec_fn=raised)  # noqa: PLW1509
        _, status, used = os.wait4(tool.pid, 0)
    tool.returncode = os.waitstatus_to_exitcode(status)
    wall_s, clock = time.monotonic() - began, process.clock()
    try:
        envelope = json.loads(out.read_bytes())
    except ValueError:
        envelope = {}
    target, problems = envelope.get("target") or {}, envelope.get("problems") or []
    wrong = "FAILED" if tool.returncode not in (0, 3, 4) or not target else "PARTIAL" if envelope["partial"] else ""
    why = str(problems[0]["what"])[:150] if problems else (said.read_text(errors="replace").strip().splitlines() or [""])[-1][:150] if wrong else ""
    return Stop(
        " ".join(words),
        clock.longest_gap_ns / 1e6,
        clock.all_gaps_ns / 1e6,
        clock.gaps,
        target.get("stopped_ms") or 0.0,
        target.get("predicted_stop_ms") or 0.0,
        clock.longest_write_ns / 1e6,
        dirty_pages(envelope.get("target")),
        wall_s,
        used.ru_maxrss * 1024,
        wrong,
        why,
    )


def plain_read_ms(pid: int) -> float:
    """The heap read once, in order, through one buffer, by one thread: the shortest of three times."""
    lines = Path("/proc/%d/maps" % pid).read_text().splitlines()
    start, end = next([int(bound, 16) for bound in line.split()[0].split("-")] for line in lines if line.endswith("[heap]"))
    memory, buffer, times = os.open("/proc/%d/mem" % pid, os.O_RDONLY), bytearray(PIECE_BYTES), []
    raised()
    for _ in range(3):
        began, place = time.perf_counter(), start
        while place < end:
            place += os.preadv(memory, [memoryview(buffer)[: end - place]], place)
        times.append(time.perf_counter() - began)
    raised(0)
    os.close(memory)
    return min(times) * 1000


def limit_ms(kind: str, gib: float, command: str, read_ms: float) -> Optional[float]:
    """How long a stop may be; None: nothing is demanded."""
    if command in COPYING:
        return 250 * gib
    if command != "arenas":
        return None
    return OF_A_READ * read_ms if kind in ("holes", "runs", "fast") else 25 * max(gib, 1) if kind == "large" else None


def short_limit_ms(gib: float, pages: int) -> float:
    """The same of --short-stop."""
    return 0.5 + gib + 0.003 * pages


def best(process: Standing, words: List[str], folder: Path, place: int = 0) -> Stop:
    """The shortest of several; what failed is not asked again."""
    tried: List[Stop] = []
    while len(tried) < ROUNDS and not (tried and tried[-1].wrong == "FAILED"):
        tried.append(look(process, words, folder, place))
        progress("  %s: %.1f ms, %s" % (" ".join(words), tried[-1].longest_ms, tried[-1].note(0)))
    return min(tried, key=lambda one: one.longest_ms)


def rows_of(process: Standing, kind: str, gib: float, folder: Path) -> List[Row]:
    """All commands on one heap."""
    about, read_ms = "%g GiB, %s" % (gib, TITLES[kind]), plain_read_ms(process.pid)
    process.ask(0)
    time.sleep(1)
    clock = process.clock()
    progress("%s: plain read %.0f ms, undisturbed %.2f ms, SCHED_FIFO %s" % (about, read_ms, clock.longest_gap_ns / 1e6, bool(clock.is_fifo)))
    if not clock.is_fifo:
        progress("%s: its clock has normal priority: what others run is counted as stops" % about)
    rows, copied = [], []
    for command in [one for one in COMMANDS if kind in ("large", "small") or one == "arenas"]:
        one = best(process, [command], folder)
        if command in COPYING and not one.wrong:
            copied.append(one.longest_ms)
        rows.append(Row("%s: %s" % (about, command), limit_ms(kind, gib, command, read_ms), one.longest_ms, "ms", one.note(read_ms), one.wrong))
        if not short_stop(command):
            if command in COPYING:
                progress("%s has no --short-stop" % command)
            continue
        for place, rate in enumerate(RATES):
            one = best(process, [command, *short_stop(command)], folder, place)
            figure, limit = "%s: %s --short-stop, %d writes/s" % (about, command, rate), short_limit_ms(gib, one.dirty_pages)
            rows.append(Row(figure, limit, one.longest_ms, "ms", one.note(read_ms), one.wrong))
            if rate:
                rows.append(Row(figure + ", slowest write", LATE_MS, one.write_ms, "ms"))
    if len(copied) > 1:
        rows.append(Row("%s: longest stop of %d commands, of the shortest" % (about, len(copied)), LIKE_EACH_OTHER, max(copied) / min(copied), "x"))
    return rows


def beside_chap(command: List[str], about: str, folder: Path) -> List[Row]:
    """chap's totals and leaks of a core, of gdbheapx's processor time; nothing where there is no chap."""
    chap = shutil.which("chap")
    if not chap or kernelcore.reason():
        return []
    popen = kernelcore.start(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert popen.stdout and popen.stdout.readline() == b"ready\n"
    core, rows = kernelcore.take(popen, str(folder / "stops.core")), []
    for name, asked, words in (("totals", "count used", ["arenas"]), ("leaks", "count leaked", ["leaks"])):
        theirs, ours = cpu_s([chap, core], asked), cpu_s([TOOL, "--gdb", "none", "--core", core, *words], "")
        rows.append(Row("%s: chap's %s, of gdbheapx's processor time" % (about, name), None, theirs / ours, "x", "%.2f of %.2f s" % (theirs, ours)))
    os.unlink(core)
    return rows


def cpu_s(command: List[str], told: str) -> float:
    """Processor time of a command that reads a line."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=told + "\n", text=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def far_rows(found: Dict[float, List[Row]], kind: str) -> List[Row]:
    """From two sizes on: what follows for 100 GB."""
    least, most = min(found), max(found)
    if least == most:
        return []
    rows = []
    for small, large in zip(found[least], found[most]):
        if small.unit == "ms" and not (small.wrong or large.wrong):
            slope = (large.measured - small.measured) / (most - least)
            figure = "100 GB, %s, computed: %s" % (TITLES[kind], large.figure.split(": ", 1)[1])
            rows.append(Row(figure, None, large.measured + slope * (FAR_GIB - most), "ms", "%.1f ms a GiB" % slope))
    return rows


def measure(folder: Path) -> List[Row]:
    """Each heap, one after the other."""
    made, rows = program(folder, "standing"), []
    for kind in KINDS:
        found: Dict[float, List[Row]] = {}
        for gib in SIZES if kind in ("large", "small") else [FREE_GIB]:
            command = [made, str(folder / "stops.record"), kind, str(int(gib * GIB))]
            try:
                process = Standing(command, folder / "stops.record", {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"})
            except Broken as error:
                rows.append(Row("%g GiB, %s" % (gib, TITLES[kind]), None, float("nan"), "ms", str(error), "FAILED"))
                continue
            try:
                found[gib] = rows_of(process, kind, gib, folder)
            finally:
                process.end()
            rows += found[gib] + (beside_chap(command, "%g GiB, %s" % (gib, TITLES[kind]), folder) if gib <= 2 else [])
        rows += far_rows(found, kind) if found else []
    return rows
