"""What purge and tickers --cure refuse because of jemalloc's own state, provoked for real.

Files: jemalloc/allocator.py, jemalloc/entry.py.
"""

import os
import signal
import time
from pathlib import Path
from typing import Any, Iterator, Tuple

import pytest

from gdbheapx import kernel as kernels
from gdbheapx.common.budget import Budget
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.jemalloc.allocator import JemallocMalloc
from gdbheapx.jemalloc.entry import ALLOCATOR
from tests.support import jemallocs
from tests.support.heap_contexts import heap_context
from tests.support.jemalloc_states import BUGGY, at_rest, blind_process, verdicts
from tests.support.jemallocs import unknown_library
from tests.support.processes import Process, Stage
from tests.support.tool import heapx
from tests.support.victims import Parked, check_free, refusal, status, until

pytestmark = pytest.mark.once  # the gdb and the jemalloc of one machine are enough for these sentences

TRIES = 5
LOOKS = 2000
RESTING = ("35", "202", "230")
"""nanosleep, futex and clock_nanosleep."""


def model(process: Process) -> JemallocMalloc:
    """The tool's own view of it, while it runs."""
    target = open_elf_target(pid=process.pid)
    return JemallocMalloc(ALLOCATOR.find(target).located[0], heap_context(target, kernels.load_native_library(), Budget(), lambda *problem, **more: None))  # type: ignore[arg-type]


def exchange(process: Process, address: int, data: bytes) -> bytes:
    """Other bytes at an address; those that were there."""
    with open("/proc/%d/mem" % process.pid, "r+b", buffering=0) as memory:
        memory.seek(address)
        before = memory.read(len(data))
        memory.seek(address)
        memory.write(data)
    return before


def slab_of(malloc: JemallocMalloc) -> int:
    """Address of the e_bits of a slab that is in use."""
    context, jemalloc = malloc.context, malloc.context.jemalloc
    arena = next(one for one in malloc.arena_list() if one.index == 1)
    _, slabcur = jemalloc.find_current_slabs(arena.address)[0]
    place = context.types.place(context.geometry.extent_struct, "e_bits")
    return context.target.read_word(slabcur) + place.offset


def test_damage(stage: Stage, live: str) -> None:
    """An extent whose arena index cannot be: a purge could end the process. Once it is healed, the purge is made."""
    process = at_rest(stage)
    malloc = model(process)
    place, field = slab_of(malloc), malloc.context.geometry.fields["arena"]
    bits = malloc.context.target.read_word(place) & ~((1 << field.width) - 1 << field.shift)
    unused = (1 << field.width) - 2  # all ones stand for no arena
    before = exchange(process, place, (bits | unused << field.shift).to_bytes(8, "little"))
    line = refusal(heapx(["--pid", str(process.pid)], "purge", "--yes", "--wait", "3"))
    assert "damage" in line or "holds an arena" in line, line
    exchange(process, place, before)
    assert heapx(process.target(live), "purge", "--yes", "--json").data["returned"] == 0
    check_free(process)
    process.command(b"x")


@pytest.mark.parametrize("name", ["je521.so", "mylibjemalloc.so.2"])
def test_a_copy_by_another_name(stage: Stage, live: str, name: str) -> None:
    """A jemalloc is recognised by what it offers, not by the name of its file: a purge is done, and its dry run promises it."""
    copy = stage.folder() / name
    copy.write_bytes(jemallocs.library().read_bytes())
    parked = Parked(stage.start("victim_parked", "idle", env={"LD_PRELOAD": str(copy)}))
    assert heapx(["--pid", str(parked.pid)], "purge", "--dry-run", "--json").data["way"] == "none"
    assert heapx(["--pid", str(parked.pid)], "purge", "--yes", "--json").data["returned"] == 0
    parked.go()


def test_a_jemalloc_without_names(stage: Stage, live: str) -> None:
    """Found by its structure alone it shows no global lock: nothing is called."""
    copy = unknown_library(stage.folder())
    parked = Parked(stage.start("victim_parked", "idle", env={"LD_PRELOAD": str(copy)}))
    line = refusal(heapx(["--pid", str(parked.pid)], "purge", "--yes"))
    assert str(copy) in line and "global locks" in line and "--debug-dir DIR" in line
    parked.go()


@pytest.fixture
def blind(stage: Stage, live: str) -> Iterator[Tuple[Process, int, int]]:
    """A process, its first blind thread and one that ticks."""
    process = blind_process(stage, BUGGY)
    before = verdicts(process)
    yield process, *(next(lwp for lwp, one in before.items() if one == verdict) for verdict in ("blind", "ticking"))
    after = verdicts(process)
    assert after == before, "something was cured after all"
    process.command(b"w")


@pytest.mark.rust
def test_cure_of_a_thread_that_is_not_there(blind: Any) -> None:
    """The line names it."""
    process, _, _ = blind
    line = refusal(heapx(["--pid", str(process.pid)], "tickers", "--cure", "--thread", "999999999", "--yes"))
    assert "thread 999999999 not found" in line


@pytest.mark.rust
def test_cure_of_a_healthy_thread(blind: Any) -> None:
    """There is nothing to cure, and its verdict is told."""
    process, _, healthy = blind
    line = refusal(heapx(["--pid", str(process.pid)], "tickers", "--cure", "--thread", str(healthy), "--yes"))
    assert str(healthy) in line and "not blind" in line and "ticking" in line


def stop_at_work(process: Process, lwp: int) -> None:
    """Job control stops the process where this thread is in none of the system calls that it rests in: nearly all it does is malloc and free."""
    for _ in range(LOOKS):
        os.kill(process.pid, signal.SIGSTOP)
        until(lambda: status(lwp, "State").startswith("T"), lambda: "does not stop", process)
        if Path("/proc/%d/task/%d/syscall" % (process.pid, lwp)).read_text().split()[0] not in RESTING:
            return
        os.kill(process.pid, signal.SIGCONT)
        time.sleep(0.001)
    raise AssertionError("thread %d is never at work" % lwp)


@pytest.mark.rust
def test_cure_inside_jemalloc(stage: Stage, live: str) -> None:
    """A blind thread that is inside jemalloc at the only look is left alone; it is cured when it is met outside."""
    for _ in range(TRIES):
        process = blind_process(stage, BUGGY, work_ms=8000)
        lwp = min(lwp for lwp, one in verdicts(process).items() if one == "blind")
        process.send(b"w")
        stop_at_work(process, lwp)
        words = ["tickers", "--cure", "--thread", str(lwp), "--yes", "--wait"]
        outcome = heapx(["--pid", str(process.pid)], *words, "0")
        os.kill(process.pid, signal.SIGCONT)
        if outcome.code == 1:
            break
    line = refusal(outcome)
    assert str(lwp) in line and "inside jemalloc" in line
    process.wait_ready()
    assert heapx(["--pid", str(process.pid)], *words, "200").code in (0, 3)
    assert verdicts(process)[lwp] == "ticking"
    check_free(process)
