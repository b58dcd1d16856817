"""What one command prints another knows: each address that census, report, owners, leaks and pins name is known to whatis and refs."""

import sys
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from tests.support.jemallocs import library as jemalloc
from tests.support.processes import Process, Stage
from tests.support.tool import answers

pytestmark = pytest.mark.image  # whose blocks there are hangs on the release's own Python

SERVICE = """
class Order:
    def __init__(self, number):
        self.number, self.items = number, [number, number + 1]
cache = {"k%d" % n: Order(n) for n in range(3000)}
large = [bytearray(40000) for n in range(20)]
print("ready", flush=True)
input()
"""
NAMES = ("sample", "address", "block")
"""Members that name a block."""
SOURCES = ("census", "report --deep", "owners --depth 3", "leaks", "pins")
MOST = 3
"""Of each source: from the first, the last and between."""


def python(stage: Stage, **env: str) -> Process:
    """A service of the machine's own Python."""
    return stage.spawn_ready([sys.executable, "-c", SERVICE], env=env or None)


PROGRAMS: Dict[str, Callable[[Stage], Process]] = {
    "python": python,
    "python-on-jemalloc": lambda stage: python(stage, LD_PRELOAD=str(jemalloc()), PYTHONMALLOC="malloc"),
    "classes": lambda stage: stage.start("classes"),
}


def addresses(data: Any) -> Iterator[str]:
    """Of blocks, wherever they stand in an answer."""
    if isinstance(data, dict):
        for name, value in data.items():
            if name in ("arenas", "heaps"):
                continue
            is_stack = data.get("kind") == "thread"  # it owns blocks, and is none
            if name in NAMES and isinstance(value, str) and value.startswith("0x") and not is_stack:
                yield value
            yield from addresses(value)
    elif isinstance(data, list):
        for one in data:
            yield from addresses(one)


def chosen(data: Any) -> List[str]:
    """Some of them."""
    every = list(dict.fromkeys(addresses(data)))
    return every[:: max(1, -(-len(every) // MOST))]


@pytest.mark.parametrize("kind, name", [("live", "python"), *(pytest.param(*pair, marks=pytest.mark.once) for pair in (("core", "classes"), ("live", "python-on-jemalloc")))])
def test_addresses_are_known_everywhere(stage: Stage, request: pytest.FixtureRequest, kind: str, name: str, tmp_path: Path) -> None:
    """No command says that there is nothing where another has seen a block; refs takes no mapping for it, and its size is whatis'."""
    request.getfixturevalue(kind)
    process = PROGRAMS[name](stage)
    target = process.target(kind)
    named: List[Tuple[str, str]] = []
    for source, envelope in zip(SOURCES, answers(target, tmp_path, *SOURCES)):
        named += [(source, address) for address in chosen(envelope["data"])]
    assert {source for source, _ in named} >= {"census", "owners --depth 3"}
    every = list(dict.fromkeys(address for _, address in named))
    places = dict(zip(every, (one["data"] for one in answers(target, tmp_path, *("whatis --no-holders %s" % one for one in every)))))
    blocks: Dict[str, int] = {}
    for source, address in named:
        found = places[address]
        usable = found["piece"]["usable_bytes"] if found["piece"] else None
        usable = usable or next((one["block"]["usable_bytes"] for one in found["places"] if one["block"]), None)
        assert usable is not None or found["named"] is not None, (source, address, found)
        if usable is not None:
            blocks[address] = usable
    some = [address for source, address in named if source in ("census", "owners --depth 3") and address in blocks][:4]
    assert some
    for address, envelope in zip(some, answers(target, tmp_path, *("refs %s" % one for one in some))):
        assert envelope["data"]["size_bytes"] <= blocks[address] + 64, (address, envelope["data"], places[address])
