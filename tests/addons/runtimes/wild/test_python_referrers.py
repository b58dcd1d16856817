"""Who holds an object of CPython, held against what its own collector says in the process, and how many objects of each type there are.

Files: analysis/reachability/refs.py, addons/runtimes/cpython/objects.py, kernel/blocks/graph.py.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Set, Tuple

import pytest

from gdbheapx.allocators.session import Session
from gdbheapx.analysis.census import block
from gdbheapx.analysis.reachability.paths import NamedGraph
from gdbheapx.inferior.target import open_elf_target
from gdbheapx.kernel.blocks.graph import UNOWNING
from tests.support.gcores import gcore
from tests.support.processes import Process, Stage
from tests.support.python_service import FILES

pytestmark = pytest.mark.wild  # interpreters that may not be here
PYTHONS = [
    str(folder / "bin" / "python3") for folder in sorted(Path("/root/.pyenv/versions").glob("3.*")) if int(folder.name.split(".")[1]) >= 8
]
PYTHONS.append("/usr/bin/python3")
SAMPLES, MOST_CLIMBED, MOST_BEYOND = 300, 20_000, 0.05
UNTRACKED = {"dict", "list", "tuple", "frame", "PyCapsule"}
"""Types some of whose objects the collector does not have: it leaves some containers out, and free lists keep freed ones."""
MAIN = (
    """
import ast, argparse, gc, json, random, sys, xml.dom.minidom
sys.path.insert(0, ".")
import asyncio, concurrent.futures, decimal, email.message, http.server, logging, unittest.mock
import shop, app.handlers
document = xml.dom.minidom.parseString("<a>" + "<b c='d'>text</b>" * 200 + "</a>")
tree = ast.parse(open(argparse.__file__, encoding="utf-8").read())
def serve():
    gc.collect()
    every = gc.get_objects()
    tracked = list(map(id, every))
    counts = {}
    for one in every:
        counts[type(one).__qualname__] = counts.get(type(one).__qualname__, 0) + 1
    random.Random(1).shuffle(every)
    chosen = every[:%d]
    del every
    me, samples = sys._getframe(), []
    for one in chosen:
        samples.append((id(one), type(one).__name__, [id(other) for other in gc.get_referrers(one) if other not in (chosen, me)]))
    print(json.dumps([samples, tracked, counts, id(chosen)]), flush=True)
    del one
    for line in sys.stdin:
        bad, by_id = [], {id(one): one for one in gc.get_objects()}
        for holder, held in json.loads(line):
            steps = [by_id[holder]] if holder in by_id else []
            for _ in range(3):  # a function, its tuple, its cell
                steps = gc.get_referents(*steps)
                if held in map(id, steps):
                    break
                steps = [one for one in steps if type(one) in (dict, tuple, type((lambda: steps).__closure__[0]))]
            else:
                bad.append([holder, held]) if holder in by_id else None
        print(json.dumps(bad), flush=True)
serve()
"""
    % SAMPLES
)


class Told(NamedTuple):
    """What the program says of itself."""

    samples: List[Tuple[int, str, List[int]]]
    """Of each object its address, its type and who refers to it."""
    tracked: List[int]
    counts: Dict[str, int]
    """Objects by type."""
    chosen: int
    """The list of the samples."""


def told(stage: Stage, python: str) -> Tuple[Process, Told]:
    """The program, and what it said."""
    folder = stage.folder()
    for name, text in {**FILES, "main.py": MAIN}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    process = stage.spawn([python, "-B", "main.py"], folder, {"PYTHONHASHSEED": "0"})
    return process, Told(*answer(process))


def answer(process: Process) -> Any:
    line = process.popen.stdout.readline()
    assert line, process.stderr_path.read_text()
    return json.loads(line)


class Holders:
    """Objects that lead to others, by the graph."""

    def __init__(self, graph: NamedGraph) -> None:
        self.graph, self.blocks = graph.reach.graph, graph.reach.numbers.blocks
        self._labels, self._kinds = graph.paths._told.labels, graph.paths._told.kinds  # type: ignore[attr-defined]

    def type(self, node: int) -> str:
        """Of an object; empty: it is none, such as a list's elements."""
        return self._kinds[self._labels[node]].name or ""

    def node(self, address: int) -> int:
        """-1: in no block, as a static type is."""
        place = self.graph.find(address)
        return place[0] if place is not None and place[0] < self.blocks else -1

    def of(self, node: int) -> Tuple[Set[int], Set[int]]:
        """(those whose words own it, any), by way of what is no object."""
        owners: Set[int] = set()
        any_: Set[int] = set()
        waiting, seen = [(node, True)], {node}
        while waiting and len(seen) < MOST_CLIMBED:
            below, owns = waiting.pop()
            for pointer in self.graph.referrers(below, MOST_CLIMBED):
                if pointer.node >= self.blocks:
                    continue
                owns_too = owns and pointer.rule != UNOWNING
                any_.add(pointer.node)
                if owns_too:
                    owners.add(pointer.node)
                is_object = bool(self.type(pointer.node)) and "_lru_list_elem" not in self.type(pointer.node)
                if not is_object and pointer.node not in seen:
                    seen.add(pointer.node)
                    waiting.append((pointer.node, owns_too))
        return owners, any_


@pytest.mark.parametrize("python", PYTHONS)
def test_the_collector_agrees(stage: Stage, python: str) -> None:
    """Of 300 random objects each referrer that gc knows is a holder here; each object whose words own it is a referrer that gc knows; along
    a path each step's object refers to the next; and there are as many objects of each type."""
    process, said = told(stage, python)
    session = Session(open_elf_target(core=str(gcore(process))))
    session.prepare()
    graph = block.make_named_graph(session)
    holders = Holders(graph)
    tracked = {holders.node(address) for address in said.tracked}
    lacking, beyond, pairs, owning = [], Counter[Tuple[str, str]](), [], 0
    for address, kind, referrers in said.samples:
        node = holders.node(address)
        if node < 0:
            continue
        owners, any_ = holders.of(node)
        known = {holders.node(referrer) for referrer in referrers} - {-1}
        lacking += [(holders.type(other), kind, hex(address)) for other in known - any_]
        mine = (owners & tracked) - {holders.node(said.chosen)}
        owning += len(mine)
        beyond.update((holders.type(other), kind) for other in mine - known)
        path = graph.paths.of(node) if graph.paths is not None else None
        steps = [step for step in path.steps if step.address is not None] if path is not None else []
        pairs += [(above.address, below.address) for above, below in zip(steps, steps[1:]) if "<" not in below.name]
    assert not lacking and owning > SAMPLES, lacking
    # Numbers that are addresses (keys of type.__subclasses__), words behind a tuple's end, and a dict that lies in its object.
    assert sum(beyond.values()) <= MOST_BEYOND * owning, beyond
    process.send(("%s\n" % json.dumps(pairs)).encode())
    assert len(pairs) > SAMPLES and answer(process) == []
    found = Counter(holders.type(node).split(".")[-1] for node in range(holders.blocks))
    differs = {name: (count, found[name.split(".")[-1]]) for name, count in said.counts.items() if count != found[name.split(".")[-1]]}
    assert set(differs) <= UNTRACKED and len(said.counts) > 150, differs
