"""A /proc and a tree of memory cgroups made of files, in which limits and counters are what a test says."""

from pathlib import Path
from typing import Dict, Optional

from gdbheapx.inferior.live.headroom import HeadroomFiles

PID = 7
V1_MOUNT = "35 31 0:32 %s %s rw,relatime - cgroup cgroup rw,memory"
V2_MOUNT = "41 31 0:38 %s %s rw,relatime - cgroup2 cgroup2 rw"


class Machine:
    """A /proc and a cgroup tree made of files."""

    def __init__(self, tmp_path: Path) -> None:
        self.top = tmp_path / "cgroup"
        self.proc = tmp_path / "proc"
        self.files = HeadroomFiles(str(self.proc))
        self.write(self.proc / "meminfo", "MemTotal: %d kB\nMemAvailable: %d kB\n" % (64 << 20, 16 << 20))
        self.swapped(0)

    @staticmethod
    def write(path: Path, text: str) -> None:
        """A file, with its folders."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def swapped(self, size_bytes: int) -> None:
        """VmSwap."""
        self.write(self.proc / str(PID) / "status", "Name:\tx\nVmSwap:\t%8d kB\n" % (size_bytes >> 10))

    def process(self, lines: str, *mounts: str) -> None:
        """The lines of its /proc/PID/cgroup, and what is mounted here."""
        self.write(self.proc / str(PID) / "cgroup", lines)
        self.write(self.proc / "self" / "mountinfo", "\n".join(mounts) + "\n")

    def group(self, path: str, files: Dict[str, object], stat: Optional[Dict[str, int]] = None) -> None:
        """A group's files."""
        folder = self.top / path.strip("/")
        for name, text in files.items():
            self.write(folder / name, "%s\n" % text)
        if stat is not None:
            self.write(folder / "memory.stat", "".join("%s %d\n" % one for one in stat.items()))


def v2(limit: object, used: object, high: object = "max") -> Dict[str, object]:
    """A group below the root."""
    return {"memory.max": limit, "memory.high": high, "memory.current": used, "cgroup.events": "populated 1"}
