"""The decision about one crash: its line of log, and the core handed on.

Imports little, as turn.py does: a crash that has no turn costs no more than this.
"""

import json
import os
import resource
import time
from typing import Dict, NamedTuple, Optional, Sequence, Union

TAKEN, PARTIAL, BUSY, NO_ROOM, TOO_SLOW, FAILED = "taken", "partial", "busy", "no-room", "too-slow", "failed"
REFUSED = "refused"
"""Another program than the kernel connected to the socket."""
EXIT_CODES = {TAKEN: 0, PARTIAL: 4}
"""Of outcomes; 1 of every other."""
PIECE_BYTES = 1 << 20
PIPE_BYTES = 1 << 20


class CaptureDecision(NamedTuple):
    """The outcome of one crash, and why."""

    unix_s: float
    pid: int
    program: Optional[str]
    threads: Optional[int]
    memory_bytes: Optional[int]
    outcome: str
    why: Optional[str] = None
    path: Optional[str] = None
    size_bytes: Optional[int] = None
    took_ms: Optional[float] = None
    """How long the dump waited for it."""
    passed_to: Optional[str] = None
    passed_code: Optional[int] = None
    """The exit status of the program that got the core; below 0: it was ended by this signal; None: it could not be started."""
    removed: Sequence[str] = ()
    """Older snapshots that made room."""


def read_status(pid: int) -> Dict[str, str]:
    """Return the fields of /proc/PID/status; none if there is no such process."""
    try:
        with open("/proc/%d/status" % pid, encoding="utf-8", errors="replace", newline="\n") as file:
            return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
    except OSError:
        return {}


def begin_decision(pid: int, status: Dict[str, str]) -> CaptureDecision:
    """Return the decision about a crash of which no more is known than its process."""
    threads = status.get("Threads", "")
    return CaptureDecision(time.time(), pid, status.get("Name"), int(threads) if threads.isdigit() else None, None, FAILED)


def finish_decision(decision: CaptureDecision, words: Sequence[str], first: Union[bytes, bytearray], log_path: Optional[str]) -> int:
    """Hand the core on to the program of these words, if there are any, let the process go, and log the decision; the exit code."""
    if words:
        decision = decision._replace(passed_to=words[0], passed_code=pass_on(words, first))
    release_core()
    report_decision(decision, log_path)
    return EXIT_CODES.get(decision.outcome, 1)


def pass_on(words: Sequence[str], first: Union[bytes, bytearray]) -> Optional[int]:
    """Have the program read the whole core as if the kernel had started it: what was taken of it, then the rest. Its exit status; None
    where it cannot be started."""
    import subprocess

    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))  # the program's limits are not ours
    nowhere, path = subprocess.DEVNULL, words[0]
    if "/" not in path:
        from gdbheapx.child_python import find_program

        path = find_program(path) or ""
    try:  # what the kernel has opened for it (%F) stays open
        program = subprocess.Popen([path, *words[1:]], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, close_fds=False)
    except OSError:
        return None
    assert program.stdin is not None
    pipe = program.stdin.fileno()
    widen_pipe(pipe)
    try:
        piece = first or os.read(0, PIECE_BYTES)
        while piece:
            left = memoryview(piece)
            while left:
                left = left[os.write(pipe, left) :]
            piece = os.read(0, PIECE_BYTES)
    except OSError:  # it has seen enough of it
        pass
    try:
        program.stdin.close()
    except OSError:
        pass
    return program.wait()


def widen_pipe(pipe: int) -> None:
    """A pipe of 1 MiB takes fewer turns. Only ours: pages of the one that the kernel writes to are charged to the cgroup of the process."""
    import fcntl

    try:
        fcntl.fcntl(pipe, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
    except OSError:
        pass


def release_core() -> None:
    """Close the core, and so let the process go: before its line is logged, as it may be the one that takes lines."""
    nowhere = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 0)
    os.close(nowhere)


def report_decision(decision: CaptureDecision, log_path: Optional[str]) -> None:
    """Log a decision, and write it to standard output."""
    line = json.dumps({"kind": "capture", **decision._asdict()})
    log_line(line, log_path)
    try:
        os.write(1, line.encode("ascii") + b"\n")
    except OSError:  # the kernel opens none for a handler
        pass


def log_line(line: str, path: Optional[str]) -> None:
    """Send one line of JSON, which is ASCII, to syslog, or append it to a file that only we may read."""
    if path is None:
        import syslog

        syslog.openlog("gdbheapx", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_NOTICE, line)
        return
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            os.write(descriptor, line.encode("ascii") + b"\n")
        finally:
            os.close(descriptor)
    except OSError as error:
        log_line(json.dumps({"kind": "capture-log", "path": path, "why": error.strerror}), None)
        log_line(line, None)
