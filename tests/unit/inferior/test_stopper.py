"""Stopping threads, and signals that come in the middle of a call.

Files: inferior/live/keeper.py, inferior/live/tracer.py.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from gdbheapx.common.errors import HeapxError, StopOver
from gdbheapx.common.problems import ALREADY_TRACED
from gdbheapx.inferior.live import keeper, procfs
from gdbheapx.inferior.live.stopper import Stopper
from gdbheapx.inferior.live.tracer import Tracer
from gdbheapx.inferior.target import open_elf_target

READER = """
import time
from gdbheapx.inferior.live.stopper import Stopper
stopper = Stopper(%d, %s)
stopper.stop()
print("held", flush=True)
time.sleep(60)
"""


def state(pid: int) -> str:
    """The letter in /proc/PID/status; Z, too, where the process is gone."""
    return procfs.read_process_status(pid).get("State", "Z")[0]


def becomes(pid: int, letters: str) -> bool:
    """The process comes to one of these states within a second: threads that were let go run for an instant before they stop again."""
    deadline = time.monotonic() + 1
    while state(pid) not in letters and time.monotonic() < deadline:
        time.sleep(0.005)
    return state(pid) in letters


def start_reader(pid: int, limit_s: float) -> "subprocess.Popen[str]":
    """Another process that has stopped this one, for no longer than that."""
    reader = subprocess.Popen([sys.executable, "-c", READER % (pid, limit_s)], stdout=subprocess.PIPE, text=True)
    assert reader.stdout and reader.stdout.readline() == "held\n"
    return reader


def test_every_thread_stands_and_runs_on(live: Any) -> None:
    """All threads are held, with registers, and run on afterwards, untraced."""
    stopper = Stopper(live.popen.pid)
    stopper.stop()
    header = procfs.executable_header(live.popen.pid)
    assert header is not None
    assert len(stopper.held) == 4
    assert all(stopper.registers(lwp, header)[1] for lwp in stopper.held)
    assert state(live.popen.pid) == "t"
    stopper.let_go()
    stopper.let_go()
    assert becomes(live.popen.pid, "S") and procfs.find_process_tracer(live.popen.pid) is None


def test_it_runs_on_in_time_on_a_busy_machine(live: Any) -> None:
    """Programs of other sessions share the processors with the helper, whatever its niceness: it does not wait for them. Now and then every
    process waits for the machine itself."""
    if subprocess.run([sys.executable, "-c", "import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))"], capture_output=True).returncode:
        pytest.skip("no real-time priority is allowed here")
    stopper = Stopper(live.popen.pid)
    stopper.stop()
    holder = procfs.find_process_tracer(live.popen.pid)
    policy = os.sched_getscheduler(holder[0]) if holder is not None else None
    stopper.let_go()  # held, the process would not end after a failure
    assert policy is not None and policy & ~os.SCHED_RESET_ON_FORK == os.SCHED_FIFO
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) for _ in range(4 * (os.cpu_count() or 1))]
    try:
        stopped = []
        for _ in range(20):
            stopper = Stopper(live.popen.pid, 0.03)
            stopper.stop()
            time.sleep(0.08)
            stopper.let_go()
            stopped.append(stopper.stopped_ms or 0.0)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert sorted(stopped)[-3] < 34, stopped  # by niceness alone a quarter of them are later


def test_no_signal_is_lost() -> None:
    """Signals that arrive while the process is stopped again and again are all delivered."""
    program = "import signal, sys\nn = [0]\ndef f(*a): n[0] += 1\nsignal.signal(signal.SIGUSR1, f)\nprint('ready', flush=True)\nfor line in sys.stdin:\n    print(n[0], flush=True)\n"
    with subprocess.Popen([sys.executable, "-u", "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        child.stdout.readline()
        for sent in range(1, 31):
            stopper = Stopper(child.pid)
            if sent % 2:
                os.kill(child.pid, signal.SIGUSR1)
            stopper.stop()
            if not sent % 2:
                os.kill(child.pid, signal.SIGUSR1)
            stopper.let_go()
            for _ in range(50):
                child.stdin.write("\n")
                child.stdin.flush()
                if int(child.stdout.readline()) == sent:
                    break
            else:
                raise AssertionError("signal %d was lost" % sent)
        child.stdin.close()


def test_killed_while_held(live: Any) -> None:
    """A process that is killed while it is held ends, and letting it go does no harm."""
    stopper = Stopper(live.popen.pid)
    stopper.stop()
    os.kill(live.popen.pid, signal.SIGKILL)
    stopper.let_go()
    assert live.popen.wait(10) in (-9, 0)


def test_threads_that_only_proc_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A /proc of another pid namespace lists threads that no call finds: they are asked for once, not for ever."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    asked = iter(range(100))
    monkeypatch.setattr(procfs, "list_thread_ids", lambda pid: [gone.pid] if next(asked) < 99 else [])
    with pytest.raises(HeapxError, match="crashed or exited"):
        Stopper(gone.pid).stop()
    assert next(asked) < 5


def test_proc_of_another_pid_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where /proc/self is another number than getpid() gives, no number in /proc is believed."""
    monkeypatch.setattr(os, "getpid", lambda: 1)
    with pytest.raises(HeapxError, match="a different pid namespace"):
        procfs.check_alive(os.getppid())


def test_it_runs_on_when_its_time_is_up(live: Any) -> None:
    """Whatever the reader is busy with: the process runs on by the limit, and the reader is told."""
    stopper = Stopper(live.popen.pid, 0.1)
    began = time.monotonic()  # the limit counts from the first thread that stands, not from the return of stop()
    stopper.stop()
    sorted(str(number) for number in range(600_000))  # one long call that no other thread of Python interrupts
    assert becomes(live.popen.pid, "S") and procfs.find_process_tracer(live.popen.pid) is None
    assert time.monotonic() - began > 0.1
    stopper.let_go()
    assert stopper.is_over and stopper.stopped_ms is not None and 100 <= stopper.stopped_ms < 150


def test_it_runs_on_while_the_reader_is_stopped(live: Any) -> None:
    """A reader that is itself stopped, by Ctrl-Z for example, keeps nobody standing."""
    with start_reader(live.popen.pid, 0.2) as reader:
        reader.send_signal(signal.SIGSTOP)
        assert becomes(live.popen.pid, "S")
        reader.kill()


def test_the_keeper_ends_with_who_it_serves(live: Any) -> None:
    """Killed while it holds a process: that runs on, and the helper is gone."""
    with start_reader(live.popen.pid, 60) as reader:
        holder = procfs.find_process_tracer(live.popen.pid)
        assert holder is not None and holder[0] != reader.pid
        reader.kill()
        assert becomes(live.popen.pid, "S")
    assert becomes(holder[0], "ZX")


def may_be_first() -> bool:
    """CAP_SYS_NICE, which root lacks in a usual container."""
    return bool(int(procfs.read_process_status(os.getpid())["CapEff"], 16) & 1 << 23)


def test_priority_comes_back(live: Any) -> None:
    """While a process stands the reader is before others, where that is allowed, and as before afterwards."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    stopper = Stopper(live.popen.pid)
    stopper.stop()
    during = os.getpriority(os.PRIO_PROCESS, 0)
    stopper.let_go()
    assert during < before or not may_be_first()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_priority_comes_back_where_nothing_is_stopped(live: Any) -> None:
    """The stop is refused: another one holds the process."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    first, second = Stopper(live.popen.pid), Stopper(live.popen.pid)
    second._keeper = keeper.fork_keeper()
    first.stop()
    try:
        first._priority.give_back()
        with pytest.raises(HeapxError):
            second.stop()
        assert os.getpriority(os.PRIO_PROCESS, 0) == before and second.until_s is None
    finally:
        first.let_go()
        second._keeper.end()


def test_it_runs_on_and_priority_comes_back_though_its_threads_cannot_be_read(live: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is looked up last fails: nothing is left as it was in the stop."""
    before, target = os.getpriority(os.PRIO_PROCESS, 0), open_elf_target(pid=live.popen.pid)
    target.stop()

    def fails() -> Any:
        raise StopOver()

    monkeypatch.setattr(target, "threads", fails)
    with pytest.raises(StopOver):
        target.let_go()
    assert procfs.find_process_tracer(live.popen.pid) is None and not target.stands_still and target.stops == 1
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_thread_that_an_earlier_stop_could_not_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever holds it already is this process, and no security module: the thread waits in vfork or on a device."""
    monkeypatch.setattr(procfs, "find_process_tracer", lambda lwp: (os.getpid(), "gdbheapx"))
    refused = Tracer(os.getpid(), 1.0)._make_refusal(7)
    assert refused.code == ALREADY_TRACED and "thread 7" in refused.message and "vfork" in refused.message
    monkeypatch.setattr(procfs, "find_process_tracer", lambda lwp: (1, "gdb"))
    assert "gdb (pid 1)" in Tracer(os.getpid(), 1.0)._make_refusal(7).message


ROOT = Path(__file__).parents[3]
SECONDS = 60
NESTED = """
import os, signal
from gdbheapx.common.budget import Interrupts
from gdbheapx.inferior.live.tracer import DeferredSignals
heard = []
number = int(signal.%s)
with Interrupts(heard.append) as command:
    for _ in range(2):
        with DeferredSignals():
            pass
    with DeferredSignals():
        os.kill(os.getpid(), number)
        assert not heard
    assert command.heard == [number], command.heard
print("ended", len(heard))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_in_the_middle_of_a_call_is_heard_once_after_it(name: str) -> None:
    """By the command's own handler, which is in its place again; a handler that sent it to itself would never end."""
    done = subprocess.run([sys.executable, "-c", NESTED % name], cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)
    assert done.stdout == "ended 1\n", done.stderr
