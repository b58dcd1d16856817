"""Memory of PHP, Ruby and Lua: what they have taken and use equals what they say, and damaged it makes no walk fail or go on for ever."""

import random
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from gdbheapx.addons.runtimes.lua import Lua
from gdbheapx.addons.runtimes.php import Php
from gdbheapx.addons.runtimes.ruby import Ruby
from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census.world import CensusTarget, Recogniser
from gdbheapx.analysis.reachability.paths import Hop, Namer, Start
from gdbheapx.inferior.target import open_elf_target
from tests.support.gcores import gcore
from tests.support.interpreters import releases, started
from tests.support.php_ruby import PHP, RUBY
from tests.support.processes import Process, Stage
from tests.support.tool import heapx
from tests.support.walks import walk

pytestmark = pytest.mark.wild  # interpreters that may not be here

LOOKS, MOST_SECONDS = 30, 20
SHARES = (0.002, 0.02, 0.2)
"""Of the reads that are damaged."""
MOST_STARTS = 100
SIGNATURES = ("Array", "Hash", "array", "string", "table", None)

LUA = """
rows = {}
for i = 1, 20000 do rows["r" .. i] = setmetatable({i, "text " .. i, function() return rows[i] end, {deep = i}}, {__mode = "k"}) end
local function waits(argument) local own = {argument, {argument}} io.write("ready\\n") io.flush() io.read() return own end
waits({"argument"})
"""


def damage(world: CensusTarget, random_: random.Random, share: float) -> None:
    """Of some reads a few bytes are others, and some end early."""
    read: Callable[[int, int], bytes] = world.read

    def damaged(address: int, size_bytes: int) -> bytes:
        data = bytearray(read(address, size_bytes))
        if data and random_.random() < share:
            at = random_.randrange(len(data))
            data[at : at + 8] = random_.choice((b"\xff" * 8, address.to_bytes(8, "little"), bytes(8), random_.randbytes(1)))[
                : len(data) - at
            ]
        return bytes(data[: random_.randrange(len(data) + 1)] if random_.random() < share / 4 else data)

    world.read = damaged  # type: ignore[method-assign]


def ask(namer: Namer, starts: List[Start], random_: random.Random) -> None:
    """For ways that go somewhere."""
    for start in starts[:MOST_STARTS]:
        ends = [random_.choice(starts).address for _ in range(2)]
        hops = [
            Hop(start.address, 56, random_.choice(SIGNATURES), partial(int, 8 * random_.randrange(7))),
            Hop(ends[0], 56, None, partial(int, 8 * random_.randrange(16))),
        ]
        for further in ([], [Hop(ends[1], 56, None, lambda: None)]):
            walk(namer, start, [*hops, *further])
        namer.contents(start.address, 56, random_.choice(SIGNATURES))


@pytest.mark.parametrize(
    "name, text, recogniser",
    [*((name, RUBY, Ruby) for name in releases("ruby")), *((name, PHP, Php) for name in releases("php")), ("lua5.4", LUA, Lua)],
)
def test_no_walk_fails(stage: Stage, name: str, text: str, recogniser: Callable[[], Recogniser]) -> None:
    """Of one core, damaged in other ways at each look."""
    process: Process = started(stage, name, text)
    session = Session(open_elf_target(core=str(gcore(process))))
    session.prepare()
    for seed in range(LOOKS):
        world, found, begun = CensusTarget(session), recogniser(), time.monotonic()
        damage(world, random.Random(seed), SHARES[seed % len(SHARES)])
        list(found.asks(world))
        for memory in found.inner(world):
            list(memory.blocks)
        namer = found.namer(world)
        if namer is not None:
            starts = list(namer.starts())
            list(namer.owns_nothing())
            ask(namer, starts, random.Random(seed)) if starts else None
        assert time.monotonic() - begun < MOST_SECONDS


NEAR = 0.01
"""Of the counts: what it says of itself takes objects, too."""


LIST_BYTES = (24, 32)
"""Of a zend_mm_huge_list, the latter from 8.6 on."""


def truth(process: Process) -> List[int]:
    return [int(word) for word in (process.folder / "truth").read_text().split()]


def targets(process: Process, folder: Path) -> List[List[str]]:
    """The process, and a core of it by gdb."""
    subprocess.run(["gcore", "-o", str(folder / "core"), str(process.pid)], check=True, stdin=subprocess.DEVNULL, capture_output=True)
    return [["--pid", str(process.pid)], ["--core", "%s.%d" % (folder / "core", process.pid)]]


def table(target: List[str], name: str) -> Dict[str, int]:
    """The runtime's table, which adds up to all memory; bytes by kind."""
    data = heapx(target, "report", "--deep", "--json").data
    (found,) = [one for one in data["runtimes"] if one["name"] == name]
    assert found["sum_bytes"] == data["memory"]["total_bytes"]
    sums: Dict[str, int] = {}
    for row in found["rows"]:
        sums[row["kind"]] = sums.get(row["kind"], 0) + row["bytes"]
    return sums


@pytest.mark.parametrize("php", releases("php"))
def test_php(stage: Stage, php: str) -> None:
    """memory_get_usage(), to the byte of the call before, and in it the list of what has a mapping of its own: a long array and a long text
    at least."""
    process = started(stage, php, PHP)
    used, taken = truth(process)
    for target in targets(process, process.folder):
        (managed,) = heapx(target, "census", "--json").data["managed"]
        assert any(managed["overhead_bytes"] in range(2 * size, 9 * size, size) for size in LIST_BYTES)
        assert (managed["module"], managed["taken_bytes"]) == ("php", taken)
        assert abs(managed["used_bytes"] + managed["overhead_bytes"] - used) < 64 << 10
        assert table(target, "PHP")["runtime-used"] == managed["used_bytes"]


@pytest.mark.parametrize("ruby", releases("ruby"))
def test_ruby(stage: Stage, ruby: str) -> None:
    """Pages and slots as GC.stat and ObjectSpace count them; each Hash has its table."""
    process = started(stage, ruby, RUBY)
    pages, slots, free, hashes, strings, slot_bytes, page_bytes, has_transient = truth(process)
    for target in targets(process, process.folder):
        data: Any = heapx(target, "census", "--json").data
        managed, *transient = data["managed"]
        assert len(transient) == has_transient
        for memory in transient:
            assert memory["taken_bytes"] == 32 << 20 and memory["used_bytes"] > 0 < memory["free_bytes"]
        assert managed["taken_bytes"] == pages * page_bytes and managed["used_bytes"] + managed["free_bytes"] == slot_bytes
        rows = {row["signature"]: row["blocks"] for row in data["rows"] if row["module"] == "ruby"}
        assert abs(rows["Hash"] - hashes) <= NEAR * hashes and abs(rows["String"] - strings) <= 2 * NEAR * strings
        if has_transient:  # since then slots are as large as what is in them
            assert rows["table of a Hash"] >= 100000 and rows["characters"] >= 100000
            assert table(target, "Ruby")["malloc-owned"] > 100000 * (136 + 40)


WEB = (Path(__file__).parents[1] / "programs" / "web.rb").read_text()


def test_objects_that_all_lead_to_each_other(stage: Stage) -> None:
    """No one owns them: the variable from which the shortest ways lead there is told."""
    process = started(stage, "ruby", WEB)
    for target in targets(process, process.folder):
        data = heapx(target, "owners", "--json").data
        assert 5 * data["shared_bytes"] > 2 * data["used"]["bytes"]
        first = data["together"][0]
        assert first["owner"].startswith("TOPLEVEL_BINDING") and first["reached_bytes"] > 60000 * 80, data["together"]
