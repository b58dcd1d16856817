"""Paths of a Lua program's values: the program itself evaluates them, and must get the same values. Lua 5.3 and 5.4, and a stripped program with
an interpreter in it.

Files: addons/runtimes/lua.py.
"""

import random
import shutil
import subprocess
from pathlib import Path
from typing import Iterator, NamedTuple

import pytest

from gdbheapx.addons.runtimes.lua import LUA_FUNCTION, STRINGS, LuaValues, find_lua_states
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.block import make_named_graph as made_graph
from gdbheapx.analysis.census.world import CensusTarget
from gdbheapx.analysis.reachability.paths import FIELD, NamedGraph
from gdbheapx.inferior.target import open_elf_target
from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.programs import need
from tests.support.tool import heapx

pytestmark = pytest.mark.wild  # an interpreter that may not be here

SAMPLES, LEAST_NAMED = 1000, 0.95
ODD = (
    *("truth words", "truth reserved", "truth quoted", "truth accent", "truth empty", "truth minus 14", "truth argument", "truth inner 7"),
    *("truth done first", "truth got"),
    *("truth true 14", "truth false", "truth half", "truth endless"),
)
"""What keys of every sort and some variables lead to: asked for always."""
PROGRAM = (Path(__file__).parents[1] / "programs" / "paths.lua").read_text()
EMBEDDING = (Path(__file__).parents[1] / "programs" / "embedding_lua.c").read_text()


PARTS = (
    ": done[", ": held[", "<upvalue seen>", "<metatable>", ": own[", ": rows[", ": argument", "package.loaded[",
    "debug.getregistry().own[", "_G.cache[",
)


class Sample(NamedTuple):
    """A value in the core."""

    node: int
    told: str
    """As the program tells it."""


def values(session: Session, graph: NamedGraph) -> Iterator[Sample]:
    """Strings that begin with `truth`; tables and functions, as tostring() shows them."""
    world = CensusTarget(session)
    (state,) = find_lua_states(world)
    reader = LuaValues(world, state.layout)
    for node, (address, _) in enumerate(graph.reach.graph.blocks(list(range(graph.reach.numbers.blocks)))):
        kind = reader.kind(address)
        text = reader.text(address) if kind in STRINGS else None
        if text is not None and text.startswith(b"truth "):
            yield Sample(node, text.decode())
        table = reader.table(address)
        if table is not None and (not table.metatable or reader.table(table.metatable)) and reader.words(table.nodes, 2):
            yield Sample(node, "table 0x%x" % address)
        elif kind == LUA_FUNCTION and reader.kind(reader.words(address, 4)[3]) == state.layout.proto:
            yield Sample(node, "function 0x%x" % address)


def check(process: Process) -> None:
    """The census has all tables and functions; of 1,000 values those that have a path are what the program finds there."""
    core = str(gcore(process))
    session = Session(open_elf_target(core=core))
    session.prepare()
    graph = made_graph(session)
    every = list(values(session, graph))
    rows = {row["signature"]: row["blocks"] for row in heapx(["--core", core], "census", "--json").data["rows"] if row["module"] == "lua"}
    for kind in ("table", "function"):
        assert rows[kind] == sum(sample.told.startswith(kind) for sample in every)
    samples = [sample for sample in every if sample.told in ODD]
    samples += random.Random(1).sample([sample for sample in every if sample not in samples], SAMPLES - len(samples))
    paths = [graph.paths.of(sample.node) for sample in samples]
    texts = ["" if path is None or any(step.kind == FIELD for step in path.steps) else path.text for path in paths]
    (process.folder / "paths").write_text("".join("%s\n" % text for text in texts))
    process.command(b"check\n")
    told = (process.folder / "told").read_bytes().decode().split("\0")
    assert [pair for pair in zip(texts, told) if pair[0]] == [(text, sample.told) for text, sample in zip(texts, samples) if text]
    assert sum(map(bool, texts)) >= LEAST_NAMED * SAMPLES
    assert {sample.told for text, sample in zip(texts, samples) if text} >= set(ODD)
    assert not [text for text in texts if "_G.weak[" in text], "a weak table keeps nothing"
    assert not [part for part in PARTS if not any(part in text for text in texts)]


def started(stage: Stage, *command: str) -> Process:
    """At rest, with the program behind these words."""
    folder = stage.folder()
    (folder / "program.lua").write_text(PROGRAM)
    return stage.spawn_ready([*command, str(folder / "program.lua"), str(folder)], folder)


@pytest.mark.parametrize("name", ["lua5.4", "lua5.3"])
def test_the_program_finds_its_values_by_them(stage: Stage, name: str) -> None:
    """Strings by their text, which each has alone; tables and functions by their address."""
    check(started(stage, need(name)))


def test_in_a_program_that_is_stripped(stage: Stage) -> None:
    """Nothing but what the interpreter says of itself is left: no symbol, no name of a file."""
    folder = stage.folder()
    (folder / "program.c").write_text(EMBEDDING)
    files = [str(folder / "service"), str(folder / "program.c")]
    command = ["cc", "-O2", "-s", "-I/usr/include/lua5.4", "-o", *files, "-l:liblua5.4.a", "-lm", "-ldl"]
    if shutil.which("cc") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("Lua's library is not installed")
    check(started(stage, str(folder / "service")))
