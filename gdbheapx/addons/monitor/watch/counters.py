"""Read the kernel's counters for one process, sample by sample, without stopping it, and detect that memory runs out for it.

Files of /proc are read through one folder that is opened once. Shortage of memory: events and limits of its memory cgroups, and how long
tasks waited for memory (PSI). Version 1 of cgroups has no memory.events: memory.failcnt counts how often the limit was met.
"""

import os
import re
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.addons.monitor.memory_group import InContainer, container_of
from gdbheapx.common.units import SentenceSize, make_sentence
from gdbheapx.inferior.base import MemoryUse, Target
from gdbheapx.inferior.live import procfs, usage
from gdbheapx.inferior.live.headroom import V1, V2, Headroom, HeadroomFiles, Hidden, iterate_memory_cgroups, of_group

MOST_BYTES = 1 << 14
"""More than any of these files has; statm and status have less than 2 KiB."""
KEYS = (b"State", b"Threads", b"RssAnon", b"VmSwap", b"VmHWM")
PEAKS = {V1: "memory.max_usage_in_bytes", V2: "memory.peak"}
"""Version 2 has it since Linux 5.19."""


class ProcessCounters(NamedTuple):
    """Counters that the kernel keeps at all times; reading them costs the process nothing."""

    resident_bytes: int
    """RSS, as statm has it."""
    anonymous_bytes: int
    """The part of it that is no file's and no shared memory."""
    swapped_bytes: Optional[int]
    threads: Optional[int]
    virtual_bytes: Optional[int] = None
    """Of all mappings together, touched or not; None: not known (a file of samples of an earlier release)."""
    peak_bytes: Optional[int] = None
    """The highest RSS since the process began or ran this program (VmHWM); None: not known."""
    group_peak_bytes: Optional[int] = None
    """The most that its memory cgroup has used, files and other processes too (memory.peak, memory.max_usage_in_bytes)."""


class ProcessPages(NamedTuple):
    """Counters for which the kernel walks the page table."""

    resident_bytes: Optional[int]
    proportional_bytes: Optional[int]
    """PSS: of a page that several processes have, each one's part."""
    anonymous_bytes: Optional[int]
    huge_bytes: Optional[int]
    """Anonymous memory in huge pages."""


class Counters:
    """The counters of one process. The folder belongs to the process, not to its number: one that gets the number later is never read."""

    def __init__(self, pid: int) -> None:
        self._folder = -1
        self._page = os.sysconf("SC_PAGESIZE")
        self._pid = pid
        self._folder = self._open_folder()
        self._peak_path = _find_peak_path(pid)
        self._pressure: Optional[Pressure] = None

    def _open_folder(self) -> int:
        return os.open("/proc/%d" % procfs.proc_entry_number(self._pid), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

    def _goes_on(self) -> bool:
        """The main thread, whose folder this is, has ended, and others run: theirs is opened instead."""
        try:
            others = [int(name) for name in os.listdir("/proc/self/fd/%d/task" % self._folder) if name.isdigit()]
        except OSError:
            return False
        if all(procfs.is_over(self._pid, lwp) for lwp in others):
            return False
        before = self._folder
        try:
            self._folder = self._open_folder()
        except OSError:
            return False
        os.close(before)
        return True

    def __del__(self, close: "object" = os.close) -> None:
        if getattr(self, "_folder", -1) >= 0:
            close(self._folder)  # type: ignore[operator]

    def name(self) -> Optional[str]:
        """The program's name (comm); whatever bytes it holds."""
        data = self._slurp_file("comm")
        return None if data is None else data[:-1].decode("utf-8", "replace") if data.endswith(b"\n") else data.decode("utf-8", "replace")

    def container(self) -> InContainer:
        """Return the container, derived from the current control groups of the process."""
        return container_of((self._slurp_file("cgroup") or b"").decode("utf-8", "surrogateescape"))

    def pressure(self, percent: float) -> Optional[str]:
        """Return a sign of memory shortage since the last call, or None; the first call only starts to count."""
        self._pressure = self._pressure or Pressure(self._pid)
        return self._pressure.felt(percent)

    def read(self) -> Optional[ProcessCounters]:
        """Its counters now; None if it has ended, or only waits to be reaped. Takes no lock of the process."""
        sizes, status = (self._slurp_file("statm") or b"").split(), self._slurp_file("status")
        fields = _parse_fields(status or b"", KEYS)
        if len(sizes) < 3 or fields.get(b"State", b"X")[:1] in (b"Z", b"X"):
            return self.read() if self._goes_on() else None
        resident, of_files = int(sizes[1]) * self._page, int(sizes[2]) * self._page
        threads = fields.get(b"Threads", b"")
        anonymous = _parse_kb(fields.get(b"RssAnon"))  # Linux 4.5; before it what is no file's
        return ProcessCounters(
            resident,
            resident - of_files if anonymous is None else anonymous,
            _parse_kb(fields.get(b"VmSwap")),
            int(threads) if threads.isdigit() else None,
            int(sizes[0]) * self._page,
            _parse_kb(fields.get(b"VmHWM")),
            HeadroomFiles().number(self._peak_path) if self._peak_path is not None else None,
        )

    def pages(self) -> Optional[ProcessPages]:
        """Counted page by page (smaps_rollup, Linux 4.14), under a lock that the process needs for mmap and page faults: to be asked
        rarely."""
        fields = _parse_fields(self._slurp_file("smaps_rollup") or b"", (b"Rss", b"Pss", b"Anonymous", b"AnonHugePages"))
        values = [_parse_kb(fields.get(key)) for key in (b"Rss", b"Pss", b"Anonymous", b"AnonHugePages")]
        return None if values[0] is None else ProcessPages(*values)

    def memory_use(self) -> Optional[MemoryUse]:
        """Counted by mapping, as pages() are: to be asked rarely."""
        return usage.make_smaps_usage(*usage.read_smaps_texts(self._pid))

    def _slurp_file(self, name: str) -> Optional[bytes]:
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            return None
        try:
            return os.read(descriptor, MOST_BYTES)
        except OSError:
            return None
        finally:
            os.close(descriptor)


def _find_peak_path(pid: int) -> Optional[str]:
    """Return the file with the peak of the process's own group, or None. The uppermost group has no such file in version 2, and is the
    whole machine in version 1.
    """
    try:
        found = next(iterate_memory_cgroups(pid, HeadroomFiles()), None)
    except Hidden:
        return None
    if found is None or found[1] == "/":
        return None
    path = os.path.join(found[0], PEAKS[found[2]])
    return path if os.access(path, os.R_OK) else None


def _parse_fields(data: bytes, keys: "tuple[bytes, ...]") -> Dict[bytes, bytes]:
    """`KEY: value` lines. The kernel writes a newline in a name as backslash and n, so no line of it can be another's."""
    values: Dict[bytes, bytes] = {}
    for line in data.split(b"\n"):
        key, colon, value = line.partition(b":")
        if colon and key in keys:
            values[key] = value.strip()
    return values


def _parse_kb(text: Optional[bytes]) -> Optional[int]:
    """The bytes of `12 kB`."""
    digits = text.split()[:1] if text else []
    return int(digits[0]) * 1024 if digits and digits[0].isdigit() else None


EVENTS = ("high", "max", "oom")
"""Counters of memory.events that rise where a limit is felt."""
FAILURES = "memory.failcnt"
PSI = re.compile(r"some avg10=([0-9.]+)")
LITTLE = 10
"""A limit of which one tenth is left is close."""
SOON_S = 5.0
"""So is one that the group meets within this time, or two looks, at the rate since the last look, where a quarter of it is in use."""


class Pressure:
    """State of one process's memory cgroups, or of the machine if it is in none that can be seen."""

    def __init__(self, pid: int, files: Optional[HeadroomFiles] = None) -> None:
        self._files = files or HeadroomFiles()
        self._groups = list_visible_groups(pid, self._files)
        self._events = self._count_events()
        self._left: Dict[str, Tuple[float, int]] = {}
        """By limit when it was looked at last, and what was left."""

    def _count_events(self) -> Dict[str, int]:
        counted: Dict[str, int] = {}
        for folder, _, kind in self._groups:
            if kind == V1:
                failed = self._files.number(os.path.join(folder, FAILURES))
                counted.update({os.path.join(folder, FAILURES): failed} if failed is not None else {})
                continue
            path = os.path.join(folder, "memory.events")
            events = self._files.fields(path)
            counted.update({"%s of %s" % (key, path): events[key] for key in EVENTS if key in events})
        return counted

    def felt(self, percent: float, now_s: Optional[float] = None) -> Optional[str]:
        """Return the sign of memory shortage since the last call, in words, or None. `percent`: of the last ten seconds in which tasks
        waited.
        """
        before, self._events = self._events, self._count_events()
        close = self._describe_close_limit(time.monotonic() if now_s is None else now_s)
        for key, count in self._events.items():
            if count > before.get(key, count):
                return "%s rose by %d" % (key, count - before[key])
        return close or self._describe_waiting(percent)

    def _describe_close_limit(self, now_s: float) -> Optional[str]:
        """Return the limit that is close, or will be met soon, in words, or None."""
        told: Optional[str] = None
        for bound in list_group_limits(self._groups, self._files):
            key, left, limit = bound.limit or "", bound.left_bytes, bound.limit_bytes or 0
            before_s, before = self._left.get(key, (now_s, left))
            self._left[key] = now_s, left
            passed_s = now_s - before_s
            soon_s = left * passed_s / (before - left) if before > left else float("inf")
            if left * LITTLE <= limit:
                told = told or make_sentence("%s", bound.by)
            elif left * 4 <= limit * 3 and soon_s <= max(SOON_S, 2 * passed_s):
                told = told or make_sentence("%s, which last for %.1f s as it grows now", bound.by, soon_s)
        return told

    def _describe_waiting(self, percent: float) -> Optional[str]:
        own = [os.path.join(folder, "memory.pressure") for folder, _, kind in self._groups[:1] if kind == V2]
        for path in (*own, os.path.join(self._files.proc, "pressure", "memory")):
            found = PSI.match(self._files.text(path) or "")
            if found is not None:
                waited = float(found.group(1))
                return "tasks waited for memory in %g %% of the last ten seconds (%s)" % (waited, path) if waited >= percent else None
        return None


def list_visible_groups(pid: int, files: HeadroomFiles) -> List[Tuple[str, str, str]]:
    """Return the memory cgroups that can be seen from here, innermost first."""
    found: List[Tuple[str, str, str]] = []
    try:
        for group in iterate_memory_cgroups(pid, files):
            found.append(group)
    except Hidden:
        pass
    return found


def list_group_limits(of: List[Tuple[str, str, str]], files: HeadroomFiles) -> List[Headroom]:
    """Return the headroom below the limits of these groups; those that cannot be read are left out."""
    found: List[Headroom] = []
    for folder, shown, kind in of:
        try:
            found += of_group(folder, shown, kind, files)
        except Hidden:
            pass
    return found


def lacking_here(pid: int, needed_bytes: int, files: Optional[HeadroomFiles] = None) -> Optional[str]:
    """Return why this program must not take so much memory (a limit that holds for the process and for it has less left), or None if it
    may.
    """
    files = files or HeadroomFiles()
    own = {folder for folder, _, _ in list_visible_groups(os.getpid(), files)}
    common = list_group_limits([group for group in list_visible_groups(pid, files) if group[0] in own], files)
    nearest = min(common, key=lambda bound: bound.left_bytes, default=None)
    if nearest is None or nearest.left_bytes >= needed_bytes:
        return None
    return make_sentence(
        "it may take %s, and %s, which is that of the watch as well: start the watch outside of it", SentenceSize(needed_bytes), nearest.by
    )


def open_counters(target: Target) -> Optional[Counters]:
    """Return the counters of a living process of this machine; None of any other target."""
    return Counters(target.pid) if target.kind == "live" and target.pid is not None else None
