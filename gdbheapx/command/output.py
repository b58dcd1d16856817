"""Destination of an answer: a stream, a private file, or a spool while a process is held."""

import errno
import os
import stat
import time
from typing import IO, Any, Callable, List, Mapping, NamedTuple, Optional, Tuple, Union

from gdbheapx.common import files
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.files import HANDLE, MAX_LINKS, open_unnamed, temporary_folder, walk_path
from gdbheapx.common.problems import CANNOT_WRITE, UNSAFE_PATH
from gdbheapx.kernel.common import watchdog

Write = Callable[[str], Any]
Check = Callable[[], None]
READER_S = 0.05
"""Between two looks whether someone reads a FIFO."""
ON_FILE = "write to a file with -o"
OUR_MOUNTS = "/proc/self/mountinfo"
FEWER_ROWS = "set TMPDIR to another folder, or ask for fewer rows with --limit"
SPOOL_BYTES = 1 << 20
"""Characters kept in memory before a spool goes to disk."""


class Screen(NamedTuple):
    """Properties of the output that shows an answer: a terminal, or with the defaults a pipe."""

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
        """Return the properties that a file takes over: the width of COLUMNS, if that is given."""
        return Screen() if self.given is None else Screen(self.given, True, self.given)


def screen_of(descriptor: int, environment: Mapping[str, str]) -> Screen:
    """Return the screen of a descriptor: as wide as COLUMNS, or as its terminal says."""
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

    def guarded_call(*given: Any) -> Any:
        try:
            return step(*given)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotWrite(where, error, hint)

    return guarded_call


class Spool:
    """Keeps what is written until it may be handed on: in memory, beyond 1 MiB in an unnamed temporary file."""

    def __init__(self) -> None:
        self._pieces: List[str] = []
        self._size = 0
        self._file: Any = None
        self._where = "a temporary file in %s" % temporary_folder()

    def prepare(self) -> None:
        """Make the file before it is needed, while no one waits. That there can be none matters only if it is needed."""
        try:
            self._open_file()
        except HeapxError:
            pass

    def _open_file(self) -> None:
        try:
            descriptor = open_unnamed()
        except OSError as error:
            raise HeapxError("cannot make %s: %s" % (self._where, error.strerror), FEWER_ROWS, code=CANNOT_WRITE)
        self._file = open(descriptor, "w+", encoding="utf-8", errors="surrogateescape", newline="")

    def close(self) -> None:
        """Close the file, which is not needed any more."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def write(self, text: str) -> None:
        """Take in a piece."""
        self._pieces.append(text)
        self._size += len(text)
        if self._size > SPOOL_BYTES:
            if self._file is None:
                self._open_file()
            self._on_disk(self._file.write, "".join(self._pieces))
            self._pieces, self._size = [], 0

    def _on_disk(self, step: Callable[..., Any], *given: Any) -> Any:
        return raise_cannot_write(step, self._where, FEWER_ROWS)(*given)

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


def ignore_interruption() -> None:
    """No one interrupts."""


class OutputFile:
    """A file of an answer, with mode 0600: it is there whole, or not at all. It is written without a name, or under one next to its own, in
    a folder that is held, and put in its place at the end.

    No link of another user is followed on the way, and what is another user's, or no regular file, stays. `takes_any`: what is no regular
    file, such as a terminal or a FIFO, is written to; `check` is asked while no one reads a FIFO, and what it raises ends that. `is_named`:
    someone else writes it, at that second name.
    """

    def __init__(
        self, path: str, option: str = "-o", takes_any: bool = False, is_named: bool = False, check: Check = ignore_interruption
    ) -> None:
        self._path, self._hint = path, "choose another file with %s" % option
        self._folder, self._beside, self._is_stream, self._is_begun, self.is_taken = -1, "", False, False, False
        self._removed = -1  # of watchdog.remove_at_end
        try:
            self._folder, self._name = self._follow_links(path)
            status = self._read_status()
            self._is_stream = status is not None and (self._is_link_of_proc() or not stat.S_ISREG(status.st_mode))
            if self._is_stream and not takes_any:
                raise self._make_refusal("%s is not a regular file; gdbheapx does not replace it")
            if not self._is_stream:
                self._check_owner(status)
            descriptor = self._open_stream(check) if self._is_stream else self._make_file(is_named)
            self.file: IO[str] = open(descriptor, "w", encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            self.drop()
            raise CannotWrite(path, error, self._hint)
        except BaseException:
            self.drop()
            raise

    def _make_refusal(self, text: str) -> HeapxError:
        return HeapxError(text % self._path, self._hint, code=UNSAFE_PATH)

    def _check_owner(self, status: Optional[os.stat_result]) -> None:
        if status is not None and status.st_uid != os.geteuid():
            raise self._make_refusal("%s belongs to another user; gdbheapx does not overwrite it")

    def _refuse_unsuitable(self, status: os.stat_result) -> None:
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            raise self._make_refusal("%s is a symbolic link owned by another user; gdbheapx does not follow it")

    def _follow_links(self, path: str) -> Tuple[int, str]:
        """Return a handle of the folder that the file lies in, and its name there: that of no link but one of /proc."""
        folder = os.open(".", HANDLE)
        for _ in range(MAX_LINKS):
            head, name = os.path.split(path)
            if head.startswith("/"):
                os.close(folder)
                folder = os.open("/", HANDLE)
            self._folder = folder
            folder = walk_path(folder, head, self._refuse_unsuitable, is_tree=False)
            os.close(self._folder)
            self._folder, self._name = folder, name
            status = self._read_status()
            if status is None or not stat.S_ISLNK(status.st_mode) or self._is_link_of_proc():
                return folder, name
            self._refuse_unsuitable(status)
            path = os.readlink(name, dir_fd=folder)
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))

    def _read_status(self) -> Optional[os.stat_result]:
        if self._name in ("", ".", ".."):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        try:
            return os.lstat(self._name, dir_fd=self._folder)
        except FileNotFoundError:
            return None

    def _is_link_of_proc(self) -> bool:
        return files.kind_of(self._folder, OUR_MOUNTS) == b"proc"

    def _open_stream(self, check: Check) -> int:
        """open(2) of a FIFO would wait for its reader, and Python begins it again after each signal: so it is asked again and again."""
        flags = os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK | (0 if self._is_link_of_proc() else os.O_NOFOLLOW)
        while True:
            try:
                descriptor = os.open(self._name, flags, dir_fd=self._folder)
                break
            except OSError as error:
                if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(self._name, dir_fd=self._folder).st_mode):
                    raise
            check()
            time.sleep(READER_S)
        try:
            status = os.fstat(descriptor)
            if stat.S_ISREG(status.st_mode):  # by a link of /proc
                self._check_owner(status)
                os.fchmod(descriptor, 0o600)
            os.set_blocking(descriptor, True)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _make_file(self, is_named: bool) -> int:
        """Make the new file; without a name, nothing is left of it whatever ends this process."""
        descriptor = -1
        if not is_named:
            try:
                descriptor = os.open(".", os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o600, dir_fd=self._folder)
            except OSError:  # not every file system has files without a name
                pass
        name = "%s.%d-%s" % (self._name, os.getpid(), os.urandom(4).hex())
        if descriptor < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor, self._beside = os.open(name, flags, 0o600, dir_fd=self._folder), name
            self._removed = watchdog.remove_at_end(self.beside)
        os.fchmod(descriptor, 0o600)
        return descriptor

    @property
    def beside(self) -> str:
        """Return the path of the temporary file, for writers that need a path; take_place() comes after."""
        return "/proc/self/fd/%d/%s" % (self._folder, self._beside)

    def write(self, content: Union[str, bytes]) -> None:
        """Write a piece. CannotWrite drops the file."""
        self.begin()
        put: Callable[[Any], Any] = self.file.write if isinstance(content, str) else self.file.buffer.write  # type: ignore[attr-defined]
        self._guard_step(lambda: put(content))

    def begin(self) -> None:
        """Empty a file that is written to where it lies."""
        if self._is_stream and not self._is_begun and stat.S_ISREG(os.fstat(self.file.fileno()).st_mode):
            self._guard_step(lambda: os.ftruncate(self.file.fileno(), 0))
        self._is_begun = True

    def finish(self, content: bytes, mode: int = 0o600) -> None:
        """Write all of it, and put it in its place."""
        self.write(content)
        if not self._is_stream:
            self._guard_step(lambda: os.fchmod(self.file.fileno(), mode))
        self.take_place()

    def flush(self) -> None:
        """Hand on what is written, for who reads it already: it goes on in its place."""
        self._guard_step(self._take_place)

    def take_place(self) -> None:
        """Put the written file in its place."""
        self.begin()
        self._guard_step(self._take_place)
        self._guard_step(self.file.close)
        self.drop()

    def _take_place(self) -> None:
        self.file.flush()
        if self._is_stream or self.is_taken:
            return
        if not self._beside:
            name = "%s.%d-%s" % (self._name, os.getpid(), os.urandom(4).hex())
            os.link("/proc/self/fd/%d" % self.file.fileno(), name, dst_dir_fd=self._folder, follow_symlinks=True)
            self._beside = name
        os.replace(self._beside, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        self._beside, self.is_taken = "", True

    def _guard_step(self, step: Callable[[], Any]) -> None:
        """BrokenPipeError stays what it is; else CannotWrite, and nothing is left."""
        try:
            raise_cannot_write(step, self._path, self._hint)()
        except BaseException:
            self.drop()
            raise

    def drop(self) -> None:
        """Drop the new file: the old file stays, unless the new one has taken its place."""
        try:
            if hasattr(self, "file"):
                self.file.close()
        except OSError:
            pass
        try:
            if self._beside:
                os.unlink(self._beside, dir_fd=self._folder)
        except OSError:
            pass
        watchdog.forget_written_file(self._removed)
        if self._folder >= 0:
            os.close(self._folder)
        self._beside, self._folder, self._removed = "", -1, -1


class Sink:
    """The place that -o or the host gives, reached by one write(). What cannot be written is CannotWrite. A file keeps what is in it until
    there is an answer."""

    def __init__(self, write: Write, flush: Callable[[], Any], path: Optional[str], check: Check = ignore_interruption) -> None:
        self._file = OutputFile(path, takes_any=True, check=check) if path else None
        self.write: Write = raise_cannot_write(write, "standard output", ON_FILE) if self._file is None else self._file.write
        self.flush: Callable[[], Any] = raise_cannot_write(flush, "standard output", ON_FILE) if self._file is None else self._file.flush

    def close(self, is_answered: bool = True) -> None:
        """Finish a file; hand on what is buffered. Without an answer a file is as before."""
        if self._file is None:
            self.flush()
        elif is_answered:
            self._file.take_place()
        else:
            self._file.drop()
