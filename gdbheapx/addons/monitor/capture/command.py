"""`capture`, in the shell: one snapshot by a child within its limits, the core handed on unchanged, and a line of log for the decision.

Whatever goes wrong with the snapshot, the core goes on to the program it is meant for: that comes last, and always.
"""

import json
import os
import re
import resource
import shlex
import signal
import socket
import stat
import struct
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from gdbheapx.addons.monitor.capture import turn as turns
from gdbheapx.addons.monitor.capture.dumped import read_head
from gdbheapx.app import runner, worker
from gdbheapx.app.invocation import Invocation, Shell, understand_words
from gdbheapx.common.budget import goes_first
from gdbheapx.common.child_python import find_program
from gdbheapx.common.errors import HeapxError, Interrupted, UsageError, error_of_document
from gdbheapx.common.global_options import DUMPED
from gdbheapx.common.hints import hint_run
from gdbheapx.common.problems import NO_ANSWER, PROCESS_ENDED, ProblemCode, Severity

NOT_SAFE = re.compile(r"[^A-Za-z0-9._+-]")
OURS = re.compile(
    r"gdbheapx-[0-9]+-[0-9]{8}T[0-9]{6}Z-crash-(?:u(?P<uid>[0-9]+)-)?(?P<program>[A-Za-z0-9._+-]*)\.snap(?:\.[0-9]+-[0-9a-f]{8})?",
    re.ASCII,
)
"""A snapshot, or what was being written when its writer was killed (output.OutputFile)."""
RESERVE_BYTES = 64 << 20
"""What is left free for others."""
SHARE = 32
"""A snapshot has some 2 bytes for a block: no more than one of so many bytes of the process."""


class KeptCapture(NamedTuple):
    """Snapshot that is in the folder."""

    modified_ns: int
    name: str
    bytes: int
    uid: Optional[str]
    """User of the process, in digits; None in names of earlier releases."""
    program: str


class CaptureFolder:
    """Folder for snapshots, by its descriptor; `path` is its name. The holder of the turn is alone in it."""

    def __init__(self, path: str, descriptor: int) -> None:
        self.path, self.descriptor = path, descriptor

    def name(self, pid: int, uid: int, program: Optional[str], unix_s: float) -> str:
        """The name for a snapshot of this process. Of its program's name, which is data, only what is safe in any shell."""
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(unix_s))
        return "gdbheapx-%d-%s-crash-u%d-%s.snap" % (pid, moment, uid, NOT_SAFE.sub("_", (program or "")[:32]))

    def room_bytes(self) -> int:
        """Return how many bytes a file may have."""
        room = os.fstatvfs(self.descriptor)
        return max(room.f_bavail * room.f_frsize - RESERVE_BYTES, 0)

    def prune(self, most: int, most_bytes: int, coming: Optional[str] = None) -> List[str]:
        """Remove snapshots beyond so many, with the one that is to have the name `coming`, or beyond so many bytes; the newest stays. The
        paths of what was removed.

        Who has most loses first: of the user with most of them the program with most of them, and of that the oldest. Where the newest
        alone is larger than all that any other user has, no other snapshot is removed for its bytes.
        """
        kept, gone = self._list_files()
        added = [] if coming is None else [read_name(coming, 0, 0)]
        while len(kept) > 1:
            are_many = len(kept) + len(added) > most
            if not are_many and sum(one.bytes for one in kept) <= most_bytes:
                break
            of_user: Dict[Optional[str], int] = {}
            of_program: Dict[Tuple[Optional[str], str], int] = {}
            for one in kept + added:
                weight = 1 if are_many else one.bytes
                of_user[one.uid] = of_user.get(one.uid, 0) + weight
                of_program[one.uid, one.program] = of_program.get((one.uid, one.program), 0) + weight
            loser = min(kept[:-1], key=lambda one: (-of_user[one.uid], -of_program[one.uid, one.program], one.modified_ns))
            if not are_many and of_user[kept[-1].uid] > of_user[loser.uid]:
                break
            kept.remove(loser)
            gone.append(loser.name)
        for name in gone:
            os.unlink(name, dir_fd=self.descriptor)
        return [os.path.join(self.path, name) for name in gone]

    def _list_files(self) -> Tuple[List[KeptCapture], List[str]]:
        """Snapshots, the newest last, and the names of what was being written when its writer was killed."""
        kept: List[KeptCapture] = []
        parts: List[str] = []
        for name in filter(OURS.fullmatch, os.listdir(self.descriptor)):
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            if not stat.S_ISREG(status.st_mode):
                continue
            if name.endswith(".snap"):
                kept.append(read_name(name, status.st_mtime_ns, status.st_size))
            else:
                parts.append(name)
        return sorted(kept), parts


def read_name(name: str, modified_ns: int, size_bytes: int) -> KeptCapture:
    """Return the record of a snapshot with a name that CaptureFolder.name has made."""
    match = OURS.fullmatch(name)
    assert match is not None
    return KeptCapture(modified_ns, name, size_bytes, match["uid"], match["program"])


PATTERN = "/proc/sys/kernel/core_pattern"
MOST_PATTERN = 127
"""Of so many bytes core_pattern takes (core(5))."""
PROGRAM = "/usr/bin/gdbheapx"
MODES = "/proc/sys/kernel/core_modes"
"""What core_pattern may name, one a line (Linux 6.17)."""
PART_OF_TIME = 0.8
"""Of the time that there is the walk gets so much: what is there by then is written."""
GRACE_S = 1.0
"""So long after its time the child that takes the snapshot is waited for."""


def make(invocation: Invocation, shell: Shell) -> int:
    """Capture; the exit code."""
    options = invocation.options
    try:
        if options.listen is not None:
            from gdbheapx.addons.monitor.capture import listener

            unknown = listener.not_filled(options.pass_to or ())
            if unknown:
                raise UsageError("capture --listen cannot fill in %%%s" % ", %".join(unknown), "leave it out of --pass-to")
        if options.show_pattern:
            return shell.say(pattern_text(options))
        if options.listen is not None:
            return listen_for_crashes(invocation, shell)
        if options.pid is None:
            raise UsageError("capture requires the process id that the kernel gives (%P)", "see " + hint_run("capture --show-pattern"))
        if os.isatty(0):
            raise UsageError("capture reads the core that the kernel writes to standard input", "see " + hint_run("capture --show-pattern"))
        return handle_crash(invocation, shell)
    except HeapxError as error:
        return shell.failed(error, False)


def listen_for_crashes(invocation: Invocation, shell: Shell) -> int:
    """Handle what comes through the socket, until this process is told to end."""
    from gdbheapx.addons.monitor.capture import listener

    options = invocation.options
    if options.pid is not None:
        raise UsageError("capture: a process id and --listen cannot be combined", "the kernel says by the socket which process it is")

    def handle_connection(connection: socket.socket) -> None:
        unix_s = time.time()
        try:
            crashed = listener.accept_crash_connection(connection, time.monotonic() + options.max_seconds)
        except HeapxError as error:
            pid = struct.unpack("=3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
            outcome = turns.FAILED if error.code == PROCESS_ENDED else turns.REFUSED
            turns.report_decision(turns.CaptureDecision(unix_s, pid, None, None, None, outcome, error.line()), options.log)
            return
        os.dup2(connection.fileno(), 0)
        connection.close()
        handle_crash(invocation.asking(pid=crashed.pid), shell, crashed)

    def log_failure(error: HeapxError) -> None:
        turns.log_line(json.dumps({"kind": "capture-error", "why": error.line()}), options.log)

    begun = "listening at %s; for the line for core_pattern add --show-pattern\n" % options.listen
    listener.serve_crashes(options.listen, handle_connection, log_failure, lambda: shell.say(begun))
    return runner.WHOLE


def handle_crash(invocation: Invocation, shell: Shell, crashed: Any = None) -> int:
    """Handle one crash, whose core comes through standard input; the exit code. `crashed`: the kernel's facts about it where no line of
    core_pattern has them.
    """
    options, began, turn = invocation.options, time.monotonic(), turns.held
    status = turns.read_status(options.pid)
    decision = turns.begin_decision(options.pid, status)
    first, signal_number = bytearray(), 0
    try:
        if turn is None:
            turns.limit_memory()
            turn = turns.take_turn(options.to, status, options.max_seconds)
        began = turn.began_s
        head = read_head(options.pid, 0, turn.until_s)
        first, signal_number = head.data, head.signal
        decision = decision._replace(program=head.name, threads=head.threads, memory_bytes=head.memory_bytes)
        if head.error is not None:
            raise head.error
        decision = take_crash_snapshot(invocation, shell, head, decision, turn)
    except turns.NoTurn as error:
        decision = decision._replace(outcome=turns.BUSY_OUTCOME, why=error.line())
    except HeapxError as error:
        is_late = turn is not None and time.monotonic() >= turn.until_s
        decision = decision._replace(outcome=turns.TOO_SLOW if is_late else decision.outcome, why=error.line())
    except KeyboardInterrupt as error:  # the machine shuts down, say
        decision = decision._replace(why=Interrupted(error.args[0] if error.args else "Ctrl-C").line())
    except Exception as error:
        decision = decision._replace(why=runner.make_internal_error(error, "gdbheapx capture").line())
    finally:
        if turn is not None:
            turn.free()
    decision = decision._replace(took_ms=round(1000 * (time.monotonic() - began), 1))
    words = options.pass_to or ()
    if crashed is not None and words:
        if not first:  # it had no turn, and %s is in the notes
            head = read_head(options.pid, 0, time.monotonic() + options.max_seconds)
            first, signal_number = head.data, head.signal
        words = crashed.fill(words, signal_number, decision.unix_s)
    return turns.finish_decision(decision, words, first, options.log)


def take_crash_snapshot(
    invocation: Invocation, shell: Shell, head: Any, decision: turns.CaptureDecision, turn: turns.Turn
) -> turns.CaptureDecision:
    """The snapshot, if there is time and room for it."""
    options, folder = invocation.options, CaptureFolder(turn.path, turn.folder)
    name = folder.name(decision.pid, turn.uid, decision.program, decision.unix_s)
    removed = folder.prune(options.keep, options.keep_bytes, name)
    room_bytes, needed_bytes = folder.room_bytes(), (head.memory_bytes or 0) // SHARE
    if room_bytes <= needed_bytes:
        why = "the folder has room for %d bytes; as many as %d may be needed" % (room_bytes, needed_bytes)
        return decision._replace(outcome=turns.NO_ROOM, why=why, removed=removed)
    decision = run_snapshot_child(invocation, shell, head, decision, turn.until_s, room_bytes, folder, name)
    return decision._replace(removed=[*removed, *folder.prune(options.keep, options.keep_bytes)])


def limit_process(until: float, memory_bytes: int, file_bytes: int) -> None:
    """Have the kernel limit this process, which ends by SIGALRM when its time is up."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, max(until - time.monotonic(), 0.001))
    values = ((resource.RLIMIT_DATA, memory_bytes), (resource.RLIMIT_FSIZE, file_bytes), (resource.RLIMIT_CORE, 0))
    for limit, value in values:
        hard = resource.getrlimit(limit)[1]
        soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (soft, hard))
    goes_first()


def run_snapshot_child(
    invocation: Invocation,
    shell: Shell,
    head: Any,
    decision: turns.CaptureDecision,
    until: float,
    room_bytes: int,
    folder: CaptureFolder,
    name: str,
) -> turns.CaptureDecision:
    """Return the decision after a child took the snapshot. One that does not end, as a read may block, is left alone: it holds nothing that
    others wait for."""
    left_s = until - time.monotonic()
    words = ["snapshot", name, "--json", "--max-seconds", "%.3f" % max(PART_OF_TIME * left_s, 0.001)]
    words += ["--no-names"] * invocation.options.no_names + ["--read-swap"] * invocation.options.read_swap
    asked = invocation.asked._replace(pid=decision.pid, core=None, snapshot=None)

    def run_limited(snapshot: Invocation) -> int:
        turns.release_core()  # or the kernel goes on writing into it, and keeps the process
        limit_process(until, invocation.options.max_memory, room_bytes)
        os.fchdir(folder.descriptor)  # what lies at the path by now does not matter
        os.environ[DUMPED] = str(head.descriptor)
        return shell.look(snapshot)

    try:
        code, text = worker.answer_in_child(understand_words(asked, words), run_limited, until + GRACE_S)
    except Interrupted as error:
        if time.monotonic() < until:
            return decision._replace(why=error.line())
        return decision._replace(outcome=turns.TOO_SLOW, why="there was no snapshot within %g s" % invocation.options.max_seconds)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = {}
    if code not in (runner.WHOLE, runner.PARTIAL):
        failure = error_of_document(document) or HeapxError("the snapshot ended with %d" % code, code=NO_ANSWER)
        return decision._replace(why=failure.line())
    size_bytes = (document.get("data") or {}).get("file_bytes")
    decision = decision._replace(outcome=turns.TAKEN, path=os.path.join(folder.path, name), size_bytes=size_bytes)
    return decision._replace(outcome=turns.PARTIAL, why=explain_partial(document)) if code == runner.PARTIAL else decision


def explain_partial(document: Any) -> str:
    """Return why a snapshot is partial: lack of time first; notes on the answer itself only if there is no other reason."""
    natures = [(ProblemCode.of(one["code"]).nature, one["what"]) for one in document.get("problems") or ()]
    natures.sort(key=lambda one: (one[0] == Severity.NOTE, one[0] != Severity.TIME))
    return natures[0][1] if natures else "the snapshot does not say why"


def pattern_text(options: Any) -> str:
    """The line for core_pattern, and how it is set."""
    program = os.path.abspath(sys.argv[0]) if os.path.basename(sys.argv[0]) == "gdbheapx" else find_program("gdbheapx") or PROGRAM
    try:
        with open(PATTERN) as file:
            now = file.read().rstrip("\n")
    except OSError:
        now = ""
    words: List[str] = [program, "capture", *(["%P"] if options.listen is None else ["--listen", options.listen])]
    words += ["--to", os.path.abspath(options.to)] if options.to != turns.DEFAULT_FOLDER else []
    before = now[1:].split() if now.startswith("|") else []
    is_ours = "capture" in before[1:2]
    passed = options.pass_to or ([] if is_ours else before)
    words += ["--pass-to", *passed] if passed else []
    pattern = "|" + " ".join(words) if options.listen is None else "@@" + options.listen
    lines = ["sysctl -w 'kernel.core_pattern=%s'" % pattern, "# now: %s" % now]
    if options.listen is None:
        lines.insert(1, "sysctl -w kernel.core_pipe_limit=%d" % turns.PLACES)
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
