"""Determine how much memory a process may still get: from its memory cgroup, from every one above it, and from the machine; how it ended;
and how much may be brought in from swap. A page that is read from outside is charged to the process that owns it. In a group that is at
its limit that can end the process: the kernel kills a large process, not the reader. A process that was being read can end by itself, by
a signal, by the kernel for lack of memory, or by running another program. A tracer gets its status from waitpid; a zombie has it in
/proc/PID/stat. Kills for memory are counted in its memory cgroups, which are read before anything else is. Reading may bring in from swap
as much as the memory limits and the machine have room for, less a reserve. That is measured once something is in swap, before the first
such page is read, and again while pages come in. Memory that others take meanwhile is subtracted; the grant never grows within one
reading, or a group whose limit drives pages out would take in one after the other without end.
"""

import os
import signal
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from gdbheapx.common import problems
from gdbheapx.common.files import read_mounts
from gdbheapx.common.problems import IN_SWAP, Diagnostic
from gdbheapx.common.units import Sentence, SentenceSize, make_sentence
from gdbheapx.inferior.base import SwapRoom
from gdbheapx.inferior.live import procfs

NO_LIMIT_BYTES = 1 << 60
"""What version 1 shows where there is none is close to 2^63."""
V1, V2 = "cgroup", "cgroup2"
IS_ROOT, IS_NO_ROOT = "cgroup.sane_behavior", "cgroup.events"
"""Files that only the uppermost group of version 1 has, and only those below it of version 2."""
DROPPABLE = {
    V1: ("total_inactive_file", ("total_dirty", "total_writeback")),
    V2: ("inactive_file", ("file_dirty", "file_writeback")),
}
"""Keys of memory.stat: clean pages of files that are not in use can go at once; those that must be written first cannot."""
COUNTERS = {V1: "memory.oom_control", V2: "memory.events"}
KILLS = "oom_kill"
START_TIME, EXIT_CODE = 19, 49
"""Fields 22 and 52 of /proc/PID/stat (proc_pid_stat(5)), counted from after the name."""
CORE_OR_OTHER = "look for its core, or give the pid of a running process"
MOST_RESERVED_BYTES = 1 << 30
"""Half of what is left stays free, but no more than this: the process itself, its neighbours and the kernel's read-ahead take from it."""
FRESH_S, NEW_GRANT_S = 0.05, 60.0
"""How old a measure may be; and after which time a look gets a new one of its own."""
FEW_BYTES = 256 << 10
"""Of a process that has nothing in swap a few pages may be brought in without a look at limits."""
ALL = (1 << 64) - 1
HINT = "raise that limit, or look when less is in swap; --read-swap reads these pages all the same, which can end the process"


class Headroom(NamedTuple):
    """Memory that is left, and the limit that bounds it."""

    left_bytes: int
    """0 where that is unknown."""
    by: Sentence
    """Which limit is the nearest, as the end of a sentence: `its memory cgroup /a/b has room for 2 MiB`."""
    is_known: bool = True
    limit: Optional[str] = None
    """The file of the limit; None: it is the machine's memory."""
    limit_bytes: Optional[int] = None


class Mount(NamedTuple):
    """A cgroup file system with a memory controller that is mounted here."""

    kind: str
    folder: str
    root: str
    """The group that is its uppermost folder, as paths in /proc/PID/cgroup are counted."""


BOUNDS = {
    V1: (
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ("memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes"),
    ),
    V2: (("memory.max", "memory.current"), ("memory.high", "memory.current")),
}
"""Of version 1 the sum with swap as well: a page that comes in is counted twice for a moment."""


class HeadroomFiles:
    """Location of the kernel's files; tests have trees of their own."""

    def __init__(self, proc: str = "/proc") -> None:
        self.proc = proc

    def text(self, path: str) -> Optional[str]:
        """A file's text; None if it cannot be read."""
        data = procfs.slurp_file(path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def number(self, path: str) -> Optional[int]:
        """A file's number, or NO_LIMIT_BYTES for `max`; None if there is none."""
        text = (self.text(path) or "").strip()
        return NO_LIMIT_BYTES if text == "max" else min(int(text), NO_LIMIT_BYTES) if text.isdigit() else None

    def fields(self, path: str) -> Dict[str, int]:
        """Lines `key number` or `key: number kB`; those in kB as bytes."""
        values: Dict[str, int] = {}
        for line in (self.text(path) or "").splitlines():
            parts = line.split()
            if len(parts) > 1 and parts[1].isdigit():
                values[parts[0].rstrip(":")] = int(parts[1]) << (10 if parts[2:] == ["kB"] else 0)
        return values


MACHINE_FILES = HeadroomFiles()


def swapped_bytes(pid: int, files: HeadroomFiles = MACHINE_FILES) -> int:
    """VmSwap: what the process has in swap, shared memory left out; 0 where there is none, or no such process."""
    return files.fields("%s/%d/status" % (files.proc, pid)).get("VmSwap", 0)


def shared_swapped_bytes(pid: int, files: HeadroomFiles = MACHINE_FILES) -> int:
    """Return the bytes of shared memory in swap, from smaps_rollup; if that cannot be read, the machine's used swap less VmSwap."""
    machine = files.fields("%s/meminfo" % files.proc)
    in_use = machine.get("SwapTotal", 0) - machine.get("SwapFree", 0)
    if not in_use:
        return 0
    return max(files.fields("%s/%d/smaps_rollup" % (files.proc, pid)).get("Swap", in_use) - swapped_bytes(pid, files), 0)


def machine_swap_bytes(files: HeadroomFiles = MACHINE_FILES) -> int:
    """Return the size of this machine's swap."""
    return files.fields("%s/meminfo" % files.proc).get("SwapTotal", 0)


def find_headroom(pid: int, files: HeadroomFiles = MACHINE_FILES) -> Headroom:
    """Return the memory that the process may still get; 0 and not known if the machine or a hidden group does not show it."""
    free = files.fields("%s/meminfo" % files.proc).get("MemAvailable")
    if free is None:
        return Headroom(0, make_sentence("this machine does not tell how much memory is free"), False)
    bounds = [Headroom(free, make_sentence("this machine has %s of memory left", SentenceSize(free)))]
    try:
        for group, shown, kind in iterate_memory_cgroups(pid, files):
            bounds += of_group(group, shown, kind, files)
    except Hidden as hidden:
        return Headroom(0, make_sentence("%s", str(hidden)), False)
    return min(bounds, key=lambda bound: bound.left_bytes)


def of_group(folder: str, shown: str, kind: str, files: HeadroomFiles) -> Iterator[Headroom]:
    """Yield the headroom below each limit of one group. Hidden if the use of a limit cannot be read."""
    for limit_name, used_name in BOUNDS[kind]:
        limit, used = files.number(os.path.join(folder, limit_name)), files.number(os.path.join(folder, used_name))
        if limit is None or limit >= NO_LIMIT_BYTES:
            continue
        if used is None:
            raise Hidden("how much of the limit of memory cgroup %s is in use cannot be read" % shown)
        left = max(limit - used, 0)
        if left < limit:
            stat = files.fields(os.path.join(folder, "memory.stat"))
            clean, dirty = DROPPABLE[kind]
            left = min(limit, left + max(stat.get(clean, 0) - sum(stat.get(key, 0) for key in dirty), 0))
        by = make_sentence("memory cgroup %s has %s left of %s (%s)", shown, SentenceSize(left), SentenceSize(limit), limit_name)
        yield Headroom(left, by, True, os.path.join(folder, limit_name), limit)


class Hidden(Exception):
    """A group whose limits count is not to be seen from here; the message says which."""


def iterate_memory_cgroups(pid: int, files: HeadroomFiles) -> Iterator[Tuple[str, str, str]]:
    """(folder, name, version) of the process's memory cgroup and every one above it. Hidden where not all of them can be seen."""
    text = files.text("%s/%d/cgroup" % (files.proc, pid))
    if not text:
        return  # a kernel without cgroups
    own: Dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3 and "memory" in parts[1].split(","):
            own[V1] = parts[2]
        elif len(parts) == 3 and parts[0] == "0":
            own[V2] = parts[2]
    kind = V1 if V1 in own else V2  # a controller belongs to one hierarchy
    if kind not in own:
        return
    mount = _find_mount(files, kind, own[kind])
    if mount is None:
        raise Hidden("its memory cgroup %s cannot be seen from here: its limits are unknown" % own[kind])
    inner = own[kind][len(mount.root.rstrip("/")) :].strip("/")
    while True:
        folder = os.path.join(mount.folder, inner) if inner else mount.folder
        yield folder, os.path.join(mount.root, inner) if inner else mount.root, kind
        if not inner:
            break
        inner = os.path.dirname(inner)
    if not is_uppermost(mount, files):
        raise Hidden("the limits of the cgroups above %s cannot be seen from here, in a container" % mount.root)


def _find_mount(files: HeadroomFiles, kind: str, path: str) -> Optional[Mount]:
    """The mount of this version that has the group of this path."""
    tops = [(mount.root.rstrip("/"), mount) for mount in iterate_cgroup_mounts(files, kind)]
    above = [mount for top, mount in tops if (path + "/").startswith(top + "/") and "/../" not in path[len(top) :] + "/"]
    return min(above, key=lambda mount: len(mount.root), default=None)


def iterate_cgroup_mounts(files: HeadroomFiles, kind: str) -> Iterator[Mount]:
    """Cgroup file systems of this version; of version 1 those with the memory controller."""
    for mount in read_mounts("%s/self/mountinfo" % files.proc):
        if os.fsdecode(mount.kind) == kind and (kind != V1 or "memory" in mount.options.split(",")):
            yield Mount(kind, mount.point, mount.root)


def is_uppermost(mount: Mount, files: HeadroomFiles) -> bool:
    """No group is above the mount's."""
    if mount.kind == V2:
        return files.text(os.path.join(mount.folder, IS_NO_ROOT)) is None
    if os.path.exists(os.path.join(mount.folder, IS_ROOT)):
        return True
    above = files.fields(os.path.join(mount.folder, "memory.stat")).get("hierarchical_memory_limit")
    return above is not None and above >= NO_LIMIT_BYTES


class Deaths:
    """Cause of death of one process, created before the process is read."""

    def __init__(self, pid: int, files: HeadroomFiles = MACHINE_FILES) -> None:
        self._pid, self._files = pid, files
        self._started = self._start_time()
        self._counters: List[Tuple[str, str]] = []
        try:
            for folder, shown, kind in iterate_memory_cgroups(pid, self._files):
                self._counters.append((os.path.join(folder, COUNTERS[kind]), shown))
        except Hidden:  # those that can be seen count
            pass
        self._kills = self._count_kills()
        self.status: Optional[int] = None
        """What waitpid gave its tracer; None: nothing yet."""

    def _start_time(self) -> Optional[bytes]:
        fields = procfs.read_stat(self._pid)
        return fields[START_TIME] if len(fields) > START_TIME and fields[0] not in (b"Z", b"X") else None

    def _count_kills(self) -> Dict[str, int]:
        """Kills for memory so far, by group."""
        return {shown: self._files.fields(path).get(KILLS, 0) for path, shown in self._counters}

    def cause(self) -> Diagnostic:
        """Return how the process ended, as far as that can be known, and the next step."""
        who, status = "process %d" % self._pid, self.status
        fields = procfs.read_stat(self._pid)
        if status is None and len(fields) > EXIT_CODE and fields[0] in (b"Z", b"X") and fields[EXIT_CODE].isdigit():
            status = int(fields[EXIT_CODE]) or None
        killed = next((shown for shown, count in self._count_kills().items() if count > self._kills.get(shown, 0)), None)
        by_signal = os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None
        if killed is not None and by_signal in (None, signal.SIGKILL):
            what = "%s was killed by the kernel while it was read: memory cgroup %s had no memory left" % (who, killed)
            return Diagnostic(problems.PROCESS_OUT_OF_MEMORY, None, what, "raise the memory limit, or read a core of it")
        if by_signal is not None:
            name = signal.Signals(by_signal).name if by_signal in set(signal.Signals) else "unknown"
            what = "%s was killed by signal %d (%s) while it was read" % (who, by_signal, name)
            return Diagnostic(problems.PROCESS_KILLED, None, what, CORE_OR_OTHER)
        if status is not None:
            what = "%s exited with code %d while it was read" % (who, os.WEXITSTATUS(status))
            return Diagnostic(problems.PROCESS_EXITED, None, what, "give the pid of a running process")
        if self._started is not None and self._start_time() == self._started:
            what = "%s began to run another program while it was read" % who
            return Diagnostic(problems.PROCESS_EXECUTED, None, what, "run the same command again")
        what = "%s exited or was killed while it was read; its parent alone knows how" % who
        return Diagnostic(problems.PROCESS_ENDED, None, what, CORE_OR_OTHER)


class LiveSwapRoom(SwapRoom):
    """Room for swapped pages of one process of this machine."""

    def __init__(self, pid: int) -> None:
        SwapRoom.__init__(self, 0)
        self._pid = pid
        self._machine_bytes = machine_swap_bytes()
        """Asked before any stop."""
        self._measured_s = self._granted_s = float("-inf")
        self._reserved_bytes = 0
        self._headroom: Optional[Headroom] = None
        self._swapped_bytes = 0
        self._shared_bytes: Optional[int] = None
        self._accepted = False
        self.shared_in_bytes = 0
        """What was read of shared memory and may have been in swap, at most what was there."""

    def accept(self) -> None:
        """The user reads all of it, whatever there is room for."""
        self._accepted = True
        self.cells[0] = ALL

    @property
    def is_accepted(self) -> bool:
        return self._accepted

    def take_shared(self, size_bytes: int, page_bytes: int) -> int:
        if self._shared_bytes is None:
            self._shared_bytes = shared_swapped_bytes(self._pid)
            self._measured_s = float("-inf")
        if not self._shared_bytes:
            return size_bytes
        given = self.take(-(-size_bytes // page_bytes) * page_bytes, page_bytes)
        self.shared_in_bytes = min(self.shared_in_bytes + given, self._shared_bytes)
        return min(given, size_bytes)

    def renew(self) -> None:
        now = time.monotonic()
        if self._accepted or now - self._measured_s < FRESH_S:
            return
        self._measured_s = now
        swapped = swapped_bytes(self._pid) + (self._shared_bytes or 0)
        if not swapped:  # nothing is looked up; a page may still go to swap before it is read
            self.is_without_swap = not self._machine_bytes
            self.cells[0] = ALL if self.is_without_swap else self.cells[0] if self._headroom is not None else FEW_BYTES
            return
        self._swapped_bytes = swapped
        headroom = find_headroom(self._pid)
        if now - self._granted_s > NEW_GRANT_S:
            self._granted_s = now
            self._reserved_bytes = min(headroom.left_bytes // 2, MOST_RESERVED_BYTES)
            self.cells[0] = ALL
        self._headroom = headroom
        self.cells[0] = min(self.cells[0], max(headroom.left_bytes - self._reserved_bytes, 0))

    def has_room_for_all(self) -> bool:
        self.renew()
        if self._accepted or self.lacking() is None:
            return True
        self.cells[1] += 1
        return False

    def lacking(self) -> Optional[str]:
        """Return why not everything that is in swap may be brought in, or None if it may."""
        if self._accepted:
            return None
        swapped = swapped_bytes(self._pid)
        if swapped <= FEW_BYTES:
            return None
        self.renew()
        return self._describe_swap() if swapped > self.cells[0] else None

    def _describe_swap(self) -> str:
        by = make_sentence("its limits are unknown") if self._headroom is None else self._headroom.by
        return make_sentence("%s of the process is in swap, and %s", SentenceSize(self._swapped_bytes), by)

    def problems(self) -> List[Diagnostic]:
        """Return a diagnostic if pages were not read."""
        if not self.refused:
            return []
        what = make_sentence("%s: pages in swap were not read, because reading would bring them into RAM", self._describe_swap())
        return [Diagnostic(IN_SWAP, None, what, HINT)]
