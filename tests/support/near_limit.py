"""A program that grows towards the limit of its memory cgroup, left alone or watched from outside: what became of it, and what was taken."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from tests.support import memory_group
from tests.support.processes import Process, Stage
from tests.support.tool import heapx, tool_environment

MIB = 1 << 20
THREADS = 4
SECONDS = 120
PEAKS = ("memory.max_usage_in_bytes", "memory.peak")
CURRENT = ("memory.usage_in_bytes", "memory.current")
CACHE = ("cache ", "file ")
KILLS = ("memory.oom_control", "memory.events")
NOISE_BYTES = 1 << 20
"""What two that are left alone differ by at most: the kernel charges in batches, and threads take turns."""
ANSWERS = ("report", "leaks", "owners")
"""What a snapshot that is whole says."""


class Plan(NamedTuple):
    """One program."""

    bytes_per_second: int
    most_bytes: int
    limit_bytes: int


class End(NamedTuple):
    """What became of it."""

    is_alive: bool
    kept_bytes: int
    """By its own count, when it died or rested."""
    highest_bytes: int
    """The group's memory at most, as far as its files tell."""
    cache_bytes: int
    """Pages of files that are charged to the group."""
    kills: int
    decisions: List[Dict[str, Any]]
    lacking: str = ""


def number(group: Path, names: Sequence[str]) -> Optional[int]:
    """Of the file that this version of cgroups has."""
    return next((int((group / name).read_text()) for name in names if (group / name).exists()), None)


def field(group: Path, names: Sequence[str], keys: Sequence[str]) -> int:
    """One line of one of these files."""
    lines = [line for name in names if (group / name).exists() for line in (group / name).read_text().splitlines()]
    return next(int(line.split()[1]) for key in keys for line in lines if line.startswith(key))


def run(stage: Stage, plan: Plan, rules: Sequence[str] = (), is_inside: bool = False) -> End:
    """To its death, or until it rests; `rules`: those of --snapshot-when, none: left alone; `is_inside`: the watch is in the same group. NoGroup
    where no memory cgroup can be made."""
    folder = stage.folder()
    program, record = stage.builder.build("crashing"), folder / "record"
    words = [str(program), str(record), str(THREADS), str(plan.bytes_per_second), str(plan.most_bytes)]
    with memory_group.limited(plan.limit_bytes) as group:
        process = stage.spawn(memory_group.entering(group, *words), folder, record=record)
        process.wait_ready()
        watch = Watch(process, folder, rules, group if is_inside else None) if rules else None
        try:
            highest = grow(process, group)
            decisions = watch.ended(process) if watch is not None else []
            is_alive = process.popen.poll() is None
            kills = field(group, KILLS, ["oom_kill "])
            cache = field(group, ["memory.stat"], CACHE)
            highest = number(group, PEAKS) or highest
        finally:
            if watch is not None:
                watch.kill()
            process.end()
    return End(is_alive, process.words()[0], highest, cache, kills, decisions)


def grow(process: Process, group: Path) -> int:
    """To its death, or until it rests; what its group had at most when it was looked at."""
    process.send(b"g")
    until, highest = time.monotonic() + SECONDS, 0
    while process.popen.poll() is None and process.words()[1] < THREADS:
        highest = max(highest, number(group, CURRENT) or 0)
        assert time.monotonic() < until, "it grows no more, and does not rest"
        time.sleep(0.005)
    return max(highest, number(group, CURRENT) or 0)


class Watch:
    """`watch` of a process, from outside its group, from the moment on at which it has taken the first snapshot."""

    def __init__(self, process: Process, folder: Path, rules: Sequence[str], group: Optional[Path]) -> None:
        self._log = folder / "watch"
        words = [sys.executable, "-m", "gdbheapx", "--pid", str(process.pid), "watch", "--json", "--every", "0.1"]
        words += ["--snapshots", "1", "--snapshot-gap", "0.1", "--snapshot-to", str(folder)]
        words += [word for rule in rules for word in ("--snapshot-when", rule)]
        words = memory_group.entering(group, *words) if group is not None else words
        with open(self._log, "wb") as log:
            self._popen = subprocess.Popen(words, env=tool_environment(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self._wait(process, 1)
        self._settle()

    def decisions(self) -> List[Dict[str, Any]]:
        """So far."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines(True) if line.startswith("{") and line.endswith("\n")]
        return [line for line in lines if line["kind"] == "snapshot"]

    def _wait(self, process: Process, count: int) -> None:
        until = time.monotonic() + SECONDS
        while len([one for one in self.decisions() if one["outcome"] in ("taken", "failed")]) < count and self._popen.poll() is None and time.monotonic() < until:
            time.sleep(0.01)

    def _settle(self) -> None:
        """Wait until the program that takes them has nothing to do: in a real watch much time goes by."""
        before, rests_since, until = -1, time.monotonic(), time.monotonic() + SECONDS
        while time.monotonic() - rests_since < 0.3 and time.monotonic() < until:
            used = 0
            for child in Path("/proc/%d/task/%d/children" % (self._popen.pid, self._popen.pid)).read_text().split():
                fields = Path("/proc/%s/stat" % child).read_text().rpartition(")")[2].split()
                used += int(fields[11]) + int(fields[12])
            if used != before:
                before, rests_since = used, time.monotonic()
            time.sleep(0.02)

    def ended(self, process: Process) -> List[Dict[str, Any]]:
        """What it decided, when the process is gone, or when it has decided."""
        if process.popen.poll() is None:
            self._wait(process, 2)
            self._popen.send_signal(signal.SIGTERM)
        self._popen.wait(SECONDS)
        return self.decisions()

    def kill(self) -> None:
        """At the end."""
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.wait()


def check_no_sooner(end: End, controls: Sequence[End]) -> None:
    """It was killed, and with as many bytes as without a watch; no pages of files were charged to its group beside its own."""
    assert not end.is_alive and end.kills == 1 and not [one for one in controls if one.is_alive], (end, controls)
    assert end.kept_bytes >= min(one.kept_bytes for one in controls) - NOISE_BYTES, (end, controls)
    assert end.cache_bytes <= max(one.cache_bytes for one in controls) + NOISE_BYTES, (end, controls)


def lacking(end: End) -> str:
    """What the snapshot does not answer, or why there is none; empty: it is whole, but for arenas in the middle of a change."""
    path = next((one["path"] for one in end.decisions[1:] if one["path"]), None)
    if path is None:
        return "; ".join(one["why"] for one in end.decisions[1:]) or "nothing was decided"
    for name in ANSWERS:
        answer = heapx(["--snapshot", path], name, "--json")
        if answer.code == 0:
            continue
        missing = [one["what"] for one in answer.envelope["problems"] if one["code"] != "arena-changing"]  # it never stops allocating
        if answer.code != 4 or missing:
            return "%s of the snapshot ended with %d: %s" % (name, answer.code, missing)
    return ""
