"""`capture`, in the shell: one snapshot by a child within its limits, the core handed on unchanged, and a line of log for the decision.

Whatever goes wrong with the snapshot, the core goes on to the program it is meant for: that comes last, and always.
"""

import json
import os
import resource
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any, Callable, List, NamedTuple, Optional, Sequence

from gdbheapx import runner, worker
from gdbheapx.errors import HeapxError, Interrupted, UsageError, said
from gdbheapx.extras.capture.folder import SHARE, Folder
from gdbheapx.invocation import DUMPED, Invocation, Shell, understand
from gdbheapx.problems import NO_ANSWER, PROCESS_ENDED, Code, Severity

PATTERN = "/proc/sys/kernel/core_pattern"
MOST_PATTERN = 127
"""Of so many bytes core_pattern takes (core(5))."""
PROGRAM = "/usr/bin/gdbheapx"
MODES = "/proc/sys/kernel/core_modes"
"""What core_pattern may name, one a line (Linux 6.17)."""
TAKEN, PARTIAL, BUSY, NO_ROOM, TOO_SLOW, FAILED = "taken", "partial", "busy", "no-room", "too-slow", "failed"
REFUSED = "refused"
"""Somebody connected to the socket, and it was not the kernel."""
PART_OF_TIME = 0.8
"""Of the time that there is the walk gets so much: what is there by then is written."""
PIECE_BYTES = 1 << 20
PIPE_BYTES = 1 << 20


class Dumps(NamedTuple):
    """How crashes are read: functions of inferior.live."""

    read_head: Callable[[int, int, float], Any]
    """dumped.read_head"""
    accept: Callable[[socket.socket, float], Any]
    """crashed.accept"""
    not_filled: Callable[[Sequence[str]], List[str]]
    """crashed.not_filled"""


class Decision(NamedTuple):
    """What was done about one crash, and why."""

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


def make(invocation: Invocation, shell: Shell, dumps: Dumps) -> int:
    """Capture; the exit code."""
    options = invocation.options
    try:
        if options.listen is not None:
            unknown = dumps.not_filled(options.pass_to or ())
            if unknown:
                raise UsageError("capture --listen cannot fill in %%%s" % ", %".join(unknown), "leave it out of --pass-to")
        if options.show_pattern:
            return shell.say(pattern_text(options))
        if options.listen is not None:
            return listen(invocation, shell, dumps)
        if options.pid is None:
            raise UsageError("capture requires the process id that the kernel gives (%P)", "see gdbheapx capture --show-pattern")
        if os.isatty(0):
            raise UsageError("capture reads the core that the kernel writes to standard input", "see gdbheapx capture --show-pattern")
        return handle(invocation, shell, dumps)
    except HeapxError as error:
        return shell.failed(error, False)


def listen(invocation: Invocation, shell: Shell, dumps: Dumps) -> int:
    """Handle what comes through the socket, until this process is told to end."""
    from gdbheapx.extras.capture import listener

    options = invocation.options
    if options.pid is not None:
        raise UsageError("capture: a process id and --listen cannot be combined", "the kernel says by the socket which process it is")

    def one(connection: socket.socket) -> None:
        unix_s = time.time()
        try:
            crashed = dumps.accept(connection, time.monotonic() + options.max_seconds)
        except HeapxError as error:
            pid = struct.unpack("=3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            outcome = FAILED if error.code == PROCESS_ENDED else REFUSED
            tell(Decision(unix_s, pid, None, None, None, outcome, error.line()), shell, options)
            return
        os.dup2(connection.fileno(), 0)
        connection.close()
        handle(invocation.asking(pid=crashed.pid), shell, dumps, crashed)

    def failed(error: HeapxError) -> None:
        log(json.dumps({"kind": "capture-error", "why": error.line()}), options.log)

    begun = "listening at %s; for the line for core_pattern add --show-pattern\n" % options.listen
    listener.serve(options.listen, one, failed, lambda: shell.say(begun))
    return runner.WHOLE


def handle(invocation: Invocation, shell: Shell, dumps: Dumps, crashed: Any = None) -> int:
    """One crash, whose core comes through standard input. `crashed`: what the kernel says of it where no line of core_pattern does."""
    options, began, unix_s = invocation.options, time.monotonic(), time.time()
    until = began + options.max_seconds
    head = dumps.read_head(options.pid, 0, until)
    decision = Decision(unix_s, options.pid, head.name, head.threads, head.memory_bytes, FAILED)
    try:
        if head.error is not None:
            raise head.error
        decision = take(invocation, shell, head, decision, until)
    except HeapxError as error:
        decision = decision._replace(why=error.line())
    except KeyboardInterrupt as error:  # the machine shuts down, say
        decision = decision._replace(why=Interrupted(error.args[0] if error.args else "Ctrl-C").line())
    except Exception as error:
        decision = decision._replace(why=runner.internal(error, "gdbheapx capture").line())
    decision = decision._replace(took_ms=round(1000 * (time.monotonic() - began), 1))
    if options.pass_to:
        words = options.pass_to if crashed is None else crashed.fill(options.pass_to, head.signal, unix_s)
        decision = decision._replace(passed_to=words[0], passed_code=pass_on(words, head.data))
    release()
    tell(decision, shell, options)
    return {TAKEN: runner.WHOLE, PARTIAL: runner.PARTIAL}.get(decision.outcome, runner.NO_ANSWER)


def release() -> None:
    """Let the process go before its line is logged: it may be the one that takes lines."""
    nowhere = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.dup2(nowhere, 0)
    os.close(nowhere)


def tell(decision: Decision, shell: Shell, options: Any) -> None:
    """The line of a decision."""
    line = json.dumps({"kind": "capture", **decision._asdict()})
    log(line, options.log)
    shell.say(line + "\n")


def take(invocation: Invocation, shell: Shell, head: Any, decision: Decision, until: float) -> Decision:
    """The snapshot, if there is time and room for it."""
    options = invocation.options
    folder = Folder(options.to, until)
    try:
        if not folder.is_ours:
            return decision._replace(outcome=BUSY, why="another capture was at work for %g s" % options.max_seconds)
        removed = folder.prune(max(options.keep - 1, 0) or 1, options.keep_bytes)
        room_bytes, needed_bytes = folder.room_bytes(), (head.memory_bytes or 0) // SHARE
        if room_bytes <= needed_bytes:
            why = "the folder has room for %d bytes; as many as %d may be needed" % (room_bytes, needed_bytes)
            return decision._replace(outcome=NO_ROOM, why=why, removed=removed)
        path = folder.name(decision.pid, decision.program, decision.unix_s)
        decision = look(invocation, shell, head, decision, Limits(until, options.max_memory, room_bytes), path)
        return decision._replace(removed=[*removed, *folder.prune(options.keep, options.keep_bytes)])
    finally:
        folder.free()


class Limits(NamedTuple):
    """Of the child that takes the snapshot: the kernel keeps them."""

    until: float
    memory_bytes: int
    file_bytes: int

    def set(self) -> None:
        """For this process, which ends by SIGALRM when its time is up."""
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, max(self.until - time.monotonic(), 0.001))
        values = ((resource.RLIMIT_DATA, self.memory_bytes), (resource.RLIMIT_FSIZE, self.file_bytes), (resource.RLIMIT_CORE, 0))
        for limit, value in values:
            hard = resource.getrlimit(limit)[1]
            soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (soft, hard))
        worker.goes_first()


def look(invocation: Invocation, shell: Shell, head: Any, decision: Decision, limits: Limits, path: str) -> Decision:
    """What came of it."""
    left_s = limits.until - time.monotonic()
    words = ["snapshot", path, "--json", "--max-seconds", "%.3f" % max(PART_OF_TIME * left_s, 0.001)]
    words += ["--no-names"] * invocation.options.no_names + ["--read-swap"] * invocation.options.read_swap
    asked = invocation.asked._replace(pid=decision.pid, core=None, snapshot=None)

    def limited(snapshot: Invocation) -> int:
        limits.set()
        os.environ[DUMPED] = str(head.descriptor)
        return shell.look(snapshot)

    try:
        code, text = worker.look(understand(asked, words), limited)
    except Interrupted as error:
        if time.monotonic() < limits.until:
            return decision._replace(why=error.line())
        return decision._replace(outcome=TOO_SLOW, why="there was no snapshot within %g s" % invocation.options.max_seconds)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = {}
    if code not in (runner.WHOLE, runner.PARTIAL):
        failure = said(document) or HeapxError("the snapshot ended with %d" % code, code=NO_ANSWER)
        return decision._replace(why=failure.line())
    size_bytes = (document.get("data") or {}).get("file_bytes")
    decision = decision._replace(outcome=TAKEN, path=path, size_bytes=size_bytes)
    return decision._replace(outcome=PARTIAL, why=lacking(document)) if code == runner.PARTIAL else decision


def lacking(document: Any) -> Optional[str]:
    """Why a snapshot is partial: first of all that there was no time; not what only belongs to the answer."""
    problems = [one for one in document.get("problems") or () if Code.of(one["code"]).nature != Severity.NOTE]
    problems.sort(key=lambda one: Code.of(one["code"]).nature != Severity.TIME)
    return problems[0]["what"] if problems else None


def pass_on(words: Sequence[str], first: bytes) -> Optional[int]:
    """Have the program read the whole core as if the kernel had started it: what was taken of it, then the rest. Its exit status; None
    where it cannot be started."""
    nowhere = subprocess.DEVNULL
    try:  # what the kernel has opened for it (%F) stays open
        program = subprocess.Popen(list(words), stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, close_fds=False)
    except OSError:
        return None
    assert program.stdin is not None
    pipe = program.stdin.fileno()
    widen(pipe)
    piece: bytes = first
    try:
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


def widen(pipe: int) -> None:
    """A pipe of 1 MiB takes fewer turns. Only ours: pages of the one that the kernel writes to are charged to the cgroup of the process."""
    import fcntl

    try:
        fcntl.fcntl(pipe, getattr(fcntl, "F_SETPIPE_SZ", 1031), PIPE_BYTES)
    except OSError:
        pass


def log(line: str, path: Optional[str]) -> None:
    """One line of JSON, which is ASCII: to syslog, or appended to a file that only we may read."""
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
        log(json.dumps({"kind": "capture-log", "path": path, "why": error.strerror}), None)
        log(line, None)


def pattern_text(options: Any) -> str:
    """The line for core_pattern, and how it is set."""
    program = os.path.abspath(sys.argv[0]) if os.path.basename(sys.argv[0]) == "gdbheapx" else shutil.which("gdbheapx") or PROGRAM
    try:
        with open(PATTERN) as file:
            now = file.read().rstrip("\n")
    except OSError:
        now = ""
    words: List[str] = [program, "capture", *(["%P"] if options.listen is None else ["--listen", options.listen])]
    words += ["--to", os.path.abspath(options.to)] if options.to != DEFAULT_FOLDER else []
    before = now[1:].split() if now.startswith("|") else []
    is_ours = "capture" in before[1:2]
    passed = options.pass_to or ([] if is_ours else before)
    words += ["--pass-to", *passed] if passed else []
    pattern = "|" + " ".join(words) if options.listen is None else "@@" + options.listen
    lines = ["sysctl -w 'kernel.core_pattern=%s'" % pattern, "# now: %s" % now]
    if len(os.fsencode(pattern)) > MOST_PATTERN:
        long = "# too long: the kernel keeps %d bytes of %d; put the command into a script"
        lines.insert(0, long % (MOST_PATTERN, len(os.fsencode(pattern))))
    if options.listen is not None:
        lines.insert(0, "# the server comes first: %s" % shlex.join(words))
        lines += [] if has_sockets() else ["# %s names no sockets: they require Linux 6.17" % MODES]
    elif has_sockets():
        lines.append("# to have a server that the kernel connects to instead: add --listen SOCKET, such as /run/gdbheapx.sock")
    if now and not before and not passed:
        lines.append("# no core file is written then: to have both, name a program that writes one with --pass-to")
    return "\n".join(lines) + "\n"


def has_sockets() -> bool:
    """core_pattern may name a socket."""
    try:
        with open(MODES) as file:
            return "socket" in file.read().split()
    except OSError:
        return False


DEFAULT_FOLDER = "/var/lib/gdbheapx"
