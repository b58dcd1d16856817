"""What stands behind the last item of a tuple or behind a number's dict was left there by who had the memory before, and holds nothing.

Files: kernel/blocks/stale.h, kernel/blocks/owning.c, addons/runtimes/cpython/objects.py.
"""

import json
import sys
from pathlib import Path
from typing import Any, List

import pytest

from gdbheapx.analysis.census import block
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.graph import UNOWNING, Graph
from gdbheapx.session import Session
from tests.support.processes import Process, Stage

pytestmark = pytest.mark.image  # the system's Python

COUNT = 4000
SCRIPT = (
    """
import ctypes, json, sys
class Thing:
    __slots__ = ("number",)
class Number(int):
    pass
words = ctypes.c_size_t.from_address
things = [Thing() for _ in range(%d)]
def end():
    return [(thing, thing, thing) for thing in things], [(1, 2, thing, 3, thing) for thing in things]
end()
pairs = [(number, number) for number in things]
fours = [(number, 1, 2, number) for number in things]
end()
numbers = [Number(1 + place) for place in range(len(things))]
for number in numbers:
    number.name = things[0]
known = set(map(id, things))
told = []
for kind, every in (("tuple", pairs), ("tuple", fours), ("Number", numbers)):
    for one in every:
        size = sys.getsizeof(one)
        if kind == "Number":
            size = 16 + 24 + 16  # its dict's address, a digit, and one more, which all types of variable size have
        if size %% 16 and words(id(one) - 16 + size).value in known:
            told.append([kind, id(one) - 16, size // 8, words(id(one) - 16 + size).value])
del one, every
open(sys.argv[1], "w").write(json.dumps([told, [id(one) - 16 for one in pairs]]))
print("ready", flush=True)
sys.stdin.read()
"""
    % COUNT
)


def started(stage: Stage, folder: Path) -> Process:
    """It says which words behind which objects lead to one of its things."""
    return stage.spawn_ready([sys.executable, "-c", SCRIPT, str(folder / "told")])


def test_words_behind_the_last_item_own_nothing(stage: Stage, kind: str, tmp_path: Path) -> None:
    """Each of those is `not-owning`; every pointer of a pair to its things owns."""
    if sys.version_info >= (3, 14):
        pytest.skip("a pair and its hash fill a block: no word is left behind the last item")
    process = started(stage, tmp_path)
    slack, pairs = json.loads((tmp_path / "told").read_text())
    target = process.target(kind)
    session = Session(open_elf_target(core=target[-1]) if kind == "core" else open_elf_target(pid=process.pid))
    session.prepare()
    graph = block.make_named_graph(session).reach.graph
    counts = {name: sum(one[0] == name for one in slack) for name in ("tuple", "Number")}
    assert counts["tuple"] > 100 and (counts["Number"] > 100 or sys.version_info >= (3, 12))
    for _, address, slot, _ in slack:
        assert {(edge.slot, edge.rule) for edge in edges(graph, address) if edge.slot == slot} <= {(slot, UNOWNING)}
    for address in pairs:
        assert [edge.rule for edge in edges(graph, address) if edge.slot in (5, 6)] == [0, 0]


def edges(graph: Graph, address: int) -> List[Any]:
    """Of the block there."""
    place = graph.find(address)
    assert place is not None and place[1] == 0
    return graph.edges(place[0])
