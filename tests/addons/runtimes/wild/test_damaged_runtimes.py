"""Ruby's, PHP's and Lua's memory with bytes that changed, or are missing: no walk fails or goes on for ever, whatever is told."""

import random
import time
from functools import partial
from typing import Callable, List

import pytest

from gdbheapx.addons.runtimes.lua import Lua
from gdbheapx.addons.runtimes.php import Php
from gdbheapx.addons.runtimes.ruby import Ruby
from gdbheapx.analysis.census.world import Recogniser, World
from gdbheapx.analysis.reachability.paths import Hop, Namer, Start
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.session import Session
from tests.support.gcores import gcore
from tests.support.interpreters import releases, started
from tests.support.php_ruby import PHP, RUBY
from tests.support.processes import Process, Stage
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


def damage(world: World, random_: random.Random, share: float) -> None:
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
        world, found, begun = World(session), recogniser(), time.monotonic()
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
