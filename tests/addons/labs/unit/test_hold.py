"""One stop of a process, taken by the C kernel: what it tells, and that the process goes on whatever happens to whoever asked for it.

Files: addons/labs/short_stop/running.py
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from typing import Any, Iterator, List, Sequence, Tuple

import pytest

from gdbheapx import kernel
from gdbheapx.addons.labs.short_stop.running import Hold, HoldOrder
from gdbheapx.app.stopping import copied_ranges
from gdbheapx.inferior.live import procfs
from gdbheapx.inferior.live.source import LiveSource
from gdbheapx.inferior.live.stopper import Stopper, wanted_sets
from gdbheapx.kernel.common.copy import CopiedRange, Copy

PROGRAM = """
import mmap, sys, threading, time
memory = mmap.mmap(-1, 32 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(0, len(memory), 4096): memory[page : page + 8] = page.to_bytes(8, "little")
for _ in range(int(sys.argv[1])): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
print("ready", flush=True)
begun = time.monotonic()
for line in sys.stdin:
    print(time.monotonic() - begun, flush=True)
    begun = time.monotonic()
"""
THREADS = 20


@pytest.fixture
def process() -> Iterator["subprocess.Popen[bytes]"]:
    """It has memory and threads that sleep; told so, it answers."""
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(THREADS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert program.stdout is not None
    program.stdout.readline()
    yield program
    program.kill()
    program.communicate()


def ready(pid: int, limit_s: float = 5.0) -> Tuple[LiveSource, Copy, Any, Hold]:
    """All that a stop needs."""
    source, compiled = LiveSource(pid), kernel.load_native_library()
    table = source.page_table()
    assert table is not None
    copy = compiled.copy(table)
    assert copy.prepare(ranges(maps(pid))) > 32 << 20
    layout, shown = source.header.arch.registers, source.header.arch.in_system_call
    if layout is None or shown is None:
        pytest.skip("not known of this machine")
    number, result = layout.names.index(shown.number), layout.names.index(shown.result)
    order = HoldOrder(pid, int(limit_s * 1e9), int(limit_s * 5e8), number, result, THREADS, len(maps(pid)), 2)
    return source, copy, compiled.open_apart(source.bulk_source()), Hold(compiled.library, order, wanted_sets(source.header))


def maps(pid: int) -> bytes:
    """Its mappings."""
    return procfs.slurp_file("/proc/%d/maps" % pid) or b""


def ranges(text: bytes) -> List[CopiedRange]:
    """What is copied of it."""
    return copied_ranges(procfs.parse_maps(os.fsdecode(text)), set(), set())


def goes_on(process: "subprocess.Popen[bytes]") -> bool:
    """It answers, and nobody traces it."""
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"\n")
    process.stdin.flush()
    return bool(process.stdout.readline()) and procfs.find_process_tracer(process.pid) is None


def test_it_tells_what_a_stop_of_the_keeper_tells(process: "subprocess.Popen[bytes]") -> None:
    """Threads, their registers, mappings and memory."""
    source, copy, bulk, hold = ready(process.pid)
    before = time.monotonic_ns()
    held = hold.take(copy, bulk, maps(process.pid), ranges(maps(process.pid)), ranges)
    assert held is not None and held.left is None and held.ended is None and held.maps == maps(process.pid)
    assert before < held.began_ns < time.monotonic_ns() and 0 < held.stopped_ms < 5000
    assert copy.taken.copied_bytes > 32 << 20
    keeper = Stopper(process.pid)
    keeper.stop()
    theirs = {lwp: keeper.register_sets(lwp, source.header) for lwp in keeper.held}
    keeper.let_go()
    assert set(theirs) == set(held.registers) and len(theirs) == THREADS + 1
    numbers = (1, *source.header.arch.vector_sets)
    assert {lwp: [sets[number] for number in numbers if sets[number]] for lwp, sets in held.registers.items()} == theirs
    assert goes_on(process)


def test_it_asks_where_mappings_are_others(process: "subprocess.Popen[bytes]") -> None:
    """It stands still until they are told."""
    _, copy, bulk, hold = ready(process.pid)
    asked: List[bytes] = []

    def find(text: bytes) -> Sequence[CopiedRange]:
        asked.append(text)
        assert procfs.read_process_status(process.pid)["State"].startswith("t")
        return ranges(text)

    held = hold.take(copy, bulk, b"of another time", [], find)
    assert held is not None and held.left is None and asked == [held.maps] == [maps(process.pid)]
    assert copy.taken.copied_bytes > 32 << 20 and goes_on(process)


@pytest.mark.parametrize("fails", [True, False])
def test_it_does_not_wait_for_ever(process: "subprocess.Popen[bytes]", fails: bool) -> None:
    """For an answer that does not come, or comes too late."""
    _, copy, bulk, hold = ready(process.pid, 0.2)

    def find(text: bytes) -> Sequence[CopiedRange]:
        if fails:
            raise ValueError(text)
        time.sleep(0.5)
        return ranges(text)

    if fails:
        with pytest.raises(ValueError):
            hold.take(copy, bulk, b"of another time", [], find)
        del hold
    else:
        assert hold.take(copy, bulk, b"of another time", [], find) is None
    assert goes_on(process)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_process_goes_on_without_who_asked(process: "subprocess.Popen[bytes]", number: int) -> None:
    """Who is killed, or stopped, while it stands still."""
    child = os.fork()
    if not child:
        try:
            _, copy, bulk, hold = ready(process.pid, 0.3)
            hold.take(copy, bulk, b"of another time", [], lambda text: os.kill(os.getpid(), number) or [])  # type: ignore[func-returns-value]
        finally:
            os._exit(0)
    os.waitpid(child, os.WUNTRACED)
    assert goes_on(process)
    deadline = time.monotonic() + 10
    while procfs.find_process_tracer(process.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert procfs.find_process_tracer(process.pid) is None
    if number == signal.SIGSTOP:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_what_is_traced_is_left_alone(process: "subprocess.Popen[bytes]") -> None:
    """By somebody else."""
    _, copy, bulk, hold = ready(process.pid)
    libc = ctypes.CDLL(None)
    libc.ptrace.argtypes = [ctypes.c_long] * 4
    assert libc.ptrace(0x4206, process.pid, 0, 0) == 0  # PTRACE_SEIZE
    assert hold.take(copy, bulk, maps(process.pid), ranges(maps(process.pid)), ranges) is None
    assert libc.ptrace(0x4207, process.pid, 0, 0) == 0
    os.waitpid(process.pid, 0x40000000)
    assert libc.ptrace(17, process.pid, 0, 0) == 0
    assert goes_on(process)
