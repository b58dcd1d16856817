"""A look that a child takes: it ends with its answer in an unnamed temporary file, which the caller renders outside gdb."""

import os
import signal
from typing import TYPE_CHECKING, Callable, Optional, Tuple

from gdbheapx.app import gdb_process
from gdbheapx.common.budget import goes_first
from gdbheapx.common.errors import HeapxError, Interrupted
from gdbheapx.common.files import open_unnamed
from gdbheapx.common.problems import CANNOT_WRITE
from gdbheapx.inferior.live.tracer import end_with_parent

if TYPE_CHECKING:
    from gdbheapx.app.invocation import Invocation

NO_ANSWER = 1


def open_temporary() -> int:
    """A descriptor of an unnamed temporary file. HeapxError if there can be none."""
    try:
        return open_unnamed()
    except OSError as error:
        raise HeapxError("cannot make a temporary file: %s" % error.strerror, "set TMPDIR to another folder", code=CANNOT_WRITE)


def answer_in_child(invocation: "Invocation", answer_it: "Callable[[Invocation], int]", until: Optional[float] = None) -> Tuple[int, bytes]:
    """(exit code, what was written) of a command line, answered by a child whose standard output is an unnamed temporary file. Interrupted
    where the child was ended by a signal, and at the moment `until` of the monotonic clock: it is killed then, and not waited for."""
    answer = open_temporary()
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
    try:
        status, _ = gdb_process.wait_for_child(child, until=until)
    except TimeoutError:
        os.close(answer)
        raise Interrupted("SIGKILL")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    with open(answer, "rb") as file:
        file.seek(0)
        text = file.read()
    if os.WIFSIGNALED(status):
        raise Interrupted(signal.Signals(os.WTERMSIG(status)).name)
    return os.WEXITSTATUS(status), text


def serve_parent() -> None:
    """End with the parent, and first where memory is scarce."""
    end_with_parent(signal.SIGTERM)
    goes_first()


def raise_priority() -> None:
    """Ask for a higher priority until the next stop is over (inferior/live/keeper.py)."""
    from gdbheapx.inferior.live import keeper

    keeper.raise_priority_early()
