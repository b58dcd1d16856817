"""A userfaultfd of a process that lives: what it is good for, what the process notices of it, and who is left when somebody is killed.

Files: addons/labs/short_stop/userfaultfd.py, addons/labs/short_stop/injector.py, addons/labs/short_stop/x86_64.py.
"""

import ctypes
import fcntl
import os
import random
import resource
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, List, Tuple

import pytest

from gdbheapx.addons.labs.short_stop import injector, userfaultfd
from gdbheapx.common.errors import HeapxError
from gdbheapx.common.problems import NO_SHORT_STOP
from gdbheapx.inferior.live import procfs, seccomp
from gdbheapx.inferior.target import open_elf_target
from tests.support.injections import is_well, started, state
from tests.support.processes import Process, Stage
from tests.support.victims import Parked, check_free, until

pytestmark = pytest.mark.once  # a container forbids userfaultfd

BESIDE = ("beside",)
PLACES_AND_MORE = [("read", ()), ("nanosleep", BESIDE), ("poll", ()), ("futex", BESIDE), ("epoll", ()), ("vectors", ()), ("vectors", BESIDE)]
"""Where the thread is that makes the call, alone or with a thread at work beside it."""
PLACE_NAMES = [where + "-beside" * bool(more) for where, more in PLACES_AND_MORE]
REGISTER, WRITE_PROTECT = 0xC020AA00, 0xC018AA06
WP = 2
PAGE = resource.getpagesize()
RANDOM_KILLS = int(os.environ.get("GDBHEAPX_RANDOM_KILLS", "10"))


@pytest.fixture(autouse=True)
def possible(live: str) -> None:
    """Only where the kernel has all of it."""
    lacking = userfaultfd.find_lacking_injection()
    if lacking:
        pytest.skip(lacking)


@pytest.mark.parametrize(("where", "more"), PLACES_AND_MORE, ids=PLACE_NAMES)
def test_the_process_notices_nothing(stage: Stage, where: str, more: Tuple[str, ...]) -> None:
    """Wherever its threads are, twenty times: the same descriptors, masks, registers and answers of system calls. On a slow machine a few are
    refused."""
    if where == "poll" and not more and os.uname().machine == "aarch64":
        pytest.skip("its only thread waits for nothing but a time or a signal, and is left alone there")
    process = started(stage, where, *more)
    before, refusals = state(process), []
    for _ in range(20):
        try:
            descriptor, stopped_ms, _ = userfaultfd.take_descriptor(process.pid)
        except HeapxError as error:
            refusals.append(str(error))
            continue
        assert os.readlink("/proc/self/fd/%d" % descriptor) == "anon_inode:[userfaultfd]"
        assert not os.get_blocking(descriptor) and not os.get_inheritable(descriptor)
        os.close(descriptor)
        assert stopped_ms > 0
        time.sleep(random.random() * 0.004)
    assert len(refusals) <= 2, refusals
    is_well(process, before)


def test_it_sees_writes(stage: Stage) -> None:
    """With it the process's memory is protected and its writes are told, while it runs."""
    process = started(stage, "nanosleep", env={"PADDING": "x" * 2 * PAGE})  # a page of its own: others hold the stack that is in use
    descriptor = userfaultfd.take_descriptor(process.pid)[0]
    heap = next(one for one in procfs.read_process_maps(process.pid) if one.name == "[stack]")
    place = (procfs.find_words_range(process.pid, procfs.ENVIRONMENT) or (0, 0))[0] + PAGE - 1 & -PAGE
    assert heap.start <= place < heap.end
    fcntl.ioctl(descriptor, userfaultfd.API, struct.pack("QQQ", userfaultfd.API_VERSION, userfaultfd.ASYNC | userfaultfd.UNPOPULATED, 0))
    fcntl.ioctl(descriptor, REGISTER, struct.pack("QQQQ", place, PAGE, WP, 0))
    fcntl.ioctl(descriptor, WRITE_PROTECT, struct.pack("QQQ", place, PAGE, 1))
    assert not written(process.pid, place)
    with open("/proc/%d/mem" % process.pid, "r+b", buffering=0) as memory:
        there = os.pread(memory.fileno(), 1, place)
        os.pwrite(memory.fileno(), there, place)
    assert written(process.pid, place)
    os.close(descriptor)


def written(pid: int, place: int) -> bool:
    """Whether PAGEMAP_SCAN finds the page written to."""
    regions = ctypes.create_string_buffer(24)
    words = (userfaultfd.SCAN_BYTES, 0, place, place + PAGE, 0, ctypes.addressof(regions), 1, 0, 0, 2, 0, 2)
    with open("/proc/%d/pagemap" % pid, "rb", buffering=0) as pagemap:
        return fcntl.ioctl(pagemap, userfaultfd.PAGEMAP_SCAN, bytearray(struct.pack("12Q", *words))) == 1


# ---------------------------------------------------------------------------------------------------- killed


def killed_at(prepared: injector.Prepared, place: int) -> bool:
    """A child injects and is killed before its place-th call of ptrace from the stop on; whether it came so far."""
    child = os.fork()
    if not child:
        try:
            counted: List[int] = []
            original = injector.Injector._call_ptrace

            def call(self: injector.Injector, *words: int) -> int:
                counted.append(1)
                if len(counted) > place:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(self, *words)

            injector.Injector._call_ptrace = call  # type: ignore[method-assign, assignment]
            injector.inject_calls(prepared)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


@pytest.mark.parametrize(("where", "more"), PLACES_AND_MORE, ids=PLACE_NAMES)
def test_killed_before_each_step(stage: Stage, where: str, more: Tuple[str, ...]) -> None:
    """Who holds it is killed between any two things that it does: the process closes the descriptor, has its registers and mask, and goes on."""
    process = started(stage, where, *more)
    before, prepared, place = state(process), userfaultfd.require_injection(process.pid), 0
    while killed_at(prepared, place):
        is_well(process, before)
        place += 1
    assert place >= 15  # a single thread takes 22 calls
    is_well(process, before)


@pytest.mark.parametrize("where, what", [("read", "alone"), ("vectors", "call")])
def test_it_does_not_stand_for_long(stage: Stage, where: str, what: str) -> None:
    """A thread that does not come to its next step, and a call that does not end: the attempt is given up, or the alarm ends who makes it."""
    process = started(stage, where)
    before, prepared = state(process), userfaultfd.require_injection(process.pid)
    for place in range(8, 19):
        status = hindered_at(prepared, place, what)
        for _ in range(20):
            if what == "alone" or os.WIFSIGNALED(status):
                break
            status = hindered_at(prepared, place, what)  # at load it was given up before
        if what == "call":
            assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
        else:
            assert os.WIFEXITED(status) and os.WEXITSTATUS(status) in (GIVEN_UP, TAKEN), "taken where no step was left to wait for"
        is_well(process, before)


GIVEN_UP, TAKEN = 2, 3


def hindered_at(prepared: injector.Prepared, place: int, what: str) -> int:
    """How a child ends that makes one attempt, in which the thread answers no more after this call, or the call itself does not end."""
    child = os.fork()
    if not child:
        counted: List[int] = []
        original = injector.Injector._call_ptrace, injector.Injector._wait_for

        def call(self: injector.Injector, *words: int) -> int:
            counted.append(1)
            if len(counted) == place and what == "call" and signal.getitimer(signal.ITIMER_REAL)[0]:  # or it was given up
                os.read(os.pipe()[0], 1)
            return original[0](self, *words)

        def wait_for(self: injector.Injector, lwp: int) -> Tuple[int, int]:
            late = len(counted) >= place and self.stopped_ms is None and what == "alone"
            return (0, 0) if late else original[1](self, lwp)

        injector.Injector._call_ptrace, injector.Injector._wait_for = call, wait_for  # type: ignore[method-assign, assignment]
        injector.LOOKS = 1
        try:
            injector.inject_calls(prepared)
            os._exit(TAKEN)
        except HeapxError:
            os._exit(GIVEN_UP)
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("whom", ["tool", "both"])
def test_killed_at_random(stage: Stage, whom: str) -> None:
    """The tool alone, whose helper then ends what it has begun; and the helper that holds the process, with it: at any instant."""
    process = started(stage, "read", "beside")
    before, prepared = state(process), userfaultfd.require_injection(process.pid)
    for _ in range(RANDOM_KILLS):
        child = os.fork()
        if not child:
            try:
                while True:
                    if whom == "both":
                        os.close(injector.inject_calls(prepared)[0])
                    else:
                        os.close(userfaultfd.take_descriptor(process.pid)[0])
            finally:
                os._exit(0)
        time.sleep(random.random() * 0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        is_well(process, before)


# ---------------------------------------------------------------------------------------------------- refused


def refusal(process: Process, **given: Any) -> str:
    """What is said, by the dry run and by the injection itself; the process is as it was."""
    before = state(process)
    with pytest.raises(HeapxError) as said:
        userfaultfd.check_injection(open_elf_target(pid=process.pid), **given)
    with pytest.raises(HeapxError) as again:
        userfaultfd.take_descriptor(process.pid, **given)[0]
    assert said.value.code == again.value.code == NO_SHORT_STOP and said.value.message == again.value.message and said.value.hint
    assert state(process) == before
    return said.value.message


def test_no_descriptor_is_left(stage: Stage) -> None:
    """A process that has as many descriptors as it may is not asked for one more."""
    process = started(stage, "nanosleep")
    resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (len(state(process)[0]), 4096))
    assert "has all 3 descriptors open" in refusal(process)


def test_stopped_by_somebody(stage: Stage) -> None:
    """A process that was stopped by a signal stays so."""
    process = started(stage, "nanosleep")
    os.kill(process.pid, signal.SIGSTOP)
    until(lambda: procfs.read_process_status(process.pid)["State"][0] == "T", lambda: "it does not stop", process)
    assert "is stopped" in refusal(process)
    os.kill(process.pid, signal.SIGCONT)
    check_free(process)


PYTHON = """
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
FILES, CHILD, RING, CLONE = 0x400, 17, 425, 220 if os.uname().machine == "aarch64" else 56
begun = threading.Event()
def beside():
    if %(where)r == "thread":
        assert not libc.unshare(FILES)
    begun.set()
    while True:
        time.sleep(60)
if %(where)r == "process" and not libc.syscall(CLONE, FILES | CHILD, 0, 0, 0, 0):
    os.read(0, 1)
    os._exit(0)
if %(where)r == "ring":
    assert libc.syscall(RING, 8, ctypes.create_string_buffer(256)) >= 0
if %(where)r == "thread":
    threading.Thread(target=beside, daemon=True).start()
    begun.wait()
os.write(1, b"ready\\n")
while True:
    libc.nanosleep((ctypes.c_long * 2)(60, 0), None) if %(where)r != "thread" else os.read(0, 1)
"""


def python(stage: Stage, where: str) -> Process:
    """One that does this."""
    return stage.spawn_ready([sys.executable, "-c", PYTHON % {"where": where}])


def test_descriptors_in_common(stage: Stage) -> None:
    """Of a table that another process has as well, the number that is free may be taken by that one."""
    assert "has its descriptors in common with process" in refusal(python(stage, "process"))


def test_memory_in_common(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose memory somebody else writes to meanwhile is refused; and if it were not, what it has put into its code is not run: a sandboxed
    one does not get out at five looks."""
    if os.uname().machine != "x86_64":
        pytest.skip("its code is x86-64's")
    escaped = stage.folder() / "escaped"
    process = stage.start("sandboxed", str(escaped))
    for _ in range(5):
        with pytest.raises(HeapxError, match="has its memory in common with process") as said:
            userfaultfd.take_descriptor(process.pid)
        assert said.value.code == NO_SHORT_STOP
    known = injector.is_same_resource
    monkeypatch.setattr(injector, "is_same_resource", lambda pid, other, kind: kind != injector.KCMP_VM and known(pid, other, kind))
    for _ in range(5):
        try:
            os.close(userfaultfd.take_descriptor(process.pid)[0])
        except HeapxError as refused:
            assert refused.code == NO_SHORT_STOP
        assert not escaped.exists() and process.popen.poll() is None


FOREIGN = b"\x31\xff\xb8\x20\0\0\0\x0f\x05\xc3"
"""xor %edi, %edi; mov $SYS_dup, %eax; syscall; ret"""


@pytest.mark.parametrize("call", ["userfaultfd", "close"])
def test_foreign_calls_are_cancelled(stage: Stage, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Where its code is another one by the time that it runs, the call is not made, and the process goes on as it was; a userfaultfd that it does
    not close is left to it."""
    if os.uname().machine != "x86_64":
        pytest.skip("the code is x86-64's")
    process = started(stage, "read", "beside")
    before, enter, cancelled = state(process), injector.Injector._enter_syscall, 0

    def enter_changed(self: injector.Injector, lwp: int, name: str, argument: int) -> str:
        place = self._prepared.code
        there = os.pread(self._memory, len(FOREIGN), place)
        if name == call:
            os.pwrite(self._memory, FOREIGN, place)
        try:
            return enter(self, lwp, name, argument)
        finally:
            os.pwrite(self._memory, there, place)

    monkeypatch.setattr(injector.Injector, "_enter_syscall", enter_changed)
    for _ in range(50):  # a slow machine refuses some for the time that it takes
        with pytest.raises(HeapxError) as said:
            userfaultfd.take_descriptor(process.pid)
        assert said.value.code == NO_SHORT_STOP
        cancelled += "it was cancelled" in said.value.message
        if call == "userfaultfd":
            is_well(process, before)
        if cancelled == 5:
            break
    links = list(state(process)[0].values())
    assert cancelled == 5 and [link for link in links if link != injector.USERFAULTFD] == list(before[0].values())
    rounds = process.words()[0]
    until(lambda: process.words()[0] > rounds + 3, lambda: "it does not go on", process)
    assert process.words()[1] == 0


def test_filters_that_allow_stay_in_force(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter is set aside only if it would refuse one of the calls."""
    if not seccomp.may_fetch():
        pytest.skip("filters are read with CAP_SYS_ADMIN and outside any filter")
    options: List[int] = []
    original = injector.Injector._call_ptrace

    def call(self: injector.Injector, request: int, lwp: int, address: int = 0, data: int = 0) -> int:
        if request == injector.PTRACE_SETOPTIONS:
            options.append(data)
        return original(self, request, lwp, address, data)

    monkeypatch.setattr(injector.Injector, "_call_ptrace", call)
    for rule, is_set_aside in (("kill-personality", False), ("list-kill", True)):
        process = stage.start("filtered", rule)
        del options[:]
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
        try:
            os.close(
                injector.inject_calls(userfaultfd.require_injection(process.pid))[0]
            )  # what the helper does, and without an alarm where there are filters
        except HeapxError as late:
            assert options, late
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        assert bool(options[0] & injector.SUSPEND_SECCOMP) == is_set_aside
        process.command(b"c")


def test_a_thread_with_its_own_descriptors(stage: Stage) -> None:
    """It is left alone; another one makes the call."""
    process = python(stage, "thread")
    before = state(process)
    for _ in range(20):
        os.close(userfaultfd.take_descriptor(process.pid)[0])
    assert state(process) == before
    other = next(lwp for lwp in procfs.list_thread_ids(process.pid) if lwp != process.pid)
    assert injector.is_same_resource(process.pid, other, injector.KCMP_FILES) is False


def test_a_ring(stage: Stage) -> None:
    """A process with io_uring, for which the kernel may open files while all stand."""
    try:
        process = python(stage, "ring")
    except AssertionError as without:
        pytest.skip("no io_uring here: %s" % without)
    assert "uses io_uring" in refusal(process)


def test_the_main_thread_has_ended(stage: Stage) -> None:
    """/proc/PID shows nothing of such a process."""
    process = stage.start("main_ended")
    until(lambda: procfs.is_over(process.pid, process.pid), lambda: "its main thread runs", process)
    with pytest.raises(HeapxError, match="main thread of process %d has ended" % process.pid) as said:
        userfaultfd.take_descriptor(process.pid)
    assert said.value.code == NO_SHORT_STOP


def test_vfork(stage: Stage) -> None:
    """Neither the child in its parent's memory nor the parent that waits for it."""
    parked = Parked(stage.start("victim_parked", "vfork"))
    for pid in (parked.child, parked.pid):
        with pytest.raises(HeapxError, match="vfork") as said:
            userfaultfd.take_descriptor(pid)
        assert said.value.code == NO_SHORT_STOP
    parked.go()


def test_a_32_bit_program(stage: Stage, tmp_path: Path) -> None:
    """Its registers and calls are others."""
    (tmp_path / "waits.c").write_text('#include <unistd.h>\nint main(void) { write(1, "ready\\n", 6); pause(); return 0; }\n')
    made = subprocess.run(["gcc", "-m32", "-w", "-o", "waits", "waits.c"], cwd=tmp_path, capture_output=True, text=True)
    if made.returncode:
        pytest.skip("gcc makes no 32-bit programs here: " + made.stderr[-200:])
    process = stage.spawn_ready([str(tmp_path / "waits")])
    assert "is no program of i386:x86-64" in refusal(process)


def test_not_permitted(stage: Stage) -> None:
    """Somebody else's process: the same refusal as for a look."""
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    process = started(stage, "nanosleep")
    before, (reading, writing) = state(process), os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setresuid(65534, 65534, 65534)
            userfaultfd.take_descriptor(process.pid)
        except HeapxError as error:
            os.write(writing, ("%s %s" % (error.code, error.message)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading) as told:
        text = told.read()
    os.waitpid(child, 0)
    assert text.startswith(str(NO_SHORT_STOP)) and "%d" % process.pid in text, text
    is_well(process, before)


def test_somebodys_userfaultfd(stage: Stage) -> None:
    """Memory that somebody watches already is left to him."""
    process = started(stage, "nanosleep")
    descriptor = userfaultfd.take_descriptor(process.pid)[0]
    stack = next(one for one in procfs.read_process_maps(process.pid) if one.name == "[stack]")
    fcntl.ioctl(descriptor, userfaultfd.API, struct.pack("QQQ", userfaultfd.API_VERSION, userfaultfd.ASYNC | userfaultfd.UNPOPULATED, 0))
    fcntl.ioctl(descriptor, REGISTER, struct.pack("QQQQ", stack.start, stack.end - stack.start, WP, 0))
    assert "has memory under a userfaultfd already" in refusal(process)
    os.close(descriptor)
    os.close(userfaultfd.take_descriptor(process.pid)[0])


def test_filters_that_kill(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter that kills for what it does not list is set aside for the two calls, and is in force again; without that right, nothing is done."""
    process = stage.start("filtered", "list-kill")
    before = state(process)
    if seccomp.may_fetch():
        os.close(userfaultfd.take_descriptor(process.pid)[0])
        process.command(b"c")
        assert state(process)[0] == before[0] and seccomp.read_seccomp_rules(process.pid).mode == seccomp.FILTER
    monkeypatch.setattr(seccomp, "may_fetch", lambda: False)
    assert "is under seccomp filters" in refusal(process)
    process.command(b"c")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"VmFlags: rd wr mr mw me ac uw \n", "userfaultfd already"),
        (b"VmFlags: rd wr mr mw me ss \n", "shadow stack"),
        (b"AnonHugePages:  999424 kB\n", "976 MiB in huge pages"),
    ],
)
def test_memory_that_forbids_it(monkeypatch: pytest.MonkeyPatch, text: bytes, words: str) -> None:
    """What smaps tells against it; huge pages may be accepted."""
    monkeypatch.setattr(procfs, "slurp_file", lambda path: text)
    with pytest.raises(HeapxError, match=words) as said:
        userfaultfd._ask_memory(1, False)
    assert said.value.code == NO_SHORT_STOP
    if b"Huge" in text:
        userfaultfd._ask_memory(1, True)


def test_what_is_no_process(stage: Stage) -> None:
    """A core has no stops."""
    with pytest.raises(HeapxError) as said:
        userfaultfd.check_injection(open_elf_target(core=str(started(stage, "nanosleep").core())))
    assert said.value.code == NO_SHORT_STOP
