"""Read the kernel's counters for one process, sample by sample, without stopping it: files of /proc through one folder that is opened
once.
"""

import os
from typing import TYPE_CHECKING, Dict, Optional

from gdbheapx.inferior.base import InContainer, MemoryUse, ProcessCounters, ProcessPages
from gdbheapx.inferior.live import group, headroom, procfs

if TYPE_CHECKING:
    from gdbheapx.inferior.live.pressure import Pressure

MOST_BYTES = 1 << 14
"""More than any of these files has; statm and status have less than 2 KiB."""
KEYS = (b"State", b"Threads", b"RssAnon", b"VmSwap", b"VmHWM")
PEAKS = {headroom.V1: "memory.max_usage_in_bytes", headroom.V2: "memory.peak"}
"""Version 2 has it since Linux 5.19."""


class Counters:
    """The counters of one process. The folder belongs to the process, not to its number: one that gets the number later is never read."""

    def __init__(self, pid: int) -> None:
        self._folder = -1
        self._page = os.sysconf("SC_PAGESIZE")
        self._pid = pid
        self._folder = self._open_folder()
        self._peak_path = _peak_path(pid)
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
        return group.container_of((self._slurp_file("cgroup") or b"").decode("utf-8", "surrogateescape"))

    def pressure(self, percent: float) -> Optional[str]:
        """Return a sign of memory shortage since the last call, or None; the first call only starts to count."""
        if self._pressure is None:
            from gdbheapx.inferior.live.pressure import Pressure

            self._pressure = Pressure(self._pid)
        return self._pressure.felt(percent)

    def lacking_here(self, needed_bytes: int) -> Optional[str]:
        """Return why this program must not take so much memory (a limit that holds for the process and for it has less left), or None if
        it may.
        """
        from gdbheapx.inferior.live import pressure

        return pressure.lacking_here(self._pid, needed_bytes)

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
            self._group_peak(),
        )

    def pages(self) -> Optional[ProcessPages]:
        """Counted page by page (smaps_rollup, Linux 4.14), under a lock that the process needs for mmap and page faults: to be asked
        rarely."""
        fields = _parse_fields(self._slurp_file("smaps_rollup") or b"", (b"Rss", b"Pss", b"Anonymous", b"AnonHugePages"))
        values = [_parse_kb(fields.get(key)) for key in (b"Rss", b"Pss", b"Anonymous", b"AnonHugePages")]
        return None if values[0] is None else ProcessPages(*values)

    def memory_use(self) -> Optional[MemoryUse]:
        """Counted by mapping, as pages() are: to be asked rarely."""
        from gdbheapx.inferior.live import smaps

        return smaps.make_smaps_usage(smaps.read_smaps_texts(self._pid))

    def _group_peak(self) -> Optional[int]:
        """Return the peak of the process's own group, or None if it has no group of its own with such a counter."""
        return headroom.HeadroomFiles().number(self._peak_path) if self._peak_path is not None else None

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


def _peak_path(pid: int) -> Optional[str]:
    """Return the file with the peak of the process's own group, or None. The uppermost group has no such file in version 2, and is the
    whole machine in version 1.
    """
    try:
        found = next(headroom.iterate_memory_cgroups(pid, headroom.HeadroomFiles()), None)
    except headroom.Hidden:
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
