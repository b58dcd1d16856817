"""The queue of crash handlers: one is at work, few wait, and the others hand their cores on at once.

`begin` runs before the command line is understood, and before what takes snapshots is imported.
"""

import fcntl
import os
import resource
import signal
import stat
import time
from typing import Dict, Optional, Sequence

from gdbheapx.addons.monitor.capture import decision as decisions
from gdbheapx.errors import HeapxError
from gdbheapx.files import open_standard
from gdbheapx.hints import hint_run
from gdbheapx.problems import BUSY, CANNOT_WRITE, NO_PROCESS, UNSAFE_PATH

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
    began_s, status = time.monotonic(), decisions.read_status(pid)
    decision = decisions.begin_decision(pid, status)
    try:
        held = take_turn(read_last_option(own, "--to") or DEFAULT_FOLDER, status, seconds)
        return None
    except NoTurn as error:
        decision = decision._replace(outcome=decisions.BUSY, why=error.line())
    except HeapxError as error:
        decision = decision._replace(why=error.line())
    except KeyboardInterrupt:
        decision = decision._replace(why="interrupted while another capture was at work")
    decision = decision._replace(took_ms=round(1000 * (time.monotonic() - began_s), 1))
    return decisions.finish_decision(decision, words[len(own) + 1 :], b"", read_last_option(own, "--log"))


def read_last_option(words: Sequence[str], name: str) -> Optional[str]:
    """Return the last value of an option, as `NAME VALUE` or `NAME=VALUE`."""
    values = [word[len(name) + 1 :] for word in words if word.startswith(name + "=")]
    values += [value for word, value in zip(words, words[1:]) if word == name]
    return values[-1] if values else None


def limit_memory() -> None:
    """Bound the memory of this process, until it hands the core on."""
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (HANDLER_BYTES if hard == resource.RLIM_INFINITY else min(HANDLER_BYTES, hard), hard))
