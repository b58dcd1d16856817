"""Paths of names for objects of a Python service, held against what the service itself finds by them.

Files: addons/runtimes/cpython/objects.py, addons/runtimes/cpython/interpreter.py,
addons/runtimes/cpython/__init__.py, addons/runtimes/cpython/paths.py.
"""

import random
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any, Dict

import pytest

from gdbheapx.addons.runtimes.cpython import CPython
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import block
from gdbheapx.analysis.census.world import CensusTarget
from gdbheapx.analysis.reachability.paths import FRAME, MODULE, Hop, PathStep, Start, format_path
from gdbheapx.inferior.target import open_elf_target
from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.python_service import Service
from tests.support.walks import walk

pytestmark = pytest.mark.image  # depends on this Python's release and on libc's malloc
FRAMES = """
import sys, threading
def work(rows):
    mine = ["of a thread"]
    def inner(): return rows
    started.set(); never.wait()
started, never = threading.Event(), threading.Event()
threading.Thread(target=work, args=(["argument"],), daemon=True).start(); started.wait()
def serve(kept):
    print("ready", flush=True)
    sys.stdin.read()
serve({"kept": [1]})
"""


def opened(core: Path, **hide: Any) -> Session:
    """A session of that core."""
    session = Session(open_elf_target(core=str(core), **hide))
    session.prepare()
    return session


@pytest.mark.parametrize("malloc", ["", "malloc", "debug"])
def test_paths_lead_where_they_say(stage: Stage, malloc: str) -> None:
    """Of 1,000 random objects none is called what it is not, and 95 % have a name without an offset."""
    service = Service(stage, sys.executable, malloc)
    found = service.truth(block.make_named_graph(opened(gcore(service.process))))
    assert not found.wrong
    assert found.counts["named"] >= 0.95 * (len(service.objects) - found.counts["static"]) >= 800
    assert service.ask(service.objects[0][0], 'shop._cache["u:1"].items[3]') is False


def test_a_core_alone_has_names(stage: Stage, core: str) -> None:
    """Where the process's files are not here, modules tell what static types are called: none is called what it is not, and nine of ten have
    a name without an offset."""
    service = Service(stage, sys.executable)
    found = service.truth(block.make_named_graph(opened(gcore(service.process), sysroot=str(stage.folder()))))
    assert not found.wrong
    assert found.counts["named"] >= 0.9 * (len(service.objects) - found.counts["static"]) >= 800


@pytest.mark.once  # pure functions
def test_long_lists_have_short_names() -> None:
    """Turns are counted, of one step and of several; few are as the language writes them."""

    def text(*names: str) -> str:
        return format_path([PathStep("field", name, None) for name in names])

    assert (
        text("q", ".head", *[".next"] * 480, ".data") == "q.head.next x 480.data"
        and text("q", *[".next", ".other"] * 7, "[3]") == "q.next.other x 7[3]"
    )
    assert (
        text("q", *[".next"] * 4, *[".a", ".b"] * 2) == "q.next.next.next.next.a.b.a.b"
        and text(*(".%d" % number for number in range(9)))[-2:] == ".8"
    )


def starts(session: Session) -> Dict[str, Start]:
    """By what they are called."""
    world = CensusTarget(session)
    namer = CPython().namer(world)
    return {format_path(start.steps): start for start in namer.starts()}


def frames(stage: Stage) -> Process:
    """The program with a thread that waits in a function."""
    return stage.spawn_text("frames.py", FRAMES, [sys.executable, "-S", "frames.py"])


def test_modules_and_frames_begin_paths(stage: Stage, core: str) -> None:
    """Modules by their names in sys.modules, `__main__` last of them; variables of each thread with its number and function."""
    found = starts(opened(frames(stage).core()))
    modules = [name for name, start in found.items() if start.steps[0].kind == MODULE and len(start.steps) == 1]
    assert {"sys", "threading", "importlib._bootstrap"} & set(modules) >= {"sys", "threading"} and modules[-1] == "__main__"
    assert "builtins.dict.__dict__" in found or sys.version_info >= (3, 12)
    frames_ = [name for name, start in found.items() if start.steps[0].kind == FRAME]
    variables = {re.sub("^thread [0-9]+ ", "", name) for name in frames_}
    run = "frame Thread.run(): self" if sys.version_info >= (3, 11) else "frame run(): self"  # names had no class before
    assert {"frame serve(): kept", "frame work(): rows", "frame work(): mine", run} <= variables
    threads = {name.split(" frame ")[0] for name in frames_}
    assert len(threads) == 2 and all(re.fullmatch("thread [0-9]+", thread) for thread in threads)


def test_a_core_alone_has_modules(stage: Stage, core: str) -> None:
    """Where the process's files are not here, structure tells modules, their dicts and lists."""
    process = frames(stage)
    found = starts(opened(process.core(), sysroot=str(stage.folder())))
    assert {"sys", "threading", "__main__"} <= set(found)


@pytest.mark.parametrize("seed", range(2))
def test_damaged_memory_ends(stage: Stage, core: str, seed: int) -> None:
    """Whatever words say, every question is answered."""
    session = opened(frames(stage).core())
    world = CensusTarget(session)
    namer = CPython().namer(world)
    first = list(namer.starts())
    rng, read = random.Random(seed), world.read

    def damaged(address: int, size_bytes: int) -> bytes:
        data = bytearray(read(address, size_bytes))
        if data and rng.random() < 0.3:
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0xFF))
        return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.1 else data)

    world.read = damaged  # type: ignore[method-assign]
    list(namer.starts())
    blocks = [start.address for start in first]
    ends = [end for end in map(namer.live_end, ("generator", "coroutine", "frame")) if end is not None]
    for _ in range(500):
        hops = [
            Hop(rng.choice(blocks) - rng.choice((0, 16, 32)), 1 << rng.randrange(4, 12), None, partial(int, 8 * rng.randrange(70)))
            for _ in range(5)
        ]
        start = rng.choice(first)
        assert walk(namer, start, hops)[0] == start.steps[0]
        namer.contents(hops[0].address, hops[0].size_bytes, None)
        assert all(isinstance(end(hops[0].address), (int, type(None))) for end in ends)
