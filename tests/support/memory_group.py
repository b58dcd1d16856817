"""What a process costs the kernel, to the page: four figures that a look at a sleeping process must leave as they are; for tests and bench.

VmPTE (page tables), VmSwap, Rss, and the page faults that its memory cgroup counts. The last is the one that sees reads from outside:
a fault that process_vm_readv or /proc/PID/mem takes in somebody's memory counts for the owner's cgroup, and in no field of /proc/PID/stat.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple, Type

FLUSHER = """
import os, resource
file, mebibyte = os.memfd_create("flusher"), bytes(1 << 20)
while os.read(0, 1):
    for _ in range(1 + os.cpu_count() // 8):
        os.write(file, mebibyte)
    os.ftruncate(file, 0)
    os.lseek(file, 0, 0)
    os.write(1, b"%d\\n" % resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
"""The kernel adds up a cgroup's counters every two seconds, or when they are read after more than 64 changes for each CPU: a few faults
would show after the next look only. This process in the group makes that many changes, of page cache, whenever it is asked; of its own
faults, which it has none of once it is warm, it tells the count."""


class Figures(NamedTuple):
    """One process at one moment."""

    vmpte_kb: int
    vmswap_kb: int
    rss_kb: int


class Moment(NamedTuple):
    """Some processes of one group at one moment."""

    figures: Dict[int, Figures]
    faults: Optional[int]
    """Page faults in the memory of all of them since the group was made; None without a group."""


def lines(path: str) -> Dict[str, int]:
    """`Key: 12 kB` lines of a file of /proc."""
    with open(path) as file:
        return {parts[0].rstrip(":"): int(parts[1]) for parts in (line.split() for line in file) if len(parts) > 1 and parts[1].isdigit()}


def figures(pid: int) -> Figures:
    """The three that /proc has; ProcessLookupError where the process has ended."""
    status = lines("/proc/%d/status" % pid)
    if "VmPTE" not in status:
        raise ProcessLookupError("process %d has ended" % pid)
    return Figures(status["VmPTE"], status["VmSwap"], lines("/proc/%d/smaps_rollup" % pid)["Rss"])


def hierarchy() -> Tuple[Optional[Path], str]:
    """The folder in which a memory cgroup can be made, of version 1 or 2; or None, and why."""
    seen = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, after = line.split(" - ", 1)
        folder, (kind, _, options) = Path(before.split()[4]), after.split(" ", 2)
        if kind == "cgroup" and "memory" in options.split(","):
            return folder, ""
        if kind == "cgroup2":
            control = folder / "cgroup.subtree_control"
            if control.exists() and "memory" in control.read_text().split():
                return folder, ""
            seen.append("%s gives its groups no memory controller" % folder)
    return None, "; ".join(seen) or "no cgroup file system is mounted"


def home(pid: int, top: Path) -> Path:
    """The process's own group below `top`; `top` itself where it cannot be seen from here."""
    for line in Path("/proc/%d/cgroup" % pid).read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") or (not controllers and (top / "cgroup.subtree_control").exists()):
            own = top / path.lstrip("/")
            return own if own.is_dir() else top
    return top


LIMITS = ("memory.limit_in_bytes", "memory.max")
"""Of version 1 and 2."""


@contextmanager
def limited(limit_bytes: int) -> Iterator[Path]:
    """A memory cgroup with a limit, of either version; NoGroup where none can be made. What still runs in it at the end is killed."""
    top, why = hierarchy()
    if top is None:
        raise NoGroup(why)
    folder = top / ("gdbheapx-limit-%d" % os.getpid())
    try:
        folder.mkdir()
    except OSError as error:
        raise NoGroup("no memory cgroup can be made below %s: %s" % (top, error.strerror)) from None
    try:
        next(folder / name for name in LIMITS if (folder / name).exists()).write_text(str(limit_bytes))
        yield folder
    finally:
        for _ in range(200):
            left = (folder / "cgroup.procs").read_text().split()
            for pid in left:
                os.kill(int(pid), signal.SIGKILL)
            try:
                folder.rmdir()
                break
            except OSError:  # a zombie, or one that is about to end, is in it still
                time.sleep(0.02)


def entering(folder: Path, *command: str) -> List[str]:
    """The command, which goes into the group before it begins."""
    return ["/bin/sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(folder), *command]


class NoGroup(Exception):
    """None can be made here; the message says why."""


class MemoryGroup:
    """A memory cgroup for some processes that run already; as a context, they are back where they were afterwards.

    `reason` says why there is none, if so; then `moment()` has everything but faults.
    """

    def __init__(self, *pids: int) -> None:
        self.pids = pids
        self.reason = ""
        self._folder = None  # type: Optional[Path]
        self._home = {}  # type: Dict[int, Path]
        self._flusher = None  # type: Optional[subprocess.Popen[bytes]]
        self._elsewhere = 0
        """Faults that the flusher had before it came into the group."""

    def __enter__(self) -> "MemoryGroup":
        top, self.reason = hierarchy()
        if top:
            self._home = {pid: home(pid, top) for pid in self.pids}
            folder = top / ("gdbheapx-%d-%d" % (os.getpid(), self.pids[0]))
            try:
                folder.mkdir()
                self._folder = folder
                for pid in self.pids:
                    (folder / "cgroup.procs").write_text(str(pid))
                self._start_flusher(folder)
            except OSError as error:
                self.reason = "no memory cgroup can be made below %s: %s" % (top, error.strerror)
                self._remove()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self._remove()

    def moment(self) -> Moment:
        """The figures now; the kernel's counters are made to be of this moment too."""
        return Moment({pid: figures(pid) for pid in self.pids}, self._faults())

    def _start_flusher(self, folder: Path) -> None:
        self._flusher = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", FLUSHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self._elsewhere = self._flush()
        (folder / "cgroup.procs").write_text(str(self._flusher.pid))

    def _flush(self) -> int:
        """The group's counters are up to date; how many faults the flusher has had in all."""
        assert self._flusher and self._flusher.stdin and self._flusher.stdout
        self._flusher.stdin.write(b"x")
        return int(self._flusher.stdout.readline())

    def _faults(self) -> Optional[int]:
        if not self._folder:
            return None
        while True:
            own = self._flush()
            counted = lines(str(self._folder / "memory.stat"))["pgfault"]
            if self._flush() == own:
                return counted - (own - self._elsewhere)

    def _remove(self) -> None:
        if self._flusher:
            self._flusher.kill()
            self._flusher.communicate()
            self._flusher = None
        if self._folder:
            for pid in (self._folder / "cgroup.procs").read_text().split():
                back = self._home.get(int(pid), self._folder.parent)  # one that a process of ours has forked since goes to the top
                try:
                    (back / "cgroup.procs").write_text(pid)
                except OSError:
                    pass  # it has ended
            self._folder.rmdir()
            self._folder = None


def changes(before: Moment, after: Moment) -> List[str]:
    """What is not as it was, in words: `VmPTE +15960 kB`; empty if nothing changed."""
    told = []
    for pid, old in before.figures.items():
        of = " of %d" % pid if len(before.figures) > 1 else ""
        for name, was, now in zip(("VmPTE", "VmSwap", "Rss"), old, after.figures[pid]):
            if was != now:
                told.append("%s%s %+d kB" % (name, of, now - was))
    if before.faults is not None and after.faults is not None and before.faults != after.faults:
        told.append("page faults %+d" % (after.faults - before.faults))
    return told
