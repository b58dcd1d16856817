"""CPython: garbage in cycles held against what its own collector frees, and words that earlier owners left behind.

Files: analysis/addon_answers.py, report/analysis_text.py, kernel/blocks/stale.h, kernel/blocks/owning.c, addons/runtimes/cpython/objects.py.
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import block
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.graph import UNOWNING, Graph
from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.tool import heapx

pytestmark = pytest.mark.image  # depends on this Python's release

PROGRAM = """
import collections, gc, sys, weakref
class Session:
    def __init__(self, i):
        self.me, self.buffer, self.table = self, bytearray(b"x" * 20000), {"k%d" % k: [k, i] for k in range(30)}
def failed(i):
    rows = collections.deque([i]); rows.append(rows)
    try: raise ValueError(i)
    except ValueError as error: rows.append(error)
gc.collect()
mode, live, known = sys.argv[1], [Session(i) for i in range(50)], weakref.WeakValueDictionary()
if mode != "late": gc.disable()
else: gc.set_threshold(100000)
if mode != "none":
    for i in range(100):
        known[i] = Session(i); failed(i); known.get(i)
if mode == "frozen": gc.freeze()
print("ready", flush=True)
sys.stdin.read(1)
gc.unfreeze()
print(gc.collect(), len(known), "freed", flush=True)
sys.stdin.read()
"""


def started(stage: Stage, mode: str) -> Process:
    """The program, at rest."""
    return stage.spawn_ready([sys.executable, "-c", PROGRAM, mode])


def garbage(command: str, target: Sequence[str]) -> Dict[str, Any]:
    """What a command says of garbage; a snapshot has other addresses."""
    said = dict(heapx(target, command, "--json").envelope["data"]["garbage"])
    return {**said, "classes": [{**row, "sample": None} for row in said["classes"]]}


@pytest.mark.parametrize("mode", ["off", "frozen", "late"])
def test_what_a_collection_would_free(stage: Stage, mode: str) -> None:
    """It is found live, and in a core and a snapshot alike, with why it is there; and the program's own collector then frees it."""
    process = started(stage, mode)
    target, snapshot = process.target("live"), process.folder / "now.snap"
    if mode == "late":
        assert heapx(target, "snapshot", str(snapshot)).code == 0
    look = {"off": target, "frozen": ["--core", str(gcore(process))], "late": ["--snapshot", str(snapshot)]}[mode]
    live = garbage("leaks", target)
    for found in (live, garbage("owners", look), garbage("leaks", look)):  # a stale word in one may hold a few
        assert found["why"] in (mode, None) and found["classes"][0]["name"] == "Session", "None: this release's state is not read"
        assert 95 <= found["classes"][0]["objects"] <= 100 and found["classes"][0]["behind_bytes"] >= 95 * 20000
    if mode == "off":
        deep = heapx(target, "report", "--deep", "--json").data
        assert deep["verdict"]["causes"][0]["code"] == "collector-cycles" and deep["next"][0]["command"] == "leaks"
    process.send(b"x")
    freed, left, _ = process.popen.stdout.readline().split()
    assert 0.9 * int(freed) <= live["objects"] <= 1.05 * int(freed) and not int(left)


def test_classes_add_up_and_say_it(stage: Stage) -> None:
    """Garbage is in no other class; what is alive is none of it."""
    process, clean = started(stage, "off"), started(stage, "none")
    data = heapx(process.target("live"), "leaks", "--json").envelope["data"]
    parts = [data["classes"][name] for name in ("held", "maybe", "leaked")] + [data["garbage"]]
    census = heapx(process.target("live"), "census", "--json").envelope["data"]
    assert abs(sum(part["bytes"] for part in parts) - sum(row["bytes"] for row in census["rows"])) < 4096
    inside = heapx(process.target("live"), "report", "--deep", "--json").envelope["data"]["inside"]
    assert inside["garbage"]["why"] == data["garbage"]["why"] and abs(inside["garbage"]["bytes"] - data["garbage"]["bytes"]) < 100000
    text = heapx(process.target("live"), "leaks").stdout.decode()
    assert "that only refer to each other" in text and "gc.collect() would free them" in text
    assert ("collector is off" in text) is (data["garbage"]["why"] == "off")
    assert heapx(clean.target("live"), "leaks", "--json").envelope["data"]["garbage"] is None


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


def started_with_slack(stage: Stage, folder: Path) -> Process:
    """It says which words behind which objects lead to one of its things."""
    return stage.spawn_ready([sys.executable, "-c", SCRIPT, str(folder / "told")])


def test_words_behind_the_last_item_own_nothing(stage: Stage, kind: str, tmp_path: Path) -> None:
    """Each of those is `not-owning`; every pointer of a pair to its things owns."""
    if sys.version_info >= (3, 14):
        pytest.skip("a pair and its hash fill a block: no word is left behind the last item")
    process = started_with_slack(stage, tmp_path)
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
