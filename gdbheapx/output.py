"""Where an answer goes: a stream, a private file, or a spool while a process is held."""

import errno
import os
import stat
import time
from typing import Any, Callable, List, Mapping, NamedTuple, Optional

from gdbheapx.errors import HeapxError
from gdbheapx.files import folder, unnamed
from gdbheapx.problems import CANNOT_WRITE, UNSAFE_PATH

Write = Callable[[str], Any]
Check = Callable[[], None]
READER_S = 0.05
"""Between two looks whether somebody reads a FIFO."""
SPOOL_BYTES = 1 << 20
"""Characters kept in memory before a spool goes to disk."""


class Screen(NamedTuple):
    """What shows an answer: a terminal, or with the defaults a pipe."""

    width: int = 120
    """Characters in a line of a table."""
    shortens: bool = False
    """Texts in tables are shortened to fit: never for a program that reads them, unless COLUMNS asks for it."""
    given: Optional[int] = None
    """COLUMNS."""
    has_colors: bool = False
    """A terminal whose user has nothing against them (NO_COLOR, TERM=dumb)."""
    wraps: bool = False
    """A terminal: sentences take several lines there. In a pipe or a file each stays one line, whatever COLUMNS says."""

    def of_file(self) -> "Screen":
        """What a file has of it."""
        return Screen() if self.given is None else Screen(self.given, True, self.given)


def screen(descriptor: int, environment: Mapping[str, str]) -> Screen:
    """Of a descriptor: as wide as COLUMNS, or as its terminal says."""
    given = environment.get("COLUMNS", "")[:9]
    try:
        width, is_terminal = os.get_terminal_size(descriptor).columns, True
    except OSError:
        width, is_terminal = 0, False
    colors = is_terminal and not environment.get("NO_COLOR") and environment.get("TERM", "dumb") != "dumb"
    if given.isascii() and given.isdigit() and int(given):
        return Screen(int(given), True, int(given), colors, is_terminal)
    return Screen(width or Screen().width, is_terminal, None, colors, is_terminal)


class CannotWrite(HeapxError):
    """The answer is there and cannot be handed on: a full disk, a limit, a descriptor that is closed."""

    code = CANNOT_WRITE

    def __init__(self, where: str, error: OSError, hint: Optional[str]) -> None:
        super().__init__("cannot write to %s: %s" % (where, error.strerror or error), hint)


def raise_cannot_write(step: Callable[..., Any], where: str, hint: Optional[str]) -> Callable[..., Any]:
    """The step, with CannotWrite for whatever the system refuses; a reader that is gone stays BrokenPipeError."""

    def guarded(*given: Any) -> Any:
        try:
            return step(*given)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotWrite(where, error, hint)

    return guarded


class Spool:
    """Keeps what is written until it may be handed on: in memory, beyond 1 MiB in an unnamed temporary file."""

    def __init__(self) -> None:
        self._pieces: List[str] = []
        self._size = 0
        self._file: Any = None

    def prepare(self) -> None:
        """Make the file before it is needed, while nobody waits. That there can be none matters only if it is needed."""
        try:
            self._open()
        except HeapxError:
            pass

    def _open(self) -> None:
        self._file = open(unnamed_file(), "w+", encoding="utf-8", errors="surrogateescape", newline="")

    def close(self) -> None:
        """It is not wanted any more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, text: str) -> None:
        """Take in a piece."""
        self._pieces.append(text)
        self._size += len(text)
        if self._size > SPOOL_BYTES:
            if self._file is None:
                self._open()
            self._on_disk(self._file.write, "".join(self._pieces))
            self._pieces, self._size = [], 0

    def _on_disk(self, step: Callable[..., Any], *given: Any) -> Any:
        return raise_cannot_write(
            step, "a temporary file in %s" % folder(), "set TMPDIR to another folder, or ask for fewer rows with --limit"
        )(*given)

    def hand_on(self, write: Write) -> None:
        """Give everything to `write`, in order."""
        if self._file is not None:
            self._on_disk(self._file.seek, 0)  # which writes out what is buffered
            while True:
                piece = self._file.read(SPOOL_BYTES)
                if not piece:
                    break
                write(piece)
            self.close()
        write("".join(self._pieces))
        self._pieces, self._size = [], 0


def unnamed_file() -> int:
    """A descriptor of a temporary file that vanishes with it. HeapxError if there can be none."""
    try:
        return unnamed()
    except OSError as error:
        raise HeapxError(
            "cannot make a temporary file in %s: %s" % (folder(), error.strerror),
            "set TMPDIR to another folder, or ask for fewer rows with --limit",
            code=CANNOT_WRITE,
        )


def go_on() -> None:
    """Nobody interrupts."""


def _opened(path: str, check: Check) -> int:
    """For writing. open(2) of a FIFO would wait for its reader, and Python begins it anew after each signal: so it is asked again and
    again instead."""
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK, 0o600)
        except OSError as error:
            if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
                raise
            check()
            time.sleep(READER_S)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def open_private(path: str, keeps: bool = False, check: Check = go_on) -> Any:
    """The file for -o: mode 0600. Another user's file or symlink is not written to. `keeps`: what is in it stays for now. `check` is asked
    while nobody reads a FIFO: what it raises ends that."""
    hint = "choose another file with -o"
    try:
        if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
            raise HeapxError("%s is a symbolic link owned by another user; gdbheapx does not follow it" % path, hint, code=UNSAFE_PATH)
        descriptor = _opened(path, check)
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            if status.st_uid != os.geteuid():
                os.close(descriptor)
                raise HeapxError("%s belongs to another user; gdbheapx does not overwrite it" % path, hint, code=UNSAFE_PATH)
            os.fchmod(descriptor, 0o600)
            if not keeps:
                os.ftruncate(descriptor, 0)
    except OSError as error:
        raise HeapxError("cannot write to %s: %s" % (path, error.strerror), hint, code=CANNOT_WRITE)
    return open(descriptor, "w", encoding="utf-8", errors="surrogateescape")


class Replacing:
    """A file that appears whole or not at all: mode 0600, written beside `path`, and put in its place at the end. What is there and is no
    regular file, or is another user's, stays."""

    def __init__(self, path: str, option: str) -> None:
        self._hint = "choose another file with %s" % option
        self._path = self._checked(path)
        self._beside = "%s.%d-%s" % (self._path, os.getpid(), os.urandom(4).hex())
        try:
            self._descriptor = os.open(self._beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(self._descriptor, 0o600)
        except OSError as error:
            raise CannotWrite(path, error, self._hint)

    def _checked(self, path: str) -> str:
        """The path that a link of one's own leads to; HeapxError for what must not be replaced."""
        if os.path.islink(path):
            if os.lstat(path).st_uid not in (0, os.geteuid()):
                raise HeapxError(
                    "%s is a symbolic link owned by another user; gdbheapx does not follow it" % path, self._hint, code=UNSAFE_PATH
                )
            path = os.path.realpath(path)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return path
        except OSError as error:
            raise CannotWrite(path, error, self._hint)
        if not stat.S_ISREG(status.st_mode):
            raise HeapxError("%s is not a regular file; gdbheapx does not replace it" % path, self._hint, code=UNSAFE_PATH)
        if status.st_uid != os.geteuid():
            raise HeapxError("%s belongs to another user; gdbheapx does not overwrite it" % path, self._hint, code=UNSAFE_PATH)
        return path

    @property
    def beside(self) -> str:
        """Where it is written, for those that write by a path: take_place() then."""
        return self._beside

    def finish(self, content: bytes) -> None:
        """Write all of it, and put it in its place."""
        try:
            with open(self._descriptor, "wb", closefd=False) as file:
                file.write(content)
        except OSError as error:
            self.drop()
            raise CannotWrite(self._path, error, self._hint)
        self.take_place()

    def take_place(self) -> None:
        """It is written: put it in its place."""
        try:
            os.close(self._descriptor)
            os.replace(self._beside, self._path)
        except OSError as error:
            self.drop()
            raise CannotWrite(self._path, error, self._hint)

    def drop(self) -> None:
        """There is nothing to write: leave what was there."""
        try:
            os.unlink(self._beside)
        except OSError:
            pass


class Sink:
    """The place that -o or the host gives, behind one write(). What cannot be written is CannotWrite. A file keeps what is in it until
    there is something to write."""

    def __init__(self, write: Write, flush: Callable[[], Any], path: Optional[str], check: Check = go_on) -> None:
        self._new = path if path and not os.path.lexists(path) else None
        self._file = open_private(path, keeps=True, check=check) if path else None
        self._begun = False
        where, hint = (path, "choose another file with -o") if path else ("standard output", "write to a file with -o")
        self.write: Write = raise_cannot_write(write if self._file is None else self._put, where, hint)
        self.flush: Callable[[], Any] = raise_cannot_write(flush if self._file is None else self._file.flush, where, hint)
        self._close = raise_cannot_write(self._file.close if self._file is not None else flush, where, hint)

    def _begin(self) -> None:
        if self._file is not None and not self._begun and stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            os.ftruncate(self._file.fileno(), 0)
        self._begun = True

    def _put(self, text: str) -> Any:
        assert self._file is not None
        self._begin()
        return self._file.write(text)

    def close(self, is_answered: bool = True) -> None:
        """Finish a file; hand on what is buffered. Without an answer a file of which nothing was written is as before."""
        if is_answered:
            self._begin()
        elif self._new is not None and not self._begun:
            os.unlink(self._new)
        self._close()
