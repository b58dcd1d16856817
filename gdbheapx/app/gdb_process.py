"""The process that the user started stays gdb's parent: it hands signals on, waits, and reports a gdb that ended without an answer of ours.

Becoming gdb would leave no one to say so. Waiting costs nothing that can be measured: what it needs is imported while gdb starts.
"""

import os
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Sequence, Set, Tuple

if TYPE_CHECKING:
    from gdbheapx.common.errors import HeapxError

STATE = "GDBHEAPX_STATE"
"""The variable with the descriptor on which gdb_entry.py reports how far it got."""
STARTED, BEGUN, CODES = b"s", b"b", b"01234"
"""What is written there: gdb has a Python and runs ours; a part of the answer was handed on; the exit code."""
NO_PYTHON = 86
"""What gdb exits with if it did not run our Python."""
INTERRUPTED = 87
"""What gdb exits with if it was interrupted before the command could heed that."""
GdbExit = Tuple[Optional[int], bool, Optional["HeapxError"]]
"""The command's exit code, None if gdb left none; whether a part of the answer was written; what happened where there is no code."""
STOP_S = 0.2
"""How long a SIGSTOP may be on its way."""
KEPT = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX", "PYTHONNOUSERSITE")
"""Of the user's PYTHON variables these take something away from gdb's Python, or say where it may write; every other is meant for another
Python."""


def run_gdb_process(
    arguments: Sequence[str], names: Dict[str, str], pid: Optional[int] = None, started: Optional[Callable[[], None]] = None
) -> GdbExit:
    """Run gdb to its end, its standard output turned to standard error. `pid`: the process that it looks at; `started` is called when it
    runs. OSError if it cannot be run.

    A signal from the terminal reaches gdb by itself, as it is of the same process group; one that was sent to this process is handed on.
    """
    reading, writing = os.pipe()
    heard, hearing = os.pipe()
    for descriptor in (writing, heard):
        os.set_inheritable(descriptor, True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON") or name in KEPT}
    kept.update({**names, STATE: "%d,%d,%d" % (writing, os.getpid(), heard)})
    was_stopped = is_stopped(pid)
    hold_back()
    output = (os.POSIX_SPAWN_DUP2, 2, 1)
    child = os.posix_spawn(arguments[0], list(arguments), kept, file_actions=[output], setsigmask=())
    os.close(writing)
    os.close(heard)
    if started is not None:
        started()
    status, sent = wait_for_child(child, reading, hearing)
    os.close(hearing)
    told = os.read(reading, 16)
    if told[-1:] and told[-1:] in CODES:
        return int(told[-1:]), BEGUN in told, None
    if pid is not None and not was_stopped:
        resume_process(pid)
    return None, BEGUN in told, explain_exit(arguments[0], status, STARTED in told, sent)


def has_started(reading: int) -> bool:
    """gdb runs our Python, which heeds signals; before that nothing has been done to any process."""
    import select

    return bool(select.select([reading], [], [], 0)[0])


def hold_back() -> List[int]:
    """Block the signals that are handed on, and that of a child's end, until they are waited for."""
    import signal

    ending = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM)
    handed = [number for number in ending if signal.getsignal(number) != signal.SIG_IGN]  # nohup, or a shell's background
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started this may have had it ignored: then nobody's end could be waited for
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *handed))
    return [int(number) for number in handed]


def let_through() -> None:
    """Unblock all signals, since no gdb runs that could take them."""
    import signal

    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def wait_for_child(
    child: int, reading: Optional[int] = None, hearing: Optional[int] = None, until: Optional[float] = None
) -> Tuple[int, Set[int]]:
    """Until the child has ended: its wait status, and the signals that were sent to this process and handed on. Their numbers go to
    `hearing`, too, for the child's watchdog: gdb's own handlers hear them. TimeoutError at the moment `until` of the monotonic clock: then
    it is killed, and not waited for, as one that waits for a file system does not end.

    Those that would end this process while gdb runs on are gdb's. A gdb in batch mode lives on after SIGHUP: it gets SIGTERM instead. One
    that has not reported on `reading` that it has started is killed: it would show where its Python was interrupted.
    """
    import signal
    import time

    handed = hold_back()
    sent: Set[int] = set()
    while True:
        try:
            ended, status = os.waitpid(child, os.WNOHANG)
        except ChildProcessError:  # it ended while that was still ignored
            return 0, sent
        if ended:
            return status, sent
        signals = (signal.SIGCHLD, *handed)
        arrived = signal.sigwaitinfo(signals) if until is None else signal.sigtimedwait(signals, max(until - time.monotonic(), 0.0))
        if arrived is None:
            os.kill(child, signal.SIGKILL)
            raise TimeoutError
        number = arrived.si_signo
        if number == signal.SIGCHLD:
            continue
        if hearing is not None:
            try:
                os.write(hearing, bytes([number]))
            except OSError:  # it has ended
                pass
        if reading is not None and not has_started(reading):
            sent.add(number)
            os.kill(child, signal.SIGKILL)
        elif number == signal.SIGHUP or arrived.si_code <= 0:  # kill(2) and its kin; of the terminal's gdb has got its own
            sent.add(number)
            os.kill(child, signal.SIGTERM if number == signal.SIGHUP else number)


def resume_process(pid: int) -> None:
    """Let the process run on that gdb has left stopped: one that is ended between its SIGSTOP and its attach does."""
    import signal
    import time

    until = time.monotonic() + STOP_S
    while not is_stopped(pid):
        if time.monotonic() > until:
            return
        time.sleep(STOP_S / 10)
    try:
        os.kill(pid, signal.SIGCONT)
    except OSError:  # it has ended too
        pass


def explain_exit(gdb: str, status: int, started: bool, sent: Set[int]) -> "HeapxError":
    """Return the cause of a missing answer, and the next step."""
    import signal

    from gdbheapx.common.errors import HeapxError, Interrupted
    from gdbheapx.common.problems import GDB_FAILED

    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    code = os.WEXITSTATUS(status) if not number else 0
    other = "try another gdb with --gdb PATH, or take a core of the process and use --core"
    if sent:
        name = signal.Signals(max(sent)).name
        return Interrupted("Ctrl-C" if name == "SIGINT" else name)
    if code == INTERRUPTED:
        return Interrupted("Ctrl-C")
    if number == signal.SIGKILL:
        hint = "unless a signal killed it, memory ran out: see dmesg and the memory limit of this cgroup"
        return HeapxError("%s was killed (signal 9) before there was an answer" % gdb, hint, code=GDB_FAILED)
    if number:
        name = signal.strsignal(number) or "unknown"
        return HeapxError("%s was killed by signal %d (%s) before there was an answer" % (gdb, number, name), other, code=GDB_FAILED)
    if code == NO_PYTHON and not started:
        hint = "install the full gdb (Debian: apt-get install gdb), choose another with --gdb PATH, or read without it: --gdb none"
        return HeapxError("%s has no Python, or a Python older than 3.9" % gdb, hint, code=GDB_FAILED)
    if not started:
        what = "%s exited with code %d and did not run the command" % (gdb, code)
        return HeapxError(what, "choose a gdb with --gdb PATH", code=GDB_FAILED)
    return HeapxError("%s exited with code %d before there was an answer" % (gdb, code), other, code=GDB_FAILED)


def is_stopped(pid: Optional[int]) -> bool:
    """The process is stopped by a signal (SIGSTOP), not by a tracer."""
    try:
        with open("/proc/%d/stat" % (pid or 0), "rb") as file:
            return file.read().rpartition(b")")[2].split()[:1] == [b"T"]
    except OSError:
        return False
