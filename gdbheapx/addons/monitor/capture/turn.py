"""The queue of crash handlers: one is at work, few wait, and the others hand their cores on at once. And the decision about one crash: its
line of log, and the core handed on.

`begin` runs before the command line is understood, and before what takes snapshots is imported: a crash that has no turn costs no more."""

import fcntl
import json
import os
import resource
import signal
import stat
import time
from typing import Dict, NamedTuple, Optional, Sequence, Union

from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import open_standard
from gdbheapx.common.hints import hint_run
from gdbheapx.common.problems import BUSY, CANNOT_WRITE, NO_PROCESS, UNSAFE_PATH

TAKEN, PARTIAL, BUSY_OUTCOME, NO_ROOM, TOO_SLOW, FAILED = "taken", "partial", "busy", "no-room", "too-slow", "failed"
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
        from gdbheapx.common.child_python import find_program

        path = find_program(path) or ""
    try:  # what the kernel has opened for it (%F) stays open
        program = subprocess.Popen([path, *words[1:]], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, close_fds=False)
    except OSError:
        return None
    assert program.stdin is not None
    pipe = program.stdin.fileno()
    try:  # it takes fewer turns. Only ours: pages of the one that the kernel writes to are charged to the cgroup of the process
        fcntl.fcntl(pipe, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
    except OSError:
        pass
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


DEFAULT_FOLDER = "/var/lib/gdbheapx"
DEFAULT_SECONDS = 20.0
PLACES = 16
"""Handlers with a place: one at work, the others waiting. --show-pattern has the kernel start as many (core_pipe_limit)."""
PLACES_OF_USER = 5
TURNS = ".turns"
"""The file of record locks in the folder: byte 0 for who is at work, then one for each place, then PLACES_OF_USER for each user."""
HANDLER_BYTES = 1 << 30
"""Memory of a handler itself: headers and notes of a core, 320 MiB at most, twice."""
WAIT_S = 0.05
PASS_TO = "--pass-to"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class NoTurn(HeapxError):
    """Too many crashes are being handled."""

    code = BUSY


def open_folder(path: str, hint: str, makes: bool = False) -> int:
    """Return a descriptor of a folder that we alone can write to, and whose parents only root and we can change: each is opened by
    the descriptor of the one before, and none is a link.

    HeapxError where others could put another folder there; OSError where it cannot be opened. `makes`: what is missing is made.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor, at = os.open("/", flags), "/"
    names = [name for name in os.path.abspath(path).split("/") if name]
    try:
        for left in range(len(names), -1, -1):
            status = os.fstat(descriptor)
            is_sticky = left > 0 and status.st_mode & stat.S_ISVTX
            if status.st_uid not in ((0, os.geteuid()) if left else (os.geteuid(),)) or status.st_mode & OTHERS_WRITE and not is_sticky:
                raise HeapxError("others may write to %s" % at, hint, code=UNSAFE_PATH)
            if not left:
                return descriptor
            name = names[-left]
            if makes:
                try:
                    os.mkdir(name, 0o700, dir_fd=descriptor)
                except OSError:  # it is there, or opening it says why it cannot be used
                    pass
            parent, at = descriptor, os.path.join(at, name)
            descriptor = os.open(name, flags, dir_fd=parent)
            os.close(parent)
        raise AssertionError
    except BaseException:
        os.close(descriptor)
        raise


class Turn:
    """Turn of this process to take a snapshot. A child does not inherit record locks (fcntl(2)), so one that blocks delays no other."""

    def __init__(self, path: str, uid: int, seconds: float) -> None:
        """Wait for it, for so many seconds at most. NoTurn where there is none; HeapxError where the folder cannot be used."""
        self.path, self.uid, self.began_s = os.path.abspath(path), uid, time.monotonic()
        self.until_s = self.began_s + seconds
        """The dump does not wait beyond this moment of the monotonic clock."""
        self.folder = self._file = -1
        try:
            self.folder = open_folder(path, "choose one that root owns, with mode 0700: --to DIR", makes=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.open(TURNS, flags, 0o600, dir_fd=self.folder)
            self._wait_for_locks(seconds)
        except OSError as error:
            self.free()
            raise HeapxError("cannot use the folder %s: %s" % (path, error.strerror), "choose another with --to DIR", code=CANNOT_WRITE)
        except BaseException:
            self.free()
            raise

    def _wait_for_locks(self, seconds: float) -> None:
        if not self._lock_one(1 + PLACES + self.uid * PLACES_OF_USER, PLACES_OF_USER):
            raise NoTurn("%d crashes of user %d are being handled" % (PLACES_OF_USER, self.uid))
        if not self._lock_one(1, PLACES):
            raise NoTurn("%d crashes are being handled" % PLACES)
        while not self._lock_one(0, 1):
            if time.monotonic() >= self.until_s:
                raise NoTurn("another capture was at work for %g s" % seconds)
            time.sleep(WAIT_S)

    def _lock_one(self, first: int, count: int) -> bool:
        """Lock the first of these bytes that is free."""
        for byte in range(first, first + count):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
                return True
            except (BlockingIOError, PermissionError):
                pass
        return False

    def free(self) -> None:
        """Let the next one in."""
        for descriptor in (self.folder, self._file):
            if descriptor >= 0:
                os.close(descriptor)
        self.folder = self._file = -1


def take_turn(path: str, status: Dict[str, str], seconds: float) -> Turn:
    """Wait for a turn for the process with this /proc/PID/status, at its user's expense. HeapxError where there is none."""
    uid = status.get("Uid", "").split()[:1]
    if not uid:
        raise HeapxError("there is no process that crashes", "see " + hint_run("capture --show-pattern"), code=NO_PROCESS)
    return Turn(path, int(uid[0]), seconds)


held: Optional[Turn] = None
"""The turn that `begin` has taken."""


def begin(words: Sequence[str]) -> Optional[int]:
    """Wait for a turn for the handler that the kernel starts with these words (`capture PID ...`). The exit code where it has none: its
    core was handed on, and that was logged."""
    global held
    own = words[: words.index(PASS_TO)] if PASS_TO in words else words
    try:
        pid, seconds = int(words[1]), float(read_last_option(own, "--max-seconds") or DEFAULT_SECONDS)
    except ValueError:  # the command says so
        return None
    open_standard()
    limit_memory()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    began_s, status = time.monotonic(), read_status(pid)
    decision = begin_decision(pid, status)
    try:
        held = take_turn(read_last_option(own, "--to") or DEFAULT_FOLDER, status, seconds)
        return None
    except NoTurn as error:
        decision = decision._replace(outcome=BUSY_OUTCOME, why=error.line())
    except HeapxError as error:
        decision = decision._replace(why=error.line())
    except KeyboardInterrupt:
        decision = decision._replace(why="interrupted while another capture was at work")
    decision = decision._replace(took_ms=round(1000 * (time.monotonic() - began_s), 1))
    return finish_decision(decision, words[len(own) + 1 :], b"", read_last_option(own, "--log"))


def read_last_option(words: Sequence[str], name: str) -> Optional[str]:
    """Return the last value of an option, as `NAME VALUE` or `NAME=VALUE`."""
    values = [word[len(name) + 1 :] for word in words if word.startswith(name + "=")]
    values += [value for word, value in zip(words, words[1:]) if word == name]
    return values[-1] if values else None


def limit_memory() -> None:
    """Bound the memory of this process, until it hands the core on."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (HANDLER_BYTES if hard == resource.RLIM_INFINITY else min(HANDLER_BYTES, hard), hard))
