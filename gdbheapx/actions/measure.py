"""What the kernel counts for a process, before and after."""

from gdbheapx.analysis.acted import Measure
from gdbheapx.inferior.live import procfs

KEYS = ("Anonymous", "Rss", "Swap")


def measure(pid: int) -> Measure:
    """Anonymous, Rss and Swap of /proc/PID/smaps_rollup (Linux 4.14), which counts pages; VmRSS of status lags behind."""
    text = (procfs.slurp("/proc/%d/smaps_rollup" % pid) or b"").decode("ascii", "replace")
    found = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in KEYS and value.split()[:1] and value.split()[0].isdigit():
            found[name] = int(value.split()[0]) * 1024
    return Measure(*(found.get(name) for name in KEYS))
