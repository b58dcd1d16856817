"""Kernel cores for tests, demo and bench: where the kernel writes them here, and why it does not.

gdb's own gcore is no substitute before gdb 16: it writes the reserved, inaccessible parts of thread heaps as zeros.
"""

import fcntl
import glob
import os
import resource
import shutil
import signal
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Iterator, Optional, Sequence

PATTERN = Path("/proc/sys/kernel/core_pattern")
SECONDS = 120
"""A core that is not written by then is none."""


LOCK = Path(tempfile.gettempdir()) / "gdbheapx-core-pattern"
"""Whoever sets another pattern for a moment (crashes.py) has it for itself; whoever relies on the pattern shares it."""


@contextmanager
def locked(how: int) -> Iterator[None]:
    """Nobody else sets the pattern, or with LOCK_EX relies on it; as another user than the one whose file it is, nothing is waited for."""
    try:
        lock = open(LOCK, "w")
    except OSError:
        yield
        return
    with lock:
        fcntl.flock(lock, how)
        yield


class NoCore(Exception):
    """The kernel writes no core here; the message says why and what to do."""


def reason() -> Optional[str]:
    """Why this machine's kernel writes no core file that a program could read; None if it does."""
    with locked(fcntl.LOCK_SH):
        pattern = PATTERN.read_text().strip()
    if pattern.startswith("|"):
        return "kernel.core_pattern pipes cores to %s; `sysctl kernel.core_pattern=core` makes the kernel write files" % pattern[1:].split()[0]
    if not pattern:
        return "kernel.core_pattern is empty, so the kernel writes no core files"
    if resource.getrlimit(resource.RLIMIT_CORE)[1] == 0:
        return "the hard limit on core files is 0 (ulimit -H -c)"
    return None


def pattern_glob(pid: int, folder: str, executable: str) -> str:
    """The path, as a glob, where the kernel writes the core of `pid` that runs in `folder`; core(5)."""
    pattern = PATTERN.read_text().strip()
    known = {
        "p": str(pid),
        "i": str(pid),
        "%": "%",
        "e": glob.escape(os.path.basename(executable)[:15]),
        "u": str(os.getuid()),
        "g": str(os.getgid()),
        "s": str(int(signal.SIGABRT)),
    }
    out, has_pid, place = [], False, 0
    while place < len(pattern):
        if pattern[place] == "%" and place + 1 < len(pattern):
            has_pid = has_pid or pattern[place + 1] == "p"
            out.append(known.get(pattern[place + 1], "*"))
            place += 2
        else:
            out.append(glob.escape(pattern[place]))
            place += 1
    path = "".join(out)
    if not has_pid and Path("/proc/sys/kernel/core_uses_pid").read_text().strip() == "1":
        path += ".%d" % pid
    return path if path.startswith("/") else os.path.join(glob.escape(folder), path)


def allow() -> None:
    """For the child, before exec: a core of any size, with anonymous memory in it."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    try:
        with open("/proc/self/coredump_filter", "w") as chosen:
            chosen.write("0x33")
    except OSError:
        pass


def start(command: Sequence[str], **options: Any) -> "subprocess.Popen[bytes]":
    """A process that leaves a core."""
    return subprocess.Popen(command, preexec_fn=allow, **options)


def take(process: "subprocess.Popen[bytes]", destination: str) -> str:
    """End the process (of start) by SIGABRT and move its core to `destination`."""
    why = reason()
    if why:
        raise NoCore(why)
    with locked(fcntl.LOCK_SH):
        return _take(process, destination)


def _take(process: "subprocess.Popen[bytes]", destination: str) -> str:
    link = "/proc/%d/" % process.pid
    pattern = pattern_glob(process.pid, os.readlink(link + "cwd"), os.readlink(link + "exe"))
    before = {path: os.stat(path).st_mtime_ns for path in glob.glob(pattern)}
    os.kill(process.pid, signal.SIGABRT)
    process.wait(SECONDS)
    cores = [path for path in glob.glob(pattern) if before.get(path) != os.stat(path).st_mtime_ns]
    if not cores:
        raise NoCore("the kernel wrote no core at %s" % pattern)
    shutil.move(cores[0], destination)
    return destination
