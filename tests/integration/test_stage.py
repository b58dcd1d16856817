"""The stage itself, without the tool: programs reach their state, and the kernel's cores are where the harness looks."""

import pytest

from tests.support.paths import GDB
from tests.support.processes import Stage
from tests.support.tool import run

pytestmark = pytest.mark.once  # every image has the tests of what is found in these states

STATES = {
    "recorder": ["1 2000 3", "9 500 3", "3 1500 2 subheaps"],
    "accounts": ["fresh", "one", "seven", "subheaps", "sbrk", "sbrk-last", "nobrk", "fast", "mmapped", "exit", "big-top"],
    "trimmer": ["main", "arenas", "fast", "untouched", "fork", "sbrk", "mmapped-main", "small-top"],
    "damage": [
        "none",
        "size",
        "size-thread",
        "bin-cycle",
        "bin-wild",
        "fast-cycle",
        "tcache-cycle",
        "tcache-wild",
        "top-size",
        "unmap-heap",
        "unmap-subheap",
        "unmap-page",
    ],
}


@pytest.mark.parametrize("name, arguments", [(name, arguments) for name, states in STATES.items() for arguments in states])
def test_program_reaches_its_state(stage: Stage, name: str, arguments: str) -> None:
    """Each program says "ready" in each of its states (accounts: after two equal accounts) and then waits."""
    process = stage.start(name, *arguments.split())
    assert process.popen.poll() is None
    assert name == "trimmer" or any(process.words())


def test_core_holds_the_heap(stage: Stage, core: str) -> None:
    """A kernel core of a program shows gdb the same main_arena.system_mem as the program's own mallinfo2."""
    process = stage.start("accounts", "one")
    outcome = run([GDB, "-nx", "-q", "-batch", process.executable, str(process.core()), "-ex", "print main_arena.system_mem"])
    assert b"= %d" % process.words()[0] in outcome.stdout, outcome.stderr


def test_live_process_shows_the_same(stage: Stage, live: str) -> None:
    """gdb attached to the program sees its main_arena.system_mem, and the program runs on after the detach."""
    process = stage.start("accounts", "one")
    outcome = run([GDB, "-nx", "-q", "-batch", "-p", str(process.pid), "-ex", "print main_arena.system_mem"])
    assert b"= %d" % process.words()[0] in outcome.stdout, outcome.stderr
    assert process.popen.poll() is None
