"""A look that a child takes: it ends with its answer in an unnamed temporary file, which the caller renders outside gdb."""

import os
import signal
from typing import TYPE_CHECKING, Callable, Tuple

from gdbheapx import gdb_process
from gdbheapx.errors import HeapxError, Interrupted
from gdbheapx.files import unnamed
from gdbheapx.inferior.gdb.call_guard import end_with_parent
from gdbheapx.problems import CANNOT_WRITE

if TYPE_CHECKING:
    from gdbheapx.invocation import Invocation

NO_ANSWER = 1


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
