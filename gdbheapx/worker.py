"""A look that a child takes: it ends with its answer in an unnamed temporary file, which the caller renders outside gdb.

Or many of them, one after the other, as a program that stands by is told: what the first had to import the next has already.
"""

import importlib
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Callable, List, Tuple

from gdbheapx import gdb_process
from gdbheapx.errors import HeapxError, Interrupted
from gdbheapx.files import unnamed
from gdbheapx.inferior.gdb.call_guard import end_with_parent
from gdbheapx.problems import CANNOT_WRITE

if TYPE_CHECKING:
    from gdbheapx.invocation import GlobalOptions, Invocation

NO_ANSWER = 1
MOST_BYTES = 1 << 18
"""Of names of modules."""
FIRST_TO_GO = b"1000"
"""The highest oom_score_adj (proc(5))."""


def temporary() -> int:
    """A descriptor of an unnamed temporary file. HeapxError if there can be none."""
    try:
        return unnamed()
    except OSError as error:
        raise HeapxError("cannot make a temporary file: %s" % error.strerror, "set TMPDIR to another folder", code=CANNOT_WRITE)


def look(invocation: "Invocation", answer_it: "Callable[[Invocation], int]") -> Tuple[int, bytes]:
    """(exit code, what was written) of a command line, answered by a child whose standard output is an unnamed temporary file."""
    answer = temporary()
    ours = os.getpid()
    child = os.fork()
    if not child:
        code = NO_ANSWER
        try:
            end_with_parent(signal.SIGTERM)
            if os.getppid() != ours:  # it has ended already
                os._exit(code)
            os.dup2(answer, 1)
            code = answer_it(invocation)
        finally:
            os._exit(code)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    status, _ = gdb_process.wait(child)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with open(answer, "rb") as file:
        file.seek(0)
        text = file.read()
    if os.WIFSIGNALED(status):
        raise Interrupted(signal.Signals(os.WTERMSIG(status)).name)
    return os.WEXITSTATUS(status), text


def goes_first() -> None:
    """Where memory is scarce the kernel ends this process and its children, not a service."""
    try:
        with open("/proc/self/oom_score_adj", "wb", buffering=0) as file:
            file.write(FIRST_TO_GO)
    except OSError:
        pass


class Noted:
    """In sys.meta_path it writes down what this process imports, and finds nothing."""

    def __init__(self, file: int) -> None:
        self._file, self._pid = file, os.getpid()

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if os.getpid() == self._pid:  # a child may have closed the file
            os.write(self._file, name.encode() + b"\n")


def stand_by(asked: "GlobalOptions", answer_it: "Callable[[Invocation], int]") -> int:
    """Answer commands, each a line of JSON with its words on standard input, by a line of exit code and text, until there are no more."""
    from gdbheapx import runner
    from gdbheapx.inferior.live.keeper import hurry
    from gdbheapx.invocation import understand

    end_with_parent(signal.SIGTERM)
    goes_first()
    names = temporary()

    def noting(invocation: "Invocation") -> int:
        hurry()
        sys.meta_path.insert(0, Noted(names))
        return answer_it(invocation)

    with open(0, "rb", closefd=False) as lines:
        for line in lines:
            words = json.loads(line)
            try:
                code, text = look(understand(asked, words), noting)
            except Interrupted as error:
                code, text = NO_ANSWER, runner.failure(words, error).encode()
            os.write(1, json.dumps([code, text.decode("utf-8", "replace")]).encode() + b"\n")
            _import(os.pread(names, MOST_BYTES, 0).decode().split())
    return 0


def _import(names: List[str]) -> None:
    """What is not there was not there for the look either."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:
            pass
