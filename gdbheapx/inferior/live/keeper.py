"""The process that holds another one stopped, so that it runs on when its time is up: whatever the one that reads is busy with, and if that
is killed.

A thread would not do: while Python, gdb or the C kernel is inside one long call, no other thread of Python gets on. It is forked before
anything large is loaded, and lives as long as the other end of its pipes is open. It exchanges lists of numbers and texts."""

import marshal
import os
import select
import time
from typing import Any, Dict, List, Optional

HELD, MOST_NICE = -10, -20
"""The niceness that is asked for while a process is stopped, and instead of a real-time priority."""
DESCRIPTORS = "GDBHEAPX_KEEPER"
"""The variable with the descriptors of its pipes, for a process that is started with them: to write requests, to read answers."""
FORM = 2
"""Of marshal: what every Python reads. gdb's may be another one."""
STOP, REGISTERS, GO, FILTERS = 1, 2, 3, 4


def at_once() -> None:
    """Give this thread a processor as soon as it wakes, where that is allowed, by the lowest real-time priority. Niceness counts among
    the processes of one session alone (CONFIG_SCHED_AUTOGROUP), and the leader of its own session shares with every other one.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):  # not allowed, or a C library without it
        Priority().ask(MOST_NICE)


class Priority:
    """Niceness of the calling thread, raised and given back."""

    def __init__(self) -> None:
        self._before: Optional[int] = None

    def ask(self, nice: int = HELD) -> None:
        """Ask the scheduler for this niceness, where it is allowed."""
        try:
            before = os.getpriority(os.PRIO_PROCESS, 0)
            if before > nice:
                os.setpriority(os.PRIO_PROCESS, 0, nice)
                self._before = before if self._before is None else self._before
        except OSError:
            pass

    def give_back(self) -> None:
        """Restore the niceness. Harmless when called twice."""
        if self._before is not None:
            os.setpriority(os.PRIO_PROCESS, 0, self._before)
            self._before = None


_hurried: Optional[Priority] = None


def raise_priority_early() -> None:
    """Ask for that priority before any stop: until the next one is over."""
    global _hurried
    _hurried = Priority()
    _hurried.ask()


def make_stop_priority() -> Priority:
    """Return the priority that a stop raises and gives back."""
    return _hurried or Priority()


class Lost(Exception):
    """The keeper has ended, or is not understood: whatever it held runs again."""


class Keeper:
    """The other end of the pipes. `ask` is for one request and its answer."""

    def __init__(self, requests: int, answers: int, child: Optional[int] = None) -> None:
        self._requests, self._answers, self._child = requests, answers, child

    def ask(self, *request: Any) -> Any:
        """Its answer. What comes in between, Ctrl-C for example, ends it: it lets go of what it holds."""
        try:
            send_values(self._requests, list(request))
            return receive_values(self._answers)
        except BaseException as error:
            self.close()
            if isinstance(error, (OSError, EOFError, ValueError)):
                raise Lost() from None
            raise

    def inherited(self) -> Dict[str, str]:
        """The variable by which a process that is started now finds it."""
        for descriptor in self._requests, self._answers:
            os.set_inheritable(descriptor, True)
        return {DESCRIPTORS: "%d,%d" % (self._requests, self._answers)}

    def close(self) -> None:
        """Close the pipes: the keeper ends, and lets go of everything that it holds."""
        for descriptor in (self._requests, self._answers):
            if descriptor >= 0:
                os.close(descriptor)
        self._requests = self._answers = -1

    def end(self) -> None:
        """End the keeper and wait for its end: no other process may do so where the first process of a container is no init."""
        self.close()
        if self._child is not None:
            try:
                os.waitpid(self._child, 0)
            except ChildProcessError:
                pass
            self._child = None

    @property
    def is_closed(self) -> bool:
        """True once the pipes are closed."""
        return self._requests < 0


_keeper: Optional[Keeper] = None


def the_keeper() -> Keeper:
    """The one that was started for this process, or a new one."""
    global _keeper
    if _keeper is None:
        descriptors = [int(number) for number in os.environ.pop(DESCRIPTORS, "").split(",") if number]
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        _keeper = Keeper(*descriptors) if descriptors else None
    if _keeper is None or _keeper.is_closed:
        _keeper = fork_keeper()
    return _keeper


def prepare_keeper() -> Keeper:
    """Start it early, while this process is small, for what this process does later: memory that is written later is not copied then."""
    global _keeper
    _keeper = fork_keeper()
    return _keeper


def end_current_keeper() -> None:
    """End the one of this process, if it has one."""
    if _keeper is not None:
        _keeper.end()


def fork_keeper() -> Keeper:
    """Fork it. OSError if there can be none."""
    import warnings

    his_requests, requests = os.pipe()
    answers, his_answers = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that other threads hold locks: it takes none of theirs
        child = os.fork()
    if not child:
        try:
            detach_keeper(his_requests, his_answers)
            serve_keeper_requests(his_requests, his_answers)
        finally:
            os._exit(0)
    os.close(his_requests)
    os.close(his_answers)
    return Keeper(requests, answers, child)


def detach_keeper(*kept: int) -> None:
    """Give up everything that is not needed: the terminal and its signals, every descriptor but `kept`, the queue for a processor."""
    import signal

    os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    at = 3
    for descriptor in sorted(kept):
        os.closerange(at, descriptor)
        at = descriptor + 1
    os.closerange(at, os.sysconf("SC_OPEN_MAX"))
    at_once()


def serve_keeper_requests(requests: int, answers: int) -> None:
    """Serve requests until the other end is closed."""
    from gdbheapx.common.errors import HeapxError
    from gdbheapx.inferior.arch import native_architecture
    from gdbheapx.inferior.live import tracer
    from gdbheapx.inferior.live.tracer import Tracer

    native_architecture()  # its module is imported now, and not in the first stop
    held: Optional[Tracer] = None
    listening = select.poll()
    listening.register(requests, select.POLLIN)
    while True:
        left_s = None if held is None or held.stopped_ms is not None else held.until_s - time.monotonic()
        if held is not None and left_s is not None and left_s <= 0:
            held.let_go()
            continue
        if not listening.poll(None if left_s is None else max(left_s * 1000, 0.01)):
            continue
        try:
            request = receive_values(requests)
        except (OSError, EOFError, ValueError):
            break
        reply: List[Any] = []
        is_held = held is not None and held.stopped_ms is None
        if request[0] == STOP:
            held = Tracer(request[1], request[2])
            try:
                held.stop()
                reply = [held.began_s, held.until_s, sorted(held.held), held.late]
            except HeapxError as error:
                held, reply = None, [error.message, error.hint, str(error.code)]
        elif request[0] == REGISTERS:
            reply = [held.register_sets(request[1])] if held is not None and is_held else [{}]
        elif request[0] == FILTERS:
            try:
                reply = tracer.fetch_seccomp_filters(request[1])
            except HeapxError as error:
                reply = [error.message]
        elif held is None:
            reply = [None, False, None]
        else:
            held.let_go()
            reply, held = [held.stopped_ms, not is_held, held.ended], None
        try:
            send_values(answers, reply)
        except OSError:
            break
    if held is not None:
        held.let_go()


def send_values(descriptor: int, values: List[Any]) -> None:
    """Write values of one kind or another, with their length before them."""
    data = marshal.dumps(values, FORM)
    left = memoryview(len(data).to_bytes(8, "little") + data)
    while left:
        left = left[os.write(descriptor, left) :]


def receive_values(descriptor: int) -> Any:
    """Read the values that send_values() wrote. EOFError if the other end is closed."""
    return marshal.loads(_receive_exactly(descriptor, int.from_bytes(_receive_exactly(descriptor, 8), "little")))


def _receive_exactly(descriptor: int, count: int) -> bytes:
    parts: List[bytes] = []
    while count:
        part = os.read(descriptor, min(count, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
